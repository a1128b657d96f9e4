//! What no engine can beat: bare overwrites of a written file.
//!
//! *Owns*: the floor's file. *May not touch*: engines; it makes the file's own calls only.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use inkstone_host::LabFile;
use inkstone_io::{
    AlignedBuf, BLOCK_BYTES, Capabilities, Durability, File as _, OpenFile, OsFile, Persist,
    Preparation, SyncKind,
};

use crate::record::Checker;
use crate::store::{Setup, Store, Work, Writer};

/// Of a floor's file: what a log that recycles goes round in.
const FILE_BYTES: u64 = 128 << 20;

/// Overwrites of a written file from front to back, again and again, by any number of threads.
struct Bare {
    file: LabFile,
    write_bytes: usize,
    persist: Persist,
    next_slot: AtomicU64,
    how: String,
}

/// Of a write: with one writer as much as the log's commits write. A frame of 4 KiB lies in two
/// blocks. For producers that do not wait it is large.
fn write_bytes(setup: Setup) -> usize {
    match setup.work {
        Work::Unwaited | Work::Unsynced | Work::Growing => 1 << 20,
        _ if setup.lanes > 1 => setup.record_bytes.next_multiple_of(BLOCK_BYTES),
        _ => (setup.record_bytes / BLOCK_BYTES + 1) * BLOCK_BYTES,
    }
}

/// With the log's own access and durability, each write or, where that is measured, one sync at the
/// end.
pub fn open(path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
    let strategy = inkstone::rule(&Capabilities::of(path)?).strategy;
    let (path, write_bytes) = (path.join("floor"), write_bytes(setup));
    OsFile::open(&path, &OpenFile::new_file())?.prepare(Preparation::Zeros, FILE_BYTES)?;
    let durability = match setup.work {
        Work::Unsynced => Durability::None,
        _ => strategy.durability,
    };
    let how = OpenFile::existing().access(strategy.access).durability(durability);
    let file = LabFile::open(&path, &how)?;
    let persist = match durability {
        Durability::RwfDsync => Persist::Dsync,
        Durability::Fdatasync => Persist::Sync(SyncKind::Data),
        Durability::Fsync => Persist::Sync(SyncKind::All),
        // The open flags do it, or the sync at the end.
        _ => Persist::Later,
    };
    let how = format!("overwrites of {} KiB, {}, {durability}", write_bytes >> 10, strategy.access);
    Ok(Box::new(Bare { file, write_bytes, persist, next_slot: AtomicU64::new(0), how }))
}

impl Store for Bare {
    fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
        let mut buffer = AlignedBuf::zeroed(self.write_bytes);
        fastrand::Rng::with_seed(1).fill(&mut buffer);
        Ok(Box::new(Overwriter { bare: self, buffer, gathered_bytes: 0 }))
    }

    fn read(&self, _: u32, _: u64, _: &mut Checker) -> Result<()> {
        bail!("a floor has no records")
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
    fn append(&mut self, _: u32, record: &[u8]) -> Result<()> {
        self.gathered_bytes += record.len();
        if self.gathered_bytes >= self.bare.write_bytes {
            self.gathered_bytes -= self.bare.write_bytes;
            self.write()?;
        }
        Ok(())
    }

    fn append_durable(&mut self, _: u32, _: &[u8]) -> Result<()> {
        self.write()
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.bare.file.sync(SyncKind::Data)?)
    }
}
