//! io_uring: one entry for the write, one for the sync; in a mode of its own, over registered
//! buffers and files, or with the sync linked to its write.
//!
//! *Owns*: the ring, and which entries of a slot are in flight. *May not touch*: requests;
//! [`super::queue`] keeps them and their buffers for as long as the kernel has an entry of theirs.
//!
//! An engine is `Send`, and the thread that leads a commit uses it, so submitting and waiting
//! happen on changing threads. Hence the setup flags: not `SINGLE_ISSUER`, which binds the ring to
//! the task that submits first (any other one gets `EEXIST`), and so not `DEFER_TASKRUN`, which
//! needs it and would make completions wait for that one task. No registered ring descriptor
//! either: it belongs to a thread. `COOP_TASKRUN` is right: it only avoids the interrupt that makes
//! a task in user space run its completions at once; ours runs them when it enters the kernel to
//! wait. If the submitter is another thread, the kernel wakes it if it sleeps; if it runs, it
//! handles them at its next entry to the kernel or timer tick.

use std::io;
use std::os::fd::AsRawFd;
use std::thread::ThreadId;

use inkstone_io::{EngineKind, Error, NamedChoice, Result, SyncKind};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, Fixed, FsyncFlags};
use io_uring::{IoUring, Probe, opcode};

use super::progress::{CallNames, Outcome, Progress, Span, Step};
use super::queue::{Answer, Kernel, answer_of};
use super::registered::{Registered, Used};

/// How a ring is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By address and descriptor, one entry at a time.
    Plain,
    /// By the indices of registered buffers and files.
    Registered,
    /// A write and its sync in one submission.
    Linked,
}

impl Mode {
    fn names(self) -> &'static CallNames {
        match self {
            Self::Plain => &PLAIN,
            Self::Registered => &REGISTERED,
            Self::Linked => &LINKED,
        }
    }
}

static PLAIN: CallNames = CallNames {
    engine: EngineKind::Uring,
    write: "io_uring write",
    write_dsync: "io_uring write(RWF_DSYNC)",
    read: "io_uring read",
    fsync: "io_uring fsync",
    fdatasync: "io_uring fdatasync",
};
static REGISTERED: CallNames = CallNames {
    engine: EngineKind::UringRegistered,
    write: "io_uring write_fixed",
    write_dsync: "io_uring write_fixed(RWF_DSYNC)",
    read: "io_uring read_fixed",
    ..PLAIN
};
static LINKED: CallNames = CallNames { engine: EngineKind::UringLinked, ..PLAIN };

/// The part of a slot that an entry is, in the lowest bit of its user data: the linked sync, or
/// else.
const LINKED_SYNC: u64 = 1;

/// A ring.
pub(crate) struct Ring {
    ring: IoUring,
    mode: Mode,
    registered: Option<Registered>,
    slots: Vec<Slot>,
}

/// The entries of a slot's present attempt that are in flight, and the answers so far.
#[derive(Debug, Default)]
struct Slot {
    /// Entries that the kernel has not answered.
    outstanding: usize,
    is_linked: bool,
    /// The kernel may have seen the sync without its link to the write; see [`Ring::enter`].
    is_doubtful: bool,
    /// The thread that submitted the entries; see [`Slot::judge`].
    submitter: Option<ThreadId>,
    first: Option<io::Result<usize>>,
    sync: Option<io::Result<usize>>,
    used: Used,
}

/// Builds an entry on the registered file if there is one, else on the descriptor. A macro, since
/// the two have different types under a sealed trait.
macro_rules! on_file {
    ($used:expr, $progress:expr, $file:ident => $entry:expr) => {
        match $used.file {
            Some(index) => {
                let $file = Fixed(index);
                $entry
            }
            None => {
                let $file = Fd($progress.file().descriptor().as_raw_fd());
                $entry
            }
        }
    };
}

impl Ring {
    /// A ring for `depth` requests of up to two entries each. Its completion queue has twice as
    /// many places, so it cannot overflow.
    pub(crate) fn open(mode: Mode, depth: usize) -> Result<Self> {
        let failed = |source| explain(source, mode);
        let entries = u32::try_from(2 * depth)
            .map_err(|_| failed(io::Error::from_raw_os_error(libc::EINVAL)))?;
        let ring = set_up(entries).map_err(failed)?;
        check_operations(&ring, mode)?;
        let registered = match mode {
            Mode::Registered => Some(Registered::open(&ring.submitter()).map_err(|source| {
                let is_unknown = source.raw_os_error() == Some(libc::EINVAL);
                let error = failed(source);
                if is_unknown {
                    error.advise("sparse tables need Linux 5.19: use engine uring")
                } else {
                    error
                }
            })?),
            Mode::Plain | Mode::Linked => None,
        };
        let slots = (0..depth).map(|_| Slot::default()).collect();
        Ok(Self { ring, mode, registered, slots })
    }

    /// # Safety
    /// The memory and the descriptors that the entries name must stay valid until they are
    /// answered.
    unsafe fn push(&mut self, entries: &[Entry]) -> Result<()> {
        // SAFETY: handed on.
        let pushed = unsafe { self.ring.submission().push_multiple(entries) };
        // The queue was made for two entries per slot; more would be a bug of this file.
        pushed.map_err(|_| {
            Error::new(
                "io_uring submit",
                self.mode.names().engine.name(),
                io::Error::other("the queue is full"),
            )
        })
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
                _ => {
                    return Err(Error::new(
                        "io_uring_enter",
                        self.mode.names().engine.name(),
                        error,
                    ));
                }
            },
        }
        if !self.ring.submission().is_empty() {
            // Submitted in part (the kernel had no memory for the next request). A link does not
            // span two submissions: if a write was the last one submitted, its sync would run by
            // itself, and too early. Rather than find out which one it was, this believes no linked
            // sync that is in flight now.
            for slot in &mut self.slots {
                slot.is_doubtful |= slot.is_linked;
            }
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
        let Self { ring, slots, registered, .. } = self;
        for entry in ring.completion() {
            let number = (entry.user_data() >> 1) as usize;
            let slot = &mut slots[number];
            let answer = answer_of(i64::from(entry.result()));
            if entry.user_data() & LINKED_SYNC == 0 {
                slot.first = Some(answer);
            } else {
                slot.sync = Some(answer);
            }
            assert!(slot.outstanding > 0, "an answer to an entry that is not out");
            slot.outstanding -= 1;
            if slot.outstanding == 0 {
                let slot = std::mem::take(slot);
                if let Some(registered) = registered {
                    registered.release(slot.used);
                }
                answers.push(Answer { slot: number, outcome: slot.into_outcome() });
            }
        }
    }

    /// The indices for an attempt; none in the modes that register nothing.
    ///
    /// # Safety
    /// The buffer of `progress` must live until the indices are given back.
    unsafe fn indices(&mut self, progress: &Progress, with_buffer: bool) -> Used {
        let Some(registered) = &mut self.registered else { return Used::default() };
        let buffer = if with_buffer { progress.buffer() } else { None };
        // SAFETY: handed on.
        unsafe { registered.acquire(&self.ring.submitter(), progress.file(), buffer) }
    }
}

impl Slot {
    fn into_outcome(mut self) -> Outcome {
        let first = self.first.take();
        let first = self.judge(first);
        if !self.is_linked {
            return Outcome::One(first);
        }
        let sync = self.sync.take();
        let sync = match self.judge(sync) {
            Ok(_) if self.is_doubtful => Err(not_started()),
            sync => sync,
        };
        Outcome::Linked { write: first, sync }
    }

    /// If the submitter of an entry has ended before the kernel could continue with it (the sync
    /// after a write, a direct write that needs a worker), the kernel answers `EFAULT` or
    /// `ECANCELED` without having run it. Our memory is valid, so `EFAULT` for a submission of
    /// another thread means just that; the next attempt is this thread's own.
    fn judge(&self, answer: Option<io::Result<usize>>) -> io::Result<usize> {
        let answer = answer.unwrap_or_else(|| {
            Err(io::Error::other("the ring answered one entry twice, another never"))
        });
        let is_ours = self.submitter == Some(std::thread::current().id());
        answer.map_err(|error| {
            if error.raw_os_error() == Some(libc::EFAULT) && !is_ours {
                not_started()
            } else {
                error
            }
        })
    }
}

fn not_started() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

impl Kernel for Ring {
    fn names(&self) -> &'static CallNames {
        self.mode.names()
    }

    unsafe fn start(&mut self, slot: usize, progress: &Progress, step: Step) -> Result<()> {
        // SAFETY: `progress` lives until the answer by this function's own condition, and the
        // answer gives them back.
        let used = unsafe { self.indices(progress, !matches!(step, Step::Sync(_))) };
        let (first, sync) = match step {
            Step::Write { span, dsync, then } => {
                let then = then.filter(|_| self.mode == Mode::Linked);
                (
                    write_entry(progress, used, span, dsync),
                    then.map(|kind| sync_entry(progress, used, kind)),
                )
            }
            Step::Read { span } => (read_entry(progress, used, span), None),
            Step::Sync(kind) => (sync_entry(progress, used, kind), None),
            Step::Finished => unreachable!("a finished request is not started"),
        };
        let user_data = (slot as u64) << 1;
        let is_linked = sync.is_some();
        let submitter = Some(std::thread::current().id());
        self.slots[slot] = Slot {
            outstanding: 1 + usize::from(is_linked),
            is_linked,
            used,
            submitter,
            ..Slot::default()
        };
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

    fn notice(&self) -> Option<&Error> {
        self.registered.as_ref().and_then(Registered::notice)
    }
}

impl Drop for Ring {
    /// The kernel destroys a ring some time *after* its descriptor is closed; until then its
    /// registered files stay open, and an unmount right after that would fail. Unregistering takes
    /// effect now. A failure changes nothing else.
    fn drop(&mut self) {
        if self.registered.is_some() {
            let _ = self.ring.submitter().unregister_buffers();
            let _ = self.ring.submitter().unregister_files();
        }
    }
}

fn write_entry(progress: &Progress, used: Used, span: Span, dsync: bool) -> Entry {
    let (pointer, len) = memory(progress, span);
    let flags = if dsync { libc::RWF_DSYNC } else { 0 };
    match used.buffer {
        Some(index) => on_file!(used, progress, file => {
            opcode::WriteFixed::new(file, pointer, len, index).offset(span.offset).rw_flags(flags).build()
        }),
        None => on_file!(used, progress, file => {
            opcode::Write::new(file, pointer, len).offset(span.offset).rw_flags(flags).build()
        }),
    }
}

fn read_entry(progress: &Progress, used: Used, span: Span) -> Entry {
    let (pointer, len) = memory(progress, span);
    match used.buffer {
        Some(index) => on_file!(used, progress, file => {
            opcode::ReadFixed::new(file, pointer, len, index).offset(span.offset).build()
        }),
        None => on_file!(used, progress, file => {
            opcode::Read::new(file, pointer, len).offset(span.offset).build()
        }),
    }
}

fn sync_entry(progress: &Progress, used: Used, kind: SyncKind) -> Entry {
    let flags = match kind {
        SyncKind::All => FsyncFlags::empty(),
        SyncKind::Data => FsyncFlags::DATASYNC,
    };
    on_file!(used, progress, file => opcode::Fsync::new(file).flags(flags).build())
}

fn memory(progress: &Progress, span: Span) -> (*mut u8, u32) {
    let buffer = progress.buffer().expect("a transfer has a buffer");
    assert!(span.start + span.len <= buffer.len(), "a span outside its buffer");
    let len = u32::try_from(span.len).expect("an attempt is at most 1 GiB");
    (buffer.start().as_ptr().wrapping_add(span.start), len)
}

/// A ring whose descriptor is above the first three, as those of `inkstone-io` are: rings with low
/// numbers keep those in use until one has another number.
fn set_up(entries: u32) -> io::Result<IoUring> {
    let mut low = Vec::new();
    loop {
        let ring = build(entries)?;
        if ring.as_raw_fd() > libc::STDERR_FILENO {
            return Ok(ring);
        }
        low.push(ring);
    }
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

fn check_operations(ring: &IoUring, mode: Mode) -> Result<()> {
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok();
    let needed =
        [opcode::Write::CODE, opcode::Read::CODE, opcode::WriteFixed::CODE, opcode::Fsync::CODE];
    if known && needed.iter().all(|&code| probe.is_supported(code)) {
        return Ok(());
    }
    let why = "this kernel's io_uring has no plain write: Linux 5.6 or newer is needed; use engine caller, pool or aio";
    Err(Error::unsupported("open engine", mode.names().engine.name(), why))
}

fn explain(source: io::Error, mode: Mode) -> Error {
    let code = source.raw_os_error();
    let error = Error::new("set up io_uring", mode.names().engine.name(), source);
    match code {
        Some(libc::EPERM | libc::EACCES) => error.advise(
            "io_uring is forbidden here: by `sysctl kernel.io_uring_disabled` (0 allows it), or by a seccomp profile \
             (Docker's and containerd's default ones refuse it); allow it, or use engine caller, pool or aio",
        ),
        Some(libc::ENOSYS) => error.advise(
            "this kernel was built without io_uring or is older than Linux 5.1, or a seccomp profile hides it; use engine \
             caller, pool or aio",
        ),
        Some(libc::ENOMEM) => error.advise(
            "rings and registered buffers count against RLIMIT_MEMLOCK: raise it (`ulimit -l`, LimitMEMLOCK= in systemd), \
             lower the depth, or use engine caller, pool or aio",
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ring_says_why_and_what_to_use_instead() {
        for (code, word) in [
            (libc::EPERM, "kernel.io_uring_disabled"),
            (libc::EPERM, "seccomp"),
            (libc::ENOSYS, "seccomp"),
            (libc::ENOMEM, "RLIMIT_MEMLOCK"),
        ] {
            let text = explain(io::Error::from_raw_os_error(code), Mode::Registered).to_string();
            assert!(text.starts_with("set up io_uring uring-registered: "), "{text}");
            assert!(
                text.contains(word) && text.contains("use engine caller, pool or aio"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_entry_cancelled_with_its_submitter_did_not_start() {
        let answer_to = |submitter| {
            let first = Some(Err(io::Error::from_raw_os_error(libc::EFAULT)));
            let Outcome::One(Err(error)) =
                (Slot { submitter, first, ..Slot::default() }).into_outcome()
            else {
                panic!("one failure");
            };
            error.raw_os_error()
        };
        let other = std::thread::spawn(|| std::thread::current().id()).join().unwrap();
        assert_eq!(answer_to(Some(other)), Some(libc::ECANCELED));
        assert_eq!(answer_to(Some(std::thread::current().id())), Some(libc::EFAULT));
    }

    #[test]
    fn a_doubtful_link_is_not_believed_but_its_failure_is() {
        let slot = |sync| Slot {
            is_linked: true,
            is_doubtful: true,
            first: Some(Ok(512)),
            sync: Some(sync),
            ..Slot::default()
        };
        let Outcome::Linked { write: Ok(512), sync: Err(error) } = slot(Ok(0)).into_outcome()
        else {
            panic!("a linked outcome whose sync does not count");
        };
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        let failed = slot(Err(io::Error::from_raw_os_error(libc::EIO))).into_outcome();
        assert!(
            matches!(failed, Outcome::Linked { sync: Err(error), .. } if error.raw_os_error() == Some(libc::EIO))
        );
    }
}
