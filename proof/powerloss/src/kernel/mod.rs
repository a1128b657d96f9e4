//! The power-loss lab under real kernel file systems.
//!
//! *Owns*: recording what a file system sends to its disk while a log is written on it, and
//! checking every state that a power cut may leave. *May not touch*: the insides of the log; the
//! operating system, except through `inkstone_io`.
//!
//! | module | |
//! |---|---|
//! | [`image`], [`fault`], [`disk`], [`server`] | disks in memory, how they fail, and how the kernel reaches them |
//! | [`recording`], [`states`] | what reached a disk, as a file too; what a power cut may leave of it |
//! | [`machine`], [`each`] | file systems on these disks: created, mounted, removed; several of them in turn |
//!
//! These know nothing of a log: any program's writes can be recorded and cut. The following do:
//!
//! | module | |
//! |---|---|
//! | [`spec`], [`writer`], [`record`] | what is done with a log, the process that does it, and recording it |
//! | [`chronicle`], [`may`] | what is allowed at each moment of a recording, of a log or of a raft log (`raft.rs`) |
//! | [`replay`], [`project`] | states that the kernel mounts, and those that follow from one without a mount |
//! | [`run`] | all of it, and the certificate |

pub mod chronicle;
pub mod disk;
pub mod each;
pub mod fault;
pub mod image;
pub mod machine;
pub mod may;
pub mod project;
mod raft;
pub mod record;
pub mod recording;
pub mod replay;
pub mod run;
pub mod server;
pub mod spec;
pub mod states;
pub mod writer;
