//! The common part of io_uring and Linux AIO: requests in numbered slots, one entry for each in the
//! kernel (two linked ones for a write and its sync), and completions in the order of the answers.
//!
//! *Owns*: the requests in flight, and so their buffers and files: memory that the kernel may still
//! read or write is not freed, not even when the engine is dropped or fails. *May not touch*: the
//! kernel; each implementation of [`Kernel`] does that. What the kernel leaves unfinished (a short
//! write, a signal, a sync that was cancelled) the file's own calls finish.

use std::collections::VecDeque;
use std::io;

use inkstone_io::{Access, Error, File, NamedChoice, Persist, Result, SyncKind};

use super::request::{Completion, Operation, Request};
use crate::engine::kind::EngineKind;
use crate::lab_file::LabFile;

/// A way of handing entries to the kernel. Its errors mean that the engine is not usable any more;
/// a refusal of one entry is the entry's answer.
pub(crate) trait Kernel: Send {
    /// Starts what is asked. It may stay in user space until [`Kernel::flush`] or [`Kernel::wait`].
    /// Each slot has one at a time, and slot numbers are below the depth.
    ///
    /// # Safety
    /// `asked` must live, with its buffer untouched, until [`Kernel::wait`] has given the answer
    /// for this slot.
    unsafe fn start(&mut self, slot: usize, asked: &Request) -> Result<()>;

    /// Submits what is still in user space, without waiting.
    fn flush(&mut self) -> Result<()>;

    /// Does the same, waits until at least one slot is answered, and appends every answer there is.
    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()>;
}

/// The answer for a slot.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) slot: usize,
    pub(crate) result: io::Result<usize>,
    /// That of the sync that was linked to the write.
    pub(crate) linked_sync: Option<io::Result<usize>>,
}

/// The kernel's number as an answer: bytes, or a negated error number.
pub(crate) fn answer_of(result: i64) -> io::Result<usize> {
    usize::try_from(result)
        .map_err(|_| io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO)))
}

/// Refuses what an engine of this kind does not do.
fn check(request: &Request, engine: EngineKind) -> Result<()> {
    let Request { file, operation, .. } = request;
    if !matches!(operation, Operation::Read { .. }) {
        file.check_change("submit")?;
    }
    let refuse = |why: String| Err(Error::invalid("submit", file.path(), why));
    let access = file.how().access;
    if !matches!(access, Access::Buffered | Access::Direct) {
        return refuse(format!(
            "engine {engine} works by file descriptor and offset, and access {access} does not"
        ));
    }
    request.check_length()?;
    let (Operation::Write { len, offset, .. } | Operation::Read { len, offset, .. }) = operation
    else {
        return Ok(());
    };
    let linked = matches!(operation, Operation::Write { persist: Persist::Sync(_), .. });
    if linked && engine != EngineKind::UringLinked {
        return refuse(format!("engine {engine} syncs by a request of its own"));
    }
    // Beyond `loff_t` an offset would be negative, and -1 means "at the file's position" to
    // io_uring. An entry of io_uring has 32 bits for the length.
    match offset.checked_add(*len as u64) {
        Some(end) if i64::try_from(end).is_ok() && u32::try_from(*len).is_ok() => Ok(()),
        _ => refuse(format!("{len} bytes at byte {offset} are beyond the largest write")),
    }
}

/// The completion of a request after this answer.
fn completed(
    mut request: Request,
    Answer { result: answer, linked_sync, .. }: Answer,
) -> Completion {
    let file = &request.file;
    let result = match &mut request.operation {
        Operation::Write { buffer, len, offset, persist } => {
            written(file, &buffer[..*len], (*offset, *persist), answer, linked_sync)
        }
        Operation::Read { buffer, len, offset } => match answer {
            Err(error) if !is_not_started(&error) => {
                Err(Error::new("read", file.path(), error).at(*offset))
            }
            answer => match answer.unwrap_or(0) {
                0 => file.read_at(&mut buffer[..*len], *offset),
                done if done < *len => file
                    .read_at(&mut buffer[done..*len], *offset + done as u64)
                    .map(|more| done + more),
                done => Ok(done),
            },
        },
        Operation::Sync(kind) => synced(file, *kind, answer).map(|()| 0),
    };
    request.completed(result)
}

/// Finishes a write. A sync that was linked to it counts only behind the whole write; its failure
/// always counts, since a later sync could hide it.
fn written(
    file: &LabFile,
    bytes: &[u8],
    (offset, persist): (u64, Persist),
    answer: io::Result<usize>,
    sync: Option<io::Result<usize>>,
) -> Result<usize> {
    let done = match answer {
        Err(error) if !is_not_started(&error) => {
            return Err(Error::new("write", file.path(), error).at(offset));
        }
        answer => answer.unwrap_or(0).min(bytes.len()),
    };
    if let (Persist::Sync(kind), Some(answer)) = (persist, sync) {
        let is_failure = answer.as_ref().is_err_and(|error| !is_not_started(error));
        if is_failure || done == bytes.len() {
            return synced(file, kind, answer).map(|()| done);
        }
    }
    if done < bytes.len() {
        let rest = file.write_with(&bytes[done..], offset + done as u64, persist);
        // The offset is that of the request: the caller knows the write by it.
        rest.map_err(|error| error.at(offset))?;
    }
    Ok(bytes.len())
}

/// Finishes a sync. It is made again only if it did not start: after any other error a second sync
/// could succeed over pages that were lost.
fn synced(file: &LabFile, kind: SyncKind, answer: io::Result<usize>) -> Result<()> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if is_not_started(&error) => file.sync(kind),
        Err(error) => {
            let call = if kind == SyncKind::All { "fsync" } else { "fdatasync" };
            Err(Error::new(call, file.path(), error))
        }
    }
}

/// Only io_uring returns `ECANCELED`, for an entry that never ran: the write before it was short or
/// failed, or the thread that submitted it has ended.
fn is_not_started(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(libc::ECANCELED)
}

/// Requests in flight through `K`.
pub(crate) struct Entries<K: Kernel> {
    // The first field, so that it is dropped first: it ends its use of the buffers before they are
    // freed.
    kernel: K,
    kind: EngineKind,
    slots: Vec<Option<Request>>,
    vacant: Vec<usize>,
    done: VecDeque<Completion>,
    /// The engine failed: some slots may never get an answer, so no code may wait for one.
    is_broken: bool,
}

impl<K: Kernel> Entries<K> {
    pub(crate) fn new(kernel: K, kind: EngineKind, depth: usize) -> Self {
        let slots: Vec<_> = (0..depth).map(|_| None).collect();
        let vacant = (0..depth).rev().collect();
        Self { kernel, kind, slots, vacant, done: VecDeque::new(), is_broken: false }
    }

    fn with_the_kernel(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Puts the request into a slot and starts it. If every slot is in use it waits for one: the
    /// depth bounds what the kernel holds.
    fn take(&mut self, request: Request) -> Result<()> {
        if let Err(error) = check(&request, self.kind) {
            self.done.push_back(request.completed(Err(error)));
            return Ok(());
        }
        while self.vacant.is_empty() {
            self.wait()?;
        }
        let slot = self.vacant.pop().expect("a vacant slot, made sure of above");
        let asked = self.slots[slot].insert(request);
        // SAFETY: `asked` stays in its slot, and no code touches its buffer, until the slot is
        // answered. If that never comes, `drop` leaks the slots.
        let started = unsafe { self.kernel.start(slot, asked) };
        self.note(started)
    }

    /// Waits for answers.
    fn wait(&mut self) -> Result<()> {
        let mut answers = Vec::new();
        let waited = self.kernel.wait(&mut answers);
        for answer in answers {
            let asked = self.slots[answer.slot].take().expect("an answer is for a slot in use");
            self.vacant.push(answer.slot);
            self.done.push_back(completed(asked, answer));
        }
        self.note(waited)
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

    pub(crate) fn submit(&mut self, request: Request) -> Result<()> {
        self.check_not_broken("submit")?;
        self.take(request)?;
        let flushed = self.kernel.flush();
        self.note(flushed)
    }

    pub(crate) fn complete(&mut self) -> Result<Option<Completion>> {
        if self.done.is_empty() {
            self.check_not_broken("complete")?;
        }
        while self.done.is_empty() && self.with_the_kernel() > 0 {
            self.wait()?;
        }
        Ok(self.done.pop_front())
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.with_the_kernel() + self.done.len()
    }

    /// A single request needs no separate flush: submitting it and waiting for it are one call.
    pub(crate) fn run(&mut self, request: Request) -> Result<Completion> {
        self.check_not_broken("run")?;
        self.take(request)?;
        Ok(self.complete()?.expect("one request is in flight"))
    }
}

impl<K: Kernel> Drop for Entries<K> {
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

impl<K: Kernel> std::fmt::Debug for Entries<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use inkstone_io::{AlignedBuf, OpenFile};

    use super::*;

    /// Answers as it is told, the latest first, and is broken once it has no answers left.
    struct Scripted {
        started: Vec<usize>,
        answers: Vec<(io::Result<usize>, Option<io::Result<usize>>)>,
    }

    impl Kernel for Scripted {
        unsafe fn start(&mut self, slot: usize, _: &Request) -> Result<()> {
            self.started.push(slot);
            Ok(())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }

        fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
            let broken = || Error::new("wait", "scripted", io::Error::other("no more"));
            let (result, linked_sync) = self.answers.pop().ok_or_else(broken)?;
            let slot = self.started.pop().expect("something was started");
            answers.push(Answer { slot, result, linked_sync });
            Ok(())
        }
    }

    const SYNCED: Persist = Persist::Sync(SyncKind::Data);

    fn os(code: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(code))
    }

    fn write(token: u64, file: &Arc<LabFile>, persist: Persist) -> Request {
        let mut buffer = AlignedBuf::zeroed(8192);
        buffer.fill(7);
        let operation = Operation::Write { buffer, len: 8192, offset: 512, persist };
        Request { token, file: Arc::clone(file), operation }
    }

    fn engine(
        depth: usize,
        answers: Vec<(io::Result<usize>, Option<io::Result<usize>>)>,
    ) -> Entries<Scripted> {
        let kernel = Scripted { started: Vec::new(), answers };
        Entries::new(kernel, EngineKind::UringLinked, depth)
    }

    /// Each answer to a write of 8,192 bytes, how many of them its own calls then write (the kernel
    /// of this test writes none), and its end.
    #[test]
    fn what_the_kernel_leaves_is_finished_and_what_failed_is_the_failure() {
        let whole = || Ok(8192);
        let cancelled = || Some(os(libc::ECANCELED));
        for (persist, answer, sync, own, end) in [
            (Persist::Later, whole(), None, 0, Ok(8192)),
            (Persist::Dsync, Ok(4096), None, 4096, Ok(8192)),
            (Persist::Later, os(libc::EINTR), None, 8192, Ok(8192)),
            (Persist::Later, os(libc::ENOSPC), None, 0, Err("write")),
            (SYNCED, whole(), Some(Ok(0)), 0, Ok(8192)),
            (SYNCED, whole(), cancelled(), 0, Ok(8192)),
            // Behind a short write neither a cancelled sync nor one that ran all the same counts.
            (SYNCED, Ok(4096), cancelled(), 4096, Ok(8192)),
            (SYNCED, Ok(4096), Some(Ok(0)), 4096, Ok(8192)),
            (SYNCED, whole(), Some(os(libc::EIO)), 0, Err("fdatasync")),
            (SYNCED, Ok(4096), Some(os(libc::EIO)), 0, Err("fdatasync")),
            (SYNCED, os(libc::EBADF), cancelled(), 0, Err("write")),
        ] {
            let told = format!("{persist:?} {answer:?} {sync:?}");
            let directory = tempfile::tempdir().expect("a directory");
            let file = LabFile::open(&directory.path().join("f"), &OpenFile::new_file());
            let file = Arc::new(file.expect("a file"));
            let mut engine = engine(1, vec![(answer, sync)]);
            let ended = engine.run(write(7, &file, persist)).expect("it works");
            assert!(ended.token == 7 && ended.buffer.is_some());
            let result = ended.result.as_ref().map_err(Error::operation);
            assert_eq!(result.copied(), end, "{told}");
            let bytes = std::fs::read(file.path()).expect("read");
            assert_eq!(bytes.iter().filter(|byte| **byte == 7).count(), own, "{told}");
        }
    }

    #[test]
    fn a_full_engine_waits_and_a_broken_one_is_not_waited_for_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = LabFile::open(&directory.path().join("f"), &OpenFile::new_file());
        let file = Arc::new(file.expect("a file"));
        let mut engine = engine(3, (0..2).map(|_| (Ok(8192), None)).collect());
        for token in 0..5 {
            engine.submit(write(token, &file, Persist::Later)).expect("taken");
        }
        assert_eq!((engine.in_flight(), engine.with_the_kernel()), (5, 3));
        let mut next = || engine.complete().map(|ended| ended.expect("one").token);
        assert_eq!([next().expect("done"), next().expect("done")], [2, 3]);
        assert!(next().expect_err("broken").to_string().contains("no more"));
        assert!(next().expect_err("broken").to_string().contains("the engine failed before"));
    }
}
