//! An executor that is a map of containers: what it is told it does at once, unless it is to be slow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use volvox_protocol::actual_lrp::PortMapping;
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::container::{ContainerState, RunResult};
use volvox_protocol::time::Timestamp;

use crate::container::guid::ContainerGuid;
use crate::container::network::ContainerNetwork;
use crate::executor::container_store::{Container, Deletion};
use crate::executor::logic::{ContainerView, ReservationRequest};
use crate::executor::resources::ContainerResources;
use crate::executor::workload::Owner;

pub(super) const ROOM: CellCapacity =
    CellCapacity { memory_mb: 1_000, disk_mb: 1_000, containers: 6 };

/// How deletions go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletes {
    AtOnce,
    /// Under way until [`Machine::finish_deletes`].
    Slow,
    Fail,
    /// The executor has no time.
    Busy,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) containers: BTreeMap<ContainerGuid, ContainerView>,
    /// What the rep has not been shown: the last view of each.
    changed: BTreeMap<ContainerGuid, Option<ContainerView>>,
    pub(super) deletes: Deletes,
    pub(super) refuses_to_run: bool,
    /// The executor has no time to stop anything.
    pub(super) has_no_time: bool,
    /// How often each was run, by name.
    pub(super) runs: BTreeMap<ContainerGuid, usize>,
    /// The last part of the address that the next container gets.
    pub(super) address: u8,
    /// The ports of containers that are made.
    pub(super) ports: Vec<PortMapping>,
}

impl Machine {
    pub(super) fn new() -> Self {
        Machine {
            containers: BTreeMap::new(),
            changed: BTreeMap::new(),
            deletes: Deletes::AtOnce,
            refuses_to_run: false,
            has_no_time: false,
            runs: BTreeMap::new(),
            address: 1,
            ports: Vec::new(),
        }
    }

    pub(super) fn free(&self) -> CellCapacity {
        let used = |of: fn(&ContainerResources) -> u32| -> u32 {
            self.containers.values().map(|it| of(&it.container.resources)).sum()
        };
        CellCapacity {
            memory_mb: ROOM.memory_mb - used(|it| it.memory_mb),
            disk_mb: ROOM.disk_mb - used(|it| it.disk_mb),
            containers: ROOM.containers - u32::try_from(self.containers.len()).unwrap(),
        }
    }

    /// What the rep is shown next.
    pub(super) fn show(&mut self) -> Vec<(ContainerGuid, Option<ContainerView>)> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// What a rep that starts is shown.
    pub(super) fn show_all(&mut self) -> Vec<(ContainerGuid, Option<ContainerView>)> {
        self.changed.clear();
        self.containers.iter().map(|(guid, it)| (guid.clone(), Some(it.clone()))).collect()
    }

    pub(super) fn state(&self, guid: &ContainerGuid) -> Option<ContainerState> {
        self.containers.get(guid).map(|it| it.container.state)
    }

    fn note(&mut self, guid: &ContainerGuid) {
        self.changed.insert(guid.clone(), self.containers.get(guid).cloned());
    }

    /// Puts a container there, in any state.
    pub(super) fn put(&mut self, now: Timestamp, owner: Owner, state: ContainerState) {
        let guid = owner.container();
        let resources = ContainerResources { memory_mb: 10, disk_mb: 10 };
        let result = RunResult {
            failed: state == ContainerState::Completed,
            failure_reason: "exit 1".to_owned(),
            ..RunResult::default()
        };
        let container = Container {
            guid: guid.clone(),
            state,
            since: now,
            resources,
            routable: state == ContainerState::Running,
            stopped: false,
            deletion: Deletion::NotAsked,
            result: if result.failed { result } else { RunResult::default() },
        };
        let made = !matches!(state, ContainerState::Reserved | ContainerState::Initializing);
        let network = made.then(|| self.network());
        let task_result = String::new();
        let view = ContainerView { container, owner, network, task_result };
        self.containers.insert(guid.clone(), view);
        self.note(&guid);
    }

    fn network(&self) -> ContainerNetwork {
        ContainerNetwork {
            external_address: IpAddr::from([192, 0, 2, 1]),
            internal_address: IpAddr::from([10, 255, 0, self.address]),
            internal_ipv6: None,
            ports: self.ports.clone(),
        }
    }

    // What the rep tells it.

    pub(super) fn reserve(
        &mut self,
        now: Timestamp,
        wanted: Vec<ReservationRequest>,
    ) -> Vec<(ContainerGuid, String)> {
        let mut refused = Vec::new();
        for ReservationRequest { owner, resources } in wanted {
            let guid = owner.container();
            let free = self.free();
            let fits = resources.memory_mb <= free.memory_mb
                && resources.disk_mb <= free.disk_mb
                && free.containers > 0;
            if self.containers.contains_key(&guid) {
                refused.push((guid, "the name is taken".to_owned()));
            } else if fits {
                self.put(now, owner, ContainerState::Reserved);
                let view = self.containers.get_mut(&guid).unwrap();
                view.container.resources = resources;
                self.note(&guid);
            } else {
                refused.push((guid, "insufficient resources".to_owned()));
            }
        }
        refused
    }

    pub(super) fn run(&mut self, now: Timestamp, guid: &ContainerGuid) -> Result<(), String> {
        if self.refuses_to_run {
            return Err("the executor is busy".to_owned());
        }
        let view = self.containers.get_mut(guid).ok_or("not found")?;
        if view.container.state != ContainerState::Reserved {
            return Err(format!("it is {:?}", view.container.state));
        }
        view.container.state = ContainerState::Initializing;
        view.container.since = now;
        *self.runs.entry(guid.clone()).or_default() += 1;
        self.note(guid);
        Ok(())
    }

    pub(super) fn stop(&mut self, now: Timestamp, guid: &ContainerGuid) {
        match self.state(guid) {
            Some(ContainerState::Reserved) => self.vanish(guid),
            Some(
                ContainerState::Initializing | ContainerState::Created | ContainerState::Running,
            ) => {
                let stopped = RunResult { stopped: true, ..RunResult::default() };
                self.complete(now, guid, stopped);
            }
            Some(ContainerState::Completed) | None => {}
        }
    }

    pub(super) fn delete(&mut self, now: Timestamp, guid: &ContainerGuid) -> Result<(), ()> {
        if self.deletes == Deletes::Busy {
            return Err(());
        }
        let Some(view) = self.containers.get_mut(guid) else { return Ok(()) };
        if view.container.state == ContainerState::Reserved {
            self.vanish(guid);
            return Ok(());
        }
        view.container.deletion = Deletion::Underway;
        view.container.stopped |= view.container.state != ContainerState::Completed;
        self.note(guid);
        if self.deletes != Deletes::Slow {
            self.finish_delete(now, guid);
        }
        Ok(())
    }

    // What happens to it.

    pub(super) fn finish_deletes(&mut self, now: Timestamp) {
        for guid in self.containers.keys().cloned().collect::<BTreeSet<_>>() {
            self.finish_delete(now, &guid);
        }
    }

    fn finish_delete(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let Some(view) = self.containers.get_mut(guid) else { return };
        if view.container.deletion != Deletion::Underway {
            return;
        }
        if self.deletes != Deletes::Fail {
            return self.vanish(guid);
        }
        view.container.deletion = Deletion::NotAsked;
        if view.container.state != ContainerState::Completed {
            let stopped = RunResult { stopped: true, ..RunResult::default() };
            self.complete(now, guid, stopped);
        }
        self.note(guid);
    }

    pub(super) fn vanish(&mut self, guid: &ContainerGuid) {
        self.containers.remove(guid);
        self.note(guid);
    }

    /// One step further on the way up.
    pub(super) fn advance(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let network = self.network();
        let Some(view) = self.containers.get_mut(guid) else { return };
        view.container.state = match view.container.state {
            ContainerState::Initializing => ContainerState::Created,
            ContainerState::Created => ContainerState::Running,
            ContainerState::Reserved | ContainerState::Running | ContainerState::Completed => {
                return;
            }
        };
        view.container.since = now;
        view.network = Some(network);
        view.container.routable = view.container.state == ContainerState::Running;
        self.note(guid);
    }

    pub(super) fn set_routable(&mut self, guid: &ContainerGuid, routable: bool) {
        self.containers.get_mut(guid).unwrap().container.routable = routable;
        self.note(guid);
    }

    pub(super) fn come_up(&mut self, now: Timestamp, guid: &ContainerGuid) {
        self.advance(now, guid);
        self.advance(now, guid);
        assert_eq!(self.state(guid), Some(ContainerState::Running), "{guid}");
    }

    pub(super) fn crash(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let failure_reason = "exit 1".to_owned();
        let result = RunResult { failed: true, failure_reason, ..RunResult::default() };
        self.complete(now, guid, result);
    }

    pub(super) fn complete(&mut self, now: Timestamp, guid: &ContainerGuid, result: RunResult) {
        let Some(view) = self.containers.get_mut(guid) else { return };
        view.container.state = ContainerState::Completed;
        view.container.since = now;
        view.container.routable = false;
        view.container.stopped |= result.stopped;
        view.container.result = result;
        self.note(guid);
    }
}
