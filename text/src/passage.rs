//! Writes one buffer to a file, or to several.
//!
//! *Owns*: how much of a buffer is in which file, and where it continues when a file ends in the
//! middle of it. *May not touch*: whether a file is due ([`output`](crate::output)), how long to wait
//! after a failure ([`output_thread`](crate::output_thread), [`recover`](crate::recover)).
//!
//! A running log and a recovery write the same way. A buffer continues where it stopped if the file
//! still ends there. Otherwise (another process has appended, or the log is in another file now) it
//! continues with the line that was split, which is written again, whole. The lines before that one
//! are in the file, and are not repeated. A line whose beginning is in no buffer any more continues
//! where it was split.

use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_io::{AppendFacts, Result};

use crate::buffer::Buffer;
use crate::disk::Place;
use crate::output::Output;

/// How much of one buffer is in which file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Passage {
    pub(crate) done: usize,
    /// This many of those bytes are not at the place, but before it or in another file.
    pub(crate) elsewhere: usize,
    pub(crate) place: Option<Place>,
}

impl Passage {
    /// A passage of which `done` bytes are written already, after those that are elsewhere.
    pub(crate) fn at(place: Option<Place>, elsewhere: usize, done: usize) -> Self {
        Self { done, elsewhere, place }
    }

    /// Writes the rest of the buffer. The file ends before a line of it if a new one is due, or if
    /// that is wished. After a failure it may be called again with the same passage.
    pub(crate) fn write(
        &mut self,
        output: &mut Output,
        facts: AppendFacts,
        buffer: &mut Buffer,
        reopen: &AtomicBool,
    ) -> Result<()> {
        // The rest of a line that goes on belongs to the same file: usually it is no longer.
        let rest = if buffer.bytes().ends_with(b"\n") { 0 } else { buffer.capacity() / 4 };
        let left = (buffer.len() - self.done + rest) as u64;
        if let Some(end) = self.rest_of_line(buffer)
            && (reopen.load(Ordering::Acquire) || output.is_due(facts, left))
        {
            // A stream may have no buffer that begins with a line.
            self.advance(output, buffer, end)?;
            if reopen.swap(false, Ordering::AcqRel) {
                output.reopen();
            }
            let facts = output.ready()?;
            return self.write(output, facts, buffer, reopen);
        }
        if self.is_between_lines(buffer) {
            output.rotate_if_due(facts, left);
        }
        let len = buffer.len();
        self.advance(output, buffer, len)
    }

    /// Writes the bytes up to `to`.
    fn advance(&mut self, output: &mut Output, buffer: &mut Buffer, to: usize) -> Result<()> {
        self.find_place(output, buffer)?;
        while self.done < to {
            self.done += output.append(&buffer.bytes()[self.done..to])?;
        }
        Ok(())
    }

    /// Where the bytes done end.
    pub(crate) fn end(&self) -> Option<Place> {
        let here = (self.done - self.elsewhere) as u64;
        self.place.map(|place| Place { offset: place.offset + here, ..place })
    }

    /// Where the line ends with which the buffer begins, if that began in an earlier one: it
    /// belongs to the file that has its beginning.
    fn rest_of_line(&self, buffer: &Buffer) -> Option<usize> {
        let is_rest = self.done == 0 && !buffer.begins();
        let end = is_rest.then(|| buffer.bytes().iter().position(|byte| *byte == b'\n'));
        end.flatten().map(|at| at + 1)
    }

    /// Whether the file may end here: the next byte begins a line.
    fn is_between_lines(&self, buffer: &Buffer) -> bool {
        begins_line(buffer, self.resumes_at(buffer))
    }

    /// Where it resumes if it cannot continue where it stopped.
    pub(crate) fn resumes_at(&self, buffer: &Buffer) -> usize {
        let line = buffer.bytes()[..self.done].iter().rposition(|byte| *byte == b'\n');
        line.map_or(if buffer.begins() { 0 } else { self.done }, |end| end + 1)
    }

    fn find_place(&mut self, output: &mut Output, buffer: &mut Buffer) -> Result<()> {
        let mut facts = output.ready()?;
        if self.is_end_of(facts) {
            return Ok(());
        }
        let begin = self.resumes_at(buffer);
        if begins_line(buffer, begin) && output.end_others_line(facts)? {
            facts = output.ready()?;
        }
        let place = Place::end_of(facts);
        buffer.place(place, begin);
        *self = Self::at(Some(place), begin, begin);
        Ok(())
    }

    /// Whether the file ends with the bytes done, so that the rest goes there.
    fn is_end_of(&self, facts: AppendFacts) -> bool {
        let ends_here = |end: Place| end.is_in(facts) && end.offset == facts.len_bytes;
        self.done > self.elsewhere && self.end().is_some_and(ends_here)
    }
}

fn begins_line(buffer: &Buffer, at: usize) -> bool {
    match at.checked_sub(1) {
        None => buffer.begins(),
        Some(before) => buffer.bytes()[before] == b'\n',
    }
}
