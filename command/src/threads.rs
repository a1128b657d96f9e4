//! Threads of the command.
//!
//! *Owns*: starting them, and what is said when the system refuses one. *May not touch*: what they
//! do.

use std::io;
use std::thread::Builder;

use inkstone_io::MORE_THREADS;

/// Starts a thread that nobody waits for.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    match Builder::new().name(name.into()).spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = format!("cannot start a thread ({name}): {error}; {MORE_THREADS}");
            Err(io::Error::new(error.kind(), why))
        }
    }
}
