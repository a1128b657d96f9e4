//! A queue on a log, with a promise of its own: **an item that was handed out is never handed out
//! again**, whatever crashes. Four faults can be put in; `tests/power_loss.rs` finds them.
//!
//! *Owns*: how far the queue was taken. *May not touch*: the durability of items, which is the
//! log's.
#![forbid(unsafe_code)]

use std::fs::{File, rename};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use inkstone::{Log, Lsn, Options};

/// What somebody may get wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The place is written and never synced.
    MissingSync,
    /// The file of the place gets its name, and the directory is not synced.
    LostName,
    /// Two takers may look at the place before either of them moves it.
    Race,
    /// An item is handed out before the place is durable.
    EarlyAcknowledgement,
}

/// A directory with a log of items, and a file with the number of the last one that was taken.
#[derive(Debug)]
pub struct Queue {
    items: Log,
    file: File,
    taken: Mutex<u64>,
    fault: Option<Fault>,
}

impl Queue {
    /// Opens the queue in a directory, which must be there.
    pub fn open(directory: &Path, fault: Option<Fault>) -> Result<Self> {
        // Who takes waits for the disk anyway: the log needs no threads.
        let items = Log::open(directory.join("items"), Options::new().own_thread(false))?;
        let path = directory.join("taken");
        if !path.exists() {
            // It gets its name when it is whole, so that no crash shows half a file.
            let new = directory.join("taken.new");
            let mut file = File::create(&new)?;
            file.write_all(&[0; 8])?;
            file.sync_all()?;
            rename(&new, &path)?;
            if fault != Some(Fault::LostName) {
                File::open(directory)?.sync_all()?;
            }
        }
        let file = File::options().read(true).write(true).open(&path)?;
        let mut taken = [0; 8];
        file.read_exact_at(&mut taken, 0)?;
        Ok(Self { items, file, taken: Mutex::new(u64::from_le_bytes(taken)), fault })
    }

    /// Adds an item, which is durable then.
    pub fn push(&self, item: &[u8]) -> Result<Lsn> {
        Ok(self.items.append_durable(item)?)
    }

    /// The number of the last item that was handed out.
    pub fn taken(&self) -> MutexGuard<'_, u64> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out the next item, if there is one: with its number, once and never again.
    pub fn take(&self, use_it: impl FnOnce(u64, &[u8])) -> Result<bool> {
        let mut taken = self.taken();
        let next = *taken + 1;
        if self.fault == Some(Fault::Race) {
            drop(taken);
            std::thread::yield_now();
            taken = self.taken();
        }
        if next > self.items.durable().get() {
            return Ok(false);
        }
        let item = self.items.reader().get(Lsn::new(next))?;
        // Eight bytes within one sector: they are there whole, or not at all.
        self.file.write_all_at(&next.to_le_bytes(), 0)?;
        *taken = next;
        if self.fault == Some(Fault::EarlyAcknowledgement) {
            use_it(next, &item);
            self.file.sync_data()?;
            return Ok(true);
        }
        if self.fault != Some(Fault::MissingSync) {
            self.file.sync_data()?;
        }
        use_it(next, &item);
        Ok(true)
    }
}
