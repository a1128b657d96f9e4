//! Readers of `Reader::open` beside a writer that truncates: no way of reading shows a record that
//! is gone.
//!
//! *Owns*: what is read at or below the watermark that a reader knows. What comes above it is in
//! `beside.rs` and `followed.rs`.

use std::path::Path;
use std::time::Duration;

use inkstone::{Cursor, Error, Log, Lsn, Options, Reader};

/// A reader that does not see what is published finds a truncation within a second.
const ONE_SECOND: Duration = Duration::from_millis(1050);
const LONG: Duration = Duration::from_secs(60);
/// The last record, whose cuts leave this one.
const LAST: u64 = 400;
const LEFT: u64 = 130;

fn small() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10)
}

fn record(lsn: u64, life: u64) -> Vec<u8> {
    [&lsn.to_le_bytes()[..], &life.to_le_bytes(), &[lsn as u8; 700]].concat()
}

fn append(log: &Log, lsns: std::ops::RangeInclusive<u64>, life: u64) {
    lsns.for_each(|lsn| drop(log.append(&record(lsn, life)).unwrap()));
    log.sync().unwrap();
}

/// In which life it was appended.
fn life(lsn: u64, bytes: &[u8]) -> u64 {
    let life = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes == record(lsn, life), "LSN {lsn}");
    life
}

/// The next record as LSN and life; `None` if there is none yet.
fn next(cursor: &mut Cursor) -> Result<Option<(u64, u64)>, Error> {
    Ok(cursor.next()?.map(|record| (record.lsn.get(), life(record.lsn.get(), record.bytes))))
}

/// All that is shown up to `last`.
fn rest(cursor: &mut Cursor, last: u64) -> Vec<(u64, u64)> {
    let mut shown = Vec::new();
    while cursor.next_lsn().get() <= last {
        let record = cursor.next_within(LONG).unwrap().expect("it is there");
        shown.push((record.lsn.get(), life(record.lsn.get(), record.bytes)));
    }
    shown
}

/// A log of this process, and a reader as in another one.
struct Beside {
    _directory: tempfile::TempDir,
    log: Log,
    reader: Reader,
    /// How long a truncation may be unknown.
    delay: Duration,
}

impl Beside {
    fn new(publishes: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::open(directory.path(), small()).unwrap();
        append(&log, 1..=LAST, 0);
        if !publishes {
            hide_publications(directory.path());
        }
        let reader = Reader::open(directory.path(), &small()).unwrap();
        // Without publications it waits for the promise of the last record.
        assert_eq!(
            reader.follow(Lsn::FIRST).take(LAST as usize).map(Result::unwrap).count(),
            LAST as usize
        );
        let delay = if publishes { Duration::ZERO } else { ONE_SECOND };
        Self { _directory: directory, log, reader, delay }
    }

    fn cursor(&self, next: u64) -> Cursor {
        self.reader.from(Lsn::new(next))
    }

    /// A cursor that has shown this record last.
    fn at(&self, lsn: u64) -> Cursor {
        let mut cursor = self.cursor(lsn);
        assert_eq!(next(&mut cursor).unwrap(), Some((lsn, 0)));
        cursor
    }
}

/// Without a note nobody finds the writer's shared page.
fn hide_publications(path: &Path) {
    std::fs::write(path.join("inkstone.lock"), b"").unwrap();
}

/// What is there after the cut, up to `last`.
fn expected(from: u64, last: u64) -> Vec<(u64, u64)> {
    (from..=last).map(|lsn| (lsn, u64::from(lsn > LEFT))).collect()
}

#[test]
fn no_read_shows_what_was_cut_since_the_reader_looked() {
    for publishes in [true, false] {
        let beside = Beside::new(publishes);
        let reader = &beside.reader;
        // Before the cut in its segment, behind it there and segments further on, and with much
        // read ahead.
        let mut early = [beside.at(1), beside.at(LEFT - 3), beside.at(LEFT)];
        let mut late = [beside.at(LEFT + 1), beside.at(LEFT + 3), beside.at(LAST - 20)];
        assert_eq!(reader.get(Lsn::new(LEFT + 5)).unwrap(), record(LEFT + 5, 0));

        beside.log.truncate_after(Lsn::new(LEFT)).unwrap();
        let last = LAST + 100;
        append(&beside.log, LEFT + 1..=last, 1);
        std::thread::sleep(beside.delay);

        let seen =
            |records: &mut dyn Iterator<Item = inkstone::Result<inkstone::OwnedRecord>>| -> Vec<_> {
                let seen = records.take(last as usize).map(Result::unwrap);
                seen.map(|record| (record.lsn.get(), life(record.lsn.get(), &record.bytes)))
                    .collect()
            };
        // Each by a reader that was told by no other read: clones have one view.
        let all = expected(1, last);
        assert!(
            seen(&mut reader.records(Lsn::FIRST)) == all[..reader.durable().get() as usize],
            "records, {publishes}"
        );
        assert!(seen(&mut reader.follow(Lsn::FIRST)) == all, "follow, {publishes}");
        assert!(rest(&mut beside.cursor(1), last) == all, "next_within, {publishes}");
        for cursor in &mut early {
            let from = cursor.next_lsn().get();
            assert!(rest(cursor, last) == expected(from, last), "from {from}, {publishes}");
        }
        for cursor in &mut late {
            let from = cursor.next_lsn();
            let cut = next(cursor).unwrap_err();
            let Error::TruncatedAfter { lsn, last: left } = cut else { panic!("{cut}") };
            assert_eq!((lsn, left.get()), (from, LEFT));
            assert!(rest(cursor, last) == expected(LEFT + 1, last), "from {from}, {publishes}");
        }
        assert_eq!(reader.get(Lsn::new(LEFT + 5)).unwrap(), record(LEFT + 5, 1));
    }
}

/// Each way by itself, as the first that could learn of the cut.
#[test]
fn each_way_of_reading_learns_of_a_truncation_by_itself() {
    type Way = fn(&Reader, &mut Cursor) -> Result<Option<Vec<u8>>, Error>;
    fn owned(record: Option<inkstone::Record<'_>>) -> Option<Vec<u8>> {
        record.map(|record| record.bytes.to_vec())
    }
    const NEXT: u64 = LEFT + 5;
    let ways: [(&str, Way); 8] = [
        ("get", |reader, _| reader.get(Lsn::new(NEXT)).map(Some)),
        ("from, next", |reader, _| reader.from(Lsn::new(NEXT)).next().map(owned)),
        ("from, next_within", |reader, _| reader.from(Lsn::new(NEXT)).next_within(LONG).map(owned)),
        ("records", |reader, _| {
            reader
                .records(Lsn::new(NEXT))
                .next()
                .transpose()
                .map(|record| record.map(|record| record.bytes))
        }),
        ("follow", |reader, _| {
            reader
                .follow(Lsn::new(NEXT))
                .next()
                .transpose()
                .map(|record| record.map(|record| record.bytes))
        }),
        ("next", |_, cursor| cursor.next().map(owned)),
        ("next_within", |_, cursor| cursor.next_within(LONG).map(owned)),
        ("seek, next", |_, cursor| {
            cursor.seek(Lsn::new(NEXT));
            cursor.next().map(owned)
        }),
    ];
    for (name, way) in ways {
        for front in [false, true] {
            let beside = Beside::new(true);
            let mut cursor = beside.at(NEXT - 1);
            // Where the reader knows all that is published, and has just looked.
            assert_eq!(beside.reader.get(Lsn::new(NEXT)).unwrap(), record(NEXT, 0));
            if front {
                beside.log.truncate_before(Lsn::new(NEXT + 1)).unwrap();
            } else {
                beside.log.truncate_after(Lsn::new(LEFT)).unwrap();
                append(&beside.log, LEFT + 1..=NEXT, 1);
            }
            match (way(&beside.reader, &mut cursor), front) {
                (Ok(Some(found)), false) => {
                    assert!(found == record(NEXT, 1), "{name}: a record that was cut")
                }
                (Err(Error::TruncatedAfter { last, .. }), false) => {
                    assert_eq!(last.get(), LEFT, "{name}")
                }
                (Err(Error::TruncatedBefore { lsn, first }), true) => {
                    assert_eq!((lsn.get(), first.get()), (NEXT, NEXT + 1), "{name}");
                }
                (other, _) => panic!("{name}, {front}: {other:?}"),
            }
        }
    }
}

/// The sleep of a second is no fault of the reader: it reads on all the time, and what it shows
/// after a second is right.
#[test]
fn a_reader_without_publications_that_never_pauses_finds_a_truncation_within_a_second() {
    for front in [true, false] {
        let beside = Beside::new(false);
        let mut cursor = beside.at(LEFT + 1);
        if front {
            beside.log.truncate_before(Lsn::new(LEFT + 30)).unwrap();
        } else {
            beside.log.truncate_after(Lsn::new(LEFT)).unwrap();
        }
        let begun = std::time::Instant::now();
        let told = loop {
            match next(&mut cursor) {
                // It shows a record of a piece that is in memory.
                Ok(Some(_)) => cursor.seek(Lsn::new(LEFT + 2)),
                Ok(None) => {}
                Err(error) => break error,
            }
            assert!(begun.elapsed() < LONG, "it never learns of it");
        };
        let took = begun.elapsed();
        let is_right = matches!(told, Error::TruncatedBefore { .. }) == front;
        assert!(is_right && took < ONE_SECOND + ONE_SECOND, "{told} after {took:?}");
    }
}

/// The writer cuts and closes: its last publication cannot be read any more.
#[test]
fn a_cut_of_a_writer_that_is_gone_is_known_at_once() {
    let beside = Beside::new(true);
    let mut late = beside.at(LEFT + 1);
    beside.log.truncate_after(Lsn::new(LEFT)).unwrap();
    beside.log.close().unwrap();
    let cut = next(&mut late).unwrap_err();
    assert!(matches!(cut, Error::TruncatedAfter { .. }), "{cut}");
}

/// No cursor asks for anything: `get` itself must notice.
#[test]
fn get_returns_nothing_that_was_cut_since_the_reader_looked() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path(), small()).unwrap();
    append(&log, 1..=20, 0);
    let reader = Reader::open(directory.path(), &small()).unwrap();
    assert_eq!(reader.records(Lsn::FIRST).count(), 20);
    assert_eq!(reader.get(Lsn::new(15)).unwrap(), record(15, 0));
    // The committer wakes the waiters of a record before it publishes.
    let get = |lsn| loop {
        match reader.get(Lsn::new(lsn)) {
            Err(Error::NotYet { .. }) => std::thread::yield_now(),
            found => break found.unwrap(),
        }
    };
    for life in 1..=3 {
        log.truncate_after(Lsn::new(10)).unwrap();
        let cut = reader.get(Lsn::new(15)).unwrap_err();
        assert!(matches!(cut, Error::NotYet { .. } | Error::TruncatedAfter { .. }), "{cut}");
        append(&log, 11..=16, life);
        assert_eq!(get(15), record(15, life));
        // Cut and written again between two calls.
        log.truncate_after(Lsn::new(12)).unwrap();
        append(&log, 13..=16, life + 10);
        assert_eq!(get(15), record(15, life + 10));
    }
}
