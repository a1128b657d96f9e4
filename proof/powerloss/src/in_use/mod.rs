//! A log in use by a process of its own, which says what each call is and what it returned. So what
//! was promised is known outside, whatever becomes of the process and of its disk.
//!
//! *Owns*: how the log is used, the lines, what follows from them. *May not touch*: how the process
//! is crashed ([`crate::log_run`], [`crate::kill`], [`crate::faults`]).
//!
//! | module | |
//! |---|---|
//! | [`usage`] | what the process does, as words on its command line |
//! | `lines` | what it says: a line before each call and a line after it |
//! | `worker` | the process |
//! | [`judging`] | the lines, told to the judge of a log; and looking at what a crash left |

pub mod judging;
pub(crate) mod lines;
pub mod usage;
pub(crate) mod worker;
