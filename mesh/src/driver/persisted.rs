//! What a member keeps from one life to the next: its generation, whom it knew, and who was revoked.
//!
//! The generation is written before it is used: a life that others have heard of is never repeated,
//! even if the clock goes back. The peers are a help, written now and then; without them the seeds do.
//! Who was revoked is written as soon as it is heard: a member that begins anew while it is cut off
//! from the coordinators must not let them in. A damaged file of these is not passed over.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use volvox_protocol::time::Timestamp;

use super::MeshError;
use crate::identity::{Kind, MemberId, MemberIdentity};
use crate::member::revocation::{REVOKED, is_needed};
use crate::record::Revocation;
use crate::tls::durable;

/// Peers that are kept. A few suffice to find the others.
const PEERS: usize = 64;

/// Bytes that either of the small files may have.
const FILE_BYTES: u64 = 64 << 10;

/// Bytes of the file of revoked members: a line of some fifty for each.
const REVOKED_BYTES: u64 = 64 * REVOKED as u64;

/// Somebody we knew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownPeer {
    /// For people who look into the file.
    name: String,
    coordinator: bool,
    pub(super) address: SocketAddr,
}

/// The three files.
#[derive(Debug)]
pub(super) struct PersistedPeers {
    path: PathBuf,
    generation: u64,
    known: Vec<KnownPeer>,
    peers: BTreeMap<MemberId, KnownPeer>,
    changed: bool,
    saving: Option<tokio::task::JoinHandle<()>>,
    revoked: BTreeMap<MemberId, u64>,
    revoked_path: PathBuf,
    /// What is on disk is not what is known.
    revoked_changed: bool,
    saving_revoked: Option<tokio::task::JoinHandle<()>>,
    /// The last try to write it failed.
    revoked_failed: Arc<AtomicBool>,
}

impl PersistedPeers {
    /// Reads both, and begins a new generation.
    pub(super) fn open(folder: &Path, now: Timestamp) -> Result<PersistedPeers, MeshError> {
        let path = folder.join("generation");
        let failed = |what: String| MeshError::PersistedPeers { path: path.clone(), what };
        let last = match durable::read(&path, FILE_BYTES).map_err(|e| failed(e.to_string()))? {
            None => 0,
            Some(text) => {
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                let wrong = || failed(format!("{text:?} is no number: remove the file"));
                text.parse::<u64>().map_err(|_| wrong())?
            }
        };
        let generation = (now.as_nanos() / 1_000_000).max(last.saturating_add(1));
        durable::replace(&path, format!("{generation}\n").as_bytes())
            .map_err(|e| failed(e.to_string()))?;
        let path = folder.join("peers.json");
        let known = match durable::read(&path, FILE_BYTES) {
            Ok(Some(text)) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "cannot be read, and is made anew");
                Vec::new()
            }),
            Ok(None) => Vec::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot be read");
                Vec::new()
            }
        };
        let revoked_path = folder.join("revoked");
        Ok(PersistedPeers {
            path,
            generation,
            known,
            peers: BTreeMap::new(),
            changed: false,
            saving: None,
            revoked: read_revoked(&revoked_path)?,
            revoked_path,
            revoked_changed: false,
            saving_revoked: None,
            revoked_failed: Arc::default(),
        })
    }

    /// Who was revoked, as far as we ever heard.
    pub(super) fn revoked(&self) -> Vec<Revocation> {
        let entry = |(member, until_s): (&MemberId, &u64)| {
            let (member, until_s) = (*member, *until_s);
            Revocation { member, until_s }
        };
        self.revoked.iter().map(entry).collect()
    }

    /// These are revoked.
    pub(super) fn revoke(&mut self, list: &[Revocation]) {
        self.revoked.extend(list.iter().map(|entry| (entry.member, entry.until_s)));
        self.revoked_changed = true;
    }

    /// Writes down who is revoked if that changed, on a thread that may wait for the disk. What fails
    /// is tried again at the next call.
    pub(super) fn save_revoked(&mut self, now: Timestamp) {
        self.revoked_changed |= self.revoked_failed.swap(false, Ordering::Relaxed);
        let busy = self.saving_revoked.as_ref().is_some_and(|saving| !saving.is_finished());
        if !self.revoked_changed || busy {
            return;
        }
        self.revoked_changed = false;
        self.revoked.retain(|member, until_s| {
            is_needed(now, &Revocation { member: *member, until_s: *until_s })
        });
        let lines = self.revoked.iter().map(|(member, until_s)| format!("{member} {until_s}\n"));
        let text: String = lines.collect();
        let (path, failed) = (self.revoked_path.clone(), self.revoked_failed.clone());
        self.saving_revoked = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = durable::replace(&path, text.as_bytes()) {
                tracing::error!(path = %path.display(), %error, "who is revoked was not kept");
                failed.store(true, Ordering::Relaxed);
            }
        }));
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// MemberSelector we knew in the last life, coordinators first.
    pub(super) fn peers(&self) -> &[KnownPeer] {
        &self.known
    }

    /// Somebody is there. Coordinators take the place of others.
    pub(super) fn remember(&mut self, identity: &MemberIdentity, address: SocketAddr) {
        let coordinator = identity.kind == Kind::Coordinator;
        let name = identity.name.as_str().to_owned();
        let peer = KnownPeer { name, coordinator, address };
        if self.peers.get(&identity.member) == Some(&peer) {
            return;
        }
        if self.peers.len() >= PEERS && !self.peers.contains_key(&identity.member) {
            let cell = self.peers.iter().find(|(_, peer)| !peer.coordinator);
            let cell = cell.map(|(member, _)| *member).filter(|_| coordinator);
            let Some(cell) = cell else { return };
            self.peers.remove(&cell);
        }
        self.peers.insert(identity.member, peer);
        self.changed = true;
    }

    /// Writes the peers if they changed, on a thread that may wait for the disk.
    pub(super) fn save_soon(&mut self) {
        let busy = self.saving.as_ref().is_some_and(|saving| !saving.is_finished());
        if !self.changed || busy {
            return;
        }
        self.changed = false;
        let mut peers: Vec<KnownPeer> = self.peers.values().cloned().collect();
        // Those of the last life that were not met in this one may be on the other side of a cut.
        let unmet = self.known.iter().filter(|old| !peers.iter().any(|p| p.name == old.name));
        let unmet: Vec<KnownPeer> = unmet.cloned().collect();
        peers.extend(unmet.into_iter().take(PEERS.saturating_sub(self.peers.len())));
        peers.sort_by_key(|peer| !peer.coordinator);
        let path = self.path.clone();
        self.saving = Some(tokio::task::spawn_blocking(move || {
            let text = serde_json::to_vec_pretty(&peers).expect("texts and numbers");
            if let Err(error) = durable::replace(&path, &text) {
                tracing::warn!(path = %path.display(), %error, "cannot be written");
            }
        }));
    }
}

/// A line for each: the member, and when its last certificate ends in seconds.
fn read_revoked(path: &Path) -> Result<BTreeMap<MemberId, u64>, MeshError> {
    let failed = |what: String| MeshError::PersistedPeers { path: path.to_owned(), what };
    let bytes = durable::read(path, REVOKED_BYTES).map_err(|e| failed(e.to_string()))?;
    let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    let entry = |(nth, line): (usize, &str)| {
        let entry = line.split_once(' ').and_then(|(member, until_s)| {
            Some((MemberId::parse(member)?, until_s.parse::<u64>().ok()?))
        });
        entry.ok_or_else(|| {
            let nth = nth + 1;
            failed(format!("line {nth} names nobody who is revoked: remove the file, and a coordinator tells anew"))
        })
    };
    text.lines().enumerate().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn who_is_revoked_is_known_in_the_next_life_until_its_certificates_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::from_secs(1_000_000_000);
        let [old, new] = [1, 2].map(|n| MemberId([n; 16]));
        let mut persisted = PersistedPeers::open(folder.path(), now).unwrap();
        assert_eq!(persisted.revoked(), []);
        let until = now + Duration::from_secs(86_400);
        let ended = Revocation { member: old, until_s: 500_000_000 };
        let list = [ended, Revocation::new(new, until)];
        persisted.revoke(&list);
        persisted.save_revoked(now);
        persisted.saving_revoked.take().unwrap().await.unwrap();
        let again = PersistedPeers::open(folder.path(), now).unwrap();
        assert_eq!(again.revoked(), list[1..]);
        std::fs::write(folder.path().join("revoked"), "0101 soon\n").unwrap();
        let error = PersistedPeers::open(folder.path(), now).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("remove the file"), "{error}");
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::from_secs(1_000_000_000);
        let mut persisted = PersistedPeers::open(folder.path(), now).unwrap();
        // A folder stands where the file is to be.
        let path = folder.path().join("revoked");
        std::fs::create_dir(&path).unwrap();
        let list = [Revocation::new(MemberId([3; 16]), now + Duration::from_secs(9))];
        persisted.revoke(&list);
        persisted.save_revoked(now);
        persisted.saving_revoked.take().unwrap().await.unwrap();
        std::fs::remove_dir(&path).unwrap();
        persisted.save_revoked(now);
        persisted.saving_revoked.take().unwrap().await.unwrap();
        assert_eq!(PersistedPeers::open(folder.path(), now).unwrap().revoked(), list);
    }
}
