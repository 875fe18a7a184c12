//! What time it is, for drivers: the machine's clock, which may be set at any time; the time since the
//! boot, which never is; and a clock that begins at the first and goes on with the second.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use tracing::warn;
use volvox_protocol::time::Timestamp;

/// The file of [`Clock::of_boot`].
const FILE: &str = "clock";

/// What the machine's clock says, right or wrong.
pub fn wall() -> Timestamp {
    Timestamp::ZERO + SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Time since the boot, as a time to compare with others of the same machine. Never set, never back.
/// Stands still while the machine is suspended: no deadline passes then.
pub fn monotonic() -> Timestamp {
    // The kernel has this clock on every machine, so it cannot fail.
    let since = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    Timestamp::ZERO + since.unwrap_or_default()
}

/// A clock that says what the machine's said at its start, and goes on evenly from there, whatever
/// becomes of the machine's.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// From 1970 to the boot.
    booted_at: Duration,
}

impl Clock {
    /// Begins with what the machine's clock says now.
    pub fn start() -> Self {
        Clock { booted_at: wall().since(monotonic()) }
    }

    /// The clock of all processes of this boot that name this folder: the first one starts it, and
    /// writes it down there. What such a process keeps on disk has times in it (when a timer is due,
    /// since when something runs) and the next one goes on from there, though the machine's clock may
    /// have been set in between: by hours, where it has no battery.
    pub fn of_boot(folder: &Path) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim();
        let path = folder.join(FILE);
        let told = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(booted_at) = read(&told, boot) {
            return Clock { booted_at };
        }
        let clock = Clock::start();
        let mut options = std::fs::File::options();
        options.create(true).truncate(true).write(true).mode(0o600);
        let written = options
            .open(&path)
            .and_then(|mut file| writeln!(file, "{boot} {}", clock.booted_at.as_nanos()));
        if let Err(error) = written {
            warn!(path = %path.display(), %error, "the time of the boot cannot be written down");
        }
        clock
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        monotonic() + self.booted_at
    }
}

/// What is written down, if it is of this boot.
fn read(told: &str, boot: &str) -> Option<Duration> {
    let (of, booted_at) = told.trim().split_once(' ')?;
    if boot.is_empty() || of != boot {
        return None;
    }
    booted_at.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_agent_of_a_boot_has_the_same_line_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = Clock::of_boot(folder.path());
        assert!(first.now().since(wall()) < Duration::from_secs(60));
        // As if the machine's clock had been set by hours: what is written down counts.
        let path = folder.path().join(FILE);
        let told = std::fs::read_to_string(&path).unwrap();
        let (boot, booted_at) = told.trim().split_once(' ').unwrap();
        let hours = 5 * 3_600 * 1_000_000_000;
        let earlier = booted_at.parse::<u64>().unwrap() - hours;
        std::fs::write(&path, format!("{boot} {earlier}\n")).unwrap();
        let next = Clock::of_boot(folder.path());
        let behind = first.now().since(next.now());
        assert!(behind > Duration::from_nanos(hours) - Duration::from_secs(60), "{behind:?}");
    }

    #[test]
    fn another_boot_and_what_cannot_be_read_begin_anew() {
        assert_eq!(read("a-boot 17\n", "a-boot"), Some(Duration::from_nanos(17)));
        for told in ["", "a-boot", "a-boot x", "another 17", "17"] {
            assert_eq!(read(told, "a-boot"), None, "{told}");
        }
        assert_eq!(read(" 17", ""), None, "no name, no boot");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "another 17\n").unwrap();
        let clock = Clock::of_boot(folder.path());
        assert!(wall().since(clock.now()) < Duration::from_secs(60));
    }
}
