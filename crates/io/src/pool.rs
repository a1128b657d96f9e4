//! A small pool of threads that make blocking calls: reads ahead of a log.
//!
//! *Owns*: the threads, and the queue between them and the caller. *May not touch*: what a job
//! does. No lock is held across a call.
//!
//! If more jobs are in flight than there are threads, a caller that waits carries out a job that no
//! thread has begun. Asleep, it would have to be woken; and if there is one thread for each other
//! processor, its own processor would be idle. A pool without threads leaves every job to the
//! caller.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::begun::start_thread;
use crate::error::{Error, MORE_THREADS, Result};
use crate::fork::LeftInChild;

/// What a thread of a [`Pool`] does.
pub trait Job: Send + 'static {
    /// Does it, once; returns the bytes transferred.
    ///
    /// When a job begins, every job that was submitted before has begun, on another thread, or is
    /// done. So a job may wait for what an earlier one passes on.
    ///
    /// # Errors
    /// What the system answers.
    fn carry_out(&mut self) -> Result<usize>;

    /// The file it works on, for messages.
    fn path(&self) -> &Path;
}

/// A job that was done, and its result.
pub type Done<J> = (J, Result<usize>);

/// A pool of threads. A forked child does not have them, and gets an error
/// ([`Error::is_forked`]).
#[derive(Debug)]
pub struct Pool<J: Job> {
    threads: LeftInChild<Threads<J>>,
    in_flight: usize,
}

#[derive(Debug)]
struct Threads<J: Job> {
    shared: Arc<Shared<J>>,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<J> {
    queues: Mutex<Queues<J>>,
    /// There is a job, or the pool closes.
    has_job: Condvar,
    has_done: Condvar,
}

#[derive(Debug)]
struct Queues<J> {
    jobs: VecDeque<J>,
    done: VecDeque<Done<J>>,
    is_closing: bool,
}

impl<J: Job> Pool<J> {
    /// A pool of so many threads; of none, where the caller's thread does all of it.
    ///
    /// # Errors
    /// A thread cannot be started; the message names the remedy. There is no memory for the mark of
    /// this process.
    pub fn open(threads: usize) -> Result<Self> {
        let queues = Queues { jobs: VecDeque::new(), done: VecDeque::new(), is_closing: false };
        let shared = Shared {
            queues: Mutex::new(queues),
            has_job: Condvar::new(),
            has_done: Condvar::new(),
        };
        let handles = Vec::with_capacity(threads);
        let own = Threads { shared: Arc::new(shared), handles };
        let mut pool = Self { threads: LeftInChild::new(own)?, in_flight: 0 };
        for number in 0..threads {
            let name = format!("inkstone-pool-{number}");
            let shared = Arc::clone(&pool.threads.shared);
            // On failure `pool` is dropped, which ends the threads that were started.
            let thread = start_thread(&name, move || shared.serve()).map_err(|source| {
                Error::new("start thread", &name, source)
                    .advise(format!("a smaller depth needs fewer threads; {MORE_THREADS}"))
            })?;
            pool.threads.handles.push(thread);
        }
        Ok(pool)
    }

    /// Takes a job.
    ///
    /// # Errors
    /// In a forked child, which does not have the threads.
    pub fn submit(&mut self, job: J) -> Result<()> {
        self.check_not_forked("submit to")?;
        self.threads.shared.lock().jobs.push_back(job);
        self.threads.shared.has_job.notify_one();
        self.in_flight += 1;
        Ok(())
    }

    /// Waits for the next job that is done; `None` when none is in flight.
    ///
    /// # Errors
    /// As [`Pool::submit`].
    pub fn complete(&mut self) -> Result<Option<Done<J>>> {
        self.check_not_forked("wait for")?;
        if self.in_flight == 0 {
            return Ok(None);
        }
        let helps = self.in_flight > self.threads.handles.len();
        let done = self.threads.shared.next_done(helps);
        self.in_flight -= 1;
        Ok(Some(done))
    }

    /// How many jobs were taken and are not completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn check_not_forked(&self, operation: &'static str) -> Result<()> {
        if self.threads.is_child() && !self.threads.handles.is_empty() {
            return Err(Error::forked(operation, "a pool of threads"));
        }
        Ok(())
    }
}

impl<J: Job> Shared<J> {
    /// No code can panic while the lock is held, so a poisoned lock guards sound queues.
    fn lock(&self) -> MutexGuard<'_, Queues<J>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's loop: jobs until the pool closes *and* none is left.
    fn serve(&self) {
        while let Some(job) = self.next_job() {
            let done = carry_out_whatever_happens(job);
            self.lock().done.push_back(done);
            self.has_done.notify_one();
        }
    }

    fn next_job(&self) -> Option<J> {
        let mut queues = self.lock();
        loop {
            if let Some(job) = queues.jobs.pop_front() {
                return Some(job);
            }
            if queues.is_closing {
                return None;
            }
            queues = self.has_job.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for a job that is done; with `helps` it may instead carry out one that no thread has
    /// begun.
    fn next_done(&self, helps: bool) -> Done<J> {
        let mut queues = self.lock();
        loop {
            if let Some(done) = queues.done.pop_front() {
                return done;
            }
            if helps && let Some(job) = queues.jobs.pop_front() {
                drop(queues);
                return carry_out_whatever_happens(job);
            }
            queues = self.has_done.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Turns a panic into the job's error: the caller waits for a job, which a dead thread would never
/// return.
fn carry_out_whatever_happens<J: Job>(mut job: J) -> Done<J> {
    // Unwind safety: the panic can leave half done only the job, whose result says so, and its
    // file, whose locks recover from a panicked holder.
    let done = catch_unwind(AssertUnwindSafe(|| job.carry_out())).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let source = io::Error::other(format!("a thread of the pool panicked: {text}"));
        Err(Error::new("carry out", job.path(), source))
    });
    (job, done)
}

impl<J: Job> Drop for Threads<J> {
    /// Carries out all that was taken, then ends the threads.
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.has_job.notify_all();
        if self.handles.is_empty() {
            self.shared.serve();
        }
        for thread in self.handles.drain(..) {
            // A thread catches every panic of its jobs; there is nothing left to report here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    struct Panicking(u64);

    impl Job for Panicking {
        fn carry_out(&mut self) -> Result<usize> {
            assert_ne!(self.0 % 2, 1, "odd ones panic here");
            Ok(4096)
        }

        fn path(&self) -> &Path {
            Path::new("f")
        }
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_thread_lives_on() {
        for threads in [0, 1] {
            let mut pool = Pool::open(threads).unwrap();
            (0..10).for_each(|number| pool.submit(Panicking(number)).unwrap());
            let mut failed = 0;
            while let Some((job, result)) = pool.complete().unwrap() {
                match result {
                    Ok(bytes) => assert_eq!((bytes, job.0 % 2), (4096, 0)),
                    Err(error) => {
                        assert!(error.to_string().contains("odd ones panic here"), "{error}");
                        assert_eq!(job.0 % 2, 1);
                        failed += 1;
                    }
                }
            }
            assert_eq!((failed, pool.in_flight()), (5, 0));
        }
    }

    /// Notes the name of the thread that carried it out.
    #[derive(Default)]
    struct Named {
        is_paired: bool,
        by: String,
    }

    /// Each paired one takes until both were begun.
    static BEGUN: AtomicU64 = AtomicU64::new(0);

    impl Job for Named {
        fn carry_out(&mut self) -> Result<usize> {
            let until = Instant::now() + Duration::from_secs(30);
            if self.is_paired {
                BEGUN.fetch_add(1, Ordering::SeqCst);
                while BEGUN.load(Ordering::SeqCst) < 2 && Instant::now() < until {
                    std::thread::yield_now();
                }
            }
            self.by = std::thread::current().name().unwrap_or_default().to_owned();
            Ok(0)
        }

        fn path(&self) -> &Path {
            Path::new("f")
        }
    }

    #[test]
    fn who_waits_helps_only_where_threads_are_fewer_than_jobs() {
        let next = |pool: &mut Pool<Named>| pool.complete().unwrap().unwrap().0.by;
        // There is one thread: the caller must begin the other.
        let mut pool = Pool::open(1).unwrap();
        (0..2).for_each(|_| pool.submit(Named { is_paired: true, ..Named::default() }).unwrap());
        let who = [next(&mut pool), next(&mut pool)];
        assert!(pool.complete().unwrap().is_none());
        let helped = who.iter().filter(|name| !name.starts_with("inkstone-pool-0")).count();
        assert_eq!(helped, 1, "{who:?}");
        // There are as many threads as jobs: the threads do all of the work.
        let mut pool = Pool::open(2).unwrap();
        for _ in 0..200 {
            (0..2).for_each(|_| pool.submit(Named::default()).unwrap());
            for _ in 0..2 {
                let who = next(&mut pool);
                assert!(who.starts_with("inkstone-pool-"), "{who:?}");
            }
        }
    }

    #[test]
    fn what_was_taken_is_done_also_if_nobody_waits_for_it() {
        struct Counted(Arc<AtomicU64>);
        impl Job for Counted {
            fn carry_out(&mut self) -> Result<usize> {
                Ok(self.0.fetch_add(1, Ordering::SeqCst) as usize)
            }

            fn path(&self) -> &Path {
                Path::new("f")
            }
        }
        for threads in [0, 2] {
            let count = Arc::new(AtomicU64::new(0));
            let mut pool = Pool::open(threads).unwrap();
            (0..10).for_each(|_| pool.submit(Counted(Arc::clone(&count))).unwrap());
            drop(pool);
            assert_eq!(count.load(Ordering::SeqCst), 10);
        }
    }
}
