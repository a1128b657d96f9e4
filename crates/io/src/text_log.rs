//! What the text log needs of the system, and no log: files that are only appended to, buffers that
//! outlive a killed process, outputs that nobody waits for.
//!
//! *Owns*: which of that this system has. *May not touch*: lines, rotation.

pub(crate) mod append_file;
#[cfg(target_os = "linux")]
pub(crate) mod memory;
#[cfg(target_os = "linux")]
pub(crate) mod stage_file;
pub(crate) mod stderr;
pub(crate) mod writer_lock;
