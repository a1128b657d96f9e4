//! What a log does where something that it asks of the system is refused: by a sandbox, by a disk
//! that is dying. One program, which walks the tables.
//!
//! *Owns*: the story that is told in each such place. *May not touch*: how something is refused
//! (`sandbox.rs`, `dying.rs`).
//!
//! In each place: what has a substitute goes on; what is needed is an error that says what to do.
//! Nothing acknowledged is lost, and nothing becomes impossible to open.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "../../../../lab/host/tests/host_support/mod.rs"]
mod host_support;

mod dying;
mod sandbox;

use std::path::Path;

use inkstone::{Error, Log, Lsn, Options, OwnedRecord, Reader, inspect};

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10)
}

fn record(lsn: u64) -> Vec<u8> {
    vec![lsn as u8; 5000]
}

fn append(log: &Log, count: u64) {
    for _ in 0..count {
        log.append_durable(&record(log.last().get() + 1)).unwrap();
    }
}

/// What came of a story.
#[derive(Debug, Default)]
struct Told {
    /// The log and its last acknowledged record, each time that it changed.
    acknowledged: Vec<(String, u64)>,
    /// What was refused: the step and the error.
    refused: Vec<(String, String)>,
    /// What readers could not make sure of.
    doubts: Vec<String>,
}

impl Told {
    fn step<T>(&mut self, what: &str, done: Result<T, Error>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                self.refused.push((what.to_owned(), error.to_string()));
                None
            }
        }
    }

    fn note(&mut self, log: &str, last: Lsn) {
        self.acknowledged.push((log.to_owned(), last.get()));
    }

    /// The last acknowledged record of a log.
    fn last(&self, log: &str) -> u64 {
        self.acknowledged.iter().rev().find(|(name, _)| name == log).map_or(0, |(_, last)| *last)
    }

    /// Appends, rolls, truncates at both ends, and reads it all.
    fn write(&mut self, name: &str, log: &Log, count: u64) -> Result<(), Error> {
        for _ in 0..count {
            let lsn = log.append_durable(&record(log.last().get() + 1))?;
            self.note(name, lsn);
        }
        log.truncate_before(Lsn::new(log.last().get().saturating_sub(15).max(1)))?;
        let left = Lsn::new(log.last().get() - 1);
        // Unknown until it is done: it may have happened before an error.
        self.note(name, left);
        log.truncate_after(left)?;
        check(log.reader().records(log.first()), log.first(), left)
    }

    fn open_and_write(&mut self, name: &str, path: &Path, options: &Options, count: u64) {
        let Some(log) = self.step(&format!("open {name}"), Log::open(path, options.clone())) else {
            return;
        };
        let written = self.write(name, &log, count);
        self.step(&format!("write {name}"), written);
        self.step(&format!("close {name}"), log.close());
    }

    /// Reads in every way, from a log in `path` into new ones in `to`.
    fn read(&mut self, path: &Path, to: &Path) {
        if let Some(reader) = self.step("reader", Reader::open(path, &options())) {
            self.doubts.extend(reader.recovery().unwrap().doubts);
            let (first, last) = (reader.first(), reader.durable());
            let all = check(reader.records(first), first, last);
            self.step("records", all);
            let one = reader.get(last).map(|found| assert_eq!(found, record(last.get())));
            self.step("get", one);
        }
        if let Some(report) = self.step("verify", inspect::verify(path)) {
            assert!(report.is_intact(), "{:?}", report.damage);
            self.doubts.extend(report.doubts);
        }
        let dumped = inspect::dump(path, 0).and_then(|dump| dump.collect::<Result<Vec<_>, _>>());
        self.step("dump", dumped);
        let copied = inspect::copy(path, to.join("copied"), &options());
        if let Some(copied) = self.step("copy", copied) {
            self.doubts.extend(copied.doubts);
        }
        let salvaged = inspect::salvage(path, to.join("salvaged"), &options());
        if let Some(salvage) = self.step("salvage", salvaged) {
            assert!(salvage.gaps.is_empty() && salvage.unknown_behind.is_none(), "{salvage:?}");
        }
        for made in ["copied", "salvaged"] {
            let _ = std::fs::remove_dir_all(to.join(made));
        }
    }
}

/// Whether these are the records from `first` to `last`, each as it was appended.
fn check(
    records: impl Iterator<Item = Result<OwnedRecord, Error>>,
    first: Lsn,
    last: Lsn,
) -> Result<(), Error> {
    let mut next = first.get();
    for found in records {
        let found = found?;
        assert_eq!((found.lsn.get(), found.bytes), (next, record(next)));
        next += 1;
    }
    assert_eq!(next, last.get() + 1, "from {first}");
    Ok(())
}

/// Where nothing is refused: all that was acknowledged is there, and the log goes on.
fn check_whole(path: &Path, acknowledged: u64) {
    let log = Log::open(path, options()).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let (first, last) = (log.first(), log.last());
    assert!(last.get() >= acknowledged, "{}: {last} of {acknowledged}", path.display());
    check(log.reader().records(first), first, last).unwrap();
    log.append_durable(&record(last.get() + 1)).unwrap();
    log.close().unwrap();
}
