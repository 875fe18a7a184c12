//! Modification tags: how a reader tells the newer of two versions of a record.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The life of one record: a new record has a new epoch. Shown as a uuid.
///
/// Kept as bytes: a `u128` would want an alignment that costs every record twelve bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch([u8; 16]);

impl Epoch {
    /// No epoch: what a record has that the board never saw.
    pub const NONE: Epoch = Epoch([0; 16]);

    /// Makes an epoch of 128 random bits that the caller brought; version and variant bits of a
    /// random uuid are set.
    pub const fn from_random(bits: u128) -> Self {
        let version = (bits & !(0xf << 76)) | (0x4 << 76);
        Epoch(((version & !(0x3 << 62)) | (0x2 << 62)).to_be_bytes())
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            bits >> 96,
            (bits >> 80) & 0xffff,
            (bits >> 64) & 0xffff,
            (bits >> 48) & 0xffff,
            bits & 0xffff_ffff_ffff,
        )
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Epoch {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "an epoch is empty or a uuid of 32 hexadecimal digits";
        if text.is_empty() {
            return Ok(Epoch::NONE);
        }
        let digits: String = text.chars().filter(|c| *c != '-').take(33).collect();
        if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(FORM);
        }
        let bits = u128::from_str_radix(&digits, 16).map_err(|_| FORM)?;
        Ok(Epoch(bits.to_be_bytes()))
    }
}

impl Serialize for Epoch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return self.0.serialize(to);
        }
        if *self == Epoch::NONE { to.serialize_str("") } else { to.collect_str(self) }
    }
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            return Ok(Epoch(<[u8; 16]>::deserialize(from)?));
        }
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Which version of a record this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModificationTag {
    /// The record's life.
    pub epoch: Epoch,
    /// The version within that life, counting from 0.
    pub index: u32,
}

impl ModificationTag {
    /// The first version of a new record.
    pub const fn new(epoch: Epoch) -> Self {
        ModificationTag { epoch, index: 0 }
    }

    /// The version after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        ModificationTag { epoch: self.epoch, index: self.index.wrapping_add(1) }
    }

    /// Whether this tag is newer than `other`: another life always is, because only the reader
    /// knows in which order it heard of the two.
    pub fn succeeds(self, other: ModificationTag) -> bool {
        self.epoch == Epoch::NONE
            || other.epoch == Epoch::NONE
            || self.epoch != other.epoch
            || self.index > other.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_reads_back_as_the_uuid_it_was_shown_as() {
        let epoch = Epoch::from_random(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(epoch.to_string(), "01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(epoch.to_string().parse::<Epoch>().unwrap(), epoch);
        for bad in ["x", "0123", "g1234567-89ab-4def-8123-456789abcdef", "é"] {
            assert!(bad.parse::<Epoch>().is_err(), "{bad:?} was let through");
        }
    }

    #[test]
    fn a_tag_succeeds_older_versions_and_other_lives() {
        let tag = ModificationTag::new(Epoch::from_random(1));
        assert!(tag.next().succeeds(tag));
        assert!(!tag.succeeds(tag) && !tag.succeeds(tag.next()));
        assert!(ModificationTag::new(Epoch::from_random(2)).succeeds(tag.next()));
        assert!(tag.succeeds(ModificationTag::default()));
    }
}
