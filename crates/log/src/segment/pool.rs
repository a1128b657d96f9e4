//! The pool of files for segments: prepared ahead of time, handed out, taken back.
//!
//! *Owns*: how a file becomes that of a segment, how many wait, how much of the disk they may use.
//! *May not touch*: what is in them: headers and groups belong to the writer. *When* files are
//! prepared is up to the preparer (`background/preparer.rs`), or, without one, to the thread that
//! changes the segment.
//!
//! A file gets a segment's name when its full size and its blocks are durable; the name is durable
//! before the file is handed out. Numbers only rise, so prepared files are handed out in their
//! order.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use inkstone_format::SegmentNumber;
use inkstone_io::{AnyDirectory, File, OpenFile, OwnName, file_bytes_max};

use crate::error::{Error, Result, is_full};
use crate::names;
use crate::options::Options;
use crate::segment::listing::Listing;
use crate::sync::{Instant, Mutex, lock};

/// Files are shrunk by this much at a time before they are removed: freeing many blocks at once
/// delays commits.
const SHRINK_BYTES: u64 = 4 << 20;

/// The kind of a file's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// Those of an old segment.
    Recycled,
    /// New and written.
    Written,
    /// New and only reserved.
    Reserved,
}

/// A file with a segment's name.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) number: SegmentNumber,
    pub(crate) file: Arc<dyn File>,
    pub(super) bytes: u64,
    pub(crate) blocks: Blocks,
    /// The sync of a group in it may wait for metadata, so the file system is asked after it.
    pub(crate) asks: bool,
    /// It was prepared before it was needed.
    pub(crate) was_waiting: bool,
}

impl Ready {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A file with blocks that has no segment's name yet.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) name: String,
    /// The free file that it was, if its blocks are old.
    pub(super) spare: Option<Spare>,
    pub(super) blocks: Blocks,
}

impl Made {
    pub(super) fn of(spare: Spare) -> Self {
        Self { name: names::free(spare.number), spare: Some(spare), blocks: Blocks::Recycled }
    }
}

/// A file that is not a segment, with its number and size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spare {
    pub(super) number: SegmentNumber,
    pub(super) bytes: u64,
    /// As far as is known it has all its blocks, and shares none.
    pub(super) is_usable: bool,
    /// When it stopped being a segment.
    pub(super) since: Instant,
}

impl Spare {
    pub(super) fn new(number: SegmentNumber, bytes: u64) -> Self {
        Self { number, bytes, is_usable: true, since: Instant::now() }
    }
}

#[derive(Debug)]
pub(super) struct Files {
    pub(super) ready: VecDeque<Ready>,
    pub(super) free: Vec<Spare>,
    /// To be shrunk and removed; named as free ones are.
    pub(super) doomed: Vec<Spare>,
    pub(super) highest: Option<SegmentNumber>,
    /// The number in the name of the last file that was made.
    pub(super) made: Option<SegmentNumber>,
    /// Bytes of the log's segments, of all files above, of reserved room, and of files that are
    /// being made.
    pub(super) used_bytes: u64,
    /// The file system has refused to reserve blocks.
    pub(super) lacks_fallocate: bool,
    /// A message that was not sent to the listener yet.
    pub(super) notice: Option<String>,
}

impl Files {
    /// Marks free files for removal until no more than `most` are left, the smallest first:
    /// segments grow. Returns their number.
    pub(super) fn doom_surplus(&mut self, most: usize) -> usize {
        let surplus = self.free.len().saturating_sub(most);
        // Those that came last stay at the end: they are the next to be used.
        for _ in 0..surplus {
            let smallest = (0..self.free.len()).rev().min_by_key(|at| self.free[*at].bytes);
            self.doomed.extend(smallest.map(|at| self.free.remove(at)));
        }
        surplus
    }

    /// Marks free files of which this is so for removal.
    pub(super) fn doom_if(&mut self, is_so: impl Fn(&Spare) -> bool) {
        let (doomed, free) = std::mem::take(&mut self.free).into_iter().partition(is_so);
        self.free = free;
        let doomed: Vec<_> = doomed;
        self.doomed.extend(doomed);
    }
}

/// Why a file could not be obtained.
#[derive(Debug)]
pub(crate) enum ObtainError {
    /// Nothing has changed; the call can be retried.
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

pub(crate) type Obtained<T> = std::result::Result<T, ObtainError>;

/// Files whose names were removed, still open.
pub(crate) type Unnamed = Vec<Arc<dyn File>>;

/// How many of them stay open at a time: a process may often have no more than 1024 descriptors in
/// all.
pub(super) const UNNAMED_MAX: usize = 64;

/// The files of a log's directory that are not segments of the log.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(super) directory: AnyDirectory,
    pub(super) files: Mutex<Files>,
    /// Held while a file is given a segment's name, so that names are given in the order of their
    /// numbers.
    pub(super) naming: Mutex<()>,
    /// The size of the file of reserved room (`reserve.rs`); 0 if there is none. Held while it is
    /// made.
    pub(super) room_bytes: Mutex<u64>,
}

impl Pool {
    /// The pool of a directory in which the log's segments use `live_bytes`.
    pub(crate) fn new(directory: AnyDirectory, listing: &Listing, live_bytes: u64) -> Self {
        let mut files = Files {
            ready: VecDeque::new(),
            free: Vec::new(),
            doomed: Vec::new(),
            highest: listing.highest(),
            made: listing.unfinished.iter().max().copied(),
            used_bytes: live_bytes,
            lacks_fallocate: false,
            notice: None,
        };
        let size = |name: &str| {
            let opened = directory.open(name, &OpenFile::existing().read_only());
            opened.and_then(|file| file.len_bytes())
        };
        let room_bytes = if listing.room { size(names::ROOM).unwrap_or(0) } else { 0 };
        files.used_bytes = files.used_bytes.saturating_add(room_bytes);
        for &number in &listing.free {
            // A file that cannot be opened is not used; the next opening tries again.
            if let Ok(bytes) = size(&names::free(number)) {
                files.free.push(Spare::new(number, bytes));
                files.used_bytes = files.used_bytes.saturating_add(bytes);
            }
        }
        let (files, naming) = (Mutex::new(files), Mutex::new(()));
        Self { directory, files, naming, room_bytes: Mutex::new(room_bytes) }
    }

    /// Counts so many bytes as used, unless the budget is used up then.
    pub(super) fn take_bytes(&self, bytes: u64, options: &Options) -> bool {
        let mut files = lock(&self.files);
        let used_bytes = files.used_bytes.saturating_add(bytes);
        let fits = options.disk_budget_bytes.is_none_or(|budget| used_bytes <= budget);
        if fits {
            files.used_bytes = used_bytes;
        }
        fits
    }

    /// So many bytes are used no more.
    pub(super) fn give_bytes(&self, bytes: u64) {
        let mut files = lock(&self.files);
        files.used_bytes = files.used_bytes.saturating_sub(bytes);
    }

    /// The numbers of prepared and of free files.
    pub(crate) fn level(&self) -> (usize, usize) {
        let files = lock(&self.files);
        (files.ready.len(), files.free.len())
    }

    /// The size of the file that was prepared last.
    pub(crate) fn last_ready_bytes(&self) -> Option<u64> {
        lock(&self.files).ready.back().map(|ready| ready.bytes)
    }

    /// The size that the next segment is to have, which is to grow to `grown` bytes: that of the
    /// smallest file at hand that is as large, and not larger than `most` bytes.
    pub(crate) fn bytes_to_use(&self, grown: u64, most: u64) -> u64 {
        let files = lock(&self.files);
        let fits = |bytes: &u64| (grown..=most).contains(bytes);
        let ready = files.ready.front().map(|ready| ready.bytes).filter(fits);
        let free = || {
            let usable = files.free.iter().filter(|spare| spare.is_usable);
            usable.map(|spare| spare.bytes).filter(fits).min()
        };
        ready.or_else(free).unwrap_or(grown)
    }

    /// Whether a file of this size is prepared or free.
    pub(super) fn is_at_hand(&self, bytes: u64) -> bool {
        let files = lock(&self.files);
        files.ready.front().is_some_and(|ready| ready.bytes == bytes)
            || files.free.iter().any(|spare| spare.is_usable && spare.bytes == bytes)
    }

    /// The first prepared file, if it has this size and still its name for itself. It has waited
    /// for long: a cleaner may have removed it, and a backup may have linked it.
    pub(super) fn front(&self, bytes: u64) -> Option<Ready> {
        loop {
            let mut files = lock(&self.files);
            let fits = files.ready.front().is_some_and(|ready| ready.bytes == bytes);
            let ready = if fits { files.ready.pop_front()? } else { return None };
            drop(files);
            if ready.file.own_name() == OwnName::Alone {
                return Some(ready);
            }
            self.step_back(&ready);
        }
    }

    /// Takes the segment's name from a prepared file. A name that leads to no file, or to another
    /// program's, stays as it is.
    fn step_back(&self, ready: &Ready) {
        if ready.file.own_name() != OwnName::Lost {
            return self.free_again(ready.number, ready.bytes);
        }
        self.give_bytes(ready.bytes);
        lock(&self.files).notice = Some(format!(
            "{}: another program removed, moved or replaced this segment, which was prepared and \
             not in use: the log takes another file",
            ready.file.path().display()
        ));
    }

    /// Takes the segments' names from prepared files.
    pub(crate) fn demote(&self) {
        let ready: Vec<_> = lock(&self.files).ready.drain(..).collect();
        for ready in &ready {
            self.step_back(ready);
        }
    }

    /// Takes a segment's name from a file. If that fails the name stays, which is harmless: without
    /// a header it is not a segment, and the next opening takes it back.
    pub(super) fn free_again(&self, number: SegmentNumber, bytes: u64) {
        if self.directory.rename_new(&names::segment(number), &names::free(number)).is_ok() {
            lock(&self.files).free.push(Spare::new(number, bytes));
        }
    }

    /// Takes the message for the listener, once. The caller sends it when it holds no lock.
    pub(crate) fn take_notice(&self) -> Option<String> {
        lock(&self.files).notice.take()
    }

    /// Takes back a file that will not become a segment after all. On return no crash can bring its
    /// segment's name back.
    pub(crate) fn give_back(&self, ready: Ready, options: &Options) -> Result<()> {
        self.retire(ready.number, ready.bytes, options)?;
        Ok(self.directory.sync()?)
    }

    /// Takes back the file of a segment that is no longer part of the log: its blocks are kept, or
    /// it is removed soon.
    pub(crate) fn retire(
        &self,
        number: SegmentNumber,
        bytes: u64,
        options: &Options,
    ) -> Result<()> {
        let name = names::segment(number);
        match self.directory.rename_new(&name, &names::free(number)) {
            // Another program has put a file there, which stays; or a full file system has no room
            // for another name. The segment's own file is removed: nothing in it is needed, and
            // removing a name needs no room.
            Err(error) if error.kind() == ErrorKind::AlreadyExists || is_full(&error) => {
                self.directory.remove(&name)?;
                self.give_bytes(bytes);
                return Ok(());
            }
            renamed => renamed?,
        }
        let mut files = lock(&self.files);
        files.free.push(Spare::new(number, bytes));
        files.doom_surplus(options.free_segments_chosen());
        Ok(())
    }

    /// Removes a file that has been marked for removal for `age`, or shrinks it by a piece; `false`
    /// when there was nothing to do. The caller then calls [`Pool::cut`] with `unnamed`.
    ///
    /// # Errors
    /// Errors of the file system; the file is left to the next opening. If a sync failed, what is
    /// on the medium is not known.
    pub(crate) fn remove_some(&self, age: Duration, unnamed: &mut Unnamed) -> Obtained<bool> {
        let retry = |error: inkstone_io::Error| ObtainError::Retry(error.into());
        let mut spare = {
            let mut files = lock(&self.files);
            let is_due = |spare: &Spare| !spare.is_usable || spare.since.elapsed() >= age;
            let Some(at) = files.doomed.iter().rposition(is_due) else { return Ok(false) };
            files.doomed.remove(at)
        };
        let name = names::free(spare.number);
        let left = spare.bytes.saturating_sub(SHRINK_BYTES);
        let file = self.directory.open(&name, &OpenFile::existing()).map_err(retry)?;
        // A file with other links is a backup of the user: it is not shrunk, only this name is
        // removed.
        let shrinks = left > 0 && file.facts().map_err(retry)?.hard_links == 1;
        // It may have a segment's name on the medium: see `cut`. Shrinking may need room, or a call
        // that a sandbox refuses; removing the name needs neither.
        let is_shrunk = shrinks
            && (!spare.is_usable || self.sync_names()?)
            && match file.set_len(left) {
                Err(error) if error.is_not_here() => false,
                done => !is_refused_for_room(done).map_err(ObtainError::Retry)?,
            };
        if is_shrunk {
            self.give_bytes(spare.bytes - left);
            (spare.bytes, spare.is_usable) = (left, false);
            lock(&self.files).doomed.push(spare);
        } else {
            self.directory.remove(&name).map_err(retry)?;
            unnamed.push(file);
            self.give_bytes(spare.bytes);
        }
        Ok(true)
    }

    /// Gives the blocks of files without a name back at once, whoever has the files open: a reader
    /// may sleep, and may be in another process. First the removal of the names becomes durable: no
    /// crash may leave a segment's name with a file that is too short.
    ///
    /// # Errors
    /// The sync failed: what is on the medium is not known.
    pub(crate) fn cut(&self, unnamed: Unnamed) -> Obtained<()> {
        if unnamed.is_empty() || !self.sync_names()? {
            return Ok(());
        }
        for file in unnamed {
            // With another name it is a backup of the user and stays as it is. If the cut fails,
            // the blocks come back with the last handle.
            if file.facts().is_ok_and(|facts| facts.hard_links == 0) {
                let _ = file.set_len(0);
            }
        }
        Ok(())
    }

    /// Makes what was removed and renamed durable; false if that needs room and there is none.
    fn sync_names(&self) -> Obtained<bool> {
        let is_refused = is_refused_for_room(self.directory.sync()).map_err(ObtainError::Poison)?;
        Ok(!is_refused)
    }

    /// Whether a file is marked for removal, now or later.
    pub(crate) fn has_doomed(&self) -> bool {
        !lock(&self.files).doomed.is_empty()
    }
}

/// How the log opens a segment's file, for writing and for reading groups.
pub(crate) fn open_for_groups(options: &Options) -> OpenFile {
    OpenFile::existing().access(options.access_chosen()).durability(options.durability_chosen())
}

pub(super) fn no_room(directory: &AnyDirectory, needed_bytes: u64, why: &str) -> Error {
    let cause = std::io::Error::new(ErrorKind::StorageFull, why.to_owned());
    Error::NoRoom {
        needed_bytes,
        cause: inkstone_io::Error::new("prepare a segment in", directory.path(), cause),
    }
}

/// Refuses a segment that this process may not write to its end (`ulimit -f`): a commit there would
/// raise a signal that ends the process, or poison the log.
pub(crate) fn check_limit(directory: &AnyDirectory, bytes: u64) -> Result<()> {
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

/// Whether it failed because there was no room.
pub(super) fn is_refused_for_room(done: inkstone_io::Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if is_full(&error) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
