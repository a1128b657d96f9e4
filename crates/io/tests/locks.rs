//! The lock of a directory's file: one holder among handles and among processes, and what the seam
//! says about files.
//!
//! *Owns*: files below cargo's temporary directory, and for some tests a mount, for which it must
//! be root. *May not touch*: the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "../../../lab/host/tests/host_support/mod.rs"]
mod host_support;

use std::fs;
use std::path::Path;

use host_support::{EXT4, FileSystem, can_run, run, temporary};
use inkstone_host::{Mount, Only, Refusal, WorkDir, in_forked_child, refuse};
use inkstone_io::{
    Access, AlignedBuf, Directory, File, OpenFile, OsDirectory, OsFile, SyncKind, Taken,
    WriterLock, fiemap,
};

fn directory() -> (tempfile::TempDir, OsDirectory) {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let directory = OsDirectory::open(made.path()).unwrap();
    (made, directory)
}

fn own_note() -> Option<String> {
    Some(format!("process {}", std::process::id()))
}

#[test]
fn one_handle_of_a_process_has_the_lock_and_dropping_it_gives_it_back() {
    let (made, first) = directory();
    let second = OsDirectory::open(made.path()).unwrap();
    assert_eq!(first.locked_by("lock").unwrap(), None, "no file");
    assert!(!made.path().join("lock").exists(), "asking creates nothing");
    let lock = first.lock("lock").unwrap().unwrap();
    assert_eq!(lock.path(), made.path().join("lock"));
    assert!(first.lock("lock").unwrap().is_none() && second.lock("lock").unwrap().is_none());
    assert_eq!(second.locked_by("lock").unwrap(), own_note());
    // Opening and closing the file elsewhere in the process loses nothing (it would lose a lock of
    // the older kind).
    drop(fs::File::options().read(true).write(true).open(lock.path()).unwrap());
    assert!(second.lock("lock").unwrap().is_none());
    let other = second.lock("other").unwrap().unwrap();
    drop(lock);
    assert_eq!(second.locked_by("lock").unwrap(), None);
    let lock = second.lock("lock").unwrap().unwrap();
    assert!(first.lock("other").unwrap().is_none());
    drop((lock, other));
    assert_eq!(first.list().unwrap(), ["lock", "other"]);
}

/// A security module answers `EACCES`, as SMB does of a lock that another has; seccomp mostly
/// `EPERM`.
#[test]
#[ignore = "needs seccomp filters"]
fn a_process_that_may_take_no_lock_is_not_told_of_another_holder() {
    let (made, directory) = directory();
    let taken = |directory: &OsDirectory| WriterLock::take(directory, "log", None);
    fs::write(made.path().join("log"), "").unwrap();
    for errno in [libc::EACCES, libc::EPERM] {
        for is_held in [false, true] {
            let held =
                is_held.then(|| (directory.lock("lock").unwrap(), taken(&directory).unwrap()));
            let code = in_forked_child(|| {
                let only = Only::With(1, libc::F_OFD_SETLK as u32);
                if refuse(&[Refusal { call: libc::SYS_fcntl, only }], errno).is_err() {
                    return 2;
                }
                let other = OsDirectory::open(made.path()).unwrap();
                u8::from(if is_held && errno == libc::EACCES {
                    matches!(other.lock("lock"), Ok(None))
                        && matches!(taken(&other), Ok(Taken::Others))
                } else {
                    other.lock("lock").is_err_and(|error| error.raw_os_error() == Some(errno))
                        && matches!(taken(&other), Ok(Taken::NoLocks(_)))
                })
            });
            match code.unwrap() {
                2 => {
                    return eprintln!(
                        "NOT RUN: locks that a sandbox refuses: no seccomp filters here"
                    );
                }
                code => assert_eq!(code, 1, "errno {errno}, held: {is_held}"),
            }
            drop(held);
        }
    }
}

#[test]
fn asking_never_makes_a_try_fail() {
    let (made, directory) = directory();
    drop(directory.lock("lock").unwrap().unwrap());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let asking = OsDirectory::open(made.path()).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let holder = asking.locked_by("lock").unwrap();
                    assert!(holder.is_none() || holder == own_note(), "{holder:?}");
                }
            });
        }
        let failed = (0..3000).filter(|_| directory.lock("lock").unwrap().is_none()).count();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(failed, 0);
    });
}

#[test]
fn a_note_that_says_nothing_is_another_process() {
    let (_made, directory) = directory();
    let lock = directory.lock("lock").unwrap().unwrap();
    for (note, words) in [
        ("", "another process"),
        ("\u{1b}[2J\n", "another process"),
        ("process 7 and more\n", "another process"),
        ("process 7\n345\n", "process 7"),
    ] {
        fs::write(lock.path(), note).unwrap();
        assert_eq!(directory.locked_by("lock").unwrap().as_deref(), Some(words));
    }
    // The rest of a longer, older note does not show after ours, nor do the zeros that a power cut
    // may leave.
    drop(lock);
    for left in ["process 7\n345\n", "\0\0\0\0"] {
        fs::write(directory.path().join("lock"), left).unwrap();
        let lock = directory.lock("lock").unwrap().unwrap();
        let note = fs::read_to_string(lock.path()).unwrap();
        let shared_page = note.strip_prefix(&format!("process {}\n", std::process::id())).unwrap();
        assert!(
            shared_page.is_empty() || shared_page.trim_end().parse::<u32>().is_ok(),
            "{note:?}"
        );
    }
}

#[test]
fn a_lock_file_that_is_somebodys_own_is_locked_and_keeps_what_is_in_it() {
    let (_made, directory) = directory();
    let path = directory.path().join("lock");
    for own in [
        "precious\n".to_owned(),
        "process of law\n".into(),
        "process 7\nnotes\n".into(),
        "process 7\n".repeat(50),
        "\0".repeat(200),
    ] {
        fs::write(&path, &own).unwrap();
        let lock = directory.lock("lock").unwrap().unwrap();
        assert_eq!(directory.locked_by("lock").unwrap().as_deref(), Some("another process"));
        assert!(directory.lock("lock").unwrap().is_none(), "it locks all the same");
        drop(lock);
        assert_eq!(fs::read_to_string(&path).unwrap(), own);
    }
}

#[test]
fn what_only_looks_like_a_lock_is_refused() {
    let (made, directory) = directory();
    fs::create_dir(made.path().join("directory")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", made.path().join("link")).unwrap();
    for name in ["directory", "link", "a/b", ""] {
        for error in [directory.lock(name).map(drop), directory.locked_by(name).map(drop)] {
            let error = error.expect_err(name).to_string();
            // No other directory and no other user helps.
            assert!(!error.contains("choose") && !error.contains("ask as"), "{error}");
        }
    }
    let error = OsDirectory::open("/proc").unwrap().lock("lock").unwrap_err().to_string();
    assert!(error.contains("/proc/lock") && error.contains("may write to"), "{error}");
}

#[test]
fn a_file_system_without_fiemap_shares_nothing() {
    let Ok(made) = tempfile::tempdir_in("/dev/shm") else {
        host_support::not_run(
            "a_file_system_without_fiemap_shares_nothing",
            "there is no /dev/shm",
        );
        return;
    };
    let file = OsFile::open(&made.path().join("a"), &OpenFile::new_file()).unwrap();
    assert!(
        fiemap::walk(file.std_file(), file.path(), 0, |_| true).unwrap_err().is_unsupported(),
        "or this shows nothing"
    );
    assert!(!file.facts().unwrap().has_shared_extents);
}

#[test]
fn a_sync_through_a_handle_for_reading_writes_the_dirty_pages() {
    let (_made, directory) = directory();
    let file = directory.open("a", &OpenFile::new_file()).unwrap();
    for (kind, byte) in [(SyncKind::All, 1), (SyncKind::Data, 2)] {
        file.write_at(&[byte; 4096], 0).unwrap();
        let before = dirty_pages(&file);
        directory.open("a", &OpenFile::existing().read_only()).unwrap().sync(kind).unwrap();
        assert_eq!((before, dirty_pages(&file)), (1, 0));
    }
    let past =
        directory.open("a", &OpenFile::existing().access(Access::Direct).read_only()).unwrap();
    let mut bytes = AlignedBuf::zeroed(4096);
    past.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[0], 2);
    past.sync(SyncKind::Data).unwrap();
}

/// The number of `cachestat` on every architecture; it needs Linux 6.5.
const CACHESTAT: libc::c_long = 451;

/// How many pages of the file are dirty.
fn dirty_pages(file: &OsFile) -> u64 {
    use std::os::fd::AsRawFd;
    #[repr(C)]
    #[derive(Default)]
    struct Statistics {
        cached: u64,
        dirty: u64,
        rest: [u64; 3],
    }
    let range = [0_u64, 0];
    let mut found = Statistics::default();
    // SAFETY: the range is two numbers that the call reads, the statistics five that it writes;
    // both live through it.
    let answer = unsafe {
        libc::syscall(CACHESTAT, file.std_file().as_raw_fd(), &raw const range, &raw mut found, 0)
    };
    assert_eq!(answer, 0, "cachestat: {}", std::io::Error::last_os_error());
    found.dirty
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_full_disk_has_its_lock_and_no_room() {
    if !can_run("a_full_disk_has_its_lock_and_no_room", &["mkfs.ext4"]) {
        return;
    }
    let made = FileSystem::new("ext4", 16, EXT4);
    let directory = OsDirectory::open(made.target()).unwrap();
    let before = directory.free_bytes().unwrap();
    assert!(before > 1 << 20 && before < 16 << 20, "{before}");
    let file = directory.open("a", &OpenFile::new_file()).unwrap();
    file.write_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync(SyncKind::All).unwrap();
    let after = directory.free_bytes().unwrap();
    assert!(before - after >= 1 << 20, "{before} {after}");
    // Lock files that were never locked: they have no block for a note.
    let names = ["1", "2", "3", "4", "5", "6", "7", "8"];
    names.iter().for_each(|name| drop(directory.open(name, &OpenFile::new_file()).unwrap()));
    let mut at = 1 << 20;
    // ext4 counts a block twice while it is written back, and refuses a write that has room then.
    let mut fill = || {
        let mut full_at = 0;
        while at > full_at {
            full_at = at;
            for step in [1 << 16, 4096, 1] {
                while file.write_at(&vec![1; step], at).is_ok() {
                    at += step as u64;
                }
            }
            file.sync(SyncKind::All).unwrap();
        }
        assert_eq!(directory.free_bytes().unwrap(), 0);
    };
    // It may also find a block a moment later: then that lock has a note, and the next has none.
    let is_without_note = |name: &&str| {
        fill();
        let _lock = directory.lock(name).unwrap().unwrap();
        assert!(directory.lock(name).unwrap().is_none());
        let who = directory.locked_by(name).unwrap().unwrap();
        assert!(who == "another process" || who == format!("process {}", std::process::id()));
        who == "another process"
    };
    assert!(names.iter().any(is_without_note), "every lock has a note: the disk is never full");
    drop((file, directory));
    made.remove();
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_read_only_mount_can_be_asked_and_synced_until_an_error_made_it_so() {
    let test = "a_read_only_mount_can_be_asked_and_synced_until_an_error_made_it_so";
    if !can_run(test, &["mkfs.ext4", "mount"]) {
        return;
    }
    let made = FileSystem::new("ext4", 16, EXT4);
    let directory = OsDirectory::open(made.target()).unwrap();
    drop(directory.lock("lock").unwrap().unwrap());
    drop(directory.open("a", &OpenFile::new_file()).unwrap());
    directory.sync_file_system().unwrap();
    let target = made.target().to_str().unwrap();
    run("mount", &["-o", "remount,ro", target]);
    let file = directory.open("a", &OpenFile::existing().read_only()).unwrap();
    file.sync(SyncKind::All).unwrap();
    file.sync(SyncKind::Data).unwrap();
    directory.sync().unwrap();
    assert_eq!(directory.locked_by("lock").unwrap(), None);
    assert!(directory.lock("lock").is_err());
    OsDirectory::create(made.target()).unwrap();
    drop(file);
    run("mount", &["-o", "remount,rw", target]);
    // What the error leaves dirty is lost, and a sync through any handle must report it.
    let file = directory.open("a", &OpenFile::existing()).unwrap();
    file.write_at(b"lost", 0).unwrap();
    run("mount", &["-o", "remount,abort", target]);
    let to_read = directory.open("a", &OpenFile::existing().read_only()).unwrap();
    assert!(to_read.sync(SyncKind::Data).is_err() && directory.sync().is_err());
    drop((file, to_read, directory));
    made.remove();
}

#[test]
#[ignore = "needs root"]
fn a_read_only_file_system_that_has_no_sync_is_clean() {
    let test = "a_read_only_file_system_that_has_no_sync_is_clean";
    if !can_run(test, &[]) {
        return;
    }
    let work = WorkDir::create(temporary()).unwrap();
    // procfs, which every kernel has, stands in for squashfs: its files have no sync either.
    for (options, is_clean) in [("ro", true), ("rw", false)] {
        let target = work.path().join(options);
        fs::create_dir(&target).unwrap();
        let mount = Mount::new(Path::new("proc"), &target, "proc", options).unwrap();
        let file =
            OsFile::open(&target.join("version"), &OpenFile::existing().read_only()).unwrap();
        assert_eq!(file.std_file().sync_data().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(file.sync(SyncKind::Data).is_ok(), is_clean, "{options}");
        let directory = OsDirectory::open(&target).unwrap();
        assert_eq!(directory.sync().is_ok(), is_clean, "{options}");
        drop((file, directory));
        mount.unmount().unwrap();
    }
    work.remove().unwrap();
}

#[test]
fn dropping_gives_the_lock_back_though_a_child_still_has_its_descriptor() {
    let (_made, directory) = directory();
    let lock = directory.lock("lock").unwrap().unwrap();
    let path = fs::canonicalize(lock.path()).unwrap();
    let is_ours =
        |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target == path);
    let entry = fs::read_dir("/proc/self/fd").unwrap().flatten().find(is_ours).unwrap();
    let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
    // SAFETY: the lock has it open; a duplicate is what a child has between fork and exec.
    let copy = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }.try_clone_to_owned().unwrap();
    drop(lock);
    assert!(directory.lock("lock").unwrap().is_some());
    drop(copy);
}
