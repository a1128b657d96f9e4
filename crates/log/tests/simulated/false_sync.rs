//! A file system whose journal fails may report success for a sync that waited for it
//! (docs/assumptions.md, A13). The log does not acknowledge such a sync wherever it can detect it.
//!
//! *Owns*: two ways of detecting it: another thread's sync failed meanwhile, and the file system
//! refuses changes. *May not touch*: the crate's insides. On real file systems: the example
//! `false_sync` at 61e9dd92.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::Arc;

use crate::gate::{Gate, behind_on};
use inkstone::{Error, Log, Lsn, Options};
use inkstone_io::{Barriers, Capabilities, CopyOnWrite, DioAlignment, MountFacts, Preparation};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

fn disk() -> SimDisk {
    SimDisk::new(1, DiskOptions::default())
}

fn options(preparation: Preparation) -> Options {
    Options::small().own_thread(false).preparation(preparation)
}

fn on(file_system: &str) -> Capabilities {
    Capabilities {
        directory: "/log".into(),
        mount: MountFacts {
            file_system: file_system.into(),
            target: Some("/".into()),
            source: Some("/dev/x".into()),
            options: Some("rw".into()),
            read_only: false,
            barriers: Barriers::On,
        },
        device: None,
        direct: DioAlignment::Bytes { memory: 512, offset: 512 },
        copy_on_write: if file_system == "xfs" {
            CopyOnWrite::SharedExtents
        } else {
            CopyOnWrite::Never
        },
        dsync_writes: true,
        in_memory: false,
        journal: None,
    }
}

fn open(
    disk: &SimDisk,
    gate: &Arc<Gate>,
    on: Option<Capabilities>,
    options: Options,
) -> inkstone::Result<Log> {
    Log::open_in(Arc::new(behind_on(gate, disk.directory("/log"), on)), options)
}

/// The write of a group is called a success and never arrives; from then on the file system refuses
/// changes.
fn append_while_the_journal_fails(log: &Log, disk: &SimDisk) -> Result<Lsn, Error> {
    disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
    disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Touch));
    let appended = log.append_durable(b"lost");
    disk.clear_faults();
    appended
}

/// A write to reserved blocks changes metadata on every file system. A write to written blocks does
/// where blocks may be shared (xfs: a `cp --reflink` of the segment), and possibly where nothing is
/// known: below an overlay, or without a table of mounts.
#[test]
fn a_sync_that_may_have_waited_for_metadata_is_not_believed_when_changes_are_refused() {
    let (reserved, written) = (Preparation::Fallocate, Preparation::Zeros);
    for (known, preparation) in [
        (Some("ext4"), reserved),
        (Some("ext3"), reserved),
        (Some("xfs"), reserved),
        (Some("xfs"), written),
        (Some("btrfs"), written),
        (Some("overlay"), written),
        (None, written),
    ] {
        let (disk, gate) = (disk(), Arc::new(Gate::default()));
        let log = open(&disk, &gate, known.map(on), options(preparation)).unwrap();
        log.append_durable(b"there").unwrap();
        let refused = append_while_the_journal_fails(&log, &disk).unwrap_err();
        let is_poisoned =
            matches!(refused, Error::Poisoned(_)) && refused.to_string().contains("futimens");
        assert!(is_poisoned, "{known:?}, {preparation}: {refused}");
        assert!(matches!(log.append_durable(b"more").unwrap_err(), Error::Poisoned(_)));
        log.abandon();
        let found = disk.crash(1);
        let log = Log::open_in(Arc::new(found.directory("/log")), options(preparation)).unwrap();
        assert_eq!(log.last(), Lsn::new(1));
    }
}

/// Otherwise the test above would show nothing.
#[test]
fn where_an_overwrite_waits_for_no_metadata_nothing_is_asked() {
    for file_system in ["ext4", "ext3"] {
        let (disk, gate) = (disk(), Arc::new(Gate::default()));
        let log = open(&disk, &gate, Some(on(file_system)), options(Preparation::Zeros)).unwrap();
        append_while_the_journal_fails(&log, &disk).unwrap();
        log.abandon();
    }
}

/// Written blocks need no metadata: nothing is asked for their sake, but for the name of each new
/// file.
#[test]
fn a_file_system_that_refuses_changes_gives_no_new_segment() {
    let (disk, gate) = (disk(), Arc::new(Gate::default()));
    let log = open(&disk, &gate, Some(on("ext4")), options(Preparation::Zeros)).unwrap();
    disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Touch));
    let mut last = 0;
    let refused = loop {
        match log.append_durable(&[7; 4000]) {
            Ok(lsn) => last = lsn.get(),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Poisoned(_)) && last > 4, "{refused} after {last}");
    log.abandon();
    disk.clear_faults();
    let touched = Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Touch);
    disk.inject(touched);
    let refused = open(&disk, &gate, Some(on("ext4")), options(Preparation::Zeros)).unwrap_err();
    assert!(
        refused.to_string().contains("futimens"),
        "the first group of an opening asks for all that it relies on: {refused}"
    );
}

#[test]
fn a_group_in_flight_is_not_acknowledged_when_another_sync_fails_meanwhile() {
    let (disk, gate) = (disk(), Arc::new(Gate::default()));
    // A log that prepares segments.
    let options = Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10);
    let options = options.own_thread(false).preparation(Preparation::Fallocate);
    let log = open(&disk, &gate, None, options).unwrap();
    log.append_durable(b"there").unwrap();
    gate.shut();
    let first = std::thread::scope(|scope| {
        let first = scope.spawn(|| log.append_durable(b"in flight"));
        gate.wait_until_held();
        disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::SyncDirectory));
        assert!(matches!(log.prepare_some().unwrap_err(), Error::Poisoned(_)));
        gate.let_go();
        first.join().unwrap()
    });
    let Err(Error::Poisoned(poison)) = first else { panic!("{first:?}") };
    assert_eq!((poison.durable(), log.durable()), (Lsn::new(1), Lsn::new(1)));
}

/// A device that fails a flush may have dropped the log's own writes from its cache, and the next
/// flush reports nothing about them. It does not matter that the flush was for a file that nothing
/// relies on yet. It does matter whether the disk was only full.
#[test]
fn a_failed_sync_of_a_file_made_ahead_poisons_and_a_full_disk_does_not() {
    for (errno, poisons) in [(errno::EIO, true), (errno::ENOSPC, false)] {
        let disk = disk();
        let options = Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10);
        let log = open(&disk, &Arc::default(), None, options.own_thread(false)).unwrap();
        log.append_durable(b"before").unwrap();
        disk.inject(Fault::new(Effect::Error(errno)).on(OperationKind::Sync).file(".new"));
        let error = log.prepare_now().unwrap_err();
        assert_eq!(matches!(error, Error::Poisoned(_)), poisons, "{error}");
        assert_eq!(log.append_durable(b"after").is_err(), poisons);
        assert_eq!(log.reader().get(Lsn::FIRST).unwrap(), b"before");
    }
}
