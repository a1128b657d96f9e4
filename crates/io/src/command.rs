//! What the command `inkstone` needs of the system, and no log: stdin whose reader can be stopped,
//! signals as the process found them.
//!
//! *Owns*: nothing of its own. *May not touch*: arguments, the terminal.

pub(crate) mod ignored;
pub(crate) mod input;
