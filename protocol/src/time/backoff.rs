//! How long to wait before something that failed is tried again. Only the number: whoever waits has
//! the clock, the count of failures and, if it needs any, the jitter.

use std::time::Duration;

/// Exponential backoff: the wait after each failure in a row is twice the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Wait after the first failure. Zero: all waits are zero.
    pub first: Duration,
    /// Upper limit of every wait, also of the first. [`Duration::MAX`]: no limit.
    pub longest: Duration,
}

impl Backoff {
    /// Wait after this many failures in a row. Zero after none.
    pub fn after(self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u128.checked_shl(doublings).unwrap_or(u128::MAX);
        let wait = self.first.as_nanos().saturating_mul(factor);
        Duration::from_nanos_u128(wait.min(self.longest.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(5) };
        let waits: Vec<u64> = (0..6).map(|failures| backoff.after(failures).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 5, 5]);
        let capped = Backoff { first: Duration::from_secs(9), ..backoff };
        assert_eq!(capped.after(1), backoff.longest);
    }

    fn durations() -> impl Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            any::<u64>().prop_map(Duration::from_nanos),
            any::<Duration>(),
        ]
    }

    proptest! {
        #[test]
        fn each_wait_is_twice_the_one_before_or_the_longest(
            first in durations(), longest in durations(), failures in 1..=u32::MAX - 1,
            few in 1..200_u32,
        ) {
            let backoff = Backoff { first, longest };
            prop_assert_eq!(backoff.after(0), Duration::ZERO);
            prop_assert_eq!(backoff.after(1), first.min(longest));
            for failures in [few, failures] {
                let twice = backoff.after(failures).saturating_mul(2);
                prop_assert_eq!(backoff.after(failures + 1), twice.min(longest));
            }
        }
    }
}
