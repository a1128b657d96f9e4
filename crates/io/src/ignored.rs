//! Whether this process ignores a signal: its parent may have said so, and a handler would undo it.
//!
//! *Owns*: asking. *May not touch*: what is done with a signal.

/// Whether a signal is ignored just now. At the start of a process that is its parent's wish (`nohup`, a shell's `&`). False
/// for a number that is no signal's.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeros are a valid `sigaction`; without a new action the call only writes the present one into it.
    let (answer, action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action), action)
    };
    answer == 0 && action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_rust_program_ignores_and_what_none_does() {
        // The standard library ignores SIGPIPE at its start.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGKILL) && !is_ignored(libc::SIGTERM) && !is_ignored(-1));
    }
}
