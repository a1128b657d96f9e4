//! Resources that a thread or the process has used so far, by `getrusage`, and what it has read, by
//! `/proc/self/io`.
//!
//! *Owns*: the calls and their units. *May not touch*: what is worth counting.

use std::fs::File;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};

/// Resources used since the thread or process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// How often it gave up the processor to wait.
    pub voluntary_switches: u64,
    /// How often the kernel took the processor away.
    pub involuntary_switches: u64,
    /// CPU time in user space, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel on its behalf, in nanoseconds.
    pub system_ns: u64,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that had to wait for a device.
    pub major_faults: u64,
}

impl Usage {
    /// What was used between `before` and this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
        }
    }

    /// Both kinds.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
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

/// Page faults of the calling thread so far: (minor: served from memory, major: had to wait for a
/// device).
pub fn thread_faults() -> (u64, u64) {
    let usage = thread_usage();
    (usage.minor_faults, usage.major_faults)
}

fn usage_of(who: libc::c_int) -> Usage {
    // SAFETY: rusage is plain integers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one rusage to a valid, exclusive pointer.
    let answer = unsafe { libc::getrusage(who, &mut usage) };
    assert!(answer == 0, "getrusage knows both kinds since Linux 2.6.26");
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let ns = |time: libc::timeval| count(time.tv_sec) * 1_000_000_000 + count(time.tv_usec) * 1000;
    Usage {
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
    }
}

/// What a process has read so far, all its threads together, those that have ended included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Calls that read.
    pub reads: u64,
    /// Bytes that they gave, from wherever.
    pub read_bytes: u64,
    /// Bytes that were fetched from a device.
    pub device_bytes: u64,
}

impl ProcessIo {
    /// What was read between `before` and this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            device_bytes: self.device_bytes.saturating_sub(before.device_bytes),
        }
    }
}

/// Of this process; `None` if the kernel does not say. Asking is one read, which the next answer
/// counts; here it is taken out, so that two answers with nothing between them are equal.
pub fn process_io() -> Option<ProcessIo> {
    /// What the questions themselves have read so far.
    static ASKED: Mutex<(u64, u64)> = Mutex::new((0, 0));
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = [0; 1024];
    let len = File::open("/proc/self/io").ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').trim().parse::<u64>().ok())
    };
    let (reads, read_bytes) = (field("syscr")?, field("rchar")?);
    let answer = ProcessIo {
        reads: reads.saturating_sub(asked.0),
        read_bytes: read_bytes.saturating_sub(asked.1),
        device_bytes: field("read_bytes")?,
    };
    *asked = (asked.0 + 1, asked.1 + len as u64);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn waiting_is_a_switch_and_touching_memory_a_fault() {
        let before = thread_usage();
        let touched = vec![1u8; 8 << 20];
        std::thread::sleep(Duration::from_millis(2));
        let used = thread_usage().since(&before);
        assert!(used.minor_faults > 0 && used.voluntary_switches > 0, "{used:?} {}", touched.len());
        assert_eq!(thread_faults().0, thread_usage().minor_faults);
    }

    #[test]
    fn the_process_counts_threads_that_have_ended() {
        let before = process_usage();
        std::thread::spawn(|| std::thread::sleep(Duration::from_millis(2))).join().expect("an end");
        assert!(process_usage().since(&before).switches() > 0);
    }

    #[test]
    fn reading_is_counted_and_asking_is_not() {
        // In a child: other tests of this process read too.
        let answer = crate::in_forked_child(|| {
            let Some(before) = process_io() else {
                eprintln!(
                    "NOT RUN: reading_is_counted_and_asking_is_not: the kernel does not count"
                );
                return 3;
            };
            let nothing = process_io().expect("as before").since(&before);
            let mut file = File::open("/proc/self/exe").expect("this program");
            let mut bytes = [0; 1000];
            file.read_exact(&mut bytes).expect("it is longer");
            let read = process_io().expect("as before").since(&before);
            u8::from(nothing == ProcessIo::default())
                | u8::from((read.reads, read.read_bytes) == (1, 1000)) << 1
        });
        assert_eq!(answer.expect("a child"), 3);
    }
}
