//! One connection: the tasks that read from it and write to it.
//!
//! Each connection has one task, and a task per stream under it. They all end when the connection
//! ends. The link is then removed from the pool in every case, also after a panic.
//!
//! Sending never waits. Datagrams go into QUIC's own buffer, which drops the oldest. Messages by
//! stream go into an [`StreamQueue`], in which the newest message replaces the oldest.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quinn::{Connection, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use volvox_host::clock::monotonic;
use volvox_host::sync::lock;

use super::peer_quota::{AdmitResult, PeerQuota};
use super::pool::{PooledConnection, Removed};
use super::settings::STREAM_WINDOW;
use super::{
    Code, DATAGRAM_LIMIT, LinkInfo, MESSAGE_LIMIT, Peer, Reason, TransportEvent, TransportInner,
    canonical, rpc, words,
};
use crate::member::Delivery;

/// Limits of the outbox of one link: messages, and bytes.
const OUTBOX_MESSAGES: usize = 16;
const OUTBOX_BYTES: usize = 2 << 20;
/// Maximum number of bytes per read from a stream.
const CHUNK: usize = 64 << 10;
/// Maximum receive window of a connection, in bytes.
const WINDOW_MOST: u32 = 1 << 30;
/// QUIC error code of a stream that is reset or stopped.
pub(super) const BROKEN_OFF: VarInt = VarInt::from_u32(1);

/// One connection of a link.
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) peer: Peer,
    pub(super) connection: Connection,
    pub(super) dialled: bool,
    pub(super) version: u16,
    /// Free slots for requests that are served at the same time.
    pub(super) serving: Semaphore,
    /// Free slots for open streams, opened by either side.
    pub(super) streams: Arc<Semaphore>,
    /// Number of open streams. Locked while the window is set, so that the last call sets the right
    /// value.
    open: Mutex<u32>,
    /// Quota of the member, shared by all its connections.
    pub(super) quota: Arc<PeerQuota>,
    used: AtomicU64,
    outbox: Mutex<StreamQueue>,
}

impl PooledConnection for Arc<Link> {
    fn id(&self) -> u64 {
        self.id
    }
    fn last_used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
    fn dialled(&self) -> bool {
        self.dialled
    }
    fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Link {
    pub(super) fn new(
        inner: &TransportInner,
        peer: Peer,
        connection: Connection,
        dialled: bool,
        version: u16,
    ) -> Arc<Self> {
        let quota = inner.quota(peer.identity.member);
        // A member may send more than an unauthenticated peer.
        connection.set_receive_window(VarInt::from_u32(inner.settings.receive_window));
        let link = Self {
            id: inner.connections.fetch_add(1, Ordering::Relaxed),
            peer,
            connection,
            dialled,
            version,
            serving: Semaphore::new(inner.settings.requests_per_link),
            streams: Arc::new(Semaphore::new(inner.settings.streams_per_link)),
            open: Mutex::new(0),
            quota,
            used: AtomicU64::new(0),
            outbox: Mutex::default(),
        };
        link.touch(inner);
        Arc::new(link)
    }

    /// Marks the link as used now.
    pub(super) fn touch(&self, inner: &TransportInner) {
        self.used.store(inner.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Changes the number of open streams by `by`. A stream may have as many unread bytes as its
    /// window. The window of the connection grows by that, so that other traffic is not blocked.
    pub(super) fn widen(&self, inner: &TransportInner, by: i32) {
        let mut open = lock(&self.open);
        *open = open.saturating_add_signed(by);
        let window =
            inner.settings.receive_window.saturating_add(open.saturating_mul(STREAM_WINDOW));
        self.connection.set_receive_window(VarInt::from_u32(window.min(WINDOW_MOST)));
    }

    fn has_streams(&self) -> bool {
        *lock(&self.open) > 0
    }

    /// Whether the member has a newer connection, which is used for sending.
    fn is_superseded(&self, inner: &TransportInner) -> bool {
        inner.link(self.peer.identity.member).is_some_and(|latest| latest.id != self.id)
    }

    pub(super) fn close(&self, code: Code, reason: &str) {
        self.connection.close(code.into(), reason.as_bytes());
    }

    pub(super) fn info(&self) -> LinkInfo {
        let sent = self.connection.stats().udp_tx;
        LinkInfo {
            sent_packets: sent.datagrams,
            sent_bytes: sent.bytes,
            member: self.peer.identity.member,
            kind: self.peer.identity.kind,
            address: canonical(self.connection.remote_address()),
            dialled: self.dialled,
            version: self.version,
            round_trip: self.connection.rtt(),
        }
    }

    pub(super) fn send(
        self: &Arc<Self>,
        inner: &Arc<TransportInner>,
        bytes: Bytes,
        delivery: Delivery,
    ) {
        self.touch(inner);
        let room = self.connection.max_datagram_size().unwrap_or(0).min(DATAGRAM_LIMIT);
        if delivery == Delivery::Datagram && bytes.len() <= room {
            match self.connection.send_datagram(bytes.clone()) {
                Ok(()) => return,
                // The connection has just ended; `LinkDown` will follow.
                Err(quinn::SendDatagramError::ConnectionLost(_)) => {
                    return inner.tally.count(Reason::NoLink, self.peer.identity.member);
                }
                // The maximum datagram size of the path has just become smaller.
                Err(_) => {}
            }
        }
        if bytes.len() > MESSAGE_LIMIT {
            let length = bytes.len();
            inner.tally.count(Reason::Oversized, format_args!("{length} bytes to be sent"));
            return;
        }
        let (replaced, idle) = lock(&self.outbox).push(bytes);
        for _ in 0..replaced {
            inner.tally.count(Reason::SendReplaced, self.peer.identity.member);
        }
        if idle {
            tokio::spawn(drain(inner.clone(), self.clone()));
        }
    }
}

/// Messages that wait to be sent by stream. A task empties the outbox and ends when it is empty, so
/// a quiet link has no task for it.
#[derive(Default)]
struct StreamQueue {
    queue: VecDeque<Bytes>,
    bytes: usize,
    draining: bool,
}

impl StreamQueue {
    /// Adds a message. Returns how many older messages it replaced, and whether the caller must
    /// start a task.
    fn push(&mut self, message: Bytes) -> (usize, bool) {
        let mut replaced = 0;
        while self.queue.len() >= OUTBOX_MESSAGES || self.bytes + message.len() > OUTBOX_BYTES {
            let Some(oldest) = self.queue.pop_front() else { break };
            self.bytes -= oldest.len();
            replaced += 1;
        }
        self.bytes += message.len();
        self.queue.push_back(message);
        (replaced, !std::mem::replace(&mut self.draining, true))
    }

    /// Removes the next message. `None`: the outbox is empty and the task must end.
    fn pop(&mut self) -> Option<Bytes> {
        let message = self.queue.pop_front();
        self.bytes -= message.as_ref().map_or(0, Bytes::len);
        self.draining = message.is_some();
        message
    }
}

/// Sends the messages in the outbox, one after the other.
async fn drain(inner: Arc<TransportInner>, link: Arc<Link>) {
    loop {
        let Some(message) = lock(&link.outbox).pop() else { return };
        let sent = timeout(inner.settings.message_deadline, async {
            let stream = link.connection.open_uni().await.map_err(WriteError::ConnectionLost)?;
            Outgoing::new(stream).finish_with(&mut [message]).await
        });
        if !matches!(sent.await, Ok(Ok(()))) {
            inner.tally.count(Reason::SendFailed, link.peer.identity.member);
        }
    }
}

/// A stream for writing. If it is dropped before the end, it is reset. quinn alone would finish it,
/// and the reader would take the first part for the whole.
pub(super) struct Outgoing {
    pub(super) stream: SendStream,
    done: bool,
}

impl Outgoing {
    pub(super) fn new(stream: SendStream) -> Self {
        Self { stream, done: false }
    }

    /// Writes all parts and leaves the stream open.
    pub(super) async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), WriteError> {
        self.stream.write_all_chunks(parts).await
    }

    /// Writes all parts and finishes the stream. Waits for free space in the buffers, not for the
    /// peer to read.
    pub(super) async fn finish_with(&mut self, parts: &mut [Bytes]) -> Result<(), WriteError> {
        self.stream.write_all_chunks(parts).await?;
        self.done = true;
        self.stream.finish().map_err(|_| WriteError::ClosedStream)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.done {
            // An error means that the stream is already closed: there is no peer to notify.
            let _ = self.stream.reset(BROKEN_OFF);
        }
    }
}

/// Why bytes of a stream were refused.
#[derive(Debug)]
pub(super) enum StreamRefusal {
    /// The stream has more bytes than allowed.
    TooLarge,
    /// The memory budget is used up, of all links or of this member.
    OverBudget,
    /// The stream ended before the expected length.
    Short,
    /// The stream was reset or the link ended.
    Broken(ReadError),
}

/// Received bytes with the permits of the memory budget. When the last copy is dropped, the permits
/// are returned.
struct CountedBytes {
    bytes: Vec<u8>,
    _shares: [Option<OwnedSemaphorePermit>; 2],
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// How much of a stream to read.
#[derive(Clone, Copy)]
pub(super) enum Take {
    /// All of it, if it has at most this many bytes.
    UpTo(usize),
    /// Exactly this many bytes. The rest stays unread.
    Exactly(usize),
}

/// Reads bytes. Memory grows with the bytes received, not with a length that the peer claims.
pub(super) async fn take_in(
    inner: &TransportInner,
    link: &Link,
    stream: &mut RecvStream,
    take: Take,
) -> Result<Bytes, StreamRefusal> {
    let mut bytes = Vec::new();
    let inbound = [&link.quota.inbound, &inner.inbound];
    let mut shares: [Option<OwnedSemaphorePermit>; 2] = [None, None];
    loop {
        let room = match take {
            Take::Exactly(length) if bytes.len() == length => break,
            Take::Exactly(length) => length - bytes.len(),
            // One byte more than allowed, to detect a longer stream.
            Take::UpTo(limit) => limit + 1 - bytes.len(),
        };
        let chunk =
            stream.read_chunk(room.min(CHUNK), true).await.map_err(StreamRefusal::Broken)?;
        let Some(chunk) = chunk else {
            if matches!(take, Take::Exactly(_)) {
                return Err(StreamRefusal::Short);
            }
            break;
        };
        let length = u32::try_from(chunk.bytes.len()).expect("a chunk has at most CHUNK bytes");
        for (of, quota) in inbound.into_iter().zip(&mut shares) {
            let more = of.clone().try_acquire_many_owned(length);
            let more = more.map_err(|_| StreamRefusal::OverBudget)?;
            match quota {
                Some(quota) => quota.merge(more),
                None => *quota = Some(more),
            }
        }
        bytes.extend_from_slice(&chunk.bytes);
        if matches!(take, Take::UpTo(limit) if bytes.len() > limit) {
            return Err(StreamRefusal::TooLarge);
        }
    }
    Ok(Bytes::from_owner(CountedBytes { bytes, _shares: shares }))
}

/// Removes the link from the pool when its task ends, also after a panic.
struct PoolGuard {
    inner: Arc<TransportInner>,
    link: Arc<Link>,
}

impl Drop for PoolGuard {
    fn drop(&mut self) {
        let (inner, link) = (&self.inner, &self.link);
        if std::thread::panicking() {
            inner.tally.count(Reason::Panicked, "a link's task");
        }
        let reason = match link.connection.close_reason() {
            Some(reason) => words(&reason),
            None => "its task ended".into(),
        };
        // Has an effect only if the connection is not closed yet: after a panic.
        link.close(Code::Done, "");
        let member = link.peer.identity.member;
        let mut state = inner.state();
        if state.pool.remove(member, link.id) == Removed::Last {
            state.link_changes.down(member, reason);
        }
        state.forget_shares(monotonic());
        drop(state);
        inner.news.notify_one();
    }
}

/// Reads from a connection until it ends. Packets wait until `told` resolves, so that the owner
/// receives `LinkUp` first; requests do not wait.
///
/// A superseded connection that is unused for the idle timeout is closed by the side that dialled
/// it. Without that, keep-alives would keep it open without a time limit. If both sides closed,
/// each could close the connection that the other one uses.
pub(super) async fn run(
    inner: Arc<TransportInner>,
    link: Arc<Link>,
    mut told: oneshot::Receiver<()>,
) {
    let seated = PoolGuard { inner: inner.clone(), link: link.clone() };
    // Must end before `seated` is dropped: no packet may come after `LinkDown`.
    let mut streams = JoinSet::new();
    let mut open = false;
    let connection = &link.connection;
    let mut looks = tokio::time::interval(inner.settings.idle_timeout);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut used = None;
    loop {
        tokio::select! {
            _ = looks.tick() => {
                let last = used.replace(link.last_used());
                let is_unused = last == used && !link.has_streams();
                if link.dialled && is_unused && link.is_superseded(&inner) {
                    link.close(Code::Done, "a newer connection is used");
                }
            }
            _ = &mut told, if !open => open = true,
            datagram = connection.read_datagram(), if open => match datagram {
                Ok(bytes) => deliver(&inner, &link, bytes),
                Err(_) => break,
            },
            stream = connection.accept_uni(), if open => match stream {
                Ok(stream) => {
                    streams.spawn(read_message(inner.clone(), link.clone(), stream));
                }
                Err(_) => break,
            },
            streams_of_request = connection.accept_bi() => match streams_of_request {
                Ok((reply, request)) => {
                    let reply = Outgoing::new(reply);
                    streams.spawn(rpc::serve(inner.clone(), link.clone(), reply, request));
                }
                Err(_) => break,
            },
            Some(ended) = streams.join_next() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    inner.tally.count(Reason::Panicked, "a stream's task");
                }
            }
        }
    }
    streams.shutdown().await;
    drop(seated);
}

async fn read_message(inner: Arc<TransportInner>, link: Arc<Link>, mut stream: RecvStream) {
    let message = take_in(&inner, &link, &mut stream, Take::UpTo(MESSAGE_LIMIT));
    let reason = match timeout(inner.settings.message_deadline, message).await {
        Ok(Ok(bytes)) => return deliver(&inner, &link, bytes),
        Ok(Err(StreamRefusal::TooLarge)) => Reason::IncomingOversized,
        Ok(Err(StreamRefusal::OverBudget)) => Reason::OverBudget,
        Ok(Err(StreamRefusal::Short | StreamRefusal::Broken(_))) | Err(_) => Reason::IncomingBroken,
    };
    inner.tally.count(reason, link.peer.identity.member);
}

fn deliver(inner: &TransportInner, link: &Link, bytes: Bytes) {
    link.touch(inner);
    let from = link.peer.identity.member;
    let bytes = match link.quota.take(monotonic(), bytes) {
        AdmitResult::QueuedPacket(bytes) => bytes,
        AdmitResult::Excess => return inner.tally.count(Reason::OverShare, from),
        AdmitResult::TooMuch => {
            inner.tally.count(Reason::Barred, format_args!("{from} sends too much"));
            return link.close(Code::Excess, "you send too much");
        }
    };
    let address = canonical(link.connection.remote_address());
    match inner.events.try_send(TransportEvent::Packet { from, address, bytes }) {
        Ok(()) => {}
        Err(mpsc::error::TrySendError::Full(_) | mpsc::error::TrySendError::Closed(_)) => {
            inner.tally.count(Reason::PacketDropped, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_replaces_the_oldest_by_number_and_by_bytes() {
        let mut outbox = StreamQueue::default();
        assert_eq!(outbox.push(Bytes::from_static(b"0")), (0, true));
        for n in 1..OUTBOX_MESSAGES {
            assert_eq!(outbox.push(Bytes::from(n.to_string())), (0, false));
        }
        assert_eq!(outbox.push(Bytes::from_static(b"new")), (1, false));
        assert_eq!(outbox.pop().unwrap(), "1");
        let big = Bytes::from(vec![0; OUTBOX_BYTES]);
        assert_eq!(outbox.push(big.clone()), (OUTBOX_MESSAGES - 1, false));
        assert_eq!(outbox.pop().unwrap(), big);
        assert_eq!(outbox.pop(), None);
        assert_eq!((outbox.bytes, outbox.draining), (0, false));
        assert_eq!(outbox.push(big), (0, true), "the next one starts a task again");
    }
}
