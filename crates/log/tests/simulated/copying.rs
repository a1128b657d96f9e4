//! A copy that does not finish is never taken for a log.
//!
//! *Owns*: power cuts, failures and a second copy at every moment of a copy. *May not touch*: the
//! crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::history::{record, small};
use crate::watched::{Call, watched};
use inkstone::inspect::{Keep, copy_in, dump_in, first_to_keep_in, salvage_in, verify_in};
use inkstone::{Directory, Error, Log, Lsn, Options, Reader};
use inkstone_sim::{DiskOptions, Effect, Fault, OperationKind, SimDirectory, SimDisk, errno};

const RECORDS: u64 = 400;
const NEW: &str = "/new";
const MARK: &str = "inkstone.incomplete";
/// Crashes that are tried at each moment.
const SAMPLES: u64 = 4;

/// A log that is there all the time.
fn old() -> Arc<SimDirectory> {
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/old"));
    let log = Log::open_in(Arc::clone(&directory), small()).unwrap();
    for lsn in 1..=RECORDS {
        drop(log.append(&record(lsn)).unwrap());
    }
    log.close().unwrap();
    directory
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Copy,
    Salvage,
}

fn make(
    how: How,
    old: &Arc<SimDirectory>,
    disk: &SimDisk,
    options: &Options,
) -> inkstone::Result<()> {
    let new = || Ok(Arc::new(disk.directory(NEW)));
    match how {
        How::Copy => copy_in(Arc::clone(old), new, options, &AtomicBool::new(false)).map(drop),
        How::Salvage => salvage_in(&**old, new, options).map(drop),
    }
}

/// Whether there is a whole log; that there is none, or a copy that has not ended, is no mistake.
/// Everything else is.
fn is_whole(disk: &SimDisk, what: &str) -> bool {
    let directory = Arc::new(disk.directory(NEW));
    let verified = verify_in(&*directory);
    let read = Reader::open_in(Arc::clone(&directory), Options::new());
    let opened = Log::open_in(Arc::clone(&directory), small().create(false));
    match (verified, read, opened) {
        (Ok(report), Ok(reader), Ok(log)) => {
            assert!(report.is_intact(), "{what}: {report:?}");
            assert_eq!(
                (log.first(), log.last(), reader.durable()),
                (Lsn::FIRST, Lsn::new(RECORDS), log.last())
            );
            let shown: Vec<_> =
                log.reader().records(Lsn::FIRST).map(|record| record.unwrap().bytes).collect();
            assert!(
                shown == (1..=RECORDS).map(record).collect::<Vec<_>>(),
                "{what}: other records"
            );
            log.close().unwrap();
            true
        }
        (Err(one), Err(two), Err(three)) => {
            for error in [one, two, three] {
                let is_none = matches!(error, Error::NoLog { .. } | Error::Incomplete { .. });
                assert!(is_none, "{what}: {error}");
            }
            // What would begin a log begins none in the midst of a copy.
            if directory.list().unwrap().iter().any(|name| name == MARK) {
                let opened = Log::open_in(directory, small());
                assert!(matches!(opened, Err(Error::Incomplete { .. })), "{what}: {opened:?}");
            }
            false
        }
        (verified, read, opened) => panic!("{what}: {verified:?}, {read:?}, {opened:?}"),
    }
}

#[test]
fn a_power_cut_at_any_moment_of_a_copy_leaves_no_log_or_all_of_it() {
    let old = old();
    for (seed, how) in [(1, How::Copy), (2, How::Salvage)] {
        let disk = SimDisk::new(seed, DiskOptions::default());
        disk.record_epochs();
        make(how, &old, &disk, &small()).unwrap();
        let cuts = disk.take_epochs();
        assert!(cuts.len() > 20, "{} moments", cuts.len());
        let (mut whole, mut none) = (0, 0);
        for cut in &cuts {
            let samples = (0..SAMPLES).map(|sample| cut.sample(seed * 1000 + sample));
            let all = cut.subsets().into_iter().flatten().take(24);
            for found in samples.chain(all) {
                let what = format!("{how:?}, operation {}", cut.operation());
                if is_whole(&found, &what) {
                    whole += 1;
                    continue;
                }
                none += 1;
                make(how, &old, &found, &small()).unwrap();
                assert!(is_whole(&found, &what), "{what}: copied again");
            }
        }
        assert!(whole > 0 && none > 100, "{how:?}: {whole} whole, {none} none");
        assert!(is_whole(&disk, "the end"));
    }
}

/// What shows something of a log that it does not write.
#[derive(Debug, Clone, Copy)]
enum Shows {
    Reader,
    Verify,
    Dump,
    FirstToKeep,
}

const SHOWS: [Shows; 4] = [Shows::Reader, Shows::Verify, Shows::Dump, Shows::FirstToKeep];

/// Inspects the copy; if any of it was shown, it is there after any crash. Returns whether it was
/// shown.
fn check_what_is_shown(disk: &SimDisk, by: Shows, what: &str) -> bool {
    let directory = disk.directory(NEW);
    let shown = match by {
        Shows::Reader => Reader::open_in(Arc::new(directory), Options::new()).map(drop),
        Shows::Verify => verify_in(&directory).map(drop),
        Shows::Dump => dump_in(Arc::new(directory), 10).map(drop),
        Shows::FirstToKeep => {
            first_to_keep_in(&directory, Keep::Records(1), std::time::SystemTime::now()).map(drop)
        }
    };
    match shown {
        Ok(()) => {
            let is_there = |sample| is_whole(&disk.crash(sample), what);
            assert!(
                (0..8).all(is_there),
                "{what}: {by:?} has shown it, and a power cut took it away"
            );
            true
        }
        Err(Error::NoLog { .. } | Error::Incomplete { .. }) => false,
        Err(error) => panic!("{what}: {by:?}: {error}"),
    }
}

/// With an inspection before each step of a copy, beside it, and after one that was killed.
#[test]
fn what_is_shown_of_a_copy_is_there_after_a_power_cut() {
    let old = old();
    for by in SHOWS {
        let disk = SimDisk::new(1, DiskOptions::default());
        let [looked, shown] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let look = {
            let (disk, looked, shown) = (disk.clone(), Arc::clone(&looked), Arc::clone(&shown));
            move |call: &Call<'_>| {
                let is_shown =
                    check_what_is_shown(&disk, by, &format!("beside a copy, before {call:?}"));
                looked.fetch_add(1, Ordering::Relaxed);
                shown.fetch_add(u64::from(is_shown), Ordering::Relaxed);
            }
        };
        let new = || Ok(Arc::new(watched(disk.directory(NEW), look)));
        copy_in(Arc::clone(&old), new, &small(), &AtomicBool::new(false)).unwrap();
        assert!(looked.load(Ordering::Relaxed) > 20);
        assert!(
            shown.load(Ordering::Relaxed) > 0,
            "{by:?} saw nothing between the mark's removal and its sync"
        );
        let mut killed = 0;
        for nth in 1.. {
            let disk = SimDisk::new(nth, DiskOptions::default());
            let fault = Fault::new(Effect::Error(errno::EIO)).on(OperationKind::SyncDirectory);
            disk.inject(fault.nth(nth).times(u64::MAX));
            let made = make(How::Copy, &old, &disk, &small());
            disk.clear_faults();
            killed +=
                u64::from(check_what_is_shown(&disk, by, &format!("directory sync {nth} failed")));
            if made.is_ok() {
                break;
            }
        }
        assert!(killed > 1, "{by:?}: {killed}");
    }
}

#[test]
fn a_copy_that_fails_anywhere_leaves_nothing_that_opens_and_the_next_one_begins_anew() {
    let old = old();
    for how in [How::Copy, How::Salvage] {
        let mut failed = 0;
        for kind in [
            OperationKind::Create,
            OperationKind::Open,
            OperationKind::List,
            OperationKind::Lock,
            OperationKind::Write,
            OperationKind::Sync,
            OperationKind::SyncDirectory,
            OperationKind::Remove,
        ] {
            for nth in 1.. {
                let disk = SimDisk::new(nth, DiskOptions::default());
                disk.inject(Fault::new(Effect::Error(errno::EIO)).on(kind).nth(nth));
                let made = make(how, &old, &disk, &small());
                let what = format!("{how:?}, {kind:?} {nth}: {made:?}");
                if disk.history().is_empty() {
                    break;
                }
                let is_made = is_whole(&disk, &what);
                assert!(is_made || made.is_err(), "{what}");
                if is_made {
                    continue;
                }
                failed += 1;
                make(how, &old, &disk, &small())
                    .unwrap_or_else(|error| panic!("{what}: again: {error}"));
                assert!(is_whole(&disk, &what));
            }
        }
        assert!(failed > 10, "{how:?}: {failed}");
    }
}

#[test]
fn a_copy_that_is_told_to_stop_leaves_nothing() {
    let old = old();
    let disk = SimDisk::new(1, DiskOptions::default());
    let stop = AtomicBool::new(false);
    let new = || {
        stop.store(true, Ordering::Relaxed);
        Ok(Arc::new(disk.directory(NEW)))
    };
    let stopped = copy_in(Arc::clone(&old), new, &small(), &stop);
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    assert_eq!(disk.directory(NEW).list().unwrap(), ["inkstone.lock"]);
}

/// At each of its calls once, on whichever thread that is.
#[test]
fn a_copy_whose_listener_panics_removes_what_it_has_made() {
    let old = old();
    for how in [How::Copy, How::Salvage] {
        for nth in 1.. {
            let disk = SimDisk::new(nth, DiskOptions::default());
            let calls = Arc::new(AtomicU64::new(0));
            let options = {
                let calls = Arc::clone(&calls);
                // From then on at every call: also at those that giving up makes.
                small().listener(move |_| {
                    assert!(calls.fetch_add(1, Ordering::SeqCst) + 1 < nth, "on purpose")
                })
            };
            let made = catch_unwind(AssertUnwindSafe(|| make(how, &old, &disk, &options)));
            if calls.load(Ordering::SeqCst) < nth {
                made.expect("no panic").unwrap();
                assert!(nth > 3, "{how:?}: {nth} calls");
                break;
            }
            // The last of them may come when the copy is whole.
            let names = disk.directory(NEW).list().unwrap();
            let is_failed = !matches!(made, Ok(Ok(())));
            assert!(!is_failed || names == ["inkstone.lock"], "{how:?}, call {nth}: {names:?}");
        }
    }
}
