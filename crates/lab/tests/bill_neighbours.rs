//! A bill on a device that other processes write to and sync. The only test of its program: the program's other threads would be
//! counted as its own, as they should be. Needs root and tracefs; where those are missing it says loudly that it did not run.

mod support;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone_io::{Access, Durability, Preparation, Reuse};
use inkstone_lab::command::{Context, MeasureOptions, measure};
use inkstone_lab::progress::Progress;
use support::{can_bill, cell, not_run, plan};

/// A process that writes and syncs beside the test, until it is dropped.
struct Neighbour(std::process::Child);

impl Neighbour {
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

/// On a device that another process writes to and syncs all the time, a commit's bill is its own.
#[test]
fn neighbours_on_the_same_device_are_not_in_the_bill() {
    const NAME: &str = "neighbours_on_the_same_device_are_not_in_the_bill";
    const BILLED: u64 = 200;
    if !can_bill(NAME) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let beside = directory.path().join("neighbour");
    let neighbours = [Neighbour::start(&beside), Neighbour::start(&directory.path().join("another"))];
    // It writes before anything is measured.
    let begun = std::time::Instant::now();
    while std::fs::metadata(&beside).map_or(0, |facts| facts.len()) < 64 << 10 {
        assert!(begun.elapsed() < Duration::from_secs(120), "the neighbour writes nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    let cells = vec![
        cell(Preparation::None, Reuse::Reuse, Access::Buffered, Durability::Fdatasync),
        cell(Preparation::None, Reuse::Reuse, Access::Direct, Durability::ODsync),
    ];
    let stop = AtomicBool::new(false);
    let mut progress = Progress::silent();
    let mut context = Context { stop: &stop, progress: &mut progress, command: "test".into() };
    let plan = plan(cells, BILLED, 0);
    let options = MeasureOptions::of(Some(directory.path().into()), plan, false);
    let result = measure(&options, &mut context).expect("a result");
    drop(neighbours);
    let run = result.runs.first().expect("a run");
    let Some(device) = &run.place.device else {
        return not_run(NAME, "there is no single block device below the target directory");
    };
    for cell in &run.cells {
        let name = &cell.name;
        let measured = cell.outcome.measured().unwrap_or_else(|| panic!("{name}: {:?}", cell.outcome));
        let bill = measured.bill.as_ref().expect("a bill");
        let layer = bill.layers.first().expect("the device");
        if bill.lost_events > 0 {
            return not_run(NAME, &format!("the kernel dropped {} events on {device}", bill.lost_events));
        }
        let near = |seen: u64| seen.abs_diff(BILLED) * 50 <= BILLED;
        let seen = format!("{name}: {layer:?}");
        assert_eq!(bill.commits, BILLED);
        assert!(near(layer.data_writes.requests), "{seen}");
        assert!(run.place.write_cache.as_deref() != Some("write back") || near(layer.flushes), "{seen}");
        let own = layer.own_writes(bill.source);
        // ext4 without a journal writes the file's inode once per tick of its time stamp: ours, and no more than one a commit.
        let inode = layer.metadata_writes.requests;
        assert!(inode <= BILLED && own.requests == layer.data_writes.requests + inode, "{own:?}, {seen}");
        // What the neighbours did is told, and apart.
        assert!(layer.foreign_writes.requests >= 20 && layer.foreign_flushes >= 20, "{seen}");
        assert!(layer.submitters.iter().any(|by| by.who == "dd"), "{seen}");
    }
}
