//! What readers see: the records as of the last commit, never later.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::{Arc, PoisonError, RwLock};

use super::command::Change;
use super::state::Records;

/// The published records. Clones are handles on the same view.
#[derive(Debug, Clone, Default)]
pub struct View(Arc<RwLock<PublishedRecords>>);

/// Records, and how many commits they have seen.
#[derive(Debug, Clone, Default)]
struct PublishedRecords {
    records: Arc<Records>,
    commit: u64,
}

impl View {
    /// A view that shows these records.
    pub fn new(records: Records) -> Self {
        View(Arc::new(RwLock::new(PublishedRecords { records: Arc::new(records), commit: 0 })))
    }

    /// All records as of the last commit. Costs a pointer, stays as it is, and may be kept.
    pub fn snapshot(&self) -> Arc<Records> {
        self.snapshot_at().0
    }

    /// The same, with the number of that commit: events of later commits are not in it, those of
    /// this and earlier ones are.
    pub fn snapshot_at(&self) -> (Arc<Records>, u64) {
        let shown = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&shown.records), shown.commit)
    }

    /// Shows what has been committed, and says which commit that was. A snapshot that somebody
    /// holds is left as it is.
    pub fn publish<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> u64 {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let records = Arc::make_mut(&mut shown.records);
        for change in changes {
            records.put(change);
        }
        shown.commit += 1;
        shown.commit
    }

    /// Shows other records altogether, as of a commit of their own: the store was read again.
    pub fn replace(&self, records: Records) -> u64 {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        shown.records = Arc::new(records);
        shown.commit += 1;
        shown.commit
    }
}
