//! The descriptors of this process's locks, so that a forked child closes its copies of them.
//!
//! *Owns*: the table, and what the handlers of `fork` do with it. *May not touch*: taking locks
//! (`lock.rs`).
//!
//! The lock of an open file description lives until its last descriptor is closed, in any process:
//! a child would keep the lock of a parent that has died. So before `fork` returns in the child,
//! each of these descriptor numbers is given to something harmless. The number stays in use, so
//! that dropping the lock in the child closes no other file.
//!
//! A fork on another thread between opening a lock file and noting its descriptor here would be
//! missed: [`while_no_fork`] drops such an attempt and repeats it.
//!
//! Only atomics and system calls: a child has no other threads, and must not wait for locks that
//! they held.

use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys;

const CHUNK_ENTRIES: usize = 64;

/// Descriptor numbers plus one; 0 is a free entry.
struct Chunk {
    entries: [AtomicI32; CHUNK_ENTRIES],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        Self {
            entries: [const { AtomicI32::new(0) }; CHUNK_ENTRIES],
            next: AtomicPtr::new(null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: null, or a chunk that was leaked when it was linked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The next chunk, made if there is none. It is never freed: a handler may be walking the
    /// chain.
    fn next_or_new(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let made = Box::into_raw(Box::new(Self::new()));
        match self.next.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: made above, and leaked by being linked.
            Ok(_) => unsafe { &*made },
            Err(others) => {
                // SAFETY: made above and not linked, so still ours alone.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: a linked chunk, hence leaked.
                unsafe { &*others }
            }
        }
    }
}

static FIRST: Chunk = Chunk::new();
/// How many forks have begun, and how many of them have ended in the parent.
static FORKS_BEGUN: AtomicU64 = AtomicU64::new(0);
static FORKS_ENDED: AtomicU64 = AtomicU64::new(0);

/// A process that was made by a raw `clone` while another thread forked would wait forever for the
/// end of that fork.
const FORK_TAKES_AT_MOST: Duration = Duration::from_secs(10);

/// The place of one descriptor in the table.
#[derive(Debug)]
pub(crate) struct Entry(&'static AtomicI32);

impl Entry {
    /// Notes a descriptor.
    pub(crate) fn of(descriptor: RawFd) -> Self {
        Self::in_table(&FIRST, descriptor)
    }

    fn in_table(first: &'static Chunk, descriptor: RawFd) -> Self {
        let mut chunk = first;
        loop {
            let is_taken = |entry: &&AtomicI32| {
                entry
                    .compare_exchange(0, descriptor + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            };
            if let Some(entry) = chunk.entries.iter().find(is_taken) {
                return Self(entry);
            }
            chunk = chunk.next_or_new();
        }
    }

    /// Removes it. Call this before the descriptor is closed: after that its number may belong to
    /// another file.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Calls `attempt` until no fork was in progress while it ran, for ten seconds at most; drops the
/// results of earlier attempts.
pub(crate) fn while_no_fork<T>(mut attempt: impl FnMut() -> T) -> T {
    let until = Instant::now() + FORK_TAKES_AT_MOST;
    loop {
        // In this order: if both are equal, no fork was in progress at the second load.
        let ended = FORKS_ENDED.load(Ordering::SeqCst);
        let begun = FORKS_BEGUN.load(Ordering::SeqCst);
        let is_late = Instant::now() >= until;
        if begun != ended && !is_late {
            std::thread::yield_now();
            continue;
        }
        let answer = attempt();
        if is_late || FORKS_BEGUN.load(Ordering::SeqCst) == begun {
            return answer;
        }
    }
}

pub(crate) fn before_fork() {
    FORKS_BEGUN.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn after_fork() {
    FORKS_ENDED.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn let_go_in_child() {
    // Forks of other threads that were in progress do not exist in the child.
    FORKS_BEGUN.store(0, Ordering::SeqCst);
    FORKS_ENDED.store(0, Ordering::SeqCst);
    let mut chunk = Some(&FIRST);
    while let Some(here) = chunk {
        for entry in &here.entries {
            let number = entry.swap(0, Ordering::AcqRel);
            if number > 0 {
                // SAFETY: the number is that of a lock which this process copied from its parent;
                // its owner closes it at most once more, when it means something harmless.
                unsafe { sys::replace(number - 1) };
            }
        }
        chunk = here.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_grows_and_uses_its_entries_again() {
        // Not the table of the process: other tests note their locks in that one meanwhile.
        static OWN: Chunk = Chunk::new();
        let noted = || (0..1000).map(|number| Entry::in_table(&OWN, number)).collect::<Vec<_>>();
        let places = |noted: &[Entry]| {
            let place = |entry: &Entry| std::ptr::from_ref(entry.0) as usize;
            noted.iter().map(place).collect::<std::collections::BTreeSet<_>>()
        };
        let first = noted();
        assert_eq!(places(&first).len(), 1000);
        first.iter().for_each(Entry::forget);
        assert_eq!(places(&noted()), places(&first));
    }

    #[test]
    fn an_attempt_beside_a_fork_is_made_again() {
        let mut attempts = 0;
        let answer = while_no_fork(|| {
            attempts += 1;
            if attempts < 3 {
                before_fork();
                after_fork();
            }
            attempts
        });
        assert!(answer >= 3, "{answer}");
    }
}
