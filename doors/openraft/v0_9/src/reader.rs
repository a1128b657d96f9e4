//! Reading entries.
//!
//! *Owns*: openraft's reader over the raft log's. *May not touch*: writing.

use std::fmt::{self, Debug};
use std::io;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};

use inkstone_openraft_common::{MESSAGE_BYTES, NodeName, Postcard, bounds_of, entries_left};
use inkstone_raft::RaftReader;
use openraft::{
    ErrorSubject, ErrorVerb, OptionalSend, RaftLogReader, RaftTypeConfig, StorageError,
};

use crate::codec::Codec;
use crate::leader::id_of;

/// Reads the entries of a [`crate::LogStore`]. Cheap to clone; it may be used in any thread, beside
/// the store that writes.
///
/// Entries that are in memory ([`crate::Options::memory_bytes`]) are read without I/O. Others are
/// read from disk on the calling thread.
pub struct LogReader<C, K = Postcard> {
    pub(crate) reader: RaftReader,
    pub(crate) types: PhantomData<fn() -> (C, K)>,
}

impl<C: RaftTypeConfig, K: Codec<C>> LogReader<C, K>
where
    C::NodeId: NodeName,
{
    fn read(
        &self,
        range: Range<u64>,
        payload_bytes_max: usize,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        let read = || -> io::Result<_> {
            entries_left(&self.reader, range, payload_bytes_max)?
                .iter()
                .map(|entry| K::decode(id_of(&entry.id)?, &entry.payload))
                .collect()
        };
        read().map_err(|error| {
            StorageError::from_io_error(ErrorSubject::Logs, ErrorVerb::Read, error)
        })
    }
}

impl<C: RaftTypeConfig, K: Codec<C>> RaftLogReader<C> for LogReader<C, K>
where
    C::NodeId: NodeName,
{
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.read(bounds_of(&range), usize::MAX)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.read(start..end, MESSAGE_BYTES)
    }
}

impl<C, K> Clone for LogReader<C, K> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), types: PhantomData }
    }
}

impl<C, K> Debug for LogReader<C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("reader", &self.reader).finish_non_exhaustive()
    }
}
