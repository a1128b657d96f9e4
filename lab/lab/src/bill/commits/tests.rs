//! Requests as in a trace, and the bill made from them.

use inkstone_host::{Comm, Trace, TraceEvent};

use super::super::layer::Layer;
use super::super::requests::tests::*;
use super::*;

const ME: u32 = 5;
const INODE: u64 = 12;
const LOG: u64 = 1_000_000;

const JBD2: u32 = 77;

/// The journal's thread writes a transaction in this time.
fn journal(start_ns: u64, end_ns: u64) -> [TraceEvent; 2] {
    let (device, transaction) = (DISK, 9);
    let start = TraceKind::JournalCommitStart { device, transaction };
    let end = TraceKind::JournalCommitEnd { device, transaction };
    [(start_ns, start), (end_ns, end)].map(|(time_ns, what)| TraceEvent {
        time_ns,
        tid: JBD2,
        what,
    })
}

/// The bill of commits with these beginnings and ends.
fn billed(layer: &Layer, mut events: Vec<TraceEvent>, acks: &[(u64, u64)]) -> Billed {
    events.sort_by_key(|event| event.time_ns);
    let commits: Vec<_> =
        acks.iter().map(|&(start_ns, ack_ns)| CommitSpan { start_ns, ack_ns }).collect();
    super::bill_of(&Evidence {
        trace: &Trace { events, lost: 0 },
        layer,
        commits: &commits,
        own_threads: &[ME],
        inode: Some(INODE),
        promises: true,
        overwrites: false,
        several: false,
        counted: None,
    })
}

fn bill_of(events: Vec<TraceEvent>, acks: &[(u64, u64)]) -> (Bill, DurableFinding) {
    let Billed { bill, durable, .. } = billed(&layer(), events, acks);
    (bill, durable)
}

/// The same events in each of so many commits, a microsecond apart.
fn repeated(count: u64, each: impl Fn(u64) -> Vec<TraceEvent>) -> (Bill, DurableFinding) {
    let acks: Vec<_> = (0..count).map(|n| (1_000 * n + 90, 1_000 * n + 135)).collect();
    bill_of((0..count).flat_map(|n| each(1_000 * n)).collect(), &acks)
}

fn data_and_flush() -> Vec<TraceEvent> {
    [written(100, ME, 800, "WS"), flushed(111, ME)].concat()
}

fn durable_commits(durable: &DurableFinding) -> Option<u64> {
    if let DurableFinding::Seen { commits } = durable { Some(*commits) } else { None }
}

#[test]
fn an_overwrite_is_one_write_and_one_flush() {
    let (bill, durable) = bill_of(data_and_flush(), &[(90, 130)]);
    assert_eq!(bill.of(&[Kind::DataWrite]), Tally { requests: 1, bytes: 4096 });
    let found = [Kind::Flush, Kind::JournalWrite, Kind::UnattributedWrite];
    assert_eq!(found.map(|kind| bill.count(kind)), [1, 0, 0]);
    assert_eq!(durable_commits(&durable), Some(1));
}

/// One that ends within a commit that waited is caused by it; one for which no commit waited is
/// not.
#[test]
fn a_transaction_is_of_its_commit_or_of_none() {
    use Kind::{JournalWrite, OtherJournalWrite};
    for (end_ns, waits, kind) in [
        (125, true, JournalWrite),
        (125, false, OtherJournalWrite),
        (200, false, OtherJournalWrite),
    ] {
        // A sync that waits for the journal sends no flush of its own.
        let is_there = |event: &TraceEvent| !waits || event.tid != ME || event.time_ns < 111;
        let mut events: Vec<_> = data_and_flush().into_iter().filter(is_there).collect();
        events.extend(journal(95, end_ns));
        events.extend(sent(96, 97, LOG, 16, "WSM"));
        let (bill, durable) = bill_of(events, &[(90, 130)]);
        let all = bill.of(&[JournalWrite, OtherJournalWrite]);
        let one = Tally { requests: 1, bytes: 8192 };
        assert_eq!((bill.of(&[kind]), all), (one, one), "{kind:?}");
        // What nobody waited for is nothing that was acknowledged.
        assert!(waits || durable_commits(&durable) == Some(1), "{kind:?}");
    }
}

#[test]
fn writes_elsewhere_are_metadata_or_named_as_unattributed() {
    let mut events = vec![
        issue(91, 50_000, 8, "WM"),
        bio(92, ME, 60_000, 8, "WS"),
        issue(93, 60_000, 8, "WS"),
        issue(94, 70_000, 8, "W"),
    ];
    events.extend(data_and_flush());
    let (bill, _) = bill_of(events, &[(90, 130)]);
    assert_eq!((bill.count(Kind::MetadataWrite), bill.count(Kind::UnattributedWrite)), (1, 2));
    assert!(bill.unattributed[1].contains("70000"), "{:?}", bill.unattributed);
}

/// Beside a neighbour that writes and syncs all the time, each commit still has its one write and
/// its one flush.
#[test]
fn a_neighbours_requests_are_counted_apart() {
    const OTHER: u32 = 99;
    let (bill, durable) = repeated(200, |at| {
        // Both submit a flush, ours first: the neighbour is the last submitter, and one flush
        // serves both. And one of the neighbour's alone.
        let both = [bio(at + 120, ME, 0, 0, "FWS"), bio(at + 121, OTHER, 0, 0, "FWS")];
        [
            written(at + 100, ME, 800, "WS").to_vec(),
            written(at + 102, OTHER, 90_000, "WS").to_vec(),
            both.to_vec(),
            sent(at + 122, at + 130, 0, 0, "FF").to_vec(),
            flushed(at + 140, OTHER).to_vec(),
        ]
        .concat()
    });
    assert_eq!(bill.count(Kind::DataWrite), 200);
    assert_eq!((bill.count(Kind::Flush), bill.count(Kind::ForeignFlush)), (200, 200));
    assert_eq!((bill.count(Kind::ForeignWrite), bill.count(Kind::UnattributedWrite)), (200, 0));
    assert_eq!(bill.own_writes(), Tally { requests: 200, bytes: 200 * 4096 });
    assert_eq!(durable_commits(&durable), Some(200));
    let own = bill.submitters.iter().find(|by| by.who == "this process" && by.what == Kind::Flush);
    assert_eq!(own.map(|by| by.tally.requests), Some(200));
}

/// Where a journal is shared, its writes for others carry FUA too: they pay for no commit of ours.
#[test]
fn fua_writes_of_others_are_not_ours() {
    let (bill, durable) = repeated(20, |at| {
        // For nobody here: the journal commits, and the device flushes first.
        [
            written(at + 100, ME, 800, "WS").to_vec(),
            sent(at + 112, at + 115, 0, 0, "FF").to_vec(),
            sent(at + 116, at + 118, LOG, 8, "WFSM").to_vec(),
            sent(at + 119, at + 120, 70_000, 8, "WFS").to_vec(),
        ]
        .concat()
    });
    let theirs = (bill.count(Kind::OtherJournalWrite), bill.count(Kind::UnattributedWrite));
    assert_eq!((theirs, bill.fua_writes), ((20, 20), 0), "{bill:?}");
    assert!(matches!(durable, DurableFinding::NotVisible { .. }), "called durable: {durable:?}");
}

#[test]
fn metadata_that_we_wait_for_has_to_be_flushed_too() {
    let mut events = data_and_flush();
    events.extend([bio(121, ME, 60_000, 8, "WS")]);
    events.extend(sent(122, 125, 60_000, 8, "WS"));
    let (_, durable) = bill_of(events.clone(), &[(90, 130)]);
    assert!(
        matches!(durable, DurableFinding::NotCovered { .. }),
        "an inode after the flush: {durable:?}"
    );
    events.extend(sent(126, 129, 0, 0, "FF"));
    let (_, durable) = bill_of(events, &[(90, 130)]);
    assert_eq!(durable_commits(&durable), Some(1));
}

/// Asked for by a worker of the kernel.
fn queued_by_worker(mut event: TraceEvent) -> TraceEvent {
    if let TraceKind::BioQueue { comm, .. } = &mut event.what {
        *comm = Comm::new(b"kworker/1:2");
    }
    event
}

/// A worker syncs this file.
fn synced_by_worker(time_ns: u64, tid: u32, inode: u64) -> [TraceEvent; 2] {
    let begins = TraceKind::FileSync { device: Some(DISK), inode, data_only: Some(true) };
    [(time_ns, begins), (time_ns + 9, TraceKind::FileSyncEnd { failed: false })]
        .map(|(time_ns, what)| TraceEvent { time_ns, tid, what })
}

/// A direct write of io_uring with RWF_DSYNC: a kernel worker syncs the file, sends the flush, and
/// writes the inode where there is no journal. Another worker flushes in the same commit for
/// others.
#[test]
fn what_a_worker_sends_that_syncs_our_file_is_ours_and_only_that() {
    const OTHER_FILE: u64 = 13;
    let flush = |at, tid| queued_by_worker(bio(at, tid, 0, 0, "FWS"));
    let commit = |at: u64| {
        let [not_ours, _] = synced_by_worker(at + 1, 501, OTHER_FILE);
        [
            written(at, ME, 800, "WS").to_vec(),
            vec![not_ours, flush(at + 2, 501)],
            sent(at + 3, at + 5, 0, 0, "FF").to_vec(),
            synced_by_worker(at + 11, 502, INODE).to_vec(),
            vec![queued_by_worker(bio(at + 12, 502, 60_000, 8, "WSM"))],
            sent(at + 13, at + 14, 60_000, 8, "WSM").to_vec(),
            vec![flush(at + 15, 502)],
            sent(at + 16, at + 19, 0, 0, "FF").to_vec(),
            // After the acknowledgement.
            vec![flush(at + 45, 501)],
            sent(at + 48, at + 55, 0, 0, "FF").to_vec(),
        ]
        .concat()
    };
    let acks = [(90, 130), (190, 230)];
    let (bill, durable) = bill_of([commit(100), commit(200)].concat(), &acks);
    assert_eq!((bill.count(Kind::Flush), bill.count(Kind::ForeignFlush)), (2, 4), "{bill:?}");
    assert_eq!((bill.count(Kind::DataWrite), bill.count(Kind::MetadataWrite)), (2, 2));
    assert_eq!(durable_commits(&durable), Some(2));
    assert!(
        bill.submitters.iter().any(|by| (by.who.as_str(), by.what) == ("kworker", Kind::Flush))
    );
    // Without the event nothing shows for whom it was.
    let hidden = |event: &TraceEvent| !matches!(event.what, TraceKind::FileSync { .. });
    let events = [commit(100), commit(200)].concat().into_iter().filter(hidden).collect();
    let (bill, durable) = bill_of(events, &acks);
    assert_eq!((bill.count(Kind::Flush), bill.count(Kind::UnattributedWrite)), (0, 2));
    let DurableFinding::NotVisible { reason } = durable else {
        panic!("called durable: {durable:?}")
    };
    assert!(
        reason.starts_with("0 flushes and 0 FUA writes of its own for 2 acknowledgements"),
        "{reason}"
    );
}

/// ext4 with fast commits: the committing thread writes into the journal itself, with a flush
/// before and one after (no FUA).
#[test]
fn a_fast_commit_is_a_journal_write_of_its_thread_with_both_its_flushes() {
    let (bill, durable) = repeated(20, |at| {
        [
            written(at + 100, ME, 800, "WS").to_vec(),
            vec![bio(at + 111, ME, LOG, 8, "FWFS")],
            sent(at + 112, at + 115, 0, 0, "FF").to_vec(),
            sent(at + 116, at + 118, LOG, 8, "WS").to_vec(),
            sent(at + 119, at + 125, 0, 0, "FF").to_vec(),
        ]
        .concat()
    });
    let found = [Kind::DataWrite, Kind::JournalWrite, Kind::Flush, Kind::ForeignFlush];
    assert_eq!(found.map(|kind| bill.count(kind)), [20, 20, 40, 0], "{bill:?}");
    assert_eq!(durable_commits(&durable), Some(20));
}

/// A journal on a disk of its own: its thread flushes the file system's disk, then writes.
#[test]
fn the_journals_own_disk_is_in_the_bill() {
    const JOURNAL_DISK: inkstone_host::DeviceNumber =
        inkstone_host::DeviceNumber { major: 7, minor: 1 };
    let there = |mut event: TraceEvent| {
        match &mut event.what {
            TraceKind::BioQueue { device, .. }
            | TraceKind::RequestIssue { device, .. }
            | TraceKind::RequestComplete { device, .. } => *device = JOURNAL_DISK,
            _ => {}
        }
        event
    };
    let base = 1 << 56;
    let mut both = layer();
    both.disks.push(super::super::layer::Disk { base, ..disk(JOURNAL_DISK) });
    both.log = std::iter::once(base..2 * base).collect();
    let record = [
        vec![bio(116, JBD2, 40, 8, "FWFSM")],
        sent(117, 118, 0, 0, "FF").to_vec(),
        sent(119, 120, 40, 8, "WSM").to_vec(),
        sent(121, 122, 0, 0, "FF").to_vec(),
    ];
    let mut events: Vec<TraceEvent> = record.concat().into_iter().map(there).collect();
    events.extend(written(100, ME, 800, "WS"));
    events.extend(journal(111, 123));
    events.push(bio(112, JBD2, 0, 0, "FWS"));
    events.extend(sent(113, 115, 0, 0, "FF"));
    let Billed { bill, durable, own, .. } = billed(&both, events, &[(90, 130)]);
    let found = [Kind::DataWrite, Kind::JournalWrite, Kind::Flush];
    assert_eq!(found.map(|kind| bill.count(kind)), [1, 1, 3], "{bill:?}");
    assert_eq!(own[&Kind::Flush].requests, 3);
    assert_eq!(durable_commits(&durable), Some(1));
}
