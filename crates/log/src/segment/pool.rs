//! The files that segments are made of: made ready ahead of time, handed out, taken back.
//!
//! *Owns*: how a file becomes a segment's, how many wait, what they may take of the disk. *May not touch*: what is in
//! them: headers and groups are the writer's. *When* files are made ready is up to the preparer (`preparer.rs`), or to
//! whoever changes the segment, where there is no preparer.
//!
//! A file gets a segment's name when it has its full size and its blocks, durably; the name is durable before the file is
//! handed out. Numbers only rise, so files that are ready are handed out in their order.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::SegmentNumber;
use inkstone_io::{Directory, File, OpenFile, file_bytes_max};

use crate::error::{Error, Result, is_full};
use crate::names;
use crate::options::Options;
use crate::segment::listing::Listing;
use crate::sync::{Instant, Mutex, lock};

/// What is removed is shrunk by this much at a time: freeing many blocks at once holds up everybody's commits.
const SHRINK_BYTES: u64 = 4 << 20;

/// What a file's blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// An old segment's.
    Recycled,
    /// New, and written.
    Written,
    /// New, and only reserved.
    Reserved,
}

/// A file with a segment's name.
#[derive(Debug)]
pub(crate) struct Ready<F> {
    pub(crate) number: SegmentNumber,
    pub(crate) file: Arc<F>,
    pub(super) bytes: u64,
    pub(crate) blocks: Blocks,
    /// A sync of its groups may have metadata to wait for, and the file system is to be asked then.
    pub(crate) asks: bool,
    /// It was ready before it was asked for.
    pub(crate) was_waiting: bool,
}

impl<F> Ready<F> {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A file that has its blocks, and not a segment's name yet.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) name: String,
    /// Whose blocks they were, if they are old.
    pub(super) spare: Option<Spare>,
    pub(super) blocks: Blocks,
}

impl Made {
    pub(super) fn of(spare: Spare) -> Self {
        Self { name: names::free(spare.number), spare: Some(spare), blocks: Blocks::Recycled }
    }
}

/// A file that is no segment's, by its number, with its size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spare {
    pub(super) number: SegmentNumber,
    pub(super) bytes: u64,
    /// Its blocks are nobody else's, as far as is known, and all there.
    pub(super) is_usable: bool,
    /// Since when it is nobody's.
    pub(super) since: Instant,
}

impl Spare {
    pub(super) fn new(number: SegmentNumber, bytes: u64) -> Self {
        Self { number, bytes, is_usable: true, since: Instant::now() }
    }
}

#[derive(Debug)]
pub(super) struct Files<F> {
    pub(super) ready: VecDeque<Ready<F>>,
    pub(super) free: Vec<Spare>,
    /// To be shrunk and removed; named as free ones are.
    pub(super) doomed: Vec<Spare>,
    pub(super) highest: Option<SegmentNumber>,
    /// The number in the name of the last file that was made.
    pub(super) made: Option<SegmentNumber>,
    /// The size of the file that keeps room; 0: there is none.
    pub(super) room_bytes: u64,
    /// Bytes of the log's segments, of all the above, and of what is being made.
    pub(super) used_bytes: u64,
    /// The file system has refused to reserve blocks.
    pub(super) lacks_fallocate: bool,
    /// A message that the listener has not got yet.
    pub(super) notice: Option<String>,
}

/// Why no file was to be had.
#[derive(Debug)]
pub(crate) enum ObtainError {
    /// Nothing has changed; it can be tried again.
    Retry(Error),
    /// A sync failed: what is on the medium is not known.
    Poison(Error),
}

impl ObtainError {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Retry(error) | Self::Poison(error) => error,
        }
    }
}

pub(super) type Obtained<T> = std::result::Result<T, ObtainError>;

/// The files of a log's directory that are not part of the log.
#[derive(Debug)]
pub(crate) struct Pool<D: Directory> {
    pub(super) directory: Arc<D>,
    pub(super) files: Mutex<Files<D::File>>,
    /// Held while a file is given a segment's name, so that names are given in the order of their numbers.
    pub(super) naming: Mutex<()>,
}

impl<D: Directory> Pool<D> {
    /// The pool of a directory in which the log's segments take `live_bytes`.
    pub(crate) fn new(directory: Arc<D>, listing: &Listing, live_bytes: u64) -> Self {
        let mut files = Files {
            ready: VecDeque::new(),
            free: Vec::new(),
            doomed: Vec::new(),
            highest: listing.highest(),
            made: listing.unfinished.iter().max().copied(),
            room_bytes: 0,
            used_bytes: live_bytes,
            lacks_fallocate: false,
            notice: None,
        };
        if listing.room {
            // One that is too small was being made when the power went.
            let opened = directory.open(names::ROOM, &OpenFile::existing().read_only());
            files.room_bytes = opened.and_then(|file| file.len_bytes()).unwrap_or(0);
            files.used_bytes += files.room_bytes;
        }
        for &number in &listing.free {
            // What cannot be looked at is not used; the next opening looks again.
            let opened = directory.open(&names::free(number), &OpenFile::existing().read_only());
            if let Ok(bytes) = opened.and_then(|file| file.len_bytes()) {
                files.free.push(Spare::new(number, bytes));
                files.used_bytes = files.used_bytes.saturating_add(bytes);
            }
        }
        Self { directory, files: Mutex::new(files), naming: Mutex::new(()) }
    }

    /// How many files are ready, and how many are free.
    pub(crate) fn level(&self) -> (usize, usize) {
        let files = lock(&self.files);
        (files.ready.len(), files.free.len())
    }

    /// The size of the file that was made ready last.
    pub(crate) fn last_ready_bytes(&self) -> Option<u64> {
        lock(&self.files).ready.back().map(|ready| ready.bytes)
    }

    /// The first file that is ready, if it has this size.
    pub(super) fn front(&self, bytes: u64) -> Option<Ready<D::File>> {
        let mut files = lock(&self.files);
        let fits = files.ready.front().is_some_and(|ready| ready.bytes == bytes);
        if fits { files.ready.pop_front() } else { None }
    }

    /// Takes the segments' names from files that are ready.
    pub(crate) fn demote(&self) {
        let ready: Vec<_> = lock(&self.files).ready.drain(..).collect();
        for Ready { number, bytes, .. } in ready {
            self.free_again(number, bytes);
        }
    }

    /// Takes a segment's name from a file. Where that fails the name stays, which is harmless: without a header it is no
    /// segment, and the next opening takes it back.
    pub(super) fn free_again(&self, number: SegmentNumber, bytes: u64) {
        if self.directory.rename_new(&names::segment(number), &names::free(number)).is_ok() {
            lock(&self.files).free.push(Spare::new(number, bytes));
        }
    }

    /// Takes the message for the listener, once. The caller sends it when it holds no lock.
    pub(crate) fn take_notice(&self) -> Option<String> {
        lock(&self.files).notice.take()
    }

    /// Takes back a file that is to be no segment of the log after all. On return no crash finds it under a segment's name.
    pub(crate) fn give_back(&self, ready: Ready<D::File>, options: &Options) -> Result<()> {
        self.retire(ready.number, ready.bytes, options)?;
        Ok(self.directory.sync()?)
    }

    /// Takes back the file of a segment that is not the log's any more: its blocks are kept, or it is removed soon.
    pub(crate) fn retire(&self, number: SegmentNumber, bytes: u64, options: &Options) -> Result<()> {
        let name = names::segment(number);
        match self.directory.rename_new(&name, &names::free(number)) {
            // Somebody has put a file there, which stays; or a full file system has no room for another name. The segment's own file is
            // removed: nothing in it is needed, and taking a name away needs no room.
            Err(error) if error.kind() == ErrorKind::AlreadyExists || is_full(&error) => {
                self.directory.remove(&name)?;
                let mut files = lock(&self.files);
                files.used_bytes = files.used_bytes.saturating_sub(bytes);
                return Ok(());
            }
            renamed => renamed?,
        }
        let mut files = lock(&self.files);
        let spare = Spare::new(number, bytes);
        let is_kept = files.free.len() < options.free_segments_chosen();
        if is_kept {
            files.free.push(spare)
        } else {
            files.doomed.push(spare)
        }
        Ok(())
    }

    /// Removes what has been doomed for `age`, or a piece of it; `false` when there was nothing to do.
    ///
    /// # Errors
    /// What the file system answers; the file is left for the next opening.
    pub(crate) fn remove_some(&self, age: Duration) -> Result<bool> {
        let mut spare = {
            let mut files = lock(&self.files);
            let is_due = |spare: &Spare| !spare.is_usable || spare.since.elapsed() >= age;
            let Some(at) = files.doomed.iter().rposition(is_due) else { return Ok(false) };
            files.doomed.remove(at)
        };
        let name = names::free(spare.number);
        let left = spare.bytes.saturating_sub(SHRINK_BYTES);
        let file = self.directory.open(&name, &OpenFile::existing())?;
        // Somebody's backup is not shrunk, its name is only taken away.
        let shrinks = left > 0 && file.facts()?.hard_links == 1;
        // Shrinking may need room, taking the name away needs none.
        if shrinks && !is_refused_for_room(file.set_len(left))? {
            let mut files = lock(&self.files);
            files.used_bytes = files.used_bytes.saturating_sub(spare.bytes - left);
            (spare.bytes, spare.is_usable) = (left, false);
            files.doomed.push(spare);
        } else {
            drop(file);
            self.directory.remove(&name)?;
            let mut files = lock(&self.files);
            files.used_bytes = files.used_bytes.saturating_sub(spare.bytes);
        }
        Ok(true)
    }

    /// Whether something is to be removed, now or later.
    pub(crate) fn has_doomed(&self) -> bool {
        !lock(&self.files).doomed.is_empty()
    }

    /// Removes all that is doomed; false if nothing was. What cannot be removed now is found by the next opening.
    pub(crate) fn remove_all(&self) -> bool {
        let mut count = 0;
        while self.remove_some(Duration::ZERO).unwrap_or(false) {
            count += 1;
        }
        count > 0
    }
}

/// How the log opens a segment's file, for writing groups and for reading them.
pub(crate) fn open_for_groups(options: &Options) -> OpenFile {
    OpenFile::existing().access(options.access_chosen()).durability(options.durability_chosen())
}

pub(super) fn no_room<D: Directory>(directory: &D, needed_bytes: u64, why: &str) -> Error {
    let cause = std::io::Error::new(ErrorKind::StorageFull, why.to_owned());
    Error::NoRoom {
        needed_bytes,
        cause: inkstone_io::Error::new("prepare a segment in", directory.path(), cause),
    }
}

/// Refuses a segment that this process may not write to its end (`ulimit -f`): a commit there would end the process by a signal, or
/// poison the log.
pub(crate) fn check_limit<D: Directory>(directory: &D, bytes: u64) -> Result<()> {
    if file_bytes_max() >= bytes {
        return Ok(());
    }
    let cause = std::io::Error::from(ErrorKind::FileTooLarge);
    Err(no_room_or(bytes, inkstone_io::Error::new("use a segment in", directory.path(), cause)))
}

pub(super) fn no_room_or(needed_bytes: u64, error: inkstone_io::Error) -> Error {
    if !is_full(&error) {
        return error.into();
    }
    let is_limit = error.kind() == ErrorKind::FileTooLarge;
    let advice = "raise the limit on the size of files (`ulimit -f`), or choose smaller segments";
    Error::NoRoom { needed_bytes, cause: if is_limit { error.advise(advice) } else { error } }
}

/// `true`: there was no room for it.
pub(super) fn is_refused_for_room(done: inkstone_io::Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if is_full(&error) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
