//! The books of the download cache: what is kept, what it takes, what goes to make room. Pure.
//!
//! Files are blobs with a number; a key has at most one current blob. An older blob of the key lives
//! on while somebody holds it. What holds: the bytes of all blobs are counted and never above the
//! limit, a held blob is never among the evicted, and an `Err` changes nothing.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;

/// The number of a blob; later ones are higher.
pub type BlobId = u64;

/// A blob that the driver must remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evicted {
    /// Which.
    pub id: BlobId,
    /// Its key.
    pub key: String,
    /// Whether it was the key's current one, so that the key's record goes too.
    pub was_current: bool,
}

/// Why a file is not kept. It can still be used, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Even alone it would not fit.
    #[error("limit cache_bytes: at most {limit}, given {given}")]
    TooLarge {
        /// What the cache may take.
        limit: u64,
        /// What the file takes.
        given: u64,
    },
    /// What is in use leaves too little.
    #[error("limit cache_bytes: at most {limit}, {held} in use, given {given}")]
    InUse {
        /// What the cache may take.
        limit: u64,
        /// What cannot be evicted now.
        held: u64,
        /// What the file takes.
        given: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Blob {
    key: String,
    bytes: u64,
    last_used: u64,
    holders: u32,
    is_current: bool,
}

/// What the cache keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheIndex {
    limit_bytes: u64,
    used_bytes: u64,
    blobs: BTreeMap<BlobId, Blob>,
    current: BTreeMap<String, BlobId>,
    next_id: BlobId,
    clock: u64,
}

impl CacheIndex {
    /// An empty cache. The first blob's number is above all that the disk has seen.
    pub fn new(limit_bytes: u64, next_id: BlobId) -> Self {
        CacheIndex {
            limit_bytes,
            used_bytes: 0,
            blobs: BTreeMap::new(),
            current: BTreeMap::new(),
            next_id,
            clock: 0,
        }
    }

    /// What all blobs take.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The number that the next blob gets.
    pub fn next_id(&self) -> BlobId {
        self.next_id
    }

    /// The current blob of a key.
    pub fn current(&self, key: &str) -> Option<BlobId> {
        self.current.get(key).copied()
    }

    /// A new file for a key: its number, and what must go for it, the least recently used first.
    pub fn admit(&mut self, key: &str, bytes: u64) -> Result<(BlobId, Vec<Evicted>), NoRoom> {
        let limit = self.limit_bytes;
        if bytes > limit {
            return Err(NoRoom::TooLarge { limit, given: bytes });
        }
        let old = self.current(key);
        let mut order: Vec<(bool, u64, BlobId)> = self
            .blobs
            .iter()
            .filter(|(_, blob)| blob.holders == 0)
            // What the new file replaces goes first: nobody will ask for it again.
            .map(|(id, blob)| (Some(*id) != old, blob.last_used, *id))
            .collect();
        order.sort_unstable();
        let mut left = self.used_bytes;
        let mut go = Vec::new();
        for (is_other, _, id) in order {
            if is_other && left.checked_add(bytes).is_some_and(|sum| sum <= limit) {
                break;
            }
            left -= self.blobs[&id].bytes;
            go.push(id);
        }
        if left.checked_add(bytes).is_none_or(|sum| sum > limit) {
            return Err(NoRoom::InUse { limit, held: left, given: bytes });
        }
        let evicted = go.into_iter().filter_map(|id| self.remove(id)).collect();
        if let Some(held) = old.and_then(|id| self.blobs.get_mut(&id)) {
            held.is_current = false;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.insert(id, key, bytes);
        Ok((id, evicted))
    }

    /// A file that was found at the start. The least recently used come first; the second of a key
    /// is the driver's to remove before.
    pub fn found(&mut self, key: &str, id: BlobId, bytes: u64) {
        self.next_id = self.next_id.max(id.saturating_add(1));
        self.insert(id, key, bytes);
    }

    /// What must go because the limit is lower than it was.
    pub fn trim(&mut self) -> Vec<Evicted> {
        let mut order: Vec<(u64, BlobId)> = self
            .blobs
            .iter()
            .filter(|(_, blob)| blob.holders == 0)
            .map(|(id, blob)| (blob.last_used, *id))
            .collect();
        order.sort_unstable();
        let mut evicted = Vec::new();
        for (_, id) in order {
            if self.used_bytes <= self.limit_bytes {
                break;
            }
            evicted.extend(self.remove(id));
        }
        evicted
    }

    fn insert(&mut self, id: BlobId, key: &str, bytes: u64) {
        self.clock += 1;
        let (key, last_used) = (key.to_owned(), self.clock);
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        self.current.insert(key.clone(), id);
        self.blobs.insert(id, Blob { key, bytes, last_used, holders: 0, is_current: true });
    }

    /// Uses the current blob of a key: it stays until [`CacheIndex::release`].
    pub fn hold(&mut self, key: &str) -> Option<BlobId> {
        let id = self.current(key)?;
        let blob = self.blobs.get_mut(&id)?;
        self.clock += 1;
        blob.last_used = self.clock;
        blob.holders += 1;
        Some(id)
    }

    /// One use less. An old blob goes with its last user.
    pub fn release(&mut self, id: BlobId) -> Option<Evicted> {
        let blob = self.blobs.get_mut(&id)?;
        debug_assert!(blob.holders > 0, "released more often than held");
        blob.holders = blob.holders.saturating_sub(1);
        if blob.holders == 0 && !blob.is_current { self.remove(id) } else { None }
    }

    /// The key's file is no good: its record goes now, the blob now or with its last user.
    pub fn forget(&mut self, key: &str) -> Option<Evicted> {
        let id = self.current.remove(key)?;
        let blob = self.blobs.get_mut(&id)?;
        blob.is_current = false;
        if blob.holders == 0 { self.remove(id) } else { None }
    }

    fn remove(&mut self, id: BlobId) -> Option<Evicted> {
        let blob = self.blobs.remove(&id)?;
        self.used_bytes = self.used_bytes.saturating_sub(blob.bytes);
        if blob.is_current {
            self.current.remove(&blob.key);
        }
        Some(Evicted { id, key: blob.key, was_current: blob.is_current })
    }
}

#[cfg(test)]
mod tests;
