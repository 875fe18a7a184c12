//! Tasks: each row of `docs/tables/bbs_task.md` on a board, and the life of a task.

use volvox_protocol::request::TaskOutcome;
use volvox_protocol::tables::doc::table_under;
use volvox_protocol::task::TaskState;

use super::*;

const MARKDOWN: &str = include_str!("../../../../../docs/tables/bbs_task.md");
const URL: &str = "http://consumer/done";

fn complete(guid: &str, on: &str, result: &str) -> Command {
    let outcome = TaskOutcome { result: result.into(), ..TaskOutcome::default() };
    cell_says(CellRequest::CompleteTask(task_guid(guid), cell(on), outcome))
}

fn cell_rejects(guid: &str, on: &str) -> Command {
    cell_says(CellRequest::RejectTask(task_guid(guid), cell(on), "no disk".into()))
}

fn auction_rejects(guid: &str) -> Command {
    Command::RejectTask(task_guid(guid), "insufficient resources".into())
}

fn cancel(guid: &str) -> Command {
    Command::CancelTask(task_guid(guid))
}

fn resolving(guid: &str) -> Command {
    Command::ResolvingTask(task_guid(guid), TaskRef::Present)
}

fn delete(guid: &str) -> Command {
    Command::DeleteTask(task_guid(guid), TaskRef::Present)
}

/// A board on which the task `t` is as a row has it.
fn stage(task: &str) -> Stage {
    let mut stage = Stage::with_desired(0);
    let ways: &[Command] = &match task {
        "Missing" => vec![],
        "Pending" => vec![desire_task("t", URL)],
        "Running(Ours)" => vec![desire_task("t", URL), start_task("t", "cell-1")],
        "Running(Theirs)" => vec![desire_task("t", URL), start_task("t", "cell-2")],
        "Completed" => vec![desire_task("t", URL), cancel("t")],
        "Resolving" => vec![desire_task("t", URL), cancel("t"), resolving("t")],
        other => panic!("no task is {other}"),
    };
    for command in ways {
        stage.does(command.clone());
    }
    stage
}

/// The command that makes a request, and the state after it is granted.
fn request(name: &str) -> (Command, Option<TaskState>) {
    use TaskState::{Completed, Pending, Resolving, Running};
    let fail = Command::FailTask(task_guid("t"), "given up".into());
    match name {
        "Desire" => (desire_task("t", URL), Some(Pending)),
        "Start" => (start_task("t", "cell-1"), Some(Running)),
        "Cancel" => (cancel("t"), Some(Completed)),
        "Fail" => (fail, Some(Completed)),
        "Reject" => (cell_rejects("t", "cell-1"), Some(Pending)),
        "RejectByAuction" => (auction_rejects("t"), Some(Pending)),
        "Complete" => (complete("t", "cell-1", "42"), Some(Completed)),
        "Resolving" => (resolving("t"), Some(Resolving)),
        "Delete" => (delete("t"), None),
        other => panic!("nobody asks {other}"),
    }
}

#[test]
fn every_row_of_the_page_is_what_happens_on_a_board() {
    let rows = table_under(MARKDOWN, "The table").unwrap().rows;
    for row in &rows {
        let (command, granted) = request(&row[1]);
        let mut stage = stage(&row[0]);
        let before = stage.task("t");
        let verdict = stage.tries(command);
        let after = stage.task("t");
        match (&*row[2], &verdict) {
            ("Create" | "Apply", Ok(outcome)) => {
                assert!(!outcome.changes.is_empty(), "{row:?} wrote nothing");
                assert_eq!(before.is_none(), row[2] == "Create", "{row:?}");
                assert_eq!(after.map(|task| task.state), granted, "{row:?}");
            }
            ("Nothing", Ok(outcome)) => assert!(outcome.changes.is_empty(), "{row:?}"),
            ("Exists", Err(Rejection::Exists(_)))
            | ("NotFound", Err(Rejection::NotFound(_)))
            | ("Refuse", Err(Rejection::TaskTransition { .. }))
            | ("WrongCell", Err(Rejection::RunningOnDifferentCell { .. })) => {
                assert_eq!(after, before, "{row:?}");
            }
            (_, verdict) => panic!("{row:?}: {verdict:?}"),
        }
    }
    assert_eq!(rows.len(), 54);
    let rows = rows.len();
    println!("table bbs_task on a board: {rows} rows of the document, {rows} plays checked");
}

#[test]
fn a_task_lives_from_desire_to_delete() {
    let mut stage = Stage::with_desired(0);
    assert_eq!(effects(&stage.does(desire_task("t", URL))), ["auction t"]);
    let outcome = stage.wait(1).does(start_task("t", "cell-1"));
    assert_eq!(outcome.reply, Reply::ShouldStart(true));
    assert_eq!(stage.task("t").unwrap().cell_id, Some(cell("cell-1")));
    let outcome = stage.wait(1).does(complete("t", "cell-1", "42"));
    assert_eq!(effects(&outcome), ["call back t"]);
    let task = stage.task("t").unwrap();
    assert_eq!((task.state, task.failed, &*task.result), (TaskState::Completed, false, "42"));
    assert_eq!((task.first_completed_at, task.updated_at), (stage.now, stage.now));
    let told = ["task_changed"];
    assert_eq!(events(&stage.does(resolving("t"))), told);
    assert_eq!(events(&stage.does(delete("t"))), ["task_removed"]);
    assert!(stage.task("t").is_none());
}

#[test]
fn what_is_asked_about_a_task_is_not_done_to_the_next_of_its_name() {
    let mut stage = stage("Resolving");
    let first = TaskRef::MadeAt(stage.task("t").unwrap().created_at);
    stage.does(delete("t"));
    for command in [desire_task("t", ""), cancel("t")] {
        stage.wait(1).does(command);
    }
    let second = TaskRef::MadeAt(stage.task("t").unwrap().created_at);
    let refused = stage.refuses(Command::ResolvingTask(task_guid("t"), first));
    assert_eq!(refused.to_string(), "task t (another has its name by now) could not be found");
    stage.does(Command::ResolvingTask(task_guid("t"), second));
    let refused = stage.refuses(Command::DeleteTask(task_guid("t"), first));
    assert!(matches!(refused, Rejection::NotFound(_)), "{refused}");
    stage.does(Command::DeleteTask(task_guid("t"), second));
    assert!(stage.task("t").is_none());
}

#[test]
fn exactly_one_of_two_cells_is_told_to_start_a_task() {
    let mut stage = stage("Pending");
    assert_eq!(stage.does(start_task("t", "cell-1")).reply, Reply::ShouldStart(true));
    assert_eq!(stage.does(start_task("t", "cell-1")).reply, Reply::ShouldStart(false));
    let rejection = stage.refuses(start_task("t", "cell-2"));
    assert_eq!(rejection.to_string(), "cannot transition from Running to Running");
}

#[test]
fn the_fourth_rejection_fails_a_task() {
    let mut stage = stage("Pending");
    for count in 1..=3 {
        let outcome = stage.does(auction_rejects("t"));
        assert_eq!(effects(&outcome), [""; 0], "a rejected task waits for convergence");
        let task = stage.task("t").unwrap();
        assert_eq!((task.state, task.rejection_count), (TaskState::Pending, count));
    }
    assert_eq!(effects(&stage.does(auction_rejects("t"))), ["call back t"]);
    let task = stage.task("t").unwrap();
    assert_eq!((task.state, task.rejection_count), (TaskState::Completed, 4));
    assert_eq!(task.failure_reason, "insufficient resources");
    assert_eq!(task.rejection_reason, "insufficient resources");
}

#[test]
fn a_rejection_by_the_cell_that_has_the_task_puts_it_back_and_lets_another_start_it() {
    let mut stage = stage("Running(Ours)");
    let rejection = stage.refuses(cell_rejects("t", "cell-2"));
    assert_eq!(rejection.to_string(), "running on cell cell-1 not cell-2");
    stage.does(cell_rejects("t", "cell-1"));
    assert_eq!(stage.task("t").unwrap().cell_id, None);
    assert_eq!(stage.does(start_task("t", "cell-2")).reply, Reply::ShouldStart(true));
}

#[test]
fn an_auction_that_gives_up_late_does_not_take_a_task_from_its_cell() {
    let mut stage = stage("Pending");
    assert_eq!(stage.does(start_task("t", "cell-1")).reply, Reply::ShouldStart(true));
    assert!(matches!(stage.refuses(auction_rejects("t")), Rejection::TaskTransition { .. }));
    assert!(matches!(stage.refuses(start_task("t", "cell-2")), Rejection::TaskTransition { .. }));
    assert_eq!(stage.task("t").unwrap().cell_id, Some(cell("cell-1")));
}

#[test]
fn a_task_that_is_cancelled_or_given_up_has_failed_for_that_reason_and_its_cell_is_told() {
    let fail = Command::FailTask(task_guid("t"), "given up".into());
    for (command, why) in [(cancel("t"), "cancelled"), (fail, "given up")] {
        for (before, told) in [
            ("Pending", &["call back t"][..]),
            ("Running(Ours)", &["call back t", "cancel t on cell-1"]),
        ] {
            let mut stage = stage(before);
            assert_eq!(effects(&stage.does(command.clone())), told, "{before}");
            let task = stage.task("t").unwrap();
            assert_eq!((task.failed, &*task.failure_reason), (true, why), "{before}");
        }
    }
}

#[test]
fn nobody_is_called_back_about_a_task_without_a_url() {
    let mut stage = Stage::with_desired(0);
    stage.does(desire_task("t", ""));
    assert_eq!(effects(&stage.does(cancel("t"))), [""; 0]);
    stage.wait(31);
    assert_eq!(effects(&stage.converge()), [""; 0]);
    stage.wait(89).converge();
    assert!(stage.task("t").is_none(), "nobody asked for it in two minutes");
}

#[test]
fn a_pending_task_is_auctioned_again_every_thirty_seconds_and_given_up_after_half_an_hour() {
    let mut stage = stage("Pending");
    for _ in 0..3 {
        assert_eq!(effects(&stage.wait(29).converge()), [""; 0]);
        assert_eq!(effects(&stage.wait(1).converge()), ["auction t"]);
    }
    let outcome = stage.wait(1_800 - 90).converge();
    assert_eq!(effects(&outcome), ["call back t"], "it is not auctioned on its way out");
    assert_eq!(stage.task("t").unwrap().failure_reason, "not started within time limit");
}

#[test]
fn a_task_on_a_missing_cell_fails_at_once() {
    let mut stage = stage("Running(Ours)");
    assert_eq!(effects(&stage.does(missing("cell-1"))), ["call back t"]);
    assert_eq!(stage.task("t").unwrap().failure_reason, "cell disappeared before completion");
    assert!(matches!(
        stage.refuses(complete("t", "cell-1", "42")),
        Rejection::TaskTransition { .. }
    ));
}

#[test]
fn a_completed_task_is_called_back_again_and_forgotten_after_two_minutes() {
    let mut stage = stage("Completed");
    assert_eq!(effects(&stage.wait(30).converge()), ["call back t"]);
    assert_eq!(effects(&stage.wait(29).converge()), [""; 0]);
    assert_eq!(effects(&stage.wait(1).converge()), ["call back t"]);
    let outcome = stage.wait(60).converge();
    assert_eq!(effects(&outcome), [""; 0], "nobody is told of what is gone");
    assert_eq!(events(&outcome), ["task_removed"]);
}

#[test]
fn a_task_that_ended_before_the_coordinator_did_is_called_back_by_the_next_one() {
    for before in ["Completed", "Resolving"] {
        let mut stage = stage(before);
        stage.wait(3_600);
        let mut stage = stage.restarted();
        assert_eq!(effects(&stage.converge()), ["call back t"], "{before}");
        assert_eq!(effects(&stage.wait(30).converge()), ["call back t"], "{before}");
        stage.wait(89).converge();
        assert!(stage.task("t").is_some(), "{before}");
        stage.wait(1).converge();
        assert!(stage.task("t").is_none(), "{before}: two minutes are over");
    }
}

#[test]
fn a_task_that_is_resolved_for_too_long_is_called_back_anew() {
    let mut stage = stage("Resolving");
    stage.wait(29).converge();
    assert_eq!(stage.task("t").unwrap().state, TaskState::Resolving);
    let before = stage.task("t").unwrap();
    let outcome = stage.wait(1).converge();
    assert_eq!(effects(&outcome), ["call back t"]);
    let task = stage.task("t").unwrap();
    assert_eq!(*task, Task { state: TaskState::Completed, ..(*before).clone() });
    stage.does(resolving("t"));
    stage.wait(100).converge();
    assert!(stage.task("t").is_none(), "first completed two minutes ago");
}

#[test]
fn reasons_are_needed_and_are_cut_and_results_are_kept_whole() {
    let long = "ü".repeat(600);
    let mut stage = stage("Pending");
    for command in [
        Command::FailTask(task_guid("t"), "".into()),
        Command::RejectTask(task_guid("t"), "".into()),
    ] {
        assert!(matches!(stage.refuses(command), Rejection::Invalid(_)));
    }
    stage.does(Command::RejectTask(task_guid("t"), long.as_str().into()));
    let kept = stage.task("t").unwrap().rejection_reason.clone();
    assert!(kept.len() <= 1_024 && kept.ends_with("ü(truncated)"), "{} bytes", kept.len());
    stage.does(start_task("t", "cell-1"));
    let outcome = TaskOutcome { failed: true, failure_reason: long, result: "r".repeat(50_000) };
    stage.does(cell_says(CellRequest::CompleteTask(task_guid("t"), cell("cell-1"), outcome)));
    let task = stage.task("t").unwrap();
    assert!(task.failure_reason.ends_with("ü(truncated)"));
    assert_eq!(task.result.len(), 50_000);
}
