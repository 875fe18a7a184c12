//! One instance per index: the view for readers who know nothing of definitions.
//!
//! While an update rolls, a process may have records of several definitions at one index, and of
//! each definition an ordinary, a suspect and an evacuating one. First the records of one
//! definition are folded as the BBS does it ([`LrpGroup`]); then one definition is chosen. Whoever
//! answers such a reader calls this with the records of a single process.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::actual_lrp::{ActualLrp, LrpGroup};
use crate::id::DefinitionId;

/// The records of one process, in any order, as one group per definition and index, in the order
/// of these.
pub fn groups<'a>(
    records: impl IntoIterator<Item = &'a Arc<ActualLrp>>,
) -> Vec<((DefinitionId, u32), LrpGroup)> {
    let mut records: Vec<&Arc<ActualLrp>> = records.into_iter().collect();
    debug_assert!(
        records.windows(2).all(|pair| pair[0].process_guid == pair[1].process_guid),
        "records of one process"
    );
    records.sort_by_key(|record| record.order());
    let same = |a: &&Arc<ActualLrp>, b: &&Arc<ActualLrp>| {
        (&a.definition_id, a.index) == (&b.definition_id, b.index)
    };
    records
        .chunk_by(same)
        .map(|chunk| {
            let key = (chunk[0].definition_id.clone(), chunk[0].index);
            (key, LrpGroup::fold(chunk.iter().copied()))
        })
        .collect()
}

/// The records of one process, in any order, as one record per index, in the order of the
/// indices. Among definitions the one that serves is preferred: RUNNING and routable, then RUNNING,
/// then any; among equals the active definition's, then that of the smallest definition id.
/// Without an active definition, which is a process no longer desired, all are alike.
pub fn resolved<'a>(
    records: impl IntoIterator<Item = &'a Arc<ActualLrp>>,
    active: Option<&DefinitionId>,
) -> Vec<Arc<ActualLrp>> {
    // Smaller is better. Definitions come in their order, so an equal rank does not replace.
    let rank = |record: &ActualLrp| {
        let routable = record.running().is_some_and(|running| running.routable);
        (!routable, !record.state.is_running(), Some(&record.definition_id) != active)
    };
    let mut chosen: BTreeMap<u32, Arc<ActualLrp>> = BTreeMap::new();
    for ((_, index), group) in groups(records) {
        let Some(record) = group.resolve() else { continue };
        match chosen.get(&index) {
            Some(known) if rank(known) <= rank(record) => {}
            Some(_) | None => {
                chosen.insert(index, Arc::clone(record));
            }
        }
    }
    chosen.into_values().collect()
}
