//! The state of streams that another process writes.
//!
//! *Owns*: following the log, record by record, as far as it is durable. *May not touch*: what
//! changes mean (`state.rs`).

use std::path::PathBuf;
use std::time::Duration;

use inkstone::{Cursor, Lsn, Reader};

use crate::error::{Error, Result};
use crate::page::Cache;
use crate::replay::{Of, Replayed};
use crate::state::State;
use crate::sync::{Mutex, lock};

/// The streams as the log says, up to the last record that was taken.
pub(crate) struct Mirror {
    pub(crate) log: Reader,
    pub(crate) path: PathBuf,
    pub(crate) cache: Mutex<Cache>,
    image: Mutex<Image>,
}

struct Image {
    made: Replayed,
    cursor: Cursor,
}

impl Image {
    fn new(log: &Reader, of: Of<'_>) -> Result<Self> {
        let (first, last) = (log.first(), log.durable());
        if last < first {
            // The writer has just begun.
            return Ok(Self { made: Replayed::nothing(), cursor: log.from(first) });
        }
        let made = of.replay(log, first, last)?;
        Ok(Self { made, cursor: log.from(last.next().unwrap_or(last)) })
    }

    /// An image of the log as it is now, also while the writer gives its front back.
    fn begin(log: &Reader, of: Of<'_>) -> Result<Self> {
        loop {
            match Self::new(log, of) {
                Err(Error::Log(inkstone::Error::TruncatedBefore { .. })) => {}
                other => return other,
            }
        }
    }

    /// Takes what has become durable.
    fn catch_up(&mut self, log: &Reader, of: Of<'_>) -> Result<()> {
        // What lived before this record was moved by records that the loop below takes. A front
        // that another reader of this mirror sees meanwhile may be ahead of them.
        let first = log.first();
        loop {
            match self.cursor.next() {
                Ok(Some(record)) => of.take(&mut self.made, record.lsn, record.bytes)?,
                Ok(None) => break,
                // The writer was faster: begin again.
                Err(inkstone::Error::TruncatedBefore { .. }) => *self = Self::begin(log, of)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.made.state.sections.forget_before(first);
        Ok(())
    }
}

impl Mirror {
    pub(crate) fn new(log: Reader, path: PathBuf, cache_bytes: usize) -> Result<Self> {
        let image = Image::begin(&log, Of(&path))?;
        let cache = Mutex::new(Cache::new(cache_bytes));
        Ok(Self { log, path, cache, image: Mutex::new(image) })
    }

    /// Asks the state, which first takes what has become durable.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&State) -> T) -> Result<T> {
        let mut image = lock(&self.image);
        image.catch_up(&self.log, Of(&self.path))?;
        Ok(ask(&image.made.state))
    }

    /// Waits until a record is durable that the state does not have.
    pub(crate) fn wait(&self, waiter: &mut Option<Cursor>, timeout: Duration) -> Result<()> {
        let next: Lsn = lock(&self.image).cursor.next_lsn();
        let waiter = waiter.get_or_insert_with(|| self.log.from(next));
        waiter.seek(next);
        match waiter.next_within(timeout) {
            Ok(_) | Err(inkstone::Error::TruncatedBefore { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
