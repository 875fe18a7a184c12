//! What waits for the coordinator's thread. Two bounded queues: calls of the API, and reports of cells;
//! neither can fill the other's, and each turn takes of both. Signals are bounded by what they are about:
//! messages under way, callbacks under way, and what the mesh says, of which [`hear_mesh`](Inbox::hear_mesh)
//! takes no more than there is room for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use volvox_protocol::cell_rpc::CellAnswer;
use volvox_protocol::request::CellRequest;

use super::Clock;
use crate::auction::explain::{ExplainTarget, Explanation};
use crate::bbs::command::{CallError, Command, QUEUE, Reply};
use crate::cells::admission::TURN_WITHIN;
use crate::core::{CoreInput, ReplyId, Signal};

/// Reports that may wait. Cells of more are told to come again later.
pub(super) const REPORTS: usize = 16_384;
/// Calls, and reports, in one transaction. More only make the first of them wait longer.
pub(super) const BATCH: usize = 512;
/// Signals that may wait before the mesh is listened to no further.
const SIGNALS: usize = 16_384;

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Waiter {
    Call(oneshot::Sender<Result<Reply, CallError>>),
    Report(oneshot::Sender<Vec<CellAnswer>>),
    Explain(oneshot::Sender<Option<Explanation>>),
}

/// What a turn is about.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) inputs: Vec<CoreInput>,
    pub(super) signals: Vec<Signal>,
    pub(super) waiters: Vec<(ReplyId, Waiter)>,
    /// Those who wait until no order is under way.
    pub(super) idle: Vec<oneshot::Sender<()>>,
    /// Nothing will come any more, and nothing waits.
    pub(super) is_end: bool,
}

pub(super) struct Inbox {
    clock: Clock,
    waiting: Mutex<QueuedInputs>,
    /// The thread sleeps here.
    has_come: Condvar,
}

#[derive(Debug, Default)]
struct QueuedInputs {
    commands: VecDeque<(ReplyId, Waiter, CoreInput)>,
    reports: VecDeque<(ReplyId, Waiter, CoreInput)>,
    signals: Vec<Signal>,
    /// Who waits for what a signal asks.
    waiters: Vec<(ReplyId, Waiter)>,
    idle: Vec<oneshot::Sender<()>>,
    last_reply: u64,
    is_closed: bool,
}

impl QueuedInputs {
    fn is_empty(&self) -> bool {
        self.commands.is_empty()
            && self.reports.is_empty()
            && self.signals.is_empty()
            && self.idle.is_empty()
    }

    fn new_reply(&mut self) -> ReplyId {
        self.last_reply += 1;
        ReplyId(self.last_reply)
    }
}

impl Inbox {
    pub(super) fn new(clock: Clock) -> Self {
        Inbox { clock, waiting: Mutex::default(), has_come: Condvar::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, QueuedInputs> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something in, unless nobody will take it or there is no room.
    fn put<T>(
        &self,
        put: impl FnOnce(&mut QueuedInputs) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return Err(CallError::Closed);
        }
        let done = put(&mut waiting)?;
        drop(waiting);
        self.has_come.notify_one();
        Ok(done)
    }

    /// A call of the API.
    pub(super) fn command(
        &self,
        command: Command,
        trace: Option<Arc<str>>,
    ) -> Result<oneshot::Receiver<Result<Reply, CallError>>, CallError> {
        self.put(|waiting| {
            if waiting.commands.len() >= QUEUE {
                return Err(CallError::Busy);
            }
            let (waiter, answer) = oneshot::channel();
            let reply = waiting.new_reply();
            let input = CoreInput::Command { reply, command, trace };
            waiting.commands.push_back((reply, Waiter::Call(waiter), input));
            Ok(answer)
        })
    }

    /// What a cell reports.
    pub(super) fn report(
        &self,
        requests: Vec<CellRequest>,
    ) -> Result<(ReplyId, oneshot::Receiver<Vec<CellAnswer>>), CallError> {
        let deadline = self.clock.now().ran + TURN_WITHIN;
        self.put(|waiting| {
            if waiting.reports.len() >= REPORTS {
                return Err(CallError::Busy);
            }
            let (waiter, answers) = oneshot::channel();
            let reply = waiting.new_reply();
            let input = CoreInput::Report { reply, requests, deadline };
            waiting.reports.push_back((reply, Waiter::Report(waiter), input));
            Ok((reply, answers))
        })
    }

    /// Takes a report back that has waited for too long; false: it is being answered.
    pub(super) fn withdraw(&self, report: ReplyId) -> bool {
        let mut waiting = self.waiting();
        let place = waiting.reports.iter().position(|(id, ..)| *id == report);
        place.is_some_and(|place| waiting.reports.remove(place).is_some())
    }

    /// Why something is where it is.
    pub(super) fn explain(
        &self,
        subject: ExplainTarget,
    ) -> Result<oneshot::Receiver<Option<Explanation>>, CallError> {
        self.put(|waiting| {
            if waiting.signals.len() >= SIGNALS {
                return Err(CallError::Busy);
            }
            let (waiter, answer) = oneshot::channel();
            let reply = waiting.new_reply();
            waiting.waiters.push((reply, Waiter::Explain(waiter)));
            waiting.signals.push(Signal::Explain(reply, subject));
            Ok(answer)
        })
    }

    /// What became of something that the core has asked for, or what an operator wants. If nobody takes it
    /// any more, nobody has to know.
    pub(super) fn signal(&self, signal: Signal) {
        let _closed = self.put(|waiting| {
            waiting.signals.push(signal);
            Ok(())
        });
    }

    /// What the mesh says; given back if there is no room for it now.
    pub(super) fn hear_mesh(&self, signal: Signal) -> Result<(), Box<Signal>> {
        let mut signal = Some(signal);
        let _told_below = self.put(|waiting| {
            if waiting.signals.len() >= SIGNALS {
                return Err(CallError::Busy);
            }
            waiting.signals.extend(signal.take());
            Ok(())
        });
        signal.map_or(Ok(()), |signal| Err(Box::new(signal)))
    }

    /// Says when no order waits and none is under way.
    pub(super) fn when_idle(&self) -> oneshot::Receiver<()> {
        let (waiter, idle) = oneshot::channel();
        let _closed = self.put(|waiting| {
            waiting.idle.push(waiter);
            Ok(())
        });
        idle
    }

    /// Nothing is taken any more. What is here is still done.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.has_come.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    /// What waits, as much as one turn takes. Sleeps for so long if nothing does.
    pub(super) fn take(&self, patience: Duration) -> Taken {
        let sleeps = |waiting: &mut QueuedInputs| waiting.is_empty() && !waiting.is_closed;
        let woken = self.has_come.wait_timeout_while(self.waiting(), patience, sleeps);
        let (mut waiting, _) = woken.unwrap_or_else(PoisonError::into_inner);
        let is_end = waiting.is_closed && waiting.is_empty();
        let waiting = &mut *waiting;
        let mut waiters = std::mem::take(&mut waiting.waiters);
        let mut inputs = Vec::new();
        for queue in [&mut waiting.commands, &mut waiting.reports] {
            let count = queue.len().min(BATCH);
            for (reply, waiter, input) in queue.drain(..count) {
                waiters.push((reply, waiter));
                inputs.push(input);
            }
        }
        Taken {
            inputs,
            waiters,
            signals: std::mem::take(&mut waiting.signals),
            idle: std::mem::take(&mut waiting.idle),
            is_end,
        }
    }
}
