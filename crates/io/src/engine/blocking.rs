//! A file on which an engine of blocking calls works.
//!
//! *Owns*: the trait, the error of a request that fits no buffer. *May not touch*: threads.

use std::fmt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::seam::{File, Persist};

/// A file on which an engine of blocking calls can work.
pub trait BlockingFile: File + fmt::Debug {
    /// Writes all of `bytes` at `offset` and makes them as durable as `persist` says before it
    /// returns.
    ///
    /// # Errors
    /// What the kernel answers, with the offset. See [`File::sync`] for what is known after an
    /// error.
    fn write_with(&self, bytes: &[u8], offset: u64, persist: Persist) -> Result<()>;
}

/// The error of a request for more bytes than its buffer has.
pub fn too_long(path: &Path, len: usize, room: usize) -> Error {
    Error::invalid("submit", path, format!("{len} bytes were asked for, the buffer has {room}"))
}
