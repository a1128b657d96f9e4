//! Cuts the power at any write and checks what is left of a log: nothing acknowledged may be lost,
//! nothing shown may be taken back, nothing may appear that was not appended.
//!
//! *Owns*: crash states and the checker. *May not touch*: the insides of the log, which it uses
//! through the public API; the operating system, which it reaches through `inkstone_io`.
//!
//! | module | |
//! |---|---|
//! | [`model`] | what a log may hold, and comparing a log with it |
//! | [`verdict`] | opening what a crash left, comparing it, appending to it |
//! | [`history`] | operations on a log, from a seed, and what each means to the model |
//! | [`certificate`] | the result of a run, for machines and people |
//! | [`faults`] | a log in use on real kernel file systems whose disk fails |
//! | [`kernel`] | histories on real kernel file systems, on disks in memory that are cut at every write |
//! | [`any`] | any writer and reader, crashed in between |
//! | [`kill`] | writers that are killed with SIGKILL, and an outside witness |
//! | [`mistake`] | the mistake that is built into a log, in the copy that `.ci/mistaken` makes |
//! | [`mistakes`] | which lab catches which mistake, and how fast |
//! | [`raft`] | calls of a raft log, and what each means; the same labs look at it |
//! | [`sim`] | histories on the simulated disk, crashed at every instant |
//! | [`strategies`] | the plain ways in which programs write files, and what each loses |
#![forbid(unsafe_code)]

pub mod any;
pub mod certificate;
pub mod faults;
pub mod history;
pub mod keep;
pub mod kernel;
pub mod kill;
pub mod mistake;
pub mod mistakes;
pub mod model;
pub mod raft;
pub mod sim;
pub mod strategies;
pub mod verdict;
