//! The teller: tells the board what the mesh and the auction have found. It waits when the board is
//! busy; who tells it does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{error, warn};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::id::CellId;

use super::tally::Tally;
use crate::auction::rounds::Unplaced;
use crate::bbs::command::Command;
use crate::bbs::driver::{Bbs, CallError};

/// Rounds of the auction whose unplaced work may wait to be told. Of more the board hears when it has
/// asked again.
const MOST_ROUNDS: usize = 64;
/// Commands that are sent before their answers are waited for.
const AT_ONCE: usize = 256;
/// How long the board is left alone when it is busy.
const BUSY: Duration = Duration::from_millis(20);

/// What the board is to be told of the mesh: for each cell only the last word counts, so there are no
/// more than there are cells.
#[derive(Debug, Default)]
struct News {
    presence: BTreeMap<CellId, CellPresence>,
    settled: bool,
}

/// Where it is told.
#[derive(Clone)]
pub(super) struct Teller {
    news: Arc<Mutex<News>>,
    /// One place: who finds it taken knows that the task will look.
    is_news: mpsc::Sender<()>,
    rounds: mpsc::Sender<Vec<Unplaced>>,
    tally: Arc<Tally>,
}

impl Teller {
    /// Sets two tasks to work, which end when all tellers are dropped, or the board is closed.
    pub(super) fn start(bbs: Bbs, tally: Arc<Tally>) -> Teller {
        let (rounds, unplaced) = mpsc::channel(MOST_ROUNDS);
        let news = Arc::new(Mutex::default());
        let (is_news, look) = mpsc::channel(1);
        tokio::spawn(tell_unplaced(bbs.clone(), unplaced));
        tokio::spawn(tell_news(bbs, Arc::clone(&news), look));
        Teller { news, is_news, rounds, tally }
    }

    pub(super) fn presence(&self, cell: CellId, presence: CellPresence) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.presence.insert(cell, presence);
        drop(news);
        let _will_look_anyway = self.is_news.try_send(());
    }

    /// After all that was told before.
    pub(super) fn settled(&self) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).settled = true;
        let _will_look_anyway = self.is_news.try_send(());
    }

    pub(super) fn unplaced(&self, work: Vec<Unplaced>) {
        let count = work.len();
        if self.rounds.try_send(work).is_err() {
            self.tally.unplaced_lost.add(count);
        }
    }
}

async fn tell_news(bbs: Bbs, news: Arc<Mutex<News>>, mut look: mpsc::Receiver<()>) {
    while look.recv().await.is_some() {
        let told = std::mem::take(&mut *news.lock().unwrap_or_else(PoisonError::into_inner));
        let presence = told.presence.into_iter();
        let presence = presence.map(|(cell, it)| Command::CellPresence(cell, it));
        let settled = told.settled.then_some(Command::CellsSettled);
        if tell(&bbs, presence.chain(settled)).await.is_err() {
            return;
        }
    }
}

async fn tell_unplaced(bbs: Bbs, mut rounds: mpsc::Receiver<Vec<Unplaced>>) {
    while let Some(work) = rounds.recv().await {
        let commands = work.into_iter().map(|piece| match piece {
            Unplaced::Lrp(key, why) => Command::FailLrp(key, (&*why).into()),
            Unplaced::Task(guid, why) => Command::RejectTask(guid, (&*why).into()),
        });
        if tell(&bbs, commands).await.is_err() {
            return;
        }
    }
}

/// The board has been closed.
struct Closed;

/// Tells all of it, in order. What the board rejects it knows better.
async fn tell(bbs: &Bbs, commands: impl Iterator<Item = Command>) -> Result<(), Closed> {
    let mut commands = commands.peekable();
    while commands.peek().is_some() {
        let mut answers = Vec::new();
        for command in commands.by_ref().take(AT_ONCE) {
            loop {
                match bbs.send(command.clone()) {
                    Ok(answer) => {
                        answers.push(answer);
                        break;
                    }
                    Err(CallError::Busy) => tokio::time::sleep(BUSY).await,
                    Err(CallError::Closed) => return Err(Closed),
                    Err(error @ (CallError::Rejected(_) | CallError::Store(_))) => {
                        error!(%error, "the board refused to queue what it should");
                        break;
                    }
                }
            }
        }
        for answer in answers {
            match answer.await {
                Ok(Ok(_) | Err(CallError::Rejected(_) | CallError::Busy)) => {}
                // What was said of the mesh stands nevertheless; the rest is asked for again.
                Ok(Err(CallError::Store(error))) => {
                    warn!(%error, "what was told to the board was not saved");
                }
                Ok(Err(CallError::Closed)) | Err(_) => return Err(Closed),
            }
        }
    }
    Ok(())
}
