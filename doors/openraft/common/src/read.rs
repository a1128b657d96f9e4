//! Reading a range of entries as openraft asks for it.
//!
//! *Owns*: what a range means when its beginning was purged. *May not touch*: what the payloads
//! say.

use std::ops::{Bound, Range, RangeBounds};

use inkstone_raft::{Entry, Error, RaftReader, Result};

/// At most this many bytes of payloads are read for one message to a follower, and always one
/// entry.
pub const MESSAGE_BYTES: usize = 1 << 20;

/// First index, and the one behind the last.
pub fn bounds_of(range: &impl RangeBounds<u64>) -> Range<u64> {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(to) => *to,
        Bound::Unbounded => u64::MAX,
    };
    from..to
}

/// The entries of a range that are there: those that were purged, and those that are still to come,
/// are left out. At least one, if there is one, and no more than fit in `payload_bytes_max` bytes
/// of payloads.
///
/// # Errors
/// Those of [`RaftReader::entries`], but for [`Error::IsPurged`].
pub fn entries_left(
    reader: &RaftReader,
    mut range: Range<u64>,
    payload_bytes_max: usize,
) -> Result<Vec<Entry>> {
    loop {
        match reader.entries(range.clone(), payload_bytes_max) {
            Ok(read) => return Ok(read),
            Err(error) => match error.cause() {
                // A purge may also come while they are read; each time the range becomes shorter.
                Error::IsPurged { first, .. } => range.start = (*first).max(range.start + 1),
                _ => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_has_bounds() {
        assert_eq!(bounds_of(&(3..7)), 3..7);
        assert_eq!(bounds_of(&(3..=7)), 3..8);
        assert_eq!(bounds_of(&..), 0..u64::MAX);
        assert_eq!(bounds_of(&(Bound::Excluded(3), Bound::Included(u64::MAX))), 4..u64::MAX);
    }
}
