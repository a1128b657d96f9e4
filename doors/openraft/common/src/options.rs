//! Options under which a store for openraft can work.
//!
//! *Owns*: which of them it cannot. *May not touch*: files.

use inkstone_raft::{Options, Result};

/// Refuses options under which what openraft awaits would never come.
///
/// # Errors
/// [`inkstone::Error::Invalid`].
pub fn check_options(options: &Options) -> Result<()> {
    if options.has_own_thread() {
        return Ok(());
    }
    let why = "own_thread(false): openraft awaits its entries and votes, and no thread would make them durable";
    Err(inkstone::Error::Invalid(why.into()).into())
}
