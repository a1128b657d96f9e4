//! A container that allows few threads (`pids.max`): what reads does with fewer, and what needs one
//! says so.
//!
//! *Owns*: the limit, and the commands under it. *May not touch*: what a reader shows otherwise.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{directory, good, text};

/// A group of processes with a limit; `None` where there can be none.
struct Group(PathBuf);

impl Group {
    fn of(most: u32) -> Option<Self> {
        // The controller by itself, or all in one.
        for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            let place =
                PathBuf::from(root).join(format!("inkstone-test-{}-{most}", std::process::id()));
            if std::fs::create_dir(&place).is_ok() {
                let group = Self(place);
                if std::fs::write(group.0.join("pids.max"), most.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        None
    }

    /// Runs the command in it.
    fn run(&self, at: &std::path::Path, arguments: &[&str]) -> std::process::Output {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let mut command = Command::new("sh");
        command
            .current_dir(at)
            .args(["-c", script])
            .arg(&self.0)
            .arg(env!("CARGO_BIN_EXE_inkstone"));
        command.args(arguments).output().expect("it runs")
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
fn a_log_is_read_without_a_thread_and_what_needs_one_says_so() {
    let (Some(none), Some(few)) = (Group::of(1), Group::of(4)) else {
        let name = "a_log_is_read_without_a_thread_and_what_needs_one_says_so";
        eprintln!("NOT RUN: {name}: no group of processes can be limited here");
        return;
    };
    let directory = directory();
    let at = directory.path();
    // A large last segment, and many small ones.
    let lines: Vec<u8> =
        (1..=60_000).flat_map(|number| format!("{number:0>200}\n").into_bytes()).collect();
    good(at, &["append", "large", "-q"], &lines);
    good(at, &["append", "many", "-q", "--segment-size", "64KiB"], &lines[..20_000 * 201]);
    for (log, count) in [("large", 60_000), ("many", 20_000)] {
        for group in [&none, &few] {
            let read = |arguments: &[&str]| {
                let output = group.run(at, arguments);
                assert_eq!(
                    (text(&output.stderr), output.status.code()),
                    (String::new(), Some(0)),
                    "{log}"
                );
                output.stdout
            };
            assert_eq!(text(&read(&["get", log, "3"])), format!("{:0>200}\n", 3));
            assert!(read(&["cat", log]) == lines[..count * 201], "{log}");
            read(&["verify", log]);
        }
    }
    for command in [["append", "many"], ["tee", "s.log"]] {
        let said = text(&none.run(at, &command).stderr);
        assert!(said.contains("start a thread") && said.contains("pids.max"), "{said}");
    }
}
