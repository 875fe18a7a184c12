//! The way of one request: who is it, may it, how large, to its route, and what is written down of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument as _;
use volvox_host::clock::{monotonic, wall};
use volvox_protocol::limits::JSON_BYTES;

use super::Api;
use super::access::{Caller, Role};
use super::audit::AuditRecord;
use super::encoding::Encoding;
use super::query::Query;
use super::reply::{ApiFailure, Body};
use super::route::{ApiRequest, HandlerFuture, HandlerResult, ResponseKind, Route};
use super::tls::Issued;
use super::{diego, trace};

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
    /// Whom we gave its client certificate to, and what for, if it is one of ours.
    pub issued: Option<Issued>,
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
            return ApiFailure::no_route(path).respond(Encoding::Json);
        };
        let (outcome, caller, encoding) = self.pass(peer, route, request, welcome).await;
        let known = caller.is_some();
        let (status, mut response) = match outcome {
            Ok(response) => (response.status(), response),
            Err(failure) => (failure.status, diego::told(route, &failure, encoding)),
        };
        if !known && route.role.is_some() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.count(route.name, status, begun.elapsed());
        response
    }

    async fn pass(
        self: &Arc<Self>,
        peer: &Peer,
        route: &Route,
        request: Request<Incoming>,
        welcome: impl Fn(),
    ) -> (HandlerResult, Option<Caller>, Encoding) {
        let (mut head, mut body) = request.into_parts();
        let upgrade = head.extensions.remove();
        if !route.takes(&head.method) {
            return (Err(ApiFailure::wrong_method(route.verbs)), None, Encoding::Json);
        }
        let (encoding, misspoken) = match spoken(peer, route, &head) {
            Ok(encoding) => (encoding, None),
            Err(failure) => (Encoding::Json, Some(failure)),
        };
        let refused = |failure: ApiFailure, caller| (Err(failure), caller, encoding);
        let caller = match self.caller(peer, &head.headers) {
            Ok(caller) => caller,
            Err(failure) if route.role.is_some() => return refused(failure, None),
            Err(_) => None,
        };
        if caller.is_some() {
            welcome();
        }
        if let Err(failure) = self.admit(route.role, caller.as_ref()) {
            if caller.is_some() {
                // Who is known may go on with its connection, which an unread body would end.
                discard(&mut body).await;
            }
            return refused(failure, caller);
        }
        if let Some(failure) = misspoken {
            return refused(failure, caller);
        }
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
        let trace = trace::of(&head.headers);
        let call = ApiRequest {
            caller: caller.clone(),
            method: head.method,
            headers: head.headers,
            query,
            body,
            encoding,
            upgrade,
        };
        let HandlerFuture { subject, work } = (route.handle)(Arc::clone(self), call);
        let noted = caller.as_ref().filter(|_| route.changes);
        let request_id = trace.as_deref().unwrap_or_default();
        let line = noted.map(|caller| line(peer, caller, route.name, subject, request_id));
        let span = tracing::info_span!("call", route = route.name, request_id);
        let begun = Instant::now();
        let work = trace::scope(trace, work);
        let (audit, time) = (self.audit.clone(), self.limits.call_time);
        let handling = async move {
            let outcome = tokio::time::timeout(time, work).await.unwrap_or_else(|_| {
                let seconds = time.as_secs();
                let message = format!("no answer within {seconds} s; it may still happen");
                Err(ApiFailure::busy(message))
            });
            drop(held);
            let (status, why) = match &outcome {
                Ok(response) => (response.status(), ""),
                Err(failure) => (failure.status, failure.error().message.as_str()),
            };
            let took_ms = begun.elapsed().as_millis();
            tracing::debug!(status = status.as_u16(), took_ms, why, "answered");
            if let Some(mut line) = line {
                line.note(&outcome);
                audit.write(line).await;
            }
            outcome
        }
        .instrument(span);
        let outcome = if route.changes {
            // A caller that hangs up ends this conversation, not what it has begun, nor its line.
            let handled = tokio::spawn(handling).await;
            handled.unwrap_or_else(|_| Err(ApiFailure::busy("the call failed: see the log")))
        } else {
            handling.await
        };
        (outcome, caller, encoding)
    }

    /// Who calls. None: it showed nothing.
    fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Caller>, ApiFailure> {
        if let Some(shown) = headers.get(AUTHORIZATION) {
            const FORM: &str = "the header is to be: Authorization: Bearer TOKEN";
            let shown = shown.to_str().map_err(|_| ApiFailure::unauthorized(FORM))?;
            let (scheme, token) =
                shown.split_once(' ').ok_or_else(|| ApiFailure::unauthorized(FORM))?;
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(ApiFailure::unauthorized(FORM));
            }
            return match self.access.bearer(wall(), token.trim()) {
                Some(caller) => Ok(Some(caller)),
                None => Err(ApiFailure::unauthorized("the token is unknown, expired or revoked")),
            };
        }
        if let Some(owner) = peer.owner {
            let name = format!("socket:{owner}");
            return Ok(Some(Caller { name: name.into(), role: Role::Admin, token: None }));
        }
        if let Some(issued) = &peer.issued {
            let name = format!("certificate:{}", issued.name).into();
            return Ok(Some(Caller { name, role: issued.role, token: None }));
        }
        if peer.certificate.is_empty() {
            return Ok(None);
        }
        match self.access.certified(peer.certificate.iter().map(String::as_str)) {
            Some(caller) => Ok(Some(caller)),
            None => {
                let names = peer.certificate.join(", ");
                Err(ApiFailure::unauthorized(&format!(
                    "no role is given to the certificate {names}"
                )))
            }
        }
    }

    fn admit(&self, needed: Option<Role>, caller: Option<&Caller>) -> Result<(), ApiFailure> {
        let Some(needed) = needed else { return Ok(()) };
        let Some(caller) = caller else {
            let how = "show a token: Authorization: Bearer TOKEN (volvox-coordinator token create)";
            return Err(ApiFailure::unauthorized(how));
        };
        if !caller.role.may(needed) {
            let (has, needs) = (caller.role.name(), needed.name());
            return Err(ApiFailure::forbidden(format!(
                "this needs the role {needs}, yours is {has}"
            )));
        }
        self.quota.take(caller, monotonic())
    }

    /// Reads a body, within its limits. It stays counted for as long as what comes back is held.
    async fn read(&self, mut body: Incoming) -> Result<Read, ApiFailure> {
        let announced = body.size_hint().exact();
        if announced == Some(0) {
            return Ok(Read::default());
        }
        let limit = u64::try_from(JSON_BYTES).unwrap_or(u64::MAX);
        if let Some(given) = announced.filter(|given| *given > limit) {
            discard(&mut body).await;
            return Err(ApiFailure::too_large(Some(given)));
        }
        let until = tokio::time::Instant::now() + self.limits.body_time;
        let mut read = Read::default();
        let mut bytes = BytesMut::new();
        loop {
            let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await else {
                return Err(ApiFailure::too_slow(self.limits.body_time.as_secs()));
            };
            let Some(frame) = frame else { break };
            let Ok(frame) = frame else {
                return Err(ApiFailure::invalid("the body broke off"));
            };
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > JSON_BYTES {
                discard(&mut body).await;
                return Err(ApiFailure::too_large(None));
            }
            self.hold(&mut read, data.len()).await?;
            bytes.extend_from_slice(&data);
        }
        read.bytes = bytes.freeze();
        Ok(read)
    }

    /// Counts bytes of a body that have come. What is only announced takes no room from others.
    async fn hold(&self, read: &mut Read, bytes: usize) -> Result<(), ApiFailure> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bodies).acquire_many_owned(bytes);
        let Ok(Ok(room)) = tokio::time::timeout(ROOM, room).await else {
            return Err(ApiFailure::busy("too much is being sent at once: try again"));
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
    request_id: &str,
) -> AuditRecord {
    AuditRecord {
        time: wall(),
        caller: caller.name.to_string(),
        role: caller.role.name(),
        peer: peer.address.clone(),
        route,
        subject,
        status: 0,
        request_id: request_id.to_owned(),
        error: String::new(),
    }
}

impl AuditRecord {
    fn note(&mut self, outcome: &HandlerResult) {
        match outcome {
            Ok(response) => self.status = response.status().as_u16(),
            Err(failure) => {
                self.status = failure.status.as_u16();
                failure.error.message.clone_into(&mut self.error);
            }
        }
    }
}

/// How a request is written. Diego's clients need not say: who shows a certificate, calls a route of the
/// BBS the way the BBS has it, and asks for nothing else, speaks protobuf.
fn spoken(peer: &Peer, route: &Route, head: &Parts) -> Result<Encoding, ApiFailure> {
    let as_bbs = head.method == Method::POST || matches!(route.answer, ResponseKind::Events);
    let wants_json = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let wants_json = wants_json.is_some_and(|kinds| kinds.contains("json"));
    // Diego's clients know no tokens.
    let wants_json = wants_json || head.headers.contains_key(AUTHORIZATION);
    let is_bbs = diego::is_spoken(route.path);
    let unsaid = if is_bbs && as_bbs && !wants_json && !peer.certificate.is_empty() {
        Encoding::Protobuf
    } else {
        Encoding::Json
    };
    let encoding = Encoding::of(&head.headers, unsaid)?;
    if encoding == Encoding::Protobuf && !is_bbs {
        return Err(ApiFailure::unspoken("application/x-protobuf", "application/json"));
    }
    Ok(encoding)
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
