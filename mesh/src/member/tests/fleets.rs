//! Fleets that join, lose members, part and meet again.

use std::time::Duration;

use crate::identity::MemberKind;
use crate::member::MemberState;
use crate::profile::Profile;
use crate::record::{Content, Topic};
use crate::simulation::Simulation;

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(50);

fn joined(seed: u64, cells: usize) -> Simulation {
    let mut fleet = Simulation::fleet(seed, cells, &Profile::lan(), SECOND);
    let took = fleet.run_until(SECOND * 30, TICK, Simulation::all_know_all);
    assert!(took.is_some(), "not all know all: {:?}", counts(&fleet));
    fleet
}

fn counts(fleet: &Simulation) -> Vec<usize> {
    (0..fleet.alive()).map(|place| fleet.member(place).present()).collect()
}

#[test]
fn all_know_all_soon_after_the_last_has_begun() {
    for (seed, cells) in [(1, 1), (2, 2), (3, 9), (4, 49), (5, 199)] {
        let fleet = joined(seed, cells);
        assert!(fleet.alarms.is_empty(), "{:?}", fleet.alarms);
    }
}

#[test]
pub(super) fn who_dies_is_found_missing_by_all_and_nobody_else_is() {
    for seed in 0..10 {
        let mut fleet = joined(seed, 30);
        fleet.run_for(SECOND * 5);
        let victim = 1 + usize::try_from(seed).unwrap();
        fleet.kill(victim);
        let took = fleet.run_until(SECOND * 60, TICK, Simulation::all_know_all);
        assert!(took.is_some(), "seed {seed}: {:?}", counts(&fleet));
        assert!(fleet.alarms.iter().all(|alarm| alarm.of == victim && !alarm.is_false));
        let coordinator = fleet.alarms.iter().find(|alarm| alarm.by == 0).unwrap();
        println!("seed {seed}: coordinator knew at {:?}", coordinator.at);
        assert!(fleet.run_until(SECOND * 60, TICK, Simulation::all_agree).is_some());
    }
}

/// Nobody pings the member in the middle any more, until others have become its neighbours.
#[test]
pub(super) fn a_member_that_dies_together_with_its_neighbours_is_found_as_soon_as_others() {
    let mut worst = Duration::ZERO;
    for seed in 0..20 {
        let mut fleet = joined(seed, 100);
        fleet.run_for(SECOND * 40);
        let neighbours = |place: usize| fleet.member(place).watched();
        let coordinator = fleet.identity(0).member;
        let middle = (1..=100).find(|place| !neighbours(*place).contains(&coordinator)).unwrap();
        let mut victims: Vec<usize> =
            neighbours(middle).iter().filter_map(|member| fleet.place_of(*member)).collect();
        assert_eq!(victims.len(), 4);
        victims.push(middle);
        let start = fleet.now();
        victims.iter().for_each(|victim| fleet.kill(*victim));
        let took = fleet.run_until(SECOND * 60, TICK, Simulation::all_know_all);
        assert!(took.is_some(), "seed {seed}: {:?}", counts(&fleet));
        assert!(fleet.alarms.iter().all(|alarm| !alarm.is_false), "seed {seed}");
        let found = fleet.alarms.iter().find(|alarm| (alarm.by, alarm.of) == (0, middle)).unwrap();
        println!("seed {seed}: coordinator knew after {:?}", found.at.since(start));
        worst = worst.max(found.at.since(start));
    }
    assert!(worst < SECOND * 7, "{worst:?}");
}

#[test]
fn an_idle_mesh_is_quiet_and_of_one_mind() {
    let mut fleet = joined(7, 60);
    for cell in 1..=60 {
        fleet.publish_info(cell);
        fleet.publish_load(cell, 1_000);
    }
    assert!(fleet.run_until(SECOND * 60, TICK, Simulation::all_agree).is_some());
    let before: u64 = (0..=60).map(|place| fleet.traffic(place).bytes).sum();
    fleet.run_for(SECOND * 100);
    let after: u64 = (0..=60).map(|place| fleet.traffic(place).bytes).sum();
    let per_second = (after - before) / 61 / 100;
    assert!(per_second < 600, "{per_second} bytes a second");
    assert!(fleet.alarms.is_empty());
}

#[test]
fn a_load_reaches_the_coordinator_in_one_hop_and_everybody_soon() {
    let mut fleet = joined(8, 60);
    fleet.run_for(SECOND * 5);
    fleet.record_news = true;
    let start = fleet.now();
    fleet.publish_load(30, 512);
    fleet.run_for(SECOND * 10);
    let heard = fleet.news.iter().filter(|news| news.of == 30);
    let first = heard.clone().find(|news| news.by == 0).unwrap();
    assert!(first.at.since(start) < Duration::from_millis(2));
    assert_eq!(heard.count(), 60, "each but the cell itself heard it once");
    let record = fleet.member(0).record(fleet.identity(30).member, Topic::Load).unwrap();
    let Content::Load(load) = &record.content else { panic!("{record:?}") };
    assert_eq!(load.free.memory_mb, 512);
}

#[test]
fn a_partition_of_any_length_heals() {
    // The longest is longer than it takes to forget each other.
    for (seed, minutes) in [(1, 1), (2, 20), (3, 600), (4, 36 * 60)] {
        let mut fleet = joined(seed, 20);
        fleet.part(|place| u8::from(place > 10));
        fleet.run_for(SECOND * 60 * minutes);
        assert_eq!(fleet.member(0).present(), 11);
        assert_eq!(fleet.member(20).present(), 10);
        fleet.heal();
        let took = fleet.run_until(SECOND * 120, TICK, Simulation::all_know_all);
        assert!(took.is_some(), "after {minutes} minutes: {:?}", counts(&fleet));
        assert!(fleet.run_until(SECOND * 120, TICK, Simulation::all_agree).is_some());
    }
}

#[test]
fn a_restarted_member_is_back_at_once() {
    let mut fleet = joined(3, 20);
    fleet.run_for(SECOND * 3);
    fleet.kill(5);
    fleet.run_for(SECOND);
    fleet.start(5, Profile::lan(), &[0]);
    let took = fleet.run_until(SECOND * 10, TICK, Simulation::all_know_all);
    assert!(took.is_some());
    fleet.run_for(SECOND * 60);
    assert!(fleet.all_know_all());
    assert!(fleet.alarms.iter().all(|alarm| !alarm.is_false), "{:?}", fleet.alarms);
}

#[test]
fn a_coordinator_that_joins_has_the_whole_picture_from_one_peer() {
    let mut kinds = vec![MemberKind::Coordinator];
    kinds.resize(41, MemberKind::Cell);
    kinds.push(MemberKind::Coordinator);
    let mut fleet = Simulation::new(9, &kinds);
    fleet.start(0, Profile::lan(), &[]);
    for cell in 1..=40 {
        fleet.start(cell, Profile::lan(), &[0]);
        fleet.publish_info(cell);
        fleet.publish_load(cell, 1_000);
    }
    assert!(fleet.run_until(SECOND * 60, TICK, Simulation::all_agree).is_some());
    fleet.start(41, Profile::lan(), &[17]);
    let has_all = |fleet: &Simulation| {
        (1..=40).all(|cell| {
            let id = fleet.identity(cell).member;
            let has = |topic| fleet.member(41).record(id, topic).is_some();
            has(Topic::Alive) && has(Topic::Info) && has(Topic::Load)
        })
    };
    let took = fleet.run_until(SECOND * 2, Duration::from_millis(1), has_all);
    assert!(took.is_some_and(|took| took < Duration::from_millis(100)), "{took:?}");
}

/// A coordinator, ten cells, and a leaf that has said what it is.
fn with_leaf(seed: u64) -> Simulation {
    let mut kinds = vec![MemberKind::Coordinator];
    kinds.resize(12, MemberKind::Cell);
    let mut fleet = Simulation::new(seed, &kinds);
    fleet.start(0, Profile::lan(), &[]);
    (1..=10).for_each(|cell| fleet.start(cell, Profile::lan(), &[0]));
    fleet.start(11, Profile::metered(), &[0]);
    fleet.publish_info(11);
    fleet.publish_load(11, 100);
    fleet.run_for(SECOND * 60);
    all_see_the_leaf(&fleet);
    assert_eq!(fleet.open_links(11), 3, "a link to the coordinator, and to two cells");
    fleet
}

fn all_see_the_leaf(fleet: &Simulation) {
    let leaf = fleet.identity(11).member;
    for place in (0..=10).filter(|place| fleet.is_alive(*place)) {
        assert_eq!(fleet.member(place).state(leaf), MemberState::Present, "at {place}");
    }
}

fn leaf_bits(fleet: &mut Simulation, seconds: u32) -> u64 {
    let sum = |fleet: &Simulation| fleet.traffic(11).bytes + fleet.traffic(11).received;
    fleet.settle();
    let before = sum(fleet);
    fleet.run_for(SECOND * seconds);
    fleet.settle();
    (sum(fleet) - before) * 8 / u64::from(seconds)
}

/// What the leaf last said, as known at a place.
fn leaf_load(fleet: &Simulation, place: usize) -> Option<u32> {
    let record = fleet.member(place).record(fleet.identity(11).member, Topic::Load)?;
    let Content::Load(load) = &record.content else { return None };
    Some(load.free.memory_mb)
}

#[test]
pub(super) fn leaves_speak_to_coordinators_and_two_cells_and_are_watched() {
    let mut fleet = with_leaf(4);
    let bits = leaf_bits(&mut fleet, 1_800);
    assert!(bits < 1_000, "{bits} bits a second, both ways");
    assert_eq!(fleet.alarms, []);
    fleet.kill(11);
    fleet.run_for(SECOND * 90);
    for place in 0..=10 {
        let state = fleet.member(place).state(fleet.identity(11).member);
        assert_eq!(state, MemberState::Missing, "at {place}");
    }
    assert!(fleet.alarms.iter().all(|alarm| alarm.of == 11));
}

#[test]
fn a_leaf_and_its_peers_know_of_each_other_without_any_coordinator() {
    for seed in 0..8 {
        let mut fleet = with_leaf(seed);
        fleet.kill(0);
        fleet.run_for(SECOND * 120);
        let bits = leaf_bits(&mut fleet, 3_600);
        assert!(bits < 1_000, "seed {seed}: {bits} bits a second, both ways");
        all_see_the_leaf(&fleet);
        let peers: Vec<_> = fleet.member(11).watched().into_iter().collect();
        let there = |id| fleet.member(11).state(id) == MemberState::Present;
        assert_eq!(peers.iter().filter(|peer| there(**peer)).count(), 2, "seed {seed}");
        fleet.publish_load(11, 200);
        let heard = |fleet: &Simulation| (1..=10).all(|cell| leaf_load(fleet, cell) == Some(200));
        assert!(fleet.run_until(SECOND * 60, TICK, heard).is_some(), "seed {seed}");
        // A coordinator that begins anew hears of it from a cell, and has a link soon.
        fleet.start(0, Profile::lan(), &[3]);
        let knows = |fleet: &Simulation| leaf_load(fleet, 0) == Some(200);
        assert!(fleet.run_until(SECOND * 5, TICK, knows).is_some(), "seed {seed}");
        fleet.run_for(SECOND * 60);
        fleet.record_news = true;
        fleet.news.clear();
        let start = fleet.now();
        fleet.publish_load(11, 300);
        fleet.run_for(SECOND * 5);
        let news = fleet.news.iter().find(|news| news.by == 0 && news.of == 11).unwrap();
        assert!(news.at.since(start) < SECOND / 10, "seed {seed}: on a link of its own");
        let others = fleet.alarms.iter().filter(|alarm| alarm.of != 0);
        assert_eq!(others.count(), 0, "seed {seed}: {:?}", fleet.alarms);
    }
}

#[test]
pub(super) fn a_leaf_that_dies_is_missing_without_any_coordinator_too() {
    let mut fleet = with_leaf(5);
    fleet.kill(0);
    fleet.run_for(SECOND * 120);
    fleet.kill(11);
    fleet.run_for(SECOND * 120);
    for place in 1..=10 {
        let state = fleet.member(place).state(fleet.identity(11).member);
        assert_eq!(state, MemberState::Missing, "at {place}");
    }
}

#[test]
pub(super) fn a_leaf_whose_peers_die_finds_others() {
    let mut fleet = with_leaf(6);
    let coordinator = fleet.identity(0).member;
    for _ in 0..3 {
        let peers = fleet.member(11).watched();
        let place = (1..=10).find(|place| peers.contains(&fleet.identity(*place).member)).unwrap();
        fleet.kill(place);
        let linked = |fleet: &Simulation| {
            let peers = fleet.member(11).watched();
            let gone = fleet.identity(place).member;
            peers.len() == 3 && peers.contains(&coordinator) && !peers.contains(&gone)
        };
        assert!(fleet.run_until(SECOND * 900, SECOND, linked).is_some());
        fleet.run_for(SECOND * 30);
        assert_eq!(fleet.open_links(11), 3);
        all_see_the_leaf(&fleet);
    }
    assert!(fleet.alarms.iter().all(|alarm| !alarm.is_false), "{:?}", fleet.alarms);
}
