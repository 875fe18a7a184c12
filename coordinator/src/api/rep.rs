//! What Diego's cells and its auctioneer tell by HTTP: how instances and tasks fare. Our own cells say it
//! over the mesh, in the same words to the same board.
//!
//! A certificate with the role cell speaks for the cell of its own name only; an admin for any.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, Running, Tags};
use volvox_protocol::api::{
    ActualLrpInstanceRequest, ClaimActualLrpRequest, CompleteTaskRequest, CrashActualLrpRequest,
    EvacuateRunningActualLrpRequest, EvacuationResponse, FailActualLrpRequest, FailTaskRequest,
    LifecycleResponse, RejectTaskRequest, RemoveActualLrpRequest, StartActualLrpRequest,
    StartTaskRequest, StartTaskResponse,
};
use volvox_protocol::diego;
use volvox_protocol::id::{CellId, ProcessGuid, TaskGuid};
use volvox_protocol::limits::ARGUMENT_BYTES;
use volvox_protocol::request::{CellRequest, TaskOutcome};
use volvox_protocol::schema::Schema;
use volvox_protocol::task::TaskState;
use volvox_protocol::validate::Valid;

use super::access::Role;
use super::reply::ApiFailure;
use super::route::{self, ApiRequest, HandlerFuture, Route};
use super::{Api, trace};
use crate::bbs::command::{Command, Reply};

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    let mut all = instances();
    all.extend(evacuation());
    all.extend(tasks());
    all
}

/// A request that says who it is about.
trait Report: DeserializeOwned + Schema + diego::DiegoRequest + Send + 'static {
    /// Who speaks.
    fn speaker(&self) -> Reporter<'_>;
    /// What the audit says it was about.
    fn subject(&self) -> String;
}

/// Who tells something.
enum Reporter<'a> {
    /// This cell.
    Cell(&'a CellId),
    /// Whoever has this task; any cell, if it may be one that nobody has yet.
    HolderOf(&'a TaskGuid, Unplaced),
    /// Who places work, or an operator: no cell.
    Auctioneer,
}

impl Reporter<'_> {
    /// Whatever is said.
    fn auctioneer<Q>(_: &Q) -> Reporter<'_> {
        Reporter::Auctioneer
    }
}

/// Who may speak of a task that is on no cell now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unplaced {
    /// Any cell: it was offered the task.
    AnyCell,
    /// No cell.
    NoCell,
}

macro_rules! reports {
    ($( $request:ty |$it:ident| $speaker:expr, $subject:expr ; )*) => {
        $( impl Report for $request {
            fn speaker(&self) -> Reporter<'_> {
                let $it = self;
                $speaker
            }

            fn subject(&self) -> String {
                let $it = self;
                $subject
            }
        } )*
    };
}

reports! {
    ClaimActualLrpRequest |it| Reporter::Cell(&it.actual_lrp_instance_key.cell_id),
        format!("{}/{}", it.process_guid, it.index);
    StartActualLrpRequest |it| Reporter::Cell(&it.actual_lrp_instance_key.cell_id),
        named(&it.actual_lrp_key);
    EvacuateRunningActualLrpRequest |it| it.0.speaker(), it.0.subject();
    CrashActualLrpRequest |it| Reporter::Cell(&it.actual_lrp_instance_key.cell_id),
        named(&it.actual_lrp_key);
    ActualLrpInstanceRequest |it| Reporter::Cell(&it.actual_lrp_instance_key.cell_id),
        named(&it.actual_lrp_key);
    RemoveActualLrpRequest |it| match &it.actual_lrp_instance_key {
            Some(key) => Reporter::Cell(&key.cell_id),
            None => Reporter::Auctioneer,
        },
        format!("{}/{}", it.process_guid, it.index);
    FailActualLrpRequest |it| Reporter::auctioneer(it), named(&it.actual_lrp_key);
    StartTaskRequest |it| Reporter::Cell(&it.cell_id), it.task_guid.to_string();
    CompleteTaskRequest |it| Reporter::Cell(&it.cell_id), it.task_guid.to_string();
    FailTaskRequest |it| Reporter::HolderOf(&it.task_guid, Unplaced::NoCell),
        it.task_guid.to_string();
    RejectTaskRequest |it| Reporter::HolderOf(&it.task_guid, Unplaced::AnyCell),
        it.task_guid.to_string();
}

fn named(key: &LrpKey) -> String {
    format!("{}/{}", key.process_guid, key.index)
}

/// A route for reports: as [`route::change`], for cells and admins, each cell for itself.
fn report<Q, A, R>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    answer: impl Fn(Arc<Api>, Q) -> R + Send + Sync + 'static,
) -> Route
where
    Q: Report,
    A: Serialize + Schema + diego::DiegoReply,
    R: Future<Output = Result<A, ApiFailure>> + Send + 'static,
{
    let change = route::change::<Q, A, R>(path, name, about, Q::subject, answer);
    let handle = change.handle;
    Route {
        role: Some(Role::Cell),
        handle: Box::new(move |api, call| match own_cell::<Q>(&api, &call) {
            Ok(()) => handle(api, call),
            Err(failure) => HandlerFuture::new(std::future::ready(Err(failure))),
        }),
        ..change
    }
}

/// Whether the caller may speak for the cell that speaks here. What cannot be read is refused later.
fn own_cell<Q: Report>(api: &Api, call: &ApiRequest) -> Result<(), ApiFailure> {
    let Some(caller) = call.caller.as_ref().filter(|caller| caller.role == Role::Cell) else {
        return Ok(());
    };
    let Ok(request) = call.request::<Q>() else { return Ok(()) };
    let own = caller.certificate().unwrap_or_default();
    match request.speaker() {
        Reporter::Cell(cell) if cell.as_str() == own => Ok(()),
        Reporter::Cell(cell) => {
            Err(ApiFailure::forbidden(format!("the cell {own} may not speak for {cell}")))
        }
        Reporter::HolderOf(guid, unplaced) => {
            let records = api.bbs.view().snapshot();
            // A task that is not there is refused later. One that was refused keeps its last cell.
            let Some((_, task)) = records.task(guid) else { return Ok(()) };
            let placed = task.cell_id.as_ref().filter(|_| task.state != TaskState::Pending);
            let may = match placed {
                Some(cell) => cell.as_str() == own,
                None => unplaced == Unplaced::AnyCell,
            };
            if may {
                return Ok(());
            }
            Err(ApiFailure::forbidden(format!("the cell {own} does not have the task {guid}")))
        }
        Reporter::Auctioneer => Err(ApiFailure::forbidden(format!(
            "the cell {own} must name its instance; this is told by an admin"
        ))),
    }
}

fn instances() -> Vec<Route> {
    vec![
        report::<ClaimActualLrpRequest, LifecycleResponse, _>(
            "/v1/actual_lrps/claim",
            "ClaimActualLRP",
            "A cell has won this instance, and is about to start it.",
            |api, it| async move {
                let instance = it.actual_lrp_instance_key;
                let key = api.key(&it.process_guid, it.index, Some(&instance))?;
                api.told(CellRequest::ClaimLrp(key, instance)).await.map(done)
            },
        ),
        start("/v1/actual_lrps/start.r1", "StartActualLRP", |running| running),
        start("/v1/actual_lrps/start", "StartActualLRP_r0", as_of_old),
        report::<CrashActualLrpRequest, LifecycleResponse, _>(
            "/v1/actual_lrps/crash",
            "CrashActualLRP",
            "An instance ended without being asked to.",
            |api, it| async move {
                let (key, instance) = api.held(it.actual_lrp_key, it.actual_lrp_instance_key);
                let told = CellRequest::CrashLrp(key, instance, it.error_message.into());
                api.told(told).await.map(done)
            },
        ),
        report::<FailActualLrpRequest, LifecycleResponse, _>(
            "/v1/actual_lrps/fail",
            "FailActualLRP",
            "An auction found no cell for this instance.",
            |api, it| async move {
                let reason = bounded("error_message", it.error_message)?;
                let key = Valid::new(it.actual_lrp_key)
                    .map_err(|invalid| ApiFailure::within("actual_lrp_key", invalid))?;
                api.order(Command::FailLrp(key.into_inner(), reason)).await
            },
        )
        .with_role(Role::Admin),
        report::<RemoveActualLrpRequest, LifecycleResponse, _>(
            "/v1/actual_lrps/remove",
            "RemoveActualLRP",
            "An instance was stopped as asked, or there is no such container.",
            |api, it| async move {
                let instance = it.actual_lrp_instance_key;
                let key = api.key(&it.process_guid, it.index, instance.as_ref())?;
                match instance {
                    Some(instance) => {
                        api.told(CellRequest::RemoveLrp(key, instance)).await.map(done)
                    }
                    None => api.order(Command::RemoveLrp(key)).await,
                }
            },
        ),
    ]
}

fn start(path: &'static str, name: &'static str, form: fn(Running) -> Running) -> Route {
    report::<StartActualLrpRequest, LifecycleResponse, _>(
        path,
        name,
        "An instance runs, and this is how to reach it.",
        move |api, it| async move {
            let (key, instance, running) = it.into_parts();
            let (key, instance) = api.held(key, instance);
            let running = Arc::new(form(running));
            api.told(CellRequest::StartLrp(key, instance, running)).await.map(done)
        },
    )
}

/// What an older cell says has neither internal routes nor tags, whatever stands there.
fn as_of_old(mut running: Running) -> Running {
    running.internal_routes = Box::default();
    running.metric_tags = Tags::default();
    running
}

fn evacuation() -> Vec<Route> {
    vec![
        evacuate::<ActualLrpInstanceRequest>(
            "/v1/actual_lrps/evacuate_claimed",
            "EvacuateClaimedActualLRP",
            "A cell is leaving, and this instance had not come to run.",
            |api, it| {
                let (key, instance) = api.held(it.actual_lrp_key, it.actual_lrp_instance_key);
                Ok(CellRequest::EvacuateClaimed(key, instance))
            },
        ),
        evacuate::<CrashActualLrpRequest>(
            "/v1/actual_lrps/evacuate_crashed",
            "EvacuateCrashedActualLRP",
            "A cell is leaving, and this instance crashed.",
            |api, it| {
                let reason = bounded("error_message", it.error_message)?;
                let (key, instance) = api.held(it.actual_lrp_key, it.actual_lrp_instance_key);
                Ok(CellRequest::EvacuateCrashed(key, instance, reason))
            },
        ),
        evacuate::<ActualLrpInstanceRequest>(
            "/v1/actual_lrps/evacuate_stopped",
            "EvacuateStoppedActualLRP",
            "A cell is leaving, and this instance was stopped.",
            |api, it| {
                let (key, instance) = api.held(it.actual_lrp_key, it.actual_lrp_instance_key);
                Ok(CellRequest::EvacuateStopped(key, instance))
            },
        ),
        evacuate::<EvacuateRunningActualLrpRequest>(
            "/v1/actual_lrps/evacuate_running.r1",
            "EvacuateRunningActualLRP",
            "A cell is leaving, and this instance runs: find a replacement.",
            |api, it| Ok(api.leaving(it, |running| running)),
        ),
        evacuate::<EvacuateRunningActualLrpRequest>(
            "/v1/actual_lrps/evacuate_running",
            "EvacuateRunningActualLRP_r0",
            "As evacuate_running.r1, without internal routes and tags.",
            |api, it| Ok(api.leaving(it, as_of_old)),
        ),
        report::<ActualLrpInstanceRequest, LifecycleResponse, _>(
            "/v1/actual_lrps/remove_evacuating",
            "RemoveEvacuatingActualLRP",
            "A cell has left: the evacuating record of this instance may go.",
            |api, it| async move {
                let (key, instance) = api.held(it.actual_lrp_key, it.actual_lrp_instance_key);
                api.told(CellRequest::RemoveEvacuating(key, instance)).await.map(done)
            },
        ),
    ]
}

/// A route for cells that are leaving: the answer says whether the container is to go on.
fn evacuate<Q: Report>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    said: fn(&Api, Q) -> Result<CellRequest, ApiFailure>,
) -> Route {
    report::<Q, EvacuationResponse, _>(path, name, about, move |api, request| async move {
        let keep_container = match api.told(said(&api, request)?).await? {
            Reply::KeepContainer(keep) => keep,
            Reply::Done | Reply::ShouldStart(_) | Reply::Converged(_) => false,
        };
        Ok(EvacuationResponse { error: None, keep_container })
    })
}

fn tasks() -> Vec<Route> {
    vec![
        report::<StartTaskRequest, StartTaskResponse, _>(
            "/v1/tasks/start",
            "StartTask",
            "A cell has room for this task, and asks whether to run it.",
            |api, it| async move {
                let told = api.told(CellRequest::StartTask(it.task_guid, it.cell_id)).await?;
                let should_start = matches!(told, Reply::ShouldStart(true));
                Ok(StartTaskResponse { error: None, should_start })
            },
        ),
        report::<FailTaskRequest, LifecycleResponse, _>(
            "/v1/tasks/fail",
            "FailTask",
            "This task is given up.",
            |api, it| async move {
                let reason = bounded("failure_reason", it.failure_reason)?;
                api.order(Command::FailTask(it.task_guid, reason)).await
            },
        ),
        report::<RejectTaskRequest, LifecycleResponse, _>(
            "/v1/tasks/reject",
            "RejectTask",
            "This task could not be placed, or begun.",
            |api, it| async move {
                let reason = bounded("rejection_reason", it.rejection_reason)?;
                let records = api.bbs.view().snapshot();
                let task = records.task(&it.task_guid).map(|(_, task)| task);
                let running = task.filter(|task| task.state == TaskState::Running);
                // The cell that runs it has it taken back; else it found no cell.
                match running.and_then(|task| task.cell_id.clone()) {
                    Some(cell) => {
                        let told = CellRequest::RejectTask(it.task_guid, cell, reason);
                        api.told(told).await.map(done)
                    }
                    None => api.order(Command::RejectTask(it.task_guid, reason)).await,
                }
            },
        ),
        report::<CompleteTaskRequest, LifecycleResponse, _>(
            "/v1/tasks/complete",
            "CompleteTask",
            "This task ended.",
            |api, it| async move {
                let outcome = TaskOutcome {
                    failed: it.failed,
                    failure_reason: it.failure_reason,
                    result: it.result,
                };
                let told = CellRequest::CompleteTask(it.task_guid, it.cell_id, outcome);
                api.told(told).await.map(done)
            },
        ),
    ]
}

fn done(_: Reply) -> LifecycleResponse {
    LifecycleResponse { error: None }
}

/// A reason that is one, and not a book.
fn bounded(name: &str, reason: String) -> Result<Box<str>, ApiFailure> {
    let given = reason.len();
    match given {
        0 => Err(ApiFailure::field(name, "must not be empty")),
        1..=ARGUMENT_BYTES => Ok(reason.into()),
        _ => Err(ApiFailure::field(
            name,
            format!("has {given} bytes, the limit is {ARGUMENT_BYTES}"),
        )),
    }
}

impl Api {
    /// Has the board hear what a cell says.
    async fn told(&self, request: CellRequest) -> Result<Reply, ApiFailure> {
        let request = Valid::new(request).map_err(|invalid| ApiFailure::within("", invalid))?;
        Ok(self.bbs.ask_traced(Command::Cell(request), trace::current()).await?)
    }

    /// The whole key of an instance of which Diego's cells say only process and index.
    fn key(
        &self,
        process: &ProcessGuid,
        index: u32,
        instance: Option<&InstanceKey>,
    ) -> Result<LrpKey, ApiFailure> {
        let missing = || ApiFailure::not_found(&format!("instance {index} of process {process}"));
        let records = self.bbs.view().snapshot();
        let known = records.process(process).ok_or_else(missing)?;
        let at_index = || known.instances().iter().filter(|slot| slot.lrp.index == index);
        let held = at_index().find(|slot| instance.is_some_and(|it| slot.lrp.is_held_by(it)));
        let lrp = held.or_else(|| at_index().next()).ok_or_else(missing)?;
        let definition_id = match held {
            Some(held) => Some(held.lrp.definition_id.clone()),
            None => known.definition_at(index).cloned(),
        };
        Ok(LrpKey {
            process_guid: process.clone(),
            index,
            domain: lrp.lrp.domain.clone(),
            definition_id,
        })
    }

    /// The key with the definition of the record that this instance holds: Diego's cells know nothing of
    /// definitions. Without such a record the active one is meant.
    fn held(&self, key: LrpKey, instance: InstanceKey) -> (LrpKey, InstanceKey) {
        let known = match &key.definition_id {
            Some(_) => None,
            None => self.key(&key.process_guid, key.index, Some(&instance)).ok(),
        };
        let definition_id = known.and_then(|known| known.definition_id).or(key.definition_id);
        (LrpKey { definition_id, ..key }, instance)
    }

    fn leaving(
        &self,
        request: EvacuateRunningActualLrpRequest,
        form: fn(Running) -> Running,
    ) -> CellRequest {
        let (key, instance, running) = request.0.into_parts();
        let (key, instance) = self.held(key, instance);
        CellRequest::EvacuateRunning(key, instance, Arc::new(form(running)))
    }
}
