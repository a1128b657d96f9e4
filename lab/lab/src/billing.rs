//! A traced pass: trace on, commits, trace off, bill.
//!
//! *Owns*: the steps around such a pass. *May not touch*: how the events are read (`inkstone_host`)
//! or counted (`bill`).

use std::sync::Arc;

use inkstone_host::{BlockTrace, DeviceNumber, LabEngine, LabFile, block_stat, own_threads};
use inkstone_io::File;

use crate::bill::attribute::{Counted, Evidence};
use crate::bill::{Layer, bill_of, layer::layers_of};
use crate::cell::Cell;
use crate::pass::{CommitSpan, Limits, Recorders, Writer};
use crate::result::{Bill, DurableFinding};
use crate::site::Site;
use crate::stage::{CellError, Session};

/// The devices below a site, found once per run.
#[derive(Debug)]
pub struct Billing {
    layers: Vec<Layer>,
    timeline_commits: usize,
}

impl Billing {
    /// `None` if there is no block device.
    pub fn of(site: &Site, timeline_commits: usize) -> Option<Self> {
        let mut layers = layers_of(&site.capabilities.directory);
        layers.first_mut()?.private = site.private;
        Some(Self { layers, timeline_commits })
    }

    fn devices(&self) -> Vec<DeviceNumber> {
        self.layers.iter().flat_map(|layer| layer.numbers.iter().copied()).collect()
    }

    fn counters(&self) -> Vec<Option<inkstone_host::BlockStat>> {
        let of = |layer: &Layer| block_stat(*layer.numbers.first()?).ok();
        self.layers.iter().map(of).collect()
    }
}

/// Runs one pass under trace and makes its bill.
///
/// # Errors
/// Those of the pass or the trace.
pub fn bill_round(
    billing: &Billing,
    session: &Session<'_>,
    cell: &Cell,
    file: &Arc<LabFile>,
    writer: &mut Writer<LabEngine>,
    limits: Limits,
) -> Result<(Bill, DurableFinding), CellError> {
    let mut layers = billing.layers.clone();
    add_file(&mut layers, file);
    let mut spans: Vec<CommitSpan> =
        Vec::with_capacity(limits.commits.min(cell.commits()) as usize);
    let trace = BlockTrace::start(&billing.devices())?;
    let before = billing.counters();
    let passed = writer.run(session, cell, file, limits, &mut Recorders::new(), Some(&mut spans));
    let after = billing.counters();
    // The kernel's io_uring workers are threads of this process too, and live as long as the ring.
    let own_threads = own_threads();
    let trace = trace.stop()?;
    passed?;
    add_file(&mut layers, file);
    layers.iter_mut().for_each(Layer::settle);
    let counted: Counted = before
        .iter()
        .zip(&after)
        .map(|(before, after)| Some(after.as_ref()?.since(before.as_ref()?)))
        .collect();
    let evidence = Evidence {
        trace: &trace,
        layers: &layers,
        commits: &spans,
        own_threads: &own_threads,
        own_workers: cell.workers_sync(),
        counted: &counted,
        timeline_commits: billing.timeline_commits,
    };
    Ok(bill_of(&evidence))
}

fn add_file(layers: &mut [Layer], file: &LabFile) {
    if let Some(layer) = layers.first_mut() {
        layer.add_file(file.std_file(), file.path());
    }
}
