//! The bill of each file's syncs: which requests on the disk each sync caused, where its time went,
//! and whose requests were in progress.
//!
//! *Owns*: that attribution. *May not touch*: the reason for a file's cost (`cause`).
//!
//! **Data** is a write that the syncing thread submitted within the sync, or any write on the
//! file's blocks. **A flush** belongs to a sync if the syncing thread asked for one, and this was
//! the first that the device got after that. A flush that serves several syncs is counted once, for
//! the first.
//!
//! **The journal** (ext4): a sync that waited for a transaction sends no flush of its own, since
//! the journal's flush covers it. So a sync without a flush of its own waited for the last
//! transaction that ended within it. A sync that sent a flush waited if a transaction ended between
//! its data and that flush. The transaction's writes and flushes belong to the sync. (xfs): a sync
//! that forced the log waited for the last log write that ended within it, and for the earlier ones
//! of the same checkpoint. (btrfs): the syncing thread writes the log tree and the superblock
//! itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use inkstone_host::{DeviceNumber, ExtentState, RequestOp, TraceKind};

use crate::bill::Layer;
use crate::bill::evidence::is_worker;
use crate::bill::requests::{DeviceRequest, pair};
use crate::stats::median;

use super::recording::{FileState, Place, Recording};
use super::syncs::{Sync, Syncs};

/// The cost of the syncs of one file: sums until `share`, then means.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileTally {
    /// What one sync costs on the disk.
    pub bill: SyncBill,
    /// Where the time of one sync went.
    pub time: SyncTime,
    /// Others' requests that were in progress during a sync, by their owners.
    pub beside: BTreeMap<String, BesideReport>,
    /// The bytes written, by the state of their blocks before.
    pub blocks: Blocks,
    /// How long each sync took that waited for the journal or the log.
    waited_ns: Vec<u64>,
    /// How long each of the other syncs took.
    other_ns: Vec<u64>,
}

/// What one sync costs on the disk, on average. A request that serves several syncs is shared among
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncBill {
    /// How many syncs this is the mean of.
    pub syncs: u64,
    /// Writes of the file's data, including those between syncs.
    pub data_writes: f64,
    /// Their bytes.
    pub data_bytes: f64,
    /// Writes into the journal or log that a sync waited for.
    pub journal_writes: f64,
    /// Their bytes.
    pub journal_bytes: f64,
    /// Metadata written in place, or into btrfs's trees.
    pub metadata_writes: f64,
    /// Their bytes.
    pub metadata_bytes: f64,
    /// Flushes of the disk's cache.
    pub flushes: f64,
    /// Writes past the disk's cache (FUA).
    pub fua: f64,
    /// Reads.
    pub reads: f64,
    /// The share of the syncs that waited for the journal or log.
    pub waited: f64,
}

/// Where the time of one sync went, on average, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncTime {
    /// The whole time.
    pub total_us: f64,
    /// In the device.
    pub device_us: f64,
    /// In the kernel's queue.
    pub queue_us: f64,
    /// Waiting for the journal, outside of these two.
    pub journal_us: f64,
    /// The median of the syncs that waited for the journal or log; `None` if there were none.
    pub waited_p50_us: Option<f64>,
    /// The median of the others.
    pub other_p50_us: Option<f64>,
}

/// Others' requests (another process's, or the kernel's) that were in progress during a sync, on
/// average.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideReport {
    /// Whose requests.
    pub who: String,
    /// Reads and writes.
    pub transfers: f64,
    /// Flushes.
    pub flushes: f64,
}

/// Bytes written, by the state of the blocks before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Written before.
    pub written: u64,
    /// Reserved, not written, within the file's size.
    pub unwritten: u64,
    /// Reserved, not written, beyond the file's end.
    pub beyond: u64,
    /// Without blocks, beyond the file's end: it grows.
    pub appended: u64,
    /// Without blocks, within the file's size: a hole.
    pub hole: u64,
    /// Shared with another file.
    pub shared: u64,
    /// Blocks whose earlier state is unknown.
    pub unknown: u64,
}

impl FileTally {
    /// Turns the sums into the means of one sync.
    fn share(&mut self) {
        let median =
            |ns: &[u64]| median(&ns.iter().map(|&ns| ns as f64 / 1000.0).collect::<Vec<f64>>());
        self.time.waited_p50_us = median(&self.waited_ns);
        self.time.other_p50_us = median(&self.other_ns);
        let (bill, time) = (&mut self.bill, &mut self.time);
        let writes = [&mut bill.data_writes, &mut bill.journal_writes, &mut bill.metadata_writes];
        let bytes = [&mut bill.data_bytes, &mut bill.journal_bytes, &mut bill.metadata_bytes];
        let rest = [&mut bill.flushes, &mut bill.fua, &mut bill.reads, &mut bill.waited];
        let us =
            [&mut time.total_us, &mut time.device_us, &mut time.queue_us, &mut time.journal_us];
        let beside =
            self.beside.values_mut().flat_map(|one| [&mut one.transfers, &mut one.flushes]);
        let sums = writes.into_iter().chain(bytes).chain(rest).chain(us).chain(beside);
        let syncs = bill.syncs.max(1) as f64;
        sums.for_each(|sum| *sum /= syncs);
    }
}

impl Blocks {
    /// The sum.
    pub fn all(&self) -> u64 {
        let Self { written, unwritten, beyond, appended, hole, shared, unknown } = *self;
        written + unwritten + beyond + appended + hole + shared + unknown
    }
}

const BLOCK_BYTES: u64 = 4096;
/// Requests that began more than this before a sync are left out.
const LONG_NS: u64 = 1_000_000_000;
/// The longest time from the start of a direct write to its requests.
const DIRECT_NS: u64 = 1_000_000_000;

/// Makes the bills of the files, in the order of `syncs.files`.
pub fn tally(recording: &Recording, syncs: &Syncs) -> Vec<FileTally> {
    let layers: Vec<Layer> = recording.places.iter().map(|place| place.layer.clone()).collect();
    let requests = pair(&recording.events, &layers);
    let seen = Seen::of(recording, syncs, &requests);
    let mut tallies = vec![FileTally::default(); syncs.files.len()];
    let mut claims = seen.transfers();
    seen.blocks(&claims, &mut tallies);
    seen.claim(&mut claims, &mut tallies);
    seen.count(&claims, &mut tallies);
    seen.times(&claims, &mut tallies);
    tallies.iter_mut().for_each(FileTally::share);
    tallies
}

/// What a request was for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Data,
    Journal,
    Metadata,
    Read,
    Flush,
}

/// Whose a request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    file: usize,
    /// The first sync that it served; `None` between syncs.
    sync: Option<usize>,
    what: What,
}

/// A piece of the disk that holds a piece of a file.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    file: usize,
    logical: u64,
}

/// A transaction of ext4's journal.
#[derive(Debug, Clone, Copy)]
struct Transaction {
    start_ns: u64,
    end_ns: u64,
}

/// A flush that some thread asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    time_ns: u64,
    place: usize,
}

struct Seen<'a> {
    recording: &'a Recording,
    syncs: &'a Syncs,
    requests: &'a [DeviceRequest],
    /// For each place, its flushes, in order.
    flushes: Vec<Vec<usize>>,
    /// For each place, its writes to the journal or log.
    journal: Vec<Vec<usize>>,
    pieces: Vec<Vec<Piece>>,
    transactions: Vec<Vec<Transaction>>,
    /// For each thread, its syncs, as indices of `syncs.syncs`.
    by_thread: HashMap<u32, Vec<usize>>,
    asked: HashMap<u32, Vec<Asked>>,
    /// For each thread, when it began to write to which file past the page cache.
    direct: HashMap<u32, Vec<(u64, usize)>>,
    forced: HashMap<u32, Vec<u64>>,
}

impl<'a> Seen<'a> {
    fn of(recording: &'a Recording, syncs: &'a Syncs, requests: &'a [DeviceRequest]) -> Self {
        let places = &recording.places;
        let mut flushes = vec![Vec::new(); places.len()];
        let mut journal = vec![Vec::new(); places.len()];
        for (index, request) in requests.iter().enumerate() {
            if request.is_flush() {
                // A flush empties the cache of the whole disk, whichever partition asked for it.
                let disk = places[request.layer].layer.numbers.first();
                let on_it = places.iter().zip(&mut flushes);
                let on_it = on_it.filter(|(place, _)| place.layer.numbers.first() == disk);
                on_it.for_each(|(_, all)| all.push(index));
            } else if request.is_write() && is_journal(&places[request.layer].layer, request) {
                journal[request.layer].push(index);
            }
        }
        let mut by_thread: HashMap<u32, Vec<usize>> = HashMap::new();
        for (index, sync) in syncs.syncs.iter().enumerate() {
            by_thread.entry(sync.thread).or_default().push(index);
            if let Some(worker) = sync.worker {
                by_thread.entry(worker).or_default().push(index);
            }
        }
        let mut seen = Self {
            recording,
            syncs,
            requests,
            flushes,
            journal,
            pieces: pieces_of(places, syncs),
            transactions: vec![Vec::new(); places.len()],
            by_thread,
            asked: HashMap::new(),
            direct: HashMap::new(),
            forced: HashMap::new(),
        };
        seen.read_events();
        seen
    }

    fn place_of(&self, device: DeviceNumber) -> Option<usize> {
        self.recording.places.iter().position(|place| place.layer.numbers.contains(&device))
    }

    fn read_events(&mut self) {
        let mut begun: HashMap<(usize, u32), u64> = HashMap::new();
        for event in &self.recording.events {
            match event.what {
                TraceKind::JournalCommitStart { device, transaction } => {
                    if let Some(place) = self.place_of(device) {
                        begun.insert((place, transaction), event.time_ns);
                    }
                }
                TraceKind::JournalCommitEnd { device, transaction } => {
                    let Some(place) = self.place_of(device) else { continue };
                    let start = begun.remove(&(place, transaction));
                    let start_ns = start.unwrap_or(self.recording.span_ns.start);
                    let end_ns = event.time_ns;
                    self.transactions[place].push(Transaction { start_ns, end_ns });
                }
                TraceKind::DirectIo { device, inode, .. } => {
                    if let Some(file) = self.syncs.file_at(device, inode) {
                        self.direct.entry(event.tid).or_default().push((event.time_ns, file));
                    }
                }
                TraceKind::XfsLogForce { .. } => {
                    self.forced.entry(event.tid).or_default().push(event.time_ns);
                }
                TraceKind::BioQueue { device, sectors, flags, .. } => {
                    let Some(place) = self.place_of(device) else { continue };
                    if flags.is_pure_flush(sectors) {
                        let asked = Asked { time_ns: event.time_ns, place };
                        self.asked.entry(event.tid).or_default().push(asked);
                    }
                }
                _ => {}
            }
        }
    }

    /// The sync of this thread that was in progress at this time.
    fn sync_at(&self, thread: u32, time_ns: u64) -> Option<usize> {
        let all = self.by_thread.get(&thread)?;
        let after = all.partition_point(|&index| self.syncs.syncs[index].start_ns <= time_ns);
        // Requests of a ring overlap: look back over a few.
        let back = all[..after].iter().rev().take(64);
        back.copied().find(|&index| self.syncs.syncs[index].end_ns >= time_ns)
    }

    fn place_of_file(&self, file: usize) -> Option<usize> {
        self.syncs.files[file].place
    }

    /// The program's reads and writes, without the journal's, by their places in `requests`.
    fn transfers(&self) -> HashMap<usize, Claim> {
        let all = self.requests.iter().enumerate();
        all.filter_map(|(index, request)| Some((index, self.transfer(request)?))).collect()
    }

    /// Adds the flushes and the journal. A request that serves several syncs is the first's.
    fn claim(&self, claims: &mut HashMap<usize, Claim>, tallies: &mut [FileTally]) {
        let own = self.own_data(claims);
        for (number, sync) in self.syncs.syncs.iter().enumerate() {
            let tally = &mut tallies[sync.file];
            tally.bill.syncs += 1;
            let Some(place) = self.place_of_file(sync.file) else { continue };
            let (flushes, asked_ns) = self.own_flushes(sync, place, &own[number]);
            let has_flush = !flushes.is_empty();
            let is_only_data = self.recording.places[place].has_journal
                && sync.data_only
                && tally.blocks.all() - tally.blocks.written <= tally.blocks.all() / 50;
            let mut add = |index: usize, what: What| {
                let claim = Claim { file: sync.file, sync: Some(number), what };
                claims.entry(index).or_insert(claim);
            };
            flushes.into_iter().for_each(|index| add(index, What::Flush));
            // With a flush of its own it may have waited for a transaction that was already past
            // its flush, but only if the sync changed metadata.
            let waited = match has_flush && is_only_data {
                true => None,
                false => self.waited(sync, place, asked_ns.filter(|_| has_flush), &own[number]),
            };
            tally.bill.waited += f64::from(u8::from(waited.is_some()));
            let times = if waited.is_some() { &mut tally.waited_ns } else { &mut tally.other_ns };
            times.push(sync.end_ns - sync.start_ns);
            for index in waited.into_iter().flatten() {
                let is_flush = self.requests[index].is_flush();
                add(index, if is_flush { What::Flush } else { What::Journal });
            }
        }
    }

    /// Reads and writes that are the program's, without the journal's.
    fn transfer(&self, request: &DeviceRequest) -> Option<Claim> {
        let place = &self.recording.places[request.layer];
        if request.is_flush() || request.is_write() && is_journal(&place.layer, request) {
            return None;
        }
        let sync = self.sync_at(request.tid, request.queued_ns);
        let sync =
            sync.filter(|&at| self.place_of_file(self.syncs.syncs[at].file) == Some(request.layer));
        let piece = self.piece_at(request);
        match (request.flags.op, piece, sync) {
            (RequestOp::Read, _, Some(at)) => {
                let file = self.syncs.syncs[at].file;
                Some(Claim { file, sync, what: What::Read })
            }
            // Another program writes to the same file, or to blocks that were this file's.
            (RequestOp::Write, Some(_), _) if !self.may_be_ours(request) => None,
            (RequestOp::Write, Some(piece), _) => {
                let of_it = sync.filter(|&at| self.syncs.syncs[at].file == piece.file);
                Some(Claim { file: piece.file, sync: of_it, what: What::Data })
            }
            (RequestOp::Write, None, Some(at)) => {
                let file = self.syncs.syncs[at].file;
                let is_metadata = self.is_metadata(place, request, file);
                let what = if is_metadata { What::Metadata } else { What::Data };
                Some(Claim { file, sync, what })
            }
            // If the file's blocks are not known (btrfs), the thread's last call decides.
            (RequestOp::Write, None, None) => {
                let all = self.direct.get(&request.tid)?;
                let after = all.partition_point(|(time_ns, _)| *time_ns <= request.queued_ns);
                let (time_ns, file) = *all.get(after.checked_sub(1)?)?;
                let is_it = request.queued_ns - time_ns < DIRECT_NS
                    && self.place_of_file(file) == Some(request.layer)
                    && place.layer.is_file(&request.range());
                is_it.then_some(Claim { file, sync: None, what: What::Data })
            }
            _ => None,
        }
    }

    /// Whether the program asked for it, or a kernel worker, which may work for anyone.
    fn may_be_ours(&self, request: &DeviceRequest) -> bool {
        self.syncs.threads.contains_key(&request.tid) || is_worker(&request.comm)
    }

    /// A write by a syncing thread that is on no known block of a file. ext4 and xfs mark their
    /// metadata; btrfs has areas for data.
    fn is_metadata(&self, place: &Place, request: &DeviceRequest, file: usize) -> bool {
        request.flags.meta
            || self.syncs.files[file].is_directory
            || !place.layer.data_only.is_empty() && !place.layer.is_file(&request.range())
    }

    fn piece_at(&self, request: &DeviceRequest) -> Option<Piece> {
        let Range { start, end } = request.range();
        let pieces = &self.pieces[request.layer];
        let after = pieces.partition_point(|piece| piece.start < end);
        let near = pieces[..after].iter().rev().take(8);
        near.copied().find(|piece| piece.end > start)
    }

    /// The data writes of each sync.
    fn own_data(&self, claims: &HashMap<usize, Claim>) -> Vec<Vec<usize>> {
        let mut own = vec![Vec::new(); self.syncs.syncs.len()];
        for (&index, claim) in claims {
            if let (Some(sync), true) = (claim.sync, claim.what != What::Read) {
                own[sync].push(index);
            }
        }
        own.iter_mut().for_each(|all| all.sort_unstable());
        own
    }

    /// The device's flushes that served this sync's own requests, and when it last asked for a pure
    /// flush.
    fn own_flushes(&self, sync: &Sync, place: usize, own: &[usize]) -> (Vec<usize>, Option<u64>) {
        let mut found = Vec::new();
        let mut asked_ns = None;
        let threads = [Some(sync.thread), sync.worker];
        for thread in threads.into_iter().flatten() {
            let all = self.asked.get(&thread).map_or(&[][..], Vec::as_slice);
            let from = all.partition_point(|asked| asked.time_ns < sync.start_ns);
            let within = all[from..].iter().take_while(|asked| asked.time_ns <= sync.end_ns);
            for asked in within.filter(|asked| asked.place == place) {
                found.extend(self.flush_for(place, asked.time_ns));
                asked_ns = Some(asked.time_ns);
            }
        }
        for &index in own {
            found.extend(self.around(index));
        }
        (found, asked_ns)
    }

    /// The flush that served a request for one: the first that was issued after it.
    fn flush_for(&self, place: usize, asked_ns: u64) -> Option<usize> {
        let flushes = &self.flushes[place];
        let at = flushes.partition_point(|&index| self.requests[index].issue_ns < asked_ns);
        flushes.get(at).copied()
    }

    /// The flushes that the block layer made from a write's PREFLUSH and FUA.
    fn around(&self, index: usize) -> Vec<usize> {
        let request = &self.requests[index];
        let place = &self.recording.places[request.layer];
        if !place.layer.volatile_cache {
            return Vec::new();
        }
        let before =
            request.asked.preflush.then(|| self.flush_for(request.layer, request.queued_ns));
        let is_after = request.asked.fua && !place.has_fua;
        let after = request.complete_ns.filter(|_| is_after);
        let after = after.and_then(|done_ns| self.flush_for(request.layer, done_ns));
        let before = before.flatten();
        [before, after].into_iter().flatten().collect()
    }

    /// The requests of the journal or log that this sync waited for; `None` if it did not wait.
    fn waited(
        &self,
        sync: &Sync,
        place: usize,
        asked_ns: Option<u64>,
        own: &[usize],
    ) -> Option<Vec<usize>> {
        let facts = &self.recording.places[place];
        let journal = &self.journal[place];
        let data_ns = own.iter().filter_map(|&index| self.requests[index].complete_ns).max();
        let data_ns = data_ns.unwrap_or(sync.start_ns);
        if facts.layer.file_system == "xfs" {
            let threads = [Some(sync.thread), sync.worker];
            let forced = threads.into_iter().flatten().filter_map(|thread| {
                let all = self.forced.get(&thread)?;
                let at = all.partition_point(|&time_ns| time_ns < sync.start_ns);
                all.get(at).copied().filter(|&time_ns| time_ns <= sync.end_ns)
            });
            let forced_ns = forced.min()?;
            return Some(self.checkpoint(journal, forced_ns, sync.end_ns));
        }
        if !facts.has_journal {
            return None;
        }
        let all = &self.transactions[place];
        let until_ns = asked_ns.unwrap_or(sync.end_ns);
        let from_ns = if asked_ns.is_some() { data_ns } else { sync.start_ns };
        let after = all.partition_point(|one| one.end_ns <= until_ns);
        let last = all.get(after.checked_sub(1)?)?;
        if last.end_ns <= from_ns || !facts.layer.volatile_cache && last.end_ns < data_ns {
            return None;
        }
        let from = journal.partition_point(|&at| self.requests[at].issue_ns < last.start_ns);
        let writes = journal[from..].iter().copied();
        let writes: Vec<usize> =
            writes.take_while(|&at| self.requests[at].issue_ns <= last.end_ns).collect();
        Some(self.with_flushes(writes))
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
        self.with_flushes(ended[first..].to_vec())
    }

    fn with_flushes(&self, writes: Vec<usize>) -> Vec<usize> {
        let flushes: Vec<usize> = writes.iter().flat_map(|&at| self.around(at)).collect();
        writes.into_iter().chain(flushes).collect()
    }

    fn count(&self, claims: &HashMap<usize, Claim>, tallies: &mut [FileTally]) {
        for (&index, claim) in claims {
            let request = &self.requests[index];
            let bill = &mut tallies[claim.file].bill;
            bill.fua += f64::from(u8::from(request.is_write() && request.flags.fua));
            let (count, bytes) = match claim.what {
                What::Data => (&mut bill.data_writes, Some(&mut bill.data_bytes)),
                What::Journal => (&mut bill.journal_writes, Some(&mut bill.journal_bytes)),
                What::Metadata => (&mut bill.metadata_writes, Some(&mut bill.metadata_bytes)),
                What::Read => (&mut bill.reads, None),
                What::Flush => (&mut bill.flushes, None),
            };
            *count += 1.0;
            bytes.into_iter().for_each(|bytes| *bytes += request.bytes as f64);
        }
    }

    /// Adds where each sync's time went, and whose requests were in progress.
    fn times(&self, claims: &HashMap<usize, Claim>, tallies: &mut [FileTally]) {
        let mut of_sync: Vec<Vec<usize>> = vec![Vec::new(); self.syncs.syncs.len()];
        for (&index, claim) in claims {
            if let Some(sync) = claim.sync {
                of_sync[sync].push(index);
            }
        }
        for (number, sync) in self.syncs.syncs.iter().enumerate() {
            let tally = &mut tallies[sync.file];
            let Some(place) = self.place_of_file(sync.file) else { continue };
            let span = sync.start_ns..sync.end_ns;
            let own = of_sync[number].iter().map(|&index| &self.requests[index]);
            let mut device: Vec<Range<u64>> = Vec::new();
            let mut either: Vec<Range<u64>> = Vec::new();
            let mut journal_ns = None;
            for request in own {
                let end_ns = request.complete_ns.unwrap_or(span.end);
                device.extend(cut(&(request.issue_ns..end_ns), &span));
                either.extend(cut(&(request.queued_ns..end_ns), &span));
                let is_journals = is_journal(&self.recording.places[place].layer, request);
                journal_ns = journal_ns.max(is_journals.then_some(end_ns));
            }
            let device_ns = length(&mut device);
            let queue_ns = length(&mut either) - device_ns;
            let us = |ns: u64| ns as f64 / 1000.0;
            let (spent, total_ns) = (&mut tally.time, span.end - span.start);
            spent.total_us += us(total_ns);
            spent.device_us += us(device_ns);
            spent.queue_us += us(queue_ns);
            if journal_ns.is_some() {
                spent.journal_us += us(total_ns.saturating_sub(device_ns + queue_ns));
            }
            self.beside(sync, place, claims, tally);
        }
    }

    fn beside(
        &self,
        sync: &Sync,
        place: usize,
        claims: &HashMap<usize, Claim>,
        tally: &mut FileTally,
    ) {
        let early_ns = sync.start_ns.saturating_sub(LONG_NS);
        let from = self.requests.partition_point(|request| request.issue_ns < early_ns);
        let within = self.requests[from..].iter().enumerate();
        let within = within.take_while(|(_, request)| request.issue_ns <= sync.end_ns);
        for (at, request) in within {
            let overlaps = request.complete_ns.is_none_or(|end_ns| end_ns > sync.start_ns);
            let is_own = self.syncs.threads.contains_key(&request.tid);
            if request.layer != place || !overlaps || is_own || claims.contains_key(&(from + at)) {
                continue;
            }
            let name = request.comm.as_str();
            let name = match name {
                _ if is_worker(&request.comm) => "the kernel's workers".to_owned(),
                name if name.starts_with("jbd2/") => "the journal, for others".to_owned(),
                name => name.to_owned(),
            };
            let whose = |who: &String| BesideReport { who: who.clone(), ..BesideReport::default() };
            let beside = tally.beside.entry(name).or_insert_with_key(whose);
            match request.is_flush() {
                true => beside.flushes += 1.0,
                false => beside.transfers += 1.0,
            }
        }
    }

    /// Adds the bytes of the data writes by the earlier state of their blocks.
    fn blocks(&self, claims: &HashMap<usize, Claim>, tallies: &mut [FileTally]) {
        let mut data: Vec<(usize, usize)> = claims
            .iter()
            .filter(|(_, claim)| claim.what == What::Data)
            .map(|(&index, claim)| (index, claim.file))
            .collect();
        data.sort_unstable();
        let mut done: HashSet<(usize, u64)> = HashSet::new();
        for (index, file) in data {
            let request = &self.requests[index];
            let blocks = &mut tallies[file].blocks;
            let before = self.syncs.files[file].before.as_ref();
            let piece = self.piece_at(request).filter(|piece| piece.file == file);
            let (Some(before), Some(piece)) = (before, piece) else {
                blocks.unknown += request.bytes;
                continue;
            };
            let range = request.range();
            let mut at = range.start.max(piece.start);
            while at < range.end.min(piece.end) {
                let logical = piece.logical + (at - piece.start);
                let bytes = BLOCK_BYTES.min(range.end - at);
                match done.insert((file, logical / BLOCK_BYTES)) {
                    false => blocks.written += bytes,
                    true => *state_of(before, logical, blocks) += bytes,
                }
                at += bytes;
            }
        }
    }
}

fn state_of<'a>(before: &FileState, logical: u64, blocks: &'a mut Blocks) -> &'a mut u64 {
    let extents = &before.extents.extents;
    let after = extents.partition_point(|extent| extent.logical <= logical);
    let extent = after.checked_sub(1).map(|at| &extents[at]);
    let extent = extent.filter(|extent| logical < extent.logical + extent.len_bytes);
    let is_beyond = logical >= before.len_bytes.next_multiple_of(BLOCK_BYTES);
    match extent {
        Some(extent) if extent.shared => &mut blocks.shared,
        Some(extent) if extent.state == ExtentState::Unwritten => match is_beyond {
            true => &mut blocks.beyond,
            false => &mut blocks.unwritten,
        },
        // Delayed data had no blocks yet.
        Some(extent) if extent.state != ExtentState::Delayed => &mut blocks.written,
        _ if is_beyond => &mut blocks.appended,
        _ => match before.len_bytes {
            0 => &mut blocks.appended,
            _ => &mut blocks.hole,
        },
    }
}

fn is_journal(layer: &Layer, request: &DeviceRequest) -> bool {
    layer.is_log(&request.range())
        || layer.log.is_empty() && request.comm.as_str().starts_with("jbd2/")
}

/// Where the files' blocks are, by place and position on the disk.
fn pieces_of(places: &[Place], syncs: &Syncs) -> Vec<Vec<Piece>> {
    let mut pieces = vec![Vec::new(); places.len()];
    for (index, file) in syncs.files.iter().enumerate() {
        let Some(place) = file.place else { continue };
        let layer = &places[place].layer;
        if layer.file_system == "btrfs" {
            // On btrfs FIEMAP returns logical addresses.
            continue;
        }
        // The blocks of a file that shrank may belong to another file now.
        let len = |state: &Option<FileState>| state.as_ref().map(|state| state.len_bytes);
        let shrank = len(&file.after).is_some_and(|after| Some(after) < len(&file.before));
        let before = file.before.as_ref().filter(|_| !shrank);
        for state in before.into_iter().chain(&file.after) {
            let known = state.extents.extents.iter().filter(|extent| {
                matches!(extent.state, ExtentState::Written | ExtentState::Unwritten)
            });
            pieces[place].extend(known.map(|extent| Piece {
                start: layer.start_bytes + extent.physical,
                end: layer.start_bytes + extent.physical + extent.len_bytes,
                file: index,
                logical: extent.logical,
            }));
        }
    }
    for all in &mut pieces {
        all.sort_unstable_by_key(|piece| (piece.start, piece.end));
        all.dedup_by_key(|piece| (piece.start, piece.end, piece.file));
    }
    pieces
}

fn cut(range: &Range<u64>, within: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = (range.start.max(within.start), range.end.min(within.end));
    (start < end).then_some(start..end)
}

/// The total length of the ranges, with overlaps counted once.
fn length(ranges: &mut [Range<u64>]) -> u64 {
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut all, mut until) = (0, 0);
    for range in ranges.iter() {
        all += range.end.saturating_sub(range.start.max(until));
        until = until.max(range.end);
    }
    all
}
