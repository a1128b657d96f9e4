//! A mistake is caught: with it a promise is seen broken, and without it the same seeds are sound.
//!
//! *Owns*: that comparison, and the words by which promises are known. *May not touch*: which
//! history is run.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

#[cfg(inkstone_mistakes)]
use inkstone::mistake::Mistake;
use inkstone::{DurableAt, Lsn, Options};
use inkstone_sim::PowerCut;
#[cfg(inkstone_mistakes)]
use inkstone_sim::shrink::seeds;

use crate::history::{Told, append, check, disk, open, record};

/// Counted, not timed: a history takes a millisecond or so.
pub(crate) const SEEDS: u64 = 30;
/// States found after each cut.
pub(crate) const SAMPLES: u64 = 6;

/// The promises that a mistake may break, by the words of the check.
pub(crate) const LOST: &str = "were acknowledged and";
pub(crate) const REFUSES: &str = "does not open";
pub(crate) const UNREADABLE: &str = "cannot be read";
pub(crate) const WRONG: &str = "was never appended";

/// Runs the history over the seeds, with the mistake and without: it must be seen with it, in each
/// of these ways and in no other, and must not be seen without.
#[cfg(inkstone_mistakes)]
pub(crate) fn caught(
    mistake: Mistake,
    ways: &[&str],
    history: impl Fn(Option<Mistake>, u64) -> Result<(), String>,
) {
    let found = caught_in_any_way(mistake, ways, history);
    for way in ways {
        assert!(
            found.iter().any(|reason| reason.contains(way)),
            "{mistake} is not caught as {way:?}: {found:?}"
        );
    }
}

/// As [`caught`], where the threads' timing decides in which of these ways it is seen. Gives what
/// was seen.
#[cfg(inkstone_mistakes)]
pub(crate) fn caught_in_any_way(
    mistake: Mistake,
    ways: &[&str],
    history: impl Fn(Option<Mistake>, u64) -> Result<(), String>,
) -> Vec<String> {
    for seed in seeds(1, SEEDS) {
        history(None, seed)
            .unwrap_or_else(|reason| panic!("no mistake, and yet at seed {seed}: {reason}"));
    }
    let found: Vec<_> =
        seeds(1, SEEDS).filter_map(|seed| history(Some(mistake), seed).err()).collect();
    let example = found.first().unwrap_or_else(|| panic!("{mistake} is not caught"));
    println!("{mistake}: {} of {SEEDS} seeds, for example: {example}", found.len());
    for reason in &found {
        assert!(
            ways.iter().any(|way| reason.contains(way)),
            "{mistake} breaks something else: {reason}"
        );
    }
    found
}

/// Every promise holds in what a cut may leave.
pub(crate) fn check_cut(
    cut: &PowerCut,
    options: &Options,
    seed: u64,
    told: Told,
) -> Result<(), String> {
    (0..SAMPLES).try_for_each(|sample| {
        check(&cut.sample(seed ^ sample << 20), options.clone(), told).map(drop)
    })
}

/// Records behind a buffer that fills up, which the committer writes: what is acknowledged survives
/// a power cut.
pub(crate) fn behind_full_buffers(options: &Options, seed: u64) -> Result<(), String> {
    let disk = disk(seed);
    let log = open(&disk, options.clone().own_thread(true)).expect("a new log");
    let mut last = 0;
    for _ in 0..5 {
        // More than a buffer holds.
        for _ in 0..40 + seed {
            last += 1;
            drop(log.append(&record(last)).map_err(|error| error.to_string())?);
        }
        last += 1;
        append(&log, last, last)?;
        check_cut(&disk.power_cut(), options, seed, Told::all(last))?;
    }
    Ok(())
}

/// Records with callbacks: what one was told to be durable survives a power cut at that moment.
pub(crate) fn callbacks(options: &Options, seed: u64) -> Result<(), String> {
    const RECORDS: u64 = 12;
    let disk = disk(seed);
    let log = open(&disk, options.clone()).expect("a new log");
    let answers = Arc::new(Mutex::new(Vec::new()));
    for lsn in 1..=RECORDS {
        let (disk, options, answers) = (disk.clone(), options.clone(), Arc::clone(&answers));
        log.append(&record(lsn)).expect("no fault is planned").on_durable(move |outcome| {
            let survives = outcome.map_err(|error| error.to_string()).and_then(|acked| {
                let told = Told { acked: acked.get(), appended: RECORDS };
                check_cut(&disk.power_cut(), &options, seed, told)
            });
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(survives);
        });
        if (lsn ^ seed).is_multiple_of(3) {
            log.sync().map_err(|error| error.to_string())?;
        }
    }
    log.close().map_err(|error| error.to_string())?;
    let answers = std::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner));
    assert_eq!(answers.len() as u64, RECORDS, "callbacks that were not called, or that panicked");
    answers.into_iter().collect()
}

/// LSNs that are awaited as a task does: when one is told to be durable, its record survives a
/// power cut at that moment.
pub(crate) fn awaited_lsns(options: &Options, seed: u64) -> Result<(), String> {
    const RECORDS: u64 = 12;
    let disk = disk(seed);
    let log = open(&disk, options.clone().own_thread(false)).expect("a new log");
    let mut pending: Vec<_> =
        (1..=RECORDS).map(|lsn| (lsn, log.durable_at(Lsn::new(lsn)))).collect();
    for lsn in 1..=RECORDS {
        drop(log.append(&record(lsn)).map_err(|error| error.to_string())?);
        if (lsn ^ seed).is_multiple_of(3) {
            log.sync().map_err(|error| error.to_string())?;
        }
        let mut told = 0;
        for (lsn, future) in &mut pending {
            match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => told = *lsn,
                Poll::Ready(Err(error)) => return Err(error.to_string()),
            }
        }
        pending.retain(|(lsn, _)| *lsn > told);
        if told > 0 {
            check_cut(&disk.power_cut(), options, seed, Told { acked: told, appended: lsn })?;
        }
    }
    log.sync().map_err(|error| error.to_string())?;
    let all_told = |(_, mut future): (u64, DurableAt)| {
        Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert!(pending.into_iter().all(all_told), "durable, and not told so");
    Ok(())
}
