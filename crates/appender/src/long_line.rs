//! A line that is put piece by piece.
//!
//! *Owns*: its turn, from its first piece to its end. *May not touch*: buffers, files.

use std::io;

use crate::shared::Shared;

/// A line that is being put, by [`crate::LogWriter::begin_line`]. It ends with [`LongLine::end`], when this is dropped, or when the log
/// is closed; its last piece has the line end. Others wait meanwhile.
#[derive(Debug)]
pub struct LongLine<'a> {
    shared: &'a Shared,
    /// Its pieces go into the buffers; else it is counted, and dropped at its end.
    is_taken: bool,
    bytes: u64,
    is_over: bool,
}

impl<'a> LongLine<'a> {
    pub(crate) fn begin(shared: &'a Shared) -> io::Result<Self> {
        let is_taken = shared.begin_line()?;
        Ok(Self { shared, is_taken, bytes: 0, is_over: false })
    }

    /// Puts its next piece.
    ///
    /// # Errors
    /// The log was closed, or this is a forked child: what was put before is the whole line.
    pub fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.is_taken {
            self.shared.push_piece(piece, self.bytes == 0)?;
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// Ends it.
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
