//! The state of streams that another process writes.
//!
//! *Owns*: following the log, record by record, as far as it is durable. *May not touch*: what
//! changes mean (`state.rs`).

use std::path::PathBuf;
use std::time::Duration;

use inkstone::{Cursor, Lsn, Reader};

use crate::error::{Error, Result};
use crate::following::{Mark, Marks};
use crate::page::Cache;
use crate::record::decode;
use crate::replay::{Of, Replayed};
use crate::state::State;
use crate::sync::{Mutex, MutexGuard, lock};

/// The streams as the log says, up to the last record that was taken.
pub(crate) struct Mirror {
    pub(crate) log: Reader,
    pub(crate) path: PathBuf,
    pub(crate) cache: Mutex<Cache>,
    known: Mutex<Known>,
}

struct Known {
    /// None after a record that could not be taken: what it has changed in part is of no use, and
    /// the next one who asks reads the log again.
    image: Option<Image>,
    marks: Marks,
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
}

impl Known {
    /// Reads the log anew. Cuts may have been missed: those that still show are noted.
    fn begin(&self, log: &Reader, of: Of<'_>) -> Result<Image> {
        let image = Image::begin(log, of)?;
        self.marks.note_missed(&image.made.state);
        Ok(image)
    }

    /// Takes what has become durable.
    fn catch_up(&mut self, log: &Reader, of: Of<'_>) -> Result<&State> {
        // What lived before this record was moved by records that the loop below takes. A front
        // that another reader of this mirror sees meanwhile may be ahead of them.
        let first = log.first();
        let mut image = match self.image.take() {
            Some(image) => image,
            None => self.begin(log, of)?,
        };
        loop {
            match image.cursor.next() {
                Ok(Some(record)) => {
                    let (lsn, bytes) = (record.lsn, record.bytes);
                    of.take(&mut image.made, lsn, bytes)?;
                    // Of a record that is wrong in part no cut is believed.
                    if let Ok((_, changes)) = decode(bytes, lsn) {
                        self.marks.note_all(changes.flatten());
                    }
                }
                Ok(None) => break,
                // The writer was faster.
                Err(inkstone::Error::TruncatedBefore { .. }) => image = self.begin(log, of)?,
                // What was taken before is whole.
                Err(error) => {
                    self.image = Some(image);
                    return Err(error.into());
                }
            }
        }
        image.made.state.sections.forget_before(first);
        Ok(&self.image.insert(image).made.state)
    }
}

impl Mirror {
    pub(crate) fn new(log: Reader, path: PathBuf, cache_bytes: usize) -> Result<Self> {
        let image = Some(Image::begin(&log, Of(&path))?);
        let cache = Mutex::new(Cache::new(cache_bytes));
        let known = Mutex::new(Known { image, marks: Marks::default() });
        Ok(Self { log, path, cache, known })
    }

    /// The lock, not in a forked child, where another thread of the parent may have had it.
    fn known(&self) -> Result<MutexGuard<'_, Known>> {
        self.log.check_process()?;
        Ok(lock(&self.known))
    }

    /// Asks the state, which first takes what has become durable.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&State) -> T) -> Result<T> {
        self.known()?.catch_up(&self.log, Of(&self.path)).map(ask)
    }

    /// Changes the marks; in a forked child there are none.
    pub(crate) fn with_marks(&self, make: impl FnOnce(&mut Marks)) {
        if let Ok(mut known) = self.known() {
            make(&mut known.marks);
        }
    }

    /// Waits until a record is durable that the state does not have. Does not wait if the state
    /// has what this cursor looks for.
    pub(crate) fn wait(
        &self,
        waiter: &mut Option<Cursor>,
        (stream, number): (u64, u64),
        mark: &Mark,
        timeout: Duration,
    ) -> Result<()> {
        let next: Lsn = {
            let known = self.known()?;
            // Another cursor may have taken it.
            let Some(image) = known.image.as_ref().filter(|_| !mark.is_cut()) else {
                return Ok(());
            };
            if image.made.state.bounds(stream).is_ok_and(|bounds| number < bounds.next) {
                return Ok(());
            }
            image.cursor.next_lsn()
        };
        let waiter = waiter.get_or_insert_with(|| self.log.from(next));
        waiter.seek(next);
        match waiter.next_within(timeout) {
            Ok(_) | Err(inkstone::Error::TruncatedBefore { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
