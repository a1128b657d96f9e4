//! Reading streams: by number, in order, or following one as it grows.
//!
//! *Owns*: the public calls for reading. *May not touch*: where records are (`source.rs`), how a
//! cursor moves (`cursor.rs`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inkstone::{AnyDirectory, LogKind, Reader};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::read::cursor::StreamCursor;
use crate::read::mirror::Mirror;
use crate::read::source::{Source, TRIES};
use crate::state::State;
use crate::words::{Bounds, Record, Usage};

/// Reads durable records of streams. Cheap to clone. In the process that writes, `bounds`, `note`,
/// `ids` and `usage` include changes that are not durable yet.
///
/// [`Streams::reader`](crate::Streams::reader) reads streams that this process writes.
/// [`StreamsReader::open`] reads beside a writer in another process, or without a writer; it writes
/// nothing and takes no lock.
#[derive(Clone)]
pub struct StreamsReader {
    pub(crate) source: Source,
}

impl StreamsReader {
    /// Opens the streams in the directory `path` for reading only.
    ///
    /// # Errors
    /// [`inkstone::Error::OtherKind`] for a log that is neither one of streams nor a raft log;
    /// [`Error::Newer`], [`Error::Contradiction`]; those of [`Reader::open`], such as
    /// [`inkstone::Error::NoLog`].
    ///
    /// # Durability
    /// Everything that the reader shows is on stable storage.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        let log = Reader::open(path, &options.log)?;
        Self::of(log, path.to_path_buf(), options)
    }

    /// Opens the streams in any directory ([`AnyDirectory`]) for reading only.
    ///
    /// # Errors
    /// As [`StreamsReader::open`].
    ///
    /// # Durability
    /// As [`StreamsReader::open`].
    pub fn open_in(directory: impl Into<AnyDirectory>, options: &Options) -> Result<Self> {
        let directory = directory.into();
        let path = directory.path().to_path_buf();
        Self::of(Reader::open_in(directory, options.log.clone())?, path, options)
    }

    fn of(log: Reader, path: PathBuf, options: &Options) -> Result<Self> {
        // Raft logs are streams, too. A program's own kind was asked for by its options.
        let (found, wanted) = (log.kind(), LogKind::STREAMS);
        if [LogKind::PLAIN, LogKind::SLATEDB].contains(&found) {
            return Err(inkstone::Error::OtherKind { path, found, wanted }.into());
        }
        let mirror = Mirror::new(log, path, options.cache_bytes)?;
        Ok(Self { source: Source::Mirror(Arc::new(mirror)) })
    }

    /// The record of a stream with this number.
    ///
    /// # Errors
    /// [`Error::NoStream`], [`Error::Truncated`], [`Error::LostRecord`]; [`Error::NotYet`] also for
    /// a record that is not durable yet; [`Error::Contradiction`]; those of [`Reader::get`].
    pub fn get(&self, stream: u64, number: u64) -> Result<Vec<u8>> {
        for _ in 0..TRIES {
            let place = self.source.places(stream, number, 1)?;
            match self.source.log().get(place[0].1) {
                Ok(bytes) => {
                    let mut found = self.source.extract(stream, &place, &bytes)?;
                    return Ok(found.remove(0).bytes);
                }
                // The record has moved meanwhile.
                Err(inkstone::Error::TruncatedBefore { .. }) => {}
                Err(inkstone::Error::Lost { .. }) => {
                    let next = number.saturating_add(1);
                    return Err(Error::LostRecord { stream, number, next });
                }
                Err(inkstone::Error::NotYet { .. }) => {
                    let next = self.source.bounds(stream)?.next;
                    return Err(Error::NotYet { stream, number, next });
                }
                Err(error) => return Err(error.into()),
            }
        }
        let first = self.source.log().first();
        Err(self.source.not_there(first, stream, number))
    }

    /// Where a stream begins and ends.
    ///
    /// # Errors
    /// [`Error::NoStream`]; those of [`StreamsReader::ids`].
    pub fn bounds(&self, stream: u64) -> Result<Bounds> {
        self.source.bounds(stream)
    }

    /// Whether nobody knows all of a stream, since records of the log are lost: it may have been
    /// cut, restarted or removed there, its last records and its note may be lost, and a record
    /// that is left may be one that was cut.
    ///
    /// # Errors
    /// As [`StreamsReader::bounds`].
    pub fn is_uncertain(&self, stream: u64) -> Result<bool> {
        self.source.with(|state| state.stream(stream).map(|_| state.doubt(stream).is_some()))?
    }

    /// The note of a stream; empty if it has none.
    ///
    /// # Errors
    /// As [`StreamsReader::bounds`].
    pub fn note(&self, stream: u64) -> Result<Vec<u8>> {
        self.source.with(|state| state.stream(stream).map(|found| found.note().to_vec()))?
    }

    /// The ids of the streams above `after`, in order, at most `count_max`.
    ///
    /// # Errors
    /// A reader from [`StreamsReader::open`] first reads what is new in the log: [`Error::Newer`],
    /// [`Error::Contradiction`]; those of [`inkstone::Cursor::next`].
    pub fn ids(&self, after: Option<u64>, count_max: usize) -> Result<Vec<u64>> {
        self.source
            .with(|state| state.streams_after(after).take(count_max).map(|(id, _)| id).collect())
    }

    /// What each stream and each section takes, all as of one record of the log.
    ///
    /// # Errors
    /// As [`StreamsReader::ids`].
    pub fn usage(&self) -> Result<Usage> {
        self.source.with(State::usage)
    }

    /// The directory.
    #[doc(hidden)]
    pub fn path(&self) -> &Path {
        self.source.of().0
    }

    /// The log below: how far it is durable, and whether it has ended.
    #[doc(hidden)]
    pub fn log(&self) -> &Reader {
        self.source.log()
    }

    /// A cursor at this number, whose record may not exist yet.
    pub fn read(&self, stream: u64, from: u64) -> StreamCursor {
        StreamCursor::new(self.source.clone(), stream, from)
    }

    /// All durable records of a stream from a number on, each in its own memory. Ends after the
    /// first error, one of [`StreamCursor::next`], other than [`Error::LostRecord`].
    pub fn records(&self, stream: u64, from: u64) -> impl Iterator<Item = Result<Record>> + use<> {
        let mut cursor = self.read(stream, from);
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let next = cursor.next().transpose();
            is_over = !matches!(next, Some(Ok(_) | Err(Error::LostRecord { .. })));
            next
        })
    }
}

impl fmt::Debug for StreamsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsReader").field("path", &self.source.of().0).finish_non_exhaustive()
    }
}
