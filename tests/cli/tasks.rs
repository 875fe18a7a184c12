//! Tasks: run, listed, cancelled, forgotten.

use std::time::Duration;

use serde_json::json;
use volvox_tests::fleet::CellPlan;

use crate::stage::Stage;

fn stage(task_takes: Duration) -> Stage {
    let mut stage = Stage::new();
    stage.join(CellPlan { task_takes, ..CellPlan::named("a") });
    stage
}

#[test]
fn a_task_is_run_and_its_result_printed() {
    let stage = stage(Duration::ZERO);
    let run = ["task", "run", "--rootfs", "preloaded:test", "--memory", "64"];
    let said = stage.done(&[&run[..], &["t1", "--", "/bin/true"]].concat());
    assert_eq!(said.out, "done\n", "what its result file held");
    assert!(said.err.contains("t1 desired"), "{said:?}");
    assert_eq!(stage.volvox(&["task", "show", "t1"]).code, 3, "it is forgotten");
    let said = stage.done(&[&run[..], &["t2", "--keep", "--json", "--", "/bin/true"]].concat());
    let task = said.json();
    assert_eq!((&task["task_guid"], &task["failed"]), (&json!("t2"), &json!(false)));
    let shown = stage.done(&["task", "show", "t2"]).out;
    assert!(shown.contains("state       Completed") && shown.contains("result:\ndone"), "{shown}");
    let twice = stage.volvox(&[&run[..], &["t2", "--", "/bin/true"]].concat());
    assert_eq!(twice.code, 4, "{twice:?}");
    stage.done(&["task", "delete", "t2"]);
    assert_eq!(stage.done(&["task", "list", "--json"]).json(), json!({"tasks": []}));
    let file =
        stage.file("t.toml", "name = \"t3\"\nrootfs = \"preloaded:test\"\ncommand = \"x\"\n");
    assert_eq!(stage.done(&["task", "run", "-f", &file, "--memory", "1G"]).out, "done\n");
}

#[test]
fn a_task_that_takes_long_is_left_cancelled_and_forgotten() {
    let stage = stage(Duration::from_secs(3_600));
    let run = ["task", "run", "long", "--rootfs", "preloaded:test"];
    let said = stage.volvox(&[&run[..], &["--timeout", "1s", "--", "/bin/true"]].concat());
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.err.contains("volvox task cancel long"), "{said:?}");
    let listed = stage.done(&["task", "list"]).out;
    assert!(listed.contains("long  default  Running  a"), "{listed}");
    let refused = stage.volvox(&["task", "delete", "long"]);
    assert!(refused.code == 4 && refused.err.contains("has not ended"), "{refused:?}");
    assert_eq!(stage.done(&["task", "cancel", "long"]).out, "long cancelled\n");
    let listed = stage.done(&["task", "list"]).out;
    assert!(listed.contains("failed"), "{listed}");
    stage.done(&["task", "delete", "long"]);
    for words in [["task", "show", "long"], ["task", "cancel", "long"], ["task", "delete", "long"]]
    {
        let said = stage.volvox(&words);
        assert!(said.code == 3 && said.err.contains("volvox task list"), "{said:?}");
    }
    let said = stage.done(&["task", "run", "--detach", "--rootfs", "preloaded:test", "--", "/a"]);
    assert!(said.out.starts_with("task-") && said.out.ends_with(" desired\n"), "{said:?}");
}

#[test]
fn a_task_that_fails_ends_with_1() {
    let stage = stage(Duration::from_secs(3_600));
    let waiting = stage.begin(&[
        "task",
        "run",
        "t",
        "--rootfs",
        "preloaded:test",
        "--json",
        "--",
        "/bin/false",
    ]);
    volvox_tests::wait::until(
        || stage.done(&["task", "list"]).out.contains("Running"),
        || "it does not run".to_owned(),
    );
    stage.done(&["task", "cancel", "t"]);
    let mut waiting = waiting;
    let status = waiting.0.wait().unwrap();
    assert_eq!(status.code(), Some(1));
}
