//! The signal of a write beyond the limit on file sizes (SIGXFSZ, `ulimit -f`): it ends the process
//! unless it is blocked.
//!
//! *Owns*: blocking it in one thread. *May not touch*: what the process does with its signals.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use crate::sys;

/// Blocks SIGXFSZ in the calling thread until it is dropped there: a write beyond the limit is only
/// an error (`EFBIG`).
#[derive(Debug)]
#[must_use = "it is kept away until this is dropped"]
pub struct NoSizeSignal {
    was_let_in: bool,
    /// It belongs to this thread.
    not_send: PhantomData<*const ()>,
}

impl NoSizeSignal {
    /// From now on. Linux sends the signal to the thread that writes, so no other thread is
    /// concerned; macOS sends it to any thread of the process that does not block it.
    pub fn here() -> Self {
        let signal = set();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets live as long as the calls, and the second is all zeros, which is a set,
        // should the call fail.
        let was_blocked = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, before.as_mut_ptr());
            libc::sigismember(before.as_ptr(), libc::SIGXFSZ) == 1
        };
        Self { was_let_in: !was_blocked, not_send: PhantomData }
    }
}

impl Drop for NoSizeSignal {
    fn drop(&mut self) {
        if !self.was_let_in {
            return;
        }
        let signal = set();
        // A pending one was raised by a write of ours. One that cannot be taken stays blocked.
        if sys::take_pending(&signal, libc::SIGXFSZ) {
            // SAFETY: the set lives as long as the call, which may be told to give no old set.
            unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signal, null_mut()) };
        }
    }
}

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both calls write to a set of ours, which they make a valid one.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_host::in_forked_child;
    use std::io::Write as _;

    #[test]
    fn a_write_beyond_the_limit_is_an_error_and_no_signal() {
        let directory = tempfile::tempdir().expect("a directory");
        let code = in_forked_child(|| {
            let limit = libc::rlimit { rlim_cur: 4, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: the limit lives as long as the call, and both calls concern this child alone.
            unsafe {
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                // The test runner may ignore it.
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            }
            let blocked = NoSizeSignal::here();
            let inner = NoSizeSignal::here();
            let mut file = std::fs::File::create(directory.path().join("file")).expect("created");
            let is_cut = file.write(b"12345678").is_ok_and(|count| count == 4);
            let is_large =
                file.write(b"5").is_err_and(|error| error.raw_os_error() == Some(libc::EFBIG));
            drop(inner);
            drop(blocked);
            u8::from(is_cut && is_large)
        });
        assert_eq!(code.expect("a child that no signal ended"), 1);
    }
}
