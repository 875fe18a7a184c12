//! Links between members: one QUIC endpoint per process, on UDP.
//!
//! A link is a mutually authenticated connection. A gossip packet travels as a datagram, or as a
//! stream of its own if it is too long. A request (see `request`) is a bidirectional stream. The
//! certificate of the link names the sender: messages have no sender field that a peer could forge.
//!
//! The owner decides which members to dial and what a packet means: it receives [`TransportEvent`]s
//! and calls [`Transport`]. Only the async calls wait. Every queue is bounded, and [`Reason`]
//! counts what is refused or lost.
//!
//! - `types`, `settings`: what callers pass and receive; limits, times and quinn's configurations
//! - `counters`: refusals by reason, and a rate-limited log
//! - `pool`, `peer_quota`: the links and which one is displaced; how much one member may send
//! - `link_changes`: link changes that the owner has not received yet
//! - `handshake`, `link`: incoming handshakes and dials; the tasks of one connection
//! - `rpc`, `stream`: requests, sent and served; requests with frames after the reply
//! - `enrolment`: the protocol for machines that are not members yet

mod counters;
mod enrolment;
mod handshake;
mod link;
mod link_changes;
mod peer_quota;
mod pool;
mod rpc;
mod settings;
pub mod stream;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use quinn::{Endpoint, TokioRuntime, VarInt};
use rustls::pki_types::CertificateDer;
use tokio::sync::{Notify, Semaphore, mpsc};
use volvox_host::clock::monotonic;
use volvox_host::sync::lock;
use volvox_protocol::time::Timestamp;

pub use counters::{Counters, Reason};
pub use enrolment::{ENROL_LIMIT, EnrolCallError, Enrolment, enrol};
pub use settings::{SERVER_NAME, TransportSettings, VERSIONS};
pub use types::{DialRefused, Identify, LinkInfo, Peer, Tls, TransportError, TransportEvent};

use crate::identity::{CertificateError, MemberId};
use crate::member::Delivery;
use crate::request::Service;
use link::Link;
use link_changes::LinkChanges;
use peer_quota::PeerQuota;
use pool::LinkPool;

/// Maximum number of dials: waiting, in progress, or failed and not yet reported to the owner.
pub const DIALS: usize = 256;
/// Maximum length of a message that travels as a stream, in bytes.
pub const MESSAGE_LIMIT: usize = 1 << 20;
/// Maximum length of a packet that travels as a datagram, in bytes. It fits into every path.
pub const DATAGRAM_LIMIT: usize = 1_150;
/// Receive buffer of the socket, in bytes: what comes in a burst when all cells of a fleet dial.
const RECEIVE_BUFFER: usize = 4 << 20;
/// How long [`Transport::shutdown`] waits until all links are closed.
const SHUTDOWN: Duration = Duration::from_secs(1);
/// How often [`Transport::rebind`] tries to bind the old port, and the wait between two tries.
const REBIND_TRIES: u32 = 20;
const REBIND_WAIT: Duration = Duration::from_millis(10);
/// Number of quotas of members without a link that are kept before unused ones are dropped.
const SHARES_LEFT: usize = 64;
/// Maximum length of an error text, in characters. It may contain text from a peer.
const REASON_LENGTH: usize = 200;

/// Why a connection is closed: the QUIC application error code.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Code {
    Done = 0,
    NoIdentity = 1,
    Full = 2,
    Unexpected = 3,
    Closed = 4,
    Protocol = 5,
    Excess = 6,
}

impl From<Code> for VarInt {
    fn from(code: Code) -> Self {
        VarInt::from_u32(code as u32)
    }
}

/// State under one lock: link changes must have the same order as the changes of the pool.
struct LinkState {
    pool: LinkPool<Arc<Link>>,
    link_changes: LinkChanges,
    /// Quotas of members with a link, and of members whose quota is not full again yet.
    shares: BTreeMap<MemberId, Arc<PeerQuota>>,
    dialling_members: BTreeSet<MemberId>,
    dialling_addresses: BTreeSet<SocketAddr>,
}

/// The client part of [`Tls`], converted for quinn.
struct Dialler {
    config: quinn::ClientConfig,
    identify: Identify,
}

/// State that all tasks of a transport share.
struct TransportInner {
    settings: TransportSettings,
    endpoint: Endpoint,
    dialler: Mutex<Dialler>,
    state: Mutex<LinkState>,
    /// Wakes the task that sends link changes to the owner.
    news: Notify,
    events: mpsc::Sender<TransportEvent>,
    service: Arc<dyn Service>,
    tally: counters::TransportCounters,
    dials: Semaphore,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    enrolling: Semaphore,
    /// Free bytes of the budget for received messages and requests, of all links together.
    inbound: Arc<Semaphore>,
    half_open: AtomicUsize,
    /// Counter of uses of links. It gives the order in which links were last used.
    clock: AtomicU64,
    connections: AtomicU64,
    stopping: AtomicBool,
}

/// Handle of the endpoint and its links. When the last handle is dropped, all links are closed.
#[derive(Clone)]
pub struct Transport {
    inner: Arc<TransportInner>,
    _life: Arc<Life>,
}

/// Closes the endpoint when the last handle is dropped. Tasks keep [`TransportInner`] only.
struct Life(Arc<TransportInner>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Transport {
    /// Binds the socket and starts to answer handshakes. Needs a tokio runtime with IO and time, as
    /// do [`Transport::dial`] and [`Transport::send`].
    pub fn open(
        settings: TransportSettings,
        tls: Tls,
        events: mpsc::Sender<TransportEvent>,
        service: Arc<dyn Service>,
    ) -> Result<Self, TransportError> {
        settings.check()?;
        let server = settings.server(&tls)?;
        let config = settings.client(&tls)?;
        let socket = listen(settings.listen)?;
        let runtime = Arc::new(TokioRuntime);
        let address = settings.listen;
        let endpoint = Endpoint::new(settings.endpoint(), Some(server), socket, runtime)
            .map_err(|source| TransportError::Socket { address, source })?;
        let inner = Arc::new(TransportInner {
            endpoint,
            dialler: Mutex::new(Dialler { config, identify: tls.identify }),
            state: Mutex::new(LinkState {
                pool: LinkPool::new(settings.max_links),
                link_changes: LinkChanges::default(),
                shares: BTreeMap::new(),
                dialling_members: BTreeSet::new(),
                dialling_addresses: BTreeSet::new(),
            }),
            news: Notify::new(),
            events,
            service,
            tally: counters::TransportCounters::new(),
            dials: Semaphore::new(settings.dials_at_once),
            requests: Arc::new(Semaphore::new(settings.requests_at_once)),
            streams: Arc::new(Semaphore::new(settings.streams_at_once)),
            enrolling: Semaphore::new(enrolment::AT_ONCE),
            inbound: Arc::new(Semaphore::new(settings.inbound_bytes.min(Semaphore::MAX_PERMITS))),
            half_open: AtomicUsize::new(0),
            clock: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            settings,
        });
        tokio::spawn(handshake::answer(inner.clone()));
        tokio::spawn(tell(inner.clone()));
        Ok(Self { _life: Arc::new(Life(inner.clone())), inner })
    }

    /// Starts a dial and returns immediately. If `member` is given and another member answers, the
    /// dial fails.
    pub fn dial(&self, member: Option<MemberId>, address: SocketAddr) -> Result<(), DialRefused> {
        if self.inner.stopping.load(Ordering::Relaxed) {
            return Err(DialRefused::Stopped);
        }
        self.inner.state().begin_dial(member, address)?;
        tokio::spawn(handshake::dial(self.inner.clone(), member, address));
        Ok(())
    }

    /// Sends a packet without waiting. Without a link the packet is dropped. On a slow link newer
    /// packets replace older ones. Both are counted.
    pub fn send(&self, to: MemberId, bytes: Bytes, delivery: Delivery) {
        match self.inner.link(to) {
            Some(link) => link.send(&self.inner, bytes, delivery),
            None => self.inner.tally.count(Reason::NoLink, to),
        }
    }

    /// Closes the link of a member and reports `LinkDown`.
    pub fn close(&self, member: MemberId, reason: &str) {
        let taken = {
            let mut state = self.inner.state();
            let taken = state.pool.take(member);
            if taken.is_some() {
                state.link_changes.down(member, format!("closed by us: {reason}"));
            }
            taken
        };
        self.inner.news.notify_one();
        for link in taken.into_iter().flatten() {
            link.close(Code::Closed, reason);
        }
    }

    /// Address of the socket. The port is never zero; the IP address may be the wildcard.
    pub fn address(&self) -> SocketAddr {
        self.inner.endpoint.local_addr().unwrap_or(self.inner.settings.listen)
    }

    /// One entry per linked member, by member id: the connection that is used for sending.
    pub fn links(&self) -> Vec<LinkInfo> {
        let links: Vec<_> = self.inner.state().pool.all().cloned().collect();
        links.iter().map(|link| link.info()).collect()
    }

    /// The link of one member. `None`: there is no link.
    pub fn link(&self, member: MemberId) -> Option<LinkInfo> {
        self.inner.link(member).map(|link| link.info())
    }

    /// Number of refusals and losses by reason, since the transport was opened.
    pub fn counters(&self) -> Counters {
        self.inner.tally.read()
    }

    /// Uses other credentials from the next handshake on. Existing links stay.
    pub fn replace_tls(&self, tls: Tls) -> Result<(), TransportError> {
        let server = self.inner.settings.server(&tls)?;
        let config = self.inner.settings.client(&tls)?;
        *lock(&self.inner.dialler) = Dialler { config, identify: tls.identify };
        self.inner.endpoint.set_server_config(Some(server));
        Ok(())
    }

    /// Binds a new socket, if possible on the same port, and moves all links to it. Use it when the
    /// network of the machine went down and came back. A change of the machine's address alone does
    /// not need it.
    pub async fn rebind(&self) -> Result<SocketAddr, TransportError> {
        let old = self.address();
        let replace = |address| {
            let socket = listen(address)?;
            self.inner
                .endpoint
                .rebind(socket)
                .map_err(|source| TransportError::Socket { address, source })
        };
        // The endpoint keeps the previous socket for packets in flight. So the old port is free
        // only after two changes, and only when every connection has made the last one.
        let anywhere = SocketAddr::new(old.ip(), 0);
        replace(anywhere)?;
        replace(anywhere)?;
        for _ in 0..REBIND_TRIES {
            if replace(old).is_ok() {
                break;
            }
            tokio::time::sleep(REBIND_WAIT).await;
        }
        Ok(self.address())
    }

    /// Closes all links and notifies the peers, within one second. Reports `LinkDown` for each
    /// link.
    pub async fn shutdown(&self) {
        self.inner.stop();
        // A peer that does not receive the close detects it by the idle timeout.
        let _ = tokio::time::timeout(SHUTDOWN, self.inner.endpoint.wait_idle()).await;
    }
}

impl TransportInner {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        lock(&self.state)
    }

    fn link(&self, member: MemberId) -> Option<Arc<Link>> {
        self.state().pool.latest(member).cloned()
    }

    /// The quota of a member, created if it does not exist.
    fn quota(&self, member: MemberId) -> Arc<PeerQuota> {
        let (now, inbound) = (monotonic(), self.settings.inbound_per_link);
        let mut state = self.state();
        let quota =
            state.shares.entry(member).or_insert_with(|| PeerQuota::new(now, inbound).into());
        quota.clone()
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.endpoint.close(Code::Done.into(), b"shutdown");
        self.news.notify_one();
    }

    fn identify(&self, connection: &quinn::Connection) -> Result<Peer, CertificateError> {
        let identify = lock(&self.dialler).identify.clone();
        let shown = connection.peer_identity();
        let shown = shown.as_ref().and_then(|any| any.downcast_ref::<Vec<CertificateDer>>());
        identify(shown.map(Vec::as_slice))
    }
}

impl LinkState {
    fn begin_dial(
        &mut self,
        member: Option<MemberId>,
        address: SocketAddr,
    ) -> Result<(), DialRefused> {
        if self.dialling_addresses.len() >= DIALS {
            return Err(DialRefused::Full);
        }
        let known = member.is_some_and(|member| self.dialling_members.contains(&member));
        if known || self.dialling_addresses.contains(&address) {
            return Err(DialRefused::UnderWay);
        }
        self.dialling_addresses.insert(address);
        self.dialling_members.extend(member);
        Ok(())
    }

    /// Drops the quotas of members that have no link and whose quota is full again.
    fn forget_shares(&mut self, now: Timestamp) {
        if self.shares.len() > self.pool.len() + SHARES_LEFT {
            // The link of a member has a second reference to the quota.
            self.shares.retain(|_, quota| Arc::strong_count(quota) > 1 || !quota.is_whole(now));
        }
    }

    fn end_dial(&mut self, member: Option<MemberId>, address: SocketAddr) {
        self.dialling_addresses.remove(&address);
        if let Some(member) = member {
            self.dialling_members.remove(&member);
        }
    }
}

/// Sends link changes and failed dials to the owner, as fast as the owner receives them. None of
/// them is lost.
async fn tell(inner: Arc<TransportInner>) {
    loop {
        tokio::select! {
            () = inner.news.notified() => {}
            () = inner.events.closed() => return,
        }
        loop {
            let Ok(place) = inner.events.reserve().await else { return };
            let mut state = inner.state();
            let Some(event) = state.link_changes.next() else { break };
            if let TransportEvent::DialFailed { member, address, .. } = &event {
                state.end_dial(*member, *address);
            }
            place.send(event);
        }
        let state = inner.state();
        let over = state.pool.len() == 0 && state.link_changes.is_empty();
        if over && inner.stopping.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Binds a socket. On a machine without IPv6, the IPv6 wildcard becomes the IPv4 wildcard.
fn listen(address: SocketAddr) -> Result<UdpSocket, TransportError> {
    let bound = UdpSocket::bind(address).or_else(|error| match address {
        SocketAddr::V6(v6)
            if v6.ip().is_unspecified() && error.kind() != std::io::ErrorKind::AddrInUse =>
        {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, v6.port()))
        }
        _ => Err(error),
    });
    let socket = bound.map_err(|source| TransportError::Socket { address, source })?;
    // The kernel's default holds the first packets of some 90 handshakes; what does not fit is sent
    // again after a PTO. More than `net.core.rmem_max` needs CAP_NET_ADMIN.
    if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _clamped = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER);
    }
    Ok(socket)
}

/// Converts an IPv4-mapped IPv6 address, as a dual-stack socket reports it, to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The text of an error. Text of a peer in it is truncated and contains no line breaks.
fn words(error: &impl ToString) -> String {
    let text = error.to_string();
    text.chars().take(REASON_LENGTH).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
