//! What this cell was assigned, on the disk: all that it needs to start its instances again after a
//! power cut, with no coordinator and no network.
//!
//! One file ([`assignments`](super::assignments) has its form), synced once for all that was decided
//! together. An idle cell writes nothing. Definitions hold passwords: only root may read the file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tracing::{error, warn};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::time::Timestamp;

use super::assignments::{AssignmentText, AssignmentWrite};
use super::logic::Assigned;

/// The file cannot be read or written. What runs goes on; after a power cut it may be missing.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {path}: {source}")]
pub struct StoreError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError { doing, path, source }
}

/// The assignments of a cell.
#[derive(Debug)]
pub struct Assignments {
    folder: PathBuf,
    file: File,
    text: AssignmentText,
}

impl Assignments {
    /// Opens the folder, or makes it. Also gives what is assigned.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Assigned>), StoreError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(failed("make", folder))?;
        let path = folder.join("assignments");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        let (text, torn) = AssignmentText::open(&bytes);
        let file = open_to_append(&path)?;
        let mut all = Assignments { folder: folder.to_owned(), file, text };
        if torn > 0 {
            warn!(path = %path.display(), torn, "the end of the assignments was torn");
            // A disk that is full is what tears it, and no reason not to start: it is written anew later.
            if let Err(error) = all.commit() {
                error!(%error, "the assignments cannot be written anew");
            }
        }
        let assigned = all.text.list();
        Ok((all, assigned))
    }

    /// Notes an assignment, to be written by [`Assignments::commit`].
    pub fn assign(&mut self, assigned: &Assigned) {
        self.text.assign(assigned);
    }

    /// Notes that an instance is not ours any more.
    pub fn unassign(&mut self, instance: &InstanceGuid) {
        self.text.unassign(instance);
    }

    /// Whether the last write failed, so that the disk has less than was noted, or more.
    pub fn is_behind(&self) -> bool {
        self.text.is_behind()
    }

    /// Whether what was not written is to be written now.
    pub fn tries_again(&mut self, now: Timestamp) -> bool {
        self.text.tries_again(now)
    }

    /// Writes what was noted. When it returns, a power cut does not take it away.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        let written = match self.text.take_write() {
            None => return Ok(()),
            Some(AssignmentWrite::Append(bytes)) => {
                let path = self.folder.join("assignments");
                let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
                written.map_err(failed("write", &path))
            }
            Some(AssignmentWrite::Replace(bytes)) => self.rewrite(&bytes),
        };
        written.inspect_err(|_| self.text.not_written())
    }

    /// Writes it beside, and puts it in place.
    fn rewrite(&mut self, text: &[u8]) -> Result<(), StoreError> {
        let (path, partial) =
            (self.folder.join("assignments"), self.folder.join("assignments.partial"));
        let write = || -> io::Result<()> {
            let mut options = File::options();
            options.create(true).truncate(true).write(true).mode(0o600);
            let mut file = options.open(&partial)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(failed("write", &path))?;
        self.file = open_to_append(&path)?;
        Ok(())
    }
}

fn open_to_append(path: &Path) -> Result<File, StoreError> {
    let mut options = File::options();
    options.create(true).append(true).mode(0o600).open(path).map_err(failed("open", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Arc;

    use volvox_protocol::actual_lrp::LrpKey;
    use volvox_protocol::definition::{LrpDefinition, MetricTags, Routes};
    use volvox_protocol::id::{Domain, ProcessGuid};
    use volvox_protocol::modification_tag::ModificationTag;

    use super::super::assignments::SMALL;
    use super::super::logic::KnownDefinition;
    use super::*;

    fn definition(memory_mb: u32) -> Arc<KnownDefinition> {
        Arc::new(KnownDefinition {
            modification_tag: ModificationTag::default(),
            definition: Arc::new(LrpDefinition { memory_mb, ..LrpDefinition::default() }),
            metric_tags: MetricTags::default(),
            routes: Routes::default(),
        })
    }

    fn assigned(name: &str, index: u32, memory_mb: u32) -> Assigned {
        let key = LrpKey {
            process_guid: ProcessGuid::new("p").unwrap(),
            index,
            domain: Domain::new("d").unwrap(),
            definition_id: None,
        };
        let instance = InstanceGuid::new(name).unwrap();
        Assigned { key, instance, definition: definition(memory_mb) }
    }

    fn names(folder: &Path) -> Vec<(String, u32)> {
        let (_, all) = Assignments::open(folder).unwrap();
        all.iter().map(|it| (it.instance.to_string(), it.definition.definition.memory_mb)).collect()
    }

    #[test]
    fn what_was_assigned_is_there_after_a_cut_and_what_went_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, none) = Assignments::open(folder.path()).unwrap();
        assert!(none.is_empty());
        for (name, memory_mb) in [("a", 1), ("b", 1), ("c", 2)] {
            store.assign(&assigned(name, 0, memory_mb));
        }
        store.commit().unwrap();
        store.unassign(&InstanceGuid::new("a").unwrap());
        store.assign(&assigned("b", 0, 3));
        store.commit().unwrap();
        let file = fs::metadata(folder.path().join("assignments")).unwrap();
        assert_eq!(file.mode() & 0o777, 0o600, "it holds passwords");
        assert_eq!(names(folder.path()), [("b".to_owned(), 3), ("c".to_owned(), 2)]);
        store.commit().unwrap();
        store.assign(&assigned("c", 0, 2));
        store.commit().unwrap();
        let again = fs::metadata(folder.path().join("assignments")).unwrap();
        assert_eq!(again.len(), file.len(), "what is known is not written again");
    }

    #[test]
    fn a_torn_end_that_cannot_be_mended_yet_keeps_nobody_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _) = Assignments::open(folder.path()).unwrap();
        store.assign(&assigned("a", 0, 1));
        store.commit().unwrap();
        let path = folder.path().join("assignments");
        let mut torn = fs::read(&path).unwrap();
        torn.extend_from_slice(&[9, 0, 0, 0, 1]);
        fs::write(&path, &torn).unwrap();
        // Stands for a full disk, which the root of a test does not meet so easily.
        let partial = folder.path().join("assignments.partial");
        fs::create_dir(&partial).unwrap();
        let (mut store, all) = Assignments::open(folder.path()).unwrap();
        assert_eq!(all.len(), 1);
        assert!(store.is_behind());
        store.assign(&assigned("b", 1, 1));
        assert!(store.commit().is_err());
        fs::remove_dir(&partial).unwrap();
        store.commit().unwrap();
        assert!(!store.is_behind());
        assert_eq!(names(folder.path()), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    }

    #[test]
    fn a_cut_anywhere_leaves_what_was_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _) = Assignments::open(folder.path()).unwrap();
        let path = folder.path().join("assignments");
        let mut lengths = Vec::new();
        for nth in 0..4 {
            store.assign(&assigned(&format!("i{nth}"), nth, 1));
            store.commit().unwrap();
            lengths.push(fs::metadata(&path).unwrap().len());
        }
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let expected = lengths.iter().filter(|length| **length <= cut as u64).count();
            assert_eq!(names(folder.path()).len(), expected, "cut at {cut}");
            let (mut store, _) = Assignments::open(folder.path()).unwrap();
            store.assign(&assigned("later", 9, 1));
            store.commit().unwrap();
            assert_eq!(names(folder.path()).len(), expected + 1, "cut at {cut}, then written");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x40;
            fs::write(&path, &flipped).unwrap();
            assert!(names(folder.path()).len() < 4, "a wrong bit at {at} is seen");
        }
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let (mut store, _) = Assignments::open(folder.path()).unwrap();
        for nth in 0..20_000 {
            store.assign(&assigned(&format!("i{nth}"), 0, 1));
            store.unassign(&InstanceGuid::new(&format!("i{}", nth - nth.min(1))).unwrap());
            // Without the sync: only the size is of interest.
            if nth % 100 == 0 {
                store.commit().unwrap();
            }
        }
        store.commit().unwrap();
        let bytes = fs::metadata(folder.path().join("assignments")).unwrap().len();
        assert!(bytes <= 2 * SMALL, "{bytes} bytes");
    }
}
