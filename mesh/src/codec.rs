//! Wire encoding of the mesh, and compatibility between releases.
//!
//! Values are postcard. Records grow only at the end. A newer reader finds the bytes too short and
//! reads zeros, which postcard decodes as `None`, zero, false and empty. An older reader ignores
//! the bytes that are left over. So a new field must be the last one, and zero must mean "not set".
//! No memory is allocated for a length that is merely claimed.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum number of bytes that newer releases may have added to a record of an older release.
const GROWTH: usize = 64;

/// Why bytes could not be decoded. Nothing of them is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Longer than this kind of message may be. The content is not read.
    #[error("{given} bytes are too many, the limit is {limit}")]
    TooLarge {
        /// Number of bytes received.
        given: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The bytes are not a value of the expected type; the text gives the reason.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

/// Encodes `value` as postcard.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Fails only for types without a length or a binary form. The types of the mesh have both, and
    // a test each.
    postcard::to_stdvec(value).expect("records of the mesh have a binary form")
}

/// Decodes a value of at most `limit` bytes, which another release may have written.
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
            // A length that reaches into the zeros is a truncated record, not an older one. The two
            // cannot be distinguished here, but a signature or QUIC itself guarantees the length.
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
        // A text that claims to have 4,294,967,295 bytes.
        let claim = [1, 0xff, 0xff, 0xff, 0xff, 0x0f, b'x'];
        assert_eq!(decode::<Old>(&claim, 100), Err(CodecError::Malformed("it ends too early")));
        assert_eq!(
            decode::<Old>(&[1, 2, 0xff, 0xff], 100),
            Err(CodecError::Malformed("not a value of this kind"))
        );
    }
}
