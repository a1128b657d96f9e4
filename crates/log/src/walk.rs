//! Reading segments in order, piece by piece: several reads in flight, frames found and summed.
//!
//! *Owns*: reads and the memory they go to. *May not touch*: what the bytes mean for the log, or who reads.

pub(crate) mod ahead;
pub(crate) mod window;
