//! Decodes an event's bytes into a [`TraceEvent`]: which events are traced, their fields, and which
//! events are ours.
//!
//! *Owns*: the table of events. *May not touch*: tracefs; it gets the text of the format files. It
//! reads /proc and sysfs only to tell our own threads and the btrfs of our devices from others.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::device::{own_threads, tick_ns};
use crate::trace_event::{Comm, RequestFlags, TraceEvent, TraceKind};
use crate::trace_format::{EventFormat, Field};
use inkstone_io::DeviceNumber;

/// One event of the kernel that is worth tracing.
pub(super) struct EventSpec {
    /// `<system>/<event>` below `events/`.
    pub(super) path: &'static str,
    /// Without it there is no trace; all others are traced where the kernel has them.
    pub(super) needed: bool,
    /// The fields to read, in the order in which `decode` asks for them.
    fields: &'static [&'static str],
    decode: fn(&Record<'_>) -> Option<TraceKind>,
}

impl EventSpec {
    /// Whether the event can be filtered by device inside the kernel.
    pub(super) fn has_device(&self) -> bool {
        self.fields.first() == Some(&"dev")
    }
}

/// All events that are traced.
pub(super) const EVENTS: &[EventSpec] = &[
    EventSpec {
        path: "block/block_bio_queue",
        needed: true,
        fields: &["dev", "sector", "nr_sector", "rwbs", "comm"],
        decode: |record| {
            Some(TraceKind::BioQueue {
                device: record.device()?,
                sector: record.number(1)?,
                sectors: record.number(2)?,
                flags: RequestFlags::parse(record.text(3)?),
                comm: Comm::new(record.text(4)?),
            })
        },
    },
    EventSpec {
        path: "block/block_rq_issue",
        needed: true,
        fields: &["dev", "sector", "nr_sector", "bytes", "rwbs", "comm"],
        decode: |record| {
            Some(TraceKind::RequestIssue {
                device: record.device()?,
                sector: record.number(1)?,
                sectors: record.number(2)?,
                bytes: record.number(3)?,
                flags: RequestFlags::parse(record.text(4)?),
                comm: Comm::new(record.text(5)?),
            })
        },
    },
    EventSpec {
        path: "block/block_rq_complete",
        needed: true,
        fields: &["dev", "sector", "nr_sector", "error", "rwbs"],
        decode: |record| {
            Some(TraceKind::RequestComplete {
                device: record.device()?,
                sector: record.number(1)?,
                sectors: record.number(2)?,
                error: record.number32(3)?.cast_signed(),
                flags: RequestFlags::parse(record.text(4)?),
            })
        },
    },
    EventSpec {
        path: "jbd2/jbd2_start_commit",
        needed: false,
        fields: &["dev", "transaction"],
        decode: |record| {
            Some(TraceKind::JournalCommitStart {
                device: record.device()?,
                transaction: record.number32(1)?,
            })
        },
    },
    EventSpec {
        path: "jbd2/jbd2_end_commit",
        needed: false,
        fields: &["dev", "transaction"],
        decode: |record| {
            Some(TraceKind::JournalCommitEnd {
                device: record.device()?,
                transaction: record.number32(1)?,
            })
        },
    },
    EventSpec {
        path: "jbd2/jbd2_run_stats",
        needed: false,
        fields: &["dev", "tid", "running", "blocks", "blocks_logged"],
        decode: |record| {
            Some(TraceKind::JournalStats {
                device: record.device()?,
                transaction: record.number32(1)?,
                running_ms: ticks_to_ms(record.number(2)?, record.tick_ns),
                blocks: record.number32(3)?,
                blocks_logged: record.number32(4)?,
            })
        },
    },
    EventSpec {
        path: "ext4/ext4_sync_file_enter",
        needed: false,
        fields: &["dev", "ino", "datasync"],
        decode: |record| {
            let data_only = record.number(2)? != 0;
            Some(TraceKind::SyncEnter {
                device: record.device()?,
                inode: record.number(1)?,
                data_only,
            })
        },
    },
    EventSpec {
        path: "ext4/ext4_sync_file_exit",
        needed: false,
        fields: &["dev"],
        decode: |record| Some(TraceKind::SyncExit { device: record.device()? }),
    },
    EventSpec {
        path: "xfs/xfs_file_fsync",
        needed: false,
        fields: &["dev", "ino"],
        decode: |record| {
            Some(TraceKind::XfsSync { device: record.device()?, inode: record.number(1)? })
        },
    },
    EventSpec {
        path: "xfs/xfs_log_force",
        needed: false,
        fields: &["dev"],
        decode: |record| Some(TraceKind::XfsLogForce { device: record.device()? }),
    },
    EventSpec {
        path: "xfs/xlog_iclog_write",
        needed: false,
        fields: &["dev", "flags"],
        decode: |record| {
            Some(TraceKind::XfsLogWrite { device: record.device()?, flags: record.number32(1)? })
        },
    },
    EventSpec {
        path: "btrfs/btrfs_sync_file",
        needed: false,
        fields: &["fsid", "ino"],
        decode: |record| Some(TraceKind::BtrfsSync { inode: record.number(1)? }),
    },
    EventSpec {
        path: "btrfs/btrfs_transaction_commit",
        needed: false,
        fields: &["fsid", "generation"],
        decode: |record| Some(TraceKind::BtrfsCommit { generation: record.number(1)? }),
    },
    EventSpec {
        path: "io_uring/io_uring_queue_async_work",
        needed: false,
        fields: &["opcode"],
        decode: |record| {
            Some(TraceKind::RingPunted { opcode: u8::try_from(record.number(0)?).ok()? })
        },
    },
];

/// An event's bytes and where its fields are.
struct Record<'a> {
    bytes: &'a [u8],
    fields: &'a [Field],
    tick_ns: u64,
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

/// The event file prints milliseconds, but the field in the buffer is in ticks (jiffies).
fn ticks_to_ms(ticks: u64, tick_ns: u64) -> u64 {
    ticks.saturating_mul(tick_ns) / 1_000_000
}

/// The result of decoding an event's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// One of ours.
    Event(TraceEvent),
    /// Another process's or file system's, or an event of another kind.
    NotOurs,
    /// Shorter than its own format says.
    Damaged,
}

/// Knows the events of this kernel and tells ours from others'.
pub(super) struct Decoder {
    known: HashMap<u16, Known>,
    common_type: Field,
    common_pid: Field,
    tick_ns: u64,
    devices: HashSet<DeviceNumber>,
    threads: HashSet<u32>,
    btrfs: HashSet<Vec<u8>>,
    /// /proc and sysfs are read at most once a round.
    looked_at_threads: bool,
    looked_at_btrfs: bool,
}

struct Known {
    spec: &'static EventSpec,
    fields: Vec<Field>,
}

impl Decoder {
    /// A decoder of those events, for these devices. The common fields are those of the first
    /// event.
    pub(super) fn new(devices: &[DeviceNumber], first: &EventFormat) -> Option<Decoder> {
        let mut decoder = Decoder {
            known: HashMap::new(),
            common_type: first.field("common_type")?,
            common_pid: first.field("common_pid")?,
            tick_ns: tick_ns(),
            devices: devices.iter().copied().collect(),
            threads: HashSet::new(),
            btrfs: HashSet::new(),
            looked_at_threads: false,
            looked_at_btrfs: false,
        };
        decoder.look_at_threads();
        decoder.look_at_btrfs();
        decoder.next_round();
        Some(decoder)
    }

    /// Takes an event's format; `Err` with the first field that this kernel's event does not have.
    pub(super) fn add(
        &mut self,
        spec: &'static EventSpec,
        format: &EventFormat,
    ) -> Result<(), &'static str> {
        let fields = spec.fields.iter().map(|name| format.field(name).ok_or(*name));
        let fields = fields.collect::<Result<Vec<Field>, _>>()?;
        self.known.insert(format.id, Known { spec, fields });
        Ok(())
    }

    /// Allows reading /proc and sysfs again.
    pub(super) fn next_round(&mut self) {
        self.looked_at_threads = false;
        self.looked_at_btrfs = false;
    }

    /// Decodes one event's bytes.
    pub(super) fn decode(&mut self, time_ns: u64, bytes: &[u8]) -> Decoded {
        let id = self.common_type.number(bytes).and_then(|id| u16::try_from(id).ok());
        let (Some(id), Some(tid)) = (id, self.common_pid.number(bytes)) else {
            return Decoded::Damaged;
        };
        let Some(known) = self.known.get(&id) else { return Decoded::NotOurs };
        let Ok(tid) = u32::try_from(tid) else { return Decoded::Damaged };
        let record = Record { bytes, fields: &known.fields, tick_ns: self.tick_ns };
        let Some(what) = (known.spec.decode)(&record) else { return Decoded::Damaged };
        let ours = match what {
            TraceKind::RingPunted { .. } => self.is_our_thread(tid),
            TraceKind::BtrfsSync { .. } | TraceKind::BtrfsCommit { .. } => {
                let file_system =
                    known.fields.first().and_then(|field| field.bytes(bytes)).map(<[u8]>::to_vec);
                file_system.is_some_and(|id| self.is_our_btrfs(&id))
            }
            _ => true,
        };
        if ours { Decoded::Event(TraceEvent { time_ns, tid, what }) } else { Decoded::NotOurs }
    }

    /// Threads that have ended stay ours: their events may arrive later than their end.
    fn is_our_thread(&mut self, tid: u32) -> bool {
        if !self.threads.contains(&tid) && !self.looked_at_threads {
            self.look_at_threads();
        }
        self.threads.contains(&tid)
    }

    fn look_at_threads(&mut self) {
        self.threads.extend(own_threads());
        self.looked_at_threads = true;
    }

    fn is_our_btrfs(&mut self, id: &[u8]) -> bool {
        if !self.btrfs.contains(id) && !self.looked_at_btrfs {
            self.look_at_btrfs();
        }
        self.btrfs.contains(id)
    }

    fn look_at_btrfs(&mut self) {
        for entry in fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(parse_uuid) else { continue };
            let members =
                fs::read_dir(entry.path().join("devices")).into_iter().flatten().flatten();
            let mut numbers =
                members.filter_map(|member| fs::read_to_string(member.path().join("dev")).ok());
            if numbers
                .any(|number| number.parse().is_ok_and(|number| self.devices.contains(&number)))
            {
                self.btrfs.insert(id);
            }
        }
        self.looked_at_btrfs = true;
    }
}

fn parse_uuid(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> =
        text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let pairs =
        digits.chunks_exact(2).map(|pair| u8::try_from(pair.first()? << 4 | pair.last()?).ok());
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    (digits.len() == 32).then_some(bytes)
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

    fn event(id: u16, tid: u32, rest: &[u8]) -> Vec<u8> {
        [&id.to_ne_bytes()[..], &[0; 2], &tid.to_ne_bytes(), rest].concat()
    }

    #[test]
    fn journal_times_are_ticks() {
        assert_eq!(ticks_to_ms(3, 4_000_000), 12);
        assert_eq!(ticks_to_ms(u64::MAX, 4_000_000), u64::MAX / 1_000_000);
    }

    #[test]
    fn events_decode_by_their_own_format_or_say_what_is_missing() {
        let format = format(
            9,
            "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:int error;\toffset:12;\tsize:4;\tsigned:1;\n\
             \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
             \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
             \tfield:char rwbs[8];\toffset:28;\tsize:8;\tsigned:0;\n",
        );
        let mut decoder = Decoder::new(&[], &format).expect("common fields");
        decoder.add(spec("block/block_rq_complete"), &format).expect("all fields");
        assert_eq!(decoder.add(spec("block/block_bio_queue"), &format), Err("comm"));
        let mut rest = Vec::new();
        rest.extend(7_340_033u32.to_ne_bytes());
        rest.extend((-5i32).to_ne_bytes());
        rest.extend(4096u64.to_ne_bytes());
        rest.extend(8u32.to_ne_bytes());
        rest.extend(b"WFS\0\0\0\0\0");
        let bytes = event(9, 77, &rest);
        let what = TraceKind::RequestComplete {
            device: DeviceNumber { major: 7, minor: 1 },
            sector: 4096,
            sectors: 8,
            error: -5,
            flags: RequestFlags::parse(b"WFS"),
        };
        assert_eq!(
            decoder.decode(5, &bytes),
            Decoded::Event(TraceEvent { time_ns: 5, tid: 77, what })
        );
        assert_eq!(decoder.decode(5, &event(10, 77, &rest)), Decoded::NotOurs);
        for length in 0..bytes.len() {
            assert_eq!(decoder.decode(5, &bytes[..length]), Decoded::Damaged, "{length}");
        }
    }

    #[test]
    fn only_our_own_threads_count_as_punted() {
        let format = format(3, "\tfield:u8 opcode;\toffset:8;\tsize:1;\tsigned:0;\n");
        let mut decoder = Decoder::new(&[], &format).expect("common fields");
        decoder.add(spec("io_uring/io_uring_queue_async_work"), &format).expect("all fields");
        let Some(&own) = own_threads().first() else { panic!("this test needs /proc") };
        let what = TraceKind::RingPunted { opcode: 3 };
        assert_eq!(
            decoder.decode(1, &event(3, own, &[3])),
            Decoded::Event(TraceEvent { time_ns: 1, tid: own, what })
        );
        assert_eq!(decoder.decode(1, &event(3, 1, &[3])), Decoded::NotOurs);
    }

    #[test]
    fn uuids() {
        let bytes = parse_uuid("00010203-0405-0607-0809-0a0b0c0d0eff").expect("a uuid");
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert!(parse_uuid("features").is_none());
        assert!(parse_uuid("00").is_none());
    }
}
