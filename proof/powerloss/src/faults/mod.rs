//! Disks that fail below a real kernel file system while a log is in use on it.
//!
//! *Owns*: which faults there are, the process that uses the log, watching it, and judging what it
//! said and what is left after a power cut. *May not touch*: the insides of the log; disks and file
//! systems, except through [`crate::kernel`].
//!
//! | module | |
//! |---|---|
//! | [`plan`] | the faults, and arming a disk with one |
//! | [`worker`] | the process that uses the log: threads that append, what they say of each call |
//! | [`words`] | its lines |
//! | [`watch`] | starting it, reading its lines, noticing that it hangs |
//! | [`told`] | what the log promised it, as a rule for what must be found |
//! | [`judge`] | states that a power cut leaves, on a sound disk, mounted and compared |
//! | [`round`], [`run`] | one use with one fault; all of them, and the certificates |
//!
//! The log runs in a process of its own: a call that hangs in the kernel hangs there, while the
//! process that serves the disk reports which call it is, and repairs the disk so that the other
//! can be killed.

pub mod judge;
pub mod plan;
pub mod round;
pub mod run;
pub mod told;
pub mod watch;
pub mod words;
pub mod worker;
