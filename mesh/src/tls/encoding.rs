//! Bytes as text: hexadecimal, base32 for join tokens, PEM for files. Reading is strict, so that
//! each value has exactly one text form.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use data_encoding::{BASE32_NOPAD_NOCASE, HEXLOWER};
use pem::{EncodeConfig, LineEnding, Pem};

/// Encodes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Decodes exactly `N` bytes of lower-case hexadecimal digits. `None`: the text is not that.
pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// Encodes as base32: five bits per character, no padding. Lower-case letters, and digits that do not
/// look like letters: it survives fonts, dictation and upper case.
pub(super) fn base32(bytes: &[u8]) -> String {
    BASE32_NOPAD_NOCASE.encode(bytes).to_ascii_lowercase()
}

/// Decodes a text of [`base32`]. Upper case is accepted. `None`: another character is in it, or bits
/// are left over at the end.
pub(super) fn from_base32(text: &str) -> Option<Vec<u8>> {
    BASE32_NOPAD_NOCASE.decode(text.as_bytes()).ok()
}

/// A PEM section, so that operators can read the file with standard tools.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(label, der), config)
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
        fn pem_has_lines_of_64(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let pem = pem("X", &bytes);
            let lines: Vec<&str> = pem.strip_suffix('\n').unwrap().split('\n').collect();
            let [first, body @ .., last] = &lines[..] else { panic!("{pem}") };
            prop_assert_eq!((*first, *last), ("-----BEGIN X-----", "-----END X-----"));
            let [whole @ .., rest] = body else { panic!("{pem}") };
            prop_assert!(whole.iter().all(|it| it.len() == 64) && (1..=64).contains(&rest.len()));
        }

        #[test]
        fn a_value_has_one_spelling(text in "[a-z2-7]{0,40}") {
            if let Some(bytes) = from_base32(&text) {
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
    fn other_characters_and_bits_left_over_are_refused() {
        for wrong in ["ab1", "a", "ab", "aa=", "é"] {
            assert_eq!(from_base32(wrong), None, "{wrong}");
        }
    }
}
