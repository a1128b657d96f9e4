//! The files that segments are made of: obtained ready to be overwritten, and taken back.
//!
//! *Owns*: how a file becomes a segment's, and what becomes of it afterwards. *May not touch*: what is in it: headers and
//! groups are the writer's.
//!
//! A file gets a segment's name only when it has its full size, durably; the name is durable before anything is written
//! into it.

use std::sync::Arc;

use inkstone_format::SegmentNumber;
use inkstone_io::{Access, Directory, File, OpenFile, Preparation, SyncKind};

use crate::error::{Error, Result};
use crate::mistake::Mistake;
use crate::names;
use crate::options::Options;
use crate::recover::Listing;

/// The files of a log's directory that are not part of the log now, and the next number.
#[derive(Debug)]
pub(crate) struct Store<D> {
    directory: Arc<D>,
    free: Vec<SegmentNumber>,
    highest: Option<SegmentNumber>,
}

/// Why no file was obtained.
#[derive(Debug)]
pub(crate) enum ObtainError {
    /// Nothing has changed; it can be tried again.
    Retry(Error),
    /// A sync failed: what is on the medium is not known.
    Poison(Error),
}

impl<D: Directory> Store<D> {
    pub(crate) fn new(directory: Arc<D>, listing: &Listing) -> Self {
        Self { directory, free: listing.free.clone(), highest: listing.highest() }
    }

    /// A file of `bytes` bytes that has the name of a segment, durably: the blocks of an old one, else a new one.
    pub(crate) fn obtain(
        &mut self,
        bytes: u64,
        options: &Options,
    ) -> std::result::Result<(SegmentNumber, Arc<D::File>), ObtainError> {
        let number = match self.highest {
            Some(highest) => highest.next().ok_or(ObtainError::Retry(Error::UsedUp))?,
            None => SegmentNumber::FIRST,
        };
        let free = self.take_free(bytes);
        let old = match free {
            Some(free) => names::free(free),
            None => self.make(number, bytes, options)?,
        };
        let name = names::segment(number);
        let retry = |error: inkstone_io::Error| ObtainError::Retry(no_room_or(bytes, error));
        if let Err(error) = self.directory.rename(&old, &name) {
            // It has its old name and may be had again; a new file would be in the way of the next attempt, which
            // removes it if this does not succeed.
            match free {
                Some(free) => self.free.push(free),
                None => drop(self.directory.remove(&old)),
            }
            return Err(retry(error));
        }
        self.highest = Some(number);
        if !options.makes(Mistake::NoDirectorySync) {
            self.directory.sync().map_err(|error| ObtainError::Poison(error.into()))?;
        }
        let file = self.directory.open(&name, &open_for_groups(options)).map_err(retry)?;
        Ok((number, Arc::new(file)))
    }

    /// A free file of exactly this size whose blocks nobody else has. What does not fit is removed: sizes
    /// only change when the log grows up or its options change.
    fn take_free(&mut self, bytes: u64) -> Option<SegmentNumber> {
        while let Some(number) = self.free.pop() {
            let name = names::free(number);
            let fits = self.directory.open(&name, &OpenFile::existing()).and_then(|file| {
                let facts = file.facts()?;
                Ok(file.len_bytes()? == bytes && facts.hard_links == 1 && !facts.has_shared_extents)
            });
            if matches!(fits, Ok(true)) {
                return Some(number);
            }
            // Somebody's backup keeps its own link; a file that cannot be removed is found by the next opening.
            let _ = self.directory.remove(&name);
        }
        None
    }

    fn make(
        &mut self,
        number: SegmentNumber,
        bytes: u64,
        options: &Options,
    ) -> std::result::Result<String, ObtainError> {
        let name = names::new(number);
        let mut made = self.prepare(&name, bytes, options);
        if matches!(&made, Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists) {
            // An earlier attempt failed, and so did taking its file away. Nothing relies on it.
            made = self.directory.remove(&name).and_then(|()| self.prepare(&name, bytes, options));
        }
        made.map(|()| name.clone()).map_err(|error| {
            let _ = self.directory.remove(&name);
            // The file never had a segment's name: nothing relies on it.
            ObtainError::Retry(no_room_or(bytes, error))
        })
    }

    fn prepare(&self, name: &str, bytes: u64, options: &Options) -> inkstone_io::Result<()> {
        let how = OpenFile::new_file().access(Access::Buffered);
        let file = self.directory.open(name, &how)?;
        match options.preparation {
            Preparation::Zeros => file.prepare(Preparation::Zeros, bytes),
            other => {
                file.prepare(other, bytes)?;
                file.sync(SyncKind::All)
            }
        }
    }

    /// Takes back the file of a segment that is not the log's any more: its blocks are kept, or it is removed.
    pub(crate) fn retire(&mut self, number: SegmentNumber, options: &Options) -> Result<()> {
        let name = names::segment(number);
        if self.free.len() < options.free_segments_max {
            self.directory.rename(&name, &names::free(number))?;
            self.free.push(number);
        } else {
            self.directory.remove(&name)?;
        }
        Ok(())
    }

    /// Removes what earlier openings left: files that never became segments, and more free ones than are wanted. Gives
    /// how many.
    pub(crate) fn tidy(&mut self, listing: &Listing, options: &Options) -> Result<usize> {
        let mut removed = 0;
        for number in &listing.unfinished {
            self.directory.remove(&names::new(*number))?;
            removed += 1;
        }
        while self.free.len() > options.free_segments_max
            && let Some(number) = self.free.pop()
        {
            self.directory.remove(&names::free(number))?;
            removed += 1;
        }
        Ok(removed)
    }
}

fn no_room_or(needed_bytes: u64, error: inkstone_io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::NoRoom { needed_bytes, cause: error }
        }
        _ => error.into(),
    }
}

/// How the log opens a segment's file, for writing groups and for reading them.
pub(crate) fn open_for_groups(options: &Options) -> OpenFile {
    OpenFile::existing().access(options.access).durability(options.durability)
}
