//! Appending, and what a program does with a record that was appended: wait, be called, let it go.
//!
//! *Owns*: the pending record as a plain structure of the caller's, so that no append takes memory
//! at the door. *May not touch*: how records become durable.

use std::ffi::c_void;
use std::ptr;

use inkstone::{Append, Lsn, Parts};

use crate::call::{Call, inkstone_callback};
use crate::error::{Failure, door, inkstone_code, inkstone_error, quietly};
use crate::log::inkstone_log;
use crate::out::{Out, out};
use crate::pointers::{array, bytes, check_pieces, given, inkstone_bytes, required, slices};

/// A record, or a batch, that was appended and is not necessarily durable yet. It is the caller's
/// memory and holds nothing. End each by one call of inkstone_wait, inkstone_on_durable or
/// inkstone_let_go; that call sets `log` to NULL. One that is simply forgotten becomes durable with
/// the next record that somebody waits for, at the latest when the log is closed. The log must not
/// be freed before.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct inkstone_pending {
    /// The log; NULL when nothing is pending. Do not change it.
    pub log: *const inkstone_log,
    /// The LSN of the record; for a batch, that of its first record.
    pub first_lsn: u64,
    /// The LSN of the record; for a batch, that of its last record.
    pub lsn: u64,
    /// The library's. Do not change it.
    pub cuts: u64,
}

pub(crate) const NOTHING: inkstone_pending =
    inkstone_pending { log: ptr::null(), first_lsn: 0, lsn: 0, cuts: 0 };

/// Appends, and hands out what is pending.
fn append<'log>(
    log: Option<&'log inkstone_log>,
    pending: Out<'_, inkstone_pending>,
    work: impl FnOnce(&'log inkstone_log) -> Result<Append<'log>, Failure>,
) -> Result<(), Failure> {
    let mut pending = required(pending, "pending")?;
    pending.put(NOTHING);
    let log = given(log, "log")?;
    let (first, last, cuts) = work(log)?.detach();
    pending.put(inkstone_pending { log, first_lsn: first.get(), lsn: last.get(), cuts });
    Ok(())
}

/// The handle of what is pending, which is pending no more.
///
/// # Safety
/// Its log is not freed.
unsafe fn take<'log>(pending: Option<&mut inkstone_pending>) -> Result<Append<'log>, Failure> {
    let pending = given(pending, "pending")?;
    let taken = std::mem::replace(pending, inkstone_pending { log: ptr::null(), ..*pending });
    // SAFETY: as the caller says.
    let Some(log) = (unsafe { taken.log.as_ref() }) else {
        let why = "pending.log is NULL: the append failed, or the program has already waited for \
                   this record or let it go";
        return Err(Failure::Misuse(why.into()));
    };
    Ok(log.log.attach(Lsn::new(taken.first_lsn), Lsn::new(taken.lsn), taken.cuts))
}

/// Appends one record; its bytes are copied. Waits while every buffer is full, or while the segment
/// changes.
///
/// Owner: `pending` is the caller's (inkstone_pending says how it ends). Threads: any. Durable:
/// nothing on return: wait for `pending`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_append(
    log: *const inkstone_log,
    data: *const c_void,
    size: usize,
    pending: *mut inkstone_pending,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, record, pending, error) =
        unsafe { (log.as_ref(), bytes(data, size), out(pending), out(error)) };
    door(error, || append(log, pending, |log| Ok(log.log.append(record?)?)))
}

/// Appends one record that nobody waits for. The log's own thread commits it soon.
///
/// Owner: `lsn`, which may be NULL, is the caller's and gets the LSN. Threads: any. Durable:
/// nothing on return: the record is durable when inkstone_sync has returned, or inkstone_durable
/// has reached its LSN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_append_unwaited(
    log: *const inkstone_log,
    data: *const c_void,
    size: usize,
    lsn: *mut u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, record, mut lsn, error) =
        unsafe { (log.as_ref(), bytes(data, size), out(lsn), out(error)) };
    door(error, || {
        lsn.put(0);
        lsn.put(given(log, "log")?.log.append(record?)?.lsn().get());
        Ok(())
    })
}

/// Appends one record and waits until it is durable. Calls of several threads share a flush.
///
/// Owner: `lsn`, which may be NULL, is the caller's and gets the LSN. Threads: any. Durable: the
/// record and all before it; with the option periodic_us they will be soon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_append_durable(
    log: *const inkstone_log,
    data: *const c_void,
    size: usize,
    lsn: *mut u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, record, mut lsn, error) =
        unsafe { (log.as_ref(), bytes(data, size), out(lsn), out(error)) };
    door(error, || {
        lsn.put(0);
        lsn.put(given(log, "log")?.log.append_durable(record?)?.get());
        Ok(())
    })
}

/// Appends one record if that needs no waiting; else INKSTONE_BUSY, and the log's own thread makes
/// room.
///
/// Owner: `pending` is the caller's. Threads: any. Durable: nothing on return: wait for `pending`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_try_append(
    log: *const inkstone_log,
    data: *const c_void,
    size: usize,
    pending: *mut inkstone_pending,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, record, pending, error) =
        unsafe { (log.as_ref(), bytes(data, size), out(pending), out(error)) };
    door(error, || append(log, pending, |log| Ok(log.log.try_append(record?)?)))
}

/// Appends one record whose bytes are in `count` parts: the same as inkstone_append of the parts
/// joined. Each part is copied once. An array of struct iovec may be passed, by a cast.
///
/// Owner: `parts` and `pending` are the caller's. Threads: any. Durable: nothing on return: wait
/// for `pending`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_append_parts(
    log: *const inkstone_log,
    parts: *const inkstone_bytes,
    count: usize,
    pending: *mut inkstone_pending,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, parts, pending, error) =
        unsafe { (log.as_ref(), array(parts, count, "parts"), out(pending), out(error)) };
    door(error, || {
        append(log, pending, |log| {
            let parts = parts?;
            log.log.check_fits(1, check_pieces(parts, "parts")?)?;
            // SAFETY: the rules of the header, for each part.
            let parts = unsafe { slices(parts) };
            Ok(log.log.append(&Parts(&parts))?)
        })
    })
}

/// Appends `count` records, all or none: after a crash either all of them are in the log or none. A
/// batch has at least one record. A batch of several is limited as a record is (the option
/// record_bytes_max): each of them counts with 24 bytes more, rounded up to a multiple of 8.
///
/// Owner: `records` and `pending` are the caller's. Threads: any. Durable: nothing on return: wait
/// for `pending`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_append_batch(
    log: *const inkstone_log,
    records: *const inkstone_bytes,
    count: usize,
    pending: *mut inkstone_pending,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, records, pending, error) =
        unsafe { (log.as_ref(), array(records, count, "records"), out(pending), out(error)) };
    door(error, || {
        append(log, pending, |log| {
            let records = records?;
            check_pieces(records, "records")?;
            Ok(log.log.append_batch(records)?)
        })
    })
}

/// Waits until the record is durable. The calling thread may write the group itself: a lone writer
/// has no other thread to wait for. Ends `pending`, also when it fails: the error then tells what
/// became of the record.
///
/// Threads: any; each pending record on one at a time. Durable: the record and all before it; with
/// the option periodic_us they will be soon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_wait(
    pending: *mut inkstone_pending,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (pending, error) = unsafe { (pending.as_mut(), out(error)) };
    door(error, || {
        // SAFETY: the log is not freed, as the text of `inkstone_pending` asks.
        unsafe { take(pending)? }.wait()?;
        Ok(())
    })
}

/// Has `callback` called once with `context`: when the record is durable, or when it is known that
/// it may never be. Ends `pending`, unless `callback` is NULL. The callback is not called if this
/// call returns an error other than INKSTONE_PANICKED.
///
/// The thread that made the record durable makes the call (a thread of the program's that waits, or
/// the log's own); if the outcome is known already, this call does at once, in a forked child too.
/// Those that wait at the same time come one at a time, in the order of their LSNs. The record
/// counts as waited for. A log that is closed or freed leaves no callback uncalled, but a process
/// that ends does. They may come after inkstone_close has returned if another thread was calling
/// callbacks at that moment, and before inkstone_log_free returns only if no other thread is.
///
/// Nothing of the log is locked while a callback runs: it may append, register callbacks, truncate
/// and close, and must not free the log. It holds up other callbacks and often a waiting thread, so
/// it must not block. It must not throw a C++ exception or leave by longjmp. If it forks, the child
/// must call exec or _exit. One that runs an interpreter's code (Python's, say) must not come when
/// the interpreter has ended, which would end the thread and so the process: close the log before.
///
/// Owner: `context` is the caller's and is passed on as it is. Threads: any. Durable: nothing on
/// return; the record and all before it when the callback gets no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_on_durable(
    pending: *mut inkstone_pending,
    callback: inkstone_callback,
    context: *mut c_void,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (pending, error) = unsafe { (pending.as_mut(), out(error)) };
    door(error, || {
        let function = given(callback, "callback")?;
        // SAFETY: as in `inkstone_wait`.
        let append = unsafe { take(pending)? };
        let call = Call { function, context, lsn: append.lsn().get() };
        append.on_durable(move |outcome| call.now(outcome));
        Ok(())
    })
}

/// Lets a pending record go: nobody waits for it, and the log's own thread commits it soon. NULL,
/// or a record that is pending no more, is nothing.
///
/// Threads: any; each pending record on one at a time. Durable: nothing on return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_let_go(pending: *mut inkstone_pending) {
    // SAFETY: the rules of the header.
    let pending = unsafe { pending.as_mut() };
    // SAFETY: as in `inkstone_wait`. Dropping a handle lets its record go.
    quietly((), || drop(unsafe { take(pending) }));
}
