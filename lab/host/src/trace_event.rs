//! The events of a [`Trace`](crate::Trace): what the kernel's block layer and file systems report.
//!
//! *Owns*: the events' types and the meaning of the kernel's `rwbs` letters. *May not touch*:
//! files, bytes of pages.
//!
//! Sectors are 512 bytes on every device, and count from the start of the whole disk, also for a
//! partition.

use std::fmt;

use inkstone_io::DeviceNumber;

/// One event of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// When, on `CLOCK_MONOTONIC` (see [`monotonic_ns`](crate::monotonic_ns)).
    pub time_ns: u64,
    /// The thread that ran when it happened, with its number outside of any container. For
    /// completions that is the thread that was interrupted.
    pub tid: u32,
    /// What happened.
    pub what: TraceKind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the others are named by their words")]
pub enum TraceKind {
    /// A thread asked for I/O (`block_bio_queue`), before the block layer merges and splits it.
    ///
    /// Here `device` is a partition's own number, in the next two it is the whole disk's.
    BioQueue {
        device: DeviceNumber,
        sector: u64,
        /// Sectors; 0 for a pure flush.
        sectors: u64,
        flags: RequestFlags,
        /// The name of the thread that asked.
        comm: Comm,
    },
    /// The device got a command (`block_rq_issue`).
    RequestIssue {
        /// The device, always a whole disk.
        device: DeviceNumber,
        /// The first sector; 0 for a flush.
        sector: u64,
        /// Sectors; 0 for a flush.
        sectors: u64,
        flags: RequestFlags,
        /// The name of the thread that sent it: often a worker of the kernel.
        comm: Comm,
    },
    /// The device has answered (`block_rq_complete`).
    RequestComplete {
        /// The device, always a whole disk.
        device: DeviceNumber,
        sector: u64,
        flags: RequestFlags,
    },
    /// ext4's journal begins to write a transaction.
    JournalCommitStart { device: DeviceNumber, transaction: u32 },
    /// ext4's journal has written it.
    JournalCommitEnd { device: DeviceNumber, transaction: u32 },
    /// xfs wants its log on the device.
    XfsLogForce { device: DeviceNumber },
    /// A file system begins to sync a file, whoever asked.
    FileSync {
        /// The file system's device; `None` where its event has none (btrfs).
        device: Option<DeviceNumber>,
        inode: u64,
        /// Whether only what reading needs becomes durable (`fdatasync`); `None` where its event
        /// does not say it.
        data_only: Option<bool>,
    },
    /// It has done so; only ext4 says it.
    FileSyncEnd { failed: bool },
    /// A file system begins to sync all of itself.
    WholeSync,
    /// A file system lets go of a file, mostly of a removed one, whose number a new one may get.
    Inactive { inode: u64 },
    /// Reads or writes past the page cache begin.
    DirectIo { device: DeviceNumber, inode: u64 },
    /// A thread gave a request to io_uring.
    RingSubmit {
        /// Names the request until its completion.
        request: u64,
        /// Its `IORING_OP_*`.
        opcode: u8,
    },
    /// The request's descriptor (registered files have none).
    RingFile { request: u64, descriptor: u32 },
    /// io_uring has the request's result.
    RingComplete { request: u64 },
    /// Nothing was traced since then: what was in progress may have ended unseen.
    Pause { since_ns: u64 },
    /// A thread has started a thread or a process.
    Fork { parent: u32, child: u32 },
    /// A thread called the system.
    CallEnter {
        call: Call,
        /// Its first argument: a descriptor; of `msync` an address.
        argument: u64,
        /// Of a write: how much, where the arguments show it.
        bytes: Option<u64>,
        /// The call's flags (`RWF_*`, `MS_*`).
        flags: u32,
    },
    /// The call has returned.
    CallExit { call: Call, result: i64 },
    /// A processor went from one thread to another.
    Switch {
        from: u32,
        to: u32,
        /// Whether the first one sleeps; otherwise it would run on.
        sleeps: bool,
    },
    /// This thread woke another one, or interrupted work did so meanwhile.
    Waking { thread: u32, by_interrupt: bool },
    /// This thread begins to free memory that it needs, or has done so.
    Reclaim { begins: bool },
    /// The kernel lets this thread wait, since too many written pages are not on the disk.
    DirtyPause { is_asleep: bool },
    /// This worker begins to pass on requests that a cgroup's limit had held back, or has done so.
    Throttled { begins: bool },
}

/// A system call that makes something durable, or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the others are named by their words")]
pub enum Call {
    Fsync,
    Fdatasync,
    SyncFileRange,
    Msync,
    Syncfs,
    /// `sync`, of all file systems.
    Sync,
    /// `write`, `pwrite64`, `writev`, `pwritev` or `pwritev2`.
    Write,
}

/// The name of a thread, at most 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comm {
    len: u8,
    bytes: [u8; 16],
}

impl Comm {
    /// The name with these bytes, cut at 16.
    pub fn new(name: &[u8]) -> Comm {
        let mut bytes = [0; 16];
        let mut len = 0;
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
            len += 1;
        }
        Comm { len, bytes }
    }

    /// The name; empty if it is not UTF-8.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The operation of a block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestOp {
    /// `W`.
    Write,
    /// `R`.
    Read,
    /// `F`: the device's cache is written to its medium.
    Flush,
    /// `D`, `DE`.
    Discard,
    /// Everything else; on an ordinary disk that is zeroing (`N`, WRITE_ZEROES).
    Other,
}

/// What kind of request: the kernel's `rwbs` letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestFlags {
    /// The operation.
    pub op: RequestOp,
    /// First flush the device's cache. A bio of 0 sectors with it is a pure flush (`FWS`).
    pub preflush: bool,
    /// Complete only when on the medium.
    pub fua: bool,
    /// A thread waits for it.
    pub sync: bool,
    /// The file system's metadata.
    pub meta: bool,
}

impl RequestFlags {
    /// Reads the letters in the order in which `blk_fill_rwbs` writes them. Letters of later
    /// kernels are passed over.
    ///
    /// The first `F` is PREFLUSH if an operation follows; the second `F` of `FF` is the operation,
    /// since the kernel sends its flushes with PREFLUSH set.
    pub fn parse(rwbs: &[u8]) -> RequestFlags {
        let preflush = matches!(rwbs, [b'F', b'W' | b'R' | b'D' | b'F' | b'Z' | b'N', ..]);
        let rest = if preflush { rwbs.get(1..).unwrap_or_default() } else { rwbs };
        let (op, letters) = match rest {
            [b'D', letters @ ..] => (RequestOp::Discard, letters),
            [b'W', letters @ ..] => (RequestOp::Write, letters),
            [b'R', letters @ ..] => (RequestOp::Read, letters),
            [b'F', letters @ ..] => (RequestOp::Flush, letters),
            letters => (RequestOp::Other, letters),
        };
        let has = |letter: u8| letters.contains(&letter);
        RequestFlags { op, preflush, fua: has(b'F'), sync: has(b'S'), meta: has(b'M') }
    }

    /// Whether a request of `sectors` sectors moves no data and only flushes the device's cache.
    pub fn is_pure_flush(self, sectors: u64) -> bool {
        sectors == 0 && (self.op == RequestOp::Flush || self.preflush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rwbs_letters() {
        use RequestOp::*;
        // Text, operation, and of P(reflush) F(ua) S M those that are set.
        let table: &[(&str, RequestOp, &str)] = &[
            ("WSM", Write, "SM"),
            ("WFSU", Write, "FS"),
            ("FW", Write, "P"),
            ("FWFASMU", Write, "PFSM"),
            ("RA", Read, ""),
            ("FR", Read, "P"),
            ("F", Flush, ""),
            ("FF", Flush, "P"),
            ("FS", Flush, "S"),
            ("FFF", Flush, "PF"),
            ("DF", Discard, "F"),
            ("DES", Discard, "S"),
            ("FN", Other, "P"),
            ("ZAFS", Other, "FS"),
            ("", Other, ""),
            ("WSx", Write, "S"),
        ];
        for (text, op, set) in table {
            let flags = RequestFlags::parse(text.as_bytes());
            let is = [flags.preflush, flags.fua, flags.sync, flags.meta];
            let found: String =
                "PFSM".chars().zip(is).filter(|(_, is)| *is).map(|(letter, _)| letter).collect();
            assert_eq!((flags.op, found.as_str()), (*op, *set), "{text}");
        }
        let pure =
            |text: &str, sectors| RequestFlags::parse(text.as_bytes()).is_pure_flush(sectors);
        assert!(pure("FWS", 0) && pure("FF", 0) && !pure("FWFSM", 8) && !pure("WS", 0));
    }

    #[test]
    fn names_of_threads() {
        assert_eq!(Comm::new(b"jbd2/loop0-8").as_str(), "jbd2/loop0-8");
        assert_eq!(Comm::new(b"a name that is much too long").as_str(), "a name that is m");
        assert_eq!(Comm::new(&[0xff]).as_str(), "");
    }
}
