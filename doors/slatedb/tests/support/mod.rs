//! What the tests of this crate share: rows, a place on a simulated disk, objects beside it, a
//! manifest without a database, and futures that need no runtime.

#![allow(dead_code, reason = "each test uses a part")]

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use inkstone::{AnyDirectory, IoError};
use inkstone_io::{OpenFile, SyncKind};
use inkstone_sim::{Fate, SimDisk};
use inkstone_slatedb::{DatabaseWal, Living, ManifestView, Place, Seen, Tuning, Wals, Writer};
use inkstone_subject::Directories;
use slatedb::object_store::memory::InMemory;
use slatedb::object_store::{
    self, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    path,
};
use slatedb::wal::{
    FlushResultFuture, WalError, WalFileRange, WalIterator, WalReader, WalWriter as _,
};
use slatedb::{RowEntry, ValueDeletable};

pub(crate) type Batch = Vec<RowEntry>;

/// Directories as one process sees them: of a simulated disk, or any others.
pub(crate) struct ProcessPlace {
    directories: Directories,
    living: Living,
}

impl ProcessPlace {
    pub(crate) fn new(disk: &SimDisk) -> Arc<Self> {
        let disk = disk.clone();
        Self::of(Arc::new(move |path| AnyDirectory::new(disk.directory(path))))
    }

    pub(crate) fn of(directories: Directories) -> Arc<Self> {
        Arc::new(Self { directories, living: Living::default() })
    }
}

impl Place for ProcessPlace {
    fn find(&self, name: &str) -> Result<Option<AnyDirectory>, IoError> {
        let directory = self.create(name)?;
        Ok((!directory.list()?.is_empty()).then_some(directory))
    }

    fn create(&self, name: &str) -> Result<AnyDirectory, IoError> {
        Ok((self.directories)(&format!("/wal/{name}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new("/wal").join(name)
    }

    fn living(&self) -> &Living {
        &self.living
    }
}

/// Objects. Those of [`Objects::kept_in`] are in files of a simulated disk, too: what a store has
/// said that it has is there after a crash.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) stored: InMemory,
    kept: Option<Kept>,
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

/// The files of objects, in a directory.
#[derive(Debug, Clone)]
struct Kept {
    directory: AnyDirectory,
    /// A change has failed in the middle, so that nobody knows what there is: nothing is answered
    /// any more.
    is_away: Arc<AtomicBool>,
}

/// A file that has no object's name yet.
const UNNAMED: &str = "unnamed";

/// The name of an object's file.
fn file_of(object: &path::Path) -> String {
    object.as_ref().replace('/', "+")
}

fn of_store(error: IoError) -> Error {
    Error::Generic { store: "on a simulated disk", source: Box::new(error) }
}

impl Kept {
    /// After a change of names: what fails leaves the old object or the new one.
    fn sync(&self, changed: Result<(), IoError>) -> object_store::Result<()> {
        changed.and_then(|()| self.directory.sync()).map_err(|error| {
            self.is_away.store(true, Ordering::Relaxed);
            of_store(error)
        })
    }

    /// Puts an object into its file, whole, and durable on return.
    fn put(&self, object: &path::Path, bytes: &[u8]) -> object_store::Result<()> {
        let write = || {
            let _ = self.directory.remove(UNNAMED);
            let file = self.directory.open(UNNAMED, &OpenFile::new_file())?;
            file.write_at(bytes, 0)?;
            file.sync(SyncKind::All)
        };
        write().map_err(of_store)?;
        self.sync(self.directory.rename(UNNAMED, &file_of(object)))
    }

    fn remove(&self, object: &path::Path) -> object_store::Result<()> {
        self.sync(self.directory.remove(&file_of(object)))
    }
}

impl Objects {
    pub(crate) fn of(stored: InMemory) -> Arc<Self> {
        Arc::new(Self { stored, kept: None, fault: Mutex::default() })
    }

    /// With those that are in this directory.
    pub(crate) fn kept_in(directory: AnyDirectory) -> Result<Arc<Self>, IoError> {
        let stored = InMemory::new();
        for name in directory.list()?.into_iter().filter(|name| name != UNNAMED) {
            let file = directory.open(&name, &OpenFile::existing().read_only())?;
            let mut bytes = vec![0; file.len_bytes()? as usize];
            file.read_at(&mut bytes, 0)?;
            let object = path::Path::from(name.replace('+', "/"));
            now(stored.put(&object, bytes.into())).expect("memory takes it");
        }
        let kept = Some(Kept { directory, is_away: Arc::default() });
        Ok(Arc::new(Self { stored, kept, fault: Mutex::default() }))
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        now(self.stored.list(None).next()).is_none()
    }

    pub(crate) fn is_away(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.is_away.load(Ordering::Relaxed))
    }

    fn check_there(&self) -> object_store::Result<()> {
        match self.is_away() {
            true => Err(Error::Generic { store: "in this test", source: "it is away".into() }),
            false => Ok(()),
        }
    }

    /// Up to which id the tree has the rows, and the last id that is known to be durable.
    pub(crate) fn manifest(&self) -> Result<(u64, u64), WalError> {
        let unavailable = |error| WalError::Unavailable(Arc::new(error));
        let bytes = match now(self.get(&path::Path::from(MANIFEST))) {
            Err(Error::NotFound { .. }) => return Ok((0, 0)),
            got => now(got.map_err(unavailable)?.bytes()).map_err(unavailable)?,
        };
        // Twice, so that it can be seen when a bit has rotted.
        let words: Vec<_> = bytes.split(|byte| *byte == b' ').collect();
        let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
        match words[..] {
            [tree_has, known, ..] if words[..2] == words[2..] => {
                number(tree_has).zip(number(known))
            }
            _ => None,
        }
        .ok_or_else(|| WalError::DataError(Arc::new(std::io::Error::other("a rotten manifest"))))
    }

    pub(crate) fn set_manifest(&self, tree_has: u64, known: u64) -> Result<(), WalError> {
        let words = format!("{tree_has} {known} {tree_has} {known}");
        let put = now(self.put(&path::Path::from(MANIFEST), words.into()));
        put.map(drop).map_err(|error| WalError::Unavailable(Arc::new(error)))
    }
}

/// The object of [`Objects::manifest`].
const MANIFEST: &str = "main/manifest-of-the-test";

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
        self.check_there()?;
        let is_there = self.stored.head(at).await.is_ok();
        if options.mode != PutMode::Create || !is_there {
            let parts: Vec<u8> = payload.iter().flatten().copied().collect();
            self.kept.as_ref().map_or(Ok(()), |kept| kept.put(at, &parts))?;
        }
        let put = self.stored.put_opts(at, payload, options).await;
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
        self.check_there()?;
        self.stored.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        places: BoxStream<'static, object_store::Result<path::Path>>,
    ) -> BoxStream<'static, object_store::Result<path::Path>> {
        let Some(kept) = self.kept.clone() else { return self.stored.delete_stream(places) };
        let remove = move |place: object_store::Result<path::Path>| {
            let place = place?;
            kept.remove(&place)?;
            Ok(place)
        };
        self.stored.delete_stream(places.map(remove).boxed())
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
    Wals::in_place(ProcessPlace::new(disk), Arc::<Objects>::clone(objects), small())
}

/// The log of a process that has just begun here, with these objects as they are now.
pub(crate) fn wal_of(disk: &SimDisk, objects: &InMemory) -> DatabaseWal {
    process(disk, &Objects::of(objects.fork())).of("main")
}

/// All that was written, and nothing else, on a disk of its own.
pub(crate) fn fork(disk: &SimDisk) -> SimDisk {
    disk.power_cut().state(|_, _| Fate::Kept)
}

/// What the manifest of a new database says.
pub(crate) const NEW: Seen = Seen { epoch: 1, replay_after: 0, next_id: 1 };

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

/// Appends a batch; durable on return.
pub(crate) fn append(writer: &mut Writer, batch: &Batch) {
    now(writer.append(batch)).unwrap();
    now(parts(now(writer.flush()).unwrap()).1).unwrap();
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
pub(crate) fn read(wal: &DatabaseWal, first: u64, end: u64) -> Result<Vec<Batch>, WalError> {
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
pub(crate) fn batches(rows: Vec<RowEntry>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
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
