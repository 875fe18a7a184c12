//! Members with owners: what a fleet that is simulated on top of a mesh needs of it. It steps the mesh
//! by its own clock, hears what members tell, and has requests travel on their links.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::cmp::Reverse;
use std::time::Duration;

use volvox_protocol::time::Timestamp;

use super::{ACKNOWLEDGEMENT, LOST, PACKET, Simulation};
use crate::identity::{MemberId, MemberKind};
use crate::member::MemberEvent;
use crate::message::DATAGRAM_BYTES;

impl Simulation {
    /// When something happens next.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.queue.peek().map(|Reverse(event)| event.at)
    }

    /// Lets the next thing happen, if it happens by then. Otherwise that is the time.
    pub fn step_until(&mut self, end: Timestamp) -> bool {
        let happened = self.step(end);
        if !happened {
            self.now = self.now.max(end);
        }
        happened
    }

    /// How long a request or an answer of so many bytes takes from one to another, on their link; none:
    /// there is no link, or nothing passes. Streams are not lost: what is lost on the way comes later.
    pub fn carry(&mut self, from: usize, to: usize, bytes: usize) -> Option<Duration> {
        let id = self.members.get(to)?.id;
        let link = self.members[from].links.get_mut(&id)?;
        link.used = self.now;
        let packets = (bytes as u64).div_ceil(DATAGRAM_BYTES as u64).max(1);
        self.members[from].traffic.packets += packets;
        self.count(from, to, bytes as u64 + packets * PACKET);
        self.count(to, from, packets * ACKNOWLEDGEMENT / 2);
        if !self.passes(from, to) || !self.members[to].alive {
            return None;
        }
        let mut delay = self.latency();
        while self.lost() {
            delay += LOST;
        }
        Some(delay + self.backlog.get(&to).copied().unwrap_or_default())
    }

    /// Whether a member has a link to another, as far as it knows.
    pub fn is_linked(&self, from: usize, to: usize) -> bool {
        self.members[from].links.contains_key(&self.members[to].id)
    }

    /// Whether a member is asleep.
    pub fn paused_until(&self, place: usize) -> Timestamp {
        self.members[place].paused_until
    }

    /// Where a member of this id stands.
    pub fn place_of(&self, member: MemberId) -> Option<usize> {
        self.by_id.get(&member).copied()
    }

    pub(super) fn concerns_owner(&self, place: usize, event: &MemberEvent) -> bool {
        let own = self.ca.identity(place).kind;
        match event {
            MemberEvent::Present { identity, .. } | MemberEvent::Missing { identity, .. } => {
                identity.kind != own
            }
            MemberEvent::Published(_) => own == MemberKind::Coordinator,
            MemberEvent::Revoked(_)
            | MemberEvent::TooManyRevoked { .. }
            | MemberEvent::Expelled
            | MemberEvent::Moved(_) => false,
        }
    }
}
