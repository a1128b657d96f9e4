//! A container that allows few threads (`pids.max`): what reads does with fewer, and what needs one says so.
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
            let place = PathBuf::from(root).join(format!("inkstone-test-{}-{most}", std::process::id()));
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
        command.current_dir(at).args(["-c", script]).arg(&self.0).arg(env!("CARGO_BIN_EXE_inkstone"));
        command.args(arguments).output().expect("it runs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A thread for signals is all that a command needs: one record, or all of the log.
#[test]
fn a_log_is_read_with_one_thread_more_and_without_one_it_is_said() {
    let (Some(one), Some(none)) = (Group::of(2), Group::of(1)) else {
        eprintln!(
            "NOT RUN: a_log_is_read_with_one_thread_more_and_without_one_it_is_said: no group of processes can be limited here"
        );
        return;
    };
    let directory = directory();
    let at = directory.path();
    // A large last segment, and many small ones.
    let lines: Vec<u8> = (1..=60_000).flat_map(|number| format!("{number:0>200}\n").into_bytes()).collect();
    good(at, &["append", "large", "-q"], &lines);
    good(at, &["append", "many", "-q", "--segment-size", "64KiB"], &lines[..4 << 20]);
    for log in ["large", "many"] {
        let count = if log == "large" { 60_000 } else { (4 << 20) / 201 };
        let got = one.run(at, &["get", log, "3"]);
        assert_eq!(
            (text(&got.stderr), text(&got.stdout)),
            (String::new(), format!("{:0>200}\n", 3)),
            "{log}"
        );
        let all = one.run(at, &["cat", log]);
        assert!(
            all.status.success() && all.stdout.starts_with(&lines[..count * 201]),
            "{log}: {}",
            text(&all.stderr)
        );
        assert!(one.run(at, &["verify", log]).status.success(), "{log}");
        let said = none.run(at, &["get", log, "3"]);
        let said = text(&said.stderr);
        assert!(said.contains("cannot start a thread (signals)") && said.contains("pids.max"), "{said}");
    }
}
