//! The messages of `tee` on stderr, which neither logging nor the end ever waits for.
//!
//! *Owns*: the messages that wait for stderr, their bound, the count of those left out. *May not
//! touch*: the log, the messages' text.
//!
//! A write into a pipe that nobody reads does not return. So a thread of its own writes, and the
//! others leave their messages here.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use inkstone_io::wait_to_write;

use crate::threads;

/// At most this many events wait. The few messages of `tee` itself always have room.
const EVENTS_MAX: usize = 64;
/// At the end, a reader of stderr that reads nothing is waited for this long.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// There is one stderr.
static STDERR: Told = Told::new();

/// Prints a message on stderr. Never waits.
pub(super) fn say(what: impl fmt::Display) {
    STDERR.push(format!("inkstone: {what}\n"), usize::MAX);
}

/// Prints an event of the log; if too many wait, it is only counted. Never waits.
pub(super) fn say_event(what: impl fmt::Display) {
    STDERR.push(format!("inkstone: {what}\n"), EVENTS_MAX);
}

/// Starts the thread that writes.
pub(super) fn start() -> anyhow::Result<()> {
    // Not `std::io::stderr()`: a write that does not return would hold its lock. A closed stderr is
    // no error.
    let out = io::stderr().as_fd().try_clone_to_owned().map(File::from).ok();
    let write = move || STDERR.run(out.as_ref());
    Ok(threads::start("stderr", write)?)
}

/// Waits until everything is written, at most this long; returns whether it is.
pub(super) fn finish(at_most: Duration) -> bool {
    STDERR.wait(Instant::now() + at_most)
}

#[derive(Debug)]
struct Told {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<String>,
    /// Events left out since the last one that had room.
    left_out: u64,
    is_writing: bool,
}

impl State {
    fn put_left_out(&mut self) {
        if self.left_out > 0 {
            let count = std::mem::take(&mut self.left_out);
            let line =
                format!("inkstone: {count} messages left out here: nobody read stderr in time\n");
            self.waiting.push_back(line);
        }
    }
}

impl Told {
    const fn new() -> Self {
        let state = State { waiting: VecDeque::new(), left_out: 0, is_writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String, most: usize) {
        let mut state = self.lock();
        if state.waiting.len() < most {
            state.put_left_out();
            state.waiting.push_back(line);
        } else {
            state.left_out += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Writes lines for as long as the process lives. Without an output it drops them.
    fn run(&self, out: Option<&File>) {
        loop {
            let mut state = self.lock();
            state.is_writing = false;
            self.changed.notify_all();
            let line = loop {
                if state.waiting.is_empty() {
                    state.put_left_out();
                }
                match state.waiting.pop_front() {
                    Some(line) => break line,
                    None => {
                        state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                    }
                }
            };
            state.is_writing = true;
            drop(state);
            if let Some(out) = out {
                write(out, line.as_bytes());
            }
        }
    }

    fn wait(&self, until: Instant) -> bool {
        let mut state = self.lock();
        while state.is_writing || state.left_out > 0 || !state.waiting.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Writes a line. A failure is ignored: there is no other place to report it.
fn write(mut out: &File, mut rest: &[u8]) {
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return,
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if wait_to_write(out).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, PipeReader};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    fn told() -> (Arc<Told>, BufReader<PipeReader>) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let told = Arc::new(Told::new());
        let theirs = Arc::clone(&told);
        let out = File::from(OwnedFd::from(writer));
        std::thread::spawn(move || theirs.run(Some(&out)));
        (told, BufReader::new(reader))
    }

    #[test]
    fn a_reader_that_reads_nothing_holds_nobody_up_and_hears_how_many_were_left_out() {
        let (told, mut reader) = told();
        // More than any pipe takes.
        let long = "x".repeat(4 << 20) + "\n";
        told.push(long.clone(), EVENTS_MAX);
        while !told.lock().is_writing {
            std::thread::yield_now();
        }
        for number in 0..EVENTS_MAX + 10 {
            told.push(format!("event {number}\n"), EVENTS_MAX);
        }
        assert_eq!(told.lock().left_out, 10);
        assert!(!told.wait(Instant::now()));
        // A message of `tee` itself has room, and comes after the count of those left out.
        told.push("its own words\n".into(), usize::MAX);
        let mut next = || {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            line
        };
        assert!(next() == long);
        for number in 0..EVENTS_MAX {
            assert_eq!(next(), format!("event {number}\n"));
        }
        let left_out = next();
        assert!(left_out.contains(": 10 messages left out here"), "{left_out}");
        assert_eq!(next(), "its own words\n");
        assert!(told.wait(Instant::now() + Duration::from_secs(120)));
        assert!(!told.lock().is_writing);
    }

    #[test]
    fn events_that_were_left_out_are_told_when_nothing_else_waits() {
        let (told, mut reader) = told();
        told.push("x".repeat(4 << 20) + "\n", 1);
        while !told.lock().is_writing {
            std::thread::yield_now();
        }
        told.push("one\n".into(), 1);
        told.push("two\n".into(), 1);
        let mut text = String::new();
        for _ in 0..3 {
            reader.read_line(&mut text).expect("a line");
        }
        assert!(text.contains("\none\ninkstone: 1 messages left out here"), "{}", &text[4 << 20..]);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_reason_to_wait() {
        let (told, reader) = told();
        drop(reader);
        told.push("one\n".into(), EVENTS_MAX);
        assert!(told.wait(Instant::now() + Duration::from_secs(120)));
        assert!(told.lock().waiting.is_empty());
    }
}
