//! One connection: what reads from it and what writes to it.
//!
//! Each connection has one task, and a task per stream under it. When the connection ends they all
//! end, and the link is taken out of the pool whatever happened: also after a panic. Sending never
//! waits: datagrams go into QUIC's own buffer, which drops the oldest, and streams into an [`Outbox`]
//! in which the newest message replaces the oldest.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quinn::{Connection, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::peer_quota::{AdmitResult, PeerQuota};
use super::pool::{PooledConnection, Removed};
use super::settings::STREAM_WINDOW;
use super::{
    Code, DATAGRAM_LIMIT, Inner, LinkInfo, MESSAGE_LIMIT, Peer, Reason, TransportEvent, canonical,
    lock, rpc, words,
};
use crate::member::Delivery;

/// How many messages may wait to be sent by stream on one link, and how many bytes.
const OUTBOX_MESSAGES: usize = 16;
const OUTBOX_BYTES: usize = 2 << 20;
/// The most that is taken from a stream at once.
const CHUNK: usize = 64 << 10;
/// The widest window of a connection.
const WINDOW_MOST: u32 = 1 << 30;
/// Why a stream is broken off, on the wire.
pub(super) const BROKEN_OFF: VarInt = VarInt::from_u32(1);

/// One connection of a link.
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) peer: Peer,
    pub(super) connection: Connection,
    pub(super) dialled: bool,
    pub(super) version: u16,
    /// Requests that may still be served at once.
    pub(super) serving: Semaphore,
    /// Streams that may still be open at once, whoever opened them.
    pub(super) streams: Arc<Semaphore>,
    /// Streams that are open. Locked while the window is set, so that the last one to set it is right.
    open: Mutex<u32>,
    /// What the member may send, on this connection and others.
    pub(super) quota: Arc<PeerQuota>,
    used: AtomicU64,
    outbox: Mutex<Outbox>,
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
        inner: &Inner,
        peer: Peer,
        connection: Connection,
        dialled: bool,
        version: u16,
    ) -> Arc<Self> {
        let quota = inner.quota(peer.identity.member);
        // A member may send more than a stranger.
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

    /// Remembers that the link was used just now.
    pub(super) fn touch(&self, inner: &Inner) {
        self.used.store(inner.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A stream more, or one less. What is unread of a stream may be as much as its window: the
    /// connection's grows by that, so that others are not kept from sending.
    pub(super) fn widen(&self, inner: &Inner, by: i32) {
        let mut open = lock(&self.open);
        *open = open.saturating_add_signed(by);
        let window =
            inner.settings.receive_window.saturating_add(open.saturating_mul(STREAM_WINDOW));
        self.connection.set_receive_window(VarInt::from_u32(window.min(WINDOW_MOST)));
    }

    fn has_streams(&self) -> bool {
        *lock(&self.open) > 0
    }

    /// Whether newer connections of the member are there to send on.
    fn is_superseded(&self, inner: &Inner) -> bool {
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

    pub(super) fn send(self: &Arc<Self>, inner: &Arc<Inner>, bytes: Bytes, delivery: Delivery) {
        self.touch(inner);
        let room = self.connection.max_datagram_size().unwrap_or(0).min(DATAGRAM_LIMIT);
        if delivery == Delivery::Datagram && bytes.len() <= room {
            match self.connection.send_datagram(bytes.clone()) {
                Ok(()) => return,
                // The connection has just ended; `LinkDown` is on its way.
                Err(quinn::SendDatagramError::ConnectionLost(_)) => {
                    return inner.tally.count(Reason::NoLink, self.peer.identity.member);
                }
                // The path became narrower in this moment.
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

/// Messages that wait to be sent by stream. A task empties it, and ends when it is empty: so a quiet
/// link has none.
#[derive(Default)]
struct Outbox {
    queue: VecDeque<Bytes>,
    bytes: usize,
    draining: bool,
}

impl Outbox {
    /// Puts a message in. How many older ones gave way, and whether a task has to be started.
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

    /// The next message. Without one, the task has to end.
    fn pop(&mut self) -> Option<Bytes> {
        let message = self.queue.pop_front();
        self.bytes -= message.as_ref().map_or(0, Bytes::len);
        self.draining = message.is_some();
        message
    }
}

/// Sends what is in the outbox, one message after the other.
async fn drain(inner: Arc<Inner>, link: Arc<Link>) {
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

/// A stream to write one thing on. If it is dropped before the end it is reset: quinn alone would
/// end it, and the reader would take the beginning for the whole.
pub(super) struct Outgoing {
    pub(super) stream: SendStream,
    done: bool,
}

impl Outgoing {
    pub(super) fn new(stream: SendStream) -> Self {
        Self { stream, done: false }
    }

    /// Writes everything, and leaves the stream open.
    pub(super) async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), WriteError> {
        self.stream.write_all_chunks(parts).await
    }

    /// Writes everything, and the end. Waits for room in the buffers, not for the peer to read.
    pub(super) async fn finish_with(&mut self, parts: &mut [Bytes]) -> Result<(), WriteError> {
        self.stream.write_all_chunks(parts).await?;
        self.done = true;
        self.stream.finish().map_err(|_| WriteError::ClosedStream)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.done {
            // Already closed: then there is nobody to tell.
            let _ = self.stream.reset(BROKEN_OFF);
        }
    }
}

/// Why bytes of a stream were not taken in.
#[derive(Debug)]
pub(super) enum Refused {
    /// They are more than allowed.
    TooLarge,
    /// Too many bytes are held already, of all links or of this one.
    OverBudget,
    /// The stream ended before the expected length.
    Short,
    /// The stream or the link broke off.
    Broken(ReadError),
}

/// Bytes that came, with their share of what may be held. Whoever holds the last copy of them
/// gives the share back.
struct CountedBytes {
    bytes: Vec<u8>,
    _shares: [Option<OwnedSemaphorePermit>; 2],
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// How much of a stream to take.
#[derive(Clone, Copy)]
pub(super) enum Take {
    /// All of it, if it has no more bytes than this.
    UpTo(usize),
    /// So many bytes. What follows is left.
    Exactly(usize),
}

/// Takes bytes in. Memory grows with what came, not with what was claimed.
pub(super) async fn take_in(
    inner: &Inner,
    link: &Link,
    stream: &mut RecvStream,
    take: Take,
) -> Result<Bytes, Refused> {
    let mut bytes = Vec::new();
    let inbound = [&link.quota.inbound, &inner.inbound];
    let mut shares: [Option<OwnedSemaphorePermit>; 2] = [None, None];
    loop {
        let room = match take {
            Take::Exactly(length) if bytes.len() == length => break,
            Take::Exactly(length) => length - bytes.len(),
            // One more than allowed, to see whether there is more.
            Take::UpTo(limit) => limit + 1 - bytes.len(),
        };
        let chunk = stream.read_chunk(room.min(CHUNK), true).await.map_err(Refused::Broken)?;
        let Some(chunk) = chunk else {
            if matches!(take, Take::Exactly(_)) {
                return Err(Refused::Short);
            }
            break;
        };
        let length = u32::try_from(chunk.bytes.len()).expect("a chunk has at most CHUNK bytes");
        for (of, quota) in inbound.into_iter().zip(&mut shares) {
            let more = of.clone().try_acquire_many_owned(length);
            let more = more.map_err(|_| Refused::OverBudget)?;
            match quota {
                Some(quota) => quota.merge(more),
                None => *quota = Some(more),
            }
        }
        bytes.extend_from_slice(&chunk.bytes);
        if matches!(take, Take::UpTo(limit) if bytes.len() > limit) {
            return Err(Refused::TooLarge);
        }
    }
    Ok(Bytes::from_owner(CountedBytes { bytes, _shares: shares }))
}

/// Takes the link out of the pool when its task ends, however it ends.
struct PoolGuard {
    inner: Arc<Inner>,
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
        // Only if it is not closed yet: after a panic.
        link.close(Code::Done, "");
        let member = link.peer.identity.member;
        let mut state = inner.state();
        if state.pool.remove(member, link.id) == Removed::Last {
            state.link_changes.down(member, reason);
        }
        state.forget_shares(inner.now());
        drop(state);
        inner.news.notify_one();
    }
}

/// Reads from a connection until it ends. Packets wait until `told`, so that `LinkUp` comes first;
/// requests do not. A connection that is superseded and that nobody used for the idle timeout is
/// closed by the side that dialled it: keep-alives would keep it for ever, and if both sides chose,
/// each could close the other's.
pub(super) async fn run(inner: Arc<Inner>, link: Arc<Link>, mut told: oneshot::Receiver<()>) {
    let seated = PoolGuard { inner: inner.clone(), link: link.clone() };
    // Dropped before `seated`: no packet may come after `LinkDown`.
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

async fn read_message(inner: Arc<Inner>, link: Arc<Link>, mut stream: RecvStream) {
    let message = take_in(&inner, &link, &mut stream, Take::UpTo(MESSAGE_LIMIT));
    let reason = match timeout(inner.settings.message_deadline, message).await {
        Ok(Ok(bytes)) => return deliver(&inner, &link, bytes),
        Ok(Err(Refused::TooLarge)) => Reason::IncomingOversized,
        Ok(Err(Refused::OverBudget)) => Reason::OverBudget,
        Ok(Err(Refused::Short | Refused::Broken(_))) | Err(_) => Reason::IncomingBroken,
    };
    inner.tally.count(reason, link.peer.identity.member);
}

fn deliver(inner: &Inner, link: &Link, bytes: Bytes) {
    link.touch(inner);
    let from = link.peer.identity.member;
    let bytes = match link.quota.take(inner.now(), bytes) {
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
        let mut outbox = Outbox::default();
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
