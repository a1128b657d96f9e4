//! Whether the reads of a cold way were cold: by the pages that they brought into memory, and the
//! faults of a mapping.
//!
//! *Owns*: the rule. *May not touch*: reading.

use crate::stage::WayError;

/// How many random blocks are read ahead, if they are known beforehand.
pub(super) const AHEAD_BLOCKS: usize = 16;

/// What a turn of cold random reads left in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brought {
    pub(super) reads: u64,
    /// Pages of the file in memory afterwards; before, there were none.
    pub(super) pages: u64,
    /// Page faults of the process.
    pub(super) faults: u64,
}

/// With more pages per read than this, reads of one page each were not cold: the kernel had read
/// others around them.
const PAGES_PER_READ_MAX: f64 = 1.5;
/// Each cold read of a mapping faults.
const FAULTS_PER_READ_MIN: f64 = 0.9;
/// Pages that do not count: read ahead but not yet read when the turn ended, and the process's own
/// memory.
const PAGES_BESIDE: u64 = 2 * AHEAD_BLOCKS as u64;

impl Brought {
    /// Each read of a mapping that is not asked for ahead `each_faults`.
    ///
    /// # Errors
    /// The reads were not cold, as the way's name says: the kernel had brought their pages along
    /// with others.
    pub(super) fn check(self, each_faults: bool) -> Result<(), WayError> {
        let Self { reads, pages, faults } = self;
        let each = pages.saturating_sub(PAGES_BESIDE) as f64 / reads.max(1) as f64;
        if each > PAGES_PER_READ_MAX {
            return Err(WayError::Invalid(format!(
                "not cold: {reads} reads of one page each brought {pages} pages into memory, so \
                 most reads found theirs there (the kernel reads around a page fault or ahead of a \
                 read; madvise and fadvise RANDOM turn that off)"
            )));
        }
        let faulted = (faults + PAGES_BESIDE) as f64 / reads.max(1) as f64;
        if each_faults && faulted < FAULTS_PER_READ_MIN {
            return Err(WayError::Invalid(format!(
                "not cold: {reads} reads made only {faults} page faults, so the other pages were \
                 mapped already"
            )));
        }
        Ok(())
    }
}
