//! What foca may hear: an insider that lies at random, by seed, while members die.
//!
//! The insider has a valid certificate and links to all. It suspects, forges, replays, answers for
//! others, and pretends to have reached the dead. Every clause of the filter in front of foca has a
//! deliberate bug, and for each bug there is a seed that finds it.

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::injected_bug::Bug;
use volvox_protocol::random::SplitMix;

use crate::identity::MemberId;
use crate::member::{MemberState, rings};
use crate::message::{Message, Roots};
use crate::profile::Profile;
use crate::record::{Item, Suspicion, Topic, Version};
use crate::simulation::{SimulatedAuthenticator, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(50);

/// The liar's place.
const EVIL: usize = 1;

/// Seeds that pass without a bug, in each run.
const SEEDS: u64 = 60;

/// Seeds within which each bug is found.
const WITHIN: u64 = 60;

/// A coordinator must know of a death after this time, whatever the insider says.
const KNOWN: Duration = Duration::from_secs(15);

/// Alive records that lone lies may provoke in one second, as a fraction: one in 0.8 s at most.
const REFUTATIONS: u32 = 2;

struct Attack {
    random: SplitMix,
    mesh: Simulation,
    cells: usize,
    victim: usize,
    /// It wants to hide a death, so it says nothing against anybody any more.
    hides: bool,
    /// Genuine suspicions of earlier alive records of the victim, by honest members.
    kept: Vec<Item>,
}

/// Pretends to have reached whomever it was asked to probe, and passes no suspicion on.
fn pretend(message: Message) -> Message {
    match message {
        Message::Missed { seq, target } => Message::Reached { seq, target },
        Message::Gossip { mut items } => {
            items.retain(|item| matches!(item, Item::Record(_)));
            Message::Gossip { items }
        }
        Message::Ping { .. }
        | Message::Ack { .. }
        | Message::PingReq { .. }
        | Message::Reached { .. }
        | Message::Records { .. }
        | Message::Compare { .. }
        | Message::Differ { .. }
        | Message::Want { .. }
        | Message::Observed { .. } => message,
    }
}

impl Attack {
    fn new(seed: u64) -> Attack {
        let mut random = SplitMix(seed);
        let cells = 3 + random.below(12);
        let mut mesh = Simulation::fleet(random.next(), cells, &Profile::lan(), SECOND);
        mesh.run_until(SECOND * 30, TICK, Simulation::all_know_all).expect("all know all");
        (0..=cells).filter(|place| *place != EVIL).for_each(|place| mesh.connect(EVIL, place));
        mesh.run_for(SECOND * 2);
        mesh.twist = random.once_in(2).then_some((EVIL, pretend));
        let victim = 2 + random.below(cells - 1);
        Attack { random, mesh, cells, victim, hides: false, kept: Vec::new() }
    }

    fn id(&self, place: usize) -> MemberId {
        self.mesh.identity(place).member
    }

    fn alive(&self, at: usize) -> Version {
        let record = self.mesh.member(at).record(self.id(self.victim), Topic::Alive);
        record.map(|record| record.version).unwrap_or_default()
    }

    /// A suspicion of the victim by `by`, signed by `signer`.
    fn suspicion(&self, signer: usize, by: usize, alive: Version) -> Item {
        let signer = SimulatedAuthenticator::new(self.mesh.ca().clone(), self.id(signer));
        let of = self.id(self.victim);
        Item::Suspicion(Arc::new(Suspicion::signed(&signer, self.id(by), of, alive)))
    }

    fn honest(&self) -> Vec<usize> {
        (0..=self.cells).filter(|place| *place != EVIL && self.mesh.is_alive(*place)).collect()
    }

    /// Something that is not so, said to everybody.
    fn lie(&mut self) {
        let others = self.honest();
        let kind = if self.hides { 4 + self.random.below(2) } else { self.random.below(6) };
        for place in &others {
            let now = self.alive(*place);
            let items = match kind {
                0 => vec![self.suspicion(EVIL, EVIL, now)],
                1 => {
                    let others = others.iter().filter(|by| ![*place, self.victim].contains(*by));
                    others.take(6).map(|by| self.suspicion(EVIL, *by, now)).collect()
                }
                2 => self.kept.clone(),
                3 => {
                    let count = now.count + 1_000 + u32::from(self.random.once_in(2));
                    vec![self.suspicion(EVIL, EVIL, Version { count, ..now })]
                }
                4 => {
                    // Whatever probe is in progress, this is the answer to it.
                    for seq in 0..=255 {
                        let roots = Roots::default();
                        let answer = Message::Ack { seq, roots, items: Vec::new() };
                        self.mesh.inject(EVIL, *place, answer);
                    }
                    continue;
                }
                _ => {
                    let ping = Message::Ping { seq: 7, roots: Roots::default(), items: Vec::new() };
                    self.mesh.inject(EVIL, *place, ping);
                    continue;
                }
            };
            self.mesh.inject(EVIL, *place, Message::Gossip { items });
        }
    }

    /// Members that are alive and were found missing.
    fn unharmed(&self) -> Result<(), String> {
        let wrong = self.mesh.alarms.iter().find(|alarm| alarm.is_false);
        wrong.map_or(Ok(()), |alarm| Err(format!("{alarm:?}")))
    }

    /// Lies for a while, at the pace of a tick.
    fn lie_for(&mut self, ticks: u32) -> Result<(), String> {
        for _ in 0..ticks {
            self.lie();
            self.mesh.run_for(TICK);
            // What honest members might have said, had they been wrong, is kept for later.
            if self.random.once_in(20) {
                let now = self.alive(self.victim);
                let by: Vec<usize> =
                    self.honest().into_iter().filter(|by| *by != self.victim).take(3).collect();
                self.kept = by.into_iter().map(|by| self.suspicion(by, by, now)).collect();
            }
        }
        self.unharmed()
    }

    /// Foca's lists hold the neighbours and nobody else.
    fn lists_are_short(&self) -> Result<(), String> {
        for place in self.honest() {
            let neighbourhood = &self.mesh.member(place).probes.neighbourhood;
            let (listed, members) = (neighbourhood.listed(), neighbourhood.members().count());
            if listed != members || members > rings::NEIGHBOURS {
                return Err(format!("{place} lists {listed} members for {members} neighbours"));
            }
        }
        Ok(())
    }
}

fn play(seed: u64) -> Result<(), String> {
    let mut attack = Attack::new(seed);
    let victim = attack.victim;
    let before = attack.alive(victim).count;
    attack.lie_for(200)?;
    let refutations = attack.alive(victim).count - before;
    if refutations > REFUTATIONS * 10 {
        return Err(format!("{refutations} refutations in ten seconds"));
    }
    attack.lists_are_short()?;
    // All that is open is refuted when the lies end.
    attack.mesh.run_for(SECOND * 12);
    for place in attack.honest() {
        let open = attack.mesh.member(place).suspects.contains_key(&attack.id(victim));
        if open {
            return Err(format!("the victim has not refuted at {place}"));
        }
    }
    attack.unharmed()?;
    // One dies, the victim or another, while the lies go on.
    let others: Vec<usize> = (2..=attack.cells).filter(|place| *place != victim).collect();
    let dead = if attack.random.once_in(2) { victim } else { *attack.random.one_of(&others) };
    let gone = attack.id(dead);
    attack.mesh.kill(dead);
    attack.hides = attack.random.once_in(2);
    let start = attack.mesh.now();
    while attack.mesh.member(0).state(gone) != MemberState::Missing {
        if attack.mesh.now().since(start) > KNOWN {
            return Err(format!("the death of {dead} is not known after {KNOWN:?}"));
        }
        attack.lie_for(1)?;
    }
    attack.mesh.run_for(SECOND * 60);
    attack.lists_are_short()?;
    attack.unharmed()
}

#[test]
fn an_insider_that_lies_at_random_harms_nobody_and_hides_no_death() {
    let failed = (0..SEEDS).find_map(|seed| Some((seed, play(seed).err()?)));
    assert_eq!(failed, None);
}

#[test]
fn each_bug_in_the_filter_is_found_by_a_seed() {
    for bug in Bug::FILTER {
        let found = {
            let _on = bug.on();
            (0..WITHIN).find_map(|seed| Some((seed, play(seed).err()?)))
        };
        let (seed, what) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?} is found by seed {seed}: {what}");
    }
}
