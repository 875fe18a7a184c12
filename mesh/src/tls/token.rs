//! The join token: one line that an operator copies from the coordinator to a new cell.
//!
//! It contains the addresses of the coordinators, the fingerprint of the certificate authority (CA)
//! that identifies them, and a secret for one or more enrolments. Its length and a checksum detect
//! a truncated or mistyped line before any request is sent. Such a line is a different error from a
//! token that the CA refuses.
//!
//! `volvox-join-v1.` and base32 of: length of what follows (2 bytes), fingerprint (32), id (8),
//! secret (16), number of addresses (1), each with its length (1), checksum (4).
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::certificate::Fingerprint;
use super::encoding;

const PREFIX: &str = "volvox-join-v1.";

/// Prefix of all versions of a join token.
const FAMILY: &str = "volvox-join-";

/// Maximum number of addresses in a token.
pub const ADDRESSES: usize = 8;

/// Maximum length of an address in bytes: a host name, a colon, a port.
pub const ADDRESS_BYTES: usize = 255;

/// Maximum length of a token in characters: all addresses of full length fit.
pub const LINE_BYTES: usize = 4096;

const CHECKSUM: usize = 4;

/// Id of a join token. Not secret: logs and lists show it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenId(pub [u8; 8]);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::hex(&self.0))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        encoding::from_hex(text).map(TokenId).ok_or(TokenError::Id)
    }
}

/// Secret of a join token: 128 random bits. `{:?}` does not show it.
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenSecret(pub [u8; 16]);

impl TokenSecret {
    /// The hash that the CA stores. It needs no salt or stretching, because 128 random bits cannot
    /// be guessed.
    pub fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.0).into())
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}

/// Hash of a secret. It has no `==`, whose time would depend on the number of equal bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// Whether this is the hash of `secret`. The time does not depend on the answer.
    pub fn is_of(&self, secret: &TokenSecret) -> bool {
        let other = secret.hash();
        let difference = self.0.iter().zip(other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

/// Why a line is not a join token. No request was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The line does not start like a join token.
    #[error("this is no join token: one begins with \"{PREFIX}\"")]
    Prefix,
    /// The token has another version: it is from another release.
    #[error("this join token is of another version ({0:?}), this release reads \"{PREFIX}\"")]
    Version(String),
    /// A character that a token cannot contain.
    #[error("the join token is mistyped: it cannot contain {0:?}")]
    Character(char),
    /// Characters are missing.
    #[error("the join token is cut: {given} characters of {expected}; copy the whole line again")]
    Cut {
        /// Number of characters found.
        given: usize,
        /// Number of characters that belong to the token.
        expected: usize,
    },
    /// There are too many characters.
    #[error("the join token has {given} characters, {expected} belong to it; copy the line again")]
    TooLong {
        /// Number of characters found.
        given: usize,
        /// Number of characters that belong to the token.
        expected: usize,
    },
    /// The checksum does not match.
    #[error("the join token is mistyped: its checksum does not agree; copy the line again")]
    Mistyped,
    /// The checksum matches, but the content is not valid.
    #[error("the join token is malformed: {0}")]
    Malformed(String),
    /// The text is not a valid `host:port`.
    #[error("{0:?} is no address: give host:port, such as \"10.0.0.1:7400\" or \"[fd00::1]:7400\"")]
    Address(String),
    /// The number of addresses is zero or above [`ADDRESSES`].
    #[error("a join token names 1 to {ADDRESSES} addresses, not {0}")]
    Addresses(usize),
    /// The text is not a valid token id.
    #[error("a token's id has 16 hexadecimal digits")]
    Id,
}

/// Content of a join token.
#[derive(Debug, Clone)]
pub struct JoinToken {
    addresses: Vec<String>,
    ca: Fingerprint,
    id: TokenId,
    secret: TokenSecret,
}

impl JoinToken {
    /// A token with these parts. Checks the addresses.
    pub fn new(
        addresses: Vec<String>,
        ca: Fingerprint,
        id: TokenId,
        secret: TokenSecret,
    ) -> Result<Self, TokenError> {
        if addresses.is_empty() || addresses.len() > ADDRESSES {
            return Err(TokenError::Addresses(addresses.len()));
        }
        addresses.iter().try_for_each(|address| check_address(address))?;
        Ok(JoinToken { addresses, ca, id, secret })
    }

    /// Addresses of the coordinators, as `host:port`. Not empty.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Fingerprint of the CA that must have issued the coordinator's certificate.
    pub fn ca(&self) -> Fingerprint {
        self.ca
    }

    /// Id of the token.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// Secret of the token. Send it only to a coordinator that was verified by [`JoinToken::ca`].
    pub fn secret(&self) -> &TokenSecret {
        &self.secret
    }

    /// The token as a line. It contains the secret, so this is not `Display`.
    pub fn line(&self) -> String {
        let mut body = Vec::new();
        body.extend_from_slice(&self.ca.0);
        body.extend_from_slice(&self.id.0);
        body.extend_from_slice(&self.secret.0);
        body.push(u8::try_from(self.addresses.len()).expect("at most ADDRESSES"));
        for address in &self.addresses {
            body.push(u8::try_from(address.len()).expect("at most ADDRESS_BYTES"));
            body.extend_from_slice(address.as_bytes());
        }
        let length = u16::try_from(body.len() + CHECKSUM).expect("at most LINE_BYTES");
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&checksum(&bytes));
        format!("{PREFIX}{}", encoding::base32(&bytes))
    }

    /// Reads a line. Surrounding space and upper case are accepted.
    pub fn parse(line: &str) -> Result<Self, TokenError> {
        let line = line.trim();
        if line.len() > LINE_BYTES {
            return Err(TokenError::TooLong { given: line.len(), expected: LINE_BYTES });
        }
        let digits = strip_prefix(line)?;
        if let Some(wrong) =
            digits.chars().find(|c| !matches!(c, 'a'..='z' | 'A'..='Z' | '2'..='7'))
        {
            return Err(TokenError::Character(wrong));
        }
        let expected = expected_digits(digits)
            .ok_or(TokenError::Cut { given: line.len(), expected: shortest() })?;
        let (given, expected) = (line.len(), PREFIX.len() + expected);
        if given < expected {
            return Err(TokenError::Cut { given, expected });
        }
        if given > expected {
            return Err(TokenError::TooLong { given, expected });
        }
        let bytes = encoding::from_base32(digits).ok_or(TokenError::Mistyped)?;
        let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(TokenError::Mistyped)?;
        if checksum(bytes) != *sum {
            return Err(TokenError::Mistyped);
        }
        let parts = read_body(bytes.get(2..).unwrap_or_default());
        let (ca, id, secret, addresses) =
            parts.ok_or_else(|| TokenError::Malformed("its parts do not fit together".into()))?;
        JoinToken::new(addresses, ca, id, secret)
    }
}

/// Minimum number of characters of a token: one address of three characters.
fn shortest() -> usize {
    PREFIX.len() + (2 + 32 + 8 + 16 + 1 + 1 + 3 + CHECKSUM) * 8 / 5 + 1
}

/// Number of characters after the prefix, from the first four of them: the length has 16 bits,
/// which are three characters and the highest bit of the fourth.
fn expected_digits(digits: &str) -> Option<usize> {
    let bits = digits.get(..4)?.bytes().fold(0, |sum, digit| {
        let digit = digit.to_ascii_lowercase();
        let value = if digit.is_ascii_digit() { digit - b'2' + 26 } else { digit - b'a' };
        sum << 5 | usize::from(value)
    });
    Some(((2 + (bits >> 4)) * 8).div_ceil(5))
}

fn strip_prefix(line: &str) -> Result<&str, TokenError> {
    let starts = |prefix: &str| {
        line.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
    };
    if starts(PREFIX) {
        return Ok(&line[PREFIX.len()..]);
    }
    if !starts(FAMILY) {
        return Err(TokenError::Prefix);
    }
    if line.len() < PREFIX.len() && PREFIX.starts_with(&line.to_ascii_lowercase()) {
        return Err(TokenError::Cut { given: line.len(), expected: shortest() });
    }
    let version = line[FAMILY.len()..].chars().take_while(|c| *c != '.').take(8).collect();
    Err(TokenError::Version(version))
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut hash = Sha256::new();
    hash.update(PREFIX);
    hash.update(bytes);
    let hash: [u8; 32] = hash.finalize().into();
    *hash.first_chunk().expect("a hash has 32 bytes")
}

type Body = (Fingerprint, TokenId, TokenSecret, Vec<String>);

fn read_body(bytes: &[u8]) -> Option<Body> {
    let (ca, bytes) = bytes.split_first_chunk()?;
    let (id, bytes) = bytes.split_first_chunk()?;
    let (secret, bytes) = bytes.split_first_chunk()?;
    let (count, mut bytes) = bytes.split_first()?;
    let mut addresses = Vec::new();
    for _ in 0..*count {
        let (length, rest) = bytes.split_first()?;
        let (address, rest) = rest.split_at_checked(usize::from(*length))?;
        addresses.push(String::from_utf8(address.to_vec()).ok()?);
        bytes = rest;
    }
    let parts = (Fingerprint(*ca), TokenId(*id), TokenSecret(*secret), addresses);
    bytes.is_empty().then_some(parts)
}

/// Checks that `address` is `host:port`. Does not resolve the host.
pub fn check_address(address: &str) -> Result<(), TokenError> {
    let no = || TokenError::Address(address.chars().take(ADDRESS_BYTES).collect());
    let (host, port) = address.rsplit_once(':').ok_or_else(no)?;
    let port_is_one = port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+');
    let host_is_one = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(bracketed) => bracketed.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !host.is_empty() && host.chars().all(allowed)
        }
    };
    let fits = address.len() <= ADDRESS_BYTES;
    if port_is_one && host_is_one && fits { Ok(()) } else { Err(no()) }
}

#[cfg(test)]
mod tests;
