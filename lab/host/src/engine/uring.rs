//! io_uring: one entry for the write, one for the sync, in a mode of its own linked to its write.
//!
//! *Owns*: the ring, and which entries of a slot are in flight. *May not touch*: requests;
//! [`super::queue`] keeps them and their buffers for as long as the kernel has an entry of theirs.
//!
//! One thread may open an engine and another use it, so not `SINGLE_ISSUER` (which binds the ring
//! to the task that submits first), nor `DEFER_TASKRUN`, which needs it. The thread that submits
//! also waits: if it has ended, the kernel cannot continue with its entries. `COOP_TASKRUN` only
//! avoids the interrupt that makes a task in user space run its completions at once; ours runs them
//! when it enters the kernel to wait.

use std::io;
use std::os::fd::AsRawFd;

use inkstone_io::{EngineKind, Error, NamedChoice, Result, SyncKind};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode};

use super::progress::{CallNames, Progress, Span, Step};
use super::queue::{Answer, Kernel, answer_of};

/// The part of a slot that an entry is, in the lowest bit of its user data: the linked sync, or
/// else.
const LINKED_SYNC: u64 = 1;

/// A ring.
pub(crate) struct Ring {
    ring: IoUring,
    kind: EngineKind,
    slots: Vec<Slot>,
}

/// The entries of a slot's present attempt that are in flight, and the answers so far.
#[derive(Debug, Default)]
struct Slot {
    /// Entries that the kernel has not answered.
    outstanding: usize,
    is_linked: bool,
    first: Option<io::Result<usize>>,
    sync: Option<io::Result<usize>>,
}

impl Ring {
    /// A ring for `depth` requests of up to two entries each. Its completion queue has twice as
    /// many places, so it cannot overflow.
    pub(crate) fn open(kind: EngineKind, depth: usize) -> Result<Self> {
        let failed = |source| explain(source, kind);
        let entries = u32::try_from(2 * depth)
            .map_err(|_| failed(io::Error::from_raw_os_error(libc::EINVAL)))?;
        let ring = build(entries).map_err(failed)?;
        check_operations(&ring, kind)?;
        let slots = (0..depth).map(|_| Slot::default()).collect();
        Ok(Self { ring, kind, slots })
    }

    /// # Safety
    /// The memory and the descriptors that the entries name must stay valid until they are
    /// answered.
    unsafe fn push(&mut self, entries: &[Entry]) -> Result<()> {
        // SAFETY: handed on.
        let pushed = unsafe { self.ring.submission().push_multiple(entries) };
        // The queue was made for two entries per slot; more would be a bug of this file.
        pushed.map_err(|_| self.failed("io_uring submit", io::Error::other("the queue is full")))
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> Error {
        Error::new(operation, self.kind.name(), source)
    }

    /// Submits what was pushed and waits until `wanted` entries are answered; it may return
    /// earlier, so the caller checks.
    fn enter(&mut self, wanted: usize) -> Result<()> {
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                // A signal: nothing was submitted, or the wait ended early.
                Some(libc::EINTR) => {}
                // No memory for a request now, or completions to be fetched first.
                Some(libc::EAGAIN | libc::EBUSY) => std::thread::yield_now(),
                _ => return Err(self.failed("io_uring_enter", error)),
            },
        }
        // Submitted in part (the kernel had no memory for the next request). A link does not span
        // two submissions: a sync would run by itself, and too early.
        let is_linked = self.slots.iter().any(|slot| slot.is_linked);
        if is_linked && !self.ring.submission().is_empty() {
            let why = io::Error::other("a write was submitted without its linked sync");
            return Err(self.failed("io_uring_enter", why));
        }
        Ok(())
    }

    /// How many entries must be answered before a request can be: two if only a linked pair is in
    /// flight.
    fn wanted(&self) -> usize {
        self.slots.iter().map(|slot| slot.outstanding).filter(|&count| count > 0).min().unwrap_or(0)
    }

    /// Takes the answers there are, without a system call.
    fn reap(&mut self, answers: &mut Vec<Answer>) {
        for entry in self.ring.completion() {
            let number = (entry.user_data() >> 1) as usize;
            let slot = &mut self.slots[number];
            let answer = Some(answer_of(i64::from(entry.result())));
            if entry.user_data() & LINKED_SYNC == 0 {
                slot.first = answer;
            } else {
                slot.sync = answer;
            }
            assert!(slot.outstanding > 0, "an answer to an entry that is not out");
            slot.outstanding -= 1;
            if slot.outstanding == 0 {
                answers.push(std::mem::take(slot).into_answer(number));
            }
        }
    }
}

impl Slot {
    fn into_answer(self, slot: usize) -> Answer {
        let known = |answer: Option<io::Result<usize>>| {
            let twice = "the ring answered one entry twice, another never";
            answer.unwrap_or_else(|| Err(io::Error::other(twice)))
        };
        let linked_sync = self.is_linked.then(|| known(self.sync));
        Answer { slot, result: known(self.first), linked_sync }
    }
}

impl Kernel for Ring {
    const NAMES: &'static CallNames = &CallNames {
        write: "io_uring write",
        write_dsync: "io_uring write(RWF_DSYNC)",
        read: "io_uring read",
        fsync: "io_uring fsync",
        fdatasync: "io_uring fdatasync",
    };

    unsafe fn start(&mut self, slot: usize, progress: &Progress, step: Step) -> Result<()> {
        let first = entry(progress, step);
        let sync = match step {
            Step::Write { then: Some(kind), .. } if self.kind == EngineKind::UringLinked => {
                Some(entry(progress, Step::Sync(kind)))
            }
            _ => None,
        };
        let user_data = (slot as u64) << 1;
        let is_linked = sync.is_some();
        self.slots[slot] =
            Slot { outstanding: 1 + usize::from(is_linked), is_linked, ..Slot::default() };
        let first = first.user_data(user_data);
        // SAFETY: the buffer and the file of `progress` outlive the entries by this function's own
        // condition.
        unsafe {
            match sync {
                None => self.push(&[first]),
                Some(sync) => self
                    .push(&[first.flags(Flags::IO_LINK), sync.user_data(user_data | LINKED_SYNC)]),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.enter(0) }
    }

    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
        self.reap(answers);
        if !answers.is_empty() {
            return self.flush();
        }
        while answers.is_empty() {
            self.enter(self.wanted())?;
            self.reap(answers);
        }
        Ok(())
    }
}

/// The entry of a step.
fn entry(progress: &Progress, step: Step) -> Entry {
    let fd = Fd(progress.file().descriptor().as_raw_fd());
    match step {
        Step::Write { span, dsync, then: _ } => {
            let (at, len) = memory(progress, span);
            let flags = if dsync { libc::RWF_DSYNC } else { 0 };
            opcode::Write::new(fd, at, len).offset(span.offset).rw_flags(flags).build()
        }
        Step::Read { span } => {
            let (at, len) = memory(progress, span);
            opcode::Read::new(fd, at, len).offset(span.offset).build()
        }
        Step::Sync(SyncKind::All) => opcode::Fsync::new(fd).build(),
        Step::Sync(SyncKind::Data) => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Step::Finished => unreachable!("a finished request is not started"),
    }
}

fn memory(progress: &Progress, span: Span) -> (*mut u8, u32) {
    let buffer = progress.buffer().expect("a transfer has a buffer");
    assert!(span.start + span.len <= buffer.len(), "a span outside its buffer");
    let len = u32::try_from(span.len).expect("an attempt is at most 1 GiB");
    (buffer.start().as_ptr().wrapping_add(span.start), len)
}

/// Asks for the flags wanted, and without the newest of them for as long as the kernel does not
/// know one.
fn build(entries: u32) -> io::Result<IoUring> {
    let mut wanted = 2;
    loop {
        let mut builder = IoUring::builder();
        if wanted > 0 {
            // Linux 5.18: a refused entry does not end the submission of those after it.
            builder.setup_submit_all();
        }
        if wanted > 1 {
            // Linux 5.19; see the head of this file.
            builder.setup_coop_taskrun();
        }
        match builder.build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && wanted > 0 => wanted -= 1,
            answer => return answer,
        }
    }
}

fn check_operations(ring: &IoUring, kind: EngineKind) -> Result<()> {
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok();
    let needed = [opcode::Write::CODE, opcode::Read::CODE, opcode::Fsync::CODE];
    if known && needed.iter().all(|&code| probe.is_supported(code)) {
        return Ok(());
    }
    let why = "this kernel's io_uring has no plain write: Linux 5.6 or newer is needed; \
               use engine caller, pool or aio";
    Err(Error::unsupported("open engine", kind.name(), why))
}

fn explain(source: io::Error, kind: EngineKind) -> Error {
    let advice = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here: by `sysctl kernel.io_uring_disabled` (0 allows it), or by \
             a seccomp profile (Docker's and containerd's default ones refuse it); allow it, or \
             use engine caller, pool or aio"
        }
        Some(libc::ENOSYS) => {
            "this kernel was built without io_uring or is older than Linux 5.1, or a seccomp \
             profile hides it; use engine caller, pool or aio"
        }
        Some(libc::ENOMEM) => {
            "rings count against RLIMIT_MEMLOCK: raise it (`ulimit -l`, \
             LimitMEMLOCK= in systemd), lower the depth, or use engine caller, pool or aio"
        }
        _ => "use engine caller, pool or aio",
    };
    Error::new("set up io_uring", kind.name(), source).advise(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ring_says_why_and_what_to_use_instead() {
        for (code, word) in [
            (libc::EPERM, "kernel.io_uring_disabled"),
            (libc::ENOSYS, "seccomp"),
            (libc::ENOMEM, "RLIMIT_MEMLOCK"),
        ] {
            let error = explain(io::Error::from_raw_os_error(code), EngineKind::Uring).to_string();
            assert!(error.contains(word) && error.contains("use engine caller"), "{error}");
        }
    }
}
