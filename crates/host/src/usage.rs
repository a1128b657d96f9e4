//! Resources that a thread or the process has used so far, by `getrusage`.
//!
//! *Owns*: the call and its units. *May not touch*: what is worth counting.

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
            involuntary_switches: self.involuntary_switches.saturating_sub(before.involuntary_switches),
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

/// Page faults of the calling thread so far: (minor: served from memory, major: had to wait for a device).
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
}
