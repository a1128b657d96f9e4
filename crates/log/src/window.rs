//! A piece of a segment's file in memory, and a decoder that walks it.
//!
//! *Owns*: which bytes are in memory. *May not touch*: what a stop means.
//!
//! Reads are aligned in memory, offset and length, so that the same code serves O_DIRECT.

use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, FRAME_HEADER_BYTES};
use inkstone_format::{Batch, Decoder, GroupStart, Kind, Lsn, Step, Stop};
use inkstone_io::{AlignedBuf, File};

use crate::ahead::{PIECE_BYTES, Pieces};
use crate::error::Result;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Consecutive bytes of a file.
#[derive(Debug)]
pub(crate) struct Window<F> {
    file: Arc<F>,
    memory: AlignedBuf,
    at: u64,
    len: usize,
    /// Reads ahead, where that was asked for.
    ahead: Option<Box<dyn Pieces>>,
}

impl<F: File> Window<F> {
    /// Nothing read yet; reads will be of `bytes` bytes, or more where a frame is larger.
    pub(crate) fn new(file: Arc<F>, bytes: usize) -> Self {
        let memory = AlignedBuf::zeroed(bytes.next_multiple_of(BLOCK_BYTES));
        Self { file, memory, at: 0, len: 0, ahead: None }
    }

    /// With several reads in flight, for who reads on and on.
    pub(crate) fn read_by(self, ahead: Box<dyn Pieces>) -> Self {
        Self { ahead: Some(ahead), ..self }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Forgets what was read: the file may have changed.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
    }

    /// `len` bytes from `at`, which are in memory.
    pub(crate) fn slice(&self, at: u64, len: usize) -> &[u8] {
        let from = (at - self.at) as usize;
        &self.bytes()[from..from + len]
    }

    /// Reads so that `len` bytes from `at` are in memory, as far as the file has them.
    pub(crate) fn load(&mut self, at: u64, len: usize) -> Result<()> {
        let start = at / BLOCK * BLOCK;
        let needed = ((at - start) as usize + len).next_multiple_of(BLOCK_BYTES);
        if let Some(mut ahead) = self.ahead.take() {
            let loaded = self.load_ahead(ahead.as_mut(), start, needed);
            self.ahead = Some(ahead);
            return loaded;
        }
        if needed > self.memory.len() {
            self.memory = AlignedBuf::zeroed(needed);
        }
        self.len = 0;
        self.at = start;
        self.len = self.file.read_at(&mut self.memory, start)?;
        Ok(())
    }

    /// Keeps what is in memory from `start` on, and puts pieces behind it until `needed` bytes are there.
    fn load_ahead(&mut self, ahead: &mut dyn Pieces, start: u64, needed: usize) -> Result<()> {
        let end = self.at + self.len as u64;
        let kept = if (self.at..end).contains(&start) { (end - start) as usize } else { 0 };
        if self.memory.len() < needed + PIECE_BYTES {
            let mut memory = AlignedBuf::zeroed(needed + PIECE_BYTES);
            memory[..kept].copy_from_slice(&self.memory[self.len - kept..self.len]);
            self.memory = memory;
        } else {
            self.memory.copy_within(self.len - kept..self.len, 0);
        }
        (self.at, self.len) = (start, kept);
        while self.len < needed {
            let (piece, len) = ahead.piece(self.at + self.len as u64)?;
            self.memory[self.len..self.len + len].copy_from_slice(&piece[..len]);
            self.len += len;
            if len < PIECE_BYTES {
                // The file ends.
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What a step of reading found; payloads are fetched from the window.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item {
    GroupStart(GroupStart),
    Frame(FrameAt),
    GroupEnd,
    Stop(Stop),
}

/// A frame by its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameAt {
    pub(crate) at: u64,
    pub(crate) lsn: Lsn,
    pub(crate) kind: Kind,
    pub(crate) batch: Batch,
    pub(crate) payload_bytes: usize,
    pub(crate) end: u64,
}

/// A decoder over a window.
#[derive(Debug)]
pub(crate) struct Walk<F> {
    pub(crate) window: Window<F>,
    pub(crate) decoder: Decoder,
}

impl<F: File> Walk<F> {
    pub(crate) fn new(window: Window<F>, decoder: Decoder) -> Self {
        Self { window, decoder }
    }

    /// The next step.
    pub(crate) fn step(&mut self) -> Result<Item> {
        loop {
            match self.decoder.step(self.window.bytes(), self.window.at()) {
                Step::NeedBytes { at, bytes } => {
                    self.window.load(at, bytes)?;
                    if self.window.len < ((at - self.window.at) as usize) + bytes {
                        // The file has become shorter since its size was asked: nobody of ours does that.
                        let why = "the file ends before the bytes that its size promised";
                        let path = self.window.file.path();
                        return Err(inkstone_io::Error::invalid("pread", path, why).at(at).into());
                    }
                }
                Step::GroupStart(start) => return Ok(Item::GroupStart(start)),
                Step::Frame(frame) => {
                    return Ok(Item::Frame(FrameAt {
                        at: frame.at,
                        lsn: frame.lsn,
                        kind: frame.kind,
                        batch: frame.batch,
                        payload_bytes: frame.payload.len(),
                        end: frame.end(),
                    }));
                }
                Step::GroupEnd(_) => return Ok(Item::GroupEnd),
                Step::Stop(stop) => return Ok(Item::Stop(stop)),
            }
        }
    }

    /// The payload of the frame that the last step gave.
    pub(crate) fn payload(&self, frame: &FrameAt) -> &[u8] {
        self.window.slice(frame.at + FRAME_HEADER_BYTES as u64, frame.payload_bytes)
    }

    /// Walks to the stop.
    pub(crate) fn run_to_stop(&mut self) -> Result<Stop> {
        loop {
            if let Item::Stop(stop) = self.step()? {
                return Ok(stop);
            }
        }
    }
}
