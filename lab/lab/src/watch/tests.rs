//! Syncs, bills, causes and sentences of events that are made by hand.

use std::collections::HashMap;
use std::path::PathBuf;

use inkstone_host::{
    Call, Comm, DeviceNumber, Extent, ExtentMap, ExtentState, OpenedAs, RequestFlags, TraceEvent,
    TraceKind,
};
use inkstone_io::CopyOnWrite;

use super::cause::{Cause, words};
use super::collect::{Seen, Target};
use super::page::page;
use super::recording::{Descriptor, FileState, Place, Recording, SeenFile};
use super::report::WatchReport;
use super::syncs::{How, syncs_of};
use super::tally::SyncBill;
use super::{WatchOptions, ahead, report_of};
use crate::bill::{Disk, Layer};

const DISK: DeviceNumber = DeviceNumber { major: 7, minor: 0 };
const PROGRAM: u32 = 100;
const THREAD: u32 = 101;
const JOURNAL: u32 = 50;
const OTHER: u32 = 60;
const FD: u32 = 5;
const INODE: u64 = 12;
/// The file's blocks begin here, far before the journal's.
const FILE_SECTOR: u64 = 800;
const JOURNAL_SECTOR: u64 = 100_000;

fn event(time_ns: u64, tid: u32, what: TraceKind) -> TraceEvent {
    TraceEvent { time_ns, tid, what }
}

fn flags(rwbs: &str) -> RequestFlags {
    RequestFlags::parse(rwbs.as_bytes())
}

/// A request: its bio, its issue and its end, at three given times.
fn request(
    at: u64,
    tid: u32,
    comm: &str,
    sector: u64,
    sectors: u64,
    rwbs: &str,
) -> Vec<TraceEvent> {
    let (device, flags, comm) = (DISK, flags(rwbs), Comm::new(comm.as_bytes()));
    let issue = TraceKind::RequestIssue { device, sector, sectors, flags, comm };
    vec![
        event(at, tid, TraceKind::BioQueue { device, sector, sectors, flags, comm }),
        event(at + 1, tid, issue),
        event(at + 5, 0, TraceKind::RequestComplete { device, sector, flags }),
    ]
}

/// A pure flush: what is asked for differs from what the device gets.
fn flush(at: u64, tid: u32, comm: &str) -> Vec<TraceEvent> {
    let mut events = request(at, tid, comm, 0, 0, "FF");
    let comm = Comm::new(comm.as_bytes());
    let (sector, sectors) = (0, 0);
    events[0].what =
        TraceKind::BioQueue { device: DISK, sector, sectors, flags: flags("FWS"), comm };
    events
}

fn call(at: u64, end: u64, call: Call) -> Vec<TraceEvent> {
    let argument = u64::from(FD);
    let enter = TraceKind::CallEnter { call, argument, bytes: None, flags: 0 };
    vec![event(at, THREAD, enter), event(end, THREAD, TraceKind::CallExit { call, result: 0 })]
}

fn extent(logical: u64, len_bytes: u64, state: ExtentState) -> Extent {
    Extent { logical, physical: FILE_SECTOR * 512 + logical, len_bytes, state, shared: false }
}

fn state(len_bytes: u64, extents: Vec<Extent>) -> Option<FileState> {
    Some(FileState { len_bytes, extents: ExtentMap { extents } })
}

pub(super) fn recording(before: Option<FileState>, after: Option<FileState>) -> Recording {
    let place = Place {
        device: DISK,
        layer: Layer {
            device: "loop0".into(),
            file_system: "ext4".into(),
            target: Some(PathBuf::from("/data")),
            disks: vec![Disk {
                numbers: vec![DISK],
                volatile_cache: true,
                one_flush: true,
                ..Disk::default()
            }],
            log: std::iter::once(JOURNAL_SECTOR * 512..JOURNAL_SECTOR * 512 * 2).collect(),
            has_journal: true,
            has_barriers: true,
            ..Layer::default()
        },
        copy_on_write: CopyOnWrite::Never,
        options: "rw".into(),
        loop_backing: None,
        memory: None,
    };
    Recording {
        span_ns: 0..1_000_000,
        threads: HashMap::from([(THREAD, PROGRAM)]),
        files: vec![SeenFile {
            before,
            after,
            ..SeenFile::named(DISK, INODE, PathBuf::from("/data/wal"), Some(0))
        }],
        descriptors: vec![Descriptor {
            process: PROGRAM,
            number: FD,
            since_ns: 0,
            file: 0,
            opened: OpenedAs::default(),
        }],
        places: vec![place],
        ..Recording::default()
    }
}

/// Ten syncs with this cost each, beside a neighbour.
fn ten(recording: &mut Recording, each: impl Fn(u64, u64) -> Vec<TraceEvent>) {
    for number in 0..10 {
        let at = 1000 * (number + 1);
        recording.events.extend(call(at, at + 500, Call::Fdatasync));
        recording.events.extend(each(at, number));
        recording.events.extend(request(at + 420, OTHER, "dd", 500_000 + number * 8, 8, "WS"));
        recording.events.extend(flush(at + 440, OTHER, "dd"));
    }
    recording.events.sort_by_key(|event| event.time_ns);
}

fn report(recording: Recording) -> WatchReport {
    let processes = vec![(PROGRAM, "etcd".into())];
    let seen = Seen { recording, processes, warnings: Vec::new() };
    let options = WatchOptions {
        target: Target::Process(PROGRAM),
        time: std::time::Duration::from_secs(1),
        slow: None,
    };
    report_of(&options, &seen)
}

fn overwrite(at: u64, number: u64) -> Vec<TraceEvent> {
    let data = request(at + 10, THREAD, "etcd", FILE_SECTOR + number * 8, 8, "WS");
    [data, flush(at + 30, THREAD, "etcd")].concat()
}

/// A commit of ext4's journal that the sync waits for: a descriptor with its blocks, and the commit
/// record with its flushes.
fn committed(at: u64, number: u64) -> Vec<TraceEvent> {
    let transaction = number as u32;
    let start = TraceKind::JournalCommitStart { device: DISK, transaction };
    let end = TraceKind::JournalCommitEnd { device: DISK, transaction };
    let sector = JOURNAL_SECTOR + number * 24;
    let mut record = request(at + 140, JOURNAL, "jbd2/loop0-8", sector + 16, 8, "WSM");
    let comm = Comm::new(b"jbd2/loop0-8");
    record[0] = event(
        at + 119,
        JOURNAL,
        TraceKind::BioQueue {
            device: DISK,
            sector: sector + 16,
            sectors: 8,
            flags: flags("FWFSM"),
            comm,
        },
    );
    let mut flushes = [flush(at + 120, JOURNAL, "jbd2/loop0-8"), flush(at + 160, 0, "kworker/0:1")];
    // The block layer makes them, without a bio.
    for all in &mut flushes {
        all.remove(0);
    }
    [
        request(at + 10, THREAD, "etcd", FILE_SECTOR + number * 8, 8, "WS"),
        vec![event(at + 50, JOURNAL, start)],
        request(at + 60, JOURNAL, "jbd2/loop0-8", sector, 16, "WSM"),
        record,
        flushes.concat(),
        vec![event(at + 200, JOURNAL, end)],
    ]
    .concat()
}

#[test]
fn an_overwrite_pays_one_write_and_one_flush_beside_a_neighbour() {
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    let mut recording = recording(written(), written());
    ten(&mut recording, overwrite);
    let report = report(recording);
    let file = &report.files[0];
    let bill = file.bill.expect("a bill");
    let found = [bill.data_writes, bill.journal_writes, bill.metadata_writes, bill.flushes];
    assert_eq!(found, [1.0, 0.0, 0.0, 1.0], "{file:#?}");
    assert_eq!(file.cause, Cause::Overwrites, "{file:#?}");
    let calls = file.calls[&How::Fdatasync];
    assert_eq!((calls.calls, calls.failed, calls.p50_us), (10, 0, 0.5));
    let page = page(&report, 80);
    assert!(page.contains("each fdatasync of wal pays 1 data write and 1 flush"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
}

#[test]
fn a_sync_without_a_flush_of_its_own_pays_for_the_journals_commit() {
    let reserved = || state(40960, vec![extent(0, 40960, ExtentState::Unwritten)]);
    let beyond = || state(0, vec![extent(0, 40960, ExtentState::Unwritten)]);
    let hole = || state(40960, Vec::new());
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    let empty = || state(0, Vec::new());
    for (before, cause) in [
        (reserved(), Cause::Reserved),
        (beyond(), Cause::ReservedBeyond),
        (hole(), Cause::Holes),
        (empty(), Cause::Grows),
        (written(), Cause::OthersJournal),
    ] {
        let mut recording = recording(before, written());
        ten(&mut recording, committed);
        let report = report(recording);
        let file = &report.files[0];
        let bill = file.bill.expect("a bill");
        let found = [bill.data_writes, bill.journal_writes, bill.metadata_writes, bill.flushes];
        assert_eq!(found, [1.0, 2.0, 0.0, 2.0], "{file:#?}");
        assert_eq!((file.cause, bill.waited), (cause, 1.0), "{file:#?}");
        assert_eq!(file.advice, None, "{file:#?}");
    }
}

/// xfs and ext4 allocate blocks as unwritten ones for the time of their first write, in which a
/// file may be seen for the first time. Seen of Redis that saves: "its blocks are reserved", and of
/// PostgreSQL's segment, which it fills with zeros before it is used: "the file grows".
#[test]
fn what_a_file_is_seen_as_within_its_first_sync_is_not_what_it_was_before() {
    let unwritten = || state(40960, vec![extent(0, 40960, ExtentState::Unwritten)]);
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    for (syncs, cause) in [(1, Cause::Grows), (8, Cause::TimeStamps)] {
        let mut recording = recording(unwritten(), written());
        let file = &mut recording.files[0];
        (file.is_new, file.is_created, file.seen_ns) = (true, true, 1_015);
        for number in 0..syncs {
            let at = 1000 * (number + 1);
            recording.events.extend(call(at, at + 500, Call::Fsync));
            recording.events.extend(committed(at, number));
        }
        // The rest of the file is written within the first sync, too, after the file was seen.
        let rest = request(1_020, THREAD, "redis-server", FILE_SECTOR + 8, 72, "WS");
        recording.events.extend(rest);
        recording.events.sort_by_key(|event| event.time_ns);
        let report = report(recording);
        assert_eq!(report.files[0].cause, cause, "{syncs} syncs: {report:#?}");
    }
}

/// Seen of PostgreSQL with wal_sync_method = fsync: "it fills holes". The file was seen while it
/// was filled, in one sync, with data that had no blocks yet. Then it is written over.
#[test]
fn a_file_that_was_filled_once_does_not_grow_with_each_later_sync() {
    let filled = |len| state(len, vec![extent(0, len, ExtentState::Delayed)]);
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    for before in [filled(20480), filled(40960)] {
        let mut recording = recording(before, written());
        let file = &mut recording.files[0];
        (file.is_new, file.is_created, file.seen_ns) = (true, true, 900);
        for number in 0..60 {
            let at = 1000 * (number + 1);
            recording.events.extend(call(at, at + 500, Call::Fsync));
            recording.events.extend(match number {
                0 => request(at + 10, THREAD, "postgres", FILE_SECTOR, 80, "WS"),
                // A commit after another writes the same block.
                _ if number % 2 == 0 => overwrite(at, number / 10),
                _ => committed(at, number / 10),
            });
        }
        recording.events.sort_by_key(|event| event.time_ns);
        let report = report(recording);
        assert_eq!(report.files[0].cause, Cause::TimeStamps, "{report:#?}");
    }
}

/// Seen of SQLite's rollback journal on a busy machine, where files are looked at less often than
/// planned: four of five looks found it created again, among sixty syncs.
#[test]
fn a_file_is_created_again_if_most_looks_at_it_find_that() {
    for (looks, cause) in [(5, Cause::CreatedAgain), (60, Cause::Grows)] {
        let empty = || state(0, Vec::new());
        let mut recording = recording(empty(), state(4096, Vec::new()));
        let file = &mut recording.files[0];
        (file.births, file.is_created, file.looks) = (4, true, looks);
        for number in 0..60 {
            let at = 1000 * (number + 1);
            recording.events.extend(call(at, at + 500, Call::Fdatasync));
            recording.events.extend(committed(at, number));
        }
        let report = report(recording);
        assert_eq!(report.files[0].cause, cause, "{looks} looks: {report:#?}");
    }
}

/// Seen on a mount with data=journal: an overwrite "had to wait for the journal: for another
/// change", and a file that grows "would pay 1 data write and 1 flush over blocks that were written
/// before".
#[test]
fn with_data_in_the_journal_an_overwrite_waits_for_its_own_data() {
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    let empty = || state(0, Vec::new());
    for (before, cause) in [(written(), Cause::DataInJournal), (empty(), Cause::Grows)] {
        let mut recording = recording(before, written());
        recording.places[0].layer.journals_data = true;
        ten(&mut recording, committed);
        let report = report(recording);
        assert_eq!(report.files[0].cause, cause, "{report:#?}");
        assert!(!report.finding.contains("would pay"), "{}", report.finding);
    }
}

#[test]
fn small_writes_into_reserved_blocks_mostly_pay_for_the_inode() {
    let reserved = || state(40960, vec![extent(0, 40960, ExtentState::Unwritten)]);
    let written = || state(40960, vec![extent(0, 8192, ExtentState::Written)]);
    for (writes_in_a_block, cause) in [(8, Cause::InodeInPlace), (1, Cause::Reserved)] {
        let mut recording = recording(reserved(), written());
        recording.places[0].layer.has_journal = false;
        ten(&mut recording, |at, number| {
            let sector = FILE_SECTOR + number / writes_in_a_block * 8;
            let data = request(at + 10, THREAD, "etcd", sector, 8, "WS");
            let inode = request(at + 20, THREAD, "etcd", 64, 8, "WSM");
            [data, inode, flush(at + 40, THREAD, "etcd")].concat()
        });
        let report = report(recording);
        let file = &report.files[0];
        let bill = file.bill.expect("a bill");
        assert_eq!([bill.data_writes, bill.metadata_writes, bill.flushes], [1.0, 1.0, 1.0]);
        assert_eq!(file.cause, cause, "{writes_in_a_block} writes in a block: {file:#?}");
    }
}

#[test]
fn the_file_is_the_one_that_the_file_system_names_not_the_descriptors() {
    let mut recording = recording(state(0, Vec::new()), state(0, Vec::new()));
    let another = SeenFile { inode: 13, path: "/data/next".into(), ..recording.files[0].clone() };
    recording.files.push(another);
    let with = |event: TraceEvent| {
        let [enter, exit] = <[TraceEvent; 2]>::try_from(call(1000, 1500, Call::Fsync)).expect("2");
        vec![enter, event, exit]
    };
    let sync = |inode| TraceKind::FileSync { device: Some(DISK), inode, data_only: Some(false) };
    recording.events = with(event(1100, THREAD, sync(13)));
    let found = syncs_of(&recording);
    assert_eq!((found.syncs.len(), found.syncs[0].file), (1, 1));
    // An unknown inode: the file was removed at once.
    recording.events = with(event(1100, THREAD, sync(14)));
    let found = syncs_of(&recording);
    assert_eq!((found.syncs[0].file, found.files.len()), (2, 3));
    // Another's thread syncs our file: not ours, and no worker of the kernel.
    recording.events = vec![event(1100, OTHER, sync(12))];
    assert_eq!(syncs_of(&recording).syncs, []);
}

#[test]
fn events_that_were_lost_leave_no_bill() {
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    let mut recording = recording(written(), written());
    ten(&mut recording, overwrite);
    recording.lost = 3;
    let report = report(recording);
    assert_eq!((report.files[0].bill, report.lost_events), (None, 3));
    assert!(report.warnings.iter().any(|text| text.contains("lost 3 events")), "{report:?}");
}

/// Seen of SQLite, which had not opened its file yet: "its file system is on no disk of its own".
#[test]
fn a_disk_that_was_not_known_at_the_start_is_not_said_to_be_none() {
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    let mut recording = recording(written(), written());
    recording.files[0].place = None;
    ten(&mut recording, overwrite);
    let report = report(recording);
    assert!(report.files[0].bill.is_none() && report.finding.contains("watch again"), "{report:?}");
}

#[test]
fn no_sync_at_all_is_the_finding() {
    let report = report(recording(None, None));
    assert!(report.finding.contains("asked for nothing to be durable"), "{}", report.finding);
}

#[test]
fn what_is_in_progress_at_a_pause_does_not_count_and_rates_are_of_the_traced_time() {
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    let mut recording = recording(written(), written());
    ten(&mut recording, overwrite);
    // The sixth sync had begun, and neither its flush nor its end was seen.
    let (since_ns, until_ns) = (6020, 500_000);
    let pause = event(until_ns, 0, TraceKind::Pause { since_ns });
    recording.events.retain(|event| event.time_ns <= since_ns || event.time_ns >= 7000);
    for event in recording.events.iter_mut().filter(|event| event.time_ns >= 7000) {
        event.time_ns += until_ns;
    }
    recording.events.push(pause);
    recording.events.sort_by_key(|event| event.time_ns);
    let report = report(recording);
    let file = &report.files[0];
    let bill = file.bill.expect("a bill");
    assert_eq!((bill.syncs, bill.flushes), (9, 1.0), "{file:#?}");
    let rate = file.calls[&How::Fdatasync].per_second;
    assert!((rate * 506_020e-9 - 9.0).abs() < 1e-6, "{rate}");
    assert!(report.warnings.iter().any(|text| text.contains("51% of the time")), "{report:?}");
}

/// Seen of a program that opened its file after the start: 3.3 KiB for each sync of 4 KiB.
#[test]
fn syncs_before_the_first_traced_write_are_not_taken_for_syncs_of_nothing() {
    let written = || state(40960, vec![extent(0, 40960, ExtentState::Written)]);
    let mut recording = recording(written(), written());
    ten(&mut recording, |at, number| {
        let mut write = call(at - 100, at - 50, Call::Write);
        if let TraceKind::CallEnter { bytes, .. } = &mut write[0].what {
            *bytes = Some(4096);
        }
        let is_seen = number >= 4;
        [overwrite(at, number), if is_seen { write } else { Vec::new() }].concat()
    });
    assert_eq!(report(recording).files[0].bytes_between, Some(4096));
}

/// Seen beside programs that wrote a lot: syncs were traced in 34% of the time.
#[test]
fn the_trace_pauses_for_the_programs_events_and_for_others_only_if_there_is_no_room() {
    let is_ahead = |own, others, time_s| ahead(own, own + others, time_s / 2.0, time_s) > 0.0;
    assert!(!is_ahead(2_500.0, 500_000.0, 5.0), "200,000 calls a second of others");
    assert!(is_ahead(150_000.0, 0.0, 5.0), "60,000 events a second of its own");
    assert!(is_ahead(2_500.0, 1_400_000.0, 60.0), "no room for two million");
}

#[test]
fn bills_read_like_sentences() {
    let bill = |data_writes, journal_writes, flushes| SyncBill {
        data_writes,
        journal_writes,
        flushes,
        ..SyncBill::default()
    };
    assert_eq!(words(&bill(1.0, 2.0, 2.0)), "1 data write, 2 journal writes and 2 flushes");
    assert_eq!(words(&bill(1.0, 0.0, 1.0)), "1 data write and 1 flush");
    assert_eq!(words(&bill(1.31, 0.0, 0.0)), "1.3 data writes");
    assert_eq!(words(&SyncBill::default()), "nothing on the disk");
}
