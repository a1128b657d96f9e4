//! The log's own threads: the committer and the preparer.
//!
//! *Owns*: when work is due. *May not touch*: how it is done.

pub(crate) mod committer;
pub(crate) mod preparer;
