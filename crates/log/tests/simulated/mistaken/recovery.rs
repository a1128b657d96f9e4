//! As `directed.rs`: mistakes in what an opening must find out, and in what a failure or a full
//! disk must not change, of which each takes a rare coincidence to do harm.
//!
//! *Owns*: one history per mistake, with the coincidence in it. *May not touch*: the crate's
//! insides.

use crate::caught::{LOST, SAMPLES, WRONG, caught, check_cut};
use crate::history::{Told, append, check, check_with, disk, name, open, record, with};
use inkstone::mistake::Mistake;
use inkstone::{Error, Log, Lsn};
use inkstone_sim::{AfterEffect, DiskOptions, Effect, Fault, OperationKind, SimDisk, errno};

const BACK: &str = "is there again";

/// Two lives write batches of the same sizes at the same place, each torn by a power cut: what the
/// second one lost of its own is there from the first.
#[test]
fn an_epoch_that_is_not_raised_lets_two_lives_mix() {
    caught(Mistake::EpochNotRaised, &[WRONG], |mistake, seed| {
        let options = with(mistake).pad_groups(true).record_bytes_max(16 << 10);
        // Padded, a frame ends where a block does: 48 bytes of a group and 24 of each frame are not
        // the record's.
        let sized = |life: u8| [4024, 4072, 4072].map(|bytes| vec![life; bytes]);
        let disk = SimDisk::new(
            seed,
            DiskOptions { sector_bytes: 4096, writeback_ppm: 0, ..DiskOptions::default() },
        );
        open(&disk, options.clone()).unwrap().close().unwrap();
        for sample in 0..40 {
            let mut found = disk.crash(seed);
            let mut first = 0;
            for life in 1..=2 {
                let log = open(&found, options.clone()).map_err(|error| error.to_string())?;
                first = log.last().get();
                found.record_epochs();
                log.append_batch(&sized(life)).unwrap().wait().unwrap();
                log.abandon();
                let cuts = found.take_epochs();
                found = cuts[(sample + seed) as usize % cuts.len()]
                    .sample(seed ^ sample << 20 ^ u64::from(life));
            }
            if first == 0 {
                let told = Told { acked: 0, appended: 3 };
                check_with(&found, options.clone(), told, |lsn| {
                    sized(2)[lsn as usize - 1].clone()
                })?;
            }
        }
        Ok(())
    });
}

/// The write of the last group is lost, and the caller knows that it was acknowledged.
#[test]
fn a_caller_who_knows_more_is_not_asked() {
    caught(Mistake::ExpectIgnored, &[LOST], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake).pad_groups(seed.is_multiple_of(2)));
        let log = open(&disk, options.clone()).unwrap();
        append(&log, 1, 3)?;
        disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
        append(&log, 4, 4)?;
        log.abandon();
        let options = options.expect_durable(Lsn::new(4));
        let found = disk.crash(seed);
        match open(&found, options.clone()).map(Log::abandon) {
            Err(Error::Corrupt(_)) => Ok(()),
            _ => check(&found, options, Told::all(4)).map(drop),
        }
    });
}

/// The group of a truncation is lost; the promise in the group of the next truncation shows it.
#[test]
fn a_promise_of_bytes_is_not_looked_at() {
    caught(Mistake::PromisedBytesIgnored, &[BACK], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake).pad_groups(true));
        let log = open(&disk, options.clone()).unwrap();
        append(&log, 1, 5)?;
        disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
        log.truncate_before(Lsn::new(3)).unwrap();
        log.truncate_before(Lsn::new(4)).unwrap();
        log.abandon();
        match open(&disk.crash(seed), options) {
            Err(Error::Corrupt(_)) => Ok(()),
            Ok(log) if log.first().get() == 4 => Ok(()),
            Ok(log) => Err(format!("LSN {} {BACK}", log.first())),
            Err(error) => Err(error.to_string()),
        }
    });
}

#[test]
fn a_close_that_says_ok_after_a_failure_loses_what_was_let_go() {
    caught(Mistake::CloseSwallowsErrors, &[LOST], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        append(&log, 1, 2)?;
        drop(log.append(&record(3)).unwrap());
        disk.inject(
            Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew))
                .on(OperationKind::Sync),
        );
        let acked = if log.close().is_ok() { 3 } else { 2 };
        check_cut(&disk.power_cut(), &options, seed, Told { acked, appended: 3 })
    });
}

/// The first copy of a header reaches the page cache, and then the write fails; before another
/// segment is begun, records are truncated in the old one.
#[test]
fn a_header_that_is_tried_again_elsewhere_hides_what_the_old_segment_takes() {
    caught(Mistake::HeaderFailureRetried, &[BACK], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        let fault = Fault::new(Effect::ShortThenError(700, errno::EIO)).on(OperationKind::Write);
        disk.inject(fault.file(&name(2)));
        let mut last = 0;
        while log.append_durable(&record(last + 1)).is_ok() {
            last += 1;
        }
        let first = if log.truncate_before(Lsn::new(20)).is_ok() { 20 } else { 1 };
        for sample in 0..SAMPLES {
            let log = open(&disk.crash(seed ^ sample << 20), options.clone())
                .map_err(|error| format!("it does not open: {error}"))?;
            if log.first().get() < first {
                return Err(format!("LSN {} {BACK}", log.first()));
            }
        }
        Ok(())
    });
}

/// A disk on which no other segment fits, and a segment that is nearly full.
#[test]
fn a_truncation_that_needs_a_segment_leaves_a_full_disk_full() {
    caught(Mistake::TruncationNeedsRoom, &["nothing can be truncated"], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake).pad_groups(true));
        let log = open(&disk, options).unwrap();
        disk.change_options(|options| options.capacity_bytes = Some(100 << 10));
        let mut last = 0;
        while log.append_durable(&record(last + 1)).is_ok() {
            last += 1;
        }
        for first in 2..=5 {
            log.truncate_before(Lsn::new(first))
                .map_err(|error| format!("nothing can be truncated: {error}"))?;
        }
        Ok(())
    });
}
