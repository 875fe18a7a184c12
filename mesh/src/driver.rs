//! A member with a socket, a clock and a disk: what agent and coordinator start.
//!
//! One task waits for the transport, the caller or the next tick, hands it to [`crate::member`], and
//! performs the effects. It waits for nothing else: a slow disk, a name that does not resolve or a
//! renewal are tasks of their own, and their outcomes are inputs.

mod address;
mod joining;
mod persisted;
mod renewal;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{broadcast, mpsc, oneshot};
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::time::Timestamp;

use self::address::{Names, ResolvedNames};
pub use self::joining::{JoinError, enrolment, join};
use self::persisted::PersistedPeers;
use crate::codec;
use crate::identity::{CertificateError, MemberId, MemberIdentity, MemberKind};
use crate::member::{
    Member, MemberEvent, MemberInput, MemberOutput, MemberStart, MemberState, RefusalCounts,
};
use crate::message::Message;
use crate::profile::Profile;
use crate::record::{Content, REVOCATIONS, Revocation, Topic, body_limit};
use crate::request::{AskError, Request, Service, StreamingRequest};
use crate::tls::authenticator::ClusterAuthenticator;
use crate::tls::config::{TlsClock, client_config, peer, server_config, system_clock};
use crate::tls::credentials::{Credentials, FolderError, MemberFolder};
use crate::transport::stream::{FrameReader, FrameWriter};
use crate::transport::{
    Counters, DialRefused, Enrolment, LinkInfo, Peer, Tls, Transport, TransportError,
    TransportEvent, TransportSettings,
};

/// Packets and link changes that wait for the member. Beyond it packets are dropped, and counted.
const HAPPENINGS: usize = 4_096;
/// Orders of the caller that wait.
const ORDERS: usize = 1_024;
/// Events that a subscriber may be behind before it misses some, and is told so. The room for them is
/// taken at once, and a cell need not hear of everybody.
const EVENTS_OF_COORDINATOR: usize = 16_384;
const EVENTS_OF_CELL: usize = 512;
/// The time that a goodbye has to leave the machine.
const GOODBYE: Duration = Duration::from_millis(100);
/// How often our own address is looked at.
const LOOK_AT_ADDRESS: Duration = Duration::from_secs(5);
/// Longer than a look-up of names takes.
const LONG: Duration = Duration::from_secs(365 * 86_400);
/// How often refusals are logged, if there were any.
const LOOK_AT_REFUSALS: Duration = Duration::from_secs(10);

/// What a member needs to begin.
pub struct MeshConfig {
    /// Where key, certificate, generation and known peers are kept.
    pub folder: PathBuf,
    /// Where to listen: the wildcard, unless this machine has several faces.
    pub listen: SocketAddr,
    /// Where others can dial us, if the operator says so. Otherwise it is found out, and followed.
    pub advertise: Option<SocketAddr>,
    /// The pace.
    pub profile: Profile,
    /// `host:port` of some that may be there: from the join token, or the configuration.
    pub seeds: Vec<String>,
    /// A coordinator answers those who enrol, its own renewal included.
    pub enrolment: Option<Enrolment>,
}

/// Why there is no member.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// Key and certificate, or what else is kept on disk.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// What is remembered of earlier lives cannot be read or written.
    #[error("{path}: {what}")]
    PersistedPeers {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The socket, or TLS.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The credentials cannot be used for TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// What was to be said is too long for the mesh. Nothing was said.
    #[error("{what} has {given} bytes, the limit is {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How long it is.
        given: usize,
        /// How long it may be.
        limit: usize,
    },
    /// More members were to be revoked than a list can name. Nothing was said.
    #[error("{given} members are to be revoked, the limit is {limit}")]
    TooManyRevoked {
        /// How many.
        given: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The member has stopped.
    #[error("the mesh has stopped")]
    Stopped,
}

/// A member of the mesh, as others see it from here.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberView {
    /// Who.
    pub identity: Arc<MemberIdentity>,
    /// Whether it is there.
    pub state: MemberState,
    /// Where it says it is.
    pub address: SocketAddr,
    /// What it last said it is, if it is a cell.
    pub info: Option<CellInfo>,
    /// What it last said of its load, if it is a cell.
    pub load: Option<CellLoad>,
}

/// How the member itself is doing.
#[derive(Debug, Clone)]
pub struct MeshStatus {
    /// Members that are there, ourselves included.
    pub present: usize,
    /// How little we trust ourselves; 0 is well.
    pub health: u32,
    /// Whether we have heard what was known before us.
    pub synced: bool,
    /// Where we say that we are.
    pub address: SocketAddr,
    /// When our certificate ends.
    pub certificate_until: Timestamp,
    /// What was refused of what others said.
    pub refused: RefusalCounts,
    /// Packets that were no messages.
    pub malformed: u64,
    /// What the transport refused and dropped.
    pub transport: Counters,
}

enum DriverCall {
    Take(MemberInput),
    Members(oneshot::Sender<Vec<MemberView>>),
    Status(oneshot::Sender<MeshStatus>),
    Seeds(ResolvedNames),
    Renewed(Credentials),
    Leave(oneshot::Sender<()>),
}

/// A running member. Clones are handles to the same one; it ends when the last is dropped.
#[derive(Clone)]
pub struct Mesh {
    orders: mpsc::Sender<DriverCall>,
    events: broadcast::Sender<MemberEvent>,
    transport: Transport,
    me: Arc<MemberIdentity>,
}

impl Mesh {
    /// Begins a life: reads the credentials in the folder, listens, and looks for others.
    pub async fn start(config: MeshConfig, service: Arc<dyn Service>) -> Result<Mesh, MeshError> {
        let clock = system_clock();
        let folder = MemberFolder::open(&config.folder)?;
        let loaded = folder.load(clock())?;
        for warning in &loaded.warnings {
            tracing::warn!(%warning, "credentials");
        }
        let credentials = loaded.credentials;
        let persisted = PersistedPeers::open(&config.folder, clock())?;
        let me = Arc::new(credentials.identity().clone());
        let known = persisted.revoked();
        let revoked = known.iter().map(|entry| entry.member).collect();
        let revoked = Arc::new(RwLock::new(revoked));
        let (happen, transport_events) = mpsc::channel(HAPPENINGS);
        let settings = TransportSettings {
            me: Some(me.member),
            reset_key: Some(credentials.key().derive("volvox-mesh reset")),
            enrolment: config.enrolment.clone(),
            ..settings(&config, &me)
        };
        let tls = tls(&credentials, &clock, &revoked)?;
        let transport = Transport::open(settings, tls, happen, service)?;
        let port = transport.address().port();
        let seeds = address::resolve(&config.seeds).await;
        let peers = persisted.peers().iter().map(|peer| peer.address);
        let mut dialled: Vec<SocketAddr> = seeds.addresses.iter().copied().chain(peers).collect();
        dialled.dedup();
        let address = match config.advertise {
            Some(address) if address.port() == 0 => SocketAddr::new(address.ip(), port),
            Some(address) => address,
            None => address::ours(config.listen, port, dialled.first().copied()),
        };
        let birth = MemberStart {
            identity: me.clone(),
            certificate: credentials.certificate().to_vec(),
            generation: persisted.generation(),
            address,
            address_is_fixed: config.advertise.is_some(),
            profile: config.profile.clone(),
            // Who is told of nobody begins a mesh. A name that does not resolve yet is somebody.
            is_first: dialled.is_empty() && config.seeds.is_empty(),
            seeds: dialled,
            revoked: known,
            random: random(persisted.generation()),
        };
        let time = Time { began: Instant::now(), at: clock() };
        let member = Member::new(time.now(), credentials.authenticator(), birth);
        let (orders, inbox) = mpsc::channel(ORDERS);
        let (events, _) = broadcast::channel(match me.kind {
            MemberKind::Coordinator => EVENTS_OF_COORDINATOR,
            MemberKind::Cell => EVENTS_OF_CELL,
        });
        let mesh = Mesh { orders, events: events.clone(), transport: transport.clone(), me };
        let mut driver = MeshDriver {
            time,
            member,
            transport,
            events,
            revoked,
            credentials,
            clock,
            persisted,
            folder,
            config: Arc::new(config),
            malformed: 0,
            reported: (RefusalCounts::default(), 0),
            refused_dials: Vec::new(),
            route: None,
            renewing: false,
            names: Names::default(),
            names_due: tokio::time::Instant::now(),
            orders: mesh.orders.downgrade(),
        };
        driver.looked_up(seeds.is_complete);
        tokio::spawn(driver.run(transport_events, inbox));
        Ok(mesh)
    }

    /// Who we are.
    pub fn me(&self) -> &Arc<MemberIdentity> {
        &self.me
    }

    /// Where we listen.
    pub fn listens_at(&self) -> SocketAddr {
        self.transport.address()
    }

    /// What is heard from now on. Who reads too slowly is told how much it missed, and should list
    /// the members again.
    pub fn subscribe(&self) -> broadcast::Receiver<MemberEvent> {
        self.events.subscribe()
    }

    /// Says what this cell is.
    pub async fn publish_info(&self, info: CellInfo) -> Result<(), MeshError> {
        fits("the cell's info", Topic::Info, codec::encode(&info).len())?;
        self.order(DriverCall::Take(MemberInput::PublishInfo(info))).await
    }

    /// Says how this cell is doing.
    pub async fn publish_load(&self, load: CellLoad) -> Result<(), MeshError> {
        fits("the cell's load", Topic::Load, codec::encode(&load).len())?;
        self.order(DriverCall::Take(MemberInput::PublishLoad(load))).await
    }

    /// Expels members: all who are revoked in this cluster and whose last certificate has not ended,
    /// not only the new ones, as the authority's register lists them. Coordinators only. More than
    /// [`REVOCATIONS`] are refused: nothing was said.
    pub async fn revoke(&self, members: Vec<Revocation>) -> Result<(), MeshError> {
        let (given, limit) = (members.len(), REVOCATIONS);
        if given > limit {
            return Err(MeshError::TooManyRevoked { given, limit });
        }
        self.order(DriverCall::Take(MemberInput::Revoke(members))).await
    }

    /// All members that are known here.
    pub async fn members(&self) -> Result<Vec<MemberView>, MeshError> {
        let (answer, view) = oneshot::channel();
        self.order(DriverCall::Members(answer)).await?;
        view.await.map_err(|_| MeshError::Stopped)
    }

    /// How this member is doing.
    pub async fn status(&self) -> Result<MeshStatus, MeshError> {
        let (answer, status) = oneshot::channel();
        self.order(DriverCall::Status(answer)).await?;
        status.await.map_err(|_| MeshError::Stopped)
    }

    /// The links there are.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.transport.links()
    }

    /// Asks another member, on the link that there is.
    pub fn ask<R: Request + 'static>(
        &self,
        to: MemberId,
        request: &R,
        deadline: Duration,
    ) -> impl Future<Output = Result<R::Reply, AskError>> + Send + 'static
    where
        R::Reply: Send + 'static,
    {
        self.transport.ask(to, request, deadline)
    }

    /// Opens a stream to another member, on the link that there is: the reply, and both ends of what
    /// follows.
    pub fn converse<R: StreamingRequest + 'static>(
        &self,
        to: MemberId,
        request: &R,
        deadline: Duration,
    ) -> impl Future<Output = Result<(R::Reply, FrameReader, FrameWriter), AskError>> + Send + 'static
    where
        R::Reply: Send + 'static,
    {
        self.transport.converse(to, request, deadline)
    }

    /// Says goodbye and ends.
    pub async fn leave(&self) {
        let (done, left) = oneshot::channel();
        if self.order(DriverCall::Leave(done)).await.is_ok() {
            let _ended = left.await;
        }
    }

    async fn order(&self, order: DriverCall) -> Result<(), MeshError> {
        self.orders.send(order).await.map_err(|_| MeshError::Stopped)
    }
}

/// Time that goes on evenly, from what the clock said at the beginning.
#[derive(Clone, Copy)]
struct Time {
    began: Instant,
    at: Timestamp,
}

impl Time {
    fn now(&self) -> Timestamp {
        self.at + self.began.elapsed()
    }

    /// Follows a clock that was set forward: on a machine without one of its own, or after a sleep. Set
    /// back, it is not followed: time goes on until the clock has caught up. True if it was.
    fn follow(&mut self, clock: Timestamp) -> bool {
        let ahead = clock.since(self.now());
        if ahead < Duration::from_secs(2) {
            return false;
        }
        self.at = self.at + ahead;
        true
    }

    fn until(&self, at: Timestamp) -> tokio::time::Instant {
        // Timers further away than a day are looked at again then.
        let span = at.since(self.at).min(self.began.elapsed() + Duration::from_secs(86_400));
        (self.began + span).into()
    }
}

type Revoked = Arc<RwLock<BTreeSet<MemberId>>>;

struct MeshDriver {
    time: Time,
    member: Member<ClusterAuthenticator>,
    transport: Transport,
    events: broadcast::Sender<MemberEvent>,
    revoked: Revoked,
    credentials: Credentials,
    clock: TlsClock,
    persisted: PersistedPeers,
    folder: MemberFolder,
    config: Arc<MeshConfig>,
    malformed: u64,
    reported: (RefusalCounts, u64),
    refused_dials: Vec<(Option<MemberId>, SocketAddr)>,
    /// The address by which we last saw ourselves speak to others.
    route: Option<std::net::IpAddr>,
    renewing: bool,
    names: Names,
    /// When to look them up again. In a year, while that is being done.
    names_due: tokio::time::Instant,
    orders: mpsc::WeakSender<DriverCall>,
}

enum DriverInput {
    TransportEvent(TransportEvent),
    DriverCall(DriverCall),
    Tick,
    Address,
    Refusals,
    Renewal,
    Names,
    End,
}

impl MeshDriver {
    async fn run(
        mut self,
        mut transport_events: mpsc::Receiver<TransportEvent>,
        mut orders: mpsc::Receiver<DriverCall>,
    ) {
        let mut address = tokio::time::interval(LOOK_AT_ADDRESS);
        let mut refusals = tokio::time::interval(LOOK_AT_REFUSALS);
        let mut renewal = self.renewal_due();
        loop {
            let tick = self.time.until(self.member.next_wake());
            let wake = tokio::select! {
                biased;
                order = orders.recv() => order.map_or(DriverInput::End, DriverInput::DriverCall),
                event = transport_events.recv() => event.map_or(DriverInput::End, DriverInput::TransportEvent),
                () = tokio::time::sleep_until(tick) => DriverInput::Tick,
                _ = address.tick() => DriverInput::Address,
                _ = refusals.tick() => DriverInput::Refusals,
                () = tokio::time::sleep_until(self.names_due) => DriverInput::Names,
                () = tokio::time::sleep_until(renewal), if !self.renewing => DriverInput::Renewal,
            };
            match wake {
                DriverInput::TransportEvent(event) => self.happened(event),
                DriverInput::DriverCall(DriverCall::Leave(done)) => {
                    self.take(MemberInput::Leave);
                    // The end of a link drops what waits on it: the goodbye should be out by then.
                    tokio::time::sleep(GOODBYE).await;
                    self.transport.shutdown().await;
                    let _nobody_waits = done.send(());
                    return;
                }
                DriverInput::DriverCall(DriverCall::Renewed(credentials)) => {
                    self.renewed(credentials);
                    renewal = self.renewal_due().max(self.renewal_again());
                }
                DriverInput::DriverCall(order) => self.ordered(order),
                DriverInput::Tick => self.take(MemberInput::Tick),
                DriverInput::Address => {
                    if self.time.follow((self.clock)()) {
                        tracing::info!("the clock was set forward");
                        renewal = self.renewal_due();
                    }
                    self.look_at_address();
                }
                DriverInput::Refusals => self.look_at_refusals(),
                DriverInput::Names => self.resolve_again(),
                DriverInput::Renewal => self.begin_renewal(),
                DriverInput::End => {
                    self.transport.shutdown().await;
                    return;
                }
            }
        }
    }

    fn take(&mut self, input: MemberInput) {
        let effects = self.member.apply(self.time.now(), input);
        for effect in effects {
            self.perform(effect);
        }
        // After the effects, which are to be performed in order.
        while let Some((peer, address)) = self.refused_dials.pop() {
            let input = MemberInput::DialFailed { peer, address };
            for effect in self.member.apply(self.time.now(), input) {
                self.perform(effect);
            }
        }
    }

    fn happened(&mut self, event: TransportEvent) {
        match event {
            TransportEvent::LinkUp { peer, address, dialled } => {
                let (peer, certificate) = (peer.identity.member, peer.certificate);
                self.take(MemberInput::LinkUp { peer, certificate, address, dialled });
            }
            TransportEvent::LinkDown { member, reason } => {
                tracing::debug!(member = ?member, reason, "link down");
                self.take(MemberInput::LinkDown { peer: member });
            }
            TransportEvent::DialFailed { member, address, reason } => {
                tracing::debug!(member = ?member, %address, reason, "dial failed");
                self.take(MemberInput::DialFailed { peer: member, address });
            }
            TransportEvent::Packet { from, address, bytes } => match Message::decode(&bytes) {
                Ok(message) => {
                    // Its share of the transport's bytes is given back before the work is done.
                    drop(bytes);
                    self.take(MemberInput::Received { from, address: unmapped(address), message });
                }
                Err(_) => self.malformed += 1,
            },
        }
    }

    fn ordered(&mut self, order: DriverCall) {
        match order {
            DriverCall::Take(input) => self.take(input),
            DriverCall::Seeds(found) => {
                self.looked_up(found.is_complete);
                let mut seeds = found.addresses;
                if !seeds.is_empty() {
                    seeds.extend(self.persisted.peers().iter().map(|peer| peer.address));
                    self.take(MemberInput::Seeds(seeds));
                }
            }
            DriverCall::Members(answer) => {
                let _nobody_waits = answer.send(self.view());
            }
            DriverCall::Status(answer) => {
                let _nobody_waits = answer.send(self.status());
            }
            DriverCall::Renewed(_) | DriverCall::Leave(_) => {}
        }
    }

    fn perform(&mut self, effect: MemberOutput) {
        match effect {
            MemberOutput::Send { to, message, delivery } => {
                self.transport.send(to, Bytes::from(message.encode()), delivery);
            }
            MemberOutput::Dial { peer, address } => {
                match self.transport.dial(peer, address) {
                    // The one that is under way will do.
                    Ok(()) | Err(DialRefused::UnderWay) => {}
                    // Told of nothing later: so it has failed now, and is tried again.
                    Err(DialRefused::Full | DialRefused::Stopped) => {
                        self.refused_dials.push((peer, address));
                    }
                }
            }
            MemberOutput::Close { peer } => {
                // What was said to it just before should be out by then.
                let transport = self.transport.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(GOODBYE).await;
                    transport.close(peer, "not wanted any more");
                });
            }
            MemberOutput::Event(event) => self.publish(event),
        }
    }

    /// Stores and logs what must be, and forwards the event to those who subscribed.
    fn publish(&mut self, event: MemberEvent) {
        match &event {
            MemberEvent::Present { identity, address, .. } => {
                tracing::info!(member = ?identity.member, name = %identity.name,
                    kind = ?identity.kind, %address, "member is present");
                self.persisted.remember(identity, *address);
            }
            MemberEvent::Missing { identity, left } => {
                tracing::info!(member = ?identity.member, name = %identity.name,
                    kind = ?identity.kind, left, "member is missing");
            }
            MemberEvent::Published(_) => {}
            MemberEvent::Revoked(list) => {
                // A long list comes once, when this member joins.
                let first = list.first().map(|entry| entry.member);
                tracing::warn!(count = list.len(), ?first, "revoked");
                let mut revoked = self.revoked.write().unwrap_or_else(|e| e.into_inner());
                revoked.extend(list.iter().map(|entry| entry.member));
                drop(revoked);
                self.persisted.revoke(list);
                self.persisted.save_revoked(self.time.now());
            }
            MemberEvent::TooManyRevoked { left_out, limit } => {
                tracing::error!(left_out, limit, "too many revoked members: some can come back");
            }
            MemberEvent::Expelled => {
                tracing::error!("this member was revoked: join again with a new token");
            }
            MemberEvent::Moved(address) => {
                tracing::info!(%address, "our address is another one now");
            }
        }
        // It is no error if there is no subscriber.
        let _subscribers = self.events.send(event);
    }

    fn view(&self) -> Vec<MemberView> {
        let view = |(identity, state, address): (&Arc<MemberIdentity>, MemberState, SocketAddr)| {
            let content = |topic| self.member.record(identity.member, topic).map(|r| &r.content);
            let info = match content(Topic::Info) {
                Some(Content::Info(info)) => Some(info.clone()),
                Some(_) | None => None,
            };
            let load = match content(Topic::Load) {
                Some(Content::Load(load)) => Some(load.clone()),
                Some(_) | None => None,
            };
            MemberView { identity: identity.clone(), state, address, info, load }
        };
        self.member.members().map(view).collect()
    }

    fn status(&self) -> MeshStatus {
        MeshStatus {
            present: self.member.present(),
            health: self.member.health(),
            synced: self.member.is_synced(),
            address: self.member.address(),
            certificate_until: self.credentials.identity().not_after,
            refused: self.member.refused(),
            malformed: self.malformed,
            transport: self.transport.counters(),
        }
    }

    fn look_at_address(&mut self) {
        self.persisted.save_soon();
        self.persisted.save_revoked(self.time.now());
        if self.config.advertise.is_some() || !self.config.listen.ip().is_unspecified() {
            return;
        }
        let towards = self.transport.links().into_iter().find(|link| link.dialled);
        let Some(towards) = towards.map(|link| unmapped(link.address)) else { return };
        let found = address::towards(towards);
        // Others may see us at another address, behind a NAT: only a change of ours is news.
        if let Some(found) = found
            && self.route.replace(found).is_some_and(|last| last != found)
        {
            let port = self.transport.address().port();
            self.take(MemberInput::Moved(SocketAddr::new(found, port)));
        }
    }

    /// One line for all that was refused since the last one: a hostile member must not fill a disk.
    fn look_at_refusals(&mut self) {
        let (refused, malformed) = (self.member.refused(), self.malformed);
        if (refused, malformed) != self.reported {
            tracing::warn!(?refused, malformed, "refused, in all so far");
            self.reported = (refused, malformed);
        }
    }

    fn resolve_again(&mut self) {
        self.names_due += LONG;
        let (Some(orders), config) = (self.orders.upgrade(), self.config.clone()) else { return };
        if config.seeds.iter().all(|seed| seed.parse::<SocketAddr>().is_ok()) {
            return;
        }
        tokio::spawn(async move {
            let found = address::resolve(&config.seeds).await;
            let _ended = orders.send(DriverCall::Seeds(found)).await;
        });
    }

    fn looked_up(&mut self, is_complete: bool) {
        self.names_due = tokio::time::Instant::now() + self.names.looked_up(is_complete);
    }
}

fn fits(what: &'static str, topic: Topic, given: usize) -> Result<(), MeshError> {
    let limit = body_limit(topic);
    if given <= limit { Ok(()) } else { Err(MeshError::TooLarge { what, given, limit }) }
}

fn settings(config: &MeshConfig, me: &MemberIdentity) -> TransportSettings {
    let settings = match me.kind {
        MemberKind::Cell => TransportSettings::cell(config.listen),
        MemberKind::Coordinator => TransportSettings::coordinator(config.listen),
    };
    if config.profile.leaf {
        // Who watches a leaf asks it often enough to keep the way open. Who does not any more is gone.
        let idle_timeout = config.profile.leaf_probe_every * 8 / 5;
        TransportSettings { keep_alive: None, max_links: 16, idle_timeout, ..settings }
    } else {
        settings
    }
}

/// What the transport needs of our credentials: also after a renewal.
fn tls(credentials: &Credentials, clock: &TlsClock, revoked: &Revoked) -> Result<Tls, MeshError> {
    let failed = |error: &dyn std::fmt::Display| MeshError::Tls(error.to_string());
    let server = server_config(credentials, clock).map_err(|e| failed(&e))?;
    let client = client_config(credentials, clock).map_err(|e| failed(&e))?;
    let (authenticator, clock, revoked) =
        (credentials.authenticator(), clock.clone(), revoked.clone());
    Ok(Tls {
        server: Arc::new(server),
        client: Arc::new(client),
        identify: Arc::new(move |certificates| {
            let (identity, certificate) = peer(clock(), &authenticator, certificates)?;
            let revoked = revoked.read().unwrap_or_else(|e| e.into_inner());
            if revoked.contains(&identity.member) {
                return Err(CertificateError::Revoked(identity.member));
            }
            Ok(Peer { identity, certificate })
        }),
    })
}

/// IPv4 through an IPv6 socket is IPv4.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Only choices that need not be secret hang on it; without the system's, our generation will do.
fn random(generation: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_or(generation, |()| u64::from_le_bytes(bytes))
}
