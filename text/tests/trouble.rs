//! Disks that fail: events report it, lines are kept within the policy, writing continues by
//! itself. And forks.

mod common;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LINE, LONG, Mood, MoodyDisk, check_lines, line, wait_until};
use inkstone_appender::{Builder, Event, LogWriter, Rotation, Survive, WhenFull};
use inkstone_host::in_forked_child;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

type Told = Arc<Mutex<Vec<String>>>;

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("logs/a.log");
    (directory, path)
}

fn listening(builder: Builder) -> (Builder, Told) {
    let told = Told::default();
    let theirs = Arc::clone(&told);
    let builder = builder.on_event(move |event: &Event<'_>| {
        theirs.lock().expect("no panic").push(event.to_string());
    });
    (builder, told)
}

#[test]
fn a_full_disk_and_a_broken_one_are_told_once_and_lines_follow_when_it_works_again() {
    for mood in
        [Mood::Fails(ENOSPC), Mood::Fails(EIO), Mood::FailsHalfway(ENOSPC), Mood::FailsHalfway(EIO)]
    {
        let (_directory, path) = place();
        let disk = MoodyDisk::new(mood);
        let (builder, told) =
            listening(LogWriter::builder(&path).flush_every(Duration::from_millis(1)));
        let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
        for number in 0..100 {
            log.write_all(line(0, number, LINE).as_bytes()).expect("accepted");
        }
        wait_until("three attempts", || log.stats().write_errors >= 3);
        assert!(log.trouble().is_some() && log.stats().written_lines == 0);
        assert_eq!(told.lock().expect("no panic").len(), 1, "told once, not with every attempt");
        let error = log.flush_within(Duration::from_millis(1)).expect_err("it fails").to_string();
        assert!(
            error.contains("append") && error.contains("a.log"),
            "the cause and the path: {error}"
        );
        disk.set(Mood::Works);
        guard.flush(LONG).expect("by itself");
        assert!(log.trouble().is_none());
        guard.close().expect("closed");
        let (lines, others) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
        assert_eq!((lines[&0].len(), others.len()), (100, 0), "{mood:?}");
        let told = told.lock().expect("no panic");
        assert!(told.len() == 2 && told[1].contains("written again"), "{told:?}");
    }
}

#[test]
fn a_directory_that_vanishes_and_comes_again() {
    let (directory, path) = place();
    let (builder, told) =
        listening(LogWriter::builder(&path).flush_every(Duration::from_millis(1)));
    let (mut log, guard) = builder.open().expect("opened");
    log.write_all(b"before\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    let folder = directory.path().join("logs");
    std::fs::remove_dir_all(&folder).expect("removed");
    log.write_all(b"meanwhile\n").expect("accepted");
    wait_until("an attempt", || log.stats().write_errors >= 2);
    assert!(!folder.exists(), "it is not ours to make: something may be mounted there");
    std::fs::create_dir(&folder).expect("made again");
    guard.flush(LONG).expect("by itself");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "meanwhile\n");
    guard.close().expect("closed");
    assert!(told.lock().expect("no panic")[0].contains("open log"), "{told:?}");
}

#[test]
fn a_file_that_vanishes_in_the_middle_of_a_buffer_is_written_again_whole() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::FailsHalfway(ENOSPC));
    let (builder, _told) =
        listening(LogWriter::builder(&path).flush_every(Duration::from_millis(1)));
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    for number in 0..100 {
        log.write_all(line(0, number, LINE).as_bytes()).expect("accepted");
    }
    wait_until("a failure", || log.stats().write_errors >= 1);
    std::fs::remove_file(&path).expect("removed");
    disk.set(Mood::Works);
    guard.close().expect("closed");
    // The lines of the first buffer are there from its start; the beginning of an earlier buffer
    // was lost with the file.
    let (lines, _) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    assert_eq!(lines[&0].last(), Some(&99));
    assert_eq!(
        lines[&0].len(),
        lines[&0].last().map_or(0, |last| (last - lines[&0][0] + 1) as usize)
    );
}

#[test]
fn closing_on_a_disk_that_fails_says_how_many_lines_it_could_not_write() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Fails(ENOSPC));
    let (builder, _told) = listening(LogWriter::builder(&path).drain_timeout(Duration::ZERO));
    let (mut log, guard) = builder.open_on(disk).expect("opened");
    for _ in 0..7 {
        log.write_all(b"line\n").expect("accepted");
    }
    let error = guard.close().expect_err("it fails");
    assert!(error.to_string().starts_with("7 lines were not written: append"), "{error}");
    let stats = log.stats();
    assert_eq!((stats.lines, stats.written_lines, stats.unwritten_lines), (7, 0, 7));
}

/// Neither one that waits when the closing gives up, nor a later one.
#[test]
fn no_flush_says_that_lines_are_written_that_the_closing_gave_up() {
    // What was given up stays in the stage.
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    for survive in [Survive::Nothing, Survive::PowerLoss(Duration::from_millis(1))] {
        let (_directory, path) = place();
        let disk = MoodyDisk::new(Mood::Works);
        let builder = LogWriter::builder(&path)
            .stage_directory(memory.path())
            .survive(survive)
            .flush_every(Duration::from_millis(1));
        let (builder, _told) = listening(builder.drain_timeout(Duration::from_millis(200)));
        let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
        log.write_all(b"written\n").expect("accepted");
        guard.flush(LONG).expect("flushed");
        disk.set(Mood::Fails(ENOSPC));
        log.write_all(b"given up\n").expect("accepted");
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| log.flush_within(LONG));
            assert!(guard.close().is_err());
            let error = waiting.join().expect("no panic").expect_err("they are not in the file");
            assert!(error.to_string().contains("append"), "{survive:?}: {error}");
        });
        let error = log.flush_within(LONG).expect_err("they are not in the file");
        assert!(error.to_string().contains("append"), "{survive:?}: {error}");
        assert_eq!(log.stats().unwritten_lines, 1);
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "written\n");
    }
}

#[test]
fn writers_that_wait_when_a_failing_log_is_closed_get_an_error() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Fails(EIO));
    let builder = LogWriter::builder(&path).buffers_bytes(8 << 10).buffer_bytes(4 << 10);
    let (builder, _told) = listening(builder.drain_timeout(Duration::from_millis(1)));
    let (log, guard) = builder.open_on(disk).expect("opened");
    let refused = std::thread::scope(|scope| {
        let writers: Vec<_> = [LINE, LINE, 9000, 5000]
            .map(|bytes| {
                let mut log = log.clone();
                scope.spawn(move || {
                    (0_u64..)
                        .find(|number| log.write_all(line(0, *number, bytes).as_bytes()).is_err())
                })
            })
            .into_iter()
            .collect();
        wait_until("four that wait", || log.stats().waits >= 4);
        assert!(guard.close().is_err());
        writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"))
            .filter(Option::is_some)
            .count()
    });
    assert_eq!(refused, 4);
    // The line longer than all buffers may have been begun: it is one of those that were not
    // written.
    assert!((3..=4).contains(&log.stats().refused_lines), "{:?}", log.stats());
}

#[test]
fn a_power_loss_log_is_synced_and_a_failed_sync_is_told() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Works);
    let builder = LogWriter::builder(&path).survive(Survive::PowerLoss(Duration::from_millis(5)));
    let (builder, told) = listening(builder.flush_every(Duration::from_millis(1)));
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    log.write_all(b"one\n").expect("accepted");
    wait_until("a sync by itself", || disk.syncs() >= 1);
    log.write_all(b"two\n").expect("accepted");
    let before = disk.syncs();
    guard.flush(LONG).expect("flushed");
    assert!(disk.syncs() > before || log.stats().written_lines == 2, "a flush is a sync");
    disk.set(Mood::FailsToSync(EIO));
    log.write_all(b"three\n").expect("accepted");
    wait_until("a failed sync", || log.stats().sync_errors >= 1);
    let failed = disk.syncs();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(disk.syncs(), failed, "it is not tried again");
    assert!(told.lock().expect("no panic").iter().any(|told| told.contains("may not be durable")));
    log.write_all(b"four\n").expect("accepted");
    assert!(guard.close().is_err(), "not everything is durable");
}

/// The half of a line stays where it is; the whole line follows what others wrote meanwhile.
#[test]
fn a_line_that_others_cut_while_the_disk_was_full_is_whole_behind_them() {
    for theirs in ["\nsomebody's\n", "\nsomebody's"] {
        let (_directory, path) = place();
        let disk = MoodyDisk::new(Mood::FailsHalfway(ENOSPC));
        let (builder, _told) =
            listening(LogWriter::builder(&path).flush_every(Duration::from_millis(1)));
        let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
        log.write_all(b"first\na line that is much longer than the first\nlast\n")
            .expect("accepted");
        wait_until("a failure", || log.stats().write_errors >= 1);
        let mut others = std::fs::File::options().append(true).open(&path).expect("open");
        others.write_all(theirs.as_bytes()).expect("written");
        disk.set(Mood::Works);
        guard.close().expect("closed");
        let text = std::fs::read_to_string(&path).expect("text");
        let (before, behind) = text.split_once("somebody's\n").expect("theirs");
        assert!(before.starts_with("first\na line that"), "{text}");
        assert_eq!(behind, "a line that is much longer than the first\nlast\n");
    }
}

/// Also if others append to the file while the log is open.
#[test]
fn no_line_goes_behind_the_half_of_somebodys() {
    let (_directory, path) = place();
    let (builder, _told) = listening(LogWriter::builder(&path));
    let (mut log, guard) = builder.open().expect("opened");
    for (own, theirs) in [("one\n", "half"), ("two", ""), (", whole\n", "whole\n"), ("three\n", "")]
    {
        log.write_all(own.as_bytes()).expect("accepted");
        guard.flush(LONG).expect("flushed");
        let mut others = std::fs::File::options().append(true).open(&path).expect("open");
        others.write_all(theirs.as_bytes()).expect("written");
    }
    guard.close().expect("closed");
    let text = std::fs::read_to_string(&path).expect("text");
    assert_eq!(text, "one\nhalf\ntwo, whole\nwhole\nthree\n");
}

/// logrotate has moved the file away, and perhaps made another of its name, when they append to it.
#[test]
fn no_line_goes_behind_the_half_of_somebodys_in_a_file_that_was_moved_away() {
    for (new_file, moved_to, expected) in [
        (None, "a.log.1", "one\nhalf\ntwo\nwhole\nthree\n"),
        (Some(""), "a.log.1", "one\nhalf\ntwo\nwhole\nthree\n"),
        (Some("a longer text of another file\n"), "a.log.1", "one\nhalf\ntwo\nwhole\nthree\n"),
        // It is not checked there.
        (None, "old", "one\nhalf\ntwo\nwhole\n\nthree\n"),
    ] {
        let (_directory, path) = place();
        let (builder, _told) = listening(LogWriter::builder(&path));
        let (mut log, guard) = builder.open().expect("opened");
        let moved = path.with_file_name(moved_to);
        for (own, theirs) in [("one\n", "half"), ("two\n", "whole\n"), ("three\n", "")] {
            log.write_all(own.as_bytes()).expect("accepted");
            guard.flush(LONG).expect("flushed");
            if own == "one\n" {
                std::fs::rename(&path, &moved).expect("moved");
                new_file.inspect(|text| std::fs::write(&path, text).expect("written"));
            }
            let mut others = std::fs::File::options().append(true).open(&moved).expect("open");
            others.write_all(theirs.as_bytes()).expect("written");
        }
        guard.close().expect("closed");
        let text = std::fs::read_to_string(&moved).expect("text");
        assert_eq!(text, expected, "{new_file:?}, {moved_to}");
    }
}

/// The kernel reports a failed sync once, and the next sync is about other lines.
#[test]
fn after_a_failed_sync_no_flush_and_no_close_says_that_its_lines_are_durable() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Works);
    let builder = LogWriter::builder(&path).survive(Survive::PowerLoss(Duration::from_millis(1)));
    let (builder, _told) = listening(builder.flush_every(Duration::from_millis(1)));
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    disk.set(Mood::FailsToSync(EIO));
    log.write_all(b"lost, perhaps\n").expect("accepted");
    wait_until("a failed sync", || log.stats().sync_errors >= 1);
    disk.set(Mood::Works);
    for _ in 0..2 {
        let error = guard.flush(LONG).expect_err("its only sync failed");
        assert!(
            error.to_string().contains("fdatasync") && error.to_string().contains("power loss"),
            "{error}"
        );
        log.write_all(b"later\n").expect("accepted");
    }
    assert!(guard.close().is_err());
    assert!(disk.syncs() >= 2, "what came later is synced all the same");
}

/// What a killed process wrote may never have been synced.
#[test]
fn what_is_there_at_the_start_is_synced_before_it_is_rotated_or_flushed() {
    for rotation in [Rotation::new(), Rotation::new().at_start()] {
        let (_directory, path) = place();
        std::fs::create_dir(path.parent().expect("a directory")).expect("made");
        std::fs::write(&path, "of a killed process\n").expect("written");
        let survive = Survive::PowerLoss(LONG);
        let builder = || LogWriter::builder(&path).survive(survive).rotate(rotation);
        let disk = MoodyDisk::new(Mood::Works);
        let (_log, guard) = builder().open_on(disk.clone()).expect("opened");
        assert_eq!(disk.syncs(), 1, "{rotation:?}");
        guard.close().expect("closed");
        std::fs::write(&path, "of a killed process\n").expect("written");
        let (builder, told) = listening(builder());
        let (log, guard) = builder.open_on(MoodyDisk::new(Mood::FailsToSync(EIO))).expect("opened");
        assert!(guard.flush(LONG).is_err(), "they may be lost");
        assert_eq!(log.stats().sync_errors, 1);
        assert!(guard.close().is_err());
        let told = told.lock().expect("no panic");
        assert!(
            told.iter().filter(|told| told.contains("may not be durable")).count() == 1,
            "{told:?}"
        );
    }
}

#[test]
fn a_forked_child_gets_an_error_and_its_parent_goes_on() {
    let (_directory, path) = place();
    let builder = LogWriter::builder(&path).survive(Survive::Kill).when_full(WhenFull::Block);
    let (log, guard) = builder.open().expect("opened");
    let stop = AtomicBool::new(false);
    let mut guard = Some(guard);
    std::thread::scope(|scope| {
        // So that the lock is held in many of the children.
        let (mut busy, stop) = (log.clone(), &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                busy.write_all(b"busy\n").expect("accepted");
            }
        });
        for _ in 0..20 {
            let code = in_forked_child(|| {
                let is_refused =
                    (&log).write_all(b"child\n").is_err() && log.flush_within(LONG).is_err();
                let is_quiet = log.stats().lines == 0 && log.trouble().is_none();
                log.reopen();
                drop(guard.take());
                u8::from(is_refused && is_quiet)
            });
            assert_eq!(code.expect("a child that does not hang"), 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let guard = guard.expect("the parent's own");
    (&log).write_all(b"parent\n").expect("accepted");
    guard.close().expect("closed");
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(text.ends_with("parent\n") && !text.contains("child"));
}

#[test]
fn a_child_can_open_a_log_of_its_own() {
    let (directory, path) = place();
    let (_log, guard) = LogWriter::builder(&path).open().expect("opened");
    let own = directory.path().join("child.log");
    let code = in_forked_child(|| {
        let (mut log, guard) = LogWriter::builder(&own).open().expect("opened");
        log.write_all(b"child\n").expect("accepted");
        u8::from(guard.close().is_ok())
    });
    assert_eq!(code.expect("a child"), 1);
    assert_eq!(std::fs::read_to_string(&own).expect("text"), "child\n");
    guard.close().expect("closed");
}

#[test]
fn a_rotation_that_fails_is_told_and_lines_go_on() {
    let (directory, path) = place();
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let (builder, told) = listening(builder.rotate(Rotation::new().at_bytes(16 << 10)));
    let (mut log, guard) = builder.open().expect("opened");
    log.write_all(b"first\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    // Its name belongs to another file, which the log must not rename.
    let folder = directory.path().join("logs");
    std::fs::rename(&path, folder.join("moved")).expect("moved");
    std::fs::write(&path, "somebody's\n").expect("written");
    for number in 0..1000 {
        log.write_all(line(0, number, LINE).as_bytes()).expect("accepted");
    }
    guard.close().expect("closed");
    let told = told.lock().expect("no panic");
    assert!(told.iter().all(|told| told.contains("rotated to")), "{told:?}");
    let all: String = std::fs::read_dir(&folder)
        .expect("a directory")
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("text"))
        .collect();
    assert_eq!(all.lines().filter(|line| line.starts_with("thread")).count(), 1000);
    assert_eq!(all.matches("somebody's\n").count(), 1);
}
