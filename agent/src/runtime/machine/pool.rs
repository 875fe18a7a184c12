//! Threads for what blocks: made when they are needed, up to a number, and gone when idle.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::error;

/// How long a thread waits for more.
const IDLE: Duration = Duration::from_secs(10);
/// Nothing that we do goes deep.
const STACK_BYTES: usize = 512 << 10;

type Call = Box<dyn FnOnce() + Send>;

/// A bounded number of threads. What waits for one is bounded by what the executor has under way:
/// a few deeds for each container.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    more: Condvar,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).field("most", &self.most).finish()
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Call>,
    threads: usize,
    idle: usize,
}

impl Pool {
    /// At most so many threads of this name.
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        let (state, more) = (Mutex::default(), Condvar::new());
        Pool(Arc::new(Inner { name, most, state, more }))
    }

    /// Has a thread do this, now or when one is free.
    pub(crate) fn run(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        state.waiting.push_back(Box::new(call));
        if state.idle >= state.waiting.len() || state.threads >= self.0.most {
            drop(state);
            self.0.more.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let inner = Arc::clone(&self.0);
        let builder =
            std::thread::Builder::new().name(self.0.name.to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = builder.spawn(move || inner.work()) {
            self.0.lock().threads -= 1;
            // Those that are there will come to it. With none at all the machine is out of
            // threads, and the next call tries again.
            error!(%error, pool = self.0.name, "cannot start a thread");
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(call) = state.waiting.pop_front() {
                drop(state);
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
                if done.is_err() {
                    error!(pool = self.name, "a call has panicked");
                }
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.more.wait_timeout(state, IDLE);
            let (back, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn calls_run_side_by_side_up_to_the_number_and_all_of_them() {
        let pool = Pool::new("test", 3);
        let (done, hear) = channel();
        let (arrived, hear_arrived) = channel();
        let gate = Arc::new(std::sync::Barrier::new(4));
        for _ in 0..3 {
            let (gate, arrived, done) = (Arc::clone(&gate), arrived.clone(), done.clone());
            pool.run(move || {
                arrived.send(()).unwrap();
                gate.wait();
                done.send(0).unwrap();
            });
        }
        for nth in 1..=20 {
            let done = done.clone();
            pool.run(move || done.send(nth).unwrap());
        }
        pool.run(|| panic!("one that panics takes no other with it"));
        for _ in 0..3 {
            hear_arrived.recv_timeout(PATIENCE).expect("three at a time");
        }
        assert!(hear.try_recv().is_err(), "a fourth ran beside three");
        gate.wait();
        let mut heard: Vec<i32> = (0..23).map(|_| hear.recv_timeout(PATIENCE).unwrap()).collect();
        heard.sort_unstable();
        assert_eq!(heard[3..], (1..=20).collect::<Vec<_>>());
        assert!(pool.0.lock().threads <= 3);
    }
}
