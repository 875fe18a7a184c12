//! Everything that goes wrong, and its end.

use std::collections::BTreeMap;
use std::time::Duration;

use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::core::CellInput;
use volvox_coordinator::core::COMMIT_WITHIN;
use volvox_mesh::simulation::SimulatedNetwork;
use volvox_protocol::random::SplitMix;

use super::cell::Last;
use super::disk::End;
use super::disk::platter::Blow;
use super::plan::{Kind, Plan};
use super::world::{CENTER, Event, For, World};

/// What is wrong at present.
#[derive(Debug)]
pub(super) struct Trouble {
    random: SplitMix,
    kinds: Vec<Kind>,
    next: u64,
    /// What ends when, and with whom.
    under_way: BTreeMap<u64, (Kind, Vec<usize>)>,
    pub(super) silent: bool,
    pub(super) callbacks_fail: bool,
    pub(super) crowded: bool,
    pub(super) wiped: bool,
}

impl Trouble {
    pub(super) fn new(plan: &Plan) -> Trouble {
        Trouble {
            random: SplitMix(plan.seed ^ 0x7472_6f75),
            kinds: plan.kinds.iter().copied().collect(),
            next: 0,
            under_way: BTreeMap::new(),
            silent: false,
            callbacks_fail: false,
            crowded: false,
            wiped: false,
        }
    }

    fn span(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.random.next() % (most_ms - least_ms))
    }
}

impl World {
    pub(super) fn trouble(&mut self) {
        if self.calm {
            return;
        }
        let kinds = self.trouble.kinds.clone();
        let kind = *self.trouble.random.one_of(&kinds);
        let nth = self.trouble.random.below(self.cells.len());
        self.begin_trouble(kind, nth);
        let every = u64::try_from(self.plan.trouble_every.as_millis()).unwrap_or(1);
        let at = self.now() + self.trouble.span(every / 2, every * 3 / 2 + 1);
        self.plan(at, For::World, Event::Trouble);
    }

    /// Each kind is counted where it has come about, not where it was only meant to.
    fn begin_trouble(&mut self, kind: Kind, nth: usize) {
        let id = self.cells[nth].id.clone();
        self.tell(|| format!("trouble: {kind:?} ({id})"));
        match kind {
            Kind::Loss => self.network(kind, |network, random| {
                network.loss = 100 + u32::try_from(random.next() % 2_500).unwrap_or(0);
            }),
            Kind::Delay => self.network(kind, |network, random| {
                let most = 5 + random.next() % 400;
                network.latency = (Duration::from_micros(200), Duration::from_millis(most));
            }),
            Kind::Duplication => self.network(kind, |network, random| {
                network.duplicates = 100 + u32::try_from(random.next() % 3_000).unwrap_or(0);
            }),
            Kind::Partition => self.part(nth),
            Kind::OneWay | Kind::PartialCut => self.cut(kind, nth),
            Kind::SlowMember => {
                let delay = self.trouble.span(20, 1_500);
                let place = if self.trouble.random.once_in(6) { CENTER } else { nth + 1 };
                self.mesh.backlog.insert(place, delay);
                self.count(kind.name());
                self.ends_later(kind, vec![place], 1_000, 15_000);
            }
            Kind::Pause => {
                let place = if self.trouble.random.once_in(6) { CENTER } else { nth + 1 };
                let span = self.trouble.span(100, 20_000);
                if self.mesh.is_alive(place) {
                    self.count(kind.name());
                    self.mesh.pause(place, span);
                }
            }
            Kind::AgentCrash
            | Kind::MachineCrash
            | Kind::MachineLost
            | Kind::ShimCrash
            | Kind::ProcessCrash => self.death(kind, nth),
            Kind::NotMade
            | Kind::SlowMaking
            | Kind::NotDestroyed
            | Kind::Hang
            | Kind::CellDisk
            | Kind::ShimHangs => self.machine_trouble(kind, nth),
            Kind::Crowd => {
                self.count(kind.name());
                self.trouble.crowded = true;
                self.ends_later(kind, vec![], 300, 8_000);
            }
            Kind::SelfTest => {
                if self.cells[nth].agent.is_some() {
                    self.count(kind.name());
                }
                self.tell_cell(nth, CellInput::Healthy(false));
                self.ends_later(kind, vec![nth], 500, 20_000);
            }
            Kind::Evacuation => {
                // Not all at once: an operator sees to it that there is room for the rest.
                let evacuating = self.trouble.under_way.values();
                let evacuating = evacuating.filter(|(it, _)| *it == kind).count();
                if self.cells[nth].mortal && (evacuating + 1) * 4 <= self.cells.len() {
                    self.count(kind.name());
                    self.tell_cell(nth, CellInput::Evacuate);
                    self.ends_later(kind, vec![], 30_000, 60_000);
                }
            }
            Kind::Skew => {
                if self.center.is_old && self.trouble.random.once_in(4) {
                    self.count(kind.name());
                    self.upgrade_center();
                } else if self.cells[nth].is_old {
                    self.count(kind.name());
                    self.upgrade(nth);
                }
            }
            Kind::CenterCrash
            | Kind::CommitFailure
            | Kind::CenterDiskFull
            | Kind::SlowDisk
            | Kind::StuckCommit
            | Kind::Clock
            | Kind::EmptyBoard
            | Kind::Silence
            | Kind::Callback => self.center_trouble(kind),
        }
    }

    /// Something on a machine dies, or all of it.
    fn death(&mut self, kind: Kind, nth: usize) {
        match kind {
            Kind::AgentCrash => self.crash_agent(nth),
            Kind::MachineCrash if self.cells[nth].mortal => {
                self.count(kind.name());
                let fuse = self.trouble.random.below(24);
                match &mut self.cells[nth].agent {
                    Some(agent) if fuse > 11 => {
                        agent.fuse = Some((u32::try_from(fuse - 11).unwrap_or(1), Last::Dark));
                    }
                    _ => self.kill_machine(nth),
                }
                self.ends_later(kind, vec![nth], 2_000, 30_000);
            }
            Kind::MachineLost => {
                let lost = self.cells.iter().filter(|cell| cell.is_lost).count();
                if self.cells[nth].mortal && (lost + 1) * 5 <= self.cells.len() {
                    self.count(kind.name());
                    self.kill_machine(nth);
                    self.cells[nth].is_lost = true;
                }
            }
            Kind::ShimCrash => {
                if let Some(guid) = self.some_container(nth) {
                    self.count(kind.name());
                    self.cells[nth].machine.kill(&guid);
                    self.plan_due(nth);
                }
            }
            Kind::ProcessCrash => {
                if let Some(guid) = self.some_container(nth) {
                    self.count(kind.name());
                    self.cells[nth].machine.end_process(&guid, "server", 1);
                    self.plan_due(nth);
                }
            }
            _ => {}
        }
    }

    /// What a machine, its disk or its executor does not do for a while.
    fn machine_trouble(&mut self, kind: Kind, nth: usize) {
        // What comes of it is counted by itself.
        self.count(kind.name());
        match kind {
            Kind::NotMade => {
                let reason = "no room for a container".to_owned();
                self.cells[nth].machine.faults.not_made = Some(reason);
                self.ends_later(kind, vec![nth], 500, 15_000);
            }
            Kind::SlowMaking => {
                let takes = match self.trouble.random.once_in(5) {
                    true => Duration::MAX,
                    false => self.trouble.span(100, 20_000),
                };
                self.cells[nth].machine.faults.making = takes;
                self.ends_later(kind, vec![nth], 500, 15_000);
            }
            Kind::NotDestroyed => {
                let reason = "a mount is busy".to_owned();
                self.cells[nth].machine.faults.not_destroyed = Some(reason);
                self.ends_later(kind, vec![nth], 500, 15_000);
            }
            Kind::Hang => {
                let reason = "nobody answers".to_owned();
                self.cells[nth].machine.faults.check_failure = Some(reason);
                self.ends_later(kind, vec![nth], 500, 10_000);
            }
            Kind::ShimHangs => self.half_kill(nth),
            Kind::CellDisk => {
                match self.trouble.random.once_in(2) {
                    true => self.cells[nth].disk.full = true,
                    false => self.cells[nth].disk.bad = true,
                }
                self.ends_later(kind, vec![nth], 500, 15_000);
            }
            _ => {}
        }
    }

    fn center_trouble(&mut self, kind: Kind) {
        match kind {
            Kind::CenterCrash => {
                if self.center.alive.is_none() {
                    return;
                }
                self.count(kind.name());
                let after = self.trouble.random.below(24);
                let mut disk = self.center.disk.borrow_mut();
                match self.trouble.random.below(5) {
                    0 => disk.light(after, Blow::Dies),
                    1 => disk.light(after, Blow::PowerGoes),
                    2 => disk.dies_after = true,
                    killed_or_dark => {
                        drop(disk);
                        let end = if killed_or_dark == 3 { End::Killed } else { End::Dark };
                        self.kill_center(end);
                        self.restart_center_later();
                    }
                }
            }
            Kind::CommitFailure => {
                self.count(kind.name());
                let after = self.trouble.random.below(24);
                let mut disk = self.center.disk.borrow_mut();
                match self.trouble.random.once_in(4) {
                    true => disk.misread(after),
                    false => disk.light(after, Blow::Fails),
                }
            }
            Kind::CenterDiskFull => {
                self.count(kind.name());
                self.center.disk.borrow_mut().fill(true);
                self.ends_later(kind, vec![], 500, 10_000);
            }
            Kind::SlowDisk => {
                self.count(kind.name());
                self.center.commit = self.trouble.span(10, 2_000);
                self.ends_later(kind, vec![], 500, 10_000);
            }
            // Counted when it has begun.
            Kind::StuckCommit => {
                self.center.stuck = Some(match self.trouble.random.once_in(4) {
                    true => COMMIT_WITHIN * 2,
                    false => Duration::from_secs(10),
                });
                self.ends_later(kind, vec![], 500, 10_000);
            }
            Kind::Clock => {
                self.count(kind.name());
                let jump = self.trouble.span(10, 120_000);
                match self.trouble.random.once_in(2) {
                    true => self.center.ahead += jump,
                    false => self.center.behind += jump,
                }
            }
            Kind::EmptyBoard if self.trouble.wiped => {}
            Kind::EmptyBoard => {
                self.count(kind.name());
                self.trouble.wiped = true;
                self.wipe();
            }
            Kind::Silence => {
                self.count(kind.name());
                self.trouble.silent = true;
                self.ends_later(kind, vec![], 5_000, 40_000);
            }
            Kind::Callback => {
                self.count(kind.name());
                self.trouble.callbacks_fail = true;
                self.ends_later(kind, vec![], 500, 20_000);
            }
            _ => {}
        }
    }

    pub(super) fn end_trouble(&mut self, id: u64) {
        let Some((kind, whom)) = self.trouble.under_way.remove(&id) else { return };
        let still =
            self.trouble.under_way.values().any(|(other, who)| *other == kind && *who == whom);
        if still {
            return;
        }
        self.tell(|| format!("over: {kind:?} {whom:?}"));
        match kind {
            Kind::Loss => self.mesh.network.loss = 0,
            Kind::Delay => self.mesh.network.latency = SimulatedNetwork::default().latency,
            Kind::Duplication => self.mesh.network.duplicates = 0,
            Kind::Partition | Kind::OneWay | Kind::PartialCut => self.mesh.heal(),
            Kind::Silence => self.trouble.silent = false,
            Kind::Callback => self.trouble.callbacks_fail = false,
            Kind::Crowd => self.trouble.crowded = false,
            Kind::CenterDiskFull => self.center.disk.borrow_mut().fill(false),
            Kind::SlowDisk => self.center.commit = Duration::from_millis(2),
            Kind::StuckCommit => self.center.stuck = None,
            _ => {}
        }
        for who in whom {
            match kind {
                Kind::SlowMember => drop(self.mesh.backlog.remove(&who)),
                Kind::AgentCrash | Kind::MachineCrash => self.start_agent(who),
                Kind::NotMade => self.cells[who].machine.faults.not_made = None,
                Kind::SlowMaking => self.cells[who].machine.faults.making = Duration::ZERO,
                Kind::NotDestroyed => self.cells[who].machine.faults.not_destroyed = None,
                Kind::Hang => self.cells[who].machine.faults.check_failure = None,
                Kind::CellDisk => {
                    self.cells[who].disk.full = false;
                    self.cells[who].disk.bad = false;
                }
                Kind::SelfTest => self.tell_cell(who, CellInput::Healthy(true)),
                _ => {}
            }
        }
    }

    /// All trouble ends.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.tell(|| "all trouble ends".to_owned());
        let all: Vec<u64> = self.trouble.under_way.keys().copied().collect();
        for id in all {
            self.end_trouble(id);
        }
        self.mesh.heal();
        self.mesh.backlog.clear();
        self.center.disk.borrow_mut().mend();
        for nth in 0..self.cells.len() {
            if let Some(agent) = &mut self.cells[nth].agent {
                agent.fuse = None;
            }
            if self.cells[nth].is_old {
                self.upgrade(nth);
            }
            self.start_agent(nth);
        }
        if self.center.is_old {
            self.upgrade_center();
        }
        self.start_center();
    }

    fn ends_later(&mut self, kind: Kind, whom: Vec<usize>, least_ms: u64, most_ms: u64) {
        let at = self.now() + self.trouble.span(least_ms, most_ms);
        self.trouble.next += 1;
        let id = self.trouble.next;
        self.trouble.under_way.insert(id, (kind, whom));
        self.plan(at, For::World, Event::TroubleEnds(id));
    }

    fn network(&mut self, kind: Kind, change: impl FnOnce(&mut SimulatedNetwork, &mut SplitMix)) {
        self.count(kind.name());
        change(&mut self.mesh.network, &mut self.trouble.random);
        self.ends_later(kind, vec![], 500, 15_000);
    }

    /// A few cells here, all others there; the coordinator on one side.
    fn part(&mut self, nth: usize) {
        let share = (1 + self.trouble.random.below(self.cells.len())) as u64;
        let salt = self.trouble.random.next();
        let all = self.cells.len() as u64;
        self.mesh.part(|place| {
            let lot = volvox_protocol::random::mix(salt ^ place as u64) % all;
            u8::from(place == nth + 1 || lot < share / 2)
        });
        self.count(Kind::Partition.name());
        self.ends_later(Kind::Partition, vec![], 1_000, 30_000);
    }

    fn cut(&mut self, kind: Kind, nth: usize) {
        for _ in 0..=self.trouble.random.below(6) {
            let other = self.trouble.random.below(self.cells.len() + 1);
            if other == nth + 1 || other >= self.mesh.places() {
                continue;
            }
            self.count(kind.name());
            let way = self.trouble.random.once_in(2);
            let both = kind == Kind::PartialCut;
            if both || way {
                self.mesh.cut(nth + 1, other);
            }
            if both || !way {
                self.mesh.cut(other, nth + 1);
            }
        }
        self.ends_later(kind, vec![], 1_000, 30_000);
    }

    /// An agent dies at once, or at one of its next writes and effects.
    fn crash_agent(&mut self, nth: usize) {
        if !self.cells[nth].mortal {
            return;
        }
        let fuse = self.trouble.random.below(12);
        match &mut self.cells[nth].agent {
            Some(agent) if fuse > 2 => {
                agent.fuse = Some((u32::try_from(fuse).unwrap_or(1), Last::Killed));
            }
            Some(_) => {
                self.count(Kind::AgentCrash.name());
                self.kill_agent(nth);
                // What ends while nobody watches must be found.
                if let Some(guid) = self.some_container(nth) {
                    self.cells[nth].machine.end_process(&guid, "server", 1);
                }
            }
            None => {}
        }
        self.ends_later(Kind::AgentCrash, vec![nth], 200, 10_000);
    }

    /// What holds a container hangs, for a while or for ever; or it dies when it has written down an end
    /// that nobody has heard of.
    fn half_kill(&mut self, nth: usize) {
        let Some(guid) = self.some_container(nth) else { return };
        let span = match self.trouble.random.below(4) {
            0 => {
                self.count("shim died before it told");
                self.cells[nth].machine.kill_untold(&guid, "server", 1);
                return self.plan_due(nth);
            }
            1 => self.trouble.span(100, 15_000),
            2 => self.trouble.span(15_000, 80_000),
            _ => Duration::MAX,
        };
        let (id, for_ever) = (self.cells[nth].id.clone(), span == Duration::MAX);
        self.tell(|| format!("{id}: the shim of {guid} hangs for {:.1} s", span.as_secs_f32()));
        if !for_ever && self.trouble.random.once_in(2) {
            // Its disk keeps it, and it can be seen at work: it is waited for longer.
            self.count("shim is slow");
            self.cells[nth].machine.stall(&guid, span);
        } else {
            self.count(if for_ever { "shim hangs for ever" } else { "shim hangs for a while" });
            self.cells[nth].machine.hang(&guid, span);
        }
        self.plan_due(nth);
    }

    /// A newer release is installed.
    fn upgrade(&mut self, nth: usize) {
        self.kill_agent(nth);
        self.cells[nth].is_old = false;
        self.start_agent(nth);
    }

    /// The coordinator's newer release finds what the older one has written.
    fn upgrade_center(&mut self) {
        self.kill_center(End::Killed);
        self.center.is_old = false;
        let aged = self.center.disk.borrow_mut().age();
        match aged {
            Ok(older) => (0..older).for_each(|_| self.count("older record")),
            Err(error) => self.checks.fail(format!("no older records: {error}")),
        }
        self.start_center();
    }

    fn some_container(&mut self, nth: usize) -> Option<ContainerGuid> {
        let all: Vec<ContainerGuid> = self.cells[nth].machine.containers().cloned().collect();
        if all.is_empty() {
            return None;
        }
        Some(self.trouble.random.one_of(&all).clone())
    }

    /// The database is lost. The consumer has to ask for everything anew.
    fn wipe(&mut self) {
        self.protect_containers();
        self.kill_center(End::Killed);
        self.center.disk.borrow_mut().wipe();
        self.checks.board_is_lost();
        self.consumer.forget();
        self.restart_center_later();
    }
}

impl Kind {
    /// Its name, for counts and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Loss => "loss",
            Kind::Delay => "delay",
            Kind::Duplication => "duplication",
            Kind::Partition => "partition",
            Kind::OneWay => "one-way",
            Kind::PartialCut => "partial-cut",
            Kind::SlowMember => "slow-member",
            Kind::Pause => "pause",
            Kind::AgentCrash => "agent-crash",
            Kind::MachineCrash => "machine-crash",
            Kind::MachineLost => "machine-lost",
            Kind::ShimCrash => "shim-crash",
            Kind::ProcessCrash => "process-crash",
            Kind::NotMade => "not-made",
            Kind::SlowMaking => "slow-making",
            Kind::NotDestroyed => "not-destroyed",
            Kind::Hang => "hang",
            Kind::CenterCrash => "coordinator-crash",
            Kind::CommitFailure => "commit-failure",
            Kind::CenterDiskFull => "coordinator-disk-full",
            Kind::SlowDisk => "slow-disk",
            Kind::CellDisk => "cell-disk",
            Kind::Clock => "clock",
            Kind::Evacuation => "evacuation",
            Kind::SelfTest => "self-test",
            Kind::Skew => "skew",
            Kind::EmptyBoard => "empty-board",
            Kind::Silence => "silence",
            Kind::Callback => "callback",
            Kind::Crowd => "crowd",
            Kind::ShimHangs => "shim-hangs",
            Kind::StuckCommit => "stuck-commit",
        }
    }
}
