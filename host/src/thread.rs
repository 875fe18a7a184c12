//! A thread that ends with its owner.

use std::thread::JoinHandle;

use tracing::error;

/// Joins a thread when dropped. Whoever drops it must have told the thread to end: the drop waits.
#[derive(Debug)]
pub struct JoinOnDrop {
    /// What the thread is, for the log.
    name: &'static str,
    thread: Option<JoinHandle<()>>,
}

impl JoinOnDrop {
    /// `name` is how a log line about the thread begins, such as "the auction".
    pub fn new(name: &'static str, thread: JoinHandle<()>) -> JoinOnDrop {
        JoinOnDrop { name, thread: Some(thread) }
    }
}

impl Drop for JoinOnDrop {
    fn drop(&mut self) {
        // The thread itself may drop its owner's last handle: it cannot wait for its own end.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            error!("{} has panicked", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_drop_waits_for_the_thread_and_outlives_its_panic() {
        let (gate, opened) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _closed = opened.recv();
            done.send(()).unwrap();
        });
        let owner = JoinOnDrop::new("a thread of a test", thread);
        drop(gate);
        drop(owner);
        assert!(is_done.try_recv().is_ok(), "the drop came first");
        drop(JoinOnDrop::new("a test", std::thread::spawn(|| panic!("as it should"))));
    }

    #[test]
    fn a_thread_may_drop_its_own_owner() {
        let (give, given) = mpsc::channel::<JoinOnDrop>();
        let (done, is_done) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            drop(given.recv().unwrap());
            done.send(()).unwrap();
        });
        give.send(JoinOnDrop::new("a thread of a test", thread)).unwrap();
        is_done.recv().unwrap();
    }
}
