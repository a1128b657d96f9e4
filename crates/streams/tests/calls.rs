//! What calls of streams do and refuse, in a real directory.

#![allow(clippy::unwrap_used, reason = "a test says so by failing")]

#[path = "calls/bounds.rs"]
mod bounds;
#[path = "calls/damaged.rs"]
mod damaged;
#[path = "calls/following.rs"]
mod following;
#[path = "calls/full.rs"]
mod full;
#[path = "../../../lab/host/tests/host_support/mod.rs"]
mod host_support;
#[path = "calls/house.rs"]
mod house;
#[path = "calls/lost.rs"]
mod lost;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inkstone::LogKind;
use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_streams::{Batch, Bounds, Error, NOTE_BYTES_MAX, Options, Streams, StreamsReader};

fn options() -> Options {
    Options::new().log(inkstone::Options::small()).section_bytes(64 << 10)
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn bad_use_gets_an_error_that_says_what_was_expected_and_changes_nothing() {
    let directory = directory();
    let streams = Streams::open(directory.path(), options()).unwrap();
    streams.create(7, 100).unwrap().wait().unwrap();
    streams.append(7, b"one").unwrap().wait().unwrap();
    let reader = streams.reader();
    let text = |error: Error| error.to_string();

    let no_stream = text(streams.append(8, b"x").unwrap_err());
    assert_eq!(no_stream, "there is no stream 8: create it first");
    assert!(matches!(streams.create(7, 1), Err(Error::Exists { stream: 7 })));
    let mut batch = Batch::new();
    let gap = streams.apply(batch.append(7, b"two").append_at(7, 103, b"three"));
    assert!(matches!(gap, Err(Error::OtherNumber { stream: 7, next: 102, came: 103 })), "{gap:?}");
    let large = vec![0; NOTE_BYTES_MAX + 1];
    assert!(matches!(streams.set_note(7, &large), Err(Error::NoteTooLarge { stream: 7, .. })));
    let large = streams.append(7, &vec![0; 32 << 10]);
    assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
    assert!(matches!(streams.apply(&Batch::new()), Err(Error::Empty)));
    let above = streams.truncate_before(7, 102);
    assert!(matches!(above, Err(Error::NotYet { stream: 7, number: 102, next: 101 })), "{above:?}");
    assert!(matches!(streams.truncate_after(7, 98), Err(Error::Truncated { .. })));
    assert!(matches!(streams.truncate_after(7, 101), Err(Error::NotYet { .. })));
    assert!(matches!(streams.truncate_after(7, u64::MAX), Err(Error::NotYet { .. })));
    assert!(matches!(streams.truncate_after(9, u64::MAX), Err(Error::NoStream { stream: 9 })));
    assert!(matches!(streams.remove(9), Err(Error::NoStream { stream: 9 })));
    assert!(matches!(streams.restart_at(9, 1), Err(Error::NoStream { stream: 9 })));
    assert!(matches!(reader.get(7, 99), Err(Error::Truncated { first: 100, .. })));
    assert!(matches!(reader.get(7, 101), Err(Error::NotYet { next: 101, .. })));
    assert!(matches!(reader.get(6, 1), Err(Error::NoStream { stream: 6 })));
    assert!(matches!(reader.note(6), Err(Error::NoStream { stream: 6 })));
    assert_eq!(streams.bounds(7).unwrap(), Bounds { first: 100, next: 101 });
    assert_eq!(reader.get(7, 100).unwrap(), b"one");

    // A truncation that was made already is no error; the highest number of all cannot be used.
    streams.truncate_before(7, 3).unwrap().wait().unwrap();
    streams.restart_at(7, u64::MAX - 1).unwrap().wait().unwrap();
    assert_eq!(streams.append(7, b"last").unwrap().numbers(), [u64::MAX - 1]);
    assert!(matches!(streams.append(7, b"x"), Err(Error::UsedUp { stream: 7 })));
    streams.close().unwrap();
    let closed = streams.create(8, 1);
    assert!(matches!(closed, Err(Error::Log(inkstone::Error::Closed))), "{closed:?}");
    assert_eq!(reader.get(7, u64::MAX - 1).unwrap(), b"last");
}

#[test]
fn what_is_no_log_with_streams_is_refused_and_left_as_it_is() {
    let directory = directory();
    let of_streams = || inkstone::Options::small().kind(LogKind::STREAMS);
    let log = inkstone::Log::open(directory.path(), inkstone::Options::small()).unwrap();
    log.append_durable(b"a record of somebody").unwrap();
    let last = log.last();
    log.close().unwrap();
    let kinds = |error: Option<Error>| match error {
        Some(Error::Log(inkstone::Error::OtherKind { found, wanted, .. })) => (found, wanted),
        other => panic!("{other:?}"),
    };
    let refused = Streams::open(directory.path(), options());
    assert_eq!(kinds(refused.err()), (LogKind::PLAIN, LogKind::STREAMS));
    let refused = StreamsReader::open(directory.path(), &options());
    assert_eq!(kinds(refused.err()), (LogKind::PLAIN, LogKind::STREAMS));
    let log = inkstone::Log::open(directory.path(), inkstone::Options::small()).unwrap();
    assert_eq!(log.last(), last);
    log.close().unwrap();
    // Nor may anybody else append to streams.
    let path = directory.path().join("streams");
    Streams::open(&path, options()).unwrap().close().unwrap();
    let refused = inkstone::Log::open(&path, inkstone::Options::small());
    let refused = refused.err().map(Error::Log);
    assert_eq!(kinds(refused), (LogKind::STREAMS, LogKind::PLAIN));
    assert_eq!(inkstone::kind_of(&path).unwrap(), Some(LogKind::STREAMS));
    // A newer program's first byte.
    let log = inkstone::Log::open(&path, of_streams()).unwrap();
    log.append_durable(&[0xa2, 0, 0]).unwrap();
    log.close().unwrap();
    let refused = Streams::open(&path, options());
    assert!(matches!(refused, Err(Error::Newer { .. })), "{refused:?}");
    let refused = Streams::open(&path, options().section_bytes(1));
    assert!(matches!(refused, Err(Error::Log(inkstone::Error::Invalid(_)))), "{refused:?}");
}

/// What explains the size of a log, in the process that writes and beside it.
#[test]
fn the_usage_says_which_streams_keep_the_oldest_section() {
    let directory = directory();
    let streams = Streams::open(directory.path(), options().own_mover(false)).unwrap();
    for stream in [0, 7, u64::MAX] {
        streams.create(stream, 1).unwrap().wait().unwrap();
    }
    streams.append(u64::MAX, b"it stays for ever").unwrap().wait().unwrap();
    streams.set_note(7, b"a note").unwrap().wait().unwrap();
    while streams.stats().sections < 3 {
        streams.append(7, &[7; 1000]).unwrap().wait().unwrap();
    }
    let beside = StreamsReader::open(directory.path(), &options()).unwrap();
    for usage in [streams.reader().usage().unwrap(), beside.usage().unwrap()] {
        let ids: Vec<u64> = usage.streams.iter().map(|stream| stream.stream).collect();
        assert_eq!(ids, [0, 7, u64::MAX]);
        let [empty, large, idle] = &usage.streams[..] else { panic!("three streams") };
        assert_eq!((empty.bytes, empty.oldest_bytes, empty.bounds.len()), (0, 0, 0));
        assert!(large.bytes > 2 * large.oldest_bytes && large.note_bytes == 6, "{large:?}");
        assert_eq!(idle.bytes, idle.oldest_bytes);
        let oldest = &usage.sections[0];
        assert_eq!((usage.sections.len(), oldest.number, oldest.first.get()), (3, 0, 1));
        let live: u64 = usage.streams.iter().map(|stream| stream.oldest_bytes).sum();
        assert_eq!(oldest.live_bytes, live);
        assert!(oldest.bytes > live);
    }
    streams.close().unwrap();
}

#[test]
fn a_lone_writer_pays_one_group_for_each_change_whatever_the_housekeeping_does() {
    let directory = directory();
    let streams = Streams::open(directory.path(), options()).unwrap();
    streams.create(1, 1).unwrap().wait().unwrap();
    let before = streams.log().stats().groups;
    for _ in 0..2000 {
        streams.append(1, &[1; 100]).unwrap().wait().unwrap();
    }
    let stats = streams.log().stats();
    let groups = stats.groups - before;
    // A change of segment, and the mover, may write further groups.
    assert!(groups <= 2000 + 4 * stats.segments + 8, "{groups} groups, {stats:?}");
    assert!(streams.stats().housekeeping_bytes > 0);
}

/// Waits for a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// The child is forked while other threads of the parent have the locks of the writer and of a
/// reader from `open`, or may have them. Cursors have records that they have read ahead.
#[test]
fn a_forked_child_gets_an_error_and_never_waits_for_a_lock_of_its_parent() {
    let directory = directory();
    let streams = Streams::open(directory.path(), options()).unwrap();
    streams.create(1, 1).unwrap().wait().unwrap();
    (0..5).for_each(|_| streams.append(1, b"a record").unwrap().wait().unwrap());
    let reader = StreamsReader::open(directory.path(), &options()).unwrap();
    let mut cursors = [streams.reader().read(1, 1), reader.read(1, 1)].map(|mut cursor| {
        assert!(cursor.next().unwrap().is_some());
        Some(cursor)
    });
    let is_over = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let write = || {
            while !is_over.load(Ordering::Relaxed) {
                drop(streams.append(1, &[1; 500]).unwrap());
            }
        };
        let ask = || {
            while !is_over.load(Ordering::Relaxed) {
                reader.bounds(1).unwrap();
            }
        };
        scope.spawn(write);
        scope.spawn(ask);
        let answers: Vec<_> = (0..30)
            .map(|_| {
                inkstone_host::in_forked_child(|| {
                    let forked =
                        |error: Error| matches!(error, Error::Log(inkstone::Error::Forked { .. }));
                    let appended = streams.append(1, b"of a child").is_err_and(forked);
                    let got = streams.reader().get(1, 1).is_err_and(forked);
                    let closed = streams.close().is_err();
                    let asked = reader.bounds(1).is_err_and(forked);
                    let read = cursors.iter_mut().flatten().all(|cursor| {
                        cursor.next().is_err_and(forked)
                            && cursor.next_within(Duration::MAX).is_err_and(forked)
                    });
                    // The child's own copies, whose drop takes no lock.
                    cursors.iter_mut().for_each(|cursor| drop(cursor.take()));
                    drop(reader.read(1, 1));
                    let refused = [appended, got, closed, asked, read];
                    u8::from(refused.iter().all(|is_refused| *is_refused))
                })
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        answers
    });
    answers.into_iter().for_each(|answer| assert_eq!(answer.unwrap(), 1));
    for cursor in cursors.iter_mut().flatten() {
        assert_eq!(cursor.next().unwrap().unwrap().number, 2, "the parent goes on");
    }
    let next = streams.bounds(1).unwrap().next;
    streams.close().unwrap();
    let again = Streams::open(directory.path(), options()).unwrap();
    assert_eq!(again.bounds(1).unwrap().next, next);
}

/// After `record_bytes_max` was lowered, a large section's directory does not fit. The log grows,
/// and `Stats::not_moved` has the reason.
#[test]
fn what_the_housekeeping_cannot_write_is_told() {
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/streams"));
    let open = |bytes: usize| {
        let log = inkstone::Options::small().segment_bytes(8 << 20).buffer_bytes(1 << 20);
        let log = log.own_thread(false).record_bytes_max(bytes);
        let options = Options::new().log(log).section_bytes(2 << 20).own_mover(false);
        Streams::open_in(Arc::clone(&directory), options).unwrap()
    };
    // 2.8 MB without a live record.
    let churn = |streams: &Streams| {
        for _ in 0..400 {
            let next = streams.bounds(0).unwrap().next;
            let mut batch = Batch::new();
            batch.append(0, &[7; 7000]).truncate_before(0, next + 1);
            drop(streams.apply(&batch).unwrap());
        }
        streams.sync().unwrap();
        while streams.move_some().unwrap() {}
    };
    let streams = open(1 << 20);
    streams.create(0, 1).unwrap().wait().unwrap();
    // One section. Large ids and numbers, so that it has a large directory.
    for part in 0..40 {
        let mut batch = Batch::new();
        for number in 1000 * part..1000 * (part + 1) {
            let id = u64::MAX - number * (1 << 40);
            batch.create(id, u64::MAX / 2).append(id, b"");
        }
        streams.apply(&batch).unwrap().wait().unwrap();
    }
    streams.close().unwrap();
    let streams = open(8 << 10);
    let mut rounds = 0;
    while streams.stats().not_moved.is_none() {
        assert!(rounds < 40, "no reason: {:?}", streams.stats());
        churn(&streams);
        rounds += 1;
    }
    let told = streams.stats().not_moved;
    assert!(matches!(told, Some(Error::Log(inkstone::Error::TooLarge { .. }))), "{told:?}");
    assert_eq!(streams.log().first(), inkstone::Lsn::FIRST);
}

/// Streams without a mover.
fn still(log: inkstone::Options) -> Options {
    Options::new().log(log).section_bytes(16 << 10).own_mover(false)
}

/// Appends this many bytes to a stream and truncates them, so that the log grows.
fn churn(streams: &Streams, stream: u64, bytes: usize) {
    let record = [7; 1000];
    for _ in 0..bytes / record.len() {
        let next = streams.bounds(stream).unwrap().next;
        let mut batch = Batch::new();
        let batch = batch.append(stream, &record).truncate_before(stream, next + 1);
        streams.apply(batch).unwrap().wait().unwrap();
    }
}

#[test]
fn the_largest_record_that_is_taken_can_be_moved() {
    let directory = directory();
    let streams = Streams::open(directory.path(), still(inkstone::Options::small())).unwrap();
    streams.create(1, 1 << 40).unwrap().wait().unwrap();
    streams.create(2, 1).unwrap().wait().unwrap();
    churn(&streams, 2, 64 << 10);
    let largest = (0..32 << 10).rev().find_map(|size| {
        let record = vec![9; size];
        let written = streams.append(1, &record).ok()?;
        written.wait().unwrap();
        Some(record)
    });
    for _ in 0..20 {
        churn(&streams, 2, 16 << 10);
        while streams.move_some().unwrap() {}
    }
    assert!(streams.stats().moved_records > 0, "{:?}", streams.stats());
    assert_eq!(Some(streams.reader().get(1, 1 << 40).unwrap()), largest);
}

#[test]
fn a_callback_may_drop_the_streams_while_records_are_moved() {
    for round in 0..8 {
        let directory = directory();
        let options = Options::new().log(inkstone::Options::small()).section_bytes(16 << 10);
        let streams = Arc::new(Streams::open(directory.path(), options).unwrap());
        streams.create(1, 1).unwrap().wait().unwrap();
        streams.create(2, 1).unwrap().wait().unwrap();
        (0..10).for_each(|_| drop(streams.append(1, &[1; 100]).unwrap()));
        churn(&streams, 2, 200_000 + round * 1000);
        let last = streams.append(2, &[1; 900]).unwrap().into_owned();
        let (told, tells) = std::sync::mpsc::channel();
        last.on_durable(move |_| {
            drop(streams);
            told.send(()).unwrap();
        });
        tells.recv_timeout(Duration::from_secs(60)).expect("the callback ends");
    }
}

/// Without threads the appending thread makes room itself, and runs the callbacks.
#[test]
fn a_callback_may_use_the_streams_also_while_a_log_without_threads_makes_room() {
    for own_thread in [true, false] {
        let directory = directory();
        let path = directory.path().to_path_buf();
        let (told, tells) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let log = inkstone::Options::small().own_thread(own_thread);
            let options = options().log(log).own_mover(false);
            let streams = Arc::new(Streams::open(path, options).unwrap());
            let created = streams.create(1, 1).unwrap();
            // Nobody else commits what a task awaits.
            if own_thread { block_on(created) } else { created.wait() }.unwrap();
            for number in 1..400_u64 {
                let (inner, told) = (Arc::clone(&streams), told.clone());
                streams.append(1, &[1; 900]).unwrap().on_durable(move |result| {
                    result.unwrap();
                    assert!(inner.bounds(1).unwrap().next > number);
                    drop(inner.set_note(1, &number.to_le_bytes()).unwrap());
                    told.send(number).unwrap();
                });
            }
            streams.sync().unwrap();
        });
        for number in 1..400 {
            assert_eq!(tells.recv_timeout(Duration::from_secs(60)), Ok(number));
        }
    }
}

#[test]
fn a_callback_may_close_the_streams_while_the_mover_waits_for_the_log() {
    for round in 0..10 {
        let directory = directory();
        let options = options().section_bytes(16 << 10);
        let streams = Arc::new(Streams::open(directory.path(), options).unwrap());
        (1..=3).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
        let threads = [1, 2].map(|stream| {
            let streams = Arc::clone(&streams);
            std::thread::spawn(move || {
                while let Ok(written) = streams.append(3, &[3; 900]) {
                    let number = written.numbers()[0];
                    drop(written);
                    if number.is_multiple_of(8) {
                        let _ = streams.append(stream, &[9; 300]).map(drop);
                    }
                    let _ = streams.truncate_before(3, number.saturating_sub(40)).map(drop);
                }
            })
        });
        std::thread::sleep(Duration::from_millis(30 + round));
        let (closed, wait) = std::sync::mpsc::channel();
        let theirs = Arc::clone(&streams);
        if let Ok(written) = streams.append(3, b"the end") {
            written.on_durable(move |_| closed.send(theirs.close()).unwrap());
        }
        wait.recv_timeout(Duration::from_secs(60)).expect("closed").unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_directory_of_tiny_records_is_named_by_one_record_however_small_that_is() {
    let directory = directory();
    let log = inkstone::Options::small().record_bytes_max(8 << 10);
    let streams = Streams::open(directory.path(), Options::new().log(log)).unwrap();
    let first = u64::MAX / 2;
    streams.create(u64::MAX, first).unwrap().wait().unwrap();
    for _ in 0..40 {
        let mut batch = Batch::new();
        (0..250).for_each(|_| _ = batch.append(u64::MAX, b"tiny"));
        streams.apply(&batch).unwrap().wait().unwrap();
        // One record of the log each: the most that a directory has to name.
        (0..100).for_each(|_| drop(streams.append(u64::MAX, b"").unwrap()));
    }
    let before = streams.stats();
    let next = streams.bounds(u64::MAX).unwrap().next;
    streams.truncate_before(u64::MAX, next).unwrap().wait().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while streams.stats().log_bytes > before.log_bytes / 2 {
        assert!(Instant::now() < until, "{before:?} {:?}", streams.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    streams.close().unwrap();
}

/// One flush may have many sections, if the writer never waits: they are freed, too.
#[test]
fn sections_that_share_a_flush_do_not_pile_up() {
    let disk = SimDisk::new(6, DiskOptions::default());
    let log = inkstone::Options::new().own_thread(false);
    let options = Options::new().log(log).section_bytes(16 << 10).own_mover(false);
    let streams = Streams::open_in(Arc::new(disk.directory("/streams")), options).unwrap();
    streams.create(1, 1).unwrap().wait().unwrap();
    (0..6000).for_each(|_| drop(streams.append(1, &[7; 1000]).unwrap()));
    let before = streams.stats();
    streams.truncate_before(1, 6001).unwrap().wait().unwrap();
    while streams.move_some().unwrap() {}
    let after = streams.stats();
    assert!(before.sections > 300 && after.sections < 20, "{before:?} {after:?}");
    streams.close().unwrap();
}

/// Also in a copy, which has the indexes of the segments.
#[test]
fn a_record_is_one_short_read_once_its_page_is_known() {
    const RECORDS: u64 = 400;
    let disk = SimDisk::new(5, DiskOptions::default());
    let place = |path: &str| Arc::new(disk.directory(path));
    let options = || {
        let log = inkstone::Options::new().segment_bytes(4 << 20).record_bytes_max(1 << 20);
        Options::new().log(log.own_thread(false)).section_bytes(4 << 20).own_mover(false)
    };
    let streams = Streams::open_in(place("/streams"), options()).unwrap();
    streams.apply(Batch::new().create(1, 1).create(2, 1)).unwrap().wait().unwrap();
    for number in 1..=RECORDS + 200 {
        drop(streams.append(1, &number.to_le_bytes()).unwrap());
        for count in 0..10 {
            drop(streams.append(2, &vec![7; (number * 37 % 4000) as usize]).unwrap());
            if count % 3 == 0 {
                streams.sync().unwrap();
            }
        }
    }
    streams.close().unwrap();
    let (to, stop) = (place("/copy"), AtomicBool::new(false));
    inkstone::inspect::copy_in(place("/streams"), || Ok(to), options().log_options(), &stop)
        .unwrap();
    let copy = Streams::open_in(place("/copy"), options()).unwrap();
    let reader = copy.reader();
    let read = || {
        let (before, mut random) = (disk.counters(), fastrand::Rng::with_seed(1));
        for _ in 0..300 {
            let number = random.u64(1..=RECORDS);
            assert_eq!(reader.get(1, number).unwrap(), number.to_le_bytes());
        }
        let cost = disk.counters().since(&before);
        (cost.reads, cost.read_bytes)
    };
    let ((reads, bytes), (again, again_bytes)) = (read(), read());
    assert!(reads < 600 && bytes < 20 << 20, "{reads} reads and {bytes} bytes");
    assert!(again <= 310 && again_bytes < 4 << 20, "again {again} and {again_bytes}");
}
