//! Bytes as text: hexadecimal, base32 for join tokens, PEM for files. Reading is strict, so that
//! each value has exactly one text form.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt::Write;

/// Lower-case letters, and digits that do not look like letters: it survives fonts, dictation and
/// upper case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes all that is written");
    }
    text
}

/// Decodes exactly `N` bytes of lower-case hexadecimal digits. `None`: the text is not that.
pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Encodes as base32: five bits per character, no padding.
pub(super) fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut held, mut bits) = (0u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(BASE32[(held >> bits & 31) as usize]));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(BASE32[(held << (5 - bits) & 31) as usize]));
    }
    text
}

/// Why a text is not base32.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Base32Error {
    /// A character that is not in the alphabet.
    Character(char),
    /// Bits are left over at the end: the last character is wrong, or one is missing.
    Ragged,
}

/// Decodes a text of [`base32`]. Upper case is accepted.
pub(super) fn from_base32(text: &str) -> Result<Vec<u8>, Base32Error> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut held, mut bits) = (0u32, 0);
    for character in text.chars() {
        let value = match character.to_ascii_lowercase() {
            c @ 'a'..='z' => u32::from(c) - u32::from('a'),
            c @ '2'..='7' => u32::from(c) - u32::from('2') + 26,
            _ => return Err(Base32Error::Character(character)),
        };
        held = held << 5 | value;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).expect("masked to a byte"));
        }
        held &= (1 << bits) - 1;
    }
    if bits >= 5 || held != 0 { Err(Base32Error::Ragged) } else { Ok(bytes) }
}

/// A PEM section, so that operators can read the file with standard tools.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let mut base64 = String::with_capacity(der.len().div_ceil(3) * 4);
    for chunk in der.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let held = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let character = BASE64[(held >> (18 - 6 * at) & 63) as usize];
            base64.push(if at <= chunk.len() { char::from(character) } else { '=' });
        }
    }
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in base64.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(from_base32(&base32(&bytes)).unwrap(), bytes.clone());
            prop_assert_eq!(from_base32(&base32(&bytes).to_uppercase()).unwrap(), bytes.clone());
            let pem = pem("CERTIFICATE", &bytes);
            let read = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            prop_assert_eq!(read.as_ref(), &bytes[..]);
        }

        #[test]
        fn a_value_has_one_spelling(text in "[a-z2-7]{0,40}") {
            if let Ok(bytes) = from_base32(&text) {
                prop_assert_eq!(base32(&bytes), text);
            }
        }
    }

    #[test]
    fn hexadecimal_is_strict() {
        assert_eq!(hex(&[0, 0xaf]), "00af");
        assert_eq!(from_hex::<2>("00af"), Some([0, 0xaf]));
        for wrong in ["00AF", "00a", "00aff", "00ag", "0é0", ""] {
            assert_eq!(from_hex::<2>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn other_characters_are_named() {
        assert_eq!(from_base32("ab1"), Err(Base32Error::Character('1')));
        assert_eq!(from_base32("a"), Err(Base32Error::Ragged));
        assert_eq!(from_base32("ab"), Err(Base32Error::Ragged));
    }
}
