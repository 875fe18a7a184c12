//! Consumers that are told of the ends of their tasks: they hear, refuse, are slow, or hear and do not
//! answer in time.

use std::sync::Arc;
use std::time::Duration;

use volvox_coordinator::callback::logic::{CallResult, CallbackSettings, PER_HOST, key_of};
use volvox_protocol::random::SplitMix;
use volvox_protocol::task::{Task, TaskState};

use super::world::{Event, For, World};

/// How consumers are called: in some runs few at once, so that there is a line.
pub(super) fn settings(random: &mut SplitMix) -> CallbackSettings {
    let at_once = *random.one_of(&[1, 3, 64]);
    CallbackSettings { at_once, ..CallbackSettings::default() }
}

impl World {
    pub(super) fn call(&mut self, task: &Arc<Task>) {
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
        let timeout = CallbackSettings::default().timeout;
        let random = &mut self.center.random;
        let within = |random: &mut SplitMix, most_ms: u64| {
            Duration::from_millis(1 + random.next() % most_ms)
        };
        let refused = |why: &str| CallResult::No(why.to_owned());
        let again = |why: &str| CallResult::Again(why.to_owned());
        let how = if self.trouble.callbacks_fail { random.below(8) } else { 7 };
        // When the consumer hears of it, if it does; when the call is over, and what it came to.
        let (heard, over, told) = match how {
            0 => (None, within(random, 20), again("nobody listens there")),
            1 => (None, within(random, 800), CallResult::by_status(503)),
            2 => (None, within(random, 800), refused("no such host")),
            3 => (None, timeout, again("time-out")),
            // It knows, and we do not know that.
            4 => (Some(within(random, 20_000)), timeout, again("time-out")),
            5 => (Some(within(random, 300)), within(random, 300), again("connection reset")),
            6 => {
                let over = within(random, 7_900);
                (Some(over / 2), over, CallResult::by_status(200))
            }
            _ => {
                let over = within(random, 800);
                (Some(over / 2), over, CallResult::by_status(500))
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
