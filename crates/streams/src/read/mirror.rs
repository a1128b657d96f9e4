//! The state of streams that another process writes.
//!
//! *Owns*: following the durable log, record by record. *May not touch*: what changes mean
//! (`state.rs`).

use std::path::PathBuf;
use std::time::Duration;

use inkstone::{Cursor, Lsn, Reader};

use crate::error::{Error, Result};
use crate::following::{Mark, Marks};
use crate::record::decode;
use crate::record::page::Cache;
use crate::state::State;
use crate::state::replay::{Of, Replayed};
use crate::sync::{Mutex, MutexGuard, lock};

/// The streams as of the last record that was taken.
pub(crate) struct Mirror {
    pub(crate) log: Reader,
    pub(crate) path: PathBuf,
    pub(crate) cache: Mutex<Cache>,
    known: Mutex<Known>,
}

struct Known {
    /// None after a bad record, which may be half applied: the next call reads the log again.
    image: Option<Image>,
    marks: Marks,
    /// The first record of the log of whose changes the marks know nothing.
    unseen: Lsn,
}

struct Image {
    made: Replayed,
    cursor: Cursor,
}

impl Image {
    /// An image of the log as it is now, also while the writer frees its front.
    fn begin(log: &Reader, of: Of<'_>) -> Result<Self> {
        loop {
            match of.replay(log) {
                Err(Error::Log(inkstone::Error::TruncatedBefore { .. })) => {}
                replayed => {
                    let (made, last) = replayed?;
                    return Ok(Self { made, cursor: log.from(last.next().unwrap_or(last)) });
                }
            }
        }
    }
}

impl Known {
    /// Reads the log again from the start of a replay. Changes were missed, so this notes the cuts
    /// among them.
    fn begin(&mut self, log: &Reader, of: Of<'_>) -> Result<Image> {
        let image = Image::begin(log, of)?;
        self.marks.note_missed(&image.made.state, self.unseen);
        self.unseen = image.cursor.next_lsn();
        Ok(image)
    }

    /// Takes the records that have become durable.
    fn catch_up(&mut self, log: &Reader, of: Of<'_>) -> Result<&State> {
        // Read first: live records before this one were moved by records that the loop below takes.
        // A front that another reader of this mirror sees later may be ahead of the loop.
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
                    // Noted only here, after the record was taken: the cuts of a bad record are not
                    // believed.
                    if let Ok((_, changes)) = decode(bytes, lsn) {
                        let state = &image.made.state;
                        // Nobody leaves a waker here.
                        let note = |change| self.marks.note(&change, state, lsn, &mut Vec::new());
                        changes.flatten().for_each(note);
                    }
                    self.unseen = image.cursor.next_lsn();
                }
                Ok(None) => break,
                // The writer has freed what this had not read.
                Err(inkstone::Error::TruncatedBefore { .. }) => image = self.begin(log, of)?,
                // The image is still whole.
                Err(error) => {
                    self.image = Some(image);
                    return Err(error.into());
                }
            }
        }
        image.made.state.forget_before(first);
        Ok(&self.image.insert(image).made.state)
    }
}

impl Mirror {
    pub(crate) fn new(log: Reader, path: PathBuf, cache_bytes: usize) -> Result<Self> {
        let image = Image::begin(&log, Of(&path))?;
        let unseen = image.cursor.next_lsn();
        let cache = Mutex::new(Cache::new(cache_bytes));
        let known = Known { image: Some(image), marks: Marks::default(), unseen };
        let known = Mutex::new(known);
        Ok(Self { log, path, cache, known })
    }

    /// The lock. Refused in a forked child, since a thread of the parent may have held it.
    fn known(&self) -> Result<MutexGuard<'_, Known>> {
        self.log.check_process()?;
        Ok(lock(&self.known))
    }

    /// Asks the state, which first takes the records that have become durable.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&State) -> T) -> Result<T> {
        self.known()?.catch_up(&self.log, Of(&self.path)).map(ask)
    }

    /// Changes the marks; in a forked child there are none.
    pub(crate) fn with_marks(&self, make: impl FnOnce(&mut Marks)) {
        if let Ok(mut known) = self.known() {
            make(&mut known.marks);
        }
    }

    /// Waits until the log has a durable record that the state lacks. Returns at once if the state
    /// has the record or the cut that this cursor waits for.
    pub(crate) fn wait(
        &self,
        waiter: &mut Option<Cursor>,
        (stream, number): (u64, u64),
        mark: &Mark,
        timeout: Duration,
    ) -> Result<()> {
        let next: Lsn = {
            let known = self.known()?;
            // Another cursor may have caught up.
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
