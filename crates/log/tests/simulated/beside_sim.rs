//! Readers on a simulated disk: what a look at the files costs beside a writer, and what readers
//! make of damage, of a writer that never rests.
//!
//! *Owns*: each of these by itself. Writers that come and go between any two steps of a reader are
//! in `meddled.rs`, real directories and processes in `processes/`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::gate::{Gate, behind};
use crate::history::small;
use crate::watch::must_end;
use crate::watched::{Call, watched};
use inkstone::{Cursor, Directory, Error, Log, Lsn, Options, Reader};
use inkstone_io::OpenFile;
use inkstone_sim::hooked::{FileCall, Hook};
use inkstone_sim::{DiskOptions, SimDisk, errno};

fn record(lsn: u64, salt: u64) -> Vec<u8> {
    (0..lsn * 151 % 2500 + 1).map(|at| (at ^ lsn ^ (salt << 4)) as u8).collect()
}

fn open(disk: &SimDisk, options: Options) -> Log {
    Log::open_in(Arc::new(disk.directory("/log")), options).unwrap()
}

fn read(disk: &SimDisk) -> Reader {
    Reader::open_in(Arc::new(disk.directory("/log")), small()).unwrap()
}

fn append(log: &Log, lsns: std::ops::RangeInclusive<u64>, salt: u64) {
    for lsn in lsns {
        assert_eq!(log.append_durable(&record(lsn, salt)).unwrap().get(), lsn);
    }
}

/// Everything that a cursor shows from its position on.
fn shown(cursor: &mut Cursor) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(record) = cursor.next().unwrap() {
        all.push((record.lsn.get(), record.bytes.to_vec()));
    }
    all
}

fn is_log(shown: &[(u64, Vec<u8>)], from: u64, salt: u64) -> bool {
    (from..).zip(shown).all(|(lsn, (found, bytes))| *found == lsn && *bytes == record(lsn, salt))
}

#[test]
fn a_damaged_segment_is_corrupt_beside_a_writer_and_without_one() {
    for lives in [true, false] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, small());
        append(&log, 1..=100, 0);
        let whole = read(&disk);
        disk.rot("/log", "00000000000000000001.ink", 20_000, 1);
        let log = if lives {
            Some(log)
        } else {
            log.close().unwrap();
            None
        };
        for reader in [whole, read(&disk)] {
            let mut cursor = reader.from(Lsn::FIRST);
            let mut next = 1;
            let error = loop {
                match cursor.next() {
                    Ok(shown) => assert_eq!(shown.unwrap().bytes, record(next, 0)),
                    Err(error) => break error,
                }
                next += 1;
            };
            let damage = error.corruption().unwrap_or_else(|| panic!("{error}"));
            assert!(damage.path.ends_with("00000000000000000001.ink"), "{error}");
            assert_eq!(damage.lsn.map(Lsn::get), Some(next));
            // Behind it everything can be read.
            let behind = reader.from(Lsn::new(60)).next().unwrap().unwrap().bytes.to_vec();
            assert_eq!(behind, record(60, 0));
        }
        drop(log);
    }
}

/// Without a shared page. The files that are only prepared are new, or were segments.
#[test]
fn a_look_reads_one_block_of_each_file_that_is_only_prepared() {
    for truncates in [false, true] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, small());
        append(&log, 1..=100, 0);
        if truncates {
            log.truncate_before(Lsn::new(90)).unwrap();
        }
        let segments = || -> u64 {
            let names = disk.directory("/log").list().unwrap();
            names.iter().filter(|name| name.ends_with(".ink")).count() as u64
        };
        let (begun, made) = (segments(), disk.counters().creations);
        log.prepare_now().unwrap();
        let (prepared, made) = (segments() - begun, disk.counters().creations - made);
        assert!(prepared > 0 && (made < prepared) == truncates, "{prepared} prepared, {made} made");
        let mut cursor = read(&disk).from(Lsn::new(95));
        assert!(is_log(&shown(&mut cursor), 95, 0) && cursor.next_lsn().get() >= 100);
        let before = disk.counters();
        assert!(cursor.next().unwrap().is_none());
        let done = disk.counters().since(&before);
        assert_eq!((done.listings, done.opens, done.reads), (1, prepared, 1 + prepared));
    }
}

/// Without a shared page. A look and a cursor read it in pieces that are too small at first, four
/// times in all. What comes behind it in the file is zeros, or will be written again.
#[test]
fn a_reader_that_comes_right_behind_reads_no_further_than_what_is_durable() {
    const RECORD_BYTES: u64 = 700 << 10;
    let options = || small().segment_bytes(32 << 20).record_bytes_max(1 << 20);
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk, options());
    let append = |lsn: u64| log.append_durable(&vec![lsn as u8; RECORD_BYTES as usize]).unwrap();
    append(1);
    let reader = Reader::open_in(Arc::new(disk.directory("/log")), options()).unwrap();
    let mut cursor = reader.from(Lsn::FIRST);
    for lsn in 2..=30 {
        append(lsn);
        let before = disk.counters();
        assert_eq!(cursor.next().unwrap().map(|record| record.lsn.get()), Some(lsn - 1));
        let read = disk.counters().since(&before).read_bytes;
        assert!(read < RECORD_BYTES * 17 / 4, "{read} bytes for LSN {}", lsn - 1);
    }
}

/// The committer writes a record that nobody waits for, and another one comes meanwhile.
#[test]
fn a_record_that_comes_during_the_write_before_a_promise_is_promised_too() {
    let (disk, gate) = (SimDisk::new(1, DiskOptions::default()), Arc::new(Gate::default()));
    let options = small().own_thread(true);
    let directory = behind(&gate, disk.directory("/log"));
    let log = Log::open_in(Arc::new(directory), options).unwrap();
    append(&log, 1..=1, 0);
    gate.shut();
    // A handle that is kept may be waited for: the committer leaves the record until it promises.
    let second = log.append(&record(2, 0)).unwrap();
    gate.wait_until_held();
    let third = log.append(&record(3, 0)).unwrap();
    gate.let_go();
    let mut cursor = read(&disk).from(Lsn::new(3));
    let last = cursor.next_within(std::time::Duration::from_secs(20)).unwrap();
    assert!(last.is_some_and(|last| last.bytes == record(3, 0)));
    drop((second, third));
}

/// A writer that cuts, or begins segments, whenever a reader lists or opens files: the reader is
/// not kept waiting, calls nothing damaged, and shows no record of an older generation.
#[test]
fn a_writer_that_never_rests_keeps_no_reader_waiting() {
    let is_list: fn(&Call<'_>) -> bool = |call| matches!(call, Call::List);
    let is_open: fn(&Call<'_>) -> bool = |call| matches!(call, Call::Open { .. });
    for (name, at, times) in [("list", is_list, u32::MAX), ("open", is_open, 40)] {
        for cuts in [true, false] {
            must_end(name, move || {
                let disk = SimDisk::new(1, DiskOptions::default());
                let log = Arc::new(open(&disk, small()));
                append(&log, 1..=5, 0);
                let (writer, acts) = (Arc::clone(&log), AtomicU32::new(0));
                let act = move |call: &Call<'_>| {
                    if !at(call) || acts.load(Ordering::SeqCst) == times {
                        return;
                    }
                    let generation = u64::from(acts.fetch_add(1, Ordering::SeqCst)) + 1;
                    if cuts {
                        writer.truncate_after(Lsn::new(5)).unwrap();
                        (0..2).for_each(|_| {
                            _ = writer.append_durable(&generation.to_le_bytes()).unwrap()
                        });
                    } else {
                        let last = writer.last().get();
                        append(&writer, last + 1..=last + 60, 0);
                        writer.truncate_before(Lsn::new(last.max(6) - 5)).unwrap();
                    }
                };
                let directory = watched(disk.directory("/log"), act);
                let reader = Reader::open_in(Arc::new(directory), small()).unwrap();
                let mut cursor = reader.from(Lsn::FIRST);
                let mut newest = 0;
                for _ in 0..20 {
                    match cursor.next() {
                        Ok(Some(shown)) if cuts && shown.lsn.get() > 5 => {
                            let generation = u64::from_le_bytes(shown.bytes.try_into().unwrap());
                            assert!(
                                generation >= newest,
                                "{name}: generation {generation} after {newest}"
                            );
                            newest = generation;
                        }
                        Ok(_) => {}
                        Err(Error::TruncatedAfter { .. }) if cuts => {}
                        Err(Error::TruncatedBefore { first, .. }) if !cuts => cursor.seek(first),
                        Err(error) => panic!("{name}, cuts {cuts}: {error}"),
                    }
                }
            });
        }
    }
}

/// Runs once before a reader syncs: what the writer does between two steps of a look.
struct BeforeASync<F>(F, AtomicU32);

impl<F: Fn() + Send + Sync + 'static> Hook for BeforeASync<F> {
    fn before(&self, call: &Call<'_>) -> inkstone_io::Result<()> {
        let is_sync = matches!(call, Call::OfFile { call: FileCall::Sync, .. });
        if is_sync && self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.0)();
        }
        Ok(())
    }
}

/// A look syncs a truncation that no promise covers, and reads it once more. The writer may have
/// truncated more by then, which the records that were seen do not explain.
#[test]
fn no_reader_knows_a_truncation_and_lacks_the_records_before_it() {
    for reads_before in [false, true] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = Arc::new(open(&disk, small()));
        append(&log, 1..=20, 0);
        let truncates = move |log: &Log| log.truncate_before(Lsn::new(5)).unwrap();
        if !reads_before {
            truncates(&log);
        }
        let writer = Arc::clone(&log);
        let goes_on = move || {
            if reads_before && writer.first() == Lsn::FIRST {
                return;
            }
            append(&writer, 21..=30, 0);
            writer.truncate_before(Lsn::new(25)).unwrap();
        };
        let hook = Arc::new(BeforeASync(goes_on, AtomicU32::new(0)));
        let directory = disk.directory("/log").hooked(hook.clone());
        let reader = Reader::open_in(Arc::new(directory), small()).unwrap();
        if reads_before {
            truncates(&log);
            hook.1.store(0, Ordering::Relaxed);
            assert!(reader.get(Lsn::new(21)).is_err());
        }
        assert_eq!(log.first().get(), 25, "the reader did not sync");
        let (first, durable) = (reader.first().get(), reader.durable().get());
        assert!(first < 25 || durable >= 30, "from {first} to {durable}");
        assert_eq!(reader.get(Lsn::new(29)).unwrap(), record(29, 0));
        assert_eq!(reader.first().get(), 25);
    }
}

/// A name is listed and cannot be opened.
struct LeadsNowhere(&'static str);

impl Hook for LeadsNowhere {
    fn before(&self, call: &Call<'_>) -> inkstone_io::Result<()> {
        match call {
            Call::Open { name, .. } if *name == self.0 => Err(inkstone_io::Error::new(
                "open",
                name,
                std::io::Error::from_raw_os_error(errno::ENOENT),
            )),
            _ => Ok(()),
        }
    }
}

/// Such a name above the last segment's is no reason to look again for ever.
#[test]
fn a_name_that_leads_nowhere_is_no_segment() {
    must_end("opening beside a name that leads nowhere", || {
        const NAME: &str = "00000000000000000077.ink";
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = open(&disk, small());
        append(&log, 1..=5, 0);
        let inner = disk.directory("/log");
        drop(inner.open(NAME, &OpenFile::new_file()).unwrap());
        let directory = inner.hooked(Arc::new(LeadsNowhere(NAME)));
        let reader = Reader::open_in(Arc::new(directory), small()).unwrap();
        assert!(is_log(&shown(&mut reader.from(Lsn::FIRST)), 1, 0));
        assert_eq!(reader.durable().get(), 4);
    });
}
