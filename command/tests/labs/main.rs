//! The tests of the commands that measure and that cut the power. One program, for cargo runs one
//! program after the other: while a test waits for a disk, another computes.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-cli --test
//! labs -- powerloss::` runs one file.

#[path = "../support/mod.rs"]
mod support;

mod ends;
mod lab;
mod lab_mishaps;
mod lab_users;
mod labels;
mod powerloss;
mod powerloss_any;
mod powerloss_check;
mod powerloss_faults;
mod powerloss_kernel;
mod watch;
