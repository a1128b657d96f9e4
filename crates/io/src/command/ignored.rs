//! Whether this process ignores a signal: its parent may have asked for that, and a handler would
//! undo it. And holding signals back while handlers are set up.
//!
//! *Owns*: asking, holding back. *May not touch*: what is done with a signal.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Whether a signal is ignored now. At the start of a process that is the choice of its parent
/// (`nohup`, a shell's `&`). False for a number that is not a signal.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeros are a valid `sigaction`; without a new action the call only writes the
    // present one into it.
    let (answer, action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action), action)
    };
    answer == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Holds back all signals to this thread until it is dropped there. While no other thread runs,
/// these are all signals to the process: one that comes between two steps of setting up its
/// handlers is not lost.
#[derive(Debug)]
#[must_use = "signals wait until this is dropped"]
pub struct WaitingSignals {
    before: libc::sigset_t,
    /// It belongs to this thread.
    not_send: PhantomData<*const ()>,
}

impl WaitingSignals {
    /// From now on. A thread that is started meanwhile holds them back forever.
    pub fn here() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets live as long as the calls; the second is all zeros, which is a set,
        // should the call fail.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, not_send: PhantomData }
    }
}

impl Drop for WaitingSignals {
    fn drop(&mut self) {
        // SAFETY: the set is what the kernel said before, and lives as long as the call, which is
        // asked for no old one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_host::in_forked_child;

    #[test]
    fn a_signal_waits_for_the_handler_that_is_set_up_meanwhile() {
        // SAFETY: the calls concern this child alone, which has one thread; `_exit` may be called
        // in a handler.
        let code = in_forked_child(|| unsafe {
            extern "C" fn heard(_: libc::c_int) {
                // SAFETY: it ends the process and nothing else.
                unsafe { libc::_exit(7) }
            }
            let waiting = WaitingSignals::here();
            libc::raise(libc::SIGTERM);
            libc::signal(libc::SIGTERM, heard as *const () as libc::sighandler_t);
            drop(waiting);
            1
        });
        assert_eq!(code.expect("a child"), 7);
    }

    #[test]
    fn what_every_rust_program_ignores_and_what_none_does() {
        // The standard library ignores SIGPIPE at its start.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGKILL) && !is_ignored(-1));
        // Who started the tests may ignore it, so that they do too.
        let code = in_forked_child(|| {
            // SAFETY: the calls concern this child alone.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_DFL) };
            let before = is_ignored(libc::SIGTERM);
            // SAFETY: as above.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
            u8::from(before) + 2 * u8::from(is_ignored(libc::SIGTERM))
        });
        assert_eq!(code.expect("a child"), 2);
    }
}
