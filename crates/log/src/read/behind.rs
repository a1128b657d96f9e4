//! Pieces of a log for a cursor that comes right behind a writer of another process.
//!
//! *Owns*: from where a cursor gets the last bytes of the head: from memory, or read up to the byte
//! that is durable and no further. *May not touch*: what is durable (`view.rs`). Everything else is
//! read ahead (`walk/ahead.rs`).

use inkstone_io::AlignedBuf;
use std::sync::Arc;

use inkstone_format::limits::BLOCK_BYTES;
use inkstone_format::{Prover, SegmentNumber};

use crate::error::Result;
use crate::read::view::View;
use crate::walk::ahead::{Ahead, PIECE_BYTES, Piece, Pieces, Stretch};

/// If no more than this is left of the log, nothing is read ahead.
const LITTLE_BYTES: u64 = 256 << 10;

/// Pieces of a log that another process may be writing.
pub(crate) struct Behind {
    view: Arc<View>,
    now: Stretch,
    ahead: Ahead,
}

impl Behind {
    pub(crate) fn new(view: Arc<View>, now: Stretch, ahead: Ahead) -> Self {
        Self { view, now, ahead }
    }

    /// How many bytes to read at `at` without reading ahead; `None` to read ahead.
    fn few(&self, number: SegmentNumber, at: u64) -> Option<usize> {
        let left = self.view.end_of_durable(number)?.checked_sub(at).filter(|left| *left > 0)?;
        let is_new = self.now.end.is_none_or(|end| at >= end);
        (is_new || left <= LITTLE_BYTES).then_some(left.min(PIECE_BYTES as u64) as usize)
    }
}

impl Pieces for Behind {
    fn piece(
        &mut self,
        at: u64,
        spare: Option<AlignedBuf>,
        prover: Option<Prover>,
    ) -> Result<Piece> {
        let number = self.now.number;
        let Some(len) = self.few(number, at) else { return self.ahead.piece(at, spare, prover) };
        let enough = spare.filter(|spare| spare.len() >= len);
        let mut memory =
            enough.unwrap_or_else(|| AlignedBuf::zeroed(len.next_multiple_of(BLOCK_BYTES)));
        let mut read = len;
        if !self.view.copy_fresh(number, at, &mut memory[..len]) {
            read = self.now.file.read_at(&mut memory[..len], at)?;
        }
        Ok(Piece { memory, len: read, proof: None })
    }

    fn forget(&mut self) -> Result<()> {
        self.ahead.forget()
    }

    fn go_on(&mut self, stretch: Stretch) -> Result<()> {
        self.now = stretch.clone();
        self.ahead.go_on(stretch)
    }

    fn follow(&mut self, next: Stretch) {
        self.ahead.follow(next);
    }
}
