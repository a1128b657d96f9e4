//! Linux AIO: `io_submit` and `io_getevents`, called directly (no C library has them, libaio is one
//! more dependency).
//!
//! *Owns*: the AIO context and the layout of its entries. *May not touch*: requests;
//! [`super::queue`] keeps them and their buffers for as long as the kernel has an entry of theirs.
//!
//! Linux AIO is asynchronous for direct I/O on blocks that the file has; a buffered write is
//! carried out inside `io_submit`. A sync runs on a thread of the kernel.

use std::io;
use std::os::fd::AsRawFd;

use inkstone_io::{EngineKind, Error, NamedChoice, Result, SyncKind};

use super::progress::{CallNames, Progress, Span, Step};
use super::queue::{Answer, Kernel};

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_FSYNC: u16 = 2;
const IOCB_CMD_FDSYNC: u16 = 3;

/// How many events one `io_getevents` takes at most.
const EVENT_BATCH: usize = 64;

/// `struct iocb`. The order of `key` and `rw_flags` is that of a little-endian machine.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    data: u64,
    entry: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64);
const _: () = assert!(size_of::<Event>() == 32);
#[cfg(target_endian = "big")]
compile_error!(
    "`struct iocb` has `aio_key` and `aio_rw_flags` the other way round on a big-endian machine"
);

/// An AIO context.
#[derive(Debug)]
pub(crate) struct Aio {
    context: libc::c_ulong,
    /// Answers to entries that the kernel did not take.
    refused: Vec<Answer>,
}

impl Aio {
    /// A context for `depth` entries.
    pub(crate) fn open(depth: usize) -> Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: `context` is live and 0, as `io_setup` wants it, and the kernel writes one word
        // there.
        let answer =
            unsafe { libc::syscall(libc::SYS_io_setup, depth, std::ptr::from_mut(&mut context)) };
        if answer != 0 {
            return Err(explain(io::Error::last_os_error(), depth));
        }
        Ok(Self { context, refused: Vec::new() })
    }

    /// Submits one entry.
    ///
    /// # Safety
    /// The memory that the entry names must stay valid until its answer.
    unsafe fn hand_over(&mut self, mut entry: Iocb) {
        let mut list = [std::ptr::from_mut(&mut entry)];
        // SAFETY: one pointer to a live entry, which the kernel copies before the call returns (it
        // writes `key` into it); the memory named *in* the entry stays valid by this function's own
        // condition.
        let answer =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1_usize, list.as_mut_ptr()) };
        let code = match answer {
            1 => return,
            0 => Some(libc::EAGAIN),
            _ => io::Error::last_os_error().raw_os_error(),
        };
        let code = match code {
            // No room, since other contexts use all of it: the entry did not start, and is to be
            // tried again.
            Some(libc::EAGAIN) => {
                std::thread::yield_now();
                libc::EINTR
            }
            // Any other error is about this entry: a bad descriptor, a misaligned direct write.
            code => code.unwrap_or(libc::EIO),
        };
        self.refused.push(Answer::one(entry.data as usize, -i64::from(code)));
    }

    /// Takes the events there are, and waits for so many.
    fn events(&mut self, least: usize, answers: &mut Vec<Answer>) -> Result<()> {
        let mut events = [Event::default(); EVENT_BATCH];
        let no_timeout = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: `events` has room for the number that is given, and the kernel writes no more.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                least,
                EVENT_BATCH,
                events.as_mut_ptr(),
                no_timeout,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            let is_interrupt = error.kind() == io::ErrorKind::Interrupted;
            return if is_interrupt {
                Ok(())
            } else {
                Err(Error::new("io_getevents", EngineKind::Aio.name(), error))
            };
        };
        answers.extend(
            events[..count].iter().map(|event| Answer::one(event.data as usize, event.result)),
        );
        Ok(())
    }
}

impl Kernel for Aio {
    const NAMES: &'static CallNames = &CallNames {
        write: "AIO pwrite",
        write_dsync: "AIO pwrite(RWF_DSYNC)",
        read: "AIO pread",
        fsync: "AIO fsync",
        fdatasync: "AIO fdsync",
    };

    unsafe fn start(&mut self, slot: usize, progress: &Progress, step: Step) -> Result<()> {
        let entry = Iocb {
            data: slot as u64,
            descriptor: progress.file().descriptor().as_raw_fd().cast_unsigned(),
            ..Iocb::default()
        };
        let entry = match step {
            Step::Write { span, dsync, then: _ } => {
                let rw_flags = if dsync { libc::RWF_DSYNC } else { 0 };
                Iocb { opcode: IOCB_CMD_PWRITE, rw_flags, ..with_span(entry, progress, span) }
            }
            Step::Read { span } => {
                Iocb { opcode: IOCB_CMD_PREAD, ..with_span(entry, progress, span) }
            }
            Step::Sync(SyncKind::All) => Iocb { opcode: IOCB_CMD_FSYNC, ..entry },
            Step::Sync(SyncKind::Data) => Iocb { opcode: IOCB_CMD_FDSYNC, ..entry },
            Step::Finished => unreachable!("a finished request is not started"),
        };
        // SAFETY: the buffer of `progress` outlives the entry by this function's own condition.
        unsafe { self.hand_over(entry) };
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
        answers.append(&mut self.refused);
        loop {
            // Also beside refused ones, which would else be tried again without the room that
            // events give back.
            self.events(usize::from(answers.is_empty()), answers)?;
            if !answers.is_empty() {
                return Ok(());
            }
        }
    }
}

fn with_span(entry: Iocb, progress: &Progress, span: Span) -> Iocb {
    let buffer = progress.buffer().expect("a transfer has a buffer");
    Iocb {
        buffer: buffer.start().as_ptr().expose_provenance() as u64 + span.start as u64,
        bytes: span.len as u64,
        // The sum was checked against `i64::MAX` when the request was taken.
        offset: span.offset.cast_signed(),
        ..entry
    }
}

fn explain(source: io::Error, depth: usize) -> Error {
    let code = source.raw_os_error();
    let error = Error::new("io_setup", EngineKind::Aio.name(), source);
    match code {
        Some(libc::EAGAIN) => error.advise(format!(
            "the machine's AIO entries are used up ({depth} more were asked for): raise \
             /proc/sys/fs/aio-max-nr (see /proc/sys/fs/aio-nr), lower the depth, or use engine pool"
        )),
        Some(libc::ENOSYS | libc::EPERM) => error.advise(
            "this kernel was built without Linux AIO, or a seccomp profile forbids it: use engine \
             caller or pool",
        ),
        _ => error,
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours and is destroyed once; the call waits for entries that are
        // still in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
