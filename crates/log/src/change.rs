//! Changes of the log other than appending: the next segment, control groups, truncation at both
//! ends.
//!
//! *Owns*: the order in which these become durable. *May not touch*: how a group is written
//! (`commit`).

pub(crate) mod control;
pub(crate) mod marks;
pub(crate) mod roll;
pub(crate) mod seal;
pub(crate) mod truncate;
