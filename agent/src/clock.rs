//! What time it is, for the drivers of the agent: wall time at the start, and how long ago that was.
//! It never jumps, whatever becomes of the machine's clock.

use std::time::{Instant, SystemTime};

use volvox_protocol::time::Timestamp;

/// Tells the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    begun: Instant,
    at: Timestamp,
}

impl Clock {
    /// Begins at what the machine says.
    pub(crate) fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        Clock { begun: Instant::now(), at }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.at + self.begun.elapsed()
    }
}
