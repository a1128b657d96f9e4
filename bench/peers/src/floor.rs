//! What no engine can beat: bare overwrites of a written file, and a plain sequential read.
//!
//! *Owns*: the floor's files and loops. *May not touch*: engines; it goes to
//! `inkstone-io` only.

use std::fs::File as StdFile;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use inkstone_host::{LabEngine, LabFile};
use inkstone_io::engine::BlockingFile as _;
use inkstone_io::{
    Access, AlignedBuf, BLOCK_BYTES, Durability, Engine as _, EngineKind, File, OpenFile,
    Operation, OsFile, Persist, Preparation, Request, Strategy, SyncKind,
};

use crate::engine::{Engine, Writer};

/// Of a floor's file: what a log that recycles goes round in.
const FILE_BYTES: u64 = 128 << 20;
/// A stream's writes, and reads.
pub const LARGE_BYTES: usize = 1 << 20;
/// Reads in flight.
const READS: usize = 8;

/// Overwrites of a written file from front to back, again and again, by any number of threads.
pub struct Bare {
    file: OsFile,
    write_bytes: usize,
    persist: Persist,
    next_slot: AtomicU64,
    how: String,
}

impl Bare {
    /// With the log's own access and durability. `is_durable`: each write, else one sync at the
    /// end.
    pub fn open(
        path: &Path,
        strategy: Strategy,
        write_bytes: usize,
        is_durable: bool,
    ) -> Result<Bare> {
        ensure!(
            write_bytes.is_multiple_of(BLOCK_BYTES),
            "a floor writes whole blocks, not {write_bytes} bytes"
        );
        std::fs::create_dir_all(path)?;
        let path = path.join("floor");
        OsFile::open(&path, &OpenFile::new_file())?.prepare(Preparation::Zeros, FILE_BYTES)?;
        let durability = if is_durable { strategy.durability } else { Durability::None };
        let file = OsFile::open(
            &path,
            &OpenFile::existing().access(strategy.access).durability(durability),
        )?;
        let persist = match durability {
            Durability::RwfDsync => Persist::Dsync,
            Durability::Fdatasync => Persist::Sync(SyncKind::Data),
            Durability::Fsync => Persist::Sync(SyncKind::All),
            // The open flags do it, or the sync at the end.
            _ => Persist::Later,
        };
        let how = format!("{} KiB, {}, {durability}", write_bytes >> 10, strategy.access);
        Ok(Self { file, write_bytes, persist, next_slot: AtomicU64::new(0), how })
    }
}

impl Engine for Bare {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        let mut buffer = AlignedBuf::zeroed(self.write_bytes);
        fastrand::Rng::with_seed(1).fill(&mut buffer);
        Ok(Box::new(Overwriter { bare: self, buffer, gathered_bytes: 0 }))
    }

    fn how(&self) -> String {
        self.how.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Overwriter<'a> {
    bare: &'a Bare,
    buffer: AlignedBuf,
    /// Bytes of records that the next write stands for. They are not copied: this is the device
    /// alone.
    gathered_bytes: usize,
}

impl Overwriter<'_> {
    fn write(&self) -> Result<()> {
        let write_bytes = self.bare.write_bytes as u64;
        let slot = self.bare.next_slot.fetch_add(1, Ordering::Relaxed) % (FILE_BYTES / write_bytes);
        Ok(self.bare.file.write_with(&self.buffer, slot * write_bytes, self.bare.persist)?)
    }
}

impl Writer for Overwriter<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.gathered_bytes += record.len();
        if self.gathered_bytes >= self.bare.write_bytes {
            self.gathered_bytes -= self.bare.write_bytes;
            self.write()?;
        }
        Ok(())
    }

    fn append_durable(&mut self, _: &[u8]) -> Result<()> {
        self.write()
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.bare.file.sync(SyncKind::Data)?)
    }
}

/// Writes a file of so many bytes for the reads of this floor.
pub fn make_file(path: &Path, bytes: u64) -> Result<()> {
    let mut chunk = AlignedBuf::zeroed(LARGE_BYTES);
    fastrand::Rng::with_seed(2).fill(&mut chunk);
    let file = OsFile::open(path, &OpenFile::new_file())?;
    for offset in (0..bytes).step_by(LARGE_BYTES) {
        file.write_at(&chunk[..(bytes - offset).min(LARGE_BYTES as u64) as usize], offset)?;
    }
    Ok(file.sync(SyncKind::All)?)
}

/// Reads a file whole: past the page cache with several reads in flight, or through it in one loop.
pub fn read_file(path: &Path, access: Access) -> Result<Duration> {
    let file = Arc::new(LabFile::open(path, &OpenFile::existing().access(access).read_only())?);
    let bytes = file.len_bytes()?;
    let begin = Instant::now();
    if access != Access::Direct {
        let mut buffer = AlignedBuf::zeroed(LARGE_BYTES);
        let mut offset = 0;
        while offset < bytes {
            let read = file.read_at(&mut buffer, offset)?;
            ensure!(read > 0, "{} ends at {offset} instead of {bytes}", path.display());
            offset += read as u64;
        }
        return Ok(begin.elapsed());
    }
    let mut engine = LabEngine::open(EngineKind::Uring, READS)
        .or_else(|_| LabEngine::open(EngineKind::Pool, READS))?;
    let mut spare: Vec<AlignedBuf> = (0..READS).map(|_| AlignedBuf::zeroed(LARGE_BYTES)).collect();
    let (begin, mut offset, mut done) = (Instant::now(), 0, 0);
    while done < bytes {
        while let Some(buffer) = (offset < bytes).then(|| spare.pop()).flatten() {
            let operation = Operation::Read { buffer, len: LARGE_BYTES, offset, then: None };
            engine.submit(Request { token: offset, file: Arc::clone(&file), operation })?;
            offset += LARGE_BYTES as u64;
        }
        let completion = engine.complete()?.context("reads are in flight")?;
        done += completion.result? as u64;
        spare.extend(completion.buffer);
    }
    Ok(begin.elapsed())
}

/// Drops what is cached of every file in a directory; gives the share of its pages that stayed.
pub fn drop_cached(directory: &Path) -> Result<f64> {
    let (mut stayed, mut pages) = (0, 0);
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        inkstone_host::drop_cached_pages(&StdFile::open(&path)?)?;
        let residency = OsFile::open(&path, &OpenFile::existing())?.residency()?;
        (stayed, pages) = (stayed + residency.resident_pages, pages + residency.pages);
    }
    Ok(stayed as f64 / pages.max(1) as f64)
}

/// Reads every file in a directory, so that the page cache has it.
pub fn warm(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() && path.metadata()?.len() > 0 {
            read_file(&path, Access::Buffered)?;
        }
    }
    Ok(())
}
