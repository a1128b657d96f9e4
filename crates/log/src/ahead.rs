//! Several reads in flight: large ones in the order in which a segment is read, and the first blocks of many segments.
//!
//! *Owns*: the reads. *May not touch*: what was read. One read at a time leaves a device idle between two; four keep it
//! busy.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use inkstone_format::limits::HEADER_BYTES;
use inkstone_format::{FileHeader, HeaderBlock, SegmentNumber};
use inkstone_io::{AlignedBuf, Directory, Engine, EngineKind, Operation, Request};

use crate::error::Result;

/// Bytes of a read.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// Reads in flight.
const DEPTH: usize = 4;

/// Pieces of a file, one after the other.
pub(crate) trait Pieces: Send {
    /// The piece that begins at byte `at`, with its length; the same memory comes back with the next call. Reading begins
    /// there if it was elsewhere.
    fn piece(&mut self, at: u64) -> Result<(&AlignedBuf, usize)>;
}

/// Pieces read ahead by an engine.
pub(crate) struct Ahead<D: Directory> {
    engine: D::Engine,
    file: Arc<D::File>,
    end: u64,
    /// Where the pieces that are in flight or done begin, ascending; done ones have their memory.
    pieces: VecDeque<(u64, Option<(AlignedBuf, usize)>)>,
    /// Where the next read begins.
    next: u64,
    shown: Option<AlignedBuf>,
}

impl<D: Directory> Ahead<D> {
    /// Over a file of `end` bytes; nothing is read yet.
    ///
    /// # Errors
    /// When the engine is not to be had.
    pub(crate) fn new(directory: &D, file: Arc<D::File>, end: u64) -> Result<Self> {
        let engine = directory.engine(EngineKind::Pool, DEPTH)?;
        Ok(Self { engine, file, end, pieces: VecDeque::new(), next: 0, shown: None })
    }

    fn submit(&mut self, memory: AlignedBuf) -> Result<()> {
        let (at, len) = (self.next, memory.len());
        let operation = Operation::Read { buffer: memory, len, offset: at };
        self.engine.submit(Request { token: at, file: Arc::clone(&self.file), operation })?;
        self.pieces.push_back((at, None));
        self.next += len as u64;
        Ok(())
    }

    /// Takes one completion.
    fn wait(&mut self) -> Result<()> {
        let done = self.engine.complete()?.expect("a read is in flight");
        let read = done.result.inspect_err(|_| {
            // Nothing that is in flight is waited for any more; who calls again begins anew.
            self.pieces.clear();
            self.next = u64::MAX;
        })?;
        let place = self.pieces.iter_mut().find(|(at, _)| *at == done.token);
        if let (Some((_, piece)), Some(memory)) = (place, done.buffer) {
            *piece = Some((memory, read));
        }
        Ok(())
    }

    /// Begins again at another place.
    fn restart(&mut self, at: u64) -> Result<()> {
        while self.engine.in_flight() > 0 {
            self.wait()?;
        }
        self.pieces.clear();
        self.next = at;
        Ok(())
    }
}

impl<D: Directory> Pieces for Ahead<D> {
    fn piece(&mut self, at: u64) -> Result<(&AlignedBuf, usize)> {
        if self.pieces.front().map_or(self.next, |(first, _)| *first) != at {
            self.restart(at)?;
        }
        let mut spare = self.shown.take();
        while self.pieces.len() < DEPTH && (self.next < self.end || self.pieces.is_empty()) {
            let memory = spare.take().unwrap_or_else(|| AlignedBuf::zeroed(PIECE_BYTES));
            self.submit(memory)?;
        }
        while self.pieces.front().is_some_and(|(_, piece)| piece.is_none()) {
            self.wait()?;
        }
        let (memory, len) = self.pieces.pop_front().and_then(|(_, piece)| piece).expect("it was waited for");
        Ok((self.shown.insert(memory), len))
    }
}

/// The first blocks of many files, in whatever order they arrive.
pub(crate) struct FirstBlocks<D: Directory> {
    engine: D::Engine,
    spare: Vec<AlignedBuf>,
}

impl<D: Directory> FirstBlocks<D> {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// When the engine is not to be had.
    pub(crate) fn new(directory: &D) -> Result<Self> {
        Ok(Self { engine: directory.engine(EngineKind::Pool, DEPTH)?, spare: Vec::new() })
    }

    /// Begins to read one more; when enough are in flight, waits for one of them and puts it among `files`.
    pub(crate) fn read(
        &mut self,
        number: SegmentNumber,
        file: Arc<D::File>,
        files: &mut Vec<FileHeader>,
    ) -> Result<()> {
        if self.engine.in_flight() >= DEPTH {
            self.take(files)?;
        }
        let buffer = self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(HEADER_BYTES));
        let operation = Operation::Read { buffer, len: HEADER_BYTES, offset: 0 };
        Ok(self.engine.submit(Request { token: number.get(), file, operation })?)
    }

    /// Waits for one; false when none is in flight.
    pub(crate) fn take(&mut self, files: &mut Vec<FileHeader>) -> Result<bool> {
        let Some(done) = self.engine.complete()? else { return Ok(false) };
        let (read, buffer) = (done.result?, done.buffer.expect("a read gives its memory back"));
        let number = SegmentNumber::new(done.token).expect("it was a segment's number");
        files.push(FileHeader { number, block: HeaderBlock::classify(&buffer[..read]) });
        self.spare.push(buffer);
        Ok(true)
    }
}

impl fmt::Debug for dyn Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pieces")
    }
}
