//! Many streams in one log, open for writing.
//!
//! *Owns*: the handle, and that what is pending of it is pending in the log below. *May not touch*:
//! the changes of a batch (`batch.rs`), reading (`streams_read.rs`).

use std::ffi::{c_char, c_void};
use std::ptr;

use ::inkstone_streams::{Streams, Written};

use crate::append::{NOTHING, inkstone_pending};
use crate::batch::inkstone_batch;
use crate::error::{Failure, door, free, inkstone_code, inkstone_error, quietly};
use crate::json;
use crate::log::inkstone_log;
use crate::options::inkstone_options;
use crate::out::{Out, out};
use crate::pointers::{bytes, given, path, required};
use crate::text::give;

/// Many streams in one log, open for writing. A stream has an id and dense numbers of its own, from
/// a first one that its creator chooses. All streams share every flush. All threads may use it at
/// the same time. One log has one writer at a time.
#[derive(Debug)]
pub struct inkstone_streams {
    pub(crate) streams: Streams,
}

impl inkstone_streams {
    fn log(&self) -> *const inkstone_log {
        // `inkstone_log` is a log and nothing else (repr(transparent)).
        ptr::from_ref(self.streams.log()).cast()
    }

    /// Hands out what is pending, and the numbers of the records.
    fn pend(
        &self,
        written: Written<'_>,
        numbers: impl FnOnce(&[u64]),
        pending: &mut Out<'_, inkstone_pending>,
    ) {
        numbers(written.numbers());
        let (first, last, cuts) = written.into_append().detach();
        let (first_lsn, lsn) = (first.get(), last.get());
        pending.put(inkstone_pending { log: self.log(), first_lsn, lsn, cuts });
    }
}

/// Opens the streams in the directory `path`, creating the log if there is none. `options` may be
/// NULL: the defaults. A log of another kind is INKSTONE_OTHER_KIND, and is not changed. On failure
/// `*streams` is NULL. What inkstone_open says of descriptors holds.
///
/// Owner: the caller gets `*streams` and frees it with inkstone_streams_free. `options` stay the
/// caller's and are copied. Threads: any. Durable: everything that the opened streams show.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_open(
    path_of_log: *const c_char,
    options: *const inkstone_options,
    streams: *mut *mut inkstone_streams,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (path, options, streams, error) =
        unsafe { (path(path_of_log, "path"), options.as_ref(), out(streams), out(error)) };
    door(error, || {
        give_handle(streams, "streams", || {
            let streams = Streams::open(path?, inkstone_options::of_streams(options))?;
            Ok(inkstone_streams { streams })
        })
    })
}

/// Closes the streams and their log: commits everything, and lets another writer open it. What
/// inkstone_close says of other threads and of a second call holds.
///
/// Owner: the streams stay the caller's to free. Threads: any. Durable: every change that was
/// applied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_close(
    streams: *const inkstone_streams,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (streams, error) = unsafe { (streams.as_ref(), out(error)) };
    door(error, || Ok(given(streams, "streams")?.streams.close()?))
}

/// Frees streams, and closes them if they are open; errors of that closing are lost, so close them
/// first. NULL is nothing. In a forked child it writes nothing.
///
/// Owner: `streams` is gone, and so is what is pending of it, and the log of inkstone_streams_log.
/// Readers of it may be used on, and freed later. Threads: any, when no other call uses the
/// streams, and not from a callback or listener. Durable: every change that was applied, if nothing
/// failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_free(streams: *mut inkstone_streams) {
    // SAFETY: null, or streams that nothing uses any more.
    unsafe { free(streams) }
}

/// Appends one record to a stream; its bytes are copied. Waits while the log has no room in its
/// buffers. An unknown stream is INKSTONE_NO_STREAM.
///
/// Owner: `number`, which may be NULL, is the caller's and gets the record's number. `pending` is
/// the caller's, as of inkstone_append: end it by inkstone_wait, inkstone_on_durable or
/// inkstone_let_go. Its LSN is that of the record of the log. Threads: any. Durable: nothing on
/// return: wait for `pending`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_append(
    streams: *const inkstone_streams,
    stream: u64,
    data: *const c_void,
    size: usize,
    number: *mut u64,
    pending: *mut inkstone_pending,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (streams, record, mut number, pending, error) =
        unsafe { (streams.as_ref(), bytes(data, size), out(number), out(pending), out(error)) };
    door(error, || {
        number.put(0);
        let mut pending = required(pending, "pending")?;
        pending.put(NOTHING);
        let streams = given(streams, "streams")?;
        let written = streams.streams.append(stream, record?)?;
        streams.pend(written, |numbers| number.put(numbers[0]), &mut pending);
        Ok(())
    })
}

/// Makes all changes of a batch, or none: after a crash, too, all of them are there or none. Waits
/// while the log has no room in its buffers. A change that cannot be made is an error that names
/// its stream (inkstone_error_stream), and then nothing has changed. The batch stays as it is.
///
/// Owner: `numbers`, which may be NULL, is the caller's place for one number for each record that
/// the batch appends, in order. `pending` is the caller's, as of inkstone_streams_append.
/// Threads: any. Durable: nothing on return: wait for `pending`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_apply(
    streams: *const inkstone_streams,
    batch: *const inkstone_batch,
    numbers: *mut u64,
    pending: *mut inkstone_pending,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (streams, batch, pending, error) =
        unsafe { (streams.as_ref(), batch.as_ref(), out(pending), out(error)) };
    door(error, || {
        let mut pending = required(pending, "pending")?;
        pending.put(NOTHING);
        let (streams, (batch, records)) =
            (given(streams, "streams")?, given(batch, "batch")?.changes()?);
        if !numbers.is_null() {
            // SAFETY: the caller's place for so many numbers.
            unsafe { ptr::write_bytes(numbers, 0, records) };
        }
        let give = |found: &[u64]| {
            if !numbers.is_null() {
                // SAFETY: the same: the streams give each record one number.
                unsafe { ptr::copy_nonoverlapping(found.as_ptr(), numbers, found.len()) };
            }
        };
        streams.pend(streams.streams.apply(&batch)?, give, &mut pending);
        Ok(())
    })
}

/// How large the streams are, and what was moved, as a JSON object of numbers: streams, live_bytes,
/// table_bytes (a table of all streams, with their notes), log_bytes, sections, moved_records,
/// moved_bytes, lost_records (damaged, when they were to be moved), housekeeping_bytes,
/// front_live_bytes (what the front of the log waits for); and not_moved, null or the error for
/// which the front could not be moved or given back last. A later version may add members. All 0 in
/// a forked child.
///
/// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_stats_json(
    streams: *const inkstone_streams,
    text: *mut *mut c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (streams, text, error) = unsafe { (streams.as_ref(), out(text), out(error)) };
    door(error, || {
        give(text, "text", || Ok(json::streams_stats(&given(streams, "streams")?.streams.stats())))
    })
}

/// The log below, for what it knows: inkstone_durable, inkstone_wait_durable,
/// inkstone_on_watermark, inkstone_stats_json. Nobody else may append to it, truncate it, or close
/// it. NULL for NULL.
///
/// Owner: the streams; valid until they are freed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_log(
    streams: *const inkstone_streams,
) -> *const inkstone_log {
    // SAFETY: the rules of the header.
    let streams = unsafe { streams.as_ref() };
    quietly(ptr::null(), || streams.map_or(ptr::null(), inkstone_streams::log))
}

/// Hands out a handle that is made.
pub(crate) fn give_handle<T>(
    place: Out<'_, *mut T>,
    name: &str,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    let mut place = required(place, name)?;
    place.put(ptr::null_mut());
    place.put(Box::into_raw(Box::new(make()?)));
    Ok(())
}
