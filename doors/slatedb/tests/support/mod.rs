//! What the tests of this crate share: rows, a place on a simulated disk, a manifest without a
//! database, and futures that need no runtime.

#![allow(dead_code, reason = "each test uses a part")]

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use inkstone::{AnyDirectory, IoError};
use inkstone_sim::SimDisk;
use inkstone_slatedb::{DatabaseWal, Living, ManifestView, Place, Seen, Tuning, Wals};
use slatedb::wal::{FlushResultFuture, WalError, WalFileRange, WalIterator, WalReader};
use slatedb::{RowEntry, ValueDeletable};

/// Directories of a simulated disk, as one process sees them.
pub(crate) struct SimPlace {
    disk: SimDisk,
    living: Living,
}

impl Place for SimPlace {
    fn find(&self, name: &str) -> Result<Option<AnyDirectory>, IoError> {
        let directory = self.create(name)?;
        Ok((!directory.list()?.is_empty()).then_some(directory))
    }

    fn create(&self, name: &str) -> Result<AnyDirectory, IoError> {
        Ok(AnyDirectory::new(self.disk.directory(Path::new("/wal").join(name))))
    }

    fn living(&self) -> &Living {
        &self.living
    }
}

/// Small segments, no threads: everything is done by the calls.
pub(crate) fn small() -> Tuning {
    Tuning {
        log: inkstone::Options::small().own_thread(false),
        fence_within: std::time::Duration::ZERO,
        ..Tuning::default()
    }
}

/// The logs of a process that runs on this disk.
pub(crate) fn process(disk: &SimDisk) -> Wals {
    process_with(disk, small())
}

/// The same, tuned.
pub(crate) fn process_with(disk: &SimDisk, tuning: Tuning) -> Wals {
    Wals::in_place(Arc::new(SimPlace { disk: disk.clone(), living: Living::default() }), tuning)
}

/// A manifest that the test stores.
pub(crate) struct Manifest(pub(crate) Seen);

#[async_trait]
impl ManifestView for Manifest {
    fn seen(&self) -> Seen {
        self.0
    }

    async fn refresh(&mut self) -> Result<(), WalError> {
        Ok(())
    }
}

/// A manifest that a later writer has fenced since it was read.
pub(crate) struct Fenced(pub(crate) Seen);

#[async_trait]
impl ManifestView for Fenced {
    fn seen(&self) -> Seen {
        self.0
    }

    async fn refresh(&mut self) -> Result<(), WalError> {
        Err(WalError::Fenced)
    }
}

/// The outcome of a future that needs no other task.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("the future waits"),
    }
}

/// The id that a flush returns, and its future.
#[cfg(not(feature = "slatedb-0-17"))]
pub(crate) fn parts(flush: slatedb::wal::WalFlushResult) -> (Option<u64>, FlushResultFuture) {
    (Some(flush.wal_id), flush.completion)
}

/// 0.17 returns only the future.
#[cfg(feature = "slatedb-0-17")]
pub(crate) fn parts(flush: FlushResultFuture) -> (Option<u64>, FlushResultFuture) {
    (None, flush)
}

pub(crate) fn row(key: u64, seq: u64, value_bytes: usize) -> RowEntry {
    let value = match key % 4 {
        0 => ValueDeletable::Tombstone,
        1 => ValueDeletable::Merge(Bytes::from(vec![seq as u8; value_bytes])),
        _ => ValueDeletable::Value(Bytes::from(vec![key as u8; value_bytes])),
    };
    let key = Bytes::from(format!("key-{key}"));
    let create_ts = seq.is_multiple_of(3).then_some(seq as i64);
    RowEntry { key, value, seq, create_ts, expire_ts: seq.is_multiple_of(5).then_some(-1) }
}

/// The batches of the ids from `first` to before `end`, and the error after them, if there is one.
pub(crate) fn read(
    wal: &DatabaseWal,
    first: u64,
    end: u64,
) -> Result<Vec<Vec<RowEntry>>, WalError> {
    let mut iterator = now(wal.iterator(WalFileRange::from(first..end)))?;
    let rows = drain(iterator.as_mut())?;
    Ok(batches(rows))
}

pub(crate) fn drain(iterator: &mut dyn WalIterator) -> Result<Vec<RowEntry>, WalError> {
    let mut rows = Vec::new();
    while let Some(more) = now(iterator.next())? {
        rows.extend(more.rows);
    }
    Ok(rows)
}

/// Rows by their sequence numbers, which must rise.
pub(crate) fn batches(rows: Vec<RowEntry>) -> Vec<Vec<RowEntry>> {
    let mut batches: Vec<Vec<RowEntry>> = Vec::new();
    for row in rows {
        match batches.last_mut() {
            Some(batch) if batch[0].seq == row.seq => batch.push(row),
            Some(batch) => {
                assert!(batch[0].seq < row.seq, "{} after {}", row.seq, batch[0].seq);
                batches.push(vec![row]);
            }
            None => batches.push(vec![row]),
        }
    }
    batches
}
