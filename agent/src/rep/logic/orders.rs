//! Orders of a coordinator. Work is taken against the room that is left, and what does not fit is
//! named at once, with the reason.

use std::sync::Arc;

use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::cell::RootfsProvider;
use volvox_protocol::cell_rpc::{
    CellOrders, CellOrdersReply, DefinitionKey, OrderAnswer, RefusedLrps, RefusedTask, RefusedWork,
};
use volvox_protocol::container::ContainerState;
use volvox_protocol::id::{InstanceGuid, TaskGuid};
use volvox_protocol::random::SplitMix;
use volvox_protocol::request::{CellOrder, LrpStart, Requirements, TaskStart, WorkBatch};
use volvox_protocol::tables::rep_lrp::LrpView;
use volvox_protocol::tables::rep_task::TaskView;
use volvox_protocol::time::Timestamp;

use super::definitions::Fetch;
use super::{BoardRecord, PendingOp, Rep, RepOutput, TrackedContainer, definition_of};
use crate::container::guid::ContainerGuid;
use crate::container::spec::is_container_id;
use crate::executor::logic::ReservationRequest;
use crate::executor::resources::ContainerResources;
use crate::executor::workload::Owner;

/// What work may ask of this cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellCapabilities {
    /// The root file systems it can mount; empty: whatever is asked for.
    pub rootfs_providers: Vec<RootfsProvider>,
    /// The volume drivers it has.
    pub volume_drivers: Vec<String>,
}

impl CellCapabilities {
    /// Why work that needs this cannot run here, if it cannot.
    fn refusal(&self, needs: &Requirements) -> Option<String> {
        let (scheme, rest) = needs.rootfs.split_once(':').unwrap_or(("", &needs.rootfs));
        let has = self.rootfs_providers.is_empty()
            || self.rootfs_providers.iter().any(|provider| {
                let named = &provider.properties;
                provider.name == scheme && (named.is_empty() || named.iter().any(|it| it == rest))
            });
        if !has {
            return Some(format!("this cell has no root file system {:?}", needs.rootfs));
        }
        let missing = needs.volume_drivers.iter().find(|it| !self.volume_drivers.contains(it));
        missing.map(|driver| format!("this cell has no volume driver {driver:?}"))
    }
}

/// Work for which room is being set aside.
#[derive(Debug)]
pub(super) enum Batch {
    /// Of a coordinator's order: the message, the order's place in it, and what was refused already.
    Ordered { message: u64, nth: usize, number: u64, guids: Vec<ContainerGuid>, refused: Refusals },
    /// One that crashed, or was lost, while the cell was alone.
    Again(ContainerGuid),
}

/// What is not taken, and why.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    lrps: Vec<(DefinitionKey, u32, String)>,
    tasks: Vec<(TaskGuid, String)>,
}

impl Refusals {
    fn answer(self) -> OrderAnswer {
        if self.lrps.is_empty() && self.tasks.is_empty() {
            return OrderAnswer::Taken;
        }
        let mut work = RefusedWork::default();
        for (key, index, reason) in self.lrps {
            let same = work.lrps.iter_mut().find(|it| it.key == key && *it.reason == *reason);
            match same {
                Some(it) => it.indices.push(index),
                None => {
                    let (indices, reason) = (vec![index], reason.into());
                    work.lrps.push(RefusedLrps { key, indices, reason });
                }
            }
        }
        for (task_guid, reason) in self.tasks {
            work.tasks.push(RefusedTask { task_guid, reason: reason.into() });
        }
        OrderAnswer::Refused(work)
    }
}

impl Rep {
    pub(super) fn ordered(&mut self, now: Timestamp, message: u64, orders: CellOrders, seed: u64) {
        let mut names = SplitMix(seed);
        let count = orders.orders.len();
        self.orders.insert(message, vec![None; count]);
        for (nth, order) in orders.orders.into_iter().enumerate() {
            match order {
                CellOrder::Work(batch) => {
                    self.take_work(message, nth, batch, &mut names);
                    continue;
                }
                CellOrder::StopInstance(_, on) => self.stop(now, &on.instance_guid.into()),
                CellOrder::CancelTask(task) => self.cancel(&task),
                CellOrder::UpdateInstance(key, _) => {
                    self.fetching.want(Fetch::Lrp(definition_of(&key)));
                }
                CellOrder::Sync => self.syncing.want_full(),
                CellOrder::Evacuate => self.evacuate(now),
            }
            self.answer(message, nth, OrderAnswer::Taken);
        }
        if count == 0 {
            self.orders.remove(&message);
            self.effects.push(RepOutput::Answer(message, CellOrdersReply::default()));
        }
    }

    fn answer(&mut self, message: u64, nth: usize, answer: OrderAnswer) {
        let Some(answers) = self.orders.get_mut(&message) else { return };
        answers[nth] = Some(answer);
        if answers.iter().all(Option::is_some) {
            let answers = self.orders.remove(&message).into_iter().flatten().flatten().collect();
            self.effects.push(RepOutput::Answer(message, CellOrdersReply { answers }));
        }
    }

    fn take_work(&mut self, message: u64, nth: usize, batch: WorkBatch, names: &mut SplitMix) {
        let (mut refused, mut wanted) = (Refusals::default(), Vec::new());
        for start in batch.lrps {
            self.want_lrps(start, names, &mut refused, &mut wanted);
        }
        for task in batch.tasks {
            self.want_task(task, &mut refused, &mut wanted);
        }
        // The largest first: what is left of the room is more likely to be of use to the small.
        wanted.sort_by_key(|it| std::cmp::Reverse(it.resources.memory_mb));
        let guids = wanted.iter().map(|it| it.owner.container()).collect();
        let number = batch.number;
        self.next_batch += 1;
        let ordered = Batch::Ordered { message, nth, number, guids, refused };
        self.reserving.insert(self.next_batch, ordered);
        self.effects.push(RepOutput::Reserve(self.next_batch, wanted));
    }

    fn want_lrps(
        &mut self,
        start: LrpStart,
        names: &mut SplitMix,
        refused: &mut Refusals,
        wanted: &mut Vec<ReservationRequest>,
    ) {
        let no = self.why_not(&start.requirements);
        let resources = resources(&start.requirements);
        for index in start.indices {
            let key = LrpKey {
                process_guid: start.process_guid.clone(),
                index,
                domain: start.domain.clone(),
                definition_id: Some(start.definition_id.clone()),
            };
            if let Some(reason) = &no {
                refused.lrps.push((definition_of(&key), index, reason.clone()));
            } else if !self.is_starting(&key) {
                let owner = Owner::Lrp { key, instance: new_name(names) };
                self.expect(&owner, BoardRecord::Lrp(LrpView::Unclaimed, None));
                wanted.push(ReservationRequest { owner, resources });
            }
        }
    }

    fn want_task(
        &mut self,
        task: TaskStart,
        refused: &mut Refusals,
        wanted: &mut Vec<ReservationRequest>,
    ) {
        let guid = task.task_guid;
        let name = guid.as_str();
        let no = self.why_not(&task.requirements).or_else(|| {
            let told = "names of tasks may have 63 letters, digits, _ and - here";
            (!is_container_id(name)).then(|| format!("task {name:?}: {told}"))
        });
        let no = no.or_else(|| match self.entries.get(&ContainerGuid::from(&guid)) {
            Some(entry) if !is_under_way(entry) => {
                Some(format!("the last container of the name {name} is still being taken away"))
            }
            Some(_) | None => None,
        });
        if let Some(reason) = no {
            refused.tasks.push((guid, reason));
            return;
        }
        self.reports.drop_older_task(&guid);
        let owner = Owner::Task { guid, domain: task.domain };
        if !self.entries.contains_key(&owner.container()) {
            self.expect(&owner, BoardRecord::Task(TaskView::Pending));
            wanted.push(ReservationRequest { owner, resources: resources(&task.requirements) });
        }
    }

    fn why_not(&self, needs: &Requirements) -> Option<String> {
        if self.evacuation.is_some() {
            return Some("this cell is being evacuated".to_owned());
        }
        self.settings.offer.refusal(needs)
    }

    /// The same work may be ordered twice. It is not to be reserved twice.
    fn is_starting(&self, key: &LrpKey) -> bool {
        self.entries.values().any(|entry| {
            let starting = entry.busy == PendingOp::Reserving
                || matches!(
                    entry.state(),
                    Some(
                        ContainerState::Reserved
                            | ContainerState::Initializing
                            | ContainerState::Created
                    )
                );
            let same = matches!(&entry.owner, Owner::Lrp { key: of, .. } if of == key);
            same && starting && !entry.stop && entry.busy != PendingOp::Deleting
        })
    }

    fn expect(&mut self, owner: &Owner, belief: BoardRecord) {
        let entry = TrackedContainer {
            busy: PendingOp::Reserving,
            ..TrackedContainer::new(owner.clone(), belief)
        };
        self.entries.insert(owner.container(), entry);
    }

    /// Room was set aside, for all but these.
    pub(super) fn reserved(
        &mut self,
        now: Timestamp,
        batch: u64,
        none_for: &[(ContainerGuid, String)],
    ) {
        match self.reserving.remove(&batch) {
            Some(Batch::Ordered { message, nth, number, guids, mut refused }) => {
                for guid in guids {
                    let Some((_, reason)) = none_for.iter().find(|(it, _)| *it == guid) else {
                        continue;
                    };
                    let Some(entry) = self.entries.remove(&guid) else { continue };
                    match entry.owner {
                        Owner::Lrp { key, .. } => {
                            let of = definition_of(&key);
                            self.forget_definition(&of);
                            refused.lrps.push((of, key.index, reason.clone()));
                        }
                        Owner::Task { guid, .. } => refused.tasks.push((guid, reason.clone())),
                        Owner::Local(_) => {}
                    }
                }
                self.last_batch = self.last_batch.max(number);
                self.answer(message, nth, refused.answer());
            }
            Some(Batch::Again(guid)) => {
                if let Some((_, reason)) = none_for.iter().find(|(it, _)| *it == guid) {
                    self.no_room_again(now, &guid, reason);
                }
            }
            None => {}
        }
    }
}

fn resources(needs: &Arc<Requirements>) -> ContainerResources {
    ContainerResources { memory_mb: needs.memory_mb, disk_mb: needs.disk_mb }
}

/// Whether this is a task that was taken on and has not ended.
fn is_under_way(entry: &TrackedContainer) -> bool {
    let is_task = matches!(entry.owner, Owner::Task { .. });
    let ends =
        entry.busy == PendingOp::Deleting || entry.state() == Some(ContainerState::Completed);
    let is_gone = entry.container.is_none() && entry.busy != PendingOp::Reserving;
    is_task && !ends && !is_gone
}

/// A name that nobody else has: 112 bits of a sequence whose seed is the machine's.
fn new_name(names: &mut SplitMix) -> InstanceGuid {
    let (high, low) = (names.next(), names.next());
    let text = format!(
        "{:08x}-{:04x}-{:04x}-{:09x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 28
    );
    InstanceGuid::new(&text).expect("hexadecimal digits and dashes")
}
