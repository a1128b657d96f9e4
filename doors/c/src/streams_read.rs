//! Reading streams: by number, in order, and following one as it grows.
//!
//! *Owns*: readers and cursors of streams as handles, records borrowed from a cursor. *May not
//! touch*: how records are found.

use std::ffi::{c_char, c_void};
use std::ptr;

use ::inkstone_streams::{Record, StreamCursor, StreamsReader};

use crate::error::{Failure, door, free, inkstone_code, inkstone_error};
use crate::log::timeout;
use crate::options::inkstone_options;
use crate::out::{Out, out};
use crate::pointers::inkstone_bytes;
use crate::pointers::{given, path, required};
use crate::streams::{give_handle, inkstone_streams};
use crate::text::{NONE, give_bytes};

/// Reads durable records of streams. All threads may use it at the same time.
#[derive(Debug)]
pub struct inkstone_streams_reader {
    reader: StreamsReader,
}

/// A position in a stream from which records are read in order. One thread at a time may use it.
#[derive(Debug)]
pub struct inkstone_streams_cursor {
    cursor: StreamCursor,
    /// What was shown last.
    record: Option<Record>,
}

/// A record of a stream that is borrowed from a cursor: valid until the next call on that cursor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct inkstone_streams_record {
    /// Its number in the stream.
    pub number: u64,
    /// Its bytes; never NULL, not aligned.
    pub data: *const c_void,
    /// How many they are.
    pub size: usize,
}

const NO_RECORD: inkstone_streams_record =
    inkstone_streams_record { number: 0, data: ptr::null(), size: 0 };

/// A reader of the durable records of streams that this process writes.
///
/// Owner: the caller gets `*reader` and frees it with inkstone_streams_reader_free, also after the
/// streams. It may be used after they are closed, until they are opened for writing again.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_reader_of(
    streams: *const inkstone_streams,
    reader: *mut *mut inkstone_streams_reader,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (streams, reader, error) = unsafe { (streams.as_ref(), out(reader), out(error)) };
    door(error, || {
        give_handle(reader, "reader", || {
            let reader = given(streams, "streams")?.streams.reader();
            Ok(inkstone_streams_reader { reader })
        })
    })
}

/// Opens the streams in the directory `path` for reading only, also beside a writer in another
/// process. It writes and creates nothing and takes no lock. `options` may be NULL; of them only
/// access, expect_durable and cache_bytes apply. On failure `*reader` is NULL.
///
/// Owner: the caller gets `*reader` and frees it with inkstone_streams_reader_free. `options` stay
/// the caller's. Threads: any. Durable: everything that the reader shows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_reader_open(
    path_of_log: *const c_char,
    options: *const inkstone_options,
    reader: *mut *mut inkstone_streams_reader,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (path, options, reader, error) =
        unsafe { (path(path_of_log, "path"), options.as_ref(), out(reader), out(error)) };
    door(error, || {
        give_handle(reader, "reader", || {
            let reader = StreamsReader::open(path?, &inkstone_options::of_streams(options))?;
            Ok(inkstone_streams_reader { reader })
        })
    })
}

/// Frees a reader. Its cursors may be used on. NULL is nothing.
///
/// Threads: any, when no other call uses the reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_reader_free(reader: *mut inkstone_streams_reader) {
    // SAFETY: null, or a reader that nothing uses any more.
    unsafe { free(reader) }
}

/// Puts the ids of the streams from `from` on into `ids`, in order, at most `count_max`, and how
/// many they are into `count`. For the next ones call it with the last id and 1 more.
///
/// Owner: `ids` and `count` are the caller's. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_ids(
    reader: *const inkstone_streams_reader,
    from: u64,
    ids: *mut u64,
    count_max: usize,
    count: *mut usize,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, count, error) = unsafe { (reader.as_ref(), out(count), out(error)) };
    door(error, || {
        let mut count = required(count, "count")?;
        count.put(0);
        let reader = &given(reader, "reader")?.reader;
        if ids.is_null() && count_max > 0 {
            return Err(Failure::Misuse(format!("ids is NULL, and count_max is {count_max}")));
        }
        let found = reader.ids(from.checked_sub(1), count_max)?;
        if !found.is_empty() {
            // SAFETY: the caller's place for `count_max` ids; no more were found.
            unsafe { ptr::copy_nonoverlapping(found.as_ptr(), ids, found.len()) };
        }
        count.put(found.len());
        Ok(())
    })
}

/// Puts the number of the first record that is left into `first`, and the number that the next
/// record gets into `next`; either may be NULL. If both are the same, the stream has no record. In
/// the process that writes, records below `next` may not be durable yet.
///
/// Owner: `first` and `next` are the caller's. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_bounds(
    reader: *const inkstone_streams_reader,
    stream: u64,
    first: *mut u64,
    next: *mut u64,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, mut first, mut next, error) =
        unsafe { (reader.as_ref(), out(first), out(next), out(error)) };
    door(error, || {
        first.put(0);
        next.put(0);
        let bounds = given(reader, "reader")?.reader.bounds(stream)?;
        first.put(bounds.first);
        next.put(bounds.next);
        Ok(())
    })
}

/// Hands out bytes that are found.
fn give_found(
    bytes: Out<'_, inkstone_bytes>,
    find: impl FnOnce() -> Result<Vec<u8>, Failure>,
) -> Result<(), Failure> {
    let mut bytes = required(bytes, "bytes")?;
    bytes.put(NONE);
    give_bytes(&mut bytes, find()?);
    Ok(())
}

/// The note of a stream, in memory of its own; no bytes if it has none. In the process that writes,
/// it may not be durable yet. On failure `bytes->data` is NULL.
///
/// Owner: the caller gets the bytes and frees them with inkstone_bytes_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_note(
    reader: *const inkstone_streams_reader,
    stream: u64,
    bytes: *mut inkstone_bytes,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, bytes, error) = unsafe { (reader.as_ref(), out(bytes), out(error)) };
    door(error, || give_found(bytes, || Ok(given(reader, "reader")?.reader.note(stream)?)))
}

/// The record of a stream with this number, in memory of its own. INKSTONE_NO_STREAM,
/// INKSTONE_TRUNCATED_BEFORE, INKSTONE_NOT_YET, also for a record that is not durable yet. On
/// failure `bytes->data` is NULL.
///
/// Owner: the caller gets the bytes and frees them with inkstone_bytes_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_get(
    reader: *const inkstone_streams_reader,
    stream: u64,
    number: u64,
    bytes: *mut inkstone_bytes,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, bytes, error) = unsafe { (reader.as_ref(), out(bytes), out(error)) };
    door(error, || give_found(bytes, || Ok(given(reader, "reader")?.reader.get(stream, number)?)))
}

/// A cursor whose next record is the one of this stream with this number, which may not exist yet.
///
/// Owner: the caller gets `*cursor` and frees it with inkstone_streams_cursor_free, also after the
/// reader. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_cursor_new(
    reader: *const inkstone_streams_reader,
    stream: u64,
    number: u64,
    cursor: *mut *mut inkstone_streams_cursor,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, cursor, error) = unsafe { (reader.as_ref(), out(cursor), out(error)) };
    door(error, || {
        give_handle(cursor, "cursor", || {
            let cursor = given(reader, "reader")?.reader.read(stream, number);
            Ok(inkstone_streams_cursor { cursor, record: None })
        })
    })
}

/// Frees a cursor, and with it the record that it returned last. NULL is nothing.
///
/// Threads: any, when no other call uses the cursor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_cursor_free(cursor: *mut inkstone_streams_cursor) {
    // SAFETY: null, or a cursor that nothing uses any more.
    unsafe { free(cursor) }
}

/// Hands out the record that a cursor has found, which the cursor keeps.
fn give_record(
    cursor: Option<&mut inkstone_streams_cursor>,
    record: Out<'_, inkstone_streams_record>,
    find: impl FnOnce(&mut StreamCursor) -> ::inkstone_streams::Result<Option<Record>>,
) -> Result<(), Failure> {
    let mut place = required(record, "record")?;
    place.put(NO_RECORD);
    let cursor = given(cursor, "cursor")?;
    cursor.record = find(&mut cursor.cursor)?;
    let record = cursor.record.as_ref().ok_or(Failure::Quiet(inkstone_code::INKSTONE_NOT_YET))?;
    let (data, size) = (record.bytes.as_ptr().cast(), record.bytes.len());
    place.put(inkstone_streams_record { number: record.number, data, size });
    Ok(())
}

/// The next record. INKSTONE_NOT_YET, without an error object, when it is not durable yet.
/// INKSTONE_TRUNCATED_BEFORE: continue with a new cursor at inkstone_error_number.
/// INKSTONE_TRUNCATED_AFTER, once, when records before the cursor were truncated at the end of the
/// stream, restarted, or removed with it: the next call goes on at inkstone_error_number.
/// INKSTONE_NO_STREAM when the stream was removed.
///
/// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
/// a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_cursor_next(
    cursor: *mut inkstone_streams_cursor,
    record: *mut inkstone_streams_record,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (cursor, record, error) = unsafe { (cursor.as_mut(), out(record), out(error)) };
    door(error, || give_record(cursor, record, StreamCursor::next))
}

/// The next record; waits for it up to `timeout_us` microseconds (UINT64_MAX: for ever).
/// INKSTONE_NOT_YET, without an error object, when the time is over. INKSTONE_CLOSED and
/// INKSTONE_POISONED when all records were shown and no more will come. Otherwise as
/// inkstone_streams_cursor_next.
///
/// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
/// a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_streams_cursor_next_within(
    cursor: *mut inkstone_streams_cursor,
    timeout_us: u64,
    record: *mut inkstone_streams_record,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (cursor, record, error) = unsafe { (cursor.as_mut(), out(record), out(error)) };
    door(error, || give_record(cursor, record, |cursor| cursor.next_within(timeout(timeout_us))))
}
