//! The coordinator: everything that decides, in one value. It owns no clock, socket, thread or file.
//!
//! A turn has two halves. [`Core::step`] has the board decide and gives a [`Transaction`]; when that is on
//! the disk, or could not be saved, [`Core::committed`] lets follow what follows: readers see it, events,
//! orders and answers leave. So nothing leaves before its commit. While one is outstanding only signals
//! are taken ([`Core::hear`]): who is there, what became of an order, what became of a callback. They
//! change no record, so cells are followed and orders sent however slow the disk is.
//!
//! | file | what it holds |
//! |---|---|
//! | [`message`] | what goes in and what comes out |
//! | [`transaction`] | what one step wants on the disk, and what follows |
//! | [`schedule`] | when the board is looked at without being asked |
//!
//! The program's loop ([`driver`](crate::driver)) and the simulator drive this same value.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

pub mod message;
pub mod schedule;
#[cfg(test)]
mod tests;
pub mod transaction;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};
use volvox_mesh::identity::MemberKind;
use volvox_mesh::member::MemberEvent;
use volvox_mesh::record::Content;
use volvox_mesh::request::AskError;
use volvox_protocol::cell::CellPresence;
use volvox_protocol::cell_rpc::{CellAnswer, OrderAnswer};
use volvox_protocol::id::CellId;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::random::SplitMix;
use volvox_protocol::request::{CellOrder, CellRequest, Rejection};
use volvox_protocol::time::Timestamp;
use volvox_protocol::validate::Valid;

pub use self::message::{
    CoreInput, CoreOutput, Dispatch, DispatchId, Notice, Now, ReplyId, Signal,
};
pub use self::schedule::Converge;
use self::schedule::{FIRST_PAUSE, Schedule};
use self::transaction::Answer;
pub use self::transaction::{Traces, Transaction};
use crate::auction::rounds::{Auction, AuctionInput, Unplaced};
use crate::auction::settings::AuctionSettings;
use crate::bbs::clock::Steady;
use crate::bbs::command::{BoardEffect, CallError, Change, Command, Reply};
use crate::bbs::logic::Board;
use crate::bbs::store::StoreError;
use crate::bbs::view::View;
use crate::callback::logic::{BoardCall, CallbackOutput, CallbackSettings, Callbacks, Key};
use crate::cells::admission;
use crate::cells::logic::{CellStatus, CellTable, Told};
use crate::cells::loss::HoldStatus;
use crate::cells::order_queues::{OrderMessage, OrderQueues, Undelivered};
use crate::cells::settings::CellsSettings;

/// How long a commit may be outstanding. After that nobody knows what became of it.
pub const COMMIT_WITHIN: Duration = Duration::from_secs(15);
/// How often digests are compared and pauses are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LEAST_LOOK: Duration = Duration::from_millis(10);
/// The longest sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What an operator may choose, beside the board's own settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreSettings {
    /// Who makes convergence run.
    pub converge: Converge,
    /// Of cells.
    pub cells: CellsSettings,
    /// Of the auction.
    pub auction: AuctionSettings,
    /// Of callbacks.
    pub callbacks: CallbackSettings,
}

/// The coordinator.
#[derive(Debug)]
pub struct Core {
    clock: Steady,
    board: Board,
    /// What readers read. Changes when a commit has succeeded, and then only.
    view: View,
    schedule: Schedule,
    floor: CellTable,
    orders: OrderQueues,
    /// Messages to cells that are under way.
    under_way: BTreeMap<DispatchId, OrderMessage>,
    dispatched: u64,
    auction: Auction,
    /// Whether the mesh has said anything. Before that no cell is there because nobody could say so, and
    /// no round is held.
    has_mesh: bool,
    callbacks: Callbacks,
    pending: Pending,
    look_every: Duration,
    /// When digests are compared next.
    look_at: Timestamp,
    commit: Commit,
    /// Why the database cannot be used, until it was read again.
    detached: Option<Arc<StoreError>>,
    /// When the next try is to read it again.
    reload_at: Timestamp,
    out: Vec<CoreOutput>,
}

/// Whether the board is ahead of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commit {
    None,
    Outstanding,
}

/// What the coordinator itself wants of the board in its next step.
#[derive(Debug, Default)]
struct Pending {
    /// What the mesh said: of each cell only the last word counts, so there are no more than cells.
    presence: BTreeMap<CellId, CellPresence>,
    /// After all of those: that were all cells.
    settled: bool,
    /// About tasks whose consumers are being told. No more than there are callbacks.
    callbacks: VecDeque<(Key, BoardCall)>,
    /// What found no cell. The auction holds no further round before it was told.
    unplaced: VecDeque<Unplaced>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.presence.is_empty()
            && !self.settled
            && self.callbacks.is_empty()
            && self.unplaced.is_empty()
    }

    fn next(&mut self) -> Option<(Option<Key>, Command)> {
        if let Some((cell, presence)) = self.presence.pop_first() {
            return Some((None, Command::CellPresence(cell, presence)));
        }
        if std::mem::take(&mut self.settled) {
            return Some((None, Command::CellsSettled));
        }
        if let Some((key, question)) = self.callbacks.pop_front() {
            return Some((Some(key.clone()), question.about(key)));
        }
        let command = match self.unplaced.pop_front()? {
            Unplaced::Lrp(key, why) => Command::FailLrp(key, (&*why).into()),
            Unplaced::Task(guid, why) => Command::RejectTask(guid, (&*why).into()),
        };
        Some((None, command))
    }
}

impl Core {
    /// A coordinator that has heard of no cell, with a board that was read from its store.
    pub fn new(now: Now, settings: CoreSettings, board: Board) -> Core {
        let look_every = LOOK_EVERY.min(settings.cells.mismatch_lasts / 4).max(LEAST_LOOK);
        // Microseconds: no coordinator before us has sent more than one batch in each.
        let last = now.machine.as_nanos() / 1_000;
        Core {
            clock: Steady::new(now.ran, now.machine),
            view: View::new(board.records().clone()),
            board,
            schedule: Schedule::new(settings.converge),
            floor: CellTable::new(now.ran, &settings.cells),
            orders: OrderQueues::default(),
            under_way: BTreeMap::new(),
            dispatched: 0,
            auction: Auction::new(settings.auction).counting_from(last),
            has_mesh: false,
            callbacks: Callbacks::new(settings.callbacks),
            pending: Pending::default(),
            look_every,
            look_at: now.ran + look_every,
            commit: Commit::None,
            detached: None,
            reload_at: Timestamp::ZERO,
            out: Vec::new(),
        }
    }

    /// The board, to look at. While a commit is outstanding it is ahead of the disk.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// What readers read.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What the board's clock would say.
    pub fn board_time(&self, now: Now) -> Timestamp {
        self.clock.peek(now.ran, now.machine)
    }

    /// A cell that is there and has said what it is.
    pub fn cell(&self, cell: &CellId) -> Option<CellStatus> {
        self.floor.cell(cell)
    }

    /// Whether the mesh has said that a cell is there, and has not said since then that it is missing.
    pub fn is_there(&self, cell: &CellId) -> bool {
        self.floor.is_there(cell)
    }

    /// Whether all cells that are there have been heard.
    pub fn is_settled(&self) -> bool {
        self.floor.is_settled()
    }

    /// Whether the loss of many cells is held back now, of how many and until when.
    pub fn holding(&self) -> Option<HoldStatus> {
        self.floor.holding()
    }

    /// Orders that wait to be sent. Looks at every cell.
    pub fn orders_waiting(&self) -> usize {
        self.orders.waiting()
    }

    /// Whether no order waits, and none is under way.
    pub fn orders_are_idle(&self) -> bool {
        self.under_way.is_empty() && self.orders.is_all_idle()
    }

    /// Pieces of work that wait for a cell.
    pub fn work_waiting(&self) -> usize {
        self.auction.waiting()
    }

    /// The callbacks, to look at.
    pub fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// Whether a transaction was given and has not come back.
    pub fn is_committing(&self) -> bool {
        self.commit == Commit::Outstanding
    }

    /// Whether the next step has something of its own to have decided.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// When to call [`Core::hear`] and [`Core::step`] though nothing has come, by [`Now::ran`].
    pub fn next_wake(&mut self, now: Now) -> Timestamp {
        let mut wake = now.ran + LONGEST_SLEEP;
        let mut at = |time: Timestamp| wake = wake.min(time);
        at(self.floor.wake_at().unwrap_or(Timestamp::NEVER));
        at(self.callbacks.next_wake());
        let may_hold_round = self.may_hold_round();
        if may_hold_round && self.auction.is_due(now.ran) {
            at(now.ran);
        }
        at(self.auction.wake_at().filter(|_| may_hold_round).unwrap_or(Timestamp::NEVER));
        if self.commit == Commit::None {
            let board = self.clock.peek(now.ran, now.machine);
            at(now.ran + self.schedule.patience(board, self.board.next_deadline()));
            at(self.look_at);
            if !self.pending.is_empty() {
                at(now.ran);
            }
            if self.detached.is_some() {
                at(self.reload_at);
            }
        }
        wake
    }

    /// Takes what is heard, and does what has become due. Always possible, also while a commit is
    /// outstanding.
    pub fn hear(&mut self, now: Now, signals: impl IntoIterator<Item = Signal>) -> Vec<CoreOutput> {
        for signal in signals {
            self.take_signal(now, signal);
            self.follow_floor(now);
        }
        if self.floor.wake_at().is_some_and(|at| at <= now.ran) {
            let records = self.view.snapshot();
            self.floor.pass(now.ran, &records);
            self.follow_floor(now);
        }
        if self.callbacks.next_wake() <= now.ran {
            let effects = self.callbacks.wake(now.ran);
            self.follow_callbacks(effects);
        }
        self.hold_round(now);
        std::mem::take(&mut self.out)
    }

    fn take_signal(&mut self, now: Now, signal: Signal) {
        match signal {
            Signal::Member(event) => {
                self.has_mesh = true;
                self.member(now, event);
            }
            Signal::Members(all) => {
                self.has_mesh = true;
                self.floor.listed(now.ran, all);
            }
            Signal::Known(names) => self.floor.forget_others(&names.iter().collect()),
            Signal::MeshSynced => {
                self.has_mesh = true;
                self.floor.synced(now.ran);
            }
            Signal::ReleaseHold => self.floor.release(now.ran),
            Signal::Delivered(id, answers) => self.delivered(now, id, answers),
            Signal::Called(key, told) => {
                let effects = self.callbacks.called(now.ran, now.machine, &key, told);
                self.follow_callbacks(effects);
            }
            Signal::Explain(reply, subject) => {
                self.out.push(CoreOutput::Explained(reply, self.auction.explain(&subject)));
            }
        }
    }

    fn member(&mut self, now: Now, event: MemberEvent) {
        match event {
            MemberEvent::Present { identity, generation, address } => {
                if identity.kind == MemberKind::Cell {
                    self.floor.cell_present(now.ran, &identity, Some(generation), address);
                }
            }
            MemberEvent::Missing { identity, left } => {
                if identity.kind == MemberKind::Cell {
                    self.floor.cell_missing(now.ran, &identity, left);
                }
            }
            MemberEvent::Published(record) => match &record.content {
                Content::Info(info) => self.floor.on_info(Arc::new(info.clone())),
                Content::Load(load) => self.floor.on_load(load.clone()),
                Content::Certificate | Content::Alive(_) | Content::Revocations(_) => {}
            },
            MemberEvent::Revoked(_)
            | MemberEvent::TooManyRevoked { .. }
            | MemberEvent::Expelled
            | MemberEvent::Moved(_) => {}
        }
    }

    /// Has the board decide: its own work first, then what the parts of the coordinator want of it, then
    /// as many of the inputs as a transaction takes. Nothing has left yet.
    pub fn step(
        &mut self,
        now: Now,
        random: &mut SplitMix,
        inputs: &mut VecDeque<CoreInput>,
    ) -> Transaction {
        debug_assert_eq!(self.commit, Commit::None, "one commit after the other");
        self.commit = Commit::Outstanding;
        let at = self.clock.now(now.ran, now.machine);
        let mut done = Transaction::new(at, now.ran + COMMIT_WITHIN);
        let own = match self.detached {
            Some(_) => None,
            None => self.schedule.due(at, self.board.next_deadline()),
        };
        if let Some(command) = own {
            done.is_full_pass = matches!(command, Command::ConvergeAll);
            let _nobody_asked = self.apply(random, command, &mut done);
        }
        while done.has_room()
            && let Some((key, command)) = self.pending.next()
        {
            let result = self.apply(random, command, &mut done);
            if let Some(key) = key {
                let result = result.map(drop).map_err(|error| error.to_string());
                done.answers.push(Answer::Callback(key, result));
            }
        }
        while done.has_room()
            && let Some(input) = inputs.pop_front()
        {
            let answer = self.take_input(now, random, input, &mut done);
            done.answers.push(answer);
        }
        if self.detached.is_some() {
            self.board.roll_back(at, std::mem::take(&mut done.changes).into_iter());
        }
        done
    }

    fn take_input(
        &mut self,
        now: Now,
        random: &mut SplitMix,
        input: CoreInput,
        done: &mut Transaction,
    ) -> Answer {
        match input {
            CoreInput::Command { reply, command, trace } => {
                let begin = done.events.len();
                let result = self.apply(random, command, done);
                if let Some(trace) = trace
                    && begin < done.events.len()
                {
                    done.traces.push((begin..done.events.len(), trace));
                }
                Answer::Command(reply, result)
            }
            CoreInput::Report { reply, requests, deadline } => {
                let late = now.ran > deadline;
                let mut answers = Vec::with_capacity(requests.len());
                for request in requests {
                    let passes = mutated(Bug::RequestsOvertake) && !answers.is_empty();
                    answers.push(match late && !passes {
                        true => admission::PUT_OFF,
                        false => self.request(random, request, done),
                    });
                }
                Answer::Report(reply, answers)
            }
        }
    }

    fn request(
        &mut self,
        random: &mut SplitMix,
        request: CellRequest,
        done: &mut Transaction,
    ) -> CellAnswer {
        match Valid::new(request) {
            Ok(request) => admission::answer(self.apply(random, Command::Cell(request), done)),
            Err(invalid) => CellAnswer::Rejected(Rejection::Invalid(invalid.to_string())),
        }
    }

    /// Has the board decide one command. While the database cannot be used it decides nothing: what it
    /// knows may be older than what is on the disk. What was said of the mesh stands all the same: it is
    /// so, and nobody will say it again.
    fn apply(
        &mut self,
        random: &mut SplitMix,
        command: Command,
        done: &mut Transaction,
    ) -> Result<Reply, CallError> {
        let seed = random.next();
        if let Some(error) = &self.detached {
            let is_heard = matches!(command, Command::CellPresence(..) | Command::CellsSettled)
                && !mutated(Bug::NewsIsRefused);
            if is_heard && let Ok(outcome) = self.board.apply(done.at, seed, command) {
                done.changes.extend(outcome.changes);
            }
            return Err(CallError::Store(Arc::clone(error)));
        }
        let outcome = self.board.apply(done.at, seed, command)?;
        done.changes.extend(outcome.changes);
        done.events.extend(outcome.events);
        done.effects.extend(outcome.effects);
        if let Reply::Converged(found) = &outcome.reply
            && found.healed > 0
        {
            warn!(healed = found.healed, "the agenda did not agree with the records");
        }
        Ok(outcome.reply)
    }

    /// The transaction is on the disk, or could not be saved. Then nothing of it has happened: the board
    /// steps back, but for what the mesh said, and whoever asked is told.
    pub fn committed(
        &mut self,
        now: Now,
        done: Transaction,
        saved: Result<(), StoreError>,
    ) -> Vec<CoreOutput> {
        self.commit = Commit::None;
        let at = self.clock.now(now.ran, now.machine);
        let Transaction { changes, events, traces, effects, mut answers, is_full_pass, .. } = done;
        match saved {
            Ok(()) => {
                // Where nothing was written the disk was not asked.
                if changes.iter().any(Change::is_kept) {
                    self.schedule.saved();
                }
                if !changes.is_empty() || !events.is_empty() {
                    let commit = self.view.publish(&changes);
                    self.out.push(CoreOutput::Events { commit, events, traces });
                }
                self.carry_out(now, effects);
            }
            Err(error) => {
                self.schedule.failed(at, &error);
                if !mutated(Bug::NotTakenBack) {
                    self.board.roll_back(at, changes.into_iter());
                }
                let error = Arc::new(error);
                answers = answers.into_iter().map(|answer| answer.not_saved(&error)).collect();
            }
        }
        if is_full_pass {
            self.schedule.passed(at);
        }
        for answer in answers {
            match answer.output() {
                Ok(output) => self.out.push(output),
                Err((key, result)) => {
                    let effects = self.callbacks.answered(&key, result);
                    self.follow_callbacks(effects);
                }
            }
        }
        self.look(now);
        std::mem::take(&mut self.out)
    }

    /// Whether a try is due to open the database again and to read it back.
    pub fn is_reload_due(&self, now: Now) -> bool {
        self.reload_at <= now.ran
    }

    /// It could not be read back: until it is, the board decides nothing. It is much work, so it is not
    /// tried again at once.
    pub fn reload_failed(&mut self, now: Now, error: &StoreError) {
        let at = self.clock.now(now.ran, now.machine);
        self.schedule.failed(at, error);
        self.reload_at = now.ran + FIRST_PAUSE;
        let reason =
            format!("the database could not be opened again; it is tried again soon: {error}");
        self.detached = Some(Arc::new(StoreError::Commit { reason }));
    }

    /// The database was opened again and read back: what the connection last did was not known.
    pub fn reloaded(&mut self, now: Now, mut board: Board) -> Vec<CoreOutput> {
        let at = self.clock.now(now.ran, now.machine);
        std::mem::swap(&mut self.board, &mut board);
        self.board.listen_on(at, board);
        self.detached = None;
        warn!("the database was opened again");
        let commit = self.view.replace(self.board.records().clone());
        self.out.push(CoreOutput::Resync { commit });
        // It may have more in it than was told.
        self.out.push(CoreOutput::Notice(Notice::AllSync));
        let letters = self.orders.sync_all(now.ran);
        letters.into_iter().for_each(|letter| self.dispatch(letter));
        std::mem::take(&mut self.out)
    }

    /// What a commit asks for.
    fn carry_out(&mut self, now: Now, effects: Vec<BoardEffect>) {
        for effect in effects {
            match effect {
                BoardEffect::RequestAuction(lrps, tasks) => {
                    self.auction_hears(now, AuctionInput::Request(lrps, tasks));
                }
                BoardEffect::StopInstance(key, instance) => {
                    let cell = instance.cell_id.clone();
                    self.order(now, &cell, CellOrder::StopInstance(key, instance));
                }
                BoardEffect::UpdateInstance(key, instance) => {
                    let cell = instance.cell_id.clone();
                    self.order(now, &cell, CellOrder::UpdateInstance(key, instance));
                }
                BoardEffect::CancelTask(cell, task) => {
                    self.order(now, &cell, CellOrder::CancelTask(task));
                }
                BoardEffect::CallBack(task) => {
                    let effects = self.callbacks.start(task);
                    self.follow_callbacks(effects);
                }
            }
        }
    }

    /// What is looked at once in a while, when the board agrees with the view.
    fn look(&mut self, now: Now) {
        if now.ran < self.look_at {
            return;
        }
        self.look_at = now.ran + self.look_every;
        let records = self.view.snapshot();
        let orders = &self.orders;
        self.floor.look(now.ran, &records, |cell| orders.is_idle(cell));
        self.follow_floor(now);
        let letters = self.orders.pass(now.ran);
        letters.into_iter().for_each(|letter| self.dispatch(letter));
    }

    fn follow_floor(&mut self, now: Now) {
        for told in self.floor.told() {
            match told {
                Told::Auction(input) => self.auction_hears(now, input),
                Told::Board(cell, presence) => {
                    self.pending.presence.insert(cell, presence);
                }
                Told::Settled(cells) => {
                    self.pending.settled = true;
                    self.out.push(CoreOutput::Notice(Notice::Settled(cells)));
                }
                Told::Open(cell, member) => {
                    let lost = self.orders.open(&cell, member);
                    self.note_lost(now, &cell, lost);
                }
                Told::Close(cell) => {
                    let lost = self.orders.close(&cell);
                    self.note_lost(now, &cell, lost);
                }
                Told::Order(cell, order) => self.order(now, &cell, order),
                Told::Show(cell) => {
                    let shown = self.floor.cell(&cell);
                    self.out.push(CoreOutput::PublishCell(cell, shown));
                }
                Told::Note(note) => self.out.push(CoreOutput::Notice(Notice::Cell(note))),
            }
        }
    }

    fn follow_callbacks(&mut self, effects: Vec<CallbackOutput>) {
        for effect in effects {
            let notice = match effect {
                CallbackOutput::Ask(key, question) => {
                    self.pending.callbacks.push_back((key, question));
                    continue;
                }
                CallbackOutput::Call(task) => {
                    self.out.push(CoreOutput::Call(task));
                    continue;
                }
                CallbackOutput::Failed(failure) => Notice::CallbackFailed(failure),
                CallbackOutput::NotOurs(task, why) => Notice::CallbackNotOurs(task, why),
                CallbackOutput::NotDeleted(task, why) => Notice::CallbackNotDeleted(task, why),
            };
            self.out.push(CoreOutput::Notice(notice));
        }
    }

    fn auction_hears(&mut self, now: Now, input: AuctionInput) {
        if let AuctionInput::Unanswered(cell, number) = &input {
            let cell = cell.as_str();
            warn!(cell, number, "no answer to a batch; convergence will mend it");
        }
        let lost = self.auction.hear(now.ran, input);
        if lost > 0 {
            warn!(lost, "too much work waits for cells; convergence will ask again");
        }
    }

    /// Whether the board was told what came of the last round, and there may be cells.
    fn may_hold_round(&self) -> bool {
        self.has_mesh && self.pending.unplaced.is_empty()
    }

    /// Holds a round of the auction, if one is due.
    fn hold_round(&mut self, now: Now) {
        self.auction.pass(now.ran);
        if !self.may_hold_round() || !self.auction.is_due(now.ran) {
            return;
        }
        let round = self.auction.run_round(now.ran, &*self.view.snapshot());
        debug!(
            round = round.round,
            cells = round.sends.len(),
            unplaced = round.unplaced.len(),
            waiting = self.auction.waiting(),
            "a round of the auction"
        );
        for (cell, batch) in round.sends {
            self.order(now, &cell, CellOrder::Work(batch));
        }
        if !round.unplaced.is_empty() {
            self.out.push(CoreOutput::Notice(Notice::Unplaced(round.unplaced.len())));
        }
        self.pending.unplaced.extend(round.unplaced);
    }

    /// Puts an order last for a cell.
    fn order(&mut self, now: Now, cell: &CellId, order: CellOrder) {
        let (letter, lost) = self.orders.push(now.ran, cell, order);
        self.note_lost(now, cell, lost);
        if let Some(letter) = letter {
            self.dispatch(letter);
        }
    }

    fn note_lost(&mut self, now: Now, cell: &CellId, Undelivered { orders, heard }: Undelivered) {
        match orders {
            0 => {}
            _ => self.out.push(CoreOutput::Notice(Notice::OrdersLost(cell.clone(), orders))),
        }
        heard.into_iter().for_each(|input| self.auction_hears(now, input));
    }

    fn dispatch(&mut self, letter: OrderMessage) {
        self.dispatched += 1;
        let id = DispatchId(self.dispatched);
        if letter.cut_off.is_some() {
            self.out.push(CoreOutput::Notice(Notice::WorkCut(letter.cell.clone())));
        }
        let (cell, to, orders) = (letter.cell.clone(), letter.member, letter.message.clone());
        self.under_way.insert(id, letter);
        self.out.push(CoreOutput::Send(Dispatch { id, cell, to, orders }));
    }

    /// What became of a message. An answer that is not one to each order is none.
    fn delivered(&mut self, now: Now, id: DispatchId, answers: Result<Vec<OrderAnswer>, AskError>) {
        let Some(letter) = self.under_way.remove(&id) else { return };
        let orders = letter.message.orders.len();
        let (heard, next) = match answers {
            Ok(answers) if answers.len() == orders => {
                self.orders.answered(now.ran, letter, &answers)
            }
            Ok(_) => {
                let error = AskError::BadReply("other answers than orders".to_owned());
                self.orders.failed(now.ran, letter, &error)
            }
            Err(error) => self.orders.failed(now.ran, letter, &error),
        };
        heard.into_iter().for_each(|input| self.auction_hears(now, input));
        if let Some(letter) = next {
            self.dispatch(letter);
        }
    }
}
