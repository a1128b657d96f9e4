//! A log in use by several threads of a process of its own, which says what each call is and what
//! it returned. So what it was promised is known outside, whatever becomes of it.
//!
//! *Owns*: how the log is used, the lines, what follows from them. *May not touch*: how the process
//! is crashed ([`crate::kill`], [`crate::faults`]).
//!
//! | module | |
//! |---|---|
//! | [`usage`] | what the process does, as words on its command line |
//! | `lines` | what it says: a line before each call and a line after it |
//! | `worker` | the process |
//! | `promised` | what the log promised it, and comparing a log with that |

pub(crate) mod lines;
pub(crate) mod promised;
pub mod usage;
pub(crate) mod worker;
