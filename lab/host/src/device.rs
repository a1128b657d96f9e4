//! Block devices by number, their counters, and the clock.
//!
//! *Owns*: sysfs's `stat`, `CLOCK_MONOTONIC`, the list of our threads, and
//! dropping cached pages. *May not touch*: the contents of any file or device.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use inkstone_io::transfer::retry;
use inkstone_io::{DeviceNumber, Error, Result};

/// A device's counters since it appeared: `/sys/dev/block/M:m/stat`. A sector is 512 bytes on every
/// device.
///
/// An empty flush counts among the writes too; the flushes that the block layer puts around a write
/// with PREFLUSH or FUA do not. Fields that an older kernel does not have are `None`: a 0 would be
/// a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockStat {
    /// Read requests completed.
    pub reads: u64,
    /// Reads merged into another request before it was sent.
    pub read_merges: u64,
    /// Sectors read.
    pub read_sectors: u64,
    /// Milliseconds that read requests took, added up.
    pub read_ms: u64,
    /// Write requests completed, empty flushes included.
    pub writes: u64,
    /// Writes merged into another request before it was sent.
    pub write_merges: u64,
    /// Sectors written.
    pub write_sectors: u64,
    /// Milliseconds that write requests took, added up.
    pub write_ms: u64,
    /// Requests in flight now: not a counter.
    pub in_flight: u64,
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
    /// Milliseconds that all requests took, added up.
    pub queue_ms: u64,
    /// Discard requests completed (Linux 4.18).
    pub discards: Option<u64>,
    /// Discards merged (Linux 4.18).
    pub discard_merges: Option<u64>,
    /// Sectors discarded (Linux 4.18).
    pub discard_sectors: Option<u64>,
    /// Milliseconds that discards took, added up (Linux 4.18).
    pub discard_ms: Option<u64>,
    /// Flushes of the write cache completed (Linux 5.5).
    pub flushes: Option<u64>,
    /// Milliseconds that flushes took, added up (Linux 5.5).
    pub flush_ms: Option<u64>,
}

impl BlockStat {
    /// The difference between `before` and this one. `in_flight` keeps its present value.
    #[must_use]
    pub fn since(&self, before: &BlockStat) -> BlockStat {
        let newer = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        BlockStat {
            reads: self.reads.saturating_sub(before.reads),
            read_merges: self.read_merges.saturating_sub(before.read_merges),
            read_sectors: self.read_sectors.saturating_sub(before.read_sectors),
            read_ms: self.read_ms.saturating_sub(before.read_ms),
            writes: self.writes.saturating_sub(before.writes),
            write_merges: self.write_merges.saturating_sub(before.write_merges),
            write_sectors: self.write_sectors.saturating_sub(before.write_sectors),
            write_ms: self.write_ms.saturating_sub(before.write_ms),
            in_flight: self.in_flight,
            busy_ms: self.busy_ms.saturating_sub(before.busy_ms),
            queue_ms: self.queue_ms.saturating_sub(before.queue_ms),
            discards: newer(self.discards, before.discards),
            discard_merges: newer(self.discard_merges, before.discard_merges),
            discard_sectors: newer(self.discard_sectors, before.discard_sectors),
            discard_ms: newer(self.discard_ms, before.discard_ms),
            flushes: newer(self.flushes, before.flushes),
            flush_ms: newer(self.flush_ms, before.flush_ms),
        }
    }

    fn parse(text: &str) -> Option<BlockStat> {
        let fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>());
        let fields: Vec<u64> = fields.collect::<std::result::Result<_, _>>().ok()?;
        let field = |index: usize| fields.get(index).copied();
        Some(BlockStat {
            reads: field(0)?,
            read_merges: field(1)?,
            read_sectors: field(2)?,
            read_ms: field(3)?,
            writes: field(4)?,
            write_merges: field(5)?,
            write_sectors: field(6)?,
            write_ms: field(7)?,
            in_flight: field(8)?,
            busy_ms: field(9)?,
            queue_ms: field(10)?,
            discards: field(11),
            discard_merges: field(12),
            discard_sectors: field(13),
            discard_ms: field(14),
            flushes: field(15),
            flush_ms: field(16),
        })
    }
}

/// Reads a device's counters. Needs no rights.
///
/// # Errors
/// There is no such block device (a made-up number of btrfs, say), or sysfs is not mounted.
pub fn block_stat(device: DeviceNumber) -> Result<BlockStat> {
    let path = device.sysfs().join("stat");
    let text = retry(|| fs::read_to_string(&path)).map_err(|error| {
        Error::new("read device counters", &path, error).advise(
            "a file system like btrfs shows a made-up device number: ask for the device it is mounted from",
        )
    })?;
    BlockStat::parse(&text).ok_or_else(|| {
        let what =
            io::Error::new(io::ErrorKind::InvalidData, format!("no eleven numbers in {text:?}"));
        Error::new("read device counters", &path, what)
    })
}

/// Nanoseconds on `CLOCK_MONOTONIC`: the clock that trace events carry.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC, libc::clock_gettime)
}

/// CPU time of this process so far, user and system, of all its threads, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID, libc::clock_gettime)
}

/// Nanoseconds of one tick of the kernel (a *jiffy*): 4,000,000 with CONFIG_HZ=250.
///
/// User space sees no HZ, but the coarse clocks advance once a tick, so their resolution is one
/// tick.
pub(super) fn tick_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_COARSE, libc::clock_getres)
}

type ClockCall = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

fn clock_ns(clock: libc::clockid_t, call: ClockCall) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls only write one timespec to a valid, exclusive pointer.
    let answer = unsafe { call(clock, &mut time) };
    // Not data from outside: a kernel without these clocks runs no program of today.
    assert!(answer == 0, "the kernel has no clock {clock}");
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The thread ids of this process, io_uring's own workers included, in its own pid namespace. Empty
/// without /proc.
pub fn own_threads() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Asks the kernel to drop a file's pages from its cache, so that the next read comes from the
/// device.
///
/// Only *clean* pages go: sync the file first. Pages that a process has mapped or locked stay too.
///
/// # Errors
/// The file cannot have cached pages (a pipe).
pub fn drop_cached_pages(file: &impl AsFd) -> Result<()> {
    let fd = file.as_fd();
    retry(|| Ok(rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed)?)).map_err(|error| {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let path = fs::read_link(&link).unwrap_or_else(|_| Path::new(&link).to_path_buf());
        Error::new("posix_fadvise(DONTNEED)", path, error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_old_and_new_kernels() {
        let new =
            BlockStat::parse("  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n").expect("17 fields");
        assert_eq!((new.reads, new.write_sectors, new.queue_ms), (1, 7, 11));
        assert_eq!((new.discard_ms, new.flushes, new.flush_ms), (Some(15), Some(16), Some(17)));
        let old = BlockStat::parse("1 2 3 4 5 6 7 8 9 10 11").expect("11 fields");
        assert_eq!((old.discards, old.flushes), (None, None));
        assert_eq!(new.since(&old).flushes, None);
        assert_eq!(new.since(&new), BlockStat { in_flight: 9, ..zeros() });
        assert_eq!(BlockStat::parse("1 2 3"), None);
        assert_eq!(BlockStat::parse("1 2 3 4 5 6 7 8 9 10 x"), None);
    }

    fn zeros() -> BlockStat {
        BlockStat::parse("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0").expect("17 fields")
    }

    #[test]
    fn clocks_and_threads_answer() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        let hz = 1_000_000_000 / tick_ns();
        assert!([100, 250, 300, 1000].contains(&hz), "{hz}");
        assert!(own_threads().contains(&std::process::id()));
    }

    #[test]
    fn cached_pages_of_a_file_can_be_dropped_and_of_a_pipe_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = fs::File::create(directory.path().join("file")).expect("a file");
        drop_cached_pages(&file).expect("a file has cached pages");
        let (reader, _writer) = io::pipe().expect("a pipe");
        let error = drop_cached_pages(&reader).expect_err("a pipe has none");
        assert_eq!(error.raw_os_error(), Some(libc::ESPIPE));
        assert!(error.path().to_string_lossy().contains("pipe"), "{error}");
    }
}
