//! Questions that SlateDB's contract leaves open, and today's behaviour: see questions.md.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::error::Error;
use std::sync::Arc;

use inkstone_sim::{DiskOptions, SimDisk};
use inkstone_slatedb::{DatabaseWal, Seen, Tuning, Wals, Writer};
use slatedb::object_store::memory::InMemory;
use slatedb::wal::{WalError, WalWriter};
use slatedb::{Db, ErrorKind};
use support::{Manifest, SimPlace, now, read, row, small};

const NEW: Seen = Seen { epoch: 1, replay_after: 0, next_id: 1 };

fn begun(tuning: Tuning) -> (DatabaseWal, Writer) {
    let disk = SimDisk::new(1, DiskOptions::default());
    let wals = Wals::in_place(SimPlace::new(&disk), Arc::new(InMemory::new()), tuning);
    let wal = wals.of("db");
    let (writer, _) = now(wal.begin(&mut Manifest(NEW))).unwrap();
    (wal, writer)
}

#[test]
fn a_bounded_range_beyond_the_end_is_truncated() {
    let (wal, mut writer) = begun(small());
    now(writer.append(&[row(1, 1, 9)])).unwrap();
    now(now(writer.flush()).unwrap().completion).unwrap();
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
    assert_eq!(now(writer.flush()).unwrap().wal_id, 0);
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
