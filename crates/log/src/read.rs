//! Reading a log: by LSN, in order, or following it.
//!
//! *Owns*: readers, beside a writer in this process or in another. *May not touch*: the files,
//! except to read them.

pub(crate) mod behind;
pub(crate) mod cursor;
pub(crate) mod finder;
pub(crate) mod fresh;
pub(crate) mod news;
pub(crate) mod place;
pub(crate) mod reader;
pub(crate) mod recent;
pub(crate) mod source;
pub(crate) mod view;
