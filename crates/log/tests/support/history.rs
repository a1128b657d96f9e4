//! Small logs on simulated disks, and the question whether a log keeps what it promised.
//!
//! *Owns*: which record has which bytes, the options of small logs, the check of what an opening
//! shows. *May not touch*: which history a test runs.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::sync::Arc;

#[cfg(inkstone_mistakes)]
use inkstone::mistake::Mistake;
use inkstone::{Error, Log, Lsn, Options};
use inkstone_io::{Directory, File, OpenFile, SyncKind};
use inkstone_sim::{DirectoryOrder, DiskOptions, NewBlocks, PowerCut, SimDisk};

/// The log's directory on every simulated disk.
pub(crate) const LOG: &str = "/log";

/// What record `lsn` holds: of many lengths, so that records lie across sectors.
pub(crate) fn record(lsn: u64) -> Vec<u8> {
    (0..1 + lsn * 151 % 900)
        .map(|at| (at as u8).wrapping_mul(7) ^ (lsn as u8).wrapping_add(1))
        .collect()
}

/// The smallest segments, and no thread of the log's own: everything follows from the seed.
pub(crate) fn small() -> Options {
    Options::new()
        .segment_bytes(64 << 10)
        .record_bytes_max(8 << 10)
        .buffer_bytes(16 << 10)
        .own_thread(false)
}

/// As [`small`], with a mistake or without.
#[cfg(inkstone_mistakes)]
pub(crate) fn with(mistake: Option<Mistake>) -> Options {
    match mistake {
        Some(mistake) => small().with_mistake(mistake),
        None => small(),
    }
}

/// A disk of one of many kinds.
pub(crate) fn disk(seed: u64) -> SimDisk {
    let new_blocks = [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale][(seed % 3) as usize];
    let directory_order =
        if seed.is_multiple_of(5) { DirectoryOrder::Prefix } else { DirectoryOrder::Any };
    SimDisk::new(seed, DiskOptions { new_blocks, directory_order, ..DiskOptions::default() })
}

pub(crate) fn open(disk: &SimDisk, options: Options) -> Result<Log, Error> {
    Log::open_in(Arc::new(disk.directory(LOG)), options)
}

/// What was promised about a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    /// Acknowledged, or shown: must be there.
    pub(crate) acked: u64,
    /// Appended: may be there.
    pub(crate) appended: u64,
}

impl Told {
    pub(crate) fn all(last: u64) -> Self {
        Self { acked: last, appended: last }
    }
}

/// Opens the log and checks what it shows against what was promised; gives the last LSN shown.
pub(crate) fn check(disk: &SimDisk, options: Options, told: Told) -> Result<u64, String> {
    check_with(disk, options, told, record)
}

pub(crate) fn check_with(
    disk: &SimDisk,
    options: Options,
    told: Told,
    record: impl Fn(u64) -> Vec<u8>,
) -> Result<u64, String> {
    let log = open(disk, options).map_err(|error| format!("it does not open: {error}"))?;
    let shown = log.recovery().last.get();
    let first = log.first();
    let mut next = first.get();
    for found in log.reader().records(first) {
        let found = found.map_err(|error| format!("record {next} cannot be read: {error}"))?;
        if found.lsn.get() != next || found.bytes != record(next) {
            return Err(format!("record {next} was never appended"));
        }
        next += 1;
    }
    let reader = log.reader();
    for lsn in first.get()..next {
        let found = reader
            .get(Lsn::new(lsn))
            .map_err(|error| format!("record {lsn} cannot be read: {error}"))?;
        if found != record(lsn) {
            return Err(format!("record {lsn} was never appended"));
        }
    }
    log.abandon();
    if next != shown + 1 {
        return Err(format!("recovery speaks of {shown} and {} are there", next - 1));
    }
    if shown < told.acked {
        return Err(format!("{} were acknowledged and {shown} are there", told.acked));
    }
    if shown > told.appended {
        return Err(format!("{} were appended and {shown} are there", told.appended));
    }
    Ok(shown)
}

/// States found after each cut.
pub(crate) const SAMPLES: u64 = 6;

/// Every promise holds in what a cut may leave.
pub(crate) fn check_cut(
    cut: &PowerCut,
    options: &Options,
    seed: u64,
    told: Told,
) -> Result<(), String> {
    (0..SAMPLES).try_for_each(|sample| {
        check(&cut.sample(seed ^ sample << 20), options.clone(), told).map(drop)
    })
}

/// Appends the records `from..=to`, each acknowledged.
pub(crate) fn append(log: &Log, from: u64, to: u64) -> Result<(), String> {
    for lsn in from..=to {
        let given = log.append_durable(&record(lsn)).map_err(|error| error.to_string())?;
        assert_eq!(given, Lsn::new(lsn));
    }
    Ok(())
}

/// The name of a segment's file.
pub(crate) fn name(segment: u64) -> String {
    format!("{segment:020}.ink")
}

/// The bytes of a file.
pub(crate) fn read_file<D: Directory>(directory: &D, name: &str) -> Vec<u8> {
    let file = directory.open(name, &OpenFile::existing().read_only()).expect("the file is there");
    let mut bytes = vec![0; file.len_bytes().expect("a size") as usize];
    file.read_at(&mut bytes, 0).expect("no fault is planned");
    bytes
}

/// Writes bytes into a file, which is created if it is not there, and makes them durable.
pub(crate) fn write_file<D: Directory>(directory: &D, name: &str, offset: u64, bytes: &[u8]) {
    let file = directory
        .open(name, &OpenFile::existing())
        .or_else(|_| directory.open(name, &OpenFile::new_file()))
        .expect("a file");
    file.write_at(bytes, offset).expect("no fault is planned");
    file.sync(SyncKind::All).expect("no fault is planned");
    directory.sync().expect("no fault is planned");
}
