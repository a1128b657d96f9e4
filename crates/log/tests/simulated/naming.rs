//! The order in which a file becomes a segment: its name is durable before anything is written into
//! it.
//!
//! *Owns*: watching a log that changes segments. *May not touch*: the crate's insides.
//!
//! The order matters not only for the name: on btrfs the sync of a file that was synced and renamed
//! before may be skipped if its directory is synced after a write into it
//! (docs/powerloss.md, "Syncs that report success and are not").

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::history::{LOG, record, small};
use crate::watched::{Call, watched};
use inkstone::{Log, Options};
use inkstone_sim::{DiskOptions, SimDisk};

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    /// Segments whose name waits for a sync.
    waits: BTreeSet<String>,
    named: usize,
    opened_too_early: usize,
}

fn look_on(options: &Options) -> Seen {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let sees = Arc::clone(&seen);
    let onlooker = move |call: &Call<'_>| {
        let mut seen = sees.lock().expect("sound");
        match *call {
            Call::Rename { to } if to.ends_with(".ink") => {
                seen.named += 1;
                seen.waits.insert(to.to_owned());
            }
            Call::SyncNames => seen.waits.clear(),
            Call::Open { name, how } if !how.read_only && seen.waits.contains(name) => {
                seen.opened_too_early += 1;
            }
            _ => {}
        }
    };
    let disk = SimDisk::new(1, DiskOptions::default());
    let directory = Arc::new(watched(disk.directory(LOG), onlooker));
    let log = Log::open_in(directory, options.clone()).expect("opened");
    for lsn in 1..=400 {
        let appended = log.append_durable(&record(lsn)).expect("durable");
        if lsn % 100 == 0 {
            log.truncate_before(appended).expect("truncated");
        }
    }
    log.close().expect("closed");
    std::mem::take(&mut seen.lock().expect("sound"))
}

#[test]
fn a_segments_name_is_durable_before_the_segment_is_opened_to_write() {
    for options in [small(), small().free_segments_max(4)] {
        let seen = look_on(&options);
        assert!(seen.named > 3 && seen.opened_too_early == 0, "{seen:?}");
    }
}
