//! Finds the last segment of a log, and the headers before it, while a writer changes the files.
//!
//! *Owns*: the order in which first blocks are read, so that what they say together was true at one
//! moment. *May not touch*: the groups; what is wrong with a header (`headers.rs`).
//!
//! A listing is no snapshot, and a file can vanish after it was listed: then it was cut, and a
//! later segment has come that is not in the listing. So the newest files are read first, and if
//! one of them is gone, the directory is listed again. When none is gone, the highest segment with
//! a header was the last one at that moment. Its file stays open: what comes after that moment is
//! news for the next observation, and no reason to start over. So a writer that begins segments all
//! the time keeps no reader waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;

use inkstone_format::limits::HEADER_BYTES;
use inkstone_format::{
    Copies, Cuts, FileHeader, HeaderBlock, HeaderState, SegmentHeader, SegmentNumber,
};
use inkstone_io::{Access, AnyDirectory, File, OpenFile};

use crate::error::Result;
use crate::names;
use crate::options::Options;
use crate::recovery::headers::open_for_reading;
use crate::segment::listing::Listing;
use crate::walk::window::Window;

/// How often the directory is listed at least: a listing may miss a file that is renamed meanwhile.
const LISTINGS_MIN: usize = 2;
/// After so many, the observation starts over.
const LISTINGS_MAX: usize = 64;

/// Headers of segments with a successor, which do not change: a number is not used again. (That of
/// the last segment may be, if its header never became durable.)
pub(crate) type Older = BTreeMap<SegmentNumber, SegmentHeader>;

/// The first blocks of a log's files, as they were at one moment.
pub(crate) struct Newest {
    pub(crate) files: Vec<FileHeader>,
    /// The highest segment with a header of its own.
    pub(crate) last: Option<Last>,
}

/// The last segment. Both handles stay open, since its file may soon have no name any more.
pub(crate) struct Last {
    pub(crate) number: SegmentNumber,
    /// The history in its header.
    pub(crate) cuts: Cuts,
    /// Open as the log reads and writes it.
    pub(crate) file: Arc<dyn File>,
    /// Open through the page cache, for reading records.
    pub(crate) cached: Arc<dyn File>,
}

/// Whether the segment with this header is the last one of its log: those above it are only
/// prepared. Else the log is to be observed.
///
/// # Errors
/// [`Error::Incomplete`](crate::Error::Incomplete); errors of the file system.
pub(crate) fn is_last(
    directory: &AnyDirectory,
    options: &Options,
    head: &SegmentHeader,
) -> Result<bool> {
    let numbers = Listing::of(directory)?.segments;
    for &later in numbers.iter().filter(|later| **later > head.number) {
        let state = first_block(directory, options, later)?
            .and_then(|first| first.file.state(Some(head.log)));
        if !matches!(state, Some(HeaderState::Zero | HeaderState::Older)) {
            return Ok(false);
        }
    }
    Ok(numbers.contains(&head.number))
}

/// Reads the first blocks that are not among the `older`, and adds to those: of segments `below`
/// that number, if one is given. `None` if files vanish again and again.
///
/// # Errors
/// [`Error::Incomplete`](crate::Error::Incomplete); errors of the file system.
pub(crate) fn newest(
    directory: &AnyDirectory,
    options: &Options,
    older: &mut Older,
    below: Option<SegmentNumber>,
) -> Result<Option<Newest>> {
    let mut last: Option<(FileHeader, Last)> = None;
    let mut spare: Vec<FileHeader> = Vec::new();
    let mut vanished_before = BTreeSet::new();
    for listings in 1..=LISTINGS_MAX {
        let listed = Listing::of(directory)?.segments.into_iter();
        let is_below = |number: &SegmentNumber| below.is_none_or(|below| *number < below);
        let numbers: BTreeSet<_> = listed.filter(is_below).collect();
        let mut vanished = BTreeSet::new();
        for &number in numbers.iter().rev() {
            if last.as_ref().is_some_and(|(last, _)| number <= last.number) {
                break;
            }
            if spare.iter().any(|file| file.number == number) {
                continue;
            }
            match first_block(directory, options, number)? {
                Some(FirstBlock { file, cuts: Some(cuts), handle }) if file.is_begun() => {
                    match cached(directory, options, number, &handle)? {
                        Some(cached) => {
                            last = Some((file, Last { number, cuts, file: handle, cached }));
                        }
                        None => _ = vanished.insert(number),
                    }
                }
                Some(first) => spare.push(first.file),
                None => _ = vanished.insert(number),
            }
        }
        // A name that is listed again and leads nowhere is no segment.
        if listings >= LISTINGS_MIN && vanished.is_subset(&vanished_before) {
            return with_older(directory, options, &numbers, last, spare, older).map(Some);
        }
        if !vanished.is_empty() {
            // One of these may have come in its place.
            spare.clear();
        }
        vanished_before = vanished;
    }
    Ok(None)
}

/// Adds the files below the last segment. Those that have vanished meanwhile are left out.
fn with_older(
    directory: &AnyDirectory,
    options: &Options,
    numbers: &BTreeSet<SegmentNumber>,
    last: Option<(FileHeader, Last)>,
    mut files: Vec<FileHeader>,
    older: &mut Older,
) -> Result<Newest> {
    let Some((head, last)) = last else { return Ok(Newest { files, last: None }) };
    files.retain(|file| file.number > last.number);
    for &number in numbers.range(..last.number) {
        if let Some(&header) = older.get(&number) {
            let block = HeaderBlock::Valid { header, copies: Copies::Both, stray: false };
            files.push(FileHeader { number, block });
        } else if let Some(FirstBlock { file, .. }) = first_block(directory, options, number)? {
            if let Some(header) = file.block.header().filter(|_| file.is_begun()) {
                older.insert(number, *header);
            }
            files.push(file);
        }
    }
    files.push(head);
    Ok(Newest { files, last: Some(last) })
}

/// The handle of a segment's file for reading records; `None` if the file has vanished.
fn cached(
    directory: &AnyDirectory,
    options: &Options,
    number: SegmentNumber,
    file: &Arc<dyn File>,
) -> Result<Option<Arc<dyn File>>> {
    if options.access_chosen() == Access::Buffered {
        return Ok(Some(Arc::clone(file)));
    }
    unless_vanished(directory.open(&names::segment(number), &OpenFile::existing().read_only()))
}

/// The first block of a segment's file, which stays open.
struct FirstBlock {
    file: FileHeader,
    /// The history in its header, if that is valid.
    cuts: Option<Cuts>,
    handle: Arc<dyn File>,
}

/// Reads it; `None` if the file has vanished.
fn first_block(
    directory: &AnyDirectory,
    options: &Options,
    number: SegmentNumber,
) -> Result<Option<FirstBlock>> {
    let opened = directory.open(&names::segment(number), &open_for_reading(options));
    let Some(handle) = unless_vanished(opened)? else { return Ok(None) };
    let mut window = Window::new(Arc::clone(&handle), HEADER_BYTES);
    window.load(0, HEADER_BYTES)?;
    let (block, cuts) = HeaderBlock::with_cuts(window.bytes());
    Ok(Some(FirstBlock { file: FileHeader { number, block }, cuts, handle }))
}

fn unless_vanished(opened: inkstone_io::Result<Arc<dyn File>>) -> Result<Option<Arc<dyn File>>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
