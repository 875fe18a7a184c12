//! Each action: how it succeeds, how it fails, what the log says.

use crate::container::step::StepEvent;
use crate::container::step::TransferFailure;
use volvox_protocol::action::{Action, RunAction};

use super::*;

#[test]
fn a_run_is_ready_when_started_and_ends_with_its_status() {
    check_all(
        &only(run("/a")),
        &[
            "begin => spawn 1 /a
             started 1 => routable | ready
             exit 1 0 => APP: Exit status 0 | done",
            "begin => spawn 1 /a
             started 1 => routable | ready
             exit 1 3 => APP: Exit status 3 | failed APP: Exited with status 3",
            "begin => spawn 1 /a
             started 1 => routable | ready
             exit 1 137 oom => APP: Exit status 137 (out of memory) \
                | failed APP: Exited with status 137 (out of memory)",
            "begin => spawn 1 /a
             exit 1 0 oom => APP: Exit status 0 | done",
            "begin => spawn 1 /a
             nospawn 1 no such file => APP: failed-creating-process: no such file \
                | failed no such file",
        ],
    );
}

#[test]
fn what_is_late_repeated_or_unknown_has_no_effect() {
    check(
        &only(run("/a")),
        "exit 1 0 =>
         begin => spawn 1 /a
         begin =>
         started 7 =>
         exit 7 0 =>
         moved 1 7 =>
         pass 1 =>
         fire 1 =>
         started 1 => routable | ready
         started 1 =>
         exit 1 0 => APP: Exit status 0 | done
         exit 1 0 =>
         begin =>
         cancel =>",
    );
}

#[test]
fn a_run_logs_under_its_own_source_or_not_at_all() {
    let named = RunAction { path: "/a".into(), log_source: "WEB".into(), ..RunAction::default() };
    check(
        &only(Action::Run(Box::new(named))),
        "begin => spawn 1 /a
         started 1 => routable | ready
         exit 1 3 => WEB: Exit status 3 | failed WEB: Exited with status 3",
    );
    check(
        &StepSpec { log_source: String::new(), ..only(run("/a")) },
        "begin => spawn 1 /a
         exit 1 3 => LOG: Exit status 3 | failed LOG: Exited with status 3",
    );
    check_all(
        &only(quiet_run("/a")),
        &[
            "begin => spawn 1 /a discard
             started 1 => routable | ready
             exit 1 3 => failed APP: Exited with status 3",
            "begin => spawn 1 /a discard
             nospawn 1 oops => failed oops",
        ],
    );
}

#[test]
fn transfers_say_what_they_do_when_they_have_a_name() {
    check_all(
        &only(download("droplet")),
        &[
            "begin => APP: Downloading droplet... | download 1 | routable | ready
             moved 1 1536 => APP: Downloaded droplet (1.5K) | done",
            "begin => APP: Downloading droplet... | download 1 | routable | ready
             cached 1 => APP: Downloaded droplet | done",
            "begin => APP: Downloading droplet... | download 1 | routable | ready
             unfetched 1 => APP! Downloading droplet failed | failed Downloading droplet failed",
            "begin => APP: Downloading droplet... | download 1 | routable | ready
             uncopied 1 disk full => APP! Copying droplet into the container failed: disk full \
                | failed Copying droplet into the container failed: disk full",
        ],
    );
    check_all(
        &only(download("")),
        &[
            "begin => download 1 | routable | ready
             moved 1 1536 => done",
            "begin => download 1 | routable | ready
             unfetched 1 => APP! Downloading failed | failed Downloading failed",
            "begin => download 1 | routable | ready
             uncopied 1 x => APP! Copying into the container failed: x \
                | failed Copying into the container failed: x",
        ],
    );
    check_all(
        &only(upload("log")),
        &[
            "begin => APP: Uploading log... | upload 1 | routable | ready
             moved 1 17 => APP: Uploaded log (17B) | done",
            "begin => APP: Uploading log... | upload 1 | routable | ready
             unsent 1 => APP! Failed to upload payload for log \
                | failed Failed to upload payload for log",
        ],
    );
    check(
        &only(upload("")),
        "begin => upload 1 | routable | ready
         unsent 1 => APP! Failed to upload payload | failed Failed to upload payload",
    );
}

#[test]
fn every_way_an_upload_fails_has_its_words() {
    for (failure, text) in [
        (TransferFailure::ParseUrl, "Failed to parse URL"),
        (TransferFailure::CreateTempDir, "Failed to create temp dir"),
        (TransferFailure::EstablishStream, "Failed to establish stream from container"),
        (TransferFailure::FindFirstItem, "Failed to find first item in tar stream"),
        (TransferFailure::CreateTempFile, "Failed to create temp file"),
        (TransferFailure::CopyStream, "Failed to copy stream contents into temp file"),
        (TransferFailure::UploadPayload, "Failed to upload payload"),
    ] {
        for (artifact, expected) in [("", text.to_owned()), ("x", format!("{text} for x"))] {
            let mut tree = StepTree::new(&only(upload(artifact)), StepSettings::default());
            tree.apply(Timestamp::ZERO, StepInput::Begin);
            let end = StepInput::Event(StepEvent::TransferDone {
                step: StepId(1),
                result: Err(failure.clone()),
            });
            let effects = tree.apply(Timestamp::ZERO, end);
            let shown: Vec<_> = effects.iter().map(show).collect();
            assert_eq!(shown, [format!("APP! {expected}"), format!("failed {expected}")]);
        }
    }
}

#[test]
fn a_timeout_cancels_and_waits_before_it_fails() {
    check_all(
        &only(timeout(2_000, run("/a"))),
        &[
            "begin => timer 1 2s | spawn 2 /a
             started 2 => routable | ready
             exit 2 0 => APP: Exit status 0 | untimer 1 | done",
            "begin => timer 1 2s | spawn 2 /a
             started 2 => routable | ready
             exit 2 1 => APP: Exit status 1 | untimer 1 | failed APP: Exited with status 1",
            "begin => timer 1 2s | spawn 2 /a
             started 2 => routable | ready
             fire 1 => term 2 | timer 3 10s
             exit 2 143 => APP: Exit status 143 | untimer 3 | failed exceeded 2s timeout",
            "begin => timer 1 2s | spawn 2 /a
             started 2 => routable | ready
             fire 1 => term 2 | timer 3 10s
             fire 3 => kill 2 | timer 4 30s
             exit 2 137 => APP: Exit status 137 (exceeded 10s graceful shutdown interval) \
                | untimer 4 | failed exceeded 2s timeout",
            "begin => timer 1 2s | spawn 2 /a
             fire 1 =>
             started 2 => term 2 | timer 3 10s
             exit 2 0 => APP: Exit status 0 | untimer 3 | failed exceeded 2s timeout",
        ],
    );
}

#[test]
fn a_timeout_tells_what_the_inner_step_has_to_say() {
    // The codependent fails by itself first; the timeout strikes while it waits for its members.
    check(
        &only(timeout(60_000, codependent(vec![run("/a"), run("/b")]))),
        "begin => timer 1 60s | spawn 2 /a | spawn 3 /b
         started 2 =>
         started 3 => routable | ready
         exit 2 7 => APP: Exit status 7 | term 3 | timer 4 10s
         fire 1 =>
         exit 3 143 => APP: Exit status 143 | untimer 4 \
            | failed exceeded 1m0s timeout; APP: Exited with status 7",
    );
    check(
        &only(timeout(500, tried(run("/a")))),
        "begin => timer 1 500ms | spawn 2 /a
         started 2 => routable | ready
         fire 1 => term 2 | timer 3 10s
         exit 2 143 => APP: Exit status 143 | untimer 3 | failed exceeded 500ms timeout",
    );
}

#[test]
fn progress_is_told_at_both_ends() {
    check_all(
        &only(progress(run("/a"))),
        &[
            "begin => P: going | spawn 1 /a
             started 1 => routable | ready
             exit 1 0 => APP: Exit status 0 | P: went | done",
            "begin => P: going | spawn 1 /a
             started 1 => routable | ready
             exit 1 2 => APP: Exit status 2 | P! went wrong: APP: Exited with status 2 \
                | failed APP: Exited with status 2",
            "begin => P: going | spawn 1 /a
             nospawn 1 secret of the cell => \
                APP: failed-creating-process: secret of the cell | P! went wrong \
                | failed secret of the cell",
            "begin => P: going | spawn 1 /a
             started 1 => routable | ready
             cancel => term 1 | timer 2 10s
             exit 1 143 => APP: Exit status 143 | untimer 2 | P! went wrong | stopped",
        ],
    );
    let silent = EmitProgressAction { action: Some(run("/a")), ..EmitProgressAction::default() };
    check_all(
        &only(Action::EmitProgress(Box::new(silent))),
        &[
            "begin => spawn 1 /a
             exit 1 0 => APP: Exit status 0 | done",
            "begin => spawn 1 /a
             exit 1 2 => APP: Exit status 2 | failed APP: Exited with status 2",
        ],
    );
}

#[test]
fn a_try_always_succeeds() {
    check_all(
        &only(serial_of(vec![tried(run("/a")), run("/b")])),
        &[
            "begin => spawn 1 /a
             started 1 =>
             exit 1 9 => APP: Exit status 9 | spawn 2 /b
             started 2 => routable | ready
             exit 2 0 => APP: Exit status 0 | done",
            "begin => spawn 1 /a
             nospawn 1 x => APP: failed-creating-process: x | spawn 2 /b",
        ],
    );
}

#[test]
fn parallel_waits_for_all_and_joins_the_errors() {
    check_all(
        &only(parallel(vec![run("/a"), run("/b"), download("")])),
        &[
            "begin => spawn 1 /a | spawn 2 /b | download 3
             started 1 =>
             started 2 => routable | ready
             exit 2 4 => APP: Exit status 4
             moved 3 0 =>
             exit 1 5 => APP: Exit status 5 \
                | failed APP: Exited with status 4; APP: Exited with status 5",
            "begin => spawn 1 /a | spawn 2 /b | download 3
             exit 1 0 => APP: Exit status 0
             exit 2 0 => APP: Exit status 0 | routable | ready
             moved 3 0 => done",
        ],
    );
}

#[test]
fn serial_stops_at_the_first_error() {
    check_all(
        &only(serial_of(vec![download(""), run("/a"), run("/b")])),
        &[
            "begin => download 1
             moved 1 1 => spawn 2 /a
             started 2 =>
             exit 2 0 => APP: Exit status 0 | spawn 3 /b
             started 3 => routable | ready
             exit 3 0 => APP: Exit status 0 | done",
            "begin => download 1
             unfetched 1 => APP! Downloading failed | failed Downloading failed",
            "begin => download 1
             moved 1 1 => spawn 2 /a
             exit 2 1 => APP: Exit status 1 | failed APP: Exited with status 1",
        ],
    );
}

#[test]
fn codependents_end_together() {
    check_all(
        &only(codependent(vec![run("/a"), run("/b")])),
        &[
            "begin => spawn 1 /a | spawn 2 /b
             started 1 =>
             started 2 => routable | ready
             exit 1 0 => APP: Exit status 0 | term 2 | timer 3 10s
             exit 2 143 => APP: Exit status 143 | untimer 3 | failed Codependent step exited",
            "begin => spawn 1 /a | spawn 2 /b
             started 1 =>
             started 2 => routable | ready
             exit 2 6 => APP: Exit status 6 | term 1 | timer 3 10s
             exit 1 0 => APP: Exit status 0 | untimer 3 | failed APP: Exited with status 6",
        ],
    );
    check(
        &only(codependent(vec![tried(run("/a")), tried(run("/b"))])),
        "begin => spawn 1 /a | spawn 2 /b
         started 2 =>
         exit 1 1 => APP: Exit status 1 | term 2 | timer 3 10s
         exit 2 1 => APP: Exit status 1 | untimer 3 | failed Codependent step exited",
    );
}

#[test]
fn empty_actions_are_done_at_once() {
    let nothing = Action::Try(Box::default());
    let timed = TimeoutAction { timeout_ms: 1, ..TimeoutAction::default() };
    for action in [serial_of(vec![]), parallel(vec![]), codependent(vec![]), nothing] {
        check(&only(action), "begin => done");
    }
    check(&only(Action::Timeout(Box::new(timed))), "begin => timer 1 1ms | untimer 1 | done");
    check(&StepSpec::default(), "begin => done");
}

#[test]
fn a_long_reason_is_cut() {
    let mut tree = StepTree::new(&only(run("/a")), StepSettings::default());
    tree.apply(Timestamp::ZERO, StepInput::Begin);
    let error = "x".repeat(5_000);
    let effects = tree.apply(
        Timestamp::ZERO,
        StepInput::Event(StepEvent::SpawnFailed { step: StepId(1), error }),
    );
    let Some(StepOutput::Finished(result)) = effects.last() else { panic!("{effects:?}") };
    assert_eq!(result.failure_reason.len(), 1_024);
    assert!(result.failure_reason.ends_with("x (error truncated)"));
}
