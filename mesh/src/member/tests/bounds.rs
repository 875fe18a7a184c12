//! What does not depend on how large a mesh is, how long somebody was away or which profile it has.

use std::time::Duration;

use crate::member::MemberState;
use crate::profile::Profile;
use crate::record::{Content, Topic};
use crate::simulation::{Alarm, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(50);

fn know_and_agree(mesh: &Simulation) -> bool {
    mesh.all_know_all() && mesh.all_agree()
}

fn joined(seed: u64, cells: usize, profile: &Profile) -> Simulation {
    let mut mesh = Simulation::fleet(seed, cells, profile, SECOND);
    mesh.run_until(SECOND * 60, TICK, know_and_agree).expect("all know all");
    mesh
}

/// Bytes that a member sends each second, on average and of the one that sends most.
fn bytes(mesh: &mut Simulation, run: impl FnOnce(&mut Simulation)) -> (u64, u64) {
    let sent = |mesh: &mut Simulation| {
        mesh.settle();
        (1..mesh.places()).map(|cell| mesh.traffic(cell).bytes).collect::<Vec<_>>()
    };
    let (before, start) = (sent(mesh), mesh.now());
    run(mesh);
    let seconds = mesh.now().since(start).as_secs();
    let each: Vec<u64> = sent(mesh).iter().zip(before).map(|(now, was)| now - was).collect();
    let most = each.iter().max().copied().unwrap_or(0);
    (each.iter().sum::<u64>() / each.len() as u64 / seconds, most / seconds)
}

fn change_all_each_second(mesh: &mut Simulation, seconds: u32) {
    for second in 0..seconds {
        (1..mesh.places()).for_each(|cell| mesh.publish_load(cell, second));
        mesh.run_for(SECOND);
    }
}

/// Idle it is flat; busy it has a bound, which is that of the profile: what a member says of itself
/// and passes on has a budget for each link, and it has as many links in a small mesh as in a large.
#[test]
fn what_a_cell_sends_does_not_grow_with_the_mesh() {
    let mut idle = Vec::new();
    for cells in [25, 50, 100, 200] {
        let mut mesh = joined(21, cells, &Profile::lan());
        mesh.run_for(SECOND * 40);
        let quiet = bytes(&mut mesh, |mesh| mesh.run_for(SECOND * 60));
        let busy = bytes(&mut mesh, |mesh| change_all_each_second(mesh, 20));
        println!("{cells} cells: idle {quiet:?}, busy {busy:?} bytes a second, mean and most");
        assert!(quiet.1 < 1_000, "{cells} cells: {quiet:?}");
        assert!(busy.0 < 16 << 10 && busy.1 < 32 << 10, "{cells} cells: {busy:?}");
        idle.push(quiet.0);
    }
    assert!(idle[3] <= idle[0] * 3 / 2, "{idle:?}");
}

/// Nothing that changed while it was away is told it again by gossip: digests must find it.
#[test]
fn who_was_away_while_everything_changed_is_not_left_with_the_old() {
    let mut mesh = joined(22, 30, &Profile::lan());
    (1..=30).for_each(|cell| mesh.publish_load(cell, 1));
    assert!(mesh.run_until(SECOND * 60, TICK, Simulation::all_agree).is_some());
    mesh.part(|place| u8::from(place == 7));
    for round in 2..=4 {
        (1..=30).for_each(|cell| mesh.publish_load(cell, round));
        mesh.run_for(SECOND * 60);
    }
    mesh.heal();
    let newest = |mesh: &Simulation| {
        (0..=30).all(|by| {
            (1..=30).all(|of| {
                let load = mesh.member(by).record(mesh.identity(of).member, Topic::Load);
                let load = load.map(|record| record.content.clone());
                matches!(load, Some(Content::Load(load)) if load.free.memory_mb == 4)
            })
        })
    };
    assert!(mesh.run_until(SECOND * 60, TICK, newest).is_some());
}

/// Its seed is not there when it begins, nor for an hour.
#[test]
fn who_finds_nobody_goes_on_asking() {
    for peers in [1, 5] {
        let mut mesh = Simulation::fleet(23, peers, &Profile::lan(), SECOND);
        mesh.kill(0);
        (1..=peers).for_each(|cell| mesh.kill(cell));
        mesh.run_for(SECOND);
        for cell in 1..=peers {
            mesh.start(cell, Profile::lan(), &[0]);
        }
        mesh.run_for(SECOND * 3_600);
        assert!((1..=peers).all(|cell| mesh.member(cell).present() == 1));
        mesh.start(0, Profile::lan(), &[]);
        let took = mesh.run_until(SECOND * 60, TICK, know_and_agree);
        assert!(took.is_some_and(|took| took <= SECOND * 20), "{took:?}");
    }
}

/// Any of those who are there will do, also one that has just come.
#[test]
fn any_known_peer_lets_one_in() {
    let mut mesh = joined(24, 12, &Profile::lan());
    for (newcomer, peer) in [(3, 12), (12, 7), (0, 3), (5, 0)] {
        mesh.kill(newcomer);
        mesh.run_for(SECOND * 30);
        mesh.start(newcomer, Profile::lan(), &[peer]);
        let took = mesh.run_until(SECOND * 20, TICK, know_and_agree);
        assert!(took.is_some(), "{newcomer} by way of {peer}");
    }
}

/// Round trips of 80 ms and a loss of 2 %: the second profile's own ground.
#[test]
pub(super) fn a_wide_mesh_finds_who_died_and_nobody_else() {
    for seed in 1..=3 {
        let mut mesh = Simulation::fleet(seed, 30, &Profile::wan(), SECOND * 10);
        mesh.network.latency = (Duration::from_millis(30), Duration::from_millis(50));
        mesh.network.loss = 200;
        assert!(mesh.run_until(SECOND * 60, TICK, Simulation::all_know_all).is_some());
        mesh.run_for(SECOND * 1_800);
        assert_eq!(mesh.alarms, []);
        mesh.kill(9);
        let dead = mesh.identity(9).member;
        let knows = |mesh: &Simulation| mesh.member(0).state(dead) == MemberState::Missing;
        let took = mesh.run_until(SECOND * 60, TICK, knows);
        assert!(took.is_some_and(|took| took <= SECOND * 20), "seed {seed}: {took:?}");
        mesh.run_for(SECOND * 60);
        assert!(mesh.alarms.iter().all(|alarm| alarm.of == 9), "{:?}", mesh.alarms);
    }
}

/// A thousand members, one thread; and what a seed gives once it gives again.
#[test]
fn a_thousand_members_run_in_one_thread_and_twice_the_same() {
    let run = || -> (u64, u64, Vec<Alarm>) {
        let mut mesh = Simulation::fleet(25, 1_000, &Profile::lan(), SECOND * 5);
        mesh.run_for(SECOND * 2);
        mesh.kill(500);
        mesh.run_for(SECOND * 10);
        let sent = (0..mesh.places()).map(|place| mesh.traffic(place).bytes).sum();
        (mesh.events, sent, mesh.alarms)
    };
    let first = run();
    assert!(first.2.iter().any(|alarm| alarm.by == 0 && alarm.of == 500), "{:?}", first.2);
    assert_eq!(first, run());
}
