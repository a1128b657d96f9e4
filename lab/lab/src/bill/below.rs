//! Below a loop device: which requests to the host's device its worker made for this process.
//!
//! *Owns*: that split. *May not touch*: what a request was (`commits`).
//!
//! A loop device serves a request by a kernel thread (`kworker`, before Linux 5.7 `loopN`), whose
//! id means nothing: the same thread works for all processes, and each flush may have another. Time
//! decides: while a request of ours on the loop device is in progress, its worker sends requests to
//! the host's device, and waits. So a flush is ours if it served a kernel thread's request within a
//! flush of ours above. A thread that did that, or moved bytes of the backing file within a request
//! of ours, is the loop device's worker for as long as a request of ours is in progress. Requests
//! that another process makes meanwhile stay that process's, even if one flush served both.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use inkstone_host::{Comm, RequestOp, TraceEvent, TraceKind};

use super::attribution::{Attributed, is_kernels};
use super::evidence::Evidence;
use super::layer::Layer;
use super::requests::DeviceRequest;

/// The requests that the workers below made for us, as indices in the list of requests.
#[derive(Debug, Default)]
pub(super) struct Below {
    /// Flushes that served the workers.
    pub(super) flushes: HashSet<usize>,
    /// All their other requests.
    pub(super) others: HashSet<usize>,
}

/// The unit in which a file system's metadata is written.
const BLOCK_BYTES: u64 = 4096;

/// Finds them, layer by layer.
pub(super) fn below(evidence: &Evidence<'_>, attributed: &Attributed<'_>) -> Below {
    let mut found = Below::default();
    for layer in 1..evidence.layers.len() {
        let above = ours_above(evidence, attributed, &found, layer - 1);
        one_layer(evidence, &attributed.requests, &above, layer, &mut found);
    }
    found
}

/// A request of ours on the device above, with the time it was in progress.
struct Above {
    during: RangeInclusive<u64>,
    /// It ends only when the medium has it.
    flushes: bool,
}

fn ours_above(
    evidence: &Evidence<'_>,
    attributed: &Attributed<'_>,
    found: &Below,
    layer: usize,
) -> Vec<Above> {
    let private = evidence.layers[layer].private;
    let is_own = |number: usize, request: &DeviceRequest| {
        let known = found.flushes.contains(&number) || found.others.contains(&number);
        let own = !request.is_flush() && evidence.own_threads.contains(&request.tid);
        private || known || own || attributed.claims[number].is_some()
    };
    let here = attributed.requests.iter().enumerate().filter(|(_, request)| request.layer == layer);
    let own = here.filter(|(number, request)| is_own(*number, request));
    own.filter_map(|(_, request)| {
        let during = request.issue_ns..=request.complete_ns?;
        Some(Above { during, flushes: request.is_flush() || request.flags.fua })
    })
    .collect()
}

fn one_layer(
    evidence: &Evidence<'_>,
    requests: &[DeviceRequest],
    above: &[Above],
    layer: usize,
    found: &mut Below,
) {
    let known = &evidence.layers[layer];
    let flushes: Vec<usize> = (0..requests.len())
        .filter(|&n| requests[n].layer == layer && requests[n].is_flush())
        .collect();
    let mut workers = HashSet::new();
    let asked: Vec<&TraceEvent> =
        evidence.trace.events.iter().filter(|e| asks_for_flush(e, known)).collect();
    for window in above.iter().filter(|window| window.flushes) {
        let since = asked.partition_point(|event| event.time_ns < *window.during.start());
        let within =
            || asked[since..].iter().take_while(|event| event.time_ns <= *window.during.end());
        let Some(first) = within().next() else { continue };
        workers.extend(within().map(|event| event.tid));
        let from = flushes.partition_point(|&n| requests[n].issue_ns < first.time_ns);
        let after = || flushes[from..].iter().copied();
        let ended = |n: &usize| {
            requests[*n].complete_ns.is_some_and(|end_ns| end_ns <= *window.during.end())
        };
        let sent_within = |n: &usize| requests[*n].issue_ns <= *window.during.end();
        // As with our own flushes: the waiting thread continues when its flush has ended.
        let served =
            after().take_while(sent_within).filter(ended).last().or_else(|| after().next());
        found.flushes.extend(served);
    }
    let spans = merged(above);
    let during = |request: &DeviceRequest| {
        let after = spans.partition_point(|span| *span.start() <= request.issue_ns);
        after.checked_sub(1).is_some_and(|at| spans[at].contains(&request.issue_ns))
    };
    let of_worker = |request: &DeviceRequest| {
        request.layer == layer && !request.is_flush() && is_worker(&request.comm) && during(request)
    };
    for request in requests
        .iter()
        .filter(|request| of_worker(request) && known.piece_at(&request.range()).is_some())
    {
        workers.insert(request.tid);
    }
    let theirs = requests.iter().enumerate().filter(|(_, request)| of_worker(request));
    let theirs = theirs.filter(|(_, request)| workers.contains(&request.tid));
    found.others.extend(theirs.filter(|(_, request)| may_be_ours(request, known)).map(|(n, _)| n));
}

/// The same thread also writes back dirty pages of other processes (`syncfs`), and the trace does
/// not show for whom. A flush needs only metadata of the backing file: writes of one block, or
/// marked as metadata. Larger writes stay unattributed.
fn may_be_ours(request: &DeviceRequest, known: &Layer) -> bool {
    known.piece_at(&request.range()).is_some() || request.flags.meta || request.bytes <= BLOCK_BYTES
}

/// The times at which any request of ours was in progress, in order and without overlaps.
fn merged(above: &[Above]) -> Vec<RangeInclusive<u64>> {
    let mut spans: Vec<RangeInclusive<u64>> = above.iter().map(|one| one.during.clone()).collect();
    spans.sort_unstable_by_key(|span| *span.start());
    let mut all: Vec<RangeInclusive<u64>> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if span.start() <= last.end() => {
                *last = *last.start()..=*last.end().max(span.end())
            }
            _ => all.push(span),
        }
    }
    all
}

/// Whether a kernel thread sends this device a flush: the worker, or the host's journal for which
/// the worker waits.
fn asks_for_flush(event: &TraceEvent, layer: &Layer) -> bool {
    let TraceKind::BioQueue { device, flags, comm, .. } = event.what else { return false };
    let is_flush = flags.preflush || flags.op == RequestOp::Flush;
    is_flush && layer.holds(device) && is_kernels(&comm)
}

fn is_worker(comm: &Comm) -> bool {
    let name = comm.as_str();
    name.starts_with("kworker") || name.starts_with("loop")
}

#[cfg(test)]
mod tests;
