//! A bill on a device that other processes write to and sync. The only test of its program: the
//! program's other threads would be counted as its own, as they should be. Needs root and tracefs;
//! where those are missing it prints loudly that it did not run.

mod support;

use std::path::Path;

use inkstone_host::{EngineKind, LabStrategy};
use inkstone_io::{Access, Durability, Preparation, Reuse};
use inkstone_lab::experiment::part::Part;
use inkstone_lab::result::{Kind, LayerBill, Table};
use inkstone_lab::writing::Writing;
use support::{Neighbour, can_bill, not_run, plan, writing};

/// On a device that another process writes to and syncs all the time, a commit's bill is its own.
#[test]
#[ignore = "needs root and tracefs"]
fn neighbours_on_the_same_device_are_not_in_the_bill() {
    const NAME: &str = "neighbours_on_the_same_device_are_not_in_the_bill";
    const BILLED: u64 = 200;
    if !can_bill(NAME) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let neighbours = Neighbour::two(directory.path());
    let direct = |durability| writing(Preparation::None, Reuse::Reuse, Access::Direct, durability);
    // A kernel worker sends the flush for those of io_uring.
    let ring = |durability| {
        let writing = direct(durability);
        Writing {
            strategy: LabStrategy { engine: EngineKind::Uring, ..writing.strategy },
            ..writing
        }
    };
    let ways = vec![
        writing(Preparation::None, Reuse::Reuse, Access::Buffered, Durability::Fdatasync),
        direct(Durability::ODsync),
        ring(Durability::ODsync),
        ring(Durability::RwfDsync),
    ];
    let run = beside_neighbours(directory.path(), &Part::here(plan(ways, BILLED)));
    drop(neighbours);
    let Some(device) = &run.place.device else {
        return not_run(NAME, "there is no single block device below the target directory");
    };
    for way in &run.ways {
        let name = &way.name;
        assert!(way.is_measured(), "{name}: {:?}", way.missing);
        let bill = way.bill.as_ref().expect("a bill");
        let layer = &bill.layer;
        if bill.lost_events > 0 {
            return not_run(
                NAME,
                &format!("the kernel dropped {} events on {device}", bill.lost_events),
            );
        }
        let near = |seen: u64| seen.abs_diff(BILLED) * 50 <= BILLED;
        let seen = format!("{name}: {layer:?}");
        assert_eq!(bill.commits, BILLED);
        assert!(near(layer.count(Kind::DataWrite)), "{seen}");
        assert!(
            run.place.write_cache.as_deref() != Some("write back")
                || near(layer.count(Kind::Flush)),
            "{seen}"
        );
        let own = layer.own_writes();
        // ext4 without a journal writes the file's inode once per tick of its time stamp: these
        // writes are ours, at most one per commit.
        let inode = layer.count(Kind::MetadataWrite);
        assert!(
            inode <= BILLED && own.requests == layer.count(Kind::DataWrite) + inode,
            "{own:?}, {seen}"
        );
        // The neighbours' requests are counted, and separately.
        assert!(has_neighbours(layer), "{seen}");
        assert!(layer.submitters.iter().any(|by| by.who == "dd"), "{seen}");
    }
}

/// Runs it until the neighbours have written beside each way, as the bill shows, five times at
/// most: on a busy machine they may not get a processor while 200 commits are billed.
fn beside_neighbours(directory: &Path, part: &Part) -> Table {
    let mut run = support::run(directory, part);
    for _ in 1..5 {
        let mut layers = run.ways.iter().filter_map(|way| Some(&way.bill.as_ref()?.layer));
        if layers.all(has_neighbours) {
            break;
        }
        run = support::run(directory, part);
    }
    run
}

/// Whether the neighbours wrote and flushed often enough to be seen if they were taken for us.
fn has_neighbours(layer: &LayerBill) -> bool {
    layer.count(Kind::ForeignWrite) >= 20 && layer.count(Kind::ForeignFlush) >= 20
}
