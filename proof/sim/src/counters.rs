//! Counts of the operations on a disk.
//!
//! *Owns*: the numbers. *May not touch*: anything else.

/// Counts of what a disk was asked to do and did, since it was created or found after a crash. An
/// operation that fails counts like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Files opened that existed.
    pub opens: u64,
    /// Files created.
    pub creations: u64,
    /// Renames.
    pub renames: u64,
    /// Removals.
    pub removals: u64,
    /// Listings of a directory.
    pub listings: u64,
    /// Syncs of a directory.
    pub directory_syncs: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes that reads returned.
    pub read_bytes: u64,
    /// Writes, those of [`inkstone_io::Preparation::Zeros`] too.
    pub writes: u64,
    /// Of these, through the page cache.
    pub buffered_writes: u64,
    /// Bytes in write requests.
    pub written_bytes: u64,
    /// Durable writes: `RWF_DSYNC`, `O_DSYNC`, `O_SYNC`.
    pub dsync_writes: u64,
    /// `fsync`s of a file.
    pub full_syncs: u64,
    /// `fdatasync`s of a file.
    pub data_syncs: u64,
    /// Calls of fallocate.
    pub allocations: u64,
    /// Sizes set.
    pub resizes: u64,
    /// Attempts to take a lock, including those that found it taken. The creation of a lock file is
    /// part of it.
    pub locks: u64,
    /// Flushes of the device: one per sync that succeeded, one per durable write that was not a FUA
    /// write.
    pub flushes: u64,
    /// FUA writes.
    pub fua_writes: u64,
    /// Times that the file system had to write metadata: growth of a file or first writes of a
    /// block made durable, and directory syncs that had something to do. In the log's steady state
    /// this does not grow.
    pub metadata_commits: u64,
}

impl Counters {
    /// Every operation of the seam.
    pub fn operations(&self) -> u64 {
        self.opens
            + self.creations
            + self.renames
            + self.removals
            + self.listings
            + self.directory_syncs
            + self.reads
            + self.writes
            + self.full_syncs
            + self.data_syncs
            + self.allocations
            + self.resizes
            + self.locks
    }

    /// Syncs of files, of both kinds.
    pub fn syncs(&self) -> u64 {
        self.full_syncs + self.data_syncs
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            opens: self.opens - earlier.opens,
            creations: self.creations - earlier.creations,
            renames: self.renames - earlier.renames,
            removals: self.removals - earlier.removals,
            listings: self.listings - earlier.listings,
            directory_syncs: self.directory_syncs - earlier.directory_syncs,
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            buffered_writes: self.buffered_writes - earlier.buffered_writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            dsync_writes: self.dsync_writes - earlier.dsync_writes,
            full_syncs: self.full_syncs - earlier.full_syncs,
            data_syncs: self.data_syncs - earlier.data_syncs,
            allocations: self.allocations - earlier.allocations,
            resizes: self.resizes - earlier.resizes,
            locks: self.locks - earlier.locks,
            flushes: self.flushes - earlier.flushes,
            fua_writes: self.fua_writes - earlier.fua_writes,
            metadata_commits: self.metadata_commits - earlier.metadata_commits,
        }
    }
}
