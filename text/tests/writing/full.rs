//! A disk that does not keep up: nobody waits while there is room, then the policy applies, and
//! reported == lost.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::{
    LINE, MS, Mood, MoodyDisk, line, lines, numbers_of, place, put, read, say, small, threads_of,
    wait_until,
};
use inkstone_appender::{Builder, Guard, LogWriter, Stats, WhenFull};

/// Longer than all buffers together.
static TOO_LONG: [u8; 100_000] = [b'x'; 100_000];

const AT_ONCE: WhenFull = WhenFull::DropAfter(Duration::ZERO);

/// A log on a disk that has stopped.
struct Scene {
    _directory: tempfile::TempDir,
    path: PathBuf,
    disk: MoodyDisk,
    log: LogWriter,
    guard: Guard,
}

fn scene(change: impl FnOnce(Builder) -> Builder) -> Scene {
    let (directory, path) = place();
    let disk = MoodyDisk::new(Mood::Stopped);
    let builder = change(small(LogWriter::builder(&path)));
    let (log, guard) = builder.open_on(disk.clone()).expect("opened");
    Scene { _directory: directory, path, disk, log, guard }
}

fn dropping(when_full: WhenFull) -> Scene {
    scene(|builder| builder.when_full(when_full))
}

impl Scene {
    fn put(&self, numbers: Range<u64>) {
        put(&self.log, numbers);
    }

    /// The end: numbers of the lines in the file, other lines, the last count.
    fn end(self) -> (Vec<u64>, Vec<String>, Stats) {
        self.disk.set(Mood::Works);
        self.guard.close().expect("closed");
        let (lines, others) = numbers_of(&read(&self.path));
        (lines, others, self.log.stats())
    }

    /// The end. Every one of these lines is in the file or reported, in the file's own words and in
    /// the counters.
    fn prove(self, put: u64) -> (Vec<u64>, Vec<String>, Stats) {
        let (found, notices, stats) = self.end();
        let kept: u64 = found.iter().map(|number| line(0, *number, LINE).len() as u64).sum();
        let lost = (put - found.len() as u64, lines(0..put).len() as u64 - kept);
        assert_eq!((stats.dropped_lines, stats.dropped_bytes), lost, "{stats:?}");
        assert_eq!(told(&notices), lost, "{notices:?}");
        assert_eq!((stats.written_lines, stats.written_bytes), (found.len() as u64, kept));
        (found, notices, stats)
    }
}

/// The numbers before ` lines dropped (` and before ` bytes)`, of all notices together.
fn told(notices: &[String]) -> (u64, u64) {
    let number =
        |text: Option<&str>| -> u64 { text.and_then(|text| text.parse().ok()).expect("a") };
    notices.iter().fold((0, 0), |(lines, bytes), notice| {
        let (before, after) = notice.split_once(" lines dropped (").expect("a notice");
        let (more, of) = (number(before.rsplit(' ').next()), number(after.split(' ').next()));
        (lines + more, bytes + of)
    })
}

#[test]
fn while_there_is_room_nobody_waits_and_nothing_is_lost() {
    // One second at 400,000 lines of 120 bytes, while the disk does nothing at all.
    let scene = scene(|builder| builder.buffers_bytes(64 << 20));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| (0..100_000).for_each(|at| say(&scene.log, line(0, at % 7, LINE))));
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
fn what_has_no_room_waits_or_is_dropped_as_the_policy_says() {
    let scene = dropping(AT_ONCE);
    scene.put(0..2000);
    let stats = scene.log.stats();
    assert!(stats.dropped_lines > 1000 && stats.waits == 0, "{stats:?}");
    let (lines, notices, _) = scene.prove(2000);
    assert!(lines.iter().copied().eq(0..2000 - stats.dropped_lines), "those that came first");
    assert_eq!(notices.len(), 1, "{notices:?}");
    let scene = dropping(WhenFull::DropAfter(2 * MS));
    scene.put(0..560);
    let stats = scene.log.stats();
    assert!(stats.waits > 0 && stats.waits == stats.dropped_lines, "{stats:?}");
    scene.prove(560);
    let scene = dropping(WhenFull::Block);
    std::thread::scope(|threads| {
        threads.spawn(|| scene.put(0..2000));
        wait_until("a writer that waits", || scene.log.stats().waits > 0);
        assert!(scene.log.stats().bytes <= 64 << 10, "no more than the buffers hold");
        scene.disk.set(Mood::Works);
    });
    assert_eq!(scene.prove(2000).0.len(), 2000);
}

/// Whatever the disk does and whoever writes: reported == lost.
#[test]
fn with_a_disk_that_stops_again_and_again_reported_is_lost() {
    for when_full in [AT_ONCE, WhenFull::DropAfter(Duration::from_micros(50))] {
        let scene = scene(|builder| builder.when_full(when_full).flush_every(MS));
        let length = |_, number: u64| if number % 500 == 499 { 10_000 } else { LINE };
        std::thread::scope(|threads| {
            for thread in 0..3 {
                let log = &scene.log;
                let put = move |number| say(log, line(thread, number, length(0, number)));
                threads.spawn(move || (0..4000).for_each(put));
            }
            for _ in 0..20 {
                scene.disk.set(Mood::Works);
                std::thread::sleep(MS);
                scene.disk.set(Mood::Stopped);
                std::thread::sleep(MS);
            }
            scene.disk.set(Mood::Works);
        });
        scene.guard.close().expect("closed");
        let (found, notices) = threads_of(&read(&scene.path), length);
        let stats = scene.log.stats();
        let found = found.iter().map(Vec::len).sum::<usize>() as u64;
        assert_eq!(stats.dropped_lines, 12_000 - found, "{when_full:?} {stats:?}");
        assert_eq!(told(&notices), (stats.dropped_lines, stats.dropped_bytes), "{when_full:?}");
    }
}

#[test]
fn dropped_lines_are_told_when_closing_fails() {
    let scene = scene(|builder| builder.when_full(AT_ONCE).drain_timeout(Duration::ZERO));
    scene.disk.set(Mood::Fails(28));
    scene.put(0..2000);
    let Stats { lines, dropped_lines, dropped_bytes, .. } = scene.log.stats();
    let error = scene.guard.close().expect_err("it fails").to_string();
    let untold = format!("{dropped_lines} lines ({dropped_bytes} bytes) were dropped, perhaps");
    let unwritten = format!("{lines} lines were not written: append");
    assert!(error.contains(&untold) && error.starts_with(&unwritten), "{error}");
}

#[test]
fn a_notice_does_not_wait_for_the_next_line() {
    // A line that is too long is dropped although this log would wait.
    let clock = || std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let scene = scene(|builder| builder.flush_every(MS).clock(clock));
    scene.disk.set(Mood::Works);
    // Long enough for the output thread to fall asleep.
    std::thread::sleep(20 * MS);
    say(&scene.log, TOO_LONG);
    wait_until("the notice", || read(&scene.path).contains("1 lines dropped"));
    // By the log's own clock.
    let expected = "2001-09-09T01:46:40Z WARN inkstone_appender: 1 lines dropped (100000 bytes): no \
                    room in the buffers";
    assert_eq!(scene.end().1, [expected]);
}
