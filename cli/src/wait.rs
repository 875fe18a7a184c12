//! Looks again and again until something is so, says what is new, and gives up at a deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::id::{DefinitionId, ProcessGuid};
use volvox_protocol::time::{Backoff, span};

use crate::args::WaitingFor;
use crate::client::Client;
use crate::error::{Code, Failure};
use crate::output::{Output, Style};
use crate::progress::{self, IndexProgress, Snapshot, WaitState};

/// Between two looks, at first; it grows.
const SOON: Duration = Duration::from_millis(100);
/// Between two looks, at most.
const LATE: Duration = Duration::from_millis(1_000);
/// A coordinator that is being restarted is away for so long; then we give up.
const AWAY: Duration = Duration::from_secs(60);

/// Before a stream that broke is opened again.
const RECONNECT: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
/// A stream that lasted so long was a good one: what comes next is a new failure.
const LASTED: Duration = Duration::from_secs(30);

/// Who watches says when it is enough.
pub(crate) const FOR_EVER: WaitingFor = WaitingFor { timeout: Duration::ZERO };

/// When to look, and when to stop.
pub(crate) struct Patience {
    begun: Instant,
    end: Option<Instant>,
    pause: Duration,
    away_since: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(limit: WaitingFor) -> Self {
        let begun = Instant::now();
        let end = if limit.timeout.is_zero() { None } else { begun.checked_add(limit.timeout) };
        Patience { begun, end, pause: SOON, away_since: None }
    }

    /// Waits before the next look; false: the time is up.
    pub(crate) fn pause(&mut self) -> bool {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        std::thread::sleep(left.map_or(self.pause, |left| left.min(self.pause)));
        self.pause = (self.pause * 5 / 4).min(LATE);
        true
    }

    /// Something happened: more may soon.
    pub(crate) fn soon(&mut self) {
        self.pause = SOON;
    }

    /// How long it has been.
    pub(crate) fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A look; none while the coordinator is away for a moment, as when it is restarted.
    pub(crate) fn look<T>(&mut self, looked: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match looked {
            Ok(seen) => {
                self.away_since = None;
                Ok(Some(seen))
            }
            Err(failure) if failure.code == Code::Unreachable => {
                let since = *self.away_since.get_or_insert_with(Instant::now);
                if since.elapsed() > AWAY { Err(failure) } else { Ok(None) }
            }
            Err(failure) => Err(failure),
        }
    }
}

/// When a stream of events or log lines that broke is opened again.
#[derive(Default)]
pub(crate) struct Reconnect {
    /// In a row.
    failures: u32,
}

impl Reconnect {
    /// The stream that was opened then is over: says why, once in a row, and waits.
    pub(crate) fn wait(
        &mut self,
        out: &mut Output,
        opened: Instant,
        why: &str,
    ) -> Result<(), Failure> {
        let has_lasted = opened.elapsed() > LASTED;
        self.failures = if has_lasted { 0 } else { self.failures.saturating_add(1) };
        if self.failures == 1 && !out.is_json() {
            out.note(&format!("{why}: connecting again"))?;
        }
        out.pause(RECONNECT.after(self.failures.saturating_add(1)))
    }
}

/// Waits until an app runs as it is wanted, from this definition or from the active one.
pub(crate) fn for_app(
    client: &Client,
    out: &mut Output,
    app: &ProcessGuid,
    wanted: Option<&DefinitionId>,
    limit: WaitingFor,
) -> Result<(), Failure> {
    let mut patience = Patience::new(limit);
    let mut told = ReportedSteps::default();
    let mut last: Option<Snapshot> = None;
    loop {
        let looked = client.deployment(app).and_then(|it| Ok((it, client.instances_of(app)?)));
        if let Some((deployment, instances)) = patience.look(looked)? {
            let look = progress::look(&deployment, &instances, wanted);
            if told.tell(out, &look)? {
                patience.soon();
            }
            match &look.verdict {
                WaitState::Done => {
                    let count = look.done.1;
                    return done(out, app, &patience, &format!("{count} of {count} instances run"));
                }
                WaitState::Failed(why) => {
                    return Err(Failure::waited(why.clone()).hint(format!(
                        "it is tried on: `volvox ps {app}` shows how it goes, `volvox history {app}` \
                         what to go back to"
                    )));
                }
                WaitState::Overtaken(why) => {
                    return Err(Failure::waited(why.clone()).hint(format!(
                        "`volvox history {app}` shows its definitions, `volvox diff {app}` what \
                         differs"
                    )));
                }
                WaitState::Going | WaitState::Waits(_) => last = Some(look),
            }
        }
        if !patience.pause() {
            return Err(in_vain(app, last.as_ref(), limit));
        }
    }
}

fn done(
    out: &mut Output,
    app: &ProcessGuid,
    patience: &Patience,
    what: &str,
) -> Result<(), Failure> {
    let waited = patience.waited();
    if out.is_json() {
        let ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        return out.entry(&json!({"app": app, "result": "done", "waited_ms": ms}));
    }
    out.styled(Style::Good, &format!("{app}: {what} ({})", span::show(waited)))
}

/// What was missing when the time was up.
fn in_vain(app: &ProcessGuid, last: Option<&Snapshot>, limit: WaitingFor) -> Failure {
    let span = span::show(limit.timeout);
    let Some(look) = last else {
        return Failure::waited(format!("{app}: the coordinator did not answer within {span}"));
    };
    let (done, of) = look.done;
    let missing = look.steps.iter().filter(|step| step.state != "RUNNING" || !step.note.is_empty());
    let missing: Vec<String> = missing.take(5).map(IndexProgress::line).collect();
    let mut message = format!("{app}: {done} of {of} instances are done after {span}");
    for line in &missing {
        message += &format!("\n{line}");
    }
    if let WaitState::Waits(what) = &look.verdict {
        return Failure::waited(message).hint(what.clone());
    }
    let index = look.steps.iter().find(|step| step.state != "RUNNING").map_or(0, |step| step.index);
    Failure::waited(message).hint(format!(
        "it goes on without us; `volvox explain {app} {index}` says why an instance is nowhere"
    ))
}

/// What has been said of each index, so that only what is new is said.
#[derive(Default)]
struct ReportedSteps {
    steps: BTreeMap<(u32, String), IndexProgress>,
    waits: String,
}

impl ReportedSteps {
    /// Says what is new; whether there was anything.
    fn tell(&mut self, out: &mut Output, look: &Snapshot) -> Result<bool, Failure> {
        let mut new = false;
        for step in &look.steps {
            let key = (step.index, step.definition_id.clone());
            // That nothing has happened there yet is no news.
            let is_news = step.state != "waiting" && self.steps.get(&key) != Some(step);
            if !is_news {
                continue;
            }
            new = true;
            if out.is_json() {
                out.entry(step)?;
            } else {
                out.styled(Style::of_state(&step.state), &step.line())?;
                out.finish()?;
            }
            self.steps.insert(key, step.clone());
        }
        if let WaitState::Waits(what) = &look.verdict
            && self.waits != *what
        {
            self.waits.clone_from(what);
            out.note(what)?;
        }
        Ok(new)
    }
}

/// Waits until no instance of an app is left.
pub(crate) fn for_end(
    client: &Client,
    out: &mut Output,
    app: &ProcessGuid,
    limit: WaitingFor,
) -> Result<(), Failure> {
    let mut patience = Patience::new(limit);
    loop {
        let looked = patience.look(client.instances_of(app))?;
        if looked.as_ref().is_some_and(Vec::is_empty) {
            return done(out, app, &patience, "no instance is left");
        }
        if !patience.pause() {
            let left: Vec<Arc<ActualLrp>> = looked.unwrap_or_default();
            let span = span::show(limit.timeout);
            let message = format!("{app}: {} instances are left after {span}", left.len());
            return Err(Failure::waited(message).hint(format!(
                "`volvox ps {app}` shows them; nothing is stopped in a domain that is not fresh \
                 (`volvox domain list`)"
            )));
        }
    }
}
