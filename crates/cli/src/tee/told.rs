//! The messages of `tee` on stderr, which neither logging nor the end ever waits for.
//!
//! *Owns*: how much may wait for stderr, the count of messages left out. *May not touch*: the log,
//! the messages' text.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::outlet::Outlet;
use crate::threads;

/// At most this much waits, besides the few messages of `tee` itself.
const EVENTS_BYTES_MAX: usize = 64 << 10;
/// At the end, a reader of stderr that reads nothing is waited for this long.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// There is one stderr.
static STDERR: Told = Told { out: Outlet::new(), left_out: Mutex::new(0) };

/// Prints a message on stderr. Never waits.
pub(super) fn say(what: impl fmt::Display) {
    STDERR.push(&format!("inkstone: {what}\n"), usize::MAX);
}

/// Prints an event of the log; if too many wait, it is only counted. Never waits.
pub(super) fn say_event(what: impl fmt::Display) {
    STDERR.push(&format!("inkstone: {what}\n"), EVENTS_BYTES_MAX);
}

/// Starts the thread that writes.
pub(super) fn start() -> anyhow::Result<()> {
    // Not `std::io::stderr()`: a write that does not return would hold its lock. A closed stderr is
    // no error: then nothing is written.
    if let Ok(out) = io::stderr().as_fd().try_clone_to_owned() {
        threads::start("stderr", move || STDERR.out.run(&File::from(out), false))?;
    }
    Ok(())
}

/// Waits until everything is written, while `goes_on` says so, for this long.
pub(super) fn finish(until: Instant, mut goes_on: impl FnMut() -> bool) {
    STDERR.put_left_out();
    drop(STDERR.out.wait(|_| Instant::now() < until && goes_on()));
}

#[derive(Debug)]
struct Told {
    out: Outlet,
    /// Events left out since the last one that had room.
    left_out: Mutex<u64>,
}

impl Told {
    fn push(&self, line: &str, most: usize) {
        if self.out.lock().waiting_bytes() + line.len() > most {
            *self.left_out.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            return;
        }
        self.put_left_out();
        self.out.put(self.out.lock(), line.as_bytes());
    }

    fn put_left_out(&self) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if *left_out > 0 {
            let line = format!(
                "inkstone: {left_out} messages left out here: nobody read stderr in time\n"
            );
            *left_out = 0;
            self.out.put(self.out.lock(), line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    #[test]
    fn a_reader_that_reads_nothing_holds_nobody_up_and_hears_how_many_were_left_out() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let told = Arc::new(Told { out: Outlet::new(), left_out: Mutex::new(0) });
        let theirs = Arc::clone(&told);
        let out = File::from(OwnedFd::from(writer));
        std::thread::spawn(move || theirs.out.run(&out, false));
        // More than any pipe takes.
        let long = "x".repeat(4 << 20) + "\n";
        told.push(&long, usize::MAX);
        for number in 0..10 {
            told.push(&format!("event {number}\n"), EVENTS_BYTES_MAX);
        }
        assert_eq!(*told.left_out.lock().expect("no panic"), 10);
        assert!(told.out.wait(|_| false).waiting_bytes() > 0);
        // A message of `tee` itself has room, and comes after the count of those left out.
        told.push("its own words\n", usize::MAX);
        let mut lines = BufReader::new(reader).lines().map(|line| line.expect("text") + "\n");
        assert!(lines.next() == Some(long));
        let left_out = lines.next().expect("a line");
        assert!(left_out.contains(": 10 messages left out here"), "{left_out}");
        assert_eq!(lines.next().as_deref(), Some("its own words\n"));
        assert_eq!(told.out.wait(|_| true).waiting_bytes(), 0);
    }
}
