//! Typed requests and replies between members.
//!
//! A [`Request`] names its method by number and its reply by type. The serving side is a
//! [`Service`]. A [`Router`] is a service that selects the handler by method. Bodies are postcard
//! (see `codec`): they may grow at the end, so two releases understand each other. A release
//! refuses a method that it does not support as [`RpcRefusal::Unsupported`]. Sockets, deadlines and
//! limits are in `transport`; the head before a body is in [`frame`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

pub mod frame;
pub mod methods;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::identity::MemberIdentity;
use crate::transport::stream::{FrameReader, FrameWriter};

/// A boxed future that may be sent to another thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request that one member may send to another.
pub trait Request: Serialize + DeserializeOwned {
    /// Method number on the wire. A number is never reused for another request.
    const METHOD: u16;
    /// Name of the request in logs and error texts.
    const NAME: &'static str;
    /// Type of the reply.
    type Reply: Serialize + DeserializeOwned;
}

/// A request after whose reply frames follow on the same stream, in both directions.
pub trait StreamingRequest: Request {}

/// What the serving side does with an open stream. Dropped when the caller closes the stream or the
/// link ends.
pub type StreamHandler = Box<dyn FnOnce(FrameReader, FrameWriter) -> BoxFuture<()> + Send>;

/// Why a member refused a request, as the member reports it. The request had no effect, except
/// possibly for `Failed` and `DeadlineExceeded`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcRefusal {
    /// The member does not serve the method: it is an older release, or it has no handler for it.
    #[error("the member does not serve this method")]
    Unsupported,
    /// The member already serves its maximum number of requests. Ask again later.
    #[error("the member is busy")]
    Busy,
    /// The request or its reply is longer than the member allows.
    #[error("the request or its reply is too large")]
    TooLarge,
    /// The member could not read the request; the text gives the reason.
    #[error("the request is malformed: {0}")]
    Malformed(String),
    /// The member stopped when the caller's deadline passed. Part of the work may have been done.
    #[error("the member did not finish by the deadline")]
    DeadlineExceeded,
    /// The member tried and failed. Part of the work may have been done.
    #[error("failed: {0}")]
    Failed(String),
    /// The caller is not allowed to send this request; the text gives the reason.
    #[error("not allowed: {0}")]
    NotAllowed(String),
}

/// Why a request has no reply. Each variant states what is known about its effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no link to the member. Nothing was sent.
    #[error("there is no link to the member")]
    NoLink,
    /// The request is too long. Nothing was sent.
    #[error("the request has {given} bytes, the limit is {limit}")]
    TooLarge {
        /// Length of the request, in bytes.
        given: usize,
        /// Maximum length of a request, in bytes.
        limit: usize,
    },
    /// No reply in time, by the clock of the caller or of the member. It is unknown whether the
    /// request was done.
    #[error("no reply came by the deadline")]
    Deadline,
    /// The link ended before the reply. It is unknown whether the request was done.
    #[error("the link was lost: {0}")]
    Lost(String),
    /// The member refused the request.
    #[error(transparent)]
    Refused(#[from] RpcRefusal),
    /// A reply was received but could not be read. The request was probably done.
    #[error("the reply was not understood: {0}")]
    BadReply(String),
}

/// Answers requests of other members. Called once per request, on a task of the link.
pub trait Service: Send + Sync {
    /// Returns the bytes of the reply to `body`. `from` is the caller, as its certificate names it.
    /// The future is dropped when the caller cancels, when the link ends, and after `deadline`.
    fn answer(
        &self,
        from: MemberIdentity,
        method: u16,
        body: Bytes,
        deadline: Duration,
    ) -> BoxFuture<Result<Vec<u8>, RpcRefusal>>;

    /// Whether this method is a streaming request. If so, [`Service::converse`] is called instead
    /// of [`Service::answer`].
    fn talks(&self, _method: u16) -> bool {
        false
    }

    /// Returns the bytes of the reply, and what to do with the stream afterwards.
    fn converse(
        &self,
        _from: MemberIdentity,
        _method: u16,
        _body: Bytes,
    ) -> BoxFuture<Result<(Vec<u8>, StreamHandler), RpcRefusal>> {
        Box::pin(std::future::ready(Err(RpcRefusal::Unsupported)))
    }
}

/// Handler of one method: decodes the body, answers, encodes the reply.
type Handler = Box<
    dyn Fn(MemberIdentity, Bytes, Duration) -> BoxFuture<Result<Vec<u8>, RpcRefusal>> + Send + Sync,
>;

/// Handler of one streaming method.
type Opener = Box<
    dyn Fn(MemberIdentity, Bytes) -> BoxFuture<Result<(Vec<u8>, StreamHandler), RpcRefusal>>
        + Send
        + Sync,
>;

/// A [`Service`] of typed handlers. Without handlers it refuses every request.
#[derive(Default)]
pub struct Router {
    handlers: BTreeMap<u16, Handler>,
    openers: BTreeMap<u16, Opener>,
}

impl Router {
    /// A router without handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `handle` as the handler of requests of type `R`.
    ///
    /// # Panics
    /// If the method already has a handler: two requests have the same number.
    #[must_use]
    pub fn on<R, F, A>(mut self, handle: F) -> Self
    where
        R: Request + 'static,
        F: Fn(MemberIdentity, R, Duration) -> A + Send + Sync + 'static,
        A: Future<Output = Result<R::Reply, RpcRefusal>> + Send + 'static,
    {
        let handler: Handler = Box::new(move |from, body, deadline| {
            // The transport has checked the length of the body; here any length is allowed.
            match codec::decode::<R>(&body, usize::MAX) {
                Ok(request) => {
                    let answer = handle(from, request, deadline);
                    Box::pin(async move { Ok(codec::encode(&answer.await?)) })
                }
                Err(error) => {
                    let refusal = RpcRefusal::Malformed(format!("{}: {error}", R::NAME));
                    Box::pin(std::future::ready(Err(refusal)))
                }
            }
        });
        self.must_be_free::<R>();
        self.handlers.insert(R::METHOD, handler);
        self
    }

    /// Adds `open` as the handler of streaming requests of type `R`. It must return quickly; long
    /// work belongs into the [`StreamHandler`] that it returns.
    ///
    /// # Panics
    /// If the method already has a handler: two requests have the same number.
    #[must_use]
    pub fn on_stream<R, F, A>(mut self, open: F) -> Self
    where
        R: StreamingRequest + 'static,
        F: Fn(MemberIdentity, R) -> A + Send + Sync + 'static,
        A: Future<Output = Result<(R::Reply, StreamHandler), RpcRefusal>> + Send + 'static,
    {
        let opener: Opener =
            Box::new(move |from, body| match codec::decode::<R>(&body, usize::MAX) {
                Ok(request) => {
                    let opening = open(from, request);
                    Box::pin(async move {
                        let (reply, talk) = opening.await?;
                        Ok((codec::encode(&reply), talk))
                    })
                }
                Err(error) => {
                    let refusal = RpcRefusal::Malformed(format!("{}: {error}", R::NAME));
                    Box::pin(std::future::ready(Err(refusal)))
                }
            });
        self.must_be_free::<R>();
        self.openers.insert(R::METHOD, opener);
        self
    }

    fn must_be_free<R: Request>(&self) {
        let method = R::METHOD;
        let is_taken = self.handlers.contains_key(&method) || self.openers.contains_key(&method);
        assert!(!is_taken, "method {method} ({}) is taken", R::NAME);
    }
}

impl Service for Router {
    fn answer(
        &self,
        from: MemberIdentity,
        method: u16,
        body: Bytes,
        deadline: Duration,
    ) -> BoxFuture<Result<Vec<u8>, RpcRefusal>> {
        match self.handlers.get(&method) {
            Some(handler) => handler(from, body, deadline),
            None => Box::pin(std::future::ready(Err(RpcRefusal::Unsupported))),
        }
    }
    fn talks(&self, method: u16) -> bool {
        self.openers.contains_key(&method)
    }

    fn converse(
        &self,
        from: MemberIdentity,
        method: u16,
        body: Bytes,
    ) -> BoxFuture<Result<(Vec<u8>, StreamHandler), RpcRefusal>> {
        match self.openers.get(&method) {
            Some(opener) => opener(from, body),
            None => Box::pin(std::future::ready(Err(RpcRefusal::Unsupported))),
        }
    }
}
