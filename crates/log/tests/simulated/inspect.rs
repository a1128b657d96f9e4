//! Inspecting a log that is well: `verify`, `look` and `dump` agree on what it has.
//!
//! *Owns*: that. What is said and saved of a damaged log is asked by `inkstone powerloss sim`, class
//! `rot`, and in `gaps.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::Arc;

use crate::history::small;
use inkstone::inspect::{self, Entry};
use inkstone::{Log, Lsn, Verdict};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};

fn record(lsn: u64) -> Vec<u8> {
    (0..lsn * 37 % 700).map(|at| (at ^ lsn).wrapping_mul(lsn) as u8).collect()
}

const LAST: u64 = 600;
const FIRST: u64 = 20;

/// Records 20 to 600 in several segments, in groups of one to nine, with control groups of all
/// kinds.
fn make(disk: &SimDisk) -> Arc<SimDirectory> {
    let directory = Arc::new(disk.directory("log"));
    let log = Log::open_in(Arc::clone(&directory), small()).unwrap();
    for lsn in 1..=LAST + 40 {
        // The records that will be truncated have other contents than those that replace them.
        let append = log.append(&record(if lsn > LAST - 20 { lsn + 1000 } else { lsn })).unwrap();
        if lsn % 10 < 3 {
            append.wait().unwrap();
        }
    }
    log.truncate_before(Lsn::new(FIRST)).unwrap();
    log.truncate_after(Lsn::new(LAST - 20)).unwrap();
    for lsn in LAST - 19..=LAST {
        drop(log.append(&record(lsn)).unwrap());
    }
    log.close().unwrap();
    directory
}

#[test]
fn a_log_that_is_well_is_intact() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let directory = make(&disk);
    let report = inspect::verify_in(&*directory).unwrap();
    assert!(report.is_intact() && report.clean && report.verdict == Verdict::End, "{report:?}");
    assert_eq!((report.first.get(), report.last.get(), report.promise.get()), (FIRST, LAST, LAST));
    assert!(report.segments.len() >= 3 && report.segments.iter().all(|segment| segment.is_read));
    let looked = inspect::look_in(&*directory).unwrap();
    assert_eq!((looked.first, looked.last, looked.end), (report.first, report.last, report.end));
    for (looked, read) in looked.segments.iter().zip(&report.segments) {
        assert_eq!((looked.first, looked.last, looked.end), (read.first, read.last, read.end));
    }
    let entries: Vec<_> =
        inspect::dump_in(Arc::clone(&directory), 4).unwrap().map(Result::unwrap).collect();
    let payload_max = entries.iter().filter_map(|entry| match entry {
        Entry::Frame { payload, .. } => Some(payload.len()),
        _ => None,
    });
    assert_eq!(payload_max.max(), Some(4));
}
