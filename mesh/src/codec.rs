//! Bytes of the mesh, and how two releases understand each other.
//!
//! A value is postcard. Records only ever grow at the end: a reader of the next release finds the
//! bytes short and reads zeros, which postcard takes for `None`, zero, false and empty; a reader of
//! the last release finds bytes left over and leaves them. So a new field must come last and mean
//! nothing when it is zero. Nothing is allocated for a length that is merely claimed.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that a newer release may have added to a record that an older one wrote.
const GROWTH: usize = 64;

/// Why bytes were not understood. Nothing was kept of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Longer than this kind of message may be. Not looked into.
    #[error("{given} bytes are too many, the limit is {limit}")]
    TooLarge {
        /// How many there were.
        given: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Not the value that was expected.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

/// The bytes of `value`.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Fails only for types without a length or a binary form; ours have both, and a test each.
    postcard::to_stdvec(value).expect("records of the mesh have a binary form")
}

/// Reads a value of at most `limit` bytes that another release may have written.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, CodecError> {
    if bytes.len() > limit {
        return Err(CodecError::TooLarge { given: bytes.len(), limit });
    }
    match postcard::take_from_bytes(bytes) {
        Ok((value, _newer)) => Ok(value),
        Err(postcard::Error::DeserializeUnexpectedEnd) => {
            let mut padded = Vec::with_capacity(bytes.len() + GROWTH);
            padded.extend_from_slice(bytes);
            padded.resize(bytes.len() + GROWTH, 0);
            let (value, rest) = postcard::take_from_bytes(&padded)
                .map_err(|_| CodecError::Malformed("it ends too early"))?;
            // A length that reaches into the zeros is a cut record, not an older one: but one
            // cannot tell them apart, and a signature or QUIC itself vouches for the length.
            let _zeros_left: &[u8] = rest;
            Ok(value)
        }
        Err(_) => Err(CodecError::Malformed("not a value of this kind")),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        a: u32,
        b: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct New {
        a: u32,
        b: String,
        c: Option<u64>,
        d: Vec<u8>,
        e: bool,
    }

    #[test]
    fn a_newer_release_reads_an_older_record() {
        let old = Old { a: 700, b: "x".into() };
        let read: New = decode(&encode(&old), 100).unwrap();
        assert_eq!(read, New { a: 700, b: "x".into(), c: None, d: vec![], e: false });
    }

    #[test]
    fn an_older_release_reads_a_newer_record() {
        let new = New { a: 700, b: "x".into(), c: Some(1 << 40), d: vec![1], e: true };
        assert_eq!(decode::<Old>(&encode(&new), 100).unwrap(), Old { a: 700, b: "x".into() });
    }

    #[test]
    fn too_much_and_nonsense_are_refused() {
        assert_eq!(decode::<Old>(&[0; 11], 10), Err(CodecError::TooLarge { given: 11, limit: 10 }));
        // A text that claims four thousand million bytes.
        let claim = [1, 0xff, 0xff, 0xff, 0xff, 0x0f, b'x'];
        assert_eq!(decode::<Old>(&claim, 100), Err(CodecError::Malformed("it ends too early")));
        assert_eq!(
            decode::<Old>(&[1, 2, 0xff, 0xff], 100),
            Err(CodecError::Malformed("not a value of this kind"))
        );
    }
}
