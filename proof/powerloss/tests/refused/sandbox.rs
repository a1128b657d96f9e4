//! A sandbox that refuses one system call (docs/assumptions.md, "A sandbox").
//!
//! *Owns*: the table of the calls that a log makes. *May not touch*: the story (`main.rs`).

use std::io::{PipeReader, Read as _, Write as _};
use std::path::Path;

use inkstone::{Error, Log, Options, Reader};
use inkstone_host::{ForkedChild, Only, Refusal, fork_child, in_forked_child, refuse};

use super::host_support::{not_run, temporary};
use super::{Told, append, check_whole, options};

/// What a call is to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// The log can do without, or has another way.
    Spared,
    /// Without it there is an error, which says what to do.
    Needed,
    /// The same for a writer; a reader reads all the same.
    NeededToWrite,
}

const F_OFD_GETLK: u32 = libc::F_OFD_GETLK as u32;
const F_OFD_SETLK: u32 = libc::F_OFD_SETLK as u32;
const SYS_CACHESTAT: libc::c_long = 451;
/// Without these a reader cannot make sure of something, and says so.
const LEAVES_DOUBTS: [&str; 2] = ["fsync", "fcntl(F_OFD_GETLK)"];

/// The calls that a log makes, but for those without which no program runs (memory, `futex`,
/// reading and writing a pipe, closing, ending). All of them: `strace -f -c` of this test shows no
/// others.
fn calls() -> Vec<(&'static str, libc::c_long, Only, Is)> {
    use Is::{Needed, NeededToWrite, Spared};
    use Only::{All, With, WithBits};
    let mut calls = vec![
        ("openat(O_DIRECT)", libc::SYS_openat, WithBits(2, libc::O_DIRECT as u32), Spared),
        // Its own bit: the other is that of O_DIRECTORY.
        ("openat(O_TMPFILE)", libc::SYS_openat, WithBits(2, 0o20_000_000), Spared),
        ("openat(O_CREAT)", libc::SYS_openat, WithBits(2, libc::O_CREAT as u32), Needed),
        ("pread64", libc::SYS_pread64, All, Needed),
        ("pwrite64", libc::SYS_pwrite64, All, Needed),
        ("pwritev2", libc::SYS_pwritev2, All, Spared),
        ("fsync", libc::SYS_fsync, All, NeededToWrite),
        ("fdatasync", libc::SYS_fdatasync, All, Spared),
        ("ftruncate", libc::SYS_ftruncate, All, Spared),
        ("fallocate", libc::SYS_fallocate, All, Spared),
        ("fallocate(WRITE_ZEROES)", libc::SYS_fallocate, WithBits(1, 0x80), Spared),
        ("fadvise64", libc::SYS_fadvise64, All, Spared),
        ("madvise", libc::SYS_madvise, All, Spared),
        ("mincore", libc::SYS_mincore, All, Spared),
        ("cachestat", SYS_CACHESTAT, All, Spared),
        ("ioctl", libc::SYS_ioctl, All, Spared),
        ("statx", libc::SYS_statx, All, Spared),
        ("fstat", libc::SYS_fstat, All, Needed),
        ("newfstatat", libc::SYS_newfstatat, All, Needed),
        ("fstatfs", libc::SYS_fstatfs, All, Spared),
        ("utimensat", libc::SYS_utimensat, All, Spared),
        ("renameat2", libc::SYS_renameat2, All, Spared),
        ("unlinkat", libc::SYS_unlinkat, All, Needed),
        ("mkdirat", libc::SYS_mkdirat, All, Needed),
        ("getdents64", libc::SYS_getdents64, All, Needed),
        ("fcntl(F_GETFL)", libc::SYS_fcntl, With(1, libc::F_GETFL as u32), Spared),
        ("fcntl(F_SETFL)", libc::SYS_fcntl, With(1, libc::F_SETFL as u32), Spared),
        ("fcntl(F_OFD_GETLK)", libc::SYS_fcntl, With(1, F_OFD_GETLK), Spared),
        ("fcntl(F_OFD_SETLK)", libc::SYS_fcntl, With(1, F_OFD_SETLK), NeededToWrite),
        ("fcntl(F_ADD_SEALS)", libc::SYS_fcntl, With(1, libc::F_ADD_SEALS as u32), Spared),
        ("memfd_create", libc::SYS_memfd_create, All, Spared),
        ("getrandom", libc::SYS_getrandom, All, Needed),
        ("prlimit64", libc::SYS_prlimit64, All, Spared),
        ("sched_yield", libc::SYS_sched_yield, All, Spared),
        ("sched_getaffinity", libc::SYS_sched_getaffinity, All, Spared),
        ("setpriority", libc::SYS_setpriority, All, Spared),
        ("rt_sigprocmask", libc::SYS_rt_sigprocmask, All, Spared),
        ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait, All, Spared),
        ("clone3", libc::SYS_clone3, All, Needed),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        ("readlink", libc::SYS_readlink, All, Spared),
        ("rename", libc::SYS_rename, All, Spared),
        ("clone", libc::SYS_clone, All, Spared),
    ]);
    calls
}

/// Without threads of its own, which would be outside of the sandbox.
fn alone() -> Options {
    options().own_thread(false)
}

/// The story of a child: a log that it has opened before, one of before, a new one; then readers.
fn story(path: &Path, refused: (libc::c_long, Only), errno: i32) -> Told {
    let mut told = Told::default();
    let before = Log::open(path.join("before"), alone()).unwrap();
    refuse(&[Refusal { call: refused.0, only: refused.1 }], errno).unwrap();
    let written = told.write("before", &before, 15);
    told.step("write before", written);
    told.step("close before", before.close());
    drop(before);
    told.open_and_write("before", &path.join("before"), &options(), 3);
    told.open_and_write("killed", &path.join("killed"), &alone(), 15);
    told.open_and_write("new", &path.join("new"), &options(), 15);
    told.read(&path.join("killed"), path);
    told
}

/// Begins the story in a child of its own.
fn begin(path: &Path, refused: (libc::c_long, Only), errno: i32) -> (ForkedChild, PipeReader) {
    let (from, to) = std::io::pipe().unwrap();
    let path = path.to_owned();
    let child = fork_child(move || {
        let mut to = to;
        let panicked = to.try_clone().unwrap();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = writeln!(&panicked, "panic {}", panic.to_string().replace('\n', " "));
        }));
        let told = story(&path, refused, errno);
        let mut text = String::new();
        for (log, last) in &told.acknowledged {
            text.push_str(&format!("acknowledged {log} {last}\n"));
        }
        for (step, error) in &told.refused {
            text.push_str(&format!("refused {step}: {}\n", error.replace('\n', " ")));
        }
        for doubt in &told.doubts {
            text.push_str(&format!("doubt {}\n", doubt.replace('\n', " ")));
        }
        u8::from(to.write_all(text.as_bytes()).is_err())
    })
    .unwrap();
    (child, from)
}

/// What a child has told.
fn told_by(child: ForkedChild, mut from: PipeReader) -> Result<Told, String> {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    let code = child.wait().map_err(|why| format!("{why}; {text}"))?;
    let mut told = Told::default();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("acknowledged", rest)) => {
                let (log, last) = rest.split_once(' ').unwrap();
                told.acknowledged.push((log.into(), last.parse().unwrap()));
            }
            Some(("refused", rest)) => {
                let (step, error) = rest.split_once(": ").unwrap();
                told.refused.push((step.into(), error.into()));
            }
            Some(("doubt", doubt)) => told.doubts.push(doubt.into()),
            _ => return Err(line.to_owned()),
        }
    }
    if code == 0 { Ok(told) } else { Err(format!("it ended with {code}: {text}")) }
}

#[test]
fn each_call_of_a_log_that_a_sandbox_refuses_has_a_substitute_or_an_error_that_says_what_to_do() {
    let test = "each_call_of_a_log_that_a_sandbox_refuses";
    let can = in_forked_child(|| {
        u8::from(
            refuse(&[Refusal { call: libc::SYS_getpriority, only: Only::All }], libc::EPERM)
                .is_ok(),
        )
    });
    if can.unwrap() != 1 {
        not_run(test, "this kernel has no seccomp filters");
        return;
    }
    let of_a_killed = tempfile::tempdir_in(temporary()).unwrap();
    let killed = Log::open(of_a_killed.path(), alone()).unwrap();
    append(&killed, 20);
    killed.abandon();
    let mut faults = Vec::new();
    for (name, call, which, is) in calls() {
        // All at the same time: most of it is waiting for the disk.
        let children = [libc::ENOSYS, libc::EPERM, libc::EOPNOTSUPP, libc::EINVAL].map(|errno| {
            let made = tempfile::tempdir_in(temporary()).unwrap();
            std::fs::create_dir(made.path().join("killed")).unwrap();
            for file in std::fs::read_dir(of_a_killed.path()).unwrap().map(Result::unwrap) {
                std::fs::copy(file.path(), made.path().join("killed").join(file.file_name()))
                    .unwrap();
            }
            let begun = begin(made.path(), (call, which), errno);
            (errno, made, begun)
        });
        for (errno, made, (child, from)) in children {
            let path = made.path();
            let mut fault = |what: String| faults.push(format!("{name} with {errno}: {what}"));
            let told = match told_by(child, from) {
                Ok(told) => told,
                Err(why) => {
                    fault(why);
                    continue;
                }
            };
            for (step, error) in &told.refused {
                // Every error says what to do, behind a semicolon or in brackets.
                let is_reading = ["reader", "records", "get", "verify", "dump"].contains(&&**step);
                let is_spared = is == Is::Spared || is == Is::NeededToWrite && is_reading;
                if is_spared || !(error.contains("; ") || error.contains('(')) {
                    fault(format!("{step}: {error}"));
                }
            }
            if LEAVES_DOUBTS.contains(&name) && told.doubts.is_empty() {
                fault("a reader has no doubt".to_owned());
            }
            for (log, least) in [("before", 0), ("killed", 20), ("new", 0)] {
                let last = told.last(log).max(if told.last(log) == 0 { least } else { 0 });
                check_whole(&path.join(log), last);
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// A security module (SELinux) answers `EACCES` to who may not even ask for the holder of a lock.
#[test]
fn who_may_not_ask_who_holds_the_lock_reads_and_is_refused_as_a_second_writer() {
    let made = tempfile::tempdir_in(temporary()).unwrap();
    let writer = Log::open(made.path(), alone()).unwrap();
    append(&writer, 20);
    for errno in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        let code = in_forked_child(|| {
            let only = Only::With(1, F_OFD_GETLK);
            if refuse(&[Refusal { call: libc::SYS_fcntl, only }], errno).is_err() {
                return 0;
            }
            let read = Reader::open(made.path(), &options()).map(|reader| reader.durable().get());
            let opened = Log::open(made.path(), alone());
            1 + u8::from(matches!(read, Ok(20)))
                + 2 * u8::from(matches!(opened, Err(Error::Locked { .. })))
        });
        match code.unwrap() {
            0 => return not_run("who_may_not_ask_who_holds_the_lock", "no seccomp filters here"),
            code => assert_eq!(code, 4, "{errno}: it reads 1, it is told of a writer 2"),
        }
    }
}
