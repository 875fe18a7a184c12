//! Commands for a board under load, and what was acknowledged of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use volvox_coordinator::bbs::command::Command;
use volvox_coordinator::bbs::state::Records;
use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, Running, Tags};
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::request::CellRequest;
use volvox_protocol::validate::Valid;

/// How far one process has come, as its caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Desired: a record of it must be there.
    Desired,
    /// Claimed.
    Claimed,
    /// Running.
    Running,
    /// Its task is desired, in a domain that was made fresh for it.
    Tasked,
    /// No longer desired: the deployment must be gone.
    Removed,
}

impl Stage {
    /// The stages in the order in which a process goes through them.
    pub const ALL: [Stage; 5] =
        [Stage::Desired, Stage::Claimed, Stage::Running, Stage::Tasked, Stage::Removed];

    /// Reads back what `{:?}` printed.
    pub fn parse(text: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| format!("{stage:?}") == text)
    }
}

/// The command that takes a process to a stage.
pub fn command(process: &str, stage: Stage) -> anyhow::Result<Command> {
    command_on(process, stage, &CellId::new("cell-1")?)
}

/// The command that takes a process to a stage, on this cell.
pub fn command_on(process: &str, stage: Stage, cell: &CellId) -> anyhow::Result<Command> {
    let process_guid = ProcessGuid::new(process)?;
    let key = LrpKey {
        process_guid: process_guid.clone(),
        index: 0,
        domain: Domain::new("load")?,
        definition_id: None,
    };
    let instance = InstanceKey {
        instance_guid: InstanceGuid::new(&format!("{process}-container"))?,
        cell_id: cell.clone(),
    };
    Ok(match stage {
        Stage::Desired => {
            let desired: DesiredLrp = serde_json::from_value(serde_json::json!({
                "process_guid": process, "domain": "load", "instances": 1, "rootfs": "host:",
                "action": {"run": {"path": "/bin/true", "user": "nobody"}},
            }))?;
            Command::DesireLrp(Box::new(Valid::new(desired)?))
        }
        Stage::Claimed => Command::Cell(Valid::new(CellRequest::ClaimLrp(key, instance))?),
        Stage::Running => {
            let running = Running {
                net_info: NetInfo { address: "192.0.2.7".into(), ..NetInfo::default() },
                internal_routes: Box::default(),
                metric_tags: Tags::default(),
                routable: true,
                availability_zone: "z1".into(),
            };
            let start = CellRequest::StartLrp(key, instance, Arc::new(running));
            Command::Cell(Valid::new(start)?)
        }
        Stage::Tasked => {
            let definition = serde_json::from_value(serde_json::json!({
                "rootfs": "host:", "action": {"run": {"path": "/bin/true", "user": "nobody"}},
            }))?;
            let guid = TaskGuid::new(process)?;
            Command::DesireTask(guid, Domain::new("load")?, Box::new(definition))
        }
        Stage::Removed => Command::RemoveDesiredLrp(process_guid),
    })
}

/// Whether a process is removed in the end: every third one.
pub fn removes(process: &str) -> bool {
    let number = process.rsplit('-').next().and_then(|it| it.parse::<u64>().ok());
    number.is_some_and(|number| number % 3 == 0)
}

/// What callers were told, by process.
#[derive(Debug, Default)]
pub struct Acknowledged(BTreeMap<String, Stage>);

impl Acknowledged {
    /// Notes one acknowledgement.
    pub fn note(&mut self, process: &str, stage: Stage) {
        let known = self.0.entry(process.to_owned()).or_insert(stage);
        *known = stage.max(*known);
    }

    /// How many processes were told of.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the records lack of it. A record may be further than its caller was told, never less.
    pub fn lost(&self, records: &Records) -> anyhow::Result<Vec<String>> {
        let mut lost = Vec::new();
        for (process, told) in &self.0 {
            let guid = ProcessGuid::new(process)?;
            let desired = records.deployment(&guid).is_some();
            let state = records.process(&guid).and_then(|it| it.instances().first());
            let name = state.map_or("missing", |slot| slot.lrp.state.name());
            let task = records.task(&TaskGuid::new(process)?).is_some();
            // One that is on its way to be removed may be gone before its caller heard of it.
            let gone_early = removes(process) && !desired;
            let kept = match told {
                Stage::Desired => desired && name != "missing" || gone_early,
                Stage::Claimed => desired && ["CLAIMED", "RUNNING"].contains(&name) || gone_early,
                Stage::Running => desired && name == "RUNNING" || gone_early,
                Stage::Tasked => task && (desired || gone_early),
                Stage::Removed => task && !desired,
            };
            if !kept {
                lost.push(format!("{process}: told {told:?}, found {name}, desired: {desired}"));
            }
        }
        Ok(lost)
    }
}
