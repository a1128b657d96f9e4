//! Looking at a log's files from outside: verify, copy, what to keep.
//!
//! *Owns*: these calls. *May not touch*: the log that is looked at.

use std::ffi::c_char;
use std::path::Path;
use std::time::Duration;

use inkstone::inspect::{self, Keep};

use crate::error::{Failure, door, inkstone_code, inkstone_error};
use crate::json;
use crate::options::inkstone_options;
use crate::out::{Out, out};
use crate::pointers::{path, required};
use crate::text::give;

/// Reads the whole log in `path`, also beside a living writer, and reports every damaged place that
/// can be found. `is_intact`, which may be NULL, says whether nothing that was promised is damaged
/// or missing. `json`, which may be NULL, gets the report: path, intact, verdict, row, first, last,
/// promise, clean, writer, records, record_bytes, gaps (first, last: records that a salvage could
/// not save), segments, other_files, damage (path, segment, offset, lsn, reason, row, details),
/// doubts. Damage is no error of this call. Where there is no
/// log, or no directory, that is INKSTONE_NO_LOG. It writes nothing.
///
/// Owner: the caller gets `*json` and frees it with inkstone_text_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_verify(
    path_of_log: *const c_char,
    is_intact: *mut bool,
    json: *mut *mut c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (path, mut is_intact, mut json, error) =
        unsafe { (path(path_of_log, "path"), out(is_intact), out(json), out(error)) };
    door(error, || {
        is_intact.put(false);
        json.put(std::ptr::null_mut());
        let report = inspect::verify(path?)?;
        is_intact.put(report.is_intact());
        if json.is_asked_for() { give(json, "json", || Ok(json::report(&report))) } else { Ok(()) }
    })
}

/// Copies the records of the log in `from` into a new log in `to`; each keeps its LSN. A writer may
/// append meanwhile: what it has promised to be durable is copied, which may leave out its last
/// records until it has been idle for a tenth of a second. `options`, which may be NULL, apply
/// to the new log. `records`, which may be NULL, gets their number. A copy that fails removes its
/// files; opening one that is not complete is INKSTONE_INCOMPLETE.
///
/// Owner: `options` stay the caller's. Threads: any. Durable: the copy, which is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_copy(
    from: *const c_char,
    to: *const c_char,
    options: *const inkstone_options,
    records: *mut u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (from, to, options, mut records, error) =
        unsafe { (path(from, "from"), path(to, "to"), options.as_ref(), out(records), out(error)) };
    door(error, || {
        records.put(0);
        let copied = inspect::copy(from?, to?, &inkstone_options::or_default(options))?;
        records.put(copied.records);
        Ok(())
    })
}

fn keep(path: Result<&Path, Failure>, first: Out<'_, u64>, keep: Keep) -> Result<(), Failure> {
    let mut first = required(first, "first")?;
    first.put(0);
    first.put(inspect::first_to_keep(path?, keep)?.get());
    Ok(())
}

/// The first record to keep of the log in `path`, for inkstone_truncate_before, when its newest
/// segments with at least `bytes` bytes are to stay. Changes nothing; a writer may append
/// meanwhile.
///
/// Owner: `first` is the caller's. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_keep_bytes(
    path_of_log: *const c_char,
    bytes: u64,
    first: *mut u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (path, first, error) = unsafe { (path(path_of_log, "path"), out(first), out(error)) };
    door(error, || keep(path, first, Keep::Bytes(bytes)))
}

/// As inkstone_keep_bytes, when every record of the last `seconds` seconds is to stay, by the times
/// of the files.
///
/// Owner: `first` is the caller's. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_keep_seconds(
    path_of_log: *const c_char,
    seconds: u64,
    first: *mut u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (path, first, error) = unsafe { (path(path_of_log, "path"), out(first), out(error)) };
    door(error, || keep(path, first, Keep::For(Duration::from_secs(seconds))))
}
