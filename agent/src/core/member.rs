//! The cell as a member of a mesh: what its rep and its self-test decide is done by its executor, or asked
//! of the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volvox_mesh::identity::MemberId;
use volvox_protocol::cell_rpc::CellOrders;
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use super::{
    AskId, Cell, CellOutput, CoordinatorReply, CoordinatorRequest, Ends, Joining, Notice, ReplyId,
};
use crate::container::guid::ContainerGuid;
use crate::executor::logic::{ExecutorInput, ReservationRequest};
use crate::executor::workload::{Owner, Workload};
use crate::rep::assignments::{AssignmentText, AssignmentWrite};
use crate::rep::logic::{AskFailure, Rep, RepInput, RepOutput, SessionId};
use crate::rep::paging::Paging;
use crate::rep::self_test::{self, SelfTest, test_definition};
use crate::rep::status::{LoadStatus, RepStatus};

/// Rep, self-test and what they wait for.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) rep: Rep,
    /// The self-test, and the root file system that it uses; none: it is off.
    test: Option<(SelfTest, String)>,
    assignments: AssignmentText,
    /// Something was assigned, or is not any more, since they were last written.
    is_new: bool,
    coordinator: Option<MemberId>,
    asks: BTreeMap<AskId, PendingAsk>,
    last_ask: u64,
    page_items: usize,
}

/// What an answer will be for.
#[derive(Debug)]
enum PendingAsk {
    Report(SessionId),
    Fetch(SessionId),
    /// A page of a sync, and those before it.
    Sync(SessionId, Box<Paging>),
}

impl Member {
    pub(super) fn next_wake(&self) -> Timestamp {
        let test = self.test.as_ref().map_or(Timestamp::NEVER, |(test, _)| test.next_wake());
        self.rep.next_wake().min(test)
    }

    pub(super) fn awaits(&self, ask: AskId) -> bool {
        self.asks.contains_key(&ask)
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.asks.is_empty()
    }

    pub(super) fn status(&self) -> RepStatus {
        RepStatus {
            coordinator: self.rep.has_coordinator(),
            load: self.rep.load().map(LoadStatus::from),
            evacuation: self.rep.evacuation(),
            self_test_failures: self.test.as_ref().map_or(0, |(test, _)| test.failures()),
            inconceivable: self.rep.inconceivable(),
        }
    }

    /// What is to be written of the assignments. A disk that did not take them is asked again with the
    /// next one, and now and then.
    pub(super) fn take_write(&mut self, now: Timestamp) -> Option<AssignmentWrite> {
        let is_due = std::mem::take(&mut self.is_new) || self.assignments.tries_again(now);
        if is_due { self.assignments.take_write() } else { None }
    }

    pub(super) fn not_written(&mut self) {
        self.assignments.not_written();
    }
}

impl Cell {
    pub(super) fn join(&mut self, now: Timestamp, random: &mut SplitMix, joining: Joining) {
        let Joining { settings, self_test, assignments, load_version, page_items } = joining;
        let mut rep = Rep::new(now, settings, load_version);
        rep.apply(now, RepInput::Assigned(assignments.list()));
        let test = self_test
            .map(|(settings, rootfs)| (SelfTest::new(now, settings, random.next()), rootfs));
        // What is torn on the disk is written anew.
        let is_new = assignments.is_behind();
        self.member = Some(Member {
            rep,
            test,
            assignments,
            is_new,
            coordinator: None,
            asks: BTreeMap::new(),
            last_ask: 0,
            page_items,
        });
        let all = self.containers().map(|view| view.container.guid).collect();
        self.show(now, &all);
    }

    /// Shows rep and self-test how these containers are now.
    pub(super) fn show(&mut self, now: Timestamp, touched: &BTreeSet<ContainerGuid>) {
        let free = self.remaining();
        let Some(member) = &mut self.member else { return };
        let mut changed = Vec::new();
        for guid in touched {
            let view = self.executor.container(guid);
            if member.rep.container(guid) == view.as_ref() {
                continue;
            }
            if let Some((test, _)) = &mut member.test
                && guid.as_str().starts_with(self_test::PREFIX)
            {
                test.saw(now, guid, view.as_ref());
            }
            changed.push((guid.clone(), view));
        }
        member.rep.apply(now, RepInput::Containers(changed, free));
    }

    pub(super) fn ordered(
        &mut self,
        now: Timestamp,
        random: &mut SplitMix,
        reply: ReplyId,
        orders: CellOrders,
    ) {
        self.tell_rep(now, RepInput::Orders(reply.0, orders, random.next()));
    }

    pub(super) fn met(&mut self, now: Timestamp, coordinator: Option<MemberId>) {
        let Some(member) = &mut self.member else { return };
        member.coordinator = coordinator;
        member.asks.clear();
        self.tell_rep(
            now,
            match coordinator {
                Some(_) => RepInput::CoordinatorPresent,
                None => RepInput::CoordinatorMissing,
            },
        );
    }

    pub(super) fn evacuate(&mut self, now: Timestamp) {
        self.tell_rep(now, RepInput::Evacuate);
    }

    pub(super) fn healthy(&mut self, now: Timestamp, healthy: bool) {
        self.tell_rep(now, RepInput::Healthy(healthy));
    }

    fn tell_rep(&mut self, now: Timestamp, input: RepInput) {
        if let Some(member) = &mut self.member {
            member.rep.apply(now, input);
        }
    }

    /// Does what rep and self-test decide, until they have nothing more to say.
    pub(super) fn go_on(&mut self, now: Timestamp) {
        loop {
            self.go_on_testing(now);
            let Some(member) = &mut self.member else { return };
            let effects = member.rep.poll_outputs(now);
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.follow_rep(now, effect);
            }
        }
    }

    fn follow_rep(&mut self, now: Timestamp, effect: RepOutput) {
        match effect {
            RepOutput::Assign(assigned) => self.assign(|all| all.assign(&assigned)),
            RepOutput::Unassign(instance) => self.assign(|all| all.unassign(&instance)),
            RepOutput::Reserve(batch, wanted) => {
                let refused = self.reserve(now, wanted);
                let refused = refused.into_iter().map(|(guid, why)| (guid, why.to_string()));
                self.tell_rep(now, RepInput::Reserved(batch, refused.collect()));
            }
            RepOutput::Run(guid, work) => {
                if let Err(refusal) =
                    self.tell_executor(now, ExecutorInput::Run(guid.clone(), work))
                {
                    self.tell_rep(now, RepInput::NotRun(guid, refusal.to_string()));
                }
            }
            RepOutput::Stop(guid) => {
                self.note_end(&guid, Ends::Stop);
                // What is not there any more needs no stop.
                let _ = self.tell_executor(now, ExecutorInput::Stop(guid));
            }
            RepOutput::Delete(guid) => {
                self.note_end(&guid, Ends::Delete);
                let _ = self.tell_executor(now, ExecutorInput::Delete(guid));
            }
            RepOutput::Answer(message, reply) => {
                self.outputs.push(CellOutput::OrdersReply(ReplyId(message), reply));
            }
            RepOutput::Report(contact, report) => {
                self.ask(now, PendingAsk::Report(contact), CoordinatorRequest::Report(report));
            }
            RepOutput::Fetch(contact, asked) => {
                self.ask(now, PendingAsk::Fetch(contact), CoordinatorRequest::Fetch(asked));
            }
            RepOutput::Sync(contact, asked) => {
                let Some(member) = &self.member else { return };
                let paging = Paging::new(asked, member.page_items);
                self.ask_page(now, contact, Box::new(paging));
            }
            RepOutput::PublishLoad(load) => self.outputs.push(CellOutput::PublishLoad(load)),
            RepOutput::Inconceivable(guid, what) => self.note(Notice::Inconceivable(guid, what)),
            RepOutput::Note(guid, what) => self.note(Notice::Rep(guid, what)),
            RepOutput::Evacuated => self.outputs.push(CellOutput::Evacuated),
        }
    }

    fn note(&mut self, notice: Notice) {
        self.outputs.push(CellOutput::Notice(notice));
    }

    fn note_end(&mut self, guid: &ContainerGuid, how: Ends) {
        if let Some(view) = self.executor.container(guid) {
            self.note(Notice::Ends { guid: guid.clone(), how, was: view.container.state });
        }
    }

    fn assign(&mut self, change: impl FnOnce(&mut AssignmentText)) {
        if let Some(member) = &mut self.member {
            change(&mut member.assignments);
            member.is_new = true;
        }
    }

    // The coordinator.

    fn ask(&mut self, now: Timestamp, asked: PendingAsk, request: CoordinatorRequest) {
        let Some(member) = &mut self.member else { return };
        let Some(coordinator) = member.coordinator else {
            return self.not_answered(now, asked, AskFailure::NotDone);
        };
        member.last_ask += 1;
        let ask = AskId(member.last_ask);
        member.asks.insert(ask, asked);
        self.outputs.push(CellOutput::Ask(ask, coordinator, request));
    }

    /// The next page of a sync, if there is one. The rep hears of all of them together.
    fn ask_page(&mut self, now: Timestamp, contact: SessionId, paging: Box<Paging>) {
        match paging.next() {
            Some(next) => {
                self.ask(now, PendingAsk::Sync(contact, paging), CoordinatorRequest::Sync(next));
            }
            None => self.tell_rep(now, RepInput::Synced(contact, Ok(paging.into_pages()))),
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        ask: AskId,
        answer: Result<CoordinatorReply, AskFailure>,
    ) {
        let Some(asked) = self.member.as_mut().and_then(|it| it.asks.remove(&ask)) else { return };
        match (asked, answer) {
            (PendingAsk::Report(contact), Ok(CoordinatorReply::Report(reply))) => {
                self.tell_rep(now, RepInput::Reported(contact, Ok(reply)));
            }
            (PendingAsk::Fetch(contact), Ok(CoordinatorReply::Fetch(reply))) => {
                self.tell_rep(now, RepInput::Fetched(contact, Ok(reply)));
            }
            (PendingAsk::Sync(contact, mut paging), Ok(CoordinatorReply::Sync(page))) => {
                match paging.answered(page) {
                    Ok(()) => self.ask_page(now, contact, paging),
                    Err(bad) => {
                        self.note(Notice::BadPage(bad));
                        self.not_answered(
                            now,
                            PendingAsk::Sync(contact, paging),
                            AskFailure::Unknown,
                        );
                    }
                }
            }
            (asked, Err(why)) => self.not_answered(now, asked, why),
            // An answer to another question is none to this one.
            (asked, Ok(_)) => self.not_answered(now, asked, AskFailure::Unknown),
        }
    }

    fn not_answered(&mut self, now: Timestamp, asked: PendingAsk, why: AskFailure) {
        let input = match asked {
            PendingAsk::Report(contact) => RepInput::Reported(contact, Err(why)),
            PendingAsk::Fetch(contact) => RepInput::Fetched(contact, Err(why)),
            PendingAsk::Sync(contact, _) => RepInput::Synced(contact, Err(why)),
        };
        self.tell_rep(now, input);
    }

    // The self-test.

    fn go_on_testing(&mut self, now: Timestamp) {
        let Some((test, _)) = self.member.as_mut().and_then(|it| it.test.as_mut()) else { return };
        for effect in test.poll_outputs(now) {
            match effect {
                self_test::SelfTestOutput::Begin(guid) => self.begin_test(now, guid),
                self_test::SelfTestOutput::Delete(guid) => {
                    // What is not there any more is what was wanted.
                    let _ = self.tell_executor(now, ExecutorInput::Delete(guid));
                }
                self_test::SelfTestOutput::Healthy(healthy) => {
                    self.note(Notice::Healthy(healthy));
                    self.healthy(now, healthy);
                }
                self_test::SelfTestOutput::Failed(reason) => self.note(Notice::TestFailed(reason)),
            }
        }
    }

    fn begin_test(&mut self, now: Timestamp, guid: ContainerGuid) {
        let Some((_, rootfs)) = self.member.as_ref().and_then(|it| it.test.as_ref()) else {
            return;
        };
        let work = Workload::Task(Arc::new(test_definition(rootfs)));
        let name = InstanceGuid::new(guid.as_str()).expect("it was made from one");
        let wanted = ReservationRequest { owner: Owner::Local(name), resources: work.resources() };
        let has_room = self.reserve(now, vec![wanted]).is_empty();
        let begun = match has_room {
            true => self.tell_executor(now, ExecutorInput::Run(guid, work)),
            false => Ok(()),
        };
        let Some((test, _)) = self.member.as_mut().and_then(|it| it.test.as_mut()) else { return };
        match begun {
            Ok(()) if has_room => {}
            Ok(()) => test.no_room(now),
            Err(refusal) => test.not_begun(now, refusal.to_string()),
        }
    }
}
