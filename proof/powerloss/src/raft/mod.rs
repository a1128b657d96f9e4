//! A raft log: the model of its contract, and calls from a seed.
//!
//! *Owns*: what a raft log may show. *May not touch*: the insides of `inkstone-raft`; where the
//! raft log lies.
//!
//! The tests of `inkstone-raft` use both on simulated disks.

pub mod history;
pub mod model;
