//! Time as the board knows it: a number that was passed in. Nothing here knows what time it is.

pub mod span;

mod backoff;
mod bucket;

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use backoff::Backoff;
pub use bucket::TokenBucket;

/// Nanoseconds since the Unix epoch: the form in which Diego's API shows every time.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The beginning of time; also "never happened" in records that count from zero.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Later than everything.
    pub const NEVER: Timestamp = Timestamp(u64::MAX);

    /// The time that is `nanos` after the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// The time that is `seconds` after the Unix epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Timestamp(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; nothing when it is still to come.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Saturates at [`Timestamp::NEVER`]: a span too long to count never ends.
    fn add(self, span: Duration) -> Timestamp {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, span: Duration) -> Timestamp {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_instead_of_wrapping() {
        assert_eq!(Timestamp::NEVER + Duration::from_secs(1), Timestamp::NEVER);
        assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::NEVER);
        assert_eq!(Timestamp::from_secs(1) - Duration::from_secs(2), Timestamp::ZERO);
        assert_eq!(Timestamp::from_secs(1).since(Timestamp::from_secs(2)), Duration::ZERO);
    }
}
