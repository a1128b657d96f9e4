//! What a lab's bill is made from.
//!
//! *Owns*: this data. *May not touch*: what it means.

use inkstone_host::{BlockStat, Trace};

use crate::pass::CommitSpan;

use super::layer::Layer;

/// The data that a bill is made from.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The devices of the file system.
    pub layer: &'a Layer,
    /// The commits, by time.
    pub commits: &'a [CommitSpan],
    /// Threads of this process, the kernel's io_uring workers among them.
    pub own_threads: &'a [u32],
    /// The file's inode. A worker of the kernel that syncs it works for the commit in progress.
    pub inode: Option<u64>,
    /// Whether commits promise to be durable.
    pub promises: bool,
    /// Whether they write over written blocks and leave time stamps out: then they have nothing to
    /// wait for in a journal, besides what they flush themselves.
    pub overwrites: bool,
    /// Whether each has two syncs.
    pub several: bool,
    /// The same span by the devices' own counters.
    pub counted: Option<BlockStat>,
}
