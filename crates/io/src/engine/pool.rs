//! A pool of threads that make blocking calls.
//!
//! *Owns*: the threads and the queue between them and the caller. *May not touch*: how a request
//! becomes calls; that is [`super::caller::carry_out`]. No lock is held across a call.
//!
//! If more requests are in flight than there are threads, a caller that waits for a completion
//! carries out a request that no thread has begun. Asleep, it would have to be woken; and if there
//! is one thread for each other processor, its own processor would be idle.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::blocking::BlockingFile;
use super::caller::carry_out;
use crate::begun::start_thread;
use crate::error::{Error, MORE_THREADS, Result};
use crate::seam::{Completion, Engine, Request, ThenOn};

/// A pool of threads as an engine.
#[derive(Debug)]
pub(crate) struct Pool<F: BlockingFile> {
    shared: Arc<Shared<F>>,
    threads: Vec<JoinHandle<()>>,
    work: Work<F>,
    in_flight: usize,
}

/// How a worker carries out a request. It is a parameter only so that a test can panic in it.
type Work<F> = fn(Request<F>) -> Completion;

#[derive(Debug)]
struct Shared<F> {
    queues: Mutex<Queues<F>>,
    /// There is a request, or the pool closes.
    has_request: Condvar,
    /// There is a completion.
    has_completion: Condvar,
}

#[derive(Debug)]
struct Queues<F> {
    requests: VecDeque<Request<F>>,
    completions: VecDeque<Completion>,
    is_closing: bool,
}

impl<F: BlockingFile> Pool<F> {
    /// `depth` threads.
    pub(crate) fn open(depth: usize) -> Result<Self> {
        Self::open_with(depth, |request| carry_out(request, ThenOn::OwnThread))
    }

    fn open_with(depth: usize, work: Work<F>) -> Result<Self> {
        let mut pool = Self {
            shared: Arc::new(Shared::new()),
            threads: Vec::with_capacity(depth),
            work,
            in_flight: 0,
        };
        for number in 0..depth {
            let name = format!("inkstone-pool-{number}");
            let shared = Arc::clone(&pool.shared);
            // On failure `pool` is dropped, which ends the threads that were started.
            let thread = start_thread(&name, move || shared.serve(work)).map_err(|source| {
                Error::new("start thread", &name, source)
                    .advise(format!("a smaller depth needs fewer threads; {MORE_THREADS}"))
            })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }
}

impl<F: BlockingFile> Shared<F> {
    fn new() -> Self {
        let queues =
            Queues { requests: VecDeque::new(), completions: VecDeque::new(), is_closing: false };
        Self {
            queues: Mutex::new(queues),
            has_request: Condvar::new(),
            has_completion: Condvar::new(),
        }
    }

    /// No code can panic while the lock is held, so a poisoned lock guards sound queues.
    fn lock(&self) -> MutexGuard<'_, Queues<F>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's loop: requests until the pool closes *and* none is left.
    fn serve(&self, work: Work<F>) {
        while let Some(request) = self.next_request() {
            let completion = carry_out_whatever_happens(work, request);
            self.lock().completions.push_back(completion);
            self.has_completion.notify_one();
        }
    }

    fn next_request(&self) -> Option<Request<F>> {
        let mut queues = self.lock();
        loop {
            if let Some(request) = queues.requests.pop_front() {
                return Some(request);
            }
            if queues.is_closing {
                return None;
            }
            queues = self.has_request.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for a completion; with `helps` it may instead carry out a request that no thread has
    /// begun.
    fn next_completion(&self, helps: Option<Work<F>>) -> Completion {
        let mut queues = self.lock();
        loop {
            if let Some(completion) = queues.completions.pop_front() {
                return completion;
            }
            if let Some(work) = helps
                && let Some(request) = queues.requests.pop_front()
            {
                drop(queues);
                return carry_out_whatever_happens(work, request);
            }
            queues = self.has_completion.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Turns a panic into the request's error: the caller waits for a completion, which a dead thread
/// would never return. The buffer is lost with the stack that held it.
fn carry_out_whatever_happens<F: BlockingFile>(work: Work<F>, request: Request<F>) -> Completion {
    let token = request.token;
    let file = Arc::clone(&request.file);
    // Unwind safety: the panic can leave half done only the request, which no code sees again, and
    // the file, whose locks recover from a panicked holder.
    catch_unwind(AssertUnwindSafe(|| work(request))).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let source = io::Error::other(format!("a thread of the pool panicked: {text}"));
        Completion {
            token,
            buffer: None,
            result: Err(Error::new("carry out", file.path(), source)),
        }
    })
}

impl<F: BlockingFile> Engine for Pool<F> {
    type File = F;

    fn submit(&mut self, request: Request<F>) -> Result<()> {
        self.shared.lock().requests.push_back(request);
        self.shared.has_request.notify_one();
        self.in_flight += 1;
        Ok(())
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let helps = (self.in_flight > self.threads.len()).then_some(self.work);
        let completion = self.shared.next_completion(helps);
        self.in_flight -= 1;
        Ok(Some(completion))
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl<F: BlockingFile> Drop for Pool<F> {
    /// Carries out all that was taken, then ends the threads.
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.has_request.notify_all();
        for thread in self.threads.drain(..) {
            // A worker catches every panic of its work; there is nothing left to report here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::buffer::AlignedBuf;
    use crate::file::OsFile;
    use crate::seam::OpenFile;
    use crate::seam::{Operation, Persist};

    fn panicking(request: Request<OsFile>) -> Completion {
        assert_ne!(request.token % 2, 1, "odd tokens panic here");
        carry_out(request, ThenOn::OwnThread)
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_thread_lives_on() {
        let directory = tempfile::tempdir().unwrap();
        let file =
            Arc::new(OsFile::open(&directory.path().join("f"), &OpenFile::new_file()).unwrap());
        let mut pool = Pool::open_with(1, panicking).unwrap();
        for token in 0..10 {
            let buffer = AlignedBuf::zeroed(4096);
            let operation =
                Operation::Write { buffer, len: 4096, offset: 0, persist: Persist::Later };
            pool.submit(Request { token, file: Arc::clone(&file), operation }).unwrap();
        }
        let mut failed = 0;
        while let Some(completion) = pool.complete().unwrap() {
            match completion.result {
                Ok(bytes) => assert_eq!((bytes, completion.token % 2), (4096, 0)),
                Err(error) => {
                    assert!(error.to_string().contains("odd tokens panic here"), "{error}");
                    assert_eq!(completion.token % 2, 1);
                    failed += 1;
                }
            }
        }
        assert_eq!((failed, pool.in_flight()), (5, 0));
    }

    /// Returns the name of the thread that carried it out.
    fn name(request: Request<OsFile>) -> Completion {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        Completion {
            token: request.token,
            buffer: None,
            result: Err(Error::invalid("name", name, "")),
        }
    }

    #[test]
    fn who_waits_helps_only_where_threads_are_fewer_than_requests() {
        /// Each takes until both were begun.
        static BEGUN: AtomicU64 = AtomicU64::new(0);
        fn paired(request: Request<OsFile>) -> Completion {
            let until = Instant::now() + Duration::from_secs(30);
            BEGUN.fetch_add(1, Ordering::SeqCst);
            while BEGUN.load(Ordering::SeqCst) < 2 && Instant::now() < until {
                std::thread::yield_now();
            }
            name(request)
        }
        let directory = tempfile::tempdir().unwrap();
        let file =
            Arc::new(OsFile::open(&directory.path().join("f"), &OpenFile::new_file()).unwrap());
        let submit = |pool: &mut Pool<OsFile>, token| {
            let operation = Operation::Sync(crate::seam::SyncKind::All);
            pool.submit(Request { token, file: Arc::clone(&file), operation }).unwrap();
        };
        let by = |completion: Completion| completion.result.unwrap_err().path().to_owned();
        // There is one thread: the caller must begin the other.
        let mut pool = Pool::open_with(1, paired).unwrap();
        (1..=2).for_each(|token| submit(&mut pool, token));
        let who = [pool.complete().unwrap().unwrap(), pool.complete().unwrap().unwrap()].map(by);
        assert!(pool.complete().unwrap().is_none());
        let helped = who.iter().filter(|name| !name.starts_with("inkstone-pool-0")).count();
        assert_eq!(helped, 1, "{who:?}");
        // There are as many threads as requests: the threads do all of the work.
        let mut pool = Pool::open_with(2, name).unwrap();
        for token in 0..200 {
            (0..2).for_each(|more| submit(&mut pool, 2 * token + more));
            for _ in 0..2 {
                let who = by(pool.complete().unwrap().unwrap());
                assert!(who.to_str().unwrap().starts_with("inkstone-pool-"), "{who:?}");
            }
        }
    }
}
