//! Local time.
//!
//! *Owns*: how far local time is from UTC. *May not touch*: dates.

/// Seconds that local time is ahead of UTC (negative: behind) at this second since 1970, by the
/// zone of `TZ` or else `/etc/localtime`; 0 where the system cannot say. glibc reads the zone once
/// for a process, at the first call.
#[allow(clippy::unnecessary_cast, reason = "`time_t` and `c_long` have 32 bits on some systems")]
pub fn ahead_of_utc(second: i64) -> i64 {
    let second = second as libc::time_t;
    let mut civil = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are to live memory of their types, and the call keeps neither. It reads
    // the environment, as `getenv` does: to change that while other threads run is unsafe in Rust
    // for this very reason.
    let written = unsafe { libc::localtime_r(&raw const second, civil.as_mut_ptr()) };
    if written.is_null() {
        return 0;
    }
    // SAFETY: the call has not failed, so it has written the whole of it.
    let civil = unsafe { civil.assume_init() };
    civil.tm_gmtoff as i64
}
