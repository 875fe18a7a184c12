//! What time it is, for the drivers of the agent: one line of time for all agents of a boot. It begins at
//! what the machine's clock says when the first of them starts, and never jumps after that, whatever
//! becomes of the machine's clock.
//!
//! What an agent writes down has times in it (when a timer is due, since when something runs), and the
//! next agent goes on from there. Between the two the machine's clock may have been set: by hours, where
//! it has no battery. So the distance between it and the time since the boot is written down with them.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use nix::time::{ClockId, clock_gettime};
use tracing::warn;
use volvox_protocol::time::Timestamp;

/// The file in the folder of the records.
const FILE: &str = "clock";

/// Tells the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Nanoseconds from 1970 to the boot.
    booted_at: u64,
}

impl Clock {
    /// The clock of this boot, as it is written down in this folder. The first one writes it down.
    pub(crate) fn of_boot(folder: &Path) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim();
        let path = folder.join(FILE);
        let told = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(booted_at) = read(&told, boot) {
            return Clock { booted_at };
        }
        let booted_at = wall().as_nanos().saturating_sub(since_boot());
        let mut options = std::fs::File::options();
        options.create(true).truncate(true).write(true).mode(0o600);
        let written = options.open(&path).and_then(|mut file| writeln!(file, "{boot} {booted_at}"));
        if let Err(error) = written {
            warn!(path = %path.display(), %error, "the time of the boot cannot be written down");
        }
        Clock { booted_at }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.booted_at.saturating_add(since_boot()))
    }
}

/// What the machine's clock says, right or wrong.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// What is written down, if it is of this boot.
fn read(told: &str, boot: &str) -> Option<u64> {
    let (of, booted_at) = told.trim().split_once(' ')?;
    if boot.is_empty() || of != boot {
        return None;
    }
    booted_at.parse().ok()
}

/// Nanoseconds since the boot, without those in which the machine was suspended: no deadline passes then.
fn since_boot() -> u64 {
    // The kernel has this clock on every machine, so it cannot fail.
    let since = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert_eq!(read("a-boot 17\n", "a-boot"), Some(17));
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
