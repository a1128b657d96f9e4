//! A log whose path leads elsewhere while it is open: it continues in the directory that was
//! opened, and touches no other.
//!
//! *Owns*: directories below cargo's temporary directory, and for one test a mount, for which it
//! must be root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::host_support::{not_run, temporary};
use inkstone::{Error, Log, Lsn, Options, Reader};
use inkstone_host::Mount;

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).record_bytes_max(8 << 10).buffer_bytes(16 << 10)
}

fn record(log: u8, lsn: u64) -> Vec<u8> {
    let mut record = vec![log; 5000];
    record.extend(lsn.to_le_bytes());
    record
}

/// Appends so many records of the log `which`: a segment holds twelve.
fn append(log: &Log, which: u8, count: u64) {
    for _ in 0..count {
        let lsn = log.last().get() + 1;
        assert_eq!(log.append_durable(&record(which, lsn)).unwrap().get(), lsn);
    }
}

/// A log of so many records, closed.
fn make(path: &Path, which: u8, count: u64) {
    let log = Log::open(path, options()).unwrap();
    append(&log, which, count);
    log.close().unwrap();
}

/// Opens the log and checks that it holds its records, and so many.
fn check(path: &Path, which: u8, last: u64) {
    let log = Log::open(path, options().create(false)).unwrap();
    check_shown(&log.reader(), which, last);
    log.close().unwrap();
}

fn check_shown(reader: &Reader, which: u8, last: u64) {
    let shown: Vec<_> = reader.records(Lsn::FIRST).map(|record| record.unwrap()).collect();
    assert_eq!(shown.len() as u64, last);
    for (shown, lsn) in shown.iter().zip(1..) {
        assert!(shown.lsn.get() == lsn && shown.bytes == record(which, lsn), "LSN {lsn}");
    }
}

/// Every file of the directory, whole.
fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for (path, bytes) in files(from) {
        fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
    }
}

/// Opens the log `a` at `path`, calls `turn`, after which the path leads to `b`, and continues. `b`
/// and its contents must not change.
fn goes_on_in_its_own(path: &Path, turn: impl FnOnce(), a: &Path, b: &Path) {
    let log = Log::open(path, options()).unwrap();
    append(&log, b'a', 30);
    turn();
    let before = files(b);
    append(&log, b'a', 60);
    log.truncate_before(Lsn::new(20)).unwrap();
    log.truncate_after(Lsn::new(80)).unwrap();
    append(&log, b'a', 60);
    assert_eq!(log.reader().get(Lsn::new(140)).unwrap(), record(b'a', 140));
    log.close().unwrap();
    assert!(files(b) == before, "the other directory was changed");
    let log = Log::open(a, options().create(false)).unwrap();
    let last = log.last().get();
    assert_eq!((log.first().get(), last), (20, 140));
    for shown in log.reader().records(log.first()) {
        let shown = shown.unwrap();
        assert_eq!(shown.bytes, record(b'a', shown.lsn.get()));
    }
    log.close().unwrap();
}

#[test]
fn a_directory_that_is_moved_away_and_a_backup_in_its_place() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let [wal, old, backup] = ["wal", "old", "backup"].map(|name| made.path().join(name));
    make(&backup, b'b', 200);
    let turn = || {
        fs::rename(&wal, &old).unwrap();
        copy(&backup, &wal);
    };
    goes_on_in_its_own(&wal, turn, &old, &wal);
    check(&wal, b'b', 200);
}

#[test]
fn a_reader_follows_the_log_that_it_opened() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let [a, b, link] = ["a", "b", "link"].map(|name| made.path().join(name));
    make(&b, b'b', 200);
    let log = Log::open(&a, options()).unwrap();
    append(&log, b'a', 5);
    symlink(&a, &link).unwrap();
    let reader = Reader::open(&link, &options()).unwrap();
    let mut cursor = reader.from(Lsn::FIRST);
    assert_eq!(cursor.next().unwrap().unwrap().bytes, record(b'a', 1));
    fs::remove_file(&link).unwrap();
    symlink(&b, &link).unwrap();
    append(&log, b'a', 95);
    log.close().unwrap();
    for lsn in 2..=100 {
        let shown = cursor.next_within(std::time::Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((shown.lsn.get(), shown.bytes), (lsn, &record(b'a', lsn)[..]));
    }
    check_shown(&reader, b'a', 100);
}

#[test]
fn a_directory_that_was_removed_is_an_error_that_says_so() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let wal = made.path().join("wal");
    let log = Log::open(&wal, options().own_thread(false)).unwrap();
    append(&log, b'a', 5);
    fs::remove_dir_all(&wal).unwrap();
    fs::create_dir(&wal).unwrap();
    let error =
        (0..30).find_map(|_| log.append_durable(&record(b'a', 0)).err()).expect("no next segment");
    assert!(error.to_string().contains("was removed while it was open"), "{error}");
    drop(log);
    assert_eq!(files(&wal).len(), 0);
}

/// What another program does to a prepared segment.
type Does = (&'static str, fn(&Path));

#[test]
fn a_prepared_segment_that_was_removed_moved_replaced_or_linked_is_not_written() {
    let ways: [Does; 4] = [
        ("rm", |file| fs::remove_file(file).unwrap()),
        ("mv", |file| fs::rename(file, file.with_extension("away")).unwrap()),
        ("a restore", |file| {
            fs::copy(file, file.with_extension("restored")).unwrap();
            fs::rename(file.with_extension("restored"), file).unwrap();
        }),
        ("ln", |file| fs::hard_link(file, file.with_extension("backup")).unwrap()),
    ];
    for (how, meddle) in ways {
        let made = tempfile::tempdir_in(temporary()).unwrap();
        let wal = made.path().join("wal");
        let log = Log::open(&wal, options().own_thread(false)).unwrap();
        append(&log, b'a', 1);
        log.prepare_now().unwrap();
        let prepared = segment(&wal, 2);
        meddle(&prepared);
        let theirs = || {
            let mut all = files(&wal);
            all.retain(|path, _| {
                path.extension().is_some_and(|end| end == "away" || end == "backup")
            });
            all
        };
        let before = theirs();
        append(&log, b'a', 59);
        check_shown(&log.reader(), b'a', 60);
        let after = theirs();
        assert!(before.iter().all(|(path, bytes)| after[path] == *bytes), "{how}: {after:?}");
        drop(log);
        check(&wal, b'a', 60);
    }
}

fn segment(path: &Path, number: u64) -> PathBuf {
    path.join(format!("{number:020}.ink"))
}

#[test]
fn a_file_that_has_the_next_segments_name_stays_and_its_number_is_passed_over() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let other = made.path().join("other");
    make(&other, b'b', 100);
    let strays = [b"somebody's notes".to_vec(), Vec::new(), fs::read(segment(&other, 3)).unwrap()];
    for (stray, is_another_logs) in strays.iter().zip([false, false, true]) {
        let wal = made.path().join(format!("wal-{}", stray.len()));
        let log = Log::open(&wal, options().own_thread(false)).unwrap();
        append(&log, b'a', 5);
        let taken = [segment(&wal, 2), segment(&wal, 3)];
        for path in &taken {
            fs::write(path, stray).unwrap();
        }
        append(&log, b'a', 55);
        for path in &taken {
            assert!(fs::read(path).unwrap() == *stray, "{} was replaced", path.display());
        }
        check_shown(&log.reader(), b'a', 60);
        log.close().unwrap();
        if is_another_logs {
            // Only a person may remove it.
            let error = Log::open(&wal, options()).expect_err("a segment of another log");
            assert!(
                matches!(error, Error::Corrupt(_)) && error.to_string().contains(".ink"),
                "{error}"
            );
            taken.iter().for_each(|path| fs::remove_file(path).unwrap());
        }
        check(&wal, b'a', 60);
    }
}

#[test]
fn a_file_that_has_the_name_of_a_free_one_stays_too() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let wal = made.path().join("wal");
    let log = Log::open(&wal, options().own_thread(false).free_segments_max(9)).unwrap();
    append(&log, b'a', 60);
    let stray = wal.join(format!("{:020}.free", 2));
    fs::write(&stray, b"somebody's notes").unwrap();
    log.truncate_before(Lsn::new(60)).unwrap();
    assert_eq!(fs::read(&stray).unwrap(), b"somebody's notes");
    assert!(!segment(&wal, 2).exists(), "truncated all the same");
    append(&log, b'a', 60);
    log.close().unwrap();
    let log = Log::open(&wal, options()).unwrap();
    assert_eq!((log.first().get(), log.last().get()), (60, 120));
}

#[test]
#[ignore = "needs root"]
fn a_file_system_mounted_over_the_directory() {
    if !inkstone_io::is_root() {
        not_run("a_file_system_mounted_over_the_directory", "it needs root");
        return;
    }
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let [wal, seen] = ["wal", "seen"].map(|name| made.path().join(name));
    make(&wal, b'a', 0);
    let log = Log::open(&wal, options()).unwrap();
    append(&log, b'a', 30);
    let mount = Mount::new(Path::new("none"), &wal, "tmpfs", "").unwrap();
    fs::write(segment(&wal, 4), b"somebody's").unwrap();
    let before = files(&wal);
    append(&log, b'a', 60);
    log.close().unwrap();
    assert!(files(&wal) == before, "the mount was changed");
    mount.unmount().unwrap();
    fs::rename(&wal, &seen).unwrap();
    check(&seen, b'a', 90);
}
