//! One insider with a valid certificate, and what it cannot do. Its member runs as all others; what it
//! says beyond that is injected on its own links, so it speaks as itself and as nobody else.

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::random::SplitMix;

use crate::identity::{MemberId, MemberKind};
use crate::member::{MemberInput, MemberState, PROTOCOL, RefusalCounts};
use crate::message::{BUCKETS, HeldVersions, Message, Scope};
use crate::profile::Profile;
use crate::record::{AliveRecord, Content, Item, Record, Revocation, Suspicion, Topic, Version};
use crate::simulation::{SimulatedAuthenticator, Simulation, sample_info, sample_load};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(50);
const EVIL: usize = 5;
const VICTIM: usize = 9;

/// A coordinator at 0 and cells, who all know all.
fn joined(seed: u64, cells: usize) -> Simulation {
    let mut mesh = Simulation::fleet(seed, cells, &Profile::lan(), SECOND);
    mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all).expect("all know all");
    for place in 0..=cells {
        if place != EVIL {
            mesh.connect(EVIL, place);
        }
    }
    mesh.run_for(SECOND * 3);
    mesh
}

fn id(mesh: &Simulation, place: usize) -> MemberId {
    mesh.identity(place).member
}

fn stamp(mesh: &Simulation, place: usize) -> SimulatedAuthenticator {
    SimulatedAuthenticator::new(mesh.ca().clone(), id(mesh, place))
}

fn alive_of(mesh: &Simulation, at: usize, of: usize) -> Version {
    mesh.member(at).record(id(mesh, of), Topic::Alive).unwrap().version
}

/// `signer` signs, `by` is named.
fn suspicion(mesh: &Simulation, signer: usize, by: usize, of: usize, alive: Version) -> Item {
    let signed = Suspicion::signed(&stamp(mesh, signer), id(mesh, by), id(mesh, of), alive);
    Item::Suspicion(Arc::new(signed))
}

/// `by` signs, `of` is named.
fn record(mesh: &Simulation, by: usize, of: usize, version: Version, content: Content) -> Item {
    Item::Record(Arc::new(Record::signed(&stamp(mesh, by), id(mesh, of), version, content)))
}

fn say(mesh: &mut Simulation, to: usize, items: Vec<Item>) {
    mesh.inject(EVIL, to, Message::Gossip { items });
}

fn everybody_else(mesh: &Simulation) -> Vec<usize> {
    (0..mesh.places()).filter(|place| *place != EVIL).collect()
}

/// Nobody took anybody for missing, at any time.
fn unharmed(mesh: &mut Simulation) {
    mesh.run_for(SECOND * 40);
    assert!(mesh.alarms.is_empty(), "{:?}", mesh.alarms);
    for place in everybody_else(mesh) {
        assert_eq!(mesh.member(place).state(id(mesh, VICTIM)), MemberState::Present, "{place}");
    }
    assert!(mesh.all_know_all());
}

/// What one member refused while `attack` went on.
fn refused(
    mesh: &mut Simulation,
    at: usize,
    attack: impl FnOnce(&mut Simulation),
) -> RefusalCounts {
    let before = mesh.member(at).refused();
    attack(mesh);
    let after = mesh.member(at).refused();
    RefusalCounts {
        forged: after.forged - before.forged,
        certificates: after.certificates - before.certificates,
        misreported: after.misreported - before.misreported,
        strangers: after.strangers - before.strangers,
        suspicions: after.suspicions - before.suspicions,
        excessive: after.excessive - before.excessive,
        unasked: after.unasked - before.unasked,
        stale: after.stale - before.stale,
    }
}

#[test]
fn suspecting_each_new_alive_record_at_everybody_puts_nobody_out_and_cannot_make_the_victim_ill() {
    let mut mesh = joined(1, 20);
    let first = alive_of(&mesh, 0, VICTIM);
    for _ in 0..600 {
        for place in everybody_else(&mesh) {
            let alive = alive_of(&mesh, place, VICTIM);
            let charge = suspicion(&mesh, EVIL, EVIL, VICTIM, alive);
            say(&mut mesh, place, vec![charge]);
        }
        mesh.run_for(TICK);
        assert!(mesh.member(VICTIM).health() <= 2, "one member's suspicion is one opinion");
    }
    let records = alive_of(&mesh, VICTIM, VICTIM).count - first.count;
    assert!(records <= 12, "{records} answers in thirty seconds: they flood the mesh");
    assert!(records >= 5, "{records} answers: it must defend itself");
    unharmed(&mut mesh);
}

#[test]
fn suspecting_all_at_once_is_refused_beyond_the_limit() {
    let mut mesh = joined(2, 100);
    let all: Vec<Item> = (1..=100)
        .filter(|of| *of != EVIL)
        .map(|of| suspicion(&mesh, EVIL, EVIL, of, alive_of(&mesh, 0, of)))
        .collect();
    let counted = refused(&mut mesh, 0, |mesh| {
        for _ in 0..50 {
            say(mesh, 0, all.clone());
        }
    });
    assert!(counted.suspicions >= 35, "{counted:?}");
    assert!(mesh.member(0).suspects.len() <= 64);
    unharmed(&mut mesh);
}

#[test]
fn suspecting_those_who_do_not_exist_leaves_no_trace() {
    let mut mesh = joined(3, 12);
    let mut random = SplitMix(1);
    let evil = stamp(&mesh, EVIL);
    let by = id(&mesh, EVIL);
    let nobody = (0..5_000).map(|_| {
        let subject = u128::from(random.next()) << 64 | u128::from(random.next());
        let subject = MemberId(subject.to_le_bytes());
        let signed = Suspicion::signed(&evil, by, subject, Version::default());
        Item::Suspicion(Arc::new(signed))
    });
    let nobody: Vec<Item> = nobody.collect();
    let counted = refused(&mut mesh, 0, |mesh| say(mesh, 0, nobody));
    assert_eq!(counted.strangers, 5_000);
    assert!(mesh.member(0).missing_because.is_empty() && mesh.member(0).suspects.is_empty());
    unharmed(&mut mesh);
}

#[test]
fn suspecting_in_the_name_of_others_is_forgery() {
    let mut mesh = joined(4, 20);
    for place in everybody_else(&mesh) {
        let alive = alive_of(&mesh, place, VICTIM);
        let members = (0..=20).filter(|by| ![EVIL, VICTIM, place].contains(by));
        let forged: Vec<Item> =
            members.map(|by| suspicion(&mesh, EVIL, by, VICTIM, alive)).collect();
        assert!(forged.len() > 8);
        let counted = refused(&mut mesh, place, |mesh| say(mesh, place, forged));
        assert_eq!(counted.forged, 8, "at {place}: the rest is not looked at");
        assert!(mesh.member(place).suspects.is_empty());
    }
    unharmed(&mut mesh);
}

#[test]
fn old_suspicions_of_others_are_void_against_a_newer_alive_record() {
    let mut mesh = joined(5, 20);
    let old = alive_of(&mesh, 0, VICTIM);
    // As if three had suspected it, long ago.
    let kept: Vec<Item> = [0, 11, 12].map(|by| suspicion(&mesh, by, by, VICTIM, old)).into();
    say(&mut mesh, VICTIM, vec![kept[1].clone()]);
    mesh.run_for(SECOND * 2);
    for place in everybody_else(&mesh) {
        assert!(alive_of(&mesh, place, VICTIM) > old, "its answer is known at {place}");
        let counted = refused(&mut mesh, place, |mesh| say(mesh, place, kept.clone()));
        assert!(counted.stale >= 2, "at {place}: {counted:?}");
        assert!(mesh.member(place).suspects.is_empty());
    }
    unharmed(&mut mesh);
}

#[test]
fn nobody_speaks_for_another() {
    let mut mesh = joined(6, 20);
    mesh.publish_load(VICTIM, 4_000);
    mesh.publish_info(VICTIM);
    mesh.run_for(SECOND * 5);
    let high = Version { generation: u64::MAX, count: u32::MAX };
    let address = "10.9.9.9:1".parse().unwrap();
    let name = mesh.identity(VICTIM).name.clone();
    let contents = [
        Content::Alive(AliveRecord { address, leaf: false, left: true, protocol: PROTOCOL }),
        Content::Alive(AliveRecord { address, leaf: false, left: false, protocol: PROTOCOL }),
        Content::Info(sample_info(name.clone(), 1)),
        Content::Load(sample_load(name.clone(), 0)),
    ];
    let forged: Vec<Item> =
        contents.map(|content| record(&mesh, EVIL, VICTIM, high, content)).into();
    let roots = mesh.member(0).roots();
    for place in everybody_else(&mesh) {
        let counted = refused(&mut mesh, place, |mesh| say(mesh, place, forged.clone()));
        assert_eq!(counted.forged, 4, "at {place}");
        assert_eq!(mesh.member(place).roots(), roots);
    }
    unharmed(&mut mesh);
}

#[test]
fn a_cell_says_nothing_that_is_not_its_own() {
    let mut mesh = joined(7, 20);
    let high = Version { generation: u64::MAX, count: 7 };
    let name = mesh.identity(VICTIM).name.clone();
    let victim = id(&mesh, VICTIM);
    let contents = [
        Content::Info(sample_info(name.clone(), 1)),
        Content::Load(sample_load(name, 0)),
        Content::Revocations(vec![Revocation { member: victim, until_s: u64::from(u32::MAX) }]),
    ];
    let items: Vec<Item> = contents.map(|c| record(&mesh, EVIL, EVIL, high, c)).into();
    for place in everybody_else(&mesh) {
        let counted = refused(&mut mesh, place, |mesh| say(mesh, place, items.clone()));
        assert_eq!(counted.misreported, 3, "at {place}");
        assert!(mesh.member(place).revoked.is_empty());
    }
    // Its own driver does not publish it either.
    let load = sample_load(mesh.identity(VICTIM).name.clone(), 0);
    mesh.tell(EVIL, MemberInput::PublishLoad(load));
    mesh.revoke(EVIL, &[VICTIM]);
    unharmed(&mut mesh);
    assert!(mesh.member(0).record(id(&mesh, EVIL), Topic::Load).is_none());
}

#[test]
fn older_records_of_others_change_nothing() {
    let mut mesh = joined(8, 20);
    mesh.publish_load(VICTIM, 4_000);
    mesh.run_for(SECOND * 5);
    let old = [Topic::Alive, Topic::Load];
    let old =
        old.map(|t| Item::Record(mesh.member(EVIL).record(id(&mesh, VICTIM), t).unwrap().clone()));
    mesh.tell(VICTIM, MemberInput::Leave);
    mesh.run_for(SECOND);
    let goodbye = mesh.member(EVIL).record(id(&mesh, VICTIM), Topic::Alive).unwrap().clone();
    mesh.kill(VICTIM);
    mesh.start(VICTIM, Profile::lan(), &[0]);
    mesh.publish_load(VICTIM, 2_000);
    mesh.run_until(SECOND * 60, TICK, Simulation::all_agree).expect("all agree");
    mesh.alarms.clear();
    let mut replayed = old.to_vec();
    replayed.push(Item::Record(goodbye.clone()));
    for place in everybody_else(&mesh) {
        let roots = mesh.member(place).roots();
        let counted = refused(&mut mesh, place, |mesh| say(mesh, place, replayed.clone()));
        assert!(counted.stale == 3, "at {place}: {counted:?}");
        assert_eq!(mesh.member(place).roots(), roots);
    }
    unharmed(&mut mesh);
    // One who does not know the victim yet can be misled only until it has heard of the truth.
    mesh.kill(15);
    mesh.start(15, Profile::lan(), &[EVIL]);
    mesh.run_for(Duration::from_micros(100));
    say(&mut mesh, 15, vec![Item::Record(goodbye)]);
    mesh.run_until(SECOND * 30, TICK, Simulation::all_agree).expect("the truth is heard");
    assert_eq!(mesh.member(15).state(id(&mesh, VICTIM)), MemberState::Present);
}

#[test]
fn certificates_of_another_cluster_or_another_member_are_refused() {
    let mut mesh = joined(9, 12);
    let other = Simulation::new(99, &[MemberKind::Coordinator]);
    let stranger = other.identity(0).member;
    let certificates = [
        Record::certificate(stranger, 1_000, &other.ca().certificate(0)),
        Record::certificate(id(&mesh, VICTIM), 1_000_000, &mesh.ca().certificate(EVIL)),
        Record::certificate(id(&mesh, VICTIM), u64::MAX, &mesh.ca().certificate(VICTIM)),
        Record::certificate(stranger, 1_000, &mesh.ca().certificate(EVIL)),
    ];
    let items: Vec<Item> = certificates.map(|record| Item::Record(Arc::new(record))).into();
    for place in everybody_else(&mesh).into_iter().filter(|place| *place != VICTIM) {
        let counted = refused(&mut mesh, place, |mesh| say(mesh, place, items.clone()));
        assert_eq!(counted.certificates, 4, "at {place}");
        assert_eq!(mesh.member(place).record(stranger, Topic::Certificate), None);
    }
    unharmed(&mut mesh);
}

/// Turns "I did not reach it" around, and keeps silent about it otherwise.
fn hide(message: Message) -> Message {
    if let Message::Missed { seq, target } = message {
        return Message::Reached { seq, target };
    }
    if let Message::Gossip { mut items } = message {
        items.retain(|item| matches!(item, Item::Record(_)));
        return Message::Gossip { items };
    }
    message
}

#[test]
pub(super) fn a_liar_cannot_hide_a_death() {
    // The liar is asked by everybody, as there is nobody else to ask.
    for (seed, cells) in [(1, 3), (2, 4), (3, 6), (4, 30)] {
        let mut mesh = Simulation::fleet(seed, cells, &Profile::lan(), SECOND);
        mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all).expect("all know all");
        mesh.twist = Some((1, hide));
        mesh.run_for(SECOND * 5);
        mesh.kill(2);
        let dead = id(&mesh, 2);
        let is_known = |mesh: &Simulation| {
            let honest = (0..=cells).filter(|place| ![1, 2].contains(place));
            honest.into_iter().all(|p| mesh.member(p).state(dead) == MemberState::Missing)
        };
        let took = mesh.run_until(SECOND * 90, TICK, is_known);
        assert!(took.is_some(), "{cells} cells");
        assert!(mesh.alarms.iter().all(|alarm| alarm.of == 2), "{:?}", mesh.alarms);
    }
}

#[test]
fn a_liar_cannot_make_a_loss_a_death() {
    fn blacken(message: Message) -> Message {
        if let Message::Reached { seq, target } = message {
            return Message::Missed { seq, target };
        }
        message
    }
    let mut mesh = joined(11, 12);
    mesh.twist = Some((EVIL, blacken));
    mesh.network.loss = 1_000;
    mesh.run_for(SECOND * 600);
    mesh.network.loss = 0;
    unharmed(&mut mesh);
}

#[test]
fn a_false_address_is_not_believed_of_one() {
    let mut mesh = joined(12, 12);
    let before = mesh.member(VICTIM).address();
    for host in 1..100 {
        let address = format!("192.0.2.{host}:7000").parse().unwrap();
        mesh.inject(EVIL, VICTIM, Message::Observed { address });
        let again = "192.0.2.1:7000".parse().unwrap();
        mesh.inject(EVIL, VICTIM, Message::Observed { address: again });
    }
    assert_eq!(mesh.member(VICTIM).address(), before);
    unharmed(&mut mesh);
    // Two who agree are believed, and the coordinator's word sets it right.
    let address = "192.0.2.7:7000".parse().unwrap();
    mesh.inject(EVIL, VICTIM, Message::Observed { address });
    mesh.inject(EVIL + 1, VICTIM, Message::Observed { address });
    assert_eq!(mesh.member(VICTIM).address(), address);
    mesh.run_for(SECOND * 30);
    assert_eq!(mesh.member(VICTIM).address(), before);
    assert!(mesh.alarms.iter().all(|alarm| alarm.by != 0), "{:?}", mesh.alarms);
}

#[test]
fn floods_of_questions_are_answered_within_bounds() {
    let mut mesh = joined(13, 60);
    let before = mesh.traffic(0);
    let victim = id(&mesh, VICTIM);
    let counted = refused(&mut mesh, 0, |mesh| {
        for _ in 0..5_000 {
            let empty = Message::Compare { scope: Scope::Membership, buckets: Vec::new() };
            mesh.inject(EVIL, 0, empty);
            let all = vec![(victim, u8::MAX); 100];
            mesh.inject(EVIL, 0, Message::Want { wanted: all });
        }
    });
    assert!(counted.excessive > 9_500, "{counted:?}");
    let bytes = mesh.traffic(0).bytes - before.bytes;
    assert!(bytes < 16 << 20, "{bytes} bytes in answer to a flood of one instant");
    unharmed(&mut mesh);
}

#[test]
fn a_flood_of_errands_is_bounded() {
    let mut mesh = joined(14, 60);
    let place = VICTIM;
    let dials = mesh.traffic(place).dials;
    let counted = refused(&mut mesh, place, |mesh| {
        for seq in 0..2_000 {
            let target = id(mesh, usize::try_from(seq).unwrap() % 61);
            mesh.inject(EVIL, place, Message::PingReq { seq, target });
        }
    });
    assert!(counted.excessive > 1_500, "{counted:?}");
    assert!(mesh.member(place).probes.relays.len() <= 200);
    assert!(mesh.traffic(place).dials - dials <= 61);
    unharmed(&mut mesh);
    assert!(mesh.member(place).probes.relays.is_empty());
}

#[test]
fn answers_that_nobody_asked_for_are_dropped() {
    let mut mesh = joined(15, 12);
    let subject = id(&mesh, VICTIM);
    let roots = mesh.member(0).roots();
    let counted = refused(&mut mesh, 0, |mesh| {
        let holding = HeldVersions { subject, versions: Default::default(), missing: true };
        for scope in [Scope::Membership, Scope::Load, Scope::Coordinators] {
            let holdings = vec![holding.clone(); 1_000];
            let message = Message::Differ { scope, buckets: u64::MAX, holdings, more: true };
            mesh.inject(EVIL, 0, message);
        }
        mesh.inject(EVIL, 0, Message::Reached { seq: 1, target: subject });
    });
    assert_eq!(counted.unasked, 4);
    assert_eq!(mesh.member(0).roots(), roots);
    unharmed(&mut mesh);
}

#[test]
fn long_lists_cost_no_more_than_their_bytes() {
    let mut mesh = joined(16, 30);
    let before = mesh.traffic(0).bytes;
    let victim = id(&mesh, VICTIM);
    let high = Version { generation: u64::MAX, count: 1 };
    let address = "10.9.9.9:1".parse().unwrap();
    let alive =
        Content::Alive(AliveRecord { address, leaf: false, left: true, protocol: PROTOCOL });
    let forged = record(&mesh, EVIL, VICTIM, high, alive);
    let counted = refused(&mut mesh, 0, |mesh| {
        mesh.inject(EVIL, 0, Message::Want { wanted: vec![(victim, u8::MAX); 60_000] });
        for buckets in [1, BUCKETS - 1, BUCKETS + 1, 100_000] {
            let buckets = vec![1; buckets];
            mesh.inject(EVIL, 0, Message::Compare { scope: Scope::Membership, buckets });
        }
        say(mesh, 0, vec![forged; 8_000]);
    });
    assert_eq!((counted.excessive, counted.forged), (4, 8), "the rest is not looked at");
    let bytes = mesh.traffic(0).bytes - before;
    assert!(bytes < 3 << 20, "{bytes} bytes");
    unharmed(&mut mesh);
}

/// Two cells that lie together. They can: open a suspicion that ends at cells with "missing", if the
/// suspected member does not answer for five seconds, and have it sign an alive record a little more than
/// once a second. They cannot: keep its answer from arriving, outbid it, or convince a coordinator,
/// who probes the suspected member itself.
#[test]
fn two_liars_put_nobody_out_who_answers() {
    let mut mesh = joined(17, 20);
    for place in (0..=20).filter(|place| ![EVIL, EVIL + 1].contains(place)) {
        mesh.connect(EVIL + 1, place);
    }
    mesh.run_for(SECOND);
    for _ in 0..600 {
        for place in everybody_else(&mesh) {
            let alive = alive_of(&mesh, place, VICTIM);
            for by in [EVIL, EVIL + 1].into_iter().filter(|by| *by != place) {
                let charge = suspicion(&mesh, by, by, VICTIM, alive);
                mesh.inject(by, place, Message::Gossip { items: vec![charge] });
            }
        }
        mesh.run_for(TICK);
    }
    unharmed(&mut mesh);
}

/// The same two, and the suspected member cannot be heard by any cell but only by the coordinator: it is
/// found missing by cells, which is what they see, and not by the coordinator.
#[test]
fn a_coordinator_that_reaches_the_suspected_never_finds_it_missing() {
    let mut mesh = joined(18, 12);
    for place in 1..=12 {
        mesh.cut(place, VICTIM);
        mesh.cut(VICTIM, place);
    }
    for _ in 0..1_200 {
        for by in [EVIL, EVIL + 1] {
            let charge = suspicion(&mesh, by, by, VICTIM, alive_of(&mesh, 0, VICTIM));
            mesh.inject(by, 0, Message::Gossip { items: vec![charge] });
        }
        mesh.run_for(TICK);
    }
    assert!(mesh.alarms.iter().all(|alarm| alarm.by != 0), "{:?}", mesh.alarms);
    assert_eq!(mesh.member(0).state(id(&mesh, VICTIM)), MemberState::Present);
}
