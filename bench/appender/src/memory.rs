//! What a writer takes of memory, in a process of its own: what one arm's allocator keeps would
//! hide what the next one takes.
//!
//! *Owns*: the child, its hidden arguments, and what `/proc/self/status` is asked. *May not touch*:
//! how lines are put, the table.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::arms::{Arm, Lines};
use crate::run::drain;

pub const THREADS: u64 = 4;
/// The child's first argument; nobody is to give it by hand, so that the usage does not name it.
const WORD: &str = "memory-of";

/// What this process is to measure, if it is such a child.
pub struct Order {
    arm: Arm,
    each: u64,
    directory: PathBuf,
}

impl Order {
    pub fn given() -> Option<Self> {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next()? != WORD {
            return None;
        }
        let [name, each, directory] = [(); 3].map(|()| arguments.next().expect("three more"));
        let arm = Arm::ALL.into_iter().find(|arm| name == arm.name()).expect("an arm");
        let each = each.to_str().expect("a number").parse().expect("a number");
        Some(Self { arm, each, directory: directory.into() })
    }

    /// Prints the bytes, for the parent.
    pub fn carry_out(self) {
        let lines = Lines::new();
        let before = status_bytes("VmRSS:");
        let run = drain(self.arm, &self.directory, &lines, self.each, THREADS);
        // Before the files are read, which takes memory too.
        let most = status_bytes("VmHWM:");
        run.lost(&self.directory);
        println!("{}", most.checked_sub(before).expect("the most is no less than what there was"));
    }
}

/// The most bytes that one unpaced run had in memory beyond what its process had before the writer
/// was opened: buffers, shared memory, the threads' stacks, code that was not needed before. Pages
/// of the log file are the system's, and not counted. The kernel may count in batches for each
/// core, so that on many cores small figures say little.
pub fn most_bytes(arm: Arm, directory: &Path, each: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args([WORD, arm.name(), &each.to_string()]).arg(directory).stderr(Stdio::inherit());
    let output = child.output().expect("a process");
    assert!(output.status.success(), "{}: {}", arm.name(), output.status);
    let text = String::from_utf8(output.stdout).expect("a number");
    text.trim().parse().expect("a number")
}

fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
    let kib = line.trim().strip_suffix(" kB").expect("in KiB");
    kib.parse::<u64>().expect("a number") * 1024
}
