//! What a route is: where it is, who may use it, what goes in and out, and who answers. The server
//! and the OpenAPI document are made from the same table of these (`routes.rs`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use volvox_protocol::api::LifecycleResponse;
use volvox_protocol::diego::{DiegoReply, DiegoRequest};
use volvox_protocol::schema::{Components, Schema};

use super::Api;
use super::access::{Caller, Role};
use super::encoding::{self, Encoding};
use super::query::Query;
use super::reply::{ApiFailure, Body, full};
use crate::bbs::command::Command;

/// One call, checked and read.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    /// Who calls; none on routes that are open to all.
    pub(crate) caller: Option<Caller>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) body: Bytes,
    pub(crate) encoding: Encoding,
    /// The connection itself, for who goes on with something else than HTTP.
    pub(crate) upgrade: Option<OnUpgrade>,
}

impl ApiRequest {
    /// The request: the body, or for GET the query.
    pub(crate) fn request<Q: DeserializeOwned + Schema + DiegoRequest>(
        &self,
    ) -> Result<Q, ApiFailure> {
        if self.method == Method::GET {
            self.query.request::<Q>()
        } else {
            self.query.only_ours()?;
            self.encoding.decode(&self.body)
        }
    }
}

/// What came of a call.
pub(crate) type HandlerResult = Result<Response<Body>, ApiFailure>;

/// A call that is being answered.
pub(crate) struct HandlerFuture {
    /// What it is about, for the audit.
    pub(crate) subject: String,
    pub(crate) work: Pin<Box<dyn Future<Output = HandlerResult> + Send>>,
}

impl HandlerFuture {
    pub(crate) fn new(work: impl Future<Output = HandlerResult> + Send + 'static) -> Self {
        HandlerFuture { subject: String::new(), work: Box::pin(work) }
    }
}

/// Describes a type for the OpenAPI document.
pub(crate) type SchemaFn = fn(&mut Components) -> Value;

/// What comes back.
#[derive(Clone, Copy)]
pub(crate) enum ResponseKind {
    /// A record.
    Record(SchemaFn),
    /// A list that is streamed, has a tag and knows `fields`.
    List(SchemaFn),
    /// A stream of events.
    Events,
    /// Records, one on each line, as they come.
    Lines(SchemaFn),
    /// The connection goes on with this instead of HTTP.
    Upgrade(&'static str),
    /// Text of this type.
    Text(&'static str),
    /// Any JSON.
    Json,
}

/// Instances from which on lists are made on a thread that may take its time.
const MANY: usize = 5_000;

/// One route.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    /// Its name in metrics and in the document.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// What it takes: `GET`, `POST`, or `GET, POST`.
    pub(crate) verbs: &'static str,
    /// Who may; none: everybody.
    pub(crate) role: Option<Role>,
    /// Whether it changes anything, and is audited.
    pub(crate) changes: bool,
    pub(crate) request: Option<SchemaFn>,
    pub(crate) answer: ResponseKind,
    /// Parameters in the query, beside those of the request: name and meaning.
    pub(crate) parameters: &'static [(&'static str, &'static str)],
    /// Statuses beside 200 and those that every route may answer.
    pub(crate) statuses: &'static [u16],
    pub(crate) handle: Box<dyn Fn(Arc<Api>, ApiRequest) -> HandlerFuture + Send + Sync>,
}

impl Route {
    pub(crate) fn takes(&self, method: &Method) -> bool {
        self.verbs.split(", ").any(|verb| verb == method.as_str())
    }

    pub(crate) fn with_role(mut self, role: Role) -> Self {
        self.role = Some(role);
        self
    }
}

/// The answer with one record.
pub(crate) fn record(
    encoding: Encoding,
    answer: impl Serialize + DiegoReply,
) -> Result<Response<Body>, ApiFailure> {
    let mut response = Response::new(full(encoding.encode(answer)?));
    response.headers_mut().insert(CONTENT_TYPE, encoding.content_type());
    Ok(response)
}

/// The answer with something that is said in JSON only.
pub(crate) fn json(answer: &impl Serialize) -> Result<Response<Body>, ApiFailure> {
    let mut response = Response::new(full(encoding::json(answer)?));
    response.headers_mut().insert(CONTENT_TYPE, Encoding::Json.content_type());
    Ok(response)
}

/// A route that looks at something: GET with a query, or POST with a body, as the BBS has it.
pub(crate) fn read<Q, A>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    answer: impl Fn(&Api, Q) -> Result<A, ApiFailure> + Send + Sync + 'static,
) -> Route
where
    Q: DeserializeOwned + Schema + DiegoRequest,
    A: Serialize + Schema + DiegoReply,
{
    Route {
        path,
        name,
        about,
        verbs: "GET, POST",
        role: Some(Role::Read),
        changes: false,
        request: Some(Q::schema),
        answer: ResponseKind::Record(A::schema),
        parameters: &[],
        statuses: &[400, 404],
        handle: Box::new(move |api, call| {
            let result =
                call.request().and_then(|request| record(call.encoding, answer(&api, request)?));
            HandlerFuture::new(std::future::ready(result))
        }),
    }
}

/// A route that lists something: as [`read`], but it writes its answer itself.
pub(crate) fn list<Q, A>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    answer: impl Fn(&Api, &ApiRequest, Q) -> Result<Response<Body>, ApiFailure> + Send + Sync + 'static,
) -> Route
where
    Q: DeserializeOwned + Schema + DiegoRequest + Send + 'static,
    A: Schema,
{
    let answer = Arc::new(answer);
    Route {
        path,
        name,
        about,
        verbs: "GET, POST",
        role: Some(Role::Read),
        changes: false,
        request: Some(Q::schema),
        answer: ResponseKind::List(A::schema),
        parameters: &[("fields", "only these keys of each entry, with commas between them")],
        statuses: &[304, 400],
        handle: Box::new(move |api, call| {
            let request = call.request();
            if api.bbs.view().snapshot().instance_count() < MANY {
                let result = request.and_then(|request| answer(&api, &call, request));
                return HandlerFuture::new(std::future::ready(result));
            }
            // Walking a large fleet takes milliseconds, and others wait for this thread.
            let answer = Arc::clone(&answer);
            let walking = move || request.and_then(|request| answer(&api, &call, request));
            HandlerFuture::new(async move {
                let walked = tokio::task::spawn_blocking(walking).await;
                walked.unwrap_or_else(|_| {
                    Err(ApiFailure::busy("the list could not be made: see the log"))
                })
            })
        }),
    }
}

/// A route that changes something. `subject` is what the audit says it was about.
pub(crate) fn change<Q, A, R>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    subject: fn(&Q) -> String,
    answer: impl Fn(Arc<Api>, Q) -> R + Send + Sync + 'static,
) -> Route
where
    Q: DeserializeOwned + Schema + DiegoRequest + Send + 'static,
    A: Serialize + Schema + DiegoReply,
    R: Future<Output = Result<A, ApiFailure>> + Send + 'static,
{
    Route {
        path,
        name,
        about,
        verbs: "POST",
        role: Some(Role::Write),
        changes: true,
        request: Some(Q::schema),
        answer: ResponseKind::Record(A::schema),
        parameters: &[],
        statuses: &[400, 404, 409],
        handle: Box::new(move |api, call| {
            let request = match call.request::<Q>() {
                Ok(request) => request,
                Err(failure) => return HandlerFuture::new(std::future::ready(Err(failure))),
            };
            let subject = subject(&request);
            let answering = answer(api, request);
            let work =
                async move { answering.await.and_then(|answer| record(call.encoding, answer)) };
            HandlerFuture { subject, work: Box::pin(work) }
        }),
    }
}

/// A route that looks at something that has to be waited for.
pub(crate) fn ask<Q, A, R>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    answer: impl Fn(Arc<Api>, Q) -> R + Send + Sync + 'static,
) -> Route
where
    Q: DeserializeOwned + Schema + DiegoRequest + Send + 'static,
    A: Serialize + Schema + DiegoReply,
    R: Future<Output = Result<A, ApiFailure>> + Send + 'static,
{
    let changing = change::<Q, A, R>(path, name, about, |_| String::new(), answer);
    Route { verbs: "GET, POST", role: Some(Role::Read), changes: false, ..changing }
}

/// A route that has the board do one thing, and has nothing to say but that it is done.
pub(crate) fn order<Q>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    subject: fn(&Q) -> String,
    command: fn(Q) -> Command,
) -> Route
where
    Q: DeserializeOwned + Schema + DiegoRequest + Send + 'static,
{
    change::<Q, LifecycleResponse, _>(path, name, about, subject, move |api, request| async move {
        api.order(command(request)).await
    })
}

/// A route of the coordinator's own: GET, no request, any answer.
pub(crate) fn own<R>(
    path: &'static str,
    name: &'static str,
    about: &'static str,
    kind: ResponseKind,
    answer: impl Fn(Arc<Api>, ApiRequest) -> R + Send + Sync + 'static,
) -> Route
where
    R: Future<Output = Result<Response<Body>, ApiFailure>> + Send + 'static,
{
    Route {
        path,
        name,
        about,
        verbs: "GET",
        role: Some(Role::Read),
        changes: false,
        request: None,
        answer: kind,
        parameters: &[],
        statuses: &[],
        handle: Box::new(move |api, call| HandlerFuture::new(answer(api, call))),
    }
}
