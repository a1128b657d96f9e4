//! Messages on stderr that nobody waits for.
//!
//! *Owns*: whether stderr takes a message, the count of messages left out. *May not touch*: their
//! text.
//!
//! A write into a pipe that nobody reads does not return. So a message is written only if there is
//! room for it, without the standard library's lock, which the program needs too.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::size_signal::NoSizeSignal;

/// A pipe that is ready takes so much at once.
const PIECE_BYTES: usize = 4096;

/// Messages left out since the last one that had room.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Prints a message, in the name of `program`. Where there is no room for it within this time, it is
/// only counted, and the next one that has room tells how many were.
pub fn say(program: &str, what: impl Display, at_most: Duration) {
    say_on(io::stderr().as_fd(), &LEFT_OUT, &format!("{program}: {what}\n"), at_most, program);
}

/// Tells at the end how many messages were left out, if there is room within this time.
pub fn say_what_was_left_out(program: &str, at_most: Duration) {
    if LEFT_OUT.load(Ordering::Relaxed) > 0 {
        say_on(io::stderr().as_fd(), &LEFT_OUT, "", at_most, program);
    }
}

fn say_on(out: BorrowedFd<'_>, left_out: &AtomicU64, line: &str, at_most: Duration, program: &str) {
    let _no_signal = NoSizeSignal::here();
    let before = left_out.swap(0, Ordering::Relaxed);
    let mut text = String::new();
    if before > 0 {
        let why = "nobody read stderr in time";
        text = format!("{program}: {before} messages left out here: {why}\n");
    }
    text += line;
    // Once stderr stands still, no other message is waited for.
    let at_most = if before > 0 && !line.is_empty() { Duration::ZERO } else { at_most };
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let piece = &rest[..rest.len().min(PIECE_BYTES)];
        match write_if_ready(out, piece, at_most) {
            Some(count) => rest = &rest[count..],
            None => {
                left_out.fetch_add(before + u64::from(!line.is_empty()), Ordering::Relaxed);
                return;
            }
        }
    }
}

/// `None`: there is no room, or nobody will ever read it.
fn write_if_ready(out: BorrowedFd<'_>, bytes: &[u8], at_most: Duration) -> Option<usize> {
    let mut asked = [PollFd::from_borrowed_fd(out, PollFlags::OUT)];
    let at_most = Timespec::try_from(at_most).ok();
    poll(&mut asked, at_most.as_ref()).ok()?;
    // A pipe that nobody reads any more is ready too, with an error.
    (asked[0].revents() == PollFlags::OUT).then(|| rustix::io::write(out, bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_reader_that_reads_nothing_holds_nobody_up_and_hears_how_many_were_left_out() {
        let (mut reader, mut writer) = io::pipe().expect("a pipe");
        let fill = |writer: &mut io::PipeWriter| {
            while write_if_ready(writer.as_fd(), &[b'x'; 4096], Duration::ZERO).is_some() {}
        };
        fill(&mut writer);
        let left_out = AtomicU64::new(0);
        for number in 0..10 {
            say_on(writer.as_fd(), &left_out, &format!("event {number}\n"), Duration::ZERO, "p");
        }
        assert_eq!(left_out.load(Ordering::Relaxed), 10);
        let mut taken = [0; 8192];
        reader.read_exact(&mut taken).expect("what was written");
        say_on(writer.as_fd(), &left_out, "one more\n", Duration::ZERO, "p");
        writer.flush().expect("nothing");
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        let rest = rest.trim_start_matches('x');
        assert_eq!(rest, "p: 10 messages left out here: nobody read stderr in time\none more\n");
    }
}
