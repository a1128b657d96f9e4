//! The common part of io_uring and Linux AIO: requests in numbered slots, attempts submitted to the
//! kernel, their answers, completions in the order in which they were finished.
//!
//! *Owns*: the requests in flight, and so their buffers and files: memory that the kernel may still
//! read or write is not freed, not even when the engine is dropped or fails. *May not touch*: the
//! kernel; each implementation of [`Kernel`] does that.

use std::collections::VecDeque;
use std::io;

use inkstone_io::{Completion, Engine, EngineKind, Error, NamedChoice, Request, Result};

use super::progress::{CallNames, Progress, Step};
use crate::lab_file::LabFile;

/// A way of submitting attempts to the kernel. Its errors mean that the engine is not usable any
/// more; a refusal of one attempt is the attempt's answer.
pub(crate) trait Kernel: Send {
    /// The names of its calls in errors.
    const NAMES: &'static CallNames;

    /// Starts an attempt of `step`, the next step of `progress` (never [`Step::Finished`]). It may
    /// stay in user space until [`Kernel::flush`] or [`Kernel::wait`]. Each slot has one attempt at
    /// a time, and slot numbers are below the depth.
    ///
    /// # Safety
    /// `progress` must live, with its buffer untouched, until [`Kernel::wait`] has given the answer
    /// for this slot.
    unsafe fn start(&mut self, slot: usize, progress: &Progress, step: Step) -> Result<()>;

    /// Submits started attempts that are still in user space, without waiting.
    fn flush(&mut self) -> Result<()>;

    /// Does the same, waits until at least one attempt is answered, and appends every answer there
    /// is.
    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()>;
}

/// The answer to the attempt of a slot.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) slot: usize,
    pub(crate) result: io::Result<usize>,
    /// That of the sync that was linked to it.
    pub(crate) linked_sync: Option<io::Result<usize>>,
}

impl Answer {
    /// The kernel's answer to an attempt of one entry: bytes, or a negated error number.
    pub(crate) fn one(slot: usize, result: i64) -> Self {
        Self { slot, result: answer_of(result), linked_sync: None }
    }
}

/// The kernel's number as an answer.
pub(crate) fn answer_of(result: i64) -> io::Result<usize> {
    usize::try_from(result)
        .map_err(|_| io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO)))
}

/// Requests in flight through `K`.
pub(crate) struct Queue<K: Kernel> {
    // The first field, so that it is dropped first: it ends its use of the buffers before they are
    // freed.
    kernel: K,
    kind: EngineKind,
    slots: Vec<Option<Progress>>,
    vacant: Vec<usize>,
    done: VecDeque<Completion>,
    /// The engine failed: some slots may never get an answer, so no code may wait for one.
    is_broken: bool,
}

impl<K: Kernel> Queue<K> {
    pub(crate) fn new(kernel: K, kind: EngineKind, depth: usize) -> Self {
        let slots: Vec<_> = (0..depth).map(|_| None).collect();
        let vacant = (0..depth).rev().collect();
        Self { kernel, kind, slots, vacant, done: VecDeque::new(), is_broken: false }
    }

    fn with_the_kernel(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Puts the request into a slot and starts its first attempt. If every slot is in use it waits
    /// for one: the depth bounds what the kernel holds.
    fn take(&mut self, request: Request<LabFile>) -> Result<()> {
        let progress = Progress::new(request, self.kind, K::NAMES);
        if progress.next_step() == Step::Finished {
            self.done.push_back(progress.into_completion());
            return Ok(());
        }
        while self.vacant.is_empty() {
            self.wait()?;
        }
        let slot = self.vacant.pop().expect("a vacant slot, made sure of above");
        self.slots[slot] = Some(progress);
        self.start(slot)
    }

    /// Starts the slot's next attempt, or takes its completion.
    fn start(&mut self, slot: usize) -> Result<()> {
        let progress = self.slots[slot].as_ref().expect("a slot in use");
        match progress.next_step() {
            Step::Finished => {
                let finished = self.slots[slot].take().expect("a slot in use");
                self.vacant.push(slot);
                self.done.push_back(finished.into_completion());
                Ok(())
            }
            step => {
                // SAFETY: `progress` stays in its slot, and no code touches its buffer, until its
                // step is `Finished`, which needs the answer to this very attempt. If that never
                // comes, `drop` leaks the slots.
                let started = unsafe { self.kernel.start(slot, progress, step) };
                self.note(started)
            }
        }
    }

    /// Waits for answers and starts the next attempts.
    fn wait(&mut self) -> Result<()> {
        let mut answers = Vec::new();
        let waited = self.kernel.wait(&mut answers);
        let mut outcome = self.note(waited);
        for Answer { slot, result, linked_sync } in answers {
            let progress = self.slots[slot].as_mut().expect("an answer is for a slot in use");
            progress.advance(result, linked_sync);
            outcome = outcome.and(self.start(slot));
        }
        outcome
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = self.kernel.flush();
        self.note(flushed)
    }

    fn note(&mut self, answer: Result<()>) -> Result<()> {
        self.is_broken |= answer.is_err();
        answer
    }

    /// An engine that failed returns an error again instead of waiting for answers that may never
    /// come.
    fn check_not_broken(&self, operation: &'static str) -> Result<()> {
        if self.is_broken {
            let source = io::Error::other("the engine failed before: open a new one");
            return Err(Error::new(operation, self.kind.name(), source));
        }
        Ok(())
    }
}

impl<K: Kernel> Engine for Queue<K> {
    type File = LabFile;

    fn submit(&mut self, request: Request<LabFile>) -> Result<()> {
        self.check_not_broken("submit")?;
        self.take(request)?;
        self.flush()
    }

    fn complete(&mut self) -> Result<Option<Completion>> {
        if self.done.is_empty() {
            self.check_not_broken("complete")?;
        }
        let mut has_waited = false;
        while self.done.is_empty() && self.with_the_kernel() > 0 {
            self.wait()?;
            has_waited = true;
        }
        if has_waited {
            // The next attempts of other requests must not stay here until the caller's next call.
            self.flush()?;
        }
        Ok(self.done.pop_front())
    }

    fn in_flight(&self) -> usize {
        self.with_the_kernel() + self.done.len()
    }

    /// A single request needs no separate flush: submitting it and waiting for it are one call.
    fn run(&mut self, request: Request<LabFile>) -> Result<Completion> {
        assert_eq!(self.in_flight(), 0, "run() with requests in flight");
        self.check_not_broken("run")?;
        self.take(request)?;
        Ok(self.complete()?.expect("one request is in flight"))
    }
}

impl<K: Kernel> Drop for Queue<K> {
    /// Completes all requests that were taken. Requests that will get no answer are leaked: the
    /// kernel may still write to their memory.
    fn drop(&mut self) {
        while self.with_the_kernel() > 0 && !self.is_broken {
            // A failure is noted in `is_broken`.
            let _ = self.wait();
        }
        if self.is_broken {
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

impl<K: Kernel> std::fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use inkstone_io::{AlignedBuf, OpenFile, Operation, Persist};

    use super::*;

    /// Answers each attempt with 512 bytes, the latest first, and breaks after a number of waits.
    struct Scripted {
        started: Vec<usize>,
        waits_left: usize,
        waited: Arc<AtomicUsize>,
    }

    impl Kernel for Scripted {
        const NAMES: &'static CallNames = &CallNames {
            write: "write",
            write_dsync: "write",
            read: "read",
            fsync: "fsync",
            fdatasync: "fdatasync",
        };

        unsafe fn start(&mut self, slot: usize, _: &Progress, _: Step) -> Result<()> {
            self.started.push(slot);
            assert!(self.started.len() <= 3, "more than the depth");
            Ok(())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }

        fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
            self.waited.fetch_add(1, Ordering::Relaxed);
            let broken = || io::Error::from_raw_os_error(libc::EBADF);
            self.waits_left = self
                .waits_left
                .checked_sub(1)
                .ok_or_else(|| Error::new("wait", "scripted", broken()))?;
            answers.extend(self.started.pop().map(|slot| Answer::one(slot, 512)));
            Ok(())
        }
    }

    /// A queue of depth 3 with requests of two short writes each; how often it has waited.
    fn queue(requests: u64, waits_left: usize) -> (Queue<Scripted>, Arc<AtomicUsize>) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = LabFile::open(&directory.path().join("f"), &OpenFile::new_file());
        let file = Arc::new(file.expect("a file"));
        let waited = Arc::<AtomicUsize>::default();
        let kernel = Scripted { started: Vec::new(), waits_left, waited: Arc::clone(&waited) };
        let mut queue = Queue::new(kernel, EngineKind::Aio, 3);
        for token in 0..requests {
            let buffer = AlignedBuf::zeroed(1024);
            let operation =
                Operation::Write { buffer, len: 1024, offset: 0, persist: Persist::Later };
            queue.submit(Request { token, file: Arc::clone(&file), operation }).expect("taken");
        }
        (queue, waited)
    }

    #[test]
    fn every_request_comes_back_once_or_is_carried_out_when_the_engine_is_dropped() {
        let (mut engine, _) = queue(10, usize::MAX);
        assert_eq!(engine.in_flight(), 10);
        let mut tokens = Vec::new();
        while let Some(completion) = engine.complete().expect("it works") {
            assert_eq!(completion.result.expect("written"), 1024);
            tokens.push(completion.token);
        }
        tokens.sort_unstable();
        assert_eq!((tokens, engine.in_flight()), ((0..10).collect(), 0));
        let (engine, waited) = queue(3, usize::MAX);
        drop(engine);
        assert_eq!(waited.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn a_broken_engine_says_so_and_is_not_waited_for_again() {
        let (mut engine, waited) = queue(3, 2);
        assert!(engine.complete().expect("two waits").is_some());
        assert_eq!(engine.complete().expect_err("broken").raw_os_error(), Some(libc::EBADF));
        let error = engine.complete().expect_err("broken").to_string();
        assert!(error.contains("the engine failed before"), "{error}");
        drop(engine);
        assert_eq!(waited.load(Ordering::Relaxed), 3);
    }
}
