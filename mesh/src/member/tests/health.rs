//! A tenth of the members is starved of the processor. What that does to the others, and how much of
//! the good is done by the health multiplier alone: the same meshes run once more without it.

use std::ops::Range;
use std::time::Duration;

use volvox_protocol::random::SplitMix;

use crate::profile::Profile;
use crate::simulation::Simulation;

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(50);
const CELLS: usize = 40;
const STARVED: [usize; 4] = [3, 13, 23, 33];

/// What came of it, in all meshes together.
#[derive(Debug, Default)]
struct Outcome {
    /// Members that were there and were found missing, by anybody.
    alarms: usize,
    /// Of these, members that were well.
    alarms_of_healthy: usize,
    /// Of these, what the coordinator found.
    alarms_at_coordinator: usize,
    /// How often a starved member suspected a healthy one.
    suspicions: usize,
    /// The worst health of a starved member.
    worst: u32,
}

/// Runs three meshes for ten minutes each. `starve` is called for each starved member every three
/// seconds, with a time that `span` says, in milliseconds.
fn starved(
    profile: &Profile,
    span: Range<u64>,
    starve: impl Fn(&mut Simulation, usize, Duration),
) -> Outcome {
    let mut outcome = Outcome::default();
    for seed in 1..=3 {
        let mut mesh = Simulation::fleet(seed, CELLS, profile, SECOND);
        mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all).expect("all know all");
        mesh.run_for(SECOND * 3);
        mesh.record_news = true;
        let mut random = SplitMix(seed);
        for _ in 0..200 {
            for place in STARVED {
                let millis = span.start + random.next() % (span.end - span.start);
                starve(&mut mesh, place, Duration::from_millis(millis));
            }
            for _ in 0..30 {
                mesh.run_for(SECOND / 10);
                let health = STARVED.iter().map(|place| mesh.member(*place).health());
                outcome.worst = health.fold(outcome.worst, u32::max);
            }
        }
        let is_starved = |place: usize| STARVED.contains(&place);
        assert!(mesh.alarms.iter().all(|alarm| alarm.is_false), "nobody died");
        outcome.alarms += mesh.alarms.len();
        outcome.alarms_of_healthy += mesh.alarms.iter().filter(|a| !is_starved(a.of)).count();
        outcome.alarms_at_coordinator += mesh.alarms.iter().filter(|a| a.by == 0).count();
        let wrong = |(by, of, _): &&(usize, usize, _)| is_starved(*by) && !is_starved(*of);
        outcome.suspicions += mesh.suspicions.iter().filter(wrong).count();
    }
    outcome
}

/// Frozen for 0.2 to 2 seconds, about a third of the time.
#[test]
fn the_starved_neither_suspect_the_healthy_wrongly_nor_are_taken_for_dead() {
    let outcome = starved(&Profile::lan(), 200..2_000, Simulation::pause);
    println!("{outcome:?}");
    assert!(outcome.worst >= 1, "the starved mistrust themselves");
    assert_eq!(outcome.alarms_of_healthy, 0);
    assert_eq!(outcome.alarms_at_coordinator, 0);
    assert!(outcome.alarms <= 3 && outcome.suspicions <= 6, "{outcome:?}");
}

/// Who is frozen comes late to its timers, and forgives for that alone. Who has a backlog of packets
/// finds its timers on time and the answers missing: only its health tells it that it is to blame.
#[test]
fn the_overloaded_suspect_the_healthy_by_the_hundred_without_the_health_multiplier() {
    let backlog = |mesh: &mut Simulation, place, span| {
        mesh.backlog.insert(place, span);
    };
    let without = Profile { worst_health: 0, ..Profile::lan() };
    // The longest backlog in milliseconds; the most suspicions with, the fewest without.
    for (longest, most, fewest) in [(1_500, 5, 500), (2_000, 5, 1_000), (6_000, 1_000, 3_000)] {
        let with = starved(&Profile::lan(), 0..longest, backlog);
        let without = starved(&without, 0..longest, backlog);
        println!("up to {longest} ms\n  with    {with:?}\n  without {without:?}");
        assert!(with.suspicions <= most, "up to {longest} ms: {with:?}");
        assert!(without.suspicions >= fewest, "up to {longest} ms: {without:?}");
        let (few, many) = (with.alarms_of_healthy, without.alarms_of_healthy);
        assert!(few * 5 <= many, "up to {longest} ms: {few} of the healthy missing, or {many}");
        assert!(longest < 6_000 || many > 0, "they are no mere words: {without:?}");
    }
}
