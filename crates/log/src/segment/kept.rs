//! Files that stay open for readers that ask by LSN, so that most of those reads open none.
//!
//! *Owns*: how many stay open. *May not touch*: which segments are the log: a segment that is
//! dropped takes its file with it, so a file that the log gives back is not kept here.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use inkstone_io::{AnyDirectory, File};

use crate::error::Result;
use crate::segment::Segment;
use crate::sync::{Mutex, lock};

/// Files that are kept open, of one log and all its readers.
const FILES_MAX: usize = 128;

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
            let longest = {
                let mut segments = lock(&self.segments);
                segments.push_back(Arc::downgrade(segment));
                if segments.len() > FILES_MAX { segments.pop_front() } else { None }
            };
            if let Some(longest) = longest.and_then(|segment| segment.upgrade()) {
                longest.let_go();
            }
        }
        Ok(file)
    }
}
