//! What a writer tells its reader: how many records are there.
//!
//! *Owns*: that number, the bell for the reader. *May not touch*: raft logs.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Told by the thread that appends, read by one that follows.
#[derive(Debug, Default)]
pub struct News {
    count: AtomicU64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
    is_over: AtomicBool,
}

impl News {
    /// `from`: how many records there are already.
    pub fn new(from: u64) -> Self {
        Self { count: AtomicU64::new(from), ..Self::default() }
    }

    /// All records below `count` can be read.
    #[inline]
    pub fn are_there(&self, count: u64) {
        // One of both sees the other: the reader that begins to wait, or this thread.
        self.count.store(count, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    fn ring(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }

    /// How many records can be read.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until there are more records than `seen`, everything is over, or so long.
    pub fn wait(&self, seen: u64, most: Duration) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.count() <= seen && !self.is_over.load(Ordering::SeqCst) {
            drop(self.bell.wait_timeout(lock, most));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// No more records come.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether all has been seen that there will be.
    pub fn is_all(&self, seen: u64) -> bool {
        self.is_over.load(Ordering::SeqCst) && seen >= self.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_that_waits_misses_nothing() {
        let news = News::new(0);
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let mut seen = 0;
                while !news.is_all(seen) {
                    // Without a bell this would take a thousand hours.
                    news.wait(seen, Duration::from_secs(3600));
                    seen = news.count();
                }
                seen
            });
            (0..10_000).for_each(|number| news.are_there(number + 1));
            news.end();
            assert_eq!(follower.join().expect("an end"), 10_000);
        });
    }
}
