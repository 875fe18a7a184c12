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
use super::route::{Call, Outcome, Route};
use super::state::now;

/// The caller's own number for a call, as Diego's clients send it.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-vcap-request-id");

/// Bytes of a body that is too large which are let pass by, so that its sender hears why.
const DISCARDED: usize = 16 << 20;
const DISCARDING: Duration = Duration::from_secs(2);

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
    /// Answers a request. True: by somebody who has shown who they are.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        peer: &Peer,
        request: Request<Incoming>,
    ) -> (Response<Body>, bool) {
        let begun = Instant::now();
        let path = request.uri().path();
        let Some(route) = self.routes.get(path) else {
            return (Failure::no_route(path).respond(Encoding::Json), false);
        };
        let (outcome, caller, encoding) = self.pass(peer, route, request).await;
        let known = caller.is_some();
        let mut response = match outcome.result {
            Ok(response) => response,
            Err(failure) => failure.respond(encoding),
        };
        if !known && route.role.is_some() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.count(route.name, response.status(), begun.elapsed());
        (response, known)
    }

    async fn pass(
        self: &Arc<Self>,
        peer: &Peer,
        route: &Route,
        request: Request<Incoming>,
    ) -> (Outcome, Option<Caller>, Encoding) {
        let (head, body) = request.into_parts();
        let refused = |failure: Failure, caller| (Err(failure).into(), caller, Encoding::Json);
        if !route.takes(&head.method) {
            return refused(Failure::wrong_method(route.verbs), None);
        }
        let caller = match self.caller(peer, &head.headers) {
            Ok(caller) => caller,
            Err(failure) if route.role.is_some() => return refused(failure, None),
            Err(_) => None,
        };
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
        let (body, held) = match self.read(body).await {
            Ok(read) => read,
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
        };
        let handling = (route.handle)(Arc::clone(self), call);
        let outcome = match tokio::time::timeout(self.limits.call_time, handling).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seconds = self.limits.call_time.as_secs();
                let message = format!("no answer within {seconds} s; it may still happen");
                Err(Failure::busy(message)).into()
            }
        };
        drop(held);
        if route.changes
            && let Some(caller) = &caller
        {
            let line = line(peer, caller, route, &outcome, request_id);
            self.audit.write(line).await;
        }
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
            return Ok(Some(Caller { name: name.into(), role: Role::Admin }));
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
    async fn read(
        &self,
        mut body: Incoming,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Failure> {
        let announced = body.size_hint().exact();
        if announced == Some(0) {
            return Ok((Bytes::new(), None));
        }
        let limit = u64::try_from(JSON_BYTES).unwrap_or(u64::MAX);
        if let Some(given) = announced.filter(|given| *given > limit) {
            discard(&mut body).await;
            return Err(Failure::too_large(Some(given)));
        }
        let reserved = announced.unwrap_or(limit).min(limit);
        let reserved = u32::try_from(reserved).unwrap_or(u32::MAX);
        let time = self.limits.body_time;
        let reading = async {
            let bodies = Arc::clone(&self.bodies);
            let held = bodies.acquire_many_owned(reserved).await;
            let held = held.map_err(|_| Failure::busy("the coordinator is stopping"))?;
            let mut read = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else {
                    return Err(Failure::invalid("the body broke off"));
                };
                let Ok(data) = frame.into_data() else { continue };
                if read.len() + data.len() > JSON_BYTES {
                    return Err(Failure::too_large(None));
                }
                read.extend_from_slice(&data);
            }
            Ok((read.freeze(), Some(held)))
        };
        let read = tokio::time::timeout(time, reading).await;
        let read = read.unwrap_or_else(|_| Err(Failure::too_slow(time.as_secs())));
        if matches!(&read, Err(failure) if failure.status == StatusCode::PAYLOAD_TOO_LARGE) {
            discard(&mut body).await;
        }
        read
    }
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

/// What is written down of a call.
fn line(
    peer: &Peer,
    caller: &Caller,
    route: &Route,
    outcome: &Outcome,
    request_id: String,
) -> Line {
    let (status, error) = match &outcome.result {
        Ok(response) => (response.status(), String::new()),
        Err(failure) => (failure.status, failure.error.message.clone()),
    };
    Line {
        time: now(),
        caller: caller.name.to_string(),
        role: caller.role.name(),
        peer: peer.address.clone(),
        route: route.name,
        subject: outcome.subject.clone(),
        status: status.as_u16(),
        request_id,
        error,
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
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}
