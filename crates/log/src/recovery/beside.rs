//! Observes a log that this process has not opened for writing.
//!
//! *Owns*: what a reader may believe of files that another process may be writing: it asks whether a writer lives, and reads
//! accordingly. *May not touch*: the files: it reads them and syncs them; locks: it only asks who holds one.
//!
//! **Without a writer** an observation is recovery (`recover.rs`): sync, read past the cache, verdict. It asks for the lock's
//! holder before and after. A writer may come *and go* in between, unnoticed by both questions, and leave bytes that recovery
//! read although they were never synced. So the observation syncs once more what it has read, and then reads the end of the log
//! again, where every opening writes first, or begins a segment. If anything has changed, the observation starts over.
//!
//! **Beside a writer** there is no verdict: a group after the last whole one may be in flight. What is *promised* is durable,
//! whatever happened to its writer: a promise was true when it was built, and only a cut revokes it, whose header lies in a
//! segment with a higher number. So no second question is needed. If the observation fails, the writer may have changed the files
//! meanwhile; the failure is believed after [`TRIES`] tries.
//!
//! A segment that a cut has begun counts once it has a whole group: its header was durable before that. Until then a crash may undo
//! the cut.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::limits::{GROUP_HEADER_BYTES, HEADER_BYTES};
use inkstone_format::{Copies, FileHeader, HeaderBlock, Lsn, Roll, SegmentNumber, Stop, Tail, Verdict};
use inkstone_io::{Access, Directory, File, OpenFile, SyncKind};

use crate::error::{Corruption, Error, Result};
use crate::names;
use crate::options::Options;
use crate::recovery::headers::Headers;
use crate::recovery::recover::{damage, recover, report, resolve};
use crate::report::Recovery;
use crate::segment::listing::Listing;
use crate::segment::{Link, Segment};
use crate::sync::sleep;
use crate::walk::window::{Item, Walk, Window};

/// How often an observation beside a writer must fail before the failure is believed.
pub(crate) const TRIES: usize = 6;
/// The size of a read: of a whole head (most of a new one is zeros), and of what was written after its known part (most often
/// nothing).
const READ_BYTES: usize = 128 << 10;
const NEWS_BYTES: usize = 16 << 10;
/// Stands in for a row of the verdict's table, in the report of an observation beside a writer.
const NO_ROW: &str = "beside a writer";

/// How a reader opens a segment's file.
pub(crate) fn open_for_reading(options: &Options) -> OpenFile {
    OpenFile::existing().read_only().access(options.access_chosen())
}

/// Chooses the access where the options leave it open: past the page cache if that works, as a writer by rule does. The rule itself
/// (`strategy.rs`) finds out by making a file, which a reader may not do.
pub(crate) fn settle_access<D: Directory>(directory: &D, options: Options) -> Result<Options> {
    if options.access.is_some() {
        return Ok(options);
    }
    let listing = Listing::of(directory)?;
    let direct = OpenFile::existing().read_only().access(Access::Direct);
    let can = listing.segments.iter().any(|&number| directory.open(&names::segment(number), &direct).is_ok());
    Ok(options.access(if can { Access::Direct } else { Access::Buffered }))
}

/// Whether a writer lives.
pub(crate) fn writer_lives<D: Directory>(directory: &D) -> Result<bool> {
    Ok(directory.locked_by(names::LOCK)?.is_some())
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

/// Shows whether a writer has come since: each begins with a group where the log ends, or with a new segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untouched {
    segments: Vec<SegmentNumber>,
    end: u64,
    behind: Vec<u8>,
}

impl Untouched {
    fn note<D: Directory>(directory: &D, head: &Arc<D::File>, end: u64) -> Result<Self> {
        let segments = Listing::of(directory)?.segments;
        let mut window = Window::new(Arc::clone(head), GROUP_HEADER_BYTES);
        window.load(end, GROUP_HEADER_BYTES)?;
        let from = (end - window.at()) as usize;
        let behind = window.bytes().iter().skip(from).take(GROUP_HEADER_BYTES).copied().collect();
        Ok(Self { segments, end, behind })
    }

    pub(crate) fn still_holds<D: Directory>(&self, directory: &D, head: &Arc<D::File>) -> Result<bool> {
        Ok(Self::note(directory, head, self.end)? == *self)
    }
}

/// What earlier observations know of the log.
pub(crate) struct Known<'k, F> {
    pub(crate) links: &'k [Link<F>],
    /// The end of a group in the last of them; everything before it was durable.
    pub(crate) settled: Tail,
}

/// The result of an observation.
#[derive(Debug)]
pub(crate) struct Observed<F> {
    pub(crate) links: Vec<Link<F>>,
    pub(crate) first_live: Lsn,
    pub(crate) durable: Lsn,
    /// As in [`Known`], in the head.
    pub(crate) settled: Tail,
    pub(crate) head: Arc<F>,
    /// Set if no writer lived.
    pub(crate) untouched: Option<Untouched>,
    pub(crate) recovery: Recovery,
}

/// The head as far as its groups are whole.
pub(crate) struct Walked<F> {
    pub(crate) tail: Tail,
    pub(crate) settled: Tail,
    stop: Stop,
    walk: Walk<F>,
}

/// Walks the whole groups of the head, from `from` on if it is given.
pub(crate) fn walk_head<F: File>(
    segment: &Segment<F>,
    file: &Arc<F>,
    from: Option<Tail>,
) -> Result<Walked<F>> {
    let decoder = segment.decoder(None, file)?;
    let decoder = match from {
        Some(tail) => decoder.from_tail(tail),
        None => decoder,
    };
    let bytes = if from.is_some() { NEWS_BYTES } else { READ_BYTES };
    let mut settled = *decoder.tail();
    let window = Window::new(Arc::clone(file), bytes.min(segment.header.segment_bytes as usize));
    let mut walk = Walk::new(window, decoder);
    let mut open: Vec<Tail> = Vec::new();
    loop {
        match walk.step()? {
            Item::GroupStart(group) => {
                let promised_end = group.header.promise.end;
                let count = open.partition_point(|tail| tail.end <= promised_end);
                if let Some(tail) = open.drain(..count).next_back() {
                    settled = tail;
                    segment.note(&tail);
                }
            }
            Item::GroupEnd => open.push(*walk.decoder.tail()),
            Item::Frame(_) => {}
            Item::Stop(stop) => return Ok(Walked { tail: stop.tail, settled, stop, walk }),
        }
    }
}

/// Observes the log. What is `known` is not read again.
///
/// # Errors
/// [`Error::NoLog`]; [`Error::Corrupt`]; errors of the file system.
pub(crate) fn observe<D: Directory>(
    directory: &D,
    options: &Options,
    known: Option<&Known<'_, D::File>>,
) -> Result<Observed<D::File>> {
    let mut pauses = Pauses::new();
    let mut failed = 0;
    let mut damage: Option<Corruption> = None;
    loop {
        let lives = writer_lives(directory)?;
        let result =
            if lives { beside(directory, options, known).map(Some) } else { alone(directory, options) };
        match result {
            Ok(Some(observed)) => {
                // A copy may have died, or be, between removing its mark and making that durable. The mark was not in the listing,
                // so this sync makes its removal durable. Once is enough: no mark is ever made beside a log.
                if known.is_none() {
                    directory.sync()?;
                }
                return Ok(observed);
            }
            // A writer has come, so the next try finds more.
            Ok(None) => {}
            Err(error) => {
                failed += 1;
                let is_still = writer_lives(directory)? == lives;
                let is_final = match &error {
                    _ if lives => failed >= TRIES,
                    // The same damage twice, each time without a writer.
                    Error::Corrupt(found) => damage.as_ref() == Some(&**found),
                    Error::Io(io) if io.kind() == ErrorKind::NotFound => failed >= TRIES,
                    _ => true,
                };
                if is_still && is_final {
                    return Err(error);
                }
                damage = error.corruption().filter(|_| is_still && !lives).cloned();
            }
        }
        pauses.sleep(Duration::MAX);
    }
}

/// An observation while no writer lives; `None` if one has come.
fn alone<D: Directory>(directory: &D, options: &Options) -> Result<Option<Observed<D::File>>> {
    let listing = Listing::of(directory)?;
    let Some(found) = recover(directory, options, &listing)? else {
        let is_same = Listing::of(directory)?.segments == listing.segments && !writer_lives(directory)?;
        return if is_same { Err(no_log(directory)) } else { Ok(None) };
    };
    let recovery = report(&found);
    let segment = &found.links.last().ok_or(Error::UsedUp)?.segment;
    let head = segment.file(directory, &open_for_reading(options))?;
    // Covers a writer that came after recovery's sync and is gone again.
    head.sync(SyncKind::Data)?;
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
        head,
        untouched: Some(untouched),
        recovery,
    }))
}

/// An observation beside a writer.
fn beside<D: Directory>(
    directory: &D,
    options: &Options,
    known: Option<&Known<'_, D::File>>,
) -> Result<Observed<D::File>> {
    let files = first_blocks(directory, options, known)?;
    let mut headers = Headers::of(directory, options, files);
    let has_header = headers.has_header();
    loop {
        let Some((log, header)) = headers.head()? else {
            return Err(if has_header {
                headers.no_head("no file has the header of its own segment")
            } else {
                no_log(directory)
            });
        };
        let links = known.map_or(&[][..], |known| known.links);
        let known_segment = links.iter().find(|link| link.segment.header == header);
        let segment =
            known_segment.map_or_else(|| Arc::new(Segment::new(header)), |link| Arc::clone(&link.segment));
        let is_known_head = links.last().is_some_and(|link| link.segment.header == header);
        let from = known.filter(|_| is_known_head).map(|known| known.settled);
        let head = segment.file(directory, &open_for_reading(options))?;
        let mut walked = walk_head(&segment, &head, from)?;
        let is_only = headers.files.iter().filter(|file| file.own(log).is_some()).count() == 1;
        if header.roll != Roll::Full && walked.tail.groups == 0 && !is_only {
            headers.files.retain(|file| file.number != header.number);
            continue;
        }
        if walked.tail.next_lsn <= options.expect_durable {
            let known = options.expect_durable;
            return Err(damage(&mut walked.walk, directory, &walked.stop, known, None)?);
        }
        let mut chain = resolve(&headers, &header, walked.tail.first_live, segment)?;
        for link in &mut chain {
            let header = link.segment.header;
            if let Some(old) = links.iter().find(|old| old.segment.header == header) {
                link.segment = Arc::clone(&old.segment);
            }
        }
        let recovery = report_beside(&walked.tail, chain.len());
        return Ok(Observed {
            links: chain,
            first_live: walked.tail.first_live,
            durable: walked.tail.promise,
            settled: walked.settled,
            head,
            untouched: None,
            recovery,
        });
    }
}

/// The first blocks of all segments. Known segments with a successor are not read: a number is not used again, so a file with
/// that name is the segment. (The number of a head may be used again if its header never became durable.) Files that vanish are
/// left out.
fn first_blocks<D: Directory>(
    directory: &D,
    options: &Options,
    known: Option<&Known<'_, D::File>>,
) -> Result<Vec<FileHeader>> {
    let links = known.and_then(|known| known.links.split_last()).map_or(&[][..], |(_, older)| older);
    let mut files = Vec::new();
    for number in Listing::of(directory)?.segments {
        if let Some(link) = links.iter().find(|link| link.segment.number() == number) {
            let header = link.segment.header;
            let block = HeaderBlock::Valid { header, copies: Copies::Both, stray: false };
            files.push(FileHeader { number, block });
            continue;
        }
        match directory.open(&names::segment(number), &open_for_reading(options)) {
            Ok(file) => {
                let mut window = Window::new(Arc::new(file), HEADER_BYTES);
                window.load(0, HEADER_BYTES)?;
                files.push(FileHeader { number, block: HeaderBlock::classify(window.bytes()) });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(files)
}

fn report_beside(tail: &Tail, segments: usize) -> Recovery {
    Recovery {
        created: false,
        clean: false,
        verdict: Verdict::End,
        row: NO_ROW,
        end: None,
        first: tail.first_live,
        last: tail.promise,
        epoch: Some(tail.epoch),
        segments,
        bytes_read: tail.end,
        leftovers: 0,
        waits_for_room: false,
    }
}

fn no_log<D: Directory>(directory: &D) -> Error {
    Error::NoLog { path: directory.path().to_path_buf() }
}
