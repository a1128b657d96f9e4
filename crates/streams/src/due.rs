//! When the oldest section of the log is emptied, and when the front is given back.
//!
//! *Owns*: the rule. *May not touch*: anything: it looks at the state and says what is due.

use inkstone::Lsn;

use crate::options::Options;
use crate::section::Directory;
use crate::state::State;

/// A section with less than this share of its bytes alive is emptied although the log is small
/// enough: what is moved stays below this share of what is written.
const SHARE: u64 = 32;

/// What the mover has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing lives before this record.
    GiveBack(Lsn),
    /// This section is to be emptied.
    Empty(u32),
}

/// What is due where an opening begins at `replay_from`, which must stay.
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
