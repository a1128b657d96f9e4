//! The bill of each file's syncs: what each of them caused on the disk, and where its time went.
//!
//! *Owns*: the sums. *May not touch*: whose a request was (`crate::bill`), the reason for a file's
//! cost (`cause`).

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde::Serialize;

use inkstone_host::ExtentState;

use crate::bill::Layer;
use crate::bill::attribution::{Acts, Attributed, Attribution, Case, Span, What};
use crate::bill::durable::Cover;
use crate::bill::requests::DeviceRequest;
use crate::stats::median;

use super::recording::{FileState, Recording};
use super::spans::{cut, length};
use super::syncs::{How, Syncs};

/// The cost of the syncs of one file: sums until `share`, then means.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileTally {
    /// What one sync costs on the disk.
    pub bill: SyncBill,
    /// Where the time of one sync went.
    pub time: SyncTime,
    /// The same of the slowest hundredth; `None` if there were fewer than a hundred.
    pub slowest: Option<SyncTime>,
    /// The same of each.
    each: Vec<SyncTime>,
    /// What was written, by the state of its blocks before.
    pub blocks: Blocks,
    /// Whether one of the files grew.
    pub grew: bool,
    /// How many syncs ended before what they promised was on the medium, as far as events show.
    pub uncovered: u64,
    /// How long each sync took that waited for the journal or the log.
    waited_ns: Vec<u64>,
    /// How long each of the other syncs took.
    other_ns: Vec<u64>,
}

/// What one sync costs on the disk, on average. A request that serves several syncs is shared among
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SyncTime {
    /// The whole time.
    pub total_us: f64,
    /// In the device.
    pub device_us: f64,
    /// Of this while it had a flush to do.
    pub flush_us: f64,
    /// In the kernel's queue.
    pub queue_us: f64,
    /// Waiting for the journal, outside of these two.
    pub journal_us: f64,
    /// The median of the syncs that waited for the journal or log; `None` if there were none.
    pub waited_p50_us: Option<f64>,
    /// The median of the others.
    pub other_p50_us: Option<f64>,
}

/// What was written, by the state of the blocks before: bytes of one sync, or how many syncs. Each
/// sync counts as much as another, however much it wrote: a file that is filled once and then
/// synced a thousand times does not pay for filling it.
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
    /// Written before, or while, the state of the blocks was looked up: it shows what these writes
    /// did, and not what they found.
    pub early: u64,
    /// Of all others: into the block at the file's end at that time, or behind it.
    pub at_end: u64,
}

impl FileTally {
    /// Adds another file's sums.
    pub fn add(&mut self, other: Self) {
        let mut more = other.bill;
        self.bill.parts().into_iter().zip(more.parts()).for_each(|(sum, more)| *sum += *more);
        self.bill.syncs += other.bill.syncs;
        self.each.extend(other.each);
        self.blocks.add(other.blocks);
        self.grew |= other.grew;
        self.uncovered += other.uncovered;
        self.waited_ns.extend(other.waited_ns);
        self.other_ns.extend(other.other_ns);
    }

    /// Turns the sums into the means of one sync.
    pub fn share(&mut self) {
        let median =
            |ns: &[u64]| median(&ns.iter().map(|&ns| ns as f64 / 1000.0).collect::<Vec<f64>>());
        self.each.sort_unstable_by(|a, b| b.total_us.total_cmp(&a.total_us));
        let slowest = self.each.len() / SLOWEST;
        self.slowest = (slowest > 0).then(|| SyncTime::mean(&self.each[..slowest]));
        self.time = SyncTime {
            waited_p50_us: median(&self.waited_ns),
            other_p50_us: median(&self.other_ns),
            ..SyncTime::mean(&self.each)
        };
        let syncs = self.bill.syncs.max(1) as f64;
        self.bill.parts().into_iter().for_each(|sum| *sum /= syncs);
    }
}

impl SyncBill {
    fn parts(&mut self) -> [&mut f64; 10] {
        [
            &mut self.data_writes,
            &mut self.data_bytes,
            &mut self.journal_writes,
            &mut self.journal_bytes,
            &mut self.metadata_writes,
            &mut self.metadata_bytes,
            &mut self.flushes,
            &mut self.fua,
            &mut self.reads,
            &mut self.waited,
        ]
    }
}

impl SyncTime {
    fn mean(all: &[SyncTime]) -> SyncTime {
        let mean =
            |of: fn(&SyncTime) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
        SyncTime {
            total_us: mean(|one| one.total_us),
            device_us: mean(|one| one.device_us),
            flush_us: mean(|one| one.flush_us),
            queue_us: mean(|one| one.queue_us),
            journal_us: mean(|one| one.journal_us),
            ..SyncTime::default()
        }
    }
}

impl Blocks {
    fn parts(&mut self) -> [&mut u64; 9] {
        [
            &mut self.written,
            &mut self.unwritten,
            &mut self.beyond,
            &mut self.appended,
            &mut self.hole,
            &mut self.shared,
            &mut self.unknown,
            &mut self.early,
            &mut self.at_end,
        ]
    }

    fn add(&mut self, mut other: Self) {
        self.parts().into_iter().zip(other.parts()).for_each(|(sum, more)| *sum += *more);
    }

    /// One sync. The first write of a block is what is dear, whatever is written beside it.
    fn as_sync(mut self) -> Self {
        let mut sync = Self { at_end: self.at_end.min(1), ..Self::default() };
        let is_unknown = self.unknown * 2 > self.all();
        let [written, firsts @ .., _, _, _] = self.parts();
        let [one_written, one_first @ .., one_unknown, one_early, _] = sync.parts();
        let dearest = firsts.into_iter().zip(one_first).max_by_key(|(bytes, _)| **bytes);
        *match dearest {
            _ if is_unknown => one_unknown,
            Some((bytes, first)) if *bytes > 0 => first,
            _ if *written > 0 => one_written,
            _ => one_early,
        } = 1;
        sync
    }

    /// The sum, without those that were early.
    pub fn all(&self) -> u64 {
        let Self { written, unwritten, beyond, appended, hole, shared, unknown, .. } = *self;
        written + unwritten + beyond + appended + hole + shared + unknown
    }
}

const BLOCK_BYTES: u64 = 4096;
/// The slowest one of so many syncs is looked at by itself.
const SLOWEST: usize = 100;

/// The bills of all files, and what the disks did.
pub struct Tallied {
    /// Sums, in the order of `syncs.files`.
    pub files: Vec<FileTally>,
    /// For each place, the share of the time in which a disk of it had a request.
    pub busy: Vec<f64>,
    /// For each place, whether its disk got bios and issued no request: it passes them on.
    pub is_passed_on: Vec<bool>,
}

/// Makes the bills.
pub fn tally(recording: &Recording, syncs: &Syncs) -> Tallied {
    let layers = layers_of(recording, syncs);
    let (spans, acts) = spans_of(syncs);
    let threads: HashSet<u32> = syncs.threads.keys().copied().collect();
    let direct = &syncs.direct;
    let case = Case { layers: &layers, spans: &spans, acts: &acts, threads: &threads, direct };
    let mut attribution = Attribution::of(case);
    for event in &recording.events {
        attribution.see(event);
    }
    let mut found = attribution.transfers();
    let mut files = vec![FileTally::default(); syncs.files.len()];
    blocks(&found, &layers, syncs, &mut files);
    let overwrites = |tally: &FileTally| {
        let (all, Blocks { written, early, .. }) = (tally.blocks.all(), tally.blocks);
        all - written <= all / 50 && (all > 0 || early == 0)
    };
    let facts = found.add_waits(&files.iter().map(overwrites).collect::<Vec<bool>>());
    let mut early = vec![0; files.len()];
    for (span, facts) in spans.iter().zip(facts) {
        early[span.file] += u64::from(span.start_ns <= syncs.files[span.file].seen_ns);
        let tally = &mut files[span.file];
        tally.bill.syncs += 1;
        if span.layer.is_none() {
            continue;
        }
        tally.bill.waited += f64::from(u8::from(facts.waited));
        tally.uncovered += u64::from(span.promises && matches!(facts.cover, Cover::Not(_)));
        let times = if facts.waited { &mut tally.waited_ns } else { &mut tally.other_ns };
        times.push(span.end_ns - span.start_ns);
    }
    for ((file, tally), early) in syncs.files.iter().zip(&mut files).zip(early) {
        tally.grew = file.grew(early * 2 > tally.bill.syncs);
    }
    count(&found, &mut files);
    times(&found, &spans, &layers, &mut files);
    let places = 0..layers.len();
    let seconds = recording.seconds();
    let of = |place: usize| found.requests.iter().filter(move |request| request.layer == place);
    Tallied {
        busy: places.clone().map(|place| busy(of(place), seconds)).collect(),
        is_passed_on: places
            .map(|place| found.is_asked[place] && of(place).next().is_none())
            .collect(),
        files,
    }
}

/// The syncs as spans, in their order, with the threads that worked for each.
fn spans_of(syncs: &Syncs) -> (Vec<Span>, Acts) {
    let mut acts = Acts::default();
    let spans = syncs.syncs.iter().enumerate().map(|(number, sync)| {
        for thread in [Some(sync.thread), sync.worker].into_iter().flatten() {
            acts.add(thread, sync.start_ns..sync.end_ns, number);
        }
        let file = &syncs.files[sync.file];
        Span {
            file: sync.file,
            layer: file.place,
            start_ns: sync.start_ns,
            end_ns: sync.end_ns,
            data_only: sync.data_only,
            promises: !sync.failed && sync.how != How::SyncFileRange,
            several: false,
            knows_blocks: file.is_directory,
        }
    });
    (spans.collect(), acts)
}

fn count(found: &Attributed<'_>, files: &mut [FileTally]) {
    for (request, claim) in found.requests.iter().zip(&found.claims) {
        let Some(claim) = claim else { continue };
        let bill = &mut files[claim.file].bill;
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

/// Adds where each sync's time went.
fn times(found: &Attributed<'_>, spans: &[Span], layers: &[Layer], files: &mut [FileTally]) {
    let mut of_span: Vec<Vec<&DeviceRequest>> = vec![Vec::new(); spans.len()];
    for (request, claim) in found.requests.iter().zip(&found.claims) {
        if let Some(span) = claim.and_then(|claim| claim.span) {
            of_span[span].push(request);
        }
    }
    for (span, own) in spans.iter().zip(of_span) {
        let Some(place) = span.layer else { continue };
        let during = span.start_ns..span.end_ns;
        let mut device: Vec<Range<u64>> = Vec::new();
        let mut either: Vec<Range<u64>> = Vec::new();
        let mut flush: Vec<Range<u64>> = Vec::new();
        let mut waits = false;
        for request in own {
            let end_ns = request.complete_ns.unwrap_or(during.end);
            device.extend(cut(&(request.issue_ns..end_ns), &during));
            either.extend(cut(&(request.queued_ns..end_ns), &during));
            if request.is_flush() {
                flush.extend(cut(&(request.issue_ns..end_ns), &during));
            }
            waits |= request.is_journal(&layers[place]);
        }
        let device_ns = length(&mut device);
        let queue_ns = length(&mut either) - device_ns;
        let us = |ns: u64| ns as f64 / 1000.0;
        let total_ns = during.end - during.start;
        let rest_ns = total_ns.saturating_sub(device_ns + queue_ns);
        files[span.file].each.push(SyncTime {
            total_us: us(total_ns),
            device_us: us(device_ns),
            flush_us: us(length(&mut flush)),
            queue_us: us(queue_ns),
            journal_us: if waits { us(rest_ns) } else { 0.0 },
            ..SyncTime::default()
        });
    }
}

/// The share of the time in which there was a request.
fn busy<'r>(requests: impl Iterator<Item = &'r DeviceRequest>, seconds: f64) -> f64 {
    let ended = requests.filter_map(|request| Some(request.issue_ns..request.complete_ns?));
    let busy_ns = length(&mut ended.collect::<Vec<_>>());
    (busy_ns as f64 / 1e9 / seconds.max(1e-9)).min(1.0)
}

/// Adds up, sync by sync, the earlier states of the blocks that were written for it.
fn blocks(found: &Attributed<'_>, layers: &[Layer], syncs: &Syncs, files: &mut [FileTally]) {
    let mut of_file: HashMap<usize, Vec<usize>> = HashMap::new();
    for (number, sync) in syncs.syncs.iter().enumerate() {
        of_file.entry(sync.file).or_default().push(number);
    }
    let next = |file: usize, at_ns: u64| {
        let all = of_file.get(&file)?;
        all.get(all.partition_point(|&sync| syncs.syncs[sync].start_ns < at_ns)).copied()
    };
    let mut done: HashSet<(usize, u64)> = HashSet::new();
    let mut by_sync: HashMap<(usize, Option<usize>), Blocks> = HashMap::new();
    let late = looked_up(syncs);
    let len = |before: &Option<FileState>| before.as_ref().map_or(0, |before| before.len_bytes);
    let mut ends: Vec<u64> = syncs.files.iter().map(|file| len(&file.before)).collect();
    for (request, claim) in found.requests.iter().zip(&found.claims) {
        let Some(claim) = claim.filter(|claim| claim.what == What::Data) else { continue };
        let file = claim.file;
        // What is written between syncs is the next one's.
        let sync = claim.span.or_else(|| next(file, request.queued_ns));
        let blocks = by_sync.entry((file, sync)).or_default();
        let before = syncs.files[file].before.as_ref();
        let range = request.range();
        let piece = layers[request.layer].piece_at(&range).filter(|piece| piece.file == file);
        let (Some(before), Some(piece)) = (before, piece) else {
            blocks.unknown += request.bytes;
            continue;
        };
        let mut at = range.start.max(piece.at.start);
        while at < range.end.min(piece.at.end) {
            let logical = piece.logical + (at - piece.at.start);
            let bytes = BLOCK_BYTES.min(range.end - at);
            let is_early = request.queued_ns <= late[file];
            match done.insert((file, logical / BLOCK_BYTES)) {
                _ if is_early => blocks.early += bytes,
                false => blocks.written += bytes,
                true => *state_of(before, logical, blocks) += bytes,
            }
            if !is_early && logical / BLOCK_BYTES >= ends[file].saturating_sub(1) / BLOCK_BYTES {
                blocks.at_end += bytes;
            }
            ends[file] = ends[file].max(logical + bytes);
            at += bytes;
        }
    }
    by_sync.into_iter().for_each(|((file, _), blocks)| files[file].blocks.add(blocks.as_sync()));
}

/// For each file, when its state had been looked up, and the syncs that had begun by then had
/// ended. File systems allocate blocks as unwritten ones for the time of their first write.
fn looked_up(syncs: &Syncs) -> Vec<u64> {
    let mut late: Vec<u64> = syncs.files.iter().map(|file| file.seen_ns).collect();
    for sync in &syncs.syncs {
        if sync.start_ns <= syncs.files[sync.file].seen_ns {
            late[sync.file] = late[sync.file].max(sync.end_ns);
        }
    }
    late
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
        Some(extent) if extent.state != ExtentState::Delayed => &mut blocks.written,
        // Data that had been written, and had no blocks yet.
        Some(_) => &mut blocks.appended,
        None if is_beyond || before.len_bytes == 0 => &mut blocks.appended,
        None => &mut blocks.hole,
    }
}

/// The layers, with the places of the files' blocks.
fn layers_of(recording: &Recording, syncs: &Syncs) -> Vec<Layer> {
    let mut layers: Vec<Layer> = recording.places.iter().map(|place| place.layer.clone()).collect();
    for (index, file) in syncs.files.iter().enumerate() {
        // On btrfs FIEMAP returns addresses of btrfs's own space.
        let Some(place) = file.place.filter(|_| !recording.is_btrfs(file.place)) else { continue };
        // The blocks of a file that shrank may belong to another file now.
        let len = |state: &Option<FileState>| state.as_ref().map(|state| state.len_bytes);
        let shrank = len(&file.after).is_some_and(|after| Some(after) < len(&file.before));
        let before = file.before.as_ref().filter(|_| !shrank);
        for state in before.into_iter().chain(&file.after) {
            layers[place].add_extents(&state.extents, index);
        }
    }
    layers.iter_mut().for_each(Layer::settle);
    layers
}
