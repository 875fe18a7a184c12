//! What a cell has done is done on its machine and over the mesh, and it hears of the answers.

use std::time::Duration;

use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::container::op::ContainerOp;
use volvox_agent::core::{
    AskId, CellInput, CellOutput, CoordinatorReply, CoordinatorRequest, Ends, Notice, ReplyId,
};
use volvox_agent::executor::workload::Owner;
use volvox_agent::rep::logic::AskFailure;
use volvox_mesh::member::MemberInput;
use volvox_mesh::request::AskError;
use volvox_protocol::cell_rpc::{CellOrders, CellOrdersReply, OwnRecords, size};
use volvox_protocol::container::ContainerState;
use volvox_protocol::request::CellOrder;

use super::super::world::{CENTER, Event, For, LetterId, Question, Reply, World};
use super::ANSWER_WITHIN;

impl World {
    pub(super) fn cell_does(&mut self, nth: usize, output: CellOutput) {
        match output {
            CellOutput::Op(guid, deed) => self.machine_does(nth, &guid, deed),
            CellOutput::Ask(ask, _, request) => self.ask(nth, ask, request),
            CellOutput::OrdersReply(reply, answer) => self.answer_orders(nth, reply, answer),
            CellOutput::PublishLoad(load) => {
                let place = self.cells[nth].place;
                self.mesh.tell(place, MemberInput::PublishLoad(load));
            }
            CellOutput::Notice(notice) => self.cell_notes(nth, notice),
            CellOutput::Evacuated => self.cell_is_evacuated(nth),
            CellOutput::Event(_) | CellOutput::LocalReply(..) => {}
        }
    }

    fn machine_does(&mut self, nth: usize, guid: &ContainerGuid, deed: ContainerOp) {
        let cell = &mut self.cells[nth];
        if let ContainerOp::Spawn(process) = &deed
            && let Some(view) = cell.agent.as_ref().and_then(|agent| agent.cell.container(guid))
            && let Owner::Task { guid, .. } = &view.owner
        {
            let which = process.args.last().map_or("", String::as_str);
            self.checks.task_runs(guid, which);
        }
        cell.machine.perform(guid, deed);
    }

    fn cell_notes(&mut self, nth: usize, notice: Notice) {
        let id = self.cells[nth].id.clone();
        match notice {
            Notice::Ends { guid, how, was } => self.container_ends(nth, &guid, how, was),
            Notice::Inconceivable(guid, what) => {
                self.count("inconceivable");
                self.tell(|| format!("{id}: {guid} inconceivable: {what}"));
            }
            Notice::Rep(guid, what) => self.tell(|| format!("{id}: {guid} {what}")),
            Notice::BadPage(bad) => self.checks.fail(format!("a sync of {id}: {bad}")),
            Notice::Forgotten(..)
            | Notice::NotDeleted(..)
            | Notice::TooLate(..)
            | Notice::TestFailed(_)
            | Notice::Healthy(_) => {}
        }
    }

    /// A container that lives is ended on the rep's word.
    fn container_ends(&mut self, nth: usize, guid: &ContainerGuid, how: Ends, was: ContainerState) {
        let Some(agent) = &self.cells[nth].agent else { return };
        let Some(Owner::Lrp { key, .. }) = agent.cell.container(guid).map(|it| it.owner) else {
            return;
        };
        if was != ContainerState::Running {
            return;
        }
        let other = self.runs_instead(&key, guid);
        let evacuates = agent.evacuates();
        self.count("live container ended");
        let id = self.cells[nth].id.clone();
        self.checks.live_container_ends(&(id.clone(), guid.clone()), other);
        self.tell(|| format!("{id}: {how:?} {guid}, which runs"));
        match how {
            _ if evacuates => {}
            Ends::Stop => self.checks.stops(&id, guid),
            Ends::Delete => self.deletes_live(&id, guid),
        }
    }

    fn cell_is_evacuated(&mut self, nth: usize) {
        self.count("evacuated");
        let id = self.cells[nth].id.clone();
        self.tell(|| format!("{id}: evacuated, the agent ends"));
        // Its process ends: systemd starts it again.
        let place = self.cells[nth].place;
        self.mesh.tell(place, MemberInput::Leave);
        self.kill_agent(nth);
        let (at, life) = (self.now() + Duration::from_secs(2), self.cells[nth].life);
        self.plan(at, For::Cell(nth, life), Event::AgentStarts);
    }

    // The coordinator.

    fn ask(&mut self, nth: usize, AskId(ask): AskId, request: CoordinatorRequest) {
        let (question, bytes) = match request {
            CoordinatorRequest::Report(it) => (Question::Report(it.clone()), size(&it)),
            CoordinatorRequest::Fetch(it) => (Question::Fetch(it.clone()), size(&it)),
            CoordinatorRequest::Sync(it) => {
                let is_first = matches!(it.own, OwnRecords::None | OwnRecords::After(0));
                self.count(if is_first { "sync" } else { "further page" });
                (Question::Sync(it.clone()), size(&it))
            }
        };
        let (place, life, now) = (self.cells[nth].place, self.cells[nth].life, self.now());
        if !self.mesh.is_linked(place, CENTER) {
            let soon = now + self.moment();
            let none = Event::NotReplied(ask, AskError::NoLink);
            return self.plan(soon, For::Cell(nth, life), none);
        }
        if let Some(delay) = self.mesh.carry(place, CENTER, bytes) {
            let to = For::Center(self.center.life);
            let question = self.by_wire(question);
            self.plan(now + delay, to, Event::Asked(nth, life, ask, question));
        }
        let over = Event::NotReplied(ask, AskError::Deadline);
        self.plan(now + ANSWER_WITHIN, For::Cell(nth, life), over);
    }

    pub(super) fn answered(&mut self, nth: usize, ask: u64, reply: Result<Reply, AskError>) {
        let answer = match reply {
            Ok(Reply::Report(reply)) => Ok(CoordinatorReply::Report(reply)),
            Ok(Reply::Fetch(reply)) => Ok(CoordinatorReply::Fetch(reply)),
            Ok(Reply::Sync(page)) => Ok(CoordinatorReply::Sync(page)),
            Err(error) => Err(AskFailure::from(&error)),
        };
        if answer.is_err() && self.is_asked(nth, ask) {
            self.count("question without an answer");
        }
        self.tell_cell(nth, CellInput::Answered(AskId(ask), answer));
    }

    fn is_asked(&self, nth: usize, ask: u64) -> bool {
        self.cells[nth].agent.as_ref().is_some_and(|agent| agent.cell.awaits(AskId(ask)))
    }

    pub(super) fn ordered(&mut self, nth: usize, letter: LetterId, orders: CellOrders) {
        let unknown = |order: &CellOrder| matches!(order, CellOrder::UpdateInstance(..));
        if self.cells[nth].is_old && orders.orders.iter().any(unknown) {
            // An older release cannot read it, and says so.
            self.count("order not understood");
            return self.refuse_letter(nth, letter);
        }
        let Some(agent) = &mut self.cells[nth].agent else { return };
        agent.last_reply += 1;
        let reply = ReplyId(agent.last_reply);
        agent.letters.insert(reply, letter);
        self.tell_cell(nth, CellInput::Orders { reply, orders });
    }

    fn answer_orders(&mut self, nth: usize, reply: ReplyId, answer: CellOrdersReply) {
        let Some(agent) = &mut self.cells[nth].agent else { return };
        let Some((life, id)) = agent.letters.remove(&reply) else { return };
        let place = self.cells[nth].place;
        if let Some(delay) = self.mesh.carry(place, CENTER, size(&answer)) {
            let answer = self.by_wire(answer);
            let at = self.now() + delay;
            self.plan(at, For::Center(life), Event::OrdersAnswered(id, answer));
        }
    }
}
