//! A file of a segment that cannot be named or synced: the log goes on, or it is poisoned, and
//! nothing stands in the way of the next attempt.
//!
//! *Owns*: one fault at a time. *May not touch*: the crate's insides.

use std::sync::Arc;

use crate::history::LOG;
use inkstone::{Error, Log, Lsn, Options};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

/// Two of them do not fit in a segment.
const RECORD_BYTES: usize = 24 << 10;

fn small() -> Options {
    let options = Options::new().segment_bytes(64 << 10).record_bytes_max(RECORD_BYTES);
    options.buffer_bytes(8 << 10).own_thread(false)
}

/// A rename that failed left the new file in the way of every later attempt: the log took no more
/// until it was opened again, which is what `NoRoom` and its like promise not to need.
#[test]
fn a_rename_that_fails_is_tried_again_with_the_next_append() {
    for recycles in [false, true] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = Log::open_in(Arc::new(disk.directory(LOG)), small()).unwrap();
        let record = [7; RECORD_BYTES];
        log.append_durable(&record).unwrap();
        if recycles {
            log.append_durable(&record).unwrap();
            log.truncate_before(Lsn::new(2)).unwrap();
        }
        disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Rename));
        // The first attempt to take its file away fails too.
        disk.inject(Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Remove));
        let made = disk.counters().creations;
        assert!(matches!(log.append(&record), Err(Error::Io(_))));
        let last = log.append_durable(&record).unwrap();
        assert_eq!(last, log.last());
        assert_eq!(
            disk.counters().creations - made,
            if recycles { 0 } else { 2 },
            "the file's blocks are not lost"
        );
        assert_eq!(log.reader().get(last).unwrap(), record);
    }
}

/// A device that fails a flush may have dropped the log's own writes from its cache, and the next
/// flush reports nothing about them. It does not matter that the flush was for a file that nothing
/// relies on yet. It does matter whether the disk was only full.
#[test]
fn a_failed_sync_of_a_file_made_ahead_poisons_and_a_full_disk_does_not() {
    for (errno, poisons) in [(errno::EIO, true), (errno::ENOSPC, false)] {
        let disk = SimDisk::new(1, DiskOptions::default());
        let log = Log::open_in(Arc::new(disk.directory(LOG)), small()).unwrap();
        log.append_durable(b"before").unwrap();
        disk.inject(Fault::new(Effect::Error(errno)).on(OperationKind::Sync).file(".new"));
        let error = log.prepare_now().unwrap_err();
        assert_eq!(matches!(error, Error::Poisoned(_)), poisons, "{error}");
        assert_eq!(log.append_durable(b"after").is_err(), poisons);
        assert_eq!(log.reader().get(Lsn::FIRST).unwrap(), b"before");
    }
}
