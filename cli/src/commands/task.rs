//! `volvox task`: work that is done once and has a result.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use volvox_host::clock::wall;
use volvox_protocol::api::{
    DesireTaskRequest, LifecycleResponse, TaskGuidRequest, TaskResponse, TasksRequest,
    TasksResponse,
};
use volvox_protocol::id::TaskGuid;
use volvox_protocol::task::{Task, TaskState};
use volvox_protocol::time::span;

use super::run::put;
use crate::Context;
use crate::appfile;
use crate::args::{TaskCommand, TaskRunArgs};
use crate::client::Client;
use crate::error::{Code, Failure};
use crate::output::{Cell, Output, Style, Table, age};
use crate::random;
use crate::wait::Patience;

/// What is said of a task that is not there.
const LIST: &str =
    "`volvox task list` lists what there is; tasks that have ended are forgotten soon";

pub(super) fn run(context: &mut Context, command: TaskCommand) -> Result<(), Failure> {
    match command {
        TaskCommand::Run(args) => start(context, &args),
        TaskCommand::List { domain, cell } => {
            let request = TasksRequest {
                domain: domain.map(String::from).unwrap_or_default(),
                cell_id: cell.map(String::from).unwrap_or_default(),
            };
            let all: TasksResponse = context.client()?.call("/v1/tasks/list.r3", &request)?;
            context.out.show(&json!({"tasks": all.tasks}), |out| out.table(&table(&all.tasks)))
        }
        TaskCommand::Show { task } => {
            let task = find(&context.client()?, &task)?;
            context.out.show(&task, |out| show(out, &task))
        }
        TaskCommand::Cancel { task } => {
            order(&context.client()?, "cancel", &task)?;
            said(&mut context.out, &task, "cancelled")
        }
        TaskCommand::Delete { task } => {
            forget(&context.client()?, &task)?;
            said(&mut context.out, &task, "deleted")
        }
    }
}

fn said(out: &mut Output, task: &TaskGuid, action: &str) -> Result<(), Failure> {
    out.show(&json!({"task": task, "action": action}), |out| out.line(&format!("{task} {action}")))
}

fn order(client: &Client, what: &str, task: &TaskGuid) -> Result<(), Failure> {
    let request = TaskGuidRequest { task_guid: task.clone() };
    let done: Result<LifecycleResponse, Failure> =
        client.call(&format!("/v1/tasks/{what}"), &request);
    done.map(|_| ()).map_err(|failure| failure.hint_for(Code::NotFound, LIST))
}

/// A task has to be resolving before it can be deleted, so that two consumers do not both act on it.
fn forget(client: &Client, task: &TaskGuid) -> Result<(), Failure> {
    let found = find(client, task)?;
    match found.state {
        TaskState::Pending | TaskState::Running => {
            return Err(Failure::refused(format!(
                "task {task} has not ended: it is {:?}",
                found.state
            ))
            .hint(format!("stop it first: `volvox task cancel {task}`")));
        }
        TaskState::Completed => order(client, "resolving", task)?,
        TaskState::Resolving => {}
    }
    order(client, "delete", task)
}

fn find(client: &Client, task: &TaskGuid) -> Result<Arc<Task>, Failure> {
    let request = TaskGuidRequest { task_guid: task.clone() };
    let found: Result<TaskResponse, Failure> =
        client.call("/v1/tasks/get_by_task_guid.r3", &request);
    let found = found.map_err(|failure| failure.hint_for(Code::NotFound, LIST))?;
    found.task.ok_or_else(|| Failure::not_found(format!("task {task} is not there")).hint(LIST))
}

/// What a file and flags say together.
fn given(args: &TaskRunArgs) -> Result<Map<String, Value>, Failure> {
    let mut given = match &args.file {
        Some(file) => appfile::read_task(file)?,
        None => Map::new(),
    };
    if !args.command.is_empty() {
        given.remove("action");
    }
    for (key, real, flag) in
        [("memory", "memory_mb", &args.what.memory), ("disk", "disk_mb", &args.what.disk)]
    {
        if flag.is_some() {
            given.remove(key);
            given.remove(real);
        }
    }
    put(&mut given, &args.what, &args.command)?;
    if let Some(name) = &args.name {
        given.remove("task_guid");
        given.insert("name".to_owned(), json!(name));
    }
    if let Some(path) = &args.result_file {
        given.insert("result_file".to_owned(), json!(path));
    }
    Ok(given)
}

fn start(context: &mut Context, args: &TaskRunArgs) -> Result<(), Failure> {
    let task = appfile::task(given(args)?)?;
    let name = match task.name {
        Some(name) => name,
        None => TaskGuid::new(&random::name("task")?)
            .map_err(|error| Failure::failed(error.to_string()))?,
    };
    let client = context.client()?;
    let request = DesireTaskRequest {
        task_definition: task.definition,
        task_guid: name.clone(),
        domain: task.domain,
    };
    let _: LifecycleResponse = client.call("/v1/tasks/desire.r2", &request)?;
    let out = &mut context.out;
    if args.detach {
        return said(out, &name, "desired");
    }
    if !out.is_json() {
        out.note(&format!("{name} desired"))?;
    }
    let task = await_end(&client, out, &name, args)?;
    if out.is_json() {
        out.document(&*task)?;
    } else {
        out.text(&task.result)?;
        if !task.result.is_empty() && !task.result.ends_with('\n') {
            out.text("\n")?;
        }
    }
    out.finish()?;
    if !args.keep && task.definition.completion_callback_url.is_empty() {
        match forget(&client, &name) {
            // Somebody else, or its time, was faster: it is forgotten either way.
            Ok(()) | Err(Failure { code: Code::NotFound | Code::Refused, .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    if task.failed {
        return Err(Failure::failed(format!("task {name} has failed: {}", task.failure_reason)));
    }
    Ok(())
}

fn await_end(
    client: &Client,
    out: &mut Output,
    name: &TaskGuid,
    args: &TaskRunArgs,
) -> Result<Arc<Task>, Failure> {
    let mut patience = Patience::new(args.limit);
    let mut last: Option<Arc<Task>> = None;
    loop {
        if let Some(task) = patience.look(find(client, name))? {
            if matches!(task.state, TaskState::Completed | TaskState::Resolving) {
                return Ok(task);
            }
            let is_new = last.as_ref().is_none_or(|last| {
                (last.state, &last.rejection_reason) != (task.state, &task.rejection_reason)
            });
            if is_new && !out.is_json() {
                out.note(&standing(&task))?;
            }
            last = Some(task);
        }
        if !patience.pause() {
            let span = span::show(args.limit.timeout);
            let story = last.map_or_else(String::new, |task| format!(": {}", standing(&task)));
            return Err(Failure::waited(format!("task {name} has not ended after {span}{story}"))
                .hint(format!(
                    "it goes on without us: `volvox task show {name}`, `volvox task cancel {name}`"
                )));
        }
    }
}

/// Where a task is, in words.
fn standing(task: &Task) -> String {
    let name = &task.task_guid;
    match (&task.cell_id, task.rejection_reason.as_str()) {
        (Some(cell), _) => format!("{name} runs on {cell}"),
        (None, "") => format!("{name} waits for a cell"),
        (None, why) => format!("{name} waits for a cell: {why}"),
    }
}

fn state(task: &Task) -> Cell {
    if task.failed {
        Cell::new(Style::Bad, "failed")
    } else {
        Cell::state(&format!("{:?}", task.state))
    }
}

fn reason(task: &Task) -> &str {
    if task.failed { &task.failure_reason } else { &task.rejection_reason }
}

fn table(tasks: &[Arc<Task>]) -> Table {
    let mut table = Table::new(&["TASK", "DOMAIN", "STATE", "CELL", "AGE", "NOTE"]);
    let now = wall();
    for task in tasks {
        table.row([
            task.task_guid.as_str().into(),
            task.domain.as_str().into(),
            state(task),
            task.cell_id.as_ref().map_or("-", AsRef::as_ref).into(),
            age(now, task.created_at).into(),
            reason(task).into(),
        ]);
    }
    table.without_empty("NOTE")
}

fn show(out: &mut Output, task: &Task) -> Result<(), Failure> {
    let now = wall();
    let mut table = Table::new(&["KEY", "VALUE"]);
    for (name, value) in [
        ("task", task.task_guid.to_string()),
        ("domain", task.domain.to_string()),
        ("state", format!("{:?}", task.state)),
        ("failed", if task.failed { task.failure_reason.clone() } else { "no".to_owned() }),
        ("cell", task.cell_id.as_ref().map(ToString::to_string).unwrap_or_else(|| "-".to_owned())),
        ("age", age(now, task.created_at)),
        ("ended", age(now, task.first_completed_at)),
        ("rejections", format!("{} {}", task.rejection_count, task.rejection_reason)),
        ("rootfs", task.definition.rootfs.clone()),
        ("memory", format!("{} MB", task.definition.memory_mb)),
        ("annotation", task.definition.annotation.clone()),
    ] {
        table.row([Cell::new(Style::Dim, name), value.into()]);
    }
    out.table(&table)?;
    if !task.result.is_empty() {
        out.line("result:")?;
        out.text(&task.result)?;
        out.text("\n")?;
    }
    Ok(())
}
