//! Members that are slow, lost, cut off, moved, restarted, and how little that does to the others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::{MemberId, MemberKind};
use crate::member::{MEMBERS, MemberInput, MemberState};
use crate::profile::Profile;
use crate::record::{Content, Record, Topic};
use crate::simulation::Simulation;

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(50);

fn joined(seed: u64, cells: usize) -> Simulation {
    joined_with(seed, cells, &Profile::lan())
}

fn joined_with(seed: u64, cells: usize, profile: &Profile) -> Simulation {
    let mut mesh = Simulation::fleet(seed, cells, profile, SECOND);
    mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all).expect("all know all");
    mesh.run_for(SECOND * 3);
    mesh
}

/// Cells and no coordinator.
fn cells_only(seed: u64, cells: usize) -> Simulation {
    let mut mesh = Simulation::new(seed, &vec![MemberKind::Cell; cells]);
    mesh.start(0, Profile::lan(), &[]);
    (1..cells).for_each(|cell| mesh.start(cell, Profile::lan(), &[0]));
    mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all).expect("all know all");
    mesh
}

fn id(mesh: &Simulation, place: usize) -> MemberId {
    mesh.identity(place).member
}

fn know_and_agree(mesh: &Simulation) -> bool {
    mesh.all_know_all() && mesh.all_agree()
}

#[test]
fn an_hour_of_loss_is_no_alarm_at_the_coordinator() {
    for (seed, cells, loss) in [(1, 40, 500), (2, 20, 2_000)] {
        let mut mesh = joined(seed, cells);
        mesh.network.loss = loss;
        mesh.run_for(SECOND * 3_600);
        let at_coordinator = mesh.alarms.iter().filter(|alarm| alarm.by == 0).count();
        let all = mesh.alarms.iter().filter(|alarm| alarm.is_false).count();
        println!("loss {loss}: {all} false alarms among {cells} cells in an hour");
        assert_eq!(at_coordinator, 0, "loss {loss}");
        assert!(loss > 500 || all == 0, "{:?}", mesh.alarms);
        assert!(all <= 5, "{:?}", mesh.alarms);
        mesh.network.loss = 0;
        assert!(mesh.run_until(SECOND * 60, TICK, know_and_agree).is_some());
    }
}

#[test]
fn a_way_that_is_cut_between_two_makes_nobody_missing() {
    for (seed, both) in [(1, false), (2, true), (3, false), (4, true)] {
        let mut mesh = joined(seed, 12);
        // Of those whom 3 watches, so that it matters.
        let watched = mesh.member(3).watched();
        let other = (1..=12).find(|place| watched.contains(&id(&mesh, *place))).unwrap();
        mesh.cut(3, other);
        if both {
            mesh.cut(other, 3);
        }
        mesh.run_for(SECOND * 600);
        assert!(mesh.alarms.is_empty(), "{:?}", mesh.alarms);
        assert!(mesh.all_know_all());
        mesh.heal();
        assert!(mesh.run_until(SECOND * 60, TICK, know_and_agree).is_some());
    }
}

#[test]
fn a_cell_that_only_the_coordinator_reaches_is_there_for_the_coordinator() {
    let mut mesh = joined(5, 12);
    for other in (1..=12).filter(|other| *other != 4) {
        mesh.cut(4, other);
        mesh.cut(other, 4);
    }
    mesh.run_for(SECOND * 300);
    assert!(mesh.alarms.iter().all(|alarm| alarm.by != 0), "{:?}", mesh.alarms);
    mesh.heal();
    assert!(mesh.run_until(SECOND * 120, TICK, know_and_agree).is_some());
}

#[test]
fn one_that_is_cut_off_harms_nobody_and_is_back_soon() {
    for (seed, cells, seconds) in [(1, 20, 20), (2, 20, 300), (3, 100, 60), (4, 100, 600)] {
        let mut mesh = joined(seed, cells);
        mesh.part(|place| u8::from(place == 7));
        mesh.run_for(SECOND * seconds);
        let others_missed = mesh.alarms.iter().filter(|a| a.by != 7 && a.of != 7).count();
        assert_eq!(others_missed, 0);
        mesh.alarms.clear();
        mesh.record_news = true;
        mesh.heal();
        let took = mesh.run_until(SECOND * 120, TICK, know_and_agree);
        println!("{cells} cells, cut off for {seconds} s: {took:?}");
        assert!(took.is_some());
        mesh.run_for(SECOND * 30);
        let false_ones: Vec<_> = mesh.alarms.iter().filter(|a| a.is_false && a.by != 7).collect();
        assert!(false_ones.is_empty(), "{false_ones:?}");
        let joined = |(by, of, _): &&(usize, usize, _)| *by != 7 && *of != 7;
        let by_others: Vec<_> = mesh.suspicions.iter().filter(joined).collect();
        assert!(by_others.is_empty(), "nobody joins it in its suspicions: {by_others:?}");
    }
}

#[test]
fn a_coordinator_that_was_frozen_suspects_nobody_on_waking() {
    for seed in 1..=5 {
        let mut mesh = joined(seed, 30);
        mesh.record_news = true;
        mesh.pause(0, SECOND * 5);
        mesh.run_for(SECOND * 60);
        let by_it = mesh.suspicions.iter().filter(|(by, _, _)| *by == 0).count();
        assert_eq!(by_it, 0);
        assert!(mesh.alarms.iter().all(|alarm| alarm.by != 0), "{:?}", mesh.alarms);
        assert!(mesh.run_until(SECOND * 30, TICK, know_and_agree).is_some());
    }
}

#[test]
fn a_member_that_gets_another_address_is_followed() {
    for fixed in [false, true] {
        let mut mesh = Simulation::new(6, &{
            let mut kinds = vec![MemberKind::Coordinator];
            kinds.resize(21, MemberKind::Cell);
            kinds
        });
        mesh.fixed_addresses = fixed;
        mesh.start(0, Profile::lan(), &[]);
        (1..=20).for_each(|cell| mesh.start(cell, Profile::lan(), &[0]));
        mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all).expect("all know all");
        mesh.run_for(SECOND * 3);
        let address: SocketAddr = "10.77.0.1:7000".parse().unwrap();
        mesh.move_to(4, address);
        if fixed {
            mesh.tell(4, MemberInput::Moved(address));
        }
        let moved = id(&mesh, 4);
        let follow = |mesh: &Simulation| {
            (0..=20).all(|place| {
                let alive =
                    mesh.member(place).record(moved, Topic::Alive).map(|r| r.content.clone());
                matches!(alive, Some(Content::Alive(alive)) if alive.address == address)
            })
        };
        let took = mesh.run_until(SECOND * 10, TICK, follow);
        assert!(took.is_some_and(|took| took <= SECOND * 6), "fixed {fixed}: {took:?}");
        // Links break at last, and are made again at the new place.
        mesh.run_for(SECOND * 300);
        assert!(mesh.alarms.is_empty(), "fixed {fixed}: {:?}", mesh.alarms);
        assert!(know_and_agree(&mesh));
        mesh.kill(4);
        let at_coordinator =
            |mesh: &Simulation| mesh.member(0).state(moved) == MemberState::Missing;
        assert!(mesh.run_until(SECOND * 20, TICK, at_coordinator).is_some());
    }
}

#[test]
fn a_restart_with_the_clock_set_back_comes_back_by_itself() {
    for (seed, back) in [(1, 1), (2, 3_600), (3, 500_000)] {
        let mut mesh = joined(seed, 12);
        mesh.publish_load(3, 77);
        mesh.run_for(SECOND * 2);
        mesh.kill(3);
        mesh.run_for(SECOND * 40);
        assert_eq!(mesh.member(0).state(id(&mesh, 3)), MemberState::Missing);
        mesh.clock_behind = SECOND * back + SECOND * 40;
        mesh.start(3, Profile::lan(), &[0]);
        mesh.publish_load(3, 78);
        let took = mesh.run_until(SECOND * 60, TICK, know_and_agree);
        assert!(took.is_some_and(|took| took < SECOND * 15), "{back} s back: {took:?}");
        let load = mesh.member(0).record(id(&mesh, 3), Topic::Load).unwrap();
        let Content::Load(load) = &load.content else { panic!("{load:?}") };
        assert_eq!(load.free.memory_mb, 78);
    }
}

#[test]
fn a_life_that_begins_in_the_millisecond_of_the_last_counts_on() {
    let mut mesh = joined(4, 6);
    let address: SocketAddr = "10.77.0.2:7000".parse().unwrap();
    // Two more alive records in this life; the next one is restored from a copy that knows of none.
    let begun = mesh.member(2).own.generation;
    mesh.tell(2, MemberInput::Moved(address));
    mesh.tell(2, MemberInput::Moved(mesh.address(2)));
    mesh.run_for(SECOND * 5);
    mesh.kill(2);
    mesh.clock_behind = Duration::from_millis(mesh.now().as_nanos() / 1_000_000 - begun);
    mesh.start(2, Profile::lan(), &[0]);
    assert_eq!(mesh.member(2).own.generation, begun);
    assert!(mesh.run_until(SECOND * 30, TICK, know_and_agree).is_some());
    assert!(mesh.member(2).own.generation > begun);
}

/// Two machines with the same key and certificate: each takes the other's words for its own of a
/// later life. They outbid each other every ten seconds, and not faster.
#[test]
fn two_machines_with_one_key_do_not_loop_fast() {
    use crate::member::{Member, MemberStart};
    use crate::message::Message;
    use crate::record::Item;
    let mesh = Simulation::new(1, &[MemberKind::Cell, MemberKind::Cell]);
    let mut now = mesh.now();
    let twin = |random: u64, generation: u64| {
        let birth = MemberStart {
            identity: mesh.identity(0).clone(),
            certificate: mesh.ca().certificate(0),
            generation,
            address: "10.0.0.1:7000".parse().unwrap(),
            address_is_fixed: true,
            profile: Profile::lan(),
            seeds: Vec::new(),
            is_first: true,
            revoked: Vec::new(),
            random,
        };
        let stamp = crate::simulation::SimulatedAuthenticator::new(mesh.ca().clone(), id(&mesh, 0));
        Member::new(mesh.now(), stamp, birth)
    };
    let mut twins = [twin(1, 100), twin(2, 200)];
    let me = id(&mesh, 0);
    let mut lives = 0;
    for _ in 0..6_000 {
        now = now + Duration::from_millis(10);
        for (hears, says) in [(0, 1), (1, 0)] {
            let alive = twins[says].record(me, Topic::Alive).unwrap().clone();
            let before = twins[hears].own.generation;
            let (from, address) = (id(&mesh, 1), "10.0.0.2:7000".parse().unwrap());
            let message = Message::Gossip { items: vec![Item::Record(alive)] };
            twins[hears].apply(now, MemberInput::Received { from, address, message });
            lives += u32::from(twins[hears].own.generation != before);
        }
    }
    assert!((1..=13).contains(&lives), "{lives} lives in a minute");
}

#[test]
fn who_leaves_is_gone_for_all_at_once_and_is_no_alarm() {
    let mut mesh = joined(7, 40);
    let gone = id(&mesh, 9);
    mesh.tell(9, MemberInput::Leave);
    let known = |mesh: &Simulation| {
        (0..=40).filter(|p| *p != 9).all(|p| mesh.member(p).state(gone) == MemberState::Missing)
    };
    let took = mesh.run_until(SECOND * 5, Duration::from_millis(5), known);
    assert!(took.is_some_and(|took| took <= SECOND), "{took:?}");
    mesh.kill(9);
    mesh.run_for(SECOND * 120);
    assert!(mesh.alarms.iter().all(|alarm| alarm.of == 9 && !alarm.is_false));
    assert_eq!(mesh.alarms.len(), 40, "each heard it once");
    mesh.start(9, Profile::lan(), &[0]);
    assert!(mesh.run_until(SECOND * 10, TICK, know_and_agree).is_some());
}

#[test]
fn the_revoked_are_expelled_and_stay_out_whoever_restarts() {
    let mut mesh = joined(8, 20);
    let (first, second) = (id(&mesh, 5), id(&mesh, 6));
    mesh.revoke(0, &[5]);
    mesh.run_for(SECOND);
    mesh.revoke(0, &[6]);
    mesh.run_for(SECOND * 30);
    assert_eq!(mesh.expelled.iter().copied().collect::<Vec<_>>(), [5, 6]);
    let rest: Vec<usize> = (0..=20).filter(|place| ![5, 6].contains(place)).collect();
    let are_out = |mesh: &Simulation| {
        rest.iter().all(|place| {
            let member = mesh.member(*place);
            let is_out = |who| member.state(who) == MemberState::Unproven;
            is_out(first) && is_out(second) && member.present() == 19
        })
    };
    assert!(are_out(&mesh));
    // All cells begin anew, and know nothing but the coordinator; the expelled try again.
    for place in (1..=20).filter(|place| ![5, 6].contains(place)) {
        mesh.kill(place);
        mesh.start(place, Profile::lan(), &[0]);
    }
    for place in [5, 6] {
        mesh.kill(place);
        mesh.start(place, Profile::lan(), &[0, 3, 4]);
    }
    mesh.run_for(SECOND * 60);
    assert!(are_out(&mesh));
    // Then the coordinator, which hears from the cells what it said in another life.
    mesh.kill(0);
    mesh.start(0, Profile::lan(), &[1, 2]);
    mesh.run_for(SECOND * 60);
    assert!(are_out(&mesh));
    assert!([first, second].iter().all(|who| mesh.member(0).revoked.contains_key(who)));
}

#[test]
fn the_forgotten_are_not_told_back_and_may_come_back_themselves() {
    let profile = Profile { forget_after: SECOND * 600, ..Profile::lan() };
    let mut mesh = joined_with(9, 20, &profile);
    mesh.publish_info(4);
    mesh.publish_load(4, 9);
    mesh.run_for(SECOND * 10);
    let gone = id(&mesh, 4);
    mesh.kill(4);
    mesh.run_for(SECOND * 500);
    assert_eq!(mesh.member(0).state(gone), MemberState::Missing);
    // Everybody forgets at its own time, within a minute, while others still tell of it.
    mesh.run_for(SECOND * 300);
    for place in (0..=20).filter(|place| *place != 4) {
        for topic in Topic::ALL {
            assert!(mesh.member(place).record(gone, topic).is_none(), "{topic:?} at {place}");
        }
    }
    assert!(know_and_agree(&mesh));
    // A member that was away all the time brings it back to nobody for long.
    mesh.start(4, profile, &[7]);
    let took = mesh.run_until(SECOND * 20, TICK, know_and_agree);
    assert!(took.is_some(), "it is back");
}

#[test]
fn one_who_slept_while_others_forgot_does_not_bring_the_forgotten_back() {
    let profile = Profile { forget_after: SECOND * 600, ..Profile::lan() };
    let mut mesh = joined_with(10, 12, &profile);
    let gone = id(&mesh, 4);
    mesh.kill(4);
    mesh.run_for(SECOND * 560);
    mesh.part(|place| u8::from(place == 8));
    mesh.run_for(SECOND * 30);
    // It has until later to forget.
    let now = mesh.now();
    mesh.member_mut(8).missing_since.insert(gone, now);
    mesh.run_for(SECOND * 100);
    assert!(mesh.member(0).record(gone, Topic::Certificate).is_none());
    assert!(mesh.member(8).record(gone, Topic::Certificate).is_some());
    mesh.heal();
    mesh.run_for(SECOND * 200);
    for place in (0..=12).filter(|place| ![4, 8].contains(place)) {
        assert!(mesh.member(place).record(gone, Topic::Certificate).is_none(), "{place}");
    }
    mesh.run_for(SECOND * 600);
    assert!(know_and_agree(&mesh));
}

#[test]
fn a_restart_needs_no_coordinator_to_rejoin() {
    let mut mesh = joined(11, 12);
    mesh.kill(0);
    mesh.kill(5);
    mesh.run_for(SECOND * 20);
    mesh.start(5, Profile::lan(), &[6, 0]);
    let took = mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all);
    assert!(took.is_some());
    mesh.start(0, Profile::lan(), &[3]);
    assert!(mesh.run_until(SECOND * 60, TICK, know_and_agree).is_some());
}

#[test]
fn a_coordinator_that_begins_anew_without_seeds_is_found_again_by_its_cells() {
    let mut mesh = joined(12, 20);
    (1..=20).for_each(|cell| mesh.publish_load(cell, 5));
    mesh.kill(0);
    mesh.run_for(SECOND * 60);
    mesh.start(0, Profile::lan(), &[]);
    let took = mesh.run_until(SECOND * 60, TICK, know_and_agree);
    assert!(took.is_some_and(|took| took <= SECOND * 40), "{took:?}");
}

#[test]
fn all_may_restart_at_once() {
    let mut mesh = joined(13, 30);
    (0..=30).for_each(|place| mesh.kill(place));
    for place in 0..=30 {
        let seeds: &[usize] = if place == 0 { &[] } else { &[0, 1, 2] };
        mesh.start(place, Profile::lan(), seeds);
    }
    assert!(mesh.run_until(SECOND * 60, TICK, know_and_agree).is_some());
    assert!(mesh.alarms.is_empty(), "{:?}", mesh.alarms);
}

#[test]
pub(super) fn two_and_three_cells_find_a_death_without_a_coordinator() {
    for (cells, seconds) in [(2, 30), (3, 30), (4, 30)] {
        for seed in 1..=5 {
            let mut mesh = cells_only(seed, cells);
            mesh.run_for(SECOND * 60);
            assert!(mesh.alarms.is_empty());
            mesh.kill(cells - 1);
            let took = mesh.run_until(SECOND * seconds, TICK, know_and_agree);
            assert!(took.is_some(), "{cells} cells, seed {seed}");
            mesh.start(cells - 1, Profile::lan(), &[0]);
            assert!(mesh.run_until(SECOND * 20, TICK, know_and_agree).is_some());
        }
    }
}

#[test]
fn a_slow_handshake_is_no_missed_probe() {
    for seed in 1..=4 {
        let mut kinds = vec![MemberKind::Coordinator];
        kinds.resize(16, MemberKind::Cell);
        let mut mesh = Simulation::new(seed, &kinds);
        mesh.network.handshake = Duration::from_millis(2_500);
        mesh.record_news = true;
        mesh.start(0, Profile::lan(), &[]);
        (1..=15).for_each(|cell| mesh.start(cell, Profile::lan(), &[0]));
        mesh.run_for(SECOND * 60);
        assert!(mesh.all_know_all());
        assert!(mesh.suspicions.is_empty(), "{:?}", mesh.suspicions);
        assert!(mesh.alarms.is_empty());
        // Nor when a death moves the rings and new links are made.
        mesh.kill(3);
        mesh.run_for(SECOND * 60);
        assert!(mesh.suspicions.iter().all(|(_, of, _)| *of == 3), "{:?}", mesh.suspicions);
    }
}

#[test]
fn a_suspicion_that_many_sign_is_passed_on_once_by_each() {
    // More suspect than a suspicion keeps: what is not kept must not go round.
    let mut mesh = joined(14, 60);
    mesh.run_for(SECOND * 20);
    let bytes = |mesh: &Simulation| (0..=60).map(|p| mesh.traffic(p).packets).sum::<u64>();
    let before = bytes(&mesh);
    mesh.run_for(SECOND * 20);
    let idle = bytes(&mesh) - before;
    for by in 10..=40 {
        mesh.cut(by, 5);
        mesh.cut(5, by);
    }
    mesh.kill(5);
    let before = bytes(&mesh);
    mesh.run_for(SECOND * 20);
    let busy = bytes(&mesh) - before;
    assert!(mesh.all_know_all());
    assert!(busy < idle * 3, "{busy} packets after a death, {idle} when idle");
}

#[test]
fn nobody_new_is_taken_in_when_the_table_is_full() {
    let mut mesh =
        Simulation::new(15, &[MemberKind::Coordinator, MemberKind::Cell, MemberKind::Cell]);
    mesh.start(0, Profile::lan(), &[]);
    mesh.start(1, Profile::lan(), &[0]);
    mesh.run_for(SECOND * 5);
    // As many as a mesh may have were heard of; none is present, so that nothing else changes.
    let known = mesh.member(0).members.len();
    for number in known..MEMBERS {
        let subject = MemberId(u128::try_from(number).unwrap().to_le_bytes());
        let record = Arc::new(Record::certificate(subject, 1, &[]));
        mesh.member_mut(0).members.put(record, None);
    }
    mesh.start(2, Profile::lan(), &[0]);
    mesh.run_for(SECOND * 5);
    assert!(mesh.member(0).refused().excessive > 0);
    assert_eq!(mesh.member(0).state(id(&mesh, 2)), MemberState::Unproven);
    // It tries again and again; each of its links is ended, so that it is not left hanging.
    let ended = mesh.run_until(SECOND * 30, TICK, |mesh| mesh.open_links(2) == 0);
    assert!(ended.is_some());
    assert_eq!(mesh.member(0).members.len(), MEMBERS);
    assert_eq!(mesh.member(0).state(id(&mesh, 1)), MemberState::Present);
}
