//! A disk that does not keep up: nobody waits while there is room, then the policy applies, and
//! reported == lost.

mod common;

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LINE, LONG, Mood, MoodyDisk, check_lines, line, place, put, wait_until};
use inkstone_appender::{Builder, Dropped, Event, Guard, LogWriter, Notice, Stats, WhenFull};

struct Scene {
    _directory: tempfile::TempDir,
    path: std::path::PathBuf,
    disk: MoodyDisk,
    log: LogWriter,
    guard: Guard,
}

fn scene(change: impl FnOnce(Builder) -> Builder) -> Scene {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let disk = MoodyDisk::new(Mood::Stopped);
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let (log, guard) = change(builder).open_on(disk.clone()).expect("opened");
    Scene { _directory: directory, path, disk, log, guard }
}

impl Scene {
    fn put(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            (&self.log).write_all(line(0, number, LINE).as_bytes()).expect("accepted or dropped");
        }
    }

    /// The end: numbers of the lines in the file, other lines, the last count.
    fn end(self) -> (Vec<u64>, Vec<String>, Stats) {
        self.disk.set(Mood::Works);
        self.guard.close().expect("closed");
        let text = std::fs::read_to_string(&self.path).expect("text");
        let (mut lines, others) = check_lines(&text, LINE);
        (lines.remove(&0).unwrap_or_default(), others, self.log.stats())
    }
}

/// The numbers before ` lines dropped (` and before ` bytes)`.
fn told(notices: &[String]) -> (u64, u64) {
    let numbers = notices.iter().map(|notice| {
        let (before, after) = notice.split_once(" lines dropped (").expect("a notice");
        let lines: u64 = before.rsplit(' ').next().expect("a number").parse().expect("a number");
        let bytes: u64 = after.split(' ').next().expect("a number").parse().expect("a number");
        (lines, bytes)
    });
    numbers.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Every line is in the file or reported, in the file's own words and in the counters.
fn prove(put: u64, lines: &[u64], notices: &[String], stats: Stats) {
    let lost = put - lines.len() as u64;
    let bytes: u64 = (0..put).map(|number| line(0, number, LINE).len() as u64).sum();
    let kept: u64 = lines.iter().map(|number| line(0, *number, LINE).len() as u64).sum();
    assert_eq!((stats.dropped_lines, stats.dropped_bytes), (lost, bytes - kept), "{stats:?}");
    assert_eq!(told(notices), (lost, bytes - kept), "{notices:?}");
    assert_eq!((stats.told_lines, stats.told_bytes), (lost, bytes - kept));
    assert_eq!((stats.written_lines, stats.written_bytes), (lines.len() as u64, kept));
}

#[test]
fn while_there_is_room_nobody_waits_and_nothing_is_lost() {
    // One second at 400,000 lines of 120 bytes, while the disk does nothing at all.
    let scene = scene(|builder| builder.buffers_bytes(64 << 20).buffer_bytes(1 << 20));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            let mut log = scene.log.clone();
            threads.spawn(move || {
                for number in 0..100_000 {
                    log.write_all(line(0, number % 7, LINE).as_bytes()).expect("accepted");
                }
            });
        }
    });
    let stats = scene.log.stats();
    assert_eq!((stats.lines, stats.waits, stats.written_lines), (400_000, 0, 0), "{stats:?}");
    scene.disk.set(Mood::Works);
    scene.guard.close().expect("closed");
    assert_eq!(scene.log.stats().written_lines, 400_000);
    assert_eq!(std::fs::metadata(&scene.path).expect("there").len(), stats.bytes);
}

#[test]
fn drop_newest_keeps_what_was_there_first() {
    let scene = scene(|builder| builder.when_full(WhenFull::DropNewest));
    scene.put(0..2000);
    let dropped = scene.log.stats().dropped_lines;
    assert!(dropped > 1000 && scene.log.stats().waits == 0, "{:?}", scene.log.stats());
    let (lines, notices, stats) = scene.end();
    assert_eq!(lines, (0..2000 - dropped).collect::<Vec<u64>>());
    assert_eq!(notices.len(), 1, "{notices:?}");
    prove(2000, &lines, &notices, stats);
}

#[test]
fn drop_oldest_keeps_what_came_last() {
    let scene = scene(|builder| builder.when_full(WhenFull::DropOldest).flush_every(LONG));
    scene.put(0..100);
    // The disk is writing one buffer, which can no longer be dropped.
    scene.disk.wait_for_calls(1);
    scene.put(100..2000);
    let (lines, notices, stats) = scene.end();
    assert_eq!(lines.first(), Some(&0), "what is being written is not dropped");
    assert_eq!(lines.last(), Some(&1999));
    assert!(stats.dropped_lines > 1000 && stats.waits == 0, "{stats:?}");
    // One hole.
    assert_eq!(lines.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count(), 1);
    prove(2000, &lines, &notices, stats);
}

#[test]
fn block_for_waits_and_then_drops() {
    let scene = scene(|builder| builder.when_full(WhenFull::BlockFor(Duration::from_millis(2))));
    scene.put(0..560);
    let stats = scene.log.stats();
    assert!(stats.waits > 0 && stats.waits == stats.dropped_lines, "{stats:?}");
    let (lines, notices, stats) = scene.end();
    prove(560, &lines, &notices, stats);
}

#[test]
fn block_waits_and_loses_nothing() {
    let scene = scene(|builder| builder.when_full(WhenFull::Block));
    std::thread::scope(|threads| {
        threads.spawn(|| scene.put(0..2000));
        while scene.log.stats().waits == 0 {
            std::thread::yield_now();
        }
        assert!(scene.log.stats().bytes <= 64 << 10, "no more than the buffers hold");
        scene.disk.set(Mood::Works);
    });
    let (lines, notices, stats) = scene.end();
    assert_eq!(lines, (0..2000).collect::<Vec<u64>>());
    assert!(notices.is_empty() && stats.dropped_lines == 0);
}

/// Whatever the disk does and whoever writes: reported == lost.
#[test]
fn with_a_disk_that_stops_again_and_again_reported_is_lost() {
    for when_full in
        [WhenFull::DropNewest, WhenFull::DropOldest, WhenFull::BlockFor(Duration::from_micros(50))]
    {
        let scene =
            scene(|builder| builder.when_full(when_full).flush_every(Duration::from_millis(1)));
        std::thread::scope(|threads| {
            for thread in 0..3 {
                let mut log = scene.log.clone();
                threads.spawn(move || {
                    for number in 0..4000 {
                        let bytes = if number % 500 == 499 { 10_000 } else { LINE };
                        log.write_all(line(thread, number, bytes).as_bytes())
                            .expect("accepted or dropped");
                    }
                });
            }
            for _ in 0..20 {
                scene.disk.set(Mood::Works);
                std::thread::sleep(Duration::from_millis(1));
                scene.disk.set(Mood::Stopped);
                std::thread::sleep(Duration::from_millis(1));
            }
            scene.disk.set(Mood::Works);
        });
        scene.disk.set(Mood::Works);
        scene.guard.close().expect("closed");
        let text = std::fs::read_to_string(&scene.path).expect("text");
        let (notices, lines): (Vec<_>, Vec<_>) =
            text.lines().partition(|line| line.contains("lines dropped"));
        for found in &lines {
            let words: Vec<&str> = found.splitn(5, ' ').collect();
            let (thread, number) =
                (words[1].parse().expect("a"), words[3].parse::<u64>().expect("a"));
            let bytes = if number % 500 == 499 { 10_000 } else { LINE };
            assert_eq!(format!("{found}\n"), line(thread, number, bytes), "torn");
        }
        let stats = scene.log.stats();
        assert_eq!(stats.dropped_lines, 12_000 - lines.len() as u64, "{when_full:?} {stats:?}");
        let notices: Vec<String> = notices.into_iter().map(str::to_owned).collect();
        assert_eq!(told(&notices).0, stats.dropped_lines, "{when_full:?}");
        assert_eq!(told(&notices).1, stats.dropped_bytes, "{when_full:?}");
    }
}

#[test]
fn a_line_longer_than_all_buffers_is_dropped_whole_by_a_policy_that_drops() {
    let scene = scene(|builder| builder.when_full(WhenFull::DropOldest));
    scene.put(0..3);
    (&scene.log).write_all(&[b'x'; 100_000]).expect("dropped");
    assert_eq!(scene.log.stats().dropped_bytes, 100_000);
    let (lines, notices, _) = scene.end();
    assert_eq!((lines, told(&notices)), (vec![0, 1, 2], (1, 100_000)));
    assert!(
        notices[0].ends_with("(100000 bytes): too long for the buffers"),
        "the disk did keep up: {notices:?}"
    );
}

#[test]
fn a_notice_says_which_of_the_lines_were_too_long() {
    let scene = scene(|builder| builder.when_full(WhenFull::DropNewest));
    scene.put(0..2000);
    (&scene.log).write_all(&[b'x'; 100_000]).expect("dropped");
    let dropped = scene.log.stats().dropped_lines;
    assert_eq!((scene.log.stats().too_long_lines, scene.log.stats().too_long_bytes), (1, 100_000));
    let (_, notices, stats) = scene.end();
    assert_eq!(told(&notices).0, dropped, "{notices:?}");
    let why = "the disk did not keep up; 1 (100000 bytes) were too long for the buffers";
    assert!(notices.iter().any(|notice| notice.ends_with(why)), "{notices:?}");
    assert_eq!((stats.told_lines, stats.told_bytes), (stats.dropped_lines, stats.dropped_bytes));
}

/// The result of the closing and the events report what the file does not.
#[test]
fn dropped_lines_are_told_when_closing_fails() {
    for is_asked in [true, false] {
        let lost = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&lost);
        let scene = scene(|builder| {
            let builder = builder.when_full(WhenFull::DropNewest).drain_timeout(Duration::ZERO);
            builder.on_event(move |event| {
                if let Event::Lost { unwritten_lines, dropped, .. } = event {
                    *theirs.lock().expect("no panic") =
                        Some((*unwritten_lines, dropped.lines, dropped.bytes));
                }
            })
        });
        scene.disk.set(Mood::Fails(28));
        scene.put(0..2000);
        let stats = scene.log.stats();
        if is_asked {
            let error = scene.guard.close().expect_err("it fails").to_string();
            let untold = format!(
                "{} lines ({} bytes) were dropped without a notice",
                stats.dropped_lines, stats.dropped_bytes
            );
            assert!(error.contains(&untold), "{error}");
            assert!(
                error.starts_with(&format!("{} lines were not written: append", stats.lines)),
                "{error}"
            );
        } else {
            drop(scene.guard);
        }
        let expected = (stats.lines, stats.dropped_lines, stats.dropped_bytes);
        assert_eq!(*lost.lock().expect("no panic"), Some(expected));
        let stats = scene.log.stats();
        assert_eq!((stats.told_lines, stats.told_bytes), (0, 0), "no notice is in the file");
    }
}

#[test]
fn a_notice_does_not_wait_for_the_next_line() {
    let scene = scene(|builder| {
        builder.when_full(WhenFull::DropNewest).flush_every(Duration::from_millis(1))
    });
    scene.disk.set(Mood::Works);
    // Long enough for the background thread to fall asleep.
    std::thread::sleep(Duration::from_millis(20));
    (&scene.log).write_all(&[b'x'; 100_000]).expect("dropped");
    while !std::fs::read_to_string(&scene.path).expect("text").contains("1 lines dropped") {
        std::thread::yield_now();
    }
    let (_, notices, _) = scene.end();
    assert_eq!(notices.len(), 1);
}

#[test]
fn the_notice_can_be_json_or_anybodys() {
    for (notice, expected) in [
        (Notice::Json, "\"dropped_lines\":1,\"dropped_bytes\":100000}"),
        (
            Notice::By(Arc::new(|Dropped { lines, bytes, .. }, out: &mut Vec<u8>| {
                writeln!(out, "gone: {lines} {bytes}").expect("memory");
            })),
            "gone: 1 100000",
        ),
        // Longer than a buffer: then the usual one.
        (
            Notice::By(Arc::new(|_, out: &mut Vec<u8>| out.resize(5000, b'x'))),
            "1 lines dropped (100000 bytes): too long for the buffers",
        ),
    ] {
        let clock = || std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let is_anybodys = matches!(notice, Notice::By(_)) && expected.starts_with("gone");
        let scene =
            scene(|builder| builder.when_full(WhenFull::DropNewest).notice(notice).clock(clock));
        (&scene.log).write_all(&[b'x'; 100_000]).expect("dropped");
        let (_, notices, _) = scene.end();
        assert!(
            is_anybodys || notices[0].contains("2001-09-09T01:46:40Z"),
            "the log's clock: {notices:?}"
        );
        assert!(notices.len() == 1 && notices[0].ends_with(expected), "{notices:?}");
    }
}

/// A program whose disk is dead would stand still if each line waited. Counted in waits: a line
/// that is dropped at once is none.
#[test]
fn lines_wait_no_more_for_a_disk_that_takes_nothing_and_wait_again_when_it_does() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Stopped);
    let log = LogWriter::builder(&path).when_full(WhenFull::BlockFor(Duration::from_millis(1)));
    let log = log.buffer_bytes(4096).buffers_bytes(8192).flush_every(Duration::from_millis(1));
    let (log, guard) = log.on_event(|_| {}).open_on(disk.clone()).expect("opened");
    let mut number = 0;
    let mut put_some = |count: u64| {
        put(&log, number..number + count);
        number += count;
        log.stats()
    };
    // Some fill the buffers, the others wait and are dropped.
    wait_until("a line that waited", || put_some(10).dropped_lines > 0);
    std::thread::sleep(Duration::from_millis(1100));
    let before = log.stats();
    let after = put_some(1000);
    assert_eq!((after.waits, after.dropped_lines), (before.waits, before.dropped_lines + 1000));
    disk.set(Mood::Works);
    guard.flush(LONG).expect("flushed");
    disk.set(Mood::Stopped);
    wait_until("a line that waits", || put_some(10).waits > before.waits);
    disk.set(Mood::Works);
    guard.close().expect("closed");
}
