//! A batch: changes of streams that are made together or not at all.
//!
//! *Owns*: the changes with their bytes, until they are applied. *May not touch*: what they mean;
//! the streams say that when they are applied (`streams.rs`).

use std::ffi::c_void;
use std::ops::Range;

use ::inkstone_streams::Batch;

use crate::error::{Failure, free, inkstone_code, quietly};
use crate::pointers::bytes;

/// Changes of any number of streams, which are made together or not at all, in the order in which
/// they were added. One thread at a time may use it. A call that adds a change and fails leaves the
/// batch unfit: inkstone_streams_apply refuses it. So the codes of these calls may be ignored. To
/// apply a batch twice makes its changes twice.
#[derive(Debug, Default)]
pub struct inkstone_batch {
    changes: Vec<Change>,
    bytes: Vec<u8>,
    refused: Option<String>,
}

#[derive(Debug)]
enum Change {
    Create { stream: u64, first: u64 },
    Append { stream: u64, expected: Option<u64>, bytes: Range<usize> },
    Note { stream: u64, bytes: Range<usize> },
    TruncateBefore { stream: u64, first: u64 },
    TruncateAfter { stream: u64, last: u64 },
    RestartAt { stream: u64, first: u64 },
    Remove { stream: u64 },
}

impl inkstone_batch {
    /// The changes, which borrow the bytes of this batch; and how many records they append.
    pub(crate) fn changes(&self) -> Result<(Batch<'_>, usize), Failure> {
        if let Some(why) = &self.refused {
            return Err(Failure::Misuse(format!("a change of the batch was refused: {why}")));
        }
        let (mut batch, mut records) = (Batch::new(), 0);
        for change in &self.changes {
            match change {
                Change::Create { stream, first } => batch.create(*stream, *first),
                Change::Append { stream, expected, bytes } => {
                    records += 1;
                    let bytes = &self.bytes[bytes.clone()];
                    match expected {
                        Some(number) => batch.append_at(*stream, *number, bytes),
                        None => batch.append(*stream, bytes),
                    }
                }
                Change::Note { stream, bytes } => batch.note(*stream, &self.bytes[bytes.clone()]),
                Change::TruncateBefore { stream, first } => batch.truncate_before(*stream, *first),
                Change::TruncateAfter { stream, last } => batch.truncate_after(*stream, *last),
                Change::RestartAt { stream, first } => batch.restart_at(*stream, *first),
                Change::Remove { stream } => batch.remove(*stream),
            };
        }
        Ok((batch, records))
    }

    /// Keeps bytes of the caller's.
    fn keep(&mut self, data: &[u8]) -> Range<usize> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(data);
        begin..self.bytes.len()
    }
}

/// Adds a change. What is refused is remembered.
///
/// # Safety
/// `batch` is null, or a batch that nothing else uses during the call.
unsafe fn add(
    batch: *mut inkstone_batch,
    make: impl FnOnce(&mut inkstone_batch) -> Result<Change, Failure>,
) -> inkstone_code {
    // SAFETY: as the caller says.
    let Some(batch) = (unsafe { batch.as_mut() }) else { return inkstone_code::INKSTONE_INVALID };
    quietly(inkstone_code::INKSTONE_PANICKED, || match make(batch) {
        Ok(change) => {
            batch.changes.push(change);
            inkstone_code::INKSTONE_OK
        }
        Err(failure) => {
            let why = if let Failure::Misuse(why) = failure { why } else { "misuse".into() };
            batch.refused.get_or_insert(format!("change {}: {why}", batch.changes.len() + 1));
            inkstone_code::INKSTONE_INVALID
        }
    })
}

/// An empty batch.
///
/// Owner: the caller, who frees it with inkstone_batch_free. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn inkstone_batch_new() -> *mut inkstone_batch {
    quietly(std::ptr::null_mut(), || Box::into_raw(Box::default()))
}

/// Frees a batch. What was applied stays. NULL is nothing.
///
/// Threads: any, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_free(batch: *mut inkstone_batch) {
    // SAFETY: null, or a batch that nothing uses any more.
    unsafe { free(batch) }
}

/// Creates a stream whose first record gets the number `first`.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_create(
    batch: *mut inkstone_batch,
    stream: u64,
    first: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { add(batch, |_| Ok(Change::Create { stream, first })) }
}

/// Appends a record; it gets the next number of its stream. Its bytes are copied.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_append(
    batch: *mut inkstone_batch,
    stream: u64,
    data: *const c_void,
    size: usize,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let data = unsafe { bytes(data, size) };
    // SAFETY: the same.
    unsafe {
        add(batch, |batch| Ok(Change::Append { stream, expected: None, bytes: batch.keep(data?) }))
    }
}

/// Appends a record that must get this number: with any other the batch is INKSTONE_OTHER_NUMBER
/// when it is applied.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_append_at(
    batch: *mut inkstone_batch,
    stream: u64,
    number: u64,
    data: *const c_void,
    size: usize,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let data = unsafe { bytes(data, size) };
    // SAFETY: the same.
    unsafe {
        add(batch, |batch| {
            Ok(Change::Append { stream, expected: Some(number), bytes: batch.keep(data?) })
        })
    }
}

/// Replaces the note of a stream: up to 3840 bytes that change in order with its records, such as a
/// vote, or a consumer's place. Without bytes the stream has none any more.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_note(
    batch: *mut inkstone_batch,
    stream: u64,
    data: *const c_void,
    size: usize,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    let data = unsafe { bytes(data, size) };
    // SAFETY: the same.
    unsafe { add(batch, |batch| Ok(Change::Note { stream, bytes: batch.keep(data?) })) }
}

/// Truncates the records of a stream before `first`. If they are gone already, nothing changes.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_truncate_before(
    batch: *mut inkstone_batch,
    stream: u64,
    first: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { add(batch, |_| Ok(Change::TruncateBefore { stream, first })) }
}

/// Truncates the records of a stream after `last`; the next one gets the number after it.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_truncate_after(
    batch: *mut inkstone_batch,
    stream: u64,
    last: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { add(batch, |_| Ok(Change::TruncateAfter { stream, last })) }
}

/// Truncates all records of a stream; the next one gets the number `first`, which may be any: a
/// snapshot was installed. The note stays.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_restart_at(
    batch: *mut inkstone_batch,
    stream: u64,
    first: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { add(batch, |_| Ok(Change::RestartAt { stream, first })) }
}

/// Removes a stream with its records and its note. Its id may be created again.
///
/// Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inkstone_batch_remove(
    batch: *mut inkstone_batch,
    stream: u64,
) -> inkstone_code {
    // SAFETY: the rules of the header.
    unsafe { add(batch, |_| Ok(Change::Remove { stream })) }
}
