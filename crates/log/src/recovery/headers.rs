//! The headers in the first blocks of a log's files.
//!
//! *Owns*: the questions to the headers, and their order, for an opening, which ends at the first
//! fault, and a survey, which notes it and continues; how a file is opened to be read past the page
//! cache. A reader beside a writer asks in an order of its own (`beside.rs`). *May not touch*: the groups of
//! the head (`recover.rs`).
//!
//! Everything is read past the page cache: pages may be marked clean after a failed sync and differ
//! from the medium.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES, MARK_BLOCK_BYTES};
use inkstone_format::{
    CutMark, Cuts, Epoch, FileHeader, HeaderBlock, HeaderFacts, HeaderState, Identity, LogId,
    LogKind, Lsn, Reason, ScanAhead, SegmentHeader, SegmentNumber, Verdict, all_zero, common_log,
    directory_fault, head_of, judge_header,
};
use inkstone_io::{Access, AnyDirectory, File, OpenFile};

use crate::directory::find_directory;
use crate::error::{Corruption, Cure, Error, Result};
use crate::names;
use crate::options::Options;
use crate::segment::listing::Listing;
use crate::walk::ahead::{Ahead, FirstBlocks, Stretch};
use crate::walk::window::Window;

/// Segments above this size are read with several reads in flight.
const READ_AHEAD_ABOVE_BYTES: u64 = 1 << 20;

/// First blocks of more files than this are read with several reads in flight.
const FEW: usize = 8;

/// The files of a directory with the contents of their first blocks.
pub(crate) struct Headers<'d> {
    directory: &'d AnyDirectory,
    pub(crate) options: &'d Options,
    /// The lowest number is first.
    pub(crate) files: Vec<FileHeader>,
    /// The log's history of cuts, by the newest of these files that was begun.
    cuts: Cuts,
}

/// What the headers say about the log.
pub(crate) struct Judged {
    pub(crate) log: LogId,
    pub(crate) head: SegmentHeader,
    /// The history in the head's header.
    pub(crate) cuts: Cuts,
    /// The row of the verdict's table, if the header of a file above the head is torn.
    pub(crate) torn: Option<&'static str>,
}

impl<'d> Headers<'d> {
    pub(crate) fn read(
        directory: &'d AnyDirectory,
        options: &'d Options,
        numbers: &[SegmentNumber],
    ) -> Result<Self> {
        let mut blocks = if numbers.len() > FEW {
            Some(FirstBlocks::new(directory, numbers.len())?)
        } else {
            None
        };
        let mut files = Vec::with_capacity(numbers.len());
        let mut newest = None;
        let mut found = |number, bytes: &[u8]| {
            let (block, cuts) = HeaderBlock::with_cuts(bytes);
            let file = FileHeader { number, block };
            if file.is_begun() && newest.is_none_or(|(newest, _)| newest < number) {
                newest = cuts.map(|cuts| (number, cuts));
            }
            files.push(file);
        };
        for &number in numbers {
            let file = past_the_cache(directory, number)?;
            match &mut blocks {
                Some(blocks) => blocks.read(number, file, &mut found)?,
                None => {
                    let mut window = Window::new(file, HEADER_BYTES);
                    window.load(0, HEADER_BYTES)?;
                    found(number, window.bytes());
                }
            }
        }
        if let Some(mut blocks) = blocks {
            while blocks.take(&mut found)? {}
        }
        Ok(Self::of(directory, options, files, newest.map_or(Cuts::NONE, |(_, cuts)| cuts)))
    }

    /// First blocks that the caller has read, and the history in the newest of them that was begun.
    pub(crate) fn of(
        directory: &'d AnyDirectory,
        options: &'d Options,
        mut files: Vec<FileHeader>,
        cuts: Cuts,
    ) -> Self {
        files.sort_by_key(|file| file.number);
        Self { directory, options, files, cuts }
    }

    /// The file with this number.
    pub(crate) fn file(&self, number: SegmentNumber) -> Option<&FileHeader> {
        let place = self.files.binary_search_by_key(&number, |file| file.number);
        place.ok().map(|place| &self.files[place])
    }

    pub(crate) fn path(&self, number: SegmentNumber) -> std::path::PathBuf {
        self.directory.path().join(names::segment(number))
    }

    pub(crate) fn corrupt(
        &self,
        number: SegmentNumber,
        reason: Reason,
        row: &'static str,
    ) -> Corruption {
        Corruption::of(self.path(number), number, reason, row)
    }

    /// The error of a directory with the files of several logs, with each log's files: only a
    /// person can tell which of them belong there.
    fn of_two_logs(&self, number: SegmentNumber, row: &'static str) -> Error {
        let logs = self.files.iter().filter_map(|file| file.block.header()).map(|own| own.log);
        let of_log = |log: LogId| {
            let of = |file: &&FileHeader| file.block.header().is_some_and(|own| own.log == log);
            let files: Vec<SegmentNumber> =
                self.files.iter().filter(of).map(|file| file.number).collect();
            let (first, last) = (files.iter().min(), files.iter().max());
            let named = first.zip(last).map_or_else(String::new, |(first, last)| {
                let (first, last) = (names::segment(*first), names::segment(*last));
                if first == last { first } else { format!("{first} to {last}") }
            });
            format!("log {log} has {} of the files here: {named}", files.len())
        };
        let details = logs.collect::<BTreeSet<_>>().into_iter().map(of_log).collect();
        Corruption { details, ..self.corrupt(number, Reason::ForeignLog, row) }.into()
    }

    /// The error of a file of a version that this code does not know.
    fn unknown_version(&self, number: SegmentNumber) -> Error {
        let (version, flags) = match self.file(number).map(|file| &file.block) {
            Some(HeaderBlock::Unknown { version, flags }) => (*version, *flags),
            _ => (0, 0),
        };
        Error::UnknownVersion { path: self.path(number), version, flags }
    }

    /// The log's id and its head; `None` if there is no log.
    pub(crate) fn head(&self) -> Result<Option<(LogId, SegmentHeader)>> {
        let log = common_log(&self.files);
        if let Some((number, state)) = directory_fault(&self.files, log) {
            let row =
                judge_header(&HeaderFacts { state, named: false, groups: false, dirty: false });
            return Err(match row.verdict {
                Verdict::Corrupt(Reason::ForeignLog) => self.of_two_logs(number, row.name),
                Verdict::Corrupt(reason) => self.corrupt(number, reason, row.name).into(),
                _ => self.unknown_version(number),
            });
        }
        let head = log.and_then(|log| head_of(&self.files, log));
        if let (Some(head), Some(wanted)) = (head, self.options.kind)
            && head.kind != wanted
        {
            let path = self.directory.path().to_path_buf();
            return Err(Error::OtherKind { path, found: head.kind, wanted });
        }
        Ok(head.map(|head| (head.log, head)))
    }

    /// Judges the files above the head: `Some` row if the header of one of them is torn.
    pub(crate) fn judge_spare(
        &self,
        log: Option<LogId>,
        head: Option<&SegmentHeader>,
    ) -> Result<Option<&'static str>> {
        let no_header = self.files.iter().all(|file| file.block.header().is_none());
        let mut spare: Vec<&FileHeader> = self
            .files
            .iter()
            .filter(|file| head.is_none_or(|head| file.number > head.number))
            .collect();
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
                Verdict::Corrupt(reason) => {
                    let error = Error::from(self.corrupt(file.number, reason, row.name));
                    return Err(match no_header && self.holds_nothing()? {
                        true => error.without_records(),
                        false => error,
                    });
                }
                Verdict::Torn => torn = Some(row.name),
                Verdict::Unknown => return Err(self.unknown_version(file.number)),
                Verdict::End => {}
            }
        }
        Ok(torn)
    }

    /// Whether no file has any byte other than zero behind its first block: of files of which none
    /// has a header.
    fn holds_nothing(&self) -> Result<bool> {
        for file in self.files.iter().filter(|file| file.block != HeaderBlock::Short) {
            if self.look_for_groups(file, None, true)? != (false, false) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the file has a sound group of its own number and, if that matters, whether it has
    /// any byte other than zero.
    fn look_for_groups(
        &self,
        file: &FileHeader,
        log: Option<LogId>,
        matters: bool,
    ) -> Result<(bool, bool)> {
        let traces = match &file.block {
            HeaderBlock::Damaged(traces) => traces.log,
            _ => None,
        };
        let handle = past_the_cache(self.directory, file.number)?;
        let len = handle.len_bytes()?;
        let mut scan = log.or(traces).map(|log| {
            let id = Identity::new(log, file.number);
            ScanAhead::new(&id, Epoch::FIRST, HEADER_BYTES as u64, len)
        });
        let has_group =
            |scan: &Option<ScanAhead>| scan.as_ref().is_some_and(|scan| scan.evidence().later);
        let mut window = window_for_all(self.directory, file.number, handle, len)?;
        let mut dirty = false;
        let mut at = HEADER_BYTES as u64;
        while at < len {
            // Two blocks: the first may be all that was left of the last window.
            window.load(at, 2 * BLOCK_BYTES)?;
            if window.bytes().is_empty() {
                break;
            }
            dirty = dirty || (matters && !all_zero(window.bytes()));
            scan.iter_mut().for_each(|scan| scan.feed(window.bytes(), window.at()));
            if has_group(&scan) {
                break;
            }
            // The next window begins a block earlier, so no header lies across two windows.
            let end = window.at() + window.bytes().len() as u64;
            at = if end >= len { len } else { end - BLOCK_BYTES as u64 };
        }
        Ok((has_group(&scan), dirty))
    }

    /// Asks which log this is, which segment is its head, and what the files above the head are, in
    /// this order. `None` if there is no log. Faults go to `fault`, which returns an error to end,
    /// or `Ok` to continue without an answer.
    pub(crate) fn ask(&self, fault: &mut dyn FnMut(Error) -> Result<()>) -> Result<Option<Judged>> {
        let head = match self.head() {
            Ok(head) => head,
            Err(error) => return fault(error).map(|()| None),
        };
        let log = head.map_or_else(|| common_log(&self.files), |(log, _)| Some(log));
        let torn = match self.judge_spare(log, head.as_ref().map(|(_, head)| head)) {
            Ok(torn) => torn,
            Err(error) => fault(error).map(|()| None)?,
        };
        if let Some((_, head)) = &head
            && let Err(error) = self.mind_mark(head)
        {
            fault(error)?;
        }
        if head.is_none() && (self.options.expect_durable > Lsn::ZERO || self.has_header()) {
            fault(self.no_head("the last segment of the log is missing"))?;
        }
        Ok(head.map(|(log, head)| Judged { log, head, cuts: self.cuts, torn }))
    }

    /// An error if a cut has left a mark in the head that the head's header does not count: the
    /// segment that the cut had begun is missing, and so are those after it.
    pub(crate) fn mind_mark(&self, head: &SegmentHeader) -> Result<()> {
        let Some(mark) = cut_mark(self.directory, head)? else { return Ok(()) };
        if mark.cuts <= head.cuts {
            return Ok(());
        }
        let details = vec![
            format!(
                "segment {} is the newest, and a mark in it says that a cut has begun segment {} \
                 (cut number {}, epoch {})",
                head.number, mark.successor, mark.cuts, mark.epoch
            ),
            format!("what segment {} has from byte {} on was cut", head.number, mark.end),
        ];
        let missing = self.corrupt(mark.successor, Reason::MissingSegment, "D3");
        Err(Corruption { details, ..missing }.into())
    }

    /// Whether any file has a header. A log has a head from its first header on, so files without a
    /// head mean that the head is missing.
    pub(crate) fn has_header(&self) -> bool {
        self.files.iter().any(|file| file.block.header().is_some())
    }

    /// The error if there is no head although there was a log.
    pub(crate) fn no_head(&self, details: &str) -> Error {
        Error::from(Corruption {
            path: self.directory.path().to_path_buf(),
            segment: None,
            offset: 0,
            lsn: Some(self.options.expect_durable).filter(|lsn| *lsn > Lsn::ZERO),
            reason: Reason::MissingSegment,
            row: "D2",
            details: vec![details.into()],
            cure: Cure::Salvage,
        })
    }
}

/// What the log in the directory `path` is for, by the newest header that can be read: also of a
/// log that is damaged, or that a writer has open. `None` if there is no log, or no header that can
/// be read. It reads one block of a file, and some more if the newest files have no header yet.
///
/// # Errors
/// [`Error::Incomplete`]; errors of the file system.
pub fn kind_of(path: impl AsRef<Path>) -> Result<Option<LogKind>> {
    let directory = AnyDirectory::new(find_directory(path)?);
    for &number in Listing::of(&directory)?.segments.iter().rev() {
        let mut window = Window::new(past_the_cache(&directory, number)?, HEADER_BYTES);
        window.load(0, HEADER_BYTES)?;
        let block = HeaderBlock::classify(window.bytes());
        if let Some(header) = block.header().filter(|header| header.number == number) {
            return Ok(Some(header.kind));
        }
    }
    Ok(None)
}

/// The mark that a cut has left in a segment.
pub(crate) fn cut_mark(
    directory: &AnyDirectory,
    segment: &SegmentHeader,
) -> Result<Option<CutMark>> {
    let mut window = Window::new(past_the_cache(directory, segment.number)?, MARK_BLOCK_BYTES);
    let at = segment.marks_at();
    window.load(at, MARK_BLOCK_BYTES)?;
    let block = window.bytes().get((at - window.at()) as usize..).unwrap_or_default();
    Ok(CutMark::read(&segment.identity(), block))
}

/// A window for reading all of a file of `len` bytes.
pub(super) fn window_for_all(
    directory: &AnyDirectory,
    number: SegmentNumber,
    file: Arc<dyn File>,
    len: u64,
) -> Result<Window> {
    if len <= READ_AHEAD_ABOVE_BYTES {
        return Ok(Window::new(file, len.max(1) as usize));
    }
    let stretch = Stretch { number, file: Arc::clone(&file), end: Some(len), prover: None };
    Ok(Window::read_by(file, Box::new(Ahead::all(directory, stretch))))
}

/// How a reader opens a segment's file.
pub(crate) fn open_for_reading(options: &Options) -> OpenFile {
    OpenFile::existing().read_only().access(options.access_chosen())
}

/// Opens a segment's file so that reads show what is on the medium.
pub(crate) fn past_the_cache(
    directory: &AnyDirectory,
    number: SegmentNumber,
) -> Result<Arc<dyn File>> {
    let name = names::segment(number);
    let open = |how: &OpenFile| directory.open(&name, how);
    match open(&OpenFile::existing().read_only().access(Access::Direct)) {
        Ok(file) => Ok(file),
        // No O_DIRECT here: drop the pages, which works unless another process has locked them.
        Err(error) if error.is_not_here() => {
            let file = open(&OpenFile::existing().read_only()).map_err(no_segment)?;
            forget(&*file)?;
            Ok(file)
        }
        Err(error) => Err(no_segment(error)),
    }
}

fn no_segment(error: inkstone_io::Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidData => error
            .advise(
                "put the segment's own file here; to move a log to another disk, move its whole \
                 directory",
            )
            .into(),
        _ => error.into(),
    }
}

/// Drops a file's pages, so that what is read next comes from the medium. A sandbox may refuse it:
/// it is advice (docs/assumptions.md, A8).
pub(super) fn forget(file: &dyn File) -> Result<()> {
    match file.forget_cached() {
        Err(error) if error.is_not_here() => Ok(()),
        done => Ok(done?),
    }
}
