//! Files in memory, as a disk has them: what was written is read back at once, and is on the disk for
//! good only when it was synced. A write may fail with half of it done, a sync may fail and lose what it
//! was to keep, the disk may be full, and the process may die at any of these. When the power goes, of
//! what was not synced any part is there and any part is not, sector by sector.
//!
//! Names come and go at once: what SQLite does for a folder's entries is not looked at.

use std::collections::BTreeMap;

use volvox_protocol::random::SplitMix;

/// A disk writes so much whole, or not at all.
const SECTOR: usize = 512;

/// What happens when a fuse has burnt down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::harness) enum Blow {
    /// The write or sync fails, and perhaps half of it is done.
    Fails,
    /// The process dies in it.
    Dies,
    /// The power goes.
    PowerGoes,
}

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// There is no room.
    Full,
    /// The disk says no.
    Broken,
    /// Whoever asks is dead.
    Dead,
    /// There is no such file.
    Missing,
}

/// What was done to a file and is not on the disk for good.
#[derive(Debug, Clone)]
enum Step {
    Write(usize, Vec<u8>),
    Cut(usize),
}

impl Step {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Step::Write(at, data) => put(bytes, *at, data),
            Step::Cut(length) => bytes.truncate(*length),
        }
    }
}

/// Writes, as a file system does: what was never written is zero.
fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    let end = at + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(data);
}

#[derive(Debug, Clone, Default)]
struct File {
    /// What is read.
    shown: Vec<u8>,
    /// What is there after a power cut, at least.
    kept: Vec<u8>,
    steps: Vec<Step>,
}

type Trouble = (Option<(usize, Blow)>, Option<usize>, Option<usize>, usize, bool);

/// A disk.
#[derive(Debug)]
pub(in crate::harness) struct Platter {
    files: BTreeMap<String, File>,
    /// No file grows.
    pub(in crate::harness) full: bool,
    /// What happens after so many further writes and syncs.
    pub(in crate::harness) fuse: Option<(usize, Blow)>,
    /// It is a bad disk: one write or sync of so many goes wrong.
    pub(in crate::harness) bad: Option<usize>,
    /// The reads after which one fails.
    pub(in crate::harness) read_fuse: Option<usize>,
    /// So many reads fail, one after the other.
    unreadable: usize,
    /// Which process has it. Those before are dead.
    life: u32,
    /// What the fuse did to the process that has it now, if it did something.
    pub(in crate::harness) blown: Option<Blow>,
    /// Writes, syncs and reads that failed.
    pub(in crate::harness) failed: u64,
    /// The same in words, until somebody takes them.
    pub(super) story: Vec<String>,
    random: SplitMix,
}

impl Platter {
    pub(super) fn new(seed: u64) -> Platter {
        Platter {
            files: BTreeMap::new(),
            full: false,
            fuse: None,
            bad: None,
            read_fuse: None,
            unreadable: 0,
            life: 0,
            blown: None,
            failed: 0,
            story: Vec::new(),
            random: SplitMix(seed),
        }
    }

    /// Nothing is going to go wrong.
    pub(super) fn mend(&mut self) {
        (self.fuse, self.bad, self.read_fuse) = (None, None, None);
        (self.unreadable, self.full) = (0, false);
    }

    /// What is going to go wrong.
    pub(super) fn trouble(&self) -> Trouble {
        (self.fuse, self.bad, self.read_fuse, self.unreadable, self.full)
    }

    /// It is going to go wrong again.
    pub(super) fn trouble_again(&mut self, trouble: Trouble) {
        (self.fuse, self.bad, self.read_fuse, self.unreadable, self.full) = trouble;
    }

    /// The process that has it is dead, and can do nothing any more.
    pub(super) fn orphan(&mut self) {
        self.life += 1;
    }

    pub(super) fn life(&self) -> u32 {
        self.life
    }

    /// The power goes: the process is dead, and of what was not synced any part is lost.
    pub(super) fn lose_power(&mut self) {
        self.orphan();
        for file in self.files.values_mut() {
            for step in std::mem::take(&mut file.steps) {
                keep_some(&mut self.random, &step, &mut file.kept);
            }
            file.shown.clone_from(&file.kept);
        }
    }

    /// All files are gone.
    pub(super) fn wipe(&mut self) {
        self.files.clear();
    }

    pub(super) fn size(&self, name: &str) -> Option<usize> {
        self.files.get(name).map(|file| file.shown.len())
    }

    pub(super) fn make(&mut self, name: &str) {
        self.files.entry(name.to_owned()).or_default();
    }

    /// Gives a file another name.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), Fault> {
        let file = self.files.remove(from).ok_or(Fault::Missing)?;
        self.files.insert(to.to_owned(), file);
        Ok(())
    }

    pub(super) fn copy(&mut self, from: &str, to: &str) {
        if let Some(file) = self.files.get(from).cloned() {
            self.files.insert(to.to_owned(), file);
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), Fault> {
        self.files.remove(name).map(drop).ok_or(Fault::Missing)
    }

    /// Fills `data` from there on, the rest with zeros. Gives how many bytes there were.
    pub(super) fn read(
        &mut self,
        life: u32,
        name: &str,
        at: usize,
        data: &mut [u8],
    ) -> Result<usize, Fault> {
        self.is_alive(life)?;
        let left = self.read_fuse;
        self.read_fuse = left.and_then(|left| left.checked_sub(1));
        if left == Some(0) || self.unreadable > 0 {
            self.unreadable = self.unreadable.saturating_sub(1);
            self.failed += 1;
            self.story.push(format!("a read of {name} at {at} fails"));
            return Err(Fault::Broken);
        }
        let shown = &self.files.get(name).ok_or(Fault::Missing)?.shown;
        let found = shown.get(at..).unwrap_or_default();
        let count = found.len().min(data.len());
        data[..count].copy_from_slice(&found[..count]);
        data[count..].fill(0);
        Ok(count)
    }

    pub(super) fn write(
        &mut self,
        life: u32,
        name: &str,
        at: usize,
        data: &[u8],
    ) -> Result<(), Fault> {
        self.is_alive(life)?;
        let grows = self.size(name).ok_or(Fault::Missing)? < at + data.len();
        let blow = self.burn();
        let fault = match blow {
            None if self.full && grows => Some(Fault::Full),
            None => None,
            Some(Blow::Fails) => Some(Fault::Broken),
            Some(Blow::Dies | Blow::PowerGoes) => Some(Fault::Dead),
        };
        let count = match fault {
            None => data.len(),
            // No room for the rest: there is a rest.
            Some(Fault::Full) => self.random.below(data.len().max(1)),
            Some(Fault::Broken | Fault::Dead | Fault::Missing) => self.random.below(data.len() + 1),
        };
        let file = self.files.get_mut(name).ok_or(Fault::Missing)?;
        if count > 0 {
            put(&mut file.shown, at, &data[..count]);
            file.steps.push(Step::Write(at, data[..count].to_vec()));
        }
        self.after(blow, fault, || format!("{count} of {} bytes to {name} at {at}", data.len()))
    }

    pub(super) fn cut(&mut self, life: u32, name: &str, length: usize) -> Result<(), Fault> {
        self.is_alive(life)?;
        let blow = self.burn();
        let file = self.files.get_mut(name).ok_or(Fault::Missing)?;
        if blow.is_none() {
            file.shown.truncate(length);
            file.steps.push(Step::Cut(length));
        }
        let fault = blow.map(|blow| if blow == Blow::Fails { Fault::Broken } else { Fault::Dead });
        self.after(blow, fault, || format!("cut {name} to {length}"))
    }

    /// Everything that was written to the file is on the disk for good. When it fails, the system takes
    /// what it could not write for written: it is read back, and no later sync tries it again.
    pub(super) fn sync(&mut self, life: u32, name: &str) -> Result<(), Fault> {
        self.is_alive(life)?;
        let blow = self.burn();
        let file = self.files.get_mut(name).ok_or(Fault::Missing)?;
        match blow {
            None => file.steps.drain(..).for_each(|step| step.apply(&mut file.kept)),
            Some(Blow::Fails) => {
                for step in std::mem::take(&mut file.steps) {
                    keep_some(&mut self.random, &step, &mut file.kept);
                }
            }
            Some(Blow::Dies | Blow::PowerGoes) => {}
        }
        let fault = blow.map(|blow| if blow == Blow::Fails { Fault::Broken } else { Fault::Dead });
        self.after(blow, fault, || format!("sync {name}"))
    }

    fn is_alive(&self, life: u32) -> Result<(), Fault> {
        if life == self.life { Ok(()) } else { Err(Fault::Dead) }
    }

    /// One more write or sync.
    fn burn(&mut self) -> Option<Blow> {
        if self.fuse.is_none() && self.bad.is_some_and(|times| self.random.once_in(times)) {
            let all = [Blow::Fails, Blow::Fails, Blow::Fails, Blow::Dies, Blow::PowerGoes];
            return Some(*self.random.one_of(&all));
        }
        let (left, blow) = self.fuse?;
        self.fuse = left.checked_sub(1).map(|left| (left, blow));
        (left == 0).then_some(blow)
    }

    fn after(
        &mut self,
        blow: Option<Blow>,
        fault: Option<Fault>,
        what: impl FnOnce() -> String,
    ) -> Result<(), Fault> {
        self.blown = blow.or(self.blown);
        if let Some(fault) = fault {
            let by = blow.map_or(String::new(), |blow| format!(", {blow:?}"));
            self.story.push(format!("{fault:?}{by}: {}", what()));
        }
        match blow {
            Some(Blow::PowerGoes) => self.lose_power(),
            Some(Blow::Dies) => self.orphan(),
            Some(Blow::Fails) => self.goes_on(),
            None => {}
        }
        self.failed += u64::from(fault.is_some());
        fault.map_or(Ok(()), Err)
    }
}

impl Platter {
    /// A disk that has failed once fails again, or is taken away: what follows a failure must hold too.
    fn goes_on(&mut self) {
        match self.random.below(6) {
            0 if self.random.once_in(2) => self.read_fuse = Some(self.random.below(16)),
            0 => self.unreadable = self.random.below(40),
            1 => self.fuse = Some((self.random.below(8), Blow::Dies)),
            2 => self.fuse = Some((self.random.below(8), Blow::PowerGoes)),
            3 => self.fuse = Some((self.random.below(8), Blow::Fails)),
            4 => {
                self.blown = Some(Blow::Dies);
                self.orphan();
            }
            _ => {}
        }
    }
}

/// What a power cut leaves of a step: all, nothing, or some sectors.
fn keep_some(random: &mut SplitMix, step: &Step, bytes: &mut Vec<u8>) {
    match (random.below(3), step) {
        (0, _) => {}
        (1, Step::Write(at, data)) => {
            let mut from = 0;
            while from < data.len() {
                let sector_ends = (at + from) / SECTOR * SECTOR + SECTOR - at;
                let to = sector_ends.min(data.len());
                if random.once_in(2) {
                    put(bytes, at + from, &data[from..to]);
                }
                from = to;
            }
        }
        _ => step.apply(bytes),
    }
}
