//! Streams: requests whose answer goes on, in both directions, for as long as it takes.
//!
//! One begins as every request does; after the reply's body frames follow on the same QUIC stream
//! (`volvox_protocol::stream`). QUIC's flow control makes a sender wait for a reader: what is unread
//! of one stream is bounded by its window, and a stream's window is added to the connection's for as
//! long as it is open, so that one that nobody reads holds up nothing else on the link.
//!
//! Whoever drops its end breaks the stream off for the other. The end of the link ends it too, and so
//! does a silence of [`IDLE`]: who has nothing to say says [`Frame::StillHere`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use quinn::{ReadError, RecvStream, WriteError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use volvox_protocol::stream::{Frame, FrameError};

use super::link::{BROKEN_OFF, Link, Outgoing};
use super::rpc::{self, Then};
use super::{Inner, Reason, Transport, words};
use crate::codec;
use crate::identity::MemberId;
use crate::request::frame::{self, RequestHead};
use crate::request::{AskError, Refusal, StreamingRequest};

/// How long the other end may say nothing at all, and how long it may take nothing.
pub const IDLE: Duration = Duration::from_secs(60);
/// How long a writer that cannot get on waits: a reader who is slow is waited for, not one who is gone.
const STALL: Duration = Duration::from_secs(600);
/// Bytes that are taken from a stream at once.
const CHUNK: usize = 32 << 10;

/// Why a stream ended before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The other end broke it off.
    #[error("the other end broke off the stream")]
    BrokenOff,
    /// The link ended.
    #[error("the link was lost: {0}")]
    Lost(String),
    /// The other end said something that is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other end said nothing, or took nothing, for too long.
    #[error("the other end is silent")]
    Silent,
}

/// A place among the streams of a link and of all, and the room for what is unread of it.
struct StreamPermit {
    inner: Arc<Inner>,
    link: Arc<Link>,
    _permits: [OwnedSemaphorePermit; 2],
}

impl StreamPermit {
    /// Takes a place; none: there are as many as there may be.
    fn take(inner: &Arc<Inner>, link: &Arc<Link>) -> Option<Arc<StreamPermit>> {
        let of_link = link.streams.clone().try_acquire_owned().ok()?;
        let of_all = inner.streams.clone().try_acquire_owned().ok()?;
        let permits = [of_link, of_all];
        link.widen(inner, 1);
        Some(Arc::new(StreamPermit { inner: inner.clone(), link: link.clone(), _permits: permits }))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.link.widen(&self.inner, -1);
    }
}

/// The end of a stream from which frames come.
pub struct FrameReader {
    stream: RecvStream,
    buffer: BytesMut,
    idle: Duration,
    done: bool,
    _lease: Arc<StreamPermit>,
}

impl FrameReader {
    /// The next frame; none: the other end has said all. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Option<Frame>, StreamError> {
        loop {
            if let Some((frame, used)) = Frame::take(&self.buffer)? {
                self.buffer.advance(used);
                return Ok(Some(frame));
            }
            let read = timeout(self.idle, self.stream.read_chunk(CHUNK, true)).await;
            match read.map_err(|_| StreamError::Silent)? {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk.bytes),
                Ok(None) => {
                    self.done = true;
                    // A frame that was cut is as good as none.
                    return Ok(None);
                }
                Err(ReadError::Reset(_)) => return Err(StreamError::BrokenOff),
                Err(error) => return Err(StreamError::Lost(words(&error))),
            }
        }
    }

    /// Another time of silence than [`IDLE`].
    #[must_use]
    pub fn with_idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        if !self.done {
            // Already stopped or ended: then there is nobody to tell.
            let _ = self.stream.stop(BROKEN_OFF);
        }
    }
}

/// The end of a stream to which frames go. Dropped before [`FrameWriter::finish`] it is broken off.
pub struct FrameWriter {
    stream: Outgoing,
    /// What is left to be sent of a frame.
    pending: Bytes,
    _lease: Arc<StreamPermit>,
}

impl FrameWriter {
    /// Sends a frame: waits for room in QUIC's buffers, which is there when the reader reads.
    pub async fn send(&mut self, frame: &Frame) -> Result<(), StreamError> {
        self.flush().await?;
        self.begin(frame);
        self.flush().await
    }

    /// Takes a frame to be sent by [`FrameWriter::flush`], for who has other things to wait for. Not
    /// before the last one is sent.
    pub fn begin(&mut self, frame: &Frame) {
        debug_assert!(self.pending.is_empty(), "the last frame is sent");
        self.pending = Bytes::from(frame.encode());
    }

    /// Whether a frame is not sent yet.
    pub fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Says that this was all. What was sent still arrives.
    pub async fn finish(mut self) -> Result<(), StreamError> {
        self.flush().await?;
        self.stream.finish_with(&mut []).await.map_err(|error| broken(&error))
    }

    /// Sends what was begun. May be dropped and called again.
    pub async fn flush(&mut self) -> Result<(), StreamError> {
        while !self.pending.is_empty() {
            let written = timeout(STALL, self.stream.stream.write(&self.pending)).await;
            let written = written.map_err(|_| StreamError::Silent)?;
            self.pending.advance(written.map_err(|error| broken(&error))?);
        }
        Ok(())
    }
}

fn broken(error: &WriteError) -> StreamError {
    match error {
        WriteError::Stopped(_) | WriteError::ClosedStream => StreamError::BrokenOff,
        WriteError::ConnectionLost(_) | WriteError::ZeroRttRejected => {
            StreamError::Lost(words(error))
        }
    }
}

impl Transport {
    /// Opens a stream: asks as [`Transport::ask`] does, for at most `deadline`, and then has both ends
    /// of what follows.
    pub fn converse<R: StreamingRequest>(
        &self,
        to: MemberId,
        request: &R,
        deadline: Duration,
    ) -> impl Future<Output = Result<(R::Reply, FrameReader, FrameWriter), AskError>> + Send + use<R>
    {
        let inner = self.inner.clone();
        let body = codec::encode(request);
        async move {
            let link = inner.link(to).ok_or(AskError::NoLink)?;
            let lease =
                StreamPermit::take(&inner, &link).ok_or(AskError::Refused(Refusal::Busy))?;
            let begun = rpc::exchange(&inner, &link, R::METHOD, body, deadline, Then::GoOn);
            let begun = timeout(deadline, begun).await.map_err(|_| AskError::Deadline)??;
            let (reply, stream, incoming) = begun;
            let reply = codec::decode(&reply, inner.settings.reply_limit)
                .map_err(|error| AskError::BadReply(format!("{}: {error}", R::NAME)))?;
            let (reader, writer) = ends(incoming, stream, lease);
            Ok((reply, reader, writer))
        }
    }
}

fn ends(
    incoming: RecvStream,
    stream: Outgoing,
    lease: Arc<StreamPermit>,
) -> (FrameReader, FrameWriter) {
    let reader = FrameReader {
        stream: incoming,
        buffer: BytesMut::new(),
        idle: IDLE,
        done: false,
        _lease: lease.clone(),
    };
    (reader, FrameWriter { stream, pending: Bytes::new(), _lease: lease })
}

/// Serves one that is asked for, and ends when the asker does not listen any more.
pub(super) async fn serve(
    inner: Arc<Inner>,
    link: Arc<Link>,
    mut reply: Outgoing,
    mut request: RecvStream,
    head: RequestHead,
) {
    let stopped = reply.stream.stopped();
    let serving = async {
        let Some(lease) = StreamPermit::take(&inner, &link) else {
            inner.tally.count(Reason::RequestBusy, link.peer.identity.member);
            return refuse(&mut reply, Refusal::Busy).await;
        };
        let opening = timeout(head.deadline, open(&inner, &link, &mut request, head)).await;
        let opened = opening.unwrap_or(Some(Err(Refusal::DeadlineExceeded)));
        let (body, talk) = match opened {
            None => return,
            Some(Err(refusal)) => return refuse(&mut reply, refusal).await,
            Some(Ok(opened)) => opened,
        };
        let bytes = Bytes::from(frame::reply(Ok(body)));
        if reply.write(&mut [bytes]).await.is_err() {
            return;
        }
        let (reader, writer) = ends(request, reply, lease);
        talk(reader, writer).await;
    };
    tokio::select! {
        () = serving => {}
        _ = stopped => {}
    }
}

/// None: the asker broke it off.
async fn open(
    inner: &Inner,
    link: &Link,
    request: &mut RecvStream,
    head: RequestHead,
) -> Option<Result<(Vec<u8>, crate::request::Talk), Refusal>> {
    let body = match rpc::body(inner, link, request, head).await? {
        Ok(body) => body,
        Err(refusal) => return Some(Err(refusal)),
    };
    let from = link.peer.identity.clone();
    Some(inner.service.converse(from, head.method, body).await)
}

async fn refuse(reply: &mut Outgoing, refusal: Refusal) {
    let bytes = Bytes::from(frame::reply(Err(refusal)));
    // Who does not take it does without.
    let _ = timeout(rpc::REPLY_DEADLINE, reply.finish_with(&mut [bytes])).await;
}
