//! A raft log as a subject of the labs: the model of its contract, calls from a seed, and looking
//! at what a crash left.
//!
//! *Owns*: what a raft log may show. *May not touch*: the insides of `inkstone-raft`; where the
//! raft log lies.
//!
//! The tests of `inkstone-raft` use the model on simulated disks; `kernel` uses it under real file
//! systems.

pub mod history;
pub mod model;
pub mod verdict;
