//! A hundred thousand random command sequences, and what must hold whatever comes.
//!
//! `play.rs` makes steps from a seed, `watch.rs` takes them one by one and looks at the board after
//! each (`heard.rs` listens to the events, `fits.rs` looks at effects and tags), `quiet.rs` lets
//! obedient cells bring it to rest, `seen.rs` looks whether the steps reach what they are about. A
//! failure prints its seed and the fewest steps that still fail; put the seed into `seeds.txt` when
//! mending the bug.

mod calm;
mod fits;
mod heard;
mod play;
mod quiet;
mod rolls;
mod seen;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};

use play::{Cast, Random, Step};
use watch::Watch;

/// Sequences of one test. Ten tests run them, so that every core has some.
const SEQUENCES: u64 = 10_000;

/// Steps of one sequence, about.
const STEPS: u64 = 40;

/// Runs `steps` and gives back its complaint; a panic is one too.
fn caught(steps: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(steps)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("with something else than text")))
    })
}

/// Makes steps from the seed and takes them, then lets the board come to rest.
fn play(cast: &Cast, seed: u64, taken: &mut Vec<Step>) -> Result<(), String> {
    caught(|| {
        let mut random = Random(seed);
        let mut watch = Watch::new(play::settings(seed));
        for _ in 0..random.below(2 * STEPS) + 1 {
            let step = cast.next(seed, &mut random, &watch.board);
            taken.push(step.clone());
            watch.take(step)?;
        }
        quiet::comes_to_rest(cast, &mut watch)
    })
}

/// Takes the same steps again, or some of them.
fn replay(cast: &Cast, seed: u64, steps: &[Step]) -> Result<(), String> {
    caught(|| {
        let mut watch = Watch::new(play::settings(seed));
        for step in steps {
            watch.take(step.clone())?;
        }
        quiet::comes_to_rest(cast, &mut watch)
    })
}

/// Leaves out steps as long as what is left still fails.
fn fewest(cast: &Cast, seed: u64, mut steps: Vec<Step>) -> Vec<Step> {
    let mut nth = steps.len();
    while nth > 0 {
        nth -= 1;
        let mut without = steps.clone();
        without.remove(nth);
        if replay(cast, seed, &without).is_err() {
            steps = without;
        }
    }
    steps
}

fn check(cast: &Cast, seed: u64) {
    let mut steps = Vec::new();
    if play(cast, seed, &mut steps).is_ok() {
        return;
    }
    let steps = fewest(cast, seed, steps);
    let why = replay(cast, seed, &steps).expect_err("it failed a moment ago");
    let told: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
    panic!("seed {seed}: {why}\nafter {} steps:\n{}", steps.len(), told.join("\n"));
}

#[test]
fn seeds_that_failed_before_hold() {
    let cast = Cast::new();
    for line in include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        let number = line.split_whitespace().next().expect("a seed stands first in its line");
        check(&cast, number.parse().unwrap());
    }
}

#[test]
fn the_sequences_reach_what_they_are_about() {
    reach(0).is_complete(&seen::COMMANDS, &seen::SITUATIONS);
}

#[test]
fn the_random_rolls_reach_what_they_are_about() {
    reach(rolls::ROLLS).is_complete(&seen::ROLL_COMMANDS, &seen::ROLL_SITUATIONS);
}

/// What two thousand sequences meet.
fn reach(from: u64) -> seen::Seen {
    let cast = Cast::new();
    let mut seen = seen::Seen::default();
    for seed in from..from + 2_000 {
        let mut random = Random(seed);
        let mut watch = Watch::new(play::settings(seed));
        for _ in 0..random.below(2 * STEPS) + 1 {
            let step = cast.next(seed, &mut random, &watch.board);
            let told = step.clone();
            let before = watch.board.clone();
            let verdict = watch.take(step).unwrap();
            seen.look(&before, &told, verdict.as_ref(), &watch.board);
        }
    }
    seen
}

/// One test for each share of the seeds.
macro_rules! shares {
    ($from:expr; $($name:ident: $share:literal),* $(,)?) => {$(
        #[test]
        fn $name() {
            let cast = Cast::new();
            let first = $share * SEQUENCES + $from;
            for seed in first..first + SEQUENCES {
                check(&cast, seed);
            }
            println!("{SEQUENCES} sequences hold from seed {first}");
        }
    )*};
}

shares! { 0;
    random_sequences_hold_0: 0,
    random_sequences_hold_1: 1,
    random_sequences_hold_2: 2,
    random_sequences_hold_3: 3,
    random_sequences_hold_4: 4,
    random_sequences_hold_5: 5,
    random_sequences_hold_6: 6,
    random_sequences_hold_7: 7,
    random_sequences_hold_8: 8,
    random_sequences_hold_9: 9,
}

shares! { rolls::ROLLS;
    random_rolls_hold_0: 0,
    random_rolls_hold_1: 1,
    random_rolls_hold_2: 2,
    random_rolls_hold_3: 3,
    random_rolls_hold_4: 4,
}
