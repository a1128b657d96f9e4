//! The requests that the commits of a log's lone writer caused at the device, and separately those
//! that prepared segments.
//!
//! *Owns*: who caused each request: the committing thread, or another. *May not touch*:
//! how events become requests, and what a request was (`crate::bill`).
//!
//! **Who.** The writer commits, for itself. The log's thread for files (`inkstone-files`) never
//! commits: its writes and syncs are preparation, and so are the journal's writes for it.
//!
//! **A journal write that a commit waited for.** Place and time are not enough: the preparation's
//! syncs make the journal write while commits run. But a sync that waits for a journal commit
//! (ext4) or a forced log (xfs) sends no flush of its own, because the journal's flush covers it.
//! So a commit that sent its own flush, and forced no log, waited for no journal; the journal's
//! writes during any other commit belong to that commit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use inkstone_host::{RequestOp, Trace, TraceKind};
use inkstone_io::{Directory, File, OpenFile};

use crate::bill::requests::pair;
use crate::bill::{Evidence, Layer, bill_of};
use crate::billing::Layers;
use crate::pass::{CommitSpan, Limits};
use crate::result::{CrossCheck, Kind, LayerBill, Tally};
use crate::site::Site;
use crate::stage::WayError;
use crate::table::numbers::bytes;

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
    /// What could not be found out.
    pub notes: Vec<String>,
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

    /// The whole as a sentence.
    pub fn words(&self) -> String {
        let said = |all: &BTreeMap<Kind, Tally>| {
            let one = |(kind, tally): (&Kind, &Tally)| match tally.bytes {
                0 => format!("{} x {}", tally.requests, kind.words()),
                total => {
                    let size = bytes(total as f64);
                    format!("{} x {} ({size}B)", tally.requests, kind.words())
                }
            };
            let all: Vec<String> = all.iter().map(one).collect();
            if all.is_empty() { "nothing".into() } else { all.join(", ") }
        };
        let mut text = format!(
            "{} commits, {} segment changes: {}; apart: {}",
            self.commits,
            self.changes,
            said(&self.own),
            said(&self.apart)
        );
        if let Some(check) = self.cross_check {
            text.push_str(&format!(
                "; the device counted {} flushes and {} sectors written, the trace {} and {}",
                check.counted_flushes,
                check.counted_write_sectors,
                check.traced_flushes,
                check.traced_write_sectors
            ));
        }
        if self.lost_events > 0 {
            text.push_str(&format!("; {} events lost, so counts are too low", self.lost_events));
        }
        text
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
    let Some(mut layers) = Layers::of(site) else {
        return Err(WayError::Invalid("there is no block device to watch".into()));
    };
    layers.0.truncate(1);
    worker.spans = Some(Vec::new());
    let changes_before = task.log.stats().segments;
    let traced = layers.traced(
        |layer| add_files(layer, task.path),
        || task.run(std::slice::from_mut(worker), limits),
    )?;
    let (trace, layers, slice) = (&traced.trace, &traced.layers, traced.done);
    let committing: Vec<u32> = worker.thread.into_iter().collect();
    let spans = worker.spans.take().unwrap_or_default();
    let (bill, _) = bill_of(&Evidence {
        trace,
        layers,
        commits: &spans,
        own_threads: &committing,
        own_workers: false,
        counted: &traced.counted,
        timeline_commits: 0,
    });
    let mut all = LogBill {
        commits: slice.commits,
        changes: task.log.stats().segments - changes_before,
        lost_events: bill.lost_events,
        notes: bill.notes,
        ..LogBill::default()
    };
    let Some(of_layer) = bill.layers.first() else { return Ok(all) };
    sort(of_layer, &mut all);
    let flushes = own_flushes(trace, &committing);
    let own = flushes.len() as u64;
    let both = of_layer.of(&[Kind::Flush, Kind::ForeignFlush]).requests;
    all.own.insert(Kind::Flush, Tally { requests: own, bytes: 0 });
    all.apart.insert(Kind::Flush, Tally { requests: both.saturating_sub(own), bytes: 0 });
    waited(trace, layers, &spans, &committing, &flushes, &mut all);
    Ok(all)
}

/// All files of a directory; of a log: segments, files that are ready or free.
fn add_files(layer: &mut Layer, directory: &Path) -> Result<(), WayError> {
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

/// Counts each kind of request, by the committing threads and by others.
fn sort(layer: &LayerBill, all: &mut LogBill) {
    for submitter in &layer.submitters {
        let is_own = submitter.who == "this process";
        let into = match submitter.what {
            Kind::Flush | Kind::ForeignFlush => continue,
            Kind::JournalWrite | Kind::OtherJournalWrite | Kind::TimerJournalWrite => {
                &mut all.apart
            }
            _ if is_own => &mut all.own,
            _ => &mut all.apart,
        };
        let tally = into.entry(submitter.what).or_default();
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
            all.own.entry(Kind::JournalWrite).or_default().add(request.bytes);
            let journal = [Kind::JournalWrite, Kind::OtherJournalWrite, Kind::TimerJournalWrite];
            let from = journal.into_iter().find(|&kind| all.apart(kind) > 0);
            if let Some(from) = from.and_then(|kind| all.apart.get_mut(&kind)) {
                from.requests -= 1;
                from.bytes = from.bytes.saturating_sub(request.bytes);
            }
        }
    }
}
