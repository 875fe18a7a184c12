//! Streams: requests after whose reply frames follow, in both directions, without a time limit.
//!
//! A stream starts like every request. After the body of the reply, frames
//! (`volvox_protocol::stream`) follow on the same QUIC stream. QUIC's flow control makes the sender
//! wait for the reader: the window of a stream limits its unread bytes. The window of an open
//! stream is added to the window of the connection, so that an unread stream does not block other
//! traffic on the link.
//!
//! When one side drops its end, the stream is reset for the other side. The stream also ends with
//! the link, and when nothing is received for [`IDLE`]. A side without data sends
//! [`Frame::StillHere`].

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
use super::{Reason, Transport, TransportInner, words};
use crate::codec;
use crate::identity::MemberId;
use crate::request::frame::{self, RequestHead};
use crate::request::{AskError, RpcRefusal, StreamingRequest};

/// Default time that a reader waits for bytes from the other end.
pub const IDLE: Duration = Duration::from_secs(60);
/// How long a writer waits until the other end accepts bytes. Longer than [`IDLE`], so that a slow
/// reader is waited for, but not one that is unreachable.
const STALL: Duration = Duration::from_secs(600);
/// Maximum number of bytes per read from a stream.
const CHUNK: usize = 32 << 10;

/// Why a stream was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The other end reset the stream.
    #[error("the other end broke off the stream")]
    BrokenOff,
    /// The link ended; the text gives the cause.
    #[error("the link was lost: {0}")]
    Lost(String),
    /// The other end sent bytes that are not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other end sent nothing for the reader's time limit ([`IDLE`] by default), or accepted
    /// nothing for ten minutes.
    #[error("the other end is silent")]
    Silent,
}

/// Permit for one open stream: a slot of the link and of all links, and the stream's part of the
/// receive window.
struct StreamPermit {
    inner: Arc<TransportInner>,
    link: Arc<Link>,
    _permits: [OwnedSemaphorePermit; 2],
}

impl StreamPermit {
    /// Takes a permit. `None`: the number of open streams is at its limit.
    fn take(inner: &Arc<TransportInner>, link: &Arc<Link>) -> Option<Arc<StreamPermit>> {
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

/// Receiving end of a stream.
pub struct FrameReader {
    stream: RecvStream,
    buffer: BytesMut,
    idle: Duration,
    done: bool,
    _lease: Arc<StreamPermit>,
}

impl FrameReader {
    /// The next frame. `None`: the other end has sent all frames. The future may be dropped and
    /// `next` called again.
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
                    // A truncated frame at the end is ignored.
                    return Ok(None);
                }
                Err(ReadError::Reset(_)) => return Err(StreamError::BrokenOff),
                Err(error) => return Err(StreamError::Lost(words(&error))),
            }
        }
    }

    /// Sets another time limit than [`IDLE`].
    #[must_use]
    pub fn with_idle(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        if !self.done {
            // An error means that the stream is already stopped or finished: there is no peer to
            // notify.
            let _ = self.stream.stop(BROKEN_OFF);
        }
    }
}

/// Sending end of a stream. If it is dropped before [`FrameWriter::finish`], the stream is reset.
pub struct FrameWriter {
    stream: Outgoing,
    /// Unsent bytes of the current frame. Empty: the frame is sent.
    pending: Bytes,
    _lease: Arc<StreamPermit>,
}

impl FrameWriter {
    /// Sends a frame. Waits for free space in QUIC's buffers, which appears when the reader reads.
    pub async fn send(&mut self, frame: &Frame) -> Result<(), StreamError> {
        self.flush().await?;
        self.begin(frame);
        self.flush().await
    }

    /// Stores a frame that [`FrameWriter::flush`] sends, for callers that also wait for other
    /// events. The previous frame must be sent before.
    pub fn begin(&mut self, frame: &Frame) {
        debug_assert!(self.pending.is_empty(), "the last frame is sent");
        self.pending = Bytes::from(frame.encode());
    }

    /// Whether a frame is not sent completely.
    pub fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the stream. Frames sent before still arrive.
    pub async fn finish(mut self) -> Result<(), StreamError> {
        self.flush().await?;
        self.stream.finish_with(&mut []).await.map_err(|error| broken(&error))
    }

    /// Sends the rest of the stored frame. The future may be dropped and `flush` called again.
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
    /// Opens a stream: sends the request as [`Transport::ask`] does, waits at most `deadline` for
    /// the reply, and returns it with both ends of the stream.
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
                StreamPermit::take(&inner, &link).ok_or(AskError::Refused(RpcRefusal::Busy))?;
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

/// Serves one streaming request. Stops when the caller stops reading.
pub(super) async fn serve(
    inner: Arc<TransportInner>,
    link: Arc<Link>,
    mut reply: Outgoing,
    mut request: RecvStream,
    head: RequestHead,
) {
    let stopped = reply.stream.stopped();
    let serving = async {
        let Some(lease) = StreamPermit::take(&inner, &link) else {
            inner.tally.count(Reason::RequestBusy, link.peer.identity.member);
            return refuse(&mut reply, RpcRefusal::Busy).await;
        };
        let opening = timeout(head.deadline, open(&inner, &link, &mut request, head)).await;
        let opened = opening.unwrap_or(Some(Err(RpcRefusal::DeadlineExceeded)));
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

/// Reads the body and calls the service. `None`: the caller reset the stream.
async fn open(
    inner: &TransportInner,
    link: &Link,
    request: &mut RecvStream,
    head: RequestHead,
) -> Option<Result<(Vec<u8>, crate::request::StreamHandler), RpcRefusal>> {
    let body = match rpc::body(inner, link, request, head).await? {
        Ok(body) => body,
        Err(refusal) => return Some(Err(refusal)),
    };
    let from = link.peer.identity.clone();
    Some(inner.service.converse(from, head.method, body).await)
}

async fn refuse(reply: &mut Outgoing, refusal: RpcRefusal) {
    let bytes = Bytes::from(frame::reply(Err(refusal)));
    // A peer that does not accept the refusal gets none.
    let _ = timeout(rpc::REPLY_DEADLINE, reply.finish_with(&mut [bytes])).await;
}
