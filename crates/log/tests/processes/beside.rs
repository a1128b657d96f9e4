//! Readers beside a writer, on real directories: in this process, opened separately, and in another
//! one.
//!
//! *Owns*: followers under which segments are begun, truncated at both ends and used again. What a
//! crash may leave is in `beside_sim.rs`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use inkstone::{Error, Log, Lsn, Options, Reader, inspect};

pub(crate) const DIRECTORY: &str = "INKSTONE_TEST_DIRECTORY";

pub(crate) fn small() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10)
}

/// What record `lsn` holds after `cuts` cuts.
pub(crate) fn record(lsn: u64, cuts: u64) -> Vec<u8> {
    let mut bytes: Vec<_> = (0..lsn * 37 % 3000).map(|at| (at ^ lsn ^ cuts) as u8).collect();
    bytes.extend(lsn.to_le_bytes());
    bytes.extend(cuts.to_le_bytes());
    bytes
}

/// Checks what a record holds and gives after how many cuts it was written.
fn check(lsn: u64, bytes: &[u8]) -> u64 {
    let cuts = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap());
    assert!(bytes == record(lsn, cuts), "LSN {lsn}");
    cuts
}

/// The directory is emptied and gets another log, with the same segments and longer: no record of
/// it is shown to who reads the first one.
#[test]
fn a_log_that_takes_the_place_of_another_is_not_read_on() {
    for lives in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let write = |records: std::ops::RangeInclusive<u64>| {
            let log = Log::open(&path, small()).unwrap();
            records.for_each(|lsn| assert!(log.append_durable(&record(lsn, 0)).is_ok()));
            log
        };
        write(1..=5).close().unwrap();
        let reader = Reader::open(&path, &small()).unwrap();
        let mut cursor = reader.from(Lsn::FIRST);
        for lsn in 1..=5 {
            assert_eq!(check(lsn, cursor.next().unwrap().unwrap().bytes), 0);
        }
        for file in std::fs::read_dir(&path).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        // Several segments, so that a living writer's are listed anew.
        let log = write(1..=300);
        let kept = if lives { Some(log) } else { log.close().map(|()| None).unwrap() };
        let shown = cursor.next_within(Duration::from_millis(200));
        let Err(Error::Corrupt(told)) = shown else { panic!("lives {lives}: {shown:?}") };
        assert_eq!(told.cure, inkstone::Cure::OpenAgain, "{told}");
        assert!(reader.get(Lsn::new(6)).is_err(), "lives {lives}");
        drop(kept);
    }
}

/// A `child_` test of this program, in a process of its own, with the directory.
pub(crate) fn in_another_process(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The other process of the next test, which names the directory.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(DIRECTORY) else { return };
    let path = Path::new(&path);
    // It never promises by itself, so the last record is in no promise.
    let log = Log::open(path, small().own_thread(false)).unwrap();
    for lsn in 1..=90 {
        log.append_durable(&record(lsn, 0)).unwrap();
    }
    std::fs::write(path.join("acknowledged"), b"90").unwrap();
    std::thread::sleep(Duration::from_secs(3600));
}

#[test]
fn what_a_killed_process_had_acknowledged_is_shown_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut writer = in_another_process("beside::child_writes_until_it_is_killed", path);
    while !path.join("acknowledged").exists() {
        assert!(writer.try_wait().unwrap().is_none(), "the writer ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Without a note nobody finds its shared page.
    std::fs::write(path.join("inkstone.lock"), b"").unwrap();
    let reader = Reader::open(path, &small()).unwrap();
    assert_eq!(
        (reader.durable().get(), reader.recovery().unwrap().end),
        (89, None),
        "only what is promised"
    );
    let mut cursor = reader.from(Lsn::new(80));
    for lsn in 80..90 {
        check(lsn, cursor.next().unwrap().unwrap().bytes);
    }
    assert!(cursor.next().unwrap().is_none());
    writer.kill().unwrap();
    writer.wait().unwrap();
    check(90, cursor.next().unwrap().unwrap().bytes);
    assert!(cursor.next_within(Duration::from_millis(30)).unwrap().is_none());
    let log = Log::open(path, small()).unwrap();
    assert_eq!(log.append_durable(&record(91, 0)).unwrap().get(), 91);
    log.close().unwrap();
    check(91, cursor.next().unwrap().unwrap().bytes);
}

#[test]
fn where_there_is_no_log_it_says_so_and_makes_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    // A missing directory is the same to every call, and the same as a directory without a log.
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&path).unwrap();
        }
        let to = directory.path().join("new");
        for (call, refused) in [
            ("open to read", Reader::open(&path, &small()).map(drop)),
            ("look", inspect::look(&path).map(drop)),
            ("verify", inspect::verify(&path).map(drop)),
            ("dump", inspect::dump(&path, 0).map(drop)),
            ("copy", inspect::copy(&path, &to, &small()).map(drop)),
            ("salvage", inspect::salvage(&path, &to, &small()).map(drop)),
        ] {
            let Err(Error::NoLog { path: told, missing: None }) = &refused else {
                panic!("{call}, {is_there}: {refused:?}");
            };
            assert_eq!(*told, path, "{call}, {is_there}");
        }
        assert_eq!(path.exists(), is_there);
    }
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    let expects = small().expect_durable(Lsn::new(1));
    assert!(matches!(Reader::open(&path, &expects), Err(Error::Corrupt(_))));
    for path in [&path, &directory.path().join("none")] {
        let refused = Log::open(path, small().create(false)).map(drop);
        assert!(matches!(refused, Err(Error::NoLog { missing: None, .. })), "{refused:?}");
    }
    drop(Log::open(&path, small()).unwrap());
    let reader = Reader::open(&path, &small()).unwrap();
    assert_eq!((reader.first().get(), reader.durable().get()), (1, 0));
    assert!(matches!(reader.get(Lsn::FIRST), Err(Error::NotYet { .. })));
}

#[test]
fn a_cursor_gets_on_while_another_of_the_same_reader_polls() {
    const RECORDS: u64 = 50_000;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    let log = Log::open(&path, Options::new()).unwrap();
    (0..RECORDS).for_each(|number| drop(log.append(&[number as u8; 100]).unwrap()));
    log.sync().unwrap();
    let reader = Reader::open(&path, &Options::new()).unwrap();
    let mut polling = reader.from(Lsn::new(RECORDS + 1));
    while polling.next().unwrap().is_some() || reader.durable() < Lsn::new(RECORDS) {}
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(polling.next().unwrap().is_none());
            }
        });
        let (tell, told) = std::sync::mpsc::channel();
        let theirs = reader.clone();
        std::thread::spawn(move || {
            for record in theirs.records(Lsn::FIRST) {
                let _ = tell.send(record.map(|record| record.lsn.get()));
            }
        });
        // Each by itself: a slow machine is not a defect, a cursor without progress is one.
        let told = || told.recv_timeout(Duration::from_secs(30));
        let read =
            std::iter::from_fn(|| told().ok()).inspect(|record| assert!(record.is_ok())).count();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(read, RECORDS as usize, "the other cursor does not get on");
    });
}

/// Without publications within a second, although the reader reads on all the time; else at once,
/// also when the writer is gone by then.
#[test]
fn a_truncation_is_known_at_once_or_within_a_second() {
    const LAST: u64 = 400;
    const LEFT: u64 = 130;
    let patience = Duration::from_secs(60);
    let truncations: [fn(&Log); 2] = [
        |log| log.truncate_before(Lsn::new(LEFT + 30)).unwrap(),
        |log| log.truncate_after(Lsn::new(LEFT)).unwrap(),
    ];
    for (publishes, truncate) in
        [true, false].iter().flat_map(|way| truncations.map(|it| (way, it)))
    {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::open(directory.path(), small()).unwrap();
        (1..=LAST).for_each(|lsn| drop(log.append(&record(lsn, 0)).unwrap()));
        log.sync().unwrap();
        if !publishes {
            // Without a note nobody finds the writer's shared page.
            std::fs::write(directory.path().join("inkstone.lock"), b"").unwrap();
        }
        let reader = Reader::open(directory.path(), &small()).unwrap();
        assert!(reader.follow(Lsn::FIRST).take(LAST as usize).all(|shown| shown.is_ok()));
        let mut cursor = reader.from(Lsn::new(LEFT + 1));
        assert!(cursor.next().unwrap().is_some());
        truncate(&log);
        let log = if *publishes { log.close().map(|()| None).unwrap() } else { Some(log) };
        let (begun, mut shown) = (Instant::now(), 0);
        let told = loop {
            match cursor.next() {
                // It shows a record of a piece that is in memory.
                Ok(Some(_)) => cursor.seek(Lsn::new(LEFT + 2)),
                Ok(None) => {}
                Err(error) => break error,
            }
            shown += 1;
            assert!(begun.elapsed() < patience, "it never learns of it");
        };
        let is_told = matches!(told, Error::TruncatedBefore { .. } | Error::TruncatedAfter { .. });
        assert!(is_told && (shown == 0 || !publishes), "{told} after {shown} more");
        drop(log);
    }
}
