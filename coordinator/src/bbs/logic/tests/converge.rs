//! Convergence: lost messages, lost cells, a new coordinator.

use super::*;
use crate::bbs::command::Report;

#[test]
fn a_lost_start_is_asked_for_again_every_stale_after() {
    let mut stage = Stage::with_desired(2);
    for _ in 0..3 {
        assert_eq!(effects(&stage.wait(29).converge()), [""; 0]);
        assert_eq!(effects(&stage.wait(1).converge()), ["auction p: 0 1"]);
    }
    stage.does(claim(1, &i1()));
    assert_eq!(effects(&stage.wait(30).converge()), ["auction p: 0"]);
}

#[test]
fn a_failed_auction_counts_as_an_answer_and_the_next_is_asked_stale_after_it() {
    let mut stage = Stage::with_desired(1);
    stage.wait(20).does(fail(0));
    assert_eq!(effects(&stage.wait(29).converge()), [""; 0]);
    assert_eq!(effects(&stage.wait(1).converge()), ["auction p: 0"]);
}

#[test]
fn a_lost_stop_is_repeated_every_stale_after_while_the_domain_is_fresh() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    assert_eq!(effects(&stage.does(scale(0))), ["stop 0 i1"]);
    for _ in 0..2 {
        assert_eq!(effects(&stage.wait(29).converge()), [""; 0]);
        assert_eq!(effects(&stage.wait(1).converge()), ["stop 0 i1"]);
    }
    stage.does(fresh("d", 1));
    assert_eq!(effects(&stage.wait(30).converge()), [""; 0]);
    stage.does(fresh("d", 1));
    assert_eq!(effects(&stage.converge()), ["stop 0 i1"]);
}

#[test]
fn a_claimed_instance_is_left_to_its_cell() {
    let mut stage = Stage::with_desired(1);
    stage.does(claim(0, &i1()));
    let outcome = stage.wait(100_000).converge();
    assert!(outcome.effects.is_empty() && outcome.changes.is_empty());
}

#[test]
fn all_that_one_pass_asks_for_goes_out_as_one_request() {
    let mut stage = Stage::with_desired(2);
    stage.does(desire_this(desired("q", "d", 2)));
    stage.does(desire_task("t", ""));
    let outcome = stage.wait(30).converge();
    assert_eq!(outcome.effects.len(), 1);
    assert_eq!(auctions(&outcome), ["p: 0 1", "q: 0 1", "t"]);
}

#[test]
fn a_missing_cell_is_acted_on_in_the_command_that_tells_of_it() {
    let mut stage = Stage::with_desired(3);
    stage.runs(&i1());
    stage.does(claim(1, &instance("i4", "cell-1")));
    stage.does(start(2, &i2()));
    stage.does(desire_task("t", ""));
    stage.does(start_task("t", "cell-1"));
    let outcome = stage.does(missing("cell-1"));
    assert_eq!(auctions(&outcome), ["p: 0 1"]);
    assert_eq!(
        stage.shown(),
        [
            "0 UNCLAIMED ORDINARY",
            "0 RUNNING SUSPECT i1",
            "1 UNCLAIMED ORDINARY",
            "1 CLAIMED SUSPECT i4",
            "2 RUNNING ORDINARY i2"
        ]
    );
    assert!(stage.task("t").unwrap().failed);
    let again = stage.does(missing("cell-1"));
    assert!(again.changes.is_empty() && again.effects.is_empty(), "said before");
}

#[test]
fn a_cell_that_comes_back_has_its_instances_again() {
    let mut stage = Stage::with_desired(2);
    stage.runs(&i1());
    stage.does(claim(1, &instance("i4", "cell-1")));
    stage.does(missing("cell-1"));
    stage.does(claim(0, &i2()));
    stage.does(present("cell-1"));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1", "1 CLAIMED ORDINARY i4"]);
    // The replacement that was under way finds out when it asks.
    assert!(matches!(stage.refuses(start(0, &i2())), Rejection::CannotStart(_)));
}

#[test]
fn a_cell_that_was_never_heard_of_is_missing_only_once_all_have_been_heard() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    let mut stage = stage.restarted();
    stage.wait(3_600).converge();
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1"]);
    let mut quiet = stage.clone();
    quiet.does(present("cell-1"));
    quiet.does(Command::CellsSettled);
    assert_eq!(quiet.shown(), ["0 RUNNING ORDINARY i1"]);
    assert_eq!(auctions(&stage.does(Command::CellsSettled)), ["p: 0"]);
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "0 RUNNING SUSPECT i1"]);
}

#[test]
fn work_taken_by_a_cell_that_nobody_hears_is_lost_at_the_next_look() {
    let mut stage = Stage::with_desired(1);
    stage.does(Command::CellsSettled);
    stage.does(claim(0, &instance("i9", "cell-9")));
    assert_eq!(auctions(&stage.converge()), ["p: 0"]);
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "0 CLAIMED SUSPECT i9"]);
}

#[test]
fn a_new_coordinator_asks_again_for_what_the_old_one_had_asked() {
    let mut stage = Stage::with_desired(1);
    stage.wait(30).converge();
    let mut stage = stage.restarted();
    assert_eq!(effects(&stage.converge()), ["auction p: 0"], "UNCLAIMED for thirty seconds");
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    stage.does(scale(0));
    let mut stage = stage.restarted();
    assert_eq!(effects(&stage.converge()), ["stop 0 i1"]);
}

#[test]
fn both_ways_of_converging_find_the_same_and_nothing_twice() {
    let mut stage = Stage::with_desired(3);
    stage.runs(&i1());
    stage.does(desire_task("t", ""));
    stage.wait(30);
    let mut other = stage.clone();
    let outcome = stage.converge();
    assert_eq!(outcome, other.does(Command::ConvergeAll));
    assert_eq!(outcome.reply, Reply::Converged(Report { findings: 3, healed: 0 }));
    for command in [Command::ConvergeDue, Command::ConvergeAll] {
        let again = stage.does(command);
        assert_eq!(again.reply, Reply::Converged(Report::default()));
    }
}

#[test]
fn the_next_deadline_is_when_something_is_to_be_done() {
    let mut stage = Stage::with_desired(1);
    let stale = stage.now + Duration::from_secs(30);
    assert_eq!(stage.board.next_deadline(), Some(stale));
    stage.does(claim(0, &i1()));
    assert_eq!(stage.board.next_deadline(), None);
    stage.does(fresh("e", 5));
    assert_eq!(stage.board.next_deadline(), Some(stage.now + Duration::from_secs(5)));
    stage.wait(5).converge();
    assert_eq!(stage.board.next_deadline(), None);
}

#[test]
fn what_the_agenda_had_missed_is_found_by_the_full_pass_and_counted() {
    let mut stage = Stage::with_desired(2);
    stage.wait(30);
    stage.board.agenda = super::super::agenda::Agenda::default();
    let verdict = stage.board.apply(stage.now, 1, Command::ConvergeAll).unwrap();
    assert_eq!(verdict.reply, Reply::Converged(Report { findings: 2, healed: 2 }));
    assert_eq!(auctions(&verdict), ["p: 0 1"]);
    assert_eq!(check(&stage.board, stage.now), [""; 0]);
}

#[test]
fn a_commit_that_failed_is_undone_to_the_letter() {
    let mut stage = Stage::with_desired(2);
    stage.runs(&i1());
    stage.wait(30);
    for command in
        [missing("cell-1"), scale(0), Command::RemoveDesiredLrp(process()), crash(0, &i1())]
    {
        let before = (stage.shown(), stage.board.next_deadline());
        let outcome = stage.does(command);
        stage.board.undo(stage.now, outcome.changes.into_iter());
        assert_eq!((stage.shown(), stage.board.next_deadline()), before);
        assert_eq!(check(&stage.board, stage.now), [""; 0]);
    }
}

#[test]
fn the_end_of_an_evacuating_record_answers_no_question() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    stage.does(cell_says(CellRequest::EvacuateRunning(key(0), i1(), running())));
    // Both the repeated start and the end of the evacuating record are due.
    assert_eq!(effects(&stage.wait(600).converge()), ["auction p: 0"]);
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY"]);
    assert_eq!(effects(&stage.wait(29).converge()), [""; 0]);

    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    stage.does(cell_says(CellRequest::EvacuateRunning(key(0), i1(), running())));
    stage.does(claim(0, &i2()));
    stage.wait(590).does(scale(0));
    stage.wait(10).converge();
    assert_eq!(stage.shown(), ["0 CLAIMED ORDINARY i2"]);
    assert_eq!(effects(&stage.wait(19).converge()), [""; 0], "the stop was asked 29 s ago");
    assert_eq!(effects(&stage.wait(1).converge()), ["stop 0 i2"]);
}
