//! A piece of a segment's file in memory, and a decoder that walks it.
//!
//! *Owns*: which bytes are in memory. *May not touch*: what a stop means.
//!
//! Reads are aligned in memory, offset and length, so the same code works with O_DIRECT.

use std::io;
use std::sync::Arc;

use inkstone_format::limits::{BLOCK_BYTES, FRAME_HEADER_BYTES};
use inkstone_format::{
    Batch, Decoder, Frame, GroupStart, Kind, Lsn, NewPlaces, Proof, Prover, Step, Stop, Tail,
};
use inkstone_io::{AlignedBuf, File};

use crate::error::Result;
use crate::walk::ahead::Pieces;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Consecutive bytes of a file.
#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<dyn File>,
    /// What was read last: a piece, if it is read ahead.
    memory: Option<AlignedBuf>,
    /// The part whose sums were checked already.
    proof: Option<Proof>,
    at: u64,
    len: usize,
    /// Bytes that lie across two pieces or more, from `seam_at` on. Empty when the piece itself is
    /// shown.
    seam: Vec<u8>,
    seam_at: u64,
    /// Reads ahead, if that was asked for.
    ahead: Option<Box<dyn Pieces>>,
}

impl Window {
    /// Nothing is read yet; reads will have `bytes` bytes, or more if a frame is larger.
    pub(crate) fn new(file: Arc<dyn File>, bytes: usize) -> Self {
        let memory = Some(AlignedBuf::zeroed(bytes.next_multiple_of(BLOCK_BYTES)));
        Self { file, memory, proof: None, at: 0, len: 0, seam: Vec::new(), seam_at: 0, ahead: None }
    }

    /// A window over pieces that are read ahead. Only bytes across two pieces are copied.
    pub(crate) fn read_by(file: Arc<dyn File>, ahead: Box<dyn Pieces>) -> Self {
        Self {
            file,
            memory: None,
            proof: None,
            at: 0,
            len: 0,
            seam: Vec::new(),
            seam_at: 0,
            ahead: Some(ahead),
        }
    }

    /// Returns the reader ahead.
    pub(crate) fn into_ahead(self) -> Option<Box<dyn Pieces>> {
        self.ahead
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.seam.is_empty() { self.piece() } else { &self.seam }
    }

    fn piece(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }

    pub(crate) fn at(&self) -> u64 {
        if self.seam.is_empty() { self.at } else { self.seam_at }
    }

    /// Forgets what was read: the file may have changed.
    pub(crate) fn forget(&mut self) -> Result<()> {
        (self.len, self.proof) = (0, None);
        self.seam.clear();
        self.ahead.as_mut().map_or(Ok(()), |ahead| ahead.forget())
    }

    /// `len` bytes from `at`, which are in memory.
    pub(crate) fn slice(&self, at: u64, len: usize) -> &[u8] {
        let from = (at - self.at()) as usize;
        &self.bytes()[from..from + len]
    }

    /// Reads until `len` bytes from `at` are in memory, or all that the file has.
    pub(crate) fn load(&mut self, at: u64, len: usize) -> Result<()> {
        self.load_for(at, len, None)
    }

    /// Reads only if `len` bytes from `at` are not in memory yet, and then at least `piece` bytes,
    /// so that a walk in small steps reads each byte once. Whether the file has all of them.
    pub(crate) fn hold(&mut self, at: u64, len: usize, piece: usize) -> Result<bool> {
        let holds = |window: &Self| {
            let end = window.at() + window.bytes().len() as u64;
            at >= window.at() && at + len as u64 <= end
        };
        if !holds(self) {
            self.load(at, len.max(piece))?;
        }
        Ok(holds(self))
    }

    /// As [`Window::load`], for a decoder that stands at `at`: the sums of what is read ahead are
    /// checked for it.
    fn load_for(&mut self, at: u64, len: usize, decoder: Option<&Decoder>) -> Result<()> {
        let start = at / BLOCK * BLOCK;
        if let Some(mut ahead) = self.ahead.take() {
            let loaded = self.load_ahead(ahead.as_mut(), at, len, decoder);
            self.ahead = Some(ahead);
            return loaded;
        }
        let needed = ((at - start) as usize + len).next_multiple_of(BLOCK_BYTES);
        let enough = self.memory.take().filter(|memory| memory.len() >= needed);
        (self.at, self.len) = (start, 0);
        let memory = self.memory.insert(enough.unwrap_or_else(|| AlignedBuf::zeroed(needed)));
        self.len = self.file.read_at(memory, start)?;
        Ok(())
    }

    /// Shows the piece that has all of the bytes, or joins bytes across pieces.
    fn load_ahead(
        &mut self,
        ahead: &mut dyn Pieces,
        at: u64,
        len: usize,
        decoder: Option<&Decoder>,
    ) -> Result<()> {
        let in_seam = at.checked_sub(self.seam_at).filter(|from| *from < self.seam.len() as u64);
        let in_piece = at.checked_sub(self.at).filter(|from| *from < self.len as u64);
        match (in_piece, in_seam) {
            (Some(from), _) if from as usize + len <= self.len => {
                self.seam.clear();
                return Ok(());
            }
            // The seam ends in the piece.
            (_, Some(from)) => drop(self.seam.drain(..from as usize)),
            (Some(from), None) => {
                self.seam.clear();
                self.take(from as usize, self.len);
            }
            (None, None) => {
                self.seam.clear();
                let start = at / BLOCK * BLOCK;
                self.next_piece(ahead, start, decoder)?;
                let from = (at - start) as usize;
                if from + len <= self.len || self.len <= from {
                    return Ok(());
                }
                self.take(from, self.len);
            }
        }
        self.seam_at = at;
        while self.seam.len() < len {
            let end = at + self.seam.len() as u64;
            let piece_end = self.at + self.len as u64;
            if end == piece_end {
                if !end.is_multiple_of(BLOCK) {
                    // The file ends.
                    return Ok(());
                }
                self.next_piece(ahead, end, decoder)?;
                if self.len == 0 {
                    return Ok(());
                }
            }
            let from = (end - self.at) as usize;
            let to = self.len.min(from + len - self.seam.len());
            self.take(from, to);
        }
        Ok(())
    }

    /// Appends a part of the piece to the seam.
    fn take(&mut self, from: usize, to: usize) {
        if let Some(memory) = &self.memory {
            self.seam.extend_from_slice(&memory[from..to]);
        }
    }

    fn next_piece(
        &mut self,
        ahead: &mut dyn Pieces,
        at: u64,
        decoder: Option<&Decoder>,
    ) -> Result<()> {
        (self.at, self.len, self.proof) = (at, 0, None);
        let prover = decoder.map(|decoder| {
            let prover = Prover::new(*decoder.identity(), decoder.mark());
            // It may begin before the piece.
            if self.seam.is_empty() { prover } else { prover.behind(&self.seam, self.seam_at) }
        });
        let piece = ahead.piece(at, self.memory.take(), prover)?;
        (self.memory, self.len, self.proof) = (Some(piece.memory), piece.len, piece.proof);
        Ok(())
    }
}

/// The result of a step of reading; payloads are fetched from the window.
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

impl FrameAt {
    #[inline]
    pub(crate) fn of(frame: &Frame<'_>) -> Self {
        Self {
            at: frame.at,
            lsn: frame.lsn,
            kind: frame.kind,
            batch: frame.batch,
            payload_bytes: frame.payload.len(),
            end: frame.end(),
        }
    }
}

/// A decoder over a window.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) window: Window,
    pub(crate) decoder: Decoder,
}

impl Walk {
    pub(crate) fn new(window: Window, decoder: Decoder) -> Self {
        Self { window, decoder }
    }

    /// The next step.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<Item> {
        loop {
            if let Some(frame) = self.decoder.frame(self.window.bytes(), self.window.at()) {
                return Ok(Item::Frame(FrameAt::of(&frame)));
            }
            match self.decoder.step(self.window.bytes(), self.window.at()) {
                Step::NeedBytes { at, bytes } => {
                    self.window.load_for(at, bytes, Some(&self.decoder))?;
                    self.decoder.believe(self.window.proof);
                    if self.window.bytes().len()
                        < (at.saturating_sub(self.window.at()) as usize) + bytes
                    {
                        // Its writer has given the file back, or somebody has cut it.
                        let why = "the file became shorter while it was read";
                        let why = io::Error::new(io::ErrorKind::UnexpectedEof, why);
                        let path = self.window.file.path();
                        return Err(inkstone_io::Error::new("pread", path, why).at(at).into());
                    }
                }
                Step::GroupStart(start) => return Ok(Item::GroupStart(start)),
                Step::Frame(frame) => return Ok(Item::Frame(FrameAt::of(&frame))),
                Step::GroupEnd(_) => return Ok(Item::GroupEnd),
                Step::Stop(stop) => return Ok(Item::Stop(stop)),
            }
        }
    }

    /// The payload of the frame at byte `at`, which the last step returned.
    pub(crate) fn payload(&self, at: u64, payload_bytes: usize) -> &[u8] {
        self.window.slice(at + FRAME_HEADER_BYTES as u64, payload_bytes)
    }

    /// Walks to the stop. `group_ends` gets where each whole group ends, and the places of its
    /// records for the index of the segment.
    pub(crate) fn run_to_stop(
        &mut self,
        mut group_ends: impl FnMut(&Tail, &mut NewPlaces),
    ) -> Result<Stop> {
        let mut places = NewPlaces::default();
        loop {
            match self.step()? {
                Item::Stop(stop) => return Ok(stop),
                Item::GroupEnd => group_ends(self.decoder.tail(), &mut places),
                Item::Frame(FrameAt { kind: Kind::Record, at, lsn, payload_bytes, .. }) => {
                    places.note(at, lsn, self.decoder.mark().epoch, payload_bytes);
                }
                Item::GroupStart(_) | Item::Frame(_) => {}
            }
        }
    }
}
