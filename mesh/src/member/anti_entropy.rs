//! How two members find out where they differ, and mend it.
//!
//! Every ping shows digests of all that its sender knows. When they differ for longer than news
//! takes, one side asks for a comparison: digests of 64 parts, then what is in the parts that differ,
//! then the records. A newcomer has nothing, and is sent everything by the first whom it asks. The
//! work for one question is bounded; what is left over is asked for again.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

use volvox_protocol::time::{Backoff, Timestamp};

use super::members::{bucket_of, topics};
use super::{Delivery, Member, rings};
use crate::identity::{Authenticator, MemberId};
use crate::message::{BUCKETS, HeldVersions, Message, Roots, Scope};
use crate::record::{Item, Topic};

/// Holdings in one answer.
const HOLDINGS: usize = 4_096;

/// Bytes of records in answer to one question.
const ANSWER_BYTES: usize = 512 << 10;

/// An answer of so many bytes counts as one more question.
const QUESTION_BYTES: usize = 64 << 10;

/// Differences in a row that mean something. One alone may be news on its way.
const MISMATCHES: u32 = 2;

/// For so long after a newcomer has been told everything, one difference means something: what came
/// up between the answer and the first links of those who watch it, nobody tells it.
const YOUTH: Duration = Duration::from_secs(5);

/// The wait after the first comparison without agreement is this part of what the profile says; each
/// further one is twice as long, up to that.
const SOON: u32 = 8;

/// The wait before the rest is asked for: what was sent should have come by then.
const AGAIN: Duration = Duration::from_millis(300);

/// The wait for each holding that came, before more are asked for: some 16 KiB of them a second.
const HOLDING_PAUSE: Duration = Duration::from_millis(2);

/// The bit of a [`Message::Want`] that stands for suspicions.
const SUSPICIONS: u8 = 1 << 7;

impl<N: Authenticator> Member<N> {
    /// Asks one that we just met for all it knows.
    pub(super) fn ask_everything(&mut self, now: Timestamp, peer: MemberId) {
        self.asked_everything = now;
        if self.profile.leaf {
            self.ask(peer, Scope::Coordinators);
        } else {
            // Loads follow: they can be checked only against certificates.
            self.ask(peer, Scope::Membership);
        }
    }

    fn ask(&mut self, peer: MemberId, scope: Scope) {
        let Some(link) = self.links.get_mut(&peer).filter(|link| link.open) else { return };
        link.asked |= 1 << scope as u8;
        let buckets = match scope {
            Scope::Membership | Scope::Load => self.members.buckets(scope),
            // The answer names what there is: digests would say nothing of a few members.
            Scope::Coordinators => Vec::new(),
        };
        self.send(peer, Message::Compare { scope, buckets }, Delivery::Stream);
    }

    /// Somebody shows digests of what it knows.
    pub(super) fn consider_roots(&mut self, now: Timestamp, from: MemberId, theirs: Roots) {
        let ours = self.members.roots();
        if self.profile.leaf {
            // It compares nothing, but who the coordinators and its peers are it asks now and then.
            let may_know = self.coordinator_ids.contains(&from) || !self.has_coordinator();
            if may_know && self.timers.compare <= now {
                self.timers.compare = now + self.jittered(self.profile.compare_every);
                self.ask(from, Scope::Coordinators);
            }
            return;
        }
        let Some(link) = self.links.get_mut(&from).filter(|_| theirs != Roots::default()) else {
            return;
        };
        // Not every ping shows it.
        if theirs.load != 0 {
            link.loads_differ = theirs.load != ours.load;
        }
        let loads_differ = link.loads_differ && theirs.load != 0;
        if theirs.membership == ours.membership {
            link.mismatches = 0;
            self.comparisons = 0;
        } else {
            link.mismatches += 1;
        }
        let mismatches = link.mismatches;
        // One that shows us other digests again and again must not be the only one that we ask.
        let others = |differs: fn(&super::MemberLink) -> bool| {
            let mut others = self.links.iter().filter(|(peer, _)| **peer != from);
            others.any(|(_, link)| link.open && differs(link))
        };
        let is_turn = self.compared_with != Some(from) || !others(|link| link.mismatches > 0);
        let is_turn_of_loads =
            self.compared_loads_with != Some(from) || !others(|link| link.loads_differ);
        let is_young = now.since(self.asked_everything) < YOUTH;
        let enough = if is_young { 1 } else { MISMATCHES };
        if mismatches >= enough && is_turn && self.timers.compare <= now {
            self.compared_with = Some(from);
            if let Some(link) = self.links.get_mut(&from) {
                link.mismatches = 0;
            }
            // A few in a row soon after each other: while many join, one finds only what was there.
            self.comparisons = self.comparisons.saturating_add(1);
            let longest = self.profile.compare_every;
            let backoff = Backoff { first: longest / SOON, longest };
            self.timers.compare = now + self.jittered(backoff.after(self.comparisons));
            self.ask(from, Scope::Membership);
        }
        if loads_differ && is_turn_of_loads && self.timers.compare_loads <= now {
            self.compared_loads_with = Some(from);
            self.timers.compare_loads = now + self.jittered(self.profile.compare_loads_every);
            self.ask(from, Scope::Load);
        }
    }

    /// More parts differed than one answer holds.
    pub(super) fn compare_again(&mut self, _now: Timestamp) {
        let waiting = self.links.iter_mut().filter(|(_, link)| link.open && link.unfinished);
        let waiting: Vec<MemberId> = waiting
            .map(|(peer, link)| {
                link.unfinished = false;
                *peer
            })
            .collect();
        for peer in waiting {
            self.ask(peer, Scope::Membership);
        }
    }

    /// Somebody asks where we differ.
    pub(super) fn compared(
        &mut self,
        now: Timestamp,
        from: MemberId,
        scope: Scope,
        theirs: &[u64],
    ) {
        let Some(link) = self.links.get_mut(&from).filter(|link| link.open) else { return };
        if !link.questions.take(now, 1) || !matches!(theirs.len(), 0 | BUCKETS) {
            self.refused.excessive += 1;
            return;
        }
        if scope == Scope::Coordinators {
            self.tell_of_coordinators(from);
            return;
        }
        let mut bytes = 0;
        let (mut parts, mut holdings, mut items) = (0u64, Vec::new(), Vec::new());
        let mut more = false;
        // Begin anywhere, so that a bounded answer is not always about the same parts.
        let turn = self.random.below(BUCKETS);
        for bucket in (0..BUCKETS).map(|nth| (nth + turn) % BUCKETS) {
            let digest = theirs.get(bucket).copied().unwrap_or(0);
            if digest == self.members.digests(scope)[bucket] {
                continue;
            }
            if holdings.len() >= HOLDINGS || bytes >= ANSWER_BYTES {
                more = scope == Scope::Membership;
                break;
            }
            parts |= 1 << bucket;
            if digest != 0 {
                holdings.extend(self.members.holdings(bucket, scope));
                continue;
            }
            let from = items.len();
            for member in self.members.members_of(bucket) {
                self.add_items(member, scope_bits(scope) | SUSPICIONS, &mut items);
            }
            bytes += items[from..].iter().map(Item::size).sum::<usize>();
        }
        self.weigh(now, from, bytes);
        // What they have nothing of goes at once; the parts that follow are the others.
        self.send_stream(from, items);
        let message = Message::Differ { scope, buckets: parts, holdings, more };
        self.send(from, message, Delivery::Stream);
    }

    /// Long answers use up more of what one may ask.
    fn weigh(&mut self, now: Timestamp, to: MemberId, bytes: usize) {
        if let Some(link) = self.links.get_mut(&to) {
            link.questions.take(now, bytes / QUESTION_BYTES);
        }
    }

    /// Tells a leaf what there is of the coordinators, and of the cells that it should have links to.
    fn tell_of_coordinators(&mut self, to: MemberId) {
        let mut all: Vec<MemberId> = self.coordinator_ids.iter().copied().collect();
        all.push(self.me.member);
        all.retain(|member| self.members.get(*member).is_some_and(|s| s.is_coordinator()));
        all.extend(self.leaf_peers(to, rings::LEAF_CANDIDATES));
        let scope = Scope::Coordinators;
        let holdings = all.into_iter().map(|member| self.members.holding(member, scope));
        let holdings = holdings.collect();
        let message = Message::Differ { scope, buckets: 0, holdings, more: false };
        self.send(to, message, Delivery::Stream);
    }

    /// What the other side has where we differ.
    pub(super) fn differs(
        &mut self,
        now: Timestamp,
        from: MemberId,
        scope: Scope,
        parts: u64,
        holdings: &[HeldVersions],
        more: bool,
    ) {
        let bit = 1 << scope as u8;
        let link = self.links.get_mut(&from).filter(|link| link.open && link.asked & bit != 0);
        let Some(link) = link else {
            self.refused.unasked += 1;
            return;
        };
        link.asked &= !bit;
        link.unfinished |= more;
        // In a large mesh in which much happens every part differs, and the list of what is in them
        // is long: it is asked for the more seldom, so that what it costs is bounded.
        let pause = HOLDING_PAUSE * u32::try_from(holdings.len()).unwrap_or(u32::MAX);
        self.timers.compare = self.timers.compare.max(now + pause);
        if more {
            let at = now + AGAIN.max(pause);
            self.timers.compare_again = self.timers.compare_again.min(at);
        } else if scope != Scope::Load && !self.synced {
            self.synced = true;
            if scope == Scope::Membership {
                self.ask(from, Scope::Load);
            }
        }
        // In the order of their ids, as our own: they may come in any.
        let mut theirs: Vec<&HeldVersions> = holdings.iter().take(HOLDINGS * 2).collect();
        theirs.sort_by_key(|holding| holding.subject);
        theirs.dedup_by_key(|holding| holding.subject);
        let (mut wanted, mut items) = (Vec::new(), Vec::new());
        let mut listed = 0u64;
        for holding in &theirs {
            listed |= 1 << bucket_of(holding.subject);
            if self.revoked.contains_key(&holding.subject) {
                continue;
            }
            let (want, give) = self.difference(scope, holding);
            if want != 0 {
                wanted.push((holding.subject, want));
            }
            if give != 0 {
                self.add_items(holding.subject, give, &mut items);
            }
        }
        // A part that came with its records instead of holdings has nothing of ours to compare.
        for bucket in (0..BUCKETS).filter(|bucket| parts & listed & (1 << bucket) != 0) {
            let is_theirs =
                |m: &MemberId| theirs.binary_search_by_key(m, |holding| holding.subject).is_ok();
            for member in self.members.members_of(bucket).filter(|m| !is_theirs(m)) {
                self.add_items(member, scope_bits(scope) | SUSPICIONS, &mut items);
            }
        }
        self.send_stream(from, items);
        if !wanted.is_empty() {
            self.send(from, Message::Want { wanted }, Delivery::Stream);
        }
    }

    /// The topics that we want of a subject, and those that we can give.
    fn difference(&self, scope: Scope, theirs: &HeldVersions) -> (u8, u8) {
        let (mut want, mut give) = (0, 0);
        let ours = self.members.holding(theirs.subject, scope);
        for topic in topics(scope) {
            let (mine, held) = (ours.versions.of(*topic), theirs.versions.of(*topic));
            want |= if held > mine { topic.bit() } else { 0 };
            give |= if mine > held { topic.bit() } else { 0 };
        }
        if scope == Scope::Membership {
            want |= if theirs.missing && !ours.missing { SUSPICIONS } else { 0 };
            give |= if ours.missing && !theirs.missing { SUSPICIONS } else { 0 };
        }
        (want, give)
    }

    /// Somebody asks for records.
    pub(super) fn hand_over(&mut self, now: Timestamp, to: MemberId, wanted: &[(MemberId, u8)]) {
        let Some(link) = self.links.get_mut(&to).filter(|link| link.open) else { return };
        if !link.questions.take(now, 1) {
            self.refused.excessive += 1;
            return;
        }
        let (mut items, mut bytes) = (Vec::new(), 0);
        for (member, bits) in wanted.iter().take(HOLDINGS * 2) {
            let from = items.len();
            self.add_items(*member, *bits, &mut items);
            bytes += items[from..].iter().map(Item::size).sum::<usize>();
            if bytes >= ANSWER_BYTES {
                break;
            }
        }
        self.weigh(now, to, bytes);
        self.send_stream(to, items);
    }

    /// Adds what we have of a member, in the order in which it can be checked.
    fn add_items(&self, member: MemberId, bits: u8, items: &mut Vec<Item>) {
        let topics = Topic::ALL.into_iter().filter(|topic| bits & topic.bit() != 0);
        let records = topics.filter_map(|topic| self.members.record(member, topic).cloned());
        items.extend(records.map(Item::Record));
        if bits & SUSPICIONS != 0 {
            items.extend(self.suspicions_of(member));
        }
    }

    fn send_stream(&mut self, to: MemberId, items: Vec<Item>) {
        let (mut packet, mut size) = (Vec::new(), 0);
        for item in items {
            size += item.size();
            packet.push(item);
            if size >= super::dissemination::STREAM_BYTES {
                let items = std::mem::take(&mut packet);
                self.send(to, Message::Records { items }, Delivery::Stream);
                size = 0;
            }
        }
        if !packet.is_empty() {
            self.send(to, Message::Records { items: packet }, Delivery::Stream);
        }
    }
}

fn scope_bits(scope: Scope) -> u8 {
    topics(scope).iter().fold(0, |bits, topic| bits | topic.bit())
}
