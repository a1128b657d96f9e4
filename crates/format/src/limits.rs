//! The constants of the format, and the relations between them.
//!
//! *Owns*: every size and limit; `docs/format.md` has the same table, and a test compares the two.
//! *May not touch*: anything else.

/// The version in the header of every segment. A segment of any other is refused.
pub const FORMAT_VERSION: u32 = 1;

/// The first bytes of a segment's header. The first byte is not ASCII, and a transfer in text mode
/// changes the line ends.
pub const MAGIC: [u8; 8] = *b"\x89INKS\r\n\x1a";

/// The first bytes of a group: a cheap filter before the checksum.
pub const GROUP_MARKER: [u8; 4] = *b"\xA7IG1";

/// Groups and frames start at multiples of this.
pub const ALIGN: usize = 8;

/// The block to which a group may be padded.
pub const BLOCK_BYTES: usize = 4096;

/// The header block at the start of a segment.
pub const HEADER_BYTES: usize = 4096;

/// One copy of the header. If its write was torn, its checksum fails.
pub const HEADER_COPY_BYTES: usize = 1024;

/// Where the two copies of the header start.
pub const HEADER_COPIES_AT: [usize; 2] = [0, 2048];

/// So many of the last cuts are known one by one.
pub const CUTS_KNOWN: usize = 64;

/// The header of a group.
pub const GROUP_HEADER_BYTES: usize = 48;

/// The header of a frame.
pub const FRAME_HEADER_BYTES: usize = 24;

/// The smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// The largest segment. A position always fits in 32 bits, so moved bytes always fail their
/// checksum (`checksum`).
pub const SEGMENT_BYTES_MAX: u64 = 1 << 32;

/// Room before the index of each segment that is reserved for control groups, so that they can be
/// written when the segment is full.
pub const CONTROL_RESERVE_BYTES: u64 = 12 << 10;

/// The block at the end of each segment's file, for the marks of cuts. No group lies there.
pub const MARK_BLOCK_BYTES: usize = 4096;

/// One copy of a mark: a sector, which is written whole or not at all where sectors are atomic.
pub const CUT_MARK_COPY_BYTES: usize = 512;

/// The first bytes of a mark.
pub const CUT_MARK_MARKER: [u8; 4] = [0xa7, b'I', b'C', b'1'];

/// A record gets an entry in its segment's index if it begins so many bytes or more behind the last
/// one that has an entry. A search reads about as many bytes.
pub const INDEX_STEP_BYTES: u64 = 8 << 10;

/// A smaller segment has no index: a search reads it whole.
pub const INDEX_SEGMENT_BYTES_MIN: u64 = 128 << 10;

/// The first bytes of an index.
pub const INDEX_MARKER: [u8; 4] = [0xa7, b'I', b'X', b'1'];

/// What stands before the entries of an index.
pub const INDEX_HEADER_BYTES: usize = 16;

/// One entry of an index.
pub const INDEX_ENTRY_BYTES: usize = 16;

/// The largest payload of one frame.
pub const RECORD_BYTES_MAX: usize = 256 << 20;

/// The largest group, its header and padding included.
pub const GROUP_BYTES_MAX: usize = 512 << 20;

/// Bytes at the end of a segment of this size that are kept for its index, before the marks.
pub(crate) const fn index_room_bytes(segment_bytes: u64) -> u64 {
    if segment_bytes < INDEX_SEGMENT_BYTES_MIN {
        return 0;
    }
    let entries = segment_bytes.div_ceil(INDEX_STEP_BYTES);
    let bytes = INDEX_HEADER_BYTES as u64 + entries * INDEX_ENTRY_BYTES as u64;
    bytes.next_multiple_of(BLOCK_BYTES as u64)
}

/// The byte at which the groups of a segment of this size end at the latest.
pub const fn groups_end(segment_bytes: u64) -> u64 {
    segment_bytes.saturating_sub(MARK_BLOCK_BYTES as u64 + index_room_bytes(segment_bytes))
}

const _: () = assert!(HEADER_COPIES_AT[0] + HEADER_COPY_BYTES <= HEADER_COPIES_AT[1]);
const _: () = assert!(HEADER_COPIES_AT[1] + HEADER_COPY_BYTES <= HEADER_BYTES);
const _: () = assert!(HEADER_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(GROUP_HEADER_BYTES.is_multiple_of(ALIGN));
const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(ALIGN));
const _: () = assert!(BLOCK_BYTES.is_multiple_of(ALIGN));
const _: () = assert!(SEGMENT_BYTES_MIN.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(SEGMENT_BYTES_MAX.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(SEGMENT_BYTES_MAX - 1 <= u32::MAX as u64);
const _: () = assert!(CONTROL_RESERVE_BYTES.is_multiple_of(BLOCK_BYTES as u64));
// Records may use more than half of a smallest segment.
const _: () = assert!(
    (HEADER_BYTES as u64 + CONTROL_RESERVE_BYTES + MARK_BLOCK_BYTES as u64) * 2 < SEGMENT_BYTES_MIN
);
// It has no index.
const _: () = assert!(SEGMENT_BYTES_MIN < INDEX_SEGMENT_BYTES_MIN);
// The reserve has room for three control groups that are padded to blocks.
const _: () = assert!(CONTROL_RESERVE_BYTES >= 3 * BLOCK_BYTES as u64);
const _: () = assert!(
    RECORD_BYTES_MAX + GROUP_HEADER_BYTES + FRAME_HEADER_BYTES + 2 * BLOCK_BYTES <= GROUP_BYTES_MAX
);
const _: () = assert!(GROUP_BYTES_MAX <= u32::MAX as usize);
