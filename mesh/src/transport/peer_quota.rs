//! Quota of one member, over all its connections: the number of packets that wait for the owner,
//! and packets and bytes per second. Each member has its own quota, so a member that floods slows
//! down only itself.
//!
//! Packets above the quota are dropped and counted. A member that continues to send too much loses
//! its link and gets no new one for [`BARRED`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use volvox_host::sync::lock;
use volvox_protocol::time::{Timestamp, TokenBucket};

/// Maximum number of packets that wait for the owner. A correct member needs few: it sends at most
/// about 50 packets per second to one other member, and some dozens for a long list.
const WAITING: usize = 128;
/// Packets per second, and the burst of packets that may come at the same time.
const PACKETS: (u64, u64) = (500, 2_000);
/// The same in bytes.
const BYTES: (u64, u64) = (4 << 20, 16 << 20);
/// Number of dropped packets since the bucket was last full that close the link.
const DROPPED: u32 = 4_000;
/// How long the member then gets no new link.
const BARRED: Duration = Duration::from_secs(10);

/// What to do with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacketAction {
    Take,
    Drop,
    /// Drop it, and close the link.
    Close,
}

/// What one member may send. The caller passes the time.
#[derive(Debug)]
struct Allowance {
    packets: TokenBucket,
    bytes: TokenBucket,
    dropped: u32,
    barred_until: Timestamp,
}

impl Allowance {
    fn new(now: Timestamp) -> Allowance {
        Allowance {
            packets: TokenBucket::full(now, PACKETS.0, PACKETS.1),
            bytes: TokenBucket::full(now, BYTES.0, BYTES.1),
            dropped: 0,
            barred_until: Timestamp::ZERO,
        }
    }

    fn is_whole(&mut self, now: Timestamp) -> bool {
        self.packets.is_full(now) && self.bytes.is_full(now)
    }

    fn judge(&mut self, now: Timestamp, bytes: usize, has_room: bool) -> PacketAction {
        if self.is_whole(now) {
            self.dropped = 0;
        }
        // A dropped packet costs a token too, so that a member that continues gets no tokens.
        let is_paid = self.packets.take(now, 1);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if has_room && is_paid && self.bytes.take(now, bytes) {
            return PacketAction::Take;
        }
        self.dropped += 1;
        if self.dropped < DROPPED {
            return PacketAction::Drop;
        }
        self.dropped = 0;
        self.barred_until = now + BARRED;
        PacketAction::Close
    }
}

/// The quota of one member.
#[derive(Debug)]
pub(super) struct PeerQuota {
    waiting: AtomicUsize,
    allowance: Mutex<Allowance>,
    /// Free bytes of the member's budget for received messages and requests.
    pub(super) inbound: Arc<Semaphore>,
}

/// Result of [`PeerQuota::take`].
pub(super) enum AdmitResult {
    /// The packet is accepted. It counts as waiting until these bytes are dropped.
    QueuedPacket(Bytes),
    /// The packet is above the quota and was dropped.
    Excess,
    /// The packet was dropped, and the member sent too much for so long that the link must be
    /// closed.
    TooMuch,
}

impl PeerQuota {
    pub(super) fn new(now: Timestamp, inbound: usize) -> PeerQuota {
        PeerQuota {
            waiting: AtomicUsize::new(0),
            allowance: Mutex::new(Allowance::new(now)),
            inbound: Arc::new(Semaphore::new(inbound.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Applies the quota to a received packet.
    pub(super) fn take(self: &Arc<Self>, now: Timestamp, bytes: Bytes) -> AdmitResult {
        let has_room = self.waiting.load(Ordering::Relaxed) < WAITING;
        match lock(&self.allowance).judge(now, bytes.len(), has_room) {
            PacketAction::Take => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                AdmitResult::QueuedPacket(Bytes::from_owner(QueuedPacket {
                    bytes,
                    quota: self.clone(),
                }))
            }
            PacketAction::Drop => AdmitResult::Excess,
            PacketAction::Close => AdmitResult::TooMuch,
        }
    }

    /// Whether the member may not have a link now.
    pub(super) fn is_barred(&self, now: Timestamp) -> bool {
        lock(&self.allowance).barred_until > now
    }

    /// Whether the quota can be dropped from memory: the buckets are full and the member is not
    /// barred.
    pub(super) fn is_whole(&self, now: Timestamp) -> bool {
        let mut allowance = lock(&self.allowance);
        allowance.is_whole(now) && allowance.barred_until <= now
    }
}

/// A packet that waits for the owner.
struct QueuedPacket {
    bytes: Bytes,
    quota: Arc<PeerQuota>,
}

impl AsRef<[u8]> for QueuedPacket {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for QueuedPacket {
    fn drop(&mut self) {
        self.quota.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Timestamp = Timestamp::from_secs(1);

    #[test]
    fn an_honest_pace_is_never_too_much_and_a_flood_is_cut_to_the_rate() {
        let mut honest = Allowance::new(Timestamp::ZERO);
        let mut flood = Allowance::new(Timestamp::ZERO);
        let mut taken = 0;
        for millisecond in 0..60_000u32 {
            let now = Timestamp::ZERO + Duration::from_millis(millisecond.into());
            if millisecond % 10 == 0 {
                assert_eq!(honest.judge(now, 20_000, true), PacketAction::Take);
            }
            // Four times the rate.
            for _ in 0..2 {
                taken += u64::from(flood.judge(now, 100, true) == PacketAction::Take);
            }
        }
        let most = PACKETS.1 + 60 * PACKETS.0;
        assert!(taken <= most, "{taken} of {most} packets");
    }

    #[test]
    fn who_goes_on_is_barred_for_a_while_and_then_may_come_again() {
        let quota = Arc::new(PeerQuota::new(Timestamp::ZERO, 1));
        let mut kept = Vec::new();
        let mut outcomes = [0u32; 3];
        for _ in 0..WAITING + usize::try_from(DROPPED).unwrap() {
            match quota.take(SECOND, Bytes::from_static(b"x")) {
                AdmitResult::QueuedPacket(bytes) => kept.push(bytes),
                AdmitResult::Excess => outcomes[1] += 1,
                AdmitResult::TooMuch => outcomes[2] += 1,
            }
        }
        assert_eq!((kept.len(), outcomes), (WAITING, [0, DROPPED - 1, 1]));
        assert!(quota.is_barred(SECOND) && !quota.is_whole(SECOND));
        assert!(!quota.is_barred(SECOND + BARRED) && quota.is_whole(SECOND + BARRED));
        kept.clear();
        let again = quota.take(SECOND + BARRED, Bytes::from_static(b"x"));
        assert!(matches!(again, AdmitResult::QueuedPacket(_)), "the places are given back");
    }

    #[test]
    fn bytes_count_too_and_a_share_of_a_packet_is_not_lost() {
        let mut allowance = Allowance::new(Timestamp::ZERO);
        let big = 1 << 20;
        let all =
            (0..40).filter(|_| allowance.judge(SECOND, big, true) == PacketAction::Take).count();
        assert_eq!(all, 16);
        let mut slow = Allowance::new(Timestamp::ZERO);
        for _ in 0..PACKETS.1 {
            assert_eq!(slow.judge(Timestamp::ZERO, 0, true), PacketAction::Take);
        }
        assert_eq!(slow.judge(Timestamp::ZERO, 0, true), PacketAction::Drop);
        // Asked every 0.1 ms, for one second.
        for step in 1..=10_000 {
            assert!(!slow.is_whole(Timestamp::ZERO + Duration::from_micros(100 * step)));
        }
        let taken = (0..).take_while(|_| slow.judge(SECOND, 0, true) == PacketAction::Take);
        assert_eq!(taken.count() as u64, PACKETS.0);
    }
}
