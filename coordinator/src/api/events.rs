//! Streams of events (SSE): ids that survive a reconnection, a heartbeat, one cell's events only, and
//! what there is before what changes, if asked for.

mod legacy;
mod snapshot;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Response};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use volvox_host::clock::wall;
use volvox_protocol::actual_lrp::{ActualLrp, LrpGroup};
use volvox_protocol::api::EventsRequest;
use volvox_protocol::event::Event;

use self::legacy::{Form, diego_frame, older};
use self::snapshot::Snapshot;
use super::Api;
use super::access::Caller;
use super::encoding::Encoding;
use super::reply::{ApiFailure, Body};
use super::route::{ApiRequest, HandlerFuture, ResponseKind, Route};
use super::tasks::downgraded;
use crate::bbs::hub::{self, EventId, Hub, NumberedEvent, Subscription, SubscriptionEnd};

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
fn own_frame(stream: Stream, form: Form, id: Option<EventId>, event: &Event) -> Option<Bytes> {
    if form == Form::Oldest {
        return older(event).map(|data| hub::frame(id, event.name(), &data));
    }
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
            (Stream::Groups, Form::Latest),
        ),
        route(
            "/v1/events",
            "EventStream_r0",
            "As events.r1, with desired LRPs in their oldest form.",
            (Stream::Groups, Form::Oldest),
        ),
        route(
            "/v1/events/lrp_instances.r1",
            "LRPInstanceEventStream",
            "Desired LRPs and every instance, as they change.",
            (Stream::Instances, Form::Latest),
        ),
        route(
            "/v1/events/lrp_instances",
            "LrpInstanceEventStream_r0",
            "As lrp_instances.r1, with desired LRPs in their oldest form.",
            (Stream::Instances, Form::Oldest),
        ),
        route(
            "/v1/events/lrp_deployments",
            "LRPDeploymentEventStream",
            "Deployments with their definitions and updates, and every instance, as they change: each \
             step of a rolling update.",
            (Stream::Deployments, Form::Latest),
        ),
        route(
            "/v1/events/tasks.r1",
            "TaskEventStream",
            "Tasks, as they change.",
            (Stream::Tasks, Form::Latest),
        ),
        route(
            "/v1/events/tasks",
            "TaskEventStream_r0",
            "As tasks.r1, without image layers.",
            (Stream::Tasks, Form::Oldest),
        ),
    ]
}

fn route(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    told: (Stream, Form),
) -> Route {
    Route {
        path,
        name,
        about,
        verbs: "GET, POST",
        role: Some(super::access::Role::Read),
        changes: false,
        request: Some(<EventsRequest as volvox_protocol::schema::Schema>::schema),
        answer: ResponseKind::Events,
        parameters: &[
            ("snapshot", "true: first all there is, as created events, then what changes"),
            ("last_event_id", "go on after this event; the header Last-Event-ID says the same"),
        ],
        statuses: &[400],
        handle: Box::new(move |api, call| open(api, call, told)),
    }
}

fn open(api: Arc<Api>, call: ApiRequest, told: (Stream, Form)) -> HandlerFuture {
    HandlerFuture::new(async move {
        match call.encoding {
            Encoding::Json => opened(&api, &call, told).await,
            Encoding::Protobuf => opened_for_diego(&api, &call, told),
        }
    })
}

/// A stream for one of Diego's clients: from now on, with ids counted from zero, and silent while nothing
/// happens.
fn opened_for_diego(
    api: &Arc<Api>,
    call: &ApiRequest,
    told: (Stream, Form),
) -> Result<Response<Body>, ApiFailure> {
    let Ok(request) = call.encoding.decode::<EventsRequest>(&call.body) else {
        // What cannot be read is answered so by the BBS: on these routes there is no field for an error.
        let mut response = Response::new(super::reply::full(""));
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        return Ok(response);
    };
    // Of tasks the BBS tells everything, whatever cell is asked for.
    let state = EventStream {
        tongue: StreamDialect::Diego { next: 0 },
        ..state(api, call, told, request, api.hub.subscribe())?
    };
    let mut response = streamed(state);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("keep-alive"));
    Ok(response)
}

/// A reader at the beginning of its stream.
fn state(
    api: &Arc<Api>,
    call: &ApiRequest,
    (stream, form): (Stream, Form),
    request: EventsRequest,
    subscription: Subscription,
) -> Result<EventStream, ApiFailure> {
    let permit = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let most = api.limits.streams;
        ApiFailure::busy(format!("{most} streams are open already, which is the limit"))
    })?;
    let mut heartbeat =
        tokio::time::interval_at(Instant::now() + api.limits.heartbeat, api.limits.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut again = tokio::time::interval_at(Instant::now() + LOOK_AGAIN, LOOK_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Ok(EventStream {
        hub: api.hub.clone(),
        subscription,
        stream,
        form,
        tongue: StreamDialect::Ours,
        cell: request.cell_id,
        heartbeat,
        again,
        api: Arc::clone(api),
        caller: call.caller.clone(),
        phase: StreamPhase::Live,
        _permit: permit,
    })
}

fn streamed(state: EventStream) -> Response<Body> {
    let mut response = Response::new(Events::Idle(Some(Box::new(state))).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    let no_cache = HeaderValue::from_static("no-cache, no-store, must-revalidate");
    headers.insert(CACHE_CONTROL, no_cache);
    response
}

async fn opened(
    api: &Arc<Api>,
    call: &ApiRequest,
    told_of: (Stream, Form),
) -> Result<Response<Body>, ApiFailure> {
    let request: EventsRequest = if call.method == Method::GET && call.body.is_empty() {
        call.query.request()?
    } else {
        call.query.only_ours()?;
        call.encoding.decode(&call.body)?
    };
    let snapshot = call.query.is_on("snapshot")?;
    let after = last_id(call)?;
    let mut intro = BytesMut::from(": events of Volvox\nretry: 1000\n\n");
    let (subscription, phase) = match (after.map(|after| api.hub.resume(after)), snapshot) {
        (Some(Ok(subscription)), _) => (subscription, StreamPhase::Live),
        (Some(Err(_)) | None, true) => {
            let (records, commit) = api.bbs.view().snapshot_at();
            let subscription = api.hub.subscribe_after(commit).await.map_err(|ended| {
                ApiFailure::busy(format!("the snapshot was overtaken, try again: {ended}"))
            })?;
            let all = Snapshot::of(records, told_of, &request.cell_id);
            (subscription, StreamPhase::Snapshot(Box::new(all)))
        }
        (Some(Err(ended)), false) => {
            let subscription = api.hub.subscribe();
            intro.extend_from_slice(&told("resync", Some(subscription.at()), &ended.to_string()));
            (subscription, StreamPhase::Live)
        }
        (None, false) => (api.hub.subscribe(), StreamPhase::Live),
    };
    if matches!(phase, StreamPhase::Live) {
        intro.extend_from_slice(&place(subscription.at()));
    }
    let phase = StreamPhase::Intro(intro.freeze(), Box::new(phase));
    Ok(streamed(EventStream { phase, ..state(api, call, told_of, request, subscription)? }))
}

/// After which event the reader wants to go on. What is no id of ours is as good as forgotten.
fn last_id(call: &ApiRequest) -> Result<Option<EventId>, ApiFailure> {
    let header = call.headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    match call.query.get("last_event_id").or(header).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(id) => Ok(Some(id)),
            Err(form) => Err(ApiFailure::field("last_event_id", form)),
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

struct EventStream {
    hub: Hub,
    subscription: Subscription,
    stream: Stream,
    form: Form,
    tongue: StreamDialect,
    cell: String,
    heartbeat: Interval,
    again: Interval,
    api: Arc<Api>,
    caller: Option<Caller>,
    phase: StreamPhase,
    _permit: OwnedSemaphorePermit,
}

/// How a reader is spoken to.
enum StreamDialect {
    /// JSON, heartbeats, and words to the reader itself.
    Ours,
    /// Messages in base64, each with the next number, and nothing else.
    Diego { next: u64 },
}

enum StreamPhase {
    /// Says this, then goes on.
    Intro(Bytes, Box<StreamPhase>),
    /// Says what there is.
    Snapshot(Box<Snapshot>),
    /// Says what changes.
    Live,
    /// Has said all.
    Over,
}

impl EventStream {
    /// The next piece of text; none: the stream has ended.
    async fn next(mut self: Box<Self>) -> Chunk {
        let piece = match std::mem::replace(&mut self.phase, StreamPhase::Over) {
            StreamPhase::Intro(text, next) => {
                self.phase = *next;
                Some(text)
            }
            StreamPhase::Snapshot(mut all) => {
                let mut text = BytesMut::with_capacity(PIECE);
                if all.write(&mut text) {
                    self.phase = StreamPhase::Snapshot(all);
                } else {
                    let id = self.subscription.at();
                    let end = json!({ "last_event_id": id.to_string() });
                    text.extend_from_slice(&hub::frame(Some(id), "snapshot_end", &end));
                    self.phase = StreamPhase::Live;
                }
                Some(text.freeze())
            }
            StreamPhase::Live => self.live().await,
            StreamPhase::Over => None,
        };
        (self, piece)
    }

    /// Whether the reader would be let in now.
    fn is_welcome(&self) -> bool {
        self.caller.as_ref().is_none_or(|caller| self.api.access.is_good(wall(), caller))
    }

    /// What happens next; none: that was all.
    async fn live(&mut self) -> Option<Bytes> {
        loop {
            let read = tokio::select! {
                read = self.subscription.next(AT_ONCE) => read,
                _ = self.heartbeat.tick() => match self.tongue {
                    StreamDialect::Diego { .. } => continue,
                    StreamDialect::Ours => {
                        self.phase = StreamPhase::Live;
                        let mut text = BytesMut::from(": heartbeat\n");
                        text.extend_from_slice(&place(self.subscription.at()));
                        return Some(text.freeze());
                    }
                },
                _ = self.again.tick() => {
                    if self.is_welcome() {
                        continue;
                    }
                    return self.last("closing", "the token has ended or was taken back");
                }
            };
            match read {
                Ok(entries) => {
                    let entries = self.ordered(entries);
                    let mut text = BytesMut::new();
                    for entry in entries {
                        self.say(&entry, &mut text);
                    }
                    if !text.is_empty() {
                        self.heartbeat.reset();
                        self.phase = StreamPhase::Live;
                        return Some(text.freeze());
                    }
                }
                Err(ended) => {
                    let name = match ended {
                        SubscriptionEnd::Lagged => "lagged",
                        SubscriptionEnd::Unknown | SubscriptionEnd::Resync => "resync",
                        SubscriptionEnd::Closed => "closing",
                    };
                    return self.last(name, &ended.to_string());
                }
            }
        }
    }

    /// The events in the order in which the reader is told.
    fn ordered(&mut self, mut entries: Vec<Arc<NumberedEvent>>) -> Vec<Arc<NumberedEvent>> {
        if matches!(self.tongue, StreamDialect::Diego { .. }) {
            // The second half of a pair may be just beyond what was read.
            if entries.last().is_some_and(|last| matches!(last.event, Event::InstanceRemoved(_))) {
                entries.extend(self.subscription.at_hand(1));
            }
            legacy::in_bbs_order(&mut entries);
        }
        entries
    }

    /// Whether a group is told as gone at whose index another instance serves by now: a suspect, or one of
    /// the next definition. Readers who know indices only would drop that one.
    fn stands_for_another(&self, event: &Event) -> bool {
        let Event::GroupRemoved(LrpGroup { instance: Some(gone), .. }) = event else {
            return false;
        };
        let records = self.api.bbs.view().snapshot();
        let Some(process) = records.process(&gone.process_guid) else { return false };
        let Some(definition) = process.definition_at(gone.index) else { return false };
        let group = process.group(definition, gone.index);
        let serves = group.resolve().filter(|lrp| lrp.state.is_running());
        serves.is_some_and(|lrp| lrp.instance() != gone.instance())
    }

    /// Writes an event, if the reader wants it.
    fn say(&mut self, entry: &NumberedEvent, text: &mut BytesMut) {
        let instead = match self.tongue {
            StreamDialect::Ours => None,
            StreamDialect::Diego { .. } => legacy::instead(self.stream, &entry.event)
                .filter(|event| !self.stands_for_another(event)),
        };
        let event = instead.as_ref().unwrap_or(&entry.event);
        let is_wanted =
            self.stream.tells_of(event) && (self.cell.is_empty() || is_of_cell(event, &self.cell));
        if !is_wanted {
            return;
        }
        match &mut self.tongue {
            StreamDialect::Ours => {
                let id = self.subscription.id_of(entry);
                let own = own_frame(self.stream, self.form, Some(id), &entry.event);
                text.extend_from_slice(&own.unwrap_or_else(|| self.hub.frame(id, entry)));
            }
            StreamDialect::Diego { next } => {
                text.extend_from_slice(format!("id: {next}\n").as_bytes());
                let frame = match &instead {
                    Some(event) => legacy::diego_frame_instead(event, entry),
                    None => diego_frame(&self.hub, self.form, entry),
                };
                text.extend_from_slice(&frame);
                *next += 1;
            }
        }
    }

    /// The last word. Diego's clients hear none: the end of the stream says that they have to list again.
    fn last(&self, name: &str, message: &str) -> Option<Bytes> {
        match self.tongue {
            StreamDialect::Ours => Some(told(name, None, message)),
            StreamDialect::Diego { .. } => None,
        }
    }
}

/// A piece of text, and where it leaves off; no text: that was all.
type Chunk = (Box<EventStream>, Option<Bytes>);

/// The body: a state that is at rest, or on its way to the next piece.
enum Events {
    Idle(Option<Box<EventStream>>),
    Working(Pin<Box<dyn Future<Output = Chunk> + Send>>),
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
