//! The bytes of a log's files stay below their bound, whatever the load, the checkpoints and the
//! restarts; what was given back for that is an error of who needs it, and no hole.

use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use inkstone::Options;
use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_slatedb::{Tuning, Wals};
use slatedb::admin::{Admin, CloneSourceSpec};
use slatedb::config::{CheckpointOptions, CheckpointScope, FlushOptions, FlushType};
use slatedb::object_store::{ObjectStore, memory::InMemory};
use slatedb::wal::WalGc as _;
use slatedb::{Db, DbReader, DbReaderMode, ErrorKind};

use crate::support::{Fault, Objects, ProcessPlace};
use crate::{close, collect, keys, put, store};

const MIB: u64 = 1 << 20;

fn wals(root: &Path, store: &Arc<dyn ObjectStore>, log_bytes_max: u64, pads: bool) -> Wals {
    let log = Options::new().record_bytes_max(256 << 10).pad_groups(pads);
    Wals::tuned(root, store.clone(), Tuning { log, log_bytes_max, ..Tuning::default() })
}

async fn open(store: &Arc<dyn ObjectStore>, wals: &Wals) -> Db {
    crate::open(store, wals).await.unwrap()
}

/// The bytes of all files here. A file that is renamed meanwhile counts once.
fn bytes_of(log: &Path) -> u64 {
    let files = std::fs::read_dir(log).into_iter().flatten().flatten();
    let sizes = files.filter_map(|file| file.metadata().ok());
    sizes.map(|file| (file.ino(), file.len())).collect::<HashMap<_, _>>().values().sum()
}

/// Looks at the log all the time.
struct Watched {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Watched {
    fn begin(log: PathBuf) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let look = move || {
            let mut most = 0;
            while !seen.load(Ordering::Relaxed) {
                // One look may count a file that was removed beside one that was made later.
                let looks = std::iter::repeat_with(|| bytes_of(&log)).take(3);
                most = most.max(looks.min().unwrap_or(0));
                std::thread::sleep(Duration::from_micros(300));
            }
            most
        };
        Self { ends, thread: std::thread::spawn(look) }
    }

    /// The most bytes at any time.
    fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Puts so many bytes, in values of this size, under keys that begin so.
async fn fill(db: &Db, name: &str, value_bytes: usize, bytes: u64) {
    let mut last = None;
    for number in 0..bytes / value_bytes as u64 {
        let key = format!("{name}-{number:07}");
        last = Some(db.put(key, vec![7; value_bytes]).await.unwrap());
    }
    last.unwrap().await_durable().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_stays_below_its_bound_whatever_is_put() {
    for (name, bound, value_bytes, bytes) in [
        ("batches", 8 * MIB, 200_000, 32 * MIB),
        ("rows", 8 * MIB, 3000, 24 * MIB),
        ("tiny", 3 * MIB, 2, 160_000),
        ("padded", 4 * MIB, 5, 15_000),
        ("slow", 4 * MIB, 30_000, 12 * MIB),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::of(InMemory::new());
        let store: Arc<dyn ObjectStore> = objects.clone();
        let wals = wals(directory.path(), &store, bound, name == "padded");
        let watched = Watched::begin(directory.path().join("db"));
        let db = open(&store, &wals).await;
        *objects.fault.lock().unwrap() = (name == "slow").then_some(Fault::AllLate);
        // A put by itself is a group by itself, which counts with its padding.
        let at_once = if name == "padded" { value_bytes as u64 } else { bytes };
        for part in 0..bytes / at_once {
            fill(&db, &format!("{name}-{part:04}"), value_bytes, at_once).await;
        }
        *objects.fault.lock().unwrap() = None;
        close(&db).await;
        let most = watched.end();
        assert!(most <= bound, "{name}: {most} bytes");
        let last = bytes_of(&directory.path().join("db"));
        assert!(last <= bound, "{name}: {last} bytes at the end");
        let db = open(&store, &wals).await;
        assert_eq!(keys(&db).await.len() as u64, bytes / value_bytes as u64, "{name}");
        close(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_checkpoint_needs_stays_within_the_bound_and_is_an_error_beyond() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = wals(directory.path(), &store, 8 * MIB, false);
    let log = directory.path().join("db");
    let watched = Watched::begin(log.clone());
    let db = open(&store, &wals).await;
    let checkpoint =
        async |scope| db.create_checkpoint(scope, &CheckpointOptions::default()).await.unwrap().id;
    let clone = async |name: &str, id| {
        let admin = Admin::builder(name, store.clone()).with_wal_admin(Arc::new(wals.clone()));
        let source = CloneSourceSpec::with_checkpoint("db", id);
        admin.build().create_clone_builder_from_source(source).build().await
    };
    let keys_at = async |id| {
        let reader =
            DbReader::builder("db", store.clone()).with_reader_mode(DbReaderMode::Checkpoint(id));
        let reader = reader.with_wal_reader(Arc::new(wals.of("db"))).build().await?;
        let mut found = reader.scan::<std::ops::RangeFull>(..).await?;
        let mut keys = 0;
        while found.next().await?.is_some() {
            keys += 1;
        }
        Ok::<_, slatedb::Error>(keys)
    };
    for key in ["a", "b"] {
        put(&db, key).await.unwrap();
    }
    let early = checkpoint(CheckpointScope::Durable).await;
    // The tree gets these rows, and collection keeps them for the checkpoint.
    fill(&db, "few", 3000, 3 * MIB).await;
    collect(&store, &wals).await;
    clone("in-time", early).await.unwrap();
    assert_eq!(keys_at(early).await.unwrap(), 2);

    fill(&db, "many", 3000, 16 * MIB).await;
    for error in [clone("late", early).await.unwrap_err(), keys_at(early).await.unwrap_err()] {
        let said = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Data, "{said}");
        for part in [&*log.display().to_string(), "WAL id 1,", "log_bytes_max", "flushes"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    // The parent goes on, and its log is as small as before; the cure cures.
    put(&db, "last").await.unwrap();
    let flushed = checkpoint(CheckpointScope::All).await;
    fill(&db, "more", 3000, 16 * MIB).await;
    let count = 2 + 3 * MIB / 3000 + 16 * MIB / 3000 + 1;
    assert_eq!(keys_at(flushed).await.unwrap(), count);
    clone("cured", flushed).await.unwrap();
    let most = watched.end();
    assert!(most <= 8 * MIB, "{most} bytes");
    close(&db).await;
    for (name, count) in [("in-time", 2), ("cured", count)] {
        let builder = Db::builder(name, store.clone());
        let db = builder.with_wal_writer(Box::new(wals.of(name))).build().await.unwrap();
        assert_eq!(keys(&db).await.len() as u64, count, "{name}");
        close(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_a_lower_bound_keeps_what_the_tree_lacks_and_gives_the_rest_back() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let log = directory.path().join("db");
    let large = wals(directory.path(), &store, 64 * MIB, false);
    let small = wals(directory.path(), &store, 4 * MIB, false);
    // The tree has it all, and the log too; then the tree lacks more than the bound.
    for (name, flushes) in [("old", true), ("new", false)] {
        let db = open(&store, &large).await;
        fill(&db, name, 3000, 12 * MIB).await;
        if flushes {
            db.close().await.unwrap();
        } else {
            close(&db).await;
        }
        let before = bytes_of(&log);
        assert!(before >= 12 * MIB, "{before} bytes");
        let db = open(&store, &small).await;
        fill(&db, "then", 3000, 8 * MIB).await;
        db.close().await.unwrap();
        let left = bytes_of(&log);
        assert!(left <= before + MIB, "{left} bytes");
        // Once the tree has it, an opening brings the log below its bound with its next segment,
        // and it stays there.
        let db = open(&store, &small).await;
        fill(&db, "last", 3000, MIB).await;
        db.close().await.unwrap();
        let left = bytes_of(&log);
        assert!(left <= 4 * MIB, "{name}: {left} bytes");
    }
    let watched = Watched::begin(log.clone());
    let db = open(&store, &small).await;
    fill(&db, "then", 3000, 8 * MIB).await;
    assert_eq!(keys(&db).await.len() as u64, 2 * (12 * MIB / 3000) + 8 * MIB / 3000 + MIB / 3000);
    close(&db).await;
    let most = watched.end();
    assert!(most <= 4 * MIB, "{most} bytes");
}

/// The log removes files that it does not need after a second, so a writer that ends before that
/// leaves them, and the next one has more than the bound: large ones, or too many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_beyond_the_bound_that_an_opening_finds_go_with_its_next_segment() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let log = directory.path().join("db");
    let wals = wals(directory.path(), &store, 4 * MIB, false);
    for (files, bytes) in [(1, 4 * MIB), (9, 97 * 4096)] {
        let db = open(&store, &wals).await;
        fill(&db, "before", 3000, 4 * MIB).await;
        close(&db).await;
        for number in 1..=files {
            let path = log.join(format!("{number:020}.free"));
            std::fs::write(path, vec![0; bytes as usize]).unwrap();
        }
        let found = bytes_of(&log);
        assert!(found > 4 * MIB, "{found} bytes");
        let db = open(&store, &wals).await;
        fill(&db, "after", 3000, MIB / 2).await;
        close(&db).await;
        let left = bytes_of(&log);
        assert!(left <= 4 * MIB, "{files} files: {left} bytes");
    }
}

/// The disk has less than the bound, and SlateDB is not asked to flush before it is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_collection_makes_room() {
    let capacity_bytes = Some(3 * MIB);
    let disk = SimDisk::new(7, DiskOptions { capacity_bytes, ..DiskOptions::default() });
    let store = store();
    let log = Options::new().record_bytes_max(1 << 16);
    let tuning = Tuning { log, log_bytes_max: 16 * MIB, ..Tuning::default() };
    let wals = Wals::in_place(ProcessPlace::new(&disk), store.clone(), tuning);
    let (mut put, mut fulls) = (0, 0);
    let mut db = open(&store, &wals).await;
    while fulls < 3 {
        let error = match db.put(format!("{put:04}"), [7; 30_000]).await {
            Ok(handle) => handle.await_durable().await.err(),
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            put += 1;
            assert!(put < 1000, "the disk has no room for so many");
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(said.contains("make room on the disk"), "{said}");
        let _ = db.close().await;
        fulls += 1;
        db = open(&store, &wals).await;
        assert_eq!(keys(&db).await.len(), put);
        db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await.unwrap();
        collect(&store, &wals).await;
    }
    assert!(put > 200, "{put}");
    close(&db).await;
}

/// SlateDB ends its flusher at an error that it does not try again, and does not tell a WAL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_waits_for_a_flusher_that_has_ended_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let objects = Objects::of(InMemory::new());
    let store: Arc<dyn ObjectStore> = objects.clone();
    let log = Options::new().record_bytes_max(256 << 10);
    let flush_within = Duration::from_secs(5);
    let tuning = Tuning { log, log_bytes_max: 4 * MIB, flush_within, ..Tuning::default() };
    let wals = Wals::tuned(directory.path(), store.clone(), tuning);
    let db = open(&store, &wals).await;
    *objects.fault.lock().unwrap() = Some(Fault::RefusesAllLate);
    let mut acknowledged = 0;
    let puts = async {
        loop {
            match db.put(format!("{acknowledged:04}"), [7; 30_000]).await {
                Ok(handle) => handle.await_durable().await?,
                Err(error) => return Err::<(), _>(error),
            };
            acknowledged += 1;
        }
    };
    let most = Duration::from_secs(60);
    let error = tokio::time::timeout(most, puts).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let _ = tokio::time::timeout(most, db.close()).await.unwrap();
    *objects.fault.lock().unwrap() = None;
    let db = open(&store, &wals).await;
    assert!(keys(&db).await.len() >= acknowledged, "{acknowledged}");
    assert!(acknowledged > 60, "{acknowledged}: the log was not full");
    close(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_below_a_batch_is_refused_and_a_mode_is_obeyed() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = wals(directory.path(), &store, MIB, false);
    let wal = Box::new(wals.of("db"));
    let error = Db::builder("db", store.clone()).with_wal_writer(wal).build().await.map(drop);
    let said = error.unwrap_err().to_string();
    assert!(said.contains("log_bytes_max 1048576: it must be at least"), "{said}");
    // So does the collector of a log without a writer.
    let (root, objects) = (directory.path().join("collected"), crate::store());
    let db = open(&objects, &self::wals(&root, &objects, 4 * MIB, false)).await;
    for key in ["a", "b"] {
        put(&db, key).await.unwrap();
    }
    close(&db).await;
    let wals = self::wals(&root, &objects, MIB, false);
    let collected = wals.of("db").collect(vec![(2..).into()], Duration::ZERO, false).await;
    let said = collected.unwrap_err().to_string();
    assert!(said.contains("log_bytes_max 1048576: it must be at least"), "{said}");

    let tuning = |mode| Tuning { log: Options::new().file_mode(mode), ..Tuning::default() };
    let root = directory.path().join("root");
    let wrong = Wals::tuned(&root, store.clone(), tuning(0o400)).of("db");
    assert!(
        Db::builder("db", store.clone()).with_wal_writer(Box::new(wrong)).build().await.is_err()
    );
    let db = open(&store, &Wals::tuned(&root, store.clone(), tuning(0o640))).await;
    put(&db, "a").await.unwrap();
    close(&db).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for file in std::fs::read_dir(root.join("db")).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o640);
    }
    assert_eq!([mode(&root), mode(&root.join("db"))], [0o750; 2]);
}
