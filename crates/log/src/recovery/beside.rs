//! Observes a log that this process has not opened for writing.
//!
//! *Owns*: what a reader may believe of files that another process may be writing: it asks whether
//! a writer lives, and reads accordingly. *May not touch*: the files: it reads them and syncs them;
//! locks: it only asks who holds one.
//!
//! **Without a writer** an observation is recovery (`recover.rs`): sync, read past the cache,
//! verdict. It asks for the lock's holder before and after. A writer may come *and go* in between,
//! unnoticed by both questions, and leave bytes that recovery read although they were never synced.
//! So the observation syncs the last segment once more, and then reads the end of the log again,
//! where every opening writes first, or begins a segment. If anything has changed, the observation
//! starts over.
//!
//! **Beside a writer** there is no verdict: a group after the last whole one may be in flight. What
//! is *promised* is durable, whatever happened to its writer: a promise was true when it was built,
//! and only a cut revokes it, whose header lies in a segment with a higher number (`newest.rs`
//! finds the last one). If the observation fails, the writer may have changed the files meanwhile;
//! the same failure is believed after [`TRIES`] tries.
//!
//! A segment that a cut has begun counts once its header is durable. A whole group after it shows
//! that it is; if there is none, the observation syncs the file and reads the header past the
//! cache. To wait for the group would not do: on a full file system it may have to wait for room,
//! and what was cut must not be shown meanwhile.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::limits::{GROUP_HEADER_BYTES, HEADER_BYTES};
use inkstone_format::{
    Copies, Cuts, Epoch, GroupStart, HeaderBlock, Kind, Lsn, NewPlaces, Roll, SegmentHeader,
    SegmentNumber, Stop, Tail, Verdict,
};
use inkstone_io::{Access, AnyDirectory, File, OpenFile, SyncKind};

use crate::doubts::{Holder, holder};
use crate::error::{Error, Result};
use crate::names;
use crate::options::Options;
use crate::recovery::headers::{Headers, open_for_reading, past_the_cache};
use crate::recovery::newest::{Newest, Older, newest};
use crate::recovery::recover::{damage, lost_to, recover, report, resolve};
use crate::report::Recovery;
use crate::segment::listing::Listing;
use crate::segment::{Link, Segment};
use crate::sync::sleep;
use crate::walk::window::{FrameAt, Item, Walk, Window};

/// How often an observation beside a writer must fail before the failure is believed.
pub(crate) const TRIES: usize = 6;
/// The size of a read: of a whole head (most of a new one is zeros), and of what was written after
/// its known part (most often nothing).
const WALK_READ_BYTES: usize = 128 << 10;
const NEWS_BYTES: usize = 16 << 10;
/// Stands in for a row of the verdict's table, in the report of an observation beside a writer.
const NO_ROW: &str = "beside a writer";

/// Chooses the access where the options leave it open: past the page cache if that works, as a
/// writer by rule does. The rule itself (`strategy.rs`) finds out by making a file, which a reader
/// may not do.
pub(crate) fn settle_access(directory: &AnyDirectory, options: Options) -> Result<Options> {
    if options.access.is_some() {
        return Ok(options);
    }
    let listing = Listing::of(directory)?;
    let direct = OpenFile::existing().read_only().access(Access::Direct);
    let can = listing
        .segments
        .iter()
        .any(|&number| directory.open(&names::segment(number), &direct).is_ok());
    Ok(options.access(if can { Access::Direct } else { Access::Buffered }))
}

/// Whether a writer lives.
pub(crate) fn writer_lives(directory: &AnyDirectory) -> Result<bool> {
    Ok(matches!(holder(directory)?, Holder::Writer(_)))
}

/// Growing pauses between observations.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { next: Duration::from_millis(1) }
    }

    /// Sleeps for the next pause, `at_most` at the longest.
    pub(crate) fn sleep(&mut self, at_most: Duration) {
        sleep(self.next.min(at_most));
        self.next = (self.next * 2).min(Duration::from_millis(20));
    }
}

/// Shows whether a writer has come since: each begins with a group where the log ends, or with a
/// new segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untouched {
    segments: Vec<SegmentNumber>,
    end: u64,
    behind: Vec<u8>,
}

impl Untouched {
    fn note(directory: &AnyDirectory, head: &Arc<dyn File>, end: u64) -> Result<Self> {
        let segments = Listing::of(directory)?.segments;
        let mut window = Window::new(Arc::clone(head), GROUP_HEADER_BYTES);
        window.load(end, GROUP_HEADER_BYTES)?;
        let from = (end - window.at()) as usize;
        let behind = window.bytes().iter().skip(from).take(GROUP_HEADER_BYTES).copied().collect();
        Ok(Self { segments, end, behind })
    }

    pub(crate) fn still_holds(
        &self,
        directory: &AnyDirectory,
        head: &Arc<dyn File>,
    ) -> Result<bool> {
        Ok(Self::note(directory, head, self.end)? == *self)
    }
}

/// What earlier observations know of the log.
pub(crate) struct KnownBefore<'k> {
    pub(crate) links: &'k [Link],
    /// The end of a group in the last of them; everything before it was durable.
    pub(crate) settled: Tail,
}

impl KnownBefore<'_> {
    /// The headers of all but the last segment.
    fn older(&self) -> Older {
        let older = self.links.split_last().map_or(&[][..], |(_, older)| older);
        older.iter().map(|link| (link.segment.header.number, link.segment.header)).collect()
    }

    /// The last segment, if only a later one can take its place. One without a durable group can
    /// also vanish because the write or the sync of its header failed.
    fn lasting(&self) -> Option<SegmentNumber> {
        let last = self.links.last()?.segment.header.number;
        (self.settled.groups > 0).then_some(last)
    }
}

/// The result of an observation.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) links: Vec<Link>,
    /// The history of cuts in the head's header, which is durable.
    pub(crate) cuts: Cuts,
    pub(crate) first_live: Lsn,
    pub(crate) durable: Lsn,
    /// As in [`KnownBefore`], in the head.
    pub(crate) settled: Tail,
    pub(crate) head: Arc<dyn File>,
    /// The same file for reading records, if it may vanish.
    pub(crate) cached: Option<Arc<dyn File>>,
    /// Set if no writer lived.
    pub(crate) untouched: Option<Untouched>,
    pub(crate) recovery: Recovery,
}

/// The head as far as its groups are whole.
pub(crate) struct HeadWalk {
    pub(crate) tail: Tail,
    pub(crate) settled: Tail,
    stop: Stop,
    walk: Walk,
}

/// The groups of the head that are whole, as far as they were walked, and which of them a promise
/// covers: those are durable.
pub(crate) struct Promised<'s> {
    segment: &'s Segment,
    /// The end of the last durable group.
    pub(crate) settled: Tail,
    open: Vec<Tail>,
    /// Places of records that may not be durable.
    places: NewPlaces,
}

impl<'s> Promised<'s> {
    pub(crate) fn new(segment: &'s Segment, settled: Tail) -> Self {
        Self { segment, settled, open: Vec::new(), places: segment.new_places() }
    }

    pub(crate) fn begin(&mut self, group: &GroupStart) {
        let promised_end = group.header.promise.end;
        let count = self.open.partition_point(|tail| tail.end <= promised_end);
        let last = self.open.drain(..count).next_back();
        if let Some(tail) = last {
            self.settle(tail);
        }
    }

    /// All before the end of this group is durable.
    pub(crate) fn settle(&mut self, tail: Tail) {
        self.settled = tail;
        self.segment.note_end(tail.end, tail.next_lsn, tail.epoch);
        self.segment.note_places(self.places.take(|place| place.at < tail.end));
    }

    /// A frame in a group of this epoch.
    pub(crate) fn frame(&mut self, frame: &FrameAt, epoch: Epoch) {
        if frame.kind == Kind::Record {
            self.places.note(frame.at, frame.lsn, epoch, frame.payload_bytes);
        }
    }

    pub(crate) fn end(&mut self, tail: Tail) {
        self.open.push(tail);
    }
}

/// Walks the whole groups of the head, from `from` on if it is given.
pub(crate) fn walk_head(
    segment: &Segment,
    file: &Arc<dyn File>,
    from: Option<Tail>,
) -> Result<HeadWalk> {
    let decoder = segment.decoder(None, &**file)?;
    let decoder = match from {
        Some(tail) => decoder.from_tail(tail),
        None => decoder,
    };
    let bytes = if from.is_some() { NEWS_BYTES } else { WALK_READ_BYTES };
    let mut promised = Promised::new(segment, *decoder.tail());
    let window = Window::new(Arc::clone(file), bytes.min(segment.header.segment_bytes as usize));
    let mut walk = Walk::new(window, decoder);
    loop {
        match walk.step()? {
            Item::GroupStart(group) => promised.begin(&group),
            Item::GroupEnd => promised.end(*walk.decoder.tail()),
            Item::Frame(frame) => promised.frame(&frame, walk.decoder.mark().epoch),
            Item::Stop(stop) => {
                let settled = promised.settled;
                return Ok(HeadWalk { tail: stop.tail, settled, stop, walk });
            }
        }
    }
}

/// The first record that is left, after the groups of the head that were `walked`. A promise
/// settles a truncation. Of one that no promise covers yet, the writer's sync may fail, and then
/// the records are there again: so it counts once this reader has synced it. To leave it out would
/// not do, since files are gone as soon as it is durable. One that has come since the groups were
/// walked is left to the next look: what the walk says would end before it, and streams know from
/// their records alone that nothing lives before a truncation.
pub(crate) fn settled_first(
    directory: &AnyDirectory,
    options: &Options,
    segment: &Segment,
    walked: &HeadWalk,
    known: Lsn,
) -> Result<Lsn> {
    let settled = walked.settled.first_live.max(known);
    if walked.tail.first_live <= settled {
        return Ok(settled);
    }
    let name = names::segment(segment.number());
    let file = directory.open(&name, &OpenFile::existing().read_only())?;
    options.doubts.flushed(file.sync(SyncKind::Data))?;
    let on_medium = past_the_cache(directory, segment.number())?;
    let again = walk_head(segment, &on_medium, Some(walked.settled))?;
    Ok(again.tail.first_live.min(walked.tail.first_live).max(settled))
}

/// Observes the log. What is `known` is not read again.
///
/// # Errors
/// [`Error::NoLog`]; [`Error::Corrupt`]; errors of the file system.
pub(crate) fn observe(
    directory: &AnyDirectory,
    options: &Options,
    known: Option<&KnownBefore<'_>>,
) -> Result<Observed> {
    let mut pauses = Pauses::new();
    let mut older = known.map(KnownBefore::older).unwrap_or_default();
    // How often the same failure has come, and which.
    let (mut count, mut failure) = (0, None);
    let mut changed = 0;
    if known.is_none() {
        options.doubts.about_locks(directory)?;
    }
    loop {
        // What changes again and again has a writer, also where no lock shows it.
        let lives = writer_lives(directory)? || changed >= TRIES;
        let result = if lives {
            beside(directory, options, known, &mut older)
        } else {
            alone(directory, options)
        };
        changed += usize::from(!lives && matches!(result, Ok(None)));
        match result {
            Ok(Some(observed)) => {
                // A copy may have died, or be, between removing its mark and making that durable.
                // The mark was not in the listing, so this sync makes its removal durable. Once is
                // enough: no mark is ever made beside a log.
                if known.is_none() {
                    options.doubts.flushed(directory.sync())?;
                }
                return Ok(observed);
            }
            // A writer has come, or one that lives has gone on: the next try finds more.
            Ok(None) => count = 0,
            Err(error) => {
                let this = Some((lives, told_by(&error)));
                count = if this == failure { count + 1 } else { 1 };
                failure = this;
                let is_still = writer_lives(directory)? == lives;
                let is_final = match &error {
                    _ if lives => count >= TRIES,
                    // The same damage twice, each time without a writer.
                    Error::Corrupt(_) => count >= 2,
                    // A writer that came and went has given a file back, or has shrunk it.
                    Error::Io(io)
                        if [ErrorKind::NotFound, ErrorKind::UnexpectedEof].contains(&io.kind()) =>
                    {
                        count >= TRIES
                    }
                    _ => true,
                };
                if is_still && is_final {
                    return Err(error);
                }
                if !is_still {
                    count = 0;
                }
            }
        }
        pauses.sleep(Duration::MAX);
    }
}

/// Which failure it is. Of one that a writer can cause, the place counts too: a writer that goes on
/// moves it.
fn told_by(error: &Error) -> String {
    match error {
        Error::Io(io) if io.kind() != ErrorKind::NotFound => io.kind().to_string(),
        _ => error.to_string(),
    }
}

/// An observation while no writer lives; `None` if one has come.
fn alone(directory: &AnyDirectory, options: &Options) -> Result<Option<Observed>> {
    let listing = Listing::of(directory)?;
    let Some(found) = recover(directory, options, &listing)? else {
        let is_same =
            Listing::of(directory)?.segments == listing.segments && !writer_lives(directory)?;
        return if is_same { Err(no_log(directory)) } else { Ok(None) };
    };
    let recovery = report(&found);
    let segment = &found.links.last().ok_or(Error::UsedUp)?.segment;
    let head = segment.file(directory, &open_for_reading(options))?;
    // Covers a writer that came after recovery's sync and is gone again.
    options.doubts.flushed(head.sync(SyncKind::Data))?;
    let untouched = Untouched::note(directory, &head, found.tail.end)?;
    let now = walk_head(segment, &head, Some(found.tail))?;
    if now.tail.groups != found.tail.groups
        || untouched.segments != listing.segments
        || writer_lives(directory)?
    {
        return Ok(None);
    }
    Ok(Some(Observed {
        first_live: found.tail.first_live,
        durable: recovery.last,
        settled: found.tail,
        links: found.links,
        cuts: found.cuts,
        head,
        cached: None,
        untouched: Some(untouched),
        recovery,
    }))
}

/// An observation beside a writer; `None` if that has taken files back meanwhile.
fn beside(
    directory: &AnyDirectory,
    options: &Options,
    known: Option<&KnownBefore<'_>>,
    older: &mut Older,
) -> Result<Option<Observed>> {
    // A segment whose header turns out not to be durable is passed over: the search begins again
    // below it. `has_header` says whether any file was one of a log.
    let (mut has_header, mut below) = (false, None);
    loop {
        let Some(Newest { files, last }) = newest(directory, options, older, below)? else {
            return Ok(None);
        };
        let cuts = last.as_ref().map_or(Cuts::NONE, |last| last.cuts);
        let headers = Headers::of(directory, options, files, cuts);
        has_header |= headers.has_header();
        let Some((_, header)) = headers.head()? else {
            return Err(if has_header {
                headers.no_head("no file has the header of its own segment")
            } else {
                no_log(directory)
            });
        };
        let links = known.map_or(&[][..], |known| known.links);
        if let Some(last) =
            known.and_then(KnownBefore::lasting).filter(|last| *last > header.number)
        {
            return Err(
                headers.no_head(&format!("segment {last} was the last, and none follows it"))
            );
        }
        let segment = known_as(links, &header).unwrap_or_else(|| Arc::new(Segment::new(header)));
        let is_known_head = links.last().is_some_and(|link| link.segment.header == header);
        let from = known.filter(|_| is_known_head).map(|known| known.settled);
        let last = last.as_ref().filter(|last| last.number == header.number);
        if let Some(last) = last {
            segment.adopt(&last.file);
            segment.adopt_cached(&last.cached);
        }
        let head = segment.file(directory, &open_for_reading(options))?;
        let mut walked = walk_head(&segment, &head, from)?;
        if header.roll != Roll::Full && walked.tail.groups == 0 {
            match becomes_durable(directory, options, &header)? {
                Some(true) => {}
                Some(false) => {
                    below = Some(header.number);
                    continue;
                }
                None => return Ok(None),
            }
        }
        // If the writer cuts just now, the next try finds the segment that the mark names.
        headers.mind_mark(&header)?;
        if walked.tail.next_lsn <= options.expect_durable {
            let known = options.expect_durable;
            return Err(damage(&mut walked.walk, directory, &walked.stop, known, None)?);
        }
        let first_live = settled_first(directory, options, &segment, &walked, Lsn::ZERO)?;
        let mut chain = resolve(&headers, &header, first_live, segment)?;
        for link in &mut chain {
            if let Some(old) = known_as(links, &link.segment.header) {
                link.segment = old;
            }
        }
        let recovery = report_beside(&walked.tail, first_live, &chain);
        return Ok(Some(Observed {
            links: chain,
            cuts,
            first_live,
            durable: walked.tail.promise,
            settled: walked.settled,
            head,
            cached: last.map(|last| Arc::clone(&last.cached)),
            untouched: None,
            recovery,
        }));
    }
}

/// The known segment with this header, with what is known of its groups.
fn known_as(links: &[Link], header: &SegmentHeader) -> Option<Arc<Segment>> {
    let place = links.binary_search_by_key(&header.number, |link| link.segment.number()).ok()?;
    let segment = &links[place].segment;
    (segment.header == *header).then(|| Arc::clone(segment))
}

/// Syncs a header; whether it is on the medium then, `None` if its file has vanished. The sync of
/// its writer may have failed, and pages be marked clean nevertheless. Of a header that was written
/// in part, one copy may be there: its writer takes the file back.
fn becomes_durable(
    directory: &AnyDirectory,
    options: &Options,
    header: &SegmentHeader,
) -> Result<Option<bool>> {
    let read = || -> Result<HeaderBlock> {
        let file =
            directory.open(&names::segment(header.number), &OpenFile::existing().read_only())?;
        options.doubts.flushed(file.sync(SyncKind::Data))?;
        let mut window = Window::new(past_the_cache(directory, header.number)?, HEADER_BYTES);
        window.load(0, HEADER_BYTES)?;
        Ok(HeaderBlock::classify(window.bytes()))
    };
    match read() {
        Ok(HeaderBlock::Valid { header: found, copies: Copies::Both, .. }) => {
            Ok(Some(found == *header))
        }
        Ok(_) => Ok(Some(false)),
        Err(Error::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn report_beside(tail: &Tail, first: Lsn, chain: &[Link]) -> Recovery {
    Recovery {
        created: false,
        clean: false,
        verdict: Verdict::End,
        row: NO_ROW,
        end: None,
        first,
        last: tail.promise,
        epoch: Some(tail.epoch),
        segments: chain.len(),
        bytes_read: tail.end,
        leftovers: 0,
        waits_for_room: false,
        lost_to: lost_to(chain, first),
        doubts: Vec::new(),
    }
}

fn no_log(directory: &AnyDirectory) -> Error {
    Error::NoLog { path: directory.path().to_path_buf(), missing: None }
}
