//! Requests as in a trace, and the bill made from them.

use inkstone_host::{Comm, Trace, TraceEvent};

use super::super::requests::tests::*;
use super::*;

const ME: u32 = 5;
const INODE: u64 = 12;
const LOG: u64 = 1_000_000;

fn journal(time_ns: u64, transaction: u32, start: bool) -> TraceEvent {
    let what = if start {
        TraceKind::JournalCommitStart { device: DISK, transaction }
    } else {
        TraceKind::JournalCommitEnd { device: DISK, transaction }
    };
    TraceEvent { time_ns, tid: 77, what }
}

fn bill_of(events: Vec<TraceEvent>, acks: &[(u64, u64)]) -> (LayerBill, DurableFinding) {
    let commits: Vec<_> =
        acks.iter().map(|&(start_ns, ack_ns)| CommitSpan { start_ns, ack_ns }).collect();
    let trace = Trace { events, lost: 0 };
    let layer = layer();
    let evidence = Evidence {
        trace: &trace,
        layer: &layer,
        commits: &commits,
        own_threads: &[ME],
        inode: Some(INODE),
        promises: true,
        overwrites: false,
        several: false,
        counted: None,
    };
    let Billed { bill, durable, .. } = super::bill_of(&evidence);
    (bill.layer, durable)
}

fn data_and_flush() -> Vec<TraceEvent> {
    vec![
        bio(100, ME, 800, 8, "WS"),
        issue(101, 800, 8, "WS"),
        complete(110, 800, 8, "WS"),
        bio(111, ME, 0, 0, "FWS"),
        issue(112, 0, 0, "FF"),
        complete(120, 0, 0, "FF"),
    ]
}

#[test]
fn an_overwrite_is_one_write_and_one_flush() {
    let (bill, durable) = bill_of(data_and_flush(), &[(90, 130)]);
    assert_eq!(bill.of(&[Kind::DataWrite]), Tally { requests: 1, bytes: 4096 });
    assert_eq!(
        (
            bill.count(Kind::Flush),
            bill.count(Kind::JournalWrite),
            bill.count(Kind::UnattributedWrite)
        ),
        (1, 0, 0)
    );
    assert_eq!(durable_commits(&durable), Some(1));
}

fn durable_commits(durable: &DurableFinding) -> Option<u64> {
    if let DurableFinding::Seen { commits } = durable { Some(*commits) } else { None }
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
        let mut events =
            vec![journal(95, 9, true), issue(96, LOG, 16, "WSM"), complete(97, LOG, 16, "WSM")];
        // A sync that waits for the journal sends no flush of its own.
        let is_there = |event: &TraceEvent| !waits || event.tid != ME || event.time_ns < 111;
        events.extend(data_and_flush().into_iter().filter(is_there));
        events.push(journal(end_ns, 9, false));
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
    let (mut events, mut acks) = (Vec::new(), Vec::new());
    for n in 0..200 {
        let at = 1_000 * n;
        events.extend([
            bio(at + 100, ME, 800, 8, "WS"),
            issue(at + 101, 800, 8, "WS"),
            bio(at + 102, OTHER, 90_000, 8, "WS"),
            issue(at + 103, 90_000, 8, "WS"),
            complete(at + 110, 800, 8, "WS"),
            complete(at + 111, 90_000, 8, "WS"),
            // Both submit a flush, ours first: the neighbour is the last submitter, and one flush
            // serves both.
            bio(at + 120, ME, 0, 0, "FWS"),
            bio(at + 121, OTHER, 0, 0, "FWS"),
            issue(at + 122, 0, 0, "FF"),
            complete(at + 130, 0, 0, "FF"),
            // And one of the neighbour's alone.
            bio(at + 140, OTHER, 0, 0, "FWS"),
            issue(at + 141, 0, 0, "FF"),
            complete(at + 150, 0, 0, "FF"),
        ]);
        acks.push((at + 90, at + 135));
    }
    let (bill, durable) = bill_of(events, &acks);
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
    let (mut events, mut acks) = (Vec::new(), Vec::new());
    for n in 0..20 {
        let at = 1_000 * n;
        events.extend([
            bio(at + 100, ME, 800, 8, "WS"),
            issue(at + 101, 800, 8, "WS"),
            complete(at + 110, 800, 8, "WS"),
            // For nobody here: the journal commits, and the device flushes first.
            issue(at + 112, 0, 0, "FF"),
            complete(at + 115, 0, 0, "FF"),
            issue(at + 116, LOG, 8, "WFSM"),
            complete(at + 118, LOG, 8, "WFSM"),
            issue(at + 119, 70_000, 8, "WFS"),
            complete(at + 120, 70_000, 8, "WFS"),
        ]);
        acks.push((at + 90, at + 135));
    }
    let (bill, durable) = bill_of(events, &acks);
    let theirs = (bill.count(Kind::OtherJournalWrite), bill.count(Kind::UnattributedWrite));
    assert_eq!((theirs, bill.fua_writes), ((20, 20), 0), "{bill:?}");
    assert!(matches!(durable, DurableFinding::NotVisible { .. }), "called durable: {durable:?}");
}

#[test]
fn metadata_that_we_wait_for_has_to_be_flushed_too() {
    let mut events = data_and_flush();
    events.extend([
        bio(121, ME, 60_000, 8, "WS"),
        issue(122, 60_000, 8, "WS"),
        complete(125, 60_000, 8, "WS"),
    ]);
    let (_, durable) = bill_of(events.clone(), &[(90, 130)]);
    assert!(
        matches!(durable, DurableFinding::NotCovered { .. }),
        "an inode after the flush: {durable:?}"
    );
    events.extend([issue(126, 0, 0, "FF"), complete(129, 0, 0, "FF")]);
    let (_, durable) = bill_of(events, &[(90, 130)]);
    assert_eq!(durable_commits(&durable), Some(1));
}

fn queued_by_worker(time_ns: u64, tid: u32) -> TraceEvent {
    let mut event = bio(time_ns, tid, 0, 0, "FWS");
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
    let commit = |at: u64| {
        let [begins, ends] = synced_by_worker(at + 11, 502, INODE);
        let [not_ours, _] = synced_by_worker(at + 1, 501, OTHER_FILE);
        let mut inode = bio(at + 12, 502, 60_000, 8, "WSM");
        if let TraceKind::BioQueue { comm, .. } = &mut inode.what {
            *comm = Comm::new(b"kworker/1:2");
        }
        vec![
            bio(at, ME, 800, 8, "WS"),
            issue(at + 1, 800, 8, "WS"),
            not_ours,
            queued_by_worker(at + 2, 501),
            issue(at + 3, 0, 0, "FF"),
            complete(at + 5, 0, 0, "FF"),
            complete(at + 10, 800, 8, "WS"),
            begins,
            inode,
            issue(at + 13, 60_000, 8, "WSM"),
            complete(at + 14, 60_000, 8, "WSM"),
            queued_by_worker(at + 15, 502),
            issue(at + 16, 0, 0, "FF"),
            complete(at + 19, 0, 0, "FF"),
            ends,
            // After the acknowledgement.
            queued_by_worker(at + 45, 501),
            issue(at + 48, 0, 0, "FF"),
            complete(at + 55, 0, 0, "FF"),
        ]
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
    let (mut events, mut acks) = (Vec::new(), Vec::new());
    for n in 0..20 {
        let at = 1_000 * n;
        events.extend([
            bio(at + 100, ME, 800, 8, "WS"),
            issue(at + 101, 800, 8, "WS"),
            complete(at + 110, 800, 8, "WS"),
            bio(at + 111, ME, LOG, 8, "FWFS"),
            issue(at + 112, 0, 0, "FF"),
            complete(at + 115, 0, 0, "FF"),
            issue(at + 116, LOG, 8, "WS"),
            complete(at + 118, LOG, 8, "WS"),
            issue(at + 119, 0, 0, "FF"),
            complete(at + 125, 0, 0, "FF"),
        ]);
        acks.push((at + 90, at + 130));
    }
    let (bill, durable) = bill_of(events, &acks);
    let found = [Kind::DataWrite, Kind::JournalWrite, Kind::Flush, Kind::ForeignFlush];
    assert_eq!(found.map(|kind| bill.count(kind)), [20, 20, 40, 0], "{bill:?}");
    assert_eq!(durable_commits(&durable), Some(20));
}

/// A journal on a disk of its own: its thread flushes the file system's disk, then writes.
#[test]
fn the_journals_own_disk_is_in_the_bill() {
    const JOURNAL_DISK: inkstone_host::DeviceNumber =
        inkstone_host::DeviceNumber { major: 7, minor: 1 };
    const JBD2: u32 = 77;
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
    let events = vec![
        bio(100, ME, 800, 8, "WS"),
        issue(101, 800, 8, "WS"),
        complete(110, 800, 8, "WS"),
        journal(111, 9, true),
        bio(112, JBD2, 0, 0, "FWS"),
        issue(113, 0, 0, "FF"),
        complete(115, 0, 0, "FF"),
        there(bio(116, JBD2, 40, 8, "FWFSM")),
        there(issue(117, 0, 0, "FF")),
        there(complete(118, 0, 0, "FF")),
        there(issue(119, 40, 8, "WSM")),
        there(complete(120, 40, 8, "WSM")),
        there(issue(121, 0, 0, "FF")),
        there(complete(122, 0, 0, "FF")),
        journal(123, 9, false),
    ];
    let commits = [CommitSpan { start_ns: 90, ack_ns: 130 }];
    let (trace, layer) = (Trace { events, lost: 0 }, both);
    let evidence = Evidence {
        trace: &trace,
        layer: &layer,
        commits: &commits,
        own_threads: &[ME],
        inode: None,
        promises: true,
        overwrites: false,
        several: false,
        counted: None,
    };
    let Billed { bill, durable, own, .. } = super::bill_of(&evidence);
    let found = [Kind::DataWrite, Kind::JournalWrite, Kind::Flush];
    assert_eq!(found.map(|kind| bill.layer.count(kind)), [1, 1, 3], "{bill:?}");
    assert_eq!(own[&Kind::Flush].requests, 3);
    assert_eq!(durable_commits(&durable), Some(1));
}
