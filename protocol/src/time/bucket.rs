//! A rate limit as a value: the caller has the clock, and does what follows from a refusal.

use super::Timestamp;

/// Token bucket: gains tokens at a steady rate up to its size, which is the burst that it permits.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    /// Tokens gained in a second. Zero: what has been taken never comes back.
    per_second: u64,
    /// Most tokens that it holds.
    burst: u64,
    /// Billionths of a token that are left, so that no fraction is lost however often time passes.
    left: u128,
    filled_at: Timestamp,
}

/// Billionths in a token, and nanoseconds in a second: a nanosecond gains `per_second` of them.
const BILLION: u128 = 1_000_000_000;

impl TokenBucket {
    /// A full bucket.
    pub fn full(now: Timestamp, per_second: u64, burst: u64) -> TokenBucket {
        TokenBucket { per_second, burst, left: u128::from(burst) * BILLION, filled_at: now }
    }

    /// Takes that many tokens, all or none. Returns whether there were enough.
    pub fn take(&mut self, now: Timestamp, tokens: u64) -> bool {
        self.fill(now);
        let left = self.left.checked_sub(u128::from(tokens) * BILLION);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Whether nothing is missing: then it is like a new one and need not be kept.
    pub fn is_full(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        self.left == self.most()
    }

    fn most(&self) -> u128 {
        u128::from(self.burst) * BILLION
    }

    fn fill(&mut self, now: Timestamp) {
        let gained = now.since(self.filled_at).as_nanos() * u128::from(self.per_second);
        self.left = self.left.saturating_add(gained).min(self.most());
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    /// How many single tokens can be taken at once.
    fn left(mut bucket: TokenBucket, now: Timestamp) -> u64 {
        (0..).take_while(|_| bucket.take(now, 1)).count() as u64
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = TokenBucket::full(at(0), 10, 20);
        assert!(!bucket.take(at(0), 21), "more than it ever holds");
        assert!(bucket.is_full(at(0)), "a refusal takes nothing");
        assert!(bucket.take(at(0), 20));
        assert!(!bucket.take(at(99), 1));
        assert!(bucket.take(at(100), 1));
        assert_eq!(left(bucket, at(600)), 5);
        assert!(!bucket.is_full(at(2_099)) && bucket.is_full(at(2_100)));
        assert_eq!(left(bucket, Timestamp::NEVER), 20);
    }

    #[test]
    fn a_clock_that_jumps_back_gives_nothing_twice() {
        let mut bucket = TokenBucket::full(at(1_000), 10, 20);
        assert!(bucket.take(at(1_000), 20));
        assert!(!bucket.take(at(0), 1));
        assert_eq!(left(bucket, at(1_100)), 1);
    }

    proptest! {
        #[test]
        fn what_passes_is_the_burst_and_the_rate_however_time_is_cut(
            per_second in 0..5_000_u64, burst in 0..5_000_u64,
            steps in prop::collection::vec((0..3_000_000_u64, 0..50_u64), 1..200),
        ) {
            let mut bucket = TokenBucket::full(Timestamp::ZERO, per_second, burst);
            let (mut now, mut taken) = (Timestamp::ZERO, 0);
            for (micros, tokens) in steps {
                now = now + Duration::from_micros(micros);
                taken += if bucket.take(now, tokens) { tokens } else { 0 };
                let gained = u128::from(per_second) * u128::from(now.as_nanos()) / BILLION;
                prop_assert!(u128::from(taken) <= u128::from(burst) + gained);
            }
            // Asking more often changes nothing.
            let mut often = TokenBucket::full(Timestamp::ZERO, per_second, burst);
            let mut once = often;
            let all = often.take(Timestamp::ZERO, burst);
            prop_assert!(all && once.take(Timestamp::ZERO, burst));
            for nth in 1..=1_000 {
                often.is_full(at(nth));
            }
            prop_assert_eq!(left(often, at(1_000)), left(once, at(1_000)));
            prop_assert_eq!(left(once, at(1_000)), per_second.min(burst));
        }
    }
}
