//! Whole databases on real files: fencing, followers, directories of other databases, and all else
//! that a model of a manifest does not cover.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inkstone::{AnyDirectory, IoError};
use inkstone_slatedb::{Living, NewLog, OsPlace, Place, Seen, Tuning, Wals};
use slatedb::config::{
    CloseOptions, FlushOptions, FlushType, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions, Settings,
};
use slatedb::object_store::{ObjectStore, memory::InMemory};
use slatedb::wal::{WalAdmin, WalError, WalReader, WalWriter};
use slatedb::{CloseReason, Db, ErrorKind, GarbageCollectorBuilder};
use support::{Fenced, Manifest, row};

fn settings() -> Settings {
    Settings {
        flush_interval: None,
        compactor_options: None,
        garbage_collector_options: None,
        ..Settings::default()
    }
}

fn store() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

async fn open(store: &Arc<dyn ObjectStore>, wals: &Wals) -> Result<Db, slatedb::Error> {
    let builder = Db::builder("db", Arc::clone(store)).with_settings(settings());
    builder.with_wal_writer(Box::new(wals.of("db"))).build().await
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
async fn a_put_is_durable_without_a_flush_and_without_a_timer() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = Wals::at(directory.path());
    let db = open(&store, &wals).await.unwrap();
    for number in 0..200 {
        put(&db, &format!("{number:03}")).await.unwrap();
    }
    // Not closed: as if the process was killed.
    std::mem::forget(db);
    let again = open(&store, &wals).await.unwrap();
    assert_eq!(keys(&again).await.len(), 200);
    close(&again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_database_fences_the_first_and_has_its_rows() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let first = open(&store, &Wals::at(directory.path())).await.unwrap();
    put(&first, "a").await.unwrap();
    // By another name of the same directory.
    let second = open(&store, &Wals::at(directory.path().join("."))).await.unwrap();
    let late = put(&first, "late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Closed(CloseReason::Fenced), "{late}");
    put(&second, "b").await.unwrap();
    assert_eq!(keys(&second).await, ["a", "b"]);
    let _ = first.close().await;
    put(&second, "c").await.unwrap();
    close(&second).await;
}

/// As another process on the same directories, which does not know the writers here.
struct Elsewhere(OsPlace, Living);

impl Place for Elsewhere {
    fn find(&self, name: &str) -> Result<Option<AnyDirectory>, IoError> {
        self.0.find(name)
    }

    fn create(&self, name: &str) -> Result<AnyDirectory, IoError> {
        self.0.create(name)
    }

    fn living(&self) -> &Living {
        &self.1
    }
}

fn elsewhere(root: &Path, tuning: Tuning) -> Wals {
    Wals::in_place(Arc::new(Elsewhere(OsPlace::new(root), Living::default())), tuning)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_writer_of_another_process_goes_when_it_sees_its_manifest() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let first = open(&store, &Wals::at(directory.path())).await.unwrap();
    put(&first, "a").await.unwrap();
    let second = open(&store, &elsewhere(directory.path(), Tuning::default())).await.unwrap();
    let late = put(&first, "late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Closed(CloseReason::Fenced), "{late}");
    put(&second, "b").await.unwrap();
    assert_eq!(keys(&second).await, ["a", "b"]);
    close(&second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_open_at_once_one_goes_on() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = Wals::at(directory.path());
    for round in 0..20 {
        one_goes_on(&store, &wals, &format!("{round:02}")).await;
        // The same where there is no log yet.
        one_goes_on(&self::store(), &Wals::at(directory.path().join(round.to_string())), "a").await;
    }
    let db = open(&store, &wals).await.unwrap();
    assert_eq!(keys(&db).await.len(), 20);
    close(&db).await;
}

async fn one_goes_on(store: &Arc<dyn ObjectStore>, wals: &Wals, key: &str) {
    let both = tokio::join!(open(store, wals), open(store, wals));
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
    let directory = tempfile::tempdir().unwrap();
    // It waits for ever.
    let tuning = Tuning { fence_within: Duration::MAX, ..Tuning::default() };
    let wal = Wals::tuned(directory.path(), tuning).of("db");
    let seen = |epoch| Seen { epoch, replay_after: 0, next_id: 1, is_clone: false };
    let elsewhere = elsewhere(directory.path(), Tuning::default()).of("db");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_database_by_mistake_on_a_log_in_use_harms_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (mine, new) = (store(), store());
    let wals = Wals::at(directory.path());
    let db = open(&mine, &wals).await.unwrap();
    put(&db, "a").await.unwrap();
    // In this process, in another one, and again.
    let short = || Tuning { fence_within: Duration::ZERO, ..Tuning::default() };
    for wrong in [&wals, &elsewhere(directory.path(), short()), &wals] {
        let error = open(&new, wrong).await.map(drop).expect_err("refused");
        assert!(error.to_string().contains("another database's"), "{error}");
    }
    put(&db, "b").await.unwrap();
    // From now on the manifest knows the log.
    db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await.unwrap();
    close(&db).await;
    let db = open(&mine, &wals).await.unwrap();
    assert_eq!(keys(&db).await, ["a", "b"]);
    close(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_database_does_not_get_the_rows_of_a_log_for_which_it_waited() {
    let directory = tempfile::tempdir().unwrap();
    let (mine, new) = (store(), store());
    let db = open(&mine, &Wals::at(directory.path())).await.unwrap();
    put(&db, "a").await.unwrap();
    let tuning = Tuning { fence_within: Duration::ZERO, ..Tuning::default() };
    let elsewhere = elsewhere(directory.path(), tuning);
    open(&new, &elsewhere).await.map(drop).expect_err("in use");
    close(&db).await;
    let error = open(&new, &elsewhere).await.map(drop).expect_err("refused");
    assert!(error.to_string().contains("another database's"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing_and_collection_makes_room() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let log = inkstone::Options::new().record_bytes_max(1 << 16).segment_bytes(1 << 20);
    let tuning = Tuning { log: log.disk_budget_bytes(3 << 20), ..Tuning::default() };
    let wals = Wals::tuned(directory.path(), tuning);
    let (mut put, mut fulls) = (0, 0);
    let mut db = open(&store, &wals).await.unwrap();
    while fulls < 3 {
        let key = format!("{put:04}");
        let error = match db.put(&key, [7; 30_000]).await {
            Ok(handle) => handle.await_durable().await.err(),
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            put += 1;
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let _ = db.close().await;
        fulls += 1;
        db = open(&store, &wals).await.unwrap();
        assert_eq!(keys(&db).await.len(), put);
        db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await.unwrap();
        collect(&store, &wals).await;
    }
    assert!(put > 200, "{put}");
    close(&db).await;
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
async fn a_lost_an_old_and_a_foreign_directory_are_refused() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let (main, old) = (directory.path().join("main"), directory.path().join("old"));
    let db = open(&store, &Wals::at(&main)).await.unwrap();
    put(&db, "a").await.unwrap();
    close(&db).await;
    copy(&main.join("db"), &old.join("db"));
    let db = open(&store, &Wals::at(&main)).await.unwrap();
    put(&db, "b").await.unwrap();
    // The manifest learns what is durable.
    db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await.unwrap();
    put(&db, "c").await.unwrap();
    db.create_checkpoint(slatedb::config::CheckpointScope::Durable, &Default::default())
        .await
        .unwrap();
    close(&db).await;

    // An older copy is refused even if a loss is accepted: the user may move it away.
    let accepting = || Tuning { new_log: NewLog::AcceptLoss, ..Tuning::default() };
    let wrong = [Wals::at(&old), Wals::tuned(&old, accepting())];
    for wrong in [&wrong[0], &wrong[1], &Wals::at(directory.path().join("lost"))] {
        let error = open(&store, wrong).await.map(drop).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
    }
    // A new database does not become the log's owner by a second attempt.
    let new = self::store();
    for _ in 0..3 {
        let error = open(&new, &Wals::at(&main)).await.map(drop).expect_err("refused");
        assert!(error.to_string().contains("another database's"), "{error}");
    }

    let right = open(&store, &Wals::at(&main)).await.unwrap();
    assert_eq!(keys(&right).await, ["a", "b", "c"]);
    close(&right).await;
    // Accepting the loss works, and ids follow the lost ones.
    let lost = Wals::tuned(directory.path().join("lost"), accepting());
    let accepted = open(&store, &lost).await.unwrap();
    assert_eq!(keys(&accepted).await, ["a", "b"]);
    put(&accepted, "d").await.unwrap();
    close(&accepted).await;
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
    // Without `NewLog` it looks like a lost log.
    let error = open(&store, &Wals::at(directory.path())).await.map(drop).expect_err("refused");
    assert!(error.to_string().contains("NewLog::AfterFlush"), "{error}");
    let tuned = |new_log| Wals::tuned(directory.path(), Tuning { new_log, ..Tuning::default() });
    let db = open(&store, &tuned(NewLog::AfterFlush)).await.unwrap();
    put(&db, "b").await.unwrap();
    close(&db).await;
    let db = open(&store, &tuned(NewLog::Never)).await.unwrap();
    assert_eq!(keys(&db).await, ["a", "b"]);
    db.close().await.unwrap();
    let db = own().await.unwrap();
    assert_eq!(keys(&db).await, ["a", "b"]);
    close(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_look_at_another_processs_log_shows_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let wal = Wals::at(directory.path()).of("db");
    let seen = Seen { epoch: 1, replay_after: 0, next_id: 1, is_clone: false };
    let (mut writer, _) = wal.begin(&mut Manifest(seen)).await.unwrap();
    for id in 1..4 {
        writer.append(&[row(1, id, 9)]).await.unwrap();
        support::parts(writer.flush().await.unwrap()).1.await.unwrap();
        let elsewhere = elsewhere(directory.path(), Tuning::default());
        assert_eq!(elsewhere.of("db").last_wal_file_id(0).await.unwrap(), id);
        assert!(!elsewhere.is_empty(&"db".into(), 0, id).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_no_batch_is_an_error_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let of_slatedb = inkstone::Options::new().kind(inkstone::LogKind::SLATEDB);
    let log = inkstone::Log::open(&path, of_slatedb).unwrap();
    log.append_durable(b"no batch").unwrap();
    log.close().unwrap();
    let mut read = Wals::at(directory.path()).of("db").iterator((1..2).into()).await.unwrap();
    let error = read.next().await.map(drop).expect_err("no batch");
    let said = error.to_string();
    assert!(matches!(error, WalError::DataError(_)), "{said}");
    assert!(said.contains(path.to_str().unwrap()) && said.contains("WAL id 1"), "{said}");
}

/// Rows of a salvaged log are lost: neither a writer nor a reader comes, until somebody has truncated
/// the log behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_salvaged_log_is_a_data_error_until_its_gap_is_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let (broken, path) = (directory.path().join("broken"), directory.path().join("db"));
    let seen = Seen { epoch: 1, replay_after: 0, next_id: 1, is_clone: false };
    let (mut writer, _) =
        Wals::at(directory.path()).of("broken").begin(&mut Manifest(seen)).await.unwrap();
    for id in 1..=9 {
        writer.append(&[row(1, id, 200)]).await.unwrap();
        support::parts(writer.flush().await.unwrap()).1.await.unwrap();
    }
    drop(writer);
    let report = inkstone::inspect::verify(&broken).unwrap();
    let file = &report.segments[0].path;
    let entries = inkstone::inspect::dump(&broken, 0).unwrap().map(Result::unwrap);
    let fifth = entries.filter_map(|entry| match entry {
        inkstone::inspect::Entry::Frame { at, lsn, control: None, .. } if lsn.get() == 5 => {
            Some(at)
        }
        _ => None,
    });
    let (mut bytes, at) = (std::fs::read(file).unwrap(), fifth.last().unwrap() as usize);
    bytes[at + 60] ^= 1;
    std::fs::write(file, bytes).unwrap();
    inkstone::inspect::salvage(&broken, &path, &inkstone::Options::new()).unwrap();
    let wal = Wals::at(directory.path()).of("db");
    let refused = [
        wal.begin(&mut Manifest(Seen { epoch: 2, next_id: 10, ..seen })).await.map(drop),
        wal.last_wal_file_id(0).await.map(drop),
        wal.iterator((1..10).into()).await.unwrap().next().await.map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, WalError::DataError(_)), "{said}");
        assert!(said.contains("ids up to 5 are lost") && said.contains("--before 6"), "{said}");
    }
    let log = inkstone::Log::open(&path, inkstone::Options::new()).unwrap();
    log.truncate_before(inkstone::Lsn::new(6)).unwrap();
    log.close().unwrap();
    assert_eq!(wal.last_wal_file_id(0).await.unwrap(), 9);
    let next = Seen { epoch: 2, replay_after: 5, next_id: 10, is_clone: false };
    wal.begin(&mut Manifest(next)).await.unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unbounded_iterator_waits_and_goes_on_with_the_next_writer() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = Wals::at(directory.path());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_log_is_not_deleted_and_a_deleted_one_is_gone() {
    let (directory, store) = (tempfile::tempdir().unwrap(), store());
    let wals = Wals::at(directory.path());
    let db = open(&store, &wals).await.unwrap();
    put(&db, "a").await.unwrap();
    let path = "db".into();
    assert!(matches!(wals.delete_wal(&path, false).await, Err(WalError::Unavailable(_))));
    close(&db).await;
    let dry = wals.delete_wal(&path, true).await.unwrap();
    assert!(!dry.is_empty());
    assert_eq!(wals.delete_wal(&path, false).await.unwrap(), dry);
    assert!(wals.delete_wal(&path, false).await.unwrap().is_empty());
    let fresh = open(&self::store(), &wals).await.unwrap();
    assert!(keys(&fresh).await.is_empty());
    close(&fresh).await;
}
