//! Storms: cells refuse, answer late or never, die, come back and are restarted, loads get lost.
//! When it is over, everything runs that has room.

use super::*;
use volvox_protocol::random::SplitMix;

const SEEDS: u64 = 300;
const STEPS: usize = 150;
const CELLS: usize = 4;

/// What a cell says to the auction later.
enum Late {
    Answer(u64, WorkBatch),
    Never(u64),
}

/// A cell with true books.
#[derive(Default)]
struct Truth {
    gone: bool,
    version: u64,
    free: CellCapacity,
    last_batch: u64,
    inbox: Vec<WorkBatch>,
    late: Vec<Late>,
    running: Vec<(String, u32)>,
}

struct Storm {
    random: SplitMix,
    rounds: Auction,
    now: Timestamp,
    cells: Vec<Truth>,
    /// Each piece and its memory.
    asked: BTreeMap<String, u32>,
}

fn name(nth: usize) -> String {
    format!("c{nth}")
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut storm = Storm {
            random: SplitMix(seed),
            rounds: Auction::new(AuctionSettings::default()),
            now: NOW,
            cells: Vec::new(),
            asked: BTreeMap::new(),
        };
        for nth in 0..CELLS {
            storm.cells.push(Truth::default());
            storm.live(nth);
        }
        storm
    }

    /// A new life: nothing runs there, and everything is counted from the beginning.
    fn live(&mut self, nth: usize) {
        self.cells[nth] = Truth { free: ROOM, ..Truth::default() };
        self.rounds.cell_info(cell(&name(nth), "z", ROOM).info);
        self.say(nth);
    }

    fn say(&mut self, nth: usize) {
        let truth = &mut self.cells[nth];
        truth.version += 1;
        self.rounds.cell_load(load(&name(nth), truth.version, truth.free, truth.last_batch));
    }

    fn wanted(&self) -> Wanting {
        let running = self.cells.iter().flat_map(|it| &it.running);
        let unwanted = running.map(|(name, _)| name.clone()).collect();
        Wanting { unwanted, ..Wanting::default() }
    }

    fn think(&mut self) {
        self.rounds.pass(self.now);
        if !self.rounds.is_due(self.now) {
            return;
        }
        let wanted = self.wanted();
        for (cell, batch) in self.rounds.run_round(self.now, &wanted).sends {
            let nth = (0..CELLS).find(|nth| name(*nth) == cell.as_str()).unwrap();
            if self.cells[nth].gone {
                self.cells[nth].late.push(Late::Never(batch.number));
            } else {
                self.cells[nth].inbox.push(batch);
            }
        }
    }

    /// Takes what fits of the next batch; what runs elsewhere by now it may not claim.
    fn admit(&mut self, nth: usize, stubborn: bool) -> (u64, WorkBatch) {
        let taken = self.wanted().unwanted;
        let truth = &mut self.cells[nth];
        let batch = truth.inbox.remove(0);
        let mut refused = WorkBatch { number: batch.number, lrps: vec![], tasks: vec![] };
        for start in batch.lrps {
            let memory_mb = start.requirements.memory_mb;
            for index in &start.indices {
                let piece = format!("{}/{index}", start.process_guid);
                if stubborn || truth.free.memory_mb < memory_mb || truth.free.containers == 0 {
                    refused.lrps.push(LrpStart { indices: vec![*index], ..start.clone() });
                } else if !taken.contains(&piece) {
                    truth.free = less(truth.free, &start.requirements);
                    truth.running.push((piece, memory_mb));
                }
            }
        }
        truth.last_batch = batch.number;
        (batch.number, refused)
    }

    fn deliver(&mut self, nth: usize) {
        let cell = id(&name(nth));
        let at = self.random.below(self.cells[nth].late.len());
        match self.cells[nth].late.swap_remove(at) {
            Late::Answer(number, refused) => {
                assert_eq!(self.rounds.answered(self.now, &cell, number, &refused), 0);
            }
            Late::Never(number) => self.rounds.unanswered(self.now, &cell, number),
        }
    }

    fn ask(&mut self) {
        let guid = format!("p{}", self.asked.len());
        let memory_mb = 1 + u32::try_from(self.random.below(40)).unwrap();
        let count = 1 + u32::try_from(self.random.below(3)).unwrap();
        self.asked.extend((0..count).map(|index| (format!("{guid}/{index}"), memory_mb)));
        want(&mut self.rounds, &guid, 0..count, memory_mb);
    }

    /// Asks again for everything that does not run.
    fn converge(&mut self) {
        let running = self.wanted().unwanted;
        for (piece, memory_mb) in self.asked.iter().filter(|(piece, _)| !running.contains(*piece)) {
            let (guid, index) = piece.split_once('/').unwrap();
            let index = index.parse().unwrap();
            want(&mut self.rounds, guid, index..index + 1, *memory_mb);
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(300);
        let nth = self.random.below(CELLS);
        let cell = id(&name(nth));
        match self.random.below(16) {
            0 | 1 if self.asked.len() < 25 => self.ask(),
            0..7 if !self.cells[nth].inbox.is_empty() => {
                let stubborn = self.random.once_in(4);
                let (number, refused) = self.admit(nth, stubborn);
                let never = self.random.once_in(5);
                let answer =
                    if never { Late::Never(number) } else { Late::Answer(number, refused) };
                self.cells[nth].late.push(answer);
            }
            7..10 if !self.cells[nth].late.is_empty() => self.deliver(nth),
            10 if self.random.once_in(3) && !self.cells[nth].gone => {
                self.cells[nth] = Truth { gone: true, ..Truth::default() };
                self.rounds.cell_gone(&cell);
            }
            11 if self.cells[nth].gone => self.live(nth),
            12 if self.random.once_in(3) && !self.cells[nth].gone => {
                self.rounds.cell_restarted(&cell);
                self.live(nth);
            }
            13 if self.random.once_in(6) => self.converge(),
            // Lost on its way: the next one says it too.
            14 if !self.cells[nth].gone => self.cells[nth].version += 1,
            _ if !self.cells[nth].gone => self.say(nth),
            _ => {}
        }
        self.think();
    }

    /// The storm is over: everybody is there, answers, and says how it is doing.
    fn calm(&mut self) {
        (0..CELLS).for_each(|nth| {
            if self.cells[nth].gone {
                self.live(nth)
            }
        });
        for _ in 0..40 {
            self.now = self.now + Duration::from_secs(30);
            self.converge();
            self.think();
            for nth in 0..CELLS {
                while !self.cells[nth].inbox.is_empty() {
                    let (number, refused) = self.admit(nth, false);
                    self.cells[nth].late.push(Late::Answer(number, refused));
                }
                while !self.cells[nth].late.is_empty() {
                    self.deliver(nth);
                }
                self.say(nth);
            }
        }
    }
}

#[test]
fn after_every_storm_everything_runs_that_has_room() {
    let mut ran = 0;
    for seed in 0..SEEDS {
        let mut storm = Storm::new(seed);
        (0..STEPS).for_each(|_| storm.step());
        storm.calm();
        let running = storm.wanted().unwanted;
        ran += running.len();
        for (piece, memory_mb) in &storm.asked {
            let room = |it: &Truth| it.free.memory_mb >= *memory_mb && it.free.containers > 0;
            let room = storm.cells.iter().any(room);
            assert!(running.contains(piece) || !room, "seed {seed}: {piece} waits, with room");
        }
        let all: usize = storm.cells.iter().map(|it| it.running.len()).sum();
        assert_eq!(all, running.len(), "seed {seed}: nothing runs twice");
        let under_way: usize =
            storm.rounds.cells.values().map(TrackedCell::batches_under_way).sum();
        assert_eq!(under_way, 0, "seed {seed}: nothing is remembered for ever");
        assert!(storm.rounds.agenda.len() <= CELLS);
    }
    assert!(ran > 3_000, "the storms leave something to run: {ran}");
}
