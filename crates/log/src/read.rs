//! Reading a log: by LSN, in order, following it.
//!
//! *Owns*: readers, beside the writer in this process and in others. *May not touch*: the files, but to read.

pub(crate) mod cursor;
pub(crate) mod finder;
pub(crate) mod reader;
pub(crate) mod source;
pub(crate) mod view;
