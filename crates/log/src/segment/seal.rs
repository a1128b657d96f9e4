//! The seal of a full segment, as bytes.
//!
//! *Owns*: which bytes to write where. *May not touch*: when (`change/seal.rs`).

use std::sync::Arc;

use inkstone_format::Lsn;
use inkstone_io::{AlignedBuf, File};

use crate::segment::Segment;

/// A seal that waits to be written. It holds its segment, so the file is not used for anything else
/// meanwhile.
#[derive(Debug)]
pub(crate) struct Seal {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn File>,
    /// The bytes of the seal alone, and where they go.
    pub(crate) memory: AlignedBuf,
    pub(crate) offset: u64,
    /// The segment's last record.
    pub(crate) last: Lsn,
}

impl Seal {
    /// Copies the bytes out of a group's buffer, which the next group needs.
    pub(crate) fn of(
        bytes: &[u8],
        offset: u64,
        segment: Arc<Segment>,
        file: Arc<dyn File>,
        last: Lsn,
    ) -> Self {
        let mut memory = AlignedBuf::zeroed(bytes.len());
        memory.copy_from_slice(bytes);
        Self { segment, file, memory, offset, last }
    }
}
