//! The C door of the text log: every function of `include/inkstone_text.h`, which is made from this
//! crate.
//!
//! *Owns*: what crosses between C and Rust: pointers, codes, messages, panics. *May not touch*:
//! what the calls do; each is a call of the crate `inkstone-appender`, which Rust programs use.
//!
//! The names are those that C programs write, and a function's text is its text in the header. Each
//! function makes safe values of its arguments first, in one `unsafe` block, and does the rest
//! inside `door`, which keeps panics from crossing into C.

#![allow(non_camel_case_types, reason = "a type is called what C programs call it")]
#![allow(
    clippy::missing_safety_doc,
    reason = "cbindgen.toml has what a caller must keep, for all functions at once"
)]

mod options;

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use inkstone_appender::{Guard, LogWriter};
use inkstone_io::ForkMark;

/// The stack in bytes that a call needs.
pub const INKSTONE_TEXT_STACK_BYTES: usize = 65536;

/// How a call ended. Errors are below 0; later versions may add some.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum inkstone_text_code {
    /// The call did what it says. Of inkstone_text_write: the line is accepted.
    INKSTONE_TEXT_OK = 0,
    /// Of inkstone_text_write alone: there was no room for the line within drop_after_us, and it is
    /// lost. A notice in the log will count it.
    INKSTONE_TEXT_DROPPED = 1,
    /// An argument makes no sense: a NULL, or a size that no memory has. Nothing was done.
    INKSTONE_TEXT_INVALID = -1,
    /// The log is closed, or is being closed.
    INKSTONE_TEXT_CLOSED = -2,
    /// This process was forked after the log was opened. Nothing was done.
    INKSTONE_TEXT_FORKED = -3,
    /// The time was over before everything was in the file. It goes on.
    INKSTONE_TEXT_TIMED_OUT = -4,
    /// Lines could not be written, or not be made durable. The message says why.
    INKSTONE_TEXT_IO = -5,
    /// A bug of the library, which ended at this call, with a line on stderr.
    INKSTONE_TEXT_PANICKED = -6,
}

use inkstone_text_code::{
    INKSTONE_TEXT_CLOSED, INKSTONE_TEXT_DROPPED, INKSTONE_TEXT_FORKED, INKSTONE_TEXT_INVALID,
    INKSTONE_TEXT_IO, INKSTONE_TEXT_OK, INKSTONE_TEXT_PANICKED, INKSTONE_TEXT_TIMED_OUT,
};

/// A log that was opened.
#[derive(Debug)]
pub struct inkstone_text_log {
    writer: LogWriter,
    /// Until the log is closed.
    guard: Mutex<Option<Guard>>,
    mark: ForkMark,
}

/// A call that failed: its code, and what happened.
struct Failure(inkstone_text_code, String);

impl Failure {
    fn of(error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::BrokenPipe => INKSTONE_TEXT_CLOSED,
            io::ErrorKind::TimedOut => INKSTONE_TEXT_TIMED_OUT,
            _ => INKSTONE_TEXT_IO,
        };
        Self(code, error.to_string())
    }

    fn invalid(why: impl Into<String>) -> Self {
        Self(INKSTONE_TEXT_INVALID, why.into())
    }
}

/// A place of the caller's for a message. What is there before the call is never read.
struct Message(*mut *mut c_char);

impl Message {
    fn put(self, text: &str) {
        let text = CString::new(text.replace('\0', "")).unwrap_or_default();
        if !self.0.is_null() {
            // SAFETY: a place of the caller's, and a text; null if there is no memory for it.
            unsafe { self.0.write(libc::strdup(text.as_ptr())) }
        }
    }
}

/// Runs a call: what fails becomes a code and a message, and so does a panic.
fn door<T>(
    error: Message,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, inkstone_text_code> {
    if !error.0.is_null() {
        // SAFETY: a place of the caller's.
        unsafe { error.0.write(ptr::null_mut()) }
    }
    let Failure(code, text) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(failure)) => failure,
        Err(payload) => {
            // The panic's own value may panic again when it is dropped.
            std::mem::forget(payload);
            Failure(INKSTONE_TEXT_PANICKED, "a bug of the library: it panicked".into())
        }
    };
    error.put(&text);
    Err(code)
}

/// The log behind a handle, if this process may use it.
fn usable(log: Option<&inkstone_text_log>) -> Result<&inkstone_text_log, Failure> {
    let log = log.ok_or_else(|| Failure::invalid("log is NULL"))?;
    if log.mark.is_child() {
        let why = "this process was forked after the log was opened: open another log here";
        return Err(Failure(INKSTONE_TEXT_FORKED, why.into()));
    }
    Ok(log)
}

/// The same, if it is not closed.
fn open(log: Option<&inkstone_text_log>) -> Result<&LogWriter, Failure> {
    let log = usable(log)?;
    let guard = log.guard.lock().unwrap_or_else(PoisonError::into_inner);
    guard.as_ref().map(|_| &log.writer).ok_or_else(closed)
}

fn closed() -> Failure {
    Failure(INKSTONE_TEXT_CLOSED, "the log is closed".into())
}

/// A text of the caller's.
///
/// # Safety
/// `text` is null, or points at bytes up to a zero byte that nothing changes during the call.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: as the caller says.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Opens the log whose current file is `path`, and appends what a killed process has left. The
/// directory is made if it is missing, but none above it. `options` is a text such as
/// "survive=kill rotate_bytes=67108864 keep_files=10", or NULL for the defaults; OPTIONS above has
/// all of them. If another writer has the log, the call waits for its end, for close_ms and two
/// seconds.
///
/// Returns the log, for inkstone_text_log_free, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_text_open(
    path: *const c_char,
    options: *const c_char,
    error: *mut *mut c_char,
) -> *mut inkstone_text_log {
    // SAFETY: the rules of the header.
    let (path, options) = unsafe { (text(path), text(options)) };
    let opened = door(Message(error), || {
        let path = path.map(CStr::to_bytes).filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| Failure::invalid("path is NULL or empty"))?;
        let builder = LogWriter::builder(Path::new(OsStr::from_bytes(path)));
        let options = options.unwrap_or_default().to_string_lossy();
        let builder = options::set_all(builder, &options).map_err(Failure::invalid)?;
        let failed = |error: inkstone_appender::Error| Failure(INKSTONE_TEXT_IO, error.to_string());
        let mark = ForkMark::new().map_err(failed)?;
        let (writer, guard) = builder.open().map_err(failed)?;
        Ok(Box::new(inkstone_text_log { writer, guard: Mutex::new(Some(guard)), mark }))
    });
    opened.map_or(ptr::null_mut(), Box::into_raw)
}

/// Puts one line of `bytes` bytes. INKSTONE_TEXT_OK: it is accepted. INKSTONE_TEXT_DROPPED: it is
/// lost, and nothing of it is in the log. The call copies the line, without a system call while
/// there is room. Without room it waits until there is some, or for drop_after_us at most.
///
/// One call is one line: it stays whole, whatever bytes it has, and lines of all threads have one
/// order. No newline is added: `line` ends with one. If it does not, the next line follows on the
/// same line of the file, or at the head of the next file; after a kill it may begin a new one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_text_write(
    log: *const inkstone_text_log,
    line: *const c_void,
    bytes: usize,
) -> inkstone_text_code {
    // SAFETY: the rules of the header.
    let log = unsafe { log.as_ref() };
    let put = door(Message(ptr::null_mut()), || {
        let log = usable(log)?;
        let line = match bytes {
            0 => &[],
            _ if line.is_null() || bytes > isize::MAX as usize => {
                return Err(Failure::invalid(String::new()));
            }
            // SAFETY: the rules of the header, and the size was checked.
            _ => unsafe { std::slice::from_raw_parts(line.cast(), bytes) },
        };
        log.writer.put(line).map_err(|error| Failure::of(&error))
    });
    match put {
        Ok(true) => INKSTONE_TEXT_OK,
        Ok(false) => INKSTONE_TEXT_DROPPED,
        Err(code) => code,
    }
}

/// Waits until every line that was accepted before is in the file (on the medium, with
/// survive=power-loss), for `wait_ms` at most. Lines need no flush to get there, nor to survive a
/// kill. An earlier sync that failed is an error of every flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_text_flush(
    log: *const inkstone_text_log,
    wait_ms: u64,
    error: *mut *mut c_char,
) -> inkstone_text_code {
    // SAFETY: the rules of the header.
    let log = unsafe { log.as_ref() };
    let flushed = door(Message(error), || {
        let flushed = open(log)?.flush_within(Duration::from_millis(wait_ms));
        flushed.map_err(|error| Failure::of(&error))
    });
    flushed.map_or_else(|code| code, |()| INKSTONE_TEXT_OK)
}

/// Has the file opened anew, by its name, before lines that are put after this call are written:
/// for a program that has moved the file away, such as logrotate. Lines put before may be in either
/// file. It does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_text_reopen(log: *const inkstone_text_log) -> inkstone_text_code {
    // SAFETY: the rules of the header.
    let log = unsafe { log.as_ref() };
    let reopened = door(Message(ptr::null_mut()), || open(log).map(LogWriter::reopen));
    reopened.map_or_else(|code| code, |()| INKSTONE_TEXT_OK)
}

/// Takes no more lines, and waits until every accepted line is in the file (on the medium, with
/// survive=power-loss): for a slow disk as long as it takes, for one that fails close_ms. From now
/// on all calls but inkstone_text_log_free are INKSTONE_TEXT_CLOSED, also those of other threads
/// that wait for room. The handle stays until inkstone_text_log_free.
///
/// INKSTONE_TEXT_IO: the message says how many accepted lines are not in the file; with
/// survive=kill the next opening appends them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_text_close(
    log: *const inkstone_text_log,
    error: *mut *mut c_char,
) -> inkstone_text_code {
    // SAFETY: the rules of the header.
    let log = unsafe { log.as_ref() };
    let ended = door(Message(error), || {
        let guard = usable(log)?.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = guard.ok_or_else(closed)?.close();
        // Whatever its kind, it is not that the log was closed before.
        ended.map_err(|error| Failure(INKSTONE_TEXT_IO, error.to_string()))
    });
    ended.map_or_else(|code| code, |()| INKSTONE_TEXT_OK)
}

/// Frees a log, once, when no other call uses it. One that is open is closed first; what goes wrong
/// then is a line on stderr. In a forked child it only frees. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_text_log_free(log: *mut inkstone_text_log) {
    if !log.is_null() {
        // SAFETY: a log that `inkstone_text_open` made, which nothing uses any more.
        let log = unsafe { Box::from_raw(log) };
        let _ = door(Message(ptr::null_mut()), || {
            drop(log);
            Ok(())
        });
    }
}
