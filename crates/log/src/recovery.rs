//! Recovery: from the files of a directory to a log with an end.
//!
//! *Owns*: the questions that an opening asks of the files, and their order; the same beside a
//! living writer. *May not touch*: what is in the files. Recovery reads them, and syncs the last
//! segment.

pub(crate) mod beside;
pub(crate) mod headers;
pub(crate) mod newest;
pub(crate) mod recover;
