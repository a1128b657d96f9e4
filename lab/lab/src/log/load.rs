//! The load on a log while it is measured: threads append, and each waits for its record.
//!
//! *Owns*: the loops between two readings of the clock. *May not touch*: what the figures mean.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::{Log, Lsn, Options};
use inkstone_host::monotonic_ns;

use crate::crowd::together;
use crate::histogram::Recorder;
use crate::pass::{CommitSpan, Limits};
use crate::stage::WayError;

use super::{FRAME_BYTES, refused};

/// One thread of a load, with its measurements. It lives through all rounds of a way.
#[derive(Debug)]
pub struct Worker {
    record: Vec<u8>,
    /// Times from before an append until its acknowledgement.
    pub latency: Recorder,
    /// The same, commit by commit, if asked for.
    pub spans: Option<Vec<CommitSpan>>,
    /// The thread id of the thread that ran last.
    pub thread: Option<u32>,
}

impl Worker {
    /// A worker that appends records of this many bytes.
    pub fn new(record_bytes: u64, seed: u64) -> Self {
        let mut record = vec![0; record_bytes as usize];
        fastrand::Rng::with_seed(seed).fill(&mut record);
        Self { record, latency: Recorder::new(), spans: None, thread: None }
    }

    /// A worker for each thread of the load.
    pub fn all(threads: u32, record_bytes: u64, seed: u64) -> Vec<Self> {
        (0..threads).map(|number| Self::new(record_bytes, seed + u64::from(number))).collect()
    }
}

/// The result of one round of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// Records acknowledged.
    pub commits: u64,
    /// From the start until the last acknowledgement.
    pub total_ns: u64,
}

/// A load, with all that each round of a way needs.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// The log.
    pub log: &'a Log,
    /// Its directory.
    pub path: &'a Path,
    /// How many bytes of records it keeps: older ones are truncated now and then, as in a service.
    /// `u64::MAX` keeps all.
    pub keep_bytes: u64,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
}

impl Task<'_> {
    /// Runs one round, until a limit is met. The threads are started before the clock.
    ///
    /// # Errors
    /// The first error of the log, a thread that cannot be started, or Ctrl-C.
    pub fn run(&self, workers: &mut [Worker], limits: Limits) -> Result<Slice, WayError> {
        let share =
            Limits { commits: limits.commits.div_ceil(workers.len().max(1) as u64), ..limits };
        let all = together(workers, |index, worker| {
            worker.thread = this_thread();
            let commits = self.closed_loop(worker, share, index == 0)?;
            Ok((commits, monotonic_ns()))
        })?;
        let mut slice = Slice::default();
        for (commits, end_ns) in all.outcomes {
            slice.commits += commits;
            slice.total_ns = slice.total_ns.max(end_ns.saturating_sub(all.begin_ns));
        }
        Ok(slice)
    }

    fn keep_records(&self, record_bytes: u64) -> u64 {
        self.keep_bytes / (record_bytes + FRAME_BYTES)
    }

    /// Truncates to `keep` records once there are twice as many. Rounds are short, so records of
    /// earlier rounds count too.
    fn give_up_what_is_old(&self, last: u64, keep: u64) -> Result<bool, WayError> {
        let is_much = last.saturating_sub(self.log.first().get()) > keep.saturating_mul(2);
        if is_much {
            self.log.truncate_before(Lsn::new(last - keep)).map_err(refused)?;
        }
        Ok(is_much)
    }

    /// Appends and waits; returns the number of commits. One of the threads truncates old records.
    fn closed_loop(
        &self,
        worker: &mut Worker,
        limits: Limits,
        gives_up: bool,
    ) -> Result<u64, WayError> {
        let Worker { record, latency, spans, .. } = worker;
        let end_ns = monotonic_ns().saturating_add(nanoseconds(limits));
        let keep = self.keep_records(record.len() as u64);
        let mut commits = 0;
        let mut start_ns = monotonic_ns();
        while commits < limits.commits && start_ns < end_ns {
            if self.stop.load(Ordering::Relaxed) {
                return Err(WayError::Interrupted);
            }
            let lsn = self.log.append_durable(record).map_err(refused)?;
            let ack_ns = monotonic_ns();
            latency.record(ack_ns - start_ns);
            if let Some(spans) = spans {
                spans.push(CommitSpan { start_ns, ack_ns });
            }
            commits += 1;
            start_ns = ack_ns;
            if gives_up && self.give_up_what_is_old(lsn.get(), keep)? {
                start_ns = monotonic_ns();
            }
        }
        Ok(commits)
    }
}

/// A log of the lab's own under a load, for all turns of a way. Dropping it removes its directory.
pub(crate) struct Loaded {
    log: Log,
    path: PathBuf,
    workers: Vec<Worker>,
    keep_bytes: u64,
}

/// What it showed in one round.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) slice: Slice,
    pub(crate) latency: Recorder,
    pub(crate) groups: u64,
    /// Changes of segment, and how many of them found no segment ready.
    pub(crate) segments: u64,
    pub(crate) pool_empty: u64,
}

impl Loaded {
    /// Makes the log at `path`.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) fn open(
        path: PathBuf,
        options: Options,
        threads: u32,
        record_bytes: u64,
        keep_bytes: u64,
        seed: u64,
    ) -> Result<Self, WayError> {
        let log = super::open(&path, options)?;
        Ok(Self { log, path, workers: Worker::all(threads, record_bytes, seed), keep_bytes })
    }

    /// Runs one round.
    ///
    /// # Errors
    /// As [`Task::run`].
    pub(crate) fn run(&mut self, stop: &AtomicBool, limits: Limits) -> Result<Ran, WayError> {
        self.workers.iter_mut().for_each(|worker| worker.latency.clear());
        let before = self.log.stats();
        let task = Task { log: &self.log, path: &self.path, keep_bytes: self.keep_bytes, stop };
        let slice = task.run(&mut self.workers, limits)?;
        let after = self.log.stats();
        let mut latency = Recorder::new();
        self.workers.iter().for_each(|worker| latency.merge(&worker.latency));
        Ok(Ran {
            slice,
            latency,
            groups: after.groups - before.groups,
            segments: after.segments - before.segments,
            pool_empty: after.pool_empty - before.pool_empty,
        })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // The removal of the working directory takes what cannot be removed here.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn nanoseconds(limits: Limits) -> u64 {
    u64::try_from(limits.time.as_nanos()).unwrap_or(u64::MAX)
}

/// The id of the calling thread, if /proc shows it.
fn this_thread() -> Option<u32> {
    let link = std::fs::read_link(Path::new("/proc/thread-self")).ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Rounds shorter than the kept records left a log that only grew, until its budget was used
    /// up.
    #[test]
    fn what_is_old_is_given_up_however_short_the_rounds_are() {
        let directory = tempfile::tempdir().expect("a directory");
        let stop = AtomicBool::new(false);
        let path = directory.path();
        let log = Log::open(path, Options::small()).expect("a log");
        let task = Task { log: &log, path, keep_bytes: 100 * (8 + FRAME_BYTES), stop: &stop };
        let mut workers = Worker::all(2, 8, 1);
        for _ in 0..20 {
            let limits = Limits { commits: 64, time: Duration::from_secs(600) };
            task.run(&mut workers, limits).expect("nothing fails");
        }
        let kept = log.last().get() - log.first().get();
        assert!((100..400).contains(&kept), "{kept} of {} are kept", log.last());
    }
}
