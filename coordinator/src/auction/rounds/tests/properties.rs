//! Random orders of requests, loads, answers, losses and rounds, with cells that keep books of
//! their own: capacity is never counted twice and never lost, and no work is.

use super::*;
use volvox_protocol::random::SplitMix;

const SEEDS: u64 = 2_000;
const STEPS: usize = 60;

/// A cell with true books.
struct Truth {
    name: String,
    version: u64,
    free: CellCapacity,
    last_batch: u64,
    /// What is on its way to it, in order.
    inbox: Vec<WorkBatch>,
    /// Its answers on their way back: number and what it refused.
    answers: Vec<(u64, WorkBatch)>,
    /// Its loads on their way, in any order.
    loads: Vec<CellLoad>,
    /// What it runs.
    running: Vec<(String, Arc<Requirements>)>,
}

impl Truth {
    fn say(&mut self) {
        self.version += 1;
        self.loads.push(load(&self.name, self.version, self.free, self.last_batch));
    }

    /// Takes what fits of the next batch and refuses the rest.
    fn admit(&mut self, stubborn: bool) {
        let batch = self.inbox.remove(0);
        let mut refused = WorkBatch { number: batch.number, lrps: vec![], tasks: vec![] };
        for start in batch.lrps {
            let mut back = Vec::new();
            for index in &start.indices {
                let needs = &start.requirements;
                let fits = self.free.memory_mb >= needs.memory_mb
                    && self.free.disk_mb >= needs.disk_mb
                    && self.free.containers >= 1;
                if fits && !stubborn {
                    self.free = less(self.free, needs);
                    let name = format!("{}/{index}", start.process_guid);
                    self.running.push((name, Arc::clone(needs)));
                } else {
                    back.push(*index);
                }
            }
            if !back.is_empty() {
                refused.lrps.push(LrpStart { indices: back, ..start });
            }
        }
        self.last_batch = batch.number;
        self.answers.push((batch.number, refused));
        self.say();
    }

    /// Something ends.
    fn end_one(&mut self, random: &mut SplitMix) -> Option<String> {
        if self.running.is_empty() {
            return None;
        }
        let (name, needs) = self.running.swap_remove(random.below(self.running.len()));
        self.free.memory_mb += needs.memory_mb;
        self.free.disk_mb += needs.disk_mb;
        self.free.containers += 1;
        self.say();
        Some(name)
    }
}

/// The auction and its cells.
struct World {
    rounds: Auction,
    cells: Vec<Truth>,
    asked: BTreeSet<String>,
    ended: BTreeSet<String>,
    sends: usize,
    now: Timestamp,
}

impl World {
    fn new(count: usize) -> Self {
        let mut rounds = Auction::new(AuctionSettings::default());
        let mut cells = Vec::new();
        for nth in 0..count {
            let name = format!("c{nth}");
            rounds.cell_info(cell(&name, "z", ROOM).info);
            let mut truth = Truth {
                name,
                version: 0,
                free: ROOM,
                last_batch: 0,
                inbox: vec![],
                answers: vec![],
                loads: vec![],
                running: vec![],
            };
            truth.say();
            cells.push(truth);
        }
        World { rounds, cells, asked: BTreeSet::new(), ended: BTreeSet::new(), sends: 0, now: NOW }
    }

    fn step(&mut self, random: &mut SplitMix) {
        let at = random.below(self.cells.len());
        self.now = self.now + Duration::from_millis(10);
        self.rounds.pass(self.now);
        match random.below(8) {
            0 => self.ask(random),
            1 | 2 => self.think(),
            3 if !self.cells[at].inbox.is_empty() => self.cells[at].admit(random.once_in(8)),
            4 if !self.cells[at].loads.is_empty() => {
                let nth = random.below(self.cells[at].loads.len());
                let load = self.cells[at].loads.swap_remove(nth);
                self.rounds.cell_load(load);
            }
            5 if !self.cells[at].answers.is_empty() => self.answer(at, random),
            6 => self.ended.extend(self.cells[at].end_one(random)),
            _ => self.cells[at].say(),
        }
    }

    fn ask(&mut self, random: &mut SplitMix) {
        let guid = format!("p{}", self.asked.len());
        let count = 1 + u32::try_from(random.below(4)).unwrap();
        let memory_mb = 1 + u32::try_from(random.below(50)).unwrap();
        self.asked.extend((0..count).map(|index| format!("{guid}/{index}")));
        want(&mut self.rounds, &guid, 0..count, memory_mb);
    }

    fn answer(&mut self, at: usize, random: &mut SplitMix) {
        let nth = random.below(self.cells[at].answers.len());
        let (number, refused) = self.cells[at].answers.swap_remove(nth);
        self.rounds.answered(self.now, &id(&self.cells[at].name), number, &refused);
    }

    /// A round takes everything that waits, and leaves only what has no place.
    fn think(&mut self) {
        let before = self.rounds.waiting();
        let orders = self.rounds.run_round(self.now, &Wanting::default());
        let mut placed = 0;
        for (cell, batch) in orders.sends {
            placed += batch.lrps.iter().map(|start| start.indices.len()).sum::<usize>();
            let truth = self.cells.iter_mut().find(|it| it.name == cell.as_str()).unwrap();
            assert!(truth.inbox.iter().all(|it| it.number < batch.number), "numbers rise");
            truth.inbox.push(batch);
            self.sends += 1;
        }
        assert_eq!(self.rounds.waiting() + placed, before, "nothing is lost, nothing is doubled");
        assert!(!self.rounds.is_due(self.now));
    }

    /// With all loads heard, what the auction believes of a cell is the truth less what is on its
    /// way, whatever was answered so far.
    fn check_books(&mut self) {
        for truth in &mut self.cells {
            truth.loads.drain(..).for_each(|load| self.rounds.cell_load(load));
            let mut expected = truth.free;
            for start in truth.inbox.iter().flat_map(|batch| &batch.lrps) {
                for _ in &start.indices {
                    expected.memory_mb =
                        expected.memory_mb.saturating_sub(start.requirements.memory_mb);
                    expected.disk_mb = expected.disk_mb.saturating_sub(start.requirements.disk_mb);
                    expected.containers = expected.containers.saturating_sub(1);
                }
            }
            let believed = self.rounds.cells[&id(&truth.name)].cell().unwrap();
            assert_eq!(believed.free, expected, "{}", truth.name);
        }
    }

    /// Every piece is in exactly one place.
    fn check_work(&self) {
        let mut found: Vec<String> = self.ended.iter().cloned().collect();
        let names = |start: &LrpStart| {
            let guid = start.process_guid.clone();
            start.indices.iter().map(|index| format!("{guid}/{index}")).collect::<Vec<_>>()
        };
        found.extend(self.rounds.fresh.lrps().chain(self.rounds.parked.lrps()).flat_map(names));
        for truth in &self.cells {
            found.extend(truth.running.iter().map(|(name, _)| name.clone()));
            found.extend(truth.inbox.iter().flat_map(|it| &it.lrps).flat_map(names));
            found.extend(truth.answers.iter().flat_map(|(_, it)| &it.lrps).flat_map(names));
        }
        found.sort();
        assert_eq!(found, self.asked.iter().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn capacity_is_never_counted_twice_and_never_lost_and_no_work_is() {
    let mut sends = 0;
    for seed in 0..SEEDS {
        let mut random = SplitMix(seed);
        let mut world = World::new(1 + random.below(4));
        for step in 0..STEPS {
            world.step(&mut random);
            world.check_work();
            if step % 7 == 0 {
                world.check_books();
            }
        }
        sends += world.sends;
    }
    assert!(sends > 10_000, "the steps reach the cells: {sends}");
}

/// After everything has been heard and answered, a few rounds place all that has room.
#[test]
fn when_all_is_heard_nothing_waits_that_has_room() {
    for seed in 0..SEEDS {
        let mut random = SplitMix(seed ^ 0xabcd);
        let mut world = World::new(1 + random.below(4));
        (0..STEPS).for_each(|_| world.step(&mut random));
        for _ in 0..50 {
            for at in 0..world.cells.len() {
                while !world.cells[at].inbox.is_empty() {
                    world.cells[at].admit(false);
                }
                while !world.cells[at].answers.is_empty() {
                    world.answer(at, &mut random);
                }
                world.cells[at].say();
            }
            world.check_books();
            world.now = world.now + Duration::from_secs(60);
            world.rounds.pass(world.now);
            if world.rounds.is_due(world.now) {
                world.think();
            }
        }
        world.check_work();
        for start in world.rounds.fresh.lrps().chain(world.rounds.parked.lrps()) {
            let needs = &start.requirements;
            let room = world.cells.iter().any(|it| {
                it.free.memory_mb >= needs.memory_mb
                    && it.free.disk_mb >= needs.disk_mb
                    && it.free.containers >= 1
            });
            assert!(!room, "seed {seed}: {start:?} waits though there is room");
        }
        let under_way: usize =
            world.rounds.cells.values().map(TrackedCell::batches_under_way).sum();
        assert_eq!(under_way, 0, "seed {seed}: what was answered and reflected is forgotten");
    }
}
