//! How far a cell is trusted: what it refuses, forgets, leaves unanswered or says wrongly.

use super::*;
use std::collections::BTreeMap;

/// A round now, with everything wanted.
fn think(rounds: &mut Auction, now: Timestamp) -> Vec<String> {
    rounds.pass(now);
    sent(&rounds.run_round(now, &Wanting::default()))
}

fn refusal(guid: &str) -> WorkBatch {
    WorkBatch { lrps: vec![lrp(guid, [0], needs(1, 1))], ..nothing() }
}

#[test]
fn a_cell_that_refuses_and_never_says_a_new_load_is_asked_again_after_a_while() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 10);
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0"]);
    let mut now = NOW;
    for (nth, seconds) in [1_u64, 2, 4, 8, 16, 32, 32].into_iter().enumerate() {
        let number = nth as u64 + 1;
        rounds.answered(now, &id("a"), number, &refusal("p"));
        let orders = rounds.run_round(now, &Wanting::default());
        assert_eq!(unplaced(&orders), ["p/0: insufficient resources"]);
        assert_eq!(sent(&orders), [""; 0]);
        let wake_at = rounds.wake_at().unwrap();
        assert_eq!(wake_at, now + Duration::from_secs(seconds));
        now = wake_at;
        rounds.pass(now);
        assert!(rounds.is_due(now));
        assert_eq!(think(&mut rounds, now), [format!("a#{}: p/0", number + 1)]);
    }
}

#[test]
fn a_cell_that_says_a_new_load_with_every_refusal_is_not_asked_as_fast_as_it_can() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 10);
    let mut sends = 0;
    for version in 2..100 {
        let orders = rounds.run_round(NOW, &Wanting::default());
        for (cell, batch) in orders.sends {
            sends += 1;
            rounds.answered(NOW, &cell, batch.number, &refusal("p"));
        }
        rounds.cell_load(load("a", version, ROOM, rounds.last_number));
    }
    assert_eq!(sends, QUICK_REFUSALS + 1);
    let mut now = NOW;
    while !rounds.is_due(now) {
        now = rounds.wake_at().unwrap();
        rounds.pass(now);
    }
    assert_eq!(now, NOW + PAUSE.first * 8);
    assert_eq!(think(&mut rounds, now).len(), 1);
}

#[test]
fn a_number_beyond_all_that_was_sent_is_no_reason_to_fall_over() {
    let mut rounds = rounds(&[]);
    rounds.cell_info(cell("a", "z", ROOM).info);
    rounds.cell_load(load("a", 9, ROOM, u64::MAX));
    let mut numbers = Vec::new();
    for guid in ["p", "q"] {
        want(&mut rounds, guid, 0..1, 90);
        let orders = rounds.run_round(NOW, &Wanting::default());
        numbers.extend(orders.sends.iter().map(|(_, batch)| batch.number));
    }
    assert_eq!(numbers.len(), 2, "its load says that all is reflected");
    assert!(numbers[0] < numbers[1]);
    rounds.answered(NOW, &id("a"), numbers[1], &refusal("q"));
    assert_eq!(rounds.waiting(), 1);
}

#[test]
fn a_batch_that_was_answered_and_forgotten_gives_its_room_back() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 90);
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0"]);
    rounds.answered(NOW, &id("a"), 1, &nothing());
    // It was restarted before it ever said that it has the batch: it counts from 0 as before.
    rounds.cell_load(load("a", 2, ROOM, 0));
    want(&mut rounds, "q", 0..1, 90);
    assert_eq!(think(&mut rounds, NOW), [""; 0]);
    let later = rounds.wake_at().unwrap();
    assert_eq!(later, NOW + REFLECTED_WITHIN);
    assert_eq!(think(&mut rounds, later), ["a#2: q/0"]);
}

#[test]
fn a_cell_in_a_new_life_counts_from_the_beginning_and_late_answers_are_heard() {
    let mut rounds = rounds(&["a"]);
    rounds.cell_load(load("a", 50, ROOM, 0));
    want(&mut rounds, "p", 0..1, 90);
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0"]);
    rounds.cell_restarted(&id("a"));
    want(&mut rounds, "q", 0..1, 90);
    assert_eq!(think(&mut rounds, NOW), [""; 0], "nothing is known of it");
    rounds.cell_info(cell("a", "z", ROOM).info);
    rounds.cell_load(load("a", 1, ROOM, 0));
    assert_eq!(think(&mut rounds, NOW), ["a#2: q/0"]);
    rounds.answered(NOW, &id("a"), 1, &refusal("p"));
    assert_eq!(rounds.waiting(), 1, "what it refused in its former life is not lost");
}

#[test]
fn what_a_cell_refuses_after_it_began_anew_is_not_lost() {
    let mut rounds = rounds(&[]);
    rounds.cell_info(cell("a", "z", ROOM).info);
    rounds.cell_load(load("a", 9, ROOM, 41));
    want(&mut rounds, "p", 0..1, 90);
    assert_eq!(think(&mut rounds, NOW), ["a#42: p/0"]);
    rounds.cell_load(load("a", 10, ROOM, 0));
    rounds.answered(NOW, &id("a"), 42, &refusal("p"));
    assert_eq!(rounds.waiting(), 1);
}

#[test]
fn a_cell_that_went_and_came_back_gets_no_number_twice() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 90);
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0"]);
    rounds.cell_gone(&id("a"));
    rounds.cell_info(cell("a", "z", ROOM).info);
    rounds.cell_load(load("a", 2, ROOM, 0));
    want(&mut rounds, "q", 0..1, 5);
    assert_eq!(think(&mut rounds, NOW), ["a#2: p/0 q/0"]);
    rounds.answered(
        NOW,
        &id("a"),
        1,
        &WorkBatch { lrps: vec![lrp("q", [0], needs(1, 1))], ..nothing() },
    );
    assert_eq!(rounds.waiting(), 0, "an answer to the batch before says nothing of this one");
}

#[test]
fn what_a_cell_that_goes_was_sent_and_has_not_shown_wants_another() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "shown", 0..1, 10);
    assert_eq!(think(&mut rounds, NOW), ["a#1: shown/0"]);
    rounds.answered(NOW, &id("a"), 1, &nothing());
    rounds.cell_load(load("a", 2, capacity(90, 99, 9), 1));
    want(&mut rounds, "taken", 0..1, 10);
    assert_eq!(think(&mut rounds, NOW), ["a#2: taken/0"]);
    rounds.answered(NOW, &id("a"), 2, &nothing());
    rounds.request(vec![lrp("awaited", 0..2, needs(10, 1))], vec![task("t", needs(10, 1))]);
    assert_eq!(think(&mut rounds, NOW), ["a#3: awaited/0 awaited/1 t"]);
    want(&mut rounds, "unanswered", 0..1, 10);
    assert_eq!(think(&mut rounds, NOW), ["a#4: unanswered/0"]);
    rounds.unanswered(NOW, &id("a"), 4);
    assert_eq!(rounds.waiting(), 0, "the cell may have it");
    rounds.cell_info(cell("b", "z", ROOM).info);
    rounds.cell_load(load("b", 1, ROOM, 0));
    assert_eq!(rounds.cell_gone(&id("a")), 0);
    // What nobody wants any more goes nowhere.
    rounds.pass(NOW);
    let unwanted = ["awaited/1".to_owned()].into();
    let orders = rounds.run_round(NOW, &Wanting { unwanted, ..Wanting::default() });
    assert_eq!(sent(&orders), ["b#5: awaited/0 taken/0 unanswered/0 t"]);
    assert_eq!(unplaced(&orders), [""; 0]);
}

#[test]
fn what_nobody_answered_to_takes_no_room_and_is_not_kept_for_ever() {
    let mut rounds = rounds(&["a"]);
    let mut now = NOW;
    for nth in 0..=MOST_UNANSWERED {
        want(&mut rounds, &format!("p{nth}"), 0..1, 90);
        while think(&mut rounds, now).is_empty() {
            now = rounds.wake_at().unwrap();
        }
        rounds.unanswered(now, &id("a"), rounds.last_number);
    }
    let kept = |rounds: &Auction| {
        let heard = &rounds.cells[&id("a")];
        (heard.batches_given_up(), heard.batches_under_way(), heard.cell().unwrap().free.memory_mb)
    };
    let (given_up, under_way, free) = kept(&rounds);
    assert!((1..=MOST_UNANSWERED).contains(&given_up), "{given_up} are kept");
    assert_eq!((under_way, free), (0, 100));
    rounds.pass(now + ANSWER_WITHIN);
    assert_eq!(kept(&rounds).0, 0);
    assert_eq!((rounds.cell_gone(&id("a")), rounds.waiting()), (0, 0));
}

#[test]
fn more_than_all_is_never_free() {
    let mut rounds = rounds(&["a"]);
    rounds.cell_load(load("a", 2, capacity(250, 250, 250), 0));
    want(&mut rounds, "p", 0..2, 60);
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0"]);
    assert_eq!(think(&mut rounds, NOW), [""; 0], "40 are left, not 190");
}

#[test]
fn lost_answers_are_given_up_on_and_the_cell_gets_work_again() {
    let mut rounds = rounds(&["a"]);
    for nth in 0..MOST_UNANSWERED {
        want(&mut rounds, &format!("p{nth}"), 0..1, 1);
        assert_eq!(think(&mut rounds, NOW).len(), 1);
        rounds.cell_load(load("a", nth as u64 + 2, ROOM, nth as u64 + 1));
    }
    want(&mut rounds, "late", 0..1, 1);
    assert_eq!(think(&mut rounds, NOW), [""; 0]);
    let given_up = rounds.wake_at().unwrap();
    assert_eq!(given_up, NOW + ANSWER_WITHIN);
    assert_eq!(think(&mut rounds, given_up), [""; 0], "not at once");
    let later = rounds.wake_at().unwrap();
    assert!(later <= given_up + PAUSE.longest);
    assert_eq!(think(&mut rounds, later), ["a#17: late/0"]);
}

#[test]
fn a_process_that_is_desired_anew_brings_its_new_needs() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..2, 101);
    rounds.request(vec![], vec![task("t", needs(101, 1))]);
    assert_eq!(think(&mut rounds, NOW), [""; 0]);
    want(&mut rounds, "p", 0..1, 10);
    rounds.request(vec![], vec![task("t", needs(10, 1))]);
    assert_eq!(rounds.waiting(), 3, "each piece is there once");
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0 p/1 t"]);
    // And what comes back from a cell does not bring the old ones again.
    want(&mut rounds, "p", 1..2, 20);
    let back = WorkBatch { lrps: vec![lrp("p", [0], needs(10, 1))], ..nothing() };
    rounds.answered(NOW, &id("a"), 1, &back);
    let p = process("p");
    let requirements = rounds.fresh.requirements(&p, &(&p).into()).unwrap();
    assert_eq!(requirements.memory_mb, 20);
}

#[test]
fn a_cell_that_leaves_gives_its_starts_back_to_the_limit() {
    let mut rounds = rounds(&["a"]);
    rounds.settings.in_flight_starts = 3;
    rounds.cell_info(cell("b", "z", ROOM).info);
    rounds.cell_load(CellLoad { starting_containers: 3, ..load("b", 1, ROOM, 0) });
    want(&mut rounds, "p", 0..1, 1);
    let limit = "p/0: waiting to start instance: reached in-flight start limit";
    assert_eq!(unplaced(&rounds.run_round(NOW, &Wanting::default())), [limit]);
    rounds.cell_gone(&id("b"));
    assert!(rounds.is_due(NOW));
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0"]);
}

#[test]
fn much_parked_work_is_left_alone_for_a_while_and_fresh_work_is_not() {
    let mut rounds = rounds(&["a"]);
    let many = u32::try_from(PARKED_AT_ONCE).unwrap() + 2;
    rounds.request(vec![lrp("much", 0..many, needs(90, 1))], vec![]);
    let orders = rounds.run_round(NOW, &Wanting::default());
    assert_eq!((orders.sends.len(), orders.unplaced.len()), (1, PARKED_AT_ONCE + 1));
    rounds.answered(NOW, &id("a"), 1, &nothing());
    rounds.cell_load(load("a", 2, capacity(95, 99, 9), 1));
    assert!(!rounds.is_due(NOW), "there is room, but its time has not come");
    want(&mut rounds, "fresh", 0..1, 1);
    assert!(rounds.is_due(NOW));
    assert_eq!(think(&mut rounds, NOW), ["a#2: fresh/0"]);
    assert_eq!(rounds.waiting(), PARKED_AT_ONCE + 1);
    let later = rounds.wake_at().unwrap();
    assert_eq!(later, NOW + PAUSE_PER_PIECE * (many - 1));
    assert_eq!(think(&mut rounds, later), ["a#3: much/1"]);
    assert_eq!(retry_pause(PARKED_AT_ONCE), Duration::ZERO);
    assert_eq!(retry_pause(usize::MAX), LONGEST_PAUSE);
}

#[test]
fn parked_work_that_is_asked_for_again_is_in_one_place() {
    let mut rounds = rounds(&["a"]);
    let many = u32::try_from(PARKED_AT_ONCE).unwrap() + 10;
    rounds.request(vec![lrp("much", 0..many, needs(90, 1))], vec![]);
    rounds.run_round(NOW, &Wanting::default());
    let parked = rounds.waiting();
    rounds.cell_info(cell("b", "z", ROOM).info);
    rounds.cell_load(load("b", 1, ROOM, 0));
    want(&mut rounds, "much", 5..6, 90);
    assert_eq!(rounds.waiting(), parked);
    assert_eq!(think(&mut rounds, NOW), ["b#2: much/5"]);
    assert_eq!((rounds.waiting(), rounds.parked.len()), (parked - 1, parked - 1));
}

#[test]
fn rounds_in_vain_do_not_push_others_out_of_memory() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 10);
    assert_eq!(think(&mut rounds, NOW), ["a#1: p/0"]);
    want(&mut rounds, "q", 0..1, 101);
    for version in 2..200 {
        rounds.cell_info(Arc::new(CellInfo { version, ..(*cell("a", "z", ROOM).info).clone() }));
        assert_eq!(think(&mut rounds, NOW), [""; 0]);
    }
    assert_eq!(rounds.history().rounds().len(), 2);
    assert_eq!(rounds.explain(&ExplainTarget::Lrp(process("p"), 0)).unwrap().round, 1);
    assert_eq!(rounds.explain(&ExplainTarget::Lrp(process("q"), 0)).unwrap().round, 199);
}

#[test]
fn no_more_cells_are_listened_to_than_there_can_be() {
    let mut rounds = Auction::default();
    let mut known: BTreeMap<CellId, TrackedCell> = BTreeMap::new();
    (0..MOST_CELLS)
        .for_each(|nth| _ = known.insert(id(&format!("c{nth}")), TrackedCell::default()));
    rounds.cells = known;
    rounds.cell_info(cell("one-more", "z", ROOM).info);
    rounds.cell_load(load("one-more", 1, ROOM, 0));
    rounds.cell_load(load("c7", 1, ROOM, 0));
    assert_eq!(rounds.cells.len(), MOST_CELLS);
    assert!(!rounds.cells.contains_key(&id("one-more")));
    rounds.cell_gone(&id("c7"));
    rounds.cell_info(cell("one-more", "z", ROOM).info);
    assert!(rounds.cells.contains_key(&id("one-more")), "there is room for it now");
}

#[test]
fn a_task_that_cells_refuse_uses_up_no_tries() {
    let mut rounds = rounds(&["a"]);
    let the_task = || task("t", needs(1, 1));
    rounds.request(vec![], vec![the_task()]);
    let mut now = NOW;
    for number in 1..6 {
        assert_eq!(think(&mut rounds, now), [format!("a#{number}: t")]);
        let refused = WorkBatch { tasks: vec![the_task()], ..nothing() };
        rounds.answered(now, &id("a"), number, &refused);
        assert_eq!(unplaced(&rounds.run_round(now, &Wanting::default())), [""; 0]);
        while !rounds.is_due(now) {
            now = rounds.wake_at().unwrap();
            rounds.pass(now);
        }
    }
}
