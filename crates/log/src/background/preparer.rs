//! The preparer, the thread that prepares files before they are needed and removes those that are
//! not needed any more.
//!
//! *Owns*: when files are prepared, how fast, and how many; that seals are written. *May not
//! touch*: how (`segment/`, `change/seal.rs`), or anything that a commit waits for: it never takes
//! the turn.
//!
//! **Pace.** Zeros compete with commits for the device. The preparer writes them in pieces and
//! pauses after each, for as long as the time until the file is needed allows: it hardly disturbs a
//! log that fills slowly, and has the file in time for one that fills fast. Where groups are large,
//! or the last segment change found no file, it only reserves blocks: zeros would be a second write
//! of every byte, and pay only where many small groups share a block's metadata.

use std::time::Duration;

use crate::commit::shared::Shared;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::segment::making::Progress;
use crate::segment::pool::{ObtainError, Unnamed};
use crate::sync::{Instant, lock, sleep};

/// The pause after a piece when there is time.
const PAUSE_MAX: Duration = Duration::from_millis(2);
/// Less than this is written at once while nobody appends.
const SMALL_BYTES: u64 = 16 << 20;
/// Groups of this mean size or more: zeros do not pay.
const LARGE_GROUP_BYTES: u64 = 128 << 10;
/// After a failure, or without room, the preparer tries again after this time.
const RETRY: Duration = Duration::from_secs(1);
/// Other threads wake the preparer when there is work.
const IDLE: Duration = Duration::from_secs(3600);
/// Surplus files are removed after this time. A log that fills fast and truncates several segments
/// at once uses them again before.
const REMOVAL_AGE: Duration = Duration::from_secs(1);
/// Small segments fill up faster than a file can be prepared, so several are kept ready.
const READY_BYTES: u64 = 4 << 20;
const READY_MAX: u64 = 8;

/// The result of one step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// Some work was done; there may be more.
    Done,
    /// There is nothing to do.
    Idle,
    /// The log was closed or poisoned meanwhile.
    Stopped,
}

/// The thread's loop, until the log is closed or poisoned.
pub(crate) fn run(shared: &Shared) {
    let mut last_failure = None;
    loop {
        let wait = match step(shared, true) {
            Ok(Stepped::Done) => continue,
            Ok(Stepped::Stopped) => return,
            Ok(Stepped::Idle) => {
                last_failure = None;
                if shared.pool.has_doomed() { REMOVAL_AGE } else { IDLE }
            }
            Err(error) => {
                // Report the same failure once, not every second.
                let why = error.to_string();
                if last_failure.as_ref() != Some(&why) {
                    shared.tell(&Event::PreparationFailed { why: why.clone() });
                    last_failure = Some(why);
                }
                RETRY
            }
        };
        let mut state = shared.lock();
        if state.has_ended() {
            return;
        }
        if !state.wanted.files {
            (state, _) = shared.sleep_for(&shared.preparer, state, wait);
        }
        state.wanted.files = false;
    }
}

/// One step: prepares one more file, or removes a piece of what is not needed. A failed sync
/// poisons the log; anything else is tried again.
///
/// # Errors
/// Why a file could not be prepared.
pub(crate) fn step(shared: &Shared, is_paced: bool) -> Result<Stepped> {
    let (head_bytes, is_over) = {
        let state = shared.lock();
        (state.open_group.segment_bytes(), state.has_ended())
    };
    if is_over {
        return Ok(Stepped::Stopped);
    }
    match shared.write_seals() {
        Ok(true) => return Ok(Stepped::Done),
        Ok(false) => {}
        Err(error) => return Err(shared.poison_now(error)),
    }
    // A reader may have released a segment since.
    {
        let _giving_back = lock(&shared.giving_back);
        shared.retire_unread()?;
    }
    shared.keep_room()?;
    let (ready, _) = shared.pool.level();
    let last = shared.pool.last_ready_bytes().unwrap_or(head_bytes);
    let next_bytes = shared.next_bytes(last, 0);
    let wanted = if shared.options.prepares_ahead {
        (READY_BYTES / next_bytes).clamp(1, READY_MAX)
    } else {
        0
    };
    let mut lacks_room = None;
    if (ready as u64) < wanted {
        match make_ready(shared, next_bytes, is_paced) {
            // What is not needed may be the room that it lacks.
            Err(error @ Error::NoRoom { .. }) => lacks_room = Some(error),
            made => return made,
        }
    }
    let age = if is_paced { REMOVAL_AGE } else { Duration::ZERO };
    let removed = {
        let _giving_back = lock(&shared.giving_back);
        let mut unnamed = Unnamed::new();
        let removed = shared.pool.remove_some(age, &mut unnamed);
        removed.and_then(|removed| shared.pool.cut(unnamed).map(|()| removed))
    };
    match removed {
        Ok(true) => Ok(Stepped::Done),
        Ok(false) => lacks_room.map_or(Ok(Stepped::Idle), Err),
        Err(ObtainError::Retry(error)) => Err(error),
        Err(ObtainError::Poison(error)) => Err(shared.poison_now(error)),
    }
}

fn make_ready(shared: &Shared, bytes: u64, is_paced: bool) -> Result<Stepped> {
    let (reserve, written) = {
        let state = shared.lock();
        let counted = &state.counted;
        let is_large = counted.mean_group_bytes() >= LARGE_GROUP_BYTES;
        (counted.was_pool_empty || is_large, counted.stats.group_bytes)
    };
    let started = Instant::now();
    let mut rest = |progress: Progress| {
        let (is_over, pause) = {
            let mut state = shared.lock();
            state.counted.stats.prepared_bytes += progress.piece_bytes;
            let rate = (state.counted.stats.group_bytes - written) as f64
                / started.elapsed().as_secs_f64().max(1e-6);
            (state.has_ended(), pause(&progress, state.open_group.record_room(), rate))
        };
        if is_paced && !is_over && !pause.is_zero() {
            sleep(pause);
        }
        !is_over
    };
    match shared.pool.prepare(bytes, &shared.options, reserve, &mut rest) {
        Ok(true) => {
            shared.lock().counted.was_pool_empty = false;
            Ok(Stepped::Done)
        }
        Ok(false) => Ok(Stepped::Stopped),
        Err(ObtainError::Retry(error)) => Err(error),
        Err(ObtainError::Poison(error)) => Err(shared.poison_now(error)),
    }
}

/// The pause after a piece, when the segment in use has room for `room_bytes` and fills at `rate`
/// bytes a second: the file is to be ready when four fifths of the time that is left are over.
/// Zeros that come faster delay more commits; later than that, one slow moment of the disk is too
/// much. While nothing is written, a small file is made at once: a new log's first commits may be
/// next.
fn pause(progress: &Progress, room_bytes: u64, rate: f64) -> Duration {
    let pieces = progress.left_bytes.div_ceil(progress.piece_bytes.max(1));
    if rate < 1.0 || pieces == 0 {
        return if progress.left_bytes < SMALL_BYTES { Duration::ZERO } else { PAUSE_MAX };
    }
    let each = room_bytes as f64 / rate * 0.8 / pieces as f64;
    Duration::from_secs_f64(each.min(1.0)).saturating_sub(progress.took).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_shrinks_as_the_file_is_needed_sooner() {
        let progress = Progress {
            left_bytes: 32 << 20,
            took: Duration::from_micros(300),
            piece_bytes: 256 << 10,
        };
        let at = |rate| pause(&progress, 32 << 20, rate);
        assert_eq!(at(0.0), PAUSE_MAX);
        assert_eq!(at(1e6), PAUSE_MAX, "16 s are left for 128 pieces");
        let fast = at(2e8);
        assert!(fast < PAUSE_MAX && !fast.is_zero(), "{fast:?}");
        assert!(at(1e9).is_zero(), "no time to rest");
        let small = Progress { left_bytes: 1 << 20, ..progress };
        assert!(pause(&small, 32 << 20, 0.0).is_zero(), "nobody is delayed");
        assert!(!pause(&small, 32 << 20, 1e6).is_zero());
    }
}
