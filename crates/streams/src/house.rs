//! What keeps a log with streams small and its openings short.
//!
//! *Owns*: what is written for that, where, and when moving is due. *May not touch*: the records of
//! callers (`writer.rs`), moving itself (`mover.rs`).

pub(crate) mod due;
pub(crate) mod keeper;
pub(crate) mod kept;
pub(crate) mod out;
