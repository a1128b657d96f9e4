//! A lock file that is removed beside a writer, where no lock of the directory keeps a second one
//! out: at most a second's records of either are lost, and none that is acknowledged after that.
//!
//! *Owns*: two writers on one disk. With real directories: `places/one_writer.rs`.

use std::time::{Duration, Instant};

use inkstone::{Error, Log, Lsn, Options};
use inkstone_io::Directory as _;
use inkstone_sim::{DiskOptions, SimDisk};

const BETWEEN_LOOKS: Duration = Duration::from_millis(1100);

fn options() -> Options {
    Options::small()
}

fn open(disk: &SimDisk) -> Log {
    Log::open_in(&disk.directory("/log"), options()).unwrap()
}

#[test]
fn a_writer_that_lost_its_lock_acknowledges_nothing_after_a_second() {
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = open(&disk);
    for lsn in 1..=10 {
        assert_eq!(log.append_durable(b"first").unwrap(), Lsn::new(lsn));
    }
    disk.directory("/log").remove("inkstone.lock").unwrap();
    let second = open(&disk);
    std::thread::sleep(BETWEEN_LOOKS);
    // As many as there are: each is refused, and nothing of the second's is written over.
    let error = log.append_durable(b"first").expect_err("its lock is lost");
    assert!(matches!(error, Error::Poisoned(_)), "{error}");
    for lsn in 11..=200 {
        assert_eq!(second.append_durable(b"second").unwrap(), Lsn::new(lsn));
    }
    drop(log);
    second.close().unwrap();
    let found = open(&disk);
    let records: Vec<_> =
        found.reader().records(Lsn::FIRST).map(|record| record.unwrap().bytes).collect();
    assert_eq!(records.len(), 200);
    assert!(records[..10].iter().all(|bytes| bytes == b"first"));
    assert!(records[10..].iter().all(|bytes| bytes == b"second"));
}

#[test]
fn a_busy_writer_that_lost_its_lock_ends_within_a_second() {
    let disk = SimDisk::new(2, DiskOptions::default());
    let log = open(&disk);
    disk.directory("/log").remove("inkstone.lock").unwrap();
    let began = Instant::now();
    let error = loop {
        match log.append_durable(&[7; 100]) {
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(10), "never noticed"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Poisoned(_)), "{error}");
}

#[test]
fn a_writer_that_lost_its_lock_begins_no_segment() {
    let disk = SimDisk::new(3, DiskOptions::default());
    let log = open(&disk);
    log.append_durable(b"a record").unwrap();
    disk.directory("/log").remove("inkstone.lock").unwrap();
    // Within a second: the change of segment asks by itself.
    let error = log.truncate_after(Lsn::ZERO).and_then(|()| log.append_durable(b"another"));
    assert!(matches!(error, Err(Error::Poisoned(_))), "{error:?}");
}
