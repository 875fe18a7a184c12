//! Saying "stop" to a thread that downloads, unpacks or waits. Set once, seen everywhere.
//!
//! The executor's driver keeps one for each action and hands it to the thread that works on it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use volvox_host::sync::{lock, unpoisoned};

/// The wish to stop; clones are the same wish.
#[derive(Clone, Default)]
pub struct Cancel {
    shared: Arc<Shared>,
}

type Interrupt = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    flag: AtomicBool,
    interrupt: Mutex<Option<Interrupt>>,
    changed: Condvar,
}

impl Cancel {
    /// Nobody wants anything stopped yet.
    pub fn new() -> Self {
        Cancel::default()
    }

    /// Stops whoever holds a clone. What is blocked on the network is torn away.
    pub fn cancel(&self) {
        let mut interrupt = lock(&self.shared.interrupt);
        self.shared.flag.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        let interrupt_now = interrupt.take();
        drop(interrupt);
        if let Some(interrupt_now) = interrupt_now {
            interrupt_now();
        }
    }

    /// Whether to stop.
    pub fn is_cancelled(&self) -> bool {
        self.shared.flag.load(Ordering::Acquire)
    }

    /// What to do at the moment of the cancel, for a call that blocks; done at once if that moment
    /// has passed. The next one replaces it: a thread blocks in one call at a time.
    pub fn on_cancel(&self, interrupt: impl FnOnce() + Send + 'static) {
        let mut slot = lock(&self.shared.interrupt);
        if self.is_cancelled() {
            drop(slot);
            interrupt();
        } else {
            *slot = Some(Box::new(interrupt));
        }
    }

    /// Waits for so long, or until the cancel.
    pub fn wait(&self, pause: Duration) {
        let end = Instant::now() + pause;
        let mut guard = lock(&self.shared.interrupt);
        while !self.is_cancelled() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(guard, left);
            guard = unpoisoned(waited).0;
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_cancel_and_the_interrupt_is_called_once() {
        let cancel = Cancel::new();
        let (called, calls) = std::sync::mpsc::channel();
        let second = called.clone();
        cancel.on_cancel(move || called.send(1).unwrap());
        let other = cancel.clone();
        let thread = std::thread::spawn(move || other.wait(Duration::from_secs(3600)));
        cancel.cancel();
        thread.join().unwrap();
        cancel.on_cancel(move || second.send(2).unwrap());
        assert_eq!(calls.iter().collect::<Vec<_>>(), [1, 2]);
    }
}
