//! When to empty the oldest section of the log, and when to free the front.
//!
//! *Owns*: the rule. *May not touch*: anything: it reads the state and says what is due.

use inkstone::Lsn;

use crate::options::Options;
use crate::section::Directory;
use crate::state::State;

/// The oldest section is emptied even in a small log if less than one byte in this many is live. So
/// these moves copy less than one byte for this many written ones.
const SHARE: u64 = 32;

/// What the mover must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// No record before this one is live: free the front up to it.
    GiveBack(Lsn),
    /// Move the live records of this section.
    Empty(u32),
}

/// What is due. An opening begins at `replay_from`, so everything from there on must stay.
pub(crate) fn due(state: &State, replay_from: Lsn, options: &Options) -> Option<Work> {
    let sections = &state.sections;
    let front = sections.front()?;
    let Directory::Written { end, .. } = front.directory else { return None };
    if end > replay_from {
        return None;
    }
    if front.live_bytes == 0 {
        let mut stays = sections.iter_from(0).filter(|section| {
            section.live_bytes > 0 || !matches!(section.directory, Directory::Written { .. })
        });
        let front = stays.next().map_or(end, |section| section.first);
        return Some(Work::GiveBack(front.min(replay_from)));
    }
    let log_bytes_max = sections
        .live_bytes
        .saturating_mul(u64::from(options.size_multiple))
        .saturating_add(options.section_bytes);
    let is_thin = front.live_bytes.saturating_mul(SHARE) < front.bytes;
    (is_thin || sections.log_bytes > log_bytes_max).then_some(Work::Empty(front.number))
}
