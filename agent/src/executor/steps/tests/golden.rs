//! Step trees as they are written down, in every state of every kind of step: see the crate `golden`.
//! A line is one tree after one input of its script.

use std::time::Duration;

use volvox_golden::Golden;
use volvox_protocol::definition::CheckDefinition;

use super::*;

/// Plays the inputs, separated by `;`, and adds the tree after each.
fn play(golden: &mut Golden, name: &str, spec: &StepSpec, script: &str) {
    let mut tree = StepTree::new(spec, StepSettings::default());
    golden.json(&format!("{name}.0"), &tree);
    for (nth, input) in script.split(';').enumerate() {
        // A second for each input: what a timer was started with shows in the times.
        tree.apply(Timestamp::from_secs(nth as u64), parse(input.trim()));
        golden.json(&format!("{name}.{}", nth + 1), &tree);
    }
    assert!(tree.is_finished(), "{name}: the script ends before the tree does");
}

#[test]
fn trees_have_their_golden_text() {
    let mut golden = Golden::open(env!("CARGO_MANIFEST_DIR"), "step_trees");
    let full = Action::Run(Box::new(RunAction {
        path: "/a".into(),
        args: vec!["b".into()],
        dir: "/c".into(),
        user: "d".into(),
        suppress_log_output: true,
        log_source: "e".into(),
        ..RunAction::default()
    }));
    let all = [
        ("run", only(full), "begin; started 1; exit 1 0"),
        ("spawn_failed", only(run("/a")), "begin; nospawn 1 no room"),
        ("cancelled_early", only(run("/a")), "begin; cancel; started 1; exit 1 143"),
        ("killed", only(run("/a")), "begin; started 1; cancel; fire 2; exit 1 137"),
        ("given_up", only(run("/a")), "begin; started 1; cancel; fire 2; fire 3"),
        ("download", only(download("x")), "begin; moved 1 300"),
        ("uncopied", only(download("x")), "begin; uncopied 1 no room"),
        ("upload_cancelled", only(upload("x")), "begin; cancel; unsent 1"),
        ("timeout", only(timeout(5_000, run("/a"))), "begin; started 2; fire 1; exit 2 143"),
        ("in_time", only(timeout(5_000, run("/a"))), "begin; started 2; exit 2 0"),
        ("progress", only(progress(run("/a"))), "begin; started 1; exit 1 1"),
        ("try", only(tried(run("/a"))), "begin; started 1; exit 1 1"),
        ("parallel", only(parallel(vec![run("/a"), run("/b")])), "begin; exit 1 2; exit 2 0"),
        ("serial", only(serial_of(vec![run("/a"), run("/b")])), "begin; exit 1 0; exit 2 0"),
        (
            "codependent",
            only(codependent(vec![run("/a"), run("/b")])),
            "begin; started 1; started 2; exit 1 0; exit 2 143",
        ),
        (
            "setup",
            StepSpec { setup: Some(run("/s")), ..only(run("/a")) },
            "begin; exit 1 0; exit 2 0",
        ),
    ];
    for (name, spec, script) in all {
        play(&mut golden, name, &spec, script);
    }
    golden.close();
}

#[test]
fn monitored_trees_have_their_golden_text() {
    let mut golden = Golden::open(env!("CARGO_MANIFEST_DIR"), "health_trees");
    let start_timeout = Duration::from_secs(60);
    let monitored = StepSpec { monitor: Some(run("/m")), start_timeout, ..only(run("/a")) };
    let unhealthy = "begin; started 1; fire 2; started 3; exit 3 1 not yet; fire 4; exit 5 0; \
                     fire 6; exit 7 1 ill; exit 1 143";
    play(&mut golden, "monitor", &monitored, unhealthy);
    let cancelled = "begin; started 1; fire 2; cancel; exit 3 143; exit 1 143";
    play(&mut golden, "monitor_cancelled", &monitored, cancelled);
    let checked = StepSpec {
        check_definition: Some(CheckDefinition {
            checks: vec![tcp(8080, 200), http(8081, 300)],
            log_source: "HEALTH".into(),
            readiness_checks: vec![tcp(8082, 0)],
        }),
        start_timeout,
        ..only(run("/a"))
    };
    let unhealthy = "begin; started 1; fail 3 refused; pass 4; fire 5; cannot 6 no route; fire 7; \
                     pass 8; pass 11; fail 9 ill; exit 1 143";
    play(&mut golden, "checks", &checked, unhealthy);
    golden.close();
}
