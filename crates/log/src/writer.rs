//! Writing what is to be durable: groups and headers, one at a time.
//!
//! *Owns*: the engine, the file of the segment that is written, and the one rule about failure: a write or sync that
//! failed is never tried again. *May not touch*: what a group holds, who waits for it. Whoever has the turn (`turn.rs`)
//! uses it; nobody else does.

use std::sync::Arc;

use inkstone_format::SegmentHeader;
use inkstone_format::limits::{BLOCK_BYTES, HEADER_BYTES};
use inkstone_io::{
    AlignedBuf, Directory, Durability, Engine, EngineKind, File, Operation, Persist, Request, SyncKind,
};

use crate::error::Result;
use crate::filling::Frozen;
use crate::mistake::Mistake;
use crate::options::Options;
use crate::store::Store;

/// The one who writes.
pub(crate) struct Writer<D: Directory> {
    engine: D::Engine,
    pub(crate) file: Arc<D::File>,
    pub(crate) store: Store<D>,
    persist: Persist,
    retries: bool,
    clears_tail: bool,
}

impl<D: Directory> Writer<D> {
    pub(crate) fn new(directory: &D, file: Arc<D::File>, store: Store<D>, options: &Options) -> Result<Self> {
        let persist = match options.durability {
            Durability::Fsync => Persist::Sync(SyncKind::All),
            Durability::RwfDsync => Persist::Dsync,
            // The file was opened with the flag.
            Durability::ODsync | Durability::OSync => Persist::Later,
            _ => Persist::Sync(SyncKind::Data),
        };
        let persist = if options.makes(Mistake::NoSync) { Persist::Later } else { persist };
        let engine = directory.engine(EngineKind::Caller, 1)?;
        let retries = options.makes(Mistake::RetriesSync);
        let clears_tail = options.makes(Mistake::TailRewritten);
        Ok(Self { engine, file, store, persist, retries, clears_tail })
    }

    /// Writes a group into the segment's file; durable when it returns `Ok`, unless it is a mistake that was asked for.
    pub(crate) fn group(&mut self, frozen: Frozen, unsynced: bool) -> (Result<()>, Option<AlignedBuf>) {
        let persist = if unsynced { Persist::Later } else { self.persist };
        let file = Arc::clone(&self.file);
        if self.clears_tail {
            let zeros = AlignedBuf::zeroed(BLOCK_BYTES);
            let (result, _) =
                self.write(Arc::clone(&file), zeros, BLOCK_BYTES, frozen.offset, Persist::Later);
            if result.is_err() {
                return (result, Some(frozen.memory));
            }
        }
        self.write(file, frozen.memory, frozen.len, frozen.offset, persist)
    }

    /// Writes a segment's header; durable when it returns `Ok`.
    pub(crate) fn header(&mut self, file: &Arc<D::File>, header: &SegmentHeader) -> Result<()> {
        let mut memory = AlignedBuf::zeroed(HEADER_BYTES);
        let block = (&mut memory[..]).try_into().expect("a block has the size of a header block");
        header.encode(block);
        let persist = self.persist;
        self.write(Arc::clone(file), memory, HEADER_BYTES, 0, persist).0
    }

    fn write(
        &mut self,
        file: Arc<D::File>,
        buffer: AlignedBuf,
        len: usize,
        offset: u64,
        persist: Persist,
    ) -> (Result<()>, Option<AlignedBuf>) {
        let operation = Operation::Write { buffer, len, offset, persist };
        let done = match self.engine.run(Request { token: 0, file: Arc::clone(&file), operation }) {
            Ok(done) => done,
            Err(error) => return (Err(error.into()), None),
        };
        let result = match done.result {
            Ok(_) => Ok(()),
            Err(_) if self.retries => file.sync(SyncKind::All).map_err(Into::into),
            Err(error) => Err(error.into()),
        };
        (result, done.buffer)
    }
}
