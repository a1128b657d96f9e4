//! Linux AIO: `io_submit` and `io_getevents`, called directly (no C library has them, libaio is one
//! more dependency).
//!
//! *Owns*: the AIO context and the layout of its entries. *May not touch*: requests;
//! [`super::entries`] keeps them and their buffers for as long as the kernel has an entry of
//! theirs.
//!
//! Linux AIO is asynchronous for direct I/O on blocks that the file has; a buffered write is
//! carried out inside `io_submit`. A sync runs on a thread of the kernel.

use std::io;
use std::os::fd::AsRawFd;

use inkstone_io::{AlignedBuf, Error, NamedChoice, Persist, Result, SyncKind};

use super::entries::{Answer, Kernel, answer_of};
use super::request::{Operation, Request};
use crate::engine::kind::EngineKind;

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
            0 => libc::EAGAIN,
            _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        };
        self.refused.push(one(entry.data as usize, -i64::from(code)));
    }

    /// Waits for an event, and takes all there are.
    fn events(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
        let mut events = [Event::default(); EVENT_BATCH];
        let no_timeout = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: `events` has room for the number that is given, and the kernel writes no more.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                1_usize,
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
        answers.extend(events[..count].iter().map(|event| one(event.data as usize, event.result)));
        Ok(())
    }
}

impl Kernel for Aio {
    unsafe fn start(&mut self, slot: usize, asked: &Request) -> Result<()> {
        let entry = Iocb {
            data: slot as u64,
            descriptor: asked.file.descriptor().as_raw_fd().cast_unsigned(),
            ..Iocb::default()
        };
        let entry = match &asked.operation {
            Operation::Write { buffer, len, offset, persist } => {
                let rw_flags = if *persist == Persist::Dsync { libc::RWF_DSYNC } else { 0 };
                let opcode = IOCB_CMD_PWRITE;
                Iocb { opcode, rw_flags, ..with_buffer(entry, buffer, *len, *offset) }
            }
            Operation::Read { buffer, len, offset } => {
                Iocb { opcode: IOCB_CMD_PREAD, ..with_buffer(entry, buffer, *len, *offset) }
            }
            Operation::Sync(SyncKind::All) => Iocb { opcode: IOCB_CMD_FSYNC, ..entry },
            Operation::Sync(SyncKind::Data) => Iocb { opcode: IOCB_CMD_FDSYNC, ..entry },
        };
        // SAFETY: the buffer of `asked` outlives the entry by this function's own condition.
        unsafe { self.hand_over(entry) };
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
        answers.append(&mut self.refused);
        while answers.is_empty() {
            self.events(answers)?;
        }
        Ok(())
    }
}

fn one(slot: usize, result: i64) -> Answer {
    Answer { slot, result: answer_of(result), linked_sync: None }
}

fn with_buffer(entry: Iocb, buffer: &AlignedBuf, len: usize, offset: u64) -> Iocb {
    Iocb {
        buffer: buffer.start().as_ptr().expose_provenance() as u64,
        bytes: len as u64,
        // The sum was checked against `i64::MAX` when the request was taken.
        offset: offset.cast_signed(),
        ..entry
    }
}

fn explain(source: io::Error, depth: usize) -> Error {
    let code = source.raw_os_error();
    let error = Error::new("io_setup", EngineKind::Aio.name(), source);
    match code {
        Some(libc::EAGAIN) => error.advise(format!(
            "the machine's AIO entries are used up ({depth} more were asked for): raise \
             /proc/sys/fs/aio-max-nr (see /proc/sys/fs/aio-nr), lower the depth, or use engine \
             uring"
        )),
        Some(libc::ENOSYS | libc::EPERM) => error.advise(
            "this kernel was built without Linux AIO, or a seccomp profile forbids it: use engine \
             caller or uring",
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
