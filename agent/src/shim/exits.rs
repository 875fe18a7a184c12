//! How processes ended, in memory and on disk, until the agent has taken it in.
//!
//! On disk it is one file of lines that is only ever appended to: an end, or that one is forgotten.
//! When all are forgotten the file is emptied, so an agent that acknowledges keeps it short. A line
//! that was torn by a crash is passed over. A line is written, and is on the disk itself, before
//! anybody is told. Only the end of a process whose output is captured, which is a check that is made
//! again and again for as long as the container lives, is not waited for: it outlives shim and agent,
//! and need not outlive the machine.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::container::exit::Exit;

/// Bytes of the file, beyond those of what is kept, before it is written anew.
const WASTE: u64 = 1 << 20;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
enum ExitRecord {
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
}

/// What an end is to outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The shim and the agent.
    Programs,
    /// A loss of power too.
    Machine,
}

impl Exits {
    /// Begins a new file.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(0)?;
        Ok(Exits {
            path: path.to_owned(),
            file,
            appended: 0,
            is_torn: false,
            kept: BTreeMap::new(),
        })
    }

    /// All that are kept, by id.
    pub(crate) fn kept(&self) -> &BTreeMap<u32, Exit> {
        &self.kept
    }

    /// Writes down an end. If the disk does not take it, memory still has it, and the agent is told
    /// all the same: better that it knows now than that it never does.
    pub(crate) fn record(&mut self, exit: &Exit, outlives: Durability) {
        self.kept.insert(exit.id, exit.clone());
        self.append(&ExitRecord::Exited(exit.clone()));
        if outlives == Durability::Machine {
            let _ = self.file.sync_data();
        }
    }

    /// Forgets an end. A crash may bring it back: then the agent forgets it again.
    pub(crate) fn forget(&mut self, id: u32) {
        if self.kept.remove(&id).is_none() {
            return;
        }
        if self.kept.is_empty() {
            if self.file.set_len(0).is_ok() {
                (self.appended, self.is_torn) = (0, false);
            }
            return;
        }
        self.append(&ExitRecord::Forgotten(id));
        if self.appended > WASTE {
            // Later is good enough: what was appended stays true.
            let _ = self.write_anew();
        }
    }

    fn append(&mut self, entry: &ExitRecord) {
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
            serde_json::to_writer(&mut lines, &ExitRecord::Exited(exit.clone()))?;
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
            Ok(ExitRecord::Exited(exit)) => drop(kept.insert(exit.id, exit)),
            Ok(ExitRecord::Forgotten(id)) => drop(kept.remove(&id)),
            Err(_) => {}
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::exit::End;

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
        assert!(read(&path).unwrap().is_empty());
        let mut exits = Exits::create(&path).unwrap();
        exits.record(&exit(0), Durability::Machine);
        for id in 1..20_000 {
            exits.record(&exit(id), Durability::Programs);
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
        let mut exits = Exits::create(&path).unwrap();
        exits.record(&exit(1), Durability::Programs);
        let whole = std::fs::read(&path).unwrap();
        exits.record(&exit(2), Durability::Programs);
        let both = std::fs::read(&path).unwrap();
        for length in 0..=both.len() {
            std::fs::write(&path, &both[..length]).unwrap();
            let expected =
                usize::from(length + 1 >= whole.len()) + usize::from(length + 1 >= both.len());
            assert_eq!(read(&path).unwrap().len(), expected, "{length} bytes");
        }
        exits.file.set_len(whole.len() as u64 + 9).unwrap();
        exits.is_torn = true;
        exits.record(&exit(3), Durability::Programs);
        assert_eq!(read(&path).unwrap().into_keys().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn each_line_has_its_golden_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exits");
        let mut exits = Exits::create(&path).unwrap();
        let killed = Exit { end: End::Signal(9), out_of_memory: true, ..exit(1) };
        let full = Exit { out_of_disk: true, ..exit(2) };
        for exit in [&killed, &full] {
            exits.record(exit, Durability::Machine);
        }
        exits.forget(1);
        let mut golden = volvox_golden::Golden::open(env!("CARGO_MANIFEST_DIR"), "exits");
        let text = std::fs::read_to_string(&path).unwrap();
        for (nth, line) in text.lines().enumerate() {
            golden.text(&format!("line.{nth}"), line);
        }
        golden.close();
        assert_eq!(read(&path).unwrap(), BTreeMap::from([(2, full)]));
    }
}
