//! The limits of this process that a log heeds.
//!
//! *Owns*: asking for them. *May not touch*: what is done about them.

use std::mem::MaybeUninit;

/// The largest size to which this process may write a file (`ulimit -f`), in bytes. The kernel
/// refuses writes beyond it even over existing bytes. Where a sandbox forbids to ask, there is no
/// limit that is known: the write shows it.
pub fn file_bytes_max() -> u64 {
    // SAFETY: `limit_of` gives a place for the limit.
    limit_of(|limit| unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit) })
}

/// How many descriptors this process may have open (`ulimit -n`).
pub fn descriptors_max() -> usize {
    // SAFETY: `limit_of` gives a place for the limit.
    let limit = limit_of(|limit| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit) });
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The largest number if there is no limit, or a sandbox does not tell.
fn limit_of(ask: impl FnOnce(*mut libc::rlimit) -> libc::c_int) -> u64 {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    let answer = ask(limit.as_mut_ptr());
    // SAFETY: zeros are a limit, should the call have failed.
    let limit = unsafe { limit.assume_init() };
    if answer == 0 && limit.rlim_cur != libc::RLIM_INFINITY { limit.rlim_cur } else { u64::MAX }
}
