//! Waiting for the thing itself, until a deadline that no test reaches unless it fails.

use std::time::{Duration, Instant};

/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition. After [`PATIENCE`] it panics and says what was seen.
#[track_caller]
pub fn until(mut condition: impl FnMut() -> bool, story: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {}", story());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A pause between two looks at another process, or between two calls of somebody who is not in a hurry.
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}
