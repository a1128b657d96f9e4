//! The largest size of a file (`ulimit -f`): a write beyond it raises a signal that ends a process
//! by default, but must not end it here.
//!
//! This program starts itself with such a limit.

mod common;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Mood, MoodyDisk, stage_of, wait_until};
use inkstone_appender::{Builder, LogWriter, Rotation, Survive};
use inkstone_host::in_forked_child;

const VICTIM: &str = "INKSTONE_TEST_WITH_A_LIMIT";
/// Where its stage is.
const MEMORY: &str = "INKSTONE_TEST_MEMORY";
const SHM: &str = "/dev/shm";
/// In the shell's unit, 512 bytes.
const LIMIT: u64 = 128;

fn builder(path: &Path, memory: impl Into<PathBuf>) -> Builder {
    LogWriter::builder(path).stage_directory(memory)
}

fn small(path: &Path, memory: impl Into<PathBuf>) -> Builder {
    let builder = builder(path, memory).buffers_bytes(8 << 10).buffer_bytes(4 << 10);
    builder.flush_every(Duration::from_millis(1)).drain_timeout(Duration::from_millis(50))
}

/// Not a test by itself: the process that is started with a limit.
#[test]
fn victim() {
    let Some(word) = std::env::var_os(VICTIM) else { return };
    let (word, path) =
        word.to_str().and_then(|word| word.split_once(' ')).expect("a word and a path");
    let path = Path::new(path);
    let memory = PathBuf::from(std::env::var_os(MEMORY).expect("a directory"));
    let is_limit = |error: String| {
        assert!(error.contains("os error 27") && error.contains("a.log"), "{error}")
    };
    match word {
        // Reported on a stderr that is too large itself.
        "back-thread" => {
            let (mut log, guard) = small(path, memory).open().expect("opened");
            log.write_all(&[b'x'; 4000]).expect("accepted");
            wait_until("an attempt", || log.stats().write_errors > 0);
            is_limit(log.trouble().expect("it is too large").to_string());
            assert!(guard.close().is_err() && log.stats().unwritten_lines == 1);
        }
        #[cfg(feature = "gzip")]
        "janitor" => {
            let (told, is_told) = std::sync::mpsc::channel();
            let builder = small(path, memory).compress(inkstone_appender::Compression::Gzip);
            let builder = builder.on_event(move |event| drop(told.send(event.to_string())));
            let (_log, guard) = builder.open().expect("opened");
            is_limit(is_told.recv_timeout(common::LONG).expect("told"));
            guard.close().expect("nothing was put");
        }
        "stage" => {
            let error = builder(path, memory).survive(Survive::Kill).open().expect_err("8 MiB");
            is_limit(error.to_string());
        }
        "bringing-back" => {
            let error = small(path, memory)
                .survive(Survive::Kill)
                .open()
                .expect_err("the log is too large");
            is_limit(error.to_string());
        }
        // The file has no room for even one byte; the next one has.
        "rotation" | "bringing-back-rotated" => {
            let builder = small(path, memory)
                .survive(Survive::Kill)
                .rotate(Rotation::new().at_bytes(1 << 30));
            let (mut log, guard) = builder.open().expect("opened");
            log.write_all(b"behind\n").expect("accepted");
            guard.flush(common::LONG).expect("it goes on in the next file");
            guard.close().expect("closed");
            assert_eq!(log.stats().rotations, 1);
            let text = std::fs::read_to_string(path).expect("text");
            assert_eq!(text, if word == "rotation" { "behind\n" } else { "line\nbehind\n" });
        }
        other => panic!("{other}?"),
    }
}

#[test]
fn a_file_that_may_grow_no_more_is_an_error_and_ends_no_process() {
    if !Path::new(SHM).is_dir() {
        eprintln!("NOT RUN: a limit and a stage: there is no {SHM}");
        return;
    }
    let words =
        ["back-thread", "stage", "rotation", "bringing-back-rotated", "bringing-back", "janitor"];
    for word in &words[..words.len() - usize::from(!cfg!(feature = "gzip"))] {
        let word = *word;
        let directory = tempfile::tempdir().expect("a directory");
        let path: PathBuf = directory.path().join("a.log");
        let memory = tempfile::tempdir_in(SHM).expect("a directory in memory");
        let memory = memory.path();
        if word.starts_with("bringing-back") {
            let code = in_forked_child(|| {
                let disk = MoodyDisk::new(Mood::Fails(28));
                let builder = small(&path, memory).survive(Survive::Kill).on_event(|_| {});
                let (mut log, guard) = builder.open_on(disk).expect("opened");
                log.write_all(b"line\n").expect("accepted");
                wait_until("an attempt", || log.stats().write_errors > 0);
                std::mem::forget(guard);
                1
            });
            assert_eq!(code.expect("a child"), 1);
        }
        let full = |path: &Path| {
            let file = std::fs::File::options().append(true).create(true).open(path).expect("open");
            file.set_len(LIMIT * 512).expect("so large");
            file
        };
        if word == "janitor" {
            let bytes: Vec<u8> =
                std::iter::repeat_with(|| fastrand::u8(..)).take(LIMIT as usize * 1024).collect();
            std::fs::write(directory.path().join("a.log.20261121T160533Z.0"), bytes)
                .expect("written");
        } else {
            full(&path);
        }
        let script = format!("ulimit -f {LIMIT} && exec \"$0\" \"$@\"");
        let mut victim = Command::new("sh");
        victim.args(["-c", &script]).arg(std::env::current_exe().expect("this program"));
        victim.args(["--exact", "victim", "--nocapture"]).env(MEMORY, memory);
        victim.env(VICTIM, format!("{word} {}", path.display()));
        let out =
            victim.stdout(Stdio::piped()).stderr(full(&directory.path().join("stderr"))).output();
        let out = out.expect("started");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{word}: signal {:?}: {text}", out.status.signal());
        let stage = stage_of(memory, &path);
        assert_eq!(stage.exists(), word == "bringing-back", "{word}");
        if word == "bringing-back" {
            let (_log, guard) = small(&path, memory).survive(Survive::Kill).open().expect("opened");
            guard.close().expect("closed");
            assert!(std::fs::read(&path).expect("read").ends_with(b"line\n"));
        }
    }
}
