//! A terminal in an instance or a task: the connection is upgraded, and carries frames
//! (`volvox_protocol::stream`) from then on. Whatever can be refused is refused before that, as an
//! ordinary answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::OwnedSemaphorePermit;
use volvox_host::clock::wall;
use volvox_mesh::transport::stream::{FrameReader, FrameWriter};
use volvox_protocol::api::ExecRequest;
use volvox_protocol::id::CellId;
use volvox_protocol::schema::Schema as _;
use volvox_protocol::stream::{self, Frame, OpenTerminal, TerminalSize};

use super::Api;
use super::access::{Caller, Role};
use super::reply::{ApiFailure, full};
use super::route::{ApiRequest, HandlerFuture, HandlerResult, ResponseKind, Route};
use super::target::{self, TargetQuery};

/// How often it is looked whether the person may still be here.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often the cell is told that the person is there.
const STILL_HERE: Duration = Duration::from_secs(15);
/// How long a cell that listens no more has to say why, and a person who was told the end to go.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Bytes that are read of a connection at once.
const CHUNK: usize = 16 << 10;
/// Letters of a command in the audit.
const SUBJECT: usize = 512;

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        path: "/v1/actual_lrps/exec",
        name: "Exec",
        about: "Runs a program with a terminal in an instance, or in a task.",
        verbs: "POST",
        role: Some(Role::Write),
        changes: true,
        request: Some(ExecRequest::schema),
        answer: ResponseKind::Upgrade(stream::UPGRADE),
        parameters: &[],
        statuses: &[404, 409, 426],
        handle: Box::new(|api, call| {
            let request: ExecRequest = match call.request() {
                Ok(request) => request,
                Err(failure) => return HandlerFuture::new(std::future::ready(Err(failure))),
            };
            let subject = subject(&request);
            HandlerFuture { subject, work: Box::pin(opened(api, call, request)) }
        }),
    }]
}

/// What the audit says it was about.
fn subject(request: &ExecRequest) -> String {
    let ExecRequest { process_guid, index, instance_guid, task_guid, command, .. } = request;
    let of = match (task_guid.as_str(), instance_guid.as_str()) {
        ("", "") => format!("{process_guid}/{index}"),
        ("", instance) => format!("{process_guid}/{index} {instance}"),
        (task, _) => format!("task {task}"),
    };
    let user = if request.user.is_empty() { "root" } else { &request.user };
    let told = format!("{of} as {user}: {}", command.join(" "));
    told.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SUBJECT).collect()
}

async fn opened(api: Arc<Api>, call: ApiRequest, request: ExecRequest) -> HandlerResult {
    let upgrade = call.upgrade.filter(|_| asks_for_frames(&call.headers)).ok_or_else(|| {
        let how = format!("send Connection: Upgrade and Upgrade: {}", stream::UPGRADE);
        ApiFailure::new(StatusCode::UPGRADE_REQUIRED, "UpgradeRequired", how)
    })?;
    let permit = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let most = api.limits.streams;
        ApiFailure::busy(format!("{most} streams are open already, which is the limit"))
    })?;
    let wanted = TargetQuery {
        process_guid: request.process_guid.clone(),
        index: Some(request.index).filter(|_| request.instance_guid.is_empty()),
        instance_guid: request.instance_guid.clone(),
        task_guid: request.task_guid.clone(),
    };
    let target = target::find(&api.bbs.view().snapshot(), &wanted)?.remove(0);
    let asked = asked(request, &target.container)?;
    let ends = target::open(&api, &target.cell, &asked).await?;
    let session = Session { api, caller: call.caller, cell: target.cell, ends, _permit: permit };
    tokio::spawn(session.run(upgrade));
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(stream::UPGRADE));
    Ok(response)
}

fn asks_for_frames(headers: &HeaderMap) -> bool {
    let has = |name, wanted: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(wanted))
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, stream::UPGRADE)
}

fn asked(request: ExecRequest, container: &str) -> Result<OpenTerminal, ApiFailure> {
    let mut command = request.command.into_iter();
    let path = command.next().filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| ApiFailure::field("command", "must name a program"))?;
    let number = |name, given: u32, usual| match given {
        0 => Ok(usual),
        given => u16::try_from(given).map_err(|_| ApiFailure::field(name, "is at most 65535")),
    };
    let size = TerminalSize {
        rows: number("rows", request.rows, 24)?,
        columns: number("columns", request.columns, 80)?,
    };
    let user = if request.user.is_empty() { "root".to_owned() } else { request.user };
    let (args, env, dir) = (command.collect(), request.env, request.dir);
    Ok(OpenTerminal { container: container.to_owned(), path, args, env, dir, user, size })
}

/// A person at a terminal.
struct Session {
    api: Arc<Api>,
    caller: Option<Caller>,
    cell: CellId,
    ends: (FrameReader, FrameWriter),
    _permit: OwnedSemaphorePermit,
}

impl Session {
    async fn run(self, upgrade: OnUpgrade) {
        let connection = match upgrade.await {
            Ok(connection) => connection,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        let (mut reading, mut writing) = tokio::io::split(TokioIo::new(connection));
        let (from_cell, to_cell) = self.ends;
        let ended = tokio::select! {
            ended = down(from_cell, &mut writing) => ended,
            ended = up(&mut reading, to_cell) => ended,
            why = over(&self.api, self.caller.as_ref()) => Some(why),
            () = target::until_missing(&self.api, &self.cell) => {
                Some(format!("cell {} is missing", self.cell))
            }
        };
        if let Some(why) = ended {
            // Who has gone hears nothing any more.
            let _ = writing.write_all(&Frame::Failed(why).encode()).await;
        }
        let _ = writing.shutdown().await;
        // To close on what is still on its way here would take back what the person has not read yet.
        let mut chunk = vec![0; CHUNK];
        let rest = async { while gone(reading.read(&mut chunk).await).is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
    }
}

/// From the cell to the person, until the program ends. What is left to be said.
async fn down(
    mut from_cell: FrameReader,
    writing: &mut WriteHalf<TokioIo<Upgraded>>,
) -> Option<String> {
    loop {
        match from_cell.next().await {
            Ok(Some(Frame::Unknown(_))) => {}
            Ok(Some(frame)) => {
                if writing.write_all(&frame.encode()).await.is_err() || frame.is_last() {
                    return None;
                }
            }
            Ok(None) => return Some("the cell broke off".to_owned()),
            Err(error) => return Some(format!("the cell was lost: {error}")),
        }
    }
}

/// From the person to the cell, until the person goes or says what cannot be said. What is left to be
/// said.
async fn up(reading: &mut ReadHalf<TokioIo<Upgraded>>, mut to_cell: FrameWriter) -> Option<String> {
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    let mut beat = tokio::time::interval(STILL_HERE);
    loop {
        let taken = match Frame::take(&buffer) {
            Ok(taken) => taken,
            Err(error) => return Some(error.to_string()),
        };
        let frame = match taken {
            Some((frame, used)) => {
                buffer.drain(..used);
                if !is_a_persons(&frame) {
                    return Some("only input, sizes and signals are taken here".to_owned());
                }
                frame
            }
            None => tokio::select! {
                read = reading.read(&mut chunk) => {
                    buffer.extend_from_slice(&chunk[..gone(read)?]);
                    continue;
                }
                _ = beat.tick() => Frame::StillHere,
            },
        };
        if let Err(error) = to_cell.send(&frame).await {
            // A cell whose program has ended listens no more: how it ended is on its way to us, and
            // is what the person wants to hear.
            tokio::time::sleep(LAST_WORDS).await;
            return Some(format!("the cell was lost: {error}"));
        }
    }
}

/// How much was read; none: the person has gone.
fn gone(read: io::Result<usize>) -> Option<usize> {
    read.ok().filter(|read| *read > 0)
}

const fn is_a_persons(frame: &Frame) -> bool {
    matches!(
        frame,
        Frame::StillHere
            | Frame::Input(_)
            | Frame::EndInput
            | Frame::Resize(_)
            | Frame::Signal(_)
            | Frame::Unknown(_)
    )
}

/// When it is over for another reason than its own.
async fn over(api: &Api, caller: Option<&Caller>) -> String {
    let mut stopping = api.stopping.subscribe();
    let mut look = tokio::time::interval(LOOK_AGAIN);
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return "the coordinator stops".to_owned(),
            _ = look.tick() => {
                if !caller.is_none_or(|caller| api.access.is_good(wall(), caller)) {
                    return "the token has ended or was taken back".to_owned();
                }
            }
        }
    }
}
