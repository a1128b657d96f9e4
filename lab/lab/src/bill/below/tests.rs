//! A loop device on a shared disk, as in a trace.

use inkstone_host::{DeviceNumber, Trace, TraceEvent};

use super::super::layer::{Layer, Piece};
use super::super::requests::tests::{bio, complete, disk, issue, layer};
use super::*;
use crate::bill::bill_of;
use crate::pass::CommitSpan;
use crate::result::{Kind, LayerBill, Tally};

const ME: u32 = 5;
const WORKER: u32 = 40;
const SECOND_WORKER: u32 = 41;
const STRANGER: u32 = 50;
const OTHER_LOOPS_WORKER: u32 = 60;
const HOST: DeviceNumber = DeviceNumber { major: 254, minor: 0 };
const BACKING: u64 = 8_000;
const ELSEWHERE: u64 = 90_000;

fn host() -> Layer {
    Layer {
        device: "vda".into(),
        disks: vec![disk(HOST)],
        pieces: vec![Piece { at: BACKING * 512..(BACKING + 4096) * 512, file: 0, logical: 0 }],
        ..Layer::default()
    }
}

/// The same event on the host's device.
fn below(mut event: TraceEvent, name: &str) -> TraceEvent {
    match &mut event.what {
        TraceKind::BioQueue { device, comm, .. } | TraceKind::RequestIssue { device, comm, .. } => {
            (*device, *comm) = (HOST, Comm::new(name.as_bytes()));
        }
        TraceKind::RequestComplete { device, .. } => *device = HOST,
        _ => {}
    }
    event
}

fn host_write(at: u64, tid: u32, name: &str, sector: u64, rwbs: &str) -> [TraceEvent; 3] {
    let events = [
        bio(at, tid, sector, 8, rwbs),
        issue(at + 1, sector, 8, rwbs),
        complete(at + 2, sector, 8, rwbs),
    ];
    events.map(|event| below(event, name))
}

fn host_flush(at: u64, asked: &[(u32, &str)]) -> Vec<TraceEvent> {
    let asks = asked.iter().map(|&(tid, name)| below(bio(at, tid, 0, 0, "FWS"), name));
    let mut events: Vec<TraceEvent> = asks.collect();
    events.extend(
        [issue(at + 1, 0, 0, "FF"), complete(at + 4, 0, 0, "FF")].map(|event| below(event, "dd")),
    );
    events
}

/// A commit of ours from `at` to `at + 100`: its write and its flush on the loop device, and the
/// worker's requests for them.
fn commit(at: u64, flush_asked: &[(u32, &str)]) -> Vec<TraceEvent> {
    let mut events = vec![bio(at + 1, ME, 800, 8, "WS"), issue(at + 2, 800, 8, "WS")];
    events.extend(host_write(at + 5, WORKER, "kworker/u8:1", BACKING + 800, "WS"));
    events.extend([
        complete(at + 10, 800, 8, "WS"),
        bio(at + 20, ME, 0, 0, "FWS"),
        issue(at + 21, 0, 0, "FF"),
    ]);
    // The inode of the backing file, before the flush.
    events.extend(host_write(at + 25, SECOND_WORKER, "kworker/u8:2", ELSEWHERE, "WS"));
    events.extend(host_flush(at + 30, flush_asked));
    events.extend([complete(at + 60, 0, 0, "FF")]);
    events
}

fn host_bill(events: Vec<TraceEvent>, commits: &[CommitSpan], private: bool) -> LayerBill {
    let trace = Trace { events, lost: 0 };
    let layers = [Layer { private, ..layer() }, host()];
    let evidence = Evidence {
        trace: &trace,
        layers: &layers,
        commits,
        own_threads: &[ME],
        inode: None,
        promises: true,
        overwrites: false,
        several: false,
        counted: &[None, None],
        timeline_commits: 0,
    };
    bill_of(&evidence).bill.layers.remove(1)
}

fn spans(count: u64) -> Vec<CommitSpan> {
    (0..count).map(|n| CommitSpan { start_ns: n * 1000, ack_ns: n * 1000 + 100 }).collect()
}

/// Other processes sync all the time: with us, between our commits, and on a loop device of their
/// own.
#[test]
fn the_loop_devices_worker_is_ours_and_nobody_else_is() {
    let mut events = Vec::new();
    for n in 0..50 {
        let at = n * 1000;
        // The neighbour submits last, and one flush serves both: the pairing alone would call it
        // the neighbour's.
        events.extend(commit(at, &[(SECOND_WORKER, "kworker/u8:2"), (STRANGER, "dd")]));
        events.extend(host_write(at + 200, STRANGER, "dd", ELSEWHERE + 64, "WS"));
        events.extend(host_flush(at + 210, &[(STRANGER, "dd")]));
        events.extend(host_flush(at + 220, &[(OTHER_LOOPS_WORKER, "kworker/u8:3")]));
        events.extend(host_flush(at + 230, &[(OTHER_LOOPS_WORKER, "kworker/u8:3")]));
        for (at, sector) in [(at + 240, ELSEWHERE + 128), (at + 250, ELSEWHERE + 256)] {
            events.extend(host_write(at, OTHER_LOOPS_WORKER, "kworker/u8:3", sector, "WSM"));
        }
    }
    for private in [true, false] {
        let bill = host_bill(events.clone(), &spans(50), private);
        assert_eq!(
            (bill.count(Kind::Flush), bill.count(Kind::ForeignFlush)),
            (50, 150),
            "private {private}"
        );
        assert_eq!(bill.of(&[Kind::DataWrite]), Tally { requests: 50, bytes: 50 * 4096 });
        assert_eq!(
            bill.count(Kind::MetadataWrite),
            50,
            "the inode that the worker writes in our flush"
        );
        assert_eq!(
            (bill.count(Kind::ForeignWrite), bill.count(Kind::UnattributedWrite)),
            (50, 100)
        );
        let by = |what: Kind| {
            bill.submitters.iter().find(|by| by.what == what).map(|by| by.who.as_str())
        };
        for what in [Kind::DataWrite, Kind::MetadataWrite, Kind::Flush] {
            assert_eq!(by(what), Some("worker of loop0"), "{what:?}");
        }
    }
}

/// If another process has files on the loop device too, the worker works for it as well.
#[test]
fn what_the_worker_does_for_others_is_not_ours() {
    let mut events = commit(0, &[(SECOND_WORKER, "kworker/u8:2")]);
    events.extend([
        bio(501, STRANGER, 5000, 8, "WS"),
        issue(502, 5000, 8, "WS"),
        complete(510, 5000, 8, "WS"),
    ]);
    events.extend([bio(520, STRANGER, 0, 0, "FWS"), issue(521, 0, 0, "FF")]);
    events.extend(host_flush(530, &[(SECOND_WORKER, "kworker/u8:2")]));
    events.push(complete(560, 0, 0, "FF"));
    let bill = host_bill(events.clone(), &spans(1), false);
    assert_eq!((bill.count(Kind::Flush), bill.count(Kind::ForeignFlush)), (1, 1));
    let bill = host_bill(events, &spans(1), true);
    assert_eq!(
        (bill.count(Kind::Flush), bill.count(Kind::ForeignFlush)),
        (2, 0),
        "nobody else has files there"
    );
}

/// A neighbour's `syncfs` has its file data written by the thread that serves our flush, within it.
#[test]
fn file_data_that_the_worker_writes_for_a_neighbour_is_not_our_metadata() {
    let mut events = commit(0, &[(SECOND_WORKER, "kworker/u8:2")]);
    let data = [
        bio(27, SECOND_WORKER, ELSEWHERE + 512, 256, "W"),
        issue(28, ELSEWHERE + 512, 256, "W"),
        complete(29, ELSEWHERE + 512, 256, "W"),
    ];
    events.extend(data.map(|event| below(event, "kworker/u8:2")));
    events.sort_by_key(|event| event.time_ns);
    let bill = host_bill(events, &spans(1), false);
    assert_eq!(
        bill.of(&[Kind::MetadataWrite]),
        Tally { requests: 1, bytes: 4096 },
        "the inode alone"
    );
    assert_eq!(bill.of(&[Kind::UnattributedWrite]), Tally { requests: 1, bytes: 256 * 512 });
}

#[test]
fn spans_are_merged() {
    let above = |start: u64, end: u64| Above { during: start..=end, flushes: false };
    let all = merged(&[above(10, 20), above(1, 3), above(15, 30), above(30, 31), above(40, 41)]);
    assert_eq!(all, [1..=3, 10..=31, 40..=41]);
}
