//! io_uring: one entry for the write, one for the sync, in a mode of its own linked to its write.
//!
//! *Owns*: the ring, and which entries of a slot are in flight. *May not touch*: requests;
//! [`super::entries`] keeps them and their buffers for as long as the kernel has an entry of
//! theirs.
//!
//! One thread may open an engine and another use it, so not `SINGLE_ISSUER` (which binds the ring
//! to the task that submits first), nor `DEFER_TASKRUN`, which needs it. The thread that submits
//! also waits: if it has ended, the kernel cannot continue with its entries. `COOP_TASKRUN` only
//! avoids the interrupt that makes a task in user space run its completions at once; ours runs them
//! when it enters the kernel to wait. With `SUBMIT_ALL` a refused entry does not end the submission
//! of those after it. Both flags need Linux 5.19.

use std::io;
use std::os::fd::AsRawFd;

use inkstone_io::{Error, NamedChoice, Persist, Result, SyncKind};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};

use super::entries::{Answer, Kernel, answer_of};
use super::request::{Operation, Request};
use crate::engine::kind::EngineKind;

/// The part of a slot that an entry is, in the lowest bit of its user data: the linked sync, or
/// else.
const LINKED_SYNC: u64 = 1;

/// A ring.
pub(crate) struct Ring {
    ring: IoUring,
    kind: EngineKind,
    slots: Vec<Slot>,
}

/// The entries of a slot that are in flight, and the answers so far.
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
        let mut builder = IoUring::builder();
        let ring = builder.setup_submit_all().setup_coop_taskrun().build(entries);
        let ring = ring.map_err(failed)?;
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
    unsafe fn start(&mut self, slot: usize, asked: &Request) -> Result<()> {
        let fd = Fd(asked.file.descriptor().as_raw_fd());
        let user_data = (slot as u64) << 1;
        // Of a length it was checked that it fits when the request was taken.
        let (first, sync) = match &asked.operation {
            Operation::Write { buffer, len, offset, persist } => {
                let flags = if *persist == Persist::Dsync { libc::RWF_DSYNC } else { 0 };
                let write = opcode::Write::new(fd, buffer.start().as_ptr(), *len as u32);
                let write = write.offset(*offset).rw_flags(flags).build();
                match persist {
                    Persist::Sync(kind) => (write.flags(Flags::IO_LINK), Some(fsync(fd, *kind))),
                    _ => (write, None),
                }
            }
            Operation::Read { buffer, len, offset } => {
                let read = opcode::Read::new(fd, buffer.start().as_ptr(), *len as u32);
                (read.offset(*offset).build(), None)
            }
            Operation::Sync(kind) => (fsync(fd, *kind), None),
        };
        let is_linked = sync.is_some();
        self.slots[slot] =
            Slot { outstanding: 1 + usize::from(is_linked), is_linked, ..Slot::default() };
        let first = first.user_data(user_data);
        // SAFETY: the buffer and the file of `asked` outlive the entries by this function's own
        // condition.
        unsafe {
            match sync {
                None => self.push(&[first]),
                Some(sync) => self.push(&[first, sync.user_data(user_data | LINKED_SYNC)]),
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

fn fsync(fd: Fd, kind: SyncKind) -> Entry {
    let flags = if kind == SyncKind::Data { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
    opcode::Fsync::new(fd).flags(flags).build()
}

fn explain(source: io::Error, kind: EngineKind) -> Error {
    let advice = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here: by `sysctl kernel.io_uring_disabled` (0 allows it), or by \
             a seccomp profile (Docker's and containerd's default ones refuse it); allow it, or \
             use engine caller or aio"
        }
        Some(libc::ENOSYS) => {
            "this kernel was built without io_uring or is older than Linux 5.1, or a seccomp \
             profile hides it; use engine caller or aio"
        }
        Some(libc::ENOMEM) => {
            "rings count against RLIMIT_MEMLOCK: raise it (`ulimit -l`, \
             LimitMEMLOCK= in systemd), lower the depth, or use engine caller or aio"
        }
        Some(libc::EINVAL) => "it needs Linux 5.19 or newer: use engine caller or aio",
        _ => "use engine caller or aio",
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
