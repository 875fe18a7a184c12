//! Meshes of ten to ten thousand members, simulated: one coordinator, cells, the profile `lan`.
//!
//! The parts run on two threads, those of 10,000 members on one of them, and say on stderr how far they
//! are; the tables come in order at the end.

mod measures;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use volvox_bench::figures::{Figures, percentile};
use volvox_mesh::profile::Profile;

use self::measures::{FalseAlarms, Hardship, SECOND};

/// How many die in one mesh.
const VICTIMS: usize = 20;
/// How many cells change their load, one after another.
const CHANGES: usize = 100;
const HOUR: Duration = Duration::from_secs(3_600);
/// What a tenth of the members is made to suffer, and for how long: with more to happen it takes
/// longer to simulate.
const HARDSHIPS: [(&str, Hardship, Duration); 3] = [
    (
        "starved",
        Hardship::Pauses(Duration::from_millis(200), Duration::from_millis(1_500)),
        Duration::from_millis(600_000),
    ),
    // Longer than the mesh waits for anybody: most of what is found then is true while it is found.
    (
        "stopped",
        Hardship::Pauses(Duration::from_millis(1_000), Duration::from_millis(8_000)),
        Duration::from_millis(60_000),
    ),
    (
        "overloaded",
        Hardship::Backlog(Duration::from_millis(0), Duration::from_millis(2_000)),
        Duration::from_millis(60_000),
    ),
];

/// What one part found: text to be read, and figures.
#[derive(Default)]
struct Found {
    text: String,
    figures: Vec<(String, f64, &'static str)>,
    false_alarms: FalseAlarms,
}

impl Found {
    fn line(&mut self, what: &str, value: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "  {what:<58} {value}");
    }
}

/// Something to be measured on its own.
struct Part {
    name: &'static str,
    what: String,
    is_large: bool,
    measure: Box<dyn Fn() -> anyhow::Result<Found> + Send + Sync>,
}

/// Measures the part of this name, or all if it is empty.
#[expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]
pub(crate) fn run(figures: &mut Figures, only: &str) -> anyhow::Result<()> {
    let mut parts = parts();
    parts.retain(|part| only.is_empty() || part.name == only);
    ensure!(!parts.is_empty(), "there is no part {only:?} of the simulated mesh");
    let all = side_by_side(&parts)?;
    println!("--- the mesh, simulated (real members; network, clock and signatures simulated)");
    let (mut failed, mut day) = (Vec::new(), Vec::new());
    // The long ones begin first, the short ones are told first. One that fails takes no other with it.
    for (part, found) in parts.iter().zip(all).rev() {
        match found {
            Ok(found) => {
                println!("{}\n{}", part.what, found.text);
                for (name, value, unit) in found.figures {
                    figures.note(&name, value, unit);
                }
                day.extend((part.name == "day").then_some(found.false_alarms.all));
            }
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    // The day came in two halves.
    let name = "mesh.false_alarms.1000x24h.loss5";
    match day[..] {
        [first, second] => figures.note(name, (first + second) as f64, "in 24,000 member-hours"),
        [] if !only.is_empty() && only != "day" => {}
        _ => figures.missing(name, "", "a half of the day failed"),
    }
    if !failed.is_empty() {
        println!("could not be measured: {}", failed.join("; "));
    }
    Ok(())
}

fn parts() -> Vec<Part> {
    type Measure = Box<dyn Fn() -> anyhow::Result<Found> + Send + Sync>;
    let part = |name: &'static str, what: &str, measure: Measure| {
        let is_large = name.ends_with("10000");
        Part { name, what: what.to_owned(), is_large, measure }
    };
    vec![
        part(
            "10000",
            "10,000 members, beginning within 60 s",
            Box::new(|| large(10_000, SECOND * 60, 10)),
        ),
        part(
            "tenth.10000",
            "10,000 members, a tenth killed at once, five seeds",
            Box::new(|| tenth(10_000, SECOND * 60)),
        ),
        part("day", "half a day of 1,000 members at 5 % loss, seed 1", Box::new(|| half_day(1))),
        part("day", "half a day of 1,000 members at 5 % loss, seed 2", Box::new(|| half_day(2))),
        part("alarms", "false alarms among 1,000 members", Box::new(alarms)),
        part(
            "1000",
            "1,000 members, beginning within 10 s",
            Box::new(|| large(1_000, SECOND * 10, 20)),
        ),
        part(
            "tenth.1000",
            "1,000 members, a tenth killed at once, five seeds",
            Box::new(|| tenth(1_000, SECOND * 10)),
        ),
        part("small", "10, 50 and 200 members, and a leaf", Box::new(small)),
    ]
}

/// Runs the parts on two threads, those of 10,000 members (15 GB of memory each) after each other on
/// one of them; what they found, in order.
#[expect(clippy::print_stderr, reason = "long work says how far it is")]
fn side_by_side(parts: &[Part]) -> anyhow::Result<Vec<anyhow::Result<Found>>> {
    let start = Instant::now();
    let measure = |Part { what, measure, .. }: &Part| {
        eprintln!("mesh: {:>4} s: {what}", start.elapsed().as_secs());
        let outcome = measure().with_context(|| what.clone());
        let text = outcome.as_ref().map_or("failed\n", |found| &found.text);
        eprintln!("mesh: {:>4} s: done: {what}\n{text}", start.elapsed().as_secs());
        outcome
    };
    let those = |large: bool| {
        let nth = parts.iter().enumerate();
        nth.filter(|(_, part)| part.is_large == large)
            .map(|(nth, part)| (nth, measure(part)))
            .collect::<Vec<_>>()
    };
    let mut found = std::thread::scope(|scope| {
        let large = scope.spawn(|| those(true));
        let mut found = those(false);
        found.extend(large.join().ok().context("a part panicked")?);
        anyhow::Ok(found)
    })?;
    found.sort_by_key(|(nth, _)| *nth);
    Ok(found.into_iter().map(|(_, outcome)| outcome).collect())
}

#[expect(clippy::print_stderr, reason = "long work says how far it is")]
fn progress(what: String) -> impl Fn(u32) {
    move |percent| eprintln!("mesh:         {what}: {percent} %")
}

/// All there is to say of a large mesh.
fn large(members: usize, spread: Duration, busy_seconds: u32) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let step = progress(format!("{members} members"));
    let cpu = cpu_seconds();
    let (mut fleet, took) = measures::joined(1, members, spread)?;
    found.line("all know all, after the last start", &seconds(took));
    found.figures.push((format!("mesh.join.{members}.s"), took.as_secs_f64(), "s"));
    step(30);
    if members <= 1_000 {
        let took = measures::settle(&mut fleet)?;
        found.line("and all infos and loads, after that", &seconds(took));
    } else {
        // What all cells said at their start takes its time within everybody's budget of bytes.
        fleet.run_for(SECOND * 40);
    }
    step(50);
    let count = if members <= 1_000 { CHANGES } else { 20 };
    let changes = measures::load_changes(&mut fleet, members, count)?;
    for (whom, times) in
        [("the coordinator", &changes.coordinator_ms), ("99 % of all", &changes.most_ms)]
    {
        let [p50, p99] = [50, 99].map(|part| percentile(times, part));
        let value = format!("p50 {p50:.1} ms, p99 {p99:.1} ms ({count} changes)");
        found.line(&format!("a load change reaches {whom}"), &value);
        let name =
            if whom == "the coordinator" { "load_to_coordinator" } else { "load_to_99_percent" };
        for (nth, value) in [("p50", p50), ("p99", p99)] {
            found.figures.push((format!("mesh.{name}.{members}.{nth}_ms"), value, "ms"));
        }
    }
    let idle = measures::idle(&mut fleet, members);
    found.line("bytes sent each second by a member, idle", &format!("{:.0}", idle.mean));
    found.line("  by the coordinator", &format!("{:.0}", idle.coordinator));
    found.figures.push((format!("mesh.idle.{members}.bytes_per_s"), idle.mean, "bytes/s"));
    step(60);
    let busy = measures::busy(&mut fleet, members, busy_seconds);
    found.line("every cell changing once a second", &format!("{:.0}", busy.mean));
    found.line("  by the coordinator", &format!("{:.0}", busy.coordinator));
    found.figures.push((format!("mesh.busy.{members}.bytes_per_s"), busy.mean, "bytes/s"));
    step(80);
    let times = measures::deaths(&mut fleet, members, VICTIMS)?;
    let p90 = detection(&mut found, members, &times);
    found.figures.push((format!("mesh.detect.{members}.s"), p90, "s"));
    let false_alarms = fleet.alarms.iter().filter(|alarm| alarm.is_false).count();
    found.line("false alarms during all of this", &false_alarms.to_string());
    found.line("events simulated", &fleet.events.to_string());
    let cpu = cpu_seconds() - cpu;
    found.line("processor time of this part", &format!("{cpu:.0} s"));
    Ok(found)
}

/// A line on how soon deaths were known; the 90th percentile.
fn detection(found: &mut Found, members: usize, times: &[f64]) -> f64 {
    let [least, p50, p90, most] = [0, 50, 90, 100].map(|part| percentile(times, part));
    let value = format!("{least:.2} / {p50:.2} / {p90:.2} / {most:.2} s ({} deaths)", times.len());
    let what = format!("{members}: a death is known, min / median / p90 / max");
    found.line(&what, &value);
    p90
}

/// A tenth dies at the same moment: how soon the coordinator knows, in five meshes.
fn tenth(members: usize, spread: Duration) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let step = progress(format!("a tenth of {members}"));
    let mut worst = f64::MIN;
    for seed in 1..=5 {
        let (mut fleet, _) = measures::joined(seed, members, spread)?;
        fleet.run_for(SECOND * 70);
        let (half, last) = measures::tenth(&mut fleet, members)?;
        let false_alarms = fleet.alarms.iter().filter(|alarm| alarm.is_false).count();
        let value = format!("{half:.2} / {last:.2} s; false alarms {false_alarms}");
        found.line(&format!("seed {seed}: half known / last known"), &value);
        worst = worst.max(last);
        step(u32::try_from(seed)? * 20);
    }
    found.figures.push((format!("mesh.detect_tenth.{members}.last_s"), worst, "s, worst of 5"));
    Ok(found)
}

fn half_day(seed: u64) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let (mut fleet, _) = measures::joined(seed, 1_000, SECOND * 10)?;
    measures::settle(&mut fleet)?;
    let step = progress(format!("half a day, seed {seed}"));
    let alarms = measures::quiet_time(&mut fleet, 1_000, 5, HOUR * 12, step);
    false_line(&mut found, "in 12 hours", alarms);
    found.false_alarms = alarms;
    Ok(found)
}

fn alarms() -> anyhow::Result<Found> {
    let mut found = Found::default();
    let (mut fleet, _) = measures::joined(3, 1_000, SECOND * 10)?;
    measures::settle(&mut fleet)?;
    let step = progress("false alarms".to_owned());
    for loss in [0, 5, 20] {
        let alarms = measures::quiet_time(&mut fleet, 1_000, loss, HOUR / 2, |_| {});
        false_line(&mut found, &format!("{loss} % loss"), alarms);
        let name = format!("mesh.false_alarms.1000.loss{loss}");
        found.figures.push((name, per_hour(alarms), "for each member-hour"));
        step(25 + loss * 2);
    }
    step(70);
    drop(fleet);
    // A tenth is starved: with all that a member does when it should not trust itself, and with
    // nothing that makes it slower to accuse.
    let without = Profile { worst_health: 0, ..Profile::lan() };
    for (how, profile) in [("", Profile::lan()), (", without the health multiplier", without)] {
        let (mut fleet, _) = measures::joined_with(3, 1_000, SECOND * 10, &profile)?;
        measures::settle(&mut fleet)?;
        for (what, hardship, span) in HARDSHIPS {
            let alarms = measures::starved_time(&mut fleet, 1_000, hardship, span);
            let text = format!("a tenth {what}, {hardship:?}{how}");
            false_line(&mut found, &text, alarms);
            let value = format!("{} accusations", alarms.accusations_of_healthy);
            found.line("  members that were well heard", &value);
            let suffix = if how.is_empty() { "" } else { ".without_health" };
            let per_hour_of = |count: usize| count as f64 / alarms.member_hours;
            for (name, count) in [
                ("accusations_of_healthy", alarms.accusations_of_healthy),
                ("false_alarms_of_healthy", alarms.of_healthy),
                ("false_alarms", alarms.all),
            ] {
                let name = format!("mesh.{name}.1000.{what}{suffix}");
                found.figures.push((name, per_hour_of(count), "for each member-hour"));
            }
            fleet.run_for(SECOND * 120);
            step(if how.is_empty() { 80 } else { 90 });
        }
    }
    Ok(found)
}

fn per_hour(alarms: FalseAlarms) -> f64 {
    alarms.all as f64 / alarms.member_hours
}

fn false_line(found: &mut Found, what: &str, alarms: FalseAlarms) {
    let FalseAlarms { all, coordinators, of_healthy, .. } = alarms;
    let rate = per_hour(alarms);
    let value = format!(
        "{rate:.5} for each member-hour: {all} findings, {coordinators} the coordinator's, \
         {of_healthy} of members that were well"
    );
    found.line(what, &value);
}

fn small() -> anyhow::Result<Found> {
    let mut found = Found::default();
    for members in [10, 50, 200] {
        let mut times = Vec::new();
        // A small mesh has few to lose, so there are several.
        for seed in 0..10 {
            let (mut fleet, _) = measures::joined(seed, members, SECOND)?;
            fleet.run_for(SECOND * 10);
            times.extend(measures::deaths(&mut fleet, members, 2)?);
        }
        detection(&mut found, members, &times);
    }
    let bits = measures::leaf_bits(50);
    found.line("a metered leaf, idle, both ways: bits each second", &format!("{bits:.0}"));
    Ok(found)
}

fn seconds(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}

/// Processor time of this thread so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |nth: usize| after.split_whitespace().nth(nth).and_then(|t| t.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}
