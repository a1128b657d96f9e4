//! Whether reads that a row calls cold were: by the pages that they brought into memory, and the faults of a mapping.
//!
//! *Owns*: the rule. *May not touch*: reading.

use crate::stage::CellError;

use super::{AHEAD_BLOCKS, How};

/// What a turn of cold reads at random left in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brought {
    pub(super) reads: u64,
    /// Pages of the file in memory afterwards: before, there was none.
    pub(super) pages: u64,
    /// Page faults of the process.
    pub(super) faults: u64,
}

/// The kernel may bring as many pages beside those that were asked for, before reads of one page each are no cold ones.
const PAGES_PER_READ_MAX: f64 = 1.5;
/// A mapping's reads that are cold fault, each of them.
const FAULTS_PER_READ_MIN: f64 = 0.9;
/// What does not count: asked for ahead and not read when the turn ended, and the process's own memory.
const PAGES_BESIDE: u64 = 2 * AHEAD_BLOCKS as u64;

impl Brought {
    /// # Errors
    /// The reads were not what the row's name says: of pages that the kernel had brought beside others.
    pub(super) fn check(self, how: How) -> Result<(), CellError> {
        let Self { reads, pages, faults } = self;
        let each = pages.saturating_sub(PAGES_BESIDE) as f64 / reads.max(1) as f64;
        if each > PAGES_PER_READ_MAX {
            return Err(CellError::Invalid(format!(
                "not cold: {reads} reads of one page each brought {pages} pages into memory, so most reads found theirs there (the \
                 kernel reads around a page fault or ahead of a read; madvise and fadvise RANDOM turn that off)"
            )));
        }
        let mapped = matches!(how, How::Map { ahead: false, .. });
        let faulted = (faults + PAGES_BESIDE) as f64 / reads.max(1) as f64;
        if mapped && faulted < FAULTS_PER_READ_MIN {
            return Err(CellError::Invalid(format!(
                "not cold: {reads} reads made only {faults} page faults, so the other pages were mapped already"
            )));
        }
        Ok(())
    }
}
