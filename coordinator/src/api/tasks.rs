//! Tasks.

use std::sync::Arc;

use volvox_protocol::api::{
    CallbacksResponse, DesireTaskRequest, LifecycleResponse, NoRequest, TaskGuidRequest,
    TaskResponse, TasksRequest, TasksResponse,
};
use volvox_protocol::id::CellId;
use volvox_protocol::task::Task;
use volvox_protocol::validate::Valid;

use super::encoding::append_json;
use super::fields::ProjectedRecord;
use super::list::{self, Tag};
use super::lrps::fields;
use super::reply::ApiFailure;
use super::route::{self, Route};
use crate::bbs::command::{Command, TaskRef};
use crate::bbs::state::Records;

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    let mut all = vec![
        whole_list("/v1/tasks/list.r3", "Tasks", Arc::clone),
        whole_list("/v1/tasks/list.r2", "Tasks_r2", downgraded),
        one("/v1/tasks/get_by_task_guid.r3", "TaskByGuid", Arc::clone),
        one("/v1/tasks/get_by_task_guid.r2", "TaskByGuid_r2", downgraded),
        route::change::<DesireTaskRequest, LifecycleResponse, _>(
            "/v1/tasks/desire.r2",
            "DesireTask",
            "Run this, once.",
            |request| request.task_guid.to_string(),
            |api, request| async move {
                let definition = Valid::new(request.task_definition)
                    .map_err(|invalid| ApiFailure::within("task_definition", invalid))?;
                let command =
                    Command::DesireTask(request.task_guid, request.domain, Box::new(definition));
                api.order(command).await
            },
        ),
        route::read::<NoRequest, CallbacksResponse>(
            "/v1/tasks/callbacks/list",
            "TaskCallbacks",
            "Callbacks of tasks that failed: how often, when last, and why.",
            |api, _| Ok(CallbacksResponse { error: None, callbacks: api.bbs.callback_failures() }),
        ),
    ];
    let task = |request: &TaskGuidRequest| request.task_guid.to_string();
    all.extend([
        route::order::<TaskGuidRequest>(
            "/v1/tasks/cancel",
            "CancelTask",
            "Do not run this task, or stop it.",
            task,
            |request| Command::CancelTask(request.task_guid),
        ),
        route::order::<TaskGuidRequest>(
            "/v1/tasks/resolving",
            "ResolvingTask",
            "Somebody takes it on to tell the consumer that this task has ended.",
            task,
            |request| Command::ResolvingTask(request.task_guid, TaskRef::Present),
        ),
        route::order::<TaskGuidRequest>(
            "/v1/tasks/delete",
            "DeleteTask",
            "The consumer knows: forget this task.",
            task,
            |request| Command::DeleteTask(request.task_guid, TaskRef::Present),
        ),
    ]);
    all
}

fn whole_list(path: &'static str, name: &'static str, form: fn(&Arc<Task>) -> Arc<Task>) -> Route {
    route::list::<TasksRequest, TasksResponse>(
        path,
        name,
        "Every task.",
        move |api, call, request| {
            let fields = fields::<Task>(call)?;
            let found = some_tasks(&api.bbs.view().snapshot(), &request);
            let mut tag = Tag::default();
            tag.add(call.query.get("fields"));
            for task in &found {
                tag.add((&task.task_guid, task.created_at, task.updated_at, task.state));
                tag.add((task.rejection_count, task.failed, task.cell_id.as_ref()));
            }
            let encoding = call.encoding;
            let write: list::EntryWriter<Arc<Task>> = match fields {
                None => Box::new(move |task, text| encoding.append(text, &*form(task))),
                Some(fields) => Box::new(move |task, text| {
                    append_json(text, &ProjectedRecord(&*form(task), &fields))
                }),
            };
            list::respond(&call.headers, encoding, "tasks", found, &tag, write)
        },
    )
}

fn some_tasks(records: &Records, request: &TasksRequest) -> Vec<Arc<Task>> {
    let wanted = |task: &&Arc<Task>| {
        (request.domain.is_empty() || task.domain.as_str() == request.domain)
            && (request.cell_id.is_empty()
                || task.cell_id.as_ref().is_some_and(|cell| cell.as_str() == request.cell_id))
    };
    if request.cell_id.is_empty() {
        return records.tasks().filter(wanted).cloned().collect();
    }
    let Ok(cell) = CellId::new(&request.cell_id) else { return Vec::new() };
    records.tasks_on(&cell).filter(wanted).cloned().collect()
}

fn one(path: &'static str, name: &'static str, form: fn(&Arc<Task>) -> Arc<Task>) -> Route {
    route::read::<TaskGuidRequest, TaskResponse>(path, name, "One task.", move |api, request| {
        let records = api.bbs.view().snapshot();
        let guid = &request.task_guid;
        let (_, task) =
            records.task(guid).ok_or_else(|| ApiFailure::not_found(&format!("task {guid}")))?;
        Ok(TaskResponse { error: None, task: Some(form(task)) })
    })
}

/// The task without layers, for readers that do not know them.
pub(super) fn downgraded(task: &Arc<Task>) -> Arc<Task> {
    if task.definition.image_layers.is_empty() {
        return Arc::clone(task);
    }
    let mut definition = (*task.definition).clone();
    definition.without_layers();
    Arc::new(Task { definition: Arc::new(definition), ..(**task).clone() })
}
