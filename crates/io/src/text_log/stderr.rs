//! Messages on stderr that nobody waits for.
//!
//! *Owns*: whether stderr takes a message. *May not touch*: its text.
//!
//! A write into a pipe that nobody reads does not return. So a message is written only if there is
//! room for it, without the standard library's lock, which the program needs too.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::size_signal::NoSizeSignal;

/// A pipe that is ready takes so much at once.
const PIECE_BYTES: usize = 4096;

/// The last message had no room: no other one is waited for.
static STANDS_STILL: AtomicBool = AtomicBool::new(false);

/// Prints a message, in the name of `program`. Where there is no room for it within this time, it is
/// left out.
pub fn say(program: &str, what: impl Display, at_most: Duration) {
    let _no_signal = NoSizeSignal::here();
    let at_most = if STANDS_STILL.load(Ordering::Relaxed) { Duration::ZERO } else { at_most };
    let is_said = say_on(io::stderr().as_fd(), &format!("{program}: {what}\n"), at_most);
    STANDS_STILL.store(!is_said, Ordering::Relaxed);
}

fn say_on(out: BorrowedFd<'_>, text: &str, at_most: Duration) -> bool {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let piece = &rest[..rest.len().min(PIECE_BYTES)];
        let Some(count) = write_if_ready(out, piece, at_most) else { return false };
        rest = &rest[count..];
    }
    true
}

/// `None`: there is no room, or nobody will ever read it.
fn write_if_ready(out: BorrowedFd<'_>, bytes: &[u8], at_most: Duration) -> Option<usize> {
    let mut asked = [PollFd::from_borrowed_fd(out, PollFlags::OUT)];
    let at_most = Timespec::try_from(at_most).ok();
    poll(&mut asked, at_most.as_ref()).ok()?;
    // A pipe that nobody reads any more is ready too, with an error.
    (asked[0].revents() == PollFlags::OUT).then(|| rustix::io::write(out, bytes).ok()).flatten()
}
