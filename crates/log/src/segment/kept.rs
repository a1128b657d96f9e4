//! Files that stay open for readers that ask by LSN, with their indexes, so that most of those
//! reads are one read.
//!
//! *Owns*: how many stay open, and how much memory their indexes take. *May not touch*: which
//! segments are the log: a segment that is dropped takes its file with it, so a file that the log
//! gives back is not kept here.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use inkstone_format::SegmentIndex;
use inkstone_io::{AnyDirectory, File, descriptors_max};

use crate::error::Result;
use crate::segment::Segment;
use crate::sync::{Mutex, lock};

/// Files that are kept open, of one log and all its readers, and the share of the process's
/// descriptors that they may use.
const FILES_MAX: usize = 128;
const DESCRIPTORS_SHARE: usize = 4;
/// The most bytes of indexes that are kept with them: of 8 GiB of full segments.
const INDEX_BYTES_MAX: usize = 16 << 20;

/// The segments whose files are kept, in the order in which these were opened.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles {
    segments: Mutex<VecDeque<Weak<Segment>>>,
}

impl KeptFiles {
    /// The file of a segment for its readers. It stays open until the segment is no part of the log
    /// any more, or until so many others were opened.
    pub(crate) fn file(
        &self,
        segment: &Arc<Segment>,
        directory: &AnyDirectory,
    ) -> Result<Arc<dyn File>> {
        let (file, is_new) = segment.keep_open(directory)?;
        if is_new {
            lock(&self.segments).push_back(Arc::downgrade(segment));
            self.let_go_above(FILES_MAX.min(descriptors_max() / DESCRIPTORS_SHARE));
        }
        Ok(file)
    }

    /// Keeps the index of a segment as long as its file. Where that makes too much memory, those
    /// that were opened first go.
    pub(crate) fn keep_index(
        &self,
        segment: &Arc<Segment>,
        index: SegmentIndex,
    ) -> Arc<SegmentIndex> {
        let index = Arc::new(index);
        segment.keep_index(&index);
        let kept: Vec<_> = lock(&self.segments).iter().filter_map(Weak::upgrade).collect();
        let (mut bytes, mut most) = (0, 0);
        for segment in kept.iter().rev() {
            bytes += segment.kept_index().map_or(0, |index| index.memory_bytes());
            if bytes > INDEX_BYTES_MAX {
                break;
            }
            most += 1;
        }
        self.let_go_above(most.max(1));
        index
    }

    /// Keeps no file open; whether any was.
    pub(crate) fn let_go(&self) -> bool {
        self.let_go_above(0)
    }

    /// Keeps no more than `most`: those that were opened first go.
    fn let_go_above(&self, most: usize) -> bool {
        let mut has_gone = false;
        loop {
            let longest = {
                let mut segments = lock(&self.segments);
                if segments.len() > most { segments.pop_front() } else { None }
            };
            let Some(longest) = longest else { return has_gone };
            if let Some(segment) = longest.upgrade() {
                segment.let_go();
                has_gone = true;
            }
        }
    }
}
