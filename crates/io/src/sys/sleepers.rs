//! Threads that sleep until a word changes, on macOS: a lock and a condition stand for the futex
//! (`linux.rs`), which macOS lacks.
//!
//! *Owns*: a lock and a condition. *May not touch*: the word.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The threads that sleep beside one word.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    /// Held while the word is looked at, so that a change between looking and sleeping is not
    /// missed.
    looking: Mutex<()>,
    woken: Condvar,
}

impl Sleepers {
    /// Sleeps while the word has this value, for at most `time`; true if the time is over. It may
    /// return early.
    pub(crate) fn sleep(&self, word: &AtomicU32, value: u32, time: Duration) -> bool {
        let looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if word.load(Ordering::Acquire) != value {
            return false;
        }
        let (_looking, answer) =
            self.woken.wait_timeout(looking, time).unwrap_or_else(PoisonError::into_inner);
        answer.timed_out()
    }

    /// Wakes one, after the word was changed.
    pub(crate) fn wake_one(&self, _word: &AtomicU32) {
        drop(self.looking.lock().unwrap_or_else(PoisonError::into_inner));
        self.woken.notify_one();
    }

    /// Wakes all, after the word was changed.
    pub(crate) fn wake_all(&self, _word: &AtomicU32) {
        drop(self.looking.lock().unwrap_or_else(PoisonError::into_inner));
        self.woken.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_before_the_sleep_is_not_missed() {
        let (sleepers, word) = (Sleepers::default(), AtomicU32::new(7));
        assert!(!sleepers.sleep(&word, 6, Duration::from_secs(3600)), "it has changed since");
        // A wait may end early, but not for ever.
        while !sleepers.sleep(&word, 7, Duration::from_millis(1)) {}
    }

    #[test]
    fn each_change_wakes_the_threads_that_sleep() {
        let (sleepers, word) = (&Sleepers::default(), &AtomicU32::new(0));
        let wait_for = |value| {
            while word.load(Ordering::Acquire) < value {
                let seen = word.load(Ordering::Acquire);
                if seen < value {
                    assert!(!sleepers.sleep(word, seen, Duration::from_secs(60)), "nobody woke it");
                }
            }
        };
        std::thread::scope(|scope| {
            // Two that answer each other: each wakes the other, and only it.
            for first in 0..2 {
                scope.spawn(move || {
                    for round in 0..1000 {
                        wait_for(2 * round + first);
                        word.fetch_add(1, Ordering::Release);
                        if round % 2 == 0 {
                            sleepers.wake_one(word)
                        } else {
                            sleepers.wake_all(word)
                        }
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Acquire), 2000);
    }
}
