//! Checking one log that a power cut left: opening it, comparing it with what is allowed, appending
//! to it.
//!
//! *Owns*: that check. *May not touch*: where the log is: in a mounted file system, or on the
//! simulated disk.

use std::sync::Arc;

use inkstone::{Directory, Log, Options};

use crate::model::{Allowed, Record, Shown};

/// Opens a log and compares it.
///
/// # Errors
/// Which promise is broken.
pub fn open_and_check(
    directory: impl Directory,
    options: Options,
    allowed: &Allowed,
) -> Result<(Log, Shown), String> {
    let log = Log::open_in(Arc::new(directory), options)
        .map_err(|error| format!("the log does not open: {error}"))?;
    let shown = allowed.check(&log)?;
    Ok((log, shown))
}

/// Appends a record durably: it must get the next LSN and be readable.
///
/// # Errors
/// Which promise is broken.
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
