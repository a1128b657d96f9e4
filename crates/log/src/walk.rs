//! Reads segments in order, piece by piece: several reads in flight, frames found and their
//! checksums checked.
//!
//! *Owns*: the reads and their buffers. *May not touch*: what the bytes mean for the log, or who
//! reads.

pub(crate) mod ahead;
pub(crate) mod window;
