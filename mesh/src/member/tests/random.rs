//! Random meshes with random faults. When the faults end, all are of one mind again.
//!
//! A seed that ever failed stands in `seeds.txt` and is run first, always.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use volvox_protocol::random::SplitMix;

use crate::identity::MemberKind;
use crate::profile::Profile;
use crate::record::Topic;
use crate::simulation::Simulation;

const SECOND: Duration = Duration::from_secs(1);

/// The time from the end of all faults in which all know all, and know the same. Somebody who is
/// found missing wrongly on both sides is tried every twenty seconds or so, one at a time.
const MENDED: Duration = Duration::from_secs(240);

/// Seeds of one run, beyond those of the file.
const SEEDS: u64 = 300;

struct Trouble {
    random: SplitMix,
    mesh: Simulation,
    revoked: Vec<usize>,
    coordinators: usize,
    told: Vec<String>,
}

impl Trouble {
    fn new(seed: u64) -> Trouble {
        let mut random = SplitMix(seed);
        let count = 3 + random.below(23);
        let coordinators = random.below(3).min(count - 1);
        let mut kinds = vec![MemberKind::Coordinator; coordinators];
        kinds.resize(count, MemberKind::Cell);
        let mut mesh = Simulation::new(random.next(), &kinds);
        for place in 0..count {
            let seeds: &[usize] = match place {
                0 => &[],
                1 => &[0],
                _ => &[0, 1],
            };
            mesh.start(place, Profile::lan(), seeds);
            if random.once_in(3) {
                mesh.run_for(Duration::from_millis(random.next() % 3_000));
            }
        }
        Trouble { random, mesh, revoked: Vec::new(), coordinators, told: Vec::new() }
    }

    fn count(&self) -> usize {
        self.mesh.places()
    }

    fn is_startable(&self, place: usize) -> bool {
        !self.mesh.is_alive(place) && !self.revoked.contains(&place)
    }

    fn restart(&mut self, place: usize) {
        // A persisted list of peers: any of them, not the first.
        let others: Vec<usize> = (0..self.count()).filter(|other| *other != place).collect();
        let mut seeds: Vec<usize> = (0..3).map(|_| *self.random.one_of(&others)).collect();
        // One of the list will be there at the end: those two always are.
        seeds.push(usize::from(place == 0));
        if self.random.once_in(5) {
            self.mesh.clock_behind = Duration::from_secs(3_600);
        }
        self.mesh.start(place, Profile::lan(), &seeds);
        self.mesh.clock_behind = Duration::ZERO;
    }

    fn fault(&mut self) {
        let place = self.random.below(self.count());
        let other = self.random.below(self.count());
        let told = match self.random.below(14) {
            0 | 1 => {
                self.mesh.kill(place);
                format!("kill {place}")
            }
            2 | 3 if self.is_startable(place) => {
                self.restart(place);
                format!("start {place}")
            }
            4 => {
                let span = Duration::from_millis(self.random.next() % 8_000);
                self.mesh.pause(place, span);
                format!("pause {place} for {span:?}")
            }
            5 => {
                self.mesh.cut(place, other);
                format!("cut {place} to {other}")
            }
            6 => {
                let at = self.random.next();
                self.mesh.part(|place| u8::from((at >> (place % 64)) & 1 == 1));
                format!("part {at:b}")
            }
            7 => {
                self.mesh.part(|one| u8::from(one == place));
                format!("part {place} alone")
            }
            8 | 9 => {
                self.mesh.heal();
                "heal".to_owned()
            }
            10 => {
                self.mesh.network.loss = u32::try_from(self.random.below(2_000)).unwrap();
                format!("loss {}", self.mesh.network.loss)
            }
            11 if self.coordinators > 0 && self.random.once_in(3) => self.revoke(place),
            12 if place >= self.coordinators => {
                self.mesh.publish_info(place);
                format!("info {place}")
            }
            13 if place >= self.coordinators => {
                self.mesh.publish_load(place, u32::try_from(other).unwrap());
                format!("load {place}")
            }
            _ => return,
        };
        self.told.push(format!("{:?} {told}", self.mesh.now()));
    }

    fn revoke(&mut self, place: usize) -> String {
        let by = self.random.below(self.coordinators);
        let may = place >= self.coordinators && self.mesh.is_alive(by);
        if may && self.revoked.len() < 2 && !self.revoked.contains(&place) {
            self.mesh.revoke(by, &[place]);
            self.revoked.push(place);
        }
        format!("revoke {:?} by {by}", self.revoked)
    }

    /// All faults end. Who is dead stays dead, but somebody must be there.
    fn end(&mut self) {
        self.mesh.heal();
        self.mesh.network.loss = 0;
        for place in self.revoked.clone() {
            self.mesh.kill(place);
        }
        for place in 0..self.count() {
            let first = place < 2 || self.random.once_in(2);
            if first && self.is_startable(place) {
                self.restart(place);
                self.told.push(format!("{:?} start {place} at the end", self.mesh.now()));
            }
        }
    }

    fn views(&self) -> String {
        let mut text = String::new();
        for of in 0..self.count() {
            let id = self.mesh.identity(of).member;
            let mut views = BTreeMap::<String, Vec<usize>>::new();
            for place in (0..self.count()).filter(|place| self.mesh.is_alive(*place)) {
                let member = self.mesh.member(place);
                let versions = Topic::ALL.map(|topic| {
                    member.record(id, topic).map(|r| (r.version.generation, r.version.count))
                });
                let view = format!("{:?} {versions:?}", member.state(id));
                views.entry(view).or_default().push(place);
            }
            if views.len() > 1 {
                text += &format!("of {of}: {views:#?}\n");
            }
        }
        text
    }
}

fn check(seed: u64) -> Result<Duration, String> {
    let mut trouble = Trouble::new(seed);
    for _ in 0..10 + trouble.random.below(40) {
        trouble.fault();
        let span = trouble.random.next() % 6_000;
        trouble.mesh.run_for(Duration::from_millis(span));
    }
    trouble.end();
    let is_mended = |mesh: &Simulation| mesh.all_know_all() && mesh.all_agree();
    let took = trouble.mesh.run_until(MENDED, SECOND, is_mended);
    took.ok_or_else(|| {
        let told = trouble.told.join("\n");
        format!("seed {seed}: alive {}\n{told}\n{}", trouble.mesh.alive(), trouble.views())
    })
}

#[test]
fn when_faults_end_all_are_of_one_mind_again() {
    let kept = include_str!("seeds.txt").lines().map(str::trim);
    let kept = kept.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let kept: BTreeSet<u64> = kept.map(|line| line.parse().unwrap()).collect();
    let others = (0..SEEDS).filter(|seed| !kept.contains(seed));
    let (mut longest, mut failed) = (Duration::ZERO, Vec::new());
    for seed in kept.iter().copied().chain(others) {
        match check(seed) {
            Ok(took) => longest = longest.max(took),
            Err(report) => failed.push((seed, report)),
        }
    }
    println!("the longest took {longest:?}");
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "seeds {seeds:?}, the first:\n{}", failed[0].1);
}
