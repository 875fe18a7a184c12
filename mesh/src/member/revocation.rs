//! Who is expelled. Every coordinator has a list of all whom it knows to be, and says what others said
//! too, so that it outlives them.
//!
//! An entry is needed for as long as a certificate of its member is valid: after that nobody accepts
//! the certificate, and the authority's register, which keeps the member as expelled, gives no other.
//! So the lists do not grow for ever. When there is no room for all, that is said aloud.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::time::Timestamp;

use super::{Delivery, Member, MemberEvent, MemberOutput, is_coordinator};
use crate::identity::{Authenticator, MemberId};
use crate::message::Message;
use crate::record::{Content, Item, REVOCATIONS, Record, Revocation, Topic};

/// Members that can be known as revoked at a time: more than the authority's register holds.
pub(crate) const REVOKED: usize = 65_536;

/// How long after the end of the last certificate an entry is kept, for clocks that are behind.
const GRACE: Duration = Duration::from_secs(7 * 86_400);

/// Whether an entry still says something.
pub(crate) fn is_needed(now: Timestamp, revocation: &Revocation) -> bool {
    now.since(revocation.until()) < GRACE
}

impl<N: Authenticator> Member<N> {
    /// What was known in an earlier life. A coordinator says it again.
    pub(super) fn remember_revoked(&mut self, now: Timestamp, list: &[Revocation]) {
        let list = list.iter().filter(|entry| is_needed(now, entry)).take(REVOKED);
        self.revoked = list.map(|entry| (entry.member, entry.until_s)).collect();
        if self.revoked.contains_key(&self.me.member) {
            self.put_out(self.me.member);
        }
        if is_coordinator(&self.me) && !self.revoked.is_empty() {
            self.say_revoked(now, &[]);
        }
    }

    pub(super) fn take_revocations(&mut self, now: Timestamp, from: MemberId, record: Arc<Record>) {
        let list = revoked_by(&record).to_vec();
        self.members.put(record.clone(), None);
        self.enqueue(now, Item::Record(record), Some(from));
        self.expel(now, &list);
        self.second(now, &list);
    }

    /// What one coordinator says must outlive it: every coordinator says it too.
    pub(super) fn second(&mut self, now: Timestamp, list: &[Revocation]) {
        let own = self.members.record(self.me.member, Topic::Revocations);
        let said: BTreeMap<MemberId, u64> =
            own.map(|own| entries(revoked_by(own))).unwrap_or_default();
        let is_said = |entry: &Revocation| {
            said.get(&entry.member).is_some_and(|until_s| *until_s >= entry.until_s)
        };
        let mut news = list.iter().filter(|entry| is_needed(now, entry) && !is_said(entry));
        if is_coordinator(&self.me) && news.next().is_some() {
            self.revoke(now, list.to_vec());
        }
    }

    /// A coordinator's own decision.
    pub(super) fn revoke(&mut self, now: Timestamp, members: Vec<Revocation>) {
        if !is_coordinator(&self.me) || members.is_empty() {
            return;
        }
        self.say_revoked(now, &members);
        self.expel(now, &members);
    }

    /// Says whom we know to be expelled. The newest list replaces the older ones, so it names all; should
    /// there be no room, the new ones first: of the others everybody has heard.
    fn say_revoked(&mut self, now: Timestamp, news: &[Revocation]) {
        let mut all = self.revoked.clone();
        for entry in news {
            let until_s = all.entry(entry.member).or_default();
            *until_s = entry.until_s.max(*until_s);
        }
        let new: BTreeSet<MemberId> = news.iter().map(|entry| entry.member).collect();
        let all = all.into_iter().map(|(member, until_s)| Revocation { member, until_s });
        let mut all: Vec<Revocation> = all.filter(|entry| is_needed(now, entry)).collect();
        all.sort_by_key(|entry| !new.contains(&entry.member));
        if all.len() > REVOCATIONS {
            let left_out = all.len() - REVOCATIONS;
            self.tell(MemberEvent::TooManyRevoked { left_out, limit: REVOCATIONS });
            all.truncate(REVOCATIONS);
        }
        all.sort_unstable_by_key(|entry| entry.member);
        self.publish(now, Content::Revocations(all));
    }

    pub(super) fn expel(&mut self, now: Timestamp, list: &[Revocation]) {
        let (mut new, mut left_out) = (Vec::new(), 0);
        for entry in list.iter().filter(|entry| is_needed(now, entry)) {
            let is_full = self.revoked.len() >= REVOKED;
            match self.revoked.get_mut(&entry.member) {
                Some(until_s) if *until_s < entry.until_s => {
                    *until_s = entry.until_s;
                    new.push(*entry);
                }
                Some(_) => {}
                None if is_full => left_out += 1,
                None => {
                    self.revoked.insert(entry.member, entry.until_s);
                    self.put_out(entry.member);
                    new.push(*entry);
                }
            }
        }
        if left_out > 0 {
            self.tell(MemberEvent::TooManyRevoked { left_out, limit: REVOKED });
        }
        if !new.is_empty() {
            self.tell(MemberEvent::Revoked(new));
        }
    }

    fn put_out(&mut self, member: MemberId) {
        if member == self.me.member {
            self.own.expelled = true;
            self.tell(MemberEvent::Expelled);
            return;
        }
        if self.is_linked(member) {
            // It should know why nobody speaks to it any more.
            let names_it =
                |list: &&Arc<Record>| revoked_by(list).iter().any(|entry| entry.member == member);
            let list = self.members.revocations().find(names_it);
            let items = list.cloned().map(Item::Record).into_iter().collect();
            self.send(member, Message::Gossip { items }, Delivery::Stream);
            self.out.push(MemberOutput::Close { peer: member });
        }
        self.remove_member(member);
    }

    /// Forgets whose last certificate ended long ago.
    pub(super) fn forget_revoked(&mut self, now: Timestamp) {
        self.revoked.retain(|member, until_s| {
            is_needed(now, &Revocation { member: *member, until_s: *until_s })
        });
    }
}

/// MemberSelector a record expels.
pub(super) fn revoked_by(record: &Record) -> &[Revocation] {
    match &record.content {
        Content::Revocations(list) => list,
        Content::Certificate | Content::Alive(_) | Content::Info(_) | Content::Load(_) => &[],
    }
}

fn entries(list: &[Revocation]) -> BTreeMap<MemberId, u64> {
    list.iter().map(|entry| (entry.member, entry.until_s)).collect()
}
