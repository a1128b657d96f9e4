//! What writers tell those that follow them: how many records of each thread are there, and when
//! each append began.
//!
//! *Owns*: these numbers, the bell for engines whose readers cannot wait by themselves. *May not
//! touch*: engines.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Beginnings that are kept of each thread. A follower that is further behind has no times.
const KEPT: u64 = 1 << 14;

/// Told by the threads of a load, read by its followers.
#[derive(Debug)]
pub struct News {
    threads: Vec<Thread>,
    /// The time is kept of each record whose number is a multiple of this.
    every: u64,
    /// Whether acknowledgements are kept too, for a follower in another process.
    keeps_ends: bool,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    bell: Condvar,
    is_over: AtomicBool,
}

/// Of one thread; its line in the cache is its own.
#[derive(Debug)]
#[repr(align(128))]
struct Thread {
    /// How many records can be read.
    count: AtomicU64,
    /// When the append of a record began, by `CLOCK_MONOTONIC`, of the last ones.
    begins: Box<[AtomicU64]>,
    /// Record and time of its acknowledgement.
    ends: Mutex<Vec<(u64, u64)>>,
}

impl News {
    /// `from`: how many records of each thread there are already.
    pub fn new(from: &[u64], every: u64, keeps_ends: bool) -> Self {
        let thread = |&count: &u64| Thread {
            count: AtomicU64::new(count),
            begins: (0..KEPT / every).map(|_| AtomicU64::new(0)).collect(),
            ends: Mutex::new(Vec::new()),
        };
        Self {
            threads: from.iter().map(thread).collect(),
            every,
            keeps_ends,
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            bell: Condvar::new(),
            is_over: AtomicBool::new(false),
        }
    }

    fn slot(&self, thread: usize, number: u64) -> &AtomicU64 {
        let begins = &self.threads[thread].begins;
        &begins[(number / self.every) as usize % begins.len()]
    }

    /// The append of this record begins.
    #[inline]
    pub fn begins(&self, thread: usize, number: u64, now_ns: u64) {
        if number.is_multiple_of(self.every) {
            self.slot(thread, number).store(now_ns, Ordering::Relaxed);
        }
    }

    /// All records of a thread below `count` can be read; the last one since `now_ns`.
    #[inline]
    pub fn are_there(&self, thread: usize, count: u64, now_ns: u64) {
        let of = &self.threads[thread];
        if self.keeps_ends && (count - 1).is_multiple_of(self.every) {
            of.ends.lock().unwrap_or_else(PoisonError::into_inner).push((count - 1, now_ns));
        }
        // One of both sees the other: the follower that begins to wait, or this thread.
        of.count.store(count, Ordering::SeqCst);
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
        self.threads[thread].count.load(Ordering::SeqCst)
    }

    /// Whether the time of this record is kept.
    #[inline]
    pub fn is_timed(&self, number: u64) -> bool {
        number.is_multiple_of(self.every)
    }

    /// When the append of such a record began, if that is still known.
    pub fn began_ns(&self, thread: usize, number: u64) -> Option<u64> {
        let at_ns = self.slot(thread, number).load(Ordering::Acquire);
        // A writer that has come so far may have begun to use the place again.
        (self.count(thread) < number + KEPT / 2).then_some(at_ns)
    }

    /// What was kept of acknowledgements: thread, record, time.
    pub fn ends(&self) -> Vec<(u32, u64, u64)> {
        let of = |(thread, one): (usize, &Thread)| {
            let ends =
                std::mem::take(&mut *one.ends.lock().unwrap_or_else(PoisonError::into_inner));
            ends.into_iter().map(move |(number, at_ns)| (thread as u32, number, at_ns))
        };
        self.threads.iter().enumerate().flat_map(of).collect()
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
    fn times_are_those_of_their_record_or_none() {
        let news = News::new(&[0, 5], 4, true);
        for number in 5..100_000 {
            news.begins(1, number, 10 * number);
            news.are_there(1, number + 1, 10 * number + 1);
        }
        assert_eq!(news.began_ns(1, 99_996), Some(999_960));
        assert_eq!(news.began_ns(1, 50_000), None, "its place was used again");
        assert!(news.is_timed(8) && !news.is_timed(9));
        let ends = news.ends();
        assert_eq!((ends[0], ends.len()), ((1, 8, 81), 24_998));
        assert!(!news.is_all(&[0, 100_000]), "more may come");
        news.end();
        assert!(news.is_all(&[0, 100_000]) && !news.is_all(&[0, 99_999]));
    }

    #[test]
    fn a_follower_that_waits_misses_nothing() {
        let news = News::new(&[0], 1, false);
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
            for number in 0..10_000 {
                news.begins(0, number, 1);
                news.are_there(0, number + 1, 2);
            }
            news.end();
            assert_eq!(follower.join().expect("an end"), 10_000);
        });
    }
}
