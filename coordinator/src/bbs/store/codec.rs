//! How one record lies in the database: a version byte, a checksum, the record in postcard.
//!
//! SQLite trusts its disk: a bit that flips inside a value reads back as another value. The
//! checksum turns that into a record that is set aside, loudly.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The newest form in which any record is written. A reader knows this one and all before it.
/// Version 2 has other deployments; all other records are as they were in version 1, and are still
/// written so.
pub const RECORD_VERSION: u8 = 2;
/// The form of the records that have not changed since the first.
pub const FIRST_VERSION: u8 = 1;

const HEADER: usize = 5;

/// Why a record could not be read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Shorter than any record.
    #[error("it has {0} bytes, too few for a record")]
    TooShort(usize),
    /// Written in a form that this program does not know.
    #[error("it has record version {0}, this program knows up to {RECORD_VERSION}")]
    Version(u8),
    /// Not what was written.
    #[error("its checksum does not match its contents")]
    Checksum,
    /// Not the right kind of record.
    #[error("it cannot be decoded: {0}")]
    Decode(String),
}

/// Writes `record`, whose form has this version, into `buffer`, which is emptied first.
pub fn encode<T: Serialize>(
    version: u8,
    record: &T,
    buffer: Vec<u8>,
) -> Result<Vec<u8>, postcard::Error> {
    let mut buffer = buffer;
    buffer.clear();
    buffer.extend_from_slice(&[version, 0, 0, 0, 0]);
    let mut buffer = postcard::to_extend(record, buffer)?;
    let sum = crc32fast::hash(&buffer[HEADER..]);
    buffer[1..HEADER].copy_from_slice(&sum.to_le_bytes());
    Ok(buffer)
}

/// A record's version and its bytes, which are those that were written.
pub fn open(bytes: &[u8]) -> Result<(u8, &[u8]), Unreadable> {
    let [version, a, b, c, d, body @ ..] = bytes else {
        return Err(Unreadable::TooShort(bytes.len()));
    };
    if !(FIRST_VERSION..=RECORD_VERSION).contains(version) {
        return Err(Unreadable::Version(*version));
    }
    if crc32fast::hash(body) != u32::from_le_bytes([*a, *b, *c, *d]) {
        return Err(Unreadable::Checksum);
    }
    Ok((*version, body))
}

/// Reads a record back from the bytes that [`open`] gave.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unreadable> {
    match postcard::take_from_bytes(body) {
        Ok((record, [])) => Ok(record),
        Ok((_, rest)) => Err(Unreadable::Decode(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(Unreadable::Decode(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<(String, u64), Unreadable> {
        let (version, body) = open(bytes)?;
        if version == FIRST_VERSION { decode(body) } else { Err(Unreadable::Version(version)) }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = encode(FIRST_VERSION, &("a record", 7_u64), Vec::new()).unwrap();
        assert_eq!(read(&bytes).unwrap(), ("a record".to_owned(), 7));
        for nth in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[nth / 8] ^= 1 << (nth % 8);
            assert!(read(&damaged).is_err(), "bit {nth} went unnoticed");
        }
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn a_record_of_the_future_is_named_as_such() {
        let mut bytes = encode(FIRST_VERSION, &1_u8, Vec::new()).unwrap();
        bytes[0] = RECORD_VERSION + 1;
        assert_eq!(open(&bytes), Err(Unreadable::Version(RECORD_VERSION + 1)));
    }
}
