//! Locks without poison. What our locks guard is whole after each statement, so a thread that
//! panicked while it held one left nothing half done; the panic itself is logged where it ended.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// The value of any other operation that reports poison: `into_inner`, a wait, a read or write lock.
pub fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_one_holder_locks_nobody_out() {
        let mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guard = mutex.lock();
                panic!("while it is locked");
            });
            holder.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        *lock(&mutex) += 1;
        assert_eq!(unpoisoned(mutex.into_inner()), 2);
    }
}
