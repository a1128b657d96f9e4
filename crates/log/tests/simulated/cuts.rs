//! Readers that sleep while the log is cut, and the marks of a cut: one case each.
//!
//! *Owns*: what a history of cuts says at its ends; what is noticed when the newest file is lost.
//! Histories that are drawn, with readers that sleep in them, are in `inkstone powerloss sim`, class
//! `readers`. Writers that act between any two calls of one reader are in `meddled.rs`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::history::{LOG, name, open, read_file, small, write_file};
use inkstone::{Cursor, Error, Event, Log, LogKind, Lsn, Options, Place, Reader, Reason, inspect};
use inkstone_io::Directory;
use inkstone_sim::{AfterEffect, DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

fn read(disk: &SimDisk, options: &Options) -> Reader {
    Reader::open_in(Arc::new(disk.directory(LOG)), options.clone()).unwrap()
}

/// Several of these fill a segment. Each has a number of its own, whatever its LSN.
fn record(number: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; 3_000 + (number * 777 % 4_000) as usize];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// What the log is.
#[derive(Default)]
struct Is {
    /// The number of each record.
    records: BTreeMap<u64, u64>,
    first: u64,
    /// What each cut has kept.
    cuts: Vec<u64>,
    numbers: u64,
}

impl Is {
    fn last(&self) -> u64 {
        self.records.last_key_value().map_or(self.first - 1, |(lsn, _)| *lsn)
    }

    fn append(&mut self, log: &Log) {
        self.numbers += 1;
        let lsn = log.append_durable(&record(self.numbers)).unwrap().get();
        assert_eq!(lsn, self.last() + 1);
        self.records.insert(lsn, self.numbers);
    }

    fn cut(&mut self, kept: u64) {
        self.cuts.push(kept);
        self.records.retain(|lsn, _| *lsn <= kept);
    }

    fn truncate_before(&mut self, first: u64) {
        self.first = first;
        self.records.retain(|lsn, _| *lsn >= first);
    }
}

/// A reader that sleeps at the end of what it could see.
struct Sleeper {
    reader: Reader,
    cursor: Cursor,
    /// The cuts that it had been told of, or that had not touched what it had.
    cuts: usize,
}

impl Sleeper {
    fn new(disk: &SimDisk, is: &Is, options: &Options) -> Self {
        let reader = read(disk, options);
        let cursor = reader.from(reader.first());
        let mut sleeper = Self { reader, cursor, cuts: is.cuts.len() };
        sleeper.wake(is);
        sleeper
    }

    /// Reads to the end. Every record is the log's, and nothing that was given was cut without a
    /// word.
    fn wake(&mut self, is: &Is) {
        loop {
            let next = self.cursor.next_lsn().get();
            let lowest = is.cuts[self.cuts..].iter().min().copied().unwrap_or(u64::MAX);
            let unharmed =
                || assert!(lowest >= next - 1, "{lowest} was kept, not a word at {next}");
            self.cuts = is.cuts.len();
            match self.cursor.next() {
                Ok(Some(shown)) => {
                    unharmed();
                    assert_eq!(shown.lsn.get(), next);
                    assert!(shown.bytes == record(is.records[&next]), "LSN {next}");
                }
                Ok(None) => {
                    unharmed();
                    assert!(self.reader.durable().get() <= is.last());
                    return;
                }
                Err(Error::TruncatedAfter { lsn, last }) => {
                    assert_eq!((lsn.get(), last.get()), (next, lowest));
                    assert_eq!(self.cursor.next_lsn().get(), lowest + 1);
                }
                Err(error) => panic!("LSN {next}: {error}"),
            }
        }
    }
}

/// The numbers of the segments' files, in order.
fn segments(disk: &SimDisk) -> Vec<u64> {
    let names = disk.directory(LOG).list().unwrap();
    let numbers = names.iter().filter_map(|name| name.strip_suffix(".ink")?.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// A log of ten records that a cursor has read, cut after the fifth, with six others.
fn slept(options: &Options) -> (SimDisk, Log, Is, Sleeper) {
    let disk = SimDisk::new(7, DiskOptions::default());
    let log = open(&disk, options.clone()).unwrap();
    let mut is = Is { first: 1, ..Is::default() };
    (0..10).for_each(|_| is.append(&log));
    log.close().unwrap();
    let sleeper = Sleeper::new(&disk, &is, options);
    assert_eq!(sleeper.cursor.next_lsn().get(), 11);
    let log = open(&disk, options.clone()).unwrap();
    log.truncate_after(Lsn::new(5)).unwrap();
    is.cut(5);
    (0..6).for_each(|_| is.append(&log));
    (disk, log, is, sleeper)
}

/// More cuts than the table knows one by one.
#[test]
fn who_slept_through_many_cuts_is_told_the_lowest() {
    many_cuts(&small());
}

fn many_cuts(options: &Options) {
    // With the first cut, which kept least, some are more than the table has.
    for cuts in [62, 63, 64, 100] {
        let (_disk, log, mut is, mut sleeper) = slept(options);
        for kept in (0..cuts).map(|round| 8 + round % 3) {
            (0..4).for_each(|_| is.append(&log));
            log.truncate_after(Lsn::new(kept)).unwrap();
            is.cut(kept);
        }
        sleeper.wake(&is);
    }
}

/// A place that counts more cuts than the log is that of another one. A reader that has only not
/// come so far looks first.
#[test]
fn a_place_of_another_log_is_refused() {
    let (disk, log, mut is, mut sleeper) = slept(&small());
    let late = read(&disk, &small());
    let mut other = late.from(Lsn::FIRST);
    other.next().unwrap();
    (0..3).for_each(|_| is.append(&log));
    log.truncate_after(Lsn::new(7)).unwrap();
    is.cut(7);
    sleeper.wake(&is);
    let place = sleeper.cursor.place();
    assert_eq!((place.lsn.get(), place.cuts), (8, 2));
    let mut cursor = late.from(Place { lsn: Lsn::FIRST, ..place });
    assert_eq!(cursor.next().unwrap().map(|shown| shown.lsn), Some(Lsn::FIRST));
    for reader in [late, log.reader()] {
        let mut cursor = reader.from(Place { cuts: 3, ..place });
        for _ in 0..2 {
            let told = cursor.next().map(drop).unwrap_err().to_string();
            assert!(told.contains("cut 3 times") && told.contains("cut 2 times"), "{told}");
        }
    }
}

/// A backup of the directory is put back under a reader that has seen a later cut.
#[test]
fn an_older_copy_is_not_read_on() {
    let (disk, log, _, mut sleeper) = slept(&small());
    log.close().unwrap();
    let backup: Vec<_> = segments(&disk)
        .into_iter()
        .map(|number| (number, read_file(&disk.directory(LOG), &name(number))))
        .collect();
    let log = open(&disk, small()).unwrap();
    log.truncate_after(Lsn::new(3)).unwrap();
    log.close().unwrap();
    let lowest = sleeper.cursor.next().map(drop);
    assert!(matches!(lowest, Err(Error::TruncatedAfter { last, .. }) if last.get() == 3));
    for number in segments(&disk) {
        disk.directory(LOG).remove(&name(number)).unwrap();
    }
    for (number, bytes) in backup {
        write_file(&disk.directory(LOG), &name(number), 0, &bytes);
    }
    sleeper.cursor.seek(Lsn::new(7));
    let told = sleeper.cursor.next().map(drop).unwrap_err();
    assert_eq!(told.corruption().unwrap().cure, inkstone::Cure::OpenAgain, "{told}");
}

/// The newest file is gone: everybody says so, and names it; nothing that was cut comes back.
fn its_loss_is_noticed(disk: &SimDisk, kept: u64) {
    let lost = *segments(disk).last().unwrap();
    disk.directory(LOG).remove(&name(lost)).unwrap();
    disk.directory(LOG).sync().unwrap();
    let damage = |error: Error| error.corruption().cloned().unwrap_or_else(|| panic!("{error}"));
    let opened = damage(open(disk, small()).map(drop).unwrap_err());
    let of_reader = Reader::open_in(Arc::new(disk.directory(LOG)), small());
    let verified = inspect::verify_in(&disk.directory(LOG)).unwrap();
    for told in [opened, damage(of_reader.map(drop).unwrap_err()), verified.damage[0].clone()] {
        assert!(told.path.ends_with(name(lost)) && told.row == "D3", "{told}");
        assert_eq!((told.reason, told.segment.unwrap().get()), (Reason::MissingSegment, lost));
    }
    let savable = verified.savable.unwrap().records;
    assert!(!verified.is_intact() && savable <= kept, "{verified:?}");
}

/// Cuts in the head and in older segments, one and several, to nothing, in a log that was
/// truncated, and of which files were used again.
fn shapes() -> [(&'static [u64], u64); 7] {
    [(&[10], 1), (&[3], 1), (&[30, 28], 1), (&[30, 10], 1), (&[10, 3], 1), (&[0], 1), (&[25], 20)]
}

fn cut_log(shape: (&[u64], u64), options: &Options) -> (SimDisk, Log, Is) {
    let disk = SimDisk::new(9, DiskOptions::default());
    let log = open(&disk, options.clone()).unwrap();
    let mut is = Is { first: 1, ..Is::default() };
    (0..30).for_each(|_| is.append(&log));
    log.truncate_before(Lsn::new(shape.1)).unwrap();
    is.truncate_before(shape.1);
    for kept in shape.0 {
        (0..5).for_each(|_| is.append(&log));
        log.truncate_after(Lsn::new(*kept)).unwrap();
        is.cut(*kept);
    }
    (disk, log, is)
}

#[test]
fn the_loss_of_the_segment_that_a_cut_has_begun_is_noticed() {
    lose_the_newest(&small());
}

fn lose_the_newest(options: &Options) {
    for shape in shapes().into_iter().filter(|shape| shape.0 != [0]) {
        for is_reopened in [false, true] {
            let (disk, mut log, mut is) = cut_log(shape, options);
            if is_reopened {
                log.close().unwrap();
                log = open(&disk, options.clone()).unwrap();
            }
            (0..5).for_each(|_| is.append(&log));
            log.close().unwrap();
            its_loss_is_noticed(&disk, *shape.0.last().unwrap());
            nothing_else_is_saved(&disk, &is, shape.1);
        }
    }
}

/// What can be read is saved, and nothing that was cut is.
fn nothing_else_is_saved(disk: &SimDisk, is: &Is, first: u64) {
    let to = || Ok(Arc::new(disk.directory("/saved")));
    inspect::salvage_in(&disk.directory(LOG), to, &small()).unwrap();
    let saved = Reader::open_in(Arc::new(disk.directory("/saved")), small()).unwrap();
    // What was truncated at the front may come back: the head said that behind the cut.
    for shown in saved.records(Lsn::new(first)) {
        match shown {
            Ok(shown) => {
                let number = is.records.get(&shown.lsn.get());
                assert!(number.is_some_and(|number| shown.bytes == record(*number)));
            }
            Err(Error::Lost { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The power fails at any moment of a cut: all of it happened or none, and once it is acknowledged,
/// or the log was opened again, the loss of the new segment is noticed.
#[test]
fn a_power_cut_within_a_cut_leaves_its_marks_to_the_next_opening() {
    cut_the_power_within_cuts(&small());
}

fn cut_the_power_within_cuts(options: &Options) {
    let mut cut = 0;
    for shape in shapes() {
        let (disk, log, is) = cut_log((&[], shape.1), options);
        let (before, kept) = (is.last(), shape.0[0]);
        if kept == before {
            continue;
        }
        disk.record_epochs();
        log.truncate_after(Lsn::new(kept)).unwrap();
        for (epoch, state) in disk.take_epochs().iter().enumerate() {
            for sample in 0..8 {
                let disk = state.sample(sample);
                let log = open(&disk, options.clone()).unwrap();
                let last = log.last().get();
                assert!(last == kept || last == before, "{shape:?}, {epoch}: {last}");
                log.close().unwrap();
                let reader = read(&disk, &small());
                assert_eq!(reader.durable().get(), last);
                if last == kept && kept > 0 {
                    cut += 1;
                    its_loss_is_noticed(&disk, kept);
                }
            }
        }
    }
    assert!(cut > 50, "{cut} states after the cut");
}

/// The power fails as soon as the cut is acknowledged. What the cut has taken away is still there.
/// The opening reads the older headers once for the log, and once for the marks. If only the second
/// reading fails, the log opens, and an event says so.
#[test]
fn an_opening_that_cannot_look_for_missing_marks_says_so() {
    let is_told = (1..=30).filter(|nth| {
        let (disk, log, _) = cut_log((&[10], 1), &small());
        log.close().unwrap();
        let fault = Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Read);
        disk.inject(fault.file(".ink").nth(*nth));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let listener = move |event: &Event| {
            if let Event::Fallback { what } = event {
                ear.lock().unwrap().push(what.clone());
            }
        };
        let opened = open(&disk, small().listener(listener));
        let is_told =
            heard.lock().unwrap().iter().any(|what| what.contains("no older segment got a mark"));
        assert!(!is_told || opened.is_ok(), "read {nth}: {opened:?}");
        is_told
    });
    assert!(is_told.count() > 0, "no opening said so");
}

#[test]
fn the_loss_is_noticed_as_soon_as_the_cut_is_acknowledged() {
    lose_at_once(&small());
}

fn lose_at_once(options: &Options) {
    for shape in shapes() {
        let (disk, log, is) = cut_log((&[], shape.1), &options.clone().tail_bytes(0));
        let kept = shape.0[0];
        if kept == is.last() {
            continue;
        }
        // It holds the old head, whose file stays a segment's.
        let mut held = log.reader().from(log.last());
        held.next().unwrap().unwrap();
        log.truncate_after(Lsn::new(kept)).unwrap();
        its_loss_is_noticed(&disk.crash(1), kept);
    }
}

/// The writer's next opening has the records again, and so has a reader that looked meanwhile.
#[test]
fn a_truncation_whose_sync_failed_is_not_believed() {
    for after in [AfterEffect::KeepsNew, AfterEffect::RevertsToOld] {
        let disk = SimDisk::new(7, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() });
        let log = open(&disk, small()).unwrap();
        let mut is = Is { first: 1, ..Is::default() };
        (0..20).for_each(|_| is.append(&log));
        let mut sleeper = Sleeper::new(&disk, &is, &small());
        let fault = Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync);
        disk.inject(fault.file(".ink"));
        log.truncate_before(Lsn::new(10)).unwrap_err();
        let looked = sleeper.cursor.next().unwrap().map(|shown| shown.lsn.get());
        assert!(looked.is_none_or(|lsn| lsn == 20));
        assert_eq!(sleeper.reader.first(), Lsn::FIRST, "{after:?}");
        log.abandon();
        let log = open(&disk, small()).unwrap();
        assert_eq!((log.first().get(), log.last().get()), (1, 20));
        for reader in [sleeper.reader.clone(), read(&disk, &small()), log.reader()] {
            assert!(reader.get(Lsn::new(5)).unwrap() == record(5), "{after:?}");
        }
    }
}

#[test]
fn a_log_keeps_its_kind_and_its_owner() {
    const OWNER: [u8; 16] = *b"who stands on it";
    let disk = SimDisk::new(1, DiskOptions::default());
    let of_raft = || small().kind(LogKind::RAFT).owner(OWNER);
    let log = open(&disk, of_raft()).unwrap();
    let mut is = Is { first: 1, ..Is::default() };
    (0..30).for_each(|_| is.append(&log));
    log.truncate_after(Lsn::new(20)).unwrap();
    log.close().unwrap();
    // An existing log has its owner already.
    let log = open(&disk, of_raft().owner([0; 16])).unwrap();
    log.truncate_after(Lsn::new(1)).unwrap();
    log.close().unwrap();
    let to = || Ok(Arc::new(disk.directory("/copy")));
    let stop = std::sync::atomic::AtomicBool::new(false);
    inspect::copy_in(&disk.directory(LOG), to, &small(), &stop).unwrap();
    for at in [LOG, "/copy"] {
        let segments = inspect::look_in(&disk.directory(at)).unwrap().segments;
        let is_kept =
            |header: &inspect::SegmentHeader| (header.kind, header.owner) == (LogKind::RAFT, OWNER);
        assert!(segments.iter().all(|segment| is_kept(&segment.header)), "{at}");
    }
    let refused = |options: Options| {
        let writer = open(&disk, options.clone()).map(drop).unwrap_err();
        let reader = Reader::open_in(Arc::new(disk.directory(LOG)), options).map(drop).unwrap_err();
        for told in [writer, reader] {
            assert!(told.to_string().contains("kind RAFT, and one of the kind STRM"), "{told}");
        }
    };
    refused(small().kind(LogKind::STREAMS));
    // A writer that asks for no kind wants a plain log; a reader reads any.
    let told = open(&disk, small()).map(drop).unwrap_err();
    assert!(told.to_string().contains("kind RAFT, and one of the kind plain"), "{told}");
    let reader = Reader::open_in(Arc::new(disk.directory(LOG)), small()).unwrap();
    let log = open(&disk, of_raft()).unwrap();
    for reader in [reader, log.reader()] {
        assert_eq!((reader.kind(), reader.owner()), (LogKind::RAFT, OWNER));
    }
    log.close().unwrap();
}

#[cfg(inkstone_mistakes)]
mod mistaken {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use inkstone::mistake::Mistake;

    use super::*;

    /// Whether a case breaks a promise with this mistake.
    fn fails(mistake: Mistake, case: fn(&Options)) -> bool {
        let options = small().with_mistake(mistake);
        catch_unwind(AssertUnwindSafe(|| case(&options))).is_err()
    }

    #[test]
    fn a_cut_that_is_not_known_any_more_is_caught() {
        assert!(fails(Mistake::TableTooShort, many_cuts));
    }

    #[test]
    fn a_mark_too_early_or_too_seldom_is_caught() {
        assert!(fails(Mistake::MarkBeforeHeader, cut_the_power_within_cuts));
        assert!(fails(Mistake::MarkOnlyInCut, lose_at_once));
    }
}
