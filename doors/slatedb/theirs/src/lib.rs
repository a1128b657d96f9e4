//! Replaces the WALs of SlateDB's own tests.
//!
//! *Owns*: opening a database with a log, and `BTreeMapWal` over a log, under the name of the WAL
//! of their four tests of custom WALs. *May not touch*: what the tests check.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../../s2-lite/builder.rs"]
pub mod builder;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use inkstone::{Lsn, Reader};
use inkstone_slatedb::{DatabaseWal, Wals, decode};
use slatedb::object_store::{ObjectStore, memory::InMemory, path::Path};
use slatedb::wal::{
    WalAdmin, WalError, WalFileRange, WalFlushResult, WalGc, WalIterator, WalObserver, WalReader,
    WalStatus, WalWriter, WriterInit, WriterInitResult, WriterManifest,
};
use slatedb::{Db, RowEntry, VersionedManifest};
use tempfile::TempDir;

pub use builder::builder;

/// As `Db::open`, with the log.
///
/// # Errors
/// Those of `Db::open`.
pub async fn open<P: Into<Path> + Clone>(
    path: P,
    store: Arc<dyn ObjectStore>,
) -> Result<Db, slatedb::Error> {
    builder(path, store).build().await
}

/// One database's log, by the name of the WAL of their tests.
#[derive(Clone)]
pub struct BTreeMapWal {
    path: std::path::PathBuf,
    wal: DatabaseWal,
    directory: Arc<TempDir>,
}

impl Default for BTreeMapWal {
    fn default() -> Self {
        BTreeMapWalAdmin::default().wal(&Path::from("one"))
    }
}

impl BTreeMapWal {
    /// The ids that are left.
    pub fn file_ids(&self) -> Vec<u64> {
        self.snapshot().into_keys().collect()
    }

    /// The rows that are left, by id.
    pub fn snapshot(&self) -> BTreeMap<u64, Vec<RowEntry>> {
        let reader = Reader::open(&self.path, &inkstone::Options::new()).unwrap();
        let records = reader.records(reader.first()).map(Result::unwrap);
        let rows = records.map(|record| (record.lsn.get(), decode(record.bytes).unwrap()));
        rows.filter(|(id, _)| *id >= Lsn::FIRST.get()).collect()
    }
}

#[async_trait]
impl WriterInit for BTreeMapWal {
    async fn fence_and_init(
        &self,
        manifest: &mut WriterManifest,
    ) -> Result<WriterInitResult, WalError> {
        let begun = self.wal.fence_and_init(manifest).await?;
        let wal_writer = Box::new(AtOnce(begun.wal_writer, Arc::clone(&self.directory)));
        Ok(WriterInitResult { wal_writer, ..begun })
    }
}

/// In their WAL a batch is there when `append` returns, and their tests check at once; so this one
/// waits for the flush.
struct AtOnce(
    Box<dyn WalWriter>,
    #[allow(dead_code, reason = "it keeps the directory")] Arc<TempDir>,
);

#[async_trait]
impl WalWriter for AtOnce {
    async fn append(&mut self, write_batch: &[RowEntry]) -> Result<(), WalError> {
        self.0.append(write_batch).await?;
        self.0.flush().await?.completion.await
    }

    async fn flush(&mut self) -> Result<WalFlushResult, WalError> {
        self.0.flush().await
    }

    fn should_flush_memtable(&self, replay_after_wal_id: u64) -> bool {
        self.0.should_flush_memtable(replay_after_wal_id)
    }

    fn observer(&self) -> Box<dyn WalObserver> {
        self.0.observer()
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        self.0.status()
    }

    async fn close(&mut self) -> Result<(), WalError> {
        self.0.close().await
    }
}

#[async_trait]
impl WalReader for BTreeMapWal {
    async fn iterator(&self, range: WalFileRange) -> Result<Box<dyn WalIterator>, WalError> {
        self.wal.iterator(range).await
    }

    async fn last_wal_file_id(&self, after: u64) -> Result<u64, WalError> {
        self.wal.last_wal_file_id(after).await
    }
}

#[async_trait]
impl WalGc for BTreeMapWal {
    async fn collect(
        &self,
        ranges: Vec<WalFileRange>,
        min_age: Duration,
        dry_run: bool,
    ) -> Result<(), WalError> {
        self.wal.collect(ranges, min_age, dry_run).await
    }
}

/// The logs of a directory, by the name of the administrator of their tests.
#[derive(Clone)]
pub struct BTreeMapWalAdmin {
    wals: Wals,
    directory: Arc<TempDir>,
}

impl Default for BTreeMapWalAdmin {
    fn default() -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        // Their tests make the stores of their databases later.
        let names = Arc::new(InMemory::new());
        Self { wals: Wals::at(directory.path(), names), directory }
    }
}

impl BTreeMapWalAdmin {
    /// The log of a database.
    pub fn wal(&self, path: &Path) -> BTreeMapWal {
        let directory = path.as_ref().replace('/', "%2F");
        BTreeMapWal {
            path: self.directory.path().join(directory),
            wal: self.wals.of(path.clone()),
            directory: Arc::clone(&self.directory),
        }
    }
}

#[async_trait]
impl WalAdmin for BTreeMapWalAdmin {
    fn garbage_collector(&self, path: &Path) -> Arc<dyn WalGc> {
        self.wals.garbage_collector(path)
    }

    async fn delete_wal(&self, path: &Path, dry_run: bool) -> Result<Vec<String>, WalError> {
        self.wals.delete_wal(path, dry_run).await
    }

    async fn is_empty(&self, path: &Path, after: u64, last: u64) -> Result<bool, WalError> {
        self.wals.is_empty(path, after, last).await
    }

    async fn clone_wal(
        &self,
        from: &Path,
        manifest: VersionedManifest,
        to: &Path,
    ) -> Result<(u64, u64), WalError> {
        self.wals.clone_wal(from, manifest, to).await
    }
}
