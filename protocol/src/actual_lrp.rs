//! One instance of an LRP as the board knows it.
//!
//! What a state cannot have, its variant cannot hold: an unclaimed record names no cell, only a
//! running one has an address. Consumers see the flat form that Diego's API shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

use crate::id::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid};
use crate::limits::{ENTRIES, INSTANCES, PORTS, TEXT_BYTES};
use crate::modification_tag::ModificationTag;
use crate::time::Timestamp;
use crate::validate::{Checker, Validate};

/// How the cell that hosts a record stands to the fleet.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Presence {
    /// The cell is there, or the record is on no cell.
    #[default]
    Ordinary,
    /// The cell is being emptied and this instance serves until its replacement runs.
    Evacuating,
    /// The cell is missing and this instance may still serve.
    Suspect,
}

/// Which instance of which process a request is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LrpKey {
    /// The process.
    pub process_guid: ProcessGuid,
    /// Its index, from 0.
    pub index: u32,
    /// Its domain.
    pub domain: Domain,
    /// The definition; consumers that know nothing of definitions leave it out and mean the
    /// active one.
    pub definition_id: Option<DefinitionId>,
}

/// Which container holds an instance, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey {
    /// The container.
    pub instance_guid: InstanceGuid,
    /// The machine.
    pub cell_id: CellId,
}

/// One port of a container and the ports that lead to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// The port inside.
    pub container_port: u32,
    /// The port on the host that leads to it.
    pub host_port: u32,
    /// The TLS port inside, 0 without a proxy.
    pub container_tls_proxy_port: u32,
    /// The port on the host that leads to the TLS port, 0 without a proxy.
    pub host_tls_proxy_port: u32,
}

/// Which address consumers should prefer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PreferredAddress {
    /// The cell did not say.
    #[default]
    Unknown,
    /// The container's own.
    Instance,
    /// The host's.
    Host,
}

/// How an instance is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetInfo {
    /// The host's address.
    pub address: SmolStr,
    /// The ports.
    pub ports: Box<[PortMapping]>,
    /// The container's own address.
    pub instance_address: SmolStr,
    /// Which of the two to prefer.
    pub preferred_address: PreferredAddress,
    /// The container's own IPv6 address, if it has one.
    pub instance_ipv6_address: SmolStr,
}

/// A name under which containers find this instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InternalRoute {
    /// The host name.
    pub hostname: SmolStr,
}

/// Tags of one instance's metrics: a small sorted list, because a tree for three entries would
/// outweigh the rest of the record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Box<[(SmolStr, SmolStr)]>);

impl Tags {
    /// The tags in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many tags there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, String)> for Tags {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(tags: I) -> Self {
        let sorted: BTreeMap<String, String> = tags.into_iter().collect();
        Tags(sorted.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl Serialize for Tags {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::<String, String>::deserialize(from)?.into_iter().collect())
    }
}

/// What a cell reports of an instance that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// How it is reached.
    pub net_info: NetInfo,
    /// The names under which containers find it.
    pub internal_routes: Box<[InternalRoute]>,
    /// The tags of its metrics.
    pub metric_tags: Tags,
    /// Whether traffic may be sent to it: false while its readiness checks fail.
    pub routable: bool,
    /// The zone of its cell.
    pub availability_zone: SmolStr,
}

impl Validate for Running {
    fn check(&self, at: &mut Checker) {
        at.not_empty("address", &self.net_info.address);
        at.at_most("address", self.net_info.address.len(), TEXT_BYTES, "bytes");
        at.at_most("instance_address", self.net_info.instance_address.len(), TEXT_BYTES, "bytes");
        let ipv6 = self.net_info.instance_ipv6_address.len();
        at.at_most("instance_ipv6_address", ipv6, TEXT_BYTES, "bytes");
        at.at_most("ports", self.net_info.ports.len(), PORTS, "entries");
        at.at_most("actual_lrp_internal_routes", self.internal_routes.len(), ENTRIES, "entries");
        at.each("actual_lrp_internal_routes", &self.internal_routes, |at, route| {
            at.at_most("hostname", route.hostname.len(), TEXT_BYTES, "bytes");
        });
        at.at_most("metric_tags", self.metric_tags.len(), ENTRIES, "entries");
        for (name, value) in self.metric_tags.iter() {
            at.field("metric_tags", |at| {
                let longest = name.len().max(value.len());
                at.require(longest <= TEXT_BYTES, || {
                    format!("a tag has {longest} bytes, the limit is {TEXT_BYTES}")
                });
            });
        }
        at.at_most("availability_zone", self.availability_zone.len(), TEXT_BYTES, "bytes");
    }
}

impl Validate for LrpKey {
    fn check(&self, at: &mut Checker) {
        at.field("index", |at| {
            at.require(self.index < INSTANCES, || {
                format!("is {}, the limit is {}", self.index, INSTANCES - 1)
            });
        });
    }
}

/// How far an instance has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LrpState {
    /// Waiting for a cell.
    Unclaimed {
        /// Why the last auction did not place it; empty when none has failed.
        placement_error: Box<str>,
    },
    /// A cell has it and is starting it.
    Claimed(InstanceKey),
    /// It runs and may be sent traffic.
    Running(InstanceKey, Arc<Running>),
    /// It crashed, is on no cell, and waits for its restart.
    Crashed,
}

impl LrpState {
    /// A state on no cell, with no failed auction.
    pub fn unclaimed() -> Self {
        LrpState::Unclaimed { placement_error: Box::default() }
    }

    /// The name that the API shows.
    pub const fn name(&self) -> &'static str {
        match self {
            LrpState::Unclaimed { .. } => "UNCLAIMED",
            LrpState::Claimed(_) => "CLAIMED",
            LrpState::Running(..) => "RUNNING",
            LrpState::Crashed => "CRASHED",
        }
    }

    /// Whether an instance in this state serves.
    pub const fn is_running(&self) -> bool {
        matches!(self, LrpState::Running(..))
    }
}

/// One record of the board: an instance of a process, in one presence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActualLrp {
    /// The process.
    pub process_guid: ProcessGuid,
    /// The definition that this instance was or will be made from.
    pub definition_id: DefinitionId,
    /// The index, from 0.
    pub index: u32,
    /// The domain.
    pub domain: Domain,
    /// How its cell stands to the fleet.
    pub presence: Presence,
    /// How far it has come.
    pub state: LrpState,
    /// Crashes in a row.
    pub crash_count: u32,
    /// Why it crashed last; empty when it has not.
    pub crash_reason: Box<str>,
    /// Its cell has been told to stop it. Convergence tells it again until it is gone.
    pub stopping: bool,
    /// When the state last changed: from one of the four to another. New facts of the same state
    /// (another address, readiness, a placement error) do not count.
    pub since: Timestamp,
    /// Which version of the record this is.
    pub modification_tag: ModificationTag,
}

impl ActualLrp {
    /// The container that holds it, if one does.
    pub const fn instance(&self) -> Option<&InstanceKey> {
        match &self.state {
            LrpState::Claimed(instance) | LrpState::Running(instance, _) => Some(instance),
            LrpState::Unclaimed { .. } | LrpState::Crashed => None,
        }
    }

    /// What its cell reported of it, while it runs.
    pub fn running(&self) -> Option<&Running> {
        match &self.state {
            LrpState::Running(_, running) => Some(running),
            LrpState::Unclaimed { .. } | LrpState::Claimed(_) | LrpState::Crashed => None,
        }
    }

    /// The cell it is on, if it is on one.
    pub fn cell_id(&self) -> Option<&CellId> {
        self.instance().map(|instance| &instance.cell_id)
    }

    /// Whether it is held by `instance`.
    pub fn is_held_by(&self, instance: &InstanceKey) -> bool {
        self.instance() == Some(instance)
    }

    /// Why it could not be placed; empty when it is placed or no auction has failed.
    pub fn placement_error(&self) -> &str {
        match &self.state {
            LrpState::Unclaimed { placement_error } => placement_error,
            LrpState::Claimed(_) | LrpState::Running(..) | LrpState::Crashed => "",
        }
    }

    /// What orders the records of one process.
    pub fn order(&self) -> (&DefinitionId, u32, Presence) {
        (&self.definition_id, self.index, self.presence)
    }

    /// The key by which a request would name it.
    pub fn key(&self) -> LrpKey {
        LrpKey {
            process_guid: self.process_guid.clone(),
            index: self.index,
            domain: self.domain.clone(),
            definition_id: Some(self.definition_id.clone()),
        }
    }
}

impl Serialize for ActualLrp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            let fixed = (&self.process_guid, &self.definition_id, self.index, &self.domain);
            let varying = (self.presence, &self.state, self.crash_count, &self.crash_reason);
            let rest = (self.stopping, self.since, self.modification_tag);
            return (fixed, varying, rest).serialize(to);
        }
        let mut open = to.serialize_struct("ActualLRP", 23)?;
        open.serialize_field("process_guid", &self.process_guid)?;
        open.serialize_field("index", &self.index)?;
        open.serialize_field("domain", &self.domain)?;
        open.serialize_field("definition_id", &self.definition_id)?;
        let instance = self.instance();
        let guid = instance.map_or("", |instance| instance.instance_guid.as_str());
        open.serialize_field("instance_guid", guid)?;
        open.serialize_field("cell_id", self.cell_id().map_or("", CellId::as_str))?;
        let nowhere = NetInfo::default();
        let net_info = self.running().map_or(&nowhere, |running| &running.net_info);
        open.serialize_field("address", &net_info.address)?;
        open.serialize_field("ports", &net_info.ports)?;
        text(&mut open, "instance_address", &net_info.instance_address)?;
        open.serialize_field("preferred_address", &net_info.preferred_address)?;
        text(&mut open, "instance_ipv6_address", &net_info.instance_ipv6_address)?;
        open.serialize_field("crash_count", &self.crash_count)?;
        text(&mut open, "crash_reason", &self.crash_reason)?;
        open.serialize_field("state", self.state.name())?;
        text(&mut open, "placement_error", self.placement_error())?;
        if self.stopping {
            open.serialize_field("stopping", &true)?;
        } else {
            open.skip_field("stopping")?;
        }
        open.serialize_field("since", &self.since)?;
        open.serialize_field("modification_tag", &self.modification_tag)?;
        open.serialize_field("presence", &self.presence)?;
        if let Some(running) = self.running() {
            open.serialize_field("actual_lrp_internal_routes", &running.internal_routes)?;
            open.serialize_field("metric_tags", &running.metric_tags)?;
            open.serialize_field("routable", &running.routable)?;
        }
        let zone = self.running().map_or("", |running| running.availability_zone.as_str());
        open.serialize_field("availability_zone", zone)?;
        open.end()
    }
}

/// Writes a text that is left out when empty.
fn text<S: serde::ser::SerializeStruct>(
    open: &mut S,
    key: &'static str,
    value: &str,
) -> Result<(), S::Error> {
    if value.is_empty() { open.skip_field(key) } else { open.serialize_field(key, value) }
}

impl<'de> Deserialize<'de> for ActualLrp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        type Fixed = (ProcessGuid, DefinitionId, u32, Domain);
        type Varying = (Presence, LrpState, u32, Box<str>);
        type Rest = (bool, Timestamp, ModificationTag);
        if from.is_human_readable() {
            return Flat::deserialize(from)?.try_into().map_err(serde::de::Error::custom);
        }
        let (fixed, varying, rest) = <(Fixed, Varying, Rest)>::deserialize(from)?;
        let (process_guid, definition_id, index, domain) = fixed;
        let (presence, state, crash_count, crash_reason) = varying;
        let (stopping, since, modification_tag) = rest;
        Ok(ActualLrp {
            process_guid,
            definition_id,
            index,
            domain,
            presence,
            state,
            crash_count,
            crash_reason,
            stopping,
            since,
            modification_tag,
        })
    }
}

/// The JSON form, as read back by clients of the API.
#[derive(Deserialize)]
struct Flat {
    process_guid: ProcessGuid,
    index: u32,
    domain: Domain,
    definition_id: Option<DefinitionId>,
    #[serde(default)]
    instance_guid: String,
    #[serde(default)]
    cell_id: String,
    #[serde(default)]
    address: SmolStr,
    #[serde(default)]
    ports: Option<Box<[PortMapping]>>,
    #[serde(default)]
    instance_address: SmolStr,
    #[serde(default)]
    preferred_address: PreferredAddress,
    #[serde(default)]
    instance_ipv6_address: SmolStr,
    #[serde(default)]
    crash_count: u32,
    #[serde(default)]
    crash_reason: Box<str>,
    state: String,
    #[serde(default)]
    placement_error: Box<str>,
    #[serde(default)]
    stopping: bool,
    #[serde(default)]
    since: Timestamp,
    #[serde(default)]
    modification_tag: ModificationTag,
    #[serde(default)]
    presence: Presence,
    #[serde(default)]
    actual_lrp_internal_routes: Option<Box<[InternalRoute]>>,
    #[serde(default)]
    metric_tags: Option<Tags>,
    #[serde(default)]
    routable: Option<bool>,
    #[serde(default)]
    availability_zone: SmolStr,
}

impl TryFrom<Flat> for ActualLrp {
    type Error = String;

    fn try_from(flat: Flat) -> Result<Self, String> {
        let instance = || -> Result<InstanceKey, String> {
            Ok(InstanceKey {
                instance_guid: InstanceGuid::new(&flat.instance_guid).map_err(|e| e.to_string())?,
                cell_id: CellId::new(&flat.cell_id).map_err(|e| e.to_string())?,
            })
        };
        let state = match flat.state.as_str() {
            "UNCLAIMED" => LrpState::Unclaimed { placement_error: flat.placement_error },
            "CLAIMED" => LrpState::Claimed(instance()?),
            "RUNNING" => {
                let net_info = NetInfo {
                    address: flat.address,
                    ports: flat.ports.unwrap_or_default(),
                    instance_address: flat.instance_address,
                    preferred_address: flat.preferred_address,
                    instance_ipv6_address: flat.instance_ipv6_address,
                };
                let running = Running {
                    net_info,
                    internal_routes: flat.actual_lrp_internal_routes.unwrap_or_default(),
                    metric_tags: flat.metric_tags.unwrap_or_default(),
                    routable: flat.routable.unwrap_or(true),
                    availability_zone: flat.availability_zone,
                };
                LrpState::Running(instance()?, Arc::new(running))
            }
            "CRASHED" => LrpState::Crashed,
            other => {
                return Err(format!(
                    "state {other:?} is none of UNCLAIMED, CLAIMED, RUNNING and CRASHED"
                ));
            }
        };
        Ok(ActualLrp {
            definition_id: flat.definition_id.unwrap_or_else(|| (&flat.process_guid).into()),
            process_guid: flat.process_guid,
            index: flat.index,
            domain: flat.domain,
            presence: flat.presence,
            state,
            crash_count: flat.crash_count,
            crash_reason: flat.crash_reason,
            stopping: flat.stopping,
            since: flat.since,
            modification_tag: flat.modification_tag,
        })
    }
}

/// The records at one index as the older API shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LrpGroup {
    /// The ordinary or suspect record that stands for the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<Arc<ActualLrp>>,
    /// The evacuating record, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuating: Option<Arc<ActualLrp>>,
}

impl LrpGroup {
    /// Folds the records of one index: which of the ordinary and the suspect one stands for it.
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Arc<ActualLrp>>) -> Self {
        let mut group = LrpGroup::default();
        for record in records {
            match record.presence {
                Presence::Evacuating => group.evacuating = Some(Arc::clone(record)),
                Presence::Ordinary if record.state.is_running() => {
                    group.instance = Some(Arc::clone(record));
                }
                Presence::Ordinary => {
                    group.instance.get_or_insert_with(|| Arc::clone(record));
                }
                Presence::Suspect => match &group.instance {
                    Some(ordinary) if ordinary.state.is_running() => {}
                    Some(_) | None => group.instance = Some(Arc::clone(record)),
                },
            }
        }
        group
    }

    /// The one record that stands for the index: the evacuating one only while nothing else has
    /// come further than CLAIMED.
    pub fn resolve(&self) -> Option<&Arc<ActualLrp>> {
        match (&self.instance, &self.evacuating) {
            (Some(instance), Some(evacuating)) => match instance.state {
                LrpState::Running(..) | LrpState::Crashed => Some(instance),
                LrpState::Unclaimed { .. } | LrpState::Claimed(_) => Some(evacuating),
            },
            (instance, evacuating) => instance.as_ref().or(evacuating.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> ActualLrp {
        let mapping = PortMapping { container_port: 8080, host_port: 60001, ..Default::default() };
        let net_info = NetInfo {
            address: "10.0.0.1".into(),
            ports: Box::new([mapping]),
            instance_address: "10.255.0.2".into(),
            preferred_address: PreferredAddress::Host,
            instance_ipv6_address: "".into(),
        };
        let instance = InstanceKey {
            instance_guid: InstanceGuid::new("ig-1").unwrap(),
            cell_id: CellId::new("cell-1").unwrap(),
        };
        let running = Running {
            net_info,
            internal_routes: Box::new([InternalRoute { hostname: "a.internal".into() }]),
            metric_tags: [("source_id".to_owned(), "app".to_owned())].into_iter().collect(),
            routable: true,
            availability_zone: "z1".into(),
        };
        ActualLrp {
            process_guid: ProcessGuid::new("pg").unwrap(),
            definition_id: DefinitionId::new("v1").unwrap(),
            index: 3,
            domain: Domain::new("apps").unwrap(),
            presence: Presence::Ordinary,
            state: LrpState::Running(instance, Arc::new(running)),
            crash_count: 1,
            crash_reason: "exit 1".into(),
            stopping: false,
            since: Timestamp::from_nanos(77),
            modification_tag: ModificationTag::default(),
        }
    }

    fn every_state() -> Vec<ActualLrp> {
        let running = running();
        let instance = running.instance().unwrap().clone();
        let unclaimed = LrpState::Unclaimed { placement_error: "no room".into() };
        let mut all = vec![running.clone()];
        for state in [unclaimed, LrpState::Claimed(instance), LrpState::Crashed] {
            all.push(ActualLrp { state, ..running.clone() });
        }
        all.push(ActualLrp { stopping: true, ..running });
        all
    }

    #[test]
    fn both_encodings_read_back_what_they_wrote() {
        for lrp in every_state() {
            let json = serde_json::to_string(&lrp).unwrap();
            assert_eq!(serde_json::from_str::<ActualLrp>(&json).unwrap(), lrp, "{json}");
            let bytes = postcard::to_stdvec(&lrp).unwrap();
            assert_eq!(postcard::from_bytes::<ActualLrp>(&bytes).unwrap(), lrp);
        }
    }

    #[test]
    fn json_is_flat_and_has_the_names_of_the_bbs() {
        let json = serde_json::to_value(running()).unwrap();
        let mut expected = serde_json::json!({
            "process_guid": "pg", "index": 3, "domain": "apps", "definition_id": "v1",
            "instance_guid": "ig-1", "cell_id": "cell-1", "address": "10.0.0.1",
            "instance_address": "10.255.0.2", "preferred_address": "HOST",
            "crash_count": 1, "crash_reason": "exit 1", "state": "RUNNING", "since": 77,
            "modification_tag": {"epoch": "", "index": 0}, "presence": "ORDINARY",
            "actual_lrp_internal_routes": [{"hostname": "a.internal"}],
            "metric_tags": {"source_id": "app"}, "routable": true, "availability_zone": "z1",
        });
        expected["ports"] = serde_json::json!([{
            "container_port": 8080, "host_port": 60001,
            "container_tls_proxy_port": 0, "host_tls_proxy_port": 0,
        }]);
        assert_eq!(json, expected);
        expected["stopping"] = true.into();
        let stopping = ActualLrp { stopping: true, ..running() };
        assert_eq!(serde_json::to_value(stopping).unwrap(), expected);
    }

    #[test]
    fn an_unclaimed_record_shows_empty_names_and_no_address() {
        let state = LrpState::Unclaimed { placement_error: "no room".into() };
        let json = serde_json::to_value(ActualLrp { state, ..running() }).unwrap();
        assert_eq!(json["instance_guid"], "");
        assert_eq!(json["cell_id"], "");
        assert_eq!(json["address"], "");
        assert_eq!(json["placement_error"], "no room");
    }

    #[test]
    fn the_lookup_rule_prefers_what_serves() {
        let of = |presence, state: &LrpState| {
            Arc::new(ActualLrp { presence, state: state.clone(), ..running() })
        };
        let states: Vec<LrpState> = every_state().into_iter().map(|lrp| lrp.state).collect();
        let [run, unclaimed, claimed, crashed, ..] = &states[..] else { panic!("four states") };
        let evacuating = of(Presence::Evacuating, run);
        let suspect = of(Presence::Suspect, run);
        for (ordinary, wins) in [(run, true), (crashed, true), (unclaimed, false), (claimed, false)]
        {
            let ordinary = of(Presence::Ordinary, ordinary);
            let group = LrpGroup::fold([&ordinary, &evacuating]);
            assert_eq!(group.resolve() == Some(&ordinary), wins, "{}", ordinary.state.name());
            let group = LrpGroup::fold([&ordinary, &suspect]);
            let serves = ordinary.state.is_running();
            assert_eq!(group.resolve() == Some(&ordinary), serves, "{}", ordinary.state.name());
        }
        assert_eq!(LrpGroup::fold([&evacuating]).resolve(), Some(&evacuating));
        assert_eq!(LrpGroup::fold([]).resolve(), None);
    }
}
