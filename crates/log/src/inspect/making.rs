//! A new log that is a copy: it cannot be opened before it is complete.
//!
//! *Owns*: the file `inkstone.incomplete` (the mark), and what is removed when a copy fails. *May
//! not touch*: which records the copy has.
//!
//! The order of the steps, so that a power cut at any moment does no harm: take the lock; create
//! the mark and make its name durable; write the log and close it, so that all of it is durable;
//! write the file beside it, durably; remove the mark, durably. While the mark exists, every
//! opening and every inspection returns [`Error::Incomplete`]. The lock is held throughout, so that
//! a second copy into the same directory cannot take a running copy for one that was killed.
//!
//! The mark is created only in a directory without any file of a name that is removed here
//! ([`is_made_here`]). So files of such names beside a mark whose lock is free were left by a copy
//! that was killed, and the next copy into the directory removes them. A file with the mark's name
//! and other content belongs to the user; it is left alone, and the copy is refused.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::panicking;

use inkstone_format::Lsn;
use inkstone_io::{AnyDirectory, AnyLock, NoSizeSignal, OpenFile, SyncKind};

use crate::error::{Error, Result};
use crate::log::{Log, take_lock};
use crate::names;
use crate::options::Options;
use crate::segment::listing::Listing;

/// The text in the mark, for people.
const NOTE: &[u8] =
    b"A copy of a log into this directory has not ended, so what is here is no log.\n\
If no copy is running: copy again (it starts over), or remove the directory.\n";

/// Every mark begins so, also those of older versions.
const NOTE_BEGINS: &[u8] = b"A copy of a log into this directory has not ended";

/// A log that is being made.
pub(super) struct Making {
    directory: AnyDirectory,
    /// `None` while the log has it.
    lock: Option<AnyLock>,
    log: Option<Log>,
    /// This copy wrote the map of a salvage.
    has_map: bool,
    /// Dropping removes nothing: nothing was made yet, or the copy is a log by now, or the mark
    /// stays.
    is_over: bool,
}

impl Making {
    /// Begins a log that cannot be opened yet, with gaps up to `lost_to`. Removes what an earlier
    /// copy has left. Dropped
    /// before it is finished, it removes what it has made.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is a log already, or a file of a name that is made here;
    /// [`Error::Locked`] when another copy is running; errors of the file system.
    pub(super) fn begin(
        directory: AnyDirectory,
        options: Options,
        lost_to: Option<Lsn>,
    ) -> Result<Self> {
        // First without the lock, which would create a file.
        check_is_free(&directory)?;
        let lock = take_lock(&directory)?;
        let mut making =
            Self { directory, lock: Some(lock), log: None, has_map: false, is_over: true };
        let is_left = check_is_free(&making.directory)?;
        // Only what comes after this line may be removed.
        making.is_over = false;
        making.mark(is_left)?;
        making.open(Options { lost_to: lost_to.unwrap_or(Lsn::ZERO), ..options })?;
        Ok(making)
    }

    fn mark(&self, is_there: bool) -> Result<()> {
        if is_there {
            // The map too: it cannot be the user's, since the mark is only created where there is
            // no map.
            self.remove_log(true)?;
        } else {
            let mark = self.directory.open(names::INCOMPLETE, &OpenFile::new_file())?;
            let _no_signal = NoSizeSignal::here();
            // The text is for people, so the write may fail: a full disk has no block for it.
            let _ = mark.write_at(NOTE, 0);
        }
        Ok(self.directory.sync()?)
    }

    fn open(&mut self, options: Options) -> Result<()> {
        let Some(lock) = self.lock.take() else { return Err(Error::Closed) };
        let options = Options { is_a_copy: true, create: true, ..options };
        self.log = Some(Log::open_locked(self.directory.clone(), options, lock)?);
        Ok(())
    }

    /// The log.
    ///
    /// # Errors
    /// Never: the log exists until the copy ends.
    pub(super) fn log(&self) -> Result<&Log> {
        self.log.as_ref().ok_or(Error::Closed)
    }

    /// Makes what is missing before this LSN a gap, so that the next record has this LSN.
    ///
    /// # Errors
    /// Those of writing a control group.
    pub(super) fn lose_before(&self, lsn: Lsn) -> Result<()> {
        let log = self.log()?;
        match lsn.before().filter(|last| *last > log.last()) {
            Some(last) => log.lose(last),
            None => Ok(()),
        }
    }

    /// Makes the log durable, and then lets it be opened. `beside` is the name and the bytes of a
    /// file to write beside it.
    ///
    /// # Errors
    /// As [`Log::close`]; errors of the file system. Then the copy is removed, or the mark stays.
    pub(super) fn finish(mut self, beside: Option<(&str, Vec<u8>)>) -> Result<()> {
        self.close()?;
        if let Some((name, bytes)) = beside {
            self.write(name, &bytes)?;
        }
        self.is_over = true;
        self.directory.remove(names::INCOMPLETE)?;
        Ok(self.directory.sync()?)
    }

    fn close(&mut self) -> Result<()> {
        let Some(log) = self.log.take() else { return Ok(()) };
        let (lock, closed) = log.close_to_lock();
        self.lock = lock;
        closed
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let file = match self.directory.open(name, &OpenFile::new_file()) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(in_the_way(&self.directory, name));
            }
            answer => answer?,
        };
        self.has_map = true;
        let _no_signal = NoSizeSignal::here();
        file.set_len(bytes.len() as u64)?;
        file.write_at(bytes, 0)?;
        file.sync(SyncKind::All)?;
        Ok(self.directory.sync()?)
    }

    /// Removes what was made. If a removal fails, the mark stays.
    fn give_up(&mut self) {
        let directory = &self.directory;
        // An opening that failed has dropped the lock. Another copy may have it by now, or have
        // finished.
        let lock = self.lock.take().or_else(|| take_lock(directory).ok());
        if lock.is_none() || !Listing::of_any(directory).is_ok_and(|listing| listing.is_incomplete)
        {
            return;
        }
        let _ = self.remove_log(self.has_map).and_then(|()| {
            self.directory.remove(names::INCOMPLETE)?;
            Ok(self.directory.sync()?)
        });
    }

    /// The caller keeps the mark until the removals are durable.
    fn remove_log(&self, with_map: bool) -> Result<()> {
        let is_ours = |name: &str| is_made_here(name) && (with_map || name != names::SALVAGE);
        for name in self.directory.list()?.iter().filter(|name| is_ours(name)) {
            self.directory.remove(name)?;
        }
        Ok(self.directory.sync()?)
    }
}

impl Drop for Making {
    /// Also after a panic of the caller's listener, which may panic again while the log is closed.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The error of the copy is the one to report, not this one.
        let closed = catch_unwind(AssertUnwindSafe(|| drop(self.close())));
        self.give_up();
        if let Err(payload) = closed
            && !panicking()
        {
            resume_unwind(payload);
        }
    }
}

/// Whether a file of this name is made under the mark, and removed when that fails. Only `salvage`
/// writes the map, but a mark does not say whether a copy or a salvage was killed.
fn is_made_here(name: &str) -> bool {
    names::parse(name).is_some() || [names::ROOM, names::SALVAGE].contains(&name)
}

/// Whether a copy that was killed has left files. Without a mark, a log is an error, and so is any
/// file with a name that is made here: it belongs to the user.
fn check_is_free(directory: &AnyDirectory) -> Result<bool> {
    let listing = Listing::of_any(directory)?;
    if listing.is_incomplete {
        if !is_mark(directory)? {
            return Err(in_the_way(directory, names::INCOMPLETE));
        }
        return Ok(true);
    }
    if listing.highest().is_some() {
        let why = format!(
            "{} already holds a log; choose a directory without one",
            directory.path().display()
        );
        return Err(Error::Invalid(why));
    }
    match directory.list()?.iter().find(|name| is_made_here(name)) {
        Some(name) => Err(in_the_way(directory, name)),
        None => Ok(false),
    }
}

/// Whether the file with the mark's name is a mark. Its text may be missing in part or whole: a
/// full disk has no block for it, and a power cut may leave zeros.
fn is_mark(directory: &AnyDirectory) -> Result<bool> {
    let mut bytes = [0; NOTE_BEGINS.len()];
    let file = directory.open(names::INCOMPLETE, &OpenFile::existing().read_only())?;
    let count = file.read_at(&mut bytes, 0)?;
    let bytes = &bytes[..count];
    Ok(NOTE_BEGINS.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0))
}

fn in_the_way(directory: &AnyDirectory, name: &str) -> Error {
    let at = directory.path();
    Error::Invalid(format!(
        "{} is in the way: a copy makes a file of this name; move it away, or choose a directory \
         other than {}",
        at.join(name).display(),
        at.display()
    ))
}
