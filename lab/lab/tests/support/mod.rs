//! Shared parts of the tests of bills: the cell, the plan, and whether a bill is possible here.
//!
//! *Owns*: the plan of a small bill. *May not touch*: its expected content.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use inkstone_host::can_trace;
use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy, is_root};
use inkstone_lab::cell::Cell;
use inkstone_lab::pass::Limits;
use inkstone_lab::run::{Order, Plan};
use inkstone_lab::stage::Leftover;

/// Reports that a test did not run, bypassing the test harness, which hides the output of passing
/// tests.
pub(crate) fn not_run(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: {why}\n").as_bytes());
}

/// Whether requests can be traced here; if not, that is printed loudly.
pub(crate) fn can_bill(test: &str) -> bool {
    if !is_root() {
        not_run(test, "it needs root for loop devices, mounts and tracefs");
        return false;
    }
    if let Err(reason) = can_trace() {
        not_run(test, &format!("the block layer cannot be traced: {reason}"));
        return false;
    }
    true
}

/// A cell of a file of 1 MiB.
pub(crate) fn cell(
    preparation: Preparation,
    reuse: Reuse,
    access: Access,
    durability: Durability,
) -> Cell {
    let strategy = Strategy { preparation, reuse, access, durability, engine: EngineKind::Caller };
    Cell { file_bytes: 1 << 20, ..Cell::of(strategy) }
}

/// One short round of each cell, and a bill of this many commits.
pub(crate) fn plan(cells: Vec<Cell>, bill_commits: u64, timeline_commits: usize) -> Plan {
    Plan {
        name: "bill".into(),
        title: "a test".into(),
        cells,
        baseline: 0,
        rounds: 1,
        order: Order::Listed,
        leftover: Leftover::Kept,
        limits: Limits { commits: 4, time: Duration::from_secs(5) },
        deadline: None,
        bill_commits,
        bill_time: Duration::MAX,
        timeline_commits,
        seed: 7,
    }
}

/// A process that writes and syncs beside the test, until it is dropped.
pub(crate) struct Neighbour(std::process::Child);

impl Neighbour {
    /// Two of them, that write into this directory and have begun.
    pub(crate) fn two(directory: &Path) -> [Self; 2] {
        let beside = directory.join("neighbour");
        let both = [Self::start(&beside), Self::start(&directory.join("another"))];
        let begun = std::time::Instant::now();
        while std::fs::metadata(&beside).map_or(0, |facts| facts.len()) < 64 << 10 {
            assert!(begun.elapsed() < Duration::from_secs(120), "the neighbour writes nothing");
            std::thread::sleep(Duration::from_millis(10));
        }
        both
    }

    fn start(file: &Path) -> Self {
        let mut of = std::ffi::OsString::from("of=");
        of.push(file);
        let mut dd = std::process::Command::new("dd");
        dd.args(["if=/dev/zero", "bs=4096", "oflag=dsync", "conv=notrunc", "status=none"]).arg(of);
        Self(dd.spawn().expect("dd"))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
