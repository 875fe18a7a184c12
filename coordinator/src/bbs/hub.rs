//! Hands the board's events to subscribers: in order, numbered, from a bounded memory.
//!
//! The coordinator's thread puts events in and goes on; every subscriber reads at its own pace from the same
//! memory, by the number of the last event that it has seen. Who falls out of the memory is told so
//! and dropped: nobody waits for anybody. An event's text is made once, by the first who needs it.
//!
//! An event id is `EPOCH-NUMBER`. The epoch is this hub's own, so an id of another life of the
//! coordinator is known for what it is, and the subscriber is told to list again.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::{BufMut as _, Bytes, BytesMut};
use data_encoding::BASE64;
use tokio::sync::watch;
use volvox_host::sync::lock;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::diego;
use volvox_protocol::event::Event;
use volvox_protocol::task::Task;

use crate::core::Traces;

/// What the hub remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HubLimits {
    /// Events. One command may bring a hundred thousand, and those who read are not to fall out at
    /// once.
    pub events: usize,
    /// Bytes of what they keep alive and of their texts, roughly.
    pub bytes: usize,
}

impl Default for HubLimits {
    fn default() -> Self {
        HubLimits { events: 262_144, bytes: 256 << 20 }
    }
}

/// One event with its number.
#[derive(Debug)]
pub struct NumberedEvent {
    /// Its number in this epoch, from 1.
    pub number: u64,
    /// The commit that brought it.
    pub commit: u64,
    /// The event.
    pub event: Event,
    /// What the caller called the call that caused it, if it said so.
    pub trace: Option<Arc<str>>,
    bytes: usize,
    frame: OnceLock<Bytes>,
    diego: OnceLock<Bytes>,
}

/// Which event, of which life of the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    epoch: u64,
    number: u64,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.epoch, self.number)
    }
}

impl std::str::FromStr for EventId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "an event id is 16 hexadecimal digits, '-' and a number";
        let (epoch, number) = text.split_once('-').ok_or(FORM)?;
        if epoch.len() != 16 {
            return Err(FORM);
        }
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| FORM)?;
        Ok(EventId { epoch, number: number.parse().map_err(|_| FORM)? })
    }
}

/// Why a subscription has ended. The subscriber has to list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionEnd {
    /// It was too slow: events that it had not read were forgotten.
    #[error("too slow: events that were not read have been forgotten; list again")]
    Lagged,
    /// The id is of another life of the coordinator, or its events are forgotten.
    #[error("that event is not remembered any more; list again")]
    Unknown,
    /// The board was read anew from its disk: events may be missing.
    #[error("the board was read anew; list again")]
    Resync,
    /// The coordinator is stopping.
    #[error("the coordinator is stopping; subscribe again")]
    Closed,
}

/// Hands out events. Clones are handles on the same hub.
#[derive(Debug, Clone)]
pub struct Hub(Arc<HubInner>);

#[derive(Debug)]
struct HubInner {
    memory: HubLimits,
    ring: Mutex<Ring>,
    news: watch::Sender<HubPosition>,
}

/// What subscribers wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HubPosition {
    epoch: u64,
    last: u64,
    commit: u64,
    closed: bool,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Arc<NumberedEvent>>,
    next: u64,
    /// The last commit of which something was forgotten.
    forgotten: u64,
    /// Bytes of all entries, roughly.
    bytes: usize,
}

impl Ring {
    /// The number of the oldest event that is remembered, or of the next one.
    fn first(&self) -> u64 {
        self.entries.front().map_or(self.next, |entry| entry.number)
    }
}

impl Hub {
    /// A hub with nothing in it. The epoch must differ from that of other lives.
    pub fn new(epoch: u64, memory: HubLimits) -> Self {
        let news = HubPosition { epoch, last: 0, commit: 0, closed: false };
        Hub(Arc::new(HubInner {
            memory,
            ring: Mutex::new(Ring { entries: VecDeque::new(), next: 1, forgotten: 0, bytes: 0 }),
            news: watch::Sender::new(news),
        }))
    }

    /// Takes in what a commit brought. Does not wait for any subscriber.
    pub fn publish(&self, commit: u64, events: Vec<Event>) {
        self.tell_traced(commit, events, Traces::new());
    }

    /// As [`Hub::publish`], with what callers called the calls that brought some of the events.
    pub fn tell_traced(&self, commit: u64, events: Vec<Event>, traces: Traces) {
        let mut traces = traces.into_iter().peekable();
        let last = {
            let mut ring = self.ring();
            for (nth, event) in events.into_iter().enumerate() {
                while traces.next_if(|(range, _)| range.end <= nth).is_some() {}
                let trace = traces.peek().filter(|(range, _)| range.contains(&nth));
                let trace = trace.map(|(_, trace)| Arc::clone(trace));
                let number = ring.next;
                ring.next += 1;
                let bytes = weight(&event);
                ring.bytes += bytes;
                let (frame, diego) = (OnceLock::new(), OnceLock::new());
                let entry = NumberedEvent { number, commit, event, trace, bytes, frame, diego };
                ring.entries.push_back(Arc::new(entry));
            }
            while ring.entries.len() > self.0.memory.events || ring.bytes > self.0.memory.bytes {
                let Some(oldest) = ring.entries.pop_front() else { break };
                ring.forgotten = oldest.commit;
                ring.bytes -= oldest.bytes;
            }
            ring.next - 1
        };
        self.0.news.send_modify(|news| (news.last, news.commit) = (last, commit));
    }

    /// Forgets everything up to this commit: events may be missing. Every subscription ends.
    pub fn resync(&self, epoch: u64, commit: u64) {
        {
            let mut ring = self.ring();
            ring.entries.clear();
            ring.forgotten = commit;
            ring.bytes = 0;
        }
        self.0.news.send_modify(|news| (news.epoch, news.commit) = (epoch, commit));
    }

    /// Ends every subscription.
    pub fn close(&self) {
        self.0.news.send_modify(|news| news.closed = true);
    }

    /// How many subscriptions there are.
    pub fn subscriptions(&self) -> usize {
        self.0.news.receiver_count()
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        self.0.news.borrow().last
    }

    /// What is told from now on.
    pub fn subscribe(&self) -> Subscription {
        let news = self.0.news.subscribe();
        // One lock at a time: the coordinator's thread takes them in the other order.
        let epoch = news.borrow().epoch;
        let number = self.ring().next - 1;
        Subscription { hub: self.clone(), news, at: EventId { epoch, number } }
    }

    /// What was told since this event, and from now on.
    pub fn resume(&self, after: EventId) -> Result<Subscription, SubscriptionEnd> {
        let news = self.0.news.subscribe();
        let epoch = news.borrow().epoch;
        let known = {
            let ring = self.ring();
            (ring.first() - 1..ring.next).contains(&after.number)
        };
        if after.epoch != epoch || !known {
            return Err(SubscriptionEnd::Unknown);
        }
        Ok(Subscription { hub: self.clone(), news, at: after })
    }

    /// What is told of later commits than this one: for who holds a snapshot of it.
    pub async fn subscribe_after(&self, commit: u64) -> Result<Subscription, SubscriptionEnd> {
        let mut news = self.0.news.subscribe();
        // A commit is shown before it is told of: the events are on their way.
        let heard = news.wait_for(|news| news.closed || news.commit >= commit).await;
        let heard = heard.map(|news| *news).map_err(|_| SubscriptionEnd::Closed)?;
        if heard.closed {
            return Err(SubscriptionEnd::Closed);
        }
        let ring = self.ring();
        if ring.forgotten > commit {
            return Err(SubscriptionEnd::Lagged);
        }
        let later = ring.entries.partition_point(|entry| entry.commit <= commit);
        let number = ring.entries.get(later).map_or(ring.next, |entry| entry.number) - 1;
        drop(ring);
        Ok(Subscription { hub: self.clone(), news, at: EventId { epoch: heard.epoch, number } })
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        lock(&self.0.ring)
    }

    /// The event as a subscriber over HTTP reads it: id, name and JSON.
    pub fn frame(&self, id: EventId, entry: &NumberedEvent) -> Bytes {
        let text = || {
            let name = entry.event.name();
            match &entry.trace {
                None => frame(Some(id), name, &entry.event),
                Some(trace) => {
                    frame(Some(id), name, &Traced { event: &entry.event, trace_id: trace })
                }
            }
        };
        entry.frame.get_or_init(text).clone()
    }

    /// The event as Diego's clients read it, but for the id, which each of them counts by itself: name and
    /// message.
    pub fn diego_frame(&self, entry: &NumberedEvent) -> Bytes {
        let text = || diego_frame(&entry.event, |lrp| lrp, entry.trace.as_deref());
        entry.diego.get_or_init(text).clone()
    }
}

/// An event in JSON, with the number of the call that caused it.
#[derive(serde::Serialize)]
struct Traced<'a> {
    #[serde(flatten)]
    event: &'a Event,
    trace_id: &'a str,
}

/// One event for Diego's clients, without an id. `form` is how they want desired LRPs.
pub fn diego_frame(
    event: &Event,
    form: impl Fn(DesiredLrp) -> DesiredLrp,
    trace: Option<&str>,
) -> Bytes {
    let message = diego::write::event(event, form, trace.unwrap_or_default());
    format!("event: {}\ndata: {}\n\n", event.name(), BASE64.encode(&message)).into()
}

/// Bytes that an event keeps in memory, roughly: its records, which may be gone from the board, and its
/// text. Decided once, so that what is added is what is taken away.
fn weight(event: &Event) -> usize {
    const RECORD: usize = 768;
    let desired = |lrp: &LrpDeployment| {
        let definitions = lrp.definitions.iter().map(|(_, it)| it.packed().packed_len());
        RECORD + 3 * definitions.sum::<usize>()
    };
    let task = |task: &Task| {
        let definition = &task.definition;
        let files = definition.volume_mounted_files.iter().map(|file| file.content.len());
        let rules = definition.egress_rules.len() * 128;
        4 * RECORD + 2 * (task.result.len() + files.sum::<usize>() + rules)
    };
    match event {
        Event::DesiredLrpCreated(lrp) | Event::DesiredLrpRemoved(lrp) => desired(lrp),
        Event::DesiredLrpChanged(before, after) => desired(before) + desired(after),
        Event::InstanceCreated(_)
        | Event::InstanceRemoved(_)
        | Event::Crashed(_)
        | Event::GroupCreated(_)
        | Event::GroupRemoved(_) => RECORD,
        Event::InstanceChanged(..) | Event::GroupChanged(..) => 2 * RECORD,
        Event::TaskCreated(it) | Event::TaskRemoved(it) => task(it),
        Event::TaskChanged(before, after) => task(before) + task(after),
    }
}

/// One event as text: what `text/event-stream` calls a message.
pub fn frame(id: Option<EventId>, name: &str, data: &impl serde::Serialize) -> Bytes {
    use std::io::Write as _;
    let mut text = BytesMut::with_capacity(1_024).writer();
    // Writing to memory does not fail, and neither does an event whose keys are texts.
    let written = (|| {
        if let Some(id) = id {
            writeln!(text, "id: {id}")?;
        }
        write!(text, "event: {name}\ndata: ")?;
        serde_json::to_writer(&mut text, data)?;
        text.write_all(b"\n\n")
    })();
    debug_assert!(written.is_ok(), "an event has a text");
    text.into_inner().freeze()
}

/// One subscriber's place in the stream.
#[derive(Debug)]
pub struct Subscription {
    hub: Hub,
    news: watch::Receiver<HubPosition>,
    at: EventId,
}

impl Subscription {
    /// The id of the last event that was read, or after which reading began.
    pub fn at(&self) -> EventId {
        self.at
    }

    /// The id of an entry that this subscription gave.
    pub fn id_of(&self, entry: &NumberedEvent) -> EventId {
        EventId { epoch: self.at.epoch, number: entry.number }
    }

    /// The next events, at most so many, at least one; waits for them.
    pub async fn next(&mut self, most: usize) -> Result<Vec<Arc<NumberedEvent>>, SubscriptionEnd> {
        loop {
            let news = *self.news.borrow_and_update();
            if news.epoch != self.at.epoch {
                return Err(SubscriptionEnd::Resync);
            }
            let read = self.read(most)?;
            if !read.is_empty() {
                return Ok(read);
            }
            if news.closed || self.news.changed().await.is_err() {
                return Err(SubscriptionEnd::Closed);
            }
        }
    }

    /// Events that are there already, at most so many; none if there are none, or the subscription has
    /// ended, which the next read says.
    pub fn at_hand(&mut self, most: usize) -> Vec<Arc<NumberedEvent>> {
        let is_current = self.news.borrow().epoch == self.at.epoch;
        if is_current { self.read(most).unwrap_or_default() } else { Vec::new() }
    }

    fn read(&mut self, most: usize) -> Result<Vec<Arc<NumberedEvent>>, SubscriptionEnd> {
        let ring = self.hub.ring();
        let first = ring.first();
        if self.at.number + 1 < first {
            return Err(SubscriptionEnd::Lagged);
        }
        let known = ring.entries.len();
        let from = usize::try_from(self.at.number + 1 - first).unwrap_or(known).min(known);
        let to = from.saturating_add(most).min(known);
        let read: Vec<Arc<NumberedEvent>> = ring.entries.range(from..to).cloned().collect();
        if let Some(last) = read.last() {
            self.at.number = last.number;
        }
        Ok(read)
    }
}
