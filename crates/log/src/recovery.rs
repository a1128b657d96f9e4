//! Recovery: from the files of a directory to a log with an end.
//!
//! *Owns*: the questions that an opening asks of the files, and their order; the same beside a
//! living writer. *May not touch*: the files: recovery only reads.

pub(crate) mod beside;
pub(crate) mod headers;
pub(crate) mod newest;
pub(crate) mod recover;
