//! What Diego's own simulation asserts of its auction.

use volvox_protocol::random::SplitMix;

use super::*;

/// As in Diego's simulation, a cell holds a hundred of the smallest; ours two hundred and fifty.
const ROOMY: CellCapacity = CellCapacity { memory_mb: 250, disk_mb: 250, containers: 250 };

#[test]
fn equal_cells_get_as_many_as_each_other_within_one() {
    for (cells_count, instances) in [(4, 8), (10, 40), (20, 200), (40, 800)] {
        for zones in [1, 2, 3] {
            let cells = cells(cells_count, zones, ROOMY);
            let starts = singles("p", instances, &needs(1, 1));
            let decided = decide(&AuctionSettings::default(), cells, starts, vec![], &());
            let mean = u32::try_from(instances / cells_count).unwrap();
            for count in decided.counts() {
                assert!(count.abs_diff(mean) <= 1, "{cells_count} × {instances}: {count}");
            }
        }
    }
}

/// Half of each size are processes of one instance, the other half are of a few large ones.
fn mixed(scale: usize, random: &mut SplitMix) -> Vec<LrpStart> {
    let mut starts = Vec::new();
    for (count, memory_mb) in [(1_800, 1), (200, 2), (50, 4)] {
        let half = count * scale / 2;
        starts.extend(singles(&format!("one-{memory_mb}"), half, &needs(memory_mb, 1)));
        let mut large = [0_u32; 4];
        (0..half).for_each(|_| large[random.below(4)] += 1);
        for (nth, instances) in large.into_iter().enumerate() {
            let name = format!("many-{memory_mb}-{nth}");
            starts.push(lrp(&name, 0..instances, needs(memory_mb, 1)));
        }
    }
    starts
}

#[test]
fn mixed_sizes_come_out_within_ten() {
    let mut random = SplitMix(7);
    for (cells_count, scale) in [(25, 1), (100, 4)] {
        let starts = mixed(scale, &mut random);
        let total: usize = starts.iter().map(|start| start.indices.len()).sum();
        assert_eq!(total, 2_050 * scale);
        let cells = cells(cells_count, 2, ROOMY);
        let decided = decide(&AuctionSettings::default(), cells, starts, vec![], &());
        assert!(decided.outcome.failures.is_empty());
        let mean = u32::try_from(total / cells_count).unwrap();
        for count in decided.counts() {
            assert!(count.abs_diff(mean) <= 10, "{count} of {mean}");
        }
    }
}

/// 95 cells and 5 empty ones, after a deploy. How many go to each depends on what "full" means.
fn deploy(settings: &AuctionSettings, in_use: u32) -> Vec<u32> {
    let all = cells(100, 2, capacity(100, 100, 100));
    let cells = all
        .into_iter()
        .enumerate()
        .map(|(nth, cell)| if nth < 95 { used(cell, in_use, in_use, in_use) } else { cell })
        .collect();
    let starts = singles("p", 500, &needs(1, 1));
    let decided = decide(settings, cells, starts, vec![], &());
    assert!(decided.outcome.failures.is_empty());
    decided.counts()
}

#[test]
fn five_empty_cells_beside_full_ones_share_what_comes() {
    let counts = deploy(&AuctionSettings::default(), 100);
    assert_eq!(counts[..95], [0; 95]);
    assert!(spread(&counts[95..]) <= 1, "{:?}", &counts[95..]);
}

#[test]
fn five_empty_cells_beside_half_full_ones_catch_up() {
    let counts = deploy(&AuctionSettings { starting_weight: 0, ..AuctionSettings::default() }, 50);
    let after: Vec<u32> = counts
        .iter()
        .enumerate()
        .map(|(nth, count)| count + if nth < 95 { 50 } else { 0 })
        .collect();
    assert!(spread(&after) <= 1, "{after:?}");
    // With starting containers weighing, empty cells are not run over: they take more than the
    // others, equally many each, and stay below them.
    let counts = deploy(&AuctionSettings::default(), 50);
    assert!(spread(&counts[..95]) <= 1 && spread(&counts[95..]) <= 1, "{counts:?}");
    assert!(counts[95] > counts[0] && counts[95] < counts[0] + 50, "{counts:?}");
}

#[test]
fn two_zones_get_equal_numbers_even_if_the_only_cell_of_one_is_loaded() {
    let total = capacity(1_000, 1_000, 1_000);
    let mut cells: Vec<FleetCell> =
        (0..10).map(|nth| cell(&format!("a{nth}"), "a", total)).collect();
    cells.push(used(cell("b0", "b", total), 900, 900, 900));
    let decided =
        decide(&AuctionSettings::default(), cells, vec![lrp("p", 0..20, needs(1, 1))], vec![], &());
    assert_eq!(decided.zones("p"), [10, 10]);
}

#[test]
fn index_0_comes_first_and_large_before_small_when_not_all_fits() {
    let cells = cells(2, 1, capacity(10, 100, 100));
    let starts = vec![lrp("large", [0, 1], needs(6, 1)), lrp("small", [0, 1, 2], needs(4, 1))];
    let decided = decide(&AuctionSettings::default(), cells, starts, vec![], &());
    let placed: Vec<String> = decided.placed().into_iter().map(|(work, _)| work).collect();
    assert_eq!(placed, ["large/0", "small/0", "large/1", "small/1"]);
    let text = "insufficient resources: memory".to_owned();
    assert_eq!(decided.failed(), [("small/2".to_owned(), text)]);
}

#[test]
fn with_bin_packing_counts_do_not_rise_with_the_index_inside_a_zone() {
    for (weight, starting_weight) in [(1, 0), (25, 1), (100, 1), (1_000, 0), (1_000_000, 5)] {
        let settings = AuctionSettings {
            bin_pack_weight: weight,
            starting_weight,
            ..AuctionSettings::default()
        };
        let starts = singles("p", 500, &needs(1, 1));
        let decided = decide(&settings, cells(20, 2, ROOMY), starts, vec![], &());
        let counts = decided.counts();
        for zone in 0..2 {
            let of_zone: Vec<u32> = counts.iter().copied().skip(zone).step_by(2).collect();
            assert!(of_zone.is_sorted_by(|a, b| a >= b), "weight {weight}: {of_zone:?}");
            assert!(weight < 100 || of_zone[0] > of_zone[9], "weight {weight}: {of_zone:?}");
        }
    }
}
