//! Those who are revoked: they stay out, whoever restarts, for as long as it matters, and no list
//! loses one in silence.

use std::time::Duration;

use crate::identity::{MemberId, MemberKind};
use crate::member::{MemberInput, MemberState};
use crate::profile::Profile;
use crate::record::{REVOCATIONS, Revocation, Topic};
use crate::simulation::Simulation;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Two coordinators and three cells.
fn joined(seed: u64) -> Simulation {
    let kinds = [
        MemberKind::Coordinator,
        MemberKind::Coordinator,
        MemberKind::Cell,
        MemberKind::Cell,
        MemberKind::Cell,
    ];
    let mut mesh = Simulation::new(seed, &kinds);
    // Seldom, as days pass here.
    let profile = Profile { probe_period: SECOND * 60, ..Profile::lan() };
    mesh.start(0, profile.clone(), &[]);
    (1..kinds.len()).for_each(|place| mesh.start(place, profile.clone(), &[0]));
    assert!(mesh.run_until(SECOND * 120, SECOND, Simulation::all_know_all).is_some());
    mesh
}

fn strangers(from: usize, count: usize, until_s: u64) -> Vec<Revocation> {
    let id = |n: usize| MemberId(u128::try_from(n + 1).unwrap().to_be_bytes());
    (from..from + count).map(|n| Revocation { member: id(n), until_s }).collect()
}

fn until(mesh: &Simulation, span: Duration) -> u64 {
    (mesh.now() + span).as_nanos() / 1_000_000_000
}

#[test]
fn as_many_as_a_list_holds_are_known_to_all_and_one_more_is_said_aloud() {
    let mut mesh = joined(1);
    let until_s = until(&mesh, DAY * 30);
    mesh.tell(0, MemberInput::Revoke(strangers(0, REVOCATIONS, until_s)));
    mesh.run_for(SECOND * 60);
    for place in 0..5 {
        assert_eq!(mesh.member(place).revoked.len(), REVOCATIONS, "at {place}");
    }
    assert_eq!(mesh.left_out, 0);
    // The other coordinator has one more. Everybody knows it, and both say that their lists are full.
    mesh.tell(1, MemberInput::Revoke(strangers(REVOCATIONS, 1, until_s)));
    assert_eq!(mesh.left_out, 1, "its own list holds the new one, and not one of the others");
    mesh.run_for(SECOND * 60);
    assert!(mesh.left_out >= 2, "and the first coordinator's not the new one");
    for place in 0..5 {
        assert_eq!(mesh.member(place).revoked.len(), REVOCATIONS + 1, "at {place}");
    }
}

#[test]
fn who_could_not_come_back_anyway_is_forgotten_and_makes_room() {
    let mut mesh = joined(2);
    let (short, long) = (until(&mesh, DAY), until(&mesh, DAY * 30));
    mesh.tell(0, MemberInput::Revoke(strangers(0, 100, short)));
    mesh.tell(0, MemberInput::Revoke(strangers(100, 10, long)));
    // Of these the certificates had ended before.
    let past = 100_000;
    mesh.tell(0, MemberInput::Revoke(strangers(200, 50, past)));
    mesh.run_for(SECOND * 60);
    let known = |mesh: &Simulation| -> Vec<usize> {
        (0..5).map(|place| mesh.member(place).revoked.len()).collect()
    };
    assert_eq!(known(&mesh), [110; 5]);
    mesh.run_for(DAY * 9);
    assert_eq!(known(&mesh), [10; 5]);
    // The next list names only who matters. So does the other coordinator's, which seconds it.
    mesh.tell(0, MemberInput::Revoke(strangers(300, 1, long)));
    mesh.run_for(SECOND * 600);
    for place in [0, 1] {
        let id = mesh.identity(place).member;
        let list = mesh.member(4).record(id, Topic::Revocations).unwrap();
        let named = super::super::revocation::revoked_by(list).len();
        assert_eq!(named, 11, "by {place}");
    }
}

#[test]
fn a_member_that_begins_anew_among_the_revoked_alone_refuses_them() {
    let mut mesh = joined(3);
    mesh.revoke(0, &[4]);
    mesh.run_for(SECOND * 60);
    (0..5).for_each(|place| mesh.kill(place));
    // One cell and the expelled one, each knows the other, and nobody else is there.
    mesh.start(3, Profile::lan(), &[4]);
    mesh.start(4, Profile::lan(), &[3]);
    mesh.run_for(SECOND * 120);
    let expelled = mesh.identity(4).member;
    assert_eq!(mesh.member(3).state(expelled), MemberState::Unproven);
    assert_eq!(mesh.member(3).present(), 1);
    // A coordinator that begins anew says again what it wrote down, and who asks it hears of it.
    mesh.start(1, Profile::lan(), &[]);
    mesh.start(2, Profile::lan(), &[1]);
    mesh.run_for(SECOND * 30);
    assert!(mesh.member(2).revoked.contains_key(&expelled));
    let own = mesh.identity(1).member;
    assert!(mesh.member(2).record(own, Topic::Revocations).is_some());
}
