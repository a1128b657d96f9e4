//! Appends the lines that a killed process left in its stage file.
//!
//! *Owns*: how much of each buffer is in the log already, and appending the rest. *May not touch*:
//! the stage of a living process, which is locked.
//!
//! For a buffer that was being written, the file's bytes show how much is there: not its size,
//! since other processes may have appended, and another file may have its inode. Each buffer is
//! placed before it is appended and released after, so a kill in the middle of a recovery is a kill
//! like any other.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use inkstone_io::{Directory as _, Error, OsDirectory, Result};

use crate::buffer::Buffer;
use crate::disk::{Place, find, read};
use crate::event::Recovery;
use crate::output::Output;
use crate::passage::Passage;
use crate::stage_contents::Left;
use crate::time::later;

/// How often a full disk is retried.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How long a start waits for room on a full disk. By default it does not.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    until: Option<Instant>,
    /// A file is about to be rotated.
    is_arriving: bool,
    has_looked: bool,
}

impl Patience {
    pub(crate) fn new(at_most: Duration, is_arriving: bool) -> Self {
        Self { until: Some(later(Instant::now(), at_most)), is_arriving, has_looked: false }
    }

    /// Whether to try again after this error. Removes files above the limits first, but only if
    /// room is needed: a refused start must leave them.
    pub(crate) fn awaits_room(&mut self, output: &Output, error: &Error) -> bool {
        let Some(until) = self.until.filter(|_| error.is_full()) else { return false };
        if std::mem::replace(&mut self.has_looked, true) {
            if Instant::now() >= until {
                return false;
            }
            // Freed room becomes usable with the file system's next commit.
            thread::sleep(TRY_AGAIN_AFTER);
        }
        output.retention.make_room(&output.folder.get(), self.is_arriving);
        true
    }
}

/// Appends the lines that a killed process left, and empties its buffers.
pub(crate) fn recover(
    left: &mut Left,
    output: &mut Output,
    patience: &mut Patience,
) -> Result<Option<Recovery>> {
    let directory = output.folder.get();
    let mut run = Run { output, directory, patience, bytes: 0, doubt: None };
    for buffer in &mut left.buffers {
        run.append(buffer)?;
        buffer.release();
    }
    let Run { bytes, doubt, output, .. } = run;
    // What a killed process was reading may end within a line: nothing goes behind it.
    output.forget_where_it_ended();
    // Before anything reports that the lines were appended.
    output.sync_quietly();
    let process = left.head.as_ref().map_or(0, |head| head.process);
    let is_any = bytes > 0 || doubt.is_some();
    Ok(is_any.then_some(Recovery { process, bytes, doubt }))
}

/// What a file has where a buffer was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    All,
    /// The file ends with this many of its bytes.
    Begin(usize),
    /// This many of its bytes, followed by those of another process; or none.
    Cut(usize),
}

impl There {
    fn of(found: &[u8], bytes: &[u8]) -> Self {
        let same = found.iter().zip(bytes).take_while(|(found, byte)| found == byte).count();
        match same {
            all if all == bytes.len() => There::All,
            some if some == found.len() && some > 0 => There::Begin(some),
            some => There::Cut(some),
        }
    }

    /// How many bytes, of `all`.
    fn bytes(self, all: usize) -> usize {
        match self {
            There::All => all,
            There::Begin(some) | There::Cut(some) => some,
        }
    }
}

/// One recovery.
struct Run<'a> {
    output: &'a mut Output,
    directory: Arc<OsDirectory>,
    patience: &'a mut Patience,
    bytes: u64,
    doubt: Option<String>,
}

impl Run<'_> {
    /// Appends the missing part of one buffer.
    fn append(&mut self, buffer: &mut Buffer) -> Result<()> {
        let placed = buffer.placed();
        let (offset, elsewhere) = placed.map_or((0, 0), |placed| (placed.offset, placed.elsewhere));
        let found = placed.and_then(|at| find(&self.directory, &self.output.name, at.inode));
        if placed.is_some() {
            self.doubt_unless_there(found.as_ref().map(|(_, facts)| facts.len_bytes), offset);
        }
        let (len, rest) = (buffer.len(), &buffer.bytes()[elsewhere..]);
        let there = match &found {
            None => There::Cut(0),
            Some((file, _)) => self.look(file, offset, rest),
        };
        let done = elsewhere + there.bytes(rest.len());
        let is_moved = found.as_ref().is_some_and(|(file, _)| *file != self.output.name);
        let place = found.map(|(_, facts)| Place { offset, ..Place::end_of(facts) });
        let mut passage = Passage::at(place, elsewhere, done);
        if done == len {
            // It may not be durable.
            self.output.is_dirty = true;
            return Ok(());
        }
        let goes_on = matches!(there, There::Begin(_)) && !is_moved;
        let from = if goes_on { done } else { passage.resumes_at(buffer) };
        self.bytes += (len - from) as u64;
        let never = AtomicBool::new(false);
        loop {
            let facts = self.output.ready();
            match facts.and_then(|facts| passage.write(self.output, facts, buffer, &never)) {
                Ok(()) => return Ok(()),
                Err(error) if self.patience.awaits_room(self.output, &error) => {}
                Err(error) => return Err(stays(error)),
            }
        }
    }

    /// If the file of a buffer is missing or was truncated, it is unknown how much of the buffer
    /// went with it into a compressed form or a copy.
    fn doubt_unless_there(&mut self, len_bytes: Option<u64>, offset: u64) {
        let why = match len_bytes {
            None => "the file that they were for is missing: it was removed or compressed",
            Some(len) if len < offset => "its file was truncated or replaced",
            Some(_) => return,
        };
        let log = self.directory.path().join(&self.output.name);
        self.doubt = Some(format!("{}: {why}", log.display()));
    }

    /// Reads what the file has at this place.
    fn look(&mut self, file: &str, offset: u64, bytes: &[u8]) -> There {
        match read(&self.directory, file, offset, bytes.len()) {
            Ok(found) => There::of(&found, bytes),
            Err(error) => {
                self.doubt = Some(format!("the log cannot be read: {error}"));
                There::Cut(0)
            }
        }
    }
}

fn stays(error: Error) -> Error {
    error.advise(
        "the lines of the killed process stay in memory; put this right and open the log again",
    )
}
