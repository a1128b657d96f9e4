//! Writes one buffer to a file, or to several.
//!
//! *Owns*: how much of a buffer is in which file, and where it continues when a file ends in the
//! middle of it. *May not touch*: when a file is due ([`output`](crate::output)), how long to wait
//! after a failure ([`output_thread`](crate::output_thread), [`recover`](crate::recover)).
//!
//! A running log and a recovery write the same way. A buffer continues where it stopped if the file
//! still ends there. Otherwise (another process has appended, or the log is in another file now) it
//! continues with the line that was split, which is written again, whole. The lines before that one
//! are in the file, and are not repeated. A line whose beginning is in no buffer any more continues
//! where it was split, and so does one that had a whole file to itself and did not fit.

use inkstone_io::{AppendFacts, Error, Result};

use crate::buffer::Buffer;
use crate::disk::{Place, read};
use crate::event::Event;
use crate::output::Output;

/// How much of one buffer is in which file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Passage {
    pub(crate) done: usize,
    /// This many of those bytes are not at the place, but before it or in another file.
    pub(crate) elsewhere: usize,
    pub(crate) place: Option<Place>,
    /// The current line does not fit into any file.
    is_too_long: bool,
}

impl Passage {
    /// A passage of which `done` bytes are written already, after those that are elsewhere.
    pub(crate) fn at(place: Option<Place>, elsewhere: usize, done: usize) -> Self {
        Self { done, elsewhere, place, is_too_long: false }
    }

    /// Writes the rest. After a failure it may be called again with the same passage.
    pub(crate) fn advance(&mut self, output: &mut Output, buffer: &mut Buffer) -> Result<()> {
        loop {
            let error =
                match self.find_place(output, buffer).and_then(|()| self.append(output, buffer)) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                };
            if !self.ends_file(output, buffer, &error)? {
                return Err(error);
            }
        }
    }

    /// Whether the file may end here: the next byte begins a line.
    pub(crate) fn is_between_lines(&self, buffer: &Buffer) -> bool {
        begins_line(buffer, self.resumes_at(buffer))
    }

    /// Where it resumes if it cannot continue where it stopped.
    pub(crate) fn resumes_at(&self, buffer: &Buffer) -> usize {
        if self.is_too_long {
            return self.done;
        }
        let line = buffer.bytes()[..self.done].iter().rposition(|byte| *byte == b'\n');
        line.map_or(if buffer.begins() { 0 } else { self.done }, |end| end + 1)
    }

    fn find_place(&mut self, output: &mut Output, buffer: &mut Buffer) -> Result<()> {
        let mut facts = output.ready()?;
        // Another file may have its inode by now. What is elsewhere stays there.
        let lost = output.lost.take();
        if self.place.is_some_and(|place| lost == Some(place.file())) {
            *self = Self::at(None, self.elsewhere, self.elsewhere);
        }
        if let Some(away) = output.away {
            self.came_back(output, buffer, away, facts)?;
            output.away = None;
        }
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

    /// The disk was away. What the file had taken may not have reached the medium: only what it has
    /// now counts.
    fn came_back(
        &mut self,
        output: &mut Output,
        buffer: &Buffer,
        away: Place,
        facts: AppendFacts,
    ) -> Result<()> {
        // Mounted again, a file keeps its own number. Another file says nothing about this one.
        if away.inode != facts.inode {
            return Ok(());
        }
        let own = self.place.filter(|place| place.file() == away.file());
        // A write that failed with the disk may have reached it all the same.
        let wanted = &buffer.bytes()[self.elsewhere..];
        let same = own.map_or(Ok(0), |place| {
            let found = read(&*output.folder.get()?, &output.name, place.offset, wanted.len())?;
            Ok(found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count())
        })?;
        if let Some(place) = own {
            self.done = self.elsewhere + same;
            self.place = Some(Place { device: facts.device, ..place });
        }
        let end = own.map_or(away.offset, |place| place.offset);
        let bytes = end.saturating_sub(facts.len_bytes);
        if bytes > 0 {
            output.vanished_bytes += bytes;
            output.events.tell(&Event::Vanished { bytes });
        }
        Ok(())
    }

    fn append(&mut self, output: &mut Output, buffer: &Buffer) -> Result<()> {
        while self.done < buffer.bytes().len() {
            self.done += output.append(&buffer.bytes()[self.done..])?;
        }
        Ok(())
    }

    /// Starts another file if this one may not grow further (`ulimit -f`); true if it did.
    fn ends_file(&mut self, output: &mut Output, buffer: &Buffer, error: &Error) -> Result<bool> {
        if !Output::is_limit(error) {
            return Ok(false);
        }
        let facts = output.ready()?;
        // The file holds only the current line: written again, whole, it would not fit into the
        // next file either.
        let has_one_line =
            self.is_end_of(facts) && (self.done - self.elsewhere) as u64 == facts.len_bytes;
        let is_too_long = has_one_line && self.resumes_at(buffer) <= self.elsewhere;
        let is_another = output.end_at_limit(error, facts);
        self.is_too_long |= is_another && is_too_long;
        Ok(is_another)
    }

    /// Whether the file ends with the bytes done, so that the rest goes there.
    fn is_end_of(&self, facts: AppendFacts) -> bool {
        let here = (self.done - self.elsewhere) as u64;
        let ends_here = |place: Place| place.is_in(facts) && place.offset + here == facts.len_bytes;
        here > 0 && self.place.is_some_and(ends_here)
    }
}

fn begins_line(buffer: &Buffer, at: usize) -> bool {
    match at.checked_sub(1) {
        None => buffer.begins(),
        Some(before) => buffer.bytes()[before] == b'\n',
    }
}
