//! A request on its way through the kernel: its buffer, its file, and what to attempt next.
//!
//! *Owns*: the request while it is in flight. *May not touch*: the kernel; an engine makes the
//! attempt and brings the answer here. [`Transfer`] handles `EINTR` and short transfers, as for
//! every other engine.

use std::io;
use std::sync::Arc;

use inkstone_io::engine::too_long;
use inkstone_io::transfer::{Direction, Next, Transfer};
use inkstone_io::{
    Access, AlignedBuf, Completion, EngineKind, Error, File, Operation, Persist, Request, Result,
    SyncKind,
};

use crate::lab_file::LabFile;

/// The longest attempt. The kernel shortens one to 2 GiB less a page, and the length in an entry
/// has 32 bits; a round number below both keeps the rest of a direct write aligned.
const MAX_ATTEMPT_BYTES: usize = 1 << 30;

/// The names of an engine's calls in error messages.
#[derive(Debug)]
pub(crate) struct CallNames {
    pub(crate) write: &'static str,
    pub(crate) write_dsync: &'static str,
    pub(crate) read: &'static str,
    pub(crate) fsync: &'static str,
    pub(crate) fdatasync: &'static str,
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Progress {
    names: &'static CallNames,
    token: u64,
    file: Arc<LabFile>,
    buffer: Option<AlignedBuf>,
    offset: u64,
    transfer: Transfer,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Write(Persist),
    Read,
    Sync(SyncKind),
    Finished(Result<usize>),
}

/// What to attempt next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the span, with `RWF_DSYNC` if `dsync`. `then` is the sync that follows if *all* of the
    /// span is written: an engine that links may start both at once.
    Write { span: Span, dsync: bool, then: Option<SyncKind> },
    /// Read the span.
    Read { span: Span },
    /// Sync the file.
    Sync(SyncKind),
    /// Nothing: take the completion.
    Finished,
}

/// Bytes of the request's buffer, and their place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where in the buffer.
    pub(crate) start: usize,
    /// How many bytes, at most [`MAX_ATTEMPT_BYTES`].
    pub(crate) len: usize,
    /// Where in the file.
    pub(crate) offset: u64,
}

impl Progress {
    /// Takes a request. An impossible request is finished at once, with its error.
    pub(crate) fn new(
        request: Request<LabFile>,
        engine: EngineKind,
        names: &'static CallNames,
    ) -> Self {
        let Request { token, file, operation } = request;
        let (buffer, len, offset, phase, has_work) = match operation {
            Operation::Write { buffer, len, offset, persist } => {
                (Some(buffer), len, offset, Phase::Write(persist), false)
            }
            Operation::Read { buffer, len, offset, then } => {
                (Some(buffer), len, offset, Phase::Read, then.is_some())
            }
            Operation::Sync(kind) => (None, 0, 0, Phase::Sync(kind), false),
        };
        let transfer = Transfer::new(len);
        let mut new = Self { names, token, file, buffer, offset, transfer, phase };
        match (new.check(engine, len, has_work), &new.phase) {
            (Err(error), _) => new.phase = Phase::Finished(Err(error)),
            (Ok(()), Phase::Write(_) | Phase::Read) if len == 0 => new.all_transferred(),
            _ => {}
        }
        new
    }

    fn check(&self, engine: EngineKind, len: usize, has_work: bool) -> Result<()> {
        if !matches!(self.phase, Phase::Read) {
            self.file.check_change("submit")?;
        }
        let refuse = |why: String| Err(Error::invalid("submit", self.file.path(), why));
        let access = self.file.how().access;
        if !matches!(access, Access::Buffered | Access::Direct) {
            return refuse(format!(
                "engine {engine} works by file descriptor and offset, and access {access} does not"
            ));
        }
        if has_work {
            // The log's own engines have that.
            return refuse(format!("engine {engine} does no work on the bytes of a read"));
        }
        let Some(buffer) = &self.buffer else { return Ok(()) };
        if len > buffer.len() {
            return Err(too_long(self.file.path(), len, buffer.len()));
        }
        // Beyond `loff_t` an offset would be negative, and -1 means "at the file's position" to
        // io_uring.
        match self.offset.checked_add(len as u64) {
            Some(end) if i64::try_from(end).is_ok() => Ok(()),
            _ => refuse(format!("{len} bytes at byte {} end beyond the largest file", self.offset)),
        }
    }

    /// The file, open for as long as this lives.
    pub(crate) fn file(&self) -> &Arc<LabFile> {
        &self.file
    }

    /// The buffer of a write or read; it neither moves nor is freed while this lives.
    pub(crate) fn buffer(&self) -> Option<&AlignedBuf> {
        self.buffer.as_ref()
    }

    /// What to attempt now. Asking changes nothing.
    pub(crate) fn next_step(&self) -> Step {
        let start = self.transfer.done();
        let len = self.transfer.rest().min(MAX_ATTEMPT_BYTES);
        let span = Span { start, len, offset: self.offset + start as u64 };
        match self.phase {
            Phase::Write(persist) => {
                let then = match persist {
                    Persist::Sync(kind) if len == self.transfer.rest() => Some(kind),
                    _ => None,
                };
                Step::Write { span, dsync: persist == Persist::Dsync, then }
            }
            Phase::Read => Step::Read { span },
            Phase::Sync(kind) => Step::Sync(kind),
            Phase::Finished(_) => Step::Finished,
        }
    }

    /// Takes the kernel's answer to the attempt of [`Progress::next_step`], and that of the sync
    /// that was linked to it.
    pub(crate) fn advance(
        &mut self,
        answer: io::Result<usize>,
        linked_sync: Option<io::Result<usize>>,
    ) {
        match self.phase {
            Phase::Write(persist) => {
                let is_dsync = persist == Persist::Dsync;
                let name = if is_dsync { self.names.write_dsync } else { self.names.write };
                self.advance_transfer(Direction::Write, name, answer);
                if let (Persist::Sync(kind), Some(sync)) = (persist, linked_sync) {
                    self.advance_linked(kind, sync);
                }
            }
            Phase::Read => self.advance_transfer(Direction::Read, self.names.read, answer),
            Phase::Sync(kind) => self.advance_sync(kind, answer),
            Phase::Finished(_) => unreachable!("an answer to a request that asked for nothing"),
        }
    }

    fn advance_transfer(
        &mut self,
        direction: Direction,
        name: &'static str,
        answer: io::Result<usize>,
    ) {
        let answer = answer.map_err(|error| {
            if is_not_started(&error) { io::ErrorKind::Interrupted.into() } else { error }
        });
        match self.transfer.advance(direction, answer) {
            Next::Again => {}
            Next::Done | Next::End => self.all_transferred(),
            // The offset is that of the request: the caller knows the write by it.
            Next::Fail(error) => {
                let error = Error::new(name, self.file.path(), error).at(self.offset);
                self.phase = Phase::Finished(Err(error));
            }
        }
    }

    fn all_transferred(&mut self) {
        self.phase = match self.phase {
            Phase::Write(Persist::Sync(kind)) => Phase::Sync(kind),
            _ => Phase::Finished(Ok(self.transfer.done())),
        };
    }

    /// A sync counts only if it followed a whole write; its failure always counts, since a later
    /// sync could hide it.
    fn advance_linked(&mut self, kind: SyncKind, sync: io::Result<usize>) {
        let is_failure = sync.as_ref().is_err_and(|error| !is_not_started(error));
        let is_written = matches!(self.phase, Phase::Sync(_));
        let has_failed = matches!(self.phase, Phase::Finished(_));
        if !has_failed && (is_written || is_failure) {
            self.advance_sync(kind, sync);
        }
    }

    /// A sync is retried only if it did not start: after any other error a second sync could
    /// succeed over pages that were lost.
    fn advance_sync(&mut self, kind: SyncKind, answer: io::Result<usize>) {
        let name = match kind {
            SyncKind::All => self.names.fsync,
            SyncKind::Data => self.names.fdatasync,
        };
        self.phase = match answer {
            Ok(_) => Phase::Finished(Ok(self.transfer.done())),
            Err(error) if is_not_started(&error) => Phase::Sync(kind),
            Err(error) => Phase::Finished(Err(Error::new(name, self.file.path(), error))),
        };
    }

    /// The completion of a request whose next step is [`Step::Finished`].
    pub(crate) fn into_completion(self) -> Completion {
        let Phase::Finished(result) = self.phase else {
            unreachable!("a completion of a request under way")
        };
        Completion { token: self.token, buffer: self.buffer, result }
    }
}

/// Only io_uring returns `ECANCELED`, for an entry that never ran: the chain before it broke, or
/// the thread that submitted it has ended.
fn is_not_started(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(libc::ECANCELED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_io::OpenFile;

    static NAMES: CallNames = CallNames {
        write: "write",
        write_dsync: "write dsync",
        read: "read",
        fsync: "fsync",
        fdatasync: "fdatasync",
    };
    const SYNCED: Persist = Persist::Sync(SyncKind::Data);

    type Answer = (io::Result<usize>, Option<io::Result<usize>>);

    fn progress(operation: Operation) -> Progress {
        let directory = tempfile::tempdir().expect("a directory");
        let file = LabFile::open(&directory.path().join("f"), &OpenFile::new_file());
        let file = Arc::new(file.expect("a file"));
        Progress::new(Request { token: 7, file, operation }, EngineKind::Uring, &NAMES)
    }

    fn write(len: usize, offset: u64, persist: Persist) -> Progress {
        progress(Operation::Write { buffer: AlignedBuf::zeroed(8192), len, offset, persist })
    }

    fn step(start: usize, len: usize, offset: u64, persist: Persist) -> Step {
        let then = if persist == SYNCED { Some(SyncKind::Data) } else { None };
        let span = Span { start, len, offset };
        Step::Write { span, dsync: persist == Persist::Dsync, then }
    }

    fn os(code: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(code))
    }

    /// Plays each step that is expected, and the answer to it. Then the request must be finished.
    fn play(mut progress: Progress, script: Vec<(Step, Answer)>) -> Result<usize> {
        for (number, (step, (answer, linked_sync))) in script.into_iter().enumerate() {
            assert_eq!(progress.next_step(), step, "step {number}");
            progress.advance(answer, linked_sync);
        }
        assert_eq!(progress.next_step(), Step::Finished);
        let completion = progress.into_completion();
        assert_eq!(completion.token, 7);
        completion.result
    }

    #[test]
    fn short_and_interrupted_transfers_continue_where_they_stopped() {
        for persist in [Persist::Later, Persist::Dsync] {
            let script = vec![
                (step(0, 8192, 512, persist), (os(libc::EINTR), None)),
                (step(0, 8192, 512, persist), (Ok(4096), None)),
                (step(4096, 4096, 4608, persist), (os(libc::EAGAIN), None)),
                (step(4096, 4096, 4608, persist), (os(libc::ECANCELED), None)),
                (step(4096, 4096, 4608, persist), (Ok(4096), None)),
            ];
            assert_eq!(play(write(8192, 512, persist), script).expect("written"), 8192);
        }
        let buffer = AlignedBuf::zeroed(8192);
        let read = progress(Operation::Read { buffer, len: 1000, offset: 100, then: None });
        let part =
            |start, len| Step::Read { span: Span { start, len, offset: 100 + start as u64 } };
        let script = vec![(part(0, 1000), (Ok(300), None)), (part(300, 700), (Ok(0), None))];
        assert_eq!(play(read, script).expect("the file ends"), 300);
    }

    #[test]
    fn an_error_names_its_call_and_the_requests_offset() {
        let later = |progress, first, code| {
            let script = vec![
                (step(0, 8192, 4096, first), (Ok(512), None)),
                (step(512, 7680, 4608, first), (os(code), None)),
            ];
            play(progress, script).expect_err("failed")
        };
        let error = later(write(8192, 4096, Persist::Later), Persist::Later, libc::ENOSPC);
        assert_eq!((error.operation(), error.offset()), ("write", Some(4096)));
        let error = later(write(8192, 4096, Persist::Dsync), Persist::Dsync, libc::EIO);
        assert_eq!((error.operation(), error.raw_os_error()), ("write dsync", Some(libc::EIO)));
        for count in [0, 8193] {
            let script = vec![(step(0, 8192, 0, Persist::Later), (Ok(count), None))];
            play(write(8192, 0, Persist::Later), script).expect_err("no such count");
        }
    }

    #[test]
    fn a_sync_that_failed_is_the_failure_and_is_not_tried_again() {
        let sync = Step::Sync(SyncKind::Data);
        for code in [libc::EIO, libc::ENOSPC, libc::EAGAIN] {
            let whole = || step(0, 8192, 0, SYNCED);
            let after = vec![(whole(), (Ok(8192), None)), (sync, (os(code), None))];
            let linked = |count| vec![(whole(), (Ok(count), Some(os(code))))];
            for script in [after, linked(8192), linked(4096)] {
                let error = play(write(8192, 0, SYNCED), script).expect_err("failed");
                assert_eq!((error.operation(), error.raw_os_error()), ("fdatasync", Some(code)));
            }
        }
        let script = vec![
            (step(0, 8192, 0, SYNCED), (Ok(8192), None)),
            (sync, (os(libc::EINTR), None)),
            (sync, (Ok(0), None)),
        ];
        assert_eq!(play(write(8192, 0, SYNCED), script).expect("synced"), 8192);
    }

    #[test]
    fn a_linked_sync_counts_only_behind_the_whole_write() {
        let cancelled = || Some(os(libc::ECANCELED));
        let whole = |sync| (step(0, 8192, 0, SYNCED), (Ok(8192), sync));
        assert_eq!(play(write(8192, 0, SYNCED), vec![whole(Some(Ok(0)))]).expect("both"), 8192);
        // Cancelled, it is done alone.
        let alone = (Step::Sync(SyncKind::Data), (Ok(0), None));
        assert_eq!(
            play(write(8192, 0, SYNCED), vec![whole(cancelled()), alone]).expect("both"),
            8192
        );
        // Behind a short write neither a cancelled one nor one that ran all the same counts.
        for sync in [cancelled(), Some(Ok(0))] {
            let script = vec![
                (step(0, 8192, 0, SYNCED), (Ok(4096), sync)),
                (step(4096, 4096, 4096, SYNCED), (os(libc::EINTR), cancelled())),
                (step(4096, 4096, 4096, SYNCED), (Ok(4096), Some(Ok(0)))),
            ];
            assert_eq!(play(write(8192, 0, SYNCED), script).expect("both"), 8192);
        }
        let failed = vec![(step(0, 8192, 0, SYNCED), (os(libc::EBADF), cancelled()))];
        let error = play(write(8192, 0, SYNCED), failed).expect_err("the write's");
        assert_eq!((error.operation(), error.raw_os_error()), ("write", Some(libc::EBADF)));
        // A piece that is not the last is not linked.
        let mut long = write(8192, 0, SYNCED);
        long.transfer = Transfer::new(MAX_ATTEMPT_BYTES + 1);
        assert_eq!(long.next_step(), step(0, MAX_ATTEMPT_BYTES, 0, Persist::Later));
    }

    #[test]
    fn nothing_to_write_makes_no_attempt_but_keeps_its_sync() {
        assert_eq!(play(write(0, 0, Persist::Later), vec![]).expect("nothing"), 0);
        let sync = vec![(Step::Sync(SyncKind::Data), (Ok(0), None))];
        assert_eq!(play(write(0, 0, SYNCED), sync).expect("synced"), 0);
    }
}
