//! What a member keeps from one life to the next: its generation, and whom it knew.
//!
//! The generation is written before it is used: a life that others have heard of is never repeated,
//! even if the clock goes back. The peers are a help, written now and then; without them the seeds do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use volvox_protocol::time::Timestamp;

use super::MeshError;
use crate::identity::{Holder, Kind, MemberId};
use crate::tls::durable;

/// Peers that are kept. A few suffice to find the others.
const PEERS: usize = 64;

/// Bytes that either file may have.
const FILE_BYTES: u64 = 64 << 10;

/// Somebody we knew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownPeer {
    /// For people who look into the file.
    name: String,
    coordinator: bool,
    pub(super) address: SocketAddr,
}

/// The two files.
#[derive(Debug)]
pub(super) struct Memory {
    path: PathBuf,
    generation: u64,
    known: Vec<KnownPeer>,
    peers: BTreeMap<MemberId, KnownPeer>,
    changed: bool,
    saving: Option<tokio::task::JoinHandle<()>>,
}

impl Memory {
    /// Reads both, and begins a new generation.
    pub(super) fn open(folder: &Path, now: Timestamp) -> Result<Memory, MeshError> {
        let path = folder.join("generation");
        let failed = |what: String| MeshError::Memory { path: path.clone(), what };
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
        let peers = BTreeMap::new();
        Ok(Memory { path, generation, known, peers, changed: false, saving: None })
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whom we knew in the last life, coordinators first.
    pub(super) fn peers(&self) -> &[KnownPeer] {
        &self.known
    }

    /// Somebody is there. Coordinators take the place of others.
    pub(super) fn remember(&mut self, holder: &Holder, address: SocketAddr) {
        let coordinator = holder.kind == Kind::Coordinator;
        let name = holder.name.as_str().to_owned();
        let peer = KnownPeer { name, coordinator, address };
        if self.peers.get(&holder.member) == Some(&peer) {
            return;
        }
        if self.peers.len() >= PEERS && !self.peers.contains_key(&holder.member) {
            let cell = self.peers.iter().find(|(_, peer)| !peer.coordinator);
            let cell = cell.map(|(member, _)| *member).filter(|_| coordinator);
            let Some(cell) = cell else { return };
            self.peers.remove(&cell);
        }
        self.peers.insert(holder.member, peer);
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
