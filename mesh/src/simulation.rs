//! Thousands of members in one thread, with a network and a clock that are simulated: from one seed,
//! always the same run.
//!
//! The members are the real ones ([`crate::member`]); only signatures are cheap here. Links behave as
//! QUIC's do: a handshake takes round trips and longer under loss, datagrams are lost, streams arrive
//! late instead, and a dead peer is noticed when the link has been idle for long. Used by the tests
//! and by the benchmark; bytes are those of the messages and of QUIC around them, by count.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod authenticator;
mod owners;
mod samples;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

pub use self::authenticator::{SimulatedAuthenticator, SimulatedCa};
pub use self::samples::{sample_info, sample_load};
use crate::identity::{MemberId, MemberIdentity, MemberKind};
use crate::member::{Delivery, Member, MemberEvent, MemberInput, MemberOutput, MemberStart};
use crate::message::{DATAGRAM_BYTES, Message};
use crate::profile::Profile;
use crate::record::{Item, Revocation, Version};

/// Bytes around each packet: IP and UDP 28, QUIC's head, its seal and the frame's head 30.
const PACKET: u64 = 58;
/// A packet that only acknowledges.
const ACKNOWLEDGEMENT: u64 = 75;
/// A packet that keeps a link alive, or answers one: IP, UDP, QUIC's head and seal.
const KEEP_ALIVE: u64 = 56;
/// A link that is quiet for so long is kept alive by the cell at its end.
const QUIET: Duration = Duration::from_secs(20);
/// What a handshake costs each side.
const HANDSHAKE: u64 = 4_000;
/// After this time without a packet a link is gone.
const IDLE: Duration = Duration::from_secs(30);
/// After this time without an answer a dial has failed.
const DIAL: Duration = Duration::from_secs(5);
/// What a lost packet of a stream or a handshake costs in time.
const LOST: Duration = Duration::from_millis(60);
const LOST_IN_HANDSHAKE: Duration = Duration::from_millis(1_000);

/// What the network is like.
#[derive(Debug, Clone)]
pub struct SimulatedNetwork {
    /// The time of a packet on its way, from and to.
    pub latency: (Duration, Duration),
    /// Of ten thousand packets so many are lost.
    pub loss: u32,
    /// Of ten thousand datagrams so many come twice.
    pub duplicates: u32,
    /// What a handshake takes beyond its round trips: a slow machine at the other end.
    pub handshake: Duration,
}

impl Default for SimulatedNetwork {
    fn default() -> Self {
        SimulatedNetwork {
            latency: (Duration::from_micros(100), Duration::from_micros(600)),
            loss: 0,
            duplicates: 0,
            handshake: Duration::ZERO,
        }
    }
}

/// What a member did and what it cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traffic {
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent, with all that is around them.
    pub bytes: u64,
    /// Bytes received, of those that others sent.
    pub received: u64,
    /// Handshakes that were begun.
    pub dials: u64,
}

/// Somebody was found missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: usize,
    /// Who.
    pub of: usize,
    /// It was there, and nothing was between them.
    pub is_false: bool,
}

/// Something new was heard of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: usize,
    /// Of whom.
    pub of: usize,
}

struct Simulated {
    id: MemberId,
    member: Member<SimulatedAuthenticator>,
    address: SocketAddr,
    alive: bool,
    life: u32,
    links: BTreeMap<MemberId, Linked>,
    wake: Timestamp,
    paused_until: Timestamp,
    traffic: Traffic,
}

/// The other end of a link.
#[derive(Debug, Clone, Copy)]
struct Linked {
    place: usize,
    /// When we last sent something, or kept the link alive.
    used: Timestamp,
}

#[derive(Debug)]
enum SimulationInput {
    Wake,
    MemberInput(Box<MemberInput>),
    /// The other end of a link has not been heard of for long.
    Idle(usize),
    /// A packet that carries a message, and the sender.
    Packet(usize, Box<Message>),
}

/// An event, with the member and the life of the member that it is for.
struct SimulationEvent {
    at: Timestamp,
    order: u64,
    to: usize,
    life: u32,
    happening: SimulationInput,
}

impl PartialEq for SimulationEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for SimulationEvent {}
impl PartialOrd for SimulationEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for SimulationEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What a liar makes of what it would have said.
pub type Twist = fn(Message) -> Message;

/// A mesh.
pub struct Simulation {
    now: Timestamp,
    random: SplitMix,
    order: u64,
    queue: BinaryHeap<Reverse<SimulationEvent>>,
    members: Vec<Simulated>,
    by_id: BTreeMap<MemberId, usize>,
    by_address: BTreeMap<SocketAddr, usize>,
    ca: Arc<SimulatedCa>,
    /// The network, which may change at any time.
    pub network: SimulatedNetwork,
    /// Members that are overloaded: what comes waits so long before they look at it, while their
    /// timers run on time.
    pub backlog: BTreeMap<usize, Duration>,
    /// Pairs (from, to) between which nothing passes.
    cuts: BTreeSet<(usize, usize)>,
    /// Groups that do not hear each other; the same number: they do.
    sides: Vec<u8>,
    /// Every finding of absence, in order.
    pub alarms: Vec<Alarm>,
    /// Those who begin have a clock that is so far behind.
    pub clock_behind: Duration,
    /// Those who begin know their own address, and believe nobody else about it.
    pub fixed_addresses: bool,
    /// MemberSelector members know to be revoked, as they wrote it down.
    disks: BTreeMap<usize, Vec<Revocation>>,
    /// Revoked members that were left out of a list, in all.
    pub left_out: usize,
    /// Who heard that it is expelled.
    pub expelled: BTreeSet<usize>,
    /// Who suspected whom, as of which alive record. Filled like the news.
    pub suspicions: BTreeSet<(usize, usize, Version)>,
    /// One that lies: whatever it says goes through this first.
    pub twist: Option<(usize, Twist)>,
    /// Whether the news and the suspicions are kept.
    pub record_news: bool,
    /// What was heard of cells, in order.
    pub news: Vec<News>,
    /// Events handled.
    pub events: u64,
    /// Whether what members tell their owners is kept in [`Simulation::told`].
    pub has_owners: bool,
    /// What members have told their owners, in order: cells of coordinators, coordinators of cells.
    pub told: VecDeque<(usize, MemberEvent)>,
}

impl Simulation {
    /// `kinds`: who will ever be a member. Nobody runs yet.
    pub fn new(seed: u64, kinds: &[MemberKind]) -> Simulation {
        let mut random = SplitMix(seed);
        let ca = Arc::new(SimulatedCa::new(&mut random, kinds));
        let mut by_id = BTreeMap::new();
        for place in 0..kinds.len() {
            by_id.insert(ca.identity(place).member, place);
        }
        Simulation {
            now: Timestamp::from_secs(1_000_000),
            random,
            order: 0,
            queue: BinaryHeap::new(),
            members: Vec::new(),
            by_id,
            by_address: BTreeMap::new(),
            sides: vec![0; kinds.len()],
            ca,
            network: SimulatedNetwork::default(),
            backlog: BTreeMap::new(),
            cuts: BTreeSet::new(),
            alarms: Vec::new(),
            clock_behind: Duration::ZERO,
            fixed_addresses: false,
            disks: BTreeMap::new(),
            left_out: 0,
            expelled: BTreeSet::new(),
            suspicions: BTreeSet::new(),
            twist: None,
            record_news: false,
            news: Vec::new(),
            events: 0,
            has_owners: false,
            told: VecDeque::new(),
        }
    }

    /// A mesh of one coordinator and `cells` cells that begin within `within` of each other, all with
    /// the coordinator as their seed.
    pub fn fleet(seed: u64, cells: usize, profile: &Profile, within: Duration) -> Simulation {
        let mut kinds = vec![MemberKind::Coordinator];
        kinds.resize(cells + 1, MemberKind::Cell);
        let mut simulation = Simulation::new(seed, &kinds);
        simulation.start(0, profile.clone(), &[]);
        let step = within / u32::try_from(cells.max(1)).unwrap_or(u32::MAX);
        for cell in 1..=cells {
            simulation.run_for(step);
            simulation.start(cell, profile.clone(), &[0]);
        }
        simulation
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Begins a member's life; members begin in the order of their places, then may again.
    pub fn start(&mut self, place: usize, profile: Profile, seeds: &[usize]) {
        let number = u32::try_from(place).unwrap_or(u32::MAX) + (10 << 24) + 1;
        let address = SocketAddr::new(std::net::Ipv4Addr::from_bits(number).into(), 7_000);
        let seeds = seeds.iter().map(|seed| self.members[*seed].address).collect();
        self.start_at(place, profile, address, seeds);
    }

    /// Begins a member's life at an address of its own.
    pub fn start_at(
        &mut self,
        place: usize,
        profile: Profile,
        address: SocketAddr,
        seeds: Vec<SocketAddr>,
    ) {
        let identity = self.ca.identity(place).clone();
        let birth = MemberStart {
            certificate: self.ca.certificate(place),
            generation: (self.now - self.clock_behind).as_nanos() / 1_000_000,
            address,
            address_is_fixed: self.fixed_addresses,
            profile,
            is_first: seeds.is_empty(),
            seeds,
            revoked: self.disks.get(&place).cloned().unwrap_or_default(),
            random: self.random.next(),
            identity: identity.clone(),
        };
        let stamp = SimulatedAuthenticator::new(self.ca.clone(), identity.member);
        let member = Member::new(self.now, stamp, birth);
        let old = self.members.get(place);
        let life = old.map_or(0, |old| old.life + 1);
        let simulated = Simulated {
            id: identity.member,
            member,
            address,
            alive: true,
            life,
            links: BTreeMap::new(),
            wake: Timestamp::NEVER,
            paused_until: Timestamp::ZERO,
            traffic: old.map(|old| old.traffic).unwrap_or_default(),
        };
        if place < self.members.len() {
            self.members[place] = simulated;
        } else {
            assert_eq!(place, self.members.len(), "members begin in the order of their places");
            self.members.push(simulated);
        }
        self.by_address.insert(address, place);
        self.plan_wake(place);
    }

    /// Ends a member without a word.
    pub fn kill(&mut self, place: usize) {
        self.members[place].alive = false;
        for peer in std::mem::take(&mut self.members[place].links).into_values() {
            self.plan(self.now + IDLE, peer.place, SimulationInput::Idle(place));
        }
    }

    /// A member does nothing for a while.
    pub fn pause(&mut self, place: usize, span: Duration) {
        let paused_until = &mut self.members[place].paused_until;
        *paused_until = (self.now + span).max(*paused_until);
    }

    /// A member's machine gets another address.
    pub fn move_to(&mut self, place: usize, address: SocketAddr) {
        self.by_address.remove(&self.members[place].address);
        self.by_address.insert(address, place);
        self.members[place].address = address;
    }

    /// Puts members on sides that do not hear each other.
    pub fn part(&mut self, side: impl Fn(usize) -> u8) {
        self.sides = (0..self.sides.len()).map(side).collect();
        self.note_cut_links();
    }

    /// Lets nothing through from one to another.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
        self.note_cut_links();
    }

    /// Everything passes again.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.sides.fill(0);
    }

    fn note_cut_links(&mut self) {
        for place in 0..self.members.len() {
            let links = self.members[place].links.values();
            for peer in links.map(|link| link.place).collect::<Vec<_>>() {
                if !self.passes(place, peer) || !self.passes(peer, place) {
                    self.plan(self.now + IDLE, place, SimulationInput::Idle(peer));
                }
            }
        }
    }

    fn passes(&self, from: usize, to: usize) -> bool {
        self.sides[from] == self.sides[to] && !self.cuts.contains(&(from, to))
    }

    /// Gives a member something to take in.
    pub fn tell(&mut self, place: usize, input: MemberInput) {
        if self.members[place].alive {
            self.apply(place, input);
        }
    }

    /// Has `from` say this to `to` on their link, whatever the member `from` would say itself.
    pub fn inject(&mut self, from: usize, to: usize, message: Message) {
        let address = self.members[from].address;
        let from = self.members[from].id;
        self.tell(to, MemberInput::Received { from, address, message });
    }

    /// Has `from` make a link to `to`.
    pub fn connect(&mut self, from: usize, to: usize) {
        let (peer, address) = (self.members[to].id, self.members[to].address);
        self.dial(from, Some(peer), address);
    }

    /// Has a coordinator expel others, whose certificates are valid for long.
    pub fn revoke(&mut self, by: usize, places: &[usize]) {
        let until_s = self.now.as_nanos() / 1_000_000_000 + 30 * 86_400;
        let entry = |place: &usize| Revocation { member: self.identity(*place).member, until_s };
        let list = places.iter().map(entry).collect();
        self.tell(by, MemberInput::Revoke(list));
    }

    /// Has a cell publish an info.
    pub fn publish_info(&mut self, place: usize) {
        let cell_id = self.ca.identity(place).name.clone();
        let info = sample_info(cell_id, place);
        self.tell(place, MemberInput::PublishInfo(info));
    }

    /// Has a cell publish a load in which `free_mb` is free.
    pub fn publish_load(&mut self, place: usize, free_mb: u32) {
        let cell_id = self.ca.identity(place).name.clone();
        let load = sample_load(cell_id, free_mb);
        self.tell(place, MemberInput::PublishLoad(load));
    }

    /// Runs for a while.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.step(end) {}
        self.now = end;
    }

    /// Runs until `done`, which is looked at every `every`; at most for `limit`. The time it took.
    pub fn run_until(
        &mut self,
        limit: Duration,
        every: Duration,
        mut done: impl FnMut(&Simulation) -> bool,
    ) -> Option<Duration> {
        let start = self.now;
        while !done(self) {
            if self.now.since(start) >= limit {
                return None;
            }
            self.run_for(every);
        }
        Some(self.now.since(start))
    }

    /// A member.
    pub fn member(&self, place: usize) -> &Member<SimulatedAuthenticator> {
        &self.members[place].member
    }

    /// A member, for those who want to change its mind.
    pub fn member_mut(&mut self, place: usize) -> &mut Member<SimulatedAuthenticator> {
        &mut self.members[place].member
    }

    /// MemberSelector a place stands for.
    pub fn identity(&self, place: usize) -> &Arc<MemberIdentity> {
        self.ca.identity(place)
    }

    /// The ca, for those who want to forge.
    pub fn ca(&self) -> &Arc<SimulatedCa> {
        &self.ca
    }

    /// What a member has sent.
    pub fn traffic(&self, place: usize) -> Traffic {
        self.members[place].traffic
    }

    /// Where a member is.
    pub fn address(&self, place: usize) -> SocketAddr {
        self.members[place].address
    }

    /// Whether a member runs.
    pub fn is_alive(&self, place: usize) -> bool {
        self.members[place].alive
    }

    /// How many ever began.
    pub fn places(&self) -> usize {
        self.members.len()
    }

    /// How many run.
    pub fn alive(&self) -> usize {
        self.members.iter().filter(|member| member.alive).count()
    }

    /// Whether everybody who runs takes exactly those for present who run.
    pub fn all_know_all(&self) -> bool {
        let alive = self.alive();
        let running = || self.members.iter().filter(|member| member.alive);
        running().all(|member| member.member.present() == alive)
    }

    /// Whether everybody who runs knows the same to the last version.
    pub fn all_agree(&self) -> bool {
        let mut roots = self.members.iter().filter(|m| m.alive).map(|m| m.member.roots());
        let first = roots.next();
        roots.all(|other| Some(other) == first)
    }

    /// How many links a member has.
    pub fn open_links(&self, place: usize) -> usize {
        self.members[place].links.len()
    }

    fn step(&mut self, end: Timestamp) -> bool {
        if self.queue.peek().is_none_or(|Reverse(event)| event.at > end) {
            return false;
        }
        let Some(Reverse(event)) = self.queue.pop() else { return false };
        self.now = event.at;
        let SimulationEvent { to, life, happening, .. } = event;
        let target = &mut self.members[to];
        if !target.alive || target.life != life {
            return true;
        }
        let is_stale = matches!(happening, SimulationInput::Wake) && target.wake != self.now;
        if is_stale {
            return true;
        }
        if target.paused_until > self.now {
            let until = target.paused_until;
            if matches!(happening, SimulationInput::Wake) {
                target.wake = until;
            }
            self.plan(until, to, happening);
            return true;
        }
        self.events += 1;
        match happening {
            SimulationInput::Wake => {
                self.members[to].wake = Timestamp::NEVER;
                if self.members[to].member.next_wake() <= self.now {
                    self.apply(to, MemberInput::Tick);
                } else {
                    self.plan_wake(to);
                }
            }
            SimulationInput::MemberInput(input) => self.take_in(to, *input),
            SimulationInput::Idle(peer) => {
                let other = &self.members[peer];
                let is_dead = !other.alive || !other.links.contains_key(&self.members[to].id);
                let is_cut = !self.passes(peer, to) || !self.passes(to, peer);
                let peer = other.id;
                if (is_dead || is_cut) && self.members[to].links.remove(&peer).is_some() {
                    self.apply(to, MemberInput::LinkDown { peer });
                }
            }
            SimulationInput::Packet(from, message) => {
                let (from, address) = (self.members[from].id, self.members[from].address);
                self.apply(to, MemberInput::Received { from, address, message: *message });
            }
        }
        true
    }

    /// A link that was ended while it was being made does not come up.
    fn take_in(&mut self, place: usize, input: MemberInput) {
        if let MemberInput::LinkUp { peer, address, dialled, .. } = &input
            && !self.members[place].links.contains_key(peer)
        {
            if *dialled {
                let failed = MemberInput::DialFailed { peer: Some(*peer), address: *address };
                self.apply(place, failed);
            }
            return;
        }
        self.apply(place, input);
    }

    fn apply(&mut self, place: usize, input: MemberInput) {
        let now = self.now;
        let effects = self.members[place].member.apply(now, input);
        for effect in effects {
            self.perform(place, effect);
        }
        self.plan_wake(place);
    }

    fn perform(&mut self, place: usize, effect: MemberOutput) {
        match effect {
            MemberOutput::Send { to, message, delivery } => {
                if self.record_news {
                    self.note_suspicions(place, &message);
                }
                self.send(place, to, message, delivery);
            }
            MemberOutput::Dial { peer, address } => self.dial(place, peer, address),
            MemberOutput::Close { peer } => self.close(place, peer),
            MemberOutput::Event(event) => self.note_event(place, event),
        }
    }

    fn note_event(&mut self, place: usize, event: MemberEvent) {
        if self.has_owners && self.concerns_owner(place, &event) {
            self.told.push_back((place, event.clone()));
        }
        match event {
            MemberEvent::Missing { identity, left } => {
                let of = self.by_id[&identity.member];
                let there = self.members.get(of).is_some_and(|member| member.alive);
                let is_false = there && !left && self.passes(place, of) && self.passes(of, place);
                self.alarms.push(Alarm { at: self.now, by: place, of, is_false });
            }
            MemberEvent::Published(record) if self.record_news => {
                let of = self.by_id[&record.subject];
                self.news.push(News { at: self.now, by: place, of });
            }
            MemberEvent::Expelled => {
                self.expelled.insert(place);
            }
            MemberEvent::Revoked(list) => self.disks.entry(place).or_default().extend(list),
            MemberEvent::Published(_) | MemberEvent::Present { .. } | MemberEvent::Moved(_) => {}
            MemberEvent::TooManyRevoked { left_out, .. } => self.left_out += left_out,
        }
    }

    fn note_suspicions(&mut self, by: usize, message: &Message) {
        let Message::Gossip { items } = message else { return };
        for item in items {
            if let Item::Suspicion(suspicion) = item
                && self.by_id.get(&suspicion.by) == Some(&by)
                && let Some(of) = self.by_id.get(&suspicion.subject)
            {
                self.suspicions.insert((by, *of, suspicion.alive));
            }
        }
    }

    fn send(&mut self, from: usize, to: MemberId, message: Message, delivery: Delivery) {
        let now = self.now;
        let Some(link) = self.members[from].links.get_mut(&to) else { return };
        let (to, quiet) = (link.place, now.since(link.used));
        link.used = now;
        if quiet >= QUIET {
            self.keep_alive(from, to, quiet);
        }
        let message = match self.twist {
            Some((liar, twist)) if liar == from => twist(message),
            Some(_) | None => message,
        };
        let size = message.size() as u64;
        let packets = size.div_ceil(DATAGRAM_BYTES as u64).max(1);
        self.members[from].traffic.packets += packets;
        self.count(from, to, size + packets * PACKET);
        // Half of what is received is acknowledged by a packet of its own.
        self.count(to, from, packets * ACKNOWLEDGEMENT / 2);
        let is_stream = delivery == Delivery::Stream || size > DATAGRAM_BYTES as u64;
        let mut delay = self.latency();
        let mut lost = self.lost();
        while lost && is_stream {
            delay += LOST;
            lost = self.lost();
        }
        if lost || !self.passes(from, to) || !self.members[to].alive {
            return;
        }
        if self.members[to].links.contains_key(&self.members[from].id) {
            delay += self.backlog.get(&to).copied().unwrap_or_default();
            if !is_stream && self.is_duplicated() {
                let copy = SimulationInput::Packet(from, Box::new(message.clone()));
                let later = self.latency();
                self.plan(self.now + delay + later, to, copy);
            }
            let packet = SimulationInput::Packet(from, Box::new(message));
            self.plan(self.now + delay, to, packet);
        } else {
            // Another life of the receiver knows nothing of this link, and says so.
            let delay = delay + self.latency();
            self.plan(self.now + delay, from, SimulationInput::Idle(to));
        }
    }

    /// So many bytes went from one to another.
    fn count(&mut self, from: usize, to: usize, bytes: u64) {
        self.members[from].traffic.bytes += bytes;
        self.members[to].traffic.received += bytes;
    }

    /// A cell kept a link alive on which it had nothing to say; the other end acknowledged it.
    fn keep_alive(&mut self, from: usize, to: usize, quiet: Duration) {
        if self.ca.identity(from).kind == MemberKind::Cell {
            let times = quiet.as_secs() / QUIET.as_secs();
            self.count(from, to, times * KEEP_ALIVE);
            self.count(to, from, times * KEEP_ALIVE);
        }
    }

    /// Counts what kept quiet links alive until now. To be called before traffic is read.
    pub fn settle(&mut self) {
        let now = self.now;
        for place in 0..self.members.len() {
            let links: Vec<Linked> = self.members[place].links.values().copied().collect();
            for link in links.iter().filter(|link| now.since(link.used) >= QUIET) {
                self.keep_alive(place, link.place, now.since(link.used));
            }
            self.members[place].links.values_mut().for_each(|link| {
                if now.since(link.used) >= QUIET {
                    link.used = now;
                }
            });
        }
    }

    fn dial(&mut self, from: usize, peer: Option<MemberId>, address: SocketAddr) {
        self.members[from].traffic.dials += 1;
        let to = self.by_address.get(&address).copied().filter(|to| *to != from);
        let to = to.filter(|to| self.members[*to].alive);
        let to = to.filter(|to| self.passes(from, *to) && self.passes(*to, from));
        let to = to.filter(|to| peer.is_none_or(|peer| self.members[*to].id == peer));
        let Some(to) = to else {
            self.members[from].traffic.bytes += HANDSHAKE;
            let input = Box::new(MemberInput::DialFailed { peer, address });
            self.plan(self.now + DIAL, from, SimulationInput::MemberInput(input));
            return;
        };
        let mut delay = self.latency() + self.latency() + self.network.handshake;
        for _ in 0..4 {
            while self.lost() {
                delay += LOST_IN_HANDSHAKE;
            }
        }
        self.count(from, to, HANDSHAKE);
        self.count(to, from, HANDSHAKE);
        for (here, there) in [(from, to), (to, from)] {
            let link = Linked { place: there, used: self.now };
            let id = self.members[there].id;
            self.members[here].links.insert(id, link);
        }
        for (here, there, dialled) in [(from, to, true), (to, from, false)] {
            let up = MemberInput::LinkUp {
                peer: self.members[there].id,
                certificate: self.ca.certificate(there),
                address: self.members[there].address,
                dialled,
            };
            // The answering side has the link first: its welcome is what tells the other.
            let extra = if dialled { self.latency() } else { Duration::ZERO };
            self.plan(self.now + delay + extra, here, SimulationInput::MemberInput(Box::new(up)));
        }
    }

    fn close(&mut self, place: usize, peer: MemberId) {
        let other = self.by_id[&peer];
        self.members[place].links.remove(&peer);
        self.plan(
            self.now,
            place,
            SimulationInput::MemberInput(Box::new(MemberInput::LinkDown { peer })),
        );
        let id = self.members[place].id;
        if self.members.get(other).is_some_and(|m| m.alive && m.links.contains_key(&id)) {
            self.members[other].links.remove(&id);
            let down = MemberInput::LinkDown { peer: id };
            let delay = self.latency();
            self.plan(self.now + delay, other, SimulationInput::MemberInput(Box::new(down)));
        }
    }

    fn plan(&mut self, at: Timestamp, to: usize, happening: SimulationInput) {
        self.order += 1;
        let (order, life) = (self.order, self.members[to].life);
        self.queue.push(Reverse(SimulationEvent { at, order, to, life, happening }));
    }

    fn plan_wake(&mut self, place: usize) {
        let wake = self.members[place].member.next_wake().max(self.now);
        if wake < self.members[place].wake {
            self.members[place].wake = wake;
            self.plan(wake, place, SimulationInput::Wake);
        }
    }

    fn latency(&mut self) -> Duration {
        let (least, most) = self.network.latency;
        let span = u64::try_from((most - least).as_nanos()).unwrap_or(0).max(1);
        least + Duration::from_nanos(self.random.next() % span)
    }

    fn is_duplicated(&mut self) -> bool {
        let of = u64::from(self.network.duplicates);
        of > 0 && self.random.next() % 10_000 < of
    }

    fn lost(&mut self) -> bool {
        self.network.loss > 0 && self.random.next() % 10_000 < u64::from(self.network.loss)
    }
}
