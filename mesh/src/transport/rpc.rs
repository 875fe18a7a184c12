//! Requests on a link: sends requests, and serves those of peers.
//!
//! A request is one bidirectional stream. When the caller drops its future, the stream is reset and
//! the serving side drops its own future. The end of the link and the deadline of either side do
//! the same. No memory is allocated for a length that a peer merely claims.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{ReadError, ReadExactError, RecvStream, WriteError};
use tokio::time::timeout;

use super::link::{Link, Outgoing, StreamRefusal, Take, take_in};
use super::{Reason, Transport, TransportInner, stream, words};
use crate::codec;
use crate::identity::MemberId;
use crate::request::frame::{self, REFUSAL_TEXT, REPLY_HEAD, REQUEST_HEAD};
use crate::request::{AskError, Request, RpcRefusal};

/// Time limit for the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for a peer to accept a reply.
pub(super) const REPLY_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum time for serving a request, whatever deadline the caller sets.
const SERVE_MOST: Duration = Duration::from_secs(600);

impl Transport {
    /// Sends a request to a member and waits for its reply, for at most `deadline`. Dropping the
    /// future cancels the request on the other side too. Without a link it fails immediately.
    pub fn ask<R: Request>(
        &self,
        to: MemberId,
        request: &R,
        deadline: Duration,
    ) -> impl Future<Output = Result<R::Reply, AskError>> + Send + use<R> {
        let inner = self.inner.clone();
        let body = codec::encode(request);
        async move {
            let call = call(&inner, to, R::METHOD, body, deadline);
            let reply = timeout(deadline, call).await.map_err(|_| AskError::Deadline)??;
            codec::decode(&reply, inner.settings.reply_limit)
                .map_err(|error| AskError::BadReply(format!("{}: {error}", R::NAME)))
        }
    }
}

/// Sends one request and receives the reply.
async fn call(
    inner: &TransportInner,
    to: MemberId,
    method: u16,
    body: Vec<u8>,
    deadline: Duration,
) -> Result<Bytes, AskError> {
    let link = inner.link(to).ok_or(AskError::NoLink)?;
    let (reply, ..) = exchange(inner, &link, method, body, deadline, Then::End).await?;
    Ok(reply)
}

/// What follows the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The stream ends.
    End,
    /// The stream stays open for frames.
    GoOn,
}

/// Sends a request and receives the reply. Also returns both ends of the stream.
pub(super) async fn exchange(
    inner: &TransportInner,
    link: &Link,
    method: u16,
    body: Vec<u8>,
    deadline: Duration,
    then: Then,
) -> Result<(Bytes, Outgoing, RecvStream), AskError> {
    let started = Instant::now();
    let limit = inner.settings.request_limit;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= limit);
    let length = length.ok_or(AskError::TooLarge { given: body.len(), limit })?;
    link.touch(inner);
    let lost = |error: &quinn::ConnectionError| AskError::Lost(words(error));
    let (request, mut reply) = link.connection.open_bi().await.map_err(|error| lost(&error))?;
    let deadline = deadline.saturating_sub(started.elapsed());
    let head = frame::RequestHead { method, deadline, length }.encode();
    let mut request = Outgoing::new(request);
    let mut parts = [Bytes::copy_from_slice(&head), Bytes::from(body)];
    let sent = match then {
        Then::End => request.finish_with(&mut parts).await,
        Then::GoOn => request.write(&mut parts).await,
    };
    match sent {
        // The peer stopped reading the request, and its reply gives the reason.
        Ok(()) | Err(WriteError::Stopped(_)) => {}
        Err(WriteError::ConnectionLost(error)) => return Err(lost(&error)),
        Err(error) => return Err(AskError::Lost(words(&error))),
    }
    let body = take_reply(inner, link, &mut reply).await?;
    Ok((body, request, reply))
}

/// Reads the reply and returns its body.
async fn take_reply(
    inner: &TransportInner,
    link: &Link,
    reply: &mut RecvStream,
) -> Result<Bytes, AskError> {
    let mut head = [0; REPLY_HEAD];
    reply.read_exact(&mut head).await.map_err(|error| match error {
        ReadExactError::FinishedEarly(_) => AskError::BadReply("it ends too early".into()),
        ReadExactError::ReadError(error) => broken(error),
    })?;
    let head = frame::ReplyHead::decode(&head)
        .ok_or_else(|| AskError::BadReply("it does not begin like a reply".into()))?;
    let limit = if head.is_ok() { inner.settings.reply_limit } else { REFUSAL_TEXT };
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    if length > limit {
        let text = format!("it has {length} bytes, the limit is {limit}");
        return Err(AskError::BadReply(text));
    }
    let taken = take_in(inner, link, reply, Take::Exactly(length)).await;
    let body = taken.map_err(|refused| match refused {
        StreamRefusal::Broken(error) => broken(error),
        StreamRefusal::OverBudget => {
            inner.tally.count(Reason::OverBudget, link.peer.identity.member);
            AskError::BadReply("too many bytes came at once".into())
        }
        StreamRefusal::Short | StreamRefusal::TooLarge => {
            AskError::BadReply("it ends too early".into())
        }
    })?;
    link.touch(inner);
    if head.is_ok() {
        return Ok(body);
    }
    match head.refusal(&body) {
        // The clock of the member was slightly ahead. The result is the same as if the deadline had
        // passed here first.
        RpcRefusal::DeadlineExceeded => Err(AskError::Deadline),
        refusal => Err(AskError::Refused(refusal)),
    }
}

/// Converts a read error of a reply.
fn broken(error: ReadError) -> AskError {
    match error {
        ReadError::Reset(_) => {
            AskError::Refused(RpcRefusal::Failed("the member broke off the request".into()))
        }
        ReadError::ConnectionLost(error) => AskError::Lost(words(&error)),
        error @ (ReadError::ClosedStream
        | ReadError::IllegalOrderedRead
        | ReadError::ZeroRttRejected) => AskError::Lost(words(&error)),
    }
}

/// Serves one request. Stops early if the caller cancels.
pub(super) async fn serve(
    inner: Arc<TransportInner>,
    link: Arc<Link>,
    mut reply: Outgoing,
    mut request: RecvStream,
) {
    link.touch(&inner);
    let mut stopped = std::pin::pin!(reply.stream.stopped());
    let head = tokio::select! {
        head = take_head(&mut request) => head,
        _ = &mut stopped => return,
    };
    let answer = match head {
        None => return,
        Some(Err(refusal)) => Some(Err(refusal)),
        Some(Ok(head)) if inner.service.talks(head.method) => {
            return stream::serve(inner, link, reply, request, head).await;
        }
        Some(Ok(head)) => tokio::select! {
            answer = answer(&inner, &link, &mut request, head) => answer,
            _ = &mut stopped => return,
        },
    };
    let Some(answer) = answer else { return };
    let answer = answer.and_then(|body| match body.len() <= inner.settings.reply_limit {
        true => Ok(body),
        false => Err(RpcRefusal::TooLarge),
    });
    let reason = match &answer {
        Err(RpcRefusal::Busy) => Some(Reason::RequestBusy),
        Err(RpcRefusal::TooLarge) => Some(Reason::RequestTooLarge),
        Err(RpcRefusal::Malformed(_)) => Some(Reason::RequestMalformed),
        Ok(_)
        | Err(
            RpcRefusal::Unsupported
            | RpcRefusal::DeadlineExceeded
            | RpcRefusal::Failed(_)
            | RpcRefusal::NotAllowed(_),
        ) => None,
    };
    if let Some(reason) = reason {
        inner.tally.count(reason, link.peer.identity.member);
    }
    let bytes = Bytes::from(frame::reply(answer));
    // A peer that does not accept its reply gets none: dropping the stream resets it.
    let _ = timeout(REPLY_DEADLINE, reply.finish_with(&mut [bytes])).await;
}

/// Reads the head of a request. `None`: the caller reset the stream.
async fn take_head(request: &mut RecvStream) -> Option<Result<frame::RequestHead, RpcRefusal>> {
    let malformed = |text: &str| Some(Err(RpcRefusal::Malformed(text.into())));
    let mut head = [0; REQUEST_HEAD];
    match timeout(HEAD_DEADLINE, request.read_exact(&mut head)).await {
        Ok(Ok(())) => {}
        Ok(Err(ReadExactError::ReadError(_))) => return None,
        Ok(Err(ReadExactError::FinishedEarly(_))) => return malformed("it ends too early"),
        Err(_) => return malformed("it did not begin in time"),
    }
    match frame::RequestHead::decode(&head) {
        Some(head) => Some(Ok(head)),
        None => malformed("it does not begin like a request"),
    }
}

/// Reads the body of a request. `None`: the caller reset the stream.
pub(super) async fn body(
    inner: &TransportInner,
    link: &Link,
    request: &mut RecvStream,
    head: frame::RequestHead,
) -> Option<Result<Bytes, RpcRefusal>> {
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    if length > inner.settings.request_limit {
        return Some(Err(RpcRefusal::TooLarge));
    }
    match take_in(inner, link, request, Take::Exactly(length)).await {
        Ok(body) => Some(Ok(body)),
        Err(StreamRefusal::OverBudget) => Some(Err(RpcRefusal::Busy)),
        Err(StreamRefusal::Short | StreamRefusal::TooLarge) => {
            Some(Err(RpcRefusal::Malformed("it ends too early".into())))
        }
        Err(StreamRefusal::Broken(_)) => None,
    }
}

/// Reads the body and calls the service. `None`: the caller reset the stream.
async fn answer(
    inner: &TransportInner,
    link: &Link,
    request: &mut RecvStream,
    head: frame::RequestHead,
) -> Option<Result<Vec<u8>, RpcRefusal>> {
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    if length > inner.settings.request_limit {
        return Some(Err(RpcRefusal::TooLarge));
    }
    let (Ok(_of_link), Ok(_of_all)) = (link.serving.try_acquire(), inner.requests.try_acquire())
    else {
        return Some(Err(RpcRefusal::Busy));
    };
    let deadline = head.deadline.min(SERVE_MOST);
    let work = async {
        let body = match body(inner, link, request, head).await? {
            Ok(body) => body,
            Err(refusal) => return Some(Err(refusal)),
        };
        let from = link.peer.identity.clone();
        Some(inner.service.answer(from, head.method, body, deadline).await)
    };
    timeout(deadline, work).await.unwrap_or(Some(Err(RpcRefusal::DeadlineExceeded)))
}
