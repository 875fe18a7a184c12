//! Logs of instances and tasks, read from their cells as fast as the caller takes them.
//!
//! One task feeds one answer. It has a task for each container, which waits for the caller when the
//! short queue between them is full, and so makes the cell wait. When the caller goes, all of it ends.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame as BodyFrame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use volvox_host::clock::wall;
use volvox_mesh::transport::stream::{FrameReader, FrameWriter};
use volvox_protocol::api::{ApiError, LogEntry, LogsRequest};
use volvox_protocol::schema::Schema as _;
use volvox_protocol::stream::{Frame, LogLine, LogStream, ReadLog};

use super::Api;
use super::access::{Caller, Role};
use super::reply::ApiFailure;
use super::route::{ApiRequest, HandlerFuture, HandlerResult, ResponseKind, Route};
use super::target::{self, Target, TargetQuery};

/// Pieces of text that wait for the caller.
const QUEUE: usize = 4;
/// Containers of one answer.
const CONTAINERS: usize = 64;
/// How often it is looked whether there are others, and whether the caller may still read.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        path: "/v1/actual_lrps/logs",
        name: "Logs",
        about: "What instances of a process, or a task, have written: a line of JSON for each line.",
        verbs: "GET, POST",
        role: Some(Role::Read),
        changes: false,
        request: Some(LogsRequest::schema),
        answer: ResponseKind::Lines(LogEntry::schema),
        parameters: &[],
        statuses: &[404, 409],
        handle: Box::new(|api, call| {
            HandlerFuture::new(async move {
                let request = call.request()?;
                opened(api, call, request).await
            })
        }),
    }]
}

async fn opened(api: Arc<Api>, call: ApiRequest, request: LogsRequest) -> HandlerResult {
    let permit = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let most = api.limits.streams;
        ApiFailure::busy(format!("{most} streams are open already, which is the limit"))
    })?;
    let wanted = TargetQuery {
        process_guid: request.process_guid.clone(),
        index: request.index,
        instance_guid: request.instance_guid.clone(),
        task_guid: request.task_guid.clone(),
    };
    let targets = target::find(&api.bbs.view().snapshot(), &wanted)?;
    if targets.len() > CONTAINERS {
        let rule = format!("name one: these are {}, at most {CONTAINERS} at once", targets.len());
        return Err(ApiFailure::field("index", rule));
    }
    let (text, body) = mpsc::channel(QUEUE);
    let mut feed = LogFanIn {
        api,
        caller: call.caller,
        request,
        wanted,
        text,
        known: BTreeSet::new(),
        readers: JoinSet::new(),
        _permit: permit,
    };
    feed.begin(targets).await?;
    tokio::spawn(feed.run());
    let mut response = Response::new(Lines(body).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// What feeds one answer.
struct LogFanIn {
    api: Arc<Api>,
    caller: Option<Caller>,
    request: LogsRequest,
    wanted: TargetQuery,
    text: mpsc::Sender<Bytes>,
    /// Containers whose log was opened, or could not be.
    known: BTreeSet<String>,
    readers: JoinSet<()>,
    _permit: OwnedSemaphorePermit,
}

impl LogFanIn {
    /// Opens all there are. If none can be, that is the answer.
    async fn begin(&mut self, targets: Vec<Target>) -> Result<(), ApiFailure> {
        let mut opening = JoinSet::new();
        for target in targets {
            self.known.insert(target.container.clone());
            let (api, asked) = (Arc::clone(&self.api), self.asked(&target, self.request.tail));
            opening.spawn(async move {
                let opened = target::open(&api, &target.cell, &asked).await;
                (target, opened)
            });
        }
        let mut failed = Vec::new();
        while let Some(opened) = opening.join_next().await {
            match opened {
                Ok((target, Ok(ends))) => self.read(target, ends),
                Ok((target, Err(failure))) => failed.push((target, failure)),
                Err(_) => return Err(ApiFailure::busy("the call failed: see the log")),
            }
        }
        if self.readers.is_empty()
            && let Some((_, failure)) = failed.pop()
        {
            return Err(failure);
        }
        for (target, failure) in failed {
            let text = self.text.clone();
            let line = complaint(target.index, &target.container, failure.error);
            self.readers.spawn(async move { drop(text.send(line).await) });
        }
        Ok(())
    }

    fn asked(&self, target: &Target, tail: Option<u32>) -> ReadLog {
        ReadLog {
            container: target.container.clone(),
            follow: self.request.follow,
            tail,
            since: self.request.since,
        }
    }

    fn read(&mut self, target: Target, ends: (FrameReader, FrameWriter)) {
        let api = Arc::clone(&self.api);
        self.readers.spawn(relay(api, target, ends, self.text.clone()));
    }

    async fn run(mut self) {
        let mut stopping = self.api.stopping.subscribe();
        let mut look = tokio::time::interval(LOOK_AGAIN);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beat = tokio::time::interval(self.api.limits.heartbeat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let goes_on = self.request.follow
            && self.wanted.task_guid.is_empty()
            && self.wanted.instance_guid.is_empty();
        let text = self.text.clone();
        loop {
            if self.readers.is_empty() && !goes_on {
                return;
            }
            tokio::select! {
                () = text.closed() => return,
                () = until_stopping(&mut stopping) => return self.say_stopping(),
                Some(_) = self.readers.join_next(), if !self.readers.is_empty() => {}
                _ = look.tick() => {
                    let caller = self.caller.as_ref();
                    if !caller.is_none_or(|caller| self.api.access.is_good(wall(), caller)) {
                        return;
                    }
                    if goes_on && !self.open_new().await {
                        return;
                    }
                }
                // An empty line: somebody is there. A full queue says as much.
                _ = beat.tick() => drop(text.try_send(Bytes::from_static(b"\n"))),
            }
        }
    }

    /// So that who follows knows that this is no end. A reader so far behind finds out by itself.
    fn say_stopping(&self) {
        let message = "the coordinator stops".to_owned();
        let error = ApiError { kind: "Unavailable".to_owned(), message, details: Vec::new() };
        let _ = self.text.try_send(complaint(0, "", error));
    }

    /// Opens the logs of instances that have come since. False: the process is gone.
    async fn open_new(&mut self) -> bool {
        let found = target::find(&self.api.bbs.view().snapshot(), &self.wanted);
        let targets = match found {
            Ok(targets) => targets,
            // On no cell now is no end: it comes back.
            Err(failure) => return failure.status != StatusCode::NOT_FOUND,
        };
        let new = targets.into_iter().filter(|target| !self.known.contains(&target.container));
        for target in new.collect::<Vec<_>>() {
            if self.readers.len() >= CONTAINERS {
                break;
            }
            // A cell that has not made the container yet is asked again.
            let asked = self.asked(&target, None);
            if let Ok(ends) = target::open(&self.api, &target.cell, &asked).await {
                self.known.insert(target.container.clone());
                self.read(target, ends);
            }
        }
        true
    }
}

/// Returns when the API stops. An error means that it is gone: then there is nothing to serve either.
async fn until_stopping(stopping: &mut watch::Receiver<bool>) {
    let _ended = stopping.wait_for(|stopping| *stopping).await;
}

/// Passes one container's lines on.
async fn relay(
    api: Arc<Api>,
    target: Target,
    ends: (FrameReader, FrameWriter),
    text: mpsc::Sender<Bytes>,
) {
    let (mut reader, _writer) = ends;
    let passing = async {
        loop {
            let piece = match reader.next().await {
                Ok(Some(Frame::Lines(lines))) => written(&target, lines),
                Ok(Some(Frame::End(_)) | None) => return None,
                Ok(Some(Frame::Failed(why))) => return Some(why),
                Ok(Some(_)) => continue,
                Err(error) => return Some(error.to_string()),
            };
            if text.send(piece).await.is_err() {
                return None;
            }
        }
    };
    let why = tokio::select! {
        why = passing => why,
        () = target::until_missing(&api, &target.cell) => Some("the cell is missing".to_owned()),
    };
    if let Some(why) = why {
        // A caller who has gone does not miss it.
        let _ = text.send(lost(&target, &why)).await;
    }
}

fn written(target: &Target, lines: Vec<LogLine>) -> Bytes {
    let mut piece = Vec::new();
    for line in lines {
        let stream = match line.stream {
            LogStream::Out => "out",
            LogStream::Err => "err",
        };
        let entry = LogEntry {
            time: line.at,
            stream: stream.to_owned(),
            source: line.source,
            index: target.index,
            instance_guid: target.container.clone(),
            message: String::from_utf8_lossy(&line.message).into_owned(),
            error: None,
        };
        push(&mut piece, &entry);
    }
    piece.into()
}

fn lost(target: &Target, why: &str) -> Bytes {
    let message =
        format!("the log of {} on cell {} broke off: {why}", target.container, target.cell);
    let error = ApiError { kind: "CellUnreachable".to_owned(), message, details: Vec::new() };
    complaint(target.index, &target.container, error)
}

/// A line that says why there are no others.
fn complaint(index: u32, container: &str, error: ApiError) -> Bytes {
    let entry = LogEntry {
        time: wall(),
        stream: "err".to_owned(),
        source: "COORDINATOR".to_owned(),
        index,
        instance_guid: container.to_owned(),
        message: error.message.clone(),
        error: Some(error),
    };
    let mut piece = Vec::new();
    push(&mut piece, &entry);
    piece.into()
}

fn push(piece: &mut Vec<u8>, entry: &LogEntry) {
    // Such an entry has nothing that JSON cannot say.
    if serde_json::to_writer(&mut *piece, entry).is_ok() {
        piece.push(b'\n');
    }
}

/// The body of an answer: whatever is put into its queue.
struct Lines(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        let piece = std::task::ready!(self.0.poll_recv(context));
        Poll::Ready(piece.map(|piece| Ok(BodyFrame::data(piece))))
    }
}
