//! Convergence: lost messages, lost cells, a new coordinator.

use super::*;
use crate::bbs::command::ConvergenceReport;

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

/// Whether or not the domain is fresh, whether or not the instance is still desired.
#[test]
fn a_lost_stop_is_repeated_every_stale_after_until_the_instance_is_gone() {
    let ways: [&[Command]; 3] = [&[scale(0)], &[Command::RetireLrp(key(0))], &[scale(0), scale(1)]];
    for way in ways {
        for seconds in [0, 1] {
            let mut stage = Stage::with_desired(1);
            stage.does(fresh("d", seconds));
            stage.runs(&i1());
            assert_eq!(effects(&stage.does(way[0].clone())), ["stop 0 i1"]);
            way[1..].iter().for_each(|command| drop(stage.does(command.clone())));
            for _ in 0..2 {
                assert_eq!(effects(&stage.wait(29).converge()), [""; 0], "{way:?}");
                assert_eq!(effects(&stage.wait(1).converge()), ["stop 0 i1"], "{way:?}");
            }
            let mut stage = stage.wait(1).restarted();
            assert_eq!(effects(&stage.converge()), ["stop 0 i1"], "asked anew: {way:?}");
            stage.does(remove(0, &i1()));
            assert_eq!(stage.board.records.instances().filter(|lrp| lrp.stopping).count(), 0);
        }
    }
}

#[test]
fn an_instance_that_was_to_stop_goes_with_its_cell_and_begins_anew_where_desired() {
    for (way, after) in
        [(Command::RetireLrp(key(0)), &["0 UNCLAIMED ORDINARY"][..]), (scale(0), &[])]
    {
        let mut stage = Stage::new();
        stage.does(desire(1));
        stage.runs(&i1());
        stage.does(way);
        stage.does(missing("cell-1"));
        assert_eq!(stage.shown(), after, "no suspect is made of it");
    }
}

#[test]
fn a_stop_is_repeated_beside_a_suspect_that_waits_for_its_domain() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    stage.does(missing("cell-1"));
    stage.does(claim(0, &i2()));
    stage.does(Command::RetireLrp(key(0)));
    // As after a purge of what is desired: only the instances are read back.
    let mut board = Board::new(BoardSettings::default());
    for change in stored(&stage.board).into_iter().filter(|it| matches!(it, Change::Actual(..))) {
        board.load(change).unwrap();
    }
    board.loaded(stage.now);
    stage.board = board;
    assert_eq!(effects(&stage.converge()), ["stop 0 i2"]);
    assert_eq!(effects(&stage.wait(30).converge()), ["stop 0 i2"]);
    stage.does(remove(0, &i2()));
    assert_eq!(stage.shown(), ["0 RUNNING SUSPECT i1"]);
    stage.does(fresh("d", 60));
    stage.converge();
    assert_eq!(stage.shown(), [""; 0]);
}

#[test]
fn a_record_on_no_cell_that_is_to_be_stopped_is_none_of_ours() {
    let stage = Stage::with_desired(1);
    let mut board = Board::new(BoardSettings::default());
    for mut change in stored(&stage.board) {
        if let Change::Actual(_, _, Some(lrp)) = &mut change {
            Arc::make_mut(lrp).stopping = true;
            let fault = board.load(change).unwrap_err();
            assert_eq!(fault, "p/0 Ordinary is UNCLAIMED and is to be stopped");
        } else {
            board.load(change).unwrap();
        }
    }
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
fn a_clock_that_was_set_back_delays_nothing_and_prolongs_no_freshness() {
    let mut stage = Stage::with_desired(1);
    stage.does(fresh("e", 60));
    for (task, url) in [("pending", ""), ("done", "http://consumer/done")] {
        stage.does(desire_task(task, url));
    }
    stage.does(Command::CancelTask(task_guid("done")));
    stage.now = stage.now - Duration::from_secs(3_600);
    let mut stage = stage.restarted();
    assert_eq!(check(&stage.board, stage.now), [""; 0]);
    assert_eq!(stage.ordinary().since, stage.now);
    let done = stage.task("done").unwrap();
    let times = (done.created_at, done.updated_at, done.first_completed_at);
    assert_eq!(times, (stage.now, stage.now, stage.now));
    assert_eq!(stage.task("pending").unwrap().first_completed_at, Timestamp::ZERO);
    assert_eq!(effects(&stage.wait(29).converge()), [""; 0]);
    let told = ["call back done", "auction p: 0, pending"];
    assert_eq!(effects(&stage.wait(1).converge()), told);
    stage.wait(29).converge();
    assert!(stage.board.is_fresh(stage.now, &domain("e")), "it was granted sixty seconds");
    stage.wait(1).converge();
    assert!(!stage.board.is_fresh(stage.now, &domain("e")), "and no more");
    assert!(stage.board.is_fresh(stage.now, &domain("d")), "for ever is for ever");
}

#[test]
fn freshness_goes_on_over_a_restart() {
    let mut stage = Stage::new();
    stage.does(fresh("e", 60));
    stage.wait(40);
    let mut stage = stage.restarted();
    for (seconds, fresh) in [(19, true), (1, false)] {
        stage.wait(seconds);
        assert_eq!(stage.board.is_fresh(stage.now, &domain("e")), fresh);
    }
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
    assert_eq!(outcome.reply, Reply::Converged(ConvergenceReport { findings: 3, healed: 0 }));
    for command in [Command::ConvergeDue, Command::ConvergeAll] {
        let again = stage.does(command);
        assert_eq!(again.reply, Reply::Converged(ConvergenceReport::default()));
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
    stage.board.agenda = super::super::schedule::ConvergeSchedule::default();
    let verdict = stage.board.apply(stage.now, 1, Command::ConvergeAll).unwrap();
    assert_eq!(verdict.reply, Reply::Converged(ConvergenceReport { findings: 2, healed: 2 }));
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
fn what_the_mesh_said_outlives_a_commit_that_failed() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    stage.does(desire_task("t", ""));
    stage.does(start_task("t", "cell-1"));
    let told = missing("cell-1");
    for heard in [told, Command::CellsSettled] {
        let mut stage = stage.clone();
        if let Command::CellsSettled = heard {
            stage = stage.restarted();
        }
        let before = (stage.shown(), stage.task("t"));
        let outcome = stage.does(heard);
        assert_eq!(auctions(&outcome), ["p: 0"]);
        stage.board.roll_back(stage.now, outcome.changes.into_iter());
        assert_eq!(check(&stage.board, stage.now), [""; 0]);
        assert_eq!((stage.shown(), stage.task("t")), before);
        assert_eq!(stage.board.presence(&cell("cell-1")), Some(CellPresence::Missing));
        assert_eq!(stage.board.next_deadline(), Some(Timestamp::ZERO), "it is due at once");
        assert_eq!(auctions(&stage.converge()), ["p: 0"]);
        assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "0 RUNNING SUSPECT i1"]);
        assert!(stage.task("t").unwrap().failed);
    }
}

#[test]
fn a_missing_cell_that_no_record_names_is_forgotten_once_all_have_been_heard() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    for name in ["cell-1", "cell-8", "cell-9"] {
        stage.does(missing(name));
    }
    stage.does(Command::ConvergeAll);
    assert_eq!(stage.board.presence.len(), 5, "others may still be heard");
    stage.does(Command::CellsSettled);
    let outcome = stage.does(Command::ConvergeAll);
    let known: Vec<_> = stage.board.presence.keys().map(CellId::as_str).collect();
    assert_eq!(known, ["cell-1", "cell-2", "cell-3"]);
    assert_eq!(stage.board.presence(&cell("cell-9")), Some(CellPresence::Missing));
    stage.board.undo(stage.now, outcome.changes.into_iter());
    assert_eq!(stage.board.presence.len(), 5);
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
