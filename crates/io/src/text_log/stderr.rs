//! Messages on stderr that nobody waits for.
//!
//! *Owns*: how much may wait for stderr, the count of messages left out. *May not touch*: their
//! text.
//!
//! A write into a pipe that nobody reads does not return, and would hold the standard library's
//! lock of stderr meanwhile, which the program needs too. So a thread of its own writes, to a
//! descriptor of its own.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::begun::start_thread;
use crate::text_log::outlet::Outlet;

/// Where the messages of this process wait.
static HERE: AtomicPtr<Messages> = AtomicPtr::new(std::ptr::null_mut());

/// The messages of one process. A forked child has its own: it has no thread of its parent's, and
/// may have its locks as they were.
#[derive(Debug, Default)]
pub struct Messages {
    process: u32,
    out: Outlet,
    /// Messages left out since the last one that had room.
    left_out: Mutex<u64>,
}

impl Messages {
    /// Those of this process. The first call starts the thread that writes.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn here() -> io::Result<&'static Self> {
        let process = std::process::id();
        let seen = HERE.load(Ordering::Acquire);
        // SAFETY: it is null, or of a box that is never freed.
        if let Some(here) = unsafe { seen.as_ref() }.filter(|here| here.process == process) {
            return Ok(here);
        }
        let made: &'static Self = Box::leak(Box::new(Self { process, ..Self::default() }));
        // A closed stderr is no error: then nothing is written.
        let stderr = || io::stderr().as_fd().try_clone_to_owned().map(File::from).ok();
        if let Some(out) = stderr() {
            let write = move || made.out.run(out, false, stderr);
            start_thread("inkstone-stderr", write)?;
        }
        let made_here = std::ptr::from_ref(made).cast_mut();
        match HERE.compare_exchange(seen, made_here, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(made),
            // SAFETY: as above; another thread of this process was faster.
            Err(theirs) => Ok(unsafe { theirs.as_ref() }.unwrap_or(made)),
        }
    }

    /// Prints a message, in the name of `program`. If more than `most` bytes would wait then, it is
    /// only counted. Never waits; returns whether everything before it is written.
    pub fn say(&self, program: &str, what: impl Display, most: usize) -> bool {
        let line = format!("{program}: {what}\n");
        let waiting_bytes = self.out.lock().waiting_bytes();
        if waiting_bytes + line.len() > most {
            *self.left_out.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        } else {
            self.put_left_out(program);
            self.out.put(self.out.lock(), line.as_bytes());
        }
        waiting_bytes == 0
    }

    /// Waits until everything is written, as long as `goes_on` says so, which is called again and
    /// again.
    pub fn finish(&self, program: &str, mut goes_on: impl FnMut() -> bool) {
        self.put_left_out(program);
        drop(self.out.wait(|_| goes_on()));
    }

    fn put_left_out(&self, program: &str) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if *left_out > 0 {
            let why = "nobody read stderr in time";
            let line = format!("{program}: {left_out} messages left out here: {why}\n");
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

    const MOST: usize = 64 << 10;

    #[test]
    fn a_reader_that_reads_nothing_holds_nobody_up_and_hears_how_many_were_left_out() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let messages = Arc::new(Messages::default());
        let theirs = Arc::clone(&messages);
        let out = File::from(OwnedFd::from(writer));
        std::thread::spawn(move || theirs.out.run(out, false, || None));
        // More than any pipe takes.
        let long = "x".repeat(4 << 20);
        messages.say("p", &long, usize::MAX);
        for number in 0..10 {
            assert!(!messages.say("p", format_args!("event {number}"), MOST));
        }
        messages.finish("q", || false);
        assert!(messages.out.lock().waiting_bytes() > 0);
        let mut lines = BufReader::new(reader).lines().map(|line| line.expect("text"));
        assert!(lines.next() == Some(format!("p: {long}")));
        let left_out = lines.next().expect("a line");
        assert!(left_out.starts_with("q: 10 messages left out here"), "{left_out}");
        messages.say("p", "one more", MOST);
        assert_eq!(lines.next().as_deref(), Some("p: one more"));
        messages.finish("p", || true);
        assert_eq!(messages.out.lock().waiting_bytes(), 0);
    }

    /// Forked while the lock of its parent's messages is held.
    #[test]
    fn a_forked_child_says_its_own() {
        let here = Messages::here().expect("a thread");
        let held = here.left_out.lock().expect("no panic");
        let code = inkstone_host::in_forked_child(|| {
            let own = Messages::here().expect("a thread");
            own.say("a child", "a message of a test", MOST);
            own.finish("a child", || true);
            u8::from(own.process == std::process::id())
        });
        drop(held);
        assert_eq!(code.expect("a child"), 1);
    }
}
