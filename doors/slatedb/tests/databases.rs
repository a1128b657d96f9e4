//! Whole databases on real files: fencing, followers, moves, and all else that a model of a
//! manifest does not cover.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "databases/bound.rs"]
mod bound;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inkstone::{AnyDirectory, OsDirectory};
use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_slatedb::{DatabaseWal, Seen, Tuning, Wals};
use slatedb::admin::{Admin, CloneSourceSpec};
use slatedb::config::{
    CheckpointOptions, CheckpointScope, CloseOptions, FlushOptions, FlushType,
    GarbageCollectorDirectoryOptions, GarbageCollectorOptions, Settings,
};
use slatedb::object_store::{ObjectStore, ObjectStoreExt, memory::InMemory};
use slatedb::wal::{WalAdmin, WalError, WalReader, WalWriter};
use slatedb::{CloseReason, Db, DbReader, DbReaderMode, ErrorKind, GarbageCollectorBuilder};
use support::{Fenced, Manifest, NEW, ProcessPlace, row, small};

/// With SlateDB's own sizes of memtables, and without its timers, compactor and collector.
fn settings() -> Settings {
    Settings {
        flush_interval: None,
        l0_max_ssts: 100_000,
        l0_max_ssts_per_key: 100_000,
        compactor_options: None,
        garbage_collector_options: None,
        ..Settings::default()
    }
}

fn store() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

async fn open(store: &Arc<dyn ObjectStore>, wals: &Wals) -> Result<Db, slatedb::Error> {
    open_with(store, wals.of("db")).await
}

async fn open_with(store: &Arc<dyn ObjectStore>, wal: DatabaseWal) -> Result<Db, slatedb::Error> {
    let builder = Db::builder("db", Arc::clone(store)).with_settings(settings());
    builder.with_wal_writer(Box::new(wal)).build().await
}

async fn put(db: &Db, key: &str) -> Result<(), slatedb::Error> {
    db.put(key, "value").await?.await_durable().await
}

async fn close(db: &Db) {
    db.close_with_options(CloseOptions::default().with_flush_type(None)).await.unwrap();
}

async fn keys(db: &Db) -> Vec<String> {
    let mut found = db.scan::<std::ops::RangeFull>(..).await.unwrap();
    let mut keys = Vec::new();
    while let Some(entry) = found.next().await.unwrap() {
        keys.push(String::from_utf8(entry.key.to_vec()).unwrap());
    }
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_database_fences_the_first_and_has_its_rows() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let first = open(&store, &Wals::at(directory.path(), store.clone())).await.unwrap();
    put(&first, "a").await.unwrap();
    // By another name of the same directory.
    let second = open(&store, &Wals::at(directory.path().join("."), store.clone())).await.unwrap();
    let late = put(&first, "late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Closed(CloseReason::Fenced), "{late}");
    put(&second, "b").await.unwrap();
    assert_eq!(keys(&second).await, ["a", "b"]);
    let _ = first.close().await;
    put(&second, "c").await.unwrap();
    close(&second).await;
}

/// As another process on the same directories, which does not know the writers here.
fn elsewhere(root: &Path, store: &Arc<dyn ObjectStore>, tuning: Tuning) -> Wals {
    let root = root.to_path_buf();
    let directory = move |path: &str| {
        let directory = OsDirectory::create(root.join(path.trim_start_matches("/wal/")));
        AnyDirectory::new(directory.unwrap())
    };
    Wals::in_place(ProcessPlace::of(Arc::new(directory)), Arc::clone(store), tuning)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_writer_of_another_process_goes_when_it_sees_its_manifest() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let first = open(&store, &Wals::at(directory.path(), store.clone())).await.unwrap();
    put(&first, "a").await.unwrap();
    let second =
        open(&store, &elsewhere(directory.path(), &store, Tuning::default())).await.unwrap();
    let late = put(&first, "late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Closed(CloseReason::Fenced), "{late}");
    put(&second, "b").await.unwrap();
    assert_eq!(keys(&second).await, ["a", "b"]);
    close(&second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_open_at_once_one_goes_on() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = Wals::at(directory.path(), store.clone());
    for round in 0..20 {
        one_goes_on(&store, [&wals, &wals], &format!("{round:02}")).await;
        // The same where there is no log yet, and there in two processes, which wait for the lock.
        let (new, root) = (self::store(), directory.path().join(round.to_string()));
        let here = Wals::at(&root, new.clone());
        let there = elsewhere(&root, &new, Tuning::default());
        one_goes_on(&new, [&here, if round < 2 { &there } else { &here }], "a").await;
    }
    let db = open(&store, &wals).await.unwrap();
    assert_eq!(keys(&db).await.len(), 20);
    close(&db).await;
}

async fn one_goes_on(store: &Arc<dyn ObjectStore>, wals: [&Wals; 2], key: &str) {
    let both = tokio::join!(open(store, wals[0]), open(store, wals[1]));
    let mut put_by = 0;
    for opened in [both.0, both.1] {
        let outcome = match opened {
            Ok(db) => put(&db, key).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => put_by += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed(CloseReason::Fenced), "{error}");
            }
        }
    }
    assert_eq!(put_by, 1, "{key}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_writer_that_comes_late_leaves_the_later_one_alone() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    // It waits for ever.
    let tuning = Tuning { fence_within: Duration::MAX, ..Tuning::default() };
    let wal = Wals::tuned(directory.path(), store.clone(), tuning).of("db");
    let seen = |epoch| Seen { epoch, replay_after: 0, next_id: 1 };
    let elsewhere = elsewhere(directory.path(), &store, Tuning::default()).of("db");
    let come_late = async || {
        for (earlier, epoch) in [(&wal, 1), (&wal, 2), (&elsewhere, 1), (&elsewhere, 2)] {
            let begun = earlier.begin(&mut Fenced(seen(epoch))).await;
            assert!(matches!(begun, Err(WalError::Fenced)), "{epoch}: {:?}", begun.err());
        }
    };
    let (mut later, _) = wal.begin(&mut Manifest(seen(3))).await.unwrap();
    later.append(&[row(1, 1, 9)]).await.unwrap();
    come_late().await;
    later.append(&[row(1, 2, 9)]).await.unwrap();
    later.close().await.unwrap();
    come_late().await;
    // The log was not taken for a foreign one meanwhile.
    wal.begin(&mut Manifest(seen(4))).await.unwrap();
}

async fn collect(store: &Arc<dyn ObjectStore>, wals: &Wals) {
    let gc = GarbageCollectorBuilder::new("db", Arc::clone(store))
        .with_wal_gc(Arc::new(wals.of("db")))
        .with_options(GarbageCollectorOptions {
            wal_options: Some(GarbageCollectorDirectoryOptions {
                interval: None,
                min_age: Duration::ZERO,
                dry_run: false,
            }),
            ..GarbageCollectorOptions::default()
        })
        .build();
    gc.run_gc_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_moves_to_this_log_and_back() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let own = || {
        let flush_interval = Some(Duration::from_millis(5));
        let settings = Settings { flush_interval, ..settings() };
        Db::builder("db", Arc::clone(&store)).with_settings(settings).build()
    };
    let db = own().await.unwrap();
    put(&db, "a").await.unwrap();
    db.close().await.unwrap();
    // Without the call it looks like a lost log.
    let wals = Wals::at(directory.path(), store.clone());
    let error = open(&store, &wals).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data, "{error}");
    assert!(error.to_string().contains("DatabaseWal::begin_anew"), "{error}");
    let db = open_with(&store, wals.of("db").begin_anew()).await.unwrap();
    put(&db, "b").await.unwrap();
    close(&db).await;
    let db = open(&store, &wals).await.unwrap();
    assert_eq!(keys(&db).await, ["a", "b"]);
    db.close().await.unwrap();
    let db = own().await.unwrap();
    assert_eq!(keys(&db).await, ["a", "b"]);
    close(&db).await;
}

/// A writer refuses these logs; a reader must not show fewer rows without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_an_older_log_or_of_none_gets_an_error() {
    let (directory, mine, owns) = (tempfile::tempdir().unwrap(), store(), store());
    let [main, older, none] = ["main", "older", "none"].map(|name| directory.path().join(name));
    let checkpoint = async |db: &Db, key| {
        put(db, key).await.unwrap();
        let options = CheckpointOptions::default();
        db.create_checkpoint(CheckpointScope::Durable, &options).await.unwrap().id
    };
    let db = open(&mine, &Wals::at(&main, mine.clone())).await.unwrap();
    put(&db, "a").await.unwrap();
    close(&db).await;
    std::fs::create_dir_all(older.join("db")).unwrap();
    for file in std::fs::read_dir(main.join("db")).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), older.join("db").join(file.file_name())).unwrap();
    }
    let db = open(&mine, &Wals::at(&main, mine.clone())).await.unwrap();
    let ours = checkpoint(&db, "b").await;
    close(&db).await;
    // With SlateDB's own WAL there is no object that names a log.
    let settings = Settings { flush_interval: Some(Duration::from_millis(5)), ..settings() };
    let db = Db::builder("db", owns.clone()).with_settings(settings).build().await.unwrap();
    let own = checkpoint(&db, "b").await;
    close(&db).await;
    for (store, id, root) in
        [(&mine, ours, &main), (&mine, ours, &older), (&mine, ours, &none), (&owns, own, &none)]
    {
        for mode in [DbReaderMode::Checkpoint(id), DbReaderMode::FollowLatest] {
            let wal = Arc::new(Wals::at(root, store.clone()).of("db"));
            let reader = DbReader::builder("db", store.clone()).with_reader_mode(mode);
            match reader.with_wal_reader(wal).build().await {
                Ok(reader) => {
                    assert!(reader.get("b").await.unwrap().is_some(), "{root:?}: {mode:?}");
                    assert_eq!(root, &main);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Data, "{root:?}: {mode:?}: {error}");
                    let path = root.join("db").display().to_string();
                    assert!(root != &main && error.to_string().contains(&path), "{error}");
                }
            }
        }
    }
}

/// Without a shared page, a writer without a thread publishes a row with its next call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_a_living_writer_has_not_published_is_no_damage() {
    let (disk, store) = (SimDisk::new(1, DiskOptions::default()), store());
    let process = || Wals::in_place(ProcessPlace::new(&disk), store.clone(), small());
    let db = open(&store, &process()).await.unwrap();
    db.put("a", "value").await.unwrap();
    db.flush_with_options(FlushOptions { flush_type: FlushType::Wal }).await.unwrap();
    let options = CheckpointOptions::default();
    let checkpoint = db.create_checkpoint(CheckpointScope::Durable, &options).await.unwrap().id;
    let elsewhere = process();
    let read = async || {
        let mode = DbReaderMode::Checkpoint(checkpoint);
        let reader = DbReader::builder("db", store.clone()).with_reader_mode(mode);
        reader.with_wal_reader(Arc::new(elsewhere.of("db"))).build().await
    };
    let clone = async |to: &str| {
        let admin = Admin::builder(to, store.clone()).with_wal_admin(Arc::new(elsewhere.clone()));
        let source = CloneSourceSpec::with_checkpoint("db", checkpoint);
        admin.build().create_clone_builder_from_source(source).build().await.map(drop)
    };
    for refused in [read().await.map(drop), clone("early").await] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    close(&db).await;
    assert!(read().await.unwrap().get("a").await.unwrap().is_some());
    clone("late").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_look_at_another_processs_log_shows_all_of_it() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wal = Wals::at(directory.path(), store.clone()).of("db");
    let (mut writer, _) = wal.begin(&mut Manifest(NEW)).await.unwrap();
    for id in 1..4 {
        writer.append(&[row(1, id, 9)]).await.unwrap();
        support::parts(writer.flush().await.unwrap()).1.await.unwrap();
        let elsewhere = elsewhere(directory.path(), &store, Tuning::default());
        assert_eq!(elsewhere.of("db").last_wal_file_id(0).await.unwrap(), id);
        assert!(!elsewhere.is_empty(&"db".into(), 0, id).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_no_batch_is_an_error_with_its_place() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let path = directory.path().join("db");
    let options = inkstone::Options::new().kind(inkstone::LogKind::SLATEDB).owner([0x11; 16]);
    let log = inkstone::Log::open(&path, options).unwrap();
    log.append_durable(b"no batch").unwrap();
    log.close().unwrap();
    let object = format!("{} 1", "11".repeat(16));
    store.put(&"db/inkstone.owner".into(), object.into()).await.unwrap();
    let wal = Wals::at(directory.path(), store.clone()).of("db");
    let mut read = wal.iterator((1..2).into()).await.unwrap();
    let error = read.next().await.map(drop).expect_err("no batch");
    let said = error.to_string();
    assert!(matches!(error, WalError::DataError(_)), "{said}");
    assert!(said.contains(path.to_str().unwrap()) && said.contains("WAL id 1"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unbounded_iterator_waits_and_goes_on_with_the_next_writer() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = Wals::at(directory.path(), store.clone());
    let mut followed = wals.of("db").iterator((1..).into()).await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            match followed.next().await {
                Ok(Some(rows)) => {
                    rows.rows.into_iter().for_each(|row| tell.send(Ok(row.key)).unwrap())
                }
                other => return tell.send(Err(format!("{:?}", other.err()))).unwrap(),
            }
        }
    });
    for round in 0..3 {
        let db = open(&store, &wals).await.unwrap();
        for number in 0..5 {
            let key = format!("{round}{number}");
            put(&db, &key).await.unwrap();
            let seen = tokio::time::timeout(Duration::from_secs(20), told.recv()).await;
            assert_eq!(seen.unwrap().unwrap().unwrap(), key);
        }
        close(&db).await;
    }
}
