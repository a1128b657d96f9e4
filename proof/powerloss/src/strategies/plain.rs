//! The strategies: what each does in one step, what it may claim, and one run of it.
//!
//! *Owns*: the names, the claims, the calls in their order. *May not touch*: making the calls; what
//! they leave.

use inkstone_io::{Access, Durability, named_choice};

use crate::kernel::machine::FsKind;
use crate::words::in_words;

named_choice! {
    /// A way in which programs write files.
    Plain, "strategy" {
        AppendFdatasync = "append-fdatasync", "append to a file, fdatasync";
        AppendFsync = "append-fsync", "append to a file, fsync";
        AppendFdatasyncFsync = "append-fdatasync-fsync", "append to a file, fdatasync, then fsync";
        AppendODsync = "append-o-dsync", "append to a file opened with O_DSYNC";
        AppendOSync = "append-o-sync", "append to a file opened with O_SYNC";
        AppendRwfDsync = "append-rwf-dsync", "append with RWF_DSYNC on each write";
        AppendBatchFdatasync = "append-batch-fdatasync",
            "append 8 blocks by 8 writes, then one fdatasync (are there holes before it?)";
        OverwriteFdatasync = "overwrite-fdatasync", "overwrite a written file, fdatasync";
        OverwriteODsync = "overwrite-o-dsync", "overwrite a written file opened with O_DSYNC";
        OverwriteRwfDsync = "overwrite-rwf-dsync",
            "overwrite a written file with RWF_DSYNC on each write";
        DirectAppendFdatasync = "direct-append-fdatasync", "append with O_DIRECT, fdatasync";
        DirectAppendODsync = "direct-append-o-dsync", "append with O_DIRECT and O_DSYNC";
        DirectOverwriteFdatasync = "direct-overwrite-fdatasync",
            "overwrite a written file with O_DIRECT, fdatasync";
        DirectOverwriteODsync = "direct-overwrite-o-dsync",
            "overwrite a written file with O_DIRECT and O_DSYNC";
        FallocatedFdatasync = "fallocated-fdatasync", "write into a fallocated file, fdatasync";
        DirectFallocatedODsync = "direct-fallocated-o-dsync",
            "write into a fallocated file with O_DIRECT and O_DSYNC";
        SparseFdatasync = "sparse-fdatasync",
            "set_len without a sync, write into the hole, fdatasync";
        SetLenFsyncFdatasync = "set-len-fsync-fdatasync",
            "set_len and fsync once, then write into the hole, fdatasync";
        MmapMsync = "mmap-msync", "store into a mapped written file, msync(MS_SYNC)";
        MmapSparseMsync = "mmap-sparse-msync", "store into a mapped hole, msync(MS_SYNC)";
        StdioFsync = "stdio-fsync", "fwrite, fflush, fsync of its descriptor";
        StdioFdatasync = "stdio-fdatasync", "fwrite, fflush, fdatasync of its descriptor";
        NewFileFsyncDirectory = "new-file-fsync-directory",
            "new file, fsync, fsync of its directory";
        Replace = "replace",
            "write a new file, fsync, rename over the old one, fsync of the directory";
        NewFileFdatasync = "new-file-fdatasync",
            "new file, fdatasync; its directory is never synced";
        NewFileFsync = "new-file-fsync", "new file, fsync; its directory is never synced";
        ReplaceNoDirectory = "replace-no-directory",
            "write a new file, fsync, rename; the directory is never synced";
        WriteOnly = "write-only", "append to a file, no sync";
        OverwriteOnly = "overwrite-only", "overwrite a written file, no sync";
        DirectOnly = "direct-only", "overwrite a written file with O_DIRECT, no sync";
        SyncFileRangeOnly = "sync-file-range-only",
            "overwrite a written file, sync_file_range and wait";
        StdioOnly = "stdio-only", "fwrite, no fflush, no sync";
        StdioFflushOnly = "stdio-fflush-only", "fwrite, fflush, no sync";
        MmapOnly = "mmap-only", "store into a mapped written file, no msync";
        SetLenOnly = "set-len-only", "set_len, no sync: the size";
        SparseOnly = "sparse-only", "set_len without a sync, write into the hole, no sync";
        NewFileClose = "new-file-close", "new file, write, close";
        ReplaceNoSync = "replace-no-sync", "write a new file, rename over the old one, no sync";
    }
}

/// What a strategy may claim of an acknowledged step after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is there, whole.
    Durable,
    /// If the step's name is there, the step is whole. POSIX promises the name only after an fsync
    /// of the directory.
    NameNotPromised,
    /// Nothing. Many take it for durable.
    Nothing,
    /// Nothing is promised; the report shows what was seen.
    NotPromised,
}

impl Claim {
    pub fn words(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::NameNotPromised => "whole, but no promise of the name",
            Self::Nothing => "none",
            Self::NotPromised => "not promised",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One file, each step a record at its own place.
    Slots,
    /// One file, each step several blocks at their own places, each by a write of its own; the
    /// report also says whether a later block is there without an earlier one.
    Batches,
    /// One file, which each step makes longer by a record; only its size counts.
    Size,
    /// Each step a file of its own.
    Files,
    /// One file, which each step replaces with another.
    Replaced,
}

/// What is done to the file before the first step. Its name is durable by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing: it is empty.
    Empty,
    /// Other bytes were written over its whole length, and synced.
    Written,
    /// `fallocate` for its whole length, not synced.
    Fallocated,
    /// `set_len` to its whole length, not synced.
    Sparse,
    /// `set_len` to its whole length, then fsync.
    SparseSynced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Writes the record, with the file's access. Where each step has a file, this creates it.
    Write,
    /// Writes the record with `RWF_DSYNC`.
    WriteDsync,
    /// Makes the file longer by one record.
    Grow,
    Fflush,
    /// `sync_file_range` of the record.
    WriteBack,
    Fdatasync,
    Fsync,
    /// `msync(MS_SYNC)` of the record.
    Msync,
    /// Closes the file and renames it over the old one.
    Rename,
    SyncDirectory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub claim: Claim,
    pub shape: Shape,
    /// What is done first.
    pub before: Before,
    /// How bytes are written.
    pub access: Access,
    pub durability: Durability,
    pub acts: &'static [Act],
}

impl Plan {
    const fn slots(before: Before, acts: &'static [Act]) -> Self {
        let (access, durability) = (Access::Buffered, Durability::None);
        Self { claim: Claim::Durable, shape: Shape::Slots, before, access, durability, acts }
    }

    const fn by(self, access: Access) -> Self {
        Self { access, ..self }
    }

    const fn opened(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    const fn claims(self, claim: Claim) -> Self {
        Self { claim, ..self }
    }

    const fn files(shape: Shape, claim: Claim, acts: &'static [Act]) -> Self {
        let before = if matches!(shape, Shape::Replaced) { Before::Written } else { Before::Empty };
        Self { claim, shape, ..Self::slots(before, acts) }
    }

    /// The bytes of one step: a whole block where the way of writing needs it, otherwise a size
    /// that shares blocks with its neighbours, as records of a log do.
    pub fn record_bytes(&self) -> usize {
        match (self.shape, self.access) {
            (Shape::Slots, Access::Buffered | Access::Stream) => 1000,
            (Shape::Batches, _) => BATCH_BLOCKS * BLOCK_BYTES,
            _ => BLOCK_BYTES,
        }
    }
}

/// The size of a write that is a whole block, and the number of such writes in a batch.
pub const BLOCK_BYTES: usize = 4096;
const BATCH_BLOCKS: usize = 8;

const RENAME_WITHOUT_JOURNAL: &str = "without a journal a rename is not atomic: the directory's \
block and the freed inode of the replaced file reach the disk in any order, so the name can be \
lost, or lead to another file that took the inode";
const WRITE_BACK_COMMITS: &str = "with data=journal ext4 commits its journal before it writes \
pages back, so sync_file_range happens to flush: this is not promised";

impl Plain {
    /// What it may claim on this file system, and why that differs from other file systems.
    ///
    /// These were seen first and explained then; docs/results.md shows how.
    pub fn claim_on(self, kind: FsKind) -> (Claim, Option<&'static str>) {
        match (self, kind) {
            (Self::Replace | Self::ReplaceNoDirectory, FsKind::Ext4NoJournal) => {
                (Claim::NotPromised, Some(RENAME_WITHOUT_JOURNAL))
            }
            (Self::SyncFileRangeOnly, FsKind::Ext4DataJournal) => {
                (Claim::NotPromised, Some(WRITE_BACK_COMMITS))
            }
            _ => (self.plan().claim, None),
        }
    }

    pub fn plan(self) -> Plan {
        use Access::{Direct, Mmap, Stream};
        use Act::{
            Fdatasync, Fflush, Fsync, Grow, Msync, Rename, SyncDirectory, Write, WriteBack,
            WriteDsync,
        };
        use Before::{Empty, Fallocated, Sparse, SparseSynced, Written};
        use Claim::{NameNotPromised, Nothing};
        use Durability::{ODsync, OSync};
        let slots = Plan::slots;
        match self {
            Self::AppendFdatasync => slots(Empty, &[Write, Fdatasync]),
            Self::AppendFsync => slots(Empty, &[Write, Fsync]),
            Self::AppendFdatasyncFsync => slots(Empty, &[Write, Fdatasync, Fsync]),
            Self::AppendODsync => slots(Empty, &[Write]).opened(ODsync),
            Self::AppendOSync => slots(Empty, &[Write]).opened(OSync),
            Self::AppendRwfDsync => slots(Empty, &[WriteDsync]),
            Self::AppendBatchFdatasync => {
                Plan { shape: Shape::Batches, ..slots(Empty, &[Write, Fdatasync]) }
            }
            Self::OverwriteFdatasync => slots(Written, &[Write, Fdatasync]),
            Self::OverwriteODsync => slots(Written, &[Write]).opened(ODsync),
            Self::OverwriteRwfDsync => slots(Written, &[WriteDsync]),
            Self::DirectAppendFdatasync => slots(Empty, &[Write, Fdatasync]).by(Direct),
            Self::DirectAppendODsync => slots(Empty, &[Write]).by(Direct).opened(ODsync),
            Self::DirectOverwriteFdatasync => slots(Written, &[Write, Fdatasync]).by(Direct),
            Self::DirectOverwriteODsync => slots(Written, &[Write]).by(Direct).opened(ODsync),
            Self::FallocatedFdatasync => slots(Fallocated, &[Write, Fdatasync]),
            Self::DirectFallocatedODsync => slots(Fallocated, &[Write]).by(Direct).opened(ODsync),
            Self::SparseFdatasync => slots(Sparse, &[Write, Fdatasync]),
            Self::SetLenFsyncFdatasync => slots(SparseSynced, &[Write, Fdatasync]),
            Self::MmapMsync => slots(Written, &[Write, Msync]).by(Mmap),
            Self::MmapSparseMsync => slots(Sparse, &[Write, Msync]).by(Mmap),
            Self::StdioFsync => slots(Empty, &[Write, Fflush, Fsync]).by(Stream),
            Self::StdioFdatasync => slots(Empty, &[Write, Fflush, Fdatasync]).by(Stream),
            Self::NewFileFsyncDirectory => {
                Plan::files(Shape::Files, Claim::Durable, &[Write, Fsync, SyncDirectory])
            }
            Self::Replace => {
                Plan::files(Shape::Replaced, Claim::Durable, &[Write, Fsync, Rename, SyncDirectory])
            }
            Self::NewFileFdatasync => {
                Plan::files(Shape::Files, NameNotPromised, &[Write, Fdatasync])
            }
            Self::NewFileFsync => Plan::files(Shape::Files, NameNotPromised, &[Write, Fsync]),
            Self::ReplaceNoDirectory => {
                Plan::files(Shape::Replaced, NameNotPromised, &[Write, Fsync, Rename])
            }
            Self::WriteOnly => slots(Empty, &[Write]).claims(Nothing),
            Self::OverwriteOnly => slots(Written, &[Write]).claims(Nothing),
            Self::DirectOnly => slots(Written, &[Write]).by(Direct).claims(Nothing),
            Self::SyncFileRangeOnly => slots(Written, &[Write, WriteBack]).claims(Nothing),
            Self::StdioOnly => slots(Empty, &[Write]).by(Stream).claims(Nothing),
            Self::StdioFflushOnly => slots(Empty, &[Write, Fflush]).by(Stream).claims(Nothing),
            Self::MmapOnly => slots(Written, &[Write]).by(Mmap).claims(Nothing),
            Self::SetLenOnly => {
                Plan { shape: Shape::Size, ..slots(Empty, &[Grow]).claims(Nothing) }
            }
            Self::SparseOnly => slots(Sparse, &[Write]).claims(Nothing),
            Self::NewFileClose => Plan::files(Shape::Files, Nothing, &[Write]),
            Self::ReplaceNoSync => Plan::files(Shape::Replaced, Nothing, &[Write, Rename]),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    pub kind: FsKind,
    pub strategy: Plain,
    /// The seed of the bytes.
    pub seed: u64,
    /// How many steps are done and acknowledged.
    pub steps: usize,
}

pub(crate) const HEAD: &str = "inkstone-strategy 1";

in_words!(Trial, HEAD, kind = "fs", strategy = "strategy", seed = "seed", steps = "steps"?);

#[cfg(test)]
mod tests {
    use inkstone_io::NamedChoice;

    use super::*;

    /// Whether any call of a step makes something durable, whatever the claim.
    fn syncs(plan: &Plan) -> bool {
        let durable = [Act::WriteDsync, Act::Fdatasync, Act::Fsync, Act::Msync, Act::SyncDirectory];
        plan.durability.with_the_write() || plan.acts.iter().any(|act| durable.contains(act))
    }

    #[test]
    fn what_claims_durability_syncs_and_what_does_not_claims_nothing() {
        let mut counts = [0; 2];
        for &strategy in Plain::ALL {
            let plan = strategy.plan();
            assert_eq!(plan.claim == Claim::Nothing, !syncs(&plan), "{strategy}");
            let renames = plan.acts.contains(&Act::Rename);
            assert_eq!(plan.shape == Shape::Replaced, renames, "{strategy}");
            counts[usize::from(plan.claim == Claim::Nothing)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    }

    #[test]
    fn where_a_claim_differs_it_says_why() {
        let all =
            Plain::ALL.iter().flat_map(|plain| FsKind::ALL.iter().map(move |kind| (*plain, *kind)));
        let differs = all.filter(|(plain, kind)| plain.claim_on(*kind).0 != plain.plan().claim);
        assert!(differs.clone().all(|(plain, kind)| plain.claim_on(kind).1.is_some()));
        assert_eq!(differs.count(), 3);
    }
}
