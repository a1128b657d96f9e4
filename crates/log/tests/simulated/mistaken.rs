//! The mistakes that neither a class of faults nor the explorer catches: each breaks a promise in a
//! history that was made for it, and without the mistake the same seeds are sound.
//!
//! *Owns*: one history per mistake, with the coincidence that it takes. `.ci/mistaken table` prints
//! what catches the others. *May not touch*: the crate's insides.

use std::sync::{Arc, Mutex};

use crate::history::{LOG, SAMPLES, Told, append, check_cut, disk, name, open, record, with};
use inkstone::mistake::Mistake;
use inkstone::{Error, Log, Lsn};
use inkstone_sim::shrink::seeds;
use inkstone_sim::{AfterEffect, Effect, Fault, OperationKind, errno};

/// Counted, not timed: a history takes a millisecond or so.
pub(crate) const SEEDS: u64 = 30;
const LOST: &str = "were acknowledged and";
pub(crate) const WRONG: &str = "was never appended";
const BACK: &str = "is there again";

/// Runs the history over the seeds, with the mistake and without: with it some break this promise,
/// and no other; without it none does.
pub(crate) fn caught(
    mistake: Mistake,
    way: &str,
    history: impl Fn(Option<Mistake>, u64) -> Result<(), String>,
) {
    for seed in seeds(1, SEEDS) {
        history(None, seed)
            .unwrap_or_else(|reason| panic!("no mistake, and yet at seed {seed}: {reason}"));
    }
    let found: Vec<_> =
        seeds(1, SEEDS).filter_map(|seed| history(Some(mistake), seed).err()).collect();
    assert!(!found.is_empty(), "{mistake} is not caught");
    let other = found.iter().find(|reason| !reason.contains(way));
    assert!(other.is_none(), "{mistake} breaks something else: {other:?}");
}

#[test]
fn a_callback_before_its_group_is_written_tells_of_what_no_disk_has() {
    const RECORDS: u64 = 12;
    caught(Mistake::CallbackEarly, LOST, |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        let answers = Arc::new(Mutex::new(Vec::new()));
        for lsn in 1..=RECORDS {
            let (disk, options, answers) = (disk.clone(), options.clone(), Arc::clone(&answers));
            log.append(&record(lsn)).unwrap().on_durable(move |outcome| {
                let told = Told { acked: outcome.unwrap().get(), appended: RECORDS };
                let survives = check_cut(&disk.power_cut(), &options, seed, told);
                answers.lock().unwrap().push(survives);
            });
            if (lsn ^ seed).is_multiple_of(3) {
                log.sync().unwrap();
            }
        }
        log.close().unwrap();
        let answers = std::mem::take(&mut *answers.lock().unwrap());
        assert_eq!(answers.len() as u64, RECORDS, "callbacks that were not called");
        answers.into_iter().collect()
    });
}

#[test]
fn a_close_that_says_ok_after_a_failure_loses_what_was_let_go() {
    caught(Mistake::CloseSwallowsErrors, LOST, |mistake, seed| {
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
    caught(Mistake::HeaderFailureRetried, BACK, |mistake, seed| {
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
    caught(Mistake::TruncationNeedsRoom, "nothing can be truncated", |mistake, seed| {
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
