//! Links between members: one QUIC endpoint per process, on UDP.
//!
//! A link is a mutually authenticated connection. Packets of gossip go over it as datagrams, or as
//! a stream each if they are too long; requests (see `request`) are streams in both directions.
//! Whoever sends is whom its certificate names: no message has a sender to forge.
//!
//! Nothing here decides whom to dial or what a packet means: the owner hears [`TransportEvent`]s and
//! calls back. No call but [`Transport::ask`], [`Transport::rebind`] and [`Transport::shutdown`]
//! waits. Every queue is bounded, and what is refused or lost is counted by [`Reason`].
//!
//! | file | what it holds |
//! |---|---|
//! | `types` | what callers give and hear |
//! | `settings` | limits and times, and quinn's configurations |
//! | `counters` | what was refused, and a log that cannot be flooded |
//! | `pool` | which links there are, and who gives way |
//! | `share` | what one member may send |
//! | `tidings` | what the owner is still to be told |
//! | `door` | handshakes: those that others begin and those that we begin |
//! | `link` | what runs per connection: packets in and out |
//! | `asking` | requests: asking and serving |
//! | `stream` | requests whose answer goes on, both ways |
//! | `enrol` | the protocol for those who are no members yet |

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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Endpoint, EndpointConfig, TokioRuntime, VarInt};
use rustls::pki_types::CertificateDer;
use tokio::sync::{Notify, Semaphore, mpsc};

pub use counters::{Counters, Reason};
pub use enrolment::{ENROL_LIMIT, EnrolError, Enrolment, enrol};
pub use settings::{SERVER_NAME, Settings, VERSIONS};
pub use types::{DialRefused, Identify, LinkInfo, Peer, Tls, TransportError, TransportEvent};

use crate::identity::{CertificateError, MemberId};
use crate::member::Delivery;
use crate::request::Service;
use link::Link;
use link_changes::LinkChanges;
use peer_quota::PeerQuota;
use pool::Pool;

/// How many dials may wait or be under way, or have failed and not been told.
pub const DIALS: usize = 256;
/// How long a message may be that goes by stream.
pub const MESSAGE_LIMIT: usize = 1 << 20;
/// How long a packet may be that goes as a datagram. What fits into every path.
pub const DATAGRAM_LIMIT: usize = 1_150;
/// How long the polite end of all links may take.
const SHUTDOWN: Duration = Duration::from_secs(1);
/// How often the old port is tried when the socket is replaced, and how long between.
const REBIND_TRIES: u32 = 20;
const REBIND_WAIT: Duration = Duration::from_millis(10);
/// So many shares of members without a link are kept before they are looked through.
const SHARES_LEFT: usize = 64;
/// How much of a peer's words we repeat.
const REASON_LENGTH: usize = 200;

/// Why a connection is closed, on the wire.
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

/// What changes together: tidings must come in the order of the pool's changes.
struct LinkState {
    pool: Pool<Arc<Link>>,
    link_changes: LinkChanges,
    /// Those of members with a link, and of members that used theirs up not long ago.
    shares: BTreeMap<MemberId, Arc<PeerQuota>>,
    dialling_members: BTreeSet<MemberId>,
    dialling_addresses: BTreeSet<SocketAddr>,
}

/// The client's half of [`Tls`], ready for use.
struct Dialler {
    config: quinn::ClientConfig,
    identify: Identify,
}

/// What all tasks of a transport share.
struct Inner {
    settings: Settings,
    endpoint: Endpoint,
    dialler: Mutex<Dialler>,
    state: Mutex<LinkState>,
    /// Wakes the task that tells tidings.
    news: Notify,
    events: mpsc::Sender<TransportEvent>,
    service: Arc<dyn Service>,
    tally: counters::Tally,
    dials: Semaphore,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    enrolling: Semaphore,
    /// Bytes that may still be taken in.
    inbound: Arc<Semaphore>,
    half_open: AtomicUsize,
    /// Counts uses of links, so that the least recently used one is known.
    clock: AtomicU64,
    connections: AtomicU64,
    opened: Instant,
    stopping: AtomicBool,
}

/// A handle on the endpoint and its links. When the last one is dropped, all links are closed.
#[derive(Clone)]
pub struct Transport {
    inner: Arc<Inner>,
    _life: Arc<Life>,
}

/// Ends the endpoint with the last handle. Tasks hold [`Inner`] only.
struct Life(Arc<Inner>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Transport {
    /// Listens, and starts to answer. Needs a tokio runtime with IO and time,
    /// as do [`Transport::dial`] and [`Transport::send`].
    pub fn open(
        settings: Settings,
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
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(server), socket, runtime)
            .map_err(|source| TransportError::Socket { address, source })?;
        let inner = Arc::new(Inner {
            endpoint,
            dialler: Mutex::new(Dialler { config, identify: tls.identify }),
            state: Mutex::new(LinkState {
                pool: Pool::new(settings.max_links),
                link_changes: LinkChanges::default(),
                shares: BTreeMap::new(),
                dialling_members: BTreeSet::new(),
                dialling_addresses: BTreeSet::new(),
            }),
            news: Notify::new(),
            events,
            service,
            tally: counters::Tally::new(),
            dials: Semaphore::new(settings.dials_at_once),
            requests: Arc::new(Semaphore::new(settings.requests_at_once)),
            streams: Arc::new(Semaphore::new(settings.streams_at_once)),
            enrolling: Semaphore::new(enrolment::AT_ONCE),
            inbound: Arc::new(Semaphore::new(settings.inbound_bytes.min(Semaphore::MAX_PERMITS))),
            half_open: AtomicUsize::new(0),
            clock: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            opened: Instant::now(),
            stopping: AtomicBool::new(false),
            settings,
        });
        tokio::spawn(handshake::answer(inner.clone()));
        tokio::spawn(tell(inner.clone()));
        Ok(Self { _life: Arc::new(Life(inner.clone())), inner })
    }

    /// Begins a dial and returns at once. If a member is given and somebody else answers, the dial
    /// fails.
    pub fn dial(&self, member: Option<MemberId>, address: SocketAddr) -> Result<(), DialRefused> {
        if self.inner.stopping.load(Ordering::Relaxed) {
            return Err(DialRefused::Stopped);
        }
        self.inner.state().begin_dial(member, address)?;
        tokio::spawn(handshake::dial(self.inner.clone(), member, address));
        Ok(())
    }

    /// Sends a packet and does not wait. Without a link it is dropped; on a slow link newer packets
    /// replace older ones. Both are counted.
    pub fn send(&self, to: MemberId, bytes: Bytes, delivery: Delivery) {
        match self.inner.link(to) {
            Some(link) => link.send(&self.inner, bytes, delivery),
            None => self.inner.tally.count(Reason::NoLink, to),
        }
    }

    /// Closes the link of a member, and tells `LinkDown`.
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

    /// Where we listen. The port is never zero; the IP may be the wildcard.
    pub fn address(&self) -> SocketAddr {
        self.inner.endpoint.local_addr().unwrap_or(self.inner.settings.listen)
    }

    /// All links, by member.
    pub fn links(&self) -> Vec<LinkInfo> {
        let links: Vec<_> = self.inner.state().pool.all().cloned().collect();
        links.iter().map(|link| link.info()).collect()
    }

    /// One member's link.
    pub fn link(&self, member: MemberId) -> Option<LinkInfo> {
        self.inner.link(member).map(|link| link.info())
    }

    /// What was refused and lost so far.
    pub fn counters(&self) -> Counters {
        self.inner.tally.read()
    }

    /// Uses another certificate from the next handshake on. Links stay as they are.
    pub fn replace_tls(&self, tls: Tls) -> Result<(), TransportError> {
        let server = self.inner.settings.server(&tls)?;
        let config = self.inner.settings.client(&tls)?;
        *lock(&self.inner.dialler) = Dialler { config, identify: tls.identify };
        self.inner.endpoint.set_server_config(Some(server));
        Ok(())
    }

    /// Makes a new socket, on the same port if it can be had, and lets all links continue on it. For
    /// a machine whose network went away and came back; a mere change of its address needs nothing.
    pub async fn rebind(&self) -> Result<SocketAddr, TransportError> {
        let old = self.address();
        let replace = |address| {
            let socket = listen(address)?;
            self.inner
                .endpoint
                .rebind(socket)
                .map_err(|source| TransportError::Socket { address, source })
        };
        // The endpoint keeps the socket before for what is still on its way, so the old port is
        // free only after two changes, and when every connection has made the last one.
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

    /// Closes all links and tells the peers, within a second. `LinkDown` is told of each.
    pub async fn shutdown(&self) {
        self.inner.stop();
        // Who does not hear it finds out by the idle timeout.
        let _ = tokio::time::timeout(SHUTDOWN, self.inner.endpoint.wait_idle()).await;
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        lock(&self.state)
    }

    fn link(&self, member: MemberId) -> Option<Arc<Link>> {
        self.state().pool.latest(member).cloned()
    }

    /// The time for shares.
    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// What a member may send.
    fn quota(&self, member: MemberId) -> Arc<PeerQuota> {
        let (now, inbound) = (self.now(), self.settings.inbound_per_link);
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

    /// Forgets the shares of those who have no link and owe nothing.
    fn forget_shares(&mut self, now: Duration) {
        if self.shares.len() > self.pool.len() + SHARES_LEFT {
            // A share of a link stands in the link too.
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

/// Tells what must not be lost, as fast as the owner listens.
async fn tell(inner: Arc<Inner>) {
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

/// A socket; on a machine without IPv6 its wildcard is that of IPv4.
fn listen(address: SocketAddr) -> Result<UdpSocket, TransportError> {
    let bound = UdpSocket::bind(address).or_else(|error| match address {
        SocketAddr::V6(v6)
            if v6.ip().is_unspecified() && error.kind() != std::io::ErrorKind::AddrInUse =>
        {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, v6.port()))
        }
        _ => Err(error),
    });
    bound.map_err(|source| TransportError::Socket { address, source })
}

/// An IPv4 address that a socket of both families shows as an IPv6 one, as IPv4 again.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What a connection's end is called. The peer's words in it are cut, and hold no line breaks.
fn words(error: &impl ToString) -> String {
    let text = error.to_string();
    text.chars().take(REASON_LENGTH).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What a panicking task left is still true: each change under a lock is one assignment or one
/// call of code that does not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
