//! What an agent's rep decides is done: its executor and the mesh are asked, and it hears of the answers. As
//! the rep's driver does (`agent/src/rep/driver.rs`).

use std::time::Duration;

use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::executor::logic::Input as DepotInput;
use volvox_agent::executor::work::Owner;
use volvox_agent::rep::assignments::Write;
use volvox_agent::rep::logic::{Effect, Input, Unanswered};
use volvox_agent::rep::paging::Paging;
use volvox_mesh::member::MemberInput;
use volvox_mesh::request::AskError;
use volvox_protocol::container::ContainerState;
use volvox_protocol::exchange::{CellOrders, size};
use volvox_protocol::request::CellOrder;
use volvox_protocol::time::Timestamp;

use super::super::world::{CENTER, Event, For, LetterId, Question, Reply, World};
use super::{ANSWER_WITHIN, Asked, BUSY};

impl World {
    pub(super) fn look(&mut self, nth: usize) {
        let local = self.cells[nth].local(self.now());
        let Some(agent) = &mut self.cells[nth].agent else { return };
        agent.looks = false;
        let changed = std::mem::take(&mut agent.changed);
        if !changed.is_empty() {
            let free = agent.depot.resources().remaining();
            agent.rep.apply(local, Input::Containers(changed.into_iter().collect(), free));
        }
    }

    pub(super) fn go_on(&mut self, nth: usize) {
        let local = self.cells[nth].local(self.now());
        loop {
            let Some(agent) = &mut self.cells[nth].agent else { return };
            let effects = agent.rep.go_on(local);
            if !self.write_down(nth, local, &effects) {
                return;
            }
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                if self.burns(nth) {
                    return;
                }
                self.do_for_rep(nth, local, effect);
            }
        }
        self.plan_wake(nth);
    }

    pub(super) fn plan_wake(&mut self, nth: usize) {
        let now = self.now();
        let cell = &mut self.cells[nth];
        let Some(agent) = &cell.agent else { return };
        let depot = agent.depot.next_wake().unwrap_or(Timestamp::NEVER);
        let at = cell.global(agent.rep.next_wake().min(depot)).max(now);
        if at < agent.wake {
            let life = cell.life;
            if let Some(agent) = &mut cell.agent {
                agent.wake = at;
            }
            self.plan(at, For::Cell(nth, life), Event::AgentWakes);
        }
    }

    /// Whether the agent is still there.
    fn write_down(&mut self, nth: usize, local: Timestamp, effects: &[Effect]) -> bool {
        let Some(agent) = &mut self.cells[nth].agent else { return false };
        for effect in effects {
            if let Effect::Assign(assigned) = effect {
                agent.text.assign(assigned);
            } else if let Effect::Unassign(instance) = effect {
                agent.text.unassign(instance);
            }
        }
        // As the rep's driver: what failed is tried again with the next write, or now and then.
        if effects.is_empty() && !agent.text.tries_again(local) {
            return true;
        }
        let write = agent.text.take_write();
        let Some(write) = write else { return true };
        if self.burns(nth) {
            self.count("assignments torn");
            self.cells[nth].disk.tear(write, &mut self.random);
            return false;
        }
        let cell = &mut self.cells[nth];
        let Some(agent) = &mut cell.agent else { return false };
        if cell.disk.refuses(&mut self.random) {
            agent.text.not_written();
            cell.disk.tear(write, &mut self.random);
            self.count("assignments not written");
            return true;
        }
        match write {
            Write::Append(bytes) => cell.disk.assignments.extend_from_slice(&bytes),
            Write::Replace(bytes) => cell.disk.assignments = bytes,
        }
        true
    }

    fn do_for_rep(&mut self, nth: usize, local: Timestamp, effect: Effect) {
        match effect {
            Effect::Assign(_) | Effect::Unassign(_) => {}
            Effect::Reserve(batch, wanted) => {
                let guids = wanted.iter().map(|it| (it.owner.container(), BUSY.to_owned()));
                let all: Vec<(ContainerGuid, String)> = guids.collect();
                let is_busy = self.is_busy(nth);
                if !is_busy {
                    self.decide(nth, local, DepotInput::Reserve(wanted));
                }
                let Some(agent) = &mut self.cells[nth].agent else { return };
                let refused = std::mem::take(&mut agent.refused);
                let refused = if is_busy { all } else { refused };
                self.look(nth);
                if let Some(agent) = &mut self.cells[nth].agent {
                    agent.rep.apply(local, Input::Reserved(batch, refused));
                }
            }
            Effect::Run(guid, work) => {
                let is_busy = self.is_busy(nth);
                let Some(agent) = &mut self.cells[nth].agent else { return };
                if is_busy {
                    return agent.rep.apply(local, Input::NotRun(guid, BUSY.to_owned()));
                }
                match agent.depot.apply(local, DepotInput::Run(guid.clone(), work)) {
                    Ok(effects) => drop(self.perform(nth, effects)),
                    Err(error) => agent.rep.apply(local, Input::NotRun(guid, error.to_string())),
                }
            }
            Effect::Stop(guid) => {
                if self.is_busy(nth) {
                    let Some(agent) = &mut self.cells[nth].agent else { return };
                    return agent.rep.apply(local, Input::NotStopped(guid));
                }
                if self.container_ends(nth, &guid, "stop") {
                    let id = self.cells[nth].id.clone();
                    self.checks.stops(&id, &guid);
                }
                self.decide(nth, local, DepotInput::Stop(guid));
            }
            Effect::Delete(guid) => {
                if self.is_busy(nth) {
                    let Some(agent) = &mut self.cells[nth].agent else { return };
                    return agent.rep.apply(local, Input::NotDeleted(guid));
                }
                if self.container_ends(nth, &guid, "delete") {
                    let id = self.cells[nth].id.clone();
                    self.deletes_live(&id, &guid);
                }
                self.decide(nth, local, DepotInput::Delete(guid));
            }
            Effect::Answer(message, reply) => {
                let Some(agent) = &mut self.cells[nth].agent else { return };
                let Some(letter) = agent.letters.remove(&message) else { return };
                let place = self.cells[nth].place;
                if let Some(delay) = self.mesh.carry(place, CENTER, size(&reply)) {
                    let reply = self.by_wire(reply);
                    let (life, id) = letter;
                    let at = self.now() + delay;
                    self.plan(at, For::Center(life), Event::OrdersAnswered(id, reply));
                }
            }
            Effect::Report(contact, report) => {
                let bytes = size(&report);
                self.ask(nth, Asked::Report(contact), Question::Report(report), bytes);
            }
            Effect::Fetch(contact, asked) => {
                let bytes = size(&asked);
                self.ask(nth, Asked::Fetch(contact), Question::Fetch(asked), bytes);
            }
            Effect::Sync(contact, asked) => {
                self.count("sync");
                let paging = Paging::new(asked, self.plan.page.items);
                self.ask_page(nth, contact, Box::new(paging));
            }
            Effect::PublishLoad(load) => {
                let place = self.cells[nth].place;
                self.mesh.tell(place, MemberInput::PublishLoad(load));
            }
            Effect::Inconceivable(guid, what) => {
                self.count("inconceivable");
                let id = self.cells[nth].id.clone();
                self.tell(|| format!("{id}: {guid} inconceivable: {what}"));
            }
            Effect::Note(guid, what) => {
                let id = self.cells[nth].id.clone();
                self.tell(|| format!("{id}: {guid} {what}"));
            }
            Effect::Evacuated => {
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
        }
    }

    /// The executor may have no time, as its driver says when its queue is full.
    fn is_busy(&mut self, nth: usize) -> bool {
        if self.cells[nth].is_busy {
            self.count("executor busy");
        }
        self.cells[nth].is_busy
    }

    /// A container that lives is ended on the rep's word.
    fn container_ends(&mut self, nth: usize, guid: &ContainerGuid, how: &str) -> bool {
        let Some(agent) = &self.cells[nth].agent else { return false };
        let Some(view) = agent.depot.container(guid) else { return false };
        let evacuates = agent.rep.evacuation().is_some();
        if agent.changed.contains_key(guid) {
            // It has begun to run in this very moment: the rep has decided about what it was before.
            return false;
        }
        if view.container.state == ContainerState::Running
            && let Owner::Lrp { .. } = view.owner
        {
            self.count("live container ended");
            let id = self.cells[nth].id.clone();
            self.checks.live_container_ends(&id, guid);
            self.tell(|| format!("{id}: {how} {guid}, which runs"));
            return !evacuates;
        }
        false
    }

    fn ask(&mut self, nth: usize, asked: Asked, question: Question, bytes: usize) {
        let (place, life) = (self.cells[nth].place, self.cells[nth].life);
        let Some(agent) = &mut self.cells[nth].agent else { return };
        agent.next_ask += 1;
        let ask = agent.next_ask;
        agent.asks.insert(ask, asked);
        let now = self.now();
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

    /// The next page of a sync, if there is one. The rep hears of all of them together.
    fn ask_page(&mut self, nth: usize, contact: u64, paging: Box<Paging>) {
        match paging.next() {
            Some(next) => {
                let bytes = size(&next);
                self.ask(nth, Asked::Sync(contact, paging), Question::Sync(next), bytes);
            }
            None => self.rep_hears(nth, Input::Synced(contact, Ok(paging.into_pages()))),
        }
    }

    pub(super) fn answered(&mut self, nth: usize, ask: u64, reply: Reply) {
        let Some(agent) = &mut self.cells[nth].agent else { return };
        let Some(asked) = agent.asks.remove(&ask) else { return };
        let input = match (asked, reply) {
            (Asked::Report(contact), Reply::Report(reply)) => Input::Reported(contact, Ok(reply)),
            (Asked::Fetch(contact), Reply::Fetch(reply)) => Input::Fetched(contact, Ok(reply)),
            (Asked::Sync(contact, mut paging), Reply::Sync(page)) => {
                if let Err(bad) = paging.answered(page) {
                    return self.checks.fail(format!("a sync of {}: {bad}", self.cells[nth].id));
                }
                if paging.next().is_some() {
                    self.count("further page");
                }
                return self.ask_page(nth, contact, paging);
            }
            (asked, reply) => {
                let what = format!("{} hears {reply:?} to {asked:?}", self.cells[nth].id);
                return self.checks.fail(what);
            }
        };
        self.rep_hears(nth, input);
    }

    pub(super) fn unanswered(&mut self, nth: usize, ask: u64, error: &AskError) {
        let Some(agent) = &mut self.cells[nth].agent else { return };
        if let Some(asked) = agent.asks.remove(&ask) {
            self.not_answered(nth, asked, error);
        }
    }

    fn not_answered(&mut self, nth: usize, asked: Asked, error: &AskError) {
        let why = Unanswered::from(error);
        let input = match asked {
            Asked::Report(contact) => Input::Reported(contact, Err(why)),
            Asked::Fetch(contact) => Input::Fetched(contact, Err(why)),
            Asked::Sync(contact, _) => Input::Synced(contact, Err(why)),
        };
        self.count("question without an answer");
        self.rep_hears(nth, input);
    }

    pub(super) fn ordered(&mut self, nth: usize, letter: LetterId, orders: CellOrders) {
        let unknown = |order: &CellOrder| matches!(order, CellOrder::UpdateInstance(..));
        if self.cells[nth].is_old && orders.orders.iter().any(unknown) {
            // An older release cannot read it, and says so.
            self.count("order not understood");
            return self.refuse_letter(nth, letter);
        }
        let seed = self.random.next();
        let Some(agent) = &mut self.cells[nth].agent else { return };
        agent.next_message += 1;
        let message = agent.next_message;
        agent.letters.insert(message, letter);
        self.rep_hears(nth, Input::Orders(message, orders, seed));
    }
}
