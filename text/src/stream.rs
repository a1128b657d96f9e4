//! Text that comes as a stream, whose lines may take long to end.
//!
//! *Owns*: putting it as it comes, lines complete or not, and what is dropped of it. *May not
//! touch*: which buffer has it ([`state`](crate::state)), what a kill leaves of what was read
//! ([`inbox`](crate::inbox)).

use std::io;

use crate::buffer::Sum;
use crate::shared::{Held, Patience, Shared, closed};
use crate::state::{Life, Turn};

/// A stream of text, from [`LogWriter::begin_stream`](crate::LogWriter::begin_stream). Its last
/// line ends when this is dropped, or when the log is closed. Other writers wait while a line of it
/// has not ended, and no file ends within it.
#[derive(Debug)]
pub struct Stream<'a> {
    shared: &'a Shared,
    /// The beginning of a line is in the log, and its end is not.
    is_begun: bool,
    /// The beginning of a line was dropped, so what follows of it is, too.
    is_dropping: bool,
}

impl<'a> Stream<'a> {
    pub(crate) fn begin(shared: &'a Shared) -> io::Result<Self> {
        drop(Held::of(shared)?);
        let mut inbox = shared.inbox();
        if inbox.is_taken {
            return Err(io::Error::other("a log takes one stream at a time: end the other one"));
        }
        inbox.take().map_err(|error| io::Error::new(error.kind(), error))?;
        drop(inbox);
        Ok(Self { shared, is_begun: false, is_dropping: false })
    }

    /// The most bytes of one [`Stream::put`].
    pub fn put_bytes_max(&self) -> usize {
        // One is left, to end a line.
        self.shared.lock().current.capacity() - 1
    }

    /// Has `read` read up to so many bytes into memory that survives what the lines survive, and
    /// appends them to `into`. All that was read before was put.
    ///
    /// # Errors
    /// That of `read`, which says how many bytes it has read.
    pub fn read<E>(
        &mut self,
        into: &mut Vec<u8>,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if self.shared.is_child() {
            // It does not have the memory; putting is an error.
            let mut room = vec![0; most.max(1)];
            return read(&mut room).map(|count| into.extend_from_slice(&room[..count]));
        }
        let mut inbox = self.shared.inbox();
        let is_within = self.is_begun || self.is_dropping;
        inbox.read(most, is_within, read).map(|bytes| into.extend_from_slice(bytes))
    }

    /// Puts text, whose lines end with line ends; `to`: it is made of what was read last, up to
    /// this byte. A kill loses all of it or nothing. Where the policy drops lines, it drops all of
    /// it, and what follows of its last line: true if a line was cut, which then has an end, and
    /// whose rest counts as a dropped line of its own.
    ///
    /// # Errors
    /// The log is closed, this is a forked child, or the text is longer than
    /// [`Stream::put_bytes_max`].
    pub fn put(&mut self, text: &[u8], to: usize) -> io::Result<bool> {
        let mut held = Held::of(self.shared)?;
        let end = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
        let (dropped, text) = text.split_at(if self.is_dropping { end } else { 0 });
        held.drop_lines(0, dropped.len() as u64);
        self.is_dropping &= !dropped.ends_with(b"\n");
        if text.is_empty() {
            self.shared.inbox().is_dropped(to);
            return Ok(false);
        }
        if text.len() >= held.current.capacity() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "more than fits into a buffer",
            ));
        }
        let sum = if self.shared.is_kept { Sum::of(text) } else { Sum::default() };
        let mut patience = Patience::new(self.shared.when_full);
        loop {
            if held.life != Life::Open {
                return Err(closed());
            }
            let has_turn = held.turn == if self.is_begun { Turn::InPieces } else { Turn::Free };
            if has_turn && (text.len() < held.current.room() || held.hand_over()) {
                let (number, offset) = (held.current.number(), held.current.len());
                self.shared.inbox().goes(to, number, offset);
                held.put_text(text, sum, self.is_begun);
                self.is_begun = held.goes_on;
                break;
            }
            if !held.make_room(&mut patience) {
                self.shared.inbox().is_dropped(to);
                held.drop_lines(
                    text.split_inclusive(|byte| *byte == b'\n').count() as u64,
                    text.len() as u64,
                );
                self.is_dropping = !text.ends_with(b"\n");
                let is_cut = std::mem::take(&mut self.is_begun);
                if is_cut {
                    held.put_text(b"\n", Sum::of(b"\n"), true);
                }
                held.end_turn(is_cut);
                return Ok(is_cut);
            }
        }
        held.end_put();
        Ok(false)
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if self.shared.is_child() {
            return;
        }
        self.shared.inbox().is_taken = false;
        if let Ok(mut held) = Held::of(self.shared)
            // Otherwise closing has ended it.
            && self.is_begun && held.turn == Turn::InPieces
        {
            held.end_pieces();
            held.end_turn(true);
        }
    }
}
