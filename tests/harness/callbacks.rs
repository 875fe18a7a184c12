//! Consumers that are told of the ends of their tasks. The real logic decides; this asks the board and
//! calls the consumers, which hear, refuse, are slow, or hear and do not answer in time. Does what
//! `callback/driver.rs` does.

use std::sync::Arc;
use std::time::Duration;

use volvox_coordinator::callback::logic::{Effect, Key, PER_HOST, Settings, Told, key_of};
use volvox_protocol::random::SplitMix;
use volvox_protocol::task::{Task, TaskState};
use volvox_protocol::time::Timestamp;

use super::center::Ticket;
use super::world::{Event, For, World};

/// How consumers are called: in some runs few at once, so that there is a line.
pub(super) fn settings(random: &mut SplitMix) -> Settings {
    let at_once = *random.one_of(&[1, 3, 64]);
    Settings { at_once, ..Settings::default() }
}

impl World {
    /// The board asks for it.
    pub(super) fn call_back(&mut self, task: Arc<Task>) {
        let Some(alive) = &mut self.center.alive else { return };
        let effects = alive.callbacks.tell(task);
        self.follow_callbacks(effects);
    }

    /// The board has answered, or has no time.
    pub(super) fn callback_answered(&mut self, task: &Key, answer: Result<(), String>) {
        let Some(alive) = &mut self.center.alive else { return };
        let effects = alive.callbacks.answered(task, answer);
        self.follow_callbacks(effects);
    }

    pub(super) fn called_back(&mut self, task: &Key, told: Told) {
        let (now, wall) = (self.now(), self.center.machine_clock(self.now()));
        let Some(alive) = &mut self.center.alive else { return };
        alive.calls.remove(task);
        let effects = alive.callbacks.called(now, wall, task, told);
        self.follow_callbacks(effects);
    }

    pub(super) fn callbacks_wake(&mut self) {
        let now = self.now();
        let Some(alive) = &mut self.center.alive else { return };
        alive.calls_at = Timestamp::NEVER;
        let effects = alive.callbacks.wake(now);
        self.follow_callbacks(effects);
    }

    fn follow_callbacks(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask(task, question) => {
                    let command = question.about(task.clone());
                    if !self.submit(command, Ticket::Callback(task.clone())) {
                        let (at, to) = (self.now() + self.moment(), For::Center(self.center.life));
                        self.plan(at, to, Event::CallbackNotAsked(task));
                    }
                }
                Effect::Call(task) => self.call(&task),
                Effect::Failed(failure) => {
                    self.count("callback failed");
                    if failure.given_up {
                        self.count("callback given up");
                    }
                    let (task, why) = (failure.task_guid, failure.reason);
                    self.tell(|| format!("the callback of {task} failed: {why}"));
                }
                Effect::NotOurs(..) => self.count("callback not ours"),
                Effect::NotDeleted(task, why) => {
                    self.count("told and not deleted");
                    self.tell(|| format!("{task} was told of and not deleted: {why}"));
                }
            }
        }
        let to = For::Center(self.center.life);
        let Some(alive) = &mut self.center.alive else { return };
        let at = alive.callbacks.next_wake();
        if at < alive.calls_at {
            alive.calls_at = at;
            self.plan(at, to, Event::CallbacksWake);
        }
    }

    fn call(&mut self, task: &Arc<Task>) {
        let guid = task.task_guid.clone();
        let url = task.definition.completion_callback_url.clone();
        let Some(alive) = &mut self.center.alive else { return };
        let twice = alive.calls.insert(key_of(task), url.clone()).is_some();
        let of_host = alive.calls.values().filter(|it| **it == url).count();
        let too_many = alive.calls.len() > alive.at_once || of_host > PER_HOST;
        if twice || too_many {
            self.checks.fail(format!("too many callbacks at once: {guid} is one of them"));
        }
        if matches!(task.state, TaskState::Pending | TaskState::Running) {
            self.checks.fail(format!("a consumer is told of {guid}, which has not ended"));
        }
        let timeout = Settings::default().timeout;
        let random = &mut self.center.random;
        let within = |random: &mut SplitMix, most_ms: u64| {
            Duration::from_millis(1 + random.next() % most_ms)
        };
        let refused = |why: &str| Told::No(why.to_owned());
        let again = |why: &str| Told::Again(why.to_owned());
        let how = if self.trouble.callbacks_fail { random.below(8) } else { 7 };
        // When the consumer hears of it, if it does; when the call is over, and what it came to.
        let (heard, over, told) = match how {
            0 => (None, within(random, 20), again("nobody listens there")),
            1 => (None, within(random, 800), Told::by_status(503)),
            2 => (None, within(random, 800), refused("no such host")),
            3 => (None, timeout, again("time-out")),
            // It knows, and we do not know that.
            4 => (Some(within(random, 20_000)), timeout, again("time-out")),
            5 => (Some(within(random, 300)), within(random, 300), again("connection reset")),
            6 => {
                let over = within(random, 7_900);
                (Some(over / 2), over, Told::by_status(200))
            }
            _ => {
                let over = within(random, 800);
                (Some(over / 2), over, Told::by_status(500))
            }
        };
        let now = self.now();
        if let Some(heard) = heard {
            // Whatever becomes of the coordinator meanwhile.
            let event = Event::ConsumerTold(guid, task.created_at);
            self.plan(now + heard, For::World, event);
        }
        let to = For::Center(self.center.life);
        self.plan(now + over, to, Event::CalledBack(key_of(task), told));
    }
}
