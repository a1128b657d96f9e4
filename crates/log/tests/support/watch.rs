//! Something that must end: a test that hangs says so, and does not hang.
//!
//! *Owns*: the time that is given. *May not touch*: what is done in it.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long anything here may take: a busy machine is slow, a deadlock takes forever.
pub(crate) const ENOUGH: Duration = Duration::from_secs(30);

/// Runs it on a thread of its own.
///
/// # Panics
/// If it panics, or has not ended in time.
pub(crate) fn must_end(what: &str, run: impl FnOnce() + Send + 'static) {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        run();
        let _ = tell.send(());
    });
    match told.recv_timeout(ENOUGH) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().expect_err("it ended without a word");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Checks again and again until it is true; false if it never is.
pub(crate) fn becomes(is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + ENOUGH;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}
