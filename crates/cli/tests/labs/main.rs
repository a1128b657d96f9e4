//! The tests of the commands that measure and that cut the power. One program, for cargo runs one
//! program after the other: while a test waits for a disk, another computes. What a killed lab left
//! in memory is removed by any lab, so that is tested apart, in `lab_mishaps.rs`.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-cli --test
//! labs -- powerloss_kill::` runs one file.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/exit_codes.rs"]
mod tables;

mod bench;
mod claims;
mod compare;
mod disks;
mod exit_codes_lab;
mod lab;
mod lab_experiments;
mod labels;
mod labels_text;
mod powerloss;
mod powerloss_any;
mod powerloss_any_kernel;
mod powerloss_faults;
mod powerloss_kernel;
mod powerloss_kill;
mod powerloss_strategies;
mod report;
