//! The tests of the commands on a log. One program, for cargo runs one program after the other:
//! while a test waits for a process that it has started, another computes.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-cli --test
//! logs -- repair::` runs one file.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/exit_codes.rs"]
mod tables;

mod copying;
mod exit_codes;
mod few_threads;
mod foreign_names;
mod log;
mod manual;
mod raft;
mod repair;
mod retention;
mod signals;
mod size_limit;
mod still_reader;
mod tune;
mod words;
