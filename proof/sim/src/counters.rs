//! Counts of the operations on a disk.
//!
//! *Owns*: the numbers. *May not touch*: anything else.

/// The struct, and the difference of two of it.
macro_rules! counters {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $type { $($(#[$doc])* pub $field: u64,)* }

        impl $type {
            /// The counts since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field - earlier.$field,)* }
            }
        }
    };
}

counters! {
    /// Counts of what a disk was asked to do and did, since it was created or found after a crash.
    /// An operation that fails counts like any other.
    Counters {
        /// Files opened that existed.
        opens,
        /// Files created.
        creations,
        /// Renames.
        renames,
        /// Removals.
        removals,
        /// Listings of a directory.
        listings,
        /// Syncs of a directory.
        directory_syncs,
        /// Reads.
        reads,
        /// Bytes that reads returned.
        read_bytes,
        /// Writes, those of [`inkstone_io::Preparation::Zeros`] too.
        writes,
        /// Of these, through the page cache.
        buffered_writes,
        /// Bytes in write requests.
        written_bytes,
        /// Durable writes: `RWF_DSYNC`, `O_DSYNC`, `O_SYNC`.
        dsync_writes,
        /// `fsync`s of a file.
        full_syncs,
        /// `fdatasync`s of a file.
        data_syncs,
        /// Calls of fallocate.
        allocations,
        /// Sizes set.
        resizes,
        /// Attempts to take a lock, including those that found it taken. The creation of a lock
        /// file is part of it.
        locks,
        /// Flushes of the device: one per sync that succeeded, one per durable write that was not a
        /// FUA write.
        flushes,
        /// FUA writes.
        fua_writes,
        /// Times that the file system had to write metadata: growth of a file or first writes of a
        /// block made durable, and directory syncs that had something to do. In the log's steady
        /// state this does not grow.
        metadata_commits,
    }
}

impl Counters {
    /// Syncs of files, of both kinds.
    pub fn syncs(&self) -> u64 {
        self.full_syncs + self.data_syncs
    }
}
