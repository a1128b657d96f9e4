//! The messages of `tee` on stderr, which neither logging nor the end ever waits for.
//!
//! *Owns*: how many events may wait for stderr. *May not touch*: the log, the messages' text.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use inkstone_io::{MORE_THREADS, Messages};

/// At most this much waits, besides the few messages of `tee` itself.
const EVENTS_BYTES_MAX: usize = 64 << 10;
/// At the end, a reader of stderr that reads nothing is waited for this long.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

static MESSAGES: OnceLock<&Messages> = OnceLock::new();

/// Starts the thread that writes, early: later there may be no thread left to start.
pub(super) fn start() -> anyhow::Result<()> {
    let started = Messages::here();
    let started = started.map_err(|error| {
        anyhow::anyhow!("cannot start a thread (stderr): {error}; {MORE_THREADS}")
    })?;
    let _ = MESSAGES.set(started);
    Ok(())
}

/// Prints a message on stderr. Never waits.
pub(super) fn say(what: impl fmt::Display) {
    push(what, usize::MAX);
}

/// Prints an event of the log; if too many wait, it is only counted. Never waits.
pub(super) fn say_event(what: impl fmt::Display) {
    push(what, EVENTS_BYTES_MAX);
}

fn push(what: impl fmt::Display, most: usize) {
    if let Some(messages) = MESSAGES.get() {
        messages.say("inkstone", what, most);
    }
}

/// Waits until everything is written, while `goes_on` says so, for this long.
pub(super) fn finish(until: Instant, mut goes_on: impl FnMut() -> bool) {
    if let Some(messages) = MESSAGES.get() {
        messages.finish("inkstone", || Instant::now() < until && goes_on());
    }
}
