//! Every route: what it does with good input, and what it says to bad.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::stage::{Stage, lrp, task};

/// `(method, path)` of everything in the document.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((method.to_ascii_uppercase(), path.clone(), operation.clone()));
        }
    }
    all
}

#[test]
fn every_route_does_what_it_says() {
    let stage = Stage::new();
    let mut called = BTreeSet::new();
    let mut ok = |method: &str, path: &str, body: Value| -> Value {
        let bytes = body.to_string();
        let body = (method == "POST").then_some(bytes.as_bytes());
        let answer = stage.send(method, path, body, &[]);
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text);
        called.insert((method.to_owned(), path.split('?').next().unwrap().to_owned()));
        serde_json::from_str(&answer.text).unwrap_or(Value::Null)
    };

    // Domains.
    assert_eq!(ok("POST", "/v1/ping", json!({}))["available"], true);
    assert_eq!(ok("GET", "/v1/ping", json!({}))["available"], true);
    ok("POST", "/v1/domains/upsert", json!({"domain": "apps", "ttl": 3600}));
    assert_eq!(ok("POST", "/v1/domains/list", json!({}))["domains"], json!(["apps"]));
    assert_eq!(ok("GET", "/v1/domains/list", json!({}))["domains"], json!(["apps"]));

    // Desired LRPs.
    ok("POST", "/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp("p", 3)}));
    for version in ["r2", "r3"] {
        let path = format!("/v1/desired_lrps/get_by_process_guid.{version}");
        let one = ok("POST", &path, json!({"process_guid": "p"}));
        assert_eq!(one["desired_lrp"]["instances"], 3);
        assert_eq!(one["desired_lrp"]["metrics_guid"], "s", "as the tag says");
        assert_eq!(ok("GET", &format!("{path}?process_guid=p"), json!({})), one);
        let path = format!("/v1/desired_lrps/list.{version}");
        let all = ok("POST", &path, json!({"domain": "apps"}));
        assert_eq!(all["desired_lrps"], json!([one["desired_lrp"]]));
        assert_eq!(ok("GET", &format!("{path}?domain=apps"), json!({})), all);
    }
    let path = "/v1/desired_lrp_scheduling_infos/get_by_process_guid";
    let info = ok("POST", path, json!({"process_guid": "p"}));
    assert_eq!(info["desired_lrp_scheduling_info"]["memory_mb"], 64);
    assert_eq!(ok("GET", &format!("{path}?process_guid=p"), json!({})), info);
    let path = "/v1/desired_lrp_scheduling_infos/list";
    let infos = ok("POST", path, json!({"process_guids": ["p", "q"]}));
    assert_eq!(infos["desired_lrp_scheduling_infos"].as_array().unwrap().len(), 1);
    assert_eq!(ok("GET", &format!("{path}?process_guids=p,q"), json!({})), infos);
    let path = "/v1/desired_lrp_routing_infos/list";
    let routing = ok("POST", path, json!({}));
    assert_eq!(routing["desired_lrps"][0]["log_guid"], "log");
    assert_eq!(routing["desired_lrps"][0]["memory_mb"], 0, "left empty");
    assert_eq!(ok("GET", path, json!({})), routing);
    let update = json!({"process_guid": "p", "update": {"instances": 2, "annotation": "note"}});
    ok("POST", "/v1/desired_lrp/update", update);

    // Actual LRPs.
    let all = ok("POST", "/v1/actual_lrps/list", json!({}));
    assert_eq!(all["actual_lrps"].as_array().unwrap().len(), 2);
    assert_eq!(all["actual_lrps"][0]["state"], "UNCLAIMED");
    assert_eq!(ok("GET", "/v1/actual_lrps/list?process_guid=p", json!({})), all);
    let path = "/v1/actual_lrps/list_by_process_guids";
    assert_eq!(ok("POST", path, json!({"process_guids": ["p", "p", "q"]})), all);
    assert_eq!(ok("GET", &format!("{path}?process_guids=p"), json!({})), all);
    let groups = ok("POST", "/v1/actual_lrp_groups/list", json!({"domain": "apps"}));
    assert_eq!(groups["actual_lrp_groups"].as_array().unwrap().len(), 2);
    assert_eq!(ok("GET", "/v1/actual_lrp_groups/list", json!({})), groups);
    let path = "/v1/actual_lrp_groups/list_by_process_guid";
    assert_eq!(ok("POST", path, json!({"process_guid": "p"})), groups);
    assert_eq!(ok("GET", &format!("{path}?process_guid=p"), json!({})), groups);
    let path = "/v1/actual_lrp_groups/get_by_process_guid_and_index";
    let group = ok("POST", path, json!({"process_guid": "p", "index": 1}));
    assert_eq!(group["actual_lrp_group"]["instance"]["index"], 1);
    assert_eq!(ok("GET", &format!("{path}?process_guid=p&index=1"), json!({})), group);
    let key = json!({"actual_lrp_key": {"process_guid": "p", "index": 0, "domain": "apps"}});
    ok("POST", "/v1/actual_lrps/retire", key);

    // Deployments.
    deployments(&mut ok);
    tasks(&stage, &mut ok);

    // Cells and why there are none.
    assert_eq!(ok("POST", "/v1/cells/list.r1", json!({})), json!({}));
    assert_eq!(ok("GET", "/v1/cells/list.r1", json!({})), json!({}));
    assert_eq!(ok("POST", "/v1/cells/states", json!({})), json!({}));
    assert_eq!(ok("GET", "/v1/cells/states", json!({})), json!({}));
    ok("POST", "/v1/cells/release_hold", json!({}));
    let explained = crate::stage::eventually("a round of the auction", || {
        let answer = stage.post("/v1/auction/explain", json!({"process_guid": "d", "index": 0}));
        (answer.status == 200).then(|| answer.json())
    });
    assert!(explained["explanation"]["verdict"]["unplaced"].is_string(), "{explained}");
    ok("POST", "/v1/auction/explain", json!({"process_guid": "d"}));
    ok("GET", "/v1/auction/explain?process_guid=d", json!({}));

    members(&mut ok);
    ok("POST", crate::certificates::ISSUE, crate::certificates::order(&json!({})));
    reports(&mut ok);

    // Operating.
    for path in ["/livez", "/health", "/readyz", "/ready", "/metrics", "/openapi.json"] {
        ok("GET", path, json!({}));
    }
    assert_eq!(ok("GET", "/version", json!({}))["version"], env!("CARGO_PKG_VERSION"));
    ok("POST", "/v1/desired_lrp/remove", json!({"process_guid": "p"}));

    // Nothing was left out, but for what needs a cell, and streams, which have tests of their own.
    let needs_a_cell = ["/v1/cells/evacuate", "/v1/actual_lrps/logs", "/v1/actual_lrps/exec"];
    let missing: Vec<_> = operations(stage.document())
        .into_iter()
        .filter(|(method, path, _)| !called.contains(&(method.clone(), path.clone())))
        .filter(|(_, path, _)| {
            !needs_a_cell.contains(&path.as_str()) && !path.starts_with("/v1/events")
        })
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    assert!(missing.is_empty(), "no good call of {missing:?}");
}

/// What Diego's cells tell, by an admin.
fn reports(ok: &mut impl FnMut(&str, &str, Value) -> Value) {
    ok("POST", "/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp("r", 7)}));
    let key = |index: u32| json!({"process_guid": "r", "index": index, "domain": "apps"});
    let instance = |index: u32| json!({"instance_guid": format!("i{index}"), "cell_id": "c"});
    let both = |index: u32| json!({"actual_lrp_key": key(index), "actual_lrp_instance_key": instance(index)});
    let with = |index: u32, name: &str, value: Value| {
        let mut body = both(index);
        body[name] = value;
        body
    };
    let net = json!({"address": "10.0.0.1"});
    for index in 0..7 {
        let claim = json!({
            "process_guid": "r", "index": index, "actual_lrp_instance_key": instance(index),
        });
        ok("POST", "/v1/actual_lrps/claim", claim);
    }
    for (index, path) in [(0, "start.r1"), (1, "start"), (2, "start.r1"), (3, "start.r1")] {
        let path = format!("/v1/actual_lrps/{path}");
        ok("POST", &path, with(index, "actual_lrp_net_info", net.clone()));
    }
    for (index, path) in [(0, "evacuate_running.r1"), (1, "evacuate_running")] {
        let path = format!("/v1/actual_lrps/{path}");
        let kept = ok("POST", &path, with(index, "actual_lrp_net_info", net.clone()));
        assert_eq!(kept["keep_container"], true, "{path}");
    }
    ok("POST", "/v1/actual_lrps/remove_evacuating", both(0));
    ok("POST", "/v1/actual_lrps/crash", with(2, "error_message", "exit 1".into()));
    ok("POST", "/v1/actual_lrps/evacuate_crashed", with(3, "error_message", "exit 1".into()));
    assert_eq!(ok("POST", "/v1/actual_lrps/evacuate_claimed", both(4))["keep_container"], false);
    ok("POST", "/v1/actual_lrps/evacuate_stopped", both(5));
    let fail = json!({"actual_lrp_key": key(4), "error_message": "full"});
    ok("POST", "/v1/actual_lrps/fail", fail);
    let remove = json!({"process_guid": "r", "index": 6, "actual_lrp_instance_key": instance(6)});
    ok("POST", "/v1/actual_lrps/remove", remove);
    for guid in ["r1", "r2", "r3"] {
        ok("POST", "/v1/tasks/desire.r2", task(guid));
    }
    let start = ok("POST", "/v1/tasks/start", json!({"task_guid": "r1", "cell_id": "c"}));
    assert_eq!(start["should_start"], true);
    ok("POST", "/v1/tasks/complete", json!({"task_guid": "r1", "cell_id": "c", "result": "7"}));
    ok("POST", "/v1/tasks/fail", json!({"task_guid": "r2", "failure_reason": "no"}));
    ok("POST", "/v1/tasks/reject", json!({"task_guid": "r3", "rejection_reason": "full"}));
    ok("POST", "/v1/desired_lrp/remove", json!({"process_guid": "r"}));
}

/// A deployment from its creation to its end, with every order in between that has nothing to do
/// refused as such.
fn deployments(ok: &mut impl FnMut(&str, &str, Value) -> Value) {
    let definition = |path: &str| json!({"rootfs": "host:", "action": {"run": {"path": path, "user": "nobody"}}});
    let deployment = json!({
        "process_guid": "d", "domain": "apps", "instances": 1, "definition_id": "v1",
        "definition": definition("/bin/true"),
    });
    ok("POST", "/v1/lrp_deployment/create", json!({"deployment": deployment}));
    let path = "/v1/lrp_deployments/get_by_process_guid";
    let one = ok("POST", path, json!({"process_guid": "d"}));
    assert_eq!(one["deployment"]["active_definition_id"], "v1");
    assert_eq!(ok("GET", &format!("{path}?process_guid=d"), json!({})), one);
    let update = |id: &str| {
        let update = json!({"definition_id": id, "definition": definition("/bin/false")});
        json!({"process_guid": "d", "update": update})
    };
    ok("POST", "/v1/lrp_deployment/update", update("v2"));
    let two = ok("POST", path, json!({"process_guid": "d"}));
    assert_eq!(two["deployment"]["active_definition_id"], "v2");
    let path = "/v1/lrp_deployments/list";
    let listed = ok("POST", path, json!({"process_guids": ["d"]}));
    // The update goes on meanwhile: only what it does not change is compared.
    assert_eq!(listed["deployments"][0]["process_guid"], "d");
    let listed = ok("GET", &format!("{path}?process_guids=d,x"), json!({}));
    assert_eq!(listed["deployments"].as_array().unwrap().len(), 1);
    ok("POST", "/v1/lrp_deployment/pause", json!({"process_guid": "d"}));
    ok("POST", "/v1/lrp_deployment/resume", json!({"process_guid": "d"}));
    ok("POST", "/v1/desired_lrp/cancel_update", json!({"process_guid": "d"}));
    let canary = json!({
        "rollout": {"canary_instances": 1}, "definition_id": "v3", "instances": 2,
        "definition": definition("/bin/sh"),
    });
    ok("POST", "/v1/lrp_deployment/update", json!({"process_guid": "d", "update": canary}));
    ok("POST", "/v1/lrp_deployment/promote", json!({"process_guid": "d"}));
    ok("POST", "/v1/lrp_deployment/activate", json!({"process_guid": "d", "definition_id": "v1"}));
    ok("POST", "/v1/desired_lrp/cancel_update", json!({"process_guid": "d"}));
    let plain = json!({
        "process_guid": "e", "domain": "apps", "instances": 0, "definition_id": "v1",
        "definition": definition("/bin/true"),
    });
    ok("POST", "/v1/lrp_deployment/create", json!({"deployment": plain}));
    let mut to_v2 = update("v2");
    to_v2["process_guid"] = "e".into();
    ok("POST", "/v1/lrp_deployment/update", to_v2);
    ok("POST", "/v1/desired_lrp/rollback", json!({"process_guid": "e", "definition_id": "v1"}));
    ok("POST", "/v1/lrp_deployment/delete", json!({"process_guid": "e"}));
}

fn tasks(stage: &Stage, ok: &mut impl FnMut(&str, &str, Value) -> Value) {
    ok("POST", "/v1/tasks/desire.r2", task("t"));
    for version in ["r2", "r3"] {
        let path = format!("/v1/tasks/get_by_task_guid.{version}");
        let one = ok("POST", &path, json!({"task_guid": "t"}));
        assert_eq!(one["task"]["state"], "Pending");
        ok("GET", &format!("{path}?task_guid=t"), json!({}));
        let path = format!("/v1/tasks/list.{version}");
        let all = ok("POST", &path, json!({"domain": "apps"}));
        assert_eq!(all["tasks"][0]["task_guid"], "t");
        ok("GET", &format!("{path}?domain=apps"), json!({}));
        assert_eq!(ok("POST", &path, json!({"domain": "other"}))["tasks"], json!([]));
    }
    ok("POST", "/v1/tasks/cancel", json!({"task_guid": "t"}));
    let cancelled = stage.done("/v1/tasks/get_by_task_guid.r3", json!({"task_guid": "t"}));
    assert_eq!(cancelled["task"]["failure_reason"], "cancelled");
    ok("POST", "/v1/tasks/resolving", json!({"task_guid": "t"}));
    ok("POST", "/v1/tasks/delete", json!({"task_guid": "t"}));
    assert_eq!(stage.post("/v1/tasks/delete", json!({"task_guid": "t"})).status, 404);
    assert_eq!(ok("POST", "/v1/tasks/callbacks/list", json!({})), json!({}));
    assert_eq!(ok("GET", "/v1/tasks/callbacks/list", json!({})), json!({}));
}

fn members(ok: &mut impl FnMut(&str, &str, Value) -> Value) {
    let order = json!({"uses": 2, "cell_id": "c1", "label": "rack 7"});
    let made = ok("POST", "/v1/join_tokens/create", order);
    assert!(made["join_token"].as_str().unwrap().starts_with("volvox-join-v1."));
    let listed = ok("POST", "/v1/join_tokens/list", json!({}));
    assert_eq!(listed["join_tokens"][0]["label"], "rack 7");
    assert_eq!(ok("GET", "/v1/join_tokens/list", json!({})), listed);
    ok("POST", "/v1/join_tokens/revoke", json!({"id": made["id"]}));
    let members = ok("POST", "/v1/members/list", json!({}));
    assert_eq!(members["members"][0]["name"], "test");
    assert_eq!(ok("GET", "/v1/members/list", json!({})), members);
    // Expelling ourselves would be a pity: one that nobody has joined as is refused.
    let me = &members["members"][0]["member_id"];
    assert!(me.is_string());
    let expelled = ok("POST", "/v1/members/revoke", json!({"member_id": me}));
    assert_eq!(expelled, json!({}));
}

#[test]
fn bad_input_is_refused_with_the_path_of_the_field() {
    let stage = Stage::new();
    let mut deep = json!({"run": {"path": "/bin/true", "user": "nobody"}});
    for _ in 0..40 {
        deep = json!({"try": {"action": deep}});
    }
    let with = |key: &str, value: Value| {
        let mut lrp = lrp("p", 1);
        lrp[key] = value;
        json!({"desired_lrp": lrp})
    };
    for (path, body, place) in [
        ("/v1/desired_lrp/desire.r2", json!({}), ""),
        ("/v1/desired_lrp/desire.r2", json!([]), ""),
        (
            "/v1/desired_lrp/desire.r2",
            with("process_guid", json!("a b")),
            "desired_lrp.process_guid",
        ),
        (
            "/v1/desired_lrp/desire.r2",
            with("process_guid", json!("../x")),
            "desired_lrp.process_guid",
        ),
        (
            "/v1/desired_lrp/desire.r2",
            with("process_guid", json!("a\0b")),
            "desired_lrp.process_guid",
        ),
        ("/v1/desired_lrp/desire.r2", with("instances", json!(-1)), "desired_lrp.instances"),
        ("/v1/desired_lrp/desire.r2", with("instances", json!(1.5)), "desired_lrp.instances"),
        ("/v1/desired_lrp/desire.r2", with("instances", json!(100_001)), "desired_lrp.instances"),
        ("/v1/desired_lrp/desire.r2", with("rootfs", json!("")), "desired_lrp.rootfs"),
        ("/v1/desired_lrp/desire.r2", with("action", Value::Null), "desired_lrp.action"),
        ("/v1/desired_lrp/desire.r2", with("action", json!({"fly": {}})), "desired_lrp.action"),
        ("/v1/desired_lrp/desire.r2", with("action", deep), "desired_lrp.action"),
        ("/v1/desired_lrp/update", json!({"update": {}}), ""),
        ("/v1/actual_lrps/list_by_process_guids", json!({"process_guids": []}), "process_guids"),
        ("/v1/actual_lrps/list", json!({"index": "x"}), "index"),
        ("/v1/domains/upsert", json!({"domain": "", "ttl": 1}), "domain"),
        ("/v1/domains/upsert", json!({"domain": "a", "ttl": -1}), "ttl"),
        (
            "/v1/tasks/desire.r2",
            json!({"task_guid": "t", "domain": "d", "task_definition": {}}),
            "task_definition.rootfs",
        ),
        ("/v1/tasks/cancel", json!({"task_guid": "a/b"}), "task_guid"),
        ("/v1/auction/explain", json!({}), "process_guid"),
        ("/v1/join_tokens/create", json!({"replace": true}), "replace"),
        ("/v1/join_tokens/create", json!({"addresses": ["nowhere"]}), ""),
        ("/v1/join_tokens/revoke", json!({"id": "zz"}), "id"),
        ("/v1/members/revoke", json!({}), "cell_id"),
        ("/v1/members/revoke", json!({"member_id": "7"}), "member_id"),
        ("/v1/members/revoke", json!({"member_id": "7", "cell_id": "c"}), "cell_id"),
        (
            "/v1/lrp_deployment/update",
            json!({"process_guid": "p", "update": {"definition_id": "x"}}),
            "update.definition",
        ),
        ("/v1/events/tasks.r1?last_event_id=7", json!({}), "last_event_id"),
        ("/v1/events/tasks.r1?snapshot=perhaps", json!({}), "snapshot"),
        ("/v1/actual_lrps/list?fields=stat", json!({}), "fields"),
    ] {
        let answer = stage.post(path, body.clone());
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text);
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "InvalidRequest", "{path} {body}");
        let told = error["details"][0]["path"].as_str().unwrap_or_default();
        assert!(told.starts_with(place), "{path} {body}: {told:?} is not {place:?}");
        assert!(error["message"].as_str().unwrap().len() > 5);
    }
    for (path, body) in [
        ("/v1/desired_lrps/get_by_process_guid.r3", json!({"process_guid": "no"})),
        ("/v1/desired_lrp/remove", json!({"process_guid": "no"})),
        ("/v1/desired_lrp/update", json!({"process_guid": "no", "update": {}})),
        ("/v1/desired_lrp/cancel_update", json!({"process_guid": "no"})),
        ("/v1/tasks/cancel", json!({"task_guid": "no"})),
        ("/v1/actual_lrp_groups/get_by_process_guid_and_index", json!({"process_guid": "no"})),
        ("/v1/cells/evacuate", json!({"cell_id": "no"})),
        ("/v1/auction/explain", json!({"task_guid": "no"})),
    ] {
        let answer = stage.post(path, body);
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        assert_eq!(answer.json()["error"]["type"], "ResourceNotFound", "{path}");
    }
    stage.done("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp("p", 1)}));
    let again = stage.post("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp("p", 1)}));
    assert_eq!(
        (again.status, again.json()["error"]["type"].clone()),
        (409, "ResourceExists".into())
    );
}

#[test]
fn every_route_withstands_what_is_no_request() {
    let stage = Stage::new();
    let huge = vec![b' '; (2 << 20) + 1];
    for (method, path, operation) in operations(stage.document()) {
        for other in ["DELETE", "OPTIONS", "HEAD", "PATCH"] {
            let answer = stage.send_unchecked(other, &path, None, &[]);
            assert_eq!(answer.status, 405, "{other} {path}");
            assert!(answer.header("allow").contains(method.as_str()), "{other} {path}");
        }
        if method == "GET" {
            let answer = stage.get(&format!("{path}?%zz"));
            assert_eq!(answer.status, 400, "GET {path}: {}", answer.text);
            continue;
        }
        assert!(operation["requestBody"].is_object(), "{path}");
        for garbage in [&b"{"[..], b"\xff\xfe", b"[]", b"7", b"{} {}"] {
            let answer = stage.send("POST", &path, Some(garbage), &[]);
            assert_eq!(answer.status, 400, "{path} {garbage:?}: {}", answer.text);
        }
        let unknown = [("content-type", "application/cbor")];
        let answer = stage.send("POST", &path, Some(b"\x0a\x00"), &unknown);
        assert_eq!(answer.status, 415, "{path}");
        let answer = stage.send("POST", &path, Some(&huge), &[]);
        assert_eq!(answer.status, 413, "{path}");
    }
    assert_eq!(stage.get("/v1/nothing").status, 404);
    assert_eq!(stage.get("/").json()["error"]["type"], "RouteNotFound");
}

#[test]
fn the_document_describes_the_routes() {
    let stage = Stage::new();
    let document = stage.document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(document) {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(ids.insert(id.clone()), "{id} twice");
        assert!(operation["summary"].as_str().unwrap().ends_with('.'), "{method} {path}");
        let open = operation["security"] == json!([]);
        assert_eq!(open, ["/livez", "/health", "/readyz", "/ready"].contains(&path.as_str()));
        // What is described is served: 404 of an unknown path has another type.
        let answer = stage.send(
            &method,
            &path,
            (method == "POST").then_some(b"{"),
            &[("authorization", if open { "" } else { "Bearer none" })],
        );
        assert_ne!(answer.status, 404, "{method} {path}");
    }
    // The BBS's routes that consumers use, by name: none may go missing.
    for path in [
        "/v1/ping",
        "/v1/domains/list",
        "/v1/domains/upsert",
        "/v1/cells/list.r1",
        "/v1/actual_lrps/list",
        "/v1/actual_lrps/list_by_process_guids",
        "/v1/actual_lrp_groups/list",
        "/v1/actual_lrp_groups/list_by_process_guid",
        "/v1/actual_lrp_groups/get_by_process_guid_and_index",
        "/v1/actual_lrps/retire",
        "/v1/desired_lrps/list.r3",
        "/v1/desired_lrps/get_by_process_guid.r3",
        "/v1/desired_lrps/get_by_process_guid.r2",
        "/v1/desired_lrp_scheduling_infos/list",
        "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
        "/v1/desired_lrp_routing_infos/list",
        "/v1/desired_lrp/desire.r2",
        "/v1/desired_lrp/update",
        "/v1/desired_lrp/remove",
        "/v1/desired_lrp/cancel_update",
        "/v1/desired_lrp/rollback",
        "/v1/lrp_deployment/create",
        "/v1/lrp_deployment/update",
        "/v1/lrp_deployment/activate",
        "/v1/lrp_deployment/delete",
        "/v1/tasks/list.r3",
        "/v1/tasks/get_by_task_guid.r3",
        "/v1/tasks/list.r2",
        "/v1/tasks/get_by_task_guid.r2",
        "/v1/tasks/desire.r2",
        "/v1/tasks/cancel",
        "/v1/tasks/resolving",
        "/v1/tasks/delete",
        "/v1/events.r1",
        "/v1/events/tasks.r1",
        "/v1/events/lrp_instances.r1",
    ] {
        assert!(document["paths"][path].is_object(), "{path} is gone");
    }
}
