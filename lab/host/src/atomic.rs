//! What writes a file system does not tear.
//!
//! *Owns*: the question to the kernel. *May not touch*: what the answer means.

use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx};

/// `STATX_WRITE_ATOMIC` of Linux 6.11, which the crate does not name.
const WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x1_0000);

/// The largest write of a file in `directory` that a power cut leaves whole or not at all, if the
/// write asks for that (`RWF_ATOMIC`), in bytes; 0 if there is none. `None` if the kernel does not
/// say so, or no file without a name can be made.
pub fn atomic_write_bytes(directory: &Path) -> Option<u32> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = openat(rustix::fs::CWD, directory, flags, Mode::RUSR | Mode::WUSR).ok()?;
    let answer = statx(&file, "", AtFlags::EMPTY_PATH, WRITE_ATOMIC).ok()?;
    let is_told = StatxFlags::from_bits_retain(answer.stx_mask).contains(WRITE_ATOMIC);
    is_told.then_some(answer.stx_atomic_write_unit_max)
}
