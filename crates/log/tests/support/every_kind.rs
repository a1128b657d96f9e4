//! A log of two segments of 64 KiB that holds every kind of frame, the last one nearly full.
//!
//! *Owns*: that log. *May not touch*: what is done to it.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::collections::BTreeSet;

use inkstone::Lsn;
use inkstone_format::{Batch, Decoder, HeaderBlock, Kind, Step};
use inkstone_sim::{DiskOptions, SimDisk};

use crate::history::{LOG, name, open, read_file, small};

pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
/// The first record that was not truncated, and the last.
pub(crate) const FIRST: u64 = 3;
pub(crate) const LAST: u64 = 104;
/// The segments.
pub(crate) const OLD: u64 = 1;
pub(crate) const HEAD: u64 = 2;

/// What is in the head; the seal is in the segment before it.
pub(crate) const KINDS: [&str; 6] =
    ["batch", "epoch", "padding", "promise", "record", "truncate-before"];

/// What record `lsn` holds.
pub(crate) fn record_of(lsn: u64) -> Vec<u8> {
    let len = if lsn.is_multiple_of(10) { 1500 } else { 350 + lsn * 131 % 400 };
    (0..len).map(|at| (at as u8).wrapping_mul(11) ^ (lsn as u8)).collect()
}

/// Every record is acknowledged, and promised by two groups: no single damage takes both.
pub(crate) fn every_kind() -> SimDisk {
    let disk = SimDisk::new(1, DiskOptions::default());
    let mut last = 0;
    // Groups of so many records, or a few more.
    let mut append = |log: &inkstone::Log, to: u64, at_once: u64| {
        let mut synced = last;
        while last < to {
            if last % 7 == 5 && last + 3 <= to {
                let batch = [1, 2, 3].map(|more| record_of(last + more));
                drop(log.append_batch(&batch).unwrap());
                last += 3;
            } else {
                last += 1;
                drop(log.append(&record_of(last)).unwrap());
            }
            if last >= synced + at_once || last == to {
                log.sync().unwrap();
                synced = last;
            }
        }
    };
    // Padded as long as it changes the segment: both segments have padding, and the first has its
    // seal.
    let log = open(&disk, small().pad_groups(true)).unwrap();
    append(&log, 75, 11);
    log.truncate_before(Lsn::new(FIRST)).unwrap();
    log.close().unwrap();
    let log = open(&disk, small()).unwrap();
    append(&log, LAST, 1);
    log.close().unwrap();
    // One more opening repeats the promise.
    open(&disk, small()).unwrap().abandon();
    disk
}

/// Each frame of the log: segment, position, what it is.
fn frames(disk: &SimDisk) -> Vec<(u64, u64, &'static str)> {
    let mut frames = Vec::new();
    for segment in [OLD, HEAD] {
        let bytes = read_file(&disk.directory(LOG), &name(segment));
        let HeaderBlock::Valid { header, .. } = HeaderBlock::classify(&bytes) else {
            panic!("a header")
        };
        let mut decoder = Decoder::new(&header, bytes.len() as u64);
        loop {
            match decoder.step(&bytes, 0) {
                Step::Frame(frame) => {
                    let what = match frame.kind {
                        Kind::Record if frame.batch == Batch::Alone => "record",
                        Kind::Record => "batch",
                        Kind::Epoch => "epoch",
                        Kind::Promise => "promise",
                        Kind::TruncateBefore => "truncate-before",
                        Kind::Seal => "seal",
                        Kind::Padding => "padding",
                        Kind::Lost => "lost",
                    };
                    frames.push((segment, frame.at, what));
                }
                Step::Stop(_) => break,
                _ => {}
            }
        }
    }
    frames
}

pub(crate) fn kinds_in_head(disk: &SimDisk) -> BTreeSet<&'static str> {
    frames(disk).into_iter().filter(|frame| frame.0 == HEAD).map(|frame| frame.2).collect()
}

/// Where the group of the seal begins.
pub(crate) fn seal_at() -> u64 {
    frames(&every_kind()).into_iter().find(|frame| frame.2 == "seal").unwrap().1 - 48
}
