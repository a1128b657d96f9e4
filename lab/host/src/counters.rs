//! What the kernel counts and what time it is: a block device's counters, resources that threads
//! and processes have used, the clocks.
//!
//! *Owns*: the questions and their units. *May not touch*: what is worth counting.

use std::fs;
use std::io;

use inkstone_io::transfer::retry;
use inkstone_io::{DeviceNumber, Error, Result};

/// A device's counters since it appeared: `/sys/dev/block/M:m/stat`. A sector is 512 bytes on every
/// device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockStat {
    /// Read requests completed.
    pub reads: u64,
    /// Sectors read.
    pub read_sectors: u64,
    /// Write requests completed, empty flushes included.
    pub writes: u64,
    /// Sectors written.
    pub write_sectors: u64,
    /// Requests in flight now: not a counter.
    pub in_flight: u64,
    /// Flushes of the write cache completed, without those that the block layer puts around a write
    /// with PREFLUSH or FUA. `None` before Linux 5.5: a 0 would be a measurement.
    pub flushes: Option<u64>,
}

impl BlockStat {
    /// The difference between `before` and this one. `in_flight` keeps its present value.
    #[must_use]
    pub fn since(&self, before: &BlockStat) -> BlockStat {
        let flushes = self.flushes.zip(before.flushes);
        BlockStat {
            reads: self.reads.saturating_sub(before.reads),
            read_sectors: self.read_sectors.saturating_sub(before.read_sectors),
            writes: self.writes.saturating_sub(before.writes),
            write_sectors: self.write_sectors.saturating_sub(before.write_sectors),
            in_flight: self.in_flight,
            flushes: flushes.map(|(now, before)| now.saturating_sub(before)),
        }
    }

    /// Adds another span to this one.
    pub fn add(&mut self, span: &BlockStat) {
        self.reads += span.reads;
        self.read_sectors += span.read_sectors;
        self.writes += span.writes;
        self.write_sectors += span.write_sectors;
        self.flushes = span.flushes.map(|flushes| flushes + self.flushes.unwrap_or(0));
    }

    fn parse(text: &str) -> Option<BlockStat> {
        let fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>());
        let fields: Vec<u64> = fields.collect::<std::result::Result<_, _>>().ok()?;
        let field = |index: usize| fields.get(index).copied();
        Some(BlockStat {
            reads: field(0)?,
            read_sectors: field(2)?,
            writes: field(4)?,
            write_sectors: field(6)?,
            in_flight: field(8)?,
            flushes: field(15),
        })
    }
}

/// Reads a device's counters. Needs no rights.
///
/// # Errors
/// There is no such block device (a made-up number of btrfs, say), or sysfs is not mounted.
pub fn block_stat(device: DeviceNumber) -> Result<BlockStat> {
    let path = device.sysfs().join("stat");
    let failed = |error| Error::new("read device counters", &path, error);
    let text = retry(|| fs::read_to_string(&path)).map_err(|error| {
        failed(error).advise(
            "a file system like btrfs shows a made-up device number: ask for the device it is \
             mounted from",
        )
    })?;
    BlockStat::parse(&text)
        .ok_or_else(|| failed(io::Error::other(format!("no counters in {text:?}"))))
}

/// Nanoseconds on `CLOCK_MONOTONIC`: the clock that trace events carry.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes one timespec to a valid, exclusive pointer.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert!(answer == 0, "every kernel of today has this clock");
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The thread ids of this process, io_uring's own workers included, in its own pid namespace. Empty
/// without /proc.
pub fn own_threads() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Resources used since the thread or process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// How often it gave up the processor to wait, or the kernel took the processor away.
    pub switches: u64,
    /// CPU time in user space, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel on its behalf, in nanoseconds.
    pub system_ns: u64,
    /// Page faults.
    pub faults: u64,
}

impl Usage {
    /// What was used between `before` and this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        Self {
            switches: less(|usage| usage.switches),
            user_ns: less(|usage| usage.user_ns),
            system_ns: less(|usage| usage.system_ns),
            faults: less(|usage| usage.faults),
        }
    }
}

/// Of the calling thread.
pub fn thread_usage() -> Usage {
    usage_of(libc::RUSAGE_THREAD)
}

/// Of this process: all its threads, those that have ended and io_uring's own workers included.
pub fn process_usage() -> Usage {
    usage_of(libc::RUSAGE_SELF)
}

fn usage_of(who: libc::c_int) -> Usage {
    // SAFETY: rusage is plain integers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one rusage to a valid, exclusive pointer.
    let answer = unsafe { libc::getrusage(who, &mut usage) };
    assert!(answer == 0, "getrusage knows both kinds since Linux 2.6.26");
    let ns = |time: libc::timeval| {
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_usec.cast_unsigned() * 1000
    };
    Usage {
        switches: usage.ru_nvcsw.cast_unsigned() + usage.ru_nivcsw.cast_unsigned(),
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        faults: usage.ru_minflt.cast_unsigned() + usage.ru_majflt.cast_unsigned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn counters_of_old_and_new_kernels() {
        let new = BlockStat::parse("  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n").expect("17");
        assert_eq!((new.reads, new.write_sectors, new.flushes), (1, 7, Some(16)));
        let old = BlockStat::parse("1 2 3 4 5 6 7 8 9 10 11").expect("11 fields");
        assert_eq!((old.flushes, new.since(&old).flushes), (None, None));
        let nothing = BlockStat { in_flight: 9, flushes: Some(0), ..BlockStat::default() };
        assert_eq!(new.since(&new), nothing);
        assert!(
            BlockStat::parse("1 2 3").is_none() && BlockStat::parse("1 2 3 4 5 6 7 8 x").is_none()
        );
    }

    #[test]
    fn clocks_and_threads_answer() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        assert!(own_threads().contains(&std::process::id()));
    }

    #[test]
    fn waiting_is_a_switch_and_touching_memory_a_fault() {
        let (before, of_all) = (thread_usage(), process_usage());
        let touched = vec![1u8; 8 << 20];
        std::thread::sleep(Duration::from_millis(2));
        let used = thread_usage().since(&before);
        assert!(used.faults > 0 && used.switches > 0, "{used:?} {}", touched.len());
        std::thread::spawn(|| std::thread::sleep(Duration::from_millis(2))).join().expect("an end");
        assert!(process_usage().since(&of_all).switches > used.switches, "of ended threads too");
    }
}
