//! Members as real processes on machines of their own: network namespaces on one switch. They are
//! killed, stopped, cut off, moved, and lose packets. Needs root and the program `ip`.
//!
//! Most of the time goes by in waiting, so scenarios that wait for long share a test.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod namespaces {
    pub(crate) mod network;
    pub(crate) mod nft;
}
mod process;
mod stage;

use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use namespaces::network::{Machine, Network, address, at, can_run};
use namespaces::nft;
use nix::sys::signal::Signal;
use process::{Cluster, Member, Orders, PORT, exists};
use stage::wait;

/// Longer than the idle timeout of a link.
const LONGER_THAN_IDLE: Duration = Duration::from_secs(63);

/// A run of this is a member process; see `process`.
#[test]
fn member_process() {
    process::run_if_asked();
}

/// Everywhere, as an agent listens.
fn anywhere() -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, PORT).into()
}

/// A coordinator at place 1 and cells at the places after it.
struct Site {
    // Members end before their folders and machines do.
    coordinator: Option<Member>,
    cells: Vec<Member>,
    machines: Vec<Machine>,
    network: Network,
    cluster: Cluster,
}

const NAMES: [&str; 5] = ["c-1", "cell-2", "cell-3", "cell-4", "cell-5"];

impl Site {
    /// All know all at the end of it.
    fn new(cells: usize) -> Site {
        let cluster = Cluster::new(address(1));
        let network = Network::new();
        let places = 1..=u8::try_from(cells + 1).unwrap();
        let machines: Vec<Machine> = places.map(|place| network.machine(place)).collect();
        let coordinator = Some(machines[0].start(&cluster.coordinator(anywhere())));
        let mut site = Site { coordinator, cells: Vec::new(), machines, network, cluster };
        let started = (1..=cells).map(|n| site.machines[n].spawn(&site.orders(n)));
        site.cells = started.collect();
        site.cells.iter().for_each(|cell| {
            cell.begins();
        });
        site.all_know_all();
        site
    }

    /// Of the nth cell, counted from 1.
    fn orders(&self, n: usize) -> Orders {
        self.cluster.cell(NAMES[n], anywhere())
    }

    fn coordinator(&self) -> &Member {
        self.coordinator.as_ref().unwrap()
    }

    fn all(&self) -> impl Iterator<Item = &Member> {
        self.coordinator.iter().chain(&self.cells)
    }

    fn all_know_all(&self) {
        self.all().for_each(|member| member.wait_for(&NAMES[..self.machines.len()]));
    }

    /// MemberSelector the members found missing so far, in all.
    fn alarms(&self) -> Vec<(String, Vec<String>)> {
        let all = self.all().map(|member| (member.name.clone(), member.found_missing()));
        all.filter(|(_, missing)| !missing.is_empty()).collect()
    }

    /// Each group hears only itself. One group: all hear all.
    fn divide(&self, groups: &[&[u8]]) {
        for group in groups {
            let others = groups.iter().filter(|other| *other != group).copied().flatten();
            let others: Vec<_> = others.map(|place| at(*place)).collect();
            for place in *group {
                self.machines[usize::from(*place) - 1].inside(|| nft::deafen(&others));
            }
        }
    }
}

/// Waits for a while, in which nothing may happen.
fn let_pass(span: Duration) {
    let began = Instant::now();
    wait(|| began.elapsed() >= span, || "time stands still".to_owned());
}

/// Runs scenarios side by side.
fn both(first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(first);
        second();
    });
}

#[test]
fn a_killed_process_is_missing_everywhere_and_nobody_else_is() {
    if !can_run("a_killed_process_is_missing_everywhere_and_nobody_else_is") {
        return;
    }
    let mut site = Site::new(4);
    assert_eq!(site.alarms(), [], "nobody is missing while all join");
    let victim = site.cells.remove(1);
    assert_eq!(victim.name, "cell-3");
    victim.kill();
    site.all().for_each(|member| member.wait_for(&["c-1", "cell-2", "cell-4", "cell-5"]));
    for (name, missing) in site.alarms() {
        assert_eq!(missing, ["cell-3"], "as {name} found");
    }
}

#[test]
fn a_partition_of_any_length_heals() {
    if !can_run("a_partition_of_any_length_heals") {
        return;
    }
    both(short_partition, pulled_cable);
}

/// Each side sees itself alone, then all see all.
fn short_partition() {
    let site = Site::new(4);
    site.divide(&[&[1, 2, 3], &[4, 5]]);
    let (near, far) = (["c-1", "cell-2", "cell-3"], ["cell-4", "cell-5"]);
    site.coordinator().wait_for(&near);
    site.cells[..2].iter().for_each(|cell| cell.wait_for(&near));
    site.cells[2..].iter().for_each(|cell| cell.wait_for(&far));
    site.divide(&[&[1, 2, 3, 4, 5]]);
    site.all_know_all();
    site.cells[3].publish(777);
    site.coordinator().wait_for_load("cell-5", 777);
}

/// A cell without a cable for longer than any connection lasts.
fn pulled_cable() {
    let site = Site::new(3);
    site.network.cable(4, false);
    let began = Instant::now();
    site.coordinator().wait_for(&["c-1", "cell-2", "cell-3"]);
    site.cells[2].wait_for(&["cell-4"]);
    wait(
        || site.cells[2].state()["links"].as_array().unwrap().is_empty(),
        || format!("links outlive the cable: {:#}", site.cells[2].state()),
    );
    let_pass(LONGER_THAN_IDLE.saturating_sub(began.elapsed()));
    site.network.cable(4, true);
    site.all_know_all();
    site.coordinator().wait_for_answer_of("cell-4");
}

#[test]
fn neither_loss_nor_a_way_that_is_cut_makes_anybody_missing() {
    if !can_run("neither_loss_nor_a_way_that_is_cut_makes_anybody_missing") {
        return;
    }
    both(a_fifth_is_lost, one_way_is_cut);
}

/// 20 % on every way, for twenty seconds.
fn a_fifth_is_lost() {
    let site = Site::new(4);
    site.machines.iter().for_each(|machine| machine.inside(nft::lose_a_fifth));
    let_pass(Duration::from_secs(20));
    assert_eq!(site.coordinator().found_missing(), [""; 0]);
    site.all_know_all();
}

/// cell-2 hears cell-3, which does not hear cell-2. Others hear both.
fn one_way_is_cut() {
    let site = Site::new(4);
    site.machines[2].inside(|| nft::deafen(&[at(2)]));
    let_pass(Duration::from_secs(20));
    assert_eq!(site.coordinator().found_missing(), [""; 0]);
    site.all_know_all();
}

#[test]
fn who_stood_still_or_moved_comes_back_by_itself() {
    if !can_run("who_stood_still_or_moved_comes_back_by_itself") {
        return;
    }
    both(stands_still, moves);
}

/// A process that is stopped for twenty seconds.
fn stands_still() {
    let site = Site::new(3);
    let began = Instant::now();
    site.cells[0].signal(Signal::SIGSTOP);
    site.coordinator().wait_for(&["c-1", "cell-3", "cell-4"]);
    site.cells[1..].iter().for_each(|cell| cell.wait_for(&["c-1", "cell-3", "cell-4"]));
    let_pass(Duration::from_secs(20).saturating_sub(began.elapsed()));
    site.cells[0].signal(Signal::SIGCONT);
    site.all_know_all();
    for (name, missing) in site.alarms() {
        let others = missing.iter().any(|missing| missing != "cell-2");
        assert!(!others || name == "cell-2", "{name} found {missing:?} missing");
    }
}

/// A cell's machine gets another address while it runs.
fn moves() {
    let site = Site::new(3);
    // In this order: with its first address the kernel takes away the others of the same network.
    site.machines[1].ip(&format!("address del {}/24 dev eth0", at(2)));
    site.machines[1].ip(&format!("address add {}/24 dev eth0", at(22)));
    let there = address(22).to_string();
    for member in site.coordinator.iter().chain(&site.cells[1..]) {
        wait(
            || {
                let view = member.view("cell-2");
                view["address"] == there && view["standing"] == "Present"
            },
            || format!("{} sees {:#}", member.name, member.state()),
        );
    }
    site.all_know_all();
    site.coordinator().wait_for_answer_of("cell-2");
    site.cells[0].wait_for_answer_of("c-1");
    site.cells[0].publish(555);
    site.all().for_each(|member| member.wait_for_load("cell-2", 555));
    // Who restarts now must find it there.
    let file = site.cluster.path("cell-3").join("peers.json");
    wait(
        || std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&there)),
        || format!("{:?}", std::fs::read_to_string(&file)),
    );
}

#[test]
fn restarts_find_what_was_there() {
    if !can_run("restarts_find_what_was_there") {
        return;
    }
    both(coordinator_restarts, cell_restarts_without_coordinator);
}

/// Cells come back to it, with their loads.
fn coordinator_restarts() {
    let mut site = Site::new(3);
    for (free, cell) in (100..).zip(&site.cells) {
        cell.publish(free);
        site.coordinator().wait_for_load(&cell.name, free);
    }
    site.coordinator.take().unwrap().kill();
    site.cells.iter().for_each(|cell| cell.wait_for(&["cell-2", "cell-3", "cell-4"]));
    let orders = site.cluster.coordinator(anywhere());
    site.coordinator = Some(site.machines[0].start(&orders));
    site.all_know_all();
    for (free, cell) in (100..).zip(&site.cells) {
        site.coordinator().wait_for_load(&cell.name, free);
    }
}

/// Its seed is not there; it knows others from its last life.
fn cell_restarts_without_coordinator() {
    let mut site = Site::new(3);
    let file = site.cluster.path("cell-2").join("peers.json");
    let knows = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains("cell-3") && text.contains("cell-4")
    };
    wait(knows, || format!("{} does not name the others", file.display()));
    site.coordinator.take().unwrap().kill();
    site.cells.remove(0).kill();
    let back = site.machines[1].start(&site.orders(1));
    site.cells.push(back);
    site.all().for_each(|cell| cell.wait_for(&["cell-2", "cell-3", "cell-4"]));
}

#[test]
fn a_leaf_behind_nat_joins_publishes_and_is_asked_on_its_own_link() {
    if !can_run("a_leaf_behind_nat_joins_publishes_and_is_asked_on_its_own_link") {
        return;
    }
    let site = Site::new(1);
    let (_router, machine) = site.network.behind_nat(9);
    let profile = "metered".to_owned();
    let leaf = machine.start(&Orders { profile, ..site.cluster.cell("leaf", anywhere()) });
    let all = ["c-1", "cell-2", "leaf"];
    site.all().for_each(|member| member.wait_for(&all));
    site.coordinator().wait_for_answer_of("leaf");
    leaf.wait_for_answer_of("c-1");
    leaf.publish(321);
    site.all().for_each(|member| member.wait_for_load("leaf", 321));
    let links = site.coordinator().state()["links"].clone();
    let link = links.as_array().unwrap().iter().find(|link| link["name"] == "leaf").unwrap();
    assert_eq!(link["dialled"], false);
    assert!(link["at"].as_str().unwrap().starts_with("10.77.0.9:"), "{link}");
    assert_eq!(site.alarms(), []);
    // Without the coordinator it is known by its link to a cell, which it dialled too.
    let mut site = site;
    site.coordinator.take().unwrap().kill();
    site.cells[0].wait_for(&["cell-2", "leaf"]);
    leaf.publish(322);
    site.cells[0].wait_for_load("leaf", 322);
    site.coordinator = Some(site.machines[0].start(&site.cluster.coordinator(anywhere())));
    site.coordinator().wait_for(&all);
    site.coordinator().wait_for_load("leaf", 322);
    site.coordinator().wait_for_answer_of("leaf");
}

#[test]
fn a_seed_whose_name_is_not_known_at_first_is_found_soon_after_it_is() {
    if !can_run("a_seed_whose_name_is_not_known_at_first_is_found_soon_after_it_is") {
        return;
    }
    let site = Site::new(1);
    let hosts = site.cluster.path("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    let machine = site.network.machine(3).with_hosts(&hosts);
    let seeds = vec![format!("seed.volvox:{PORT}")];
    let cell = machine.start(&Orders { seeds, ..site.orders(2) });
    assert_eq!(cell.present(), ["cell-3"]);
    // In place: another file of that name would not be seen.
    let mut file = std::fs::OpenOptions::new().append(true).open(&hosts).unwrap();
    writeln!(file, "{} seed.volvox", at(1)).unwrap();
    site.all().chain([&cell]).for_each(|member| member.wait_for(&["c-1", "cell-2", "cell-3"]));
}

#[test]
fn a_full_disk_stops_no_member_and_is_named_when_one_starts() {
    if !can_run("a_full_disk_stops_no_member_and_is_named_when_one_starts") {
        return;
    }
    let site = Site::new(2);
    let folder = site.cluster.path("cell-4");
    std::fs::create_dir(&folder).unwrap();
    let machine = site.network.machine(4).with_small_disk(&folder, 64);
    let orders = site.cluster.cell("cell-4", anywhere());
    let cell = machine.start(&orders);
    assert!(!exists(&folder.join("member.key")), "others do not see that disk");
    let all = ["c-1", "cell-2", "cell-3", "cell-4"];
    site.all().chain([&cell]).for_each(|member| member.wait_for(&all));
    let why = cell.order(serde_json::json!("fill"));
    assert!(why.as_str().unwrap().contains("No space left"), "{why}");
    // It changes what it would write: a member less, and one more.
    let mut site = site;
    site.cells.pop().unwrap().kill();
    let rest = ["c-1", "cell-2", "cell-4"];
    site.all().chain([&cell]).for_each(|member| member.wait_for(&rest));
    cell.publish(99);
    site.coordinator().wait_for_load("cell-4", 99);
    cell.kill();
    let again = machine.spawn(&orders);
    let first = again.first();
    if first["event"] == "ready" {
        again.wait_for(&rest);
    } else {
        let error = first["error"].as_str().unwrap();
        assert!(error.contains("No space left") && error.contains("cell-4/"), "{error}");
    }
}
