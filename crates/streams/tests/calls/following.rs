//! What a cursor reports to a caller that waits: truncations and errors. The walks of
//! `proof/powerloss/tests/things` test that a cursor reports each cut.
//!
//! *Owns*: cursors in the writer's process, and cursors of readers as in another process. *May not
//! touch*: the crate's insides.
//!
//! A test that waits for an event fails after a minute.

use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Waker};

use inkstone::{AnyDirectory, Log, OsDirectory};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};
use inkstone_streams::StreamCursor;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A real directory: in a simulated one a reader learns of a group only by the next one.
fn real() -> (tempfile::TempDir, AnyDirectory) {
    let directory = directory();
    let held = AnyDirectory::new(OsDirectory::open(directory.path()).unwrap());
    (directory, held)
}

/// Stream 1 has these records.
fn streams_with(directory: &AnyDirectory, count: u64) -> Arc<Streams> {
    let streams = Streams::open_in(directory.clone(), options()).unwrap();
    streams.create(1, 1).unwrap().wait().unwrap();
    (1..=count).for_each(|number| append(&streams, 1, &format!("old {number}")));
    Arc::new(streams)
}

fn append(streams: &Streams, stream: u64, text: &str) {
    streams.append(stream, text.as_bytes()).unwrap().wait().unwrap();
}

/// A cursor of the process that writes, or of another one.
fn cursor(directory: &AnyDirectory, streams: &Streams, is_beside: bool, from: u64) -> StreamCursor {
    let reader = match is_beside {
        true => StreamsReader::open_in(directory.clone(), &options()).unwrap(),
        false => streams.reader(),
    };
    reader.read(1, from)
}

/// All records that are there, and the error after them.
fn shown(cursor: &mut StreamCursor) -> (Vec<String>, Option<Error>) {
    let mut records = Vec::new();
    loop {
        match cursor.next() {
            Ok(Some(record)) => {
                records.push(format!(
                    "{}: {}",
                    record.number,
                    String::from_utf8_lossy(&record.bytes)
                ));
            }
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

/// What a follower on a thread of its own gets next: one that blocks, and one that is awaited.
fn follow(cursors: impl IntoIterator<Item = StreamCursor>) -> Vec<Receiver<Option<Error>>> {
    let follow = |(mut cursor, is_async): (StreamCursor, bool)| {
        let (told, tells) = channel();
        std::thread::spawn(move || {
            let next = match is_async {
                true => block_on(cursor.next_async()).map(Some),
                false => cursor.next_within(Duration::from_secs(3600)),
            };
            let _ = told.send(next.err());
        });
        tells
    };
    let kinds = [false, true].into_iter().cycle();
    cursors.into_iter().zip(kinds).map(follow).collect()
}

#[track_caller]
fn told(followers: Vec<Receiver<Option<Error>>>) -> Vec<Error> {
    let next = |tells: &Receiver<Option<Error>>| {
        tells.recv_timeout(PATIENCE).expect("the follower sleeps").expect("there is no record")
    };
    followers.iter().map(next).collect()
}

#[test]
fn a_follower_that_waits_is_woken_by_a_cut_and_by_a_removal() {
    let (_held, directory) = real();
    let streams = streams_with(&directory, 9);
    let waiting = |streams: &Streams| {
        // The last one cannot be awaited.
        let waits = |is_beside| cursor(&directory, streams, is_beside, 10);
        let followers = follow([waits(false), waits(false), waits(true)]);
        std::thread::sleep(Duration::from_millis(50));
        followers
    };
    let followers = waiting(&streams);
    streams.truncate_after(1, 3).unwrap().wait().unwrap();
    for error in told(followers) {
        assert!(matches!(error, Error::TruncatedAfter { next: 4, .. }), "{error}");
    }
    (4..=9).for_each(|number| append(&streams, 1, &format!("{number}")));
    let followers = waiting(&streams);
    streams.remove(1).unwrap().wait().unwrap();
    for error in told(followers) {
        assert!(matches!(error, Error::NoStream { stream: 1 }), "{error}");
    }
}

#[test]
fn a_follower_that_is_dropped_or_polled_again_leaves_nothing_behind() {
    let (_held, directory) = real();
    let streams = streams_with(&directory, 1);
    struct Counts(AtomicU64);
    impl std::task::Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = Arc::new(Counts(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&counts));
    let mut cursor = streams.reader().read(1, 2);
    {
        let mut next = pin!(cursor.next_async());
        for _ in 0..10 {
            assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert!(Arc::strong_count(&counts) < 6, "{} clones", Arc::strong_count(&counts));
    }
    assert_eq!(Arc::strong_count(&counts), 2);
    append(&streams, 1, "nobody waits");
    assert_eq!(counts.0.load(Ordering::Relaxed), 0);
}

/// A newer program truncates, and makes a change that this one does not know, in one record.
#[test]
fn a_cut_in_a_record_that_is_wrong_is_not_told() {
    let (_held, directory) = real();
    let streams = streams_with(&directory, 5);
    let mut cursor = cursor(&directory, &streams, true, 1);
    let (records, error) = shown(&mut cursor);
    assert_eq!((records.len(), error.is_none()), (5, true));
    let lsn = streams.truncate_after(1, 3).unwrap().lsn();
    let record = {
        // As another process finds it.
        streams.sync().unwrap();
        let record = streams.log().reader().get(lsn).unwrap();
        // Another one with the same number comes, so that the same truncation can be made again.
        (4..=5).for_each(|number| append(&streams, 1, &format!("new {number}")));
        record
    };
    streams.close().unwrap();
    assert!(matches!(shown(&mut cursor).1, Some(Error::TruncatedAfter { next: 4, .. })));
    assert_eq!(shown(&mut cursor).0.len(), 2);
    let log =
        Log::open_in(directory.clone(), inkstone::Options::small().kind(LogKind::STREAMS)).unwrap();
    let newer = [&record[..], &[10, 1, 1]].concat();
    log.append_durable(&newer).unwrap();
    for _ in 0..3 {
        let told = cursor.next();
        assert!(matches!(told, Err(Error::Newer { .. })), "{told:?}");
    }
    log.close().unwrap();
}

/// A reader in another process sleeps while a stream is cut, as many records are appended again as
/// were cut, and the front passes the place up to which the reader had read the log.
#[test]
fn a_reader_that_the_front_has_passed_is_told_of_what_was_cut() {
    type Deed = fn(&Streams);
    let deeds: [(&str, Deed, Option<u64>); 4] = [
        ("nothing", |_| {}, None),
        ("a cut", |streams| drop(streams.truncate_after(1, 3).unwrap()), Some(1)),
        ("a restart", |streams| drop(streams.restart_at(1, 1).unwrap()), Some(1)),
        (
            "another stream",
            |streams| {
                drop(streams.remove(1).unwrap());
                drop(streams.create(1, 1).unwrap());
            },
            Some(1),
        ),
    ];
    for (what, deed, first) in deeds {
        let (_held, directory) = real();
        let log = inkstone::Options::small();
        let small = || Options::new().log(log.clone()).section_bytes(16 << 10).own_mover(false);
        let streams = Streams::open_in(directory.clone(), small()).unwrap();
        (1..=2).for_each(|stream| streams.create(stream, 1).unwrap().wait().unwrap());
        (1..=5).for_each(|number| append(&streams, 1, &format!("old {number}")));
        let mut cursor = cursor(&directory, &streams, true, 1);
        assert_eq!(shown(&mut cursor).0.len(), 5, "{what}");
        let known = streams.log().last();
        deed(&streams);
        for number in streams.bounds(1).unwrap().next..=5 {
            append(&streams, 1, &format!("new {number}"));
        }
        while streams.log().first() <= known.next().unwrap().next().unwrap() {
            let next = streams.bounds(2).unwrap().next;
            append(&streams, 2, &"x".repeat(2000));
            streams.truncate_before(2, next + 1).unwrap().wait().unwrap();
            while streams.move_some().unwrap() {}
        }
        append(&streams, 1, "new 6");
        let (records, told) = shown(&mut cursor);
        match (first, told) {
            (None, None) => assert_eq!(records, ["6: new 6"], "{what}"),
            (Some(first), Some(Error::TruncatedAfter { next, number: 6, .. })) => {
                assert_eq!((next, records.len()), (first, 0), "{what}");
                assert_eq!(shown(&mut cursor).0.last().unwrap(), "6: new 6", "{what}");
            }
            (_, told) => panic!("{what}: {told:?} after {records:?}"),
        }
        streams.close().unwrap();
    }
}

/// While a follower waits for a record to be durable, the record is truncated and its place freed:
/// the follower gets the error of its stream, not that of the log.
#[test]
fn a_follower_is_told_of_its_stream_where_the_front_passes_the_record_it_waits_for() {
    let directory = directory();
    let options = options().section_bytes(16 << 10);
    let streams = Streams::open(directory.path(), options).unwrap();
    (1..=2).for_each(|stream| streams.create(stream, 1).unwrap().wait().unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let followers: Vec<_> = (0..40)
            .map(|_| {
                let follow = || {
                    let mut cursor = streams.reader().read(1, 1);
                    while !is_over.load(Ordering::Relaxed) {
                        match cursor.next_within(Duration::from_millis(20)) {
                            Ok(_) => {}
                            Err(Error::Truncated { first, .. }) => cursor.seek(first),
                            Err(error) => return Some(error),
                        }
                    }
                    None
                };
                scope.spawn(follow)
            })
            .collect();
        for _ in 0..300 {
            for (stream, records) in [(1, 1), (2, 30)] {
                for _ in 0..records {
                    let next = streams.bounds(stream).unwrap().next;
                    drop(streams.append(stream, &[7; 2000]).unwrap());
                    drop(streams.truncate_before(stream, next + 1).unwrap());
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let told: Vec<_> = followers.into_iter().filter_map(|each| each.join().unwrap()).collect();
        assert!(told.is_empty(), "{told:?}");
    });
    streams.close().unwrap();
}

#[test]
fn what_the_mover_met_is_told_until_it_succeeds() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = inkstone::Options::small().tail_bytes(0);
    let options = Options::new().log(log).section_bytes(16 << 10).own_mover(false).cache_bytes(0);
    // So that no append moves anything.
    let options = options.size_multiple(1000);
    let streams = Streams::open_in(Arc::new(disk.directory("/streams")), options).unwrap();
    streams.create(1, 1).unwrap().wait().unwrap();
    streams.create(2, 1).unwrap().wait().unwrap();
    append(&streams, 1, "it stays");
    churn(&streams, 2, 128 << 10);
    assert!(streams.stats().not_moved.is_none());
    disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Read).times(1000));
    let met = streams.move_some().unwrap_err();
    for _ in 0..2 {
        let told = streams.stats().not_moved.expect("it was not moved");
        assert_eq!(told.to_string(), met.to_string());
        // Others go on.
        append(&streams, 2, "x");
    }
    disk.clear_faults();
    while streams.move_some().unwrap() {}
    assert!(streams.stats().not_moved.is_none());
}

#[test]
fn a_truncation_that_removes_nothing_is_told_to_nobody() {
    let (_real, directory) = real();
    let streams = streams_with(&directory, 3);
    for is_beside in [false, true] {
        // At the end of the stream, and beyond it.
        let mut cursors = [4, 9].map(|from| cursor(&directory, &streams, is_beside, from));
        streams.truncate_after(1, 3).unwrap().wait().unwrap();
        append(&streams, 1, "another");
        streams.truncate_before(1, 1).unwrap().wait().unwrap();
        assert_eq!(cursors[0].next().unwrap().unwrap().number, 4);
        assert!(cursors[1].next().unwrap().is_none());
        streams.truncate_after(1, 3).unwrap().wait().unwrap();
        for cursor in &mut cursors {
            let told = cursor.next();
            assert!(matches!(told, Err(Error::TruncatedAfter { next: 4, .. })), "{told:?}");
        }
    }
}
