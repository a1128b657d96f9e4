//! Rotation, retention, compression, the link, reopening.

mod common;

#[cfg(any(feature = "gzip", feature = "zstd"))]
use std::io::Read as _;
use std::io::Write as _;
#[cfg(any(feature = "gzip", feature = "zstd"))]
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{LONG, all_text, names, place, put, wait_until};
#[cfg(any(feature = "gzip", feature = "zstd"))]
use inkstone_appender::{Compression, Survive};
use inkstone_appender::{Event, Keep, LogWriter, Rotation};

fn numbers_in(text: &str) -> Vec<u64> {
    text.lines()
        .map(|line| line.split(' ').nth(3).expect("four words").parse().expect("a number"))
        .collect()
}

#[test]
fn only_the_newest_files_stay_and_others_are_not_touched() {
    let (directory, path) = place();
    std::fs::write(directory.path().join("a.log.1"), "logrotate's\n").expect("written");
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let builder = builder.rotate(Rotation::new().at_bytes(16 << 10)).keep(Keep::new().files(3));
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..3000);
    guard.flush(LONG).expect("flushed");
    wait_until("three files, the current one and logrotate's", || {
        names(directory.path()).len() == 5
    });
    guard.close().expect("closed");
    assert!(log.stats().rotations >= 20);
    std::fs::remove_file(directory.path().join("a.log.1")).expect("still there");
    let kept = numbers_in(&all_text(directory.path(), "a.log"));
    assert_eq!(
        kept,
        (3000 - kept.len() as u64..3000).collect::<Vec<u64>>(),
        "the newest, without a hole"
    );
}

/// A file of another program has the last possible name, or the one before it.
#[test]
fn a_file_behind_which_there_is_no_name_ends_nothing() {
    for number in [u32::MAX, u32::MAX - 1] {
        let (directory, path) = place();
        let name = |number| directory.path().join(format!("a.log.99991231T235959Z.{number}"));
        std::fs::write(name(number), "").expect("written");
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let theirs = Arc::clone(&told);
        let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
        let builder = builder.rotate(Rotation::new().at_bytes(16 << 10));
        let builder = builder.on_event(move |event: &inkstone_appender::Event<'_>| {
            theirs.lock().expect("no panic").push(event.to_string());
        });
        let (log, guard) = builder.open().expect("opened");
        put(&log, 0..1000);
        guard.flush(LONG).expect("lines go on");
        if number == u32::MAX {
            assert!(log.stats().rotations > 3, "{:?}", log.stats());
        } else {
            let is_told =
                |told: &String| told.contains("no name") && told.contains("99991231T235959Z");
            assert!(told.lock().expect("no panic").iter().any(is_told), "{told:?}");
            std::fs::remove_file(name(number)).expect("removed");
            std::fs::rename(name(u32::MAX), directory.path().join("a.log.20251121T160533Z.0"))
                .expect("moved");
            wait_until("rotations", || {
                put(&log, 1000..1001);
                log.stats().rotations > 1
            });
        }
        guard.close().expect("closed");
        let numbers = numbers_in(&all_text(directory.path(), "a.log"));
        assert_eq!(numbers[..1000], (0..1000).collect::<Vec<u64>>());
    }
}

#[test]
fn time_rotates_an_idle_log_and_an_empty_file_stays() {
    let (directory, path) = place();
    let builder = LogWriter::builder(&path).flush_every(Duration::from_millis(1));
    let (mut log, guard) =
        builder.rotate(Rotation::new().every(Duration::from_secs(1))).open().expect("opened");
    log.write_all(b"one\n").expect("accepted");
    wait_until("a rotation", || names(directory.path()).len() == 2);
    // Nobody writes: no file after it.
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(names(directory.path()).len(), 2);
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 0);
    guard.close().expect("closed");
    assert_eq!(all_text(directory.path(), "a.log"), "one\n");
}

#[test]
fn a_start_rotates_when_asked_or_when_the_file_is_of_an_earlier_day() {
    let (directory, path) = place();
    let open = |rotation| LogWriter::builder(&path).rotate(rotation).open().expect("opened").1;
    let day = Rotation::new().every(Duration::from_secs(86_400));
    std::fs::write(&path, "one\n").expect("written");
    let old = std::time::SystemTime::now() - Duration::from_secs(2 * 86_400);
    std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("open")
        .set_modified(old)
        .expect("made old");
    open(Rotation::new()).close().expect("closed");
    assert_eq!(names(directory.path()).len(), 1);
    open(day).close().expect("closed");
    assert_eq!(names(directory.path()).len(), 2);
    // The current one is empty: nothing to rotate.
    open(day.at_start()).close().expect("closed");
    assert_eq!(names(directory.path()).len(), 2);
    std::fs::write(&path, "two\n").expect("written");
    open(Rotation::new().at_start()).close().expect("closed");
    assert_eq!(names(directory.path()).len(), 3);
    assert_eq!(all_text(directory.path(), "a.log"), "one\ntwo\n");
}

#[test]
fn the_log_is_opened_again_on_request_and_by_a_flag() {
    let (directory, path) = place();
    let flag = Arc::new(AtomicBool::new(false));
    let builder = LogWriter::builder(&path).reopen_when(Arc::clone(&flag));
    let (mut log, guard) = builder.open().expect("opened");
    for (number, by_flag) in [(1, false), (2, true)] {
        log.write_all(format!("{number}\n").as_bytes()).expect("accepted");
        guard.flush(LONG).expect("flushed");
        std::fs::rename(&path, directory.path().join(format!("moved.{number}"))).expect("moved");
        if by_flag {
            flag.store(true, Ordering::Release);
        } else {
            log.reopen();
        }
        wait_until("the file", || path.exists());
    }
    log.write_all(b"3\n").expect("accepted");
    guard.close().expect("closed");
    let text = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("text");
    assert_eq!(
        (text("moved.1"), text("moved.2"), text("a.log")),
        ("1\n".into(), "2\n".into(), "3\n".into())
    );
}

#[cfg(feature = "sighup")]
#[test]
fn a_sighup_opens_the_log_again() {
    let (directory, path) = place();
    let (mut log, guard) = LogWriter::builder(&path).reopen_on_sighup().open().expect("opened");
    log.write_all(b"1\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    std::fs::rename(&path, directory.path().join("moved")).expect("moved");
    let kill =
        std::process::Command::new("kill").args(["-HUP", &std::process::id().to_string()]).status();
    assert!(kill.expect("kill").success());
    wait_until("the file", || path.exists());
    log.write_all(b"2\n").expect("accepted");
    guard.close().expect("closed");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "2\n");
}

#[test]
fn the_link_leads_to_the_file_and_replaces_only_links() {
    let (directory, path) = place();
    let open = || LogWriter::builder(&path).latest("latest").on_event(|_| {}).open();
    for _ in 0..2 {
        let (mut log, guard) = open().expect("opened");
        log.write_all(b"one\n").expect("accepted");
        guard.close().expect("closed");
    }
    let link = directory.path().join("latest");
    assert_eq!(std::fs::read_to_string(&link).expect("text"), "one\none\n");
    std::fs::remove_file(&link).expect("removed");
    std::fs::write(&link, "mine").expect("written");
    let (_log, guard) = open().expect("a link is no reason to take no lines");
    guard.close().expect("closed");
    assert_eq!(std::fs::read_to_string(&link).expect("text"), "mine");
}

#[cfg(any(feature = "gzip", feature = "zstd"))]
fn compressed(compression: Compression, extension: &str, read: fn(&Path) -> String) {
    let (directory, path) = place();
    let builder = LogWriter::builder(&path).buffers_bytes(256 << 10).buffer_bytes(16 << 10);
    let builder = builder.rotate(Rotation::new().at_bytes(64 << 10)).compress(compression);
    let (log, guard) = builder.survive(Survive::Nothing).open().expect("opened");
    put(&log, 0..3000);
    guard.flush(LONG).expect("flushed");
    let rotations = log.stats().rotations;
    assert!(rotations >= 4);
    let is_done = |name: &String| name == "a.log" || name.ends_with(extension);
    wait_until("compressed files", || {
        names(directory.path()).iter().all(is_done)
            && names(directory.path()).len() as u64 == rotations + 1
    });
    guard.close().expect("closed");
    let mut all = String::new();
    let mut files = names(directory.path());
    files.sort_by_key(|name| {
        let mut parts =
            name.trim_start_matches("a.log").trim_end_matches(extension).split('.').skip(1);
        let stamp = parts.next().map_or_else(|| "later".to_owned(), str::to_owned);
        (stamp.starts_with('l'), stamp, parts.next().and_then(|number| number.parse::<u64>().ok()))
    });
    for name in files {
        let path = directory.path().join(&name);
        all += &if name == "a.log" {
            std::fs::read_to_string(path).expect("text")
        } else {
            read(&path)
        };
    }
    assert_eq!(numbers_in(&all), (0..3000).collect::<Vec<u64>>());
}

#[cfg(feature = "gzip")]
#[test]
fn rotated_files_are_compressed_by_gzip() {
    compressed(Compression::Gzip, ".gz", |path| {
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("there");
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
        text
    });
}

#[cfg(feature = "zstd")]
#[test]
fn rotated_files_are_compressed_by_zstd() {
    compressed(Compression::Zstd, ".zst", |path| {
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("there");
        zstd::Decoder::new(file).expect("zstd").read_to_string(&mut text).expect("zstd");
        text
    });
}

/// At full speed, with files that compress slower than they are written. The thread that rotates
/// checks after each rotation.
#[cfg(feature = "gzip")]
#[test]
fn there_are_never_more_files_than_asked_for_however_slow_compressing_is() {
    let (directory, path) = place();
    let folder = directory.path().to_path_buf();
    let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let builder = LogWriter::builder(&path).buffers_bytes(1 << 20).buffer_bytes(64 << 10);
    let builder = builder.rotate(Rotation::new().at_bytes(256 << 10)).keep(Keep::new().files(3));
    let builder = builder.compress(Compression::Gzip).on_event(move |_| {
        let names = names(&folder);
        let rotated: std::collections::BTreeSet<_> = names
            .iter()
            .filter(|name| !name.ends_with(".part"))
            .filter_map(|name| name.strip_prefix("a.log."))
            .map(|name| name.trim_end_matches(".gz"))
            .collect();
        seen.fetch_max(rotated.len(), Ordering::Relaxed);
    });
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..400_000);
    guard.close().expect("closed");
    assert!(log.stats().rotations > 100, "{:?}", log.stats());
    assert_eq!(most.load(Ordering::Relaxed), 3);
}

/// Not with each attempt: as long as lines come it is tried every second.
#[test]
fn a_rotation_that_cannot_be_done_is_told_once() {
    let (directory, path) = place();
    let last = [u32::MAX, u32::MAX - 1].map(|number| format!("a.log.99991231T235959Z.{number}"));
    for name in &last {
        std::fs::write(directory.path().join(name), "").expect("written");
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let builder = builder.rotate(Rotation::new().at_bytes(16 << 10)).on_event(move |event| {
        if matches!(event, Event::HousekeepingFailed(_)) {
            theirs.lock().expect("no panic").push(event.to_string());
        }
    });
    let (log, guard) = builder.open().expect("opened");
    // Long enough for several attempts.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(3500) {
        put(&log, 0..200);
        guard.flush(LONG).expect("lines go on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = told.lock().expect("no panic").clone();
    assert!(told.len() == 1 && told[0].contains("no name after"), "{told:?}");
    for name in &last {
        std::fs::remove_file(directory.path().join(name)).expect("removed");
    }
    wait_until("a rotation", || {
        put(&log, 0..200);
        log.stats().rotations > 0
    });
    guard.close().expect("closed");
}

/// However often it is tried, by any thread.
#[test]
fn a_file_that_cannot_be_removed_is_told_once() {
    let (directory, path) = place();
    let fixed = directory.path().join("a.log.20200101T000000Z.0");
    std::fs::write(&fixed, "old\n").expect("written");
    let change = |how: &str| {
        let done = std::process::Command::new("chattr").arg(how).arg(&fixed).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !change("+i") {
        eprintln!(
            "NOT RUN: a file that cannot be removed: chattr +i needs root and a file system that has it"
        );
        return;
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let builder = LogWriter::builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let builder = builder.rotate(Rotation::new().at_bytes(16 << 10)).keep(Keep::new().files(2));
    let builder = builder.on_event(move |event| {
        if !matches!(event, Event::Rotated { .. }) {
            theirs.lock().expect("no panic").push(event.to_string());
        }
    });
    let (log, guard) = builder.open().expect("opened");
    put(&log, 0..2000);
    guard.close().expect("closed");
    let is_free = change("-i");
    let told = told.lock().expect("no panic").clone();
    assert!(log.stats().rotations > 5 && is_free);
    assert!(told.len() == 1 && told[0].contains("20200101T000000Z"), "{told:?}");
    assert_eq!(names(directory.path()).len(), 4, "the others are removed");
}
