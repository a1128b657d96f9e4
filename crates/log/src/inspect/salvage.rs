//! Copies the readable records of a damaged log into a new one.
//!
//! *Owns*: which records count as readable, and how old LSNs become new ones. *May not touch*: the
//! damaged log.
//!
//! **What is saved.** Every record of a whole group. Of a damaged group that was promised to be
//! durable, each record whose frame and payload are sound: they were acknowledged. Nothing of a
//! torn tail. What is left of a damaged batch is saved; the gaps show the rest. Where a file was
//! shortened, its promises are lost with its end: there every whole record is saved, since each may
//! have been acknowledged.
//!
//! **What is unknown.** The number of lost records is known only as far as a remaining promise or
//! header names a higher LSN. If the last segment or its end is missing, nothing does:
//! [`Salvage::unknown_behind`].
//!
//! **LSNs.** They are dense, so not every record can keep its own. The new log begins at the LSN of
//! the first record that could be read. Up to the first gap every record keeps its LSN; after a gap
//! it is lower by the number of lost records. [`Run`] holds both.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_format::checksum::crc32c;
use inkstone_format::limits::{ALIGN, FRAME_HEADER_BYTES, RECORD_BYTES_MAX};
use inkstone_format::{Evidence, Fault, FrameHeader, Kind, Lsn, Stop, Verdict, frame_bytes};
use inkstone_io::AnyDirectory;

use super::making::Making;
use super::report::{Report, Savable};
use super::spans::Span;
use super::strip::Strip;
use super::survey::{Depth, Surveyed, steady};
use super::{new_directory, options_for};
use crate::directory::find_directory;
use crate::doubts::{Holder, holder};
use crate::error::{Error, Result};
use crate::names;
use crate::options::Options;
use crate::recovery::headers::past_the_cache;
use crate::recovery::recover::READ_BYTES;
use crate::walk::window::{FrameAt, Item};

/// What was saved, and what was lost.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Salvage {
    /// The report on the damaged log.
    pub report: Report,
    /// The saved records, as runs without a gap.
    pub runs: Vec<Run>,
    /// The lost records, as far as they are known.
    pub gaps: Vec<Gap>,
    /// The log had, or may have had, records after this LSN, and nothing is left that shows how
    /// many.
    pub unknown_behind: Option<Lsn>,
    /// The number of saved records.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
}

/// Records that were saved with nothing missing between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The LSN of the first, in the old log.
    pub first: Lsn,
    /// The LSN of the last, in the old log.
    pub last: Lsn,
    /// The LSN of the first, in the new log; the others follow it.
    pub new_first: Lsn,
}

/// Records that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The LSN of the first, in the old log.
    pub first: Lsn,
    /// The LSN of the last, in the old log. At the end of the log: the last that is known to have
    /// been durable.
    pub last: Lsn,
}

/// Copies every readable record of the log in `from` into a new log in `to`. `options` apply to the
/// new log; its segments and records may become as large as those of the old log if they are
/// larger.
///
/// Opening the new log before it is complete is [`Error::Incomplete`]. A salvage that fails removes
/// its files; the files of one that was killed are removed by the next into the same directory.
///
/// # Errors
/// [`Error::Locked`] when the log is open for writing, or another copy into `to` is running;
/// [`Error::Invalid`] when `to` already holds a log, or a file with a name that is needed there, or
/// `from` has no record;
/// [`Error::Corrupt`] when no record can be read; as [`super::verify`] and
/// [`Log::open`](crate::Log::open).
///
/// # Durability
/// On `Ok` the new log is on stable storage, and closed.
pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>, options: &Options) -> Result<Salvage> {
    salvage_until(from, to, options, &AtomicBool::new(false), |_| None)
}

/// As [`salvage`], but stops soon after `stop` has become true. The bytes that `note` returns
/// become the file `salvage.json` beside the new log; it is durable before the log can be opened.
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

/// As [`salvage`], between any two directories ([`AnyDirectory`]); `to` is called once there is a
/// record to save.
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
    let options = options_for(options, &report);
    let (mut to, mut new) = (Some(to), None::<Making>);
    let mut saved = Saved::of(&report);
    let read = saved.read(from, (&report, &surveyed.spans), stop, &mut |lsn, record| {
        if let Some(to) = to.take() {
            new = Some(Making::begin(to()?, options.clone().begin_at(lsn))?);
        }
        let Some(new) = &new else { return Ok(lsn) };
        Ok(new.log()?.append(record)?.lsn())
    });
    let is_end_lost = read?;
    let Some(new) = new else {
        return Err(match report.damage.first() {
            Some(damage) => Error::from(damage.clone()).without_records(),
            None => {
                let path = from.path().display();
                Error::Invalid(format!("{path}: the log has no record, so none can be salvaged"))
            }
        });
    };
    let gaps = saved.gaps(&report);
    let saved_last = saved.runs.last().map(|run| run.last);
    let salvage = Salvage {
        unknown_behind: saved_last.max(gaps.last().map(|gap| gap.last)).filter(|_| is_end_lost),
        report,
        runs: saved.runs,
        gaps,
        records: saved.records,
        record_bytes: saved.record_bytes,
    };
    new.finish(note(&salvage).map(|bytes| (names::SALVAGE, bytes)))?;
    Ok(salvage)
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
    saved.read(from, (&surveyed.report, &surveyed.spans), stop, &mut |lsn, _| Ok(lsn))?;
    Ok(Savable { records: saved.records, record_bytes: saved.record_bytes })
}

struct Saved {
    first_live: Lsn,
    runs: Vec<Run>,
    records: u64,
    record_bytes: u64,
}

impl Saved {
    fn of(report: &Report) -> Self {
        Self { first_live: report.first, runs: Vec::new(), records: 0, record_bytes: 0 }
    }

    /// Reads all that can be saved. `take` gets each record, and returns the LSN that it has from
    /// then on. Returns whether the end of the log is lost.
    fn read(
        &mut self,
        from: &AnyDirectory,
        (report, spans): (&Report, &[Span]),
        stop: &AtomicBool,
        take: &mut dyn FnMut(Lsn, &[u8]) -> Result<Lsn>,
    ) -> Result<bool> {
        let last_number = spans.last().map(|span| span.header.number);
        // An unreadable file above the last segment was a segment of the log.
        let mut is_end_lost = report.damage.iter().any(|damage| damage.segment > last_number);
        for span in spans {
            let ends_in_damage = read_sound(from, span, &mut |lsn, record| {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                if self.wants(lsn, span) {
                    let new = take(lsn, record)?;
                    self.note(lsn, new, record.len());
                }
                Ok(())
            })?;
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

    fn note(&mut self, lsn: Lsn, new: Lsn, bytes: usize) {
        match self.runs.last_mut() {
            Some(run) if run.last.next() == Some(lsn) => run.last = lsn,
            _ => self.runs.push(Run { first: lsn, last: lsn, new_first: new }),
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
        gap(next, Some(report.promise.max(report.last)));
        gaps
    }
}

type Visit<'v> = &'v mut dyn FnMut(Lsn, &[u8]) -> Result<()>;

/// Visits every sound record of a segment in order. Returns whether the segment ends in damage with
/// nothing after it.
fn read_sound(directory: &AnyDirectory, span: &Span, visit: Visit<'_>) -> Result<bool> {
    let file = past_the_cache(directory, span.header.number)?;
    let mut strip = Strip::new(file, &span.header, span.end())?;
    let mut group: Vec<(FrameAt, Vec<u8>)> = Vec::new();
    loop {
        match strip.step()? {
            Item::GroupStart(_) => group.clear(),
            Item::Frame(frame) if frame.kind == Kind::Record => {
                group.push((frame, strip.walk.payload(frame.at, frame.payload_bytes).to_vec()));
            }
            Item::Frame(_) => {}
            Item::GroupEnd => show(&mut group, None, visit)?,
            Item::Stop(stop) => {
                // A cut may end inside a group; the frames before it belong to the log.
                if stop.fault == Fault::SegmentEnd {
                    return show(&mut group, None, visit).map(|()| false);
                }
                let (evidence, _, verdict) = span.judge(&mut strip, &stop)?;
                if !matches!(verdict, Verdict::Corrupt(_)) {
                    return Ok(false);
                }
                let covered =
                    if stop.file_short { Evidence { end: u64::MAX, ..evidence } } else { evidence };
                show(&mut group, Some(&covered), visit)?;
                let open_group = strip.group_of(&stop);
                let epoch = open_group.map_or(stop.tail.epoch, |group| group.header.epoch);
                let next = strip.go_on(&stop)?;
                read_loose(&mut strip, &stop, epoch, next, &covered, visit)?;
                if next.is_none() {
                    return Ok(true);
                }
            }
        }
    }
}

/// Visits the records of a group: all of them, or those that the evidence covers.
fn show(
    group: &mut Vec<(FrameAt, Vec<u8>)>,
    covered_by: Option<&Evidence>,
    visit: Visit<'_>,
) -> Result<()> {
    for (frame, record) in group.drain(..) {
        if covered_by.is_none_or(|evidence| was_durable(evidence, frame.lsn, frame.end)) {
            visit(frame.lsn, &record)?;
        }
    }
    Ok(())
}

fn was_durable(evidence: &Evidence, lsn: Lsn, end: u64) -> bool {
    end <= evidence.end || lsn <= evidence.lsn
}

/// Visits the sound records between a stop and the next sound group.
fn read_loose(
    strip: &mut Strip,
    stop: &Stop,
    epoch: inkstone_format::Epoch,
    next: Option<u64>,
    evidence: &Evidence,
    visit: Visit<'_>,
) -> Result<()> {
    let to = next.unwrap_or(strip.to).min(strip.to);
    let id = *strip.walk.decoder.identity();
    let window = &mut strip.walk.window;
    let mut at = stop.at;
    while at + FRAME_HEADER_BYTES as u64 <= to {
        if at < window.at()
            || at + FRAME_HEADER_BYTES as u64 > window.at() + window.bytes().len() as u64
        {
            window.load(at, READ_BYTES)?;
            if window.at() + (window.bytes().len() as u64) < at + FRAME_HEADER_BYTES as u64 {
                return Ok(());
            }
        }
        let header = FrameHeader::decode(&id, at, epoch, window.slice(at, FRAME_HEADER_BYTES));
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
            window.load(at, FRAME_HEADER_BYTES + len)?;
            if window.at() + (window.bytes().len() as u64) < at + (FRAME_HEADER_BYTES + len) as u64
            {
                return Ok(());
            }
            let payload = window.slice(at + FRAME_HEADER_BYTES as u64, len);
            if crc32c(payload) == header.payload_crc {
                visit(header.lsn, payload)?;
            }
        }
        // A sound header has the right length, even if the payload is damaged.
        at = if end <= to { end } else { at + ALIGN as u64 };
    }
    Ok(())
}
