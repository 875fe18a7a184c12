//! A number that stands for everything on one cell: equal on both sides when cell and board agree.
//!
//! The cell sums over its containers, the board over its records, and each adds and takes away one
//! item at a time. The sum does not depend on the order. Nothing here is secret, and a cell that lies
//! only asks to be synced.
//!
//! What counts is what both sides hold to be so once they have settled:
//!
//! | container of an instance | record that names it | counts as |
//! |---|---|---|
//! | `RESERVED` | still `UNCLAIMED`, or claimed a moment ago | nothing |
//! | `INITIALIZING`, `CREATED` | `CLAIMED` | claimed |
//! | `RUNNING` | `RUNNING`, whatever its presence | running |
//! | `COMPLETED` | not for long: the cell reports the end and deletes it | nothing |
//!
//! | container of a task | task on the cell | counts as |
//! |---|---|---|
//! | `RESERVED` | still `PENDING`, or started a moment ago | nothing |
//! | `INITIALIZING`, `CREATED`, `RUNNING` | `RUNNING` | running |
//! | `COMPLETED` | not for long | nothing |
//! | none | `COMPLETED`, `RESOLVING` | nothing |
//!
//! Each row that cannot last counts so that a difference remains if it does: a reservation that was
//! claimed and never run, an end that was never reported. An order to stop does not count, since the
//! container runs until it has ended. An instance is its guid: that is new for every container, and
//! what it is an instance of never changes.

use crate::actual_lrp::{ActualLrp, LrpState};
use crate::container::ContainerState;
use crate::id::{InstanceGuid, TaskGuid};
use crate::random::mix;
use crate::task::{Task, TaskState};

/// One thing on a cell, in a state that both sides know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestItem(u128);

/// Kinds of items, in front of the name: no two kinds share a number.
const CLAIMED: u8 = 1;
const RUNNING: u8 = 2;
const TASK: u8 = 3;

impl DigestItem {
    /// What a record counts as, for the cell that it names.
    pub fn of_record(lrp: &ActualLrp) -> Option<DigestItem> {
        match &lrp.state {
            LrpState::Claimed(instance) => Some(DigestItem::new(CLAIMED, &instance.instance_guid)),
            LrpState::Running(instance, _) => {
                Some(DigestItem::new(RUNNING, &instance.instance_guid))
            }
            LrpState::Unclaimed { .. } | LrpState::Crashed => None,
        }
    }

    /// What a task counts as, for the cell that it names.
    pub fn of_task(task: &Task) -> Option<DigestItem> {
        match task.state {
            TaskState::Running => {
                task.cell_id.as_ref().map(|_| DigestItem::new(TASK, &task.task_guid))
            }
            TaskState::Pending | TaskState::Completed | TaskState::Resolving => None,
        }
    }

    /// What the container of an instance counts as.
    pub fn of_container(instance: &InstanceGuid, state: ContainerState) -> Option<DigestItem> {
        match state {
            ContainerState::Initializing | ContainerState::Created => {
                Some(DigestItem::new(CLAIMED, instance))
            }
            ContainerState::Running => Some(DigestItem::new(RUNNING, instance)),
            ContainerState::Reserved | ContainerState::Completed => None,
        }
    }

    /// What the container of a task counts as.
    pub fn of_task_container(task: &TaskGuid, state: ContainerState) -> Option<DigestItem> {
        match state {
            ContainerState::Initializing | ContainerState::Created | ContainerState::Running => {
                Some(DigestItem::new(TASK, task))
            }
            ContainerState::Reserved | ContainerState::Completed => None,
        }
    }

    /// FNV-1a with 128 bits, then both halves stirred: FNV alone hardly moves its upper bits for short
    /// names. The same on all machines and for all time.
    fn new(kind: u8, name: &impl AsRef<str>) -> DigestItem {
        let mut bits: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for byte in std::iter::once(kind).chain(name.as_ref().bytes()) {
            bits = (bits ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
        #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
        let (low, high) = (bits as u64, (bits >> 64) as u64);
        let low = mix(low ^ high.rotate_left(32));
        DigestItem(u128::from(mix(high ^ low)) << 64 | u128::from(low))
    }
}

/// The sum of all items on a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    /// Counts something in. Nothing to count changes nothing.
    pub fn put(&mut self, item: Option<DigestItem>) {
        self.0 = self.0.wrapping_add(item.map_or(0, |item| item.0));
    }

    /// Counts out again what was counted in.
    pub fn take(&mut self, item: Option<DigestItem>) {
        self.0 = self.0.wrapping_sub(item.map_or(0, |item| item.0));
    }

    /// The number that a load carries.
    pub const fn number(self) -> u128 {
        self.0
    }
}

impl FromIterator<Option<DigestItem>> for Digest {
    fn from_iter<I: IntoIterator<Item = Option<DigestItem>>>(items: I) -> Self {
        let mut digest = Digest::default();
        items.into_iter().for_each(|item| digest.put(item));
        digest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::actual_lrp::{InstanceKey, NetInfo, Presence, Running, Tags};
    use crate::id::{CellId, DefinitionId, Domain, ProcessGuid};
    use crate::modification_tag::ModificationTag;
    use crate::task::TaskDefinition;
    use crate::time::Timestamp;

    fn guid(name: &str) -> InstanceGuid {
        InstanceGuid::new(name).unwrap()
    }

    fn record(state: LrpState) -> ActualLrp {
        ActualLrp {
            process_guid: ProcessGuid::new("p").unwrap(),
            definition_id: DefinitionId::new("v1").unwrap(),
            index: 3,
            domain: Domain::new("d").unwrap(),
            presence: Presence::Ordinary,
            state,
            crash_count: 0,
            crash_reason: Box::default(),
            stopping: false,
            since: Timestamp::ZERO,
            modification_tag: ModificationTag::default(),
        }
    }

    fn task(state: TaskState, cell: Option<&str>) -> Task {
        Task {
            task_guid: TaskGuid::new("t").unwrap(),
            domain: Domain::new("d").unwrap(),
            definition: Arc::new(TaskDefinition::default()),
            state,
            cell_id: cell.map(|cell| CellId::new(cell).unwrap()),
            created_at: Timestamp::ZERO,
            updated_at: Timestamp::ZERO,
            first_completed_at: Timestamp::ZERO,
            result: String::new(),
            failed: false,
            failure_reason: String::new(),
            rejection_count: 0,
            rejection_reason: String::new(),
        }
    }

    fn on(instance: &str) -> InstanceKey {
        InstanceKey { instance_guid: guid(instance), cell_id: CellId::new("c").unwrap() }
    }

    fn running() -> Arc<Running> {
        Arc::new(Running {
            net_info: NetInfo::default(),
            internal_routes: Box::default(),
            metric_tags: Tags::default(),
            routable: true,
            availability_zone: "z".into(),
        })
    }

    #[test]
    fn a_settled_instance_counts_the_same_on_both_sides() {
        let claimed = DigestItem::of_record(&record(LrpState::Claimed(on("i"))));
        let runs = DigestItem::of_record(&record(LrpState::Running(on("i"), running())));
        assert!(claimed.is_some() && runs.is_some() && claimed != runs);
        let container = |state| DigestItem::of_container(&guid("i"), state);
        assert_eq!(container(ContainerState::Initializing), claimed);
        assert_eq!(container(ContainerState::Created), claimed);
        assert_eq!(container(ContainerState::Running), runs);
        for passing in [ContainerState::Reserved, ContainerState::Completed] {
            assert_eq!(container(passing), None);
        }
        assert_eq!(DigestItem::of_record(&record(LrpState::unclaimed())), None);
        assert_eq!(DigestItem::of_record(&record(LrpState::Crashed)), None);
    }

    #[test]
    fn presence_and_an_order_to_stop_do_not_count() {
        let plain = record(LrpState::Running(on("i"), running()));
        let stopping = ActualLrp { stopping: true, ..plain.clone() };
        let evacuating = ActualLrp { presence: Presence::Evacuating, ..plain.clone() };
        assert_eq!(DigestItem::of_record(&stopping), DigestItem::of_record(&plain));
        assert_eq!(DigestItem::of_record(&evacuating), DigestItem::of_record(&plain));
    }

    #[test]
    fn a_settled_task_counts_the_same_on_both_sides() {
        let runs = DigestItem::of_task(&task(TaskState::Running, Some("c")));
        assert!(runs.is_some());
        let guid = TaskGuid::new("t").unwrap();
        for state in ContainerState::ALL {
            let active = !matches!(state, ContainerState::Reserved | ContainerState::Completed);
            let counted = DigestItem::of_task_container(&guid, state);
            assert_eq!(counted, if active { runs } else { None }, "{state:?}");
        }
        for state in [TaskState::Pending, TaskState::Completed, TaskState::Resolving] {
            assert_eq!(DigestItem::of_task(&task(state, Some("c"))), None);
        }
    }

    #[test]
    fn an_item_never_changes_its_number() {
        let item = DigestItem::of_container(&guid("i-1"), ContainerState::Running).unwrap();
        let number = 0x1c79_23ff_0b5f_44d3_3820_a7dc_36d8_2438;
        assert_eq!(item.0, number, "written down once, true for ever");
    }

    proptest! {
        #[test]
        fn order_does_not_count_and_taking_undoes_putting(
            names in proptest::collection::btree_set("[a-z0-9-]{1,12}", 1..20),
            gone in proptest::collection::vec(any::<bool>(), 20),
            seed: u64,
        ) {
            let items: Vec<Option<DigestItem>> = names
                .iter()
                .map(|name| DigestItem::of_container(&guid(name), ContainerState::Running))
                .collect();
            let mut shuffled = items.clone();
            let mut random = crate::random::SplitMix(seed);
            for nth in (1..shuffled.len()).rev() {
                shuffled.swap(nth, random.below(nth + 1));
            }
            let whole: Digest = items.iter().copied().collect();
            prop_assert_eq!(whole, shuffled.into_iter().collect::<Digest>());
            let mut rest = whole;
            let mut kept = Vec::new();
            for (item, gone) in items.iter().zip(gone) {
                if gone { rest.take(*item) } else { kept.push(*item) }
            }
            prop_assert_eq!(rest, kept.into_iter().collect::<Digest>());
        }

        #[test]
        fn different_things_have_different_numbers(
            names in proptest::collection::btree_set("[a-z0-9]{1,6}", 1..200),
        ) {
            let numbers: BTreeSet<u128> = names
                .iter()
                .flat_map(|name| {
                    let task = TaskGuid::new(name).unwrap();
                    [
                        DigestItem::of_container(&guid(name), ContainerState::Created),
                        DigestItem::of_container(&guid(name), ContainerState::Running),
                        DigestItem::of_task_container(&task, ContainerState::Running),
                    ]
                })
                .flatten()
                .map(|item| item.0)
                .collect();
            prop_assert_eq!(numbers.len(), names.len() * 3);
        }
    }
}
