//! okaywal 0.3. A record is a chunk; what is waited for is an entry of one chunk, what is not is a
//! chunk of a long entry.
//!
//! *Owns*: every call to that crate. *May not touch*: what is measured.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use okaywal::{
    Configuration, Entry, EntryId, EntryWriter, LogManager, LogVoid, ReadChunkResult,
    SegmentReader, WriteAheadLog,
};

use crate::record::Checker;
use crate::store::{Setup, Store, Work, Writer};

const SEGMENT_BYTES: u32 = 64 << 20;
/// A segment is left before it is full: one that has to grow is slow.
const CHECKPOINT_BYTES: u64 = 60 << 20;
/// A long entry ends here, so that its segment does not grow either.
const ENTRY_BYTES: usize = 56 << 20;
/// For long entries, and for reading; the default of 16 KiB is slower there.
const BUFFER_BYTES: usize = 1 << 20;

struct Peer {
    path: PathBuf,
    /// `None`: it shows its entries only while it is opened, so that is done by [`Store::read`].
    wal: Option<WriteAheadLog>,
}

fn configuration(path: &Path, work: Work) -> Configuration {
    let common = Configuration::default_for(path).preallocate_bytes(SEGMENT_BYTES);
    match work {
        Work::Waited | Work::InFlight(_) => common.checkpoint_after_bytes(CHECKPOINT_BYTES),
        Work::Unwaited | Work::Unsynced => {
            common.checkpoint_after_bytes(CHECKPOINT_BYTES).buffer_bytes(BUFFER_BYTES)
        }
        // One segment for all: what is checkpointed is gone.
        Work::Growing | Work::Read => {
            common.checkpoint_after_bytes(u64::MAX).buffer_bytes(BUFFER_BYTES)
        }
    }
}

pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    let is_written = setup.work != Work::Read;
    let open = || configuration(path, setup.work).open(LogVoid);
    Ok(Box::new(Peer { path: path.to_owned(), wal: is_written.then(open).transpose()? }))
}

impl Store for Peer {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        let wal = self.wal.as_ref().context("it was opened to be read")?;
        Ok(Box::new(Appender { wal, entry: None, entry_bytes: 0 }))
    }

    fn read(&self, _: u32, _: u64, seen: &mut Checker) -> Result<()> {
        let shared = Arc::new(Mutex::new(std::mem::replace(seen, Checker::new(0, 0))));
        let shower = Shower { seen: Arc::clone(&shared), record: Vec::new() };
        let opened = configuration(&self.path, Work::Read).open(shower);
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(seen, &mut *shared);
        drop(opened?);
        Ok(())
    }

    fn how(&self) -> String {
        format!(
            "EntryWriter::commit; {} MiB segments, preallocated, checkpointed and recycled",
            SEGMENT_BYTES >> 20
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.wal.map_or(Ok(()), |wal| wal.shutdown())?)
    }
}

struct Appender<'a> {
    wal: &'a WriteAheadLog,
    /// The long entry.
    entry: Option<EntryWriter<'a>>,
    entry_bytes: usize,
}

impl Writer for Appender<'_> {
    fn append(&mut self, _: u32, record: &[u8]) -> Result<()> {
        let entry = match &mut self.entry {
            Some(entry) => entry,
            none => none.insert(self.wal.begin_entry()?),
        };
        entry.write_chunk(record)?;
        self.entry_bytes += record.len();
        if self.entry_bytes >= ENTRY_BYTES { self.sync() } else { Ok(()) }
    }

    fn append_durable(&mut self, _: u32, record: &[u8]) -> Result<()> {
        let mut entry = self.wal.begin_entry()?;
        entry.write_chunk(record)?;
        entry.commit()?;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.entry_bytes = 0;
        if let Some(entry) = self.entry.take() {
            entry.commit()?;
        }
        Ok(())
    }
}

/// Shows every chunk to the checker. It refuses checkpoints: they would give up what is to be read
/// again.
#[derive(Debug)]
struct Shower {
    seen: Arc<Mutex<Checker>>,
    record: Vec<u8>,
}

impl LogManager for Shower {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut chunk = match entry.read_chunk()? {
                ReadChunkResult::Chunk(chunk) => chunk,
                ReadChunkResult::EndOfEntry => return Ok(()),
                ReadChunkResult::AbortedEntry => {
                    return Err(io::Error::other("an entry without its end"));
                }
            };
            self.record.resize(chunk.bytes_remaining() as usize, 0);
            chunk.read_exact(&mut self.record)?;
            if !chunk.check_crc()? {
                return Err(io::Error::other("a chunk whose checksum is wrong"));
            }
            seen.see(&self.record);
        }
    }

    fn checkpoint_to(
        &mut self,
        _: EntryId,
        _: &mut SegmentReader,
        _: &WriteAheadLog,
    ) -> io::Result<()> {
        Err(io::Error::other("nothing is to be given up"))
    }
}
