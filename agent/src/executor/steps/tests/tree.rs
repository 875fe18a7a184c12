//! The whole tree: setup, action, sidecars; definitions; writing down and reading back.

use crate::container::step::StepEvent;
use std::time::Duration;

use volvox_protocol::definition::{
    CheckDefinition, DigestAlgorithm, ImageLayer, LayerType, LrpDefinition, MediaType, Sidecar,
};
use volvox_protocol::task::TaskDefinition;

use super::*;

fn with_sidecar() -> StepSpec {
    let sidecar = Sidecar { action: Some(run("/s")), ..Sidecar::default() };
    StepSpec { sidecars: vec![sidecar], ..only(run("/a")) }
}

#[test]
fn setup_comes_first_and_must_succeed() {
    let spec = StepSpec { setup: Some(run("/setup")), ..only(run("/a")) };
    check_all(
        &spec,
        &[
            "begin => spawn 1 /setup
             started 1 =>
             exit 1 0 => APP: Exit status 0 | spawn 2 /a
             started 2 => routable | ready
             exit 2 0 => APP: Exit status 0 | done",
            "begin => spawn 1 /setup
             exit 1 1 => APP: Exit status 1 | failed APP: Exited with status 1",
            "begin => spawn 1 /setup
             started 1 =>
             cancel => term 1 | timer 2 10s
             exit 1 0 => APP: Exit status 0 | untimer 2 | stopped",
        ],
    );
}

#[test]
fn action_and_sidecars_end_together() {
    check_all(
        &with_sidecar(),
        &[
            "begin => spawn 1 /a | spawn 2 /s
             started 1 =>
             started 2 => routable | ready
             exit 1 0 => APP: Exit status 0 | term 2 | timer 3 10s
             exit 2 143 => APP: Exit status 143 | untimer 3 | done",
            "begin => spawn 1 /a | spawn 2 /s
             started 1 =>
             started 2 => routable | ready
             exit 2 0 => APP: Exit status 0 | term 1 | timer 3 10s
             exit 1 143 => APP: Exit status 143 | untimer 3 | done",
            "begin => spawn 1 /a | spawn 2 /s
             started 1 =>
             started 2 => routable | ready
             exit 2 1 => APP: Exit status 1 | term 1 | timer 3 10s
             exit 1 143 => APP: Exit status 143 | untimer 3 | failed APP: Exited with status 1",
        ],
    );
}

#[test]
fn with_a_monitor_the_action_may_leave_and_a_sidecar_may_not() {
    let spec = StepSpec { monitor: Some(run("/m")), ..with_sidecar() };
    let begun = "begin => spawn 1 /a | spawn 2 /s \
                    | APP: Starting health monitoring of container | timer 3 500ms
                 started 1 =>
                 started 2 =>
                 exit 1 0 => APP: Exit status 0
                 fire 3 => spawn 4 /m capture
                 exit 4 0 => APP: Container became healthy | timer 5 30s | routable | ready";
    check(&spec, &format!("{begun}\nexit 2 0 => APP: Exit status 0 | untimer 5 | done"));
}

#[test]
fn definitions_become_specs() {
    let layer = |name: &str, layer_type| ImageLayer {
        name: name.into(),
        url: format!("http://{name}"),
        destination_path: format!("/{name}"),
        layer_type,
        media_type: MediaType::Tgz,
        digest_algorithm: DigestAlgorithm::Sha256,
        digest_value: "abc".into(),
    };
    let layers = vec![
        layer("one", LayerType::Exclusive),
        layer("shared", LayerType::Shared),
        layer("two", LayerType::Exclusive),
    ];
    let lrp = LrpDefinition {
        setup: Some(run("/setup")),
        action: Some(run("/a")),
        image_layers: layers.clone(),
        legacy_download_user: "vcap".into(),
        start_timeout_ms: 1_500,
        deprecated_start_timeout_s: 9,
        log_source: "CELL".into(),
        ..LrpDefinition::default()
    };
    let layered = "begin => CELL: Downloading one... | download 1 | CELL: Downloading two... \
                      | download 2
                   moved 2 1 => CELL: Downloaded two (1B)";
    let spec = StepSpec::of_lrp(&lrp);
    assert_eq!(spec.start_timeout, Duration::from_millis(1_500));
    check(
        &spec,
        &format!(
            "{layered}
             moved 1 1 => CELL: Downloaded one (1B) | spawn 3 /setup
             exit 3 0 => CELL: Exit status 0 | spawn 4 /a"
        ),
    );
    let mut tree = StepTree::new(&spec, StepSettings::default());
    let effects = tree.apply(Timestamp::ZERO, StepInput::Begin);
    let StepOutput::StartDownload { download, .. } = &effects[1] else { panic!("{effects:?}") };
    assert_eq!(download.to, "/one");
    assert_eq!(download.user, "vcap");
    assert_eq!(download.checksum_algorithm, "sha256");

    let old = LrpDefinition { start_timeout_ms: 0, image_layers: vec![], ..lrp };
    let spec = StepSpec::of_lrp(&old);
    assert_eq!(spec.start_timeout, Duration::from_secs(9));
    check(&spec, "begin => spawn 1 /setup");

    let task = TaskDefinition {
        action: Some(run("/t")),
        image_layers: layers,
        log_source: "CELL".into(),
        ..TaskDefinition::default()
    };
    let script = format!("{layered}\nmoved 1 1 => CELL: Downloaded one (1B) | spawn 3 /t");
    check(&StepSpec::of_task(&task), &script);
    let plain = TaskDefinition { image_layers: vec![], ..task };
    check(&StepSpec::of_task(&plain), "begin => spawn 1 /t");
}

#[test]
fn after_a_restart_all_but_processes_is_started_again() {
    let at = Timestamp::from_secs;
    let checks = CheckDefinition { checks: vec![tcp(8080, 0)], ..CheckDefinition::default() };
    let spec = StepSpec {
        check_definition: Some(checks),
        start_timeout: Duration::from_secs(60),
        ..only(parallel(vec![run("/a"), download(""), timeout(5_000, upload(""))]))
    };
    let mut tree = StepTree::new(&spec, StepSettings::default());
    assert_eq!(tree.resume(at(0)), []);
    tree.apply(at(0), StepInput::Begin);
    tree.apply(at(1), StepInput::Event(StepEvent::ProcessStarted(StepId(1))));

    let text = serde_json::to_string(&tree).unwrap();
    let mut again: StepTree = serde_json::from_str(&text).unwrap();
    assert_eq!(again, tree);
    assert_eq!(again.processes().collect::<Vec<_>>(), [StepId(1)]);
    let resumed = |tree: &StepTree, now| tree.resume(now).iter().map(show).collect::<Vec<_>>();
    assert_eq!(
        resumed(&again, at(7)),
        ["download 2", "upload 4", "check 6 tcp 8080 1s", "timer 3 0ns", "timer 5 53s"]
    );
    again.apply(at(7), StepInput::TimerFired(TimerId(3)));
    assert_eq!(
        resumed(&again, at(7)),
        ["download 2", "abort 4", "check 6 tcp 8080 1s", "timer 5 53s"],
        "a transfer that was cancelled is not begun again"
    );
}

#[test]
fn the_deepest_tree_can_be_written_down_and_read_back() {
    let mut deep = run("/r");
    for _ in 1..volvox_protocol::limits::ACTION_DEPTH {
        deep = codependent(vec![deep]);
    }
    let spec = StepSpec { monitor: Some(deep.clone()), ..only(deep) };
    let mut tree = StepTree::new(&spec, StepSettings::default());
    let at = Timestamp::from_secs;
    tree.apply(at(0), StepInput::Begin);
    let effects = tree.apply(at(1), StepInput::TimerFired(TimerId(2)));
    assert_eq!(effects.iter().map(show).collect::<Vec<_>>(), ["spawn 3 /r capture"]);
    let text = serde_json::to_string(&tree).unwrap();
    assert_eq!(serde_json::from_str::<StepTree>(&text).unwrap(), tree);
}
