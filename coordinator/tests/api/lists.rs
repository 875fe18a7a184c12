//! Long lists, short answers, and those that the reader has already.

use serde_json::{Value, json};

use crate::stage::{Stage, lrp};

#[test]
fn a_long_list_is_whole() {
    let stage = Stage::new();
    for nth in 0..20 {
        stage.done(
            "/v1/desired_lrp/desire.r2",
            json!({"desired_lrp": lrp(&format!("p{nth}"), 500)}),
        );
    }
    let answer = stage.get("/v1/actual_lrps/list");
    assert_eq!(answer.header("transfer-encoding"), "chunked", "sent while it is written");
    let all = answer.json();
    let all = all["actual_lrps"].as_array().unwrap();
    assert_eq!(all.len(), 10_000);
    let mut keys: Vec<(String, u64)> = all
        .iter()
        .map(|lrp| (lrp["process_guid"].to_string(), lrp["index"].as_u64().unwrap()))
        .collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 10_000, "each once");
    let short = stage.get("/v1/actual_lrps/list?process_guid=p3&index=7");
    assert_ne!(short.header("content-length"), "", "a short one has a length");
    let short = short.json();
    assert_eq!(short["actual_lrps"].as_array().unwrap().len(), 1);
    assert_eq!(
        stage.get("/v1/desired_lrps/list.r3").json()["desired_lrps"].as_array().unwrap().len(),
        20
    );
}

#[test]
fn filters_are_joined() {
    let stage = Stage::new();
    for (guid, domain) in [("a-1", "x"), ("a-2", "y"), ("b-1", "x")] {
        let mut lrp = lrp(guid, 2);
        lrp["domain"] = domain.into();
        stage.done("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp}));
    }
    let count = |path: &str, body: Value, key: &str| {
        stage.done(path, body)[key].as_array().map_or(0, Vec::len)
    };
    let actual = |body| count("/v1/actual_lrps/list", body, "actual_lrps");
    assert_eq!(actual(json!({})), 6);
    assert_eq!(actual(json!({"domain": "x"})), 4);
    assert_eq!(actual(json!({"domain": "x", "index": 0})), 2);
    assert_eq!(actual(json!({"domain": "x", "process_guid": "a-2"})), 0);
    assert_eq!(actual(json!({"cell_id": "none"})), 0);
    assert_eq!(actual(json!({"process_guid": "not a guid"})), 0);
    let desired = |body| count("/v1/desired_lrps/list.r3", body, "desired_lrps");
    assert_eq!(desired(json!({"app_guids": ["a"]})), 2);
    assert_eq!(desired(json!({"app_guids": ["a"], "domain": "y"})), 1);
    assert_eq!(desired(json!({"process_guids": ["b-1", "c"], "domain": "x"})), 1);
    let infos =
        |body| count("/v1/desired_lrp_scheduling_infos/list", body, "desired_lrp_scheduling_infos");
    assert_eq!(infos(json!({"app_guids": ["a"]})), 3, "this list does not look at app_guids");
}

#[test]
fn a_reader_is_told_that_nothing_has_changed() {
    let stage = Stage::new();
    stage.done("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp("p", 3)}));
    for path in [
        "/v1/actual_lrps/list",
        "/v1/actual_lrp_groups/list",
        "/v1/desired_lrps/list.r3",
        "/v1/desired_lrp_scheduling_infos/list",
        "/v1/lrp_deployments/list",
    ] {
        // The auction notes meanwhile, for one instance after the other, that there is no cell: a tag
        // of before is old then. So all of it is tried again until nothing came between.
        let known = crate::stage::eventually("a list that stays", || {
            let known = stage.get(path).header("etag").to_owned();
            let unchanged = stage.send("GET", path, None, &[("if-none-match", &known)]);
            let weak = format!("\"x\", W/{known}");
            let posted = stage.send("POST", path, Some(b"{}"), &[("if-none-match", &weak)]);
            if stage.get(path).header("etag") != known {
                return None;
            }
            for answer in [&unchanged, &posted] {
                let told = (answer.status, answer.text.as_str(), answer.header("etag"));
                assert_eq!(told, (304, "", known.as_str()), "{path}");
            }
            Some(known)
        });
        assert_eq!(stage.send("GET", path, None, &[("if-none-match", "\"other\"")]).status, 200);
        let other = stage.get(&format!(
            "{path}?fields={}",
            if path.contains("group") { "instance" } else { "process_guid" }
        ));
        assert_ne!(other.header("etag"), known, "other fields are another answer");
        stage.done("/v1/desired_lrp/update", json!({"process_guid": "p", "update": {"annotation": path, "instances": 2 + path.len()}}));
        let changed = stage.send("GET", path, None, &[("if-none-match", known.as_str())]);
        assert_eq!(changed.status, 200, "{path}");
    }
}

#[test]
fn an_answer_has_only_the_fields_that_were_asked_for() {
    let stage = Stage::new();
    stage.done("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp("p", 1)}));
    let answer = stage.send_unchecked("GET", "/v1/actual_lrps/list?fields=index,state", None, &[]);
    assert_eq!(answer.json(), json!({"actual_lrps": [{"index": 0, "state": "UNCLAIMED"}]}));
    let answer =
        stage.send_unchecked("POST", "/v1/desired_lrps/list.r3?fields=instances", Some(b"{}"), &[]);
    assert_eq!(answer.json(), json!({"desired_lrps": [{"instances": 1}]}));
    let refused = stage.get("/v1/actual_lrps/list?fields=stat");
    assert!(refused.text.contains("there is no field") && refused.text.contains("state"));
}

#[test]
fn everything_is_there_after_a_restart() {
    let stage = Stage::new();
    stage.done("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp("p", 3)}));
    stage.done("/v1/domains/upsert", json!({"domain": "apps", "ttl": 0}));
    let token = stage.token.clone();
    let folder = stage.stop();
    let stage = Stage::at(folder, "");
    assert_eq!(stage.token, token, "the admin's token stays");
    let lrps = stage.get("/v1/actual_lrps/list").json();
    assert_eq!(lrps["actual_lrps"].as_array().unwrap().len(), 3);
    assert_eq!(stage.get("/v1/domains/list").json()["domains"], json!(["apps"]));
}
