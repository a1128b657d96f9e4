//! A lock file that is removed, moved or replaced beside a writer: nobody else gets in where the
//! directory's own lock counts, and the writer acknowledges nothing after a second.
//!
//! *Owns*: directories below cargo's temporary directory and, for one test, mounts, for which it
//! must be root. Where no such lock counts: `simulated/lock_lost.rs`.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::host_support::{BTRFS, EXT4, FileSystem, XFS, XFS_MIB, can_run, run, temporary};
use crate::surroundings::overlay;
use inkstone::{Error, Log, Lsn, Options, Reader};
use inkstone_host::Mount;

/// The lock is looked at once a second.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1100);

fn options() -> Options {
    Options::new().segment_bytes(1 << 20).record_bytes_max(8 << 10)
}

fn lock(log: &Path) -> std::path::PathBuf {
    log.join("inkstone.lock")
}

/// A way in which people and programs take a lock file away.
type Takes = (&'static str, fn(&Path));

const WAYS: [Takes; 4] = [
    ("rm", |log| fs::remove_file(lock(log)).unwrap()),
    ("mv", |log| fs::rename(lock(log), log.join("old.lock")).unwrap()),
    ("find -delete", |log| {
        run("find", &[log.to_str().unwrap(), "-name", "*.lock", "-delete"]);
    }),
    // As a restore does that makes each file beside its name.
    ("a restore", |log| {
        fs::copy(lock(log), log.join("restored")).unwrap();
        fs::rename(log.join("restored"), lock(log)).unwrap();
    }),
];

fn loses_its_lock(path: &Path, (how, take): Takes) {
    let log = Log::open(path, options()).unwrap();
    for _ in 0..5 {
        log.append_durable(b"a record").unwrap();
    }
    take(path);
    let second = Log::open(path, options()).expect_err(how);
    assert!(
        matches!(&second, Error::Locked { .. }) && second.to_string().contains("directory itself"),
        "{how}: {second}"
    );
    sleep(BETWEEN_LOOKS);
    let error = log.append_durable(b"one too many").expect_err(how);
    assert!(matches!(error, Error::Poisoned(_)), "{how}: {error}");
    assert!(error.to_string().contains("removed, moved or replaced"), "{how}: {error}");
    assert_eq!(log.durable(), Lsn::new(5), "{how}");
    drop(log);
    let log = Log::open(path, options()).unwrap();
    log.append_durable(b"the next writer's").unwrap();
    log.close().unwrap();
    let found = Reader::open(path, &options()).unwrap();
    assert_eq!(found.records(Lsn::FIRST).count(), 6, "{how}");
}

#[test]
fn a_lost_lock_file_lets_nobody_in_and_ends_its_writer() {
    for way in WAYS {
        let made = tempfile::tempdir_in(temporary()).unwrap();
        loses_its_lock(&made.path().join("log"), way);
    }
}

#[test]
#[ignore = "needs root, mkfs.xfs and mkfs.btrfs"]
fn a_lost_lock_file_on_each_file_system_whose_directory_locks_count() {
    let tools = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];
    if !can_run("a_lost_lock_file_on_each_file_system_whose_directory_locks_count", &tools) {
        return;
    }
    for (kind, mib, args) in [("ext4", 64, EXT4), ("xfs", XFS_MIB, XFS), ("btrfs", 128, BTRFS)] {
        let made = FileSystem::new(kind, mib, args);
        loses_its_lock(&made.target().join("log"), WAYS[0]);
        made.remove();
    }
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let mount = Mount::new(Path::new("none"), made.path(), "tmpfs", "").unwrap();
    loses_its_lock(&made.path().join("log"), WAYS[0]);
    mount.unmount().unwrap();
    // A layer of an overlay cannot itself be one.
    let mount = Mount::new(Path::new("none"), made.path(), "tmpfs", "").unwrap();
    let merged = overlay(made.path(), "").unwrap();
    loses_its_lock(&merged.target().join("log"), WAYS[0]);
    merged.unmount().unwrap();
    mount.unmount().unwrap();
}

#[test]
fn a_lock_of_the_directory_that_is_held_for_a_moment_is_waited_for() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let path = made.path().join("log");
    Log::open(&path, options()).unwrap().close().unwrap();
    let directory = fs::File::open(&path).unwrap();
    directory.lock().unwrap();
    let error = Log::open(&path, options()).expect_err("locked for longer than a second");
    assert!(matches!(&error, Error::Locked { path: at, .. } if *at == path), "{error}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(200));
            directory.unlock().unwrap();
        });
        Log::open(&path, options()).unwrap().close().unwrap();
    });
    // A reader takes no lock, and needs none.
    directory.lock().unwrap();
    Reader::open(&path, &options()).unwrap();
}

#[test]
fn the_removal_of_its_directory_ends_a_log_that_never_changes_its_segment() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let path = made.path().join("log");
    // Its own thread could prepare a file in the directory while that is being removed.
    let log = Log::open(&path, options().own_thread(false)).unwrap();
    log.append_durable(b"a record").unwrap();
    fs::remove_dir_all(&path).unwrap();
    sleep(BETWEEN_LOOKS);
    let error = log.append_durable(b"one too many").expect_err("removed");
    assert!(error.to_string().contains("its directory was removed"), "{error}");
}
