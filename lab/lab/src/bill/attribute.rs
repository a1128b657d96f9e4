//! What each request was, and why: data, journal (and whose transaction), metadata, flush; summed
//! into a bill.
//!
//! *Owns*: the order of reasons. *May not touch*: how requests were found (`requests`), the
//! coverage rule (`durable`).
//!
//! A write is, in this order: the journal's, if it lies in the journal's area; data, if it lies on
//! the file's blocks; metadata, if this process submitted it (which writes nothing else), or if the
//! whole file system is ours; another process's, if that process submitted it; otherwise (a kernel
//! thread's) unattributed, and printed.
//!
//! A flush is ours if the file system is ours, or if our thread waited for it (or a kernel worker
//! that syncs for a request of ours), or the journal did for a transaction of ours, or, on the disk
//! below a loop device, its worker did for a request of ours (`below`). A flush that serves us and
//! others at once is ours. Requests of other processes are always counted separately. Commits that
//! cost less than one flush or FUA write of ours each are not called durable, even where flushes
//! for others covered them all.
//!
//! A journal write is *caused* by a commit if the transaction began and ended inside that commit
//! (ext4), or if our own thread forced the log earlier in this commit (xfs); a *timer's* if the
//! transaction had been open for the journal's commit interval, or no thread of ours forced the
//! log; *other* otherwise.

use std::collections::{HashMap, HashSet};

use inkstone_host::{BlockStat, RequestFlags, RequestOp, TraceKind};

use crate::pass::CommitSpan;
use crate::result::{
    Bill, BillSource, CrossCheck, DurableFinding, Kind, LayerBill, OUR_WRITES, Submitter, Tally,
    TimelineCommit, TimelineRequest,
};

use super::below::{Below, below};
use super::durable::covered;
use super::evidence::{Evidence, is_kernels, is_worker};
use super::layer::Layer;
use super::requests::{DeviceRequest, pair};

/// A transaction of ext4's journal.
#[derive(Debug, Clone, Copy)]
struct Transaction {
    layer: usize,
    number: u32,
    start_ns: u64,
    end_ns: u64,
    running_ms: Option<u64>,
}

/// What the trace shows besides the requests.
struct Causes<'a> {
    layers: &'a [Layer],
    commits: &'a [CommitSpan],
    own_threads: &'a [u32],
    own_workers: bool,
    /// Which requests are flushes for our own threads, or for the kernel's workers that sync for
    /// us.
    own_flushes: HashSet<usize>,
    /// Requests that loop devices' workers made to the host's devices for us.
    below: Below,
    transactions: Vec<Transaction>,
    /// Times at which our own threads forced xfs's log.
    forced_ns: Vec<u64>,
}

/// Makes the bill, and finds out whether flushes covered the acknowledgements.
pub fn bill_of(evidence: &Evidence<'_>) -> (Bill, DurableFinding) {
    let Evidence { trace, layers, commits, counted, timeline_commits, .. } = *evidence;
    let causes = Causes::from(evidence);
    let requests = pair(&trace.events, layers);
    let own_flushes = own_flushes(evidence, &requests);
    let below = below(evidence, &requests, &own_flushes);
    let causes = Causes { own_flushes, below, ..causes };
    let kinds: Vec<Kind> =
        requests.iter().enumerate().map(|(n, request)| causes.kind(n, request)).collect();
    let mut bills: Vec<LayerBill> = layers.iter().map(empty_bill).collect();
    let mut submitters: HashMap<(usize, String, Kind), Tally> = HashMap::new();
    for (n, (request, &kind)) in requests.iter().zip(&kinds).enumerate() {
        count(&mut bills[request.layer], request, kind);
        let key = (request.layer, causes.who(n, request), kind);
        submitters.entry(key).or_default().add(request.bytes);
    }
    for (index, bill) in bills.iter_mut().enumerate() {
        bill.submitters = submitters_of(&submitters, index);
        bill.cross_check =
            counted.get(index).copied().flatten().map(|stat| cross_check(&requests, index, &stat));
    }
    let durable = durable(&requests, &kinds, &causes, trace.lost);
    let durable = if_paid(durable, bills.first().zip(layers.first()), commits.len() as u64);
    let timeline = timeline(&causes, &requests, &kinds, timeline_commits);
    let punts = trace
        .events
        .iter()
        .filter(|event| matches!(event.what, TraceKind::RingPunted { .. }))
        .count();
    let bill = Bill {
        source: BillSource::Trace,
        commits: commits.len() as u64,
        layers: bills,
        lost_events: trace.lost,
        uring_punts: (punts > 0).then_some(punts as u64),
        timeline,
        notes: layers.iter().flat_map(|layer| layer.notes.clone()).collect(),
    };
    (bill, durable)
}

fn durable(
    requests: &[DeviceRequest],
    kinds: &[Kind],
    causes: &Causes<'_>,
    lost: u64,
) -> DurableFinding {
    if lost > 0 {
        return DurableFinding::NotVisible {
            reason: format!("the kernel dropped {lost} trace events"),
        };
    }
    let Some(layer) = causes.layers.first() else {
        return DurableFinding::NotVisible { reason: "there is no block device".into() };
    };
    // Metadata that our own thread waits for (an inode without a journal, a log tree) is part of
    // what it acknowledges.
    let waited =
        |request: &DeviceRequest| request.flags.sync && causes.own_threads.contains(&request.tid);
    // A flush empties the whole cache, whoever sent it.
    let ours = |request: &DeviceRequest, kind: Kind| match kind {
        Kind::DataWrite | Kind::JournalWrite | Kind::Flush | Kind::ForeignFlush => true,
        Kind::MetadataWrite => waited(request),
        _ => false,
    };
    let relevant: Vec<_> = requests
        .iter()
        .zip(kinds)
        .filter(|(request, kind)| request.layer == 0 && ours(request, **kind))
        .map(|(request, _)| request)
        .collect();
    covered(causes.commits, &relevant, layer.volatile_cache)
}

/// A commit of ours costs a flush or a FUA write of ours. Where the bill has fewer, something was
/// not seen: no proof that this way is durable without the others' flushes.
fn if_paid(
    durable: DurableFinding,
    own: Option<(&LayerBill, &Layer)>,
    commits: u64,
) -> DurableFinding {
    match (&durable, own) {
        (DurableFinding::Seen { .. }, Some((bill, layer)))
            if layer.volatile_cache && bill.count(Kind::Flush) + bill.fua_writes < commits =>
        {
            let (flushes, fua) = (bill.count(Kind::Flush), bill.fua_writes);
            let reason = format!(
                "{flushes} flushes and {fua} FUA writes of its own for {commits} acknowledgements: \
                 flushes for others covered the rest"
            );
            DurableFinding::NotVisible { reason }
        }
        _ => durable,
    }
}

fn empty_bill(layer: &Layer) -> LayerBill {
    LayerBill {
        device: layer.device.clone(),
        role: layer.role.clone(),
        shared: !layer.private,
        ..LayerBill::default()
    }
}

/// How many requests of unknown origin a bill spells out.
const UNATTRIBUTED_SHOWN: usize = 8;

fn count(bill: &mut LayerBill, request: &DeviceRequest, kind: Kind) {
    if request.is_write() {
        bill.all_writes.add(request.bytes);
        let is_ours = OUR_WRITES.contains(&kind);
        bill.fua_writes += u64::from(request.flags.fua && is_ours);
    }
    if request.flags.op == RequestOp::Read {
        bill.all_reads.add(request.bytes);
    }
    if kind == Kind::UnattributedWrite && bill.unattributed.len() < UNATTRIBUTED_SHOWN {
        let DeviceRequest { sector, bytes, comm, .. } = request;
        bill.unattributed.push(format!("{bytes} bytes at sector {sector} by {comm}"));
    }
    bill.requests.entry(kind).or_default().add(request.bytes);
}

fn submitters_of(all: &HashMap<(usize, String, Kind), Tally>, layer: usize) -> Vec<Submitter> {
    let mut own: Vec<_> = all.iter().filter(|((index, ..), _)| *index == layer).collect();
    own.sort_by(|((_, who_a, kind_a), a), ((_, who_b, kind_b), b)| {
        b.requests.cmp(&a.requests).then(kind_a.cmp(kind_b)).then(who_a.cmp(who_b))
    });
    let submitter = |((_, who, kind), tally): (&(usize, String, Kind), &Tally)| Submitter {
        who: who.clone(),
        what: *kind,
        tally: *tally,
    };
    own.into_iter().map(submitter).collect()
}

fn cross_check(requests: &[DeviceRequest], layer: usize, counted: &BlockStat) -> CrossCheck {
    let own = || requests.iter().filter(move |request| request.layer == layer);
    let sectors = |op: RequestOp| own().filter(|r| r.flags.op == op).map(|r| r.bytes / 512).sum();
    CrossCheck {
        traced_flushes: own().filter(|request| request.is_flush()).count() as u64,
        counted_flushes: counted.flushes.unwrap_or(0),
        traced_write_sectors: sectors(RequestOp::Write),
        counted_write_sectors: counted.write_sectors,
        traced_read_sectors: sectors(RequestOp::Read),
        counted_read_sectors: counted.read_sectors,
    }
}

impl<'a> Causes<'a> {
    fn from(evidence: &Evidence<'a>) -> Self {
        let Evidence { trace, layers, commits, own_threads, own_workers, .. } = *evidence;
        let mut transactions: Vec<Transaction> = Vec::new();
        let mut forced_ns = Vec::new();
        let layer_of = |device| layers.iter().position(|layer| layer.numbers.contains(&device));
        for event in &trace.events {
            match event.what {
                TraceKind::JournalCommitStart { device, transaction } => {
                    let Some(layer) = layer_of(device) else { continue };
                    let start_ns = event.time_ns;
                    transactions.push(Transaction {
                        layer,
                        number: transaction,
                        start_ns,
                        end_ns: u64::MAX,
                        running_ms: None,
                    });
                }
                TraceKind::JournalCommitEnd { device, transaction } => {
                    if let Some(found) = find(&mut transactions, layer_of(device), transaction) {
                        found.end_ns = event.time_ns;
                    }
                }
                TraceKind::JournalStats { device, transaction, running_ms, .. } => {
                    if let Some(found) = find(&mut transactions, layer_of(device), transaction) {
                        found.running_ms = Some(running_ms);
                    }
                }
                TraceKind::XfsLogForce { .. } | TraceKind::FileSync { .. }
                    if own_threads.contains(&event.tid) =>
                {
                    forced_ns.push(event.time_ns);
                }
                _ => {}
            }
        }
        Self {
            layers,
            commits,
            own_threads,
            own_workers,
            own_flushes: HashSet::new(),
            below: Below::default(),
            transactions,
            forced_ns,
        }
    }

    /// The commit in progress at this time, or the last one acknowledged before it.
    fn commit_at(&self, time_ns: u64) -> Option<&CommitSpan> {
        let after = self.commits.partition_point(|commit| commit.start_ns <= time_ns);
        self.commits.get(after.checked_sub(1)?)
    }

    fn kind(&self, number: usize, request: &DeviceRequest) -> Kind {
        let layer = &self.layers[request.layer];
        let range = request.range();
        match request.flags.op {
            RequestOp::Flush => self.flush_kind(number, request),
            RequestOp::Discard | RequestOp::SecureErase if self.is_known(number, request) => {
                Kind::Discard
            }
            RequestOp::Other | RequestOp::Zone if self.is_known(number, request) => Kind::Zeroing,
            RequestOp::Discard | RequestOp::SecureErase | RequestOp::Other | RequestOp::Zone => {
                Kind::ForeignOther
            }
            RequestOp::Read if layer.is_file(&range) => Kind::DataRead,
            RequestOp::Read if self.is_known(number, request) => Kind::OtherRead,
            RequestOp::Read => Kind::ForeignRead,
            RequestOp::Write if request.bytes == 0 => self.flush_kind(number, request),
            RequestOp::Write if layer.is_log(&range) => self.journal_kind(layer, request),
            RequestOp::Write if layer.is_file(&range) => Kind::DataWrite,
            // If the journal's place could not be read, its thread identifies it: that writes
            // nothing else there.
            RequestOp::Write
                if layer.log.is_empty() && request.comm.as_str().starts_with("jbd2/") =>
            {
                self.journal_kind(layer, request)
            }
            RequestOp::Write if self.is_known(number, request) => Kind::MetadataWrite,
            RequestOp::Write if !is_kernels(&request.comm) => Kind::ForeignWrite,
            // On a shared disk the kernel writes the metadata of all processes.
            RequestOp::Write => Kind::UnattributedWrite,
        }
    }

    /// Whether our own thread submitted it, or a loop device's worker did for us, or only we have
    /// files there.
    fn is_known(&self, number: usize, request: &DeviceRequest) -> bool {
        let private = self.layers[request.layer].private;
        private || self.own_threads.contains(&request.tid) || self.below.others.contains(&number)
    }

    fn flush_kind(&self, number: usize, request: &DeviceRequest) -> Kind {
        let layer = &self.layers[request.layer];
        let comm = request.comm.as_str();
        let ours = if layer.private || self.served(number) {
            true
        } else if request.layer > 0 || self.own_threads.contains(&request.tid) {
            // Below a loop device nothing else is ours; above it, our thread submitted last, but
            // another flush served it.
            false
        } else if comm.starts_with("jbd2/")
            || layer.file_system == "xfs" && is_kernels(&request.comm)
        {
            self.journal_kind(layer, request) == Kind::JournalWrite
        } else {
            false
        };
        if ours { Kind::Flush } else { Kind::ForeignFlush }
    }

    /// Whether this flush served our own thread, or a loop device's worker for us.
    fn served(&self, number: usize) -> bool {
        self.own_flushes.contains(&number) || self.below.flushes.contains(&number)
    }

    fn journal_kind(&self, layer: &Layer, request: &DeviceRequest) -> Kind {
        if layer.file_system == "xfs" {
            let forced = self.commit_at(request.issue_ns).is_some_and(|commit| {
                let within = |&at: &u64| at >= commit.start_ns && at <= request.issue_ns;
                request.issue_ns <= commit.ack_ns && self.forced_ns.iter().any(within)
            });
            return if forced { Kind::JournalWrite } else { Kind::TimerJournalWrite };
        }
        let during = |t: &&Transaction| {
            t.layer == request.layer
                && t.start_ns <= request.issue_ns
                && request.issue_ns <= t.end_ns
        };
        let Some(transaction) = self.transactions.iter().rev().find(during) else {
            return Kind::OtherJournalWrite;
        };
        if transaction.running_ms.is_some_and(|ms| ms >= layer.journal_interval_ms) {
            return Kind::TimerJournalWrite;
        }
        let caused = self
            .commit_at(transaction.start_ns)
            .is_some_and(|commit| transaction.end_ns <= commit.ack_ns);
        if caused { Kind::JournalWrite } else { Kind::OtherJournalWrite }
    }

    fn who(&self, number: usize, request: &DeviceRequest) -> String {
        let is_flush = request.bytes == 0;
        let by_worker = self.own_workers && is_worker(&request.comm);
        if self.own_flushes.contains(&number) && !by_worker
            || !is_flush && self.own_threads.contains(&request.tid)
        {
            return "this process".into();
        }
        if self.own_threads.contains(&request.tid) {
            let private = self.layers[request.layer].private;
            return if private { "this process" } else { "unknown" }.into();
        }
        if self.below.flushes.contains(&number) || self.below.others.contains(&number) {
            return format!("worker of {}", self.layers[request.layer - 1].device);
        }
        // A worker's thread id changes from request to request and means nothing.
        let name = request.comm.as_str();
        if name.starts_with("kworker") { "kworker".into() } else { name.to_owned() }
    }
}

/// The device's flush for each flush that our own threads submitted, or within a commit a kernel's
/// worker, where those sync for us: a worker's id means nothing, and a flush of another worker
/// leads to the same flush of the device. One flush of the device serves all processes that
/// submitted one before it, so the last submitter says little. A waiting thread continues when its
/// flush has ended: so it is the last one that ended before the acknowledgement, and outside of a
/// commit the next one issued.
fn own_flushes(evidence: &Evidence<'_>, requests: &[DeviceRequest]) -> HashSet<usize> {
    let Evidence { trace, layers, commits, own_threads, own_workers, .. } = *evidence;
    let mut own = HashSet::new();
    let flushes: Vec<usize> = (0..requests.len()).filter(|&n| requests[n].is_flush()).collect();
    for event in &trace.events {
        let TraceKind::BioQueue { device, flags, comm, .. } = event.what else { continue };
        let is_thread = own_threads.contains(&event.tid);
        let may_be_ours = is_thread || own_workers && is_worker(&comm);
        if !may_be_ours || !flags.preflush && flags.op != RequestOp::Flush {
            continue;
        }
        let Some(layer) = layers.iter().position(|layer| layer.numbers.contains(&device)) else {
            continue;
        };
        let begun = commits.partition_point(|commit| commit.start_ns <= event.time_ns);
        let commit = begun
            .checked_sub(1)
            .map(|n| commits[n])
            .filter(|commit| event.time_ns <= commit.ack_ns);
        if !is_thread && commit.is_none() {
            continue;
        }
        let from = flushes.partition_point(|&n| requests[n].issue_ns < event.time_ns);
        let after = || flushes[from..].iter().copied().filter(|&n| requests[n].layer == layer);
        let ended = |n: &usize| {
            commit.is_some_and(|commit| {
                requests[*n].complete_ns.is_some_and(|end_ns| end_ns <= commit.ack_ns)
            })
        };
        let sent_within =
            |n: &usize| commit.is_none_or(|commit| requests[*n].issue_ns <= commit.ack_ns);
        let served = after().take_while(sent_within).filter(ended).last();
        // Another's worker may have asked: without a flush that ended in time this one is not ours.
        own.extend(served.or_else(|| after().next().filter(|_| is_thread)));
    }
    own
}

/// The flags as the kernel prints them (see `inkstone_host::RequestFlags`).
fn letters(flags: RequestFlags) -> String {
    let op = match flags.op {
        RequestOp::Write => "W",
        RequestOp::Read => "R",
        RequestOp::Flush => "F",
        RequestOp::Discard => "D",
        RequestOp::SecureErase => "DE",
        RequestOp::Zone => "Z",
        RequestOp::Other => "N",
    };
    let set = [
        (flags.preflush, "F"),
        (true, op),
        (flags.fua, "F"),
        (flags.readahead, "A"),
        (flags.sync, "S"),
        (flags.meta, "M"),
        (flags.atomic, "U"),
    ];
    set.into_iter().filter(|(is, _)| *is).map(|(_, letter)| letter).collect()
}

fn find(
    transactions: &mut [Transaction],
    layer: Option<usize>,
    number: u32,
) -> Option<&mut Transaction> {
    let layer = layer?;
    transactions.iter_mut().rev().find(|found| found.layer == layer && found.number == number)
}

/// Commits from the middle of the pass, in its steady state.
fn timeline(
    causes: &Causes<'_>,
    requests: &[DeviceRequest],
    kinds: &[Kind],
    count: usize,
) -> Vec<TimelineCommit> {
    let commits = causes.commits;
    let first = (commits.len() / 2).min(commits.len().saturating_sub(count));
    let mut timeline = Vec::new();
    for (number, commit) in commits.iter().enumerate().skip(first).take(count) {
        let until_ns = commits.get(number + 1).map_or(u64::MAX, |next| next.start_ns);
        let during = |request: &DeviceRequest| {
            request.issue_ns >= commit.start_ns && request.issue_ns < until_ns
        };
        let shown =
            requests.iter().zip(kinds).enumerate().filter(|(_, (request, _))| during(request));
        let row = |(at, (request, kind)): (usize, (&DeviceRequest, &Kind))| TimelineRequest {
            device: causes.layers[request.layer].device.clone(),
            issued_ns: request.issue_ns - commit.start_ns,
            completed_ns: request.complete_ns.map(|end_ns| end_ns.saturating_sub(commit.start_ns)),
            what: *kind,
            sector: request.sector,
            bytes: request.bytes,
            flags: letters(request.flags),
            who: causes.who(at, request),
        };
        timeline.push(TimelineCommit {
            number: number as u64,
            total_ns: commit.ack_ns - commit.start_ns,
            requests: shown.map(row).collect(),
        });
    }
    timeline
}

/// A bill from the device's counters, which include all its users.
pub fn shared_counters(
    device: &str,
    commits: u64,
    counted: &BlockStat,
    volatile_cache: bool,
) -> (Bill, DurableFinding) {
    let flushes = counted.flushes.unwrap_or(0);
    // The counters count an empty flush as a write, but not the flushes around a journal's commit
    // record: so they do not show how many of these writes carried bytes.
    let writes = counted.writes;
    let layer = LayerBill {
        device: device.into(),
        role: "file system".into(),
        all_writes: Tally { requests: writes, bytes: counted.write_sectors * 512 },
        all_reads: Tally { requests: counted.reads, bytes: counted.read_sectors * 512 },
        requests: [(Kind::Flush, Tally { requests: flushes, bytes: 0 })].into(),
        ..LayerBill::default()
    };
    let durable = match counted.flushes {
        None => DurableFinding::NotVisible { reason: "this kernel does not count flushes".into() },
        Some(_) if !volatile_cache && writes >= commits => {
            DurableFinding::Consistent { flushes, commits }
        }
        Some(flushes) if volatile_cache && flushes >= commits => {
            DurableFinding::Consistent { flushes, commits }
        }
        Some(flushes) => {
            let reason = format!(
                "the device saw {flushes} flushes and {writes} writes for {commits} \
                 acknowledgements"
            );
            DurableFinding::NotCovered { reason }
        }
    };
    let bill = Bill {
        source: BillSource::SharedCounters,
        commits,
        layers: vec![layer],
        lost_events: 0,
        uring_punts: None,
        timeline: Vec::new(),
        notes: Vec::new(),
    };
    (bill, durable)
}

#[cfg(test)]
mod tests;
