//! How processes ended, in memory and on disk, until the agent has taken it in.
//!
//! On disk it is one file of lines that is only ever appended to: an end, or that one is forgotten.
//! When all are forgotten the file is emptied, so an agent that acknowledges keeps it short. A line
//! that was torn by a crash is passed over. A line is written before anybody is told, and so
//! outlives shim and agent; it is brought to the disk itself within [`SYNC_WITHIN`], for many at
//! once, so that a start does not wait for the disk. A machine that loses its power in between loses
//! the container too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::runtime::spec::Exit;

/// How long an end may be in the kernel's memory only.
const SYNC_WITHIN: Duration = Duration::from_millis(20);
/// Bytes of the file, beyond those of what is kept, before it is written anew.
const WASTE: u64 = 1 << 20;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Exited(Exit),
    Forgotten(u32),
}

/// The ends that are not forgotten.
#[derive(Debug)]
pub(crate) struct Exits {
    path: PathBuf,
    file: File,
    /// Bytes in the file since it was last written anew.
    appended: u64,
    is_torn: bool,
    kept: BTreeMap<u32, Exit>,
    /// Kept, but not surely on the disk.
    unsynced: BTreeSet<u32>,
    sync_at: Instant,
}

impl Exits {
    /// Begins a new file.
    pub(crate) fn create(path: &Path, now: Instant) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(0)?;
        Ok(Exits {
            path: path.to_owned(),
            file,
            appended: 0,
            is_torn: false,
            kept: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            sync_at: now,
        })
    }

    /// All that are kept, by id.
    pub(crate) fn kept(&self) -> &BTreeMap<u32, Exit> {
        &self.kept
    }

    /// Writes down an end. If the disk does not take it, memory still has it, and the agent is told
    /// all the same: better that it knows now than that it never does.
    pub(crate) fn record(&mut self, now: Instant, exit: &Exit) {
        self.kept.insert(exit.id, exit.clone());
        self.append(&Entry::Exited(exit.clone()));
        if self.unsynced.is_empty() {
            self.sync_at = now + SYNC_WITHIN;
        }
        self.unsynced.insert(exit.id);
    }

    /// Forgets an end. A crash may bring it back: then the agent forgets it again.
    pub(crate) fn forget(&mut self, id: u32) {
        if self.kept.remove(&id).is_none() {
            return;
        }
        self.unsynced.remove(&id);
        if self.kept.is_empty() {
            if self.file.set_len(0).is_ok() {
                (self.appended, self.is_torn) = (0, false);
            }
            return;
        }
        self.append(&Entry::Forgotten(id));
        if self.appended > WASTE && self.write_anew().is_ok() {
            self.unsynced.clear();
        }
    }

    /// How long until [`Exits::sync`] has something to do; nothing if it has not.
    pub(crate) fn patience(&self, now: Instant) -> Option<Duration> {
        (!self.unsynced.is_empty()).then(|| self.sync_at.saturating_duration_since(now))
    }

    /// Brings to the disk what has waited long enough. A disk that fails is asked again later.
    pub(crate) fn sync(&mut self, now: Instant) {
        if self.unsynced.is_empty() || now < self.sync_at {
            return;
        }
        match self.file.sync_data() {
            Ok(()) => self.unsynced.clear(),
            Err(_) => self.sync_at = now + Duration::from_secs(1),
        }
    }

    fn append(&mut self, entry: &Entry) {
        let mut line = if self.is_torn { vec![b'\n'] } else { Vec::new() };
        if serde_json::to_writer(&mut line, entry).is_err() {
            return;
        }
        line.push(b'\n');
        // A disk that is full may have taken a part of it: the next line must not go on there.
        self.is_torn = self.file.write_all(&line).is_err();
        self.appended += line.len() as u64;
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let partial = self.path.with_extension("partial");
        let mut file = OpenOptions::new().create(true).append(true).open(&partial)?;
        file.set_len(0)?;
        let mut lines = Vec::new();
        for exit in self.kept.values() {
            serde_json::to_writer(&mut lines, &Entry::Exited(exit.clone()))?;
            lines.push(b'\n');
        }
        file.write_all(&lines)?;
        file.sync_data()?;
        std::fs::rename(partial, &self.path)?;
        self.file = file;
        (self.appended, self.is_torn) = (0, false);
        Ok(())
    }
}

/// Reads the file of a shim, dead or alive. None is there before the shim has begun.
pub(crate) fn read(path: &Path) -> io::Result<BTreeMap<u32, Exit>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut kept = BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Entry::Exited(exit)) => drop(kept.insert(exit.id, exit)),
            Ok(Entry::Forgotten(id)) => drop(kept.remove(&id)),
            Err(_) => {}
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::spec::End;

    fn exit(id: u32) -> Exit {
        Exit {
            id,
            end: End::Status(0),
            out_of_memory: false,
            out_of_disk: false,
            at: 1,
            output: "line\nline €".to_owned(),
        }
    }

    #[test]
    fn what_is_not_forgotten_is_read_back_and_the_file_stays_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exits");
        let now = Instant::now();
        assert!(read(&path).unwrap().is_empty());
        let mut exits = Exits::create(&path, now).unwrap();
        exits.record(now, &exit(0));
        for id in 1..20_000 {
            exits.record(now, &exit(id));
            exits.forget(id);
            assert!(std::fs::metadata(&path).unwrap().len() <= WASTE + 1_000);
        }
        assert_eq!(&read(&path).unwrap(), exits.kept());
        assert_eq!(exits.kept().len(), 1);
        exits.forget(0);
        exits.forget(77);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn a_torn_line_is_passed_over_and_costs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exits");
        let now = Instant::now();
        let mut exits = Exits::create(&path, now).unwrap();
        exits.record(now, &exit(1));
        let whole = std::fs::read(&path).unwrap();
        exits.record(now, &exit(2));
        let both = std::fs::read(&path).unwrap();
        for length in 0..=both.len() {
            std::fs::write(&path, &both[..length]).unwrap();
            let expected =
                usize::from(length + 1 >= whole.len()) + usize::from(length + 1 >= both.len());
            assert_eq!(read(&path).unwrap().len(), expected, "{length} bytes");
        }
        exits.file.set_len(whole.len() as u64 + 9).unwrap();
        exits.is_torn = true;
        exits.record(now, &exit(3));
        assert_eq!(read(&path).unwrap().into_keys().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn the_disk_is_asked_once_for_many_and_not_for_what_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut exits = Exits::create(&folder.path().join("exits"), now).unwrap();
        assert_eq!(exits.patience(now), None);
        exits.record(now, &exit(1));
        exits.record(now + SYNC_WITHIN / 2, &exit(2));
        assert_eq!(exits.patience(now), Some(SYNC_WITHIN));
        exits.sync(now);
        assert!(exits.patience(now).is_some(), "it is too early");
        exits.sync(now + SYNC_WITHIN);
        assert_eq!(exits.patience(now), None);
        exits.record(now, &exit(3));
        exits.forget(3);
        assert_eq!(exits.patience(now), None);
    }
}
