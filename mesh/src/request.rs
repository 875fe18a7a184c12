//! Typed questions and answers between members.
//!
//! A [`Request`] names its method by number and its reply by type. The serving side is a
//! [`Service`]; a [`Router`] is one that finds the handler by the method. Bodies are postcard by
//! `codec`, so they may grow at the end and two releases understand each other; a method that a
//! release does not know is refused as [`Refusal::Unsupported`]. Sockets, deadlines and limits are
//! `transport`'s; what stands before a body is in [`frame`].
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

/// A future that may be sent to another thread, boxed.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A question that one member may ask another.
pub trait Request: Serialize + DeserializeOwned {
    /// Its number on the wire. Never given to another request again.
    const METHOD: u16;
    /// Its name in logs.
    const NAME: &'static str;
    /// What is answered.
    type Reply: Serialize + DeserializeOwned;
}

/// A request whose reply is only the beginning: frames follow on the same stream, both ways.
pub trait StreamingRequest: Request {}

/// What is done with a stream once it is open. Dropped when the asker has gone or the link ends.
pub type Talk = Box<dyn FnOnce(FrameReader, FrameWriter) -> BoxFuture<()> + Send>;

/// Why a member did not answer a request. It says so itself: except for `Failed` and
/// `DeadlineExceeded` the request had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It does not know the method: an older release, or one that does not serve it.
    #[error("the member does not serve this method")]
    Unsupported,
    /// It serves as many requests as it may. Ask again later.
    #[error("the member is busy")]
    Busy,
    /// The request or its reply is longer than the member allows.
    #[error("the request or its reply is too large")]
    TooLarge,
    /// It did not understand the request.
    #[error("the request is malformed: {0}")]
    Malformed(String),
    /// It gave up when the asker's deadline passed. Part of the work may have been done.
    #[error("the member did not finish by the deadline")]
    DeadlineExceeded,
    /// It tried and failed. Part of the work may have been done.
    #[error("failed: {0}")]
    Failed(String),
    /// The asker may not ask for this.
    #[error("not allowed: {0}")]
    NotAllowed(String),
}

/// Why a request has no reply. Each says what is known of its effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no link to the member. Nothing was sent.
    #[error("there is no link to the member")]
    NoLink,
    /// Too long to be sent. Nothing was sent.
    #[error("the request has {given} bytes, the limit is {limit}")]
    TooLarge {
        /// How long it is.
        given: usize,
        /// How long it may be.
        limit: usize,
    },
    /// No reply came in time, here or in the member's own judgement. Whether it was done is unknown.
    #[error("no reply came by the deadline")]
    Deadline,
    /// The link ended before the reply. Whether it was done is unknown.
    #[error("the link was lost: {0}")]
    Lost(String),
    /// The member refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A reply came and was not understood. The request was probably done.
    #[error("the reply was not understood: {0}")]
    BadReply(String),
}

/// Answers what other members ask. Called once per request, on the link's own task.
pub trait Service: Send + Sync {
    /// The reply's bytes to `body`, asked by `from` (as its certificate says). The future is dropped
    /// when the asker gives up, when the link ends, and after `deadline`.
    fn answer(
        &self,
        from: MemberIdentity,
        method: u16,
        body: Bytes,
        deadline: Duration,
    ) -> BoxFuture<Result<Vec<u8>, Refusal>>;

    /// Whether the answer to this method goes on as a stream: then [`Service::converse`] is called.
    fn talks(&self, _method: u16) -> bool {
        false
    }

    /// The reply's bytes, and what is done with the stream then.
    fn converse(
        &self,
        _from: MemberIdentity,
        _method: u16,
        _body: Bytes,
    ) -> BoxFuture<Result<(Vec<u8>, Talk), Refusal>> {
        Box::pin(std::future::ready(Err(Refusal::Unsupported)))
    }
}

/// One method's handler: reads the body, answers, writes the reply.
type Handler = Box<
    dyn Fn(MemberIdentity, Bytes, Duration) -> BoxFuture<Result<Vec<u8>, Refusal>> + Send + Sync,
>;

/// The same for a method whose answer goes on.
type Opener =
    Box<dyn Fn(MemberIdentity, Bytes) -> BoxFuture<Result<(Vec<u8>, Talk), Refusal>> + Send + Sync>;

/// A [`Service`] of typed handlers. Without any it refuses everything.
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

    /// Lets `handle` answer requests of type `R`.
    ///
    /// # Panics
    /// If the method has a handler already: two requests were given the same number.
    #[must_use]
    pub fn on<R, F, A>(mut self, handle: F) -> Self
    where
        R: Request + 'static,
        F: Fn(MemberIdentity, R, Duration) -> A + Send + Sync + 'static,
        A: Future<Output = Result<R::Reply, Refusal>> + Send + 'static,
    {
        let handler: Handler = Box::new(move |from, body, deadline| {
            // The transport measured the body while it came; here any length is allowed.
            match codec::decode::<R>(&body, usize::MAX) {
                Ok(request) => {
                    let answer = handle(from, request, deadline);
                    Box::pin(async move { Ok(codec::encode(&answer.await?)) })
                }
                Err(error) => {
                    let refusal = Refusal::Malformed(format!("{}: {error}", R::NAME));
                    Box::pin(std::future::ready(Err(refusal)))
                }
            }
        });
        self.must_be_free::<R>();
        self.handlers.insert(R::METHOD, handler);
        self
    }

    /// Lets `open` answer requests of type `R`, and go on with the stream. It must not take long: what
    /// does is for the talk.
    ///
    /// # Panics
    /// If the method has a handler already: two requests were given the same number.
    #[must_use]
    pub fn on_stream<R, F, A>(mut self, open: F) -> Self
    where
        R: StreamingRequest + 'static,
        F: Fn(MemberIdentity, R) -> A + Send + Sync + 'static,
        A: Future<Output = Result<(R::Reply, Talk), Refusal>> + Send + 'static,
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
                    let refusal = Refusal::Malformed(format!("{}: {error}", R::NAME));
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
    ) -> BoxFuture<Result<Vec<u8>, Refusal>> {
        match self.handlers.get(&method) {
            Some(handler) => handler(from, body, deadline),
            None => Box::pin(std::future::ready(Err(Refusal::Unsupported))),
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
    ) -> BoxFuture<Result<(Vec<u8>, Talk), Refusal>> {
        match self.openers.get(&method) {
            Some(opener) => opener(from, body),
            None => Box::pin(std::future::ready(Err(Refusal::Unsupported))),
        }
    }
}
