//! Explanations and the memory of rounds. That an explanation agrees with the decision in every
//! case is tested with the decision's properties.

use super::*;
use crate::auction::filter::PlacementError;
use crate::auction::fleet::FleetCell;
use crate::auction::logic::tests::{capacity, cell, cells, info, lrp, needs, process, task, used};
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::request::LrpStart;

const ROOM: CellCapacity = CellCapacity { memory_mb: 100, disk_mb: 100, containers: 10 };

fn round(number: u64, cells: Vec<FleetCell>, lrps: Vec<LrpStart>) -> Round {
    let batch = Batch::of(lrps, vec![task("t", needs(1, 1))]);
    Round::decide(number, AuctionSettings::default(), Fleet::new(cells), batch, BTreeMap::new())
}

fn id(text: &str) -> CellId {
    CellId::new(text).unwrap()
}

#[test]
fn every_cell_is_a_candidate_or_ruled_out_for_a_reason() {
    let fleet = vec![
        cell("best", "z1", ROOM),
        used(cell("busy", "z1", ROOM), 50, 50, 5),
        used(cell("full", "z1", ROOM), 95, 0, 10),
        info(cell("tagged", "z2", ROOM), |it| it.placement_tags = vec!["gpu".to_owned()]),
        FleetCell { standing: Eligibility::Evacuating, ..cell("leaving", "z2", ROOM) },
    ];
    let round = round(7, fleet, vec![lrp("p", [0], needs(10, 10))]);
    let why = round.explain(&ExplainTarget::Lrp(process("p"), 0)).unwrap();
    assert_eq!((why.round, why.candidates), (7, 2));
    assert_eq!(why.verdict, ExplainedResult::Placed(id("best")));
    let best: Vec<&str> = why.best.iter().map(|it| it.cell.as_str()).collect();
    assert_eq!(best, ["best", "busy"]);
    assert!(why.best[0].cost < why.best[1].cost);
    let short = Short { containers: true, disk: false, memory: true };
    assert_eq!(
        why.ruled_out,
        [
            (id("full"), FilteredOut::Short(short)),
            (id("leaving"), FilteredOut::Standing(Eligibility::Evacuating)),
            (id("tagged"), FilteredOut::Lacks(Mismatch::PlacementTags)),
        ]
    );
}

#[test]
fn what_was_placed_before_counts_and_what_came_after_does_not() {
    let starts = vec![lrp("p", 0..3, needs(10, 10))];
    let round = round(1, cells(3, 3, ROOM), starts);
    let why = |index| round.explain(&ExplainTarget::Lrp(process("p"), index)).unwrap();
    assert!(why(0).best.iter().all(|it| (it.in_zone, it.on_cell) == (0, 0)));
    let third = why(2);
    let company: Vec<(u32, u32)> = third.best.iter().map(|it| (it.in_zone, it.on_cell)).collect();
    assert_eq!(company, [(0, 0), (1, 1), (1, 1)]);
    let starting: u32 = third.best.iter().map(|it| it.starting).sum();
    assert_eq!(starting, 3, "two of p and the task");
}

#[test]
fn what_found_no_cell_is_explained_with_its_error() {
    let round = round(1, cells(2, 1, ROOM), vec![lrp("p", [0], needs(101, 1))]);
    let why = round.explain(&ExplainTarget::Lrp(process("p"), 0)).unwrap();
    let short = Short { containers: false, disk: false, memory: true };
    assert_eq!(
        why.verdict,
        ExplainedResult::Unplaced(PlacementError::Insufficient(short).to_string())
    );
    assert_eq!((why.candidates, why.ruled_out.len()), (0, 2));
    assert!(why.ruled_out.iter().all(|(_, why)| *why == FilteredOut::Short(short)));
    let json = serde_json::to_value(&why).unwrap();
    assert_eq!(json["verdict"]["unplaced"], "insufficient resources: memory");
    assert_eq!(json["ruled_out"][0][1]["short"]["memory"], true);
}

#[test]
fn the_last_round_that_had_to_do_with_it_answers() {
    let mut history = History::default();
    for (number, guid) in [(1, "p"), (2, "p"), (3, "q")] {
        history.keep(round(number, cells(2, 1, ROOM), vec![lrp(guid, [0], needs(1, 1))]));
    }
    let said = |subject: ExplainTarget| history.explain(&subject).map(|why| why.round);
    assert_eq!(said(ExplainTarget::Lrp(process("p"), 0)), Some(2));
    assert_eq!(said(ExplainTarget::Lrp(process("q"), 0)), Some(3));
    assert_eq!(said(ExplainTarget::Task("t".parse().unwrap())), Some(3));
    assert_eq!(said(ExplainTarget::Lrp(process("p"), 1)), None);
    assert_eq!(said(ExplainTarget::Task("p".parse().unwrap())), None);
}

#[test]
fn old_rounds_are_forgotten_and_the_last_never() {
    let mut history = History::default();
    for number in 0..200 {
        history.keep(round(number, cells(2, 1, ROOM), vec![]));
    }
    assert_eq!(history.rounds().len(), KEPT_ROUNDS);
    assert_eq!(history.rounds().last().map(|round| round.number), Some(199));
    let roomy = capacity(1 << 30, 1 << 30, 1 << 30);
    let many = u32::try_from(KEPT_WEIGHT - 1).unwrap();
    history.keep(round(200, vec![cell("c", "z", roomy)], vec![lrp("p", 0..many, needs(1, 1))]));
    assert_eq!(history.rounds().map(|round| round.number).collect::<Vec<_>>(), [200]);
    assert_eq!(history.weight, KEPT_WEIGHT + 1);
}

#[test]
fn instances_beside_the_work_weigh_too() {
    let at = vec![CellId::new("c").unwrap(); 1_000];
    let residents = BTreeMap::from([(process("p"), at)]);
    let batch = Batch::of(vec![lrp("p", [0], needs(1, 1))], vec![]);
    let fleet = Fleet::new(cells(2, 1, ROOM));
    let round = Round::decide(1, AuctionSettings::default(), fleet, batch, residents);
    assert_eq!(round.weight(), 2 + 1 + 1_001);
}
