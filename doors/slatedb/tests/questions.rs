//! Questions that SlateDB's contract leaves open, and today's behaviour: see questions.md.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::error::Error;
use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_slatedb::{DatabaseWal, Tuning, Wals, Writer};
use slatedb::admin::{Admin, CloneSourceSpec};
use slatedb::config::{CheckpointOptions, CheckpointScope, FlushOptions, FlushType, Settings};
use slatedb::object_store::{ObjectStore, memory::InMemory};
use slatedb::wal::{WalError, WalWriter};
use slatedb::{CheckpointCreateResult, Db, DbReader, DbReaderMode, ErrorKind};
use support::{Manifest, NEW, ProcessPlace, append, now, parts, read, row, small};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

fn begun(tuning: Tuning) -> (DatabaseWal, Writer) {
    let disk = SimDisk::new(1, DiskOptions::default());
    let wals = Wals::in_place(ProcessPlace::new(&disk), Arc::new(InMemory::new()), tuning);
    let wal = wals.of("db");
    let (writer, _) = now(wal.begin(&mut Manifest(NEW))).unwrap();
    (wal, writer)
}

#[test]
fn a_bounded_range_beyond_the_end_is_truncated() {
    let (wal, mut writer) = begun(small());
    append(&mut writer, &vec![row(1, 1, 9)]);
    assert_eq!(read(&wal, 1, 2).unwrap().len(), 1);
    assert!(matches!(read(&wal, 1, 3), Err(WalError::WalTruncated(2))));
}

#[test]
fn a_cause_is_carried_and_not_in_the_chain() {
    let (_wal, mut writer) = begun(small());
    let error = now(writer.append(&[row(1, 1, 100_000)])).unwrap_err();
    assert!(error.source().is_none(), "since it has one now, say so in questions.md");
    let WalError::InternalError(cause) = &error else { panic!("{error}") };
    let cause = cause.downcast_ref::<inkstone::Error>().expect("the log's own error");
    assert!(matches!(cause, inkstone::Error::TooLarge { .. }), "{cause}");
    // The writer goes on.
    now(writer.append(&[row(1, 1, 9)])).unwrap();
}

#[test]
fn an_empty_batch_is_nothing() {
    let (_wal, mut writer) = begun(small());
    now(writer.append(&[])).unwrap();
    assert!(parts(now(writer.flush()).unwrap()).0.is_none_or(|id| id == 0));
}

#[test]
fn the_writer_asks_for_a_memtable_when_the_log_has_much_of_its_rows() {
    let (_wal, mut writer) = begun(Tuning { log_bytes_max: 512 << 10, ..small() });
    // A quarter of the bound is 21 of these, and less with what their frames and groups need.
    for seq in 1..=15 {
        assert!(!writer.should_flush_memtable(0), "{seq}");
        now(writer.append(&[row(2, seq, 6000)])).unwrap();
    }
    (16..=22).for_each(|seq| now(writer.append(&[row(2, seq, 6000)])).unwrap());
    assert!(writer.should_flush_memtable(0));
    assert!(!writer.should_flush_memtable(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_goes_on_without_its_future() {
    let directory = tempfile::tempdir().unwrap();
    let wal = Wals::at(directory.path(), Arc::new(InMemory::new())).of("db");
    let (mut writer, _) = wal.begin(&mut Manifest(NEW)).await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    writer.observer().subscribe(Arc::new(move |event| drop(tell.send(event)))).unwrap();
    writer.append(&[row(1, 1, 9)]).await.unwrap();
    drop(writer.flush().await.unwrap());
    assert!(told.recv().await.is_some());
    assert_eq!(writer.status().unwrap().last_flushed_wal_id, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_too_large_ends_the_database() {
    let directory = tempfile::tempdir().unwrap();
    let log = inkstone::Options::new().record_bytes_max(1000);
    let (store, tuning) = (Arc::new(InMemory::new()), Tuning { log, ..Tuning::default() });
    let wals = Wals::tuned(directory.path(), store.clone(), tuning);
    let db =
        Db::builder("db", store).with_wal_writer(Box::new(wals.of("db"))).build().await.unwrap();
    let refused = db.put("large", [0_u8; 2000]).await.map(drop).expect_err("refused");
    assert!(refused.to_string().contains("20"), "{refused}");
    let later = db.put("small", "value").await.map(drop).expect_err("closed");
    assert!(matches!(later.kind(), ErrorKind::Closed(_) | ErrorKind::Internal), "{later}");
}

/// Makes a checkpoint as soon as a put is said to be durable, before the thread that says so goes
/// on.
struct AtOnce {
    db: Db,
    made: OnceLock<CheckpointCreateResult>,
    runtime: Handle,
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        let options = CheckpointOptions::default();
        let made = self.db.create_checkpoint(CheckpointScope::Durable, &options);
        let made = block_in_place(|| self.runtime.block_on(made)).unwrap();
        self.made.set(made).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_checkpoint_has_each_row_that_was_acknowledged() {
    for is_ours in [true, false] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let wals = Wals::in_place(ProcessPlace::new(&disk), Arc::clone(&store), small());
        // Only the flushes here make a row durable, and wake a task that waits for one.
        let settings = Settings {
            flush_interval: None,
            manifest_poll_interval: Duration::from_secs(3600),
            compactor_options: None,
            garbage_collector_options: None,
            ..Settings::default()
        };
        let builder = Db::builder("db", Arc::clone(&store)).with_settings(settings);
        let db = match is_ours {
            true => builder.with_wal_writer(Box::new(wals.of("db"))).build().await.unwrap(),
            false => builder.build().await.unwrap(),
        };
        let flush = async || {
            let options = FlushOptions { flush_type: FlushType::Wal };
            db.flush_with_options(options).await.unwrap();
        };
        db.put("a", "value").await.unwrap();
        flush().await;
        let (db, made) = (db.clone(), OnceLock::new());
        let at_once = Arc::new(AtOnce { db: db.clone(), made, runtime: Handle::current() });
        let put = db.put("b", "value").await.unwrap();
        let mut durable = pin!(put.await_durable());
        let waker = Waker::from(Arc::clone(&at_once));
        assert!(durable.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        flush().await;
        durable.await.unwrap();
        let checkpoint = at_once.made.get().expect("the put was said to be durable").id;

        let mode = DbReaderMode::Checkpoint(checkpoint);
        let reader = DbReader::builder("db", Arc::clone(&store)).with_reader_mode(mode);
        let reader = match is_ours {
            true => reader.with_wal_reader(Arc::new(wals.of("db"))),
            false => reader,
        };
        let reader = reader.build().await.unwrap();
        assert!(reader.get("a").await.unwrap().is_some());
        // The fault of 0.17 with a WAL that does not know it.
        let has_fault = cfg!(feature = "slatedb-0-17") && !is_ours;
        assert_eq!(reader.get("b").await.unwrap().is_none(), has_fault, "ours: {is_ours}");
        if is_ours {
            let admin = Admin::builder("clone", Arc::clone(&store));
            let admin = admin.with_wal_admin(Arc::new(wals.clone())).build();
            let source = CloneSourceSpec::with_checkpoint("db", checkpoint);
            admin.create_clone_builder_from_source(source).build().await.unwrap();
            let clone = Db::builder("clone", store).with_wal_writer(Box::new(wals.of("clone")));
            assert!(clone.build().await.unwrap().get("b").await.unwrap().is_some());
        }
    }
}
