//! What a bill is made from.
//!
//! *Owns*: this data, and which threads are the kernel's. *May not touch*: what it means.

use inkstone_host::{BlockStat, Comm, Trace};

use crate::pass::CommitSpan;

use super::layer::Layer;

/// The data that a bill is made from.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The devices: the file system's own first.
    pub layers: &'a [Layer],
    /// The commits, by time.
    pub commits: &'a [CommitSpan],
    /// Threads of this process, the kernel's io_uring workers among them.
    pub own_threads: &'a [u32],
    /// Whether the kernel's workers sync for this process: see
    /// [`Writing::workers_sync`](crate::writing::Writing::workers_sync).
    pub own_workers: bool,
    /// The same span by the devices' own counters.
    pub counted: &'a [Option<BlockStat>],
    /// For how many commits to keep every request.
    pub timeline_commits: usize,
}

/// Whether this is a kernel thread: it belongs to no process that could be named.
pub(crate) fn is_kernels(comm: &Comm) -> bool {
    let name = comm.as_str();
    ["kworker", "jbd2/", "loop", "xfs", "btrfs", "kswapd", "ksoftirqd", "swapper", "md", "dm"]
        .iter()
        .any(|kernel| name.starts_with(kernel))
}

/// Whether this is a thread that works for all processes in turn.
pub(crate) fn is_worker(comm: &Comm) -> bool {
    comm.as_str().starts_with("kworker")
}
