//! The coordinator: the real writer, floor, addresses and rounds. Does what its drivers do: the
//! writer's thread, the loop of `cells/driver`, its post and teller and the auction's thread. Its desk
//! and its callbacks are beside it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use volvox_coordinator::auction::driver::Input as AuctionInput;
use volvox_coordinator::auction::rounds::{Rounds, Unplaced};
use volvox_coordinator::auction::settings::Settings as AuctionSettings;
use volvox_coordinator::bbs::clock::Steady;
use volvox_coordinator::bbs::command::{Command, Effect, Reply as BoardReply};
use volvox_coordinator::bbs::driver::{BATCH, CallError, QUEUE};
use volvox_coordinator::bbs::settings::Settings as BoardSettings;
use volvox_coordinator::bbs::state::Records;
use volvox_coordinator::bbs::view::View;
use volvox_coordinator::bbs::writer::{Converge, Job, Keeper as _, Outlet, Writer};
use volvox_coordinator::callback::logic::{Callbacks, Key};
use volvox_coordinator::cells::addresses::{Addresses, Letter};
use volvox_coordinator::cells::desk::{Desk, Visit};
use volvox_coordinator::cells::logic::{Floor, Note, Told};
use volvox_coordinator::cells::settings::Settings as CellsSettings;
use volvox_mesh::member::MemberEvent;
use volvox_mesh::record::Content;
use volvox_mesh::request::{AskError, Refusal};
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::event::Event as BoardEvent;
use volvox_protocol::exchange::{CellOrdersReply, size};
use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;
use volvox_protocol::request::{CellOrder, CellRequest};
use volvox_protocol::time::Timestamp;

use super::callbacks;
use super::checks::Asked;
use super::desk::{self, Serving};
use super::disk::{Died, Disk, End, Store};
use super::plan::{Kind, Plan};
use super::world::{CENTER, Event, For, LetterId, Question, World};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What a callback hears of a board that has no time.
const BUSY: &str = "the board is busy";

/// Who asked for a command.
#[derive(Debug, Clone)]
pub(super) enum Ticket {
    /// A report, and the place in it.
    Report(Visit, usize),
    /// The consumer: the number of its wish.
    Wish(u64),
    /// A callback that is about to be made, or was made.
    Callback(Key),
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
    pub(super) random: SplitMix,
}

/// A coordinator at work.
pub(super) struct Alive {
    pub(super) writer: Writer<Store>,
    pub(super) view: View,
    pub(super) floor: Floor,
    pub(super) addresses: Addresses,
    pub(super) rounds: Rounds,
    pub(super) queue: VecDeque<Job<Ticket>>,
    pub(super) letters: BTreeMap<u64, Letter>,
    pub(super) reports: BTreeMap<Visit, Serving>,
    pub(super) callbacks: Callbacks,
    /// Consumers that are being called, and where.
    pub(super) calls: BTreeMap<Key, String>,
    pub(super) calls_at: Timestamp,
    /// The most of them.
    pub(super) at_once: usize,
    pub(super) desk: Desk,
    pub(super) next: u64,
    writes_at: Timestamp,
    auctions_at: Timestamp,
    synced: bool,
    /// Times that the board was read again, and effects may have been lost.
    losses: u64,
    clock: Steady,
}

/// What a commit brought.
struct Collected {
    view: View,
    events: Vec<BoardEvent>,
    effects: Vec<Effect>,
    /// What the board was when it was read again: events before that are of no interest.
    anew: Option<Arc<Records>>,
}

impl Outlet for Collected {
    fn tell(&mut self, _: u64, events: Vec<BoardEvent>) {
        self.events.extend(events);
    }

    fn ask(&mut self, effects: Vec<Effect>) {
        self.effects.extend(effects);
    }

    fn resync(&mut self, _: u64) {
        self.anew = Some(self.view.snapshot());
        self.events.clear();
    }
}

impl Alive {
    pub(super) fn clock_at(&self, now: Timestamp, machine_clock: Timestamp) -> Timestamp {
        self.clock.peek(now, machine_clock)
    }
}

impl Center {
    /// What its machine's clock says.
    pub(super) fn machine_clock(&self, now: Timestamp) -> Timestamp {
        now + self.ahead - self.behind
    }

    pub(super) fn new(plan: &Plan) -> Center {
        Center {
            disk: Rc::new(RefCell::new(Disk::new(plan))),
            life: 0,
            alive: None,
            is_old: plan.kinds.contains(&Kind::Skew) && plan.seed.is_multiple_of(2),
            ahead: Duration::ZERO,
            behind: Duration::ZERO,
            commit: Duration::from_millis(2),
            random: SplitMix(plan.seed ^ 0x6365_6e74),
        }
    }
}

impl World {
    pub(super) fn start_center(&mut self) {
        if self.center.alive.is_some() {
            return;
        }
        let now = self.now();
        let clock = self.center.machine_clock(now);
        let failed = self.center.disk.borrow().failed();
        let opened = Store::open(&self.center.disk);
        let loaded = opened.and_then(|mut store| {
            let (board, _) = store.load(BoardSettings::default(), clock)?;
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
        let view = View::new(board.records().clone());
        let writer = Writer::new(board, store, view.clone(), Converge::default());
        let settings = CellsSettings::default();
        let callbacks = callbacks::settings(&mut self.center.random);
        self.center.life += 1;
        self.center.alive = Some(Alive {
            writer,
            view,
            floor: Floor::new(now, &settings),
            addresses: Addresses::default(),
            rounds: Rounds::new(AuctionSettings::default()).counting_from(clock.as_nanos() / 1_000),
            queue: VecDeque::new(),
            letters: BTreeMap::new(),
            reports: BTreeMap::new(),
            at_once: callbacks.at_once,
            callbacks: Callbacks::new(callbacks),
            calls: BTreeMap::new(),
            calls_at: Timestamp::NEVER,
            desk: desk::new(&self.plan),
            next: 0,
            writes_at: Timestamp::NEVER,
            auctions_at: Timestamp::NEVER,
            synced: false,
            losses: 0,
            clock: Steady::new(now, clock),
        });
        let known = self.mesh.places();
        let seeds: Vec<usize> = if known <= 1 {
            Vec::new()
        } else {
            (0..3).map(|_| 1 + self.random.below(known - 1)).collect()
        };
        self.mesh.start(CENTER, World::profile(), &seeds);
        if let Some(alive) = &self.center.alive {
            self.checks.list_anew(&alive.view.snapshot());
        }
        let to = For::Center(self.center.life);
        self.plan(now + LOOK_EVERY / 4, to, Event::FloorLooks);
        self.plan_write(Duration::ZERO);
    }

    pub(super) fn kill_center(&mut self, end: End) {
        if let Some(alive) = self.center.alive.take() {
            self.checks.board_goes(&alive.view.snapshot());
            let mut disk = self.center.disk.borrow_mut();
            // Before what it had open is closed: it closes nothing any more.
            disk.orphan(end);
            if disk.is_in_doubt() {
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
            Event::Writes => self.write(),
            Event::Auctions => self.auction(),
            Event::FloorLooks => self.floor_looks(),
            Event::Asked(nth, life, ask, question) if self.center.is_old && is_new(&question) => {
                self.count("report not understood");
                let refusal = Refusal::Malformed("a request that is not known".to_owned());
                self.refuse((nth, life, ask), AskError::Refused(refusal));
            }
            Event::Asked(nth, life, ask, question) => self.serve((nth, life, ask), question),
            Event::TurnOver(visit) => self.turn_over(visit),
            Event::OrdersAnswered(letter, reply) => self.letter_answered(letter, &reply),
            Event::LetterRefused(letter) => self.letter_refused(letter),
            Event::LetterOver(letter) => self.letter_failed(letter, &AskError::Deadline),
            Event::CalledBack(task, told) => self.called_back(&task, told),
            Event::CallbackNotAsked(task) => self.callback_answered(&task, Err(BUSY.to_owned())),
            Event::CallbacksWake => self.callbacks_wake(),
            _ => {}
        }
    }

    pub(super) fn center_hears(&mut self, effect: MemberEvent) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        match effect {
            MemberEvent::Present { identity, generation, address } => {
                alive.floor.came(now, &identity, Some(generation), address);
            }
            MemberEvent::Missing { identity, left } => alive.floor.went(now, &identity, left),
            MemberEvent::Published(record) => match &record.content {
                Content::Info(info) => alive.floor.heard_info(Arc::new(info.clone())),
                Content::Load(load) => alive.floor.heard_load(load.clone()),
                Content::Certificate | Content::Alive(_) | Content::Revocations(_) => {}
            },
            _ => {}
        }
        self.follow_floor();
    }

    fn floor_looks(&mut self) {
        let (now, to) = (self.now(), For::Center(self.center.life));
        let is_synced = self.mesh.member(CENTER).is_synced();
        let Some(alive) = &mut self.center.alive else { return };
        if is_synced && !alive.synced {
            alive.synced = true;
            alive.floor.synced(now);
        }
        let records = alive.view.snapshot();
        let Alive { floor, addresses, desk, losses, .. } = alive;
        let is_idle = |cell: &CellId| addresses.is_idle(cell) && !desk.is_serving(cell);
        floor.look(now, &records, *losses, is_idle);
        let letters = alive.addresses.pass(now);
        self.follow_floor();
        for letter in letters {
            self.send(letter);
        }
        let at = now + LOOK_EVERY / 2;
        self.plan(at, to, Event::FloorLooks);
    }

    fn follow_floor(&mut self) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        for told in alive.floor.told() {
            match told {
                Told::Auction(input) => self.auction_hears(input),
                Told::Board(cell, presence) => {
                    self.tell(|| format!("board hears: {cell} is {presence:?}"));
                    self.submit(Command::CellPresence(cell, presence), Ticket::Nobody);
                }
                Told::Settled(cells) => {
                    self.tell(|| format!("board hears: that were all cells, {cells}"));
                    self.submit(Command::CellsSettled, Ticket::Nobody);
                }
                Told::Open(cell, member) => {
                    let Some(alive) = &mut self.center.alive else { return };
                    let lost = alive.addresses.open(&cell, member);
                    lost.heard.into_iter().for_each(|input| self.auction_hears(input));
                }
                Told::Close(cell) => {
                    let Some(alive) = &mut self.center.alive else { return };
                    let lost = alive.addresses.close(&cell);
                    lost.heard.into_iter().for_each(|input| self.auction_hears(input));
                }
                Told::Order(cell, order) => self.order(&cell, order),
                Told::SyncAll => {
                    let Some(alive) = &mut self.center.alive else { return };
                    for letter in alive.addresses.sync_all(now) {
                        self.send(letter);
                    }
                }
                Told::Show(_) => {}
                Told::Note(note) => {
                    match &note {
                        Note::Held(..) => self.count("loss held"),
                        Note::Differs(_) => self.count("cell and board differ"),
                        _ => {}
                    }
                    self.tell(|| format!("coordinator: {note:?}"));
                }
            }
        }
    }

    // The writer.

    pub(super) fn submit(&mut self, command: Command, ticket: Ticket) -> bool {
        let Some(alive) = &mut self.center.alive else { return false };
        let may_be_refused = matches!(ticket, Ticket::Report(..) | Ticket::Callback(_));
        let no_time = self.trouble.crowded && may_be_refused && self.center.random.once_in(3);
        if alive.queue.len() >= QUEUE || no_time {
            return false;
        }
        alive.queue.push_back(Job { command, trace: None, who: ticket });
        let most = u64::try_from(self.center.commit.as_micros()).unwrap_or(1).max(1);
        let within = Duration::from_micros(100 + self.center.random.next() % most);
        self.plan_write(within);
        true
    }

    fn plan_write(&mut self, within: Duration) {
        let at = self.now() + within;
        let to = For::Center(self.center.life);
        let Some(alive) = &mut self.center.alive else { return };
        if at < alive.writes_at {
            alive.writes_at = at;
            self.plan(at, to, Event::Writes);
        }
    }

    fn write(&mut self) {
        let now = self.now();
        let machine_clock = self.center.machine_clock(now);
        let Center { alive: Some(alive), random, .. } = &mut self.center else { return };
        if alive.writes_at > now {
            return;
        }
        alive.writes_at = Timestamp::NEVER;
        let clock = alive.clock.now(now, machine_clock);
        let (view, events, effects) = (alive.view.clone(), Vec::new(), Vec::new());
        let mut collected = Collected { view, events, effects, anew: None };
        let count = alive.queue.len().min(BATCH);
        let mut batch: VecDeque<Job<Ticket>> = alive.queue.drain(..count).collect();
        let mut asked = Asked::default();
        for job in &batch {
            asked.note(&job.command, matches!(job.who, Ticket::Nobody | Ticket::Wish(_)));
        }
        self.checks.writes(clock, &asked);
        let mut answers = Vec::new();
        loop {
            let mut draw = || random.next();
            answers.extend(alive.writer.step(clock, &mut draw, &mut batch, &mut collected));
            if batch.is_empty() {
                break;
            }
        }
        self.look_at_disk();
        let died = self.center.disk.borrow().died();
        if let Some(died) = died {
            return self.dies_in_commit(died, collected, answers);
        }
        if let Some(records) = &collected.anew {
            self.checks.list_anew(records);
            if let Some(alive) = &mut self.center.alive {
                alive.losses += 1;
            }
        }
        self.tell_events(&collected.events);
        if self.plan.checks {
            self.checks.commit(clock, &asked, &collected.events);
        }
        self.carry_out(collected.effects);
        for (ticket, result) in answers {
            self.board_answers(ticket, result);
        }
        let Some(alive) = &mut self.center.alive else { return };
        let again = if alive.queue.is_empty() {
            alive.writer.patience(clock)
        } else {
            Duration::from_micros(200)
        };
        self.plan_write(again.max(Duration::from_micros(100)));
    }

    /// What was committed is there, and some were told.
    fn dies_in_commit(
        &mut self,
        died: Died,
        mut collected: Collected,
        mut answers: Vec<(Ticket, Result<BoardReply, CallError>)>,
    ) {
        self.count("coordinator died in a commit");
        self.tell(|| format!("the coordinator dies: {died:?}"));
        if died == Died::After && !self.center.random.once_in(3) {
            let some = |random: &mut SplitMix, all: usize| random.below(all + 1);
            collected.effects.truncate(some(&mut self.center.random, collected.effects.len()));
            answers.truncate(some(&mut self.center.random, answers.len()));
            self.carry_out(collected.effects);
            for (ticket, result) in answers {
                self.board_answers(ticket, result);
            }
        }
        self.kill_center(End::Killed);
        self.restart_center_later();
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

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in &effects {
            if let Effect::StopInstance(_, instance) = effect {
                self.checks.is_to_stop(instance);
            }
            if let Effect::CallBack(task) = effect {
                self.call_back(Arc::clone(task));
            }
        }
        if let Some(alive) = &mut self.center.alive {
            alive.floor.asked(effects);
        }
        self.follow_floor();
    }

    fn board_answers(&mut self, ticket: Ticket, result: Result<BoardReply, CallError>) {
        match ticket {
            Ticket::Report(report, place) => self.request_answered(report, place, result),
            Ticket::Wish(wish) => self.wish_answered(wish, result),
            Ticket::Callback(task) => {
                let answer = result.map(drop).map_err(|error| error.to_string());
                self.callback_answered(&task, answer);
            }
            Ticket::Nobody => {}
        }
    }

    // The auction.

    fn auction_hears(&mut self, input: AuctionInput) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        let rounds = &mut alive.rounds;
        match input {
            AuctionInput::Request(lrps, tasks) => {
                let _lost = rounds.request(lrps, tasks);
            }
            AuctionInput::Info(info) => rounds.cell_info(info),
            AuctionInput::Load(load) => rounds.cell_load(load),
            AuctionInput::Gone(cell) => {
                let _lost = rounds.cell_gone(&cell);
            }
            AuctionInput::Reborn(cell) => rounds.cell_reborn(&cell),
            AuctionInput::Answered(cell, number, refused) => {
                let _lost = rounds.answered(now, &cell, number, &refused);
            }
            AuctionInput::Unanswered(cell, number) => rounds.unanswered(now, &cell, number),
            AuctionInput::Explain(..) | AuctionInput::Simulate(..) => {}
        }
        let soon = now + self.moment();
        self.plan_auction(soon);
    }

    fn plan_auction(&mut self, at: Timestamp) {
        let to = For::Center(self.center.life);
        let Some(alive) = &mut self.center.alive else { return };
        if at < alive.auctions_at {
            alive.auctions_at = at;
            self.plan(at, to, Event::Auctions);
        }
    }

    fn auction(&mut self) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        if alive.auctions_at > now {
            return;
        }
        alive.auctions_at = Timestamp::NEVER;
        alive.rounds.pass(now);
        if alive.rounds.is_due(now) {
            let orders = alive.rounds.think(now, &*alive.view.snapshot());
            for (cell, batch) in orders.sends {
                self.count("batch sent");
                self.order(&cell, CellOrder::Work(batch));
            }
            for unplaced in orders.unplaced {
                self.count("not placed");
                let command = match unplaced {
                    Unplaced::Lrp(key, why) => Command::FailLrp(key, (&*why).into()),
                    Unplaced::Task(task, why) => Command::RejectTask(task, (&*why).into()),
                };
                self.submit(command, Ticket::Nobody);
            }
        }
        let Some(alive) = &self.center.alive else { return };
        if let Some(at) = alive.rounds.wake_at() {
            self.plan_auction(at.max(now + Duration::from_micros(50)));
        }
    }

    // The post.

    fn order(&mut self, cell: &CellId, order: CellOrder) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        let (letter, lost) = alive.addresses.push(now, cell, order);
        lost.heard.into_iter().for_each(|input| self.auction_hears(input));
        if let Some(letter) = letter {
            self.send(letter);
        }
    }

    fn send(&mut self, letter: Letter) {
        if self.plan.tells {
            let what: Vec<String> = letter.message.orders.iter().map(order_name).collect();
            let cell = letter.cell.clone();
            self.tell(|| format!("order to {cell}: {}", what.join(", ")));
        }
        let now = self.now();
        let Some(place) = self.mesh.place_of(letter.member) else { return };
        let (nth, message) = (place - 1, letter.message.clone());
        let Some(alive) = &mut self.center.alive else { return };
        alive.next += 1;
        let id = alive.next;
        alive.letters.insert(id, letter);
        if !self.mesh.is_linked(CENTER, place) {
            return self.letter_failed(id, &AskError::NoLink);
        }
        let (cell, life) = (self.cells[nth].life, self.center.life);
        if let Some(delay) = self.mesh.carry(CENTER, place, size(&message)) {
            let message = self.by_wire(message);
            self.plan(now + delay, For::Cell(nth, cell), Event::Ordered((life, id), message));
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

    fn letter_refused(&mut self, id: u64) {
        let refusal = Refusal::Malformed("an order of a kind that is not known".to_owned());
        self.letter_failed(id, &AskError::Refused(refusal));
    }

    fn letter_answered(&mut self, id: u64, reply: &CellOrdersReply) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        let Some(letter) = alive.letters.remove(&id) else { return };
        let (heard, next) = alive.addresses.answered(now, letter, &reply.answers);
        self.after_letter(heard, next);
    }

    fn letter_failed(&mut self, id: u64, error: &AskError) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        let Some(letter) = alive.letters.remove(&id) else { return };
        self.count("order lost");
        let Some(alive) = &mut self.center.alive else { return };
        let (heard, next) = alive.addresses.failed(now, letter, error);
        self.after_letter(heard, next);
    }

    fn after_letter(&mut self, heard: Vec<AuctionInput>, next: Option<Letter>) {
        for input in heard {
            self.auction_hears(input);
        }
        if let Some(letter) = next {
            self.send(letter);
        }
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
