//! Reading: by LSN, in order, and following a log as it grows.
//!
//! *Owns*: readers and cursors as handles, records borrowed from a cursor. *May not touch*: how
//! records are found.

use std::ffi::{c_char, c_void};
use std::ptr;

use inkstone::{Cursor, Lsn, Place, Reader, Record, Start};

use crate::error::{Failure, door, free, inkstone_code, inkstone_error, quietly};
use crate::json;
use crate::log::{inkstone_log, timeout};
use crate::options::inkstone_options;
use crate::out::{Out, out};
use crate::pointers::inkstone_bytes;
use crate::pointers::{given, path, required};
use crate::text::{NONE, give, give_bytes};

/// Reads durable records of a log. All threads may use it at the same time. Keep one instead of
/// making one for each read: it remembers places and keeps files open.
#[derive(Debug)]
pub struct inkstone_reader {
    reader: Reader,
}

/// A position in a log from which records are read in order. One thread at a time may use it.
pub struct inkstone_cursor {
    cursor: Cursor,
}

/// A record that is borrowed from a cursor: valid until the next call on that cursor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct inkstone_record {
    /// Its LSN.
    pub lsn: u64,
    /// Its bytes; never NULL, not aligned.
    pub data: *const c_void,
    /// How many they are.
    pub size: usize,
}

/// Where a consumer of a log is: its next record, and how often the log had been cut
/// (inkstone_truncate_after) when the consumer read the one before. A consumer that stores both with
/// what it has made of the records learns after a restart of records that were cut meanwhile.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct inkstone_place {
    /// The next record.
    pub lsn: u64,
    /// How many cuts there had been in the log's life.
    pub cuts: u64,
}

/// A reader of the durable records of a log that this process writes. From the first call on the
/// log keeps what it writes in memory for its readers (the option tail_bytes).
///
/// Owner: the caller gets `*reader` and frees it with inkstone_reader_free, also after the log. It
/// may be used after the log is closed, until the log is opened for writing again. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_of(
    log: *const inkstone_log,
    reader: *mut *mut inkstone_reader,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (log, reader, error) = unsafe { (log.as_ref(), out(reader), out(error)) };
    door(error, || give_reader(reader, || Ok(given(log, "log")?.log.reader())))
}

/// Opens the log in the directory `path` for reading only, also beside a writer in another process.
/// It writes and creates nothing and takes no lock. `options` may be NULL; of them only access and
/// expect_durable apply. On failure `*reader` is NULL.
///
/// Owner: the caller gets `*reader` and frees it with inkstone_reader_free. `options` stay the
/// caller's. Threads: any. Durable: everything that the reader shows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_open(
    path_of_log: *const c_char,
    options: *const inkstone_options,
    reader: *mut *mut inkstone_reader,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (path, options, reader, error) =
        unsafe { (path(path_of_log, "path"), options.as_ref(), out(reader), out(error)) };
    door(error, || {
        give_reader(reader, || Ok(Reader::open(path?, &inkstone_options::or_default(options))?))
    })
}

fn give_reader(
    reader: Out<'_, *mut inkstone_reader>,
    make: impl FnOnce() -> Result<Reader, Failure>,
) -> Result<(), Failure> {
    let mut reader = required(reader, "reader")?;
    reader.put(ptr::null_mut());
    reader.put(Box::into_raw(Box::new(inkstone_reader { reader: make()? })));
    Ok(())
}

/// Frees a reader. Its cursors may be used on. NULL is nothing.
///
/// Threads: any, when no other call uses the reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_free(reader: *mut inkstone_reader) {
    // SAFETY: null, or a reader that nothing uses any more.
    unsafe { free(reader) }
}

/// # Safety
/// `reader` is null, or a reader that is not freed.
unsafe fn number(reader: *const inkstone_reader, ask: impl FnOnce(&Reader) -> Lsn) -> u64 {
    // SAFETY: as the caller says.
    let reader = unsafe { reader.as_ref() };
    quietly(0, || reader.map_or(0, |reader| ask(&reader.reader).get()))
}

/// The first record that is left; one above the last if there is none. 0 for NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_first(reader: *const inkstone_reader) -> u64 {
    // SAFETY: the rules of the header.
    unsafe { number(reader, Reader::first) }
}

/// The last record that can be read. A reader of inkstone_reader_open returns what it saw last; it
/// checks the files again when it is asked for a record above it. 0 when there is none, and for
/// NULL.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_durable(reader: *const inkstone_reader) -> u64 {
    // SAFETY: the rules of the header.
    unsafe { number(reader, Reader::durable) }
}

/// Whether the log that this process writes takes records: INKSTONE_OK if it does, and for a log
/// that another process writes; else INKSTONE_POISONED, INKSTONE_CLOSED or INKSTONE_FORKED, with
/// its error object. Its durable records can be read all the same.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_end_of_log(
    reader: *const inkstone_reader,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, error) = unsafe { (reader.as_ref(), out(error)) };
    door(error, || match given(reader, "reader")?.reader.end_of_log() {
        Some(end) => Err(end.into()),
        None => Ok(()),
    })
}

/// What inkstone_reader_open has found, as the JSON object of inkstone_recovery_json; `null` for a
/// reader of a log that this process writes.
///
/// Owner: the caller gets `*text` and frees it with inkstone_text_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_recovery_json(
    reader: *const inkstone_reader,
    text: *mut *mut c_char,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, text, error) = unsafe { (reader.as_ref(), out(text), out(error)) };
    door(error, || {
        give(text, "text", || {
            let found = given(reader, "reader")?.reader.recovery();
            Ok(found.map_or_else(|| "null".into(), |found| json::recovery(&found)))
        })
    })
}

/// The record with this LSN, in memory of its own. On failure `bytes->data` is NULL.
///
/// Owner: the caller gets the bytes and frees them with inkstone_bytes_free. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_reader_get(
    reader: *const inkstone_reader,
    lsn: u64,
    bytes: *mut inkstone_bytes,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, bytes, error) = unsafe { (reader.as_ref(), out(bytes), out(error)) };
    door(error, || {
        let mut bytes = required(bytes, "bytes")?;
        bytes.put(NONE);
        give_bytes(&mut bytes, given(reader, "reader")?.reader.get(Lsn::new(lsn))?);
        Ok(())
    })
}

/// A cursor whose next record is the one with this LSN, which may not exist yet. No record has LSN
/// 0.
///
/// Owner: the caller gets `*cursor` and frees it with inkstone_cursor_free, also after the reader.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_new(
    reader: *const inkstone_reader,
    lsn: u64,
    cursor: *mut *mut inkstone_cursor,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, cursor, error) = unsafe { (reader.as_ref(), out(cursor), out(error)) };
    door(error, || give_cursor(reader, cursor, Lsn::new(lsn).into()))
}

/// A cursor at a place that a cursor of this log had, in this process or in an earlier one
/// (inkstone_cursor_place). If records before the place were cut since, its first call is
/// INKSTONE_TRUNCATED_AFTER, and the next one goes on at inkstone_error_lsn. The place of another
/// log, or of a newer copy, is INKSTONE_INVALID then.
///
/// Owner: the caller gets `*cursor` and frees it with inkstone_cursor_free, also after the reader.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_from(
    reader: *const inkstone_reader,
    place: inkstone_place,
    cursor: *mut *mut inkstone_cursor,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (reader, cursor, error) = unsafe { (reader.as_ref(), out(cursor), out(error)) };
    let place = Place { lsn: Lsn::new(place.lsn), cuts: place.cuts };
    door(error, || give_cursor(reader, cursor, place.into()))
}

fn give_cursor(
    reader: Option<&inkstone_reader>,
    cursor: Out<'_, *mut inkstone_cursor>,
    start: Start,
) -> Result<(), Failure> {
    let mut made = required(cursor, "cursor")?;
    made.put(ptr::null_mut());
    let cursor = given(reader, "reader")?.reader.from(start);
    made.put(Box::into_raw(Box::new(inkstone_cursor { cursor })));
    Ok(())
}

/// Frees a cursor, and with it the record that it returned last. NULL is nothing.
///
/// Threads: any, when no other call uses the cursor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_free(cursor: *mut inkstone_cursor) {
    // SAFETY: null, or a cursor that nothing uses any more.
    unsafe { free(cursor) }
}

const NO_RECORD: inkstone_record = inkstone_record { lsn: 0, data: ptr::null(), size: 0 };

/// Hands out the record that a cursor has found.
fn give_record(
    record: Out<'_, inkstone_record>,
    find: impl FnOnce() -> Result<inkstone_record, Failure>,
) -> Result<(), Failure> {
    let mut place = required(record, "record")?;
    place.put(NO_RECORD);
    place.put(find()?);
    Ok(())
}

fn borrowed(found: Option<Record<'_>>) -> Result<inkstone_record, Failure> {
    let record = found.ok_or(Failure::Quiet(inkstone_code::INKSTONE_NOT_YET))?;
    Ok(inkstone_record {
        lsn: record.lsn.get(),
        data: record.bytes.as_ptr().cast(),
        size: record.bytes.len(),
    })
}

/// The next record. INKSTONE_NOT_YET, without an error object, when it is not durable yet: call
/// again later, or call inkstone_cursor_next_within. INKSTONE_TRUNCATED_BEFORE: seek to continue.
/// INKSTONE_TRUNCATED_AFTER, INKSTONE_LOST: the next call goes on at inkstone_error_lsn.
///
/// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
/// a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_next(
    cursor: *mut inkstone_cursor,
    record: *mut inkstone_record,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (cursor, record, error) = unsafe { (cursor.as_mut(), out(record), out(error)) };
    door(error, || give_record(record, || borrowed(given(cursor, "cursor")?.cursor.next()?)))
}

/// The next record; waits for it up to `timeout_us` microseconds (UINT64_MAX: for ever).
/// INKSTONE_NOT_YET, without an error object, when the time is over. INKSTONE_CLOSED and
/// INKSTONE_POISONED when all records were shown and no more will come. Otherwise as
/// inkstone_cursor_next.
///
/// Owner: the record is borrowed from the cursor: valid until the next call on it. Threads: one at
/// a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_next_within(
    cursor: *mut inkstone_cursor,
    timeout_us: u64,
    record: *mut inkstone_record,
    error: *mut *mut inkstone_error,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let (cursor, record, error) = unsafe { (cursor.as_mut(), out(record), out(error)) };
    door(error, || {
        give_record(record, || {
            borrowed(given(cursor, "cursor")?.cursor.next_within(timeout(timeout_us))?)
        })
    })
}

/// Moves to another LSN. INKSTONE_INVALID if `cursor` is NULL.
///
/// Owner: a record that the cursor returned is not valid any more. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_seek(
    cursor: *mut inkstone_cursor,
    lsn: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let cursor = unsafe { cursor.as_mut() };
    let Some(cursor) = cursor else { return inkstone_code::INKSTONE_INVALID };
    quietly(inkstone_code::INKSTONE_PANICKED, || {
        cursor.cursor.seek(Lsn::new(lsn));
        inkstone_code::INKSTONE_OK
    })
}

/// The LSN of the record that comes next. 0 for NULL.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_next_lsn(cursor: *const inkstone_cursor) -> u64 {
    // SAFETY: the rules of the header.
    let cursor = unsafe { cursor.as_ref() };
    quietly(0, || cursor.map_or(0, |cursor| cursor.cursor.next_lsn().get()))
}

/// Where the cursor is, for inkstone_cursor_from. Zeros for NULL.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_place(cursor: *const inkstone_cursor) -> inkstone_place {
    // SAFETY: the rules of the header.
    let cursor = unsafe { cursor.as_ref() };
    let none = inkstone_place { lsn: 0, cuts: 0 };
    quietly(none, || {
        cursor.map_or(none, |cursor| {
            let place = cursor.cursor.place();
            inkstone_place { lsn: place.lsn.get(), cuts: place.cuts }
        })
    })
}

/// The durable watermark that the cursor knows, as inkstone_reader_durable: how far it can read
/// now. 0 for NULL.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_cursor_durable(cursor: *const inkstone_cursor) -> u64 {
    // SAFETY: the rules of the header.
    let cursor = unsafe { cursor.as_ref() };
    quietly(0, || cursor.map_or(0, |cursor| cursor.cursor.durable().get()))
}
