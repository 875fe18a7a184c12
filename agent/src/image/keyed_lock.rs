//! Waiting for each other: one at a time for each name, or so many at a time whoever they are.
//!
//! The cache takes turns by key, the layer store by layer: the first works, the others wait and find
//! it done. Transfers take slots. A thread that dies gives back what it had.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use volvox_host::sync::{lock, unpoisoned};

use super::cancel::Cancel;

/// How often a waiting thread looks whether it is to stop.
const LOOK_AROUND: Duration = Duration::from_millis(50);

/// Who is at work.
#[derive(Debug, Default)]
pub struct KeyedLock {
    busy: Mutex<BTreeSet<String>>,
    freed: Condvar,
}

/// The right to work under a name, until dropped.
#[derive(Debug)]
pub struct KeyGuard<'a> {
    turns: &'a KeyedLock,
    name: String,
}

impl KeyedLock {
    /// Waits for the turn. `None`: cancelled before it came.
    pub fn take(&self, name: &str, cancel: &Cancel) -> Option<KeyGuard<'_>> {
        let mut busy = lock(&self.busy);
        while busy.contains(name) {
            if cancel.is_cancelled() {
                return None;
            }
            let waited = self.freed.wait_timeout(busy, LOOK_AROUND);
            busy = unpoisoned(waited).0;
        }
        busy.insert(name.to_owned());
        Some(KeyGuard { turns: self, name: name.to_owned() })
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        lock(&self.turns.busy).remove(&self.name);
        self.turns.freed.notify_all();
    }
}

/// So many at a time.
#[derive(Debug)]
pub struct Semaphore {
    free: Mutex<usize>,
    freed: Condvar,
}

/// The right to be one of them, until dropped.
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    slots: &'a Semaphore,
}

impl Semaphore {
    /// At least one.
    pub fn new(count: usize) -> Semaphore {
        Semaphore { free: Mutex::new(count.max(1)), freed: Condvar::new() }
    }

    /// Waits for a slot. `None`: cancelled before there was one.
    pub fn take(&self, cancel: &Cancel) -> Option<SemaphorePermit<'_>> {
        let mut free = lock(&self.free);
        while *free == 0 {
            if cancel.is_cancelled() {
                return None;
            }
            let waited = self.freed.wait_timeout(free, LOOK_AROUND);
            free = unpoisoned(waited).0;
        }
        *free -= 1;
        Some(SemaphorePermit { slots: self })
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        *lock(&self.slots.free) += 1;
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once_and_comes_back_even_from_a_panic() {
        let turns = KeyedLock::default();
        let cancelled = Cancel::new();
        cancelled.cancel();
        let first = turns.take("a", &Cancel::new()).unwrap();
        assert!(turns.take("a", &cancelled).is_none());
        assert!(turns.take("b", &cancelled).is_some());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.take("a", &Cancel::new()).is_some());
            drop(first);
            assert!(waiting.join().unwrap());
        });
        let panics = std::panic::catch_unwind(|| {
            let _turn = turns.take("a", &Cancel::new());
            panic!("at work");
        });
        assert!(panics.is_err() && turns.take("a", &cancelled).is_some());
    }

    #[test]
    fn slots_are_given_so_many_times_and_come_back() {
        let slots = Semaphore::new(2);
        let cancelled = Cancel::new();
        cancelled.cancel();
        let (first, second) = (slots.take(&cancelled), slots.take(&cancelled));
        assert!(first.is_some() && second.is_some() && slots.take(&cancelled).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| slots.take(&Cancel::new()).is_some());
            drop(first);
            assert!(waiting.join().unwrap());
        });
        assert!(slots.take(&cancelled).is_some(), "the second one is still out");
        assert!(Semaphore::new(0).take(&cancelled).is_some(), "none at all would wait for ever");
    }
}
