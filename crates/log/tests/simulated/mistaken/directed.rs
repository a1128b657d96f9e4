//! Every mistake that can be built in is caught, by a promise that is seen broken; and the same
//! history without it keeps every promise, over the same seeds.
//!
//! *Owns*: one history per mistake. `.ci/mistaken table` prints what catches each. *May not touch*:
//! the crate's insides.

use std::sync::{Arc, Mutex};

use crate::caught::{
    LOST, REFUSES, SAMPLES, UNREADABLE, WRONG, awaited_lsns, behind_full_buffers, callbacks,
    caught, caught_in_any_way, check_cut,
};
use crate::gate::Gate;
use crate::history::{
    LOG, Told, append, check, check_with, disk, name, open, read_file, record, small, with,
    write_file,
};
use inkstone::mistake::Mistake;
use inkstone::{Access, Durability, Event, Log, Lsn, Options};
use inkstone_sim::{
    AfterEffect, Counters, DiskOptions, Effect, Fault, OperationKind, SimDisk, errno,
};

/// Appends the records `from..=to` with cuts inside each commit and after it.
fn append_with_cuts(
    disk: &SimDisk,
    log: &Log,
    options: &Options,
    seed: u64,
    (from, to): (u64, u64),
) -> Result<(), String> {
    disk.record_epochs();
    for lsn in from..=to {
        append(log, lsn, lsn)?;
        for cut in disk.take_epochs() {
            check_cut(&cut, options, seed, Told { acked: lsn - 1, appended: lsn })?;
        }
        check_cut(&disk.power_cut(), options, seed, Told::all(lsn))?;
    }
    Ok(())
}

#[test]
fn no_sync_loses_what_was_acknowledged() {
    caught(Mistake::NoSync, &[LOST, REFUSES], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        append_with_cuts(&disk, &log, &options, seed, (1, 6))
    });
}

#[test]
fn no_directory_sync_loses_a_whole_segment() {
    caught(Mistake::NoDirectorySync, &[LOST], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        // The first segment's name, then one more.
        append(&log, 1, 2)?;
        check_cut(&disk.power_cut(), &options, seed, Told::all(2))?;
        append(&log, 3, 140)?;
        check_cut(&disk.power_cut(), &options, seed, Told::all(140))
    });
}

/// Old bytes at the same place: of the file's earlier use, and of another log.
#[test]
fn no_identity_takes_old_bytes_for_new_ones() {
    caught(Mistake::NoIdentity, &[REFUSES], |mistake, seed| {
        // Records of one size, so that the groups of a recycled segment begin where the old ones
        // did.
        let sized = |lsn: u64| vec![lsn as u8; 400 + seed as usize];
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        let mut last = 0;
        while log.recovery().segments + 3 > segments(&disk) {
            last += 1;
            log.append_durable(&sized(last)).unwrap();
            log.truncate_before(Lsn::new(last.saturating_sub(20).max(1))).unwrap();
        }
        check_with(&disk.crash(seed), options, Told::all(last), sized).map(drop)
    });
    caught(Mistake::NoIdentity, &[WRONG], |mistake, seed| {
        // Two logs with the same history, but for the bytes of their records and how many there
        // are.
        let theirs = |lsn: u64| vec![!(lsn as u8); 100 + seed as usize];
        let ours = |lsn: u64| vec![lsn as u8; 100 + seed as usize];
        let write = |seed: u64, record: &dyn Fn(u64) -> Vec<u8>, count: u64| {
            let disk = disk(seed);
            let log = open(&disk, with(mistake)).unwrap();
            (1..=count).for_each(|lsn| {
                assert_eq!(log.append_durable(&record(lsn)).unwrap(), Lsn::new(lsn))
            });
            log.abandon();
            disk
        };
        let (found, other) = (write(seed, &ours, 3), write(seed + 1000, &theirs, 6));
        // Behind the end of ours, blocks of the other one come to light: a file system gave them
        // out again.
        let end =
            open(&found.crash(0), with(mistake)).unwrap().recovery().end.unwrap().byte as usize;
        let bytes = read_file(&other.directory(LOG), &name(1));
        write_file(&found.directory(LOG), &name(1), end as u64, &bytes[end..]);
        check_with(&found, with(mistake), Told::all(3), ours).map(drop)
    });
}

/// The highest segment number there is a file of.
fn segments(disk: &SimDisk) -> usize {
    let names = inkstone_io::Directory::list(&disk.directory(LOG)).unwrap();
    names.iter().filter_map(|name| name.strip_suffix(".ink")?.parse().ok()).max().unwrap()
}

/// A bit that rots, or a write that the device lost, below what was acknowledged: an opening must
/// refuse, not continue with less.
fn damage_below_a_promise(mistake: Option<Mistake>, seed: u64) -> Result<(), String> {
    let (disk, options) = (disk(seed), with(mistake).pad_groups(seed.is_multiple_of(2)));
    let log = open(&disk, options.clone()).unwrap();
    append(&log, 1, 2)?;
    if seed.is_multiple_of(2) {
        disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
    }
    append(&log, 3, 6)?;
    log.close().unwrap();
    let found = disk.crash(seed);
    if !seed.is_multiple_of(2) {
        found.rot(LOG, &name(1), 4096 + 88 + seed % 200, 1 << (seed % 8));
    }
    match open(&found, options.clone()).map(Log::abandon) {
        Err(inkstone::Error::Corrupt(_)) => Ok(()),
        _ => check(&found, options, Told::all(6)).map(drop),
    }
}

#[test]
fn no_promise_loses_in_silence() {
    caught(Mistake::NoPromise, &[LOST], damage_below_a_promise);
}

#[test]
fn cutting_below_a_promise_loses_in_silence() {
    caught(Mistake::CutsBelowPromise, &[LOST], damage_below_a_promise);
}

#[test]
fn a_promise_that_is_too_high_keeps_a_sound_log_from_opening() {
    caught(Mistake::PromiseTooHigh, &[REFUSES], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake).pad_groups(true));
        let log = open(&disk, options.clone()).unwrap();
        append_with_cuts(&disk, &log, &options, seed, (1, 6))
    });
}

#[test]
fn a_sync_that_is_tried_again_loses_what_it_covered() {
    caught(Mistake::RetriesSync, &[LOST], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        append(&log, 1, 3)?;
        disk.inject(
            Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew))
                .on(OperationKind::Sync),
        );
        let acked = if append(&log, 4, 4).is_ok() { 4 } else { 3 };
        log.abandon();
        check_cut(&disk.power_cut(), &options, seed, Told { acked, appended: 4 })
    });
}

/// One thread's group is in flight; another thread's record is appended meanwhile, and its group's
/// write then fails.
#[test]
fn a_follower_that_is_told_ok_for_another_group() {
    caught(Mistake::FollowerToldOk, &[LOST], |mistake, seed| {
        let (disk, options, gate) = (disk(seed), with(mistake), Arc::new(Gate::default()));
        let directory = crate::gate::behind(&gate, disk.directory(LOG));
        let log = Log::open_in(Arc::new(directory), options.clone()).unwrap();
        gate.shut();
        let acked = std::thread::scope(|scope| {
            let first = scope.spawn(|| log.append_durable(&record(1)));
            gate.wait_until_held();
            let second = log.append(&record(2)).unwrap();
            let fault = Fault::new(Effect::Error(errno::EIO)).on(OperationKind::Write);
            disk.inject(fault);
            gate.let_go();
            first.join().unwrap().unwrap();
            if second.wait().is_ok() { 2 } else { 1 }
        });
        log.abandon();
        disk.clear_faults();
        check_cut(&disk.power_cut(), &options, seed, Told { acked, appended: 2 })
    });
}

#[test]
fn an_epoch_that_is_not_synced_keeps_a_sound_log_from_opening() {
    caught(Mistake::EpochNotSynced, &[REFUSES], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake).pad_groups(seed.is_multiple_of(2)));
        let log = open(&disk, options.clone()).unwrap();
        append(&log, 1, seed % 5)?;
        log.abandon();
        let log = open(&disk, options.clone()).unwrap();
        append_with_cuts(&disk, &log, &options, seed, (seed % 5 + 1, seed % 5 + 2))
    });
}

#[test]
fn a_first_group_before_its_predecessor_leaves_a_hole_between_segments() {
    caught(Mistake::FirstGroupEarly, &[UNREADABLE], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        // Gathered and not waited for: the roll finds a group to write.
        let mut last = 0;
        while segments(&disk) == 1 {
            last += 1;
            drop(log.append(&record(last)).unwrap());
        }
        log.sync().unwrap();
        check_cut(&disk.power_cut(), &options, seed, Told::all(last))
    });
}

#[test]
fn a_tail_that_is_cleared_before_it_is_written_again_loses_what_was_there() {
    caught(Mistake::TailRewritten, &[LOST, REFUSES], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        append_with_cuts(&disk, &log, &options, seed, (1, 6))
    });
}

/// A writer is killed between its write and its sync; what the next opening shows must not be gone
/// after the next crash. That opening's own first group is one FUA write, which makes nothing else
/// durable, and the sync of a directory that has nothing to write need not flush what files have in
/// the device's cache.
#[test]
fn showing_what_is_not_synced_loses_what_was_shown() {
    caught(Mistake::ShowsUnsynced, &[REFUSES], |mistake, seed| {
        let options =
            DiskOptions { writeback_ppm: 0, flush_is_global: false, ..DiskOptions::default() };
        let disk = SimDisk::new(seed, options);
        let append =
            |log: &Log, lsn| assert_eq!(log.append_durable(&large(lsn)).unwrap(), Lsn::new(lsn));
        let log = open(&disk, small()).unwrap();
        (1..=3).for_each(|lsn| append(&log, lsn));
        log.close().unwrap();
        let killed = open(&disk, small().with_mistake(Mistake::NoSync)).unwrap();
        (4..=5).for_each(|lsn| append(&killed, lsn));
        killed.abandon();
        let options = with(mistake).access(Access::Direct).durability(Durability::RwfDsync);
        let shown = check_with(&disk, options.clone(), Told { acked: 3, appended: 5 }, large)?;
        check_large_after_crashes(&disk, &options, seed, Told { acked: shown, appended: 5 })
    });
}

/// Larger than a block: what lies before the last block is never written again.
fn large(lsn: u64) -> Vec<u8> {
    vec![lsn as u8; 6000]
}

fn check_large_after_crashes(
    disk: &SimDisk,
    options: &Options,
    seed: u64,
    told: Told,
) -> Result<(), String> {
    (0..SAMPLES).try_for_each(|sample| {
        check_with(&disk.crash(seed ^ sample << 20), options.clone(), told, large).map(drop)
    })
}

/// A sync fails, and the same kernel shows pages that are clean and nowhere else.
#[test]
fn reading_the_page_cache_shows_what_is_on_no_medium() {
    caught(Mistake::ReadsPageCache, &[REFUSES], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        disk.change_options(|options| options.writeback_ppm = 0);
        let log = open(&disk, options.clone()).unwrap();
        (1..=3).for_each(|lsn| assert_eq!(log.append_durable(&large(lsn)).unwrap(), Lsn::new(lsn)));
        disk.inject(
            Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew))
                .on(OperationKind::Sync),
        );
        assert!(log.append_durable(&large(4)).is_err());
        log.abandon();
        let shown = check_with(&disk, options.clone(), Told { acked: 3, appended: 4 }, large)?;
        check_large_after_crashes(&disk, &options, seed, Told { acked: shown, appended: 4 })
    });
}

#[test]
fn removing_first_takes_files_of_records_that_nobody_gave_up() {
    caught(Mistake::RemovesFirst, &[REFUSES], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake).free_segments_max((seed % 2) as usize));
        let log = open(&disk, options.clone()).unwrap();
        append(&log, 1, 140)?;
        disk.record_epochs();
        log.truncate_before(Lsn::new(130)).unwrap();
        for cut in disk.take_epochs().into_iter().chain([disk.power_cut()]) {
            check_cut(&cut, &options, seed, Told::all(140))?;
        }
        Ok(())
    });
}

/// Appends until a segment has been begun that was made ready ahead; gives what the first commit in
/// it cost.
fn first_commit_in_a_ready_segment(disk: &SimDisk, log: &Log) -> Counters {
    loop {
        log.prepare_now().unwrap();
        let (before, begun) = (disk.counters(), log.stats().segments);
        log.append_durable(&[7; 1000]).unwrap();
        if log.stats().segments > begun {
            return disk.counters().since(&before);
        }
    }
}

/// No record depends on the zeros; what they are for does: commits that change no metadata.
#[test]
fn zeros_that_are_not_synced_leave_the_metadata_to_the_commits() {
    caught(Mistake::ZerosUnsynced, &["metadata"], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        disk.change_options(|options| options.writeback_ppm = 0);
        let log = open(&disk, options).unwrap();
        match first_commit_in_a_ready_segment(&disk, &log).metadata_commits {
            0 => Ok(()),
            count => Err(format!("a commit wrote metadata {count} times")),
        }
    });
}

#[test]
fn a_name_before_the_blocks_leaves_a_segment_that_is_too_short() {
    caught(Mistake::RenamedFirst, &[REFUSES], |mistake, seed| {
        let (disk, options) = (disk(seed), with(mistake));
        let log = open(&disk, options.clone()).unwrap();
        append(&log, 1, 3)?;
        disk.record_epochs();
        log.prepare_now().unwrap();
        for cut in disk.take_epochs().into_iter().chain([disk.power_cut()]) {
            check_cut(&cut, &options, seed, Told::all(3))?;
        }
        Ok(())
    });
}

#[test]
fn a_segment_that_somebody_holds_is_used_again() {
    caught(Mistake::RecyclesPinned, &["was used again"], |mistake, seed| {
        let held = Arc::new(Mutex::new(None));
        let ears = Arc::clone(&held);
        let options = with(mistake).listener(move |event| {
            if let Event::SegmentSealed(sealed) = event {
                ears.lock().unwrap().get_or_insert_with(|| sealed.clone());
            }
        });
        let disk = disk(seed);
        let log = open(&disk, options).unwrap();
        first_commit_in_a_ready_segment(&disk, &log);
        let path = held.lock().unwrap().as_ref().expect("a segment was sealed").path.clone();
        let content =
            || disk.image().into_iter().find(|(other, _)| *other == path).map(|(_, bytes)| bytes);
        let before = content();
        log.truncate_before(log.last()).unwrap();
        for _ in 0..3 {
            first_commit_in_a_ready_segment(&disk, &log);
        }
        if content() == before {
            Ok(())
        } else {
            Err("a segment that is held was used again".into())
        }
    });
}

#[test]
fn preparing_ahead_takes_more_than_the_budget() {
    caught(Mistake::OverBudget, &["of a budget of"], |mistake, seed| {
        let budget = (3 + seed % 4) * (64 << 10);
        let disk = disk(seed);
        let log = open(&disk, with(mistake).disk_budget_bytes(budget)).unwrap();
        // Without room for another there is an error, which is right.
        let _ = log.prepare_now();
        append(&log, 1, 3)?;
        let used: u64 = disk.image().iter().map(|(_, bytes)| bytes.len() as u64).sum();
        if used <= budget { Ok(()) } else { Err(format!("{used} bytes of a budget of {budget}")) }
    });
}

/// A full buffer is left to the committer. A waiter for a record after it must not return before
/// the buffer is written: if the turn were free, the waiter would lead the next group itself,
/// mostly before the committer is awake. Then a power cut leaves a hole, which an opening refuses,
/// or a reader, if its segment was sealed by then. If the committer has written before the power
/// cut, the last block of its group overwrites the beginning of the acknowledged group, which is
/// silently lost.
#[test]
fn a_turn_that_is_not_handed_over_acknowledges_what_lies_behind_a_hole() {
    caught_in_any_way(Mistake::TurnNotHanded, &[REFUSES, UNREADABLE, LOST], |mistake, seed| {
        behind_full_buffers(&with(mistake), seed)
    });
}

#[test]
fn a_callback_before_its_group_is_written_tells_of_what_no_disk_has() {
    caught(Mistake::CallbackEarly, &[LOST], |mistake, seed| callbacks(&with(mistake), seed));
}

#[test]
fn an_lsn_that_is_awaited_too_early_is_lost() {
    caught(Mistake::AwaitedEarly, &[LOST], |mistake, seed| awaited_lsns(&with(mistake), seed));
}
