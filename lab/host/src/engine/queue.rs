//! The common part of io_uring and Linux AIO: requests in numbered slots, attempts submitted to the
//! kernel, their answers, completions in the order in which they were finished.
//!
//! *Owns*: the requests in flight, and so their buffers and files: memory that the kernel may still
//! read or write is not freed, not even when the engine is dropped or fails. *May not touch*: the
//! kernel; each implementation of [`Kernel`] does that.

use std::collections::VecDeque;
use std::io;

use inkstone_io::{Completion, Engine, Error, NamedChoice, Request, Result};

use super::progress::{CallNames, Outcome, Progress, Step};
use crate::lab_file::LabFile;

/// A way of submitting attempts to the kernel.
pub(crate) trait Kernel: Send {
    /// The names of its calls in errors.
    fn names(&self) -> &'static CallNames;

    /// Starts an attempt of `step`, the next step of `progress` (never [`Step::Finished`]). It may
    /// stay in user space until [`Kernel::flush`] or [`Kernel::wait`]. Each slot has one attempt at
    /// a time, and slot numbers are below the depth.
    ///
    /// # Errors
    /// When the engine is not usable any more; a refusal of this attempt is its answer.
    ///
    /// # Safety
    /// `progress` must live, with its buffer untouched, until [`Kernel::wait`] has given the answer
    /// for this slot.
    unsafe fn start(&mut self, slot: usize, progress: &Progress, step: Step) -> Result<()>;

    /// Submits started attempts that are still in user space, without waiting.
    ///
    /// # Errors
    /// When the engine is not usable any more.
    fn flush(&mut self) -> Result<()>;

    /// Does the same, waits until at least one attempt is answered, and appends every answer there
    /// is.
    ///
    /// # Errors
    /// When the engine is not usable any more.
    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()>;

    /// The first thing that this engine could not do in its own way.
    fn notice(&self) -> Option<&Error> {
        None
    }
}

/// The answer to the attempt of a slot.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) slot: usize,
    pub(crate) outcome: Outcome,
}

impl Answer {
    /// The kernel's answer to an attempt of one entry: bytes, or a negated error number.
    pub(crate) fn one(slot: usize, result: i64) -> Self {
        Self { slot, outcome: Outcome::One(answer_of(result)) }
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
    slots: Vec<Option<Progress>>,
    vacant: Vec<usize>,
    done: VecDeque<Completion>,
    answers: Vec<Answer>,
    /// The engine failed: some slots may never get an answer, so no code may wait for one.
    is_broken: bool,
}

impl<K: Kernel> Queue<K> {
    pub(crate) fn new(kernel: K, depth: usize) -> Self {
        let slots: Vec<_> = (0..depth).map(|_| None).collect();
        let vacant = (0..depth).rev().collect();
        Self { kernel, slots, vacant, done: VecDeque::new(), answers: Vec::new(), is_broken: false }
    }

    pub(crate) fn notice(&self) -> Option<&Error> {
        self.kernel.notice()
    }

    fn with_the_kernel(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Puts the request into a slot and starts its first attempt. If every slot is in use it waits
    /// for one: the depth bounds what the kernel holds.
    fn take(&mut self, request: Request<LabFile>) -> Result<()> {
        let progress = Progress::new(request, self.kernel.names());
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
        let mut answers = std::mem::take(&mut self.answers);
        let waited = self.kernel.wait(&mut answers);
        let mut outcome = self.note(waited);
        for Answer { slot, outcome: answer } in answers.drain(..) {
            self.slots[slot].as_mut().expect("an answer is for a slot in use").advance(answer);
            outcome = outcome.and(self.start(slot));
        }
        self.answers = answers;
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
            return Err(Error::new(operation, self.kernel.names().engine.name(), source));
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
        let (engine, depth) = (self.kernel.names().engine.to_string(), self.slots.len());
        f.debug_struct("Queue")
            .field("engine", &engine)
            .field("depth", &depth)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use inkstone_io::{AlignedBuf, EngineKind, OpenFile, Operation, Persist};

    use super::*;

    static NAMES: CallNames = CallNames {
        engine: EngineKind::Aio,
        write: "write",
        write_dsync: "write",
        read: "read",
        fsync: "fsync",
        fdatasync: "fdatasync",
    };

    /// Answers each attempt with 512 bytes, the latest first, and breaks after a number of waits.
    struct Scripted {
        started: Vec<usize>,
        waits_left: usize,
        waited: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl Kernel for Scripted {
        fn names(&self) -> &'static CallNames {
            &NAMES
        }

        unsafe fn start(&mut self, slot: usize, _progress: &Progress, _step: Step) -> Result<()> {
            self.started.push(slot);
            self.most.fetch_max(self.started.len(), Ordering::Relaxed);
            Ok(())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }

        fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
            self.waited.fetch_add(1, Ordering::Relaxed);
            if self.waits_left == 0 {
                return Err(Error::new(
                    "wait",
                    "scripted",
                    io::Error::from_raw_os_error(libc::EBADF),
                ));
            }
            self.waits_left -= 1;
            answers.extend(self.started.pop().map(|slot| Answer::one(slot, 512)));
            Ok(())
        }
    }

    struct Setting {
        queue: Queue<Scripted>,
        file: Arc<LabFile>,
        waited: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        _directory: tempfile::TempDir,
    }

    fn setting(depth: usize, waits_left: usize) -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let file =
            Arc::new(LabFile::open(&directory.path().join("f"), &OpenFile::new_file()).unwrap());
        let (waited, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let kernel = Scripted {
            started: Vec::new(),
            waits_left,
            waited: waited.clone(),
            most: most.clone(),
        };
        Setting { queue: Queue::new(kernel, depth), file, waited, most, _directory: directory }
    }

    impl Setting {
        fn submit(&mut self, token: u64) -> Result<()> {
            let buffer = AlignedBuf::zeroed(1024);
            let operation =
                Operation::Write { buffer, len: 1024, offset: 0, persist: Persist::Later };
            self.queue.submit(Request { token, file: Arc::clone(&self.file), operation })
        }
    }

    #[test]
    fn the_kernel_never_holds_more_than_the_depth_and_every_request_comes_back_once() {
        let mut setting = setting(3, usize::MAX);
        for token in 0..10 {
            setting.submit(token).unwrap();
        }
        assert_eq!(setting.queue.in_flight(), 10);
        let mut tokens = Vec::new();
        while let Some(completion) = setting.queue.complete().unwrap() {
            assert_eq!(
                (completion.result.unwrap(), completion.buffer.unwrap().len()),
                (1024, 1024)
            );
            tokens.push(completion.token);
        }
        tokens.sort_unstable();
        assert_eq!(tokens, (0..10).collect::<Vec<_>>());
        assert_eq!(setting.most.load(Ordering::Relaxed), 3);
        assert_eq!(setting.queue.in_flight(), 0);
    }

    #[test]
    fn dropping_carries_out_what_was_taken() {
        let mut setting = setting(4, usize::MAX);
        for token in 0..4 {
            setting.submit(token).unwrap();
        }
        let waited = Arc::clone(&setting.waited);
        drop(setting);
        // Four requests of two short writes each.
        assert_eq!(waited.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn a_broken_engine_says_so_and_is_not_waited_for_again() {
        let mut setting = setting(4, 2);
        for token in 0..3 {
            setting.submit(token).unwrap();
        }
        assert!(setting.queue.complete().unwrap().is_some());
        assert_eq!(setting.queue.complete().unwrap_err().raw_os_error(), Some(libc::EBADF));
        for error in [setting.queue.complete().unwrap_err(), setting.submit(9).unwrap_err()] {
            assert!(error.to_string().contains("the engine failed before"), "{error}");
        }
        let waited = Arc::clone(&setting.waited);
        drop(setting);
        assert_eq!(waited.load(Ordering::Relaxed), 3);
    }
}
