//! Very large fleets: how long it takes until a loss is known, until what ran there has other cells, and
//! until all of it runs again, in simulated time. The coordinator's own thinking takes none here: what
//! that costs, the benchmarks of board and auction tell.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use volvox_coordinator::bbs::command::Command;
use volvox_coordinator::cells::sync::PageSize;
use volvox_protocol::actual_lrp::Presence;
use volvox_protocol::cell::CellPresence;
use volvox_protocol::id::{CellId, Domain};
use volvox_protocol::time::Timestamp;

use super::center::Ticket;
use super::checks::Failure;
use super::plan::Plan;
use super::world::{CENTER, World};

/// How often it is looked.
const STEP: Duration = Duration::from_millis(100);
/// After so long something is wrong.
const LIMIT: Duration = Duration::from_secs(900);

/// How often it is said how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Hears what is waited for and what time it is in the simulation.
pub type Progress = fn(&str, Duration);

/// A fleet.
pub struct Scale {
    world: World,
    instances: usize,
    began: Timestamp,
    told: Timestamp,
    progress: Progress,
}

/// After how long something was so for half, for 99 % and for all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reached {
    /// Of half.
    pub half: Option<Duration>,
    /// Of 99 %.
    pub most: Option<Duration>,
    /// Of all.
    pub all: Option<Duration>,
}

impl Reached {
    /// So many of so many, after so long.
    fn note(&mut self, count: usize, of: usize, after: Duration) {
        if count * 2 >= of {
            self.half.get_or_insert(after);
        }
        if count * 100 >= of * 99 {
            self.most.get_or_insert(after);
        }
        if count >= of {
            self.all.get_or_insert(after);
        }
    }
}

/// What the loss of cells came to.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    /// How many cells were lost.
    pub cells: usize,
    /// How many instances ran there.
    pub instances: usize,
    /// Until the board had heard of them.
    pub detected: Reached,
    /// Until the instances that ran there had another cell, one that was not lost.
    pub placed: Reached,
    /// Until they ran there; of all: and no record was left of those that were lost.
    pub converged: Reached,
    /// Packets that all members sent meanwhile.
    pub packets: u64,
    /// Bytes that all members sent meanwhile.
    pub bytes: u64,
    /// Bytes that the coordinator sent and received meanwhile.
    pub bytes_of_coordinator: u64,
}

impl Scale {
    /// Starts so many cells, and on them so many processes of so many instances each. Containers take
    /// `making` to be made. Such a run is long: `progress` hears how far it is.
    pub fn new(
        seed: u64,
        cells: usize,
        processes: usize,
        each: usize,
        making: Duration,
        progress: Progress,
    ) -> Result<Scale, Failure> {
        let mut plan = Plan::new(seed, cells);
        plan.kinds.clear();
        plan.checks = false;
        plan.page = PageSize::FULL;
        let mut world = World::new(plan);
        world.calm = true;
        for cell in &mut world.cells {
            cell.machine.faults.making = making;
        }
        let began = world.now();
        world.begin()?;
        let instances = processes * each;
        let mut scale = Scale { world, instances, began, told: began, progress };
        scale.until("all cells are there", |world| {
            let Some(alive) = &world.center.alive else { return false };
            world
                .cells
                .iter()
                .all(|cell| alive.core.cell(&cell.id).is_some_and(|it| it.load.is_some()))
        })?;
        for nth in 0..processes {
            let desired = json!({
                "process_guid": format!("p{nth}"), "domain": "apps", "instances": each,
                "rootfs": "host:", "memory_mb": 32, "disk_mb": 16,
                "action": {"run": {"path": "server", "user": "nobody"}},
            });
            let desired = serde_json::from_value(desired);
            let desired = Box::new(desired.map_err(|it| Failure::Broken(it.to_string()))?);
            scale.world.submit(Command::DesireLrp(desired), Ticket::Nobody);
        }
        let domain = Domain::new("apps").expect("a name of plain letters");
        scale.world.submit(Command::UpsertDomain(domain, Duration::ZERO), Ticket::Nobody);
        let all = scale.instances;
        scale.until("everything runs", |world| running(world) == all)?;
        Ok(scale)
    }

    /// The time since the beginning of the simulation.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Loses every cell of which `is_lost` says so, at once and for good.
    pub fn lose(&mut self, is_lost: impl Fn(usize) -> bool) -> Result<Loss, Failure> {
        let lost: Vec<usize> = (0..self.world.cells.len())
            .filter(|nth| !self.world.cells[*nth].is_lost && is_lost(*nth))
            .collect();
        let (began, before) = (self.now(), self.traffic());
        let Some(alive) = &self.world.center.alive else {
            return Err(Failure::Broken("no coordinator".to_owned()));
        };
        let records = alive.view.snapshot();
        let on = |nth: &usize| records.instances_on(&self.world.cells[*nth].id).count();
        let instances = lost.iter().map(on).sum();
        for nth in &lost {
            self.world.kill_machine(*nth);
            self.world.cells[*nth].is_lost = true;
        }
        let names: BTreeSet<CellId> =
            self.world.cells.iter().filter(|it| it.is_lost).map(|it| it.id.clone()).collect();
        let (mut detected, mut placed, mut converged) =
            (Reached::default(), Reached::default(), Reached::default());
        let limit = began + LIMIT;
        loop {
            let after = self.now().since(began);
            let Some(seen) = seen(&self.world, &lost, &names) else {
                return Err(Failure::Broken("no coordinator".to_owned()));
            };
            // All but those that were lost have cells and run all the time.
            let others = self.instances - instances;
            detected.note(seen.known, lost.len(), after);
            let of_lost = |count: usize| count.saturating_sub(others);
            placed.note(of_lost(seen.placed), instances, after);
            // All of it only when nothing else is on the board.
            let at_most = instances - usize::from(seen.records != self.instances);
            converged.note(of_lost(seen.running).min(at_most), instances, after);
            if detected.all.is_some() && converged.all.is_some() {
                break;
            }
            if self.now() >= limit {
                return Err(Failure::NotSettled("not everything runs again".to_owned()));
            }
            self.step("everything runs again")?;
        }
        let after = self.traffic();
        Ok(Loss {
            cells: lost.len(),
            instances,
            detected,
            placed,
            converged,
            packets: after.0 - before.0,
            bytes: after.1 - before.1,
            bytes_of_coordinator: after.2 - before.2,
        })
    }

    fn until(&mut self, what: &str, done: impl Fn(&World) -> bool) -> Result<(), Failure> {
        let limit = self.now() + LIMIT;
        while !done(&self.world) {
            if self.now() >= limit {
                return Err(Failure::NotSettled(format!("not {what}")));
            }
            self.step(what)?;
        }
        Ok(())
    }

    fn step(&mut self, what: &str) -> Result<(), Failure> {
        let step = self.now() + STEP;
        self.world.run_until(step)?;
        if self.now().since(self.told) >= TELL_EVERY {
            self.told = self.now();
            (self.progress)(what, self.now().since(self.began));
        }
        Ok(())
    }

    /// Packets and bytes sent by all, and bytes sent and received by the coordinator.
    fn traffic(&mut self) -> (u64, u64, u64) {
        let mesh = &mut self.world.mesh;
        mesh.settle();
        let all = (0..mesh.places()).map(|place| mesh.traffic(place));
        let (packets, bytes) =
            all.fold((0, 0), |(packets, bytes), it| (packets + it.packets, bytes + it.bytes));
        let center = mesh.traffic(CENTER);
        (packets, bytes, center.bytes + center.received)
    }
}

/// What the board has of a loss.
struct Seen {
    /// Lost cells that it knows to be lost.
    known: usize,
    /// Instances that have a cell which is not lost.
    placed: usize,
    /// Those of them that run.
    running: usize,
    /// All records.
    records: usize,
}

fn seen(world: &World, lost: &[usize], names: &BTreeSet<CellId>) -> Option<Seen> {
    let alive = world.center.alive.as_ref()?;
    let board = alive.core.board();
    let gone = |nth: &&usize| {
        let told = board.presence(&world.cells[**nth].id);
        told.is_none_or(|it| it == CellPresence::Missing)
    };
    let records = alive.view.snapshot();
    let mut seen = Seen {
        known: lost.iter().filter(gone).count(),
        placed: 0,
        running: 0,
        records: records.instance_count(),
    };
    for lrp in records.instances().filter(|it| it.presence == Presence::Ordinary) {
        if lrp.cell_id().is_some_and(|cell| !names.contains(cell)) {
            seen.placed += 1;
            seen.running += usize::from(lrp.state.is_running());
        }
    }
    Some(seen)
}

/// Instances that run where they should, if there are no others.
fn running(world: &World) -> usize {
    let Some(alive) = &world.center.alive else { return 0 };
    let records = alive.view.snapshot();
    let good = |lrp: &&std::sync::Arc<volvox_protocol::actual_lrp::ActualLrp>| {
        lrp.presence == Presence::Ordinary && lrp.state.is_running()
    };
    let count = records.instances().filter(good).count();
    if records.instance_count() == count { count } else { 0 }
}
