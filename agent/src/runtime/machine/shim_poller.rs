//! The conversations with all shims, in one thread: requests go out without waiting, answers and
//! ends of processes come in, and a shim that hangs up or falls silent is noticed: one that says nothing is
//! asked how it is, and one that does not answer is lost.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tracing::{debug, error, warn};
use volvox_host::sync::lock;

use super::ShimTimeouts;
use crate::container::guid::ContainerGuid;
use crate::container::step::{StepEvent, StepId};
use crate::shim::connection::Connection;
use crate::shim::wire::{ShimReply, ShimRequest};

/// Conversations that are looked at in one go.
const EVENTS: usize = 256;
/// How often it is looked who is silent, within the time that one may be.
const LOOKS: u32 = 4;

/// What is heard.
#[derive(Debug)]
pub(crate) enum ShimEvent {
    /// A process exists now, could not be made, or has ended.
    Step(ContainerGuid, StepEvent),
    /// The conversation broke off. These processes were asked for and not answered.
    Lost(ContainerGuid, Vec<StepId>),
}

/// All conversations. Clones are handles on the same ones.
#[derive(Debug, Clone)]
pub(crate) struct ShimPoller(Arc<PollerInner>);

#[derive(Debug)]
struct PollerInner {
    epoll: Epoll,
    silence: ShimTimeouts,
    state: Mutex<PollerState>,
    /// Hanging up here ends the listening thread.
    end: Mutex<Option<UnixStream>>,
    _ended: UnixStream,
}

/// The token of the end that hangs up; conversations count from 1.
const END: u64 = 0;

#[derive(Debug, Default)]
struct PollerState {
    last: u64,
    of: BTreeMap<ContainerGuid, u64>,
    talks: BTreeMap<u64, ShimConnection>,
}

#[derive(Debug)]
struct ShimConnection {
    guid: ContainerGuid,
    connection: Connection,
    asked: VecDeque<Asked>,
    /// Since when something is asked and nothing heard, if so.
    waits_since: Option<Instant>,
    heard_at: Instant,
}

/// What an answer will be about. Answers come in the order of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Start(StepId),
    Other,
}

impl ShimPoller {
    /// Begins to listen. `hear` is called by the listening thread, with no lock held; it may wait.
    pub(crate) fn start(
        silence: ShimTimeouts,
        hear: impl Fn(ShimEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let (end, ended) = UnixStream::pair()?;
        epoll.add(&ended, EpollEvent::new(EpollFlags::EPOLLIN, END))?;
        let (state, end) = (Mutex::default(), Mutex::new(Some(end)));
        let watch = ShimPoller(Arc::new(PollerInner { epoll, silence, state, end, _ended: ended }));
        let listening = watch.clone();
        std::thread::Builder::new()
            .name("shims".to_owned())
            .spawn(move || listening.listen(&hear))?;
        Ok(watch)
    }

    /// Ends the listening. The containers go on.
    pub(crate) fn stop(&self) {
        drop(lock(&self.0.end).take());
    }

    /// Takes a conversation over. One that there was with the same container is dropped.
    pub(crate) fn hold(&self, guid: &ContainerGuid, connection: Connection) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        self.drop_talk(&mut state, guid);
        state.last += 1;
        let token = state.last;
        let event = EpollEvent::new(interest(&connection), token);
        self.0.epoll.add(&connection, event)?;
        let talk = ShimConnection {
            guid: guid.clone(),
            connection,
            asked: VecDeque::new(),
            waits_since: None,
            heard_at: Instant::now(),
        };
        state.of.insert(guid.clone(), token);
        state.talks.insert(token, talk);
        Ok(())
    }

    /// Lets a conversation go.
    pub(crate) fn release(&self, guid: &ContainerGuid) {
        self.drop_talk(&mut lock(&self.0.state), guid);
    }

    /// Asks for a process. The answer is heard later, or that the conversation was lost. False when
    /// there is none: then nothing will be heard.
    #[must_use]
    pub(crate) fn start_process(
        &self,
        guid: &ContainerGuid,
        step: StepId,
        request: &ShimRequest,
    ) -> bool {
        self.send(guid, Asked::Start(step), request)
    }

    /// Asks for something whose answer does not matter.
    pub(crate) fn ask(&self, guid: &ContainerGuid, request: &ShimRequest) {
        self.send(guid, Asked::Other, request);
    }

    fn send(&self, guid: &ContainerGuid, asked: Asked, request: &ShimRequest) -> bool {
        let mut state = lock(&self.0.state);
        let Some(token) = state.of.get(guid).copied() else {
            debug!(container = %guid, ?asked, "no shim to ask");
            return false;
        };
        let Some(talk) = state.talks.get_mut(&token) else { return false };
        talk.ask(asked, request);
        self.renew(token, talk);
        true
    }

    /// Has the kernel tell us of what we wait for now.
    fn renew(&self, token: u64, talk: &ShimConnection) {
        let mut event = EpollEvent::new(interest(&talk.connection), token);
        if let Err(error) = self.0.epoll.modify(&talk.connection, &mut event) {
            error!(container = %talk.guid, %error, "cannot watch a shim");
        }
    }

    fn drop_talk(&self, state: &mut PollerState, guid: &ContainerGuid) -> Option<ShimConnection> {
        let token = state.of.remove(guid)?;
        let talk = state.talks.remove(&token)?;
        // Closing would do, were it not for a child that has inherited the descriptor.
        let _ = self.0.epoll.delete(&talk.connection);
        Some(talk)
    }

    fn listen(&self, hear: &impl Fn(ShimEvent)) {
        let mut events = [EpollEvent::empty(); EVENTS];
        let every = self.0.silence.answer_within.min(self.0.silence.quiet_for) / LOOKS;
        let patience = EpollTimeout::try_from(every).unwrap_or(EpollTimeout::NONE);
        let mut looked_at = Instant::now();
        loop {
            let ready = match self.0.epoll.wait(&mut events, patience) {
                Ok(ready) => ready,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return error!(%error, "the shims cannot be heard any more"),
            };
            for event in &events[..ready] {
                if event.data() == END {
                    return self.forget_all();
                }
                for heard in self.take(event.data()) {
                    hear(heard);
                }
            }
            // After what was said: whoever slept for long must not take it for silence.
            if looked_at.elapsed() >= every {
                looked_at = Instant::now();
                self.poll_shims(looked_at).into_iter().for_each(hear);
            }
        }
    }

    /// Asks those who have said nothing for long. Those who do not answer are lost.
    fn poll_shims(&self, now: Instant) -> Vec<ShimEvent> {
        let ShimTimeouts { answer_within, quiet_for } = self.0.silence;
        let long_since = |at: Instant, span: Duration| now.saturating_duration_since(at) >= span;
        let is_silent = |talk: &ShimConnection| {
            talk.waits_since.is_some_and(|at| long_since(at, answer_within))
        };
        let mut silent = Vec::new();
        for (token, talk) in &mut lock(&self.0.state).talks {
            if is_silent(talk) {
                silent.push(*token);
            } else if talk.asked.is_empty() && long_since(talk.heard_at, quiet_for) {
                talk.ask(Asked::Other, &ShimRequest::Status);
                self.renew(*token, talk);
            }
        }
        let mut heard = Vec::new();
        for token in silent {
            // It may have answered, and we were slow to listen.
            heard.extend(self.take(token));
            let mut state = lock(&self.0.state);
            if let Some(talk) = state.talks.get(&token).filter(|talk| is_silent(talk)) {
                let guid = talk.guid.clone();
                warn!(container = %guid, "a shim does not answer");
                heard.extend(self.drop_talk(&mut state, &guid).map(ShimConnection::lost));
            }
        }
        heard
    }

    fn forget_all(&self) {
        let mut state = lock(&self.0.state);
        state.of.clear();
        state.talks.clear();
    }

    fn take(&self, token: u64) -> Vec<ShimEvent> {
        let mut state = lock(&self.0.state);
        let Some(talk) = state.talks.get_mut(&token) else { return Vec::new() };
        talk.connection.flush();
        let mut heard = Vec::new();
        for reply in talk.connection.receive::<ShimReply>() {
            talk.heard_at = Instant::now();
            talk.waits_since = talk.waits_since.map(|_| talk.heard_at);
            match reply {
                ShimReply::Exited(exit) => {
                    heard.push(ShimEvent::Step(talk.guid.clone(), StepEvent::ProcessExited(exit)));
                }
                ShimReply::Output(..) => {}
                ShimReply::Done | ShimReply::Failed(_) | ShimReply::Status(_) => {
                    heard.extend(answered(talk, reply));
                }
            }
        }
        if talk.connection.is_closed() {
            let guid = talk.guid.clone();
            heard.extend(self.drop_talk(&mut state, &guid).map(ShimConnection::lost));
        } else {
            self.renew(token, talk);
        }
        heard
    }
}

impl ShimConnection {
    fn ask(&mut self, asked: Asked, request: &ShimRequest) {
        self.asked.push_back(asked);
        self.waits_since.get_or_insert_with(Instant::now);
        self.connection.send(request);
    }

    /// It broke off: what was asked and not answered.
    fn lost(self) -> ShimEvent {
        let starts = self.asked.into_iter().filter_map(|it| match it {
            Asked::Start(step) => Some(step),
            Asked::Other => None,
        });
        ShimEvent::Lost(self.guid, starts.collect())
    }
}

fn answered(talk: &mut ShimConnection, reply: ShimReply) -> Option<ShimEvent> {
    let guid = talk.guid.clone();
    let asked = talk.asked.pop_front()?;
    if talk.asked.is_empty() {
        talk.waits_since = None;
    }
    match (asked, reply) {
        (Asked::Start(step), ShimReply::Done) => {
            Some(ShimEvent::Step(guid, StepEvent::ProcessStarted(step)))
        }
        (Asked::Start(step), ShimReply::Failed(error)) => {
            Some(ShimEvent::Step(guid, StepEvent::SpawnFailed { step, error }))
        }
        (Asked::Start(_), ShimReply::Status(_) | ShimReply::Exited(_) | ShimReply::Output(..)) => {
            None
        }
        // A signal to what has ended meanwhile is refused, as it should be.
        (Asked::Other, reply) => {
            if let ShimReply::Failed(reason) = reply {
                debug!(container = %guid, reason, "the shim said no");
            }
            None
        }
    }
}

fn interest(connection: &Connection) -> EpollFlags {
    if connection.has_output() {
        EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT
    } else {
        EpollFlags::EPOLLIN
    }
}
