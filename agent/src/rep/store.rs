//! What this cell was assigned, on the disk: all that it needs to start its instances again after a
//! power cut, with no coordinator and no network.
//!
//! One file that is only appended to, each entry with its length and checksum, synced once for all that
//! was decided together. A definition is written once for all its instances. When most of the file is
//! struck out it is written anew. An idle cell writes nothing. What a cut leaves torn at the end was
//! never acted on, and is dropped. Definitions hold passwords: only root may read the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tracing::{error, warn};
use volvox_mesh::codec;
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::definition::{LrpDefinition, MetricTags, Routes};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::limits::FRAME_BYTES;
use volvox_protocol::tag::ModificationTag;

use super::logic::{Assigned, KnownDefinition};

/// What stands before an entry: its length and its checksum.
const HEAD: usize = 8;
/// A file with less is not written anew.
const SMALL: u64 = 256 << 10;

/// One entry. Fields may be added at the end of the carried values, variants at the end of these.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// A definition, under a number.
    Definition {
        number: u64,
        tag: ModificationTag,
        definition: Vec<u8>,
        tags: Vec<u8>,
        routes: Vec<u8>,
    },
    /// An instance of the definition of that number.
    Instance { instance: InstanceGuid, key: LrpKey, definition: u64 },
    /// It is not ours any more.
    Gone(InstanceGuid),
}

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
    bytes: u64,
    next_number: u64,
    instances: BTreeMap<InstanceGuid, (LrpKey, u64)>,
    definitions: BTreeMap<u64, Arc<KnownDefinition>>,
    waiting: Vec<u8>,
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
        let file = open_to_append(&path)?;
        let mut all = Assignments {
            folder: folder.to_owned(),
            file,
            bytes: bytes.len() as u64,
            next_number: 1,
            instances: BTreeMap::new(),
            definitions: BTreeMap::new(),
            waiting: Vec::new(),
        };
        let whole = all.read(&bytes);
        if whole < bytes.len() {
            warn!(path = %path.display(), torn = bytes.len() - whole, "the end of the assignments was torn");
            all.rewrite()?;
        }
        let assigned = all.list();
        Ok((all, assigned))
    }

    fn list(&self) -> Vec<Assigned> {
        let of = self.instances.iter().filter_map(|(instance, (key, number))| {
            let definition = Arc::clone(self.definitions.get(number)?);
            Some(Assigned { key: key.clone(), instance: instance.clone(), definition })
        });
        of.collect()
    }

    /// Takes in all entries that are whole. Gives how many bytes they take.
    fn read(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + HEAD) {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            let Some(body) = bytes.get(at + HEAD..).and_then(|rest| rest.get(..length)) else {
                break;
            };
            if crc32fast::hash(body) != sum {
                break;
            }
            match codec::decode::<Line>(body, usize::MAX) {
                Ok(line) => self.take(line),
                Err(error) => error!(%error, "an assignment cannot be understood, and is left out"),
            }
            at += HEAD + length;
        }
        at
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Definition { number, tag, definition, tags, routes } => {
                self.next_number = self.next_number.max(number + 1);
                let read = (
                    codec::decode::<LrpDefinition>(&definition, FRAME_BYTES),
                    codec::decode::<MetricTags>(&tags, FRAME_BYTES),
                    codec::decode::<Routes>(&routes, FRAME_BYTES),
                );
                let (Ok(definition), Ok(metric_tags), Ok(routes)) = read else {
                    return error!("a definition cannot be understood, and is left out");
                };
                let (modification_tag, definition) = (tag, Arc::new(definition));
                let known = KnownDefinition { modification_tag, definition, metric_tags, routes };
                self.definitions.insert(number, Arc::new(known));
            }
            Line::Instance { instance, key, definition } => {
                self.instances.insert(instance, (key, definition));
            }
            Line::Gone(instance) => drop(self.instances.remove(&instance)),
        }
    }

    /// Notes an assignment, to be written by [`Assignments::commit`].
    pub fn assign(&mut self, assigned: &Assigned) {
        let known = self.definitions.iter().find(|(_, it)| **it == assigned.definition);
        let number = known.map(|(number, _)| *number).unwrap_or_else(|| {
            let number = self.next_number;
            self.next_number += 1;
            self.note(&definition_line(number, &assigned.definition));
            self.definitions.insert(number, Arc::clone(&assigned.definition));
            number
        });
        let entry = (assigned.key.clone(), number);
        if self.instances.get(&assigned.instance) == Some(&entry) {
            return;
        }
        let (instance, key) = (assigned.instance.clone(), assigned.key.clone());
        self.note(&Line::Instance { instance, key, definition: number });
        self.instances.insert(assigned.instance.clone(), entry);
    }

    /// Notes that an instance is not ours any more.
    pub fn unassign(&mut self, instance: &InstanceGuid) {
        if self.instances.remove(instance).is_some() {
            self.note(&Line::Gone(instance.clone()));
        }
    }

    fn note(&mut self, line: &Line) {
        push(&mut self.waiting, line);
    }

    /// Writes what was noted. When it returns, a power cut does not take it away.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let used: std::collections::BTreeSet<u64> =
            self.instances.values().map(|(_, number)| *number).collect();
        self.definitions.retain(|number, _| used.contains(number));
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes += waiting.len() as u64;
        if self.bytes > SMALL && self.bytes > 4 * self.live() {
            return self.rewrite();
        }
        let path = self.folder.join("assignments");
        let written = self.file.write_all(&waiting).and_then(|()| self.file.sync_data());
        written.map_err(failed("write", &path)).inspect_err(|_| {
            // What is half written would hide what follows: the next commit writes all of it anew.
            self.bytes = u64::MAX / 8;
        })
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (number, definition) in &self.definitions {
            push(&mut text, &definition_line(*number, definition));
        }
        for (instance, (key, number)) in &self.instances {
            let (instance, key, definition) = (instance.clone(), key.clone(), *number);
            push(&mut text, &Line::Instance { instance, key, definition });
        }
        text
    }

    fn live(&self) -> u64 {
        self.text().len() as u64
    }

    /// Writes only what counts, beside, and puts it in place.
    fn rewrite(&mut self) -> Result<(), StoreError> {
        let (path, partial) =
            (self.folder.join("assignments"), self.folder.join("assignments.partial"));
        let text = self.text();
        let write = || -> io::Result<()> {
            let mut options = File::options();
            options.create(true).truncate(true).write(true).mode(0o600);
            let mut file = options.open(&partial)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(failed("write", &path))?;
        self.file = open_to_append(&path)?;
        self.bytes = text.len() as u64;
        Ok(())
    }
}

fn open_to_append(path: &Path) -> Result<File, StoreError> {
    let mut options = File::options();
    options.create(true).append(true).mode(0o600).open(path).map_err(failed("open", path))
}

fn definition_line(number: u64, known: &KnownDefinition) -> Line {
    Line::Definition {
        number,
        tag: known.modification_tag,
        definition: codec::encode(&*known.definition),
        tags: codec::encode(&known.metric_tags),
        routes: codec::encode(&known.routes),
    }
}

fn push(text: &mut Vec<u8>, line: &Line) {
    let body = codec::encode(line);
    let length = u32::try_from(body.len()).expect("a definition is shorter than 4 GiB");
    text.extend_from_slice(&length.to_le_bytes());
    text.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    text.extend_from_slice(&body);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use volvox_protocol::id::{Domain, ProcessGuid};

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
