//! Each rule of the choice, and each error.

use super::*;
use crate::auction::settings::ZonePolicy;

const ROOM: CellCapacity = CellCapacity { memory_mb: 1_000, disk_mb: 1_000, containers: 100 };

fn at(cells: &[(&str, usize)]) -> Vec<CellId> {
    let many = cells.iter().flat_map(|(cell, count)| std::iter::repeat_n(*cell, *count));
    many.map(|cell| CellId::new(cell).unwrap()).collect()
}

/// The cell of the only piece of work.
#[track_caller]
fn check(cells: Vec<FleetCell>, residents: &[(&str, usize)], expected: &str) {
    let residents = BTreeMap::from([(process("p"), at(residents))]);
    let starts = vec![lrp("p", [0], needs(10, 10))];
    let decided = decide(&AuctionSettings::default(), cells, starts, vec![], &residents);
    assert_eq!(decided.placed(), [("p/0".to_owned(), expected.to_owned())]);
}

/// What the consumer of the only piece of work reads.
#[track_caller]
fn check_error(cells: Vec<FleetCell>, want: Requirements, expected: &str) {
    let decided = decide(
        &AuctionSettings::default(),
        cells,
        vec![lrp("p", [0], Arc::new(want))],
        vec![],
        &(),
    );
    assert_eq!(decided.failed(), [("p/0".to_owned(), expected.to_owned())]);
}

#[test]
fn the_zone_with_the_fewest_instances_wins_over_everything() {
    let busy = used(cell("b", "z2", ROOM), 900, 900, 90);
    check(vec![cell("a1", "z1", ROOM), cell("a2", "z1", ROOM), busy.clone()], &[("a1", 1)], "b");
    let residents = [("a1", 2), ("b", 1)];
    check(vec![cell("a1", "z1", ROOM), cell("a2", "z1", ROOM), busy], &residents, "b");
}

#[test]
fn within_a_zone_the_cell_with_the_fewest_instances_wins_over_load() {
    let busy = used(cell("b", "z", ROOM), 900, 900, 90);
    check(vec![cell("a", "z", ROOM), busy.clone()], &[("a", 1)], "b");
    check(vec![cell("a", "z", ROOM), busy.clone()], &[("a", 2), ("b", 1)], "b");
    check(vec![cell("a", "z", ROOM), busy], &[("a", 1), ("b", 1)], "a");
}

#[test]
fn otherwise_the_least_used_cell_wins() {
    for more in [(20, 0, 0), (0, 20, 0), (0, 0, 20)] {
        let fuller = used(cell("a", "z", ROOM), more.0, more.1, more.2);
        check(vec![fuller, cell("b", "z", ROOM)], &[], "b");
    }
    let starting = FleetCell { starting: 1, ..cell("a", "z", ROOM) };
    check(vec![starting, cell("b", "z", ROOM)], &[], "b");
}

#[test]
fn a_fuller_zone_is_taken_when_the_emptier_has_no_room() {
    let full = used(cell("b", "z2", ROOM), 995, 0, 0);
    check(vec![cell("a", "z1", ROOM), full], &[("a", 3)], "a");
}

#[test]
fn cells_that_are_unhealthy_or_evacuating_get_nothing() {
    for standing in
        [Eligibility::Unhealthy, Eligibility::Evacuating, Eligibility::Silent, Eligibility::Refused]
    {
        let out = FleetCell { standing, ..cell("a", "z1", ROOM) };
        check(vec![out.clone(), used(cell("b", "z2", ROOM), 900, 0, 0)], &[("b", 5)], "b");
        // One that refused work is there, and has less than it said.
        let expected = if standing == Eligibility::Refused {
            "insufficient resources"
        } else {
            "unable to communicate to compatible cells"
        };
        check_error(vec![out], (*needs(1, 1)).clone(), expected);
    }
}

#[test]
fn cells_are_packed_in_order_even_if_the_weight_is_too_large_to_count() {
    for bin_pack_weight in [1_000, u32::MAX] {
        let settings = AuctionSettings { bin_pack_weight, ..AuctionSettings::default() };
        let fleet = cells(200, 2, capacity(100, 100, 10));
        let starts = singles("p", 500, &needs(30, 1));
        let decided = decide(&settings, fleet, starts, vec![], &());
        for zone in 0..2 {
            let counts: Vec<u32> = decided.counts().into_iter().skip(zone).step_by(2).collect();
            assert!(counts.is_sorted_by(|a, b| a >= b), "{bin_pack_weight}: {counts:?}");
        }
    }
}

#[test]
fn work_that_nobody_can_take_does_not_stop_what_comes_after() {
    let fleet = vec![cell("a", "z", capacity(100, 10, 10)), cell("b", "z", capacity(10, 100, 10))];
    let starts = vec![
        lrp("memory", [0], needs(101, 1)),
        lrp("both", [0], needs(50, 50)),
        lrp("fits-a", [0], needs(50, 10)),
        lrp("fits-b", [0], needs(10, 50)),
        lrp("both-again", [0], needs(60, 60)),
    ];
    let decided = decide(&AuctionSettings::default(), fleet, starts, vec![], &());
    let placed = [("fits-a/0", "a"), ("fits-b/0", "b")];
    assert_eq!(decided.placed(), placed.map(|(work, cell)| (work.to_owned(), cell.to_owned())));
    let failed = [
        ("memory/0", "insufficient resources: memory"),
        ("both-again/0", "insufficient resources"),
        ("both/0", "insufficient resources"),
    ];
    let failed = failed.map(|(work, why)| (work.to_owned(), why.to_owned()));
    assert_eq!(decided.failed(), failed);
}

#[test]
fn cells_of_many_kinds_are_told_apart() {
    let fleet: Vec<FleetCell> = (0..300)
        .map(|nth| {
            let tag = format!("tag-{}", nth % 100);
            info(cell(&format!("c{nth:03}"), "z", ROOM), |it| it.placement_tags = vec![tag])
        })
        .collect();
    let built = Fleet::new(fleet.clone());
    assert_eq!(built.kinds().len(), 100);
    assert_eq!(built.kind_of(7), built.kind_of(107));
    let want = Requirements { placement_tags: vec!["tag-42".to_owned()], ..(*needs(1, 1)).clone() };
    let starts = vec![lrp("p", 0..3, Arc::new(want))];
    let decided = decide(&AuctionSettings::default(), fleet, starts, vec![], &());
    let mut on: Vec<String> = decided.placed().into_iter().map(|(_, cell)| cell).collect();
    on.sort();
    assert_eq!(on, ["c042", "c142", "c242"]);
}

#[test]
fn instances_on_unhealthy_cells_count_for_their_zone_and_those_on_evacuating_ones_do_not() {
    let fleet = |standing| {
        vec![
            FleetCell { standing, ..cell("a1", "z1", ROOM) },
            cell("a2", "z1", ROOM),
            used(cell("b", "z2", ROOM), 500, 0, 0),
        ]
    };
    check(fleet(Eligibility::Unhealthy), &[("a1", 1)], "b");
    check(fleet(Eligibility::Evacuating), &[("a1", 1)], "a2");
}

#[test]
fn tasks_go_by_load_alone() {
    let fleet = vec![cell("a", "z1", ROOM), used(cell("b", "z2", ROOM), 500, 500, 50)];
    let tasks = vec![task("t1", needs(10, 10)), task("t2", needs(10, 10))];
    let decided = decide(&AuctionSettings::default(), fleet, vec![], tasks, &());
    let placed: Vec<String> = decided.placed().into_iter().map(|(_, cell)| cell).collect();
    assert_eq!(placed, ["a", "a"], "not even to spread over zones");
}

#[test]
fn definitions_of_one_process_are_spread_as_one() {
    let old = lrp("p", [0], needs(10, 10));
    let new = LrpStart { definition_id: "v2".parse().unwrap(), ..old.clone() };
    let fleet = vec![cell("a", "z1", ROOM), used(cell("b", "z2", ROOM), 900, 900, 90)];
    let decided = decide(&AuctionSettings::default(), fleet, vec![old, new], vec![], &());
    assert_eq!(decided.counts(), [1, 1]);
}

#[test]
fn each_error_names_what_was_nearest() {
    let want = |change: fn(&mut Requirements)| {
        let mut want = (*needs(10, 10)).clone();
        change(&mut want);
        want
    };
    let drivers = info(cell("b", "z2", ROOM), |it| it.volume_drivers = vec!["nfs".to_owned()]);
    let tagged = info(cell("c", "z3", ROOM), |it| it.placement_tags = vec!["gpu".to_owned()]);
    let all = || vec![cell("a", "z1", ROOM), drivers.clone(), tagged.clone()];
    check_error(
        all(),
        want(|it| it.rootfs = "docker:x".to_owned()),
        "found no compatible cell for required rootfs",
    );
    check_error(
        all(),
        want(|it| it.volume_drivers = vec!["smb".to_owned()]),
        "found no compatible cell with required volume drivers",
    );
    check_error(
        all(),
        want(|it| {
            it.volume_drivers = vec!["nfs".to_owned()];
            it.placement_tags = vec!["a".to_owned(), "b".to_owned()];
        }),
        "found no compatible cell with placement tags \"a\" and \"b\"",
    );
    check_error(
        vec![tagged.clone()],
        want(|_| ()),
        "found no compatible cell with no placement tags",
    );
    check_error(all(), want(|it| it.memory_mb = 1_001), "insufficient resources: memory");
    check_error(
        all(),
        want(|it| (it.memory_mb, it.disk_mb) = (1_001, 1_001)),
        "insufficient resources: disk, memory",
    );
    let no_memory = used(cell("a", "z", ROOM), 1_000, 0, 0);
    let no_disk = used(cell("b", "z", ROOM), 0, 1_000, 0);
    let no_container = used(cell("c", "z", ROOM), 0, 0, 100);
    check_error(vec![no_memory, no_disk], want(|_| ()), "insufficient resources");
    check_error(vec![no_container], want(|_| ()), "insufficient resources: containers");
    check_error(vec![], want(|_| ()), "unable to communicate to compatible cells");
}

#[test]
fn the_limit_on_starts_counts_all_cells_and_this_round() {
    let settings = AuctionSettings { in_flight_starts: 5, ..AuctionSettings::default() };
    let fleet = vec![
        FleetCell { starting: 1, ..cell("a", "z", ROOM) },
        FleetCell { starting: 2, standing: Eligibility::Evacuating, ..cell("b", "z", ROOM) },
    ];
    let starts = vec![lrp("p", 0..3, needs(1, 1))];
    let decided = decide(&settings, fleet, starts, vec![task("t", needs(1, 1))], &());
    assert_eq!(decided.placed().len(), 2);
    let text = "waiting to start instance: reached in-flight start limit".to_owned();
    assert_eq!(decided.failed(), [("p/1".to_owned(), text.clone()), ("p/2".to_owned(), text)]);
}

#[test]
fn two_clusters_do_not_fill_the_same_cell_first() {
    let first = |seed| {
        let settings = AuctionSettings { seed, ..AuctionSettings::default() };
        let starts = vec![lrp("p", [0], needs(1, 1))];
        decide(&settings, cells(50, 1, ROOM), starts, vec![], &()).placed()[0].1.clone()
    };
    let chosen: std::collections::BTreeSet<String> = (0..20).map(first).collect();
    assert!(chosen.len() > 10, "{chosen:?}");
    assert_eq!(first(3), first(3));
}

fn preferred(zones: &[&str]) -> AuctionSettings {
    let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
    AuctionSettings { zone_policy: ZonePolicy::Preferred { zones }, ..AuctionSettings::default() }
}

#[test]
fn a_preferred_zone_follows_from_process_and_index() {
    for names in [&[][..], &["z0", "z1", "z2"]] {
        for guid in ["p", "q", "r", "s"] {
            let starts = vec![lrp(guid, 0..6, needs(1, 1))];
            let decided = decide(&preferred(names), cells(6, 3, ROOM), starts, vec![], &());
            let zones: Vec<u32> = {
                let placements = decided.outcome.placements.iter();
                placements.map(|it| decided.fleet.zone_of(it.cell as usize)).collect()
            };
            let first = zones[0];
            let expected: Vec<u32> = (0..6).map(|index| (first + index) % 3).collect();
            assert_eq!(zones, expected, "the placements are in the order of the indices");
        }
    }
}

#[test]
fn the_first_two_indices_may_leave_their_preferred_zone_and_the_others_wait() {
    // Only z0 has cells: two of three indices prefer a zone that has no room.
    let starts = vec![lrp("p", 0..6, needs(1, 1))];
    let fleet = || cells(4, 1, ROOM);
    let settings = preferred(&["z0", "z1", "z2"]);
    let decided = decide(&settings, fleet(), starts.clone(), vec![], &());
    let placed: Vec<String> = decided.placed().into_iter().map(|(work, _)| work).collect();
    assert!(placed.starts_with(&["p/0".to_owned(), "p/1".to_owned()]), "{placed:?}");
    let at_home = decided.placed().len();
    assert!((2..=4).contains(&at_home), "{placed:?}");
    for (_, error) in decided.failed() {
        assert_eq!(error, "unable to communicate to compatible cells");
    }
    let full: Vec<FleetCell> = cells(6, 3, ROOM)
        .into_iter()
        .map(|it| if it.info.zone == "z0" { it } else { used(it, 1_000, 0, 0) })
        .collect();
    let decided = decide(&settings, full, starts, vec![], &());
    assert_eq!(decided.placed().len(), at_home);
    assert!(decided.failed().iter().all(|(_, it)| it == "insufficient resources: memory"));
}
