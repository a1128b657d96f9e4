//! How the log changes other than by appending: the next segment, control groups, truncation at both ends.
//!
//! *Owns*: the order in which things become durable when it does. *May not touch*: how a group is written (`commit`).

pub(crate) mod control;
pub(crate) mod roll;
pub(crate) mod seal;
pub(crate) mod truncate;
