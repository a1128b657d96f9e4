//! Surveys a whole directory: every segment, every damaged place.
//!
//! *Owns*: the order of the questions when the survey must not end at the first damage. *May not
//! touch*: what a stop means (`inkstone-format`), which files are the log (`spans.rs`).

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use inkstone_format::{
    ChainFault, Copies, Cuts, Decoder, Fault, HeaderBlock, Kind, LogId, Lsn, Position, Reason,
    SegmentHeader, SegmentNumber, Tail, Verdict,
};
use inkstone_io::{AnyDirectory, OpenFile};

use super::report::{Counts, FileState, Gap, OtherFile, Report, SegmentReport, SegmentState};
use super::spans::{Span, Spans, stand_in};
use super::strip::{Halt, Shown, Strip};
use crate::doubts::{Doubts, Holder, holder};
use crate::error::{Corruption, Error, Result};
use crate::names;
use crate::options::Options;
use crate::recovery::headers::{Headers, Judged, cut_mark, past_the_cache};
use crate::recovery::recover::{promise_in_words, with_torn_header};
use crate::segment::listing::Listing;

/// Surveys of a log beside a living writer, at most, until two in a row find the same damage.
pub(super) const LOOKS_MAX: usize = 30;

/// Threads that read segments at the same time, at most, and the bytes for which one more thread is
/// worth its start.
const THREADS_MAX: usize = 8;
const BYTES_PER_THREAD: u64 = 8 << 20;

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The headers, and the last segment.
    Ends,
    /// Everything.
    Everything,
}

/// A directory's report, and the segments of the log.
pub(crate) struct Surveyed {
    pub(crate) report: Report,
    /// The history of cuts in the head's header.
    pub(crate) cuts: Cuts,
    pub(crate) spans: Vec<Span>,
}

/// As [`super::look`], in any directory ([`AnyDirectory`]).
///
/// # Errors
/// As [`super::verify`].
pub fn look_in(directory: impl Into<AnyDirectory>) -> Result<Report> {
    steady(&directory.into(), Depth::Ends, &AtomicBool::new(false)).map(|surveyed| surveyed.report)
}

/// Surveys the directory. Beside a living writer files come, go and grow while they are read, so
/// damage counts only when two surveys in a row find it in the same place.
pub(crate) fn steady(
    directory: &AnyDirectory,
    depth: Depth,
    stop: &AtomicBool,
) -> Result<Surveyed> {
    let mut before = Vec::new();
    for _ in 0..LOOKS_MAX {
        let is_alive = may_live(directory)?;
        let result = survey(directory, depth, stop);
        let is_alive = is_alive || may_live(directory)?;
        if !is_alive {
            return result;
        }
        match result {
            Ok(mut surveyed) => {
                let place = |damage: &Corruption| (damage.segment, damage.offset);
                let damage = &mut surveyed.report.damage;
                let places: Vec<_> = damage.iter().map(place).collect();
                damage.retain(|damage| before.contains(&place(damage)));
                let confirmed =
                    damage.first().map(|first| (Verdict::Corrupt(first.reason), first.row));
                if let Some(confirmed) = confirmed {
                    (surveyed.report.verdict, surveyed.report.row) = confirmed;
                }
                if places.is_empty() || confirmed.is_some() {
                    return Ok(surveyed);
                }
                before = places;
            }
            // A file was removed between listing and opening, or given back while it was read.
            Err(Error::Io(error))
                if [io::ErrorKind::NotFound, io::ErrorKind::UnexpectedEof]
                    .contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
    Err(busy(directory))
}

/// Whether a writer lives, or nobody can tell.
pub(super) fn may_live(directory: &AnyDirectory) -> Result<bool> {
    Ok(!matches!(holder(directory)?, Holder::Nobody))
}

fn survey(directory: &AnyDirectory, depth: Depth, stop: &AtomicBool) -> Result<Surveyed> {
    let options = Options::default().for_reading();
    let listing = Listing::of(directory)?;
    // There was no mark of a copy; after a power cut there must be none either
    // (`recovery/beside.rs`).
    options.doubts.flushed(directory.sync())?;
    options.doubts.about_locks(directory)?;
    let headers = Headers::read(directory, &options, &listing.segments)?;
    let mut found = Surveyed { report: nothing(directory)?, cuts: Cuts::NONE, spans: Vec::new() };
    let Some(Judged { log, head, cuts, torn }) =
        headers.ask(&mut |fault| found.report.blame(fault))?
    else {
        return match found.report.is_intact() {
            true => Err(Error::NoLog { path: directory.path().to_path_buf(), missing: None }),
            false => Ok(found),
        };
    };
    (found.report.log, found.cuts) = (Some(log), cuts);
    read_all(directory, &headers, &head, (depth, stop), &mut found)?;
    (found.report.verdict, found.report.row) =
        with_torn_header(found.report.verdict, found.report.row, torn);
    if let Ok(head) = past_the_cache(directory, head.number) {
        options.doubts.about_holes(&*head);
    }
    found.report.others = others(directory, &listing, &found, &headers, &options.doubts);
    found.report.doubts = options.doubts.all();
    Ok(found)
}

fn nothing(directory: &AnyDirectory) -> Result<Report> {
    Ok(Report {
        path: directory.path().to_path_buf(),
        log: None,
        verdict: Verdict::End,
        row: "H7",
        first: Lsn::FIRST,
        last: Lsn::ZERO,
        promise: Lsn::ZERO,
        epoch: None,
        end: None,
        clean: false,
        segments: Vec::new(),
        others: Vec::new(),
        savable: None,
        damage: Vec::new(),
        writer: match holder(directory)? {
            Holder::Writer(writer) => Some(writer),
            Holder::Nobody | Holder::Unknown(_) => None,
        },
        doubts: Vec::new(),
    })
}

impl Report {
    /// Puts damage into the report; returns any other error.
    fn blame(&mut self, error: Error) -> Result<()> {
        let Error::Corrupt(corruption) = error else { return Err(error) };
        self.note_damage((*corruption).clone());
        Ok(())
    }

    fn note_damage(&mut self, corruption: Corruption) {
        if self.damage.is_empty() {
            (self.verdict, self.row) = (Verdict::Corrupt(corruption.reason), corruption.row);
        }
        self.damage.push(corruption);
    }
}

/// Reads the head, which says what `truncate_before` has truncated, then the other segments if
/// `depth` asks for them.
fn read_all(
    directory: &AnyDirectory,
    headers: &Headers<'_>,
    head: &SegmentHeader,
    (depth, stop): (Depth, &AtomicBool),
    found: &mut Surveyed,
) -> Result<()> {
    let (head_span, head_read, first_live) = read_head(directory, headers, head, stop)?;
    let Spans { mut spans, faults } = Spans::find(directory, headers, head_span, first_live)?;
    // A segment with a mark got nothing after the cut. Where a link is broken, the segment that the
    // cut has begun may be gone, and nothing else says what it took.
    if head_span.cut_at.is_some() || !faults.is_empty() {
        for span in spans.iter_mut().filter(|span| span.header.number != head.number) {
            span.cut_at = cut_mark(directory, &span.header)?.map(|mark| mark.end);
        }
    }
    for fault in faults {
        found.report.note_damage(broken_link(headers, &fault));
    }
    // A file above the head has groups but no header: the log continued there.
    let above: BTreeSet<SegmentNumber> =
        found.report.damage.iter().filter_map(|damage| damage.segment).collect();
    for number in above.into_iter().filter(|number| *number > head.number) {
        if let Some(header) = stand_in(directory, headers, head.log, number)? {
            // A cut may have begun it.
            for span in &mut spans {
                span.below =
                    Some(span.below.map_or(header.first_lsn, |below| below.min(header.first_lsn)));
            }
            spans.push(Span {
                header,
                successor: None,
                is_head: true,
                is_stand_in: true,
                // A later cut may have ended it.
                cut_at: cut_mark(directory, &header)?.map(|mark| mark.end),
                ..head_span
            });
        }
    }
    if !found.report.is_intact() {
        take_unnamed(directory, headers, head.log, &mut spans)?;
    }
    let report = &mut found.report;
    (report.first, report.clean) =
        (first_live, head_read.tail.closed && head_read.report.verdict == Verdict::End);
    let others: Vec<&Span> =
        spans.iter().filter(|span| span.header.number != head.number).collect();
    let mut others = match depth {
        Depth::Everything => read_spans(directory, headers, &others, (first_live, stop)),
        Depth::Ends => {
            let gaps_to = Some(head.lost_to).filter(|last| *last >= first_live);
            let read = |span: &&Span| match Some(span.header.first_lsn) <= gaps_to {
                true => read_span(directory, headers, span, (first_live, stop)),
                false => unread(directory, headers, span),
            };
            others.iter().map(read).collect()
        }
    }
    .into_iter();
    for span in &spans {
        let is_head = span.header.number == head.number;
        let read = if is_head { Some(Ok(head_read.clone())) } else { others.next() };
        let Some(read) = read.transpose()? else { break };
        // A segment without a header of its own may say where the log begins, too.
        if span.is_stand_in {
            report.first = report.first.max(read.tail.first_live);
        }
        report.last = report.last.max(read.report.last);
        report.promise = report.promise.max(read.promise);
        report.epoch = report.epoch.max(Some(read.report.epoch));
        if is_head && report.is_intact() && read.damage.is_empty() {
            (report.verdict, report.row) = (read.report.verdict, read.report.row);
        }
        report.end = Some(Position { segment: span.header.number, byte: read.report.end });
        report.segments.push(read.report);
        read.damage.into_iter().for_each(|damage| report.note_damage(damage));
    }
    report.last = report.last.max(report.first.before().unwrap_or(Lsn::ZERO));
    found.spans = spans;
    Ok(())
}

/// Adds the segments that no link leads to, since the header beside their own is lost, too. The
/// LSNs of newer segments are theirs: a cut may have taken these records.
fn take_unnamed(
    directory: &AnyDirectory,
    headers: &Headers<'_>,
    log: LogId,
    spans: &mut Vec<Span>,
) -> Result<()> {
    for file in headers.files.iter().rev().filter(|file| file.own(log).is_none()) {
        if spans.iter().any(|span| span.header.number == file.number) {
            continue;
        }
        let Some(header) = stand_in(directory, headers, log, file.number)? else { continue };
        let newer = spans.iter().filter(|span| span.header.number > file.number);
        spans.push(Span {
            header,
            successor: None,
            is_head: false,
            is_stand_in: true,
            below: newer.map(|span| span.header.first_lsn).min(),
            cut_at: cut_mark(directory, &header)?.map(|mark| mark.end),
        });
    }
    spans.sort_by_key(|span| span.header.number);
    Ok(())
}

/// A broken link, and what is in the place of the missing header.
fn broken_link(headers: &Headers<'_>, fault: &ChainFault) -> Corruption {
    let ChainFault { segment, named_by, reason } = *fault;
    let expected =
        format!("expected: the header of segment {segment}, which segment {named_by} names");
    let found = match headers.file(segment).map(|file| &file.block) {
        None => "found: no such file".into(),
        Some(HeaderBlock::Zero) => "found: zeros".into(),
        Some(HeaderBlock::Short) => "found: a file too short for a header".into(),
        Some(HeaderBlock::Damaged(traces)) if traces.magic => "found: a damaged header".into(),
        Some(HeaderBlock::Damaged(_)) => "found: no trace of a header".into(),
        Some(HeaderBlock::Unknown { version, .. }) => {
            format!("found: a header of version {version}")
        }
        Some(HeaderBlock::Valid { header, .. }) => {
            format!(
                "found: segment {} from LSN {}, epoch {}",
                header.number, header.first_lsn, header.epoch
            )
        }
    };
    Corruption { details: vec![expected, found], ..headers.corrupt(segment, reason, "D1") }
}

/// A segment that was read.
#[derive(Clone)]
struct Read {
    report: SegmentReport,
    tail: Tail,
    promise: Lsn,
    damage: Vec<Corruption>,
}

/// What the headers say of a segment.
fn unread(directory: &AnyDirectory, headers: &Headers<'_>, span: &Span) -> Result<Read> {
    let header = span.header;
    let file_bytes = file_bytes(directory, &names::segment(header.number))?;
    let last = span.successor.and_then(|next| next.first_lsn.before());
    let end = span.end().unwrap_or(header.segment_bytes);
    let report = SegmentReport {
        number: header.number,
        path: headers.path(header.number),
        file_bytes,
        header,
        state: state(span),
        first: header.first_lsn,
        last: last.unwrap_or(header.first_lsn),
        end,
        epoch: header.epoch,
        promise: header.promise,
        is_read: false,
        gaps: Vec::new(),
        counts: Counts::default(),
        verdict: Verdict::End,
        row: "E1",
        notes: notes(headers, header.number),
    };
    let tail = *Decoder::new(&header, file_bytes).tail();
    let mut read = Read { report, tail, promise: header.promise, damage: Vec::new() };
    if let Some(end) = span.end().filter(|end| *end > file_bytes) {
        let why = format!("expected: {end} bytes or more, found: {file_bytes}");
        read.note_damage(Reason::FileShort, "F1", (file_bytes, None), vec![why]);
    }
    Ok(read)
}

fn state(span: &Span) -> SegmentState {
    match (span.is_stand_in, span.is_head) {
        (true, _) => SegmentState::HeaderLost,
        (false, true) => SegmentState::Active,
        (false, false) => SegmentState::Sealed,
    }
}

/// Harmless findings about a valid header.
fn notes(headers: &Headers<'_>, number: SegmentNumber) -> Vec<String> {
    let block = headers.file(number).map(|file| file.block);
    let Some(HeaderBlock::Valid { copies, stray, .. }) = block else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    match copies {
        Copies::Both => {}
        Copies::Only(copy) => {
            notes.push(format!(
                "only copy {} of its header is good; the other is damaged",
                copy + 1
            ));
        }
        Copies::Newer(copy) => {
            notes.push(format!(
                "the copies of its header differ; copy {} is newer and is used",
                copy + 1
            ));
        }
    }
    if stray {
        notes.push("there are bytes other than zero between the copies of its header".into());
    }
    notes
}

/// Reads segments, several at a time where there is much to read. Returns the results in order.
fn read_spans(
    directory: &AnyDirectory,
    headers: &Headers<'_>,
    spans: &[&Span],
    how: (Lsn, &AtomicBool),
) -> Vec<Result<Read>> {
    let bytes: u64 = spans.iter().map(|span| span.header.segment_bytes).sum();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cores.min(THREADS_MAX).min(spans.len()).min((bytes / BYTES_PER_THREAD) as usize);
    if threads < 2 {
        return spans.iter().map(|span| read_span(directory, headers, span, how)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(span) = spans.get(index)
        {
            done.push((index, read_span(directory, headers, span, how)));
        }
        done
    };
    let mut found = std::thread::scope(|scope| {
        // If no more threads can be started, the ones there are and this one do the work.
        let spawn =
            || std::thread::Builder::new().name("inkstone-verify".into()).spawn_scoped(scope, work);
        let others: Vec<_> = (1..threads).map_while(|_| spawn().ok()).collect();
        let mut found = work();
        for other in others {
            found.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        found
    });
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, read)| read).collect()
}

/// Reads a segment from front to back, past damage; counts the records from `first_live` on.
fn read_span(
    directory: &AnyDirectory,
    headers: &Headers<'_>,
    span: &Span,
    (first_live, told): (Lsn, &AtomicBool),
) -> Result<Read> {
    let mut read = unread(directory, headers, span)?;
    // Reading finds this damage itself.
    read.damage.clear();
    let mut strip = Strip::open(directory, span, span.end())?;
    let (mut group, mut gaps) = (Counts::default(), Vec::new());
    while let Some(shown) = strip.next()? {
        match shown {
            Shown::Group(_) if told.load(Ordering::Relaxed) => return Err(Error::Stopped),
            Shown::Group(_) => {
                (group, gaps) = (Counts { groups: 1, ..Counts::default() }, Vec::new());
            }
            Shown::Frame(frame) if frame.kind == Kind::Record && frame.lsn < first_live => {}
            Shown::Frame(frame) if frame.kind == Kind::Record => {
                group.records += 1;
                group.record_bytes += frame.payload_bytes as u64;
            }
            Shown::Frame(frame) => {
                group.controls += 1;
                let last = strip.walk.decoder.mark().lsn.before();
                let is_live = |last: &Lsn| frame.kind == Kind::Lost && *last >= first_live;
                let first = frame.lsn.max(first_live);
                gaps.extend(last.filter(is_live).map(|last| Gap { first, last }));
            }
            Shown::GroupEnd => read.count(&std::mem::take(&mut group), &mut gaps),
            Shown::Halt(halt) => {
                if halt.stop.fault == Fault::SegmentEnd {
                    read.count(&std::mem::take(&mut group), &mut gaps);
                }
                read.halt(&mut strip, &halt)?;
            }
        }
    }
    read.check_link(span);
    Ok(read)
}

/// The byte from which on the segment was cut, if the segment that the cut has begun is missing: a
/// mark counts more cuts than the head does.
fn cut_at(
    directory: &AnyDirectory,
    segment: &SegmentHeader,
    head: &SegmentHeader,
) -> Result<Option<u64>> {
    let mark = cut_mark(directory, segment)?;
    Ok(mark.filter(|mark| mark.cuts > head.cuts).map(|mark| mark.end))
}

/// Reads the head until what it says of the log is what it was read with: where the log begins, and
/// that it is the last segment. Returns it with the first record of the log.
fn read_head(
    directory: &AnyDirectory,
    headers: &Headers<'_>,
    head: &SegmentHeader,
    stop: &AtomicBool,
) -> Result<(Span, Read, Lsn)> {
    let mut span = Span {
        header: *head,
        successor: None,
        is_head: true,
        is_stand_in: false,
        below: None,
        cut_at: cut_at(directory, head, head)?,
    };
    let mut first_live = head.first_live;
    for _ in 1..LOOKS_MAX {
        let read = read_span(directory, headers, &span, (first_live, stop))?;
        if read.is_sealed_without_successor()
            && let Some(next) = successor_of(directory, headers, head)?
        {
            // It came after the listing: the log is shown as it was then. A look takes longer than
            // a segment on a busy disk.
            span = Span { successor: Some(next), is_head: false, ..span };
            // A cut may have truncated the group that said where the log begins.
            first_live = first_live.max(read.tail.first_live).max(next.first_live);
        } else if read.tail.first_live > first_live.max(head.first_lsn) {
            // Records were counted that are truncated.
            first_live = read.tail.first_live;
        } else {
            let first_live = first_live.max(read.tail.first_live);
            return Ok((span, read, first_live));
        }
    }
    Err(busy(directory))
}

/// The error of a log that is never twice the same.
fn busy(directory: &AnyDirectory) -> Error {
    let why = io::Error::from(io::ErrorKind::ResourceBusy);
    let error = inkstone_io::Error::new("look at the log", directory.path(), why);
    error
        .advise(
            "its writer changes the files faster than they can be read: try again when it \
                 writes less",
        )
        .into()
}

/// The header of the segment's successor, if it has one by now.
fn successor_of(
    directory: &AnyDirectory,
    headers: &Headers<'_>,
    head: &SegmentHeader,
) -> Result<Option<SegmentHeader>> {
    let mut above = Listing::of(directory)?.segments;
    above.retain(|number| *number > head.number);
    let files = Headers::read(directory, headers.options, &above)?.files;
    let begun = files.iter().filter_map(|file| file.own(head.log).copied());
    let names_it =
        |next: &SegmentHeader| next.predecessor.is_some_and(|end| end.segment == head.number);
    Ok(begun.filter(names_it).max_by_key(|next| next.number))
}

impl Read {
    fn is_sealed_without_successor(&self) -> bool {
        self.damage.iter().any(|damage| damage.reason == Reason::MissingSegment)
    }

    fn count(&mut self, group: &Counts, gaps: &mut Vec<Gap>) {
        self.report.gaps.append(gaps);
        self.report.counts = self.report.counts.plus(group);
    }

    /// Notes where reading stops, and how far it came. There is at least one such place.
    fn halt(&mut self, strip: &mut Strip, halt: &Halt) -> Result<()> {
        let Halt { stop, evidence, row, verdict, .. } = halt;
        self.tail =
            Tail { first_live: self.tail.first_live.max(stop.tail.first_live), ..stop.tail };
        self.promise = self.promise.max(stop.tail.promise).max(evidence.lsn);
        self.report.promise = self.report.promise.max(stop.tail.promise);
        self.report.end = stop.tail.end;
        self.report.epoch = self.report.epoch.max(stop.tail.epoch);
        self.report.last = stop.tail.next_lsn.before().unwrap_or(Lsn::ZERO);
        if !std::mem::replace(&mut self.report.is_read, true) {
            (self.report.verdict, self.report.row) = (*verdict, row.name);
        }
        let Verdict::Corrupt(reason) = *verdict else {
            if *verdict == Verdict::Torn {
                self.report.notes.push(format!("from byte {} on: {}", stop.tail.end, row.why));
                let mut lines = strip.explain(stop)?;
                if let Some(first) = lines.first_mut() {
                    first.insert_str(0, &format!("byte {}: ", stop.at));
                }
                self.report.notes.extend(lines);
            }
            return Ok(());
        };
        let mut details = strip.explain(stop)?;
        if evidence.covers(stop.tail.end, stop.tail.next_lsn) {
            details.push(promise_in_words(evidence.lsn.max(stop.tail.promise), evidence.end));
        }
        self.note_damage(reason, row.name, (stop.at, Some(stop.lsn_expected)), details);
        Ok(())
    }

    /// Checks that the next segment begins where this one ends.
    fn check_link(&mut self, span: &Span) {
        let is_whole = self.damage.is_empty() && span.cut_at.is_none();
        let Some(next) = span.successor.filter(|_| is_whole) else { return };
        if next.first_lsn != self.tail.next_lsn {
            let (end, found) = (self.tail.end, self.tail.next_lsn);
            let why = format!(
                "expected: LSN {}, with which segment {} begins; found: LSN {found}",
                next.first_lsn, next.number
            );
            self.note_damage(Reason::Link, "D1", (end, Some(found)), vec![why]);
        }
    }

    /// Damage at this byte, where this LSN should be.
    fn note_damage(
        &mut self,
        reason: Reason,
        row: &'static str,
        (offset, lsn): (u64, Option<Lsn>),
        details: Vec<String>,
    ) {
        let SegmentReport { path, number, .. } = &self.report;
        let found = Corruption::of(path.clone(), *number, reason, row);
        self.damage.push(Corruption { offset, lsn, details, ..found });
    }
}

fn file_bytes(directory: &AnyDirectory, name: &str) -> Result<u64> {
    Ok(directory.open(name, &OpenFile::existing().read_only())?.len_bytes()?)
}

/// The files that are not part of the log. One that cannot be read keeps nobody from reading the
/// log.
fn others(
    directory: &AnyDirectory,
    listing: &Listing,
    found: &Surveyed,
    headers: &Headers<'_>,
    doubts: &Doubts,
) -> Vec<OtherFile> {
    let parts: BTreeSet<_> = found.spans.iter().map(|span| span.header.number).collect();
    let is_begun =
        |number| headers.file(number).is_some_and(|file| file.state(found.report.log).is_none());
    let segments = listing.segments.iter().filter(|number| !parts.contains(number)).map(|number| {
        let state = if is_begun(*number) { FileState::Obsolete } else { FileState::Ready };
        (*number, names::segment(*number), state)
    });
    let free = listing.free.iter().map(|number| (*number, names::free(*number), FileState::Free));
    let new = listing
        .unfinished
        .iter()
        .map(|number| (*number, names::new(*number), FileState::Unfinished));
    let mut files = Vec::new();
    for (number, name, state) in segments.chain(free).chain(new) {
        let path = directory.path().join(&name);
        match file_bytes(directory, &name) {
            Ok(bytes) => files.push(OtherFile { number, path, bytes, state }),
            // It was used or removed since it was listed; it is not part of the log, so it does not
            // matter.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => doubts.about_a_spare_file(&error),
        }
    }
    files
}
