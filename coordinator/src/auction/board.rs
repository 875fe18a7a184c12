//! What the auction asks the BBS: where instances are, and whether work is still wanted.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::actual_lrp::{LrpState, Presence};
use volvox_protocol::id::{CellId, DefinitionId, ProcessGuid, TaskGuid};
use volvox_protocol::task::TaskState;

use crate::bbs::state::Records;

/// The records, as far as the auction looks at them.
pub trait InstanceIndex {
    /// Names every instance of the process that is on a cell: its definition, index and cell.
    fn each_instance(
        &self,
        process: &ProcessGuid,
        tell: &mut dyn FnMut(&DefinitionId, u32, &CellId),
    );

    /// Whether this instance waits for a cell.
    fn wants_lrp(&self, process: &ProcessGuid, definition: &DefinitionId, index: u32) -> bool;

    /// Whether this task waits for a cell.
    fn wants_task(&self, task: &TaskGuid) -> bool;
}

impl InstanceIndex for Records {
    fn each_instance(
        &self,
        process: &ProcessGuid,
        tell: &mut dyn FnMut(&DefinitionId, u32, &CellId),
    ) {
        for slot in self.process(process).map_or(&[][..], |it| it.instances()) {
            if let Some(cell) = slot.lrp.cell_id() {
                tell(&slot.lrp.definition_id, slot.lrp.index, cell);
            }
        }
    }

    fn wants_lrp(&self, process: &ProcessGuid, definition: &DefinitionId, index: u32) -> bool {
        let slot =
            self.process(process).and_then(|it| it.find(definition, index, Presence::Ordinary));
        slot.is_some_and(|slot| matches!(slot.lrp.state, LrpState::Unclaimed { .. }))
    }

    fn wants_task(&self, task: &TaskGuid) -> bool {
        self.task(task).is_some_and(|(_, task)| task.state == TaskState::Pending)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, Running, Tags};
    use volvox_protocol::cell::CellPresence;
    use volvox_protocol::id::{Domain, InstanceGuid};
    use volvox_protocol::request::CellRequest;
    use volvox_protocol::time::Timestamp;
    use volvox_protocol::validate::Valid;

    use super::*;
    use crate::bbs::command::Command;
    use crate::bbs::logic::Board as Bbs;
    use crate::bbs::settings::BoardSettings;

    fn process() -> ProcessGuid {
        ProcessGuid::new("p").unwrap()
    }

    fn cell(name: &str) -> CellId {
        CellId::new(name).unwrap()
    }

    fn task() -> TaskGuid {
        TaskGuid::new("t").unwrap()
    }

    fn key(index: u32) -> LrpKey {
        let domain = Domain::new("d").unwrap();
        LrpKey { process_guid: process(), index, domain, definition_id: None }
    }

    fn on(name: &str) -> InstanceKey {
        let instance_guid = InstanceGuid::new(&format!("i-{name}")).unwrap();
        InstanceKey { instance_guid, cell_id: cell(name) }
    }

    fn running() -> Arc<Running> {
        Arc::new(Running {
            net_info: NetInfo { address: "10.0.0.1".into(), ..NetInfo::default() },
            internal_routes: Box::default(),
            metric_tags: Tags::default(),
            routable: true,
            availability_zone: "z1".into(),
        })
    }

    fn does(board: &mut Bbs, command: Command) {
        board.apply(Timestamp::from_secs(1_000), 1, command).unwrap();
    }

    fn says(board: &mut Bbs, request: CellRequest) {
        does(board, Command::Cell(Valid::new(request).unwrap()));
    }

    /// Two instances of `p` and the task `t`; the mesh has mentioned cells a and b.
    fn board() -> Bbs {
        let mut board = Bbs::new(BoardSettings::default());
        for name in ["a", "b"] {
            does(&mut board, Command::CellPresence(cell(name), CellPresence::Present));
        }
        let action = json!({"run": {"path": "/bin/true", "user": "root"}});
        let desired = json!({
            "process_guid": "p", "domain": "d", "rootfs": "preloaded:linux", "instances": 2,
            "action": action,
        });
        let desired = Valid::new(serde_json::from_value(desired).unwrap()).unwrap();
        does(&mut board, Command::DesireLrp(Box::new(desired)));
        let definition = json!({"rootfs": "preloaded:linux", "action": action});
        let definition = Valid::new(serde_json::from_value(definition).unwrap()).unwrap();
        let domain = Domain::new("d").unwrap();
        does(&mut board, Command::DesireTask(task(), domain, Box::new(definition)));
        board
    }

    /// Which indices wait for a cell, and where the others are.
    #[track_caller]
    fn check(board: &Bbs, wanted: &[u32], placed: &[(u32, &str)]) {
        let records = board.records();
        let definition = DefinitionId::from(&process());
        let waits = (0..3).filter(|index| records.wants_lrp(&process(), &definition, *index));
        assert_eq!(waits.collect::<Vec<_>>(), wanted);
        let mut found = Vec::new();
        records.each_instance(&process(), &mut |of, index, cell| {
            assert_eq!(*of, definition);
            found.push((index, cell.to_string()));
        });
        let placed = placed.iter().map(|(index, cell)| (*index, (*cell).to_owned()));
        assert_eq!(found, placed.collect::<Vec<_>>());
    }

    #[test]
    fn an_instance_waits_until_it_is_claimed_and_again_after_a_crash() {
        let mut board = board();
        check(&board, &[0, 1], &[]);
        says(&mut board, CellRequest::ClaimLrp(key(0), on("a")));
        check(&board, &[1], &[(0, "a")]);
        says(&mut board, CellRequest::StartLrp(key(0), on("a"), running()));
        check(&board, &[1], &[(0, "a")]);
        says(&mut board, CellRequest::CrashLrp(key(0), on("a"), "exit 1".into()));
        check(&board, &[0, 1], &[]);
    }

    #[test]
    fn an_instance_that_leaves_its_cell_waits_and_is_still_there() {
        let mut board = board();
        says(&mut board, CellRequest::StartLrp(key(0), on("a"), running()));
        says(&mut board, CellRequest::EvacuateRunning(key(0), on("a"), running()));
        check(&board, &[0, 1], &[(0, "a")]);
        says(&mut board, CellRequest::ClaimLrp(key(0), on("b")));
        let mut at = Vec::new();
        let mut tell =
            |_: &DefinitionId, index: u32, cell: &CellId| at.push((index, cell.to_string()));
        board.records().each_instance(&process(), &mut tell);
        at.sort();
        assert_eq!(at, [(0, "a".to_owned()), (0, "b".to_owned())]);
    }

    #[test]
    fn a_task_waits_until_it_is_started_and_what_nobody_desires_never_does() {
        let mut board = board();
        assert!(board.records().wants_task(&task()));
        says(&mut board, CellRequest::StartTask(task(), cell("a")));
        assert!(!board.records().wants_task(&task()));
        let stranger = TaskGuid::new("stranger").unwrap();
        assert!(!board.records().wants_task(&stranger));
        let stranger = ProcessGuid::new("stranger").unwrap();
        assert!(!board.records().wants_lrp(&stranger, &(&stranger).into(), 0));
        board.records().each_instance(&stranger, &mut |_, _, _| panic!("it has no instance"));
        does(&mut board, Command::RemoveDesiredLrp(process()));
        check(&board, &[], &[]);
    }
}
