//! Who may call what: roles, bearer tokens, client certificates.
//!
//! A token is `vlx_ID_SECRET`. The secret is 256 random bits and only its SHA-256 is kept, in a file
//! that the commands `volvox-coordinator token …` change and a running coordinator reads again when it
//! changes. A client certificate is checked by TLS; its name decides the role.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use volvox_host::durable;
use volvox_host::sync::lock;
use volvox_protocol::time::Timestamp;

pub use volvox_protocol::role::Role;

/// The file of the tokens, in the data folder.
pub const TOKENS: &str = "tokens.json";
/// The file with the token that the coordinator makes for its own machine, in the data folder.
pub const ADMIN_TOKEN: &str = "admin.token";
/// How long a token that was taken back may still be good.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Tokens in one file.
const MOST_TOKENS: usize = 10_000;
/// Bytes of the file.
const FILE_BYTES: u64 = 16 << 20;
/// Letters of a token's name.
const NAME_BYTES: usize = 128;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// How the audit calls it: `token:ID (NAME)`, `certificate:NAME`, `socket:UID`.
    pub name: Arc<str>,
    /// What it may do.
    pub role: Role,
    /// The token that it showed, if it was one.
    pub token: Option<Arc<str>>,
}

impl Caller {
    /// The name in its certificate, if it showed one.
    pub fn certificate(&self) -> Option<&str> {
        self.name.strip_prefix("certificate:")
    }
}

/// A token as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Names it; the first part of the token.
    pub id: String,
    /// For people.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// SHA-256 of the secret, in hexadecimal.
    hash: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it may be used; left out: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was taken back; left out: it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    /// Whether it may be used at this time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    version: u32,
    tokens: Vec<Token>,
}

/// Why a token could not be made or taken back. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The disk.
    #[error(transparent)]
    File(#[from] durable::FileError),
    /// The file is not ours, or damaged.
    #[error("{path}: {what}; move it away, and make the tokens anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The name.
    #[error("a token's name has 1 to {NAME_BYTES} printable characters, not {0:?}")]
    Name(String),
    /// The role.
    #[error(
        "the role cell is for certificates, whose name is the cell's: volvox-coordinator cert issue"
    )]
    CellRole,
    /// There is none of that name or id.
    #[error("there is no token {0:?}: `volvox-coordinator token list` shows them")]
    Unknown(String),
    /// Several have that name.
    #[error("{0:?} is the name of several tokens: give the id instead")]
    Ambiguous(String),
    /// There are too many.
    #[error("there are {MOST_TOKENS} tokens already: revoke some that are not used")]
    TooMany,
    /// The system gives no randomness.
    #[error("the system gives no randomness")]
    NoRandomness,
}

/// The file of the tokens.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The one in this data folder.
    pub fn of(data_dir: &Path) -> Self {
        TokenFile(data_dir.join(TOKENS))
    }

    /// Makes a token and gives it back: it is shown this once.
    pub fn create(
        &self,
        now: Timestamp,
        name: &str,
        role: Role,
        lifetime: Option<Duration>,
    ) -> Result<(String, Token), TokenError> {
        if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
            return Err(TokenError::Name(name.to_owned()));
        }
        if role == Role::Cell {
            return Err(TokenError::CellRole);
        }
        let (id, secret): ([u8; 4], [u8; 32]) = (random()?, random()?);
        let (id, secret) = (HEXLOWER.encode(&id), HEXLOWER.encode(&secret));
        let token = Token {
            id: id.clone(),
            name: name.to_owned(),
            role,
            hash: hash(&secret),
            created_at: now,
            expires_at: lifetime.map(|lifetime| now + lifetime),
            revoked_at: None,
        };
        self.change(|tokens| {
            // What ended a month ago is of interest to nobody.
            const KEPT: Duration = Duration::from_secs(30 * 86_400);
            tokens.retain(|token| {
                let ended = token.revoked_at.or(token.expires_at);
                ended.is_none_or(|ended| now < ended + KEPT)
            });
            if tokens.len() >= MOST_TOKENS {
                return Err(TokenError::TooMany);
            }
            tokens.push(token.clone());
            Ok(())
        })?;
        Ok((format!("vlx_{id}_{secret}"), token))
    }

    /// Takes back the token with this id or name.
    pub fn revoke(&self, now: Timestamp, which: &str) -> Result<Token, TokenError> {
        self.change(|tokens| {
            let mut found = tokens.iter_mut().filter(|token| {
                token.id == which || (token.name == which && token.revoked_at.is_none())
            });
            let token = found.next().ok_or_else(|| TokenError::Unknown(which.to_owned()))?;
            if found.next().is_some() {
                return Err(TokenError::Ambiguous(which.to_owned()));
            }
            token.revoked_at.get_or_insert(now);
            Ok(token.clone())
        })
    }

    /// All tokens, those that ended too.
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        let path = &self.0;
        let damaged = |what: String| TokenError::Damaged { path: path.clone(), what };
        let Some(bytes) = durable::read(path, FILE_BYTES)? else { return Ok(Vec::new()) };
        let read: Tokens =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if read.version != 1 {
            return Err(damaged(format!("version {} is not known", read.version)));
        }
        Ok(read.tokens)
    }

    /// One at a time, also from several processes.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Token>) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let failed = |source| durable::FileError { verb: "lock", path: self.0.clone(), source };
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.0.with_extension("lock"))
            .map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut tokens = self.list()?;
        let result = change(&mut tokens)?;
        let text = serde_json::to_vec_pretty(&Tokens { version: 1, tokens })
            .map_err(|error| failed(error.into()))?;
        durable::replace(&self.0, &text)?;
        Ok(result)
    }

    /// Sees to it that there is a token for this machine's own use, in a file for its owner only.
    pub fn ensure_admin(&self, now: Timestamp) -> Result<PathBuf, TokenError> {
        let path = self.0.with_file_name(ADMIN_TOKEN);
        let known = durable::read(&path, 1_024)?
            .and_then(|text| String::from_utf8(text).ok())
            .is_some_and(|text| {
                let tokens = self.list().unwrap_or_default();
                find(&tokens, text.trim(), now).is_some()
            });
        if !known {
            let (token, _) = self.create(now, "this machine", Role::Admin, None)?;
            durable::replace(&path, format!("{token}\n").as_bytes())?;
        }
        Ok(path)
    }
}

fn random<const N: usize>() -> Result<[u8; N], TokenError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
    Ok(bytes)
}

fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret.as_bytes()))
}

/// The token that this text is, if it may be used.
fn find<'a>(tokens: &'a [Token], text: &str, now: Timestamp) -> Option<&'a Token> {
    let (id, secret) = text.strip_prefix("vlx_")?.split_once('_')?;
    // What is compared are hashes of 256 random bits: how long it takes tells nothing of use.
    let given = hash(secret);
    tokens.iter().find(|token| token.id == id && token.hash == given && token.is_valid(now))
}

/// Knows callers by what they show.
#[derive(Debug)]
pub struct Access {
    file: TokenFile,
    known: Mutex<LoadedTokens>,
    certificates: BTreeMap<String, Role>,
}

#[derive(Debug)]
struct LoadedTokens {
    /// By the hash of the whole text, so that the usual case is one look.
    callers: BTreeMap<[u8; 32], (Caller, Token)>,
    tokens: Vec<Token>,
    looked: Option<Instant>,
    modified: Option<(SystemTime, u64)>,
}

impl Access {
    /// Reads the tokens of a data folder. `certificates` are the names in client certificates, and
    /// what they may do.
    pub fn open(file: TokenFile, certificates: BTreeMap<String, Role>) -> Result<Self, TokenError> {
        let tokens = file.list()?;
        let known = LoadedTokens { callers: BTreeMap::new(), tokens, looked: None, modified: None };
        Ok(Access { file, known: Mutex::new(known), certificates })
    }

    /// Who shows this token.
    pub fn bearer(&self, now: Timestamp, text: &str) -> Option<Caller> {
        let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let mut known = lock(&self.known);
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            self.look_again(&mut known);
        }
        if let Some((caller, token)) = known.callers.get(&digest) {
            return token.is_valid(now).then(|| caller.clone());
        }
        // It may have been made a moment ago.
        self.look_again(&mut known);
        let token = find(&known.tokens, text, now)?.clone();
        let name = format!("token:{} ({})", token.id, token.name);
        let caller =
            Caller { name: name.into(), role: token.role, token: Some(token.id.as_str().into()) };
        known.callers.insert(digest, (caller.clone(), token));
        Some(caller)
    }

    /// Whether somebody who was let in would be now: its token may have ended meanwhile.
    pub fn is_good(&self, now: Timestamp, caller: &Caller) -> bool {
        let Some(id) = &caller.token else { return true };
        let mut known = lock(&self.known);
        self.look_again(&mut known);
        known.tokens.iter().any(|token| *token.id == **id && token.is_valid(now))
    }

    /// Who has a client certificate with one of these names.
    pub fn certified<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Option<Caller> {
        names.find_map(|name| {
            let role = *self.certificates.get(name)?;
            Some(Caller { name: format!("certificate:{name}").into(), role, token: None })
        })
    }

    /// Reads the file again if it has changed. What cannot be read leaves things as they are: a
    /// full disk must not lock everybody out.
    fn look_again(&self, known: &mut LoadedTokens) {
        known.looked = Some(Instant::now());
        let modified = std::fs::metadata(&self.file.0)
            .and_then(|file| Ok((file.modified()?, std::os::unix::fs::MetadataExt::ino(&file))))
            .ok();
        if modified == known.modified {
            return;
        }
        match self.file.list() {
            Ok(tokens) => {
                known.tokens = tokens;
                known.callers.clear();
                known.modified = modified;
            }
            Err(error) => {
                // Said once for each state of the file.
                known.modified = modified;
                tracing::error!(%error, "the tokens were not read; the old ones stay");
            }
        }
    }
}
