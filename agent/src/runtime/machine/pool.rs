//! Threads for what blocks: made when they are needed, up to a number, and gone when idle, or when all
//! is done that they were made for.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tracing::{error, warn};
use volvox_host::sync::{lock, unpoisoned};

/// How long a thread waits for more.
const IDLE: Duration = Duration::from_secs(10);
/// Nothing that we do goes deep.
const STACK_BYTES: usize = 512 << 10;

type PooledCall = Box<dyn FnOnce() + Send>;

/// A bounded number of threads. What waits for one is bounded by what the executor has under way:
/// a few deeds for each container.
#[derive(Debug, Clone)]
pub(crate) struct ThreadPool(Arc<PoolInner>);

struct PoolInner {
    name: &'static str,
    most: usize,
    state: Mutex<PoolState>,
    more: Condvar,
}

impl std::fmt::Debug for PoolInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).field("most", &self.most).finish()
    }
}

#[derive(Default)]
struct PoolState {
    waiting: VecDeque<PooledCall>,
    threads: usize,
    idle: usize,
}

impl ThreadPool {
    /// At most so many threads of this name.
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        let (state, more) = (Mutex::default(), Condvar::new());
        ThreadPool(Arc::new(PoolInner { name, most, state, more }))
    }

    /// Has a thread do this, now or when one is free.
    pub(crate) fn run(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.0.state);
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
            lock(&self.0.state).threads -= 1;
            // Those that are there will come to it. With none at all the machine is out of
            // threads, and the next call tries again.
            error!(%error, pool = self.0.name, "cannot start a thread");
        }
    }
}

impl PoolInner {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(call) = state.waiting.pop_front() {
                drop(state);
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
                if done.is_err() {
                    error!(pool = self.name, "a call has panicked");
                }
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let waited = self.more.wait_timeout(state, IDLE);
            let (back, waited) = unpoisoned(waited);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Does this with all of them, up to so many at a time, and waits: what came of each, or of one that
/// failed. Then no other is begun. The thread that calls works too, so that all is done even when the
/// machine has no thread to give.
pub(crate) fn side_by_side<T: Send, R: Send, E: Send>(
    name: &str,
    most: usize,
    all: Vec<T>,
    work: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let threads = most.min(all.len());
    let left = Mutex::new(all.into_iter());
    let left = || lock(&left);
    let next = || left().next();
    let work = || {
        let mut done = Vec::new();
        while let Some(it) = next() {
            done.push(work(it).inspect_err(|_| left().by_ref().for_each(drop))?);
        }
        Ok(done)
    };
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        for _ in 1..threads {
            let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
            match builder.spawn_scoped(scope, work) {
                Ok(thread) => others.push(thread),
                Err(error) => {
                    warn!(%error, name, "cannot start a thread");
                    break;
                }
            }
        }
        let mut done = vec![work()];
        let join = |it: std::thread::ScopedJoinHandle<'_, _>| {
            it.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        done.extend(others.into_iter().map(join));
        let done: Result<Vec<Vec<R>>, E> = done.into_iter().collect();
        Ok(done?.into_iter().flatten().collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn calls_run_side_by_side_up_to_the_number_and_all_of_them() {
        let pool = ThreadPool::new("test", 3);
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
        assert!(lock(&pool.0.state).threads <= 3);
    }
    #[test]
    fn one_that_hangs_holds_up_no_other() {
        let (done, hear) = channel();
        let hear = Mutex::new(hear);
        let all = side_by_side("test", 2, (0..20).collect(), |nth| {
            if nth == 0 {
                // It goes on when all others are done, and not before.
                let hear = hear.lock().unwrap();
                let heard: Vec<i32> =
                    (1..20).map(|_| hear.recv_timeout(PATIENCE).unwrap()).collect();
                assert_eq!(heard, (1..20).collect::<Vec<_>>());
            } else {
                done.send(nth).unwrap();
            }
            Ok::<i32, ()>(nth)
        });
        let mut all = all.unwrap();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn few_need_no_thread_and_after_a_failure_none_is_begun() {
        let here = std::thread::current().id();
        let threads = |count: i32| {
            side_by_side("test", 16, (0..count).collect(), |_| {
                Ok::<_, ()>(std::thread::current().id())
            })
        };
        assert_eq!(threads(0), Ok(vec![]));
        assert_eq!(threads(1), Ok(vec![here]));
        let failed = side_by_side("test", 1, (0..20).collect(), |nth| match nth {
            3 => Err(nth),
            4.. => panic!("it was begun"),
            _ => Ok(nth),
        });
        assert_eq!(failed, Err(3));
    }
}
