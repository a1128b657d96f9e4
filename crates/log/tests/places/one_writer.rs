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
struct Way {
    name: &'static str,
    /// `saved` is an archive of the log as it was before its writer had it open.
    take: fn(log: &Path, saved: &Path),
    /// The lock file stays the same file, so its lock does, too.
    keeps_the_lock: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "rm", take: |log, _| fs::remove_file(lock(log)).unwrap(), keeps_the_lock: false },
    Way {
        name: "mv",
        take: |log, _| fs::rename(lock(log), log.join("old.lock")).unwrap(),
        keeps_the_lock: false,
    },
    Way {
        name: "cp over it",
        take: |log, saved| {
            run("cp", &[saved.to_str().unwrap(), lock(log).to_str().unwrap()]);
        },
        keeps_the_lock: true,
    },
    Way {
        name: "find -delete",
        take: |log, _| {
            run("find", &[log.to_str().unwrap(), "-name", "*.lock", "-delete"]);
        },
        keeps_the_lock: false,
    },
    Way {
        name: "a restore over the directory",
        take: |log, saved| {
            run("tar", &["-xf", saved.to_str().unwrap(), "-C", log.to_str().unwrap()]);
        },
        keeps_the_lock: false,
    },
];

/// At most one writer acknowledges: no second one gets in beside the first, and the first ends if
/// its lock is lost.
fn loses_its_lock(path: &Path, way: &Way) {
    let how = format!("{}, {}", path.display(), way.name);
    let log = Log::open(path, options()).unwrap();
    log.append_durable(b"before").unwrap();
    log.close().unwrap();
    let saved = path.with_extension("tar");
    run("tar", &["-cf", saved.to_str().unwrap(), "-C", path.to_str().unwrap(), "."]);
    let log = Log::open(path, options()).unwrap();
    for _ in 0..4 {
        log.append_durable(b"a record").unwrap();
    }
    (way.take)(path, &saved);
    let second = Log::open(path, options()).expect_err(&how);
    assert!(matches!(&second, Error::Locked { .. }), "{how}: {second}");
    assert_eq!(second.to_string().contains("directory itself"), !way.keeps_the_lock, "{second}");
    sleep(BETWEEN_LOOKS);
    let mut records = 5;
    if way.keeps_the_lock {
        log.append_durable(b"the writer goes on").expect(&how);
        records += 1;
    } else {
        let error = log.append_durable(b"one too many").expect_err(&how);
        assert!(matches!(error, Error::Poisoned(_)), "{how}: {error}");
        assert!(error.to_string().contains("removed, moved or replaced"), "{how}: {error}");
    }
    assert_eq!(log.durable(), Lsn::new(records), "{how}");
    drop(log);
    let log = Log::open(path, options()).expect(&how);
    log.append_durable(b"the next writer's").unwrap();
    log.close().unwrap();
    let found = Reader::open(path, &options()).unwrap();
    // What was restored is the log as it was then.
    let kept = if way.name.starts_with("a restore") { 1 } else { records };
    assert_eq!(found.records(Lsn::FIRST).count() as u64, kept + 1, "{how}");
}

/// Each way by itself, at the same time.
fn lose_their_locks(below: &Path) {
    std::thread::scope(|scope| {
        for (number, way) in WAYS.iter().enumerate() {
            scope.spawn(move || loses_its_lock(&below.join(format!("log-{number}")), way));
        }
    });
}

#[test]
fn a_lost_lock_file_lets_nobody_in_and_ends_its_writer() {
    lose_their_locks(tempfile::tempdir_in(temporary()).unwrap().path());
}

#[test]
#[ignore = "needs root, mkfs.ext4, mkfs.xfs and mkfs.btrfs"]
fn a_lost_lock_file_on_each_file_system_whose_directory_locks_count() {
    let tools = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];
    if !can_run("a_lost_lock_file_on_each_file_system_whose_directory_locks_count", &tools) {
        return;
    }
    for (kind, mib, args) in [("ext4", 256, EXT4), ("xfs", XFS_MIB, XFS), ("btrfs", 256, BTRFS)] {
        let made = FileSystem::new(kind, mib, args);
        lose_their_locks(made.target());
        made.remove();
    }
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let mount = Mount::new(Path::new("none"), made.path(), "tmpfs", "").unwrap();
    lose_their_locks(made.path());
    mount.unmount().unwrap();
    // A layer of an overlay cannot itself be one.
    let mount = Mount::new(Path::new("none"), made.path(), "tmpfs", "").unwrap();
    let merged = overlay(made.path(), "").unwrap();
    lose_their_locks(merged.target());
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
