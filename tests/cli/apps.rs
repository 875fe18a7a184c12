//! Apps: applied, run, scaled, stopped.

use serde_json::{Value, json};
use volvox_tests::fleet::CellPlan;

use crate::stage::Stage;

#[test]
fn an_app_is_applied_and_waited_for() {
    let stage = Stage::of_cells(&["a", "b"]);
    let file = stage.app(3, 64, "port = 8080\n[env]\nA = 1\n");
    let said = stage.done(&["apply", "-f", &file, "--wait", "--timeout", "1m"]);
    assert!(said.err.contains("domain \"default\" is new: it is fresh"), "{said:?}");
    assert!(said.out.starts_with("web created (d-"), "{said:?}");
    assert!(said.out.contains("web: 3 of 3 instances run"), "{said:?}");
    for index in 0..3 {
        assert!(said.out.contains(&format!("web/{index} running on ")), "{said:?}");
    }
    let instances = stage.instances("web");
    assert_eq!(instances.len(), 3);
    assert!(instances.iter().all(|it| it["state"] == "RUNNING"), "{instances:?}");
    let table = stage.done(&["ps"]).out;
    assert!(table.starts_with("APP  INDEX  STATE    CELL  ADDRESS"), "{table}");
    let apps = stage.done(&["apps"]).out;
    assert!(apps.contains("web  default  3/3"), "{apps}");
    // The same again is nothing new, and is waited for at once.
    let again = stage.done(&["apply", "-f", &file, "--wait", "--json"]).lines();
    assert_eq!((&again[0]["action"], &again[0]["changes"]), (&json!("unchanged"), &json!([])));
    assert_eq!(again.last().unwrap()["result"], "done");
    assert_eq!(stage.done(&["domain", "list", "--json"]).json(), json!({"domains": ["default"]}));
    let why = stage.done(&["explain", "web", "2"]).out;
    assert!(why.starts_with("web/2 was placed on "), "{why}");
    let why = stage.done(&["explain", "web", "2", "--json"]).json();
    assert!(why["verdict"]["placed"].is_string(), "{why}");
    assert_eq!(stage.volvox(&["explain", "web", "7"]).code, 3);
}

#[test]
fn what_would_change_is_shown_and_not_done() {
    let stage = Stage::new();
    let file = stage.app(2, 64, "");
    let said = stage.done(&["apply", "-f", &file, "--dry-run"]);
    assert!(said.out.contains("web would be created"), "{said:?}");
    assert!(said.out.contains("  + memory_mb: 64\n"), "{said:?}");
    assert_eq!(stage.volvox(&["ps", "web"]).code, 3, "nothing was done");
    assert_eq!(stage.done(&["domain", "list", "--json"]).json()["domains"], json!([]));
    stage.done(&["apply", "-f", &file]);
    let file = stage.app(5, 128, "[env]\nA = \"x\"\n");
    let said = stage.done(&["apply", "-f", &file, "--dry-run"]);
    let told: Vec<&str> = said.out.lines().skip(1).collect();
    assert_eq!(told, ["  + env.A: \"x\"", "  ~ instances: 2 → 5", "  ~ memory_mb: 64 → 128"]);
    assert_eq!(stage.done(&["apps", "--json"]).json()["apps"][0]["instances"], 2);
}

#[test]
fn several_apps_come_from_several_files_and_from_stdin() {
    let stage = Stage::new();
    let app = |name: &str| json!({"name": name, "rootfs": "host:", "command": "x"}).to_string();
    let one = stage.file("one.json", &format!("{}\n{}", app("a"), app("b")));
    let two = stage.file("two.toml", "name = \"c\"\nrootfs = \"host:\"\ncommand = \"x\"\n");
    let said = stage.done(&["apply", "-f", &one, "-f", &two, "--json"]).lines();
    let names: Vec<&Value> = said.iter().map(|it| &it["app"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(stage.volvox(&["apply", "-f", &one, "-f", &one]).code, 2, "twice the same app");
    let mut command = stage.command(&["apply", "-f", "-"]);
    let text = stage.file("stdin", "name = \"d\"\nrootfs = \"host:\"\ncommand = \"x\"\n");
    command.stdin(std::fs::File::open(text).unwrap());
    assert!(crate::stage::said(command).out.starts_with("d created"));
    // A bad one among them, and nothing has been sent.
    let bad = stage.file("bad.json", &format!("{}\n{{\"name\": \"f\"}}", app("e")));
    let said = stage.volvox(&["apply", "-f", &bad]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("f: rootfs: must not be empty"), "{said:?}");
    assert_eq!(stage.done(&["apps", "--json"]).json()["apps"].as_array().unwrap().len(), 4);
}

#[test]
fn an_app_is_run_from_flags_scaled_and_stopped() {
    let stage = Stage::of_cells(&["a"]);
    let run = |memory: &str| {
        stage.done(&[
            "run",
            "web",
            "--rootfs",
            "preloaded:test",
            "--memory",
            memory,
            "-n",
            "2",
            "--port",
            "8080",
            "--env",
            "A=b=c",
            "--wait",
            "--",
            "/bin/sh",
            "-c",
            "serve",
        ])
    };
    assert!(run("64").out.contains("web: 2 of 2 instances run"));
    assert!(run("64").out.starts_with("web unchanged"));
    let said = stage.done(&["scale", "web", "5", "--wait"]);
    assert!(said.out.contains("web: 5 of 5 instances run"), "{said:?}");
    let said = stage.done(&["scale", "web", "1", "--wait", "--json"]).lines();
    assert_eq!(said[0], json!({"app": "web", "action": "scaled", "instances": 1}));
    assert_eq!(said.last().unwrap()["result"], "done");
    assert_eq!(stage.instances("web").len(), 1);
    // An instance is stopped, and another takes its place.
    let before = stage.instances("web")[0]["instance_guid"].clone();
    stage.done(&["stop", "web", "0", "--wait"]);
    let after = stage.instances("web");
    assert_ne!(after[0]["instance_guid"], before);
    assert_eq!((after.len(), &after[0]["state"]), (1, &json!("RUNNING")));
    assert_eq!(stage.volvox(&["stop", "web", "1"]).code, 3);
    let said = stage.done(&["stop", "web", "--wait"]);
    assert!(said.out.contains("web: no instance is left"), "{said:?}");
    for words in [&["ps", "web"][..], &["scale", "web", "1"], &["stop", "web"], &["history", "web"]]
    {
        let said = stage.volvox(words);
        assert_eq!(said.code, 3, "{said:?}");
        assert!(said.err.contains("there is no app web\n  `volvox apps`"), "{said:?}");
    }
}

#[test]
fn waiting_has_an_end_and_says_what_is_missing() {
    let mut stage = Stage::new();
    stage.join(CellPlan { refuses_work: true, ..CellPlan::named("a") });
    let file = stage.app(1, 64, "");
    let said = stage.volvox(&["apply", "-f", &file, "--wait", "--timeout", "1s"]);
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.err.contains("web: 0 of 1 instances are done after 1s"), "{said:?}");
    assert!(said.err.contains("volvox explain web 0"), "{said:?}");
    assert_eq!(stage.instances("web").len(), 1, "it goes on");
}

#[test]
fn a_domain_that_nobody_keeps_is_left_alone() {
    let stage = Stage::with("");
    let in_domain = |name: &str| {
        format!("name = \"{name}\"\ndomain = \"d\"\nrootfs = \"host:\"\ncommand = \"x\"\n")
    };
    let one = stage.file("one.toml", &in_domain("one"));
    stage.done(&["domain", "upsert", "d", "--ttl", "1s"]);
    stage.done(&["apply", "-f", &one]);
    volvox_tests::wait::until(
        || stage.done(&["domain", "list", "--json"]).json()["domains"] == json!([]),
        || "the domain stays fresh".to_owned(),
    );
    let two = stage.file("two.toml", &in_domain("two"));
    let said = stage.done(&["apply", "-f", &two]);
    assert!(said.err.contains("domain \"d\" is not fresh"), "{said:?}");
    assert_eq!(stage.done(&["domain", "list", "--json"]).json()["domains"], json!([]));
    let said = stage.done(&["domain", "upsert", "d"]);
    assert_eq!(said.out, "domain d is fresh for ever\n");
    assert_eq!(stage.done(&["domain", "list"]).out, "FRESH DOMAIN\nd\n");
}

#[test]
fn what_cannot_be_changed_is_refused_with_the_way_out() {
    let stage = Stage::new();
    stage.done(&["apply", "-f", &stage.app(1, 64, "")]);
    let said = stage.volvox(&["apply", "-f", &stage.app(1, 64, "domain = \"other\"\n")]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.err.contains("volvox stop web"), "{said:?}");
    let said = stage.volvox(&["apply", "-f", &stage.app(1, 64, "memroy = 3\n")]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("did you mean `memory`?"), "{said:?}");
}
