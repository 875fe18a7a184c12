//! What is done with a simulated mesh, and what comes out of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use volvox_bench::figures::percentile;
use volvox_mesh::identity::MemberKind;
use volvox_mesh::profile::Profile;
use volvox_mesh::simulation::{Alarm, Simulation};
use volvox_protocol::random::SplitMix;

pub(super) const SECOND: Duration = Duration::from_secs(1);
/// How often the simulation is asked whether it is there yet: what is measured so is that coarse.
const LOOK: Duration = Duration::from_millis(20);
/// The longest wait for anything.
const LIMIT: Duration = Duration::from_secs(300);

/// A mesh of one coordinator and cells that begin evenly within `spread`, each with an info and a
/// load, and the time from the last one's start until all know all.
pub(super) fn joined(
    seed: u64,
    members: usize,
    spread: Duration,
) -> anyhow::Result<(Simulation, Duration)> {
    joined_with(seed, members, spread, &Profile::lan())
}

/// The same with another profile.
pub(super) fn joined_with(
    seed: u64,
    members: usize,
    spread: Duration,
    profile: &Profile,
) -> anyhow::Result<(Simulation, Duration)> {
    let mut kinds = vec![MemberKind::Coordinator];
    kinds.resize(members, MemberKind::Cell);
    let mut fleet = Simulation::new(seed, &kinds);
    fleet.start(0, profile.clone(), &[]);
    let step = spread / u32::try_from(members)?;
    for cell in 1..members {
        fleet.run_for(step);
        fleet.start(cell, profile.clone(), &[0]);
        // Ten thousand infos would fill everybody's budget for minutes: what is measured there is how
        // soon one change is heard in a quiet mesh.
        if members <= 1_000 {
            fleet.publish_info(cell);
            fleet.publish_load(cell, 1_024);
        }
    }
    let took = fleet.run_until(LIMIT, LOOK, Simulation::all_know_all);
    Ok((fleet, took.with_context(|| format!("{members} members did not all know all"))?))
}

/// Lets a mesh come to rest: until all know the same to the last version. The time it took.
pub(super) fn settle(fleet: &mut Simulation) -> anyhow::Result<Duration> {
    let took = fleet.run_until(LIMIT, SECOND / 10, Simulation::all_agree);
    let took = took.context("the members did not come to agree")?;
    // Links that nobody wants any more are closed after half a minute.
    fleet.run_for(SECOND * 40);
    Ok(took)
}

/// Milliseconds in which load changes reached the coordinator and 99 % of the members.
pub(super) struct Spread {
    pub(super) coordinator_ms: Vec<f64>,
    pub(super) most_ms: Vec<f64>,
}

/// Changes of `count` cells, one after another.
pub(super) fn load_changes(
    fleet: &mut Simulation,
    members: usize,
    count: usize,
) -> anyhow::Result<Spread> {
    ensure!(count < members, "there are not {count} cells among {members} members");
    fleet.record_news = true;
    fleet.news.clear();
    let mut told = BTreeMap::new();
    for nth in 0..count {
        let cell = 1 + nth * (members - 1) / count;
        told.insert(cell, fleet.now());
        fleet.publish_load(cell, 512);
        fleet.run_for(Duration::from_millis(130));
    }
    fleet.run_for(SECOND * 20);
    fleet.record_news = false;
    let (mut coordinator_ms, mut all_ms) = (Vec::new(), BTreeMap::<usize, Vec<f64>>::new());
    for news in std::mem::take(&mut fleet.news) {
        let Some(start) = told.get(&news.of) else { continue };
        let ms = news.at.since(*start).as_secs_f64() * 1e3;
        if news.by == 0 {
            coordinator_ms.push(ms);
        }
        all_ms.entry(news.of).or_default().push(ms);
    }
    let enough = (members - 1) * 99 / 100;
    let most_ms = all_ms.values().filter_map(|times| times.get(enough.saturating_sub(1)).copied());
    let most_ms: Vec<f64> = most_ms.collect();
    ensure!(coordinator_ms.len() == count, "not every change reached the coordinator");
    ensure!(most_ms.len() == count, "{} of {count} changes reached 99 %", most_ms.len());
    Ok(Spread { coordinator_ms, most_ms })
}

/// Kills `victims` cells, each after the coordinator knows of the one before. Seconds until it knew.
pub(super) fn deaths(
    fleet: &mut Simulation,
    members: usize,
    victims: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    let mut random = SplitMix(u64::try_from(members)?);
    for nth in 0..victims {
        let victim = 1 + nth * (members - 1) / victims;
        // At any point of the watchers' beat.
        fleet.run_for(Duration::from_micros(random.next() % 1_000_000));
        let (start, before) = (fleet.now(), fleet.alarms.len());
        fleet.kill(victim);
        let knows = |alarm: &&Alarm| alarm.by == 0 && alarm.of == victim;
        let took =
            fleet.run_until(LIMIT, LOOK, |fleet| fleet.alarms[before..].iter().any(|a| knows(&a)));
        took.context("a death was not noticed")?;
        let alarm = fleet.alarms[before..].iter().find(knows).context("no alarm")?;
        times.push(alarm.at.since(start).as_secs_f64());
        fleet.run_for(SECOND * 2);
    }
    Ok(times)
}

/// Kills a tenth of the members at the same moment. Seconds until the coordinator knew of half of
/// them, and of the last.
pub(super) fn tenth(fleet: &mut Simulation, members: usize) -> anyhow::Result<(f64, f64)> {
    let victims: BTreeSet<usize> = (0..members / 10).map(|nth| 3 + nth * 10).collect();
    let (start, before) = (fleet.now(), fleet.alarms.len());
    victims.iter().for_each(|victim| fleet.kill(*victim));
    let mut times = Vec::new();
    let mut seen = before;
    let all = fleet.run_until(LIMIT, LOOK, |fleet| {
        for alarm in &fleet.alarms[seen..] {
            if alarm.by == 0 && victims.contains(&alarm.of) {
                times.push(alarm.at.since(start).as_secs_f64());
            }
        }
        seen = fleet.alarms.len();
        times.len() >= victims.len()
    });
    all.context("not every death was noticed")?;
    Ok((percentile(&times, 50), percentile(&times, 100)))
}

/// Bytes each second that were sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes {
    /// By a member on average, the coordinator included.
    pub(super) mean: f64,
    /// By the coordinator.
    pub(super) coordinator: f64,
}

fn bytes_during(
    fleet: &mut Simulation,
    members: usize,
    run: impl FnOnce(&mut Simulation),
) -> Bytes {
    fleet.settle();
    let sum = |fleet: &Simulation| (0..members).map(|p| fleet.traffic(p).bytes).sum::<u64>();
    let (all, coordinator, start) = (sum(fleet), fleet.traffic(0).bytes, fleet.now());
    run(fleet);
    fleet.settle();
    let seconds = fleet.now().since(start).as_secs_f64();
    Bytes {
        mean: (sum(fleet) - all) as f64 / seconds / members as f64,
        coordinator: (fleet.traffic(0).bytes - coordinator) as f64 / seconds,
    }
}

pub(super) fn idle(fleet: &mut Simulation, members: usize) -> Bytes {
    bytes_during(fleet, members, |fleet| fleet.run_for(SECOND * 120))
}

/// Every cell changes once a second, for `seconds` after as many that do not count.
pub(super) fn busy(fleet: &mut Simulation, members: usize, seconds: u32) -> Bytes {
    change_all(fleet, members, seconds);
    bytes_during(fleet, members, |fleet| change_all(fleet, members, seconds))
}

fn change_all(fleet: &mut Simulation, members: usize, seconds: u32) {
    for second in 0..seconds {
        let start = fleet.now();
        for cell in 1..members {
            let part = u64::try_from(cell).unwrap_or(0) * 1_000_000 / members as u64;
            let at = start + Duration::from_micros(part);
            fleet.run_for(at.since(fleet.now()));
            fleet.publish_load(cell, second);
        }
        fleet.run_for((start + SECOND).since(fleet.now()));
    }
}

/// Members that were found missing though they were there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FalseAlarms {
    /// How often anybody found so.
    pub(super) all: usize,
    /// How often the coordinator did.
    pub(super) coordinators: usize,
    /// How often it was one that is not starved.
    pub(super) of_healthy: usize,
    /// How often anybody accused one that is not starved.
    pub(super) accusations_of_healthy: usize,
    /// For how long, times how many members.
    pub(super) member_hours: f64,
}

fn false_alarms(
    fleet: &Simulation,
    from: usize,
    members: usize,
    span: Duration,
    starved: usize,
) -> FalseAlarms {
    let alarms = || fleet.alarms[from..].iter().filter(|alarm| alarm.is_false);
    let is_healthy = |place: usize| place == 0 || place > starved;
    let accusations = fleet.suspicions.iter().filter(|(_, of, _)| is_healthy(*of));
    FalseAlarms {
        all: alarms().count(),
        coordinators: alarms().filter(|alarm| alarm.by == 0).count(),
        of_healthy: alarms().filter(|alarm| is_healthy(alarm.of)).count(),
        accusations_of_healthy: accusations.count(),
        member_hours: span.as_secs_f64() / 3_600.0 * members as f64,
    }
}

/// Runs a mesh in which nobody dies, and calls `progress` with the hundredths that are done.
pub(super) fn quiet_time(
    fleet: &mut Simulation,
    members: usize,
    loss_percent: u32,
    span: Duration,
    progress: impl Fn(u32),
) -> FalseAlarms {
    let from = fleet.alarms.len();
    fleet.network.loss = loss_percent * 100;
    for part in 1..=100 {
        fleet.run_for(span / 100);
        if part % 10 == 0 {
            progress(part);
        }
    }
    fleet.network.loss = 0;
    false_alarms(fleet, from, members, span, 0)
}

/// What a starved member suffers, for spans between two.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hardship {
    /// It stands still, then runs for as long, and so on.
    Pauses(Duration, Duration),
    /// What comes waits so long before it is looked at, another time every three seconds.
    Backlog(Duration, Duration),
}

/// Runs a mesh of which a tenth is starved.
pub(super) fn starved_time(
    fleet: &mut Simulation,
    members: usize,
    hardship: Hardship,
    span: Duration,
) -> FalseAlarms {
    let (from, start) = (fleet.alarms.len(), fleet.now());
    fleet.record_news = true;
    fleet.suspicions.clear();
    let starved = members / 10;
    let mut random = SplitMix(u64::try_from(starved).unwrap_or(1));
    let (Hardship::Pauses(least, most) | Hardship::Backlog(least, most)) = hardship;
    let mut some = || {
        let most = u64::try_from((most - least).as_millis()).unwrap_or(0).max(1);
        least + Duration::from_millis(random.next() % most)
    };
    let mut plan: BinaryHeap<_> =
        (1..=starved).map(|cell| Reverse((start + some(), cell))).collect();
    while let Some(Reverse((at, cell))) = plan.pop() {
        if at.since(start) >= span {
            break;
        }
        fleet.run_for(at.since(fleet.now()));
        let suffered = some();
        let next = match hardship {
            Hardship::Pauses(..) => {
                fleet.pause(cell, suffered);
                at + suffered + some()
            }
            Hardship::Backlog(..) => {
                fleet.backlog.insert(cell, suffered);
                at + SECOND * 3
            }
        };
        plan.push(Reverse((next, cell)));
    }
    fleet.record_news = false;
    fleet.news.clear();
    fleet.backlog.clear();
    false_alarms(fleet, from, members, span, starved)
}

/// Bits each second, in both directions, of a leaf that has nothing to say.
pub(super) fn leaf_bits(cells: usize) -> f64 {
    let mut kinds = vec![MemberKind::Coordinator];
    kinds.resize(cells + 2, MemberKind::Cell);
    let mut fleet = Simulation::new(11, &kinds);
    fleet.start(0, Profile::lan(), &[]);
    (1..=cells).for_each(|cell| fleet.start(cell, Profile::lan(), &[0]));
    let leaf = cells + 1;
    fleet.start(leaf, Profile::metered(), &[0]);
    fleet.publish_info(leaf);
    fleet.publish_load(leaf, 1_024);
    fleet.run_for(SECOND * 300);
    let bytes = |fleet: &mut Simulation| {
        fleet.settle();
        fleet.traffic(leaf).bytes + fleet.traffic(leaf).received
    };
    let before = bytes(&mut fleet);
    fleet.run_for(SECOND * 3_600);
    (bytes(&mut fleet) - before) as f64 * 8.0 / 3_600.0
}
