//! Real kernel file systems on disks in memory.
//!
//! *Owns*: recording what a file system sends to its disk, and the states in which a power cut may
//! leave it. *May not touch*: who writes; the operating system, except through `inkstone_host`.
//!
//! | module | |
//! |---|---|
//! | [`image`], [`fault`], [`disk`], [`server`] | disks in memory, how they fail, and how the kernel reaches them |
//! | [`recording`], [`states`] | what reached a disk, as a file too; what a power cut may leave of it |
//! | [`machine`] | file systems on these disks: created, mounted, removed |

pub mod disk;
pub mod fault;
pub mod image;
pub mod machine;
pub mod recording;
pub mod server;
pub mod states;
