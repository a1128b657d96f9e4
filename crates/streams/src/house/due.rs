//! When to empty the oldest section of the log, and when to free the front.
//!
//! *Owns*: the rule. *May not touch*: anything: it reads the state and says what is due.

use inkstone::Lsn;

use crate::options::Options;
use crate::state::State;
use crate::state::section::Directory;

/// The oldest section is emptied even in a small log if less than one byte in this many is live. So
/// these moves copy less than one byte for this many written ones.
const SHARE: u64 = 32;

/// Whose work it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Mover,
    /// That of a caller that appends: the mover alone would let the log grow.
    Appender,
}

/// What must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// No record before this one is live: free the front up to it.
    GiveBack(Lsn),
    /// Move the live records of this section.
    Empty(u32),
}

/// What is due. An opening begins at `replay_from`, so everything from there on must stay.
pub(crate) fn due(
    state: &State,
    (replay_from, table_bytes): (Lsn, u64),
    options: &Options,
    whose: Whose,
) -> Option<Work> {
    let sections = &state.sections;
    let front = sections.front()?;
    let Directory::Written { end, .. } = front.directory else { return None };
    let is_large = sections.log_bytes > begin_bytes(state, table_bytes, options, whose);
    if end > replay_from || !is_large && whose == Whose::Appender {
        return None;
    }
    if front.live_bytes == 0 {
        let mut stays = sections.iter_from(0).filter(|section| {
            section.live_bytes > 0 || !matches!(section.directory, Directory::Written { .. })
        });
        let front = stays.next().map_or(end, |section| section.first);
        return Some(Work::GiveBack(front.min(replay_from)));
    }
    let is_thin = front.live_bytes.saturating_mul(SHARE) < front.bytes;
    (is_large || is_thin).then_some(Work::Empty(front.number))
}

/// A log that is larger than this has its oldest section emptied: so that it stays below
/// `size_multiple` times what lives and two sections, since each append moves several times its own
/// bytes then. Where streams keep their newest records, the oldest section is dead without a move
/// once the log has one section more than what lives. The mover has a part of a section's time
/// before the appenders.
fn begin_bytes(state: &State, table_bytes: u64, options: &Options, whose: Whose) -> u64 {
    let live_bytes = state.sections.live_bytes + table_bytes;
    let more = u64::from(options.size_multiple) - 1;
    let dead_bytes = live_bytes.saturating_mul(more) / 4 * 3;
    let part_bytes = options.section_bytes / 8;
    let begin_bytes = live_bytes.saturating_add(dead_bytes.max(9 * part_bytes));
    match whose {
        Whose::Mover => begin_bytes,
        Whose::Appender => begin_bytes.saturating_add(part_bytes),
    }
}
