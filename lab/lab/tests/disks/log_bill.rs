//! What the log's commits cost at the block layer, counted exactly on file systems of our own,
//! through segment changes: one data write and one flush each, and nothing else that a commit waits
//! for. Needs root, loop devices and tracefs; where those are missing each test prints loudly that
//! it did not run.
//!
//! 2,000 commits are as exact as more: every request is counted. `INKSTONE_BILL_COMMITS=20000`
//! takes the full number.

use std::path::Path;
use std::time::Duration;

use crate::support::{can_bill, not_run};
use inkstone::{Log, Options};
use inkstone_host::FsKind;
use inkstone_io::Directory;
use inkstone_lab::bill::Billed;
use inkstone_lab::image::{Image, LoopMode};
use inkstone_lab::log_bill::by_trace;
use inkstone_lab::result::Kind;
use inkstone_lab::site::Site;
use inkstone_lab::stage::WayError;

const RECORD: [u8; 128] = [0xA7; 128];
/// The bytes of a group of one such record in its segment.
const GROUP_BYTES: u64 = 200;
/// One more than wanted: the first segment is entered before.
const SEGMENTS: u64 = 10;
/// This many files are ready when segments are this small.
const READY: u64 = 8;

fn commits() -> u64 {
    let asked = std::env::var("INKSTONE_BILL_COMMITS").ok();
    asked.map_or(2000, |text| text.parse().expect("INKSTONE_BILL_COMMITS is a number"))
}

/// The bill of a lone writer on one image, with the changes of segment in it, or the reason why
/// there is none.
fn lone_writer(kind: FsKind, parent: &Path) -> Result<(Billed, u64), WayError> {
    let image = Image::make(parent, kind, LoopMode::Direct, 336 << 20)?;
    let mut site = Site::open(image.path(), "image", 64 << 20).expect("a site");
    site.private = true;
    let path = site.directory.path().join("log");
    let segment_bytes = (commits() * GROUP_BYTES / SEGMENTS).next_multiple_of(4096).max(64 << 10);
    let log = Log::open(&path, Options::new().segment_bytes(segment_bytes).record_bytes_max(1024))
        .expect("the log opens");
    // Now it is in the steady state: all wanted files are ready, and no more are prepared.
    while log.stats().ready < READY {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The first commit may include what the creation of the log left in the file system.
    log.append_durable(&RECORD).expect("appended");
    let before = log.stats().segments;
    let billed = by_trace(&site, (&log, &path), &RECORD, commits())?;
    let stats = log.stats();
    assert_eq!((stats.pool_empty, stats.segments_fallocated), (0, 0), "a file was always ready");
    log.close().expect("closed");
    drop(log);
    site.close().expect("removed");
    image.remove()?;
    Ok((billed, stats.segments - before))
}

fn one_write_and_one_flush(test: &str, kind: FsKind) {
    if !can_bill(test) {
        return;
    }
    let parent = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (billed, changes) = match lone_writer(kind, parent.path()) {
        Err(WayError::Invalid(reason)) if reason.contains("is not installed") => {
            return not_run(test, &reason);
        }
        billed => billed.expect("a bill"),
    };
    let commits = billed.bill.commits;
    assert_eq!((commits, billed.bill.lost_events), (self::commits(), 0));
    assert!(changes >= 8, "{changes} segment changes");
    // What commits made or waited for; the others prepared segments.
    let own = |kind: Kind| billed.own.get(&kind).map_or(0, |tally| tally.requests);
    let seen = format!("{billed:?}");
    // One write per group, and a header at each change. The background thread writes the seals.
    assert_eq!((own(Kind::DataWrite), own(Kind::Flush)), (commits + changes, commits + changes));
    assert!((commits + changes) * 100 <= commits * 101, "{seen}");
    for kind in [Kind::DataRead, Kind::OtherRead] {
        assert_eq!(billed.bill.count(kind), 0, "{seen}");
    }
    assert_eq!(own(Kind::JournalWrite), 0, "{seen}");
    // When the counters are read at the end, a file may be in preparation, with one of its requests
    // in flight.
    let check = billed.bill.cross_check.expect("counters");
    assert!(check.traced_flushes.abs_diff(check.counted_flushes) <= 1, "{seen}");
    assert!(
        check.traced_write_sectors.abs_diff(check.counted_write_sectors) <= (256 << 10) / 512,
        "{seen}"
    );
    if kind != FsKind::Ext4NoJournal {
        assert_eq!(own(Kind::MetadataWrite), 0, "{seen}");
    }
    assert!(
        std::fs::read_dir(parent.path()).expect("the directory").next().is_none(),
        "something was left"
    );
}

#[test]
#[ignore = "needs root, tracefs and mkfs.ext4"]
fn ext4_with_a_journal() {
    one_write_and_one_flush("ext4_with_a_journal", FsKind::Ext4);
}

#[test]
#[ignore = "needs root, tracefs and mkfs.xfs"]
fn xfs() {
    one_write_and_one_flush("xfs", FsKind::Xfs);
}

#[test]
#[ignore = "needs root, tracefs and mkfs.ext4"]
fn ext4_without_a_journal() {
    one_write_and_one_flush("ext4_without_a_journal", FsKind::Ext4NoJournal);
}
