//! The bill of a lab's commits: what each request was, by whom, and the sums.
//!
//! *Owns*: the order of reasons for what no commit is known to have caused. *May not touch*: whose
//! a request was (`attribution`), the rule of coverage (`durable`).
//!
//! What the attribution gives to a commit is that. Of the rest a write is, in this order: the
//! journal's, if it lies in the journal's area; data, if it lies on the file's blocks; metadata, if
//! the whole file system is ours; another process's, if that process submitted it; otherwise (a
//! kernel thread's) unattributed, and printed. A flush is ours if the file system is ours. Requests
//! of other processes are always counted separately. Commits that cost less than one flush or FUA
//! write of ours each are not called durable, even where flushes for others covered them all; nor
//! are commits whose data was not seen.

use std::collections::{BTreeMap, HashMap, HashSet};

use inkstone_host::{BlockStat, RequestOp, TraceKind};

use crate::pass::CommitSpan;
use crate::result::{Bill, CrossCheck, DurableFinding, Kind, OUR_WRITES, Submitter, Tally};

use super::attribution::{Acts, Attributed, Attribution, Case, Span, What, is_kernels, is_worker};
use super::durable::{Cover, finding};
use super::evidence::Evidence;
use super::requests::DeviceRequest;

/// The bill of commits.
#[derive(Debug)]
pub struct Billed {
    /// All of it.
    pub bill: Bill,
    /// Whether flushes covered the acknowledgements.
    pub durable: DurableFinding,
    /// On the file system's own device, the requests that a commit made or waited for.
    pub own: BTreeMap<Kind, Tally>,
}

struct Whole<'a> {
    evidence: &'a Evidence<'a>,
    found: Attributed<'a>,
}

/// Makes the bill, and finds out whether flushes covered the acknowledgements.
pub fn bill_of(evidence: &Evidence<'_>) -> Billed {
    let Evidence { trace, layer, commits, counted, .. } = *evidence;
    let (spans, acts) = spans_of(evidence);
    let threads: HashSet<u32> = evidence.own_threads.iter().copied().collect();
    let direct = HashMap::new();
    let layers = std::slice::from_ref(layer);
    let case = Case { layers, spans: &spans, acts: &acts, threads: &threads, direct: &direct };
    let mut attribution = Attribution::of(case);
    trace.events.iter().for_each(|event| attribution.see(event));
    let mut found = attribution.transfers();
    let facts = found.add_waits(&[evidence.overwrites]);
    let whole = Whole { evidence, found };
    let requests = &whole.found.requests;
    let kinds: Vec<Kind> = (0..requests.len()).map(|number| whole.kind(number)).collect();
    let mut bill = Bill {
        commits: commits.len() as u64,
        device: layer.device.clone(),
        shared: !layer.private,
        lost_events: trace.lost,
        notes: layer.notes.clone(),
        ..Bill::default()
    };
    let mut submitters: HashMap<(String, Kind), Tally> = HashMap::new();
    let mut own = BTreeMap::<Kind, Tally>::new();
    for (number, (request, &kind)) in requests.iter().zip(&kinds).enumerate() {
        count(&mut bill, request, kind);
        submitters.entry((whole.who(number), kind)).or_default().add(request.bytes);
        let is_own = whole.found.claims[number].is_some_and(|claim| claim.span.is_some());
        if is_own {
            own.entry(kind).or_default().add(request.bytes);
        }
    }
    bill.submitters = submitters_of(submitters);
    bill.cross_check = counted.map(|stat| cross_check(requests, &stat));
    let covers: Vec<Cover> = facts.iter().map(|facts| facts.cover).collect();
    let durable = durable(evidence, &covers, &bill);
    Billed { bill, durable, own }
}

/// Our threads work for a commit until the next begins; a worker of the kernel, from when it syncs
/// our file until that has ended, for the commit in progress.
fn spans_of(evidence: &Evidence<'_>) -> (Vec<Span>, Acts) {
    let Evidence { trace, layer, commits, own_threads, inode, promises, several, .. } = *evidence;
    let span = |commit: &CommitSpan| Span {
        file: 0,
        layer: Some(0),
        start_ns: commit.start_ns,
        end_ns: commit.ack_ns,
        data_only: true,
        promises,
        several,
        knows_blocks: true,
    };
    let mut acts = Acts::default();
    for (number, commit) in commits.iter().enumerate() {
        let until_ns = commits.get(number + 1).map_or(u64::MAX, |next| next.start_ns - 1);
        own_threads.iter().for_each(|&at| acts.add(at, commit.start_ns..until_ns, number));
    }
    let mut running: HashMap<u32, (u64, usize)> = HashMap::new();
    for event in &trace.events {
        match event.what {
            TraceKind::FileSync { device, inode: of, .. }
                if inode == Some(of)
                    && device.is_none_or(|device| layer.holds(device))
                    && !own_threads.contains(&event.tid) =>
            {
                let begun = commits.partition_point(|commit| commit.start_ns <= event.time_ns);
                let Some(commit) = begun.checked_sub(1) else { continue };
                if event.time_ns <= commits[commit].ack_ns {
                    running.insert(event.tid, (event.time_ns, commit));
                }
            }
            TraceKind::FileSyncEnd { .. } => {
                if let Some((start_ns, commit)) = running.remove(&event.tid) {
                    acts.add(event.tid, start_ns..event.time_ns, commit);
                }
            }
            _ => {}
        }
        // Only ext4 reports the end.
        if let Some(&(start_ns, commit)) = running.get(&event.tid)
            && event.time_ns > commits[commit].ack_ns
        {
            running.remove(&event.tid);
            acts.add(event.tid, start_ns..commits[commit].ack_ns, commit);
        }
    }
    for (thread, (start_ns, commit)) in running {
        acts.add(thread, start_ns..commits[commit].ack_ns, commit);
    }
    (commits.iter().map(span).collect(), acts)
}

/// A commit of ours costs a write of its data, and a flush or a FUA write of ours. Where the bill
/// has fewer, something was not seen: no proof that this way is durable.
fn durable(evidence: &Evidence<'_>, covers: &[Cover], bill: &Bill) -> DurableFinding {
    let not_visible = |reason: String| DurableFinding::NotVisible { reason };
    let (lost, commits) = (evidence.trace.lost, covers.len() as u64);
    if lost > 0 {
        return not_visible(format!("the kernel dropped {lost} trace events"));
    }
    let found = finding(covers);
    let DurableFinding::Seen { .. } = found else { return found };
    let (flushes, fua) = (bill.count(Kind::Flush), bill.fua_writes);
    if evidence.layer.volatile_cache() && flushes + fua < commits {
        return not_visible(format!(
            "{flushes} flushes and {fua} FUA writes of its own for {commits} acknowledgements: \
             flushes for others covered the rest"
        ));
    }
    if bill.count(Kind::DataWrite) == 0 {
        return not_visible("no write of the file's data was seen".into());
    }
    found
}

/// How many requests of unknown origin a bill spells out.
const UNATTRIBUTED_SHOWN: usize = 8;

fn count(bill: &mut Bill, request: &DeviceRequest, kind: Kind) {
    let is_ours = request.is_write() && OUR_WRITES.contains(&kind);
    bill.fua_writes += u64::from(request.flags.fua && is_ours);
    if kind == Kind::UnattributedWrite && bill.unattributed.len() < UNATTRIBUTED_SHOWN {
        let DeviceRequest { sector, bytes, comm, .. } = request;
        bill.unattributed.push(format!("{bytes} bytes at sector {sector} by {comm}"));
    }
    bill.requests.entry(kind).or_default().add(request.bytes);
}

fn submitters_of(all: HashMap<(String, Kind), Tally>) -> Vec<Submitter> {
    let one = |((who, what), tally)| Submitter { who, what, tally };
    let mut all: Vec<Submitter> = all.into_iter().map(one).collect();
    all.sort_by(|a, b| {
        let order = b.tally.requests.cmp(&a.tally.requests);
        order.then(a.what.cmp(&b.what)).then(a.who.cmp(&b.who))
    });
    all
}

fn cross_check(requests: &[DeviceRequest], counted: &BlockStat) -> CrossCheck {
    let of = |op: RequestOp| requests.iter().filter(move |request| request.flags.op == op);
    let sectors = |op: RequestOp| of(op).map(|request| request.bytes / 512).sum();
    let flushes = of(RequestOp::Flush);
    CrossCheck {
        traced_flushes: flushes.count() as u64,
        counted_flushes: counted.flushes.unwrap_or(0),
        traced_write_sectors: sectors(RequestOp::Write),
        counted_write_sectors: counted.write_sectors,
    }
}

impl Whole<'_> {
    fn kind(&self, number: usize) -> Kind {
        let request = &self.found.requests[number];
        let layer = self.evidence.layer;
        let is_block = layer.piece_at(&request.range()).is_some();
        let is_known = layer.private || self.evidence.own_threads.contains(&request.tid);
        let is_data = is_block || is_known && layer.is_data_only(&request.range());
        match (self.found.claims[number].map(|claim| claim.what), request.flags.op) {
            (Some(What::Data), _) => Kind::DataWrite,
            (Some(What::Journal), _) => Kind::JournalWrite,
            (Some(What::Metadata), _) => Kind::MetadataWrite,
            (Some(What::Flush), _) => Kind::Flush,
            _ if request.is_flush() => match layer.private {
                true => Kind::Flush,
                false => Kind::ForeignFlush,
            },
            (_, RequestOp::Read) if is_data => Kind::DataRead,
            (_, RequestOp::Read) if is_known => Kind::OtherRead,
            (_, RequestOp::Read) => Kind::ForeignRead,
            (_, RequestOp::Write) if request.is_journal(layer) => Kind::OtherJournalWrite,
            (_, RequestOp::Write) if is_data => Kind::DataWrite,
            (_, RequestOp::Write) if is_known => Kind::MetadataWrite,
            (_, RequestOp::Write) if !is_kernels(&request.comm) => Kind::ForeignWrite,
            // On a shared disk the kernel writes the metadata of all processes.
            (_, RequestOp::Write) => Kind::UnattributedWrite,
            _ if is_known => Kind::Discard,
            _ => Kind::ForeignOther,
        }
    }

    fn who(&self, number: usize) -> String {
        let request = &self.found.requests[number];
        let is_own_thread = self.evidence.own_threads.contains(&request.tid);
        let claim = self.found.claims[number];
        let is_asked = claim.is_some_and(|claim| matches!(claim.what, What::Flush));
        let private = self.evidence.layer.private;
        let by_worker = is_kernels(&request.comm);
        if is_asked && !by_worker || is_own_thread && (!request.is_flush() || private) {
            return "this process".into();
        }
        if is_own_thread {
            return "unknown".into();
        }
        // A worker's thread id changes from request to request and means nothing.
        let name = request.comm.as_str();
        if is_worker(&request.comm) { "kworker".into() } else { name.to_owned() }
    }
}

#[cfg(test)]
mod tests;
