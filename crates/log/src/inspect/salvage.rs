//! Copies the readable records of a damaged log into a new one.
//!
//! *Owns*: which records count as readable, and which are a gap. *May not touch*: the damaged log.
//!
//! **What is saved.** Every record of a whole group. Of a damaged group that was promised to be
//! durable, each record whose frame and payload are sound: they were acknowledged. A batch of which
//! a part is lost goes whole, since its writer relies on all or none. Nothing of a torn tail. Where
//! a file was shortened, its promises are lost with its end: there every whole record is saved,
//! since each may have been acknowledged.
//!
//! **LSNs.** Every saved record keeps its own, and what is lost between two records becomes a gap
//! ([`Error::Lost`]); so is what is lost behind the last one, as far as a remaining promise, header
//! or record names a higher LSN. If the last segment or its end is missing, nothing does:
//! [`Salvage::unknown_behind`].
//!
//! **Two passes.** The first finds out what there is, so that the caller can be told before
//! anything is written, and the new log's first header knows of every gap.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_format::checksum::crc32c;
use inkstone_format::limits::{ALIGN, FRAME_HEADER_BYTES, RECORD_BYTES_MAX};
use inkstone_format::{Batch, Epoch, Evidence, Fault, FrameHeader, Kind, Lsn, Stop, frame_bytes};
use inkstone_io::AnyDirectory;

use super::making::Making;
use super::report::{Gap, Report, Savable, SegmentReport, SegmentState};
use super::spans::Span;
use super::strip::{Halt, Shown, Strip};
use super::survey::{Depth, Surveyed, steady};
use super::{new_directory, options_for};
use crate::directory::find_directory;
use crate::doubts::{Holder, holder};
use crate::error::{Error, Result};
use crate::names;
use crate::options::Options;
use crate::recovery::recover::READ_BYTES;
use crate::walk::window::FrameAt;

/// What is saved, and what is lost.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Salvage {
    /// The report on the damaged log.
    pub report: Report,
    /// The saved records, as runs without a gap.
    pub runs: Vec<Run>,
    /// The lost records, as far as they are known; also those of an earlier salvage.
    pub gaps: Vec<Gap>,
    /// The log had, or may have had, records after this LSN, and nothing is left that shows how
    /// many.
    pub unknown_behind: Option<Lsn>,
    /// The number of saved records.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
}

/// Records that are saved with nothing missing between them. They keep their LSNs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The LSN of the first.
    pub first: Lsn,
    /// The LSN of the last.
    pub last: Lsn,
}

/// Copies every readable record of the log in `from` into a new log in `to`, where it has the same
/// LSN; what is lost is a gap there ([`Error::Lost`]). `options` apply to the new log; its segments
/// and records may become as large as those of the old log if they are larger.
///
/// Opening the new log before it is complete is [`Error::Incomplete`]. A salvage that fails removes
/// its files; the files of one that was killed are removed by the next into the same directory.
///
/// # Errors
/// [`Error::Locked`] when the log is open for writing, or another copy into `to` is running;
/// [`Error::Invalid`] when `to` already holds a log, or a file with a name that is needed there;
/// [`Error::Corrupt`] when `from` is damaged and no record can be read; as [`super::verify`] and
/// [`Log::open`](crate::Log::open).
///
/// # Durability
/// On `Ok` the new log is on stable storage, and closed.
pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>, options: &Options) -> Result<Salvage> {
    salvage_until(from, to, options, &AtomicBool::new(false), |_| None)
}

/// As [`salvage`], but stops soon after `stop` has become true. `note` is told what will be saved,
/// before anything is written. The bytes that it returns become the file `salvage.json` beside the
/// new log, which is durable before the log can be opened.
///
/// # Errors
/// As [`salvage`]; [`Error::Stopped`], and then only the directory and its lock file are left.
///
/// # Durability
/// As [`salvage`].
pub fn salvage_until(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &Options,
    stop: &AtomicBool,
    note: impl FnOnce(&Salvage) -> Option<Vec<u8>>,
) -> Result<Salvage> {
    let (from, to) = (AnyDirectory::new(find_directory(from)?), to.as_ref());
    salvage_between(&from, || new_directory(to, options), options, stop, note)
}

/// As [`salvage`], between any two directories ([`AnyDirectory`]); `to` is called once it is known
/// what to save.
///
/// # Errors
/// As [`salvage`].
///
/// # Durability
/// As [`salvage`].
pub fn salvage_in<N: Into<AnyDirectory>>(
    from: impl Into<AnyDirectory>,
    to: impl FnOnce() -> Result<N>,
    options: &Options,
) -> Result<Salvage> {
    salvage_between(&from.into(), || Ok(to()?.into()), options, &AtomicBool::new(false), |_| None)
}

fn salvage_between(
    from: &AnyDirectory,
    to: impl FnOnce() -> Result<AnyDirectory>,
    options: &Options,
    stop: &AtomicBool,
    note: impl FnOnce(&Salvage) -> Option<Vec<u8>>,
) -> Result<Salvage> {
    if let Holder::Writer(holder) = holder(from)? {
        return Err(Error::Locked { path: from.path().to_path_buf(), holder });
    }
    let surveyed = steady(from, Depth::Everything, stop)?;
    let report = surveyed.report;
    if let (true, Some(damage)) = (report.is_of_two_logs(), report.damage.first()) {
        return Err(damage.clone().into());
    }
    let mut saved = Saved::of(&report);
    let is_end_lost = saved.read(from, (&report, &surveyed.spans), stop, &mut |_, _| Ok(()))?;
    if let (true, Some(damage)) = (saved.runs.is_empty(), report.damage.first()) {
        return Err(Error::from(damage.clone()).without_records());
    }
    let gaps = saved.gaps(&report);
    let last = saved.runs.last().map(|run| run.last).max(gaps.last().map(|gap| gap.last));
    let salvage = Salvage {
        unknown_behind: last.filter(|_| is_end_lost),
        report,
        runs: saved.runs,
        gaps,
        records: saved.records,
        record_bytes: saved.record_bytes,
    };
    let beside = note(&salvage);
    let mut options = options_for(options, &salvage.report).begin_at(salvage.report.first);
    // Not where a later cut may be lost, or records behind which somebody has a place: that would
    // be believed.
    let is_known = |newest: &SegmentReport| newest.state != SegmentState::HeaderLost;
    if !is_end_lost && salvage.report.segments.last().is_some_and(is_known) {
        options.cuts = surveyed.cuts;
    }
    let new = Making::begin(to()?, options, salvage.gaps.last().map(|gap| gap.last))?;
    write(from, &surveyed.spans, &salvage, &new, stop)?;
    new.finish(beside.map(|bytes| (names::SALVAGE, bytes)))?;
    Ok(salvage)
}

/// Reads a second time, and writes the records and the gaps.
fn write(
    from: &AnyDirectory,
    spans: &[Span],
    salvage: &Salvage,
    new: &Making,
    stop: &AtomicBool,
) -> Result<()> {
    let (mut saved, mut is_same) = (Saved::of(&salvage.report), true);
    saved.read(from, (&salvage.report, spans), stop, &mut |lsn, record| {
        new.lose_before(lsn)?;
        let given = new.log()?.append(record)?.lsn();
        is_same &= given == lsn;
        Ok(())
    })?;
    if saved.runs != salvage.runs || !is_same {
        return Err(Error::Invalid(format!(
            "{}: what can be read has changed while it was read: salvage again, from a copy of \
             the files if the disk is failing",
            from.path().display()
        )));
    }
    match salvage.gaps.last().and_then(|gap| gap.last.next()) {
        Some(behind) => new.lose_before(behind),
        None => Ok(()),
    }
}

/// Counts the records that [`salvage`] would save of a damaged log.
///
/// # Errors
/// Those of the file system; [`Error::Stopped`].
pub(super) fn savable(
    from: &AnyDirectory,
    surveyed: &Surveyed,
    stop: &AtomicBool,
) -> Result<Savable> {
    let mut saved = Saved::of(&surveyed.report);
    saved.read(from, (&surveyed.report, &surveyed.spans), stop, &mut |_, _| Ok(()))?;
    Ok(Savable { records: saved.records, record_bytes: saved.record_bytes })
}

struct Saved {
    first_live: Lsn,
    runs: Vec<Run>,
    records: u64,
    record_bytes: u64,
    /// The highest LSN of a record that was found, saved or not.
    named: Lsn,
}

impl Saved {
    fn of(report: &Report) -> Self {
        let (first_live, named) = (report.first, Lsn::ZERO);
        Self { first_live, runs: Vec::new(), records: 0, record_bytes: 0, named }
    }

    /// Reads all that can be saved. `take` gets each record. Returns whether the end of the log is
    /// lost.
    fn read(
        &mut self,
        from: &AnyDirectory,
        (report, spans): (&Report, &[Span]),
        stop: &AtomicBool,
        take: Visit<'_>,
    ) -> Result<bool> {
        let last_number = spans.last().map(|span| span.header.number);
        // An unreadable file above the last segment was a segment of the log.
        let mut is_end_lost = report.damage.iter().any(|damage| damage.segment > last_number);
        for span in spans {
            let mut named = Lsn::ZERO;
            let ends_in_damage = read_sound(from, span, &mut named, &mut |lsn, record| {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                if self.wants(lsn, span) {
                    take(lsn, record)?;
                    self.note(lsn, record.len());
                }
                Ok(())
            })?;
            if span.below.is_none_or(|below| named < below) {
                self.named = self.named.max(named);
            }
            is_end_lost |= ends_in_damage && Some(span.header.number) == last_number;
        }
        Ok(is_end_lost)
    }

    /// Not records that were truncated, were saved already, or belong to a newer segment.
    fn wants(&self, lsn: Lsn, span: &Span) -> bool {
        lsn >= self.first_live
            && self.runs.last().is_none_or(|run| lsn > run.last)
            && span.below.is_none_or(|below| lsn < below)
    }

    fn note(&mut self, lsn: Lsn, bytes: usize) {
        match self.runs.last_mut() {
            Some(run) if run.last.next() == Some(lsn) => run.last = lsn,
            _ => self.runs.push(Run { first: lsn, last: lsn }),
        }
        self.records += 1;
        self.record_bytes += bytes as u64;
    }

    /// The gaps before, between and after the runs.
    fn gaps(&self, report: &Report) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut next = self.first_live;
        let mut gap = |from: Lsn, to: Option<Lsn>| {
            if let Some(last) = to.filter(|last| *last >= from) {
                gaps.push(Gap { first: from, last });
            }
        };
        for run in &self.runs {
            gap(next, run.first.before());
            next = run.last.next().unwrap_or(run.last);
        }
        gap(next, Some(report.promise.max(report.last).max(self.named)));
        gaps
    }
}

type Visit<'v> = &'v mut dyn FnMut(Lsn, &[u8]) -> Result<()>;

/// Hands records on: those of a batch together, once its last one has come.
struct Batches<'v> {
    visit: Visit<'v>,
    /// The beginning of a batch.
    open: Vec<(Lsn, Vec<u8>)>,
    /// The byte after that.
    open_end: u64,
    /// The highest LSN that was found, handed on or not.
    named: &'v mut Lsn,
}

impl Batches<'_> {
    fn record(&mut self, (lsn, end): (Lsn, u64), place: Batch, bytes: &[u8]) -> Result<()> {
        *self.named = (*self.named).max(lsn);
        let goes_on = self.open.last().is_some_and(|(last, _)| last.next() == Some(lsn));
        if matches!(place, Batch::Alone | Batch::First) || !goes_on {
            // The rest of the batch before is lost.
            self.open.clear();
        }
        self.open_end = end;
        match place {
            Batch::Alone => (self.visit)(lsn, bytes)?,
            Batch::Middle | Batch::Last if !goes_on => {}
            Batch::First | Batch::Middle | Batch::Last => self.open.push((lsn, bytes.to_vec())),
        }
        if place == Batch::Last { self.end() } else { Ok(()) }
    }

    /// Hands on what a cut at this byte has left of a batch. If the batch does not end there, the
    /// rest of it is lost.
    fn end_at(&mut self, cut: u64) -> Result<()> {
        if self.open_end == cut { self.end() } else { Ok(()) }
    }

    /// Hands on a batch.
    fn end(&mut self) -> Result<()> {
        self.open.drain(..).try_for_each(|(lsn, bytes)| (self.visit)(lsn, &bytes))
    }
}

/// Visits every sound record of a segment in order. Returns whether the segment ends in damage with
/// nothing after it.
fn read_sound(
    directory: &AnyDirectory,
    span: &Span,
    named: &mut Lsn,
    visit: Visit<'_>,
) -> Result<bool> {
    let mut strip = Strip::open(directory, span, span.end())?;
    let mut group: Vec<(FrameAt, Vec<u8>)> = Vec::new();
    let mut batches = Batches { visit, open: Vec::new(), open_end: 0, named };
    let mut ends_in_damage = false;
    while let Some(shown) = strip.next()? {
        match shown {
            Shown::Group(_) => group.clear(),
            Shown::Frame(frame) if frame.kind == Kind::Record => {
                group.push((frame, strip.walk.payload(frame.at, frame.payload_bytes).to_vec()));
            }
            Shown::Frame(_) => {}
            Shown::GroupEnd => show(&mut group, None, &mut batches)?,
            // A cut may end inside a group, and inside a batch; the frames before it belong to the
            // log.
            Shown::Halt(halt) if halt.stop.fault == Fault::SegmentEnd => {
                show(&mut group, None, &mut batches)?;
                return batches.end_at(halt.stop.at).map(|()| false);
            }
            Shown::Halt(halt) if halt.is_damage() => {
                let Halt { stop, evidence, inside, next, .. } = *halt;
                let covered =
                    if stop.file_short { Evidence { end: u64::MAX, ..evidence } } else { evidence };
                show(&mut group, Some(&covered), &mut batches)?;
                let epoch = inside.map_or(stop.tail.epoch, |group| group.header.epoch);
                // The group that began a new epoch may be lost, too.
                let newer = match (next, &span.successor) {
                    (None, Some(successor)) => successor.epoch,
                    _ => strip.walk.decoder.tail().epoch,
                };
                let epochs = [epoch, newer];
                read_loose(&mut strip, &stop, epochs, next, &covered, &mut batches)?;
                ends_in_damage = next.is_none();
            }
            Shown::Halt(_) => {}
        }
    }
    Ok(ends_in_damage)
}

/// Takes the records of a group: all of them, or those that the evidence covers.
fn show(
    group: &mut Vec<(FrameAt, Vec<u8>)>,
    covered_by: Option<&Evidence>,
    batches: &mut Batches<'_>,
) -> Result<()> {
    for (frame, record) in group.drain(..) {
        if covered_by.is_none_or(|evidence| was_durable(evidence, frame.lsn, frame.end)) {
            batches.record((frame.lsn, frame.end), frame.batch, &record)?;
        }
    }
    Ok(())
}

fn was_durable(evidence: &Evidence, lsn: Lsn, end: u64) -> bool {
    end <= evidence.end || lsn <= evidence.lsn
}

/// Takes the sound records between a stop and the next sound group, which were written in one of
/// these epochs.
fn read_loose(
    strip: &mut Strip,
    stop: &Stop,
    epochs: [Epoch; 2],
    next: Option<u64>,
    evidence: &Evidence,
    batches: &mut Batches<'_>,
) -> Result<()> {
    let to = next.unwrap_or(strip.to).min(strip.to);
    let id = *strip.walk.decoder.identity();
    let window = &mut strip.walk.window;
    let mut at = stop.at;
    while at + FRAME_HEADER_BYTES as u64 <= to {
        if !window.hold(at, FRAME_HEADER_BYTES, READ_BYTES)? {
            return Ok(());
        }
        let bytes = window.slice(at, FRAME_HEADER_BYTES);
        let decode = |epoch| FrameHeader::decode(&id, at, epoch, bytes);
        let header = epochs.into_iter().find_map(decode);
        let Some(header) =
            header.filter(|header| header.payload_bytes as usize <= RECORD_BYTES_MAX)
        else {
            at += ALIGN as u64;
            continue;
        };
        let len = header.payload_bytes as usize;
        let end = at + frame_bytes(len) as u64;
        if end <= to && header.kind == Kind::Record as u8 && was_durable(evidence, header.lsn, end)
        {
            *batches.named = (*batches.named).max(header.lsn);
            if !window.hold(at, FRAME_HEADER_BYTES + len, READ_BYTES)? {
                return Ok(());
            }
            let payload = window.slice(at + FRAME_HEADER_BYTES as u64, len);
            let place = Batch::of(header.flags).filter(|_| crc32c(payload) == header.payload_crc);
            if let Some(place) = place {
                batches.record((header.lsn, end), place, payload)?;
            }
        }
        // A sound header has the right length, even if the payload is damaged.
        at = if end <= to { end } else { at + ALIGN as u64 };
    }
    Ok(())
}
