//! What this cell was assigned, as the text of a file that is only appended to: the form, and when to
//! write it anew. Nothing is read or written here: see [`store`](super::store).
//!
//! Each entry has its length and its checksum. A definition is written once for all its instances. When
//! most of the text is struck out it is written anew. What a power cut leaves torn at the end was never
//! acted on, and is dropped.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::error;
use volvox_mesh::codec;
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::definition::{LrpDefinition, MetricTags, Routes};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::limits::FRAME_BYTES;
use volvox_protocol::modification_tag::ModificationTag;
use volvox_protocol::time::Timestamp;

use super::logic::{Assigned, KnownDefinition};

/// How long a disk has that did not take the assignments, until it is asked again.
const WRITE_AGAIN: Duration = Duration::from_secs(5);
/// What stands before an entry: its length and its checksum.
const HEAD: usize = 8;
/// A text with less is not written anew.
pub(super) const SMALL: u64 = 256 << 10;

/// One entry. Fields may be added at the end of the carried values, variants at the end of these.
#[derive(Debug, Serialize, Deserialize)]
enum AssignmentLine {
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

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignmentWrite {
    /// These bytes, at the end; then the disk is to take them.
    Append(Vec<u8>),
    /// These bytes in the place of all there are, or else nothing.
    Replace(Vec<u8>),
}

/// The assignments of a cell.
#[derive(Debug, Default)]
pub struct AssignmentText {
    bytes: u64,
    next_number: u64,
    instances: BTreeMap<InstanceGuid, (LrpKey, u64)>,
    definitions: BTreeMap<u64, Arc<KnownDefinition>>,
    waiting: Vec<u8>,
    /// What was written last may be half there: it would hide what follows.
    is_torn: bool,
    /// Not before this time is it tried again, if nothing else is to be written.
    again_at: Timestamp,
}

impl AssignmentText {
    /// Reads it. Also gives how many bytes at its end are torn.
    pub fn open(bytes: &[u8]) -> (Self, usize) {
        let mut text = AssignmentText {
            bytes: bytes.len() as u64,
            next_number: 1,
            ..AssignmentText::default()
        };
        let torn = bytes.len() - text.read(bytes);
        text.is_torn = torn > 0 && !mutated(Bug::TornIsKept);
        (text, torn)
    }

    /// What is assigned.
    pub fn list(&self) -> Vec<Assigned> {
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
            // A power cut may leave zeros at the end; the sum of nothing is zero too.
            if length == 0 {
                break;
            }
            let Some(body) = bytes.get(at + HEAD..).and_then(|rest| rest.get(..length)) else {
                break;
            };
            if crc32fast::hash(body) != sum {
                break;
            }
            match codec::decode::<AssignmentLine>(body, usize::MAX) {
                Ok(line) => self.take(line),
                Err(error) => error!(%error, "an assignment cannot be understood, and is left out"),
            }
            at += HEAD + length;
        }
        at
    }

    fn take(&mut self, line: AssignmentLine) {
        match line {
            AssignmentLine::Definition { number, tag, definition, tags, routes } => {
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
            AssignmentLine::Instance { instance, key, definition } => {
                self.instances.insert(instance, (key, definition));
            }
            AssignmentLine::Gone(instance) => drop(self.instances.remove(&instance)),
        }
    }

    /// Notes an assignment, to be written by [`AssignmentText::take_write`].
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
        self.note(&AssignmentLine::Instance { instance, key, definition: number });
        self.instances.insert(assigned.instance.clone(), entry);
    }

    /// Notes that an instance is not ours any more.
    pub fn unassign(&mut self, instance: &InstanceGuid) {
        if self.instances.remove(instance).is_some() {
            self.note(&AssignmentLine::Gone(instance.clone()));
        }
    }

    fn note(&mut self, line: &AssignmentLine) {
        push(&mut self.waiting, line);
    }

    /// What is to be written by now, if anything.
    pub fn take_write(&mut self) -> Option<AssignmentWrite> {
        if self.waiting.is_empty() && !self.is_torn {
            return None;
        }
        let used: BTreeSet<u64> = self.instances.values().map(|(_, number)| *number).collect();
        self.definitions.retain(|number, _| used.contains(number));
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes += waiting.len() as u64;
        if !self.is_torn && (self.bytes <= SMALL || self.bytes <= 4 * self.text().len() as u64) {
            return Some(AssignmentWrite::Append(waiting));
        }
        let text = self.text();
        self.bytes = text.len() as u64;
        self.is_torn = false;
        Some(AssignmentWrite::Replace(text))
    }

    /// Whether what was not written is still to be written.
    pub fn is_behind(&self) -> bool {
        self.is_torn
    }

    /// Whether what was not written is to be written now: not all the time, a full disk stays full for a
    /// while.
    pub fn tries_again(&mut self, now: Timestamp) -> bool {
        let tries = self.is_torn && now >= self.again_at;
        if tries {
            self.again_at = now + WRITE_AGAIN;
        }
        tries
    }

    /// It was not written, or perhaps a part of it: the next time, all of it is.
    pub fn not_written(&mut self) {
        self.is_torn = true;
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (number, definition) in &self.definitions {
            push(&mut text, &definition_line(*number, definition));
        }
        for (instance, (key, number)) in &self.instances {
            let (instance, key, definition) = (instance.clone(), key.clone(), *number);
            push(&mut text, &AssignmentLine::Instance { instance, key, definition });
        }
        text
    }
}

fn definition_line(number: u64, known: &KnownDefinition) -> AssignmentLine {
    AssignmentLine::Definition {
        number,
        tag: known.modification_tag,
        definition: codec::encode(&*known.definition),
        tags: codec::encode(&known.metric_tags),
        routes: codec::encode(&known.routes),
    }
}

fn push(text: &mut Vec<u8>, line: &AssignmentLine) {
    let body = codec::encode(line);
    let length = u32::try_from(body.len()).expect("a definition is shorter than 4 GiB");
    text.extend_from_slice(&length.to_le_bytes());
    text.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    text.extend_from_slice(&body);
}

#[cfg(test)]
mod golden {
    use volvox_golden::Golden;
    use volvox_protocol::id::{DefinitionId, Domain, ProcessGuid};
    use volvox_protocol::modification_tag::Epoch;

    use super::*;

    fn assigned() -> Assigned {
        let tags = r#"{"source_id":{"static":"app"}}"#;
        let known = KnownDefinition {
            modification_tag: ModificationTag { epoch: Epoch::from_random(7), index: 300 },
            definition: Arc::new(LrpDefinition { memory_mb: 64, ..LrpDefinition::default() }),
            metric_tags: serde_json::from_str(tags).unwrap(),
            routes: serde_json::from_str(r#"{"cf-router":[]}"#).unwrap(),
        };
        let key = LrpKey {
            process_guid: ProcessGuid::new("process").unwrap(),
            index: 3,
            domain: Domain::new("domain").unwrap(),
            definition_id: Some(DefinitionId::new("v1").unwrap()),
        };
        let instance = InstanceGuid::new("instance").unwrap();
        Assigned { key, instance, definition: Arc::new(known) }
    }

    #[test]
    fn each_line_has_the_bytes_that_other_releases_know() {
        let mut golden = Golden::open(env!("CARGO_MANIFEST_DIR"), "assignments");
        let assigned = assigned();
        let (instance, key) = (assigned.instance.clone(), assigned.key.clone());
        for line in [
            definition_line(300, &assigned.definition),
            AssignmentLine::Instance { instance: instance.clone(), key, definition: 300 },
            AssignmentLine::Gone(instance),
        ] {
            let name = match &line {
                AssignmentLine::Definition { .. } => "Line.Definition",
                AssignmentLine::Instance { .. } => "Line.Instance",
                AssignmentLine::Gone(_) => "Line.Gone",
            };
            let mut bytes = Vec::new();
            push(&mut bytes, &line);
            golden.bytes(name, &bytes);
        }
        golden.close();
        let mut text = AssignmentText::default();
        text.assign(&assigned);
        let Some(AssignmentWrite::Append(bytes)) = text.take_write() else {
            panic!("nothing to write")
        };
        let (read, torn) = AssignmentText::open(&bytes);
        assert_eq!((read.list(), torn), (vec![assigned], 0));
    }
}
