//! What is passed on, to whom, at what pace; and what we say of ourselves.
//!
//! News goes to those we watch, who pass it on to those they watch: along the rings everybody hears
//! everything in a few steps, each of them from at most a few. What is our own goes to coordinators
//! too, at once. How much is said in a second is bounded whatever happens in the mesh: what falls
//! behind is replaced by what is newer, and comparison finds the rest.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::time::Timestamp;

use super::gossip_log::Budget;
use super::{
    Delivery, Member, MemberEvent, MemberOutput, MemberState, is_coordinator, own_certificate,
};
use crate::identity::{Authenticator, MemberId};
use crate::message::{DATAGRAM_BYTES, Message};
use crate::record::{Content, Item, Record, Topic, Version};

/// Bytes of news in one datagram, with some room for its head.
const ITEMS_BYTES: usize = DATAGRAM_BYTES - 32;

/// Datagrams in a row to one member. Beyond it a stream carries the rest.
const DATAGRAMS: usize = 4;

/// Bytes of news in one stream.
pub(super) const STREAM_BYTES: usize = 128 << 10;

/// The wait when a budget is used up.
const PAUSE: Duration = Duration::from_millis(100);

impl<N: Authenticator> Member<N> {
    pub(super) fn send(&mut self, to: MemberId, message: Message, delivery: Delivery) {
        self.out.push(MemberOutput::Send { to, message, delivery });
    }

    pub(super) fn tell(&mut self, event: MemberEvent) {
        self.out.push(MemberOutput::Event(event));
    }

    /// Says something of this member: signs it, keeps it, passes it on.
    pub(super) fn publish(&mut self, now: Timestamp, content: Content) {
        let own_name = match &content {
            Content::Info(info) => info.cell_id == self.me.name,
            Content::Load(load) => load.cell_id == self.me.name,
            Content::Revocations(_) => is_coordinator(&self.me),
            Content::Alive(_) => true,
            Content::Certificate => false,
        };
        if !own_name || self.own.left || self.own.expelled {
            return;
        }
        let record = self.say(content);
        self.own.unpushed |= record.topic.bit();
        self.enqueue(now, Item::Record(record), None);
        self.push_own(now);
    }

    fn say(&mut self, content: Content) -> Arc<Record> {
        let count = &mut self.own.counts[content.topic() as usize];
        *count += 1;
        let version = Version { generation: self.own.generation, count: *count };
        let record = Record::signed(&self.authenticator, self.me.member, version, content);
        let record = Arc::new(record);
        self.members.put(record.clone(), None);
        record
    }

    /// Says that we are here: at first, after a suspicion, at a new address.
    pub(super) fn publish_alive(&mut self, now: Timestamp) {
        let record = self.say(Content::Alive(self.own.alive));
        self.members.set_state(self.me.member, MemberState::Present);
        self.enqueue(now, Item::Record(record), None);
    }

    /// Says in this life what was said in another.
    pub(super) fn say_again(&mut self, now: Timestamp) {
        for topic in [Topic::Info, Topic::Load, Topic::Revocations] {
            if let Some(record) = self.members.record(self.me.member, topic).cloned() {
                self.publish(now, record.content.clone());
            }
        }
    }

    pub(super) fn leave(&mut self, now: Timestamp) {
        self.own.alive.left = true;
        self.publish_alive(now);
        self.own.left = true;
        let Some(alive) = self.members.record(self.me.member, Topic::Alive).cloned() else {
            return;
        };
        let open = self.links.iter().filter(|(_, link)| link.open).map(|(peer, _)| *peer);
        for peer in open.collect::<Vec<_>>() {
            let message = Message::Gossip { items: vec![Item::Record(alive.clone())] };
            self.send(peer, message, Delivery::Stream);
        }
    }

    pub(super) fn renewed(&mut self, now: Timestamp, certificate: &[u8]) {
        match self.authenticator.identity(now, certificate) {
            Ok(identity) if identity.member == self.me.member => {
                let record = Arc::new(own_certificate(&identity, certificate));
                self.me = identity.clone();
                self.members.put(record.clone(), Some(identity));
                self.enqueue(now, Item::Record(record), None);
                // The key may be another one: what it signed has to be signed anew.
                self.publish_alive(now);
                self.say_again(now);
            }
            Ok(_) | Err(_) => self.refused.certificates += 1,
        }
    }

    pub(super) fn moved(&mut self, now: Timestamp, address: SocketAddr) {
        if self.own.alive.address != address {
            self.own.alive.address = address;
            self.own.seen_at.clear();
            self.publish_alive(now);
            self.tell(MemberEvent::Moved(address));
        }
    }

    /// Somebody says where our packets come from. A coordinator is believed, others when two say
    /// the same: one alone could send our callers astray.
    pub(super) fn observed(&mut self, now: Timestamp, from: MemberId, address: SocketAddr) {
        if self.own.address_is_fixed || address.ip() == self.own.alive.address.ip() {
            return;
        }
        let address = SocketAddr::new(address.ip(), self.own.alive.address.port());
        let trusted = self.coordinator_ids.contains(&from);
        let confirmed = self.own.seen_at.iter().any(|(by, at)| *by != from && *at == address);
        if trusted || confirmed {
            self.moved(now, address);
        } else if self.own.seen_at.len() < 64 {
            self.own.seen_at.insert(from, address);
        }
    }

    /// A coordinator has a new alive record. Leaves receive no other member's, and may be waiting for it.
    pub(super) fn tell_leaves(&mut self, alive: &Arc<Record>) {
        let certificate = self.members.record(alive.subject, Topic::Certificate).cloned();
        let items: Vec<Item> =
            certificate.into_iter().chain([alive.clone()]).map(Item::Record).collect();
        for leaf in self.linked_leaves() {
            self.send(leaf, Message::Gossip { items: items.clone() }, Delivery::Stream);
        }
    }

    /// Puts news on its way.
    pub(super) fn enqueue(&mut self, now: Timestamp, item: Item, from: Option<MemberId>) {
        if self.is_catching_up {
            return;
        }
        let is_urgent = match &item {
            Item::Record(record) => !matches!(record.topic, Topic::Info | Topic::Load),
            Item::Suspicion(_) => true,
        };
        if is_urgent {
            self.urgent.push(now, item, from);
            self.timers.urgent = self.timers.urgent.min(now + self.profile.urgent_delay);
        } else {
            self.gossip.push(now, item, from);
            self.timers.gossip = self.timers.gossip.min(now + self.profile.gossip_every);
        }
    }

    /// Tells coordinators at once what is new of us.
    pub(super) fn push_own(&mut self, now: Timestamp) {
        self.timers.push = Timestamp::NEVER;
        let topics = Topic::ALL.into_iter().filter(|topic| self.own.unpushed & topic.bit() != 0);
        let records = topics.filter_map(|topic| self.members.record(self.me.member, topic));
        let items: Vec<Item> = records.cloned().map(Item::Record).collect();
        if items.is_empty() {
            return;
        }
        if !self.push_budget.take(now, 1) {
            let gap = Duration::from_secs(1) / self.profile.pushes_per_second.max(1);
            self.timers.push = now + gap;
            return;
        }
        self.own.unpushed = 0;
        let coordinators: Vec<MemberId> = self.coordinators().collect();
        for to in coordinators {
            if self.links.get(&to).is_some_and(|link| link.open) {
                self.send(to, Message::Gossip { items: items.clone() }, Delivery::Stream);
            }
        }
    }

    pub(super) fn flush_urgent(&mut self, now: Timestamp) {
        self.timers.urgent = Timestamp::NEVER;
        if !self.flush(now, Urgency::Urgent) {
            self.timers.urgent = now + PAUSE;
        }
    }

    pub(super) fn flush_gossip(&mut self, now: Timestamp) {
        self.timers.gossip = Timestamp::NEVER;
        if !self.flush(now, Urgency::Gossip) {
            self.timers.gossip = now + self.profile.gossip_every;
        }
    }

    /// Tells everybody we tell what they were not told yet. False: the budget is used up.
    fn flush(&mut self, now: Timestamp, class: Urgency) -> bool {
        let watched = self.watched();
        let mut listeners: Vec<MemberId> = watched.clone();
        listeners.extend(self.coordinators().filter(|member| !watched.contains(member)));
        if self.profile.leaf && class == Urgency::Gossip && self.has_coordinator() {
            listeners.retain(|member| self.coordinator_ids.contains(member));
        }
        let end = self.log(class).end();
        // With whom a link is being made, is told when it is up.
        let mut read_by_all = end;
        listeners.retain(|member| match self.links.get(member) {
            Some(link) if link.open => true,
            Some(link) if link.dialling => {
                read_by_all = read_by_all.min(link.place(class));
                false
            }
            Some(_) | None => false,
        });
        let turn = self.random.below(listeners.len().max(1));
        listeners.rotate_left(turn);
        let mut finished = true;
        let mut known = FlushCache::default();
        for to in listeners {
            let own_only = self.profile.leaf || !watched.contains(&to);
            let place = self.links[&to].place(class);
            // Looked at before the pieces are: when much is new, that is work for nothing.
            if place < end && !self.budget(class).is_open(now) {
                read_by_all = read_by_all.min(place);
                finished = false;
                continue;
            }
            let (items, place, size) = self.pieces(class, to, own_only, place, &mut known);
            if !items.is_empty() {
                self.budget(class).take(now, size);
                self.send_items(to, items, class);
            }
            finished &= place == end;
            read_by_all = read_by_all.min(place);
            if let Some(link) = self.links.get_mut(&to) {
                *link.place_mut(class) = place;
            }
        }
        match class {
            Urgency::Urgent => self.urgent.drop_until(now, read_by_all),
            Urgency::Gossip => self.gossip.drop_until(now, read_by_all),
        }
        finished
    }

    /// What `to` was not told, up to what one flush may carry; the place after it, and its bytes.
    fn pieces(
        &self,
        class: Urgency,
        to: MemberId,
        own_only: bool,
        mut place: u64,
        known: &mut FlushCache,
    ) -> (Vec<Item>, u64, usize) {
        let most = match class {
            Urgency::Urgent => STREAM_BYTES,
            Urgency::Gossip => ITEMS_BYTES * DATAGRAMS,
        };
        let is_pushed = class == Urgency::Gossip && self.coordinator_ids.contains(&to);
        let (mut items, mut size) = (Vec::new(), 0);
        for (after, enqueue) in self.log(class).from(place) {
            let wanted = enqueue.from != Some(to)
                && (!own_only || enqueue.from.is_none())
                && !about(&enqueue.item, to)
                && !(is_pushed && enqueue.from.is_none())
                && known.is_current(after, || self.is_current(&enqueue.item));
            if wanted {
                let bytes = enqueue.item.size();
                if size + bytes > most && !items.is_empty() {
                    break;
                }
                size += bytes;
                items.push(enqueue.item.clone());
            }
            place = after;
        }
        (items, place, size)
    }

    /// Sends news in as few packets as hold it. Who is there is told by stream: it is said rarely,
    /// and a suspicion that is lost on its way to the suspected member is one that it cannot refute.
    fn send_items(&mut self, to: MemberId, items: Vec<Item>, class: Urgency) {
        let total: usize = items.iter().map(Item::size).sum();
        let (most, delivery) = if class == Urgency::Urgent || total > ITEMS_BYTES * DATAGRAMS {
            (STREAM_BYTES, Delivery::Stream)
        } else {
            (ITEMS_BYTES, Delivery::Datagram)
        };
        let (mut packet, mut size) = (Vec::new(), 0);
        for item in items {
            let bytes = item.size();
            if size + bytes > most && !packet.is_empty() {
                let items = std::mem::take(&mut packet);
                self.send(to, Message::Gossip { items }, delivery);
                size = 0;
            }
            size += bytes;
            packet.push(item);
        }
        if !packet.is_empty() {
            self.send(to, Message::Gossip { items: packet }, delivery);
        }
    }

    /// Whether nothing newer has come since.
    fn is_current(&self, item: &Item) -> bool {
        match item {
            Item::Record(record) => {
                self.members.version(record.subject, record.topic) == Some(record.version)
            }
            Item::Suspicion(suspicion) => {
                let alive = self.members.version(suspicion.subject, Topic::Alive);
                alive == Some(suspicion.alive)
            }
        }
    }

    fn budget(&mut self, class: Urgency) -> &mut Budget {
        match class {
            Urgency::Urgent => &mut self.urgent_budget,
            Urgency::Gossip => &mut self.gossip_budget,
        }
    }

    fn log(&self, class: Urgency) -> &super::gossip_log::GossipLog {
        match class {
            Urgency::Urgent => &self.urgent,
            Urgency::Gossip => &self.gossip,
        }
    }
}

/// Which pieces of a log are current, as found in one flush: each is told to several.
#[derive(Debug, Default)]
struct FlushCache {
    first: u64,
    current: Vec<Option<bool>>,
}

impl FlushCache {
    fn is_current(&mut self, place: u64, look: impl FnOnce() -> bool) -> bool {
        if self.current.is_empty() {
            self.first = place;
        }
        // Those who are behind the first that was asked for are few.
        let Some(nth) = place.checked_sub(self.first) else { return look() };
        let Ok(nth) = usize::try_from(nth) else { return look() };
        if nth >= self.current.len() {
            self.current.resize(nth + 1, None);
        }
        *self.current[nth].get_or_insert_with(look)
    }
}

/// Nobody needs to be told what he said himself.
fn about(item: &Item, member: MemberId) -> bool {
    match item {
        Item::Record(record) => record.subject == member,
        Item::Suspicion(suspicion) => suspicion.by == member,
    }
}

/// The two kinds of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Who is there.
    Urgent,
    /// How they are doing.
    Gossip,
}
