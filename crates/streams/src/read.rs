//! Reading streams, in the process that writes them or beside another one.
//!
//! *Owns*: readers and cursors. *May not touch*: the order of changes (`writer.rs`); it writes
//! nothing.

pub(crate) mod cursor;
pub(crate) mod mirror;
pub(crate) mod reader;
pub(crate) mod source;
pub(crate) mod walk;
