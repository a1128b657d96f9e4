//! New files: their blocks are durable before the file gets a segment's name.
//!
//! *Owns*: how blocks are made, and the disk budget. *May not touch*: what a file is for.

use std::io::ErrorKind;
use std::time::Duration;

use inkstone_format::SegmentNumber;
use inkstone_io::{Access, AlignedBuf, File, NoSizeSignal, OpenFile, Preparation, SyncKind};

use crate::error::Error;
use crate::names;
use crate::options::Options;
use crate::segment::pool::{
    Blocks, Made, ObtainError, Obtained, Pool, UNNAMED_MAX, Unnamed, no_room, no_room_or,
};
use crate::sync::{Instant, lock};

/// Zeros are written in pieces of this size: large enough for the device, small enough that a
/// commit that comes behind one hardly waits.
const CHUNK_BYTES: usize = 64 << 10;

/// The progress of writing zeros to a new file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) left_bytes: u64,
    /// How long the last piece took.
    pub(crate) took: Duration,
    pub(crate) piece_bytes: u64,
}

/// Called between pieces of zeros; `false` stops.
pub(crate) type Pacing<'a> = &'a mut dyn FnMut(Progress) -> bool;

impl Pool {
    /// A new file with durable blocks. It has no segment's name yet.
    pub(super) fn make(
        &self,
        bytes: u64,
        options: &Options,
        reserve: bool,
        rest: Pacing<'_>,
    ) -> Obtained<Made> {
        let budget = options.disk_budget_bytes;
        let is_over = || {
            budget.is_some_and(|budget| lock(&self.files).used_bytes.saturating_add(bytes) > budget)
        };
        // Before a caller is refused, surplus files are removed.
        let mut unnamed = Unnamed::new();
        while is_over() {
            if unnamed.len() == UNNAMED_MAX {
                self.cut(std::mem::take(&mut unnamed))?;
            }
            match self.remove_some(Duration::ZERO, &mut unnamed) {
                Ok(true) => {}
                Err(poison @ ObtainError::Poison(_)) => return Err(poison),
                Ok(false) | Err(ObtainError::Retry(_)) => break,
            }
        }
        self.cut(unnamed)?;
        if is_over() {
            self.give_up_room();
        }
        if !self.take_bytes(bytes, options) {
            let why = "the log's disk budget (the option disk_budget_bytes) is used up";
            return Err(ObtainError::Retry(no_room(&self.directory, bytes, why)));
        }
        // The number in the name is new each time, so a file that could not be removed is never in
        // the way.
        let name = names::new(self.next_made());
        let made = self.make_blocks(&name, bytes, options, reserve, rest);
        made.map(|blocks| Made { name: name.clone(), spare: None, blocks }).inspect_err(|_| {
            // Nothing relies on a file that never had a segment's name.
            let _ = self.directory.remove(&name);
            self.give_bytes(bytes);
        })
    }

    fn next_made(&self) -> SegmentNumber {
        let mut files = lock(&self.files);
        files.made = files.made.map_or(Some(SegmentNumber::FIRST), SegmentNumber::next);
        files.made.unwrap_or(SegmentNumber::FIRST)
    }

    fn make_blocks(
        &self,
        name: &str,
        bytes: u64,
        options: &Options,
        reserve: bool,
        rest: Pacing<'_>,
    ) -> Obtained<Blocks> {
        let retry = |error| ObtainError::Retry(no_room_or(bytes, error));
        let _no_signal = NoSizeSignal::here();
        let file = self.directory.open(name, &OpenFile::new_file()).map_err(retry)?;
        let is_reserved = reserve || options.preparation_chosen() == Preparation::Fallocate;
        let way = if is_reserved { Preparation::Fallocate } else { Preparation::WriteZeroes };
        let blocks = match file.prepare(way, bytes) {
            Err(error) if error.is_not_here() => {
                if is_reserved {
                    self.note_no_fallocate(&error);
                }
                let access = options.access_chosen();
                self.write_zeros(&*file, (name, access), bytes, rest).map_err(retry)?;
                Blocks::Written
            }
            Err(error) => return Err(retry(error)),
            Ok(()) if is_reserved => Blocks::Reserved,
            Ok(()) => Blocks::Written,
        };
        // Nothing relies on the file yet. But a device that fails a flush may have dropped the
        // log's own writes from its cache, and report success for their flush.
        file.sync(SyncKind::All).map_err(|error| match no_room_or(bytes, error) {
            full @ Error::NoRoom { .. } => ObtainError::Retry(full),
            failed => ObtainError::Poison(failed),
        })?;
        Ok(blocks)
    }

    /// Notes, the first time, that zeros are written because blocks cannot be reserved.
    fn note_no_fallocate(&self, error: &inkstone_io::Error) {
        let mut files = lock(&self.files);
        if !std::mem::replace(&mut files.lacks_fallocate, true) {
            files.notice = Some(format!(
                "this file system cannot reserve blocks (fallocate: {error}): new segments are \
                 filled with zeros instead, so that every byte is written twice"
            ));
        }
    }

    /// Writes zeros piece by piece, past the page cache if the log writes so and it works: from the
    /// cache they would be written all at once and delay commits. The blocks are reserved first, so
    /// that they lie together.
    fn write_zeros(
        &self,
        file: &dyn File,
        (name, access): (&str, Access),
        bytes: u64,
        rest: Pacing<'_>,
    ) -> inkstone_io::Result<()> {
        match file.prepare(Preparation::Fallocate, bytes) {
            Err(error) if error.is_not_here() => {}
            done => done?,
        }
        let mut past = match access {
            Access::Direct => self.directory.open(name, &OpenFile::existing().access(access)).ok(),
            _ => None,
        };
        let zeros = AlignedBuf::zeroed(CHUNK_BYTES.min(bytes as usize));
        let mut at = 0;
        while at < bytes {
            let piece = (zeros.len() as u64).min(bytes - at);
            let started = Instant::now();
            match past.as_deref().unwrap_or(file).write_at(&zeros[..piece as usize], at) {
                // O_DIRECT was taken at the opening and is refused at the write.
                Err(error) if error.is_not_here() && past.is_some() => {
                    past = None;
                    continue;
                }
                done => done?,
            }
            at += piece;
            let progress =
                Progress { left_bytes: bytes - at, took: started.elapsed(), piece_bytes: piece };
            if !rest(progress) {
                return Err(inkstone_io::Error::new(
                    "prepare",
                    file.path(),
                    ErrorKind::Interrupted,
                ));
            }
        }
        Ok(())
    }
}
