//! Reading a log: by LSN, in order, and following it as it grows.
//!
//! *Owns*: the reader's public face, and what it reads from. *May not touch*: how records are found (`cursor.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inkstone_format::Lsn;
use inkstone_io::{Directory, OsDirectory};

use crate::cursor::{Cursor, OwnedRecord};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::segment::{Link, lock};
use crate::shared::Shared;

/// Reads durable records of a log. Cheap to clone.
pub struct Reader<D: Directory = OsDirectory> {
    source: Source<D>,
}

/// Where a reader's records come from.
pub(crate) enum Source<D: Directory> {
    /// A log that this process has open for writing.
    Living(Arc<Shared<D>>),
}

impl<D: Directory> Clone for Source<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Living(shared) => Self::Living(Arc::clone(shared)),
        }
    }
}

/// What a reader has to know before it reads on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) durable: Lsn,
    pub(crate) first: Lsn,
    /// How many cuts there were.
    pub(crate) cuts: usize,
}

impl<D: Directory> Source<D> {
    pub(crate) fn directory(&self) -> &D {
        match self {
            Self::Living(shared) => &shared.directory,
        }
    }

    pub(crate) fn options(&self) -> &Options {
        match self {
            Self::Living(shared) => &shared.options,
        }
    }

    pub(crate) fn now(&self) -> Now {
        match self {
            Self::Living(shared) => {
                let (durable, cuts) = {
                    let state = shared.lock();
                    (state.durable, state.cut_count())
                };
                Now { durable, first: lock(&shared.segments).first_live, cuts }
            }
        }
    }

    /// The lowest LSN that the cuts from number `cuts` on left as the last.
    pub(crate) fn lowest_cut_since(&self, cuts: usize) -> Option<Lsn> {
        match self {
            Self::Living(shared) => {
                shared.lock().cuts.get(cuts..).and_then(|later| later.iter().min().copied())
            }
        }
    }

    pub(crate) fn find(&self, lsn: Lsn) -> Option<Link<D::File>> {
        match self {
            Self::Living(shared) => lock(&shared.segments).find(lsn).cloned(),
        }
    }

    /// Waits until `lsn` is durable or the log was cut, closed or poisoned, or `until` is past.
    pub(crate) fn wait(&self, lsn: Lsn, cuts: usize, until: Option<Instant>) -> Result<()> {
        match self {
            Self::Living(shared) => {
                let mut state = shared.lock();
                while state.durable < lsn && state.cut_count() == cuts {
                    state.check_open()?;
                    let left = until.map_or(Duration::from_secs(1), |until| {
                        until.saturating_duration_since(Instant::now())
                    });
                    if left.is_zero() {
                        break;
                    }
                    (state, _) = shared.sleep_for(&shared.followers, state, left);
                }
                Ok(())
            }
        }
    }
}

impl<D: Directory> Reader<D> {
    pub(crate) fn living(shared: Arc<Shared<D>>) -> Self {
        Self { source: Source::Living(shared) }
    }

    /// The first record that is left; one above the last if there is none.
    pub fn first(&self) -> Lsn {
        self.source.now().first
    }

    /// The durable watermark: the last record that can be read.
    pub fn durable(&self) -> Lsn {
        self.source.now().durable
    }

    /// The record with this LSN.
    ///
    /// # Errors
    /// [`Error::GivenUp`] or [`Error::NotYet`] when it is not there; [`Error::Corrupt`] when it should be and cannot be
    /// read.
    pub fn get(&self, lsn: Lsn) -> Result<Vec<u8>> {
        let mut cursor = self.from(lsn);
        match cursor.next()? {
            Some(record) => Ok(record.bytes.to_vec()),
            None => Err(Error::NotYet { lsn, durable: self.durable() }),
        }
    }

    /// A cursor whose next record is the one with this LSN, which need not be there yet.
    pub fn from(&self, lsn: Lsn) -> Cursor<D> {
        Cursor::new(self.source.clone(), lsn.max(Lsn::FIRST))
    }

    /// All records from `lsn` to the watermark as it moves, each in memory of its own. Ends where the log ends now.
    pub fn records(&self, lsn: Lsn) -> impl Iterator<Item = Result<OwnedRecord>> + use<D> {
        let mut cursor = self.from(lsn);
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let next = cursor.next().map(|record| record.map(OwnedRecord::from)).transpose();
            is_over = !matches!(next, Some(Ok(_)));
            next
        })
    }

    /// All records from `lsn` on, waiting for those to come. Ends with an error when there will be none
    /// ([`Error::Closed`], [`Error::Poisoned`]), or when they are gone ([`Error::GivenUp`], [`Error::Cut`]).
    pub fn follow(&self, lsn: Lsn) -> impl Iterator<Item = Result<OwnedRecord>> + use<D> {
        let mut cursor = self.from(lsn);
        let mut is_over = false;
        std::iter::from_fn(move || {
            while !is_over {
                match cursor.next_within(Duration::from_secs(3600)) {
                    Ok(Some(record)) => return Some(Ok(record.into())),
                    Ok(None) => {}
                    Err(error) => {
                        is_over = true;
                        return Some(Err(error));
                    }
                }
            }
            None
        })
    }
}

impl<D: Directory> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone() }
    }
}

impl<D: Directory> fmt::Debug for Reader<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("path", &self.source.directory().path()).finish_non_exhaustive()
    }
}
