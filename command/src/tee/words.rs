//! The messages of `tee` on stderr, which neither logging nor the end waits for long.
//!
//! *Owns*: how long stderr is waited for. *May not touch*: the log, the messages' text.

use std::fmt;
use std::time::Duration;

const PROGRAM: &str = "inkstone";
/// A reader of stderr that reads nothing is waited for this long, once.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Prints a message. Once stderr has had no room for one, none is waited for.
pub(super) fn say(what: impl fmt::Display) {
    inkstone_io::say(PROGRAM, what, LAST_WORDS);
}

/// Prints an event of the log, in the log's own thread, if there is room for it now.
pub(super) fn say_event(what: impl fmt::Display) {
    inkstone_io::say(PROGRAM, what, Duration::ZERO);
}
