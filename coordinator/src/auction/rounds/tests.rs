//! The rounds as a state machine: each input, and what must hold in every order of them.

mod properties;
mod storms;
mod trust;

use super::*;
use crate::auction::logic::tests::{capacity, cell, lrp, needs, process, task};
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::request::Requirements;

const NOW: Timestamp = Timestamp::from_secs(1);
const ROOM: CellCapacity = CellCapacity { memory_mb: 100, disk_mb: 100, containers: 10 };

/// A board on which everything is wanted, and on which these instances are.
#[derive(Default)]
struct Wanting {
    instances: Vec<(ProcessGuid, DefinitionId, u32, CellId)>,
    unwanted: BTreeSet<String>,
}

impl InstanceIndex for Wanting {
    fn each_instance(
        &self,
        process: &ProcessGuid,
        tell: &mut dyn FnMut(&DefinitionId, u32, &CellId),
    ) {
        for (of, definition, index, cell) in &self.instances {
            if of == process {
                tell(definition, *index, cell);
            }
        }
    }

    fn wants_lrp(&self, process: &ProcessGuid, _: &DefinitionId, index: u32) -> bool {
        !self.unwanted.contains(&format!("{process}/{index}"))
    }

    fn wants_task(&self, task: &TaskGuid) -> bool {
        !self.unwanted.contains(task.as_str())
    }
}

fn id(text: &str) -> CellId {
    CellId::new(text).unwrap()
}

fn load(cell: &str, version: u64, free: CellCapacity, last_batch: u64) -> CellLoad {
    CellLoad {
        cell_id: id(cell),
        version,
        free,
        starting_containers: 0,
        evacuating: false,
        healthy: true,
        last_batch,
        digest: 0,
    }
}

/// An auction with these cells, all of them empty.
fn rounds(cells: &[&str]) -> Auction {
    let mut rounds = Auction::new(AuctionSettings::default());
    for name in cells {
        rounds.cell_info(cell(name, "z", ROOM).info);
        rounds.cell_load(load(name, 1, ROOM, 0));
    }
    rounds
}

fn want(rounds: &mut Auction, guid: &str, indices: std::ops::Range<u32>, memory_mb: u32) {
    assert_eq!(rounds.request(vec![lrp(guid, indices, needs(memory_mb, 1))], vec![]), 0);
}

/// Such as `a#1: p/0 p/1`, for each batch.
fn sent(orders: &RoundResult) -> Vec<String> {
    let text = |(cell, batch): &(CellId, WorkBatch)| {
        let lrps = batch.lrps.iter().flat_map(|start| {
            start.indices.iter().map(|index| format!("{}/{index}", start.process_guid))
        });
        let tasks = batch.tasks.iter().map(|task| task.task_guid.to_string());
        let work: Vec<String> = lrps.chain(tasks).collect();
        format!("{cell}#{}: {}", batch.number, work.join(" "))
    };
    orders.sends.iter().map(text).collect()
}

fn unplaced(orders: &RoundResult) -> Vec<String> {
    let text = |work: &Unplaced| match work {
        Unplaced::Lrp(key, why) => format!("{}/{}: {why}", key.process_guid, key.index),
        Unplaced::Task(guid, why) => format!("{guid}: {why}"),
    };
    orders.unplaced.iter().map(text).collect()
}

fn nothing() -> WorkBatch {
    WorkBatch { number: 0, lrps: vec![], tasks: vec![] }
}

#[test]
fn what_comes_between_rounds_goes_into_the_next_once_and_each_cell_gets_one_batch() {
    let mut rounds = rounds(&["a", "b"]);
    assert!(!rounds.is_due(NOW), "there is no work");
    want(&mut rounds, "p", 0..2, 10);
    want(&mut rounds, "p", 0..4, 10);
    assert!(rounds.is_due(NOW));
    let orders = rounds.run_round(NOW, &Wanting::default());
    assert_eq!(orders.sends.len(), 2);
    let pieces: usize =
        orders.sends.iter().flat_map(|(_, it)| &it.lrps).map(|it| it.indices.len()).sum();
    assert_eq!((pieces, rounds.waiting(), rounds.is_due(NOW)), (4, 0, false));
}

#[test]
fn what_was_sent_is_counted_until_a_load_reflects_it_and_not_after() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 60);
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["a#1: p/0"]);
    want(&mut rounds, "q", 0..1, 60);
    let orders = rounds.run_round(NOW, &Wanting::default());
    assert_eq!(unplaced(&orders), ["q/0: insufficient resources: memory"]);
    // A load that was said before the batch came: the room is still counted as taken.
    rounds.cell_load(load("a", 2, capacity(99, 100, 10), 0));
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), [""; 0]);
    // The batch is in `free`, and something else has ended: no double counting.
    rounds.cell_load(load("a", 3, capacity(60, 99, 9), 1));
    assert!(rounds.is_due(NOW), "there is more room");
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["a#2: q/0"]);
}

#[test]
fn refused_work_goes_into_the_next_round_at_once_and_elsewhere() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..2, 10);
    rounds.request(vec![], vec![task("t", needs(1, 1))]);
    let orders = rounds.run_round(NOW, &Wanting::default());
    assert_eq!(sent(&orders), ["a#1: p/0 p/1 t"]);
    rounds.cell_info(cell("b", "z", ROOM).info);
    rounds.cell_load(load("b", 1, ROOM, 0));
    assert!(!rounds.is_due(NOW), "nothing waits");
    let refused = WorkBatch {
        number: 1,
        lrps: vec![lrp("p", [1, 7], needs(1, 1)), lrp("stranger", [0], needs(1, 1))],
        tasks: vec![task("t", needs(1, 1)), task("stranger", needs(1, 1))],
    };
    rounds.answered(NOW, &id("a"), 1, &refused);
    assert!(rounds.is_due(NOW));
    let orders = rounds.run_round(NOW, &Wanting::default());
    assert_eq!(sent(&orders), ["b#2: p/1 t"], "a is not asked again before it says a new load");
    rounds.answered(NOW, &id("a"), 1, &refused);
    assert_eq!(rounds.waiting(), 0, "a second answer says nothing");
    rounds.cell_load(load("a", 2, capacity(90, 99, 9), 1));
    want(&mut rounds, "q", 0..1, 90);
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["a#3: q/0"]);
}

#[test]
fn the_room_of_refused_work_is_free_again() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 60);
    want(&mut rounds, "q", 0..1, 40);
    rounds.run_round(NOW, &Wanting::default());
    // The load was renewed before the answer came: the picture is not in doubt.
    rounds.cell_load(load("a", 2, ROOM, 0));
    let refused = WorkBatch { lrps: vec![lrp("p", [0], needs(60, 1))], ..nothing() };
    rounds.answered(NOW, &id("a"), 1, &refused);
    let cell = rounds.cells[&id("a")].cell().unwrap();
    assert_eq!((cell.free, cell.standing), (capacity(60, 99, 9), Eligibility::Takes));
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["a#2: p/0"]);
}

#[test]
fn work_that_found_no_place_waits_for_news_and_is_told_once_for_each_request() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 101);
    rounds.request(vec![], vec![task("t", needs(102, 1))]);
    let short = "insufficient resources: memory";
    let orders = rounds.run_round(NOW, &Wanting::default());
    assert_eq!(unplaced(&orders), [format!("p/0: {short}"), format!("t: {short}")]);
    assert_eq!((rounds.waiting(), rounds.is_due(NOW)), (2, false));
    // Less room is no news, nor is more that is still too little for the smallest of it.
    for (version, memory_mb) in [(2, 50), (3, 60)] {
        rounds.cell_load(load("a", version, capacity(memory_mb, 100, 10), 0));
        assert!(!rounds.is_due(NOW));
    }
    let larger = CellInfo { version: 2, ..(*cell("a", "z", capacity(101, 100, 10)).info).clone() };
    rounds.cell_info(Arc::new(larger));
    assert!(rounds.is_due(NOW), "who knows what has changed");
    assert_eq!(unplaced(&rounds.run_round(NOW, &Wanting::default())), [""; 0], "it is said once");
    // Another reason is told for instances; for a task it would count as another try.
    rounds.cell_gone(&id("a"));
    rounds.cell_info(cell("b", "z", ROOM).info);
    let no_cells = "unable to communicate to compatible cells";
    assert_eq!(unplaced(&rounds.run_round(NOW, &Wanting::default())), [format!("p/0: {no_cells}")]);
    // Who asks again is answered again.
    rounds.request(vec![], vec![task("t", needs(102, 1))]);
    assert_eq!(unplaced(&rounds.run_round(NOW, &Wanting::default())), [format!("t: {no_cells}")]);
    let roomy = cell("c", "z", capacity(1_000, 1_000, 10));
    rounds.cell_info(roomy.info);
    rounds.cell_load(load("c", 1, capacity(1_000, 1_000, 10), 0));
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["c#1: p/0 t"]);
}

#[test]
fn work_that_nobody_wants_any_more_is_dropped() {
    let mut rounds = rounds(&[]);
    want(&mut rounds, "p", 0..2, 1);
    rounds.request(vec![], vec![task("t", needs(1, 1))]);
    rounds.run_round(NOW, &Wanting::default());
    assert_eq!(rounds.waiting(), 3);
    rounds.cell_info(cell("a", "z", ROOM).info);
    rounds.cell_load(load("a", 1, ROOM, 0));
    let unwanted = ["p/0", "t"].map(str::to_owned).into();
    let orders = rounds.run_round(NOW, &Wanting { unwanted, ..Wanting::default() });
    assert_eq!((sent(&orders), rounds.waiting()), (vec!["a#1: p/1".to_owned()], 0));
}

#[test]
fn an_unanswered_batch_is_left_to_convergence_and_its_room_is_free_again() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 60);
    rounds.run_round(NOW, &Wanting::default());
    want(&mut rounds, "q", 0..1, 60);
    rounds.run_round(NOW, &Wanting::default());
    rounds.unanswered(NOW, &id("a"), 1);
    // Gossip may come by way of others: it does not mean that batches come through.
    rounds.cell_load(load("a", 2, ROOM, 0));
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), [""; 0], "not at once");
    let later = rounds.wake_at().unwrap();
    assert_eq!(later, NOW + PAUSE.first);
    rounds.pass(later);
    assert!(rounds.is_due(later));
    assert_eq!(
        sent(&rounds.run_round(later, &Wanting::default())),
        ["a#2: q/0"],
        "p is not carried"
    );
}

#[test]
fn a_cell_that_answers_nothing_gets_no_more_and_nobody_waits_for_it() {
    let mut rounds = rounds(&["a"]);
    for nth in 0..MOST_UNANSWERED {
        want(&mut rounds, &format!("p{nth}"), 0..1, 1);
        let orders = rounds.run_round(NOW, &Wanting::default());
        assert_eq!(sent(&orders), [format!("a#{}: p{nth}/0", nth + 1)]);
        rounds.cell_load(load("a", nth as u64 + 2, ROOM, nth as u64 + 1));
    }
    want(&mut rounds, "late", 0..1, 1);
    let orders = rounds.run_round(NOW, &Wanting::default());
    assert_eq!(unplaced(&orders), ["late/0: unable to communicate to compatible cells"]);
    rounds.answered(NOW, &id("a"), 3, &nothing());
    assert!(rounds.is_due(NOW), "it speaks again");
    assert_eq!(rounds.run_round(NOW, &Wanting::default()).sends.len(), 1);
}

#[test]
fn numbers_go_on_after_those_of_the_coordinator_before_us() {
    let mut rounds = rounds(&[]);
    rounds.cell_info(cell("a", "z", ROOM).info);
    rounds.cell_load(load("a", 9, ROOM, 41));
    want(&mut rounds, "p", 0..1, 1);
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["a#42: p/0"]);
}

#[test]
fn a_cell_that_began_anew_has_all_the_room_it_says() {
    let mut rounds = rounds(&[]);
    rounds.cell_info(cell("a", "z", ROOM).info);
    rounds.cell_load(load("a", 9, ROOM, 41));
    want(&mut rounds, "p", 0..1, 90);
    rounds.run_round(NOW, &Wanting::default());
    rounds.cell_load(load("a", 10, ROOM, 0));
    want(&mut rounds, "q", 0..1, 90);
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["a#43: q/0"]);
}

#[test]
fn old_news_is_no_news() {
    let mut rounds = rounds(&["a"]);
    rounds.cell_load(load("a", 5, capacity(1, 1, 1), 0));
    rounds.cell_load(load("a", 4, ROOM, 0));
    assert_eq!(rounds.cells[&id("a")].cell().unwrap().free, capacity(1, 1, 1));
    let old =
        std::sync::Arc::new(CellInfo { version: 0, ..(*cell("a", "other", ROOM).info).clone() });
    rounds.cell_info(old);
    assert_eq!(rounds.cells[&id("a")].cell().unwrap().info.zone, "z");
}

#[test]
fn instances_on_their_way_count_as_company_and_those_that_arrived_count_once() {
    let mut rounds = rounds(&["a", "b"]);
    want(&mut rounds, "p", 0..1, 1);
    let orders = rounds.run_round(NOW, &Wanting::default());
    let (first, _) = orders.sends[0].clone();
    let other = if first == id("a") { "b" } else { "a" };
    want(&mut rounds, "p", 1..2, 1);
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), [format!("{other}#2: p/1")]);
    // Both are on the board by now, and also still under way: one each.
    let at = |index, cell: &CellId| (process("p"), (&process("p")).into(), index, cell.clone());
    let instances = vec![at(0, &first), at(1, &id(other))];
    let board = Wanting { instances, ..Wanting::default() };
    let batch = Batch::of(vec![lrp("p", [2], needs(1, 1))], vec![]);
    let residents = rounds.residents(&batch, &board);
    assert_eq!(residents[&process("p")].len(), 2);
}

#[test]
fn a_simulation_does_nothing_and_says_what_would_be() {
    let mut rounds = rounds(&["a"]);
    want(&mut rounds, "p", 0..1, 60);
    let batch = Batch::of(vec![lrp("p", [0], needs(60, 1)), lrp("q", [0], needs(60, 1))], vec![]);
    let round = rounds.simulate(batch, &Wanting::default());
    assert_eq!((round.outcome().placements.len(), round.outcome().failures.len()), (1, 1));
    let why = round.explain(&ExplainTarget::Lrp(process("q"), 0)).unwrap();
    assert_eq!(why.candidates, 0);
    assert_eq!(rounds.explain(&ExplainTarget::Lrp(process("p"), 0)), None, "it is not remembered");
    assert_eq!(sent(&rounds.run_round(NOW, &Wanting::default())), ["a#1: p/0"]);
    assert_eq!(rounds.explain(&ExplainTarget::Lrp(process("p"), 0)).unwrap().round, 1);
}

/// What the requirements take, as a load counts it.
fn less(free: CellCapacity, needs: &Requirements) -> CellCapacity {
    let CellCapacity { memory_mb, disk_mb, containers } = free;
    capacity(memory_mb - needs.memory_mb, disk_mb - needs.disk_mb, containers - 1)
}
