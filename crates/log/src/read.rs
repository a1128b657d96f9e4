//! Reading a log: by LSN, in order, or following it.
//!
//! *Owns*: readers, beside a writer in this process or in another. *May not touch*: the files,
//! except to read them.

pub(crate) mod cursor;
pub(crate) mod finder;
pub(crate) mod place;
pub(crate) mod publisher;
pub(crate) mod reader;
pub(crate) mod recent;
pub(crate) mod source;
pub(crate) mod tail_walk;
pub(crate) mod view;
