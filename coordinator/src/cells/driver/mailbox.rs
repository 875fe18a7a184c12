//! The way from the board's writer to the cells: it hands over what a commit asks for and goes on.
//!
//! The two ends are made before the board is, since the board is given the one and the cells, which
//! need the board, the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tracing::warn;

use crate::bbs::command::Effect;

/// Commits whose effects may wait. What is asked for when they are so many is lost: convergence asks
/// again for starts and stops, and for the rest all cells are told to sync.
const MOST_COMMITS: usize = 4_096;

/// Where the board's writer puts effects. Never waits.
#[derive(Debug, Clone)]
pub struct Outbox {
    queue: mpsc::Sender<Vec<Effect>>,
    lost: Arc<AtomicU64>,
}

/// Where [`start`](super::start) finds them.
#[derive(Debug)]
pub struct Inbox {
    pub(super) queue: mpsc::Receiver<Vec<Effect>>,
    /// Effects that found no place, so far.
    pub(super) lost: Arc<AtomicU64>,
}

/// Both ends.
pub fn mailbox() -> (Outbox, Inbox) {
    let (sender, queue) = mpsc::channel(MOST_COMMITS);
    let lost = Arc::new(AtomicU64::new(0));
    (Outbox { queue: sender, lost: Arc::clone(&lost) }, Inbox { queue, lost })
}

impl Outbox {
    /// What a commit asked for was never handed over: the board was read again after the disk had
    /// failed, and found more than it had told. All cells are to sync.
    pub fn note_loss(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Hands over what a commit asks of cells and auction, in its order. A task's consumer is not told
    /// here: [`Effect::CallBack`] is passed over.
    pub fn ask(&self, effects: Vec<Effect>) {
        let count = effects.len() as u64;
        if self.queue.try_send(effects).is_err() {
            let before = self.lost.fetch_add(count, Ordering::Relaxed);
            if before == 0 {
                warn!(count, "what the board asks of its cells is lost; saying so once");
            }
        }
    }
}
