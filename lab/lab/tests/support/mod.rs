//! Shared parts of the tests of bills: the writing, the plan, and whether a bill is possible here.
//!
//! *Owns*: the plan of a small bill. *May not touch*: its expected content.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone_host::FsKind;
use inkstone_host::can_trace;
pub(crate) use inkstone_host::not_run;
use inkstone_io::is_root;
use inkstone_lab::command::{Context, parts};
use inkstone_lab::experiment::part::{On, Part};
use inkstone_lab::image::LoopMode;
use inkstone_lab::pass::Limits;
use inkstone_lab::progress::Progress;
use inkstone_lab::result::Table;
use inkstone_lab::run::Plan;
use inkstone_lab::writing::Writing;

/// Two threads, each of which writes and syncs its half of these blocks, one after the other.
pub(crate) fn in_two_threads(file: &File, blocks: u64) {
    const BLOCK: usize = 4096;
    std::thread::scope(|scope| {
        for from in [0, blocks / 2] {
            scope.spawn(move || {
                for block in from..from + blocks / 2 {
                    file.write_all_at(&[7; BLOCK], block * BLOCK as u64).expect("written");
                    file.sync_data().expect("synced");
                }
            });
        }
    });
}

/// Whether requests can be traced here; if not, that is printed loudly.
pub(crate) fn can_bill(test: &str) -> bool {
    if !is_root() {
        not_run(test, "it needs root for loop devices, mounts and tracefs");
        return false;
    }
    if let Err(reason) = can_trace() {
        not_run(test, format!("the block layer cannot be traced: {reason}"));
        return false;
    }
    true
}

/// These ways, each with a file of this size.
pub(crate) fn ways<const COUNT: usize>(names: [&str; COUNT], file_bytes: u64) -> Vec<Writing> {
    let of = |name| Writing { file_bytes, ..Writing::named(name).expect("a way") };
    names.map(of).into()
}

/// One short round of each writing, and a bill of this many commits.
pub(crate) fn plan(ways: Vec<Writing>, bill_commits: u64) -> Plan {
    let limits = Limits { commits: 4, time: Duration::from_secs(5) };
    let whole = Plan::new("bill", "a test", ways);
    Plan { random_order: false, limits, bill_commits, ..whole }
}

/// The run of one part in this directory, or why there is none.
pub(crate) fn run(directory: &Path, whole: &Part) -> Result<Table, String> {
    let stop = AtomicBool::new(false);
    let mut progress = Progress::silent();
    let mut context = Context { stop: &stop, progress: &mut progress, command: "test".into() };
    let result = parts(Some(directory), std::slice::from_ref(whole), &mut context);
    let result = result.expect("a result");
    let why = format!("{:?}", result.warnings);
    result.tables.into_iter().next().ok_or(why)
}

/// The plan on one file system.
pub(crate) fn on(kind: FsKind, mode: LoopMode, plan: Plan) -> Part {
    Part::here(plan).on(vec![vec![On::Image(kind, mode)]])
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
