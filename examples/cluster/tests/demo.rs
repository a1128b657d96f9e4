//! The demonstration, as a person starts it: what it says last, how it ends, and that nothing is
//! left of it.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A demonstration that ends by itself within 60 s, and a little for a busy machine.
const PATIENCE: Duration = Duration::from_secs(70);

struct Demo {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    /// What it said so far.
    said: Vec<String>,
    /// Where it makes its directory.
    around: TempDir,
}

impl Demo {
    fn start() -> Self {
        let around = TempDir::new().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_replicated-log"))
            .arg("demo")
            .env("TMPDIR", around.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, said: Vec::new(), around }
    }

    /// Reads until a line has this, and gives the line.
    fn until(&mut self, part: &str) -> String {
        for line in &mut self.lines {
            let line = line.unwrap();
            self.said.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
        panic!("it never said {part:?}: {:#?}", self.said);
    }

    /// The ids of its processes so far.
    fn processes(&self) -> Vec<u32> {
        let numbers = self.said.iter().filter_map(|line| {
            let after = line.split_once("process ")?.1;
            after.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
        });
        numbers.collect()
    }

    fn signal(&self, signal: &str, process: u32) {
        let sent = Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end. Gives the exit code and what it complained about; nothing may be left
    /// then.
    fn end(mut self) -> (Option<i32>, String) {
        let began = Instant::now();
        for line in &mut self.lines {
            self.said.push(line.unwrap());
        }
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if began.elapsed() > PATIENCE => {
                    self.child.kill().unwrap();
                    panic!("it does not end: {:#?}", self.said);
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let mut complaint = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        let processes = self.processes();
        assert!(processes.len() >= 2, "{:#?}", self.said);
        for process in processes {
            assert!(!is_ours(process), "process {process} is left: {:#?}", self.said);
        }
        let left: Vec<_> =
            self.around.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
        self.said.push(String::new());
        (status.code(), format!("{}{complaint}", self.said.join("\n")))
    }
}

/// Whether it runs, and is no other program that got the number since.
fn is_ours(process: u32) -> bool {
    let program = std::fs::read_link(Path::new("/proc").join(process.to_string()).join("exe"));
    program.is_ok_and(|program| program == Path::new(env!("CARGO_BIN_EXE_replicated-log")))
}

#[test]
fn it_tells_the_whole_story() {
    let (code, said) = Demo::start().end();
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "kill -9 of node",
        "The other two elected node",
        "starts again as process",
        "The power of node 3 is cut",
        "Node 3 opens what its disk has",
        "All three have the same state",
        "acknowledged writes are in it, once, in order",
        "node 3's disk is simulated",
    ] {
        assert!(said.contains(part), "it does not say {part:?}:\n{said}");
    }
    let forgotten =
        said.split_once("whatever was not flushed: ").unwrap().1.split(' ').next().unwrap();
    assert!(forgotten.parse::<u64>().unwrap() > 0, "the cut took nothing:\n{said}");
    assert!(said.trim_end().lines().last().unwrap().starts_with("Done in "), "{said}");
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    for (signal, name) in [("-INT", "Ctrl-C"), ("-TERM", "SIGTERM")] {
        let mut demo = Demo::start();
        demo.until("clients write");
        demo.signal(signal, demo.child.id());
        let (code, said) = demo.end();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("ended by {name}")), "{said}");
    }
}

#[test]
fn a_failure_is_said_and_leaves_nothing() {
    let mut demo = Demo::start();
    let node = demo.until("Node 2 is process");
    demo.until("clients write");
    demo.signal("-KILL", demo.processes()[0]);
    let (code, said) = demo.end();
    assert_eq!(code, Some(1), "{node}\n{said}");
    assert!(
        said.contains("the demonstration failed: node 2 ended, and was not meant to"),
        "{said}"
    );
}
