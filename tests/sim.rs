//! Whole fleets from seeds: [`volvox_tests::harness`] plays them, this says how many and what must come
//! of it. `make sim SEED=n` repeats one and tells its story.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use volvox_host::sync::{lock, unpoisoned};
use volvox_protocol::injected_bug::Bug;
use volvox_tests::harness::{Failure, Kind, Plan, run, shrink};

/// Every seed that ever failed, with the number of its cells and what it was.
const SEEDS: &str = include_str!("sim/seeds.txt");
/// Runs that shrinking may take.
const SHRINKING: usize = 60;

/// Plays all of these on all cores. Gives how often what happened, or the first that fails.
fn play(plans: &[Plan]) -> Result<BTreeMap<&'static str, u64>, Box<(Plan, Failure)>> {
    let next = AtomicUsize::new(0);
    let (counts, failed) = (Mutex::new(BTreeMap::new()), Mutex::new(None));
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let Some(plan) = plans.get(nth) else { return };
            let outcome = run(plan);
            if let Some(failure) = outcome.failure {
                let mut failed = lock(&failed);
                failed.get_or_insert((plan.clone(), failure));
                // Nobody takes another.
                next.store(usize::MAX / 2, Ordering::Relaxed);
                return;
            }
            let mut counts = lock(&counts);
            for (what, count) in outcome.counts {
                *counts.entry(what).or_default() += count;
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    match unpoisoned(failed.into_inner()) {
        Some(failed) => Err(Box::new(failed)),
        None => Ok(unpoisoned(counts.into_inner())),
    }
}

/// Panics with the story of what failed, and less of it.
fn expect_all(plans: &[Plan]) -> BTreeMap<&'static str, u64> {
    let (plan, failure) = match play(plans) {
        Ok(counts) => return counts,
        Err(failed) => *failed,
    };
    let (less, failure) = shrink(&plan, failure, SHRINKING);
    let story = run(&less.told()).story.join("\n");
    let (seed, cells, again) = (plan.seed, plan.cells, less.again());
    panic!(
        "seed {seed}: {failure}\n{story}\nthe least that fails alike: {again}\n\
         all of it: make sim SEED={seed} CELLS={cells}; when it is mended: add it to tests/sim/seeds.txt"
    );
}

fn plans(seeds: std::ops::Range<u64>, cells: usize) -> Vec<Plan> {
    seeds.map(|seed| Plan::new(seed, cells)).collect()
}

#[test]
fn two_thousand_fleets_of_fifty_cells_survive_all_trouble() {
    let counts = expect_all(&plans(0..2_000, 50));
    // A kind of trouble that never came about would prove nothing.
    for kind in Kind::ALL {
        assert!(counts.contains_key(kind.name()), "no {kind:?} in two thousand fleets");
    }
    let met = [
        "agent died in the middle",
        "assignments not written",
        "assignments torn",
        "cell and board differ",
        "check failed",
        "container never made",
        "container not destroyed",
        "container not made",
        "name used again",
        "not placed",
        "power lost in the middle",
        "power lost with containers",
        "record not kept",
        "task not started",
        "cell came or went during a commit",
        "commit without an answer",
        "coordinator died in a commit",
        "callback failed",
        "callback given up",
        "evacuated",
        "further page",
        "live container ended",
        "loss held",
        "order lost",
        "order not understood",
        "question without an answer",
        "report waited for a commit",
        "request put off",
        "shim died before it told",
        "shim hangs for a while",
        "shim hangs for ever",
        "shim is slow",
        "coordinator did not start",
        "older record",
        "report not understood",
        "sync",
        "wish granted",
        "wish refused",
    ];
    for what in met {
        assert!(counts.contains_key(what), "no {what:?} in two thousand fleets: {counts:?}");
    }
}

#[test]
fn small_fleets_survive_all_trouble() {
    for cells in [1, 2, 3, 6] {
        expect_all(&plans(10_000..10_150, cells));
    }
}

#[test]
fn fleets_of_a_thousand_cells_survive_all_trouble() {
    expect_all(&plans(0..3, 1_000));
}

#[test]
fn seeds_that_ever_failed_pass() {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let seed = words.next()?.parse().ok()?;
        let cells = words.next()?.parse().ok()?;
        Some(Plan::new(seed, cells))
    };
    let lines = SEEDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let plans: Vec<Plan> = lines.map(|line| read(line).expect(line)).collect();
    assert!(!plans.is_empty());
    expect_all(&plans);
}

/// What a failure prints must show the failure again: each word of it is read by the program.
#[test]
fn the_command_that_is_told_asks_for_the_same_run() {
    let without = Plan { kinds: [].into(), ..Plan::new(2, 3) };
    assert!(without.again().ends_with("--only none\""), "{}", without.again());
    for plan in [Plan::new(1, 8), Plan::new(7, 4), without] {
        let told = plan.again();
        let (words, args) = told.split_once(" ARGS=").expect("it has arguments");
        assert_eq!(words, format!("make sim SEED={} CELLS={}", plan.seed, plan.cells));
        let asked = std::process::Command::new(env!("CARGO_BIN_EXE_sim"))
            .args(["--seed", &plan.seed.to_string(), "--cells", &plan.cells.to_string()])
            .args(args.trim_matches('"').split(' '))
            .output()
            .expect("it is built");
        let said = String::from_utf8_lossy(&asked.stdout);
        assert_eq!(said.lines().next(), Some(&*format!("{:?}", plan.told())), "{told}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..5 {
        let plan = Plan::new(seed, 20).told();
        let (one, other) = (run(&plan), run(&plan));
        assert_eq!(one.story, other.story, "seed {seed}");
        assert_eq!(one.counts, other.counts, "seed {seed}");
    }
}

/// The deliberate bugs, and the number of seeds within which each must be found.
const WITHIN: [(Bug, u64); 35] = [
    (Bug::LostChange, 100),
    (Bug::NotTakenBack, 100),
    (Bug::AnswersRegardless, 100),
    (Bug::DroppedEvent, 20),
    (Bug::NeverStarted, 20),
    (Bug::KeepsWhatIsTheirs, 200),
    (Bug::RowsAreReused, 200),
    (Bug::TagsAreNotTold, 100),
    (Bug::LostTaskStartsAgain, 1_000),
    (Bug::LostTaskIsNotEnded, 1_500),
    (Bug::UncheckedClaim, 50),
    (Bug::SuspectStays, 200),
    (Bug::StartsAreNotRepeated, 50),
    (Bug::ClaimedIsNotReplaced, 500),
    (Bug::AlwaysFresh, 200),
    (Bug::NoSyncOnMismatch, 300),
    (Bug::MissingIsNotTold, 100),
    (Bug::RollNeverEnds, 20),
    (Bug::CrashIsIgnored, 20),
    (Bug::ForgetsExits, 1_000),
    (Bug::StaysAssigned, 100),
    (Bug::OneMoreInFlight, 100),
    (Bug::ForgetsTasks, 100),
    (Bug::UntoldIsForgotten, 300),
    (Bug::NamesakeIsForgotten, 1_000),
    (Bug::RequestsOvertake, 100),
    (Bug::OnePageIsEnough, 4_000),
    (Bug::LogIsNotSettled, 1_000),
    (Bug::LogIsNotEnded, 1_000),
    (Bug::UsableUnread, 2_000),
    (Bug::NewsIsRefused, 2_000),
    (Bug::NeverSuspects, 100),
    (Bug::NeverRefutes, 100),
    (Bug::TimersAreNotDelivered, 100),
    (Bug::TornIsKept, 500),
];

/// The simulator would be worth nothing if it passed everything.
#[test]
fn each_deliberate_bug_is_found() {
    assert_eq!(WITHIN.map(|(bug, _)| bug), Bug::FLEET, "each bug has its number");
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let Some((bug, within)) = WITHIN.get(nth).copied() else { return };
            let found = {
                let _on = bug.on();
                (0..within).find_map(|seed| Some((seed, run(&Plan::new(seed, 8)).failure?)))
            };
            match found {
                Some((seed, what)) => {
                    println!("{bug:?} is found by seed {seed} (of {within}): {what}");
                    // It is the bug that is found, not something else.
                    let without = run(&Plan::new(seed, 8)).failure;
                    assert_eq!(without, None, "seed {seed} fails without {bug:?} too");
                }
                None => missed.lock().unwrap().push((bug, within)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
