//! The coordinator: the real [`Core`] with the real store on a simulated disk. Does what the program's
//! driver does: gathers what has come, has the core take it, commits, performs what comes out. Only a
//! commit takes time here, and the core hears the mesh meanwhile.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use volvox_coordinator::bbs::command::{
    BoardEffect, CallError, Command, QUEUE, Reply as BoardReply,
};
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::bbs::store::{Store as _, StoreError};
use volvox_coordinator::bbs::view::View;
use volvox_coordinator::callback::logic::Key;
use volvox_coordinator::cells::admission::Admission;
use volvox_coordinator::cells::logic::CellNotice;
use volvox_coordinator::cells::settings::CellsSettings;
use volvox_coordinator::core::{
    Core, CoreInput, CoreOutput, CoreSettings, Dispatch, DispatchId, Notice, Now, ReplyId, Signal,
    Transaction,
};
use volvox_mesh::member::MemberEvent;
use volvox_mesh::request::{AskError, RpcRefusal};
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::cell_rpc::{CellOrdersReply, OrderAnswer, size};
use volvox_protocol::event::Event as BoardEvent;
use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;
use volvox_protocol::request::{CellOrder, CellRequest};
use volvox_protocol::time::Timestamp;

use super::callbacks;
use super::checks::Asked;
use super::desk::{self, Serving};
use super::disk::{Died, Disk, End, VirtualStore};
use super::plan::{Kind, Plan};
use super::world::{CENTER, Event, For, LetterId, Question, World};

/// Commands and reports in one turn.
const BATCH: usize = 1_024;
/// Once in so many times a commit that takes long is there at its beginning, and not at its end.
const EARLY: usize = 4;

/// Who waits for the answer to a command.
#[derive(Debug, Clone)]
pub(super) enum Ticket {
    /// A cell that reports.
    Report(Box<Serving>),
    /// The consumer: the number of its wish.
    Wish(u64),
    /// Nobody waits.
    Nobody,
}

/// The coordinator, or the place where there is none.
pub(super) struct Center {
    pub(super) disk: Rc<RefCell<Disk>>,
    pub(super) life: u32,
    pub(super) alive: Option<Alive>,
    /// Of an older release: it does not know some requests, and writes records in older forms.
    pub(super) is_old: bool,
    /// How far its machine's clock has jumped ahead, and back.
    pub(super) ahead: Duration,
    pub(super) behind: Duration,
    /// How long a commit takes at most.
    pub(super) commit: Duration,
    /// How long the next commit takes, if somebody has decided that.
    pub(super) stuck: Option<Duration>,
    pub(super) random: SplitMix,
}

/// A coordinator at work.
pub(super) struct Alive {
    pub(super) core: Core,
    store: VirtualStore,
    pub(super) view: View,
    pub(super) desk: Admission,
    /// What waits for the core.
    signals: VecDeque<Signal>,
    pub(super) commands: VecDeque<CoreInput>,
    pub(super) reports: VecDeque<CoreInput>,
    /// Who waits for which answer.
    pub(super) waiting: BTreeMap<ReplyId, Ticket>,
    replies: u64,
    commit: Option<Outstanding>,
    /// Messages to cells that are under way.
    letters: BTreeSet<DispatchId>,
    /// Consumers that are being called, and where.
    pub(super) calls: BTreeMap<Key, String>,
    /// The most of them.
    pub(super) at_once: usize,
    turn_at: Timestamp,
    synced: bool,
    /// Nobody knows what became of the last commit.
    is_lost: bool,
    /// Which cells the mesh has said to be there, and when it last spoke of each.
    pub(super) told: BTreeMap<CellId, (bool, Timestamp)>,
}

/// A commit that is under way.
struct Outstanding {
    transaction: Transaction,
    asked: Asked,
    /// What came of it, if it is there already.
    saved: Option<Result<(), StoreError>>,
    /// Nobody waits for so long.
    is_late: bool,
}

impl Alive {
    /// Whether something waits to be taken, and for a commit.
    pub(super) fn is_busy(&self) -> bool {
        !self.signals.is_empty() || !self.reports.is_empty() || self.core.has_pending()
    }

    /// Since when a commit is outstanding and may not follow the cells, if there is one.
    pub(super) fn is_committing(&self) -> bool {
        self.commit.is_some()
    }
}

impl Center {
    pub(super) fn new(plan: &Plan) -> Center {
        Center {
            disk: Rc::new(RefCell::new(Disk::new(plan))),
            life: 0,
            alive: None,
            is_old: plan.kinds.contains(&Kind::Skew) && plan.seed.is_multiple_of(2),
            ahead: Duration::ZERO,
            behind: Duration::ZERO,
            commit: Duration::from_millis(2),
            stuck: None,
            random: SplitMix(plan.seed ^ 0x6365_6e74),
        }
    }

    /// What its clocks say.
    pub(super) fn clocks(&self, now: Timestamp) -> Now {
        Now { ran: now, machine: now + self.ahead - self.behind }
    }
}

impl World {
    pub(super) fn start_center(&mut self) {
        if self.center.alive.is_some() {
            return;
        }
        let now = self.now();
        let clocks = self.center.clocks(now);
        let failed = self.center.disk.borrow().failed();
        let opened = VirtualStore::open(&self.center.disk);
        let loaded = opened.and_then(|mut store| {
            let (board, _) = store.load(BoardSettings::default(), clocks.machine)?;
            Ok((board, store))
        });
        self.look_at_disk();
        let (board, store) = match loaded {
            Ok(loaded) => loaded,
            // It ends, and is started again.
            Err(error) if self.center.disk.borrow().failed() > failed => {
                self.count("coordinator did not start");
                let why = self.center.disk.borrow().nameless(&error);
                self.tell(|| format!("the coordinator does not start: {why}"));
                self.center.disk.borrow_mut().orphan(End::Killed);
                return self.restart_center_later();
            }
            Err(error) => {
                return self.checks.fail(format!("the board cannot be read back: {error}"));
            }
        };
        self.checks.board_came_back(board.records());
        let callbacks = callbacks::settings(&mut self.center.random);
        let at_once = callbacks.at_once;
        let core = Core::new(clocks, CoreSettings { callbacks, ..CoreSettings::default() }, board);
        self.center.life += 1;
        self.checks.list_anew(&core.view().snapshot());
        self.center.alive = Some(Alive {
            store,
            view: core.view().clone(),
            core,
            desk: desk::new(),
            // As the program does when it has joined the mesh.
            signals: VecDeque::from([Signal::Members(Vec::new())]),
            commands: VecDeque::new(),
            reports: VecDeque::new(),
            waiting: BTreeMap::new(),
            replies: 0,
            commit: None,
            letters: BTreeSet::new(),
            calls: BTreeMap::new(),
            at_once,
            turn_at: Timestamp::NEVER,
            synced: false,
            is_lost: false,
            told: BTreeMap::new(),
        });
        let known = self.mesh.places();
        let seeds: Vec<usize> = if known <= 1 {
            Vec::new()
        } else {
            (0..3).map(|_| 1 + self.random.below(known - 1)).collect()
        };
        self.mesh.start(CENTER, World::profile(), &seeds);
        self.plan_turn(now);
    }

    pub(super) fn kill_center(&mut self, end: End) {
        if let Some(alive) = self.center.alive.take() {
            self.checks.board_goes(&alive.view.snapshot());
            let mut disk = self.center.disk.borrow_mut();
            // Before what it had open is closed: it closes nothing any more.
            disk.orphan(end);
            let is_untold = alive.commit.as_ref().is_some_and(|it| it.saved.is_some());
            if disk.is_in_doubt() || is_untold || alive.is_lost {
                self.checks.commit_in_doubt();
            }
            drop(disk);
            self.center.life += 1;
            self.mesh.kill(CENTER);
            self.consumer.unanswered();
        }
    }

    pub(super) fn happens_to_center(&mut self, event: Event) {
        match event {
            Event::CenterStarts => self.start_center(),
            Event::Turn => self.turn(),
            Event::CommitEnds => self.commit_ends(),
            Event::Asked(nth, life, ask, question) if self.center.is_old && is_new(&question) => {
                self.count("report not understood");
                let refusal = RpcRefusal::Malformed("a request that is not known".to_owned());
                self.refuse((nth, life, ask), AskError::Refused(refusal));
            }
            Event::Asked(nth, life, ask, question) => self.serve((nth, life, ask), question),
            Event::OrdersAnswered(letter, CellOrdersReply { answers }) => {
                self.delivered(letter, Ok(answers));
            }
            Event::LetterRefused(letter) => {
                let refusal =
                    RpcRefusal::Malformed("an order of a kind that is not known".to_owned());
                self.delivered(letter, Err(AskError::Refused(refusal)));
            }
            Event::LetterOver(letter) => self.delivered(letter, Err(AskError::Deadline)),
            Event::CalledBack(task, told) => {
                if let Some(alive) = &mut self.center.alive {
                    alive.calls.remove(&task);
                }
                self.signal(Signal::Called(task, told));
            }
            _ => {}
        }
    }

    pub(super) fn center_hears(&mut self, event: MemberEvent) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        let said = match &event {
            MemberEvent::Present { identity, .. } => Some((identity, true)),
            MemberEvent::Missing { identity, .. } => Some((identity, false)),
            _ => None,
        };
        if let Some((identity, is_there)) = said {
            let is_followed = alive.commit.is_some();
            alive.told.insert(identity.name.clone(), (is_there, now));
            if is_followed {
                self.count("cell came or went during a commit");
            }
        }
        self.signal(Signal::Member(event));
    }

    /// Something for the core to take as soon as it can.
    fn signal(&mut self, signal: Signal) {
        let soon = self.now() + self.moment();
        let Some(alive) = &mut self.center.alive else { return };
        alive.signals.push_back(signal);
        self.plan_turn(soon);
    }

    /// A command that is to be decided; false: too many wait.
    pub(super) fn submit(&mut self, command: Command, ticket: Ticket) -> bool {
        let soon = self.now() + self.moment();
        let Some(alive) = &mut self.center.alive else { return false };
        if alive.commands.len() >= QUEUE {
            return false;
        }
        let reply = alive.new_reply(ticket);
        alive.commands.push_back(CoreInput::Command { reply, command, trace: None });
        self.plan_turn(soon);
        true
    }

    /// The core takes what waits, at this time at the latest.
    pub(super) fn plan_turn(&mut self, at: Timestamp) {
        let to = For::Center(self.center.life);
        let Some(alive) = &mut self.center.alive else { return };
        if at < alive.turn_at {
            alive.turn_at = at;
            self.plan(at, to, Event::Turn);
        }
    }

    fn plan_next_turn(&mut self) {
        let clocks = self.center.clocks(self.now());
        let Some(alive) = &mut self.center.alive else { return };
        let waits = alive.commit.is_none()
            && !(alive.commands.is_empty() && alive.reports.is_empty())
            || !alive.signals.is_empty();
        let next = if waits { clocks.ran } else { alive.core.next_wake(clocks) };
        self.plan_turn(next.max(clocks.ran + Duration::from_micros(50)));
    }

    /// As the program's driver: what was heard, then one transaction.
    fn turn(&mut self) {
        let clocks = self.center.clocks(self.now());
        let Some(alive) = &mut self.center.alive else { return };
        if alive.turn_at > clocks.ran {
            return;
        }
        alive.turn_at = Timestamp::NEVER;
        if !alive.synced && self.mesh.member(CENTER).is_synced() {
            alive.synced = true;
            alive.signals.push_back(Signal::MeshSynced);
        }
        let signals = std::mem::take(&mut alive.signals);
        let outputs = alive.core.hear(clocks, signals);
        self.follow_all(outputs);
        if self.center.alive.as_ref().is_some_and(|alive| alive.commit.is_none()) {
            self.reload();
            self.step();
        }
        self.plan_next_turn();
    }

    /// Opens the database again, if it has to be.
    fn reload(&mut self) {
        let clocks = self.center.clocks(self.now());
        let Some(alive) = &mut self.center.alive else { return };
        let is_usable = alive.store.is_usable() && !alive.is_lost;
        if is_usable || !alive.core.is_reload_due(clocks) {
            return;
        }
        let (settings, at) = (alive.core.board().settings().clone(), alive.core.board_time(clocks));
        let loaded = alive.store.reopen().and_then(|()| alive.store.load(settings, at));
        let outputs = match loaded {
            Ok((board, _)) => {
                alive.is_lost = false;
                alive.core.reloaded(clocks, board)
            }
            Err(error) => {
                alive.core.reload_failed(clocks, &error);
                Vec::new()
            }
        };
        self.look_at_disk();
        let died = self.center.disk.borrow().died();
        if let Some(died) = died {
            return self.dies_in_commit(died, Vec::new());
        }
        self.follow_all(outputs);
    }

    fn step(&mut self) {
        let clocks = self.center.clocks(self.now());
        let Center { alive: Some(alive), random, stuck, commit, .. } = &mut self.center else {
            return;
        };
        let take = |queue: &mut VecDeque<CoreInput>| -> Vec<CoreInput> {
            let count = queue.len().min(BATCH / 2);
            queue.drain(..count).collect()
        };
        let (commands, reports) = (take(&mut alive.commands), take(&mut alive.reports));
        let mut inputs: VecDeque<CoreInput> = commands.into_iter().chain(reports).collect();
        let mut asked = Asked::default();
        for input in &inputs {
            match input {
                CoreInput::Command { command, .. } => asked.note(command),
                CoreInput::Report { requests, .. } => {
                    requests.iter().for_each(|request| asked.note_request(request));
                }
            }
        }
        let transaction = alive.core.step(clocks, random, &mut inputs);
        // What was too much for one transaction is first in the next.
        for input in inputs.into_iter().rev() {
            match input {
                CoreInput::Command { .. } => alive.commands.push_front(input),
                CoreInput::Report { .. } => alive.reports.push_front(input),
            }
        }
        self.checks.writes(transaction.at(), &asked);
        let writes = transaction.changes().iter().any(|change| change.is_kept());
        let stuck = if writes { stuck.take() } else { None };
        let most = u64::try_from(commit.as_micros()).unwrap_or(1).max(1);
        let takes = match (writes, stuck) {
            (_, Some(takes)) => takes,
            (true, None) => Duration::from_micros(100 + random.next() % most),
            (false, None) => Duration::ZERO,
        };
        let ends = (clocks.ran + takes).min(transaction.deadline());
        let is_late = clocks.ran + takes > transaction.deadline();
        let is_early = stuck.is_some() && random.once_in(EARLY);
        let saved = is_early.then(|| alive.store.commit(transaction.changes()));
        alive.commit = Some(Outstanding { transaction, asked, saved, is_late });
        if stuck.is_some() {
            self.count(Kind::StuckCommit.name());
            self.tell(|| format!("a commit takes {} s", takes.as_secs()));
        }
        if is_early {
            self.look_at_disk();
            let died = self.center.disk.borrow().died();
            if let Some(died) = died {
                return self.dies_in_commit(died, Vec::new());
            }
        }
        if takes.is_zero() {
            return self.commit_ends();
        }
        self.plan(ends, For::Center(self.center.life), Event::CommitEnds);
    }

    fn commit_ends(&mut self) {
        let clocks = self.center.clocks(self.now());
        let Center { alive: Some(alive), random, .. } = &mut self.center else { return };
        let Some(Outstanding { transaction, asked, saved, is_late }) = alive.commit.take() else {
            return;
        };
        // Of one for which nobody waits any longer, nobody knows whether it is there.
        let save = || match saved.is_some() || !is_late || random.once_in(2) {
            true => saved.unwrap_or_else(|| alive.store.commit(transaction.changes())),
            false => Ok(()),
        };
        let saved = match (save(), is_late) {
            (saved, false) => saved,
            (_, true) => {
                alive.is_lost = true;
                Err(StoreError::Doubtful { reason: "no answer in time".to_owned() })
            }
        };
        if saved.is_ok() {
            for effect in transaction.effects() {
                if let BoardEffect::StopInstance(_, instance) = effect {
                    self.checks.is_to_stop(instance);
                }
            }
        }
        let at = transaction.at();
        let outputs = alive.core.committed(clocks, transaction, saved);
        if is_late {
            self.count("commit without an answer");
        }
        self.look_at_disk();
        let died = self.center.disk.borrow().died();
        let mut told = outputs.iter().filter_map(|output| match output {
            CoreOutput::Events { events, .. } => Some(&events[..]),
            _ => None,
        });
        if let Some(events) = told.next().filter(|_| self.plan.checks) {
            self.checks.commit(at, &asked, events);
        }
        if let Some(died) = died {
            return self.dies_in_commit(died, outputs);
        }
        self.follow_all(outputs);
        self.plan_next_turn();
    }

    /// What was committed is there, and some were told.
    fn dies_in_commit(&mut self, died: Died, mut outputs: Vec<CoreOutput>) {
        self.count("coordinator died in a commit");
        self.tell(|| format!("the coordinator dies: {died:?}"));
        if died == Died::After && !self.center.random.once_in(3) {
            outputs.truncate(self.center.random.below(outputs.len() + 1));
            self.follow_all(outputs);
        }
        self.kill_center(End::Killed);
        self.restart_center_later();
    }

    fn follow_all(&mut self, outputs: Vec<CoreOutput>) {
        outputs.into_iter().for_each(|output| self.follow(output));
    }

    fn follow(&mut self, output: CoreOutput) {
        match output {
            CoreOutput::Reply(reply, result) => {
                if let Some(ticket) =
                    self.center.alive.as_mut().and_then(|it| it.waiting.remove(&reply))
                {
                    self.board_answers(ticket, result);
                }
            }
            CoreOutput::Answers(reply, answers) => {
                if let Some(Ticket::Report(serving)) =
                    self.center.alive.as_mut().and_then(|it| it.waiting.remove(&reply))
                {
                    self.report_answered(*serving, answers);
                }
            }
            CoreOutput::Send(dispatch) => self.send(dispatch),
            CoreOutput::Events { events, .. } => self.tell_events(&events),
            CoreOutput::Resync { .. } => {
                if let Some(alive) = &self.center.alive {
                    self.checks.list_anew(&alive.view.snapshot());
                }
            }
            CoreOutput::Call(task) => self.call(&task),
            CoreOutput::Notice(notice) => self.notice(notice),
            CoreOutput::Explained(..) | CoreOutput::PublishCell(..) => {}
        }
    }

    fn notice(&mut self, notice: Notice) {
        match &notice {
            Notice::Cell(CellNotice::Held(..)) => self.count("loss held"),
            Notice::Cell(CellNotice::Differs(_)) => self.count("cell and board differ"),
            Notice::Unplaced(_) => self.count("not placed"),
            Notice::CallbackFailed(failure) => {
                self.count("callback failed");
                if failure.given_up {
                    self.count("callback given up");
                }
            }
            Notice::CallbackNotOurs(..) => self.count("callback not ours"),
            Notice::CallbackNotDeleted(..) => self.count("told and not deleted"),
            _ => {}
        }
        self.tell(|| format!("coordinator: {notice:?}"));
    }

    fn board_answers(&mut self, ticket: Ticket, result: Result<BoardReply, CallError>) {
        if let Ticket::Wish(wish) = ticket {
            self.wish_answered(wish, result);
        }
    }

    /// What the store read back must be what it was given.
    fn look_at_disk(&mut self) {
        let story = self.center.disk.borrow_mut().take_story();
        for line in story {
            self.tell(|| format!("coordinator's disk: {line}"));
        }
        let broken = self.center.disk.borrow_mut().take_broken();
        if let Some(what) = broken {
            self.checks.fail(what);
        }
    }

    fn tell_events(&mut self, events: &[BoardEvent]) {
        if !self.plan.tells {
            return;
        }
        for event in events {
            let line = match event {
                BoardEvent::InstanceChanged(before, after)
                    if (before.state.name(), before.presence, before.stopping)
                        != (after.state.name(), after.presence, after.stopping) =>
                {
                    format!("board: {} was {}", on_board(after), before.state.name())
                }
                BoardEvent::InstanceRemoved(lrp) => format!("board: {} is removed", on_board(lrp)),
                BoardEvent::Crashed(crash) => {
                    let (key, why) = (&crash.key, &crash.crash_reason);
                    format!("board: {}/{} crashed: {why}", key.process_guid, key.index)
                }
                _ => continue,
            };
            self.tell(|| line.chars().take(220).collect());
        }
    }

    pub(super) fn restart_center_later(&mut self) {
        let after = Duration::from_millis(200 + self.center.random.next() % 15_000);
        let (at, to) = (self.now() + after, For::Center(self.center.life));
        self.plan(at, to, Event::CenterStarts);
    }

    fn send(&mut self, Dispatch { id, cell, to, orders }: Dispatch) {
        if self.plan.tells {
            let what: Vec<String> = orders.orders.iter().map(order_name).collect();
            self.tell(|| format!("order to {cell}: {}", what.join(", ")));
        }
        let now = self.now();
        let Some(place) = self.mesh.place_of(to) else { return };
        let nth = place - 1;
        let Some(alive) = &mut self.center.alive else { return };
        alive.letters.insert(id);
        if !self.mesh.is_linked(CENTER, place) {
            return self.delivered(id, Err(AskError::NoLink));
        }
        let (cell, life) = (self.cells[nth].life, self.center.life);
        if let Some(delay) = self.mesh.carry(CENTER, place, size(&orders)) {
            let orders = self.by_wire(orders);
            self.plan(now + delay, For::Cell(nth, cell), Event::Ordered((life, id), orders));
        }
        let over = now + CellsSettings::default().answer_within;
        self.plan(over, For::Center(life), Event::LetterOver(id));
    }

    /// A cell says that it cannot read a message.
    pub(super) fn refuse_letter(&mut self, nth: usize, (life, id): LetterId) {
        if let Some(delay) = self.mesh.carry(self.cells[nth].place, CENTER, 16) {
            let at = self.now() + delay;
            self.plan(at, For::Center(life), Event::LetterRefused(id));
        }
    }

    /// What became of a message, the first time that something is heard of it.
    fn delivered(&mut self, id: DispatchId, answers: Result<Vec<OrderAnswer>, AskError>) {
        let Some(alive) = &mut self.center.alive else { return };
        if !alive.letters.remove(&id) {
            return;
        }
        if answers.is_err() {
            self.count("order lost");
        }
        self.signal(Signal::Delivered(id, answers));
    }
}

impl Alive {
    /// A number for somebody who waits.
    pub(super) fn new_reply(&mut self, ticket: Ticket) -> ReplyId {
        self.replies += 1;
        let reply = ReplyId(self.replies);
        if !matches!(ticket, Ticket::Nobody) {
            self.waiting.insert(reply, ticket);
        }
        reply
    }
}

/// Whether an older release cannot read it. Then it cannot read what stands beside it either.
fn is_new(question: &Question) -> bool {
    let is_new = |request: &CellRequest| {
        matches!(request, CellRequest::RemoveEvacuating(..) | CellRequest::RejectTask(..))
    };
    matches!(question, Question::Report(report) if report.requests.iter().any(is_new))
}

/// An instance as the story tells it.
fn on_board(lrp: &ActualLrp) -> String {
    let (process, index, state) = (&lrp.process_guid, lrp.index, lrp.state.name());
    let (definition, presence) = (&lrp.definition_id, lrp.presence);
    let stops = if lrp.stopping { ", to stop" } else { "" };
    let held = lrp
        .instance()
        .map_or(String::new(), |it| format!(" {} on {}", it.instance_guid, it.cell_id));
    format!("{process}/{index} of {definition} is {state} {presence:?}{held}{stops}")
}

fn order_name(order: &CellOrder) -> String {
    match order {
        CellOrder::Work(batch) => {
            let lrps = batch.lrps.iter().map(|it| format!("{} {:?}", it.process_guid, it.indices));
            let tasks = batch.tasks.iter().map(|it| it.task_guid.to_string());
            let all: Vec<String> = lrps.chain(tasks).collect();
            format!("run {}", all.join(" and "))
        }
        CellOrder::StopInstance(key, instance) => {
            format!("stop {}/{} {}", key.process_guid, key.index, instance.instance_guid)
        }
        CellOrder::UpdateInstance(key, _) => format!("update {}/{}", key.process_guid, key.index),
        CellOrder::CancelTask(task) => format!("cancel {task}"),
        CellOrder::Sync => "sync".to_owned(),
        CellOrder::Evacuate => "evacuate".to_owned(),
    }
}
