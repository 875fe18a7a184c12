//! Containers and records as the tables see them: which view a container has, and whose a record is.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::actual_lrp::{InstanceKey, Presence};
use volvox_protocol::cell_rpc::{LrpRecord, RecordState, TaskRecord};
use volvox_protocol::container::ContainerState;
use volvox_protocol::id::CellId;
use volvox_protocol::tables::Whose;
use volvox_protocol::tables::rep_lrp::{ContainerPhase, LrpView};
use volvox_protocol::tables::rep_task::{TaskContainerView, TaskView};
use volvox_protocol::task::TaskState;

use crate::executor::container_store::Container;

/// The container of an instance; none is `Absent`.
pub fn of_container(container: Option<&Container>) -> ContainerPhase {
    let Some(container) = container else { return ContainerPhase::Absent };
    match container.state {
        ContainerState::Reserved => ContainerPhase::Reserved,
        ContainerState::Initializing | ContainerState::Created => ContainerPhase::Starting,
        ContainerState::Running => ContainerPhase::Running,
        ContainerState::Completed if container.result.stopped => ContainerPhase::Shutdown,
        ContainerState::Completed => ContainerPhase::Crashed,
    }
}

/// The container of a task; none is `Absent`.
pub fn of_task_container(container: Option<&Container>) -> TaskContainerView {
    match container.map(|it| it.state) {
        None => TaskContainerView::Absent,
        Some(ContainerState::Reserved) => TaskContainerView::Reserved,
        Some(ContainerState::Initializing | ContainerState::Created | ContainerState::Running) => {
            TaskContainerView::Active
        }
        Some(ContainerState::Completed) => TaskContainerView::Completed,
    }
}

/// The instance that a record names, if it names one.
pub fn held_by(record: &LrpRecord) -> Option<&InstanceKey> {
    match &record.state {
        RecordState::Claimed(on) | RecordState::Running(on) => Some(on),
        RecordState::Unclaimed | RecordState::Crashed => None,
    }
}

/// The record of an index that `own` is judged by: the ordinary one, unless the board has set `own`
/// itself down as suspect. A suspect serves on until its replacement runs; then its record is gone,
/// and the ordinary one is another's.
pub fn judged_by<'a>(
    records: impl Iterator<Item = &'a LrpRecord> + Clone,
    own: &InstanceKey,
) -> Option<&'a LrpRecord> {
    let of = |presence: Presence| records.clone().filter(move |it| it.presence == presence);
    of(Presence::Suspect)
        .find(|it| held_by(it) == Some(own))
        .or_else(|| of(Presence::Ordinary).next())
}

/// A record as the instance `own` sees it.
pub fn of_record(record: Option<&LrpRecord>, own: &InstanceKey) -> LrpView {
    let Some(record) = record else { return LrpView::Missing };
    let whose = |on: &InstanceKey| if on == own { Whose::Ours } else { Whose::Theirs };
    match &record.state {
        RecordState::Unclaimed => LrpView::Unclaimed,
        RecordState::Claimed(on) => LrpView::Claimed(whose(on)),
        RecordState::Running(on) => LrpView::Running(whose(on)),
        RecordState::Crashed => LrpView::Crashed,
    }
}

/// A task's record as `cell` sees it.
pub fn of_task(record: Option<&TaskRecord>, cell: &CellId) -> TaskView {
    let Some(record) = record else { return TaskView::Missing };
    let whose = if record.cell_id.as_ref() == Some(cell) { Whose::Ours } else { Whose::Theirs };
    match record.state {
        TaskState::Pending => TaskView::Pending,
        TaskState::Running => TaskView::Running(whose),
        TaskState::Completed => TaskView::Completed(whose),
        TaskState::Resolving => TaskView::Resolving(whose),
    }
}
