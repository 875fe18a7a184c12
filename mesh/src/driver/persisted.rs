//! What a member stores on disk for its next start: its generation, known peers, and revocations.
//!
//! - Generation: written before it is used. A generation that peers have received is never used
//!   again, even if the clock goes back.
//! - Peers: written from time to time. They help to find the mesh; without them the seeds are used.
//! - Revocations: written as soon as they are received. A member that restarts without a connection
//!   to the coordinators must still reject revoked members. So a damaged file is an error.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use volvox_host::durable;
use volvox_protocol::time::Timestamp;

use super::MeshError;
use crate::identity::{MemberId, MemberIdentity, MemberKind};
use crate::member::revocation::{REVOKED, is_needed};
use crate::record::Revocation;

/// Maximum number of stored peers. A few are enough to find the others.
const PEERS: usize = 64;

/// Maximum size of the generation file and of the peers file, in bytes.
const FILE_BYTES: u64 = 64 << 10;

/// Maximum size of the revocation file, in bytes: about fifty per member.
const REVOKED_BYTES: u64 = 64 * REVOKED as u64;

/// A peer that was present at some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownPeer {
    /// Name of the peer, for operators who read the file.
    name: String,
    coordinator: bool,
    pub(super) address: SocketAddr,
}

/// The three files: generation, peers and revocations.
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
    /// The revocations in memory differ from those on disk.
    revoked_changed: bool,
    saving_revoked: Option<tokio::task::JoinHandle<()>>,
    /// The last write of the revocations failed.
    revoked_failed: Arc<AtomicBool>,
}

impl PersistedPeers {
    /// Reads the three files and starts a new generation.
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

    /// All stored revocations.
    pub(super) fn revoked(&self) -> Vec<Revocation> {
        let entry = |(member, until_s): (&MemberId, &u64)| {
            let (member, until_s) = (*member, *until_s);
            Revocation { member, until_s }
        };
        self.revoked.iter().map(entry).collect()
    }

    /// Adds revocations. [`PersistedPeers::save_revoked`] writes them.
    pub(super) fn revoke(&mut self, list: &[Revocation]) {
        self.revoked.extend(list.iter().map(|entry| (entry.member, entry.until_s)));
        self.revoked_changed = true;
    }

    /// Writes the revocations if they changed, on a blocking thread. A failed write is repeated at
    /// the next call.
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

    /// Peers from earlier generations, coordinators first.
    pub(super) fn peers(&self) -> &[KnownPeer] {
        &self.known
    }

    /// Adds a peer that is present. When the list is full, a coordinator replaces a cell.
    pub(super) fn remember(&mut self, identity: &MemberIdentity, address: SocketAddr) {
        let coordinator = identity.kind == MemberKind::Coordinator;
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

    /// Writes the peers if they changed, on a blocking thread.
    pub(super) fn save_soon(&mut self) {
        let busy = self.saving.as_ref().is_some_and(|saving| !saving.is_finished());
        if !self.changed || busy {
            return;
        }
        self.changed = false;
        let mut peers: Vec<KnownPeer> = self.peers.values().cloned().collect();
        // Peers of earlier generations that were not met in this one may be behind a network
        // partition.
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

/// Reads the revocation file. One line per member: its id, and the end of its last certificate in
/// seconds since the Unix epoch.
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

    #[test]
    fn a_peer_has_its_golden_text() {
        let address = "10.0.0.1:7000".parse().unwrap();
        let peer = KnownPeer { name: "a".to_owned(), coordinator: true, address };
        let mut golden = volvox_golden::Golden::open(env!("CARGO_MANIFEST_DIR"), "peers");
        golden.json("KnownPeer", &peer);
        golden.close();
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::from_secs(1_000_000_000);
        let mut persisted = PersistedPeers::open(folder.path(), now).unwrap();
        // A directory with the name of the file.
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
