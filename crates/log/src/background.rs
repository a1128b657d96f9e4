//! The log's own threads.
//!
//! *Owns*: when something is due. *May not touch*: how it is done.

pub(crate) mod committer;
pub(crate) mod preparer;
