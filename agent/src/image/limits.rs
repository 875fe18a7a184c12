//! How much an archive may make us do, and the meter that counts it. Pure.
//!
//! The unpackers count before they act: what a limit refuses has not been written.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

/// What one archive may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Bytes after decompression, headers and padding included.
    pub total_bytes: u64,
    /// Bytes after decompression for each byte before it.
    pub ratio: u64,
    /// Bytes after decompression that are free of the ratio: small archives may be very regular.
    pub ratio_free_bytes: u64,
    /// Headers of every kind. Headers that only carry a long name count too.
    pub entries: u64,
    /// The bytes of one path.
    pub path_bytes: u64,
    /// The bytes of one name in a path; Linux itself stops at 255.
    pub name_bytes: u64,
    /// How deep folders may be nested.
    pub depth: u64,
    /// The bytes of all paths together: we remember them, so that a failed unpack can be undone.
    pub all_path_bytes: u64,
    /// The bytes of one extended header, and of one zip directory per entry.
    pub header_bytes: u64,
    /// The bytes of the text of one symbolic link.
    pub link_bytes: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        UnpackLimits {
            total_bytes: 8 << 30,
            ratio: 100,
            ratio_free_bytes: 16 << 20,
            entries: 500_000,
            path_bytes: 1024,
            name_bytes: 255,
            depth: 100,
            all_path_bytes: 64 << 20,
            header_bytes: 64 << 10,
            link_bytes: 1024,
        }
    }
}

/// An archive wants more than a limit allows. Nothing beyond the limit was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("limit {limit}: at most {allowed}, given {given}")]
pub struct OverLimit {
    /// The field of [`UnpackLimits`].
    pub limit: &'static str,
    /// What it allows.
    pub allowed: u64,
    /// What the archive wanted, as far as we know: it may be more.
    pub given: u64,
}

impl OverLimit {
    /// Refuses what is above the limit.
    pub fn check(limit: &'static str, allowed: u64, given: u64) -> Result<(), OverLimit> {
        if given > allowed { Err(OverLimit { limit, allowed, given }) } else { Ok(()) }
    }
}

/// Counts what an archive has cost so far.
#[derive(Debug)]
pub struct Meter {
    limits: UnpackLimits,
    bytes: u64,
    entries: u64,
    path_bytes: u64,
}

impl Meter {
    /// Nothing counted yet.
    pub fn new(limits: UnpackLimits) -> Self {
        Meter { limits, bytes: 0, entries: 0, path_bytes: 0 }
    }

    /// The limits it counts against.
    pub fn limits(&self) -> &UnpackLimits {
        &self.limits
    }

    /// Bytes after decompression so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Headers so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// One more header.
    pub fn add_entry(&mut self) -> Result<(), OverLimit> {
        let entries = self.entries.saturating_add(1);
        OverLimit::check("entries", self.limits.entries, entries)?;
        self.entries = entries;
        Ok(())
    }

    /// One more path to remember.
    pub fn add_path(&mut self, bytes: usize) -> Result<(), OverLimit> {
        let all = self.path_bytes.saturating_add(bytes as u64);
        OverLimit::check("all_path_bytes", self.limits.all_path_bytes, all)?;
        self.path_bytes = all;
        Ok(())
    }

    /// Whether so many further bytes would fit, as a header promises them.
    pub fn announce(&self, bytes: u64) -> Result<(), OverLimit> {
        let all = self.bytes.saturating_add(bytes);
        OverLimit::check("total_bytes", self.limits.total_bytes, all)
    }

    /// More bytes came out, after `packed` bytes went in since the beginning.
    pub fn add_bytes(&mut self, bytes: u64, packed: u64) -> Result<(), OverLimit> {
        let all = self.bytes.saturating_add(bytes);
        OverLimit::check("total_bytes", self.limits.total_bytes, all)?;
        let counted = all.saturating_sub(self.limits.ratio_free_bytes);
        OverLimit::check("ratio", self.limits.ratio, counted / packed.max(1))?;
        self.bytes = all;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_limit_and_counts_nothing() {
        let limits = UnpackLimits {
            total_bytes: 100,
            ratio: 10,
            ratio_free_bytes: 20,
            entries: 1,
            all_path_bytes: 5,
            ..UnpackLimits::default()
        };
        let mut meter = Meter::new(limits);
        meter.add_entry().unwrap();
        let refusal = meter.add_entry().unwrap_err();
        assert_eq!(refusal.to_string(), "limit entries: at most 1, given 2");
        meter.add_path(5).unwrap();
        assert_eq!(meter.add_path(1).unwrap_err().limit, "all_path_bytes");
        meter.add_bytes(90, 7).unwrap();
        assert_eq!(meter.add_bytes(11, 70).unwrap_err().limit, "total_bytes");
        assert_eq!(meter.announce(11).unwrap_err().given, 101);
        assert_eq!(meter.add_bytes(u64::MAX, 1).unwrap_err().given, u64::MAX);
        assert_eq!((meter.bytes(), meter.entries()), (90, 1));
        let mut bomb = Meter::new(limits);
        assert_eq!(bomb.add_bytes(42, 2).unwrap_err().limit, "ratio");
        bomb.add_bytes(41, 2).unwrap();
    }
}
