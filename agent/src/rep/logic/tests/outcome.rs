//! What has come of a play on the stage.

use super::*;

impl Stage {
    /// What the board was asked since the last time this was called.
    pub(super) fn said(&mut self) -> Vec<&'static str> {
        self.board.decided.drain(..).map(|(request, _)| name(&request)).collect()
    }

    pub(super) fn crash_reason(&self) -> Option<String> {
        self.board.decided.iter().find_map(|(request, _)| {
            let CellRequest::CrashLrp(_, _, reason) = request else { return None };
            Some(reason.to_string())
        })
    }

    /// Containers that were to be deleted.
    pub(super) fn deletes(&self) -> usize {
        self.done.iter().filter(|it| matches!(it, RepOutput::Delete(_))).count()
    }

    pub(super) fn only(&self) -> ContainerGuid {
        let all: Vec<&ContainerGuid> = self.machine.containers.keys().collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    pub(super) fn state(&self, guid: &ContainerGuid) -> Option<ContainerState> {
        self.machine.state(guid)
    }

    /// Both sides count the same.
    pub(super) fn agrees(&self) -> bool {
        self.rep.digest.number() == self.board.digest()
    }

    /// How it stands, for a test that fails.
    pub(super) fn tell(&self) -> String {
        let mut lines = vec![String::new()];
        for ((_, index), it) in &self.board.ordinary {
            lines.push(format!("record {index}: {:?}", it.state));
        }
        for (guid, it) in &self.board.tasks {
            lines.push(format!("task {guid}: {:?} on {:?}", it.state, it.cell));
        }
        for (guid, it) in &self.rep.entries {
            let state = it.state();
            lines.push(format!("{guid}: {state:?} × {:?}, {:?}", it.belief, it.busy));
        }
        let last = self.done.iter().rev().take(12).rev();
        lines.extend(last.map(|it| format!("{it:?}")));
        lines.join("\n")
    }

    pub(super) fn knows_nothing(&self) {
        assert!(self.rep.entries.is_empty(), "{:#?}", self.rep.entries);
        assert!(self.rep.definitions.is_empty() && self.rep.tasks.is_empty());
        assert!(self.rep.unreadable.is_empty() && self.assigned.is_empty());
        assert!(self.rep.orders.is_empty() && self.rep.reserving.is_empty());
    }
}

/// What a request is about.
pub(super) fn subject(request: &CellRequest) -> String {
    match request {
        CellRequest::ClaimLrp(_, on)
        | CellRequest::StartLrp(_, on, _)
        | CellRequest::CrashLrp(_, on, _)
        | CellRequest::RemoveLrp(_, on)
        | CellRequest::EvacuateClaimed(_, on)
        | CellRequest::EvacuateRunning(_, on, _)
        | CellRequest::EvacuateCrashed(_, on, _)
        | CellRequest::EvacuateStopped(_, on)
        | CellRequest::RemoveEvacuating(_, on) => on.instance_guid.to_string(),
        CellRequest::StartTask(task, _)
        | CellRequest::CompleteTask(task, ..)
        | CellRequest::RejectTask(task, ..) => task.to_string(),
    }
}

pub(super) fn name(request: &CellRequest) -> &'static str {
    match request {
        CellRequest::ClaimLrp(..) => "claim",
        CellRequest::StartLrp(..) => "start",
        CellRequest::CrashLrp(..) => "crash",
        CellRequest::RemoveLrp(..) => "remove",
        CellRequest::EvacuateClaimed(..) => "evacuate claimed",
        CellRequest::EvacuateRunning(..) => "evacuate running",
        CellRequest::EvacuateCrashed(..) => "evacuate crashed",
        CellRequest::EvacuateStopped(..) => "evacuate stopped",
        CellRequest::RemoveEvacuating(..) => "remove evacuating",
        CellRequest::StartTask(..) => "start task",
        CellRequest::CompleteTask(..) => "complete task",
        CellRequest::RejectTask(..) => "reject task",
    }
}
