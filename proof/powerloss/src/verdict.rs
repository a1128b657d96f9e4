//! Checking one log that a crash left: opening it, comparing it with what is allowed, appending to
//! it.
//!
//! *Owns*: that check. *May not touch*: where the log is: in a mounted file system, or on the
//! simulated disk.

use inkstone::{Directory, Log, Lsn, Options};

use crate::mistake::{Mistake, open_in};
use crate::model::{Allowed, Record, Shown};

pub fn open_and_check(
    directory: impl Directory,
    options: Options,
    mistake: Option<Mistake>,
    allowed: &Allowed,
) -> Result<(Log, Shown), String> {
    let log = open_in(directory, options, mistake)
        .map_err(|error| format!("the log does not open: {error}"))?;
    let shown = check(&log, allowed)?;
    Ok((log, shown))
}

/// Reads a whole log that was just opened and compares it.
pub fn check(log: &Log, allowed: &Allowed) -> Result<Shown, String> {
    let shown = Shown { first: log.first().get(), last: log.last().get() };
    if log.durable() != log.last() {
        return Err(format!(
            "after opening, the durable LSN is {}, the last {}",
            log.durable(),
            shown.last
        ));
    }
    check_records(log, allowed, shown)?;
    Ok(shown)
}

/// Reads a log from `shown.first` to its end, which must be `shown.last`, and compares every
/// record. Reads some again by their LSNs, the last among them.
pub fn check_records(log: &Log, allowed: &Allowed, shown: Shown) -> Result<(), String> {
    allowed.ends(shown.first, shown.last)?;
    let wanted = |lsn: u64| allowed.at(lsn).map(Record::payload);
    let read = read_all(log, shown.first, |lsn, bytes| {
        if wanted(lsn) == Some(bytes) {
            return Ok(());
        }
        Err(format!("LSN {lsn} holds {} bytes that were not appended there", bytes.len()))
    })?;
    if read != shown.last {
        return Err(format!("the log says that its last LSN is {}, but shows {read}", shown.last));
    }
    let reader = log.reader();
    for lsn in (shown.first..=shown.last).rev().step_by(7) {
        let found = reader
            .get(Lsn::new(lsn))
            .map_err(|error| format!("LSN {lsn} cannot be read: {error}"))?;
        if wanted(lsn) != Some(&found[..]) {
            return Err(format!(
                "LSN {lsn}, read by itself, holds bytes that were not appended there"
            ));
        }
    }
    Ok(())
}

/// Reads a log from an LSN to its end; each record must come right behind the one before it.
/// Returns the last LSN.
pub fn read_all(
    log: &Log,
    first: u64,
    mut see: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let mut next = first;
    for record in log.reader().records(Lsn::new(first)) {
        let record = record.map_err(|error| format!("LSN {next} cannot be read: {error}"))?;
        if record.lsn.get() != next {
            return Err(format!("LSN {} instead of {next}", record.lsn));
        }
        see(next, &record.bytes)?;
        next += 1;
    }
    Ok(next - 1)
}

/// Appends a record durably: it must get the next LSN and be readable.
pub fn probe(log: &Log, shown: Shown) -> Result<(), String> {
    let lsn = log
        .append_durable(Record::probe().payload())
        .map_err(|error| format!("an append fails: {error}"))?;
    if lsn.get() != shown.last + 1 {
        return Err(format!("LSN {lsn} follows LSN {}", shown.last));
    }
    match log.reader().get(lsn) {
        Ok(bytes) if bytes == Record::probe().payload() => Ok(()),
        Ok(_) => Err(format!("LSN {lsn}, appended just now, has other bytes")),
        Err(error) => Err(format!("LSN {lsn}, appended just now, cannot be read: {error}")),
    }
}
