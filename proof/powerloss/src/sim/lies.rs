//! Devices that lie: writes that are acknowledged and never arrive, or arrive elsewhere, and bits
//! that rot.
//!
//! *Owns*: what may still be shown then: what was appended, or `Corrupt`. *May not touch*: what the
//! operations mean (`history.rs`).

use inkstone::{Log, Lsn};
use inkstone_sim::{Effect, Fault, OperationKind, SimDisk};

use super::explore::{PATH, open};
use super::variant::Variant;
use crate::history::{Op, carry_out, plan};
use crate::model::{Model, Record, Shown};

/// What a log shows that may lack records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Whole,
    /// Less, without an error.
    Less,
    /// It reports that it is corrupt.
    Corrupt,
}

/// Reads a log to its end; `is_right` is asked of each record. Returns the last LSN; `None`: it
/// reports that it is corrupt.
fn read_all(
    log: &Log,
    mut is_right: impl FnMut(u64, &[u8]) -> bool,
) -> Result<Option<u64>, String> {
    let mut next = log.first().get();
    for record in log.reader().records(log.first()) {
        match record {
            Ok(record) if record.lsn.get() == next && is_right(next, &record.bytes) => next += 1,
            Ok(record) => {
                return Err(format!("LSN {} instead of {next}, or other bytes", record.lsn));
            }
            Err(error) if error.corruption().is_some() => return Ok(None),
            Err(error) => return Err(format!("LSN {next} cannot be read: {error}")),
        }
    }
    Ok(Some(next - 1))
}

/// Reads a log. Whatever it shows must have been appended there.
fn read(log: &Log, model: &Model) -> Result<Seen, String> {
    let (first, last) = (log.first().get(), log.last().get());
    if last > model.last() || first > model.first {
        return Err(format!("{first}..={last} of {}..={}", model.first, model.last()));
    }
    let wanted = |lsn: u64| model.records.get(lsn as usize - 1).map(Record::payload);
    let Some(read) = read_all(log, |lsn, bytes| wanted(lsn) == Some(bytes))? else {
        return Ok(Seen::Corrupt);
    };
    let is_whole = (first, last, read) == (model.first, model.last(), model.last());
    Ok(if is_whole { Seen::Whole } else { Seen::Less })
}

/// Opens the log of a disk; `None`: it reports that it is corrupt.
fn opened(disk: &SimDisk, variant: &Variant) -> Result<Option<Log>, String> {
    match open(disk, variant) {
        Ok(log) => Ok(Some(log)),
        Err(error) if error.corruption().is_some() => Ok(None),
        Err(error) => Err(format!("the log does not open: {error}")),
    }
}

/// Opens the log of a disk and reads it.
pub(crate) fn look(disk: &SimDisk, variant: &Variant, model: &Model) -> Result<Seen, String> {
    let Some(log) = opened(disk, variant)? else { return Ok(Seen::Corrupt) };
    let seen = read(&log, model);
    log.abandon();
    seen
}

/// Runs a history on a disk that lies once, then appends, closes, and drops every page: now the log
/// must notice the loss. `None` if it was noticed before.
pub(crate) fn tell(
    disk: &SimDisk,
    variant: &Variant,
    operations: &[Op],
) -> Result<Option<(Model, Seen)>, String> {
    let mut model = Model::new();
    let mut log = open(disk, variant).map_err(|error| error.to_string())?;
    let last = [Op::Append(333), Op::Reopen];
    // The disk's operations before the last append: a lie before that is covered by a promise.
    let mut covered = 0;
    for operation in operations.iter().chain(&last) {
        let plan = plan(operation, &model);
        let is_promise =
            matches!(operation, Op::Append(_) | Op::Batch(_) | Op::Several(_) | Op::Try(_));
        covered = if is_promise { disk.operations() } else { covered };
        match operation {
            Op::Reopen | Op::Drop | Op::Kill => {
                log.close().map_err(|error| error.to_string())?;
                disk.drop_caches();
                model = plan.after;
                let Some(again) = opened(disk, variant)? else { return Ok(None) };
                log = again;
                let seen = read(&log, &model)?;
                if seen == Seen::Less
                    && disk.history().iter().any(|event| event.operation <= covered)
                {
                    return Err(format!(
                        "the log has {}..={} of {:?}",
                        log.first(),
                        log.last(),
                        model.last()
                    ));
                }
                if seen != Seen::Whole {
                    return Ok(None);
                }
            }
            _ => match carry_out(&log, operation, &plan) {
                Ok(()) => model = plan.after,
                Err(error) if error.corruption().is_some() => return Ok(None),
                Err(error) => return Err(format!("{operation:?} fails: {error}")),
            },
        }
    }
    log.close().map_err(|error| error.to_string())?;
    look(disk, variant, &model).map(|seen| Some((model, seen)))
}

/// Runs a history in which a sync reports success but loses everything, and the next sync fails. No
/// log can save that data. What is shown must have been appended all the same, and the error must
/// be reported when it comes.
pub(crate) fn reports_later(
    disk: &SimDisk,
    variant: &Variant,
    operations: &[Op],
    crash: u64,
) -> Result<(), String> {
    let mut model = Model::new();
    let fired = |disk: &SimDisk| !disk.history().is_empty();
    let excused = |disk: &SimDisk, what: String| if fired(disk) { Ok(()) } else { Err(what) };
    let mut log = match open(disk, variant) {
        Ok(log) => Some(log),
        Err(error) => return excused(disk, format!("the log does not open: {error}")),
    };
    for operation in operations {
        let Some(open_log) = log.take() else { break };
        let plan = plan(operation, &model);
        match operation {
            Op::Reopen | Op::Drop | Op::Kill => {
                open_log.abandon();
                match open(disk, variant) {
                    // What it holds now is unknown: it is checked below.
                    Ok(reopened) if fired(disk) => drop(reopened),
                    Ok(reopened) => {
                        model.settle(Shown {
                            first: reopened.first().get(),
                            last: reopened.last().get(),
                        });
                        log = Some(reopened);
                    }
                    Err(error) => excused(disk, format!("the log does not open: {error}"))?,
                }
            }
            _ => match carry_out(&open_log, operation, &plan) {
                Ok(()) => {
                    model = plan.after;
                    log = Some(open_log);
                }
                Err(error) => {
                    excused(disk, format!("{operation:?} fails: {error}"))?;
                    model = Model { first: model.first.max(plan.after.first), ..plan.after };
                    open_log.abandon();
                }
            },
        }
    }
    log.into_iter().for_each(Log::abandon);
    look_at_any(&disk.crash(crash), variant, &model)
}

/// As [`look`], but truncated records may be back at either end.
fn look_at_any(disk: &SimDisk, variant: &Variant, model: &Model) -> Result<(), String> {
    let Some(log) = opened(disk, variant)? else { return Ok(()) };
    read_all(&log, |_, bytes| Record::is_ours(bytes, model.numbers))?;
    log.abandon();
    Ok(())
}

/// A log of a few records, and the disk that it is on.
fn a_few(seed: u64, variant: &Variant) -> Result<(SimDisk, Log, u64), String> {
    let disk = SimDisk::new(seed, variant.disk);
    let log = open(&disk, variant).map_err(|error| error.to_string())?;
    let count = 2 + seed % 5;
    for number in 0..count as usize {
        let bytes = vec![number as u8; seed as usize % 97 * 100 + number];
        log.append_durable(&bytes).map_err(|error| error.to_string())?;
    }
    Ok((disk, log, count))
}

/// The write of the very last group is lost, and nothing follows that shows it: only a caller who
/// passes the LSN that he knows to be durable gets an error.
pub(crate) fn last_record(seed: u64, variant: &Variant) -> Result<(), String> {
    let (disk, log, count) = a_few(seed, variant)?;
    disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
    let last = log.append_durable(b"the last").map_err(|error| error.to_string())?;
    log.abandon();
    disk.drop_caches();
    let options = variant.options.clone().expect_durable(last);
    match opened(&disk, &Variant { options, ..variant.clone() })? {
        Some(log) if log.last() < last => {
            Err(format!("LSN {last} was durable, but the log opens with {} of {count}", log.last()))
        }
        _ => Ok(()),
    }
}

/// The write of a truncation is lost, and that of another one is not: the promise in the second one
/// shows it.
pub(crate) fn last_truncation(seed: u64, variant: &Variant) -> Result<(), String> {
    let (disk, log, _) = a_few(seed, variant)?;
    disk.inject(Fault::new(Effect::LostWrite).on(OperationKind::Write));
    let first = Lsn::new(3);
    let truncated = log.truncate_before(Lsn::new(2)).and_then(|()| log.truncate_before(first));
    truncated.map_err(|error| error.to_string())?;
    log.abandon();
    disk.drop_caches();
    match opened(&disk, variant)? {
        Some(log) if log.first() != first => {
            Err(format!("LSN {first} was the first, but the log opens with {}", log.first()))
        }
        _ => Ok(()),
    }
}

/// Runs a history, and flips a bit of each of so many disks that a crash then leaves: nothing is
/// missing without a word.
pub(crate) fn rots(
    seed: u64,
    variant: &Variant,
    operations: &[Op],
    count: u64,
    states: &mut u64,
) -> Result<(), String> {
    let disk = SimDisk::new(seed, variant.disk);
    let Some((model, Seen::Whole)) = tell(&disk, variant, operations)? else {
        return Err("records are missing before the fault".into());
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..count {
        *states += 1;
        let found = disk.crash(rng.u64(..));
        let what = rot(&found, &mut rng);
        match look(&found, variant, &model).map_err(|why| format!("{what}: {why}"))? {
            Seen::Less => return Err(format!("{what}: records are missing without an error")),
            Seen::Whole | Seen::Corrupt => {}
        }
    }
    Ok(())
}

/// Flips a bit somewhere in a segment that is in use.
pub(crate) fn rot(disk: &SimDisk, rng: &mut fastrand::Rng) -> String {
    let image = disk.image();
    let segments: Vec<_> = image
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "ink"))
        .collect();
    let (path, bytes) = segments[rng.usize(..segments.len())];
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0);
    let (at, mask) = (rng.u64(..=used as u64), 1 << rng.u32(..8));
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    disk.rot(PATH, &name, at, mask);
    format!("{mask:#x} at byte {at} of {name}")
}
