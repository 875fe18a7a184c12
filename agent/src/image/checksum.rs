//! Checksums of downloads and uploads: which one is wanted, and hashing while bytes pass by. Pure.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

/// The algorithms of downloads. Actions and dependencies name the first three, as in Diego; the last
/// comes with the digest of an image layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// MD5: against accidents only.
    Md5,
    /// SHA-1: against accidents only.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    fn bytes(self) -> usize {
        match self {
            Algorithm::Md5 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }
}

/// The checksum that a download must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    algorithm: Algorithm,
    value: Vec<u8>,
}

/// A checksum that can match nothing. Whoever wrote the definition must mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadChecksum {
    /// No algorithm of ours.
    #[error("checksum algorithm {0:?}: md5, sha1, sha256 and sha512 are known")]
    Algorithm(String),
    /// Not hexadecimal, or of another length.
    #[error("checksum value of {given} characters: {wanted} hexadecimal digits are wanted")]
    Value {
        /// How many digits the algorithm has.
        wanted: usize,
        /// How many characters were given.
        given: usize,
    },
}

/// The bytes were others than expected. Nothing was kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("checksum mismatch: expected {expected}, got {got}")]
pub struct ChecksumMismatch {
    /// What was asked for, in hexadecimal.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl Checksum {
    /// Checks the two fields of a download action.
    pub fn parse(algorithm: &str, value: &str) -> Result<Checksum, BadChecksum> {
        let algorithm = match algorithm.to_ascii_lowercase().as_str() {
            "md5" => Algorithm::Md5,
            "sha1" => Algorithm::Sha1,
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return Err(BadChecksum::Algorithm(algorithm.chars().take(32).collect())),
        };
        let wanted = algorithm.bytes() * 2;
        let bytes =
            HEXLOWER_PERMISSIVE.decode(value.as_bytes()).ok().filter(|it| it.len() * 2 == wanted);
        let bad = BadChecksum::Value { wanted, given: value.chars().count() };
        Ok(Checksum { algorithm, value: bytes.ok_or(bad)? })
    }
}

/// Hashes what passes by: always SHA-256, by which we keep it, and what was asked for.
#[derive(Debug, Clone)]
pub struct Hashing {
    sha256: Sha256,
    md5: Option<Md5>,
    sha1: Option<Sha1>,
    sha512: Option<Sha512>,
    wanted: Option<Checksum>,
}

impl Hashing {
    /// For a download that must have this checksum, if any.
    pub fn new(wanted: Option<&Checksum>) -> Self {
        let algorithm = wanted.map(|it| it.algorithm);
        Hashing {
            sha256: Sha256::new(),
            md5: (algorithm == Some(Algorithm::Md5)).then(Md5::new),
            sha1: (algorithm == Some(Algorithm::Sha1)).then(Sha1::new),
            sha512: (algorithm == Some(Algorithm::Sha512)).then(Sha512::new),
            wanted: wanted.cloned(),
        }
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(sha1) = &mut self.sha1 {
            sha1.update(bytes);
        }
        if let Some(sha512) = &mut self.sha512 {
            sha512.update(bytes);
        }
    }

    /// All bytes were seen: their SHA-256, or the mismatch.
    pub fn finish(self) -> Result<[u8; 32], ChecksumMismatch> {
        let sha256: [u8; 32] = self.sha256.finalize().into();
        let md5 = self.md5.map(|it| it.finalize().to_vec());
        let sha1 = self.sha1.map(|it| it.finalize().to_vec());
        let sha512 = self.sha512.map(|it| it.finalize().to_vec());
        let got = md5.or(sha1).or(sha512).unwrap_or_else(|| sha256.to_vec());
        match self.wanted {
            Some(wanted) if !same(&wanted.value, &got) => {
                Err(ChecksumMismatch { expected: hex(&wanted.value), got: hex(&got) })
            }
            Some(_) | None => Ok(sha256),
        }
    }
}

/// Looks at every byte, whatever the first ones say.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// The MD5 and the SHA-256 of an upload, as its headers want them.
#[derive(Debug, Default)]
pub struct UploadDigest {
    md5: Md5,
    sha256: Sha256,
}

impl UploadDigest {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.sha256.update(bytes);
    }

    /// `Content-MD5` and `Content-Digest`.
    pub fn headers(self) -> (String, String) {
        let md5 = BASE64.encode(&self.md5.finalize());
        (md5, format!("sha-256=:{}:", BASE64.encode(&self.sha256.finalize())))
    }
}

/// SHA-256 of some bytes, in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums_match_and_others_name_both() {
        for (algorithm, value) in [
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("SHA1", "A9993E364706816ABA3E25717850C26C9CD0D89D"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "Sha512",
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            let wanted = Checksum::parse(algorithm, value).unwrap();
            let mut good = Hashing::new(Some(&wanted));
            good.update(b"a");
            good.update(b"bc");
            assert_eq!(hex(&good.finish().unwrap()), sha256_hex(b"abc"));
            let mut bad = Hashing::new(Some(&wanted));
            bad.update(b"abd");
            let mismatch = bad.finish().unwrap_err();
            assert_eq!(mismatch.expected, value.to_lowercase());
            assert_ne!(mismatch.got, mismatch.expected);
        }
        assert!(Hashing::new(None).finish().is_ok());
    }

    #[test]
    fn a_checksum_that_cannot_match_is_refused() {
        let bad = |algorithm: &str, value: &str| Checksum::parse(algorithm, value).unwrap_err();
        assert_eq!(bad("crc32", "00"), BadChecksum::Algorithm("crc32".into()));
        assert_eq!(bad("md5", "00"), BadChecksum::Value { wanted: 32, given: 2 });
        assert_eq!(bad("md5", &"g".repeat(32)), BadChecksum::Value { wanted: 32, given: 32 });
        let short = "0".repeat(64);
        assert_eq!(bad("sha512", &short), BadChecksum::Value { wanted: 128, given: 64 });
        assert_eq!(bad("sha1", ""), BadChecksum::Value { wanted: 40, given: 0 });
    }

    #[test]
    fn upload_headers_are_base64() {
        let mut digest = UploadDigest::default();
        digest.update(b"abc");
        let (md5, sha256) = digest.headers();
        assert_eq!(md5, "kAFQmDzST7DWlj99KOF/cg==");
        assert_eq!(sha256, "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:");
        assert_eq!(
            (BASE64.encode(b""), BASE64.encode(b"a"), BASE64.encode(b"ab")),
            ("".into(), "YQ==".into(), "YWI=".into())
        );
    }
}
