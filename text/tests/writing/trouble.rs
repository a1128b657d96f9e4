//! Disks that fail: events report it, lines are kept within the policy, writing continues by
//! itself. And forks.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{
    EIO, ENOSPC, Hooked, LINE, LONG, MS, Mood, MoodyDisk, error, has_lines, line, names, put,
    quick, read, say, small, wait_until,
};
use inkstone_appender::{LogWriter, Rotation, Survive};
use inkstone_host::in_forked_child;

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("logs/a.log");
    (directory, path)
}

#[test]
fn a_full_disk_and_a_broken_one_are_told_once_and_lines_follow_when_it_works_again() {
    for mood in
        [Mood::Fails(ENOSPC), Mood::Fails(EIO), Mood::FailsHalfway(ENOSPC), Mood::FailsHalfway(EIO)]
    {
        let (_directory, path) = place();
        let disk = MoodyDisk::new(mood);
        let (builder, told) = quick(&path);
        let (log, guard) = builder.open_on(disk.clone()).expect("opened");
        put(&log, 0..100);
        wait_until("three attempts", || log.stats().write_errors >= 3);
        assert!(log.trouble().is_some() && log.stats().written_lines == 0);
        assert_eq!(told.all().len(), 1, "told once, not with every attempt");
        let error = log.flush_within(MS).expect_err("it fails").to_string();
        assert!(error.contains("append") && error.contains("a.log"), "{error}");
        disk.set(Mood::Works);
        guard.flush(LONG).expect("by itself");
        assert!(log.trouble().is_none());
        guard.close().expect("closed");
        has_lines(&read(&path), 0..100);
        assert!(told.all().len() == 2 && told.count("written again") == 1, "{told:?}");
    }
}

#[test]
fn a_directory_that_vanishes_and_comes_again() {
    let (directory, path) = place();
    let (builder, told) = quick(&path);
    let (log, guard) = builder.open().expect("opened");
    say(&log, "before\n");
    guard.flush(LONG).expect("flushed");
    let folder = directory.path().join("logs");
    fs::remove_dir_all(&folder).expect("removed");
    say(&log, "meanwhile\n");
    wait_until("an attempt", || log.stats().write_errors >= 2);
    assert!(!folder.exists(), "it is not ours to make: something may be mounted there");
    fs::create_dir(&folder).expect("made again");
    guard.flush(LONG).expect("by itself");
    assert_eq!(read(&path), "meanwhile\n");
    guard.close().expect("closed");
    assert!(told.all()[0].contains("open log"), "{told:?}");
}

/// As a server of files that was started again, or a disk that was mounted afresh: the file that was
/// open is of no use any more.
#[test]
fn a_disk_that_is_gone_is_found_by_its_path_when_the_log_is_reopened() {
    const ENOTCONN: i32 = 107;
    let (directory, path) = place();
    let is_gone = Arc::new(AtomicBool::new(false));
    let (appending, opening) = (Arc::clone(&is_gone), Arc::clone(&is_gone));
    let disk = Hooked::appending(move |file, bytes| {
        if appending.load(Ordering::Relaxed) { Err(error(ENOTCONN)) } else { file.append(bytes) }
    });
    let disk = disk.opening(move |_, _| {
        opening.store(false, Ordering::Relaxed);
        Ok(())
    });
    let (builder, told) = quick(&path);
    let (log, guard) = builder.open_on(disk).expect("opened");
    say(&log, "before\n");
    guard.flush(LONG).expect("flushed");
    is_gone.store(true, Ordering::Relaxed);
    let [folder, old] = ["logs", "old"].map(|name| directory.path().join(name));
    fs::rename(&folder, &old).expect("moved");
    fs::create_dir(&folder).expect("made");
    say(&log, "meanwhile\n");
    wait_until("an attempt", || log.stats().write_errors >= 2);
    assert_eq!(names(&folder), [""; 0], "nobody has said what is there");
    log.reopen();
    guard.flush(LONG).expect("it was told");
    guard.close().expect("closed");
    let texts = [path, old.join("a.log")].map(|path| read(&path));
    assert_eq!(texts, ["meanwhile\n", "before\n"]);
    assert_eq!(told.count("written again"), 1, "{told:?}");
}

/// Neither one that waits when the closing gives up, nor a later one.
#[test]
fn no_flush_says_that_lines_are_written_that_the_closing_gave_up() {
    // What was given up stays in the stage.
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    for survive in [Survive::Nothing, Survive::PowerLoss(MS)] {
        let (_directory, path) = place();
        let disk = MoodyDisk::new(Mood::Works);
        let builder = quick(&path).0.stage_directory(memory.path()).survive(survive);
        let builder = builder.drain_timeout(200 * MS);
        let (log, guard) = builder.open_on(disk.clone()).expect("opened");
        say(&log, "written\n");
        guard.flush(LONG).expect("flushed");
        disk.set(Mood::Fails(ENOSPC));
        say(&log, "given up\n");
        wait_until("an attempt", || log.stats().write_errors > 0);
        let fails = || {
            let error = log.flush_within(LONG).expect_err("they are not in the file");
            assert!(error.to_string().contains("append"), "{survive:?}: {error}");
        };
        std::thread::scope(|scope| {
            scope.spawn(fails);
            assert!(guard.close().is_err());
        });
        fails();
        assert_eq!(log.stats().unwritten_lines, 1);
        assert_eq!(read(&path), "written\n");
    }
}

#[test]
fn writers_that_wait_when_a_failing_log_is_closed_get_an_error() {
    let (_directory, path) = place();
    let builder = quick(&path).0.buffers_bytes(8 << 10).drain_timeout(MS);
    let (log, guard) = builder.open_on(MoodyDisk::new(Mood::Fails(EIO))).expect("opened");
    std::thread::scope(|scope| {
        for bytes in [LINE, LINE, 8000, 5000] {
            let mut log = log.clone();
            scope.spawn(move || while log.write_all(line(0, 0, bytes).as_bytes()).is_ok() {});
        }
        scope.spawn(|| {
            let mut stream = log.begin_stream().expect("begun");
            while stream.put(&[b'x'; 3000], 0).is_ok() {}
        });
        wait_until("five that wait", || log.stats().waits >= 5);
        assert!(guard.close().is_err());
    });
}

#[test]
fn a_power_loss_log_is_synced_and_a_failed_sync_is_told() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Works);
    let (builder, told) = quick(&path);
    let builder = builder.survive(Survive::PowerLoss(5 * MS));
    let (log, guard) = builder.open_on(disk.clone()).expect("opened");
    say(&log, "one\n");
    wait_until("a sync by itself", || disk.syncs() >= 1);
    say(&log, "two\n");
    let before = disk.syncs();
    guard.flush(LONG).expect("flushed");
    assert!(disk.syncs() > before || log.stats().written_lines == 2, "a flush is a sync");
    disk.set(Mood::FailsToSync(EIO));
    say(&log, "three\n");
    wait_until("a failed sync", || told.count("may not be durable") > 0);
    let failed = disk.syncs();
    std::thread::sleep(30 * MS);
    assert_eq!(disk.syncs(), failed, "it is not tried again");
    // The kernel reports a failed sync once, and the next sync is about other lines.
    disk.set(Mood::Works);
    for _ in 0..2 {
        let error = guard.flush(LONG).expect_err("its only sync failed").to_string();
        assert!(error.contains("fdatasync") && error.contains("power loss"), "{error}");
        say(&log, "later\n");
    }
    assert!(guard.close().is_err(), "not everything is durable");
    assert!(disk.syncs() > failed, "what came later is synced all the same");
}

#[test]
fn a_forked_child_gets_an_error_and_its_parent_goes_on() {
    let (_directory, path) = place();
    let builder = LogWriter::builder(&path).survive(Survive::Kill);
    let (log, guard) = builder.open().expect("opened");
    let stop = AtomicBool::new(false);
    let mut guard = Some(guard);
    std::thread::scope(|scope| {
        // So that the lock is held in many of the children.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                say(&log, "busy\n");
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
    say(&log, "parent\n");
    guard.expect("the parent's own").close().expect("closed");
    let text = read(&path);
    assert!(text.ends_with("parent\n") && !text.contains("child"));
}

/// The log's name belongs to another file, which the log must not rename.
#[test]
fn a_file_that_somebody_has_put_there_is_not_rotated_and_lines_go_on_in_it() {
    let (directory, path) = place();
    let (builder, told) = quick(&path);
    let builder = small(builder).rotate(Rotation::new().at_bytes(16 << 10));
    let (log, guard) = builder.open().expect("opened");
    say(&log, "first\n");
    guard.flush(LONG).expect("flushed");
    let folder = directory.path().join("logs");
    fs::rename(&path, folder.join("moved")).expect("moved");
    fs::write(&path, "somebody's\n").expect("written");
    put(&log, 0..1000);
    guard.close().expect("closed");
    assert_eq!(told.all(), [""; 0]);
    let all: String = names(&folder).iter().map(|name| read(&folder.join(name))).collect();
    assert_eq!(all.lines().filter(|line| line.starts_with("thread")).count(), 1000);
    assert_eq!(all.matches("somebody's\n").count(), 1);
}
