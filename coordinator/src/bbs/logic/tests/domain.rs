//! Freshness: nothing is destroyed for a domain that nobody vouches for, and everything that is
//! not wanted goes as soon as somebody does.

use super::*;

/// `p` was desired once and is not any more; i1 runs at index 0, and nobody vouches for anything.
fn orphaned() -> Stage {
    let mut stage = Stage::new();
    stage.does(present("cell-1"));
    stage.does(start(0, &i1()));
    stage
}

#[test]
fn an_empty_board_learns_of_what_runs_and_stops_nothing() {
    let mut stage = orphaned();
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i1"]);
    for _ in 0..5 {
        let outcome = stage.wait(3_600).converge();
        assert!(outcome.effects.is_empty() && outcome.changes.is_empty());
        let outcome = stage.does(Command::ConvergeAll);
        assert!(outcome.effects.is_empty() && outcome.changes.is_empty());
    }
}

#[test]
fn what_is_not_desired_goes_as_soon_as_its_domain_is_fresh() {
    let mut stage = orphaned();
    stage.wait(3_600).converge();
    stage.does(fresh("d", 60));
    assert_eq!(stage.board.next_deadline(), Some(Timestamp::ZERO), "it is due at once");
    assert_eq!(effects(&stage.converge()), ["stop 0 i1"]);
    stage.does(remove(0, &i1()));
    assert_eq!(stage.shown(), [""; 0]);
}

#[test]
fn the_freshness_of_another_domain_changes_nothing() {
    let mut stage = orphaned();
    stage.does(fresh("other", 0));
    assert_eq!(effects(&stage.converge()), [""; 0]);
}

#[test]
fn freshness_that_has_ended_counts_no_more() {
    let mut stage = orphaned();
    stage.does(fresh("d", 60));
    stage.wait(60);
    let outcome = stage.converge();
    assert_eq!(effects(&outcome), [""; 0]);
    assert_eq!(stage.board.records.domains().count(), 0, "the domain is pruned");
    stage.does(fresh("d", 60));
    assert_eq!(effects(&stage.wait(59).converge()), ["stop 0 i1"]);
}

#[test]
fn a_domain_without_an_end_stays_fresh() {
    let mut stage = orphaned();
    stage.does(fresh("d", 0));
    stage.wait(1 << 33).converge();
    assert!(stage.board.is_fresh(stage.now, &domain("d")));
}

#[test]
fn a_domain_upserted_again_lasts_from_then_on() {
    let mut stage = Stage::new();
    stage.does(fresh("d", 60));
    stage.wait(50).does(fresh("d", 60));
    stage.wait(59).converge();
    assert!(stage.board.is_fresh(stage.now, &domain("d")));
    stage.wait(1).converge();
    assert!(!stage.board.is_fresh(stage.now, &domain("d")));
}

/// What may be there that nobody desires: (what happens, records that stay until freshness).
#[test]
fn undesired_records_in_every_state_wait_for_freshness() {
    let ways: [(&[Command], &str); 4] = [
        (&[crash(0, &i1())], "0 UNCLAIMED ORDINARY"),
        (&[claim(0, &i1())], "0 CLAIMED ORDINARY i1"),
        (&[], "0 RUNNING ORDINARY i1"),
        (
            &[
                crash(0, &i1()),
                claim(0, &i1()),
                crash(0, &i1()),
                claim(0, &i1()),
                crash(0, &i1()),
                claim(0, &i1()),
                crash(0, &i1()),
            ],
            "0 CRASHED ORDINARY",
        ),
    ];
    for (way, shown) in ways {
        let mut stage = orphaned();
        for command in way {
            stage.does(command.clone());
        }
        let outcome = stage.wait(10_000).converge();
        assert!(outcome.changes.is_empty() && outcome.effects.is_empty(), "{shown}: {outcome:?}");
        assert_eq!(stage.shown(), [shown]);
        stage.does(fresh("d", 60));
        let outcome = stage.converge();
        if shown.ends_with("i1") {
            assert_eq!(effects(&outcome), ["stop 0 i1"], "{shown}");
            stage.does(remove(0, &i1()));
        }
        assert_eq!(stage.shown(), [""; 0], "{shown}");
    }
}

#[test]
fn an_undesired_suspect_waits_for_freshness_too() {
    let mut stage = Stage::new();
    stage.does(present("cell-1"));
    stage.does(desire(1));
    stage.runs(&i1());
    stage.does(missing("cell-1"));
    // As after a purge of what is desired: only the instances are read back.
    let mut board = Board::new(BoardSettings::default());
    for change in stored(&stage.board).into_iter().filter(|it| matches!(it, Change::Actual(..))) {
        board.load(change).unwrap();
    }
    board.loaded(stage.now);
    stage.board = board;
    stage.does(missing("cell-1"));
    stage.wait(10_000).converge();
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY", "0 RUNNING SUSPECT i1"]);
    stage.does(fresh("d", 60));
    stage.converge();
    assert_eq!(stage.shown(), [""; 0]);
}

#[test]
fn creating_and_restarting_does_not_wait_for_freshness() {
    let mut stage = Stage::new();
    stage.does(desire(1));
    assert_eq!(effects(&stage.wait(30).converge()), ["auction p: 0"]);
    for _ in 0..4 {
        stage.does(claim(0, &i1()));
        stage.does(crash(0, &i1()));
    }
    assert_eq!(effects(&stage.wait(60).converge()), ["auction p: 0"]);
}
