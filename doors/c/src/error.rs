//! Errors as C programs see them, and the door through which every call goes.
//!
//! *Owns*: the codes, the error object, and that no panic leaves a call. *May not touch*: what went
//! wrong; the log's errors say that.

use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;

use inkstone::{Error, IoError, Lsn};

use crate::out::{Out, out};

/// How a call ended. Further codes may come in later versions: treat one that you do not know as a
/// failure.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum inkstone_code {
    /// The call did what it says.
    INKSTONE_OK = 0,
    /// The operating system refused a call: see inkstone_error_os, inkstone_error_path and
    /// inkstone_error_offset.
    INKSTONE_IO = 1,
    /// Another writer, in this process or another, has the log open.
    INKSTONE_LOCKED = 2,
    /// There is no log in the directory, and the call does not create one.
    INKSTONE_NO_LOG = 3,
    /// The directory holds an unfinished copy, which is not a log yet.
    INKSTONE_INCOMPLETE = 4,
    /// The operation was stopped before it was done.
    INKSTONE_STOPPED = 5,
    /// Bytes that were promised to be durable are damaged or missing. No segment was changed.
    INKSTONE_CORRUPT = 6,
    /// A newer program wrote this log, in a format that this library does not know. No file was
    /// changed.
    INKSTONE_UNKNOWN_VERSION = 7,
    /// A write or sync failed, now or earlier. Records after inkstone_error_lsn may or may not be
    /// there: open the log again.
    INKSTONE_POISONED = 8,
    /// The disk has no room. Nothing was lost: try again when there is room, or after
    /// inkstone_truncate_before.
    INKSTONE_NO_ROOM = 9,
    /// The record or batch is larger than the log's limit (the option record_bytes_max).
    INKSTONE_TOO_LARGE = 10,
    /// A call that must not wait would have had to. Try again later.
    INKSTONE_BUSY = 11,
    /// inkstone_truncate_before has truncated the record. inkstone_error_lsn is the first that is
    /// left; of a stream it is inkstone_error_number.
    INKSTONE_TRUNCATED_BEFORE = 12,
    /// There is no durable record with this LSN yet, or with this number in its stream.
    INKSTONE_NOT_YET = 13,
    /// Records before this reader's position were truncated: by inkstone_truncate_after, or at the
    /// end of a stream. inkstone_error_lsn is where it goes on, inkstone_error_number in a stream.
    INKSTONE_TRUNCATED_AFTER = 14,
    /// An argument or option makes no sense; the message says which and why. Nothing was done.
    INKSTONE_INVALID = 15,
    /// The log is closed.
    INKSTONE_CLOSED = 16,
    /// This process was forked after the log was opened. The log belongs to the parent process;
    /// nothing was done.
    INKSTONE_FORKED = 17,
    /// There are no LSNs or segment numbers left, or no numbers of a stream.
    INKSTONE_USED_UP = 18,
    /// A bug of the library: code in it panicked, and the panic ended at this call. Close the log
    /// and open it again.
    INKSTONE_PANICKED = 19,
    /// A failure that this version of the C library has no code for. The message says what it is.
    INKSTONE_OTHER = 20,
    /// There is no stream with this id: it was never created, or was removed.
    INKSTONE_NO_STREAM = 21,
    /// A stream with this id is there already.
    INKSTONE_EXISTS = 22,
    /// The record does not get the number that the caller expects (inkstone_batch_append_at).
    /// inkstone_error_number is the one that it gets.
    INKSTONE_OTHER_NUMBER = 23,
    /// The log in the directory is of another kind than the one that was to be opened: a log with
    /// streams, a raft log, a plain one. It was not changed.
    INKSTONE_OTHER_KIND = 24,
    /// The log has a record that no program of ours writes there: a bug, or damage that the
    /// checksums cannot see.
    INKSTONE_CONTRADICTION = 25,
    /// Records are lost: the log was damaged, and was salvaged without them. inkstone_error_lsn is
    /// where a reader goes on, inkstone_error_number in a stream. With a path: the last one that is
    /// lost, and the log of streams takes no writer.
    INKSTONE_LOST = 26,
}

use inkstone_code::{
    INKSTONE_BUSY, INKSTONE_CLOSED, INKSTONE_CONTRADICTION, INKSTONE_CORRUPT, INKSTONE_EXISTS,
    INKSTONE_FORKED, INKSTONE_INCOMPLETE, INKSTONE_INVALID, INKSTONE_IO, INKSTONE_LOCKED,
    INKSTONE_LOST, INKSTONE_NO_LOG, INKSTONE_NO_ROOM, INKSTONE_NO_STREAM, INKSTONE_NOT_YET,
    INKSTONE_OK, INKSTONE_OTHER, INKSTONE_OTHER_KIND, INKSTONE_OTHER_NUMBER, INKSTONE_PANICKED,
    INKSTONE_POISONED, INKSTONE_STOPPED, INKSTONE_TOO_LARGE, INKSTONE_TRUNCATED_AFTER,
    INKSTONE_TRUNCATED_BEFORE, INKSTONE_UNKNOWN_VERSION, INKSTONE_USED_UP,
};

/// Each code: its name, and what a program or its operator can do.
const CODES: [(inkstone_code, &CStr, &CStr); 27] = [
    (INKSTONE_OK, c"ok", c""),
    (INKSTONE_IO, c"io", c"Find out why the operating system refused the call on this path."),
    (
        INKSTONE_LOCKED,
        c"locked",
        c"Close the log in the process that has it open, or read it with inkstone_reader_open.",
    ),
    (INKSTONE_NO_LOG, c"no log", c"Check the path, or let the opening create a log."),
    (
        INKSTONE_INCOMPLETE,
        c"incomplete",
        c"If no copy is running, copy again, or remove the directory.",
    ),
    (INKSTONE_STOPPED, c"stopped", c"Call again."),
    (INKSTONE_CORRUPT, c"corrupt", c"Keep the files, and do what the message says."),
    (
        INKSTONE_UNKNOWN_VERSION,
        c"unknown version",
        c"Use a library as new as the program that wrote the log.",
    ),
    (
        INKSTONE_POISONED,
        c"poisoned",
        c"Free the log and open it again: the opening finds out what the medium holds.",
    ),
    (
        INKSTONE_NO_ROOM,
        c"no room",
        c"Make room on the disk or truncate the log's front, then call again.",
    ),
    (
        INKSTONE_TOO_LARGE,
        c"too large",
        c"Make the record or batch smaller, or raise record_bytes_max.",
    ),
    (INKSTONE_BUSY, c"busy", c"Call again later, or call the function that waits."),
    (INKSTONE_TRUNCATED_BEFORE, c"truncated before", c"Continue at the first record that is left."),
    (INKSTONE_NOT_YET, c"not yet", c"Call again later."),
    (
        INKSTONE_TRUNCATED_AFTER,
        c"truncated after",
        c"Forget the records from there on, and call again: the cursor continues there.",
    ),
    (
        INKSTONE_INVALID,
        c"invalid",
        c"Correct the program: the message names the argument or option.",
    ),
    (INKSTONE_CLOSED, c"closed", c"Open the log again."),
    (INKSTONE_FORKED, c"forked", c"Open the log in this process when the parent has closed it."),
    (INKSTONE_USED_UP, c"used up", c"Begin a new log."),
    (
        INKSTONE_PANICKED,
        c"panicked",
        c"Report the message as a bug; free the log and open it again.",
    ),
    (INKSTONE_OTHER, c"other", c"The message says what happened."),
    (INKSTONE_NO_STREAM, c"no stream", c"Create the stream first, or correct its id."),
    (INKSTONE_EXISTS, c"exists", c"Remove the stream first, or restart it."),
    (
        INKSTONE_OTHER_NUMBER,
        c"other number",
        c"Find out which records the stream has that the caller does not know.",
    ),
    (INKSTONE_OTHER_KIND, c"other kind", c"Check the path, or use the program that made the log."),
    (
        INKSTONE_CONTRADICTION,
        c"contradiction",
        c"Keep a copy of the directory and report the message.",
    ),
    (
        INKSTONE_LOST,
        c"lost",
        c"Do without these records, and call again: the cursor continues there.",
    ),
];

/// An error: a code, and what happened, to which path and offset, and what to do. It never changes.
#[derive(Debug)]
pub struct inkstone_error {
    code: inkstone_code,
    message: CString,
    path: Option<CString>,
    offset: Option<u64>,
    lsn: Option<u64>,
    stream: Option<u64>,
    number: Option<u64>,
    os: i32,
    is_retryable: bool,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Log(Error),
    Streams(::inkstone_streams::Error),
    /// What the door itself saw: a sentence without a full stop.
    Misuse(String),
    /// A code that comes without an error object.
    Quiet(inkstone_code),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Log(error)
    }
}

impl From<::inkstone_streams::Error> for Failure {
    fn from(error: ::inkstone_streams::Error) -> Self {
        match error {
            ::inkstone_streams::Error::Log(error) => Self::Log(error),
            error => Self::Streams(error),
        }
    }
}

fn code_of(error: &Error) -> inkstone_code {
    match error {
        Error::Io(_) => INKSTONE_IO,
        Error::Locked { .. } => INKSTONE_LOCKED,
        Error::NoLog { .. } => INKSTONE_NO_LOG,
        Error::Incomplete { .. } => INKSTONE_INCOMPLETE,
        Error::Stopped => INKSTONE_STOPPED,
        Error::Corrupt(_) => INKSTONE_CORRUPT,
        Error::UnknownVersion { .. } => INKSTONE_UNKNOWN_VERSION,
        Error::OtherKind { .. } => INKSTONE_OTHER_KIND,
        Error::Poisoned(_) => INKSTONE_POISONED,
        Error::NoRoom { .. } => INKSTONE_NO_ROOM,
        Error::TooLarge { .. } => INKSTONE_TOO_LARGE,
        Error::Busy => INKSTONE_BUSY,
        Error::TruncatedBefore { .. } => INKSTONE_TRUNCATED_BEFORE,
        Error::NotYet { .. } => INKSTONE_NOT_YET,
        Error::TruncatedAfter { .. } => INKSTONE_TRUNCATED_AFTER,
        Error::Lost { .. } => INKSTONE_LOST,
        Error::Invalid(_) => INKSTONE_INVALID,
        Error::Closed => INKSTONE_CLOSED,
        Error::Forked { .. } => INKSTONE_FORKED,
        Error::UsedUp => INKSTONE_USED_UP,
        _ => INKSTONE_OTHER,
    }
}

/// Where in the files it happened: path, offset, the system's error number.
fn place_of(error: &Error) -> (Option<&Path>, Option<u64>, i32) {
    let of_system = |error: &IoError| error.raw_os_error().unwrap_or(0);
    match error {
        Error::Io(cause) | Error::NoRoom { cause, .. } => {
            (Some(cause.path()), cause.offset(), of_system(cause))
        }
        Error::Locked { path, .. }
        | Error::NoLog { path, .. }
        | Error::Incomplete { path }
        | Error::UnknownVersion { path, .. }
        | Error::OtherKind { path, .. }
        | Error::Forked { path } => (Some(path), None, 0),
        Error::Corrupt(damage) => (Some(&damage.path), Some(damage.offset), 0),
        Error::Poisoned(poison) => poison.cause().map_or((None, None, 0), place_of),
        _ => (None, None, 0),
    }
}

fn lsn_of(error: &Error) -> Option<u64> {
    match error {
        Error::Corrupt(damage) => damage.lsn.map(|lsn| lsn.get()),
        Error::Poisoned(poison) => Some(poison.durable().get()),
        Error::TruncatedBefore { first, .. } => Some(first.get()),
        Error::NotYet { durable, .. } => Some(durable.get()),
        Error::TruncatedAfter { last, .. } | Error::Lost { last, .. } => {
            Some(last.get().saturating_add(1))
        }
        _ => None,
    }
}

/// A text for C: it ends at the first zero byte, which no text or path of the log has.
pub(crate) fn c_text(bytes: impl Into<Vec<u8>>) -> CString {
    let mut bytes = bytes.into();
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}

impl inkstone_error {
    fn plain(code: inkstone_code, message: String) -> Self {
        Self {
            code,
            message: c_text(message),
            path: None,
            offset: None,
            lsn: None,
            stream: None,
            number: None,
            os: 0,
            is_retryable: false,
        }
    }

    pub(crate) fn of(error: &Error) -> Self {
        let (path, offset, os) = place_of(error);
        Self {
            path: path.map(|path| c_text(path.as_os_str().as_bytes())),
            offset,
            lsn: lsn_of(error),
            os,
            is_retryable: error.is_retryable(),
            ..Self::plain(code_of(error), error.to_string())
        }
    }

    fn of_streams(error: &::inkstone_streams::Error) -> Self {
        use ::inkstone_streams::Error;
        let of = |code, stream: Option<&u64>, number: Option<&u64>| Self {
            stream: stream.copied(),
            number: number.copied(),
            is_retryable: code == INKSTONE_NOT_YET,
            ..Self::plain(code, error.to_string())
        };
        let at = |code, path: &Path, lsn: Lsn| Self {
            path: Some(c_text(path.as_os_str().as_bytes())),
            lsn: Some(lsn.get()),
            ..of(code, None, None)
        };
        match error {
            Error::Log(error) => Self::of(error),
            Error::NoStream { stream } => of(INKSTONE_NO_STREAM, Some(stream), None),
            Error::Exists { stream } => of(INKSTONE_EXISTS, Some(stream), None),
            Error::OtherNumber { stream, next, .. } => {
                of(INKSTONE_OTHER_NUMBER, Some(stream), Some(next))
            }
            Error::Truncated { stream, first, .. } => {
                of(INKSTONE_TRUNCATED_BEFORE, Some(stream), Some(first))
            }
            Error::TruncatedAfter { stream, next, .. } => {
                of(INKSTONE_TRUNCATED_AFTER, Some(stream), Some(next))
            }
            Error::NotYet { stream, next, .. } => of(INKSTONE_NOT_YET, Some(stream), Some(next)),
            Error::NoteTooLarge { stream, .. } => of(INKSTONE_TOO_LARGE, Some(stream), None),
            Error::TooLarge { .. } => of(INKSTONE_TOO_LARGE, None, None),
            Error::Empty => of(INKSTONE_INVALID, None, None),
            Error::UsedUp { stream } => of(INKSTONE_USED_UP, Some(stream), None),
            Error::Lost { path, lost_to, .. } => at(INKSTONE_LOST, path, *lost_to),
            Error::LostRecord { stream, next, .. } => of(INKSTONE_LOST, Some(stream), Some(next)),
            Error::MoverEnded { .. } => of(INKSTONE_PANICKED, None, None),
            Error::Newer { path, lsn, .. } => at(INKSTONE_UNKNOWN_VERSION, path, *lsn),
            Error::Contradiction { path, lsn, .. } => at(INKSTONE_CONTRADICTION, path, *lsn),
            _ => of(INKSTONE_OTHER, None, None),
        }
    }

    fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = format!("a bug of the library: {}", text.unwrap_or("it panicked"));
        Self::plain(INKSTONE_PANICKED, message)
    }
}

/// Runs a call: what fails becomes a code, and an error object if the caller asked for one. A panic
/// becomes both. It is made anew in each function: called, it cost a third of an append that waits
/// for nothing, which its arguments took to get there.
#[inline(always)]
pub(crate) fn door(
    mut error: Out<'_, *mut inkstone_error>,
    work: impl FnOnce() -> Result<(), Failure>,
) -> inkstone_code {
    error.put(ptr::null_mut());
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => INKSTONE_OK,
        failed => refused(error, failed),
    }
}

/// The code and the error object of a call that failed.
#[cold]
fn refused(
    mut error: Out<'_, *mut inkstone_error>,
    failed: std::thread::Result<Result<(), Failure>>,
) -> inkstone_code {
    let failed = match failed {
        Ok(Ok(())) => return INKSTONE_OK,
        Ok(Err(Failure::Quiet(code))) => return code,
        Ok(Err(Failure::Log(failed))) if !error.is_asked_for() => return code_of(&failed),
        Ok(Err(Failure::Log(failed))) => inkstone_error::of(&failed),
        Ok(Err(Failure::Streams(failed))) => inkstone_error::of_streams(&failed),
        Ok(Err(Failure::Misuse(why))) => inkstone_error::plain(INKSTONE_INVALID, why),
        Err(payload) => {
            let failed = inkstone_error::of_panic(&*payload);
            // The panic's own value may panic again when it is dropped.
            std::mem::forget(payload);
            failed
        }
    };
    let code = failed.code;
    if error.is_asked_for() {
        error.put(Box::into_raw(Box::new(failed)));
    }
    code
}

/// For calls without an error object: `otherwise` when something panics.
pub(crate) fn quietly<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        otherwise
    })
}

/// Frees what was made by `Box::into_raw`; null is nothing.
///
/// # Safety
/// `handle` is null, or was made so and not freed yet, and nothing uses it.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as the caller says.
        let owned = unsafe { Box::from_raw(handle) };
        quietly((), || drop(owned));
    }
}

/// The code of the error; INKSTONE_OK for NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_code(error: *const inkstone_error) -> inkstone_code {
    // SAFETY: null, or an error that is not freed during the call.
    unsafe { error.as_ref() }.map_or(INKSTONE_OK, |error| error.code)
}

/// What happened, to what, and what to do: a sentence for people, in UTF-8 (bytes of a path that
/// are not are replaced). "" for NULL.
///
/// Owner: the error; valid until it is freed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_message(error: *const inkstone_error) -> *const c_char {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// What a program or its operator can do about an error of this code: a sentence. "" for NULL.
///
/// Owner: the library; never freed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_advice(error: *const inkstone_error) -> *const c_char {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| row(error.code as i32).1.as_ptr())
}

/// The file or directory that the error is about, byte for byte; NULL if there is none.
///
/// Owner: the error; valid until it is freed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_path(error: *const inkstone_error) -> *const c_char {
    // SAFETY: as above.
    let path = unsafe { error.as_ref() }.and_then(|error| error.path.as_deref());
    path.map_or(ptr::null(), CStr::as_ptr)
}

/// Puts the byte of the file at which it happened into `offset`, and returns true; false if there
/// is none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_offset(
    error: *const inkstone_error,
    offset: *mut u64,
) -> bool {
    // SAFETY: as above, and `offset` is null or a place for the number.
    let (error, mut place) = unsafe { (error.as_ref(), out(offset)) };
    error.and_then(|error| error.offset).is_some_and(|offset| {
        place.put(offset);
        true
    })
}

/// Puts the LSN that belongs to the error into `lsn`, and returns true; false if there is none.
/// INKSTONE_TRUNCATED_BEFORE: the first record that is left. INKSTONE_TRUNCATED_AFTER and
/// INKSTONE_LOST: where the reader goes on. INKSTONE_NOT_YET, INKSTONE_POISONED: the last durable record. INKSTONE_CORRUPT:
/// the record that should be there, if it is known.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_lsn(error: *const inkstone_error, lsn: *mut u64) -> bool {
    // SAFETY: as above.
    let (error, mut place) = unsafe { (error.as_ref(), out(lsn)) };
    error.and_then(|error| error.lsn).is_some_and(|lsn| {
        place.put(lsn);
        true
    })
}

/// Puts the id of the stream that the error is about into `stream`, and returns true; false if
/// there is none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_stream(
    error: *const inkstone_error,
    stream: *mut u64,
) -> bool {
    // SAFETY: as above.
    let (error, mut place) = unsafe { (error.as_ref(), out(stream)) };
    error.and_then(|error| error.stream).is_some_and(|stream| {
        place.put(stream);
        true
    })
}

/// Puts the number in a stream that belongs to the error into `number`, and returns true; false if
/// there is none. INKSTONE_TRUNCATED_BEFORE: the first record that is left.
/// INKSTONE_TRUNCATED_AFTER: where the cursor goes on. INKSTONE_NOT_YET, INKSTONE_OTHER_NUMBER: the
/// number that the next record gets.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_number(
    error: *const inkstone_error,
    number: *mut u64,
) -> bool {
    // SAFETY: as above.
    let (error, mut place) = unsafe { (error.as_ref(), out(number)) };
    error.and_then(|error| error.number).is_some_and(|number| {
        place.put(number);
        true
    })
}

/// The operating system's error number (errno), also as the cause of a poison; 0 if there is none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_os(error: *const inkstone_error) -> c_int {
    // SAFETY: as above.
    unsafe { error.as_ref() }.map_or(0, |error| error.os)
}

/// Whether the same call can succeed later, without opening the log again.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_is_retryable(error: *const inkstone_error) -> bool {
    // SAFETY: as above.
    unsafe { error.as_ref() }.is_some_and(|error| error.is_retryable)
}

/// Frees an error. NULL is nothing.
///
/// Threads: any, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_error_free(error: *mut inkstone_error) {
    // SAFETY: null, or an error that a call of this library made and that is freed once.
    unsafe { free(error) }
}

/// A code in words, such as "no room"; "other" for a number that is no code.
///
/// Owner: the library; never freed. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn inkstone_code_name(code: i32) -> *const c_char {
    row(code).0.as_ptr()
}

fn row(code: i32) -> (&'static CStr, &'static CStr) {
    let known = CODES.iter().find(|(known, ..)| *known as i32 == code);
    known.map_or((c"other", c""), |(_, name, advice)| (name, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_row() {
        for (number, (code, name, advice)) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, number);
            assert!(!name.is_empty());
            assert_eq!(advice.is_empty(), *code == INKSTONE_OK, "{code:?}");
        }
        assert_eq!(row(-1).0, c"other");
    }

    #[test]
    fn a_panic_is_an_error_with_its_words_and_goes_no_further() {
        let mut error = ptr::null_mut();
        // SAFETY: a place for the pointer.
        let code = door(unsafe { out(&raw mut error) }, || panic!("{} of {}", 1, 2));
        assert_eq!(code, INKSTONE_PANICKED);
        // SAFETY: the error that was just made.
        let message = unsafe { CStr::from_ptr(inkstone_error_message(error)) };
        assert_eq!(message, c"a bug of the library: 1 of 2");
        // SAFETY: the same, freed once.
        unsafe { inkstone_error_free(error) };
        assert_eq!(quietly(7, || panic!("again")), 7);
    }

    #[test]
    fn what_is_lost_has_a_code_its_text_and_where_to_go_on() {
        let (first, last) = (Lsn::new(5), Lsn::new(9));
        let lost = inkstone_error::of(&Error::Lost { first, last });
        assert_eq!((lost.code, lost.lsn, lost.is_retryable), (INKSTONE_LOST, Some(10), false));
        assert!(lost.message.to_string_lossy().starts_with("LSN 5 to 9 are lost: "), "{lost:?}");
        let (stream, number, next) = (7, 3, 4);
        let error = ::inkstone_streams::Error::LostRecord { stream, number, next };
        let lost = inkstone_error::of_streams(&error);
        assert_eq!((lost.code, lost.stream, lost.number), (INKSTONE_LOST, Some(7), Some(4)));
        assert!(CODES.iter().any(|(code, name, _)| *code == INKSTONE_LOST && *name == c"lost"));
    }
}
