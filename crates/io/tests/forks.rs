//! Forks: a child changes nothing of its parent's, and keeps no lock that its parent does not have
//! any more.
//!
//! *Owns*: files below cargo's temporary directory, and processes that it starts and ends. *May not
//! touch*: the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "../../../lab/host/tests/host_support/mod.rs"]
mod host_support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host_support::temporary;
use inkstone_host::{Signal, alone, in_forked_child, signal_group};
use inkstone_io::{
    Directory, Error, File, Job, OpenFile, OsDirectory, OsFile, Pool, Preparation, Result,
    SyncKind, start_thread,
};

const PARENT: &str = "INKSTONE_TEST_FORKS_IN";
const LOCKS: usize = 150;

fn directory() -> (tempfile::TempDir, OsDirectory) {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let directory = OsDirectory::open(made.path()).unwrap();
    (made, directory)
}

fn is_forked<T>(answer: Result<T>) -> bool {
    answer.err().as_ref().is_some_and(Error::is_forked)
}

#[test]
fn a_child_is_refused_every_change_and_reads_on() {
    let (made, directory) = directory();
    let file = directory.open("a", &OpenFile::new_file()).unwrap();
    file.write_at(b"parent", 0).unwrap();
    let lock = directory.lock("lock").unwrap().unwrap();
    assert!(!directory.is_forked() && !file.is_forked());
    let mut lock = Some(lock);
    let child = in_forked_child(|| {
        let refused = [
            is_forked(file.write_at(b"child", 0)),
            is_forked(file.write_dsync(b"child", 0)),
            is_forked(file.sync(SyncKind::All)),
            is_forked(file.set_len(1)),
            is_forked(file.prepare(Preparation::Zeros, 4096)),
            is_forked(file.prepare(Preparation::Fallocate, 4096)),
            is_forked(file.check_takes_changes()),
            is_forked(directory.rename("a", "b")),
            is_forked(directory.rename_new("a", "b")),
            is_forked(directory.remove("a")),
            is_forked(directory.sync()),
            is_forked(directory.sync_file_system()),
            is_forked(directory.open("c", &OpenFile::new_file())),
            is_forked(directory.open("a", &OpenFile::existing())),
            is_forked(directory.lock("lock")),
            is_forked(directory.lock("other")),
        ];
        let mut bytes = [0; 6];
        let reads = [
            directory.is_forked() && file.is_forked(),
            file.read_at(&mut bytes, 0).is_ok() && bytes == *b"parent",
            directory.open("a", &OpenFile::existing().read_only()).is_ok(),
            directory.list().is_ok_and(|names| names == ["a", "lock"]),
        ];
        drop(lock.take());
        // What it opens itself is its own; the lock is still its parent's.
        let own = OsDirectory::open(made.path()).unwrap();
        let is_its_own =
            own.open("own", &OpenFile::new_file()).is_ok_and(|file| file.write_at(b"x", 0).is_ok());
        let is_locked = own.lock("lock").is_ok_and(|lock| lock.is_none());
        let wrong = refused.iter().chain(&reads).position(|is_so| !is_so);
        wrong.map_or(u8::from(!is_its_own) * 100 + u8::from(!is_locked) * 50, |at| at as u8 + 1)
    });
    assert_eq!(child.unwrap(), 0, "the number of the first that was wrong");
    let other = OsDirectory::open(made.path()).unwrap();
    assert!(other.lock("lock").unwrap().is_none(), "the child gave it back");
    drop(lock);
    assert!(other.lock("lock").unwrap().is_some());
    assert_eq!(fs::read(made.path().join("a")).unwrap(), b"parent");
}

/// Reads a block of a file.
struct Read(Arc<OsFile>);

impl Job for Read {
    fn carry_out(&mut self) -> Result<usize> {
        self.0.read_at(&mut [0; 4096], 0)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

#[test]
fn a_childs_pool_refuses_and_does_not_hang() {
    if !alone("a_childs_pool_refuses_and_does_not_hang") {
        return;
    }
    let (_made, directory) = directory();
    let file = Arc::new(directory.open("a", &OpenFile::new_file()).unwrap());
    file.write_at(&[7; 4096], 0).unwrap();
    let read = |pool: &mut Pool<Read>| {
        pool.submit(Read(Arc::clone(&file)))?;
        pool.complete()?.unwrap().1
    };
    for threads in [0, 4] {
        let mut pool = Pool::open(threads).unwrap();
        assert_eq!(read(&mut pool).unwrap(), 4096);
        let mut pool = Some(pool);
        let child = in_forked_child(|| {
            let mut parents = pool.take().unwrap();
            let answer = read(&mut parents);
            drop(parents);
            // A pool of its own reads what its parent has opened.
            let mut own = Pool::open(threads).unwrap();
            let has_read = read(&mut own).is_ok_and(|read| read == 4096);
            u8::from(is_forked(answer)) + 2 * u8::from(has_read)
        });
        // Without threads there is nothing that a child lacks.
        assert_eq!(child.unwrap(), 2 + u8::from(threads > 0));
        assert_eq!(read(&mut pool.take().unwrap()).unwrap(), 4096);
    }
}

/// A thread that starts holds a lock of the standard library for a moment, and a child that is
/// forked in that moment can start no thread. On one processor a new thread has not run at all when
/// its starter goes on, unless that waits for it.
#[test]
fn a_thread_of_ours_has_begun_when_its_starter_goes_on() {
    let test = "a_thread_of_ours_has_begun_when_its_starter_goes_on";
    if !alone(test) {
        return;
    }
    // SAFETY: the set is zeros, which is a value of it, and lives through the call.
    let is_set = unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut one);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one)
    };
    assert_eq!(is_set, 0);
    let threads = || -> BTreeSet<_> {
        fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path()).collect()
    };
    for _ in 0..100 {
        let before = threads();
        let (_end, waits) = std::sync::mpsc::channel::<()>();
        start_thread("begins", move || waits.recv()).unwrap();
        let new = threads().difference(&before).next().expect("it lives").join("schedstat");
        // The last number: how often it has had the processor.
        let told = fs::read_to_string(new).unwrap();
        assert_ne!(told.split_whitespace().last(), Some("0"), "it has not begun");
    }
}

/// Makes a child that sleeps until it is killed.
fn fork_one_that_lives_on() {
    // SAFETY: the child only sleeps and ends, which any child of a process with threads may do.
    unsafe {
        if libc::fork() == 0 {
            libc::sleep(120);
            libc::_exit(0);
        }
    }
}

/// Run by [`started`], and killed.
#[test]
fn parent_takes_locks_and_forks() {
    let Some(path) = std::env::var_os(PARENT) else { return };
    let directory = OsDirectory::open(path).unwrap();
    let first = directory.lock("first").unwrap().unwrap();
    let stop = AtomicBool::new(false);
    let locks = std::thread::scope(|scope| {
        // Some are taken while this forks.
        let taker = scope.spawn(|| {
            let take = |number: usize| directory.lock(&format!("lock{number}")).unwrap().unwrap();
            // Dropped ones leave nothing behind that a later one could be taken for.
            (0..LOCKS).for_each(|number| drop(take(number)));
            let locks: Vec<_> = (0..LOCKS).map(take).collect();
            stop.store(true, Ordering::Relaxed);
            locks
        });
        for _ in 0..40 {
            fork_one_that_lives_on();
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        taker.join().unwrap()
    });
    fork_one_that_lives_on();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(120));
    drop((first, locks));
}

fn started(directory: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "parent_takes_locks_and_forks", "--nocapture"])
        .env(PARENT, directory)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(std::result::Result::ok).find(|line| line == "ready").unwrap();
    child
}

#[test]
fn a_lock_dies_with_its_owner_though_children_live_on() {
    let (made, directory) = directory();
    let mut parent = started(made.path());
    assert!(directory.lock("first").unwrap().is_none());
    assert_eq!(directory.locked_by("first").unwrap(), Some(format!("process {}", parent.id())));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let names = (0..LOCKS).map(|number| format!("lock{number}")).chain(["first".to_owned()]);
    let mut kept: Vec<_> = names.collect();
    // A child that has not returned from fork yet still holds it.
    let until = Instant::now() + Duration::from_secs(20);
    while !kept.is_empty() && Instant::now() < until {
        kept.retain(|name| directory.lock(name).unwrap().is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    // The children are there, or this showed nothing.
    signal_group(parent.id(), Signal::Kill).expect("children that live on");
    assert!(kept.is_empty(), "children keep {kept:?}");
}

/// Takes a lock of this kind on the whole file, or gives it back.
fn take(file: &fs::File, command: libc::c_int, kind: libc::c_int) {
    // SAFETY: zeros are a value of the structure, which is integers only; it lives through the
    // call, which only reads it.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = kind as libc::c_short;
        assert_eq!(libc::fcntl(file.as_raw_fd(), command, &raw const lock), 0);
    }
}

#[test]
fn a_lock_that_no_log_takes_is_told_as_what_it_is() {
    let (made, directory) = directory();
    drop(directory.lock("lock").unwrap().unwrap());
    let path = made.path().join("lock");
    let reading = fs::File::open(&path).unwrap();
    take(&reading, libc::F_OFD_SETLK, libc::F_RDLCK);
    assert!(directory.lock("lock").unwrap().is_none());
    let who = directory.locked_by("lock").unwrap().unwrap();
    // The note is there, and is not the holder's.
    assert!(
        who.starts_with("another process")
            && who.contains("a read lock on")
            && who.contains("lslocks"),
        "{who}"
    );
    // Not by closing it: a child that another test forks at this moment has it open too.
    take(&reading, libc::F_OFD_SETLK, libc::F_UNLCK);
    assert_eq!(directory.locked_by("lock").unwrap(), None);
    // A traditional record lock belongs to a process, and the kernel reports which.
    let child = in_forked_child(|| {
        let file = fs::File::open(&path).unwrap();
        take(&file, libc::F_SETLK, libc::F_RDLCK);
        let mine = std::process::id();
        let told = in_forked_child(|| {
            let who = OsDirectory::open(made.path()).unwrap().locked_by("lock").unwrap().unwrap();
            u8::from(who.starts_with(&format!("process {mine}, which is not a writer")))
        });
        told.unwrap()
    });
    assert_eq!(child.unwrap(), 1);
}

#[test]
fn what_is_no_plain_file_is_refused_at_once() {
    let (made, directory) = directory();
    let pipe = std::ffi::CString::new(made.path().join("pipe").to_str().unwrap()).unwrap();
    // SAFETY: the path is a string that ends with 0 and lives through the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    drop(directory.open("file", &OpenFile::new_file()).unwrap());
    std::os::unix::fs::symlink("file", made.path().join("link")).unwrap();
    fs::create_dir(made.path().join("directory")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(made.path().join("socket"));
    for how in [OpenFile::existing(), OpenFile::existing().read_only()] {
        for (name, word) in
            [("pipe", "a pipe"), ("link", "a symbolic link"), ("directory", "irectory")]
        {
            let error = directory.open(name, &how).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(name), "{error}");
        }
        assert!(directory.open("socket", &how).is_err());
        let file = directory.open("file", &how).unwrap();
        // It was asked for without waiting, and is not used so.
        let flags = rustix::fs::fcntl_getfl(file.descriptor()).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    }
    assert_eq!(directory.plain_files().unwrap(), ["file"]);
    assert_eq!(directory.list().unwrap(), ["directory", "file", "link", "pipe", "socket"]);
}
