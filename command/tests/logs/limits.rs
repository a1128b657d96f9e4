//! Narrow surroundings: a limit on the size of files (`ulimit -f`, `LimitFSIZE=`), which acts like
//! a full disk and ends no command by a signal, and a container that allows few threads
//! (`pids.max`).
//!
//! *Owns*: the limits, and the commands under them. *May not touch*: what a reader shows otherwise.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{
    Words as _, damage, directory, fed, good, in_bash, line, lines, not_run, run, said, segments,
    text,
};

/// Runs a command under a limit of this many KiB, without a core; stdout may be a file.
fn limited(at: &Path, kib: u32, arguments: &str, into_file: bool, input: &[u8]) -> Output {
    let mut command = in_bash(&format!("ulimit -c 0; ulimit -f {kib}"));
    command.args(arguments.words()).current_dir(at);
    if into_file {
        command.stdout(std::fs::File::create(at.join("shown")).expect("a file"));
    }
    fed(command.spawn().expect("bash runs"), input)
}

/// Ended by itself with this code, and stderr says why.
fn ended(what: &str, output: &Output, code: i32) {
    let told = said(output);
    // A shell returns 128 + 25 for a command that SIGXFSZ has ended.
    assert_eq!(
        (output.status.signal(), output.status.code()),
        (None, Some(code)),
        "{what}: {told}"
    );
    assert!(told.to_lowercase().contains("file too large"), "{what}: {told}");
}

#[test]
fn what_cannot_be_written_is_an_error_of_the_command() {
    let directory = directory();
    let at = directory.path();
    let all = lines(1..=20_000, "");
    good(at, "append log -q --segment-size 1MiB", &all);
    good(at, "copy log corrupt", b"");
    damage(&segments(&at.join("corrupt"))[0], &line(10, ""));
    // The output was not written, whatever it was.
    for line in ["cat log", "verify log", "verify corrupt", "info log", "dump log", "get log 1"] {
        ended(line, &limited(at, 0, line, true, b""), 2);
    }
    for line in ["append new -q", "copy log copied", "salvage corrupt saved"] {
        ended(line, &limited(at, 8, line, false, &all), 1);
    }
    for name in ["copied", "saved"] {
        assert!(segments(&at.join(name)).is_empty(), "{name}");
    }
    // And the existing log is as before.
    good(at, "verify log", b"");
    let output = limited(at, 8, "lab write --quiet --rounds 1 --size 64KiB", false, b"");
    assert!(
        output.status.code() == Some(1) && text(&output.stdout).contains("File too large"),
        "{output:?}"
    );
}

#[test]
fn a_program_that_a_command_starts_has_the_default_again() {
    let directory = directory();
    let at = directory.path();
    // Bit 24 is SIGXFSZ, number 25.
    let writer =
        format!(": {{dir}}; grep SigIgn /proc/self/status >{}/child; exit 1", at.display());
    let any = ["powerloss", "any", "--reader", ": {dir}", "--rounds", "1", "--writer", &writer];
    run(at, &any);
    let child = std::fs::read_to_string(at.join("child")).expect("the writer ran");
    let ignored = child.trim().strip_prefix("SigIgn:").expect("a mask").trim();
    let ignored = u64::from_str_radix(ignored, 16).expect("a number");
    assert_eq!(ignored & 1 << 24, 0, "{child}");
}

/// A group of processes with a limit; `None` where there can be none.
struct Group(PathBuf);

impl Group {
    fn of(most: u32) -> Option<Self> {
        // The controller by itself, or all in one.
        for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            let name = format!("inkstone-test-{}-{most}", std::process::id());
            let group = Self(Path::new(root).join(name));
            let is_made = std::fs::create_dir(&group.0).is_ok();
            if is_made && std::fs::write(group.0.join("pids.max"), most.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// Runs the command in it.
    fn run(&self, at: &Path, arguments: &str) -> Output {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let mut command = Command::new("sh");
        command.current_dir(at).args(["-c", script]).arg(&self.0);
        command.arg(env!("CARGO_BIN_EXE_inkstone")).args(arguments.words());
        command.output().expect("it runs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// One record, or all of the log: where no thread can be had, and where fewer can than a reader
/// would like.
#[test]
#[ignore = "needs root, to limit a group of processes"]
fn a_log_is_read_without_a_thread_and_what_needs_one_says_so() {
    let (Some(none), Some(few)) = (Group::of(1), Group::of(4)) else {
        let name = "a_log_is_read_without_a_thread_and_what_needs_one_says_so";
        return not_run(name, "no group of processes can be limited here");
    };
    let directory = directory();
    let at = directory.path();
    // A large last segment, and many small ones.
    for (log, count, more) in [("large", 30_000, ""), ("many", 10_000, " --segment-size 64KiB")] {
        let all = lines(1..=count, &"z".repeat(190));
        good(at, format!("append {log} -q{more}"), &all);
        for group in [&none, &few] {
            let read = |command: &str| {
                let output = group.run(at, &command.replace("LOG", log));
                assert_eq!((said(&output), output.status.code()), (String::new(), Some(0)));
                output.stdout
            };
            assert_eq!(text(&read("get LOG 3")), line(3, &"z".repeat(190)) + "\n");
            assert!(read("cat LOG") == all, "{log}");
            read("verify LOG");
        }
    }
    for command in ["append many", "tee s.log"] {
        let told = said(&none.run(at, command));
        assert!(told.contains("start a thread") && told.contains("pids.max"), "{told}");
    }
}
