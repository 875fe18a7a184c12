//! Everything that finds a death goes through foca's timers.

use std::panic::catch_unwind;

use volvox_protocol::injected_bug::Bug;

use super::{bounds, fleets, hostile, trouble};

/// The tests in which a member dies and must be found missing.
const DETECTION: [(&str, fn()); 7] = [
    ("who dies", fleets::who_dies_is_found_missing_by_all_and_nobody_else_is),
    ("who dies in a wide mesh", bounds::a_wide_mesh_finds_who_died_and_nobody_else),
    (
        "who dies without a coordinator",
        trouble::two_and_three_cells_find_a_death_without_a_coordinator,
    ),
    ("who dies behind a liar", hostile::a_liar_cannot_hide_a_death),
    ("a leaf", fleets::leaves_speak_to_coordinators_and_two_cells_and_are_watched),
    (
        "a leaf without a coordinator",
        fleets::a_leaf_that_dies_is_missing_without_any_coordinator_too,
    ),
    ("a leaf's peers", fleets::a_leaf_whose_peers_die_finds_others),
];

#[test]
fn every_detection_test_fails_when_foca_s_timers_are_not_delivered() {
    let passed = DETECTION.into_iter().filter(|(_, test)| {
        let _on = Bug::TimersAreNotDelivered.on();
        catch_unwind(test).is_ok()
    });
    let passed: Vec<&str> = passed.map(|(name, _)| name).collect();
    assert!(passed.is_empty(), "found without foca: {passed:?}");
}
