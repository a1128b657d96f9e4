//! Decodes an event's bytes into a [`TraceEvent`]: which events are traced, and their fields.
//!
//! *Owns*: the table of events. *May not touch*: tracefs; it gets the text of the format files.

use std::collections::HashMap;

use crate::trace_event::{Call, Comm, RequestFlags, TraceEvent, TraceKind};
use crate::trace_format::{EventFormat, Field};
use inkstone_io::DeviceNumber;

/// One event of the kernel that is worth tracing.
pub(super) struct EventSpec {
    /// `<system>/<event>` below `events/`.
    pub(super) path: &'static str,
    /// The fields to read, in the order in which `decode` asks for them.
    fields: &'static [&'static str],
    decode: fn(&Record<'_>) -> Option<TraceKind>,
}

impl EventSpec {
    /// Without those of the block layer there is no trace; all others are traced where the kernel
    /// has them.
    pub(super) fn is_needed(&self) -> bool {
        self.path.starts_with("block/")
    }

    /// Whether a file system says that a file is synced.
    pub(super) fn is_file_sync(&self) -> bool {
        self.path.contains("_sync_file") || self.path.contains("_file_fsync")
    }

    /// Whether the event can be filtered by device inside the kernel.
    pub(super) fn has_device(&self) -> bool {
        self.fields.first() == Some(&"dev")
    }

    /// Whether it is a system call, whose events slow every call down.
    pub(super) fn is_call(&self) -> bool {
        self.path.starts_with("syscalls/")
    }

    /// Whether it is a write, of which there are too many to look at all.
    pub(super) fn is_write(&self) -> bool {
        self.is_call() && self.path.contains("write")
    }
}

const fn event(
    path: &'static str,
    fields: &'static [&'static str],
    decode: fn(&Record<'_>) -> Option<TraceKind>,
) -> EventSpec {
    EventSpec { path, fields, decode }
}

/// All events that are traced.
pub(super) const EVENTS: &[EventSpec] = &[
    event("block/block_bio_queue", &["dev", "sector", "nr_sector", "rwbs", "comm"], |record| {
        Some(TraceKind::BioQueue {
            device: record.device()?,
            sector: record.number(1)?,
            sectors: record.number(2)?,
            flags: RequestFlags::parse(record.text(3)?),
            comm: Comm::new(record.text(4)?),
        })
    }),
    event("block/block_rq_issue", &["dev", "sector", "nr_sector", "rwbs", "comm"], |record| {
        Some(TraceKind::RequestIssue {
            device: record.device()?,
            sector: record.number(1)?,
            sectors: record.number(2)?,
            flags: RequestFlags::parse(record.text(3)?),
            comm: Comm::new(record.text(4)?),
        })
    }),
    event("block/block_rq_complete", &["dev", "sector", "rwbs"], |record| {
        Some(TraceKind::RequestComplete {
            device: record.device()?,
            sector: record.number(1)?,
            flags: RequestFlags::parse(record.text(2)?),
        })
    }),
    event("jbd2/jbd2_start_commit", &["dev", "transaction"], |record| {
        let (device, transaction) = (record.device()?, record.number32(1)?);
        Some(TraceKind::JournalCommitStart { device, transaction })
    }),
    event("jbd2/jbd2_end_commit", &["dev", "transaction"], |record| {
        let (device, transaction) = (record.device()?, record.number32(1)?);
        Some(TraceKind::JournalCommitEnd { device, transaction })
    }),
    event("ext4/ext4_sync_file_enter", &["dev", "ino", "datasync"], |record| {
        let (device, inode) = (Some(record.device()?), record.number(1)?);
        Some(TraceKind::FileSync { device, inode, data_only: Some(record.number(2)? != 0) })
    }),
    event("ext4/ext4_sync_file_exit", &["dev", "ret"], |record| {
        Some(TraceKind::FileSyncEnd { failed: record.number32(1)? != 0 })
    }),
    event("btrfs/btrfs_sync_file", &["ino", "datasync"], |record| {
        let data_only = Some(record.number(1)? != 0);
        Some(TraceKind::FileSync { device: None, inode: record.number(0)?, data_only })
    }),
    event("xfs/xfs_file_fsync", &["dev", "ino"], sync_of_xfs),
    event("xfs/xfs_log_force", &["dev"], |record| {
        Some(TraceKind::XfsLogForce { device: record.device()? })
    }),
];

/// Direct I/O, and the requests of io_uring.
pub(super) const SYNC_EVENTS: &[EventSpec] = &[
    DIRECTORY_OF_XFS,
    event("iomap/iomap_dio_rw_begin", &["dev", "ino"], |record| {
        Some(TraceKind::DirectIo { device: record.device()?, inode: record.number(1)? })
    }),
    event("io_uring/io_uring_submit_req", &["req", "opcode"], |record| {
        let opcode = u8::try_from(record.number(1)?).ok()?;
        Some(TraceKind::RingSubmit { request: record.number(0)?, opcode })
    }),
    event("io_uring/io_uring_file_get", &["req", "fd"], |record| {
        Some(TraceKind::RingFile { request: record.number(0)?, descriptor: record.number32(1)? })
    }),
    event("io_uring/io_uring_complete", &["req"], |record| {
        Some(TraceKind::RingComplete { request: record.number(0)? })
    }),
];

const DIRECTORY_OF_XFS: EventSpec = event("xfs/xfs_dir_fsync", &["dev", "ino"], sync_of_xfs);

/// A thread starts another one.
const FORK: EventSpec = event("sched/sched_process_fork", &["parent_pid", "child_pid"], |record| {
    Some(TraceKind::Fork { parent: record.number32(0)?, child: record.number32(1)? })
});

/// What a file system is asked to make durable, beside the events of files in [`EVENTS`]; whose
/// thread asks; and which file is no more. (A number of btrfs is used once.)
pub(super) const WHOLE_SYNC_EVENTS: &[EventSpec] = &[
    FORK,
    DIRECTORY_OF_XFS,
    event("ext4/ext4_sync_fs", &["dev"], |_| Some(TraceKind::WholeSync)),
    event("xfs/xfs_fs_sync_fs", &["dev"], |_| Some(TraceKind::WholeSync)),
    event("btrfs/btrfs_sync_fs", &["wait"], |_| Some(TraceKind::WholeSync)),
    event("ext4/ext4_free_inode", &["dev", "ino"], inactive),
    event("xfs/xfs_inode_inactivating", &["dev", "ino"], inactive),
];

fn inactive(record: &Record<'_>) -> Option<TraceKind> {
    Some(TraceKind::Inactive { inode: record.number(1)? })
}

/// What threads wait for. The kernel shows these of the chosen threads alone.
pub(super) const TASK_EVENTS: &[EventSpec] = &[
    event("sched/sched_switch", &["prev_pid", "prev_state", "next_pid"], |record| {
        let (from, to) = (record.number32(0)?, record.number32(2)?);
        // The lowest byte has the kinds of sleep; a higher bit says that it was preempted.
        Some(TraceKind::Switch { from, to, sleeps: record.number(1)? & 0xff != 0 })
    }),
    event("sched/sched_waking", &["pid", "common_flags"], |record| {
        let by_interrupt = record.number(1)? & (FLAG_HARD_INTERRUPT | FLAG_SOFT_INTERRUPT) != 0;
        Some(TraceKind::Waking { thread: record.number32(0)?, by_interrupt })
    }),
    event("vmscan/mm_vmscan_direct_reclaim_begin", &["order"], reclaim_begins),
    event("vmscan/mm_vmscan_direct_reclaim_end", &["nr_reclaimed"], reclaim_ends),
    event("vmscan/mm_vmscan_memcg_reclaim_begin", &["order"], reclaim_begins),
    event("vmscan/mm_vmscan_memcg_reclaim_end", &["nr_reclaimed"], reclaim_ends),
    event("writeback/balance_dirty_pages", &["pause"], |record| {
        Some(TraceKind::DirtyPause { is_asleep: record.number(0)?.cast_signed() > 0 })
    }),
];

/// When the kernel passes on requests that a cgroup's limit (`io.max`) had held back.
pub(super) const THROTTLE_EVENTS: &[EventSpec] = &[
    event("workqueue/workqueue_execute_start", &["function"], |_| {
        Some(TraceKind::Throttled { begins: true })
    }),
    event("workqueue/workqueue_execute_end", &["function"], |_| {
        Some(TraceKind::Throttled { begins: false })
    }),
];
pub(super) const THROTTLE_FILTER: &str = "function.function == blk_throtl_dispatch_work_fn";

const FLAG_HARD_INTERRUPT: u64 = 0x08;
const FLAG_SOFT_INTERRUPT: u64 = 0x10;

fn reclaim_begins(_: &Record<'_>) -> Option<TraceKind> {
    Some(TraceKind::Reclaim { begins: true })
}

fn reclaim_ends(_: &Record<'_>) -> Option<TraceKind> {
    Some(TraceKind::Reclaim { begins: false })
}

fn sync_of_xfs(record: &Record<'_>) -> Option<TraceKind> {
    let (device, inode) = (Some(record.device()?), record.number(1)?);
    Some(TraceKind::FileSync { device, inode, data_only: None })
}

macro_rules! calls {
    ($($name:literal, $call:ident, $fields:expr, $enter:expr;)*) => {
        /// The system calls that ask for durability, and those that write, each with its return;
        /// and new threads.
        pub(super) const CALL_EVENTS: &[EventSpec] = &[
            FORK,
            $(
                event(concat!("syscalls/sys_enter_", $name), $fields, $enter),
                event(concat!("syscalls/sys_exit_", $name), &["ret"], |record| {
                    let result = record.number(0)?.cast_signed();
                    Some(TraceKind::CallExit { call: Call::$call, result })
                }),
            )*
        ];
    };
}

calls! {
    "fsync", Fsync, &["fd"], |record| enter(record, Call::Fsync);
    "fdatasync", Fdatasync, &["fd"], |record| enter(record, Call::Fdatasync);
    "sync_file_range", SyncFileRange, &["fd"], |record| enter(record, Call::SyncFileRange);
    "syncfs", Syncfs, &["fd"], |record| enter(record, Call::Syncfs);
    "sync", Sync, &["__syscall_nr"], |record| enter(record, Call::Sync);
    "msync", Msync, &["start", "flags"], |record| {
        let (argument, flags) = (record.number(0)?, record.number32(1)?);
        Some(TraceKind::CallEnter { call: Call::Msync, argument, bytes: None, flags })
    };
    "write", Write, &["fd", "count"], |record| write(record, Some(record.number(1)?), 0);
    "pwrite64", Write, &["fd", "count"], |record| write(record, Some(record.number(1)?), 0);
    "writev", Write, &["fd"], |record| write(record, None, 0);
    "pwritev", Write, &["fd"], |record| write(record, None, 0);
    "pwritev2", Write, &["fd", "flags"], |record| write(record, None, record.number32(1)?);
}

fn enter(record: &Record<'_>, call: Call) -> Option<TraceKind> {
    let argument = record.number(0)?;
    Some(TraceKind::CallEnter { call, argument, bytes: None, flags: 0 })
}

fn write(record: &Record<'_>, bytes: Option<u64>, flags: u32) -> Option<TraceKind> {
    let argument = record.number(0)?;
    Some(TraceKind::CallEnter { call: Call::Write, argument, bytes, flags })
}

/// An event's bytes and where its fields are.
struct Record<'a> {
    bytes: &'a [u8],
    fields: &'a [Field],
}

impl Record<'_> {
    fn number(&self, index: usize) -> Option<u64> {
        self.fields.get(index)?.number(self.bytes)
    }

    fn number32(&self, index: usize) -> Option<u32> {
        u32::try_from(self.number(index)?).ok()
    }

    fn text(&self, index: usize) -> Option<&[u8]> {
        self.fields.get(index)?.text(self.bytes)
    }

    fn device(&self) -> Option<DeviceNumber> {
        Some(DeviceNumber::from_kernel(self.number32(0)?))
    }
}

/// The result of decoding an event's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Event(TraceEvent),
    /// An event of another kind.
    NotOurs,
    /// Shorter than its own format says.
    Damaged,
}

/// Knows the events of this kernel.
pub(super) struct Decoder {
    known: HashMap<u16, Known>,
    common_type: Field,
    common_pid: Field,
    /// Of the events of btrfs only those of the one with this identifier; `None`: of all.
    pub(super) btrfs: Option<[u8; 16]>,
}

struct Known {
    spec: &'static EventSpec,
    fields: Vec<Field>,
    /// Whose event it is: those of btrfs name no device.
    btrfs: Option<Field>,
}

impl Decoder {
    /// A decoder without events. The common fields are those of the first event.
    pub(super) fn new(first: &EventFormat) -> Option<Decoder> {
        Some(Decoder {
            known: HashMap::new(),
            common_type: first.field("common_type")?,
            common_pid: first.field("common_pid")?,
            btrfs: None,
        })
    }

    /// Takes an event's format; `Err` with the first field that this kernel's event does not have.
    pub(super) fn add(
        &mut self,
        spec: &'static EventSpec,
        format: &EventFormat,
    ) -> Result<(), &'static str> {
        let fields = spec.fields.iter().map(|name| format.field(name).ok_or(*name));
        let fields = fields.collect::<Result<_, _>>()?;
        self.known.insert(format.id, Known { spec, fields, btrfs: format.field("fsid") });
        Ok(())
    }

    /// Decodes one event's bytes.
    pub(super) fn decode(&self, time_ns: u64, bytes: &[u8]) -> Decoded {
        let number = |field: &Field| u32::try_from(field.number(bytes)?).ok();
        let (Some(id), Some(tid)) = (number(&self.common_type), number(&self.common_pid)) else {
            return Decoded::Damaged;
        };
        let known = u16::try_from(id).ok().and_then(|id| self.known.get(&id));
        let Some(Known { spec, fields, btrfs }) = known else { return Decoded::NotOurs };
        if let (Some(own), Some(field)) = (&self.btrfs, btrfs)
            && field.bytes(bytes).is_some_and(|of| of != own)
        {
            return Decoded::NotOurs;
        }
        let record = Record { bytes, fields };
        match (spec.decode)(&record) {
            Some(what) => Decoded::Event(TraceEvent { time_ns, tid, what }),
            None => Decoded::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

    fn format(id: u16, fields: &str) -> EventFormat {
        EventFormat::parse(&format!("ID: {id}\n{COMMON}{fields}")).expect("a format")
    }

    fn spec(path: &str) -> &'static EventSpec {
        EVENTS.iter().find(|spec| spec.path == path).expect(path)
    }

    fn bytes_of(id: u16, tid: u32, rest: &[u8]) -> Vec<u8> {
        [&id.to_ne_bytes()[..], &[0; 2], &tid.to_ne_bytes(), rest].concat()
    }

    #[test]
    fn events_decode_by_their_own_format_or_say_what_is_missing() {
        let format = format(
            9,
            "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
             \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
             \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
             \tfield:char rwbs[8];\toffset:28;\tsize:8;\tsigned:0;\n",
        );
        let mut decoder = Decoder::new(&format).expect("common fields");
        decoder.add(spec("block/block_rq_complete"), &format).expect("all fields");
        assert_eq!(decoder.add(spec("block/block_bio_queue"), &format), Err("comm"));
        let mut rest = Vec::new();
        rest.extend(7_340_033u32.to_ne_bytes());
        rest.extend([0; 4]);
        rest.extend(4096u64.to_ne_bytes());
        rest.extend(8u32.to_ne_bytes());
        rest.extend(b"WFS\0\0\0\0\0");
        let bytes = bytes_of(9, 77, &rest);
        let what = TraceKind::RequestComplete {
            device: DeviceNumber { major: 7, minor: 1 },
            sector: 4096,
            flags: RequestFlags::parse(b"WFS"),
        };
        let wanted = Decoded::Event(TraceEvent { time_ns: 5, tid: 77, what });
        assert_eq!(decoder.decode(5, &bytes), wanted);
        assert_eq!(decoder.decode(5, &bytes_of(10, 77, &rest)), Decoded::NotOurs);
        for length in 0..bytes.len() {
            assert_eq!(decoder.decode(5, &bytes[..length]), Decoded::Damaged, "{length}");
        }
    }

    #[test]
    fn of_two_btrfs_one_is_seen_if_its_identifier_is_known() {
        let format = format(
            3,
            "\tfield:u8 fsid[16];\toffset:8;\tsize:16;\tsigned:0;\n\
             \tfield:int wait;\toffset:24;\tsize:4;\tsigned:1;\n",
        );
        let mut decoder = Decoder::new(&format).expect("common fields");
        let spec = WHOLE_SYNC_EVENTS.iter().find(|spec| spec.path == "btrfs/btrfs_sync_fs");
        decoder.add(spec.expect("it is listed"), &format).expect("all fields");
        let of = |name: u8| bytes_of(3, 77, &[&[name; 16][..], &1u32.to_ne_bytes()].concat());
        let event = Decoded::Event(TraceEvent { time_ns: 5, tid: 77, what: TraceKind::WholeSync });
        assert_eq!(decoder.decode(5, &of(2)), event);
        decoder.btrfs = Some([1; 16]);
        assert_eq!(decoder.decode(5, &of(1)), event);
        assert_eq!(decoder.decode(5, &of(2)), Decoded::NotOurs);
    }
}
