//! Streams of events (SSE): ids that survive a reconnection, a heartbeat, one cell's events only, and
//! what there is before what changes, if asked for.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Response};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use volvox_protocol::actual_lrp::{ActualLrp, LrpGroup};
use volvox_protocol::api::EventsRequest;
use volvox_protocol::event::Event;
use volvox_protocol::id::ProcessGuid;
use volvox_protocol::resolve;

use super::Api;
use super::access::Caller;
use super::reply::{Body, Failure};
use super::route::{Answer, Answering, Call, Route};
use super::state::now;
use crate::bbs::hub::{self, Ended, EventId, Hub, Subscription};
use crate::bbs::state::Records;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Events that are read in one go.
const AT_ONCE: usize = 64;
/// How often it is looked whether the reader may still read.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Bytes of a piece of text, roughly.
const PIECE: usize = 64 << 10;

/// What a stream tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// Desired LRPs and what stands for each index: the older one.
    Groups,
    /// Desired LRPs and every instance.
    Instances,
    /// Deployments, with their definitions and updates, and every instance: each step of an update.
    Deployments,
    /// Tasks.
    Tasks,
}

impl Stream {
    fn tells_of(self, event: &Event) -> bool {
        match event {
            Event::DesiredLrpCreated(_)
            | Event::DesiredLrpChanged(..)
            | Event::DesiredLrpRemoved(_)
            | Event::Crashed(_) => self != Stream::Tasks,
            Event::InstanceCreated(_) | Event::InstanceChanged(..) | Event::InstanceRemoved(_) => {
                matches!(self, Stream::Instances | Stream::Deployments)
            }
            Event::GroupCreated(_) | Event::GroupChanged(..) | Event::GroupRemoved(_) => {
                self == Stream::Groups
            }
            Event::TaskCreated(_) | Event::TaskChanged(..) | Event::TaskRemoved(_) => {
                self == Stream::Tasks
            }
        }
    }
}

/// The text of an event on a stream that has a text of its own for it.
fn own_frame(stream: Stream, id: Option<EventId>, event: &Event) -> Option<Bytes> {
    let deployment = event.deployment().filter(|_| stream == Stream::Deployments)?;
    Some(hub::frame(id, deployment.name(), &deployment))
}

/// Whether somebody who looks at one cell wants it. Tasks and desired LRPs are never left out.
fn is_of_cell(event: &Event, cell: &str) -> bool {
    let at = |lrp: &ActualLrp| lrp.cell_id().is_some_and(|it| it.as_str() == cell);
    let group = |group: &LrpGroup| group.resolve().is_some_and(|lrp| at(lrp));
    match event {
        Event::DesiredLrpCreated(_)
        | Event::DesiredLrpChanged(..)
        | Event::DesiredLrpRemoved(_)
        | Event::TaskCreated(_)
        | Event::TaskChanged(..)
        | Event::TaskRemoved(_) => true,
        Event::InstanceCreated(lrp) | Event::InstanceRemoved(lrp) => at(lrp),
        Event::InstanceChanged(before, after) => {
            if after.cell_id().is_some() {
                at(after)
            } else {
                at(before)
            }
        }
        Event::Crashed(crash) => crash.instance.cell_id.as_str() == cell,
        Event::GroupCreated(it) | Event::GroupRemoved(it) => group(it),
        Event::GroupChanged(before, after) => group(before) || group(after),
    }
}

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            "/v1/events.r1",
            "EventStream",
            "Desired LRPs and what stands for each index, as they change.",
            Stream::Groups,
        ),
        route(
            "/v1/events/lrp_instances.r1",
            "LRPInstanceEventStream",
            "Desired LRPs and every instance, as they change.",
            Stream::Instances,
        ),
        route(
            "/v1/events/lrp_deployments",
            "LRPDeploymentEventStream",
            "Deployments with their definitions and updates, and every instance, as they change: each \
             step of a rolling update.",
            Stream::Deployments,
        ),
        route("/v1/events/tasks.r1", "TaskEventStream", "Tasks, as they change.", Stream::Tasks),
    ]
}

fn route(path: &'static str, name: &'static str, about: &'static str, stream: Stream) -> Route {
    Route {
        path,
        name,
        about,
        verbs: "GET, POST",
        role: Some(super::access::Role::Read),
        changes: false,
        request: Some(<EventsRequest as volvox_protocol::schema::Schema>::schema),
        answer: Answer::Events,
        parameters: &[
            ("snapshot", "true: first all there is, as created events, then what changes"),
            ("last_event_id", "go on after this event; the header Last-Event-ID says the same"),
        ],
        statuses: &[400],
        handle: Box::new(move |api, call| open(api, call, stream)),
    }
}

fn open(api: Arc<Api>, call: Call, stream: Stream) -> Answering {
    Answering::new(async move { opened(&api, &call, stream).await })
}

async fn opened(api: &Arc<Api>, call: &Call, stream: Stream) -> Result<Response<Body>, Failure> {
    let request: EventsRequest = if call.method == Method::GET && call.body.is_empty() {
        call.query.request()?
    } else {
        call.query.only_ours()?;
        call.encoding.decode(&call.body)?
    };
    let snapshot = call.query.is_on("snapshot")?;
    let after = last_id(call)?;
    let permit = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let most = api.limits.streams;
        Failure::busy(format!("{most} streams are open already, which is the limit"))
    })?;
    let mut heartbeat =
        tokio::time::interval_at(Instant::now() + api.limits.heartbeat, api.limits.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut intro = BytesMut::from(": events of Volvox\nretry: 1000\n\n");
    let mut again = tokio::time::interval_at(Instant::now() + LOOK_AGAIN, LOOK_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (subscription, phase) = match (after.map(|after| api.hub.resume(after)), snapshot) {
        (Some(Ok(subscription)), _) => (subscription, Phase::Live),
        (Some(Err(_)) | None, true) => {
            let (records, commit) = api.bbs.view().snapshot_at();
            let subscription = api.hub.subscribe_after(commit).await.map_err(|ended| {
                Failure::busy(format!("the snapshot was overtaken, try again: {ended}"))
            })?;
            let all = Snapshot::of(records, stream, &request.cell_id);
            (subscription, Phase::Snapshot(Box::new(all)))
        }
        (Some(Err(ended)), false) => {
            let subscription = api.hub.subscribe();
            intro.extend_from_slice(&told("resync", Some(subscription.at()), &ended.to_string()));
            (subscription, Phase::Live)
        }
        (None, false) => (api.hub.subscribe(), Phase::Live),
    };
    if matches!(phase, Phase::Live) {
        intro.extend_from_slice(&place(subscription.at()));
    }
    let state = State {
        hub: api.hub.clone(),
        subscription,
        stream,
        cell: request.cell_id,
        heartbeat,
        again,
        api: Arc::clone(api),
        caller: call.caller.clone(),
        phase: Phase::Intro(intro.freeze(), Box::new(phase)),
        _permit: permit,
    };
    let mut response = Response::new(Events::Idle(Some(Box::new(state))).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    let no_cache = HeaderValue::from_static("no-cache, no-store, must-revalidate");
    headers.insert(CACHE_CONTROL, no_cache);
    Ok(response)
}

/// After which event the reader wants to go on. What is no id of ours is as good as forgotten.
fn last_id(call: &Call) -> Result<Option<EventId>, Failure> {
    let header = call.headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    match call.query.get("last_event_id").or(header).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(id) => Ok(Some(id)),
            Err(form) => Err(Failure::field("last_event_id", form)),
        },
    }
}

/// Where the reader is: a reader that comes back before the first event, or between those that it wants,
/// goes on from here.
fn place(id: EventId) -> Bytes {
    Bytes::from(format!("id: {id}\n\n"))
}

/// A message to the reader itself.
fn told(name: &str, id: Option<EventId>, message: &str) -> Bytes {
    hub::frame(id, name, &json!({ "message": message }))
}

struct State {
    hub: Hub,
    subscription: Subscription,
    stream: Stream,
    cell: String,
    heartbeat: Interval,
    again: Interval,
    api: Arc<Api>,
    caller: Option<Caller>,
    phase: Phase,
    _permit: OwnedSemaphorePermit,
}

enum Phase {
    /// Says this, then goes on.
    Intro(Bytes, Box<Phase>),
    /// Says what there is.
    Snapshot(Box<Snapshot>),
    /// Says what changes.
    Live,
    /// Has said all.
    Over,
}

impl State {
    /// The next piece of text; none: the stream has ended.
    async fn next(mut self: Box<Self>) -> Piece {
        let piece = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Intro(text, next) => {
                self.phase = *next;
                Some(text)
            }
            Phase::Snapshot(mut all) => {
                let mut text = BytesMut::with_capacity(PIECE);
                if all.write(&mut text) {
                    self.phase = Phase::Snapshot(all);
                } else {
                    let id = self.subscription.at();
                    let end = json!({ "last_event_id": id.to_string() });
                    text.extend_from_slice(&hub::frame(Some(id), "snapshot_end", &end));
                    self.phase = Phase::Live;
                }
                Some(text.freeze())
            }
            Phase::Live => Some(self.live().await),
            Phase::Over => None,
        };
        (self, piece)
    }

    /// Whether the reader would be let in now.
    fn is_welcome(&self) -> bool {
        self.caller.as_ref().is_none_or(|caller| self.api.access.is_good(now(), caller))
    }

    async fn live(&mut self) -> Bytes {
        loop {
            let read = tokio::select! {
                read = self.subscription.next(AT_ONCE) => read,
                _ = self.heartbeat.tick() => {
                    self.phase = Phase::Live;
                    let mut text = BytesMut::from(": heartbeat\n");
                    text.extend_from_slice(&place(self.subscription.at()));
                    return text.freeze();
                }
                _ = self.again.tick() => {
                    if self.is_welcome() {
                        continue;
                    }
                    return told("closing", None, "the token has ended or was taken back");
                }
            };
            match read {
                Ok(entries) => {
                    let mut text = BytesMut::new();
                    for entry in entries {
                        let wanted = self.stream.tells_of(&entry.event)
                            && (self.cell.is_empty() || is_of_cell(&entry.event, &self.cell));
                        if wanted {
                            let id = self.subscription.id_of(&entry);
                            let own = own_frame(self.stream, Some(id), &entry.event);
                            text.extend_from_slice(
                                &own.unwrap_or_else(|| self.hub.frame(id, &entry)),
                            );
                        }
                    }
                    if !text.is_empty() {
                        self.heartbeat.reset();
                        self.phase = Phase::Live;
                        return text.freeze();
                    }
                }
                Err(ended) => {
                    let name = match ended {
                        Ended::Lagged => "lagged",
                        Ended::Unknown | Ended::Resync => "resync",
                        Ended::Closed => "closing",
                    };
                    return told(name, None, &ended.to_string());
                }
            }
        }
    }
}

/// A piece of text, and where it leaves off; no text: that was all.
type Piece = (Box<State>, Option<Bytes>);

/// The body: a state that is at rest, or on its way to the next piece.
enum Events {
    Idle(Option<Box<State>>),
    Working(Pin<Box<dyn Future<Output = Piece> + Send>>),
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Events::Idle(state) = &mut *self {
            let Some(state) = state.take() else { return Poll::Ready(None) };
            *self = Events::Working(Box::pin(state.next()));
        }
        let Events::Working(work) = &mut *self else { return Poll::Ready(None) };
        let (state, piece) = std::task::ready!(work.as_mut().poll(context));
        *self = Events::Idle(piece.is_some().then_some(state));
        Poll::Ready(piece.map(|text| Ok(Frame::data(text))))
    }
}

/// Everything there is, as events that create it.
struct Snapshot {
    records: Arc<Records>,
    stream: Stream,
    cell: String,
    begun: bool,
    processes: std::vec::IntoIter<ProcessGuid>,
    tasks: std::vec::IntoIter<Arc<volvox_protocol::task::Task>>,
}

impl Snapshot {
    fn of(records: Arc<Records>, stream: Stream, cell: &str) -> Self {
        let (processes, tasks) = match stream {
            Stream::Tasks => (Vec::new(), records.tasks().cloned().collect()),
            Stream::Groups | Stream::Instances | Stream::Deployments => {
                (records.processes().map(|(guid, _)| guid.clone()).collect(), Vec::new())
            }
        };
        let (processes, tasks) = (processes.into_iter(), tasks.into_iter());
        Snapshot { records, stream, cell: cell.to_owned(), begun: false, processes, tasks }
    }

    /// Writes a piece. False: that was the last one.
    fn write(&mut self, text: &mut BytesMut) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            text.extend_from_slice(&hub::frame(None, "snapshot_begin", &json!({})));
        }
        while text.len() < PIECE {
            if let Some(task) = self.tasks.next() {
                self.put(text, &Event::TaskCreated(task));
            } else if let Some(guid) = self.processes.next() {
                for event in self.process(&guid) {
                    self.put(text, &event);
                }
            } else {
                return false;
            }
        }
        true
    }

    fn process(&self, guid: &ProcessGuid) -> Vec<Event> {
        let Some(process) = self.records.process(guid) else { return Vec::new() };
        let desired = process.deployment.as_ref();
        let desired = desired.map(|(_, it)| Event::DesiredLrpCreated(Arc::clone(it)));
        let lrps = process.instances().iter().map(|slot| &slot.lrp);
        let actual: Vec<Event> = match self.stream {
            Stream::Groups => resolve::groups(lrps)
                .into_iter()
                .map(|(_, group)| Event::GroupCreated(group))
                .collect(),
            Stream::Instances | Stream::Deployments => {
                lrps.cloned().map(Event::InstanceCreated).collect()
            }
            Stream::Tasks => Vec::new(),
        };
        desired.into_iter().chain(actual).collect()
    }

    fn put(&self, text: &mut BytesMut, event: &Event) {
        if self.cell.is_empty() || is_of_cell(event, &self.cell) {
            let own = own_frame(self.stream, None, event);
            text.extend_from_slice(&own.unwrap_or_else(|| hub::frame(None, event.name(), event)));
        }
    }
}
