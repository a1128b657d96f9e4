//! The places and states of a file's blocks, by FIEMAP.
//!
//! *Owns*: the map. *May not touch*: the file's content; [`ExtentMap::of`] makes the file system
//! write delayed data out first. The lab checks with it that a cell's file is in the state that the
//! cell claims.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use inkstone_io::{Result, fiemap};

/// The state of one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExtentState {
    /// Blocks that hold what was written.
    Written,
    /// Reserved blocks, which read as zeros; the first write converts them and so changes metadata.
    Unwritten,
    /// Not allocated yet: the data is only in memory.
    Delayed,
    /// Stored in another form (compressed, encrypted, inline): its place has no meaning.
    Encoded,
}

/// A run of a file's bytes with their place on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device, as the file system counts (btrfs: in its own address space).
    pub physical: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Its state.
    pub state: ExtentState,
    /// Whether other files share these blocks: a write goes to a new place.
    pub shared: bool,
}

/// All extents of a file, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtentMap {
    /// The extents, by rising `logical`.
    pub extents: Vec<Extent>,
}

/// How many bytes of a range are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Bytes in written extents.
    pub written_bytes: u64,
    /// Bytes in unwritten extents.
    pub unwritten_bytes: u64,
    /// Bytes in no extent.
    pub hole_bytes: u64,
    /// Bytes in delayed or encoded extents.
    pub other_bytes: u64,
    /// Of all those, bytes shared with other files.
    pub shared_bytes: u64,
}

impl ExtentMap {
    /// Asks the file system.
    ///
    /// # Errors
    /// `is_unsupported()` if it has no FIEMAP (tmpfs); else what the kernel answers.
    pub fn of(file: &File, path: &Path) -> Result<Self> {
        Self::with(file, path, fiemap::FIEMAP_FLAG_SYNC)
    }

    /// As [`of`](Self::of), but nothing is written for it: what is only in memory is `Delayed`.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn as_it_is(file: &File, path: &Path) -> Result<Self> {
        Self::with(file, path, 0)
    }

    fn with(file: &File, path: &Path, flags: u32) -> Result<Self> {
        let mut extents = Vec::new();
        fiemap::walk(file, path, flags, |batch| {
            extents.extend(batch.iter().map(from_kernel));
            true
        })?;
        Ok(Self { extents })
    }

    /// How much of `range` is in which state.
    pub fn coverage(&self, range: Range<u64>) -> Coverage {
        let mut coverage = Coverage::default();
        let mut covered = 0;
        for extent in &self.extents {
            let from = extent.logical.max(range.start);
            let to = extent.logical.saturating_add(extent.len_bytes).min(range.end);
            let bytes = to.saturating_sub(from);
            covered += bytes;
            match extent.state {
                ExtentState::Written => coverage.written_bytes += bytes,
                ExtentState::Unwritten => coverage.unwritten_bytes += bytes,
                ExtentState::Delayed | ExtentState::Encoded => coverage.other_bytes += bytes,
            }
            if extent.shared {
                coverage.shared_bytes += bytes;
            }
        }
        coverage.hole_bytes = (range.end - range.start).saturating_sub(covered);
        coverage
    }

    /// The extents whose place on the device is known.
    pub fn placed(&self) -> impl Iterator<Item = &Extent> {
        self.extents
            .iter()
            .filter(|e| matches!(e.state, ExtentState::Written | ExtentState::Unwritten))
    }
}

fn from_kernel(extent: &fiemap::FiemapExtent) -> Extent {
    let has = |flag: u32| extent.flags & flag != 0;
    let state = if has(fiemap::FIEMAP_EXTENT_DELALLOC) || has(fiemap::FIEMAP_EXTENT_UNKNOWN) {
        ExtentState::Delayed
    } else if has(fiemap::FIEMAP_EXTENT_ENCODED) || has(fiemap::FIEMAP_EXTENT_DATA_INLINE) {
        ExtentState::Encoded
    } else if has(fiemap::FIEMAP_EXTENT_UNWRITTEN) {
        ExtentState::Unwritten
    } else {
        ExtentState::Written
    };
    Extent {
        logical: extent.logical,
        physical: extent.physical,
        len_bytes: extent.length,
        state,
        shared: has(fiemap::FIEMAP_EXTENT_SHARED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_counts_states_and_holes() {
        let extent = |logical, len_bytes, state| Extent {
            logical,
            physical: logical + 1_000_000,
            len_bytes,
            state,
            shared: false,
        };
        let map = ExtentMap {
            extents: vec![
                extent(0, 4096, ExtentState::Written),
                extent(8192, 8192, ExtentState::Unwritten),
            ],
        };
        for (range, wanted) in [(0..20480, (4096, 8192, 8192)), (2048..10240, (2048, 2048, 4096))] {
            let found = map.coverage(range);
            assert_eq!((found.written_bytes, found.unwritten_bytes, found.hole_bytes), wanted);
        }
        assert_eq!(map.placed().count(), 2);
    }
}
