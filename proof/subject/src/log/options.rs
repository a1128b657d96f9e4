//! A small log, so that a short history has everything: rolls, recycled segments, full buffers.
//!
//! *Owns*: its sizes. *May not touch*: the ways of writing, which are drawn.

use inkstone::Options;

/// The smallest possible segment: it makes rolls frequent.
pub const SEGMENT_BYTES: u64 = 64 << 10;
/// Two of them do not fit in a segment.
pub const RECORD_BYTES_MAX: usize = 24 << 10;

/// A small log without a background thread: everything that it does follows from its callers.
pub fn small() -> Options {
    Options::new()
        .segment_bytes(SEGMENT_BYTES)
        .record_bytes_max(RECORD_BYTES_MAX)
        .buffer_bytes(8 << 10)
        .own_thread(false)
}
