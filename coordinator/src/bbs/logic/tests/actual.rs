//! Claim, start, crash, fail, remove, retire: the life of an ordinary record.

use super::*;

#[test]
fn an_instance_goes_from_unclaimed_to_claimed_to_running() {
    let mut stage = Stage::with_desired(1);
    let first = Arc::clone(stage.ordinary());
    let outcome = stage.wait(1).does(claim(0, &i1()));
    assert_eq!(events(&outcome), ["actual_lrp_instance_changed", "actual_lrp_changed"]);
    let claimed = Arc::clone(stage.ordinary());
    assert_eq!(claimed.since, stage.now);
    let outcome = stage.wait(1).does(start(0, &i1()));
    // The first to run makes its definition healthy.
    assert_eq!(
        events(&outcome),
        ["actual_lrp_instance_changed", "actual_lrp_changed", "desired_lrp_changed"]
    );
    let running = stage.ordinary();
    assert_eq!(running.since, stage.now);
    let tags = [&first, &claimed, running].map(|lrp| lrp.modification_tag);
    assert_eq!(tags[1], tags[0].next());
    assert_eq!(tags[2], tags[1].next());
}

#[test]
fn what_is_said_again_is_written_only_when_it_differs() {
    let mut stage = Stage::with_desired(1);
    stage.does(claim(0, &i1()));
    assert!(stage.wait(1).does(claim(0, &i1())).changes.is_empty());
    stage.does(start(0, &i1()));
    let outcome = stage.wait(1).does(start(0, &i1()));
    assert!(outcome.changes.is_empty() && outcome.events.is_empty());
    let moved = cell_says(CellRequest::StartLrp(key(0), i1(), running_at("10.0.0.9")));
    assert_eq!(events(&stage.does(moved)), ["actual_lrp_instance_changed", "actual_lrp_changed"]);
}

#[test]
fn a_start_without_a_record_creates_one_even_when_nothing_is_desired() {
    let mut stage = Stage::new();
    let outcome = stage.does(start(7, &i1()));
    assert_eq!(events(&outcome), ["actual_lrp_instance_created", "actual_lrp_created"]);
    assert_eq!(stage.shown(), ["7 RUNNING ORDINARY i1"]);
    let lrp = stage.lrp(7, Presence::Ordinary).unwrap();
    assert_eq!((lrp.modification_tag.index, lrp.crash_count), (0, 0));
}

#[test]
fn a_crash_without_a_record_is_noted_and_restarted_only_if_desired() {
    let mut stage = Stage::new();
    assert_eq!(effects(&stage.does(crash(0, &i1()))), [""; 0]);
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY"]);
    assert_eq!(stage.ordinary().crash_count, 1);
    let mut stage = Stage::with_desired(1);
    assert_eq!(effects(&stage.does(crash(5, &i1()))), [""; 0], "index 5 is not desired");
}

#[test]
fn a_running_instance_takes_the_record_from_one_that_only_starts() {
    let mut stage = Stage::with_desired(1);
    stage.does(claim(0, &i1()));
    stage.does(start(0, &i2()));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i2"]);
    assert!(matches!(stage.refuses(start(0, &i1())), Rejection::CannotStart(_)));
}

#[test]
fn half_a_matching_key_is_no_match() {
    for other in [instance("i1", "cell-2"), instance("i2", "cell-1")] {
        let mut stage = Stage::with_desired(1);
        stage.runs(&i1());
        assert!(matches!(stage.refuses(crash(0, &other)), Rejection::CannotCrash(_)));
        assert!(matches!(stage.refuses(remove(0, &other)), Rejection::NotFound(_)));
    }
}

#[test]
fn a_placement_error_is_kept_until_the_record_leaves_unclaimed() {
    for leave in [claim(0, &i1()), start(0, &i1())] {
        let mut stage = Stage::with_desired(1);
        let before = Arc::clone(stage.ordinary());
        let outcome = stage.wait(5).does(fail(0));
        assert_eq!(events(&outcome), ["actual_lrp_instance_changed", "actual_lrp_changed"]);
        let after = stage.ordinary();
        assert_eq!(after.placement_error(), "insufficient resources");
        assert_eq!(after.modification_tag, before.modification_tag.next());
        assert_eq!(after.since, before.since, "UNCLAIMED it was and is");
        stage.does(leave);
        stage.does(remove(0, &i1()));
        assert_eq!(stage.ordinary().placement_error(), "");
    }
}

#[test]
fn an_auction_that_fails_again_for_the_same_reason_writes_nothing() {
    let mut stage = Stage::with_desired(1);
    stage.does(fail(0));
    let before = Arc::clone(stage.ordinary());
    let outcome = stage.wait(20).does(fail(0));
    assert!(outcome.changes.iter().all(|change| !change.is_kept()), "{outcome:?}");
    assert_eq!(events(&outcome), [""; 0]);
    assert_eq!(*stage.ordinary(), before);
    assert_eq!(effects(&stage.wait(29).converge()), [""; 0], "it was an answer all the same");
    assert_eq!(effects(&stage.wait(1).converge()), ["auction p: 0"]);
}

#[test]
fn a_failed_auction_needs_a_reason_and_is_not_minded_when_the_record_is_gone() {
    let mut stage = Stage::with_desired(1);
    let nothing = Command::FailLrp(key(0), "".into());
    assert!(matches!(stage.refuses(nothing), Rejection::Invalid(_)));
    assert!(stage.does(fail(3)).changes.is_empty());
}

#[test]
fn reasons_are_cut_at_a_letter_and_say_so() {
    let long = format!("x{}", "ü".repeat(700));
    let mut stage = Stage::with_desired(1);
    stage.does(Command::FailLrp(key(0), long.as_str().into()));
    let kept = stage.ordinary().placement_error().to_owned();
    assert!(kept.len() <= 1_024 && kept.ends_with("ü(truncated)"), "{} bytes", kept.len());
    stage.does(claim(0, &i1()));
    stage.does(cell_says(CellRequest::CrashLrp(key(0), i1(), long.as_str().into())));
    assert_eq!(*stage.ordinary().crash_reason, *kept);
    let exact = "y".repeat(1_024);
    stage.does(claim(0, &i1()));
    stage.does(cell_says(CellRequest::CrashLrp(key(0), i1(), exact.as_str().into())));
    assert_eq!(*stage.ordinary().crash_reason, *exact);
}

#[test]
fn an_instance_that_keeps_crashing_restarts_three_times_then_waits_longer_and_longer() {
    let mut stage = Stage::with_desired(1);
    for count in 1..=3 {
        stage.runs(&i1());
        let outcome = stage.does(crash(0, &i1()));
        assert_eq!(effects(&outcome), ["auction p: 0"], "crash {count}");
        assert_eq!(stage.ordinary().crash_count, count);
        let told = [
            "actual_lrp_crashed",
            "actual_lrp_instance_removed",
            "actual_lrp_instance_created",
            "actual_lrp_changed",
        ];
        assert_eq!(events(&outcome), told);
    }
    for (count, wait) in (4..).zip([60, 120, 240, 480, 960, 960]) {
        stage.runs(&i1());
        let outcome = stage.does(crash(0, &i1()));
        assert_eq!(effects(&outcome), [""; 0], "crash {count}");
        let told = ["actual_lrp_crashed", "actual_lrp_instance_changed", "actual_lrp_changed"];
        assert_eq!(events(&outcome), told);
        assert_eq!(stage.shown(), ["0 CRASHED ORDINARY"]);
        assert_eq!(stage.ordinary().crash_count, count);
        assert_eq!(effects(&stage.wait(wait - 1).converge()), [""; 0], "crash {count}");
        assert_eq!(effects(&stage.wait(1).converge()), ["auction p: 0"], "crash {count}");
    }
}

#[test]
fn above_two_hundred_crashes_nothing_is_restarted() {
    let mut stage = Stage::with_desired(1);
    for _ in 0..200 {
        stage.runs(&i1());
        stage.does(crash(0, &i1()));
        stage.wait(960).converge();
    }
    assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY"]);
    stage.runs(&i1());
    stage.does(crash(0, &i1()));
    assert_eq!(stage.ordinary().crash_count, 201);
    stage.wait(1 << 30).converge();
    assert_eq!(stage.shown(), ["0 CRASHED ORDINARY"]);
    // A running container proves otherwise, and a human may retire it.
    stage.does(start(0, &i2()));
    assert_eq!(stage.shown(), ["0 RUNNING ORDINARY i2"]);
    stage.does(crash(0, &i2()));
    stage.does(Command::RetireLrp(key(0)));
    assert_eq!(stage.ordinary().crash_count, 0);
}

#[test]
fn five_minutes_of_running_make_the_next_crash_the_first() {
    for (seconds, count) in [(299, 3), (300, 1)] {
        let mut stage = Stage::with_desired(1);
        for _ in 0..2 {
            stage.runs(&i1());
            stage.does(crash(0, &i1()));
        }
        stage.runs(&i1());
        stage.wait(seconds).does(crash(0, &i1()));
        assert_eq!(stage.ordinary().crash_count, count, "after {seconds} s");
    }
    // Only running counts: a claim may take its time.
    let mut stage = Stage::with_desired(1);
    for _ in 0..2 {
        stage.does(claim(0, &i1()));
        stage.wait(400).does(crash(0, &i1()));
    }
    assert_eq!(stage.ordinary().crash_count, 2);
}

#[test]
fn new_facts_of_a_running_instance_do_not_make_it_younger() {
    let mut stage = Stage::with_desired(1);
    for _ in 0..2 {
        stage.runs(&i1());
        stage.does(crash(0, &i1()));
    }
    assert_eq!(stage.ordinary().crash_count, 2);
    stage.runs(&i1());
    let since = stage.ordinary().since;
    let unready = Arc::new(Running { routable: false, ..(*running()).clone() });
    stage.wait(240).does(cell_says(CellRequest::StartLrp(key(0), i1(), unready)));
    let flipped = stage.ordinary();
    assert!(!flipped.running().unwrap().routable);
    assert_eq!(flipped.since, since);
    stage.wait(120).does(crash(0, &i1()));
    assert_eq!(stage.ordinary().crash_count, 1, "it ran for six minutes");
}

#[test]
fn the_crash_notice_carries_the_key_the_count_and_the_reason() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    let outcome = stage.does(crash(0, &i1()));
    let Event::Crashed(told) = &outcome.events[0] else { panic!("{:?}", outcome.events) };
    assert_eq!((told.crash_count, &*told.crash_reason, told.since), (1, "exit 1", stage.now));
    assert_eq!((&told.key, &told.instance), (&stage.ordinary().key(), &i1()));
}

#[test]
fn removing_a_desired_index_begins_anew_at_once() {
    for command in [remove(0, &i1()), Command::RemoveLrp(key(0))] {
        let mut stage = Stage::with_desired(1);
        stage.runs(&i1());
        let before = stage.ordinary().modification_tag;
        let outcome = stage.does(command);
        assert_eq!(effects(&outcome), ["auction p: 0"]);
        assert_eq!(stage.shown(), ["0 UNCLAIMED ORDINARY"]);
        assert_ne!(stage.ordinary().modification_tag.epoch, before.epoch);
        let told = [
            "actual_lrp_instance_removed",
            "actual_lrp_removed",
            "actual_lrp_instance_created",
            "actual_lrp_created",
        ];
        assert_eq!(events(&outcome), told);
    }
}

/// (how the record is, what the mesh said last, effects, records after)
#[test]
fn retiring_stops_what_is_on_a_cell_and_begins_anew_where_no_cell_would_answer() {
    let stop = &["stop 0 i1"][..];
    let anew = &["auction p: 0"][..];
    let still_claimed = "0 CLAIMED ORDINARY i1";
    let still_running = "0 RUNNING ORDINARY i1";
    let cases = [
        ("UNCLAIMED", "unheard", anew, "0 UNCLAIMED ORDINARY"),
        ("CLAIMED", "present", stop, still_claimed),
        ("CLAIMED", "unheard", stop, still_claimed),
        ("CLAIMED", "missing", anew, "0 UNCLAIMED ORDINARY"),
        ("RUNNING", "present", stop, still_running),
        ("RUNNING", "unheard", stop, still_running),
        ("RUNNING", "missing", anew, "0 UNCLAIMED ORDINARY"),
        ("CRASHED", "unheard", anew, "0 UNCLAIMED ORDINARY"),
    ];
    for (state, heard, told, after) in cases {
        let mut stage = Stage::new();
        match heard {
            "present" => drop(stage.does(present("cell-1"))),
            "missing" => drop(stage.does(missing("cell-1"))),
            _ => {}
        }
        stage.does(desire(1));
        match state {
            "CLAIMED" => drop(stage.does(claim(0, &i1()))),
            "RUNNING" => stage.runs(&i1()),
            "CRASHED" => {
                for _ in 0..4 {
                    stage.does(claim(0, &i1()));
                    stage.does(crash(0, &i1()));
                }
            }
            _ => {}
        }
        let outcome = stage.does(Command::RetireLrp(key(0)));
        assert_eq!(effects(&outcome), told, "{state}, cell {heard}");
        assert_eq!(stage.shown(), [after], "{state}, cell {heard}");
        assert_eq!(stage.ordinary().crash_count, 0, "{state}, cell {heard}");
    }
    let nothing = Stage::new().refuses(Command::RetireLrp(key(0)));
    assert!(matches!(nothing, Rejection::NotFound(_)));
}

#[test]
fn a_retired_instance_is_marked_once_and_its_cell_is_told_each_time() {
    let mut stage = Stage::with_desired(1);
    stage.runs(&i1());
    let before = Arc::clone(stage.ordinary());
    let outcome = stage.wait(7).does(Command::RetireLrp(key(0)));
    let after = ActualLrp {
        stopping: true,
        modification_tag: before.modification_tag.next(),
        ..(*before).clone()
    };
    assert_eq!(outcome.events, [Event::InstanceChanged(before, Arc::new(after.clone()))]);
    assert_eq!(**stage.ordinary(), after);
    let outcome = stage.wait(1).does(Command::RetireLrp(key(0)));
    assert_eq!(effects(&outcome), ["stop 0 i1"]);
    assert_eq!(events(&outcome), [""; 0]);
    assert_eq!(**stage.ordinary(), after);
}

/// (how the instance is held, what happens, whether the order to stop stands)
#[test]
fn an_order_to_stop_stands_until_the_record_leaves_its_instance() {
    let moved = || cell_says(CellRequest::StartLrp(key(0), i1(), running_at("10.0.0.9")));
    let evacuates = cell_says(CellRequest::EvacuateRunning(key(0), i1(), running()));
    let leaves = cell_says(CellRequest::EvacuateClaimed(key(0), i1()));
    let cases = [
        ("CLAIMED", moved(), "0 RUNNING ORDINARY i1", true),
        ("RUNNING", moved(), "0 RUNNING ORDINARY i1", true),
        ("RUNNING", claim(0, &i1()), "0 CLAIMED ORDINARY i1", true),
        ("CLAIMED", start(0, &i2()), "0 RUNNING ORDINARY i2", false),
        ("CLAIMED", leaves, "0 UNCLAIMED ORDINARY", false),
        ("RUNNING", crash(0, &i1()), "0 UNCLAIMED ORDINARY", false),
        ("RUNNING", remove(0, &i1()), "0 UNCLAIMED ORDINARY", false),
        ("RUNNING", evacuates, "0 UNCLAIMED ORDINARY", false),
    ];
    for (state, command, after, stands) in cases {
        let mut stage = Stage::with_desired(1);
        stage.does(claim(0, &i1()));
        if state == "RUNNING" {
            stage.does(start(0, &i1()));
        }
        stage.does(Command::RetireLrp(key(0)));
        stage.does(command.clone());
        assert_eq!(stage.shown()[0], after, "{command:?}");
        assert_eq!(stage.ordinary().stopping, stands, "{command:?}");
        if let Some(evacuee) = stage.lrp(0, Presence::Evacuating) {
            assert!(!evacuee.stopping, "its cell is emptying itself");
        }
    }
}

#[test]
fn a_restart_of_the_coordinator_keeps_epochs_and_indices() {
    let mut stage = Stage::with_desired(2);
    stage.runs(&i1());
    let before = [0, 1].map(|index| stage.lrp(index, Presence::Ordinary).unwrap().clone());
    let mut stage = stage.restarted();
    let after = [0, 1].map(|index| stage.lrp(index, Presence::Ordinary).unwrap().clone());
    assert_eq!(before, after);
    stage.does(crash(0, &i1()));
    assert_eq!(stage.ordinary().modification_tag, before[0].modification_tag.next());
}
