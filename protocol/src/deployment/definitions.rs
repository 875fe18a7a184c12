//! The definitions of one deployment: those that instances are made from, and those that were.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::definition::LrpDefinition;
use crate::id::DefinitionId;
use crate::packed::Packed;
use crate::record::record;
use crate::request::Requirements;
use crate::time::Timestamp;

/// One definition: what an auction asks of it at hand, the rest packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    requirements: Arc<Requirements>,
    packed: Packed<LrpDefinition>,
    /// Where in the packed form the log guid begins. Lists for placing and routing want nothing else of
    /// it, and there may be fifty thousand: eight bytes here spare them the unpacking, and a copy of the
    /// text would take sixty.
    log_guid_at: u32,
}

impl Definition {
    /// Packs a definition.
    pub fn new(definition: &LrpDefinition) -> Self {
        Definition::of(definition, Packed::new(definition))
    }

    fn of(definition: &LrpDefinition, packed: Packed<LrpDefinition>) -> Self {
        let requirements = Arc::new(Requirements::of(definition));
        let made = Definition { requirements, packed, log_guid_at: log_guid_at(definition) };
        debug_assert_eq!(made.log_guid(), definition.log_guid, "the fields before it have changed");
        made
    }

    /// Whose log it is, without unpacking.
    pub fn log_guid(&self) -> &str {
        let at = usize::try_from(self.log_guid_at).unwrap_or(usize::MAX);
        let rest = self.packed.bytes().get(at..).unwrap_or_default();
        postcard::take_from_bytes(rest).map(|(text, _)| text).unwrap_or_default()
    }

    /// The whole definition.
    pub fn unpack(&self) -> LrpDefinition {
        self.packed.get()
    }

    /// What an instance of it needs of a cell.
    pub fn requirements(&self) -> &Arc<Requirements> {
        &self.requirements
    }

    /// The definition in its packed form: all that is kept of one that is not in use.
    pub fn packed(&self) -> &Packed<LrpDefinition> {
        &self.packed
    }
}

impl From<Packed<LrpDefinition>> for Definition {
    fn from(packed: Packed<LrpDefinition>) -> Self {
        Definition::of(&packed.get(), packed)
    }
}

/// How many bytes all fields take that are packed before the log guid.
fn log_guid_at(definition: &LrpDefinition) -> u32 {
    let LrpDefinition {
        rootfs,
        env,
        setup,
        action,
        monitor,
        start_timeout_ms,
        deprecated_start_timeout_s,
        disk_mb,
        memory_mb,
        cpu_weight,
        max_pids,
        privileged,
        ports,
        log_source,
        ..
    } = definition;
    let timeouts = (start_timeout_ms, deprecated_start_timeout_s);
    let limits = (disk_mb, memory_mb, cpu_weight, max_pids, privileged);
    let before = (rootfs, env, setup, action, monitor, timeouts, limits, ports, log_source);
    let bytes = postcard::serialize_with_flavor(&before, postcard::ser_flavors::Size::default());
    // A packed definition is far below four gigabytes; beyond its end there is no guid.
    bytes.ok().and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(u32::MAX)
}

impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.packed.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Packed::<LrpDefinition>::deserialize(from).map(Definition::from)
    }
}

/// The definitions of one deployment by id: one, or a few while an update rolls. In JSON a map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definitions(Box<[(DefinitionId, Definition)]>);

impl Definitions {
    /// A single definition.
    pub fn of(id: DefinitionId, definition: &LrpDefinition) -> Self {
        Definitions(Box::new([(id, Definition::new(definition))]))
    }

    /// The definition with this id.
    pub fn get(&self, id: &DefinitionId) -> Option<&Definition> {
        self.iter().find(|(known, _)| *known == id).map(|(_, definition)| definition)
    }

    /// All of them, in the order in which they came.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&DefinitionId, &Definition)> {
        self.0.iter().map(|(id, definition)| (id, definition))
    }

    /// Adds a definition, or replaces the one with the same id.
    pub fn insert(&mut self, id: DefinitionId, definition: Definition) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        match all.iter_mut().find(|(known, _)| *known == id) {
            Some(known) => known.1 = definition,
            None => all.push((id, definition)),
        }
        self.0 = all.into_boxed_slice();
    }

    /// Has the definition of this id share its text with `id`.
    pub(super) fn share_name(&mut self, id: &DefinitionId) {
        for known in self.0.iter_mut().filter(|(known, _)| known == id) {
            known.0 = id.clone();
        }
    }

    /// Takes a definition out.
    pub fn remove(&mut self, id: &DefinitionId) -> Option<Definition> {
        let mut all = std::mem::take(&mut self.0).into_vec();
        let nth = all.iter().position(|(known, _)| known == id);
        let gone = nth.map(|nth| all.remove(nth).1);
        self.0 = all.into_boxed_slice();
        gone
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses two of one id: only the first would ever be found.
    fn distinct<E: serde::de::Error>(all: Vec<(DefinitionId, Definition)>) -> Result<Self, E> {
        for (nth, (id, _)) in all.iter().enumerate() {
            if all[..nth].iter().any(|(known, _)| known == id) {
                return Err(E::custom(format_args!("two definitions have the id {id}")));
            }
        }
        Ok(Definitions(all.into_boxed_slice()))
    }
}

impl Serialize for Definitions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_map(self.iter()) } else { self.0.serialize(to) }
    }
}

impl<'de> Deserialize<'de> for Definitions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Vec<(DefinitionId, Definition)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("definitions by id")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(all)
            }
        }

        if from.is_human_readable() {
            return Definitions::distinct(from.deserialize_map(Map)?);
        }
        Definitions::distinct(Vec::deserialize(from)?)
    }
}

record! {
    /// A definition that no instance is made from any more.
    pub struct PastDefinition {
        /// Its id.
        definition_id: DefinitionId = "definition_id" required,
        /// What it was.
        definition: Packed<LrpDefinition> = "definition" required,
        /// When the last instance of it was gone.
        retired_at: Timestamp = "retired_at" always,
    }
}

/// Definitions to go back to, those that went last at the end. Each id is there once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct History(Box<[PastDefinition]>);

impl History {
    /// The definition with this id.
    pub fn get(&self, id: &DefinitionId) -> Option<&PastDefinition> {
        self.iter().find(|past| past.definition_id == *id)
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PastDefinition> {
        self.0.iter()
    }

    /// Adds one as the newest, and forgets the oldest of more than `most`.
    pub fn push(&mut self, past: PastDefinition, most: usize) {
        self.remove(&past.definition_id.clone());
        let mut all = std::mem::take(&mut self.0).into_vec();
        all.push(past);
        let beyond = all.len().saturating_sub(most);
        self.0 = all.into_iter().skip(beyond).collect();
    }

    /// Takes one out.
    pub fn remove(&mut self, id: &DefinitionId) -> Option<PastDefinition> {
        let nth = self.iter().position(|past| past.definition_id == *id)?;
        let mut all = std::mem::take(&mut self.0).into_vec();
        let gone = all.remove(nth);
        self.0 = all.into_boxed_slice();
        Some(gone)
    }

    /// Keeps what `keep` says.
    pub fn retain(&mut self, keep: impl FnMut(&PastDefinition) -> bool) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        all.retain(keep);
        self.0 = all.into_boxed_slice();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = Vec::<PastDefinition>::deserialize(from)?;
        for (nth, past) in all.iter().enumerate() {
            if all[..nth].iter().any(|known| known.definition_id == past.definition_id) {
                let id = &past.definition_id;
                return Err(D::Error::custom(format_args!("{id} is in the history twice")));
            }
        }
        Ok(History(all.into_boxed_slice()))
    }
}
