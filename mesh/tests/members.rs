//! Real members on loopback: joining, finding each other, ends and beginnings.

mod stage;

use std::time::Duration;

use stage::{Cluster, Double, Running, block_on, doubler, wait};
use volvox_mesh::member::MemberEvent;
use volvox_mesh::member::MemberState;
use volvox_mesh::profile::Profile;
use volvox_mesh::record::{REVOCATIONS, Revocation};
use volvox_mesh::request::AskError;
use volvox_mesh::simulation::{sample_info, sample_load};
use volvox_mesh::tls::authority::SHORTEST_VALIDITY;

const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn cells_join_with_one_line_and_all_find_each_other() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let cells: Vec<Running> =
        (1..=4).map(|n| cluster.cell(&format!("cell-{n}"), &coordinator)).collect();
    let all = ["c-1", "cell-1", "cell-2", "cell-3", "cell-4"];
    coordinator.wait_for(&all);
    cells.iter().for_each(|cell| cell.wait_for(&all));
}

#[test]
fn a_killed_member_is_missing_and_a_restarted_one_is_back() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let cells: Vec<Running> =
        (1..=4).map(|n| cluster.cell(&format!("cell-{n}"), &coordinator)).collect();
    let all = ["c-1", "cell-1", "cell-2", "cell-3", "cell-4"];
    coordinator.wait_for(&all);
    let mut cells = cells.into_iter();
    let victim = cells.next().unwrap();
    let address = victim.at();
    victim.kill();
    coordinator.wait_for(&all[..1].iter().chain(&all[2..]).copied().collect::<Vec<_>>());
    let rest: Vec<Running> = cells.collect();
    rest.iter().for_each(|c| c.wait_for(&["c-1", "cell-2", "cell-3", "cell-4"]));
    // Back, with nobody but an ordinary peer to begin with.
    let back = cluster.again("cell-1", &[rest[1].at()]);
    assert_ne!(back.at(), address);
    coordinator.wait_for(&all);
    back.wait_for(&all);
}

#[test]
fn a_member_that_leaves_is_missing_at_once_and_says_so() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let cell = cluster.cell("cell-1", &coordinator);
    coordinator.wait_for(&["c-1", "cell-1"]);
    let mut events = coordinator.mesh.subscribe();
    cell.block_on(cell.mesh.leave());
    let missing = block_on(async {
        let gone = async {
            loop {
                if let MemberEvent::Missing { identity, left } = events.recv().await.unwrap() {
                    return (identity.name.as_str().to_owned(), left);
                }
            }
        };
        tokio::time::timeout(DEADLINE, gone).await.unwrap()
    });
    assert_eq!(missing, ("cell-1".to_owned(), true));
}

#[test]
fn a_restart_finds_the_others_without_the_seed() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let first = cluster.cell("cell-1", &coordinator);
    let second = cluster.cell("cell-2", &coordinator);
    let all = ["c-1", "cell-1", "cell-2"];
    first.wait_for(&all);
    second.wait_for(&all);
    let file = cluster.path("cell-1").join("peers.json");
    let knows = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("cell-2"));
    wait(knows, || format!("{} does not name cell-2", file.display()));
    first.kill();
    let back = cluster.again("cell-1", &[]);
    back.wait_for(&all);
    second.wait_for(&all);
}

#[test]
fn what_a_cell_says_of_itself_reaches_all() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let first = cluster.cell("cell-1", &coordinator);
    let second = cluster.cell("cell-2", &coordinator);
    let name = first.mesh.me().name.clone();
    first.block_on(first.mesh.publish_info(sample_info(name.clone(), 1))).unwrap();
    for free in [100, 200, 300] {
        first.block_on(first.mesh.publish_load(sample_load(name.clone(), free))).unwrap();
    }
    for listener in [&coordinator, &second] {
        let newest = || {
            let members = listener.members();
            let cell = members.iter().find(|member| member.identity.name == name);
            cell.is_some_and(|cell| {
                let free = cell.load.as_ref().map(|load| load.free.memory_mb);
                cell.info.is_some() && free == Some(300)
            })
        };
        wait(newest, || format!("{:?}", listener.members()));
    }
    // Who joins later has it all from one peer.
    let late = cluster.cell("cell-3", &coordinator);
    let heard = || late.members().iter().any(|m| m.identity.name == name && m.load.is_some());
    wait(heard, || format!("{:?}", late.members()));
}

#[test]
fn both_sides_ask_on_the_link_that_the_cell_dialled() {
    let cluster = Cluster::new();
    cluster.appoint("c-1");
    let config = volvox_mesh::driver::MeshConfig {
        enrolment: Some(volvox_mesh::driver::enrolment(cluster.authority.clone())),
        ..cluster.config("c-1", &[])
    };
    let coordinator = Running::start(config, doubler());
    // A leaf is never dialled: what reaches it comes on its own link.
    let leaf = |config| volvox_mesh::driver::MeshConfig { profile: Profile::metered(), ..config };
    let cell = cluster.cell_with("cell-1", &coordinator, doubler(), leaf);
    coordinator.wait_for(&["c-1", "cell-1"]);
    cell.wait_for(&["c-1", "cell-1"]);
    let asked = cell.block_on(cell.mesh.ask(coordinator.id(), &Double(21), DEADLINE));
    assert_eq!(asked, Ok(42));
    let asked = coordinator.block_on(coordinator.mesh.ask(cell.id(), &Double(4), DEADLINE));
    assert_eq!(asked, Ok(8));
    assert_eq!(coordinator.mesh.links().len(), 1);
    assert!(!coordinator.mesh.links()[0].dialled);
    let nobody = volvox_mesh::identity::MemberId([7; 16]);
    let asked = cell.block_on(cell.mesh.ask(nobody, &Double(4), DEADLINE));
    assert_eq!(asked, Err(AskError::NoLink));
}

#[test]
fn a_leaf_is_known_without_coordinators_and_to_one_that_comes_again() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let cells: Vec<Running> =
        (1..=4).map(|n| cluster.cell(&format!("cell-{n}"), &coordinator)).collect();
    let leaf = |config| volvox_mesh::driver::MeshConfig { profile: Profile::metered(), ..config };
    let leaf = cluster.cell_with("leaf", &coordinator, doubler(), leaf);
    let all = ["c-1", "cell-1", "cell-2", "cell-3", "cell-4", "leaf"];
    cells.iter().for_each(|cell| cell.wait_for(&all));
    let linked = || leaf.mesh.links().len() == 3 && leaf.mesh.links().iter().all(|l| l.dialled);
    wait(linked, || format!("a link to the coordinator and two cells: {:?}", leaf.mesh.links()));
    let at = coordinator.at();
    coordinator.kill();
    cells.iter().for_each(|cell| cell.wait_for(&all[1..]));
    // What it says now goes by way of its peers.
    let load = sample_load(leaf.mesh.me().name.clone(), 77);
    let hears = |listener: &Running| {
        let members = listener.members();
        let leaf = members.iter().find(|member| member.identity.name.as_str() == "leaf");
        leaf.is_some_and(|leaf| leaf.load.as_ref() == Some(&load))
    };
    leaf.block_on(leaf.mesh.publish_load(load.clone())).unwrap();
    for cell in &cells {
        wait(|| hears(cell), || format!("{:?}", cell.members()));
    }
    // A coordinator that comes again, elsewhere, is told by a cell, and the leaf finds it.
    let coordinator = cluster.coordinator_again("c-1", stage::loopback(), &[cells[0].at()]);
    assert_ne!(coordinator.at(), at);
    wait(|| hears(&coordinator), || format!("{:?}", coordinator.members()));
    let ask = || leaf.block_on(leaf.mesh.ask(coordinator.id(), &Double(1), DEADLINE));
    wait(|| ask() != Err(AskError::NoLink), || format!("{:?}", leaf.mesh.links()));
}

fn revocation(member: &Running) -> Revocation {
    Revocation::new(member.id(), member.mesh.me().not_after)
}

/// An honest member that heard of it keeps it, and does not try. This one is not.
fn forget_that_it_is_revoked(cluster: &Cluster, name: &str) {
    let file = cluster.path(name).join("revoked");
    match std::fs::remove_file(&file) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}

#[test]
fn a_revoked_member_is_expelled_and_does_not_come_back() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let good = cluster.cell("cell-1", &coordinator);
    let bad = cluster.cell("cell-2", &coordinator);
    let all = ["c-1", "cell-1", "cell-2"];
    coordinator.wait_for(&all);
    good.wait_for(&all);
    bad.wait_for(&all);
    let mut events = bad.mesh.subscribe();
    coordinator.block_on(coordinator.mesh.revoke(vec![revocation(&bad)])).unwrap();
    coordinator.wait_for(&["c-1", "cell-1"]);
    good.wait_for(&["c-1", "cell-1"]);
    // It may hear of it, or find that nobody speaks to it any more.
    drop(events.try_recv());
    bad.kill();
    forget_that_it_is_revoked(&cluster, "cell-2");
    let again = cluster.again("cell-2", &[coordinator.at(), good.at()]);
    let refused = || {
        let status = coordinator.block_on(coordinator.mesh.status()).unwrap();
        status.transport.iter().any(|(name, count)| name == "bad_certificate" && count > 0)
            || status.refused.strangers > 0
    };
    wait(refused, || "nothing was refused".to_owned());
    assert_eq!(again.present(), ["cell-2"]);
    assert_eq!(coordinator.present(), ["c-1", "cell-1"]);
    let gone = coordinator.members().iter().any(|m| m.identity.name.as_str() == "cell-2");
    assert!(!gone, "a revoked member is in no list");
}

/// Cut off from all who could tell it: the coordinator is gone, and the expelled one is the first
/// that it meets.
#[test]
fn a_cell_that_begins_anew_without_coordinators_still_refuses_the_revoked() {
    let cluster = Cluster::new();
    let coordinator = cluster.coordinator("c-1");
    let good = cluster.cell("cell-1", &coordinator);
    let bad = cluster.cell("cell-2", &coordinator);
    good.wait_for(&["c-1", "cell-1", "cell-2"]);
    bad.wait_for(&["c-1", "cell-1", "cell-2"]);
    coordinator.block_on(coordinator.mesh.revoke(vec![revocation(&bad)])).unwrap();
    good.wait_for(&["c-1", "cell-1"]);
    let file = cluster.path("cell-1").join("revoked");
    let id = bad.id().to_string();
    let is_kept = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&id));
    wait(is_kept, || format!("{} does not name {id}", file.display()));
    let too_many = vec![revocation(&bad); REVOCATIONS + 1];
    let refused = coordinator.block_on(coordinator.mesh.revoke(too_many)).unwrap_err();
    assert!(refused.to_string().contains("the limit is 16000"), "{refused}");
    coordinator.kill();
    bad.kill();
    good.kill();
    forget_that_it_is_revoked(&cluster, "cell-2");
    let good = cluster.again("cell-1", &[]);
    let bad = cluster.again("cell-2", &[good.at()]);
    let refused = || {
        let status = good.block_on(good.mesh.status()).unwrap();
        status.transport.iter().any(|(name, count)| name == "bad_certificate" && count > 0)
    };
    wait(refused, || "nothing was refused".to_owned());
    assert_eq!((good.present(), bad.present()), (vec!["cell-1".into()], vec!["cell-2".into()]));
}

#[test]
fn certificates_are_renewed_long_before_they_end() {
    // The shortest life there is. It began five minutes ago, as all do, so it is past its half.
    let cluster = Cluster::with_validity(SHORTEST_VALIDITY);
    let coordinator = cluster.coordinator("c-1");
    let cell = cluster.cell("cell-1", &coordinator);
    let until =
        |running: &Running| running.block_on(running.mesh.status()).unwrap().certificate_until;
    let (first, second) = (until(&coordinator), until(&cell));
    wait(
        || until(&coordinator) > first && until(&cell) > second,
        || format!("{:?} and {:?} are as they were", until(&coordinator), until(&cell)),
    );
    // And others hear of it: both still take each other for present, under new certificates.
    let renewed = || {
        let seen = |by: &Running, of: &Running| {
            by.members().iter().any(|m| {
                m.identity.member == of.id()
                    && m.state == MemberState::Present
                    && m.identity.not_after >= until(of)
            })
        };
        seen(&coordinator, &cell) && seen(&cell, &coordinator)
    };
    wait(renewed, || "the other's certificate is the old one".to_owned());
    // What is on disk is the new one.
    drop(coordinator);
    cell.kill();
}
