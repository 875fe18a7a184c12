//! What foca needs from its host: random numbers, and a place for what it wants done.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Buf as _;
use foca::{Codec as _, Header, Notification, PostcardCodec, Runtime, Timer};
use volvox_protocol::random::SplitMix;

use super::identity::FocaId;
use crate::identity::MemberId;

/// SplitMix as foca's source of random numbers.
///
/// While `keeps_order` is set, every number is the largest. foca shuffles its list when it has probed
/// all members of it; with the largest number at each step the order stays. So a neighbour is pinged
/// once in as many periods as there are neighbours. With a new order each time it could take nearly
/// twice as long, and a death whose other watchers died too would be found that much later.
pub(super) struct Random {
    source: SplitMix,
    keeps_order: Arc<AtomicBool>,
}

impl Random {
    pub(super) fn new(source: SplitMix, keeps_order: Arc<AtomicBool>) -> Random {
        Random { source, keeps_order }
    }

    fn next(&mut self) -> u64 {
        if self.keeps_order.load(Ordering::Relaxed) { u64::MAX } else { self.source.next() }
    }
}

impl rand_core::TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// What foca asked for in one call.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) sent: Vec<(FocaId, Header<FocaId>, Vec<foca::Member<FocaId>>)>,
    pub(super) timers: Vec<(Timer<FocaId>, Duration)>,
    pub(super) down: Vec<MemberId>,
    /// All earlier timers are void.
    pub(super) reset: bool,
    pub(super) rejoined: bool,
}

impl Runtime<FocaId> for Requests {
    fn notify(&mut self, notification: Notification<'_, FocaId>) {
        match notification {
            Notification::MemberDown(id) => self.down.push(id.member),
            Notification::Idle | Notification::Defunct => self.reset = true,
            Notification::Rejoin(_) => {
                self.reset = true;
                self.rejoined = true;
            }
            Notification::MemberUp(_) | Notification::Rename(..) | Notification::Active => {}
        }
    }

    fn send_to(&mut self, to: FocaId, mut data: &[u8]) {
        // foca wrote these bytes a moment ago with the same codec.
        let Ok(header) = PostcardCodec.decode_header(&mut data) else { return };
        let count = if data.remaining() >= 2 { data.get_u16() } else { 0 };
        let updates = (0..count).map_while(|_| PostcardCodec.decode_member(&mut data).ok());
        self.sent.push((to, header, updates.collect()));
    }

    fn submit_after(&mut self, timer: Timer<FocaId>, after: Duration) {
        self.timers.push((timer, after));
    }
}
