//! What the tests of this crate share: rows, a place on a simulated disk, objects beside it, a
//! manifest without a database, and futures that need no runtime.

#![allow(dead_code, reason = "each test uses a part")]

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use inkstone::{AnyDirectory, IoError};
use inkstone_sim::{PowerCut, SimDisk};
use inkstone_slatedb::{DatabaseWal, Living, ManifestView, Place, Seen, Tuning, Wals};
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::{
    self, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, path,
};
use slatedb::wal::{FlushResultFuture, WalError, WalFileRange, WalIterator, WalReader};
use slatedb::{RowEntry, ValueDeletable};

/// Directories of a simulated disk, as one process sees them.
pub(crate) struct SimPlace {
    disk: SimDisk,
    living: Living,
}

impl SimPlace {
    pub(crate) fn new(disk: &SimDisk) -> Arc<Self> {
        Arc::new(Self { disk: disk.clone(), living: Living::default() })
    }
}

impl Place for SimPlace {
    fn find(&self, name: &str) -> Result<Option<AnyDirectory>, IoError> {
        let directory = self.create(name)?;
        Ok((!directory.list()?.is_empty()).then_some(directory))
    }

    fn create(&self, name: &str) -> Result<AnyDirectory, IoError> {
        Ok(AnyDirectory::new(self.disk.directory(self.path(name))))
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new("/wal").join(name)
    }

    fn living(&self) -> &Living {
        &self.living
    }
}

/// Objects beside a simulated disk. What a store has said that it has is there after a crash.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) stored: InMemory,
    pub(crate) disk: SimDisk,
    /// The disk before and after each change of an object, and before each sync, each with the
    /// objects of that moment.
    cuts: Mutex<Vec<(PowerCut, InMemory)>>,
    pub(crate) fault: Mutex<Option<Fault>>,
}

/// What the next put does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// It is refused, as by a store without put-if-absent.
    NotSupported,
    /// It is done, and its answer is lost.
    LosesAnswer,
    /// All are refused, each after some seconds.
    RefusesAllLate,
    /// All are done late.
    AllLate,
}

impl Objects {
    pub(crate) fn beside(disk: &SimDisk, stored: InMemory) -> Arc<Self> {
        let (disk, cuts, fault) = (disk.clone(), Mutex::default(), Mutex::default());
        Arc::new(Self { stored, disk, cuts, fault })
    }

    /// The cuts since the last call.
    pub(crate) fn take_cuts(&self) -> Vec<(PowerCut, InMemory)> {
        let mut cuts = self.cuts.lock().unwrap();
        cuts.extend(self.disk.take_epochs().into_iter().map(|cut| (cut, self.stored.fork())));
        std::mem::take(&mut cuts)
    }

    fn note_cut(&self) {
        let cuts = self.take_cuts();
        let now = (self.disk.power_cut(), self.stored.fork());
        self.cuts.lock().unwrap().extend(cuts.into_iter().chain([now]));
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stored.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Objects {
    async fn put_opts(
        &self,
        at: &path::Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let fault = self.fault.lock().unwrap().take();
        if let Some(Fault::RefusesAllLate | Fault::AllLate) = fault {
            *self.fault.lock().unwrap() = fault;
            let is_done = matches!(fault, Some(Fault::AllLate));
            let late_ms = if is_done { 300 } else { 3000 };
            tokio::time::sleep(std::time::Duration::from_millis(late_ms)).await;
        }
        if let Some(Fault::NotSupported | Fault::RefusesAllLate) = fault {
            return Err(Error::NotSupported { source: "in this test".into() });
        }
        self.note_cut();
        let put = self.stored.put_opts(at, payload, options).await;
        self.note_cut();
        match fault {
            Some(Fault::LosesAnswer) => {
                Err(Error::Generic { store: "test", source: "the answer is lost".into() })
            }
            _ => put,
        }
    }

    async fn put_multipart_opts(
        &self,
        at: &path::Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.stored.put_multipart_opts(at, options).await
    }

    async fn get_opts(
        &self,
        at: &path::Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.stored.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        places: BoxStream<'static, object_store::Result<path::Path>>,
    ) -> BoxStream<'static, object_store::Result<path::Path>> {
        self.note_cut();
        self.stored.delete_stream(places)
    }

    fn list(
        &self,
        prefix: Option<&path::Path>,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.stored.list(prefix)
    }

    async fn list_with_delimiter(
        &self,
        prefix: Option<&path::Path>,
    ) -> object_store::Result<ListResult> {
        self.stored.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &path::Path,
        to: &path::Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.stored.copy_opts(from, to, options).await
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

/// The logs of a process that runs on this disk, of the databases with these objects.
pub(crate) fn process(disk: &SimDisk, objects: &Arc<Objects>) -> Wals {
    Wals::in_place(SimPlace::new(disk), Arc::<Objects>::clone(objects), small())
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
