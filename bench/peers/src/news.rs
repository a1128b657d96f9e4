//! What writers tell those that follow them: how many records of each thread are there.
//!
//! *Owns*: these numbers, the bell for engines whose readers cannot wait by themselves. *May not
//! touch*: engines.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Told by the threads of a load, read by its followers.
#[derive(Debug)]
pub struct News {
    threads: Vec<Count>,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
    is_over: AtomicBool,
}

/// How many records of one thread can be read; its line in the cache is its own.
#[derive(Debug)]
#[repr(align(128))]
struct Count(AtomicU64);

impl News {
    /// `from`: how many records of each thread there are already.
    pub fn new(from: &[u64]) -> Self {
        Self {
            threads: from.iter().map(|&count| Count(AtomicU64::new(count))).collect(),
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            bell: Condvar::new(),
            is_over: AtomicBool::new(false),
        }
    }

    /// All records of a thread below `count` can be read.
    #[inline]
    pub fn are_there(&self, thread: usize, count: u64) {
        // One of both sees the other: the follower that begins to wait, or this thread.
        self.threads[thread].0.store(count, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    fn ring(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }

    /// How many records of a thread can be read.
    #[inline]
    pub fn count(&self, thread: usize) -> u64 {
        self.threads[thread].0.load(Ordering::SeqCst)
    }

    /// Waits until a thread has more records than `seen` says, everything is over, or so long.
    pub fn wait(&self, seen: &[u64], most: Duration) {
        let is_new = || seen.iter().enumerate().any(|(thread, &seen)| self.count(thread) > seen);
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if !is_new() && !self.is_over.load(Ordering::SeqCst) {
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
    pub fn is_all(&self, seen: &[u64]) -> bool {
        self.is_over.load(Ordering::SeqCst)
            && seen.iter().enumerate().all(|(thread, &seen)| seen >= self.count(thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_that_waits_misses_nothing() {
        let news = News::new(&[0]);
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let mut seen = [0];
                while !news.is_all(&seen) {
                    // Without a bell this would take a thousand hours.
                    news.wait(&seen, Duration::from_secs(3600));
                    seen = [news.count(0)];
                }
                seen[0]
            });
            (0..10_000).for_each(|number| news.are_there(0, number + 1));
            news.end();
            assert_eq!(follower.join().expect("an end"), 10_000);
        });
    }
}
