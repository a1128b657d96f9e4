//! One buffer on its way into the file, or into several.
//!
//! *Owns*: how much of a buffer is in which file, and where it goes on when a file ends in the middle of it. *May not touch*: when a
//! file is due ([`crate::output`]), how long is waited after a failure ([`crate::back`], [`crate::recover`]).
//!
//! What a running log writes and what a start brings back goes the same way. A buffer goes on where it was left if the file still ends
//! there. Else (somebody wrote behind it, or the log goes on in another file) it goes on with the line that was cut, which is written
//! again, whole; the lines before that one are in the file, and are not repeated. A line of which the beginning is in no buffer any more
//! goes on where it was cut, and so does one that had a whole file to itself and did not fit.

use inkstone_io::{AppendFacts, Error, Result};

use crate::buffer::Place;
use crate::output::Output;

/// Bytes that are to go into a file, and whoever remembers where they went.
pub(crate) trait Source {
    fn bytes(&self) -> &[u8];

    /// The first bytes are the beginning of a line.
    fn begins(&self) -> bool;

    /// Remembers, before the first byte goes there, where they go, all but so many that are elsewhere already.
    fn place(&mut self, place: Place, elsewhere: usize) -> Result<()>;

    /// The first so many are in a file now, or in several; 0: what was is lost with its file.
    fn in_file(&mut self, done: usize);
}

/// How much of one buffer is in which file.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Passage {
    pub(crate) done: usize,
    /// So many bytes of that are not at the place, but before it, or in another file.
    pub(crate) elsewhere: usize,
    pub(crate) place: Option<Place>,
    /// The line that is being written does not fit into any file.
    is_too_long: bool,
}

impl Passage {
    /// So much is there already, behind what is elsewhere.
    pub(crate) fn at(place: Option<Place>, elsewhere: usize, done: usize) -> Self {
        Self { done, elsewhere, place, is_too_long: false }
    }

    /// Writes what is left. What fails may be tried again, with the same passage.
    pub(crate) fn advance(&mut self, output: &mut Output, source: &mut dyn Source) -> Result<()> {
        loop {
            let error = match self.find_place(output, source).and_then(|()| self.append(output, source)) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if !self.ends_file(output, source, &error)? {
                return Err(error);
            }
        }
    }

    /// Whether the file may end here: what comes next is the beginning of a line.
    pub(crate) fn is_between_lines(&self, source: &dyn Source) -> bool {
        begins_line(source, self.resumes_at(source))
    }

    /// Where it goes on when it cannot go on where it was left.
    pub(crate) fn resumes_at(&self, source: &dyn Source) -> usize {
        if self.is_too_long {
            return self.done;
        }
        let line = source.bytes()[..self.done].iter().rposition(|byte| *byte == b'\n');
        line.map_or(if source.begins() { 0 } else { self.done }, |end| end + 1)
    }

    fn find_place(&mut self, output: &mut Output, source: &mut dyn Source) -> Result<()> {
        let mut facts = output.ready()?;
        // Another file may have its number by now.
        let lost = output.lost.take();
        if self.place.is_some_and(|place| lost == Some((place.device, place.inode))) {
            *self = Self::default();
            source.in_file(0);
        }
        if self.is_end_of(facts) {
            return Ok(());
        }
        let begin = self.resumes_at(source);
        if begins_line(source, begin) && output.end_others_line(facts)? {
            facts = output.ready()?;
        }
        let place = Place { device: facts.device, inode: facts.inode, offset: facts.len_bytes };
        source.place(place, begin)?;
        *self = Self::at(Some(place), begin, begin);
        Ok(())
    }

    fn append(&mut self, output: &mut Output, source: &mut dyn Source) -> Result<()> {
        loop {
            self.done += output.append(&source.bytes()[self.done..])?;
            if self.done >= source.bytes().len() {
                return Ok(());
            }
            source.in_file(self.done);
        }
    }

    /// Whether another file has taken the place of the one that would take no more (`ulimit -f`).
    fn ends_file(&mut self, output: &mut Output, source: &dyn Source, error: &Error) -> Result<bool> {
        if !Output::is_limit(error) {
            return Ok(false);
        }
        let facts = output.ready()?;
        // Nothing but the line that is being written is in it: written again, whole, that would not fit into the next one either.
        let has_one_line = self.is_end_of(facts) && (self.done - self.elsewhere) as u64 == facts.len_bytes;
        let is_too_long = has_one_line && self.resumes_at(source) <= self.elsewhere;
        let is_another = output.end_at_limit(error, facts);
        self.is_too_long |= is_another && is_too_long;
        Ok(is_another)
    }

    /// The file ends with what is done, so that the rest goes there.
    fn is_end_of(&self, facts: AppendFacts) -> bool {
        let here = (self.done - self.elsewhere) as u64;
        let ends_here = |place: Place| place.offset + here == facts.len_bytes;
        here > 0 && self.is_in(facts) && self.place.is_some_and(ends_here)
    }

    fn is_in(&self, facts: AppendFacts) -> bool {
        self.place.is_some_and(|place| (place.device, place.inode) == (facts.device, facts.inode))
    }
}

fn begins_line(source: &dyn Source, at: usize) -> bool {
    match at.checked_sub(1) {
        None => source.begins(),
        Some(before) => source.bytes()[before] == b'\n',
    }
}
