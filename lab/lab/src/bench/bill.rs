//! The requests that a log's commits caused at the device, and separately those that prepared
//! segments.
//!
//! *Owns*: who caused each request: a committing thread of the log, or another. *May not touch*:
//! how events become requests, and what a request was (`crate::bill`).
//!
//! **Who.** The load's threads commit, each for itself or for its group. The log's thread for files
//! (`inkstone-files`) never commits: its writes and syncs are preparation, and so are the journal's
//! writes for it.
//!
//! **A journal write that a commit waited for.** Place and time are not enough: the preparation's
//! syncs make the journal write while commits run. But a sync that waits for a journal commit
//! (ext4) or a forced log (xfs) sends no flush of its own, because the journal's flush covers it.
//! So a commit that sent its own flush, and forced no log, waited for no journal; the journal's
//! writes during any other commit belong to that commit.

use std::ops::Range;
use std::path::Path;

use inkstone_host::{BlockStat, BlockTrace, RequestOp, Trace, TraceKind, block_stat};
use inkstone_io::{Directory, File, OpenFile};

use crate::bill::attribute::Evidence;
use crate::bill::layer::layers_of;
use crate::bill::requests::pair;
use crate::bill::{Layer, bill_of};
use crate::pass::{CommitSpan, Limits};
use crate::result::{BillSource, LayerBill, Tally};
use crate::site::Site;
use crate::stage::CellError;

use super::Load;
use super::load::{Task, Worker};
use super::result::LogBill;
use super::rows::counts;

/// The log's own thread, which commits records without a waiter.
const COMMITTER: &str = "inkstone";

/// Runs the load under trace and makes its bill.
///
/// # Errors
/// Those of the load or the trace; there is no block device.
pub fn by_trace(
    site: &Site,
    task: &Task<'_>,
    workers: &mut [Worker],
    limits: Limits,
) -> Result<LogBill, CellError> {
    let mut layers = layers_of(&site.capabilities.directory);
    layers.truncate(1);
    let Some(layer) = layers.first_mut() else {
        return Err(CellError::Invalid("there is no block device to watch".into()));
    };
    layer.private = site.private;
    add_files(layer, task.path)?;
    for worker in workers.iter_mut() {
        worker.spans = Some(Vec::new());
    }
    let device = layer.numbers.clone();
    let stat = || block_stat(*device.first()?).ok();
    let log_before = counts(task.log);
    let trace = BlockTrace::start(&device)?;
    let before = stat();
    let run = task.run(workers, limits);
    let counted = stat().zip(before).map(|(after, before)| after.since(&before));
    let trace = trace.stop()?;
    let slice = run?;
    let log = counts(task.log).since(&log_before);
    add_files(layer, task.path)?;
    layer.settle();
    let mut committing: Vec<u32> = workers.iter().filter_map(|worker| worker.thread).collect();
    if task.load != Load::Closed(1) {
        committing.extend(threads_named(COMMITTER));
    }
    let mut spans: Vec<CommitSpan> =
        workers.iter_mut().filter_map(|w| w.spans.take()).flatten().collect();
    spans.sort_unstable_by_key(|span| span.start_ns);
    let evidence = Evidence {
        trace: &trace,
        layers: &layers,
        commits: &spans,
        own_threads: &committing,
        own_workers: false,
        counted: &vec![counted],
        timeline_commits: 0,
    };
    let (bill, _) = bill_of(&evidence);
    let mut all = LogBill::empty(BillSource::Trace, slice.commits, log.segments);
    (all.lost_events, all.notes) = (bill.lost_events, bill.notes);
    let Some(of_layer) = bill.layers.first() else { return Ok(all) };
    sort(of_layer, &mut all);
    let flushes = own_flushes(&trace, &committing);
    all.apart.flushes =
        (of_layer.flushes + of_layer.foreign_flushes).saturating_sub(flushes.len() as u64);
    all.flushes = flushes.len() as u64;
    if task.load == Load::Closed(1) {
        waited(&trace, &layers, &spans, &committing, &flushes, &mut all);
    }
    Ok(all)
}

/// A bill from the device's counters over the timed rounds: they count all processes and all
/// requests together.
pub(super) fn by_counters(counted: &BlockStat, commits: u64, changes: u64) -> LogBill {
    let tally = |requests, sectors| Tally { requests, bytes: sectors * 512 };
    LogBill {
        data_writes: tally(counted.writes, counted.write_sectors),
        flushes: counted.flushes.unwrap_or(0),
        reads: tally(counted.reads, counted.read_sectors),
        ..LogBill::empty(BillSource::SharedCounters, commits, changes)
    }
}

/// All files of a directory; of a log: segments, files that are ready or free.
pub(crate) fn add_files(layer: &mut Layer, directory: &Path) -> Result<(), CellError> {
    let opened = inkstone_io::OsDirectory::open(directory)?;
    for name in opened.list()? {
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

/// Threads of this process with this name.
fn threads_named(name: &str) -> Vec<u32> {
    let named = |thread: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    };
    inkstone_host::own_threads().into_iter().filter(named).collect()
}

/// Counts each kind of request, by the committing threads and by others.
fn sort(layer: &LayerBill, all: &mut LogBill) {
    for submitter in &layer.submitters {
        let own = submitter.who == "this process";
        let tally = match (own, submitter.what.as_str()) {
            (true, "data write") => &mut all.data_writes,
            (false, "data write") => &mut all.apart.data_writes,
            (true, "data read" | "other read") => &mut all.reads,
            (false, "data read" | "other read") => &mut all.apart.reads,
            (true, "metadata write") => &mut all.metadata_writes,
            (false, "metadata write") => &mut all.apart.metadata_writes,
            (_, "journal write (timer)") => &mut all.apart.timer_journal_writes,
            (_, "journal write" | "journal write (other)") => &mut all.apart.other_journal_writes,
            (_, "zeroing" | "discard") => &mut all.apart.zeroing,
            _ => continue,
        };
        tally.requests += submitter.tally.requests;
        tally.bytes += submitter.tally.bytes;
    }
    all.cross_check = layer.cross_check;
    let unknown = layer.unattributed.iter().map(|what| format!("unattributed: {what}"));
    all.notes.extend(unknown);
}

/// The times at which the committing threads sent a flush.
fn own_flushes(trace: &Trace, committing: &[u32]) -> Vec<u64> {
    let asked = trace.events.iter().filter(|event| committing.contains(&event.tid));
    let asked = asked.filter(|event| match event.what {
        TraceKind::BioQueue { flags, .. } => flags.preflush || flags.op == RequestOp::Flush,
        _ => false,
    });
    asked.map(|event| event.time_ns).collect()
}

/// Counts the journal's writes for the commit if that sent no flush of its own, or forced the log.
fn waited(
    trace: &Trace,
    layers: &[Layer],
    spans: &[CommitSpan],
    committing: &[u32],
    flushes: &[u64],
    all: &mut LogBill,
) {
    let Some(layer) = layers.first() else { return };
    let forced: Vec<u64> = trace
        .events
        .iter()
        .filter(|event| committing.contains(&event.tid))
        .filter(|event| matches!(event.what, TraceKind::XfsLogForce { .. }))
        .map(|event| event.time_ns)
        .collect();
    let has = |times: &[u64], span: &CommitSpan| {
        let from = times.partition_point(|&time| time < span.start_ns);
        times.get(from).is_some_and(|&time| time <= span.ack_ns)
    };
    let suspects: Vec<&CommitSpan> = spans
        .iter()
        .filter(|span| (layer.volatile_cache && !has(flushes, span)) || has(&forced, span))
        .collect();
    for request in pair(&trace.events, layers) {
        let bytes: Range<u64> = request.range();
        let is_journal = request.is_write()
            && (layer.is_log(&bytes)
                || (layer.log.is_empty() && request.comm.as_str().starts_with("jbd2/")));
        let during =
            |span: &&&CommitSpan| (span.start_ns..=span.ack_ns).contains(&request.issue_ns);
        if is_journal && suspects.iter().any(|span| during(&span)) {
            all.journal_writes.add(request.bytes);
            let other = &mut all.apart.other_journal_writes;
            let from = if other.requests > 0 { other } else { &mut all.apart.timer_journal_writes };
            from.requests = from.requests.saturating_sub(1);
            from.bytes = from.bytes.saturating_sub(request.bytes);
        }
    }
}
