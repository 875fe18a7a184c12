//! Bytes from elsewhere, and how far they are trusted: not at all.
//!
//! Two encodings: JSON for consumers, frames for disk and mesh. A frame is one byte, the wire
//! version, and a postcard value. Both are measured before they are read, refuse what follows
//! the value, and never recurse deeper than a fixed bound, so that no input can fill the stack.
//! Nor the memory: no length that is merely claimed is allocated for, and every entry of every
//! list takes at least a fortieth of its size in input. A growing vector holds its old half and
//! its new double for a moment, so decoding takes at most 120 times its input, and mostly little
//! more than its input. Then the rules of [`crate::validate`] are stricter.

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{FRAME_BYTES, JSON_BYTES};

/// The version of the binary records in a frame. Goes up when old readers would misread.
pub const WIRE_VERSION: u8 = 1;

/// Bytes of a decoder's message that are passed on: it may quote its input.
const MESSAGE_BYTES: usize = 512;

/// Why bytes were not decoded. Nothing was kept of them; who sent them must act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Longer than anything that is said may be. Not looked into.
    #[error("{given} bytes are too many, the limit is {limit}")]
    TooLarge {
        /// How many there were.
        given: usize,
        /// How many there may be.
        limit: usize,
    },
    /// No JSON, or not the JSON that was asked for.
    #[error("{path}: {message}")]
    Json {
        /// Where in the input, such as `egress_rules[2].ports[0]`; `.` is the whole.
        path: String,
        /// What was wrong there.
        message: String,
    },
    /// A frame without a single byte.
    #[error("the frame is empty")]
    Empty,
    /// The sender speaks another version of the wire. Upgrade the older side.
    #[error("the frame has wire version {given}, we speak version {ours}")]
    Version {
        /// The sender's.
        given: u8,
        /// Ours.
        ours: u8,
    },
    /// The frame does not hold the record that was asked for.
    #[error("the frame is broken: {0}")]
    Frame(String),
    /// The record ended before its frame did.
    #[error("the frame goes on for {0} bytes after its end")]
    Trailing(usize),
}

/// Why a value could not be put into a frame. Nothing was sent; the value is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// Longer than any reader would accept. Who made the value must make it smaller.
    #[error("{given} bytes are too many for a frame, the limit is {FRAME_BYTES}")]
    TooLarge {
        /// How many it would have taken.
        given: usize,
    },
    /// A value that has no binary form: a mistake in our code.
    #[error("no binary form: {0}")]
    Form(String),
}

/// Reads one JSON value that fills `bytes`.
pub fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    measure(bytes, JSON_BYTES)?;
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut from).map_err(|error| DecodeError::Json {
        path: shorten(error.path().to_string()),
        message: shorten(error.into_inner().to_string()),
    })?;
    let end = |error: serde_json::Error| DecodeError::Json {
        path: ".".to_owned(),
        message: shorten(error.to_string()),
    };
    from.end().map_err(end)?;
    Ok(value)
}

/// Writes `value` into a frame.
pub fn encode_frame<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let form = |error: postcard::Error| EncodeError::Form(error.to_string());
    let frame = postcard::to_extend(value, vec![WIRE_VERSION]).map_err(form)?;
    if frame.len() > FRAME_BYTES {
        return Err(EncodeError::TooLarge { given: frame.len() });
    }
    Ok(frame)
}

/// Reads the value of a frame.
pub fn decode_frame<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    measure(bytes, FRAME_BYTES)?;
    let (&version, record) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if version != WIRE_VERSION {
        return Err(DecodeError::Version { given: version, ours: WIRE_VERSION });
    }
    let broken = |error: postcard::Error| DecodeError::Frame(error.to_string());
    let (value, rest) = postcard::take_from_bytes(record).map_err(broken)?;
    if rest.is_empty() { Ok(value) } else { Err(DecodeError::Trailing(rest.len())) }
}

fn measure(bytes: &[u8], limit: usize) -> Result<(), DecodeError> {
    if bytes.len() > limit {
        return Err(DecodeError::TooLarge { given: bytes.len(), limit });
    }
    Ok(())
}

fn shorten(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES {
        let end = (0..=MESSAGE_BYTES).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}
