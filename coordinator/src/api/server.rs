//! The way of one request: who is it, may it, how large, to its route, and what is written down of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use volvox_protocol::limits::JSON_BYTES;

use super::Api;
use super::access::{Caller, Role};
use super::audit::Line;
use super::encoding::Encoding;
use super::query::Query;
use super::reply::{Body, Failure};
use super::route::{Answering, Call, Outcome, Route};
use super::state::now;

/// The caller's own number for a call, as Diego's clients send it.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-vcap-request-id");

/// Bytes of a body that is too large which are let pass by, so that its sender hears why.
const DISCARDED: usize = 16 << 20;
const DISCARDING: Duration = Duration::from_secs(2);
/// How long a body waits for room that others have.
const ROOM: Duration = Duration::from_secs(5);

/// What is known of the other side of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Where it is, for people.
    pub address: String,
    /// Where it is; the loopback for those on a socket of this machine.
    pub ip: IpAddr,
    /// The names in its client certificate.
    pub certificate: Vec<String>,
    /// Who runs it, when it came by a socket of this machine: who owns the coordinator or is root
    /// needs no token.
    pub owner: Option<u32>,
}

impl Api {
    /// Answers a request. `welcome` is called as soon as the caller has shown who it is.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        peer: &Peer,
        request: Request<Incoming>,
        welcome: impl Fn(),
    ) -> Response<Body> {
        let begun = Instant::now();
        let path = request.uri().path();
        let Some(route) = self.routes.get(path) else {
            return Failure::no_route(path).respond(Encoding::Json);
        };
        let (outcome, caller, encoding) = self.pass(peer, route, request, welcome).await;
        let known = caller.is_some();
        let mut response = match outcome {
            Ok(response) => response,
            Err(failure) => failure.respond(encoding),
        };
        if !known && route.role.is_some() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.count(route.name, response.status(), begun.elapsed());
        response
    }

    async fn pass(
        self: &Arc<Self>,
        peer: &Peer,
        route: &Route,
        request: Request<Incoming>,
        welcome: impl Fn(),
    ) -> (Outcome, Option<Caller>, Encoding) {
        let (mut head, body) = request.into_parts();
        let upgrade = head.extensions.remove();
        let refused = |failure: Failure, caller| (Err(failure), caller, Encoding::Json);
        if !route.takes(&head.method) {
            return refused(Failure::wrong_method(route.verbs), None);
        }
        let caller = match self.caller(peer, &head.headers) {
            Ok(caller) => caller,
            Err(failure) if route.role.is_some() => return refused(failure, None),
            Err(_) => None,
        };
        if caller.is_some() {
            welcome();
        }
        if let Err(failure) = self.admit(route.role, caller.as_ref()) {
            return refused(failure, caller);
        }
        let encoding = match Encoding::of(&head.headers) {
            Ok(encoding) => encoding,
            Err(failure) => return refused(failure, caller),
        };
        let query = match Query::parse(head.uri.query()) {
            Ok(query) => query,
            Err(failure) => return refused(failure, caller),
        };
        // Where anybody may call, nothing that is sent is looked at.
        let read = if route.role.is_some() { self.read(body).await } else { Ok(Read::default()) };
        let (body, held) = match read {
            Ok(read) => (read.bytes, read.held),
            Err(failure) => return refused(failure, caller),
        };
        let request_id = request_id(&head.headers);
        let call = Call {
            caller: caller.clone(),
            method: head.method,
            headers: head.headers,
            query,
            body,
            encoding,
            upgrade,
        };
        let Answering { subject, work } = (route.handle)(Arc::clone(self), call);
        let noted = caller.as_ref().filter(|_| route.changes);
        let line = noted.map(|caller| line(peer, caller, route.name, subject, request_id));
        let (audit, time) = (self.audit.clone(), self.limits.call_time);
        let handling = async move {
            let outcome = tokio::time::timeout(time, work).await.unwrap_or_else(|_| {
                let seconds = time.as_secs();
                let message = format!("no answer within {seconds} s; it may still happen");
                Err(Failure::busy(message))
            });
            drop(held);
            if let Some(mut line) = line {
                line.note(&outcome);
                audit.write(line).await;
            }
            outcome
        };
        let outcome = if route.changes {
            // A caller that hangs up ends this conversation, not what it has begun, nor its line.
            let handled = tokio::spawn(handling).await;
            handled.unwrap_or_else(|_| Err(Failure::busy("the call failed: see the log")))
        } else {
            handling.await
        };
        (outcome, caller, encoding)
    }

    /// Who calls. None: it showed nothing.
    fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Caller>, Failure> {
        if let Some(shown) = headers.get(AUTHORIZATION) {
            const FORM: &str = "the header is to be: Authorization: Bearer TOKEN";
            let shown = shown.to_str().map_err(|_| Failure::unauthorized(FORM))?;
            let (scheme, token) =
                shown.split_once(' ').ok_or_else(|| Failure::unauthorized(FORM))?;
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(Failure::unauthorized(FORM));
            }
            return match self.access.bearer(now(), token.trim()) {
                Some(caller) => Ok(Some(caller)),
                None => Err(Failure::unauthorized("the token is unknown, expired or revoked")),
            };
        }
        if let Some(owner) = peer.owner {
            let name = format!("socket:{owner}");
            return Ok(Some(Caller { name: name.into(), role: Role::Admin, token: None }));
        }
        if peer.certificate.is_empty() {
            return Ok(None);
        }
        match self.access.certified(peer.certificate.iter().map(String::as_str)) {
            Some(caller) => Ok(Some(caller)),
            None => {
                let names = peer.certificate.join(", ");
                Err(Failure::unauthorized(&format!("no role is given to the certificate {names}")))
            }
        }
    }

    fn admit(&self, needed: Option<Role>, caller: Option<&Caller>) -> Result<(), Failure> {
        let Some(needed) = needed else { return Ok(()) };
        let Some(caller) = caller else {
            let how = "show a token: Authorization: Bearer TOKEN (volvox-coordinator token create)";
            return Err(Failure::unauthorized(how));
        };
        if caller.role < needed {
            let (has, needs) = (caller.role.name(), needed.name());
            return Err(Failure::forbidden(format!("this needs the role {needs}, yours is {has}")));
        }
        self.quota.take(caller, Instant::now())
    }

    /// Reads a body, within its limits. It stays counted for as long as what comes back is held.
    async fn read(&self, mut body: Incoming) -> Result<Read, Failure> {
        let announced = body.size_hint().exact();
        if announced == Some(0) {
            return Ok(Read::default());
        }
        let limit = u64::try_from(JSON_BYTES).unwrap_or(u64::MAX);
        if let Some(given) = announced.filter(|given| *given > limit) {
            discard(&mut body).await;
            return Err(Failure::too_large(Some(given)));
        }
        let until = tokio::time::Instant::now() + self.limits.body_time;
        let mut read = Read::default();
        let mut bytes = BytesMut::new();
        loop {
            let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await else {
                return Err(Failure::too_slow(self.limits.body_time.as_secs()));
            };
            let Some(frame) = frame else { break };
            let Ok(frame) = frame else {
                return Err(Failure::invalid("the body broke off"));
            };
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > JSON_BYTES {
                discard(&mut body).await;
                return Err(Failure::too_large(None));
            }
            self.hold(&mut read, data.len()).await?;
            bytes.extend_from_slice(&data);
        }
        read.bytes = bytes.freeze();
        Ok(read)
    }

    /// Counts bytes of a body that have come. What is only announced takes no room from others.
    async fn hold(&self, read: &mut Read, bytes: usize) -> Result<(), Failure> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bodies).acquire_many_owned(bytes);
        let Ok(Ok(room)) = tokio::time::timeout(ROOM, room).await else {
            return Err(Failure::busy("too much is being sent at once: try again"));
        };
        match &mut read.held {
            Some(held) => held.merge(room),
            none @ None => *none = Some(room),
        }
        Ok(())
    }
}

/// A body that was read, and its share of the room for bodies.
#[derive(Debug, Default)]
struct Read {
    bytes: Bytes,
    held: Option<OwnedSemaphorePermit>,
}

/// Lets some of a body pass by unread: who is still sending does not hear an answer.
async fn discard(body: &mut Incoming) {
    let passing = async {
        let mut left = DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    // Late is as good as never: the answer goes out either way.
    let _ = tokio::time::timeout(DISCARDING, passing).await;
}

/// What is written down of a call, but for what came of it.
fn line(
    peer: &Peer,
    caller: &Caller,
    route: &'static str,
    subject: String,
    request_id: String,
) -> Line {
    Line {
        time: now(),
        caller: caller.name.to_string(),
        role: caller.role.name(),
        peer: peer.address.clone(),
        route,
        subject,
        status: 0,
        request_id,
        error: String::new(),
    }
}

impl Line {
    fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Ok(response) => self.status = response.status().as_u16(),
            Err(failure) => {
                self.status = failure.status.as_u16();
                failure.error.message.clone_into(&mut self.error);
            }
        }
    }
}

/// The caller's own number for the call, if it is one that can be written down.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let fits = given.len() <= 64 && given.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { given.to_owned() } else { String::new() }
}

/// What the status says of a call, for metrics.
pub(crate) const fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        // A connection that goes on as something else is a success.
        100..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}
