//! What each segment keeps at its end for a full disk: how much a record leaves there.
//!
//! *Owns*: the rule. *May not touch*: anything: it reads the state.
//!
//! **On a full disk each stream can be emptied, one after the other.** So every record leaves
//! enough to truncate each stream that has records then. Beside that there is a part for moved
//! records and for openings, of which truncations that leave records may use half, and appends
//! nothing.

use crate::options::Options;
use crate::state::State;

/// A record of one truncation, with its frame and its group.
const TRUNCATION_BYTES: u64 = 128;
/// The same where groups are padded to blocks.
const PADDED_BYTES: u64 = 4096;

/// What a record does, if the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It does not only make room.
    Any,
    /// It makes room, and leaves records in each of its streams.
    Truncates,
    /// It leaves so many streams without records that have some, or it is moved to free the front.
    Empties(u64),
}

/// How many bytes a record leaves at the end of its segment.
pub(crate) fn kept_bytes(state: &State, options: &Options, effect: Effect) -> u64 {
    // Of a log with one stream that is 0: its owner frees it without a record.
    let half_bytes = options.kept_half_bytes();
    let (part_bytes, streams) = match effect {
        Effect::Any => (half_bytes, state.count() as u64),
        Effect::Truncates => (half_bytes / 2, state.with_records()),
        Effect::Empties(streams) => (0, state.with_records().saturating_sub(streams)),
    };
    let each = if options.log.pads_groups() { PADDED_BYTES } else { TRUNCATION_BYTES };
    let to_empty = streams.saturating_mul(each).saturating_add(2 * state.table_bytes_min());
    part_bytes + to_empty.min(half_bytes)
}
