//! What differs between systems: a file for each, with the same functions; the rest of the crate
//! knows only their names.
//!
//! *Owns*: the choice of the file; the kernels' numbers; the calls that rustix has no safe form
//! for. *May not touch*: policy; each function here is one call, or what stands in for it where a
//! sandbox refuses it, or the answer that there is no such call.
//!
//! `linux.rs` is the system that Inkstone is made for and tested on. `macos.rs` lets a log run on a
//! laptop by `pwrite` and `F_FULLFSYNC`: it compiles, and no promise is tested there
//! (docs/assumptions.md). What macOS lacks is "unsupported", or unknown, in the types that Linux
//! uses for a file system that lacks it.

mod layout;
#[cfg(target_os = "linux")]
mod linux;
mod locks;
#[cfg(target_os = "macos")]
mod macos;
// Linux has a futex; the tests run both.
#[cfg(any(test, target_os = "macos"))]
mod sleepers;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("inkstone-io knows the system calls of Linux, and those of macOS that a log needs");

use rustix::fs::{Mode, RawMode, Stat};

pub use layout::DioAlignment;
pub(crate) use layout::{
    Allocate, BTRFS, EXT4, F2FS, FIEMAP_BATCH, FIEMAP_EXTENT_LAST, Fiemap, FileSystem, OVERLAY,
    TMPFS, XFS,
};
pub use layout::{
    FIEMAP_EXTENT_DATA_INLINE, FIEMAP_EXTENT_DELALLOC, FIEMAP_EXTENT_ENCODED, FIEMAP_EXTENT_SHARED,
    FIEMAP_EXTENT_UNKNOWN, FIEMAP_EXTENT_UNWRITTEN, FIEMAP_FLAG_SYNC, FiemapExtent,
};
pub(crate) use locks::{LockInTheWay, LockedBytes, lock_in_the_way, set_description_lock};
#[cfg(feature = "text-log")]
pub(crate) use system::let_others_go_first;
pub(crate) use system::{
    GET_FACTS, O_DIRECT, O_DSYNC, O_SYNC, SEARCH_ONLY, Sleepers, ask_nothing, born_nanos,
    cached_pages, device_number, dio_alignment, drop_cached, fallocate, fiemap, file_system,
    mount_id, pwrite_dsync, random_bytes, replace, size, sync_directory, sync_file_system,
    take_pending, unnamed_file, wipe_in_children,
};

/// The numbers of a file's file system and of the file in it. Their types differ between systems.
#[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// How many names a file has, and its permissions. Their types differ between systems.
#[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
pub(crate) fn names_and_mode(stat: &Stat) -> (u64, u32) {
    (stat.st_nlink as u64, stat.st_mode as u32 & 0o7777)
}

/// When a file was last written: seconds and nanoseconds since 1970, 0 before that.
#[cfg(feature = "text-log")]
#[allow(
    clippy::unnecessary_cast,
    clippy::useless_conversion,
    reason = "the types differ between systems"
)]
pub(crate) fn modified(stat: &Stat) -> std::time::Duration {
    std::time::Duration::new(
        u64::try_from(stat.st_mtime).unwrap_or(0),
        u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    )
}

/// Permissions as the calls take them.
#[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode((bits & 0o7777) as RawMode)
}
