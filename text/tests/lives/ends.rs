//! A file that may not grow any more (`ulimit -f`). Which line goes where then, and what counts as
//! written, is in `random.rs`.
//!
//! This program also starts itself with such a limit: a write beyond it raises a signal that ends a
//! process by default, but must not end it here.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{
    ENOSPC, LONG, MS, Mood, MoodyDisk, SHM, killed, place, quick, say, stages_in, turn, wait_until,
};
use inkstone_appender::{LogWriter, Survive};

const LIMITED: &str = "INKSTONE_TEST_WITH_A_LIMIT";
/// Where its stage is.
const MEMORY: &str = "INKSTONE_TEST_MEMORY";
/// In the shell's unit, 512 bytes.
const LIMIT: u64 = 128;

/// Not a test by itself: the process that is started with a limit.
#[test]
fn limited() {
    let Some(word) = std::env::var_os(LIMITED) else { return };
    let words = word.to_str().and_then(|word| word.split_once(' '));
    let (word, path) = words.map(|(word, path)| (word, Path::new(path))).expect("a word, a path");
    let memory = PathBuf::from(std::env::var_os(MEMORY).expect("a directory"));
    let is_limit = |error: String| {
        assert!(error.contains("os error 27") && error.contains("a.log"), "{error}");
    };
    let builder = LogWriter::builder(path).stage_directory(memory).flush_every(MS);
    let builder = builder.drain_timeout(50 * MS);
    let builder = builder.buffers_bytes(8 << 10);
    match word {
        // Reported on a stderr that is too large itself.
        "output-thread" => {
            let (log, guard) = builder.open().expect("opened");
            say(&log, [b'x'; 4000]);
            wait_until("an attempt", || log.stats().write_errors > 0);
            is_limit(log.trouble().expect("it is too large").to_string());
            assert!(guard.close().is_err() && log.stats().unwritten_lines == 1);
        }
        "bringing-back" => {
            let error = builder.survive(Survive::Kill).open().expect_err("the log is too large");
            is_limit(error.to_string());
        }
        other => panic!("{other}?"),
    }
}

fn put_line(log: &LogWriter) {
    say(log, "line\n");
}

#[test]
fn a_file_that_may_grow_no_more_is_an_error_and_ends_no_process() {
    let Some(_turn) = turn("a limit and a stage") else { return };
    for word in ["output-thread", "bringing-back"] {
        let (directory, path) = place();
        let memory = tempfile::tempdir_in(SHM).expect("a directory in memory");
        let kept = || {
            let builder = quick(&path).0.buffers_bytes(8 << 10);
            builder.survive(Survive::Kill).stage_directory(memory.path())
        };
        if word == "bringing-back" {
            killed(kept(), MoodyDisk::new(Mood::Fails(ENOSPC)), put_line);
        }
        let full = |path: &Path| {
            let file = fs::File::options().append(true).create(true).open(path).expect("open");
            file.set_len(LIMIT * 512).expect("so large");
            file
        };
        full(&path);
        let script = format!("ulimit -f {LIMIT} && exec \"$0\" \"$@\"");
        let mut victim = Command::new("sh");
        victim.args(["-c", &script]).arg(std::env::current_exe().expect("this program"));
        victim.args(["--exact", "ends::limited", "--nocapture"]).env(MEMORY, memory.path());
        victim.env(LIMITED, format!("{word} {}", path.display()));
        victim.stdout(Stdio::piped()).stderr(full(&directory.path().join("stderr")));
        let out = victim.output().expect("started");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{word}: signal {:?}: {text}", out.status.signal());
        let is_left = word == "bringing-back";
        assert_eq!(!stages_in(memory.path()).is_empty(), is_left, "{word}");
        if is_left {
            crate::common::next_start(kept());
            assert!(fs::read(&path).expect("read").ends_with(b"line\n"));
        }
    }
}

/// One call may put several lines of text: a stack trace. More line ends than calls are in the file
/// then, and still the last call is not.
#[test]
fn calls_of_several_line_ends_wait_if_the_file_has_not_all_of_them() {
    let Some(_turn) = turn("a stage") else { return };
    let (_directory, path) = place();
    let memory = tempfile::tempdir_in(SHM).expect("a directory in memory");
    let kept = || quick(&path).0.survive(Survive::Kill).stage_directory(memory.path());
    let disk = MoodyDisk::new(Mood::Stopped);
    let builder = kept().flush_every(LONG).drain_timeout(Duration::ZERO);
    let (log, guard) = builder.open_on(disk.clone()).expect("opened");
    let calls = ["one call\n of three\n lines\n"; 4];
    calls.iter().for_each(|call| say(&log, call));
    disk.set(Mood::FailsHalfway(ENOSPC));
    let error = guard.close().expect_err("it fails").to_string();
    assert!(error.contains("the next opening"), "{error}");
    let stats = log.stats();
    assert!(stats.unwritten_lines > 0 && stats.written_bytes < stats.bytes, "{stats:?}");
    crate::common::next_start(kept()).expect("brought back");
    assert_eq!(fs::read_to_string(&path).expect("read"), calls.concat());
}
