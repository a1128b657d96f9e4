//! A line that comes in pieces.
//!
//! *Owns*: its turn, from its first piece to its end. *May not touch*: buffers, files.

use std::io;

use crate::shared::Shared;

/// A line that comes in pieces, from [`crate::LogWriter::begin_line`]. It ends with
/// [`LongLine::end`], when this is dropped, or when the log is closed. Its last piece contains the
/// line end. Other writers wait meanwhile.
#[derive(Debug)]
pub struct LongLine<'a> {
    shared: &'a Shared,
    /// Its pieces go into the buffers; otherwise they are counted, and the line is dropped at its
    /// end.
    is_taken: bool,
    bytes: u64,
    is_over: bool,
}

impl<'a> LongLine<'a> {
    pub(crate) fn begin(shared: &'a Shared) -> io::Result<Self> {
        let is_taken = shared.begin_line()?;
        Ok(Self { shared, is_taken, bytes: 0, is_over: false })
    }

    /// Puts the next piece.
    ///
    /// # Errors
    /// The log was closed, or this is a forked child: the pieces put so far are the whole line.
    pub fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.is_taken {
            self.shared.push_piece(piece, self.bytes == 0)?;
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Ends the line.
    ///
    /// # Errors
    /// As [`LongLine::push`].
    pub fn end(mut self) -> io::Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        self.shared.end_line(self.is_taken, self.bytes)
    }
}

impl Drop for LongLine<'_> {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
