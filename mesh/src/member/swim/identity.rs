//! Members as foca knows them, and how their alive records become foca's incarnations.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use foca::{Incarnation, State};
use serde::{Deserialize, Serialize};

use crate::identity::MemberId;
use crate::record::Version;

/// Bits of an alive record's count that are foca's incarnation, which has 16. The rest is part of the
/// identity, so that foca's largest incarnation, which it cannot raise, is never reached.
const INCARNATION_BITS: u32 = 15;

/// A member as foca knows it. A higher generation or epoch replaces a lower one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FocaId {
    pub(super) member: MemberId,
    generation: u64,
    epoch: u32,
}

impl FocaId {
    /// This member itself. It never leaves the process, so it names no alive record.
    pub(super) fn own(me: MemberId) -> FocaId {
        FocaId { member: me, generation: 0, epoch: 0 }
    }
}

impl foca::Identity for FocaId {
    type Addr = MemberId;

    fn renew(&self) -> Option<FocaId> {
        Some(FocaId { epoch: self.epoch.wrapping_add(1), ..self.clone() })
    }

    fn addr(&self) -> MemberId {
        self.member
    }

    fn win_addr_conflict(&self, other: &FocaId) -> bool {
        (self.generation, self.epoch) > (other.generation, other.epoch)
    }
}

/// A member, and the version of its newest alive record that was verified here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::member) struct Proven {
    pub(in crate::member) member: MemberId,
    pub(in crate::member) alive: Version,
}

impl Proven {
    pub(super) fn id(self) -> FocaId {
        let Version { generation, count } = self.alive;
        FocaId { member: self.member, generation, epoch: count >> INCARNATION_BITS }
    }

    pub(super) fn incarnation(self) -> Incarnation {
        let count = self.alive.count & ((1 << INCARNATION_BITS) - 1);
        Incarnation::try_from(count).unwrap_or(Incarnation::MAX)
    }

    pub(super) fn state(self, state: State) -> foca::Member<FocaId> {
        foca::Member::new(self.id(), self.incarnation(), state)
    }

    /// The alive record that foca's identity and incarnation stand for: the inverse of [`Proven::state`].
    pub(super) fn of(member: &foca::Member<FocaId>) -> Proven {
        let FocaId { member: id, generation, epoch } = *member.id();
        let count = epoch << INCARNATION_BITS | u32::from(member.incarnation());
        Proven { member: id, alive: Version { generation, count } }
    }
}
