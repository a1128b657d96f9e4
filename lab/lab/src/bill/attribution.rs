//! Whose each request was: the one attribution of the lab's bills, the log's and `watch`.
//!
//! *Owns*: the rules below. *May not touch*: files, /proc, or what a page calls the parts.
//!
//! A *span* is a commit of the lab or a sync of a watched program: a time in which some threads
//! work for it ([`Acts`]). Events go in by time, and each is looked at once.
//!
//! **Data** is a write that a thread of the span submitted, or any write of ours on the file's
//! blocks. What such a thread writes elsewhere is **metadata**. **A flush** belongs to a span if a
//! thread of it asked for one that it served (`durable::Flushes`), or if the block layer made it of
//! PREFLUSH or FUA of a write of the span. A request that serves several
//! spans is counted once, for the first.
//!
//! **The journal** (ext4): a sync that waited for a transaction sends no flush of its own, since
//! the journal's flush covers it. So a sync without a flush of its own waited for the last
//! transaction that ended within it. A sync that sent a flush waited if a transaction ended between
//! its data and that flush (with `data=journal`: since its start, since the transaction has the
//! data). The transaction's writes and flushes, on whichever disk, belong to the span. With fast
//! commits the syncing thread writes into the journal itself. (xfs): a sync that forced the log
//! waited for the last log write that ended within it, and for the earlier ones of the same
//! checkpoint. (btrfs): the syncing thread writes the log tree and the superblocks itself.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use inkstone_host::{Comm, DeviceNumber, RequestOp, TraceEvent, TraceKind};

use super::durable::{Cover, Flushes, cover};
use super::layer::Layer;
use super::requests::{DeviceRequest, Pairs};

/// A commit of the lab, or a sync of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Of which file.
    pub file: usize,
    /// The file's file system, as a place in the layers.
    pub layer: Option<usize>,
    /// When it began.
    pub start_ns: u64,
    /// When it had ended.
    pub end_ns: u64,
    /// Whether time stamps are left out.
    pub data_only: bool,
    /// Whether it promises that something is durable.
    pub promises: bool,
    /// Whether it has more than one sync, each of which may flush or wait.
    pub several: bool,
    /// Whether what its threads write beside the known blocks of files is metadata for sure.
    pub knows_blocks: bool,
}

/// Which threads work for which span, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acts(HashMap<u32, Vec<(Range<u64>, usize)>>);

impl Acts {
    /// This thread works for the span in this time. To be called by the time of the start.
    pub(crate) fn add(&mut self, thread: u32, during: Range<u64>, span: usize) {
        self.0.entry(thread).or_default().push((during, span));
    }

    /// The span for which the thread worked then.
    fn span_at(&self, thread: u32, time_ns: u64) -> Option<usize> {
        let all = self.0.get(&thread)?;
        let after = all.partition_point(|(during, _)| during.start <= time_ns);
        // Requests of a ring overlap: look back over a few.
        let mut back = all[..after].iter().rev().take(64);
        back.find(|(during, _)| time_ns <= during.end).map(|(_, span)| *span)
    }
}

/// What there is besides events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) layers: &'a [Layer],
    /// By their start.
    pub(crate) spans: &'a [Span],
    pub(crate) acts: &'a Acts,
    /// The program's threads.
    pub(crate) threads: &'a HashSet<u32>,
    /// For each thread, when it began to write to which file past the page cache.
    pub(crate) direct: &'a HashMap<u32, Vec<(u64, usize)>>,
}

/// What a request was for a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Data,
    Journal,
    Metadata,
    Read,
    Flush,
}

/// Whose a request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) what: What,
    pub(crate) file: usize,
    /// The first span that it served; `None` between spans.
    pub(crate) span: Option<usize>,
}

/// What was found out about a span beside its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Whether it waited for the journal or log.
    pub(crate) waited: bool,
    /// Whether its writes were on the medium when it ended.
    pub(crate) cover: Cover,
}

/// A transaction of ext4's journal.
#[derive(Debug, Clone)]
pub(crate) struct Transaction {
    pub(crate) layer: usize,
    number: u32,
    start_ns: u64,
    end_ns: u64,
    /// The flushes that the journal's thread asked for, with their disks.
    asked: Vec<(u64, usize)>,
}

/// Takes events by time.
pub(crate) struct Attribution<'a> {
    case: Case<'a>,
    pairs: Pairs<'a>,
    /// For each span, when its threads asked for pure flushes, and of which disk.
    asked: HashMap<usize, Vec<(u64, usize)>>,
    /// When anybody asked for one, and of which disk of which layer.
    all_asked: Vec<(u64, (usize, usize))>,
    /// For each span, when its threads first forced xfs's log.
    forced: HashMap<usize, u64>,
    transactions: Vec<Transaction>,
    /// The transaction that each journal's thread writes.
    writes: HashMap<u32, usize>,
}

impl<'a> Attribution<'a> {
    pub(crate) fn of(case: Case<'a>) -> Self {
        Self {
            case,
            pairs: Pairs::of(case.layers),
            asked: HashMap::new(),
            all_asked: Vec::new(),
            forced: HashMap::new(),
            transactions: Vec::new(),
            writes: HashMap::new(),
        }
    }

    /// Takes the next event.
    pub(crate) fn see(&mut self, event: &TraceEvent) {
        self.pairs.see(event);
        let (time_ns, thread) = (event.time_ns, event.tid);
        match event.what {
            TraceKind::BioQueue { device, sector, sectors, flags, .. }
                if flags.is_pure_flush(sectors) =>
            {
                let Some((layer, disk)) = self.pairs.place_of(device, sector) else { return };
                self.all_asked.push((time_ns, (layer, disk)));
                if let Some(span) = self.case.acts.span_at(thread, time_ns) {
                    self.asked.entry(span).or_default().push((time_ns, disk));
                } else if let Some(&transaction) = self.writes.get(&thread) {
                    self.transactions[transaction].asked.push((time_ns, disk));
                }
            }
            TraceKind::XfsLogForce { .. } => {
                if let Some(span) = self.case.acts.span_at(thread, time_ns) {
                    self.forced.entry(span).or_insert(time_ns);
                }
            }
            TraceKind::JournalCommitStart { device, transaction } => {
                let Some(layer) = self.layer_of(device) else { return };
                self.writes.insert(thread, self.transactions.len());
                self.transactions.push(Transaction {
                    layer,
                    number: transaction,
                    start_ns: time_ns,
                    end_ns: u64::MAX,
                    asked: Vec::new(),
                });
            }
            TraceKind::JournalCommitEnd { device, transaction } => {
                self.writes.remove(&thread);
                if let Some(found) = self.transaction(device, transaction) {
                    found.end_ns = time_ns;
                }
            }
            TraceKind::Pause { .. } => self.writes.clear(),
            _ => {}
        }
    }

    fn layer_of(&self, device: DeviceNumber) -> Option<usize> {
        self.case.layers.iter().position(|layer| layer.holds(device))
    }

    fn transaction(&mut self, device: DeviceNumber, number: u32) -> Option<&mut Transaction> {
        let layer = self.layer_of(device)?;
        let mut last = self.transactions.iter_mut().rev().take(8);
        last.find(|found| (found.layer, found.number) == (layer, number))
    }

    /// All events are in: which reads and writes are the program's, without what it only waited
    /// for.
    pub(crate) fn transfers(self) -> Attributed<'a> {
        let Self { case, pairs, asked, mut all_asked, forced, transactions, .. } = self;
        let (requests, is_asked) = (pairs.requests, pairs.is_asked);
        let mut flushes = Flushes::default();
        let mut journal = vec![Vec::new(); case.layers.len()];
        for (index, request) in requests.iter().enumerate() {
            let layer = &case.layers[request.layer];
            let disk = &layer.disks[request.disk];
            // The block layer makes flushes of PREFLUSH and FUA.
            if request.is_write() && disk.volatile_cache {
                let before = request.asked.preflush.then_some(request.queued_ns);
                let after = request.complete_ns.filter(|_| request.asked.fua && !disk.fua);
                let place = (request.layer, request.disk);
                all_asked.extend(before.into_iter().chain(after).map(|at_ns| (at_ns, place)));
            }
            if request.is_flush() {
                flushes.add(index, disk.numbers.first(), request);
            } else if request.is_journal(layer) {
                journal[request.layer].push(index);
            }
        }
        all_asked.sort_unstable();
        let number =
            |(layer, disk): (usize, usize)| Some(*case.layers[layer].disks[disk].numbers.first()?);
        flushes.serve(all_asked.iter().filter_map(|&(at_ns, at)| Some((at_ns, number(at)?))));
        let mut by_layer = vec![Vec::new(); case.layers.len()];
        for (index, one) in transactions.iter().enumerate() {
            by_layer[one.layer].push(index);
        }
        let mut found = Attributed {
            case,
            claims: vec![None; requests.len()],
            requests,
            is_asked,
            flushes,
            journal,
            transactions,
            by_layer,
            asked,
            forced,
        };
        for index in 0..found.requests.len() {
            found.claims[index] = found.transfer(&found.requests[index]);
        }
        found
    }
}

/// The requests of a trace, and whose they were.
pub(crate) struct Attributed<'a> {
    case: Case<'a>,
    /// By the time of their issue.
    pub(crate) requests: Vec<DeviceRequest>,
    /// Whose each of them was; `None`: another's, or not known.
    pub(crate) claims: Vec<Option<Claim>>,
    /// For each layer, whether anything was asked of it.
    pub(crate) is_asked: Vec<bool>,
    flushes: Flushes,
    /// For each layer, its writes to the journal or log.
    journal: Vec<Vec<usize>>,
    transactions: Vec<Transaction>,
    /// For each layer, its transactions.
    by_layer: Vec<Vec<usize>>,
    asked: HashMap<usize, Vec<(u64, usize)>>,
    forced: HashMap<usize, u64>,
}

/// The longest time from the start of a direct write to its requests.
const DIRECT_NS: u64 = 1_000_000_000;

impl Attributed<'_> {
    /// Reads and writes that are the program's, without the journal's own.
    fn transfer(&self, request: &DeviceRequest) -> Option<Claim> {
        if request.is_flush() {
            return None;
        }
        let layer = &self.case.layers[request.layer];
        let spans = self.case.spans;
        let span = self.case.acts.span_at(request.tid, request.queued_ns);
        let span = span.filter(|&at| spans[at].layer == Some(request.layer));
        let of_span = |what, at: usize| Some(Claim { what, file: spans[at].file, span });
        if request.is_journal(layer) {
            // On ext4 that is a fast commit. xfs's log may be written by anyone, for anyone.
            let fast = span.filter(|_| layer.file_system != "xfs");
            return fast.and_then(|at| of_span(What::Journal, at));
        }
        let is_data = || layer.is_data_only(&request.range());
        match (request.flags.op, layer.piece_at(&request.range()), span) {
            (RequestOp::Read, _, Some(at)) => of_span(What::Read, at),
            // Another program writes to the same file, or to blocks that were this file's.
            (RequestOp::Write, Some(_), _) if !self.may_be_ours(request) => None,
            (RequestOp::Write, Some(piece), _) => {
                let span = span.filter(|&at| spans[at].file == piece.file);
                Some(Claim { what: What::Data, file: piece.file, span })
            }
            (RequestOp::Write, None, Some(at)) => {
                let is_metadata = match layer.data_only.is_empty() {
                    true => request.flags.meta || spans[at].knows_blocks,
                    false => !is_data(),
                };
                of_span(if is_metadata { What::Metadata } else { What::Data }, at)
            }
            // If the file's blocks are not known (btrfs), the thread's last call decides.
            (RequestOp::Write, None, None) => {
                let all = self.case.direct.get(&request.tid)?;
                let after = all.partition_point(|(time_ns, _)| *time_ns <= request.queued_ns);
                let (time_ns, file) = *all.get(after.checked_sub(1)?)?;
                let is_it = request.queued_ns - time_ns < DIRECT_NS && is_data();
                is_it.then_some(Claim { what: What::Data, file, span: None })
            }
            _ => None,
        }
    }

    /// Whether the program asked for it, or a thread of the kernel, which may work for anyone.
    fn may_be_ours(&self, request: &DeviceRequest) -> bool {
        self.case.threads.contains(&request.tid) || is_kernels(&request.comm)
    }

    /// Adds flushes and the journal. `overwrites`: the files of which a data sync has no metadata
    /// to wait for, since almost all that is written are blocks that were written before.
    pub(crate) fn add_waits(&mut self, overwrites: &[bool]) -> Vec<Facts> {
        let case = self.case;
        let mut own: Vec<Vec<usize>> = vec![Vec::new(); case.spans.len()];
        // For each file, the data that was written between its spans.
        let mut between: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, claim) in self.claims.iter().enumerate() {
            match claim {
                Some(Claim { what: What::Read, .. }) | None => {}
                Some(Claim { span: Some(span), .. }) => own[*span].push(index),
                Some(Claim { file, span: None, .. }) => {
                    between.entry(*file).or_default().push(index);
                }
            }
        }
        // For each file, how many of those an earlier span has covered.
        let mut done: HashMap<usize, usize> = HashMap::new();
        let mut facts = Vec::with_capacity(case.spans.len());
        for (number, span) in case.spans.iter().enumerate() {
            let Some(layer) = span.layer else {
                facts.push(Facts { waited: false, cover: Cover::Nothing });
                continue;
            };
            let own = &own[number];
            let asked = self.asked.get(&number).map_or(&[][..], Vec::as_slice);
            let served = |&(at_ns, disk): &(u64, usize)| self.flush_for(layer, disk, at_ns);
            let mut flushes: Vec<usize> = asked.iter().filter_map(served).collect();
            flushes.extend(own.iter().flat_map(|&index| self.around(index)));
            let is_fast =
                own.iter().any(|&at| self.claims[at].is_some_and(|c| c.what == What::Journal));
            let by_name = &case.layers[layer];
            let is_ordered = by_name.file_system != "xfs" && !by_name.journals_data;
            let only_data = span.data_only && overwrites.get(span.file) == Some(&true);
            // With a flush of its own it may have waited for a transaction that was already past
            // its flush, but only if the sync changed metadata.
            let waited = match !flushes.is_empty() && only_data && is_ordered {
                _ if is_fast || !span.promises => None,
                true => None,
                false => {
                    let asked_ns = asked.last().map(|(at, _)| *at);
                    let by_itself = !flushes.is_empty() && !span.several;
                    self.waited(number, layer, asked_ns.filter(|_| by_itself), own)
                }
            };
            let from = done.entry(span.file).or_default();
            let earlier = between.get(&span.file).map_or(&[][..], Vec::as_slice);
            let until = *from
                + earlier[*from..]
                    .iter()
                    .take_while(|&&at| self.requests[at].issue_ns < span.start_ns)
                    .count();
            let earlier = earlier[std::mem::replace(from, until)..until].iter();
            let is_in_time = |&&at: &&usize| {
                self.requests[at].complete_ns.is_some_and(|done_ns| done_ns <= span.start_ns)
            };
            let writes = earlier.filter(is_in_time).chain(own).chain(waited.iter().flatten());
            let writes = writes.map(|&at| &self.requests[at]);
            let needed = writes.filter(|request| needs_cover(&case.layers[layer], request));
            let cover = cover(needed, &self.requests, &self.flushes, case.layers, span.end_ns);
            facts.push(Facts { waited: is_fast || waited.is_some(), cover });
            let mut add = |index: usize, what: What| {
                let claim = Claim { what, file: span.file, span: Some(number) };
                self.claims[index].get_or_insert(claim);
            };
            flushes.into_iter().for_each(|index| add(index, What::Flush));
            for index in waited.into_iter().flatten() {
                let is_flush = self.requests[index].is_flush();
                add(index, if is_flush { What::Flush } else { What::Journal });
            }
        }
        facts
    }

    /// The flush that served what was asked for then.
    fn flush_for(&self, layer: usize, disk: usize, asked_ns: u64) -> Option<usize> {
        self.flushes.for_ask(*self.case.layers[layer].disks.get(disk)?.numbers.first()?, asked_ns)
    }

    /// The flushes that the block layer made from a write's PREFLUSH and FUA.
    fn around(&self, index: usize) -> impl Iterator<Item = usize> {
        let request = &self.requests[index];
        let disk = &self.case.layers[request.layer].disks[request.disk];
        let asks = |is: bool| is && disk.volatile_cache && request.is_write();
        let flush = |at_ns| self.flush_for(request.layer, request.disk, at_ns);
        let before = asks(request.asked.preflush).then_some(request.queued_ns);
        let after = request.complete_ns.filter(|_| asks(request.asked.fua && !disk.fua));
        [before.and_then(flush), after.and_then(flush)].into_iter().flatten()
    }

    /// The requests of the journal or log that this span waited for; `None` if it did not wait.
    fn waited(
        &self,
        number: usize,
        layer: usize,
        asked_ns: Option<u64>,
        own: &[usize],
    ) -> Option<Vec<usize>> {
        let (span, facts) = (&self.case.spans[number], &self.case.layers[layer]);
        if facts.file_system == "xfs" {
            let forced_ns = *self.forced.get(&number)?;
            return Some(self.checkpoint(&self.journal[layer], forced_ns, span.end_ns));
        }
        let data_ns = own.iter().filter_map(|&index| self.requests[index].complete_ns).max();
        let data_ns = data_ns.filter(|_| !facts.journals_data).unwrap_or(span.start_ns);
        let all = &self.by_layer[layer];
        let until_ns = asked_ns.unwrap_or(span.end_ns);
        let from_ns = if asked_ns.is_some() { data_ns } else { span.start_ns };
        let after = all.partition_point(|&one| self.transactions[one].end_ns <= until_ns);
        let last = &self.transactions[*all.get(after.checked_sub(1)?)?];
        if last.end_ns <= from_ns || !facts.flushes() && last.end_ns < data_ns {
            return None;
        }
        // With data in the journal there may be one for the data and one for the rest.
        let since = all.partition_point(|&one| self.transactions[one].end_ns <= from_ns);
        let since = if facts.journals_data { since } else { after - 1 };
        let of_one = |&one: &usize| self.written_by(&self.transactions[one]);
        Some(all[since..after].iter().flat_map(of_one).collect())
    }

    /// The writes and flushes of a transaction.
    fn written_by(&self, one: &Transaction) -> Vec<usize> {
        let journal = &self.journal[one.layer];
        let from = journal.partition_point(|&at| self.requests[at].issue_ns < one.start_ns);
        let writes = journal[from..].iter().copied();
        let writes = writes.take_while(|&at| self.requests[at].issue_ns <= one.end_ns);
        // Fast commits of others are claimed already.
        let writes: Vec<usize> = writes.filter(|&at| self.claims[at].is_none()).collect();
        let served = |&(at_ns, disk): &(u64, usize)| self.flush_for(one.layer, disk, at_ns);
        one.asked.iter().filter_map(served).chain(self.with_flushes(&writes)).collect()
    }

    /// The last log write that ended in time, and the earlier ones of its checkpoint, whose first
    /// write has a flush.
    fn checkpoint(&self, journal: &[usize], forced_ns: u64, end_ns: u64) -> Vec<usize> {
        let from = journal.partition_point(|&at| self.requests[at].issue_ns < forced_ns);
        let in_time = |&&at: &&usize| self.requests[at].complete_ns.is_some_and(|ns| ns <= end_ns);
        let sent = |&&at: &&usize| self.requests[at].issue_ns <= end_ns;
        let ended: Vec<usize> =
            journal[from..].iter().take_while(sent).filter(in_time).copied().collect();
        let first = ended.iter().rposition(|&at| self.requests[at].asked.preflush).unwrap_or(0);
        self.with_flushes(&ended[first..])
    }

    fn with_flushes(&self, writes: &[usize]) -> Vec<usize> {
        let flushes = writes.iter().flat_map(|&at| self.around(at));
        writes.iter().copied().chain(flushes).collect()
    }
}

/// Whether a span is durable only with this write on the medium: not the second copy of btrfs's
/// superblock, which is for repairs, and not metadata that nobody waits for.
fn needs_cover(layer: &Layer, request: &DeviceRequest) -> bool {
    const SECOND_COPY: u64 = (64 << 20) / 512;
    let is_copy = layer.file_system == "btrfs"
        && request.sector == layer.disks[request.disk].start_bytes / 512 + SECOND_COPY;
    request.is_write() && !is_copy && (request.flags.sync || !request.flags.meta)
}

/// Whether this is a kernel thread: it belongs to no process that could be named.
pub(crate) fn is_kernels(comm: &Comm) -> bool {
    let name = comm.as_str();
    ["kworker", "jbd2/", "loop", "xfs", "btrfs", "kswapd", "ksoftirqd", "swapper", "md", "dm"]
        .iter()
        .any(|kernel| name.starts_with(kernel))
}

/// Whether this is a thread that works for all processes in turn.
pub(crate) fn is_worker(comm: &Comm) -> bool {
    comm.as_str().starts_with("kworker")
}
