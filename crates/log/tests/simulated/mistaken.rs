//! The mistakes that neither a class of faults nor the explorer catches: each breaks a promise in a
//! history that was made for it, and without the mistake the same seeds are sound.
//!
//! *Owns*: one history per mistake, with the coincidence that it takes. `.ci/mistaken table` prints
//! what catches the others. *May not touch*: the crate's insides.

use std::sync::{Arc, Mutex};

use crate::history::{Told, check_cut, disk, open, record, with};
use inkstone::Lsn;
use inkstone::mistake::Mistake;
use inkstone_sim::shrink::seeds;

/// Counted, not timed: a history takes a millisecond or so.
pub(crate) const SEEDS: u64 = 30;
const LOST: &str = "were acknowledged and";
pub(crate) const WRONG: &str = "was never appended";

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
        // Each takes a block of the room for control groups, which has three.
        for first in 2..=4 {
            log.truncate_before(Lsn::new(first))
                .map_err(|error| format!("nothing can be truncated: {error}"))?;
        }
        Ok(())
    });
}
