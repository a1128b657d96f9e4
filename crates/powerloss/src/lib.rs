//! Cuts the power at any write and looks at what is left of a log: nothing acknowledged may be lost, nothing shown may be
//! taken back, nothing may come that was not appended.
//!
//! *Owns*: crash states and the checker. *May not touch*: the insides of the log, which it uses as everybody does; the
//! operating system, which it reaches through `inkstone_io`.
//!
//! | module | |
//! |---|---|
//! | [`model`] | what a log may hold, and comparing a log with it |
//! | [`verdict`] | opening what a crash left, comparing it, appending to it |
//! | [`history`] | what somebody does with a log, from a seed, and what each operation means to the model |
//! | [`certificate`] | what a run has shown, for machines and people |
//! | [`faults`] | a log in use on real kernel file systems whose disk fails |
//! | [`kernel`] | histories on real kernel file systems, on disks in memory that are cut at every write |
//! | [`any`] | any writer and reader, crashed in between |
//! | [`kill`] | writers that are killed with SIGKILL, and an outside witness |
//! | [`mistakes`] | which lab catches which mistake that is built in, and how fast |
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
pub mod mistakes;
pub mod model;
pub mod sim;
pub mod strategies;
pub mod verdict;
