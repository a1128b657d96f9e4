//! A log that is open for writing: opening, closing, watermarks, truncations, what it says of
//! itself.
//!
//! *Owns*: the handle. *May not touch*: appending (`append.rs`), reading (`read.rs`).

use std::ffi::{c_char, c_void};
use std::future::Future;
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use inkstone::{Error, Log, Lsn};

use crate::call::{Call, inkstone_callback};
use crate::error::{Failure, door, free, inkstone_code, inkstone_error, quietly};
use crate::json;
use crate::options::inkstone_options;
use crate::out::out;
use crate::pointers::{given, path, required};
use crate::text::give;

/// How much stack a thread needs for the calls of this library, in bytes: more than twice what they
/// use in a release build. What the thread's own functions use, its callbacks and listeners among
/// them, comes on top. The log's own threads have 2 MiB.
pub const INKSTONE_STACK_BYTES: usize = 131_072;

/// A log that is open for writing. All threads may use it at the same time. One log has one writer
/// at a time.
// Transparent, so that the log below streams is one (`streams.rs`); hidden from cbindgen, which
// would tell C what is in it.
#[cfg_attr(all(), repr(transparent))]
#[derive(Debug)]
pub struct inkstone_log {
    pub(crate) log: Log,
}

/// Opens the log in the directory `path`, which may be any bytes, creating both if they are not
/// there. `options` may be NULL: the defaults. On failure `*log` is NULL.
///
/// A program that gives up root does so before. The log keeps descriptors open, none of them 0, 1
/// or 2: a program that closes the descriptors of others (closefrom, close_range) must not close
/// them.
///
/// Owner: the caller gets `*log` and frees it with inkstone_log_free. `options` stay the caller's
/// and are copied. Threads: any. Durable: everything that the opened log shows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_open(
    path_of_log: *const c_char,
    options: *const inkstone_options,
    log: *mut *mut inkstone_log,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (path, options, log, error) =
        unsafe { (path(path_of_log, "path"), options.as_ref(), out(log), out(error)) };
    door(error, || {
        let mut log = required(log, "log")?;
        log.put(ptr::null_mut());
        let opened = Log::open(path?, inkstone_options::or_default(options))?;
        log.put(Box::into_raw(Box::new(inkstone_log { log: opened })));
        Ok(())
    })
}

/// Closes the log: commits everything, and lets another writer open it. Other threads may use the
/// log meanwhile: what they had appended is durable, and their later calls get INKSTONE_CLOSED. A
/// second call returns the same as the first; one that comes while the first is running, on another
/// thread or from a callback, returns INKSTONE_CLOSED without waiting, and nothing is durable by
/// it. The handle stays valid until it is freed, which must wait for the first call. The log is
/// closed also when this fails.
///
/// Owner: the log stays the caller's to free. Threads: any. Durable: every record that was
/// appended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_close(
    log: *const inkstone_log,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, error) = unsafe { (log.as_ref(), out(error)) };
    door(error, || Ok(given(log, "log")?.log.close()?))
}

/// Frees a log, and closes it if it is open; errors of that closing are lost, so close it first.
/// NULL is nothing. In a forked child it writes nothing.
///
/// Owner: `log` is gone, and so is what is pending of it. Readers of it may be used on, and freed
/// later. Threads: any, when no other call uses the log, and not from a callback or listener of
/// this log. Durable: every record that was appended, if nothing failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_log_free(log: *mut inkstone_log) {
    // SAFETY: null, or a log that nothing uses any more.
    unsafe { free(log) }
}

/// Makes all records durable that were appended before, and puts the LSN of the last one into
/// `lsn`, which may be NULL.
///
/// Threads: any. Durable: every record whose append had returned before this call, also with
/// the option periodic_us.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_sync(
    log: *const inkstone_log,
    lsn: *mut u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, mut lsn, error) = unsafe { (log.as_ref(), out(lsn), out(error)) };
    door(error, || {
        lsn.put(0);
        lsn.put(given(log, "log")?.log.sync()?.get());
        Ok(())
    })
}

/// Waits until the durable watermark reaches `lsn`, for up to `timeout_us` microseconds
/// (UINT64_MAX: for ever), for a thread that has nothing but the LSN. The record need not be
/// appended yet. INKSTONE_NOT_YET, without an error object, when the time is over;
/// INKSTONE_TRUNCATED_AFTER if the record was truncated meanwhile. It commits nothing by itself: in
/// a log without a thread of its own (the option own_thread) another call must.
///
/// Threads: any. Durable: every record up to `lsn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_wait_durable(
    log: *const inkstone_log,
    lsn: u64,
    timeout_us: u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, error) = unsafe { (log.as_ref(), out(error)) };
    door(error, || {
        let log = &given(log, "log")?.log;
        match within(log.durable_at(Lsn::new(lsn)), timeout_us) {
            Some(outcome) => Ok(outcome?),
            None => Err(Failure::Quiet(inkstone_code::INKSTONE_NOT_YET)),
        }
    })
}

/// Has `callback` called once with `context` and the durable watermark when that has changed since
/// this call: it has risen, or inkstone_truncate_after has cut the log. With an error it will
/// change no more (INKSTONE_CLOSED, INKSTONE_POISONED). So many can follow a log without a thread
/// for each: call this once for all of them, read to the end (inkstone_cursor_next), let all wait
/// for the callback, and begin again. In this order no change is missed. It commits nothing, and
/// counts as no waiter.
///
/// The thread that made the watermark change makes the call, beside other callbacks; if the outcome
/// is known already, this call does at once. What inkstone_on_durable says of a callback holds for
/// this one, but for their order. A log that is closed or freed leaves none uncalled. The callback
/// is not called if this call returns an error other than INKSTONE_PANICKED.
///
/// Owner: `context` is the caller's and is passed on as it is. Threads: any. Durable: every record
/// up to the watermark.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_on_watermark(
    log: *const inkstone_log,
    callback: inkstone_callback,
    context: *mut c_void,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, error) = unsafe { (log.as_ref(), out(error)) };
    door(error, || {
        let mut watermarks = given(log, "log")?.log.watermarks();
        let function = given(callback, "callback")?;
        let call = Call { function, context, lsn: watermarks.last().get() };
        let changed = Box::pin(async move { watermarks.changed().await });
        Arc::new(Awaited(Mutex::new(Some((changed, call))))).poll();
        Ok(())
    })
}

type Changed = Pin<Box<dyn Future<Output = Result<Lsn, Error>> + Send>>;

/// A change of the watermark and the callback for it; `None` once that is done. The log has it as a
/// waker.
struct Awaited(Mutex<Option<(Changed, Call)>>);

impl Awaited {
    fn poll(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((changed, _)) = &mut *awaited else { return };
        let Poll::Ready(outcome) = changed.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return;
        };
        let Some((_, mut call)) = awaited.take() else { return };
        drop(awaited);
        call.lsn = outcome.as_ref().map_or(call.lsn, |watermark| watermark.get());
        call.now(outcome);
    }
}

impl Wake for Awaited {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread; `None` when the time is over.
fn within<F: Future>(future: F, timeout_us: u64) -> Option<F::Output> {
    let until = Instant::now().checked_add(timeout(timeout_us));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(outcome);
        }
        match until {
            None => std::thread::park(),
            Some(until) => match until.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                _ => return None,
            },
        }
    }
}

/// A time of the caller's; the longest is for ever.
pub(crate) fn timeout(us: u64) -> Duration {
    if us == u64::MAX { Duration::MAX } else { Duration::from_micros(us) }
}

/// A number that the log tells; 0 for a null handle.
///
/// # Safety
/// `log` is null, or a log that is not freed.
unsafe fn number(log: *const inkstone_log, ask: impl FnOnce(&Log) -> Lsn) -> u64 {
    // SAFETY: as the caller says.
    let log = unsafe { log.as_ref() };
    quietly(0, || log.map_or(0, |log| ask(&log.log).get()))
}

/// The first record that was not truncated; one above the last if there is none. 0 for NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_first(log: *const inkstone_log) -> u64 {
    // SAFETY: the rules of the header.
    unsafe { number(log, Log::first) }
}

/// The durable watermark: every record up to this LSN is on stable storage. 0 when there is none,
/// and for NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_durable(log: *const inkstone_log) -> u64 {
    // SAFETY: the rules of the header.
    unsafe { number(log, Log::durable) }
}

/// The last LSN given to a record, durable or not. 0 when there is none, and for NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_last(log: *const inkstone_log) -> u64 {
    // SAFETY: the rules of the header.
    unsafe { number(log, Log::last) }
}

/// The first record of the last segment, or the next one if it has none yet. A program that keeps a
/// summary of older records in the log repeats it when this has risen: then
/// inkstone_truncate_before can free all segments before it. 0 for NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_head_first(log: *const inkstone_log) -> u64 {
    // SAFETY: the rules of the header.
    unsafe { number(log, Log::head_first) }
}

/// Truncates all records before `first`. The files of segments without other records are used
/// again, once no reader holds them.
///
/// Threads: any. Durable: the truncation: those records do not come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_truncate_before(
    log: *const inkstone_log,
    first: u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, error) = unsafe { (log.as_ref(), out(error)) };
    door(error, || Ok(given(log, "log")?.log.truncate_before(Lsn::new(first))?))
}

/// Truncates all records after `last`; the next record gets the LSN after it. The truncated records
/// become durable first, so waiting for them succeeds. Readers positioned after `last` get
/// INKSTONE_TRUNCATED_AFTER.
///
/// Threads: any. Durable: the truncation, as a whole: those records do not come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_truncate_after(
    log: *const inkstone_log,
    last: u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, error) = unsafe { (log.as_ref(), out(error)) };
    door(error, || Ok(given(log, "log")?.log.truncate_after(Lsn::new(last))?))
}

/// What the opening found and did, as a JSON object: text (a sentence for people), created, clean,
/// torn, row, first, last, epoch, segments, bytes_read, leftovers, waits_for_room.
///
/// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_recovery_json(
    log: *const inkstone_log,
    text: *mut *mut c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, text, error) = unsafe { (log.as_ref(), out(text), out(error)) };
    door(error, || give(text, "text", || Ok(json::recovery(given(log, "log")?.log.recovery()))))
}

/// The way of writing that was chosen for this file system and device, and why, as a sentence;
/// warnings follow, a line each.
///
/// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_choice_text(
    log: *const inkstone_log,
    text: *mut *mut c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, text, error) = unsafe { (log.as_ref(), out(text), out(error)) };
    door(error, || {
        give(text, "text", || {
            let choice = given(log, "log")?.log.choice();
            let lines = choice.warnings.iter().map(|warning| format!("\n{warning}"));
            Ok(choice.to_string() + &lines.collect::<String>())
        })
    })
}

/// What the log has done since it was opened, as a JSON object of numbers; times are objects with
/// count, sum_us, p50_us, p99_us, p999_us and max_us. A later version may add members. All 0 in a
/// forked child.
///
/// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_stats_json(
    log: *const inkstone_log,
    text: *mut *mut c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, text, error) = unsafe { (log.as_ref(), out(text), out(error)) };
    door(error, || give(text, "text", || Ok(json::stats(&given(log, "log")?.log.stats()))))
}
