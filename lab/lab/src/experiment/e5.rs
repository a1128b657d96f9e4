//! A key-value store's log with its blocks reserved ahead and without (article 3): threads that
//! each wait for their 128-byte record, on our log as it prepares its segments, and on a plain file
//! that they write in groups.
//!
//! *Owns*: the ways, and the simplest group commit. *May not touch*: the rounds, how the log
//! prepares its segments.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inkstone::{Log, Options};
use inkstone_host::LabFile;
use inkstone_io::{Directory, OpenFile, Preparation, SyncKind};

use crate::crowd::together;
use crate::histogram::Recorder;
use crate::result::{Figure, Unit, figure};
use crate::rounds::{Running, Sample, TakesTurns, Trial, Turn, timed};
use crate::stage::WayError;

/// Threads, each of which waits for its record, and the bytes of a record, as published.
const THREADS: u32 = 8;
const RECORD_BYTES: u64 = 128;
/// `fillsync` of 1,000,000 writes 1,000 records per thread.
pub(super) const PUBLISHED_RECORDS: u64 = 1_000;
const FILE: &str = "plain-log";
/// Room for it.
const FILE_BYTES: u64 = 256 << 20;
/// Bytes reserved at a time, as a store does it a step ahead of its writer.
const STEP_BYTES: u64 = 4 << 20;
/// Size of the log's segments: large enough that a turn has hardly any change, small enough to be
/// created quickly.
const SEGMENT_BYTES: u64 = 8 << 20;
const LOG: &str = "log";
const BUDGET_BYTES: u64 = 256 << 20;

/// The same load on plain files and on our log. `records`: the most of each thread in a turn.
pub(super) fn preallocation(records: u64) -> Trial {
    let title = format!(
        "{THREADS} threads, records of {RECORD_BYTES} B, each durable before its append returns: \
         blocks reserved ahead, or not"
    );
    // A log at a time, and a plain file.
    let needs = (BUDGET_BYTES + FILE_BYTES, 9.0);
    Trial::new(("log-preallocation", title), Unit::OperationsPerS, needs, move |_| {
        let plain = |name, ahead| Running::of(name, plain(ahead, records));
        let log = |name, preparation| Running::of(name, logged(preparation, records));
        Ok(vec![
            plain("plain file, grows", None),
            plain("plain file, KEEP_SIZE ahead", Some(Preparation::KeepSizeSteps)),
            plain("plain file, mode 0 ahead", Some(Preparation::FallocateSteps)),
            log("inkstone, blocks reserved", Preparation::Fallocate),
            log("inkstone, zeros written", Preparation::Zeros),
        ])
    })
    .note(
        "plain file: one thread writes the records of all threads and calls fdatasync, the others \
         wait; each turn has a new file; published: 1,000 records a thread, once",
    )
    .note(
        "our log always prepares: its segments are reserved (fallocate) or filled with zeros \
         before they are written; each turn has a new log, which recycles none",
    )
}

/// Locks, and ignores poisoning: after a panic only the ending threads use the state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that threads append to in groups: the thread that has the file writes for all.
struct Group<'a> {
    ahead: Option<Preparation>,
    /// Appended bytes that nobody writes yet, and the number of all appended records.
    asked: Mutex<(Vec<u8>, u64)>,
    written: Mutex<Written<'a>>,
}

/// The file, and what of it is durable.
struct Written<'a> {
    file: &'a LabFile,
    records: u64,
    offset: u64,
    reserved_bytes: u64,
    groups: u64,
}

impl<'a> Group<'a> {
    fn new(file: &'a LabFile, ahead: Option<Preparation>) -> Self {
        let written = Written { file, records: 0, offset: 0, reserved_bytes: 0, groups: 0 };
        Self { ahead, asked: Mutex::default(), written: Mutex::new(written) }
    }

    fn append(&self, record: &[u8]) -> Result<(), WayError> {
        let mine = {
            let mut asked = lock(&self.asked);
            asked.0.extend_from_slice(record);
            asked.1 += 1;
            asked.1
        };
        let mut written = lock(&self.written);
        if written.records >= mine {
            return Ok(());
        }
        let (group, upto) = {
            let mut asked = lock(&self.asked);
            (std::mem::take(&mut asked.0), asked.1)
        };
        written.make_durable(&group, self.ahead)?;
        written.records = upto;
        Ok(())
    }
}

impl Written<'_> {
    fn make_durable(
        &mut self,
        group: &[u8],
        ahead: Option<Preparation>,
    ) -> inkstone_io::Result<()> {
        let end = self.offset + group.len() as u64;
        if let Some(ahead) = ahead {
            while end > self.reserved_bytes {
                self.file.extend(ahead, self.reserved_bytes, STEP_BYTES)?;
                self.reserved_bytes += STEP_BYTES;
            }
        }
        self.file.write_at(group, self.offset)?;
        self.file.sync(SyncKind::Data)?;
        (self.offset, self.groups) = (end, self.groups + 1);
        Ok(())
    }
}

/// The most records of a thread in a turn, on a plain file.
fn plain<'a>(ahead: Option<Preparation>, records: u64) -> impl TakesTurns + 'a {
    timed(move |turn, latency| {
        let session = turn.session;
        session.clear(FILE)?;
        let file = session.directory.open(FILE, &OpenFile::new_file())?;
        session.directory.sync()?;
        let group = Group::new(&file, ahead);
        let (amount, total_ns) = append(turn, records, latency, |record| group.append(record))?;
        let written = lock(&group.written);
        // Acknowledged records must be there: the lab does not measure a log that loses records.
        if written.offset != amount * RECORD_BYTES {
            let written = written.offset;
            return Err(WayError::Invalid(format!(
                "{amount} records were acknowledged, but {written} bytes written"
            )));
        }
        Ok(Sample::of(amount, total_ns).with(vec![per_flush(amount, written.groups)]))
    })
}

/// Our log, a new one in each turn.
fn logged<'a>(preparation: Preparation, records: u64) -> impl TakesTurns + 'a {
    let refused = |error: inkstone::Error| WayError::Invalid(error.to_string());
    timed(move |turn, latency| {
        let path = turn.session.directory.path().join(LOG);
        // What an interrupted turn left.
        let _ = std::fs::remove_dir_all(&path);
        // A recycled segment is written already, which would make both ways equal.
        let options = Options::new()
            .segment_bytes(SEGMENT_BYTES)
            .record_bytes_max(RECORD_BYTES as usize)
            .disk_budget_bytes(BUDGET_BYTES)
            .preparation(preparation)
            .free_segments_max(0);
        let log = Log::open(&path, options).map_err(refused)?;
        // Nothing is prepared while it is measured, as far as that can be.
        for _ in (0..400).take_while(|_| log.stats().ready == 0) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = log.stats().groups;
        let done = append(turn, records, latency, |record| {
            log.append_durable(record).map(drop).map_err(refused)
        });
        let groups = log.stats().groups - before;
        log.close().map_err(refused)?;
        drop(log);
        // The removal of the working directory takes what cannot be removed here.
        let _ = std::fs::remove_dir_all(&path);
        let (amount, total_ns) = done?;
        Ok(Sample::of(amount, total_ns).with(vec![per_flush(amount, groups)]))
    })
}

/// Threads that each append so many records at most, until the turn's time is over; how many all
/// have appended, and in which time.
fn append(
    turn: &Turn<'_>,
    records: u64,
    latency: &mut Recorder,
    append: impl Fn(&[u8]) -> Result<(), WayError> + Sync,
) -> Result<(u64, u64), WayError> {
    let mut record = vec![0; RECORD_BYTES as usize];
    fastrand::fill(&mut record);
    let mut latencies = vec![Recorder::new(); THREADS as usize];
    let all =
        together(&mut latencies, |_, latency| turn.repeat(records, latency, |_| append(&record)))?;
    latencies.iter().for_each(|own| latency.merge(own));
    let amount = all.outcomes.iter().map(|(done, _)| done).sum();
    let last_ns = all.outcomes.iter().map(|(_, end_ns)| *end_ns).max();
    Ok((amount, last_ns.unwrap_or(0).saturating_sub(all.begin_ns)))
}

fn per_flush(records: u64, groups: u64) -> Figure {
    figure("records per flush", Unit::PerFlush, records as f64 / groups.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_and_plain_files_have_blocks_reserved_or_not() {
        use crate::experiment::testing::{ROUNDS, check};
        const RECORDS: u64 = 20;
        let all = check(&preallocation(RECORDS));
        for way in all.ways.iter().filter(|way| way.is_measured()) {
            let latency = way.latency.as_ref().expect("timed one by one");
            let each = u64::from(ROUNDS * THREADS) * RECORDS;
            assert_eq!(latency.count, each, "{}: each record once", way.name);
            let per_flush = way.figure("records per flush").expect("counted");
            assert!((1.0..=8.0).contains(&per_flush), "{}: {per_flush}", way.name);
        }
    }

    /// Every record is there once, whichever thread wrote it, and no more is reserved than the
    /// steps that were begun.
    #[test]
    fn a_group_writes_each_record_once() {
        let directory = tempfile::tempdir().expect("a directory");
        for (ahead, reserves) in [
            (None, false),
            (Some(Preparation::KeepSizeSteps), true),
            (Some(Preparation::FallocateSteps), true),
        ] {
            let path = directory.path().join(format!("{ahead:?}"));
            let file = LabFile::open(&path, &OpenFile::new_file()).expect("a file");
            let group = Group::new(&file, ahead);
            let mut threads: Vec<u8> = (1..=8).collect();
            together(&mut threads, |_, number| {
                (0..50).try_for_each(|_| group.append(&[*number; 128]))
            })
            .expect("nothing fails");
            let end = lock(&group.written);
            assert_eq!((end.records, end.offset, end.groups <= 400), (400, 400 * 128, true));
            assert_eq!(end.reserved_bytes > 0, reserves, "{ahead:?}");
            let bytes = std::fs::read(&path).expect("read");
            for number in 1..=8 {
                let its = bytes
                    .chunks(128)
                    .filter(|record| record.iter().all(|byte| *byte == number))
                    .count();
                assert_eq!(its, 50, "{ahead:?}: thread {number}");
            }
        }
    }
}
