//! One member of the mesh, without a socket and without a clock: inputs with the time, outputs.
//!
//! It is SWIM: members probe each other, ask others to probe, suspect, refute, and gossip. foca is
//! its failure detector (`swim`), over each member's neighbourhood. Four things are ours:
//!
//! - Who probes whom is fixed by rings ([`rings`]), so that a few old connections carry everything.
//! - "Down" does not travel. Suspicions do, each signed by its author, and every member decides for
//!   itself ([`suspicion`]): one member alone makes no other one missing.
//! - A record of a member is signed by that member. Only it can say that it is alive again.
//! - Comparing digests finds records that were lost on the way ([`anti_entropy`]).
//!
//! | module | what it decides |
//! |---|---|
//! | [`rings`] | who is whose neighbour |
//! | `swim` | when a probe failed: foca, its timers and what it may hear |
//! | `probe` | whom to probe now; how far this member trusts itself |
//! | [`suspicion`] | when a suspected member is missing |
//! | `ingest` | which records are accepted |
//! | `revocation` | who is revoked, and for how long that must be known |
//! | `dissemination` | what is passed on, to whom, at what pace |
//! | [`anti_entropy`] | how two members find out where they differ |
//! | `links` | whom to dial, when again, when to close |
//! | `members`, `gossip_log` | the tables; they decide nothing |
//!
//! The driver gives every packet, link change and tick to [`Member::apply`] and performs the outputs
//! in order. Same inputs, same outputs.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

pub mod anti_entropy;
mod dissemination;
mod gossip_log;
mod ingest;
mod links;
mod members;
mod probe;
pub(crate) mod revocation;
pub mod rings;
pub mod suspicion;
mod swim;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use self::gossip_log::{Budget, GossipLog};
use self::links::MemberLink;
pub use self::members::MemberState;
use self::members::MemberTable;
use self::probe::Probes;
use self::rings::Rings;
use self::suspicion::SuspicionState;
use crate::identity::{Authenticator, MemberId, MemberIdentity, MemberKind};
use crate::message::{Message, Roots};
use crate::profile::Profile;
use crate::record::{AliveRecord, Content, Record, Revocation, Suspicion, Topic, Version};

/// The version of the mesh that alive records name: 2 since foca is the failure detector.
pub const PROTOCOL: u8 = 2;

/// Members that a mesh may have. Beyond it nobody new is taken in.
pub const MEMBERS: usize = 65_536;

/// Identity, address and settings with which a member starts.
#[derive(Debug, Clone)]
pub struct MemberStart {
    /// Who we are.
    pub identity: Arc<MemberIdentity>,
    /// What proves it.
    pub certificate: Vec<u8>,
    /// Higher than in any earlier life.
    pub generation: u64,
    /// Where we can be dialled.
    pub address: SocketAddr,
    /// Whether `address` is the operator's word, or may follow what others see.
    pub address_is_fixed: bool,
    /// Our pace.
    pub profile: Profile,
    /// Addresses to begin with.
    pub seeds: Vec<SocketAddr>,
    /// Whether there is nobody else yet: it need not hear what was known before it.
    pub is_first: bool,
    /// Who was revoked, as far as an earlier life knew.
    pub revoked: Vec<Revocation>,
    /// For choices that need not be secret.
    pub random: u64,
}

/// Something happened.
#[derive(Debug, Clone)]
pub enum MemberInput {
    /// The time of [`Member::next_wake`] has come.
    Tick,
    /// A link is up. Its certificate was checked by TLS, and is checked again.
    LinkUp {
        /// Who is at its other end.
        peer: MemberId,
        /// The certificate.
        certificate: Vec<u8>,
        /// Where it is.
        address: SocketAddr,
        /// Whether we dialled.
        dialled: bool,
    },
    /// The last link to this member is gone.
    LinkDown {
        /// Whose.
        peer: MemberId,
    },
    /// A dial came to nothing.
    DialFailed {
        /// The member that we wanted; `None`: a seed.
        peer: Option<MemberId>,
        /// Where.
        address: SocketAddr,
    },
    /// A message came.
    Received {
        /// Whose certificate the link shows.
        from: MemberId,
        /// Where it came from.
        address: SocketAddr,
        /// The message.
        message: Message,
    },
    /// We have something to say of this cell's nature.
    PublishInfo(CellInfo),
    /// We have something to say of this cell's load.
    PublishLoad(CellLoad),
    /// These are expelled. Only coordinators say so.
    Revoke(Vec<Revocation>),
    /// Our certificate was renewed.
    Renewed(Vec<u8>),
    /// Our address is another one now, by our own knowledge.
    Moved(SocketAddr),
    /// The addresses to begin with are others now.
    Seeds(Vec<SocketAddr>),
    /// Say goodbye.
    Leave,
}

/// How a message is to travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Once. It may be lost.
    Datagram,
    /// Until it arrives or the link is gone.
    Stream,
}

/// What the driver must do.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberOutput {
    /// Send this, or drop it if there is no link. Never wait.
    Send {
        /// Member that the message is for.
        to: MemberId,
        /// Message to be encoded and sent.
        message: Message,
        /// How it travels.
        delivery: Delivery,
    },
    /// Make a link.
    Dial {
        /// The member that must answer there. `None`: any, the address is a seed.
        peer: Option<MemberId>,
        /// UDP address to dial.
        address: SocketAddr,
    },
    /// Close the link.
    Close {
        /// The member at its other end.
        peer: MemberId,
    },
    /// Publish this to those who subscribed.
    Event(MemberEvent),
}

/// What a member publishes of the mesh.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEvent {
    /// A member is present: new, again, with a new generation, or at another address.
    Present {
        /// Member that is present, as its certificate names it.
        identity: Arc<MemberIdentity>,
        /// Its generation: higher after every restart.
        generation: u64,
        /// Its address, as its alive record says.
        address: SocketAddr,
    },
    /// A member is missing.
    Missing {
        /// Member that is missing, as its certificate names it.
        identity: Arc<MemberIdentity>,
        /// It sent a leave message.
        left: bool,
    },
    /// A cell published a newer info or load.
    Published(Arc<Record>),
    /// These members are revoked: none of their certificates is valid any more. The driver stores
    /// them, so that it holds after a restart too.
    Revoked(Vec<Revocation>),
    /// More members are revoked than a list can name. Those left out can come back here.
    TooManyRevoked {
        /// Number of members that are left out.
        left_out: usize,
        /// Number of members that a list can name.
        limit: usize,
    },
    /// This member is revoked. Peers reject its messages.
    Expelled,
    /// This member's own address changed.
    Moved(SocketAddr),
}

/// What was refused, by reason. For metrics, and for a log line now and then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// A signature that is not the subject's or the author's.
    pub forged: u64,
    /// A certificate that does not hold.
    pub certificates: u64,
    /// A cell's word on what is not its own: another cell's load, a revocation.
    pub misreported: u64,
    /// A record of, or a suspicion by, a member that is revoked, missing or unknown.
    pub strangers: u64,
    /// More suspicions than one member may have open.
    pub suspicions: u64,
    /// Questions beyond what is answered.
    pub excessive: u64,
    /// Answers that nobody asked for.
    pub unasked: u64,
    /// What is older than what is known: copies that come late, or replays.
    pub stale: u64,
}

/// A member of the mesh. See the head of this file.
pub struct Member<N> {
    authenticator: N,
    profile: Profile,
    me: Arc<MemberIdentity>,
    random: SplitMix,
    refused: RefusalCounts,

    /// Our own life and the counts of what we say in it.
    own: Own,
    members: MemberTable,
    rings: Rings,
    /// Who is revoked, and when the last of its certificates ends.
    revoked: BTreeMap<MemberId, u64>,
    /// Members that were forgotten, with what is not to be learnt again.
    forgotten: BTreeMap<MemberId, RemovedMember>,
    missing_since: BTreeMap<MemberId, Timestamp>,
    /// All coordinators that are known and not revoked, present or not, without ourselves.
    coordinator_ids: BTreeSet<MemberId>,

    links: BTreeMap<MemberId, MemberLink>,
    seeds: Vec<SocketAddr>,
    seed_backoff: u32,

    probes: Probes,

    suspects: BTreeMap<MemberId, SuspicionState>,
    /// At a coordinator: when a suspected member last refuted.
    refuted: BTreeMap<MemberId, Timestamp>,
    /// Why those who are missing are missing.
    missing_because: BTreeMap<MemberId, Vec<Arc<Suspicion>>>,

    urgent: GossipLog,
    gossip: GossipLog,
    urgent_budget: Budget,
    gossip_budget: Budget,
    push_budget: Budget,

    synced: bool,
    is_catching_up: bool,
    /// When we last asked somebody for all it knows.
    asked_everything: Timestamp,
    /// With whom we last compared.
    compared_with: Option<MemberId>,
    compared_loads_with: Option<MemberId>,
    /// Comparisons that we asked for since we last agreed with somebody.
    comparisons: u32,
    timers: Timers,
    /// When the driver should have woken us; if it is late, we are starved.
    expected: Timestamp,
    out: Vec<MemberOutput>,
}

/// What we say of ourselves.
struct Own {
    generation: u64,
    counts: [u32; 5],
    alive: AliveRecord,
    address_is_fixed: bool,
    /// Others who see us at another address, and the address.
    seen_at: BTreeMap<MemberId, SocketAddr>,
    left: bool,
    expelled: bool,
    /// The topics that coordinators were not told yet, a bit each.
    unpushed: u8,
    /// When a record of an older life made us begin another.
    reborn: Timestamp,
    /// When this member last refuted a suspicion.
    refuted: Timestamp,
    /// Which member suspected it last, and the alive record that the suspicion names.
    suspected_by: Option<(MemberId, Version)>,
    /// How often that member has suspected it since, in a row.
    suspicions: u32,
}

/// One who was missing for so long that it is in no table any more.
struct RemovedMember {
    /// The last alive record. Only a later one brings the member back.
    alive: Version,
    /// What such a record is checked against.
    certificate: Arc<Record>,
    identity: Arc<MemberIdentity>,
    at: Timestamp,
}

/// When what is due. [`Timestamp::NEVER`]: not at all.
struct Timers {
    unlinked: Timestamp,
    leaf_probe: Timestamp,
    links: Timestamp,
    seeds: Timestamp,
    urgent: Timestamp,
    gossip: Timestamp,
    push: Timestamp,
    reach_out: Timestamp,
    sweep: Timestamp,
    compare: Timestamp,
    compare_loads: Timestamp,
    compare_again: Timestamp,
    /// The first of all detectors and relays.
    probes: Timestamp,
    suspicions: Timestamp,
    /// A refutation that had to wait.
    refute: Timestamp,
}

const SWEEP: Duration = Duration::from_secs(60);

impl<N: Authenticator> Member<N> {
    /// A member at the beginning of its life.
    pub fn new(now: Timestamp, authenticator: N, start: MemberStart) -> Member<N> {
        let MemberStart { identity, profile, random, .. } = start;
        let mut random = SplitMix(random);
        let phase = |random: &mut SplitMix, span: Duration| now + random_part(random, span);
        let timers = Timers {
            unlinked: phase(&mut random, unlinked_every(&profile)),
            leaf_probe: phase(&mut random, profile.leaf_probe_every),
            links: now,
            seeds: now,
            urgent: Timestamp::NEVER,
            gossip: Timestamp::NEVER,
            push: Timestamp::NEVER,
            reach_out: phase(&mut random, profile.reach_out_every) + profile.reach_out_every,
            sweep: now + SWEEP,
            compare: now,
            compare_loads: now,
            compare_again: Timestamp::NEVER,
            probes: Timestamp::NEVER,
            suspicions: Timestamp::NEVER,
            refute: Timestamp::NEVER,
        };
        let own = Own {
            generation: start.generation,
            counts: [0; 5],
            alive: AliveRecord {
                address: start.address,
                leaf: profile.leaf,
                left: false,
                protocol: PROTOCOL,
            },
            address_is_fixed: start.address_is_fixed,
            seen_at: BTreeMap::new(),
            left: false,
            expelled: false,
            unpushed: 0,
            reborn: Timestamp::ZERO,
            refuted: Timestamp::ZERO,
            suspected_by: None,
            suspicions: 0,
        };
        let synced = start.is_first;
        let probes = Probes::new(identity.member, &profile, &mut random);
        let mut member = Member {
            rings: Rings::new(identity.member),
            urgent_budget: Budget::new(profile.urgent_bytes, profile.urgent_bytes / 2, now),
            gossip_budget: Budget::new(profile.gossip_bytes, profile.gossip_bytes / 2, now),
            push_budget: Budget::new(profile.pushes_per_second, profile.pushes_per_second * 2, now),
            authenticator,
            profile,
            me: identity.clone(),
            random,
            refused: RefusalCounts::default(),
            own,
            members: MemberTable::new(),
            revoked: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            missing_since: BTreeMap::new(),
            coordinator_ids: BTreeSet::new(),
            links: BTreeMap::new(),
            seeds: start.seeds,
            seed_backoff: 0,
            probes,
            suspects: BTreeMap::new(),
            refuted: BTreeMap::new(),
            missing_because: BTreeMap::new(),
            urgent: GossipLog::default(),
            gossip: GossipLog::default(),
            synced,
            is_catching_up: false,
            asked_everything: Timestamp::ZERO,
            compared_with: None,
            compared_loads_with: None,
            comparisons: 0,
            timers,
            expected: Timestamp::NEVER,
            out: Vec::new(),
        };
        let certificate = own_certificate(&identity, &start.certificate);
        member.members.put(Arc::new(certificate), Some(identity));
        member.publish_alive(now);
        member.remember_revoked(now, &start.revoked);
        member
    }

    /// Takes in what happened. The effects are to be performed in order.
    pub fn apply(&mut self, now: Timestamp, input: MemberInput) -> Vec<MemberOutput> {
        self.mind_lateness(now);
        match input {
            MemberInput::Tick => {}
            MemberInput::LinkUp { peer, certificate, address, dialled } => {
                self.link_up(now, peer, &certificate, address, dialled);
            }
            MemberInput::LinkDown { peer } => self.link_down(now, peer),
            MemberInput::DialFailed { peer, address } => self.dial_failed(now, peer, address),
            MemberInput::Received { from, address, message } => {
                self.received(now, from, address, message);
            }
            MemberInput::PublishInfo(info) => self.publish(now, Content::Info(info)),
            MemberInput::PublishLoad(load) => self.publish(now, Content::Load(load)),
            MemberInput::Revoke(members) => self.revoke(now, members),
            MemberInput::Renewed(certificate) => self.renewed(now, &certificate),
            MemberInput::Moved(address) => self.moved(now, address),
            MemberInput::Seeds(seeds) => {
                // Others than before: they are tried at once, whatever became of those.
                if self.seeds != seeds {
                    self.seeds = seeds;
                    self.seed_backoff = 0;
                }
                self.timers.seeds = now;
            }
            MemberInput::Leave => self.leave(now),
        }
        self.tick(now);
        self.refresh_neighbourhood(now);
        self.timers.probes = self.probes.next_wake();
        self.expected = self.next_wake();
        std::mem::take(&mut self.out)
    }

    /// When [`MemberInput::Tick`] is due.
    pub fn next_wake(&self) -> Timestamp {
        let t = &self.timers;
        if self.own.left || self.own.expelled {
            return Timestamp::NEVER;
        }
        [
            t.unlinked,
            t.leaf_probe,
            t.links,
            t.seeds,
            t.urgent,
            t.gossip,
            t.push,
            t.reach_out,
            t.sweep,
            t.compare_again,
            t.probes,
            t.suspicions,
            t.refute,
        ]
        .into_iter()
        .min()
        .expect("the list is not empty")
    }

    fn tick(&mut self, now: Timestamp) {
        if self.own.left || self.own.expelled {
            return;
        }
        self.refresh_neighbourhood(now);
        if self.timers.probes <= now {
            self.step_probes(now);
        }
        if self.timers.suspicions <= now {
            self.step_suspicions(now);
        }
        if self.timers.refute <= now {
            self.raise_incarnation(now);
        }
        if self.timers.unlinked <= now {
            let every = unlinked_every(&self.profile);
            self.timers.unlinked = self.next_after(now, self.timers.unlinked, every);
            self.probe_unlinked(now);
        }
        if self.timers.leaf_probe <= now {
            self.probe_next_leaf(now);
        }
        if self.timers.reach_out <= now {
            self.timers.reach_out = now + self.jittered(self.profile.reach_out_every);
            self.reach_out();
        }
        if self.timers.sweep <= now {
            self.timers.sweep = now + SWEEP;
            self.sweep(now);
        }
        if self.timers.compare_again <= now {
            self.timers.compare_again = Timestamp::NEVER;
            self.compare_again(now);
        }
        if self.timers.links <= now {
            self.mind_links(now);
        }
        if self.timers.seeds <= now {
            self.try_seeds(now);
        }
        if self.timers.push <= now {
            self.push_own(now);
        }
        if self.timers.urgent <= now {
            self.flush_urgent(now);
        }
        if self.timers.gossip <= now {
            self.flush_gossip(now);
        }
    }

    fn received(&mut self, now: Timestamp, from: MemberId, at: SocketAddr, message: Message) {
        if self.revoked.contains_key(&from) {
            self.refused.strangers += 1;
            self.out.push(MemberOutput::Close { peer: from });
            return;
        }
        if self.own.left || self.own.expelled {
            return;
        }
        self.seen(from, at);
        match message {
            Message::Ping { seq, roots, items } => {
                self.hear_all(now, from, items);
                self.on_ping(now, from, seq);
                self.consider_roots(now, from, roots);
            }
            Message::Ack { seq, roots, items } => {
                self.hear_all(now, from, items);
                self.on_ack(now, from, seq);
                self.consider_roots(now, from, roots);
            }
            Message::PingReq { seq, target } => self.on_ping_req(now, from, seq, target),
            Message::Reached { seq, target } => self.on_reached(now, from, seq, target),
            Message::Missed { seq, target } => self.on_heard(now, from, seq, target),
            Message::Gossip { items } => self.hear_all(now, from, items),
            Message::Records { items } => {
                // A newcomer hears what everybody knows: that is no news.
                self.is_catching_up = !self.synced;
                self.hear_all(now, from, items);
                self.is_catching_up = false;
            }
            Message::Compare { scope, buckets } => self.compared(now, from, scope, &buckets),
            Message::Differ { scope, buckets, holdings, more } => {
                self.differs(now, from, scope, buckets, &holdings, more);
            }
            Message::Want { wanted } => self.hand_over(now, from, &wanted),
            Message::Observed { address } => self.observed(now, from, address),
        }
    }

    /// Who we are.
    pub fn me(&self) -> &Arc<MemberIdentity> {
        &self.me
    }

    /// What was refused so far.
    pub fn refused(&self) -> RefusalCounts {
        self.refused
    }

    /// How many are present, ourselves included.
    pub fn present(&self) -> usize {
        self.members.present()
    }

    /// What we hold a member to be.
    pub fn state(&self, member: MemberId) -> MemberState {
        self.members.state(member)
    }

    /// All members that are known, with their standing.
    pub fn members(&self) -> impl Iterator<Item = (&Arc<MemberIdentity>, MemberState, SocketAddr)> {
        self.members.iter().filter_map(|(_, subject)| {
            let address = subject.alive()?.address;
            Some((subject.identity()?, subject.state(), address))
        })
    }

    /// The newest that we have of a member on a topic.
    pub fn record(&self, member: MemberId, topic: Topic) -> Option<&Arc<Record>> {
        self.members.record(member, topic)
    }

    /// Digests of all that we know.
    pub fn roots(&self) -> Roots {
        self.members.roots()
    }

    /// How little we trust ourselves at present; 0 is well.
    pub fn health(&self) -> u32 {
        self.probes.health.level()
    }

    /// Whether we have been told what a member knew who was there before us.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Where we say that we are.
    pub fn address(&self) -> SocketAddr {
        self.own.alive.address
    }

    /// The members that we probe.
    pub fn watched(&self) -> Vec<MemberId> {
        if self.profile.leaf {
            let mut watched = self.leaf_peers(self.me.member, rings::LEAF_PEERS);
            watched.extend(self.coordinators());
            watched
        } else {
            let is_older = |member: &MemberId| self.is_older(*member);
            let mut watched = self.rings.neighbours();
            watched.retain(|member| !is_older(member));
            watched.extend(self.rings.watched_by_older().into_iter().filter(is_older));
            watched
        }
    }

    /// The cells that a leaf has links to, as far as we know.
    fn leaf_peers(&self, leaf: MemberId, count: usize) -> Vec<MemberId> {
        let cells = self.members.iter().filter(|(_, s)| s.is_on_rings() && !s.is_coordinator());
        rings::leaf_peers(leaf, cells.map(|(member, _)| member), count)
    }

    fn is_leaf(&self, member: MemberId) -> bool {
        self.members.get(member).and_then(|s| s.alive()).is_some_and(|alive| alive.leaf)
    }

    /// Whether this leaf should have a link to us.
    fn minds_leaf(&self, leaf: MemberId) -> bool {
        is_coordinator(&self.me)
            || self.leaf_peers(leaf, rings::LEAF_PEERS).contains(&self.me.member)
    }

    /// Whether a member is of the version before foca.
    fn is_older(&self, member: MemberId) -> bool {
        let alive = self.members.get(member).and_then(|entry| entry.alive());
        alive.is_some_and(|alive| alive.protocol < PROTOCOL)
    }

    fn is_linked(&self, member: MemberId) -> bool {
        self.links.get(&member).is_some_and(|link| link.open)
    }

    fn has_coordinator(&self) -> bool {
        self.coordinator_ids.iter().any(|coordinator| self.is_linked(*coordinator))
    }

    fn coordinators(&self) -> impl Iterator<Item = MemberId> {
        self.coordinator_ids.iter().copied()
    }

    /// The next beat of a regular timer, without drifting; after a long pause only one.
    fn next_after(&self, now: Timestamp, was: Timestamp, every: Duration) -> Timestamp {
        let next = was + every;
        if next > now { next } else { now + every }
    }

    /// About that long: members that began together should not go on together.
    fn jittered(&mut self, span: Duration) -> Duration {
        span * 3 / 4 + random_part(&mut self.random, span / 2)
    }
}

fn own_certificate(identity: &MemberIdentity, certificate: &[u8]) -> Record {
    Record::certificate(identity.member, issued_ms(identity), certificate)
}

/// From when a certificate counts, as the version of its record.
fn issued_ms(identity: &MemberIdentity) -> u64 {
    identity.not_before.as_nanos() / 1_000_000
}

fn is_coordinator(identity: &MemberIdentity) -> bool {
    identity.kind == MemberKind::Coordinator
}

/// How often neighbours without a link are probed; how often a leaf probes.
fn unlinked_every(profile: &Profile) -> Duration {
    if profile.leaf {
        profile.probe_period
    } else {
        profile.probe_period * u32::try_from(rings::NEIGHBOURS).unwrap_or(1)
    }
}

/// A random part of a span.
fn random_part(random: &mut SplitMix, span: Duration) -> Duration {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random.next() % nanos)
}
