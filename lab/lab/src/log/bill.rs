//! The requests that the commits of a log's lone writer caused at the device, and separately those
//! that prepared segments.
//!
//! *Owns*: the load's trace. *May not touch*: what a request was and whose
//! (`crate::bill`).
//!
//! The writer commits, for itself. The log's thread for files (`inkstone-files`) never commits: its
//! writes and syncs are preparation, and so are the journal's writes for it.

use std::collections::BTreeMap;
use std::path::Path;

use inkstone_io::{Directory, File, OpenFile};

use crate::bill::{Evidence, Layer, bill_of};
use crate::billing::Devices;
use crate::pass::Limits;
use crate::result::{CrossCheck, Kind, Tally};
use crate::site::Site;
use crate::stage::WayError;

use super::load::{Task, Worker};

/// The requests of a log to its device.
#[derive(Debug, Clone, Default)]
pub struct LogBill {
    /// Commits that it covers.
    pub commits: u64,
    /// Segment changes among them.
    pub changes: u64,
    /// Requests by the threads that commit (groups; at each segment change a header and a seal),
    /// and journal writes that a commit waited for.
    own: BTreeMap<Kind, Tally>,
    /// Requests that no commit made or waited for: they prepare segments.
    apart: BTreeMap<Kind, Tally>,
    /// The trace against the device's own counters.
    pub cross_check: Option<CrossCheck>,
    /// Trace events that the kernel dropped: if any, the counts are too low.
    pub lost_events: u64,
}

impl LogBill {
    /// How many requests of this kind commits made or waited for.
    pub fn own(&self, kind: Kind) -> u64 {
        self.own.get(&kind).map_or(0, |tally| tally.requests)
    }

    /// How many requests of this kind prepared segments.
    pub fn apart(&self, kind: Kind) -> u64 {
        self.apart.get(&kind).map_or(0, |tally| tally.requests)
    }
}

/// Runs the load of one writer under trace and makes its bill.
///
/// # Errors
/// Those of the load or the trace; there is no block device.
pub fn by_trace(
    site: &Site,
    task: &Task<'_>,
    worker: &mut Worker,
    limits: Limits,
) -> Result<LogBill, WayError> {
    let Some(devices) = Devices::of(site) else {
        return Err(WayError::Invalid("there is no block device to watch".into()));
    };
    worker.spans = Some(Vec::new());
    let changes_before = task.log.stats().segments;
    let traced = devices.traced(
        |layer| add_files(layer, task.path),
        || task.run(std::slice::from_mut(worker), limits),
    )?;
    let slice = traced.done;
    let committing: Vec<u32> = worker.thread.into_iter().collect();
    let spans = worker.spans.take().unwrap_or_default();
    let billed = bill_of(&Evidence {
        trace: &traced.trace,
        layer: &traced.layer,
        commits: &spans,
        own_threads: &committing,
        inode: None,
        promises: true,
        overwrites: true,
        several: false,
        counted: traced.counted,
        timeline_commits: 0,
    });
    let layer = billed.bill.layers.first();
    Ok(LogBill {
        commits: slice.commits,
        changes: task.log.stats().segments - changes_before,
        cross_check: layer.and_then(|layer| layer.cross_check),
        lost_events: billed.bill.lost_events,
        own: billed.own,
        apart: billed.apart,
    })
}

/// All files of a directory; of a log: segments, files that are ready or free.
fn add_files(layer: &mut Layer, directory: &Path) -> Result<(), WayError> {
    let opened = inkstone_io::OsDirectory::open(directory)?;
    for name in opened.plain_files()? {
        // Skips files removed or renamed meanwhile: the next call finds their blocks under the new
        // name.
        if let Ok(file) = opened.open(&name, &OpenFile::existing().read_only())
            && file.len_bytes().is_ok_and(|len| len > 0)
        {
            layer.add_file(file.std_file(), file.path());
        }
    }
    Ok(())
}
