//! A traced pass: trace on, commits, trace off, bill.
//!
//! *Owns*: the steps around such a pass. *May not touch*: how the events are read (`inkstone_host`)
//! or counted (`bill`).

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use inkstone_host::{BlockStat, LabFile, Trace, Tracer, block_stat, own_threads};
use inkstone_io::{Durability, File, Preparation, Reuse, Strategy};

use crate::bill::{Billed, Evidence, Layer, bill_of};
use crate::pass::{CommitSpan, Limits, Recorders, Writer};
use crate::result::{Bill, DurableFinding};
use crate::site::Site;
use crate::stage::{Session, WayError};
use crate::writing::{Pass, Writing};

/// The devices of a site's file system.
#[derive(Debug, Clone)]
pub struct Devices(Layer);

/// What a trace of these devices showed.
pub(crate) struct Traced<T> {
    pub(crate) done: T,
    pub(crate) trace: Trace,
    pub(crate) layer: Layer,
    /// The same span by the devices' own counters.
    pub(crate) counted: Option<BlockStat>,
}

impl Devices {
    /// `None` if there is no block device.
    pub fn of(site: &Site) -> Option<Self> {
        let layer = Layer::of(&site.capabilities)?;
        Some(Self(Layer { private: site.private, ..layer }))
    }

    /// Traces what reaches the devices while `body` runs. `files` adds the files, and is called
    /// before and after: a copy-on-write file moves.
    ///
    /// # Errors
    /// Those of `body`, or of the trace.
    pub(crate) fn traced<T>(
        &self,
        files: impl Fn(&mut Layer) -> Result<(), WayError>,
        body: impl FnOnce() -> Result<T, WayError>,
    ) -> Result<Traced<T>, WayError> {
        let mut layer = self.0.clone();
        files(&mut layer)?;
        let trace = Tracer::of_disks(&layer.numbers().collect::<Vec<_>>())?;
        let before = counters(&self.0);
        let done = body();
        let after = counters(&self.0);
        let trace = trace.stop()?;
        let done = done?;
        files(&mut layer)?;
        layer.look_at_chunks();
        layer.settle();
        let counted = before.zip(after).map(|(before, after)| after.since(&before));
        Ok(Traced { done, trace, layer, counted })
    }
}

/// The counters of all its disks.
fn counters(layer: &Layer) -> Option<BlockStat> {
    let mut all = BlockStat::default();
    for disk in &layer.disks {
        all.add(&block_stat(*disk.numbers.first()?).ok()?);
    }
    Some(all)
}

/// Runs one pass under trace and makes its bill.
///
/// # Errors
/// Those of the pass or the trace.
pub fn bill_pass(
    devices: &Devices,
    session: &Session<'_>,
    (writing, file): (&Writing, &Arc<LabFile>),
    writer: &mut Writer,
    limits: Limits,
) -> Result<(Bill, DurableFinding), WayError> {
    let add_file = |layer: &mut Layer| {
        layer.add_file(file.std_file(), file.path());
        Ok(())
    };
    let mut commits: Vec<CommitSpan> =
        Vec::with_capacity(limits.commits.min(writing.commits()) as usize);
    let traced = devices.traced(add_file, || {
        let mut unused = Recorders::default();
        writer.run(session, writing, file, limits, &mut unused, Some(&mut commits))?;
        // The kernel's io_uring workers are threads of this process too, and live as long as the
        // ring.
        Ok(own_threads())
    })?;
    use Durability::{FdatasyncFsync, FdatasyncFsync64, Fsync, OSync};
    let Strategy { durability, reuse, preparation, .. } = writing.strategy;
    let is_written = reuse == Reuse::Reuse
        || writing.pass == Pass::Second
        || matches!(preparation, Preparation::Zeros | Preparation::WriteZeroes);
    let Billed { bill, durable, .. } = bill_of(&Evidence {
        trace: &traced.trace,
        layer: &traced.layer,
        commits: &commits,
        own_threads: &traced.done,
        inode: file.std_file().metadata().ok().map(|facts| facts.ino()),
        promises: durability.claims_durable(),
        overwrites: is_written && !matches!(durability, Fsync | FdatasyncFsync | OSync),
        several: matches!(durability, FdatasyncFsync | FdatasyncFsync64),
        counted: traced.counted,
    });
    Ok((bill, durable))
}
