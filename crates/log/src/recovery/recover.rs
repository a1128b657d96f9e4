//! Opening: from the files of a directory to a log with an end, or to the reason why it has none.
//!
//! *Owns*: the order of questions that docs/format.md calls recovery, with reads in between. *May not touch*: the files:
//! it reads. The one thing that it asks of the disk is a sync of the last segment, before anything of it is shown: what
//! a killed writer left in memory, or in the device's cache, is not yet on the medium, and what was shown once must not
//! be gone in the next opening.
//!
//! Everything is read past the page cache: pages may be marked clean after a failed sync and differ from the medium.

use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_format::{
    Chain, Epoch, Evidence, FileHeader, HeaderBlock, HeaderFacts, HeaderState, Identity, LogId, Lsn, Place,
    Position, Reason, ScanAhead, SegmentHeader, SegmentNumber, Stop, Tail, Verdict, Version, common_log,
    directory_fault, explain, head_of, judge, judge_header,
};
use inkstone_io::{Access, Directory, File, OpenFile, SyncKind};

use crate::error::{Corruption, Error, Result};
use crate::mistake::Mistake;
use crate::names;
use crate::options::Options;
use crate::report::Recovery;
use crate::segment::listing::Listing;
use crate::segment::{Link, Segment};
use crate::walk::ahead::{Ahead, FirstBlocks, Stretch};
use crate::walk::window::{Walk, Window};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads of recovery are of this size.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// Segments above this size are read with several reads in flight.
const AHEAD_BYTES: u64 = 1 << 20;

/// First blocks of more files than this are read with several reads in flight.
const FEW: usize = 8;

/// A log, and where it ends.
#[derive(Debug)]
pub(crate) struct Found<F> {
    pub(crate) links: Vec<Link<F>>,
    pub(crate) tail: Tail,
    /// The highest epoch seen anywhere.
    pub(crate) epoch: Epoch,
    pub(crate) verdict: Verdict,
    pub(crate) row: &'static str,
    pub(crate) bytes_read: u64,
}

/// What recovery found, in the words of the public report.
pub(crate) fn report<F>(found: &Found<F>) -> Recovery {
    let tail = &found.tail;
    Recovery {
        created: false,
        clean: tail.closed && found.verdict == Verdict::End,
        verdict: found.verdict,
        row: found.row,
        end: found.links.last().map(|link| Position { segment: link.segment.header.number, byte: tail.end }),
        first: tail.first_live,
        last: tail.next_lsn.before().unwrap_or(Lsn::ZERO),
        epoch: Some(found.epoch),
        segments: found.links.len(),
        bytes_read: found.bytes_read,
        leftovers: 0,
        waits_for_room: false,
    }
}

/// The files of a directory with what their first blocks say.
pub(crate) struct Headers<'d, D> {
    directory: &'d D,
    options: &'d Options,
    pub(crate) files: Vec<FileHeader>,
}

impl<'d, D: Directory> Headers<'d, D> {
    pub(crate) fn read(directory: &'d D, options: &'d Options, numbers: &[SegmentNumber]) -> Result<Self> {
        let mut blocks = if numbers.len() > FEW { Some(FirstBlocks::new(directory)?) } else { None };
        let mut files = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let file = Arc::new(past_the_cache(directory, options, number)?);
            match &mut blocks {
                Some(blocks) => blocks.read(number, file, &mut files)?,
                None => {
                    let mut window = Window::new(file, HEADER_BYTES);
                    window.load(0, HEADER_BYTES)?;
                    files.push(FileHeader { number, block: HeaderBlock::classify(window.bytes()) });
                }
            }
        }
        if let Some(mut blocks) = blocks {
            while blocks.take(&mut files)? {}
            files.sort_by_key(|file| file.number);
        }
        Ok(Self { directory, options, files })
    }

    /// First blocks that somebody else has read.
    pub(crate) fn of(directory: &'d D, options: &'d Options, files: Vec<FileHeader>) -> Self {
        Self { directory, options, files }
    }

    pub(crate) fn path(&self, number: SegmentNumber) -> std::path::PathBuf {
        self.directory.path().join(names::segment(number))
    }

    pub(crate) fn corrupt(&self, number: SegmentNumber, reason: Reason, row: &'static str) -> Error {
        let corruption = Corruption {
            path: self.path(number),
            segment: Some(number),
            offset: 0,
            lsn: None,
            reason,
            row,
            details: vec![],
        };
        corruption.into()
    }

    /// The file with this number is of a version that this code does not know.
    fn unknown_version(&self, number: SegmentNumber) -> Error {
        let file = self.files.iter().find(|file| file.number == number);
        let (version, flags) = match file.map(|file| &file.block) {
            Some(HeaderBlock::Unknown { version, flags }) => (*version, *flags),
            _ => (0, 0),
        };
        Error::UnknownVersion { path: self.path(number), version, flags }
    }

    /// The log's id and head; `None` where there is no log.
    pub(crate) fn head(&self) -> Result<Option<(LogId, SegmentHeader)>> {
        let log = common_log(&self.files);
        if let Some((number, state)) = directory_fault(&self.files, log) {
            let row = judge_header(&HeaderFacts { state, named: false, groups: false, dirty: false });
            if let Verdict::Corrupt(reason) = row.verdict {
                return Err(self.corrupt(number, reason, row.name));
            }
            return Err(self.unknown_version(number));
        }
        let choose = if self.options.makes(Mistake::HeadByLsn) { head_by_lsn } else { head_of };
        Ok(log.and_then(|log| choose(&self.files, log)).map(|head| (head.log, head)))
    }

    /// Judges the files above the head: `Some` row if one of them was torn while it was made.
    pub(crate) fn judge_spare(
        &self,
        log: Option<LogId>,
        head: Option<&SegmentHeader>,
    ) -> Result<Option<&'static str>> {
        let no_header = self.files.iter().all(|file| file.block.header().is_none());
        let mut spare: Vec<&FileHeader> =
            self.files.iter().filter(|file| head.is_none_or(|head| file.number > head.number)).collect();
        spare.sort_by_key(|file| file.number);
        let mut torn = None;
        for file in spare {
            let Some(state) = file.state(log) else { continue };
            let (groups, dirty) = match state {
                HeaderState::Short => (false, false),
                _ => self.look_for_groups(file, log, no_header)?,
            };
            let row = judge_header(&HeaderFacts { state, named: false, groups, dirty });
            match row.verdict {
                Verdict::Corrupt(reason) => return Err(self.corrupt(file.number, reason, row.name)),
                Verdict::Torn => torn = Some(row.name),
                Verdict::Unknown => return Err(self.unknown_version(file.number)),
                Verdict::End => {}
            }
        }
        Ok(torn)
    }

    /// Whether a sound group of the file's own number lies in it, and, where that matters, whether anything does.
    fn look_for_groups(&self, file: &FileHeader, log: Option<LogId>, matters: bool) -> Result<(bool, bool)> {
        let traces = match &file.block {
            HeaderBlock::Damaged(traces) => traces.log,
            _ => None,
        };
        let handle = Arc::new(past_the_cache(self.directory, self.options, file.number)?);
        let len = handle.len_bytes()?;
        // Its own header would tell the version.
        let ids = log.or(traces).map(|log| Version::ALL.iter().map(move |&version| (version, log)));
        let scan = |(version, log)| {
            let id = Identity::new(version, log, file.number);
            ScanAhead::new(&id, Epoch::FIRST, HEADER_BYTES as u64, len)
        };
        let mut scans: Vec<_> = ids.into_iter().flatten().map(scan).collect();
        let mut window = window_for_all(self.directory, file.number, handle, len)?;
        let mut dirty = false;
        let mut at = HEADER_BYTES as u64;
        while at < len {
            // Two blocks, so that it goes on where the first is all that was left of the last window.
            window.load(at, 2 * BLOCK_BYTES)?;
            if window.bytes().is_empty() {
                break;
            }
            dirty = dirty || (matters && window.bytes().iter().any(|&byte| byte != 0));
            scans.iter_mut().for_each(|scan| scan.feed(window.bytes(), window.at()));
            if scans.iter().any(|scan| scan.evidence().later) {
                break;
            }
            // The next window begins a block earlier, so that no header lies across two windows.
            let end = window.at() + window.bytes().len() as u64;
            at = if end >= len { len } else { end - BLOCK_BYTES as u64 };
        }
        Ok((scans.iter().any(|scan| scan.evidence().later), dirty))
    }
}

/// For a mistake: the segment that seems to have got furthest.
fn head_by_lsn(files: &[FileHeader], log: LogId) -> Option<SegmentHeader> {
    files.iter().filter_map(|file| file.own(log)).max_by_key(|header| header.first_lsn).copied()
}

/// A window for who reads all of a file of `len` bytes.
fn window_for_all<D: Directory>(
    directory: &D,
    number: SegmentNumber,
    file: Arc<D::File>,
    len: u64,
) -> Result<Window<D::File>> {
    if len <= AHEAD_BYTES {
        return Ok(Window::new(file, len.max(1) as usize));
    }
    let stretch = Stretch { number, file: Arc::clone(&file), end: Some(len), prover: None };
    Ok(Window::read_by(file, Box::new(Ahead::all(directory, stretch)?)))
}

/// A file to be read as the medium has it.
pub(crate) fn past_the_cache<D: Directory>(
    directory: &D,
    options: &Options,
    number: SegmentNumber,
) -> Result<D::File> {
    let name = names::segment(number);
    if options.makes(Mistake::ReadsPageCache) {
        return Ok(directory.open(&name, &OpenFile::existing().read_only())?);
    }
    match directory.open(&name, &OpenFile::existing().read_only().access(Access::Direct)) {
        Ok(file) => Ok(file),
        // No O_DIRECT here: drop the pages, which works unless somebody has them locked.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput || error.is_unsupported() => {
            let file = directory.open(&name, &OpenFile::existing().read_only())?;
            file.forget_cached()?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

/// Finds the log in `directory`; `None` where there is none. The last segment is durable when this returns.
///
/// # Errors
/// [`Error::Corrupt`], or what the file system answers.
pub(crate) fn recover<D: Directory>(
    directory: &D,
    options: &Options,
    listing: &Listing,
) -> Result<Option<Found<D::File>>> {
    let headers = Headers::read(directory, options, &listing.segments)?;
    let Some((log, head)) = headers.head()? else {
        headers.judge_spare(common_log(&headers.files), None)?;
        // A log has a head from its first header on, so files that it has left mean that the head is gone.
        if options.expect_durable > Lsn::ZERO
            || headers.files.iter().any(|file| file.block.header().is_some())
        {
            return Err(Error::from(Corruption {
                path: directory.path().to_path_buf(),
                segment: None,
                offset: 0,
                lsn: Some(options.expect_durable).filter(|lsn| *lsn > Lsn::ZERO),
                reason: Reason::MissingSegment,
                row: "D2",
                details: vec!["the last segment of the log is gone".into()],
            }));
        }
        return Ok(None);
    };
    let spare = match options.makes(Mistake::SpareNotJudged) {
        true => None,
        false => headers.judge_spare(Some(log), Some(&head))?,
    };
    if !options.makes(Mistake::ShowsUnsynced) {
        let file = directory.open(&names::segment(head.number), &OpenFile::existing().read_only())?;
        file.sync(SyncKind::Data)?;
        // Later reads may be buffered.
        if !options.makes(Mistake::ReadsPageCache) {
            file.forget_cached()?;
        }
    }
    let mut found = read_head(directory, options, &headers, &head)?;
    if let (Some(row), Verdict::End) = (spare, found.verdict) {
        (found.verdict, found.row) = (Verdict::Torn, row);
    }
    Ok(Some(found))
}

fn read_head<D: Directory>(
    directory: &D,
    options: &Options,
    headers: &Headers<'_, D>,
    head: &SegmentHeader,
) -> Result<Found<D::File>> {
    let segment: Arc<Segment<D::File>> = Arc::new(Segment::new(*head));
    let file = Arc::new(past_the_cache(directory, options, head.number)?);
    let len = file.len_bytes()?;
    let decoder = segment.decoder(None, &file, options)?;
    let mut walk = Walk::new(window_for_all(directory, head.number, file, len)?, decoder);
    let mut stop = walk.run_to_stop()?;
    if options.makes(Mistake::HalfGroups) && stop.place == Place::Inside {
        (stop.tail.end, stop.tail.next_lsn) = (stop.at, stop.lsn_expected);
    }
    let to = head.segment_bytes.min(len);
    let to = if options.makes(Mistake::LooksOneBlockAhead) { to.min(stop.tail.end + BLOCK) } else { to };
    let mut evidence = look_ahead(&mut walk, &stop, to)?;
    if options.makes(Mistake::PromisedBytesIgnored) {
        evidence.end = 0;
    }
    let known = if options.makes(Mistake::ExpectIgnored) { Lsn::ZERO } else { options.expect_durable };
    let row = judge(&stop.facts(&evidence.with_durable(known)));
    let mut verdict = row.verdict;
    if let Verdict::Corrupt(reason) = row.verdict {
        if !options.makes(Mistake::CutsBelowPromise) {
            return Err(corruption(&mut walk, directory, &stop, &evidence, reason, row.name)?);
        }
        verdict = Verdict::Torn;
    }
    let links = resolve(headers, head, stop.tail.first_live, segment)?;
    let seen = headers.files.iter().filter_map(|file| file.block.header()).map(|header| header.epoch);
    let epoch = seen.chain([stop.tail.epoch]).chain(evidence.epoch).max().unwrap_or(head.epoch);
    let bytes_read = stop.tail.end;
    Ok(Found { links, tail: stop.tail, epoch, verdict, row: row.name, bytes_read })
}

/// The segments of the log in order; `head` stands for the last.
pub(crate) fn resolve<D: Directory>(
    headers: &Headers<'_, D>,
    head_header: &SegmentHeader,
    first_live: Lsn,
    head: Arc<Segment<D::File>>,
) -> Result<Vec<Link<D::File>>> {
    let chain = Chain::resolve(&headers.files, head_header, first_live).map_err(|fault| {
        Error::from(Corruption {
            path: headers.path(fault.segment),
            segment: Some(fault.segment),
            offset: 0,
            lsn: None,
            reason: fault.reason,
            row: "D1",
            details: vec![format!("segment {} names it", fault.named_by)],
        })
    })?;
    let link = |link: &inkstone_format::ChainLink| Link {
        segment: if link.header.number == head_header.number {
            Arc::clone(&head)
        } else {
            Arc::new(Segment::new(link.header))
        },
        end: link.end().filter(|_| !headers.options.makes(Mistake::NamedEndIgnored)),
    };
    Ok(chain.links.iter().map(link).collect())
}

/// Looks behind a stop for groups that promise what it denies.
pub(crate) fn look_ahead<F: File>(walk: &mut Walk<F>, stop: &Stop, to: u64) -> Result<Evidence> {
    let mut scan = ScanAhead::behind(walk.decoder.identity(), stop, to);
    // What is in memory already is not read twice.
    scan.feed(walk.window.bytes(), walk.window.at());
    while let Some(at) = scan.wants() {
        walk.window.load(at, BLOCK_BYTES)?;
        scan.feed(walk.window.bytes(), walk.window.at());
        if scan.wants() == Some(at) {
            // The file is shorter than it was: nothing more can be found.
            break;
        }
    }
    Ok(scan.evidence())
}

/// The damage in words.
pub(crate) fn corruption<D: Directory>(
    walk: &mut Walk<D::File>,
    directory: &D,
    stop: &Stop,
    evidence: &Evidence,
    reason: Reason,
    row: &'static str,
) -> Result<Error> {
    let id = *walk.decoder.identity();
    walk.window.load(stop.at, BLOCK_BYTES)?;
    let mut details = explain(&id, stop, walk.window.bytes(), walk.window.at()).lines;
    if evidence.covers(stop.tail.end, stop.tail.next_lsn) {
        details.push(format!(
            "it was promised that everything up to LSN {} and byte {} is durable",
            evidence.lsn, evidence.end
        ));
    }
    Ok(Error::from(Corruption {
        path: directory.path().join(names::segment(id.segment())),
        segment: Some(id.segment()),
        offset: stop.at,
        lsn: Some(stop.lsn_expected),
        reason,
        row,
        details,
    }))
}

/// The error of a segment that cannot be read as far as it is known to be durable.
pub(crate) fn damage<D: Directory>(
    walk: &mut Walk<D::File>,
    directory: &D,
    stop: &Stop,
    durable: Lsn,
    end: Option<u64>,
) -> Result<Error> {
    let evidence = Evidence { lsn: durable, end: end.unwrap_or(0), ..Evidence::default() };
    let row = judge(&stop.facts(&evidence));
    let reason = match row.verdict {
        Verdict::Corrupt(reason) => reason,
        Verdict::End | Verdict::Torn | Verdict::Unknown => Reason::Link,
    };
    corruption(walk, directory, stop, &evidence, reason, row.name)
}
