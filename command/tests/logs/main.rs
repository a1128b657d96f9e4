//! The tests of the commands on a log. One program, for cargo runs one program after the other:
//! while a test waits for a process that it has started, another computes.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-cli --test
//! logs -- damaged::` runs one file.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/exit_codes.rs"]
mod tables;

mod beside;
mod copying;
mod damaged;
mod errors;
mod exit_codes;
mod limits;
mod log;
mod manual;
mod raft;
mod retention;
mod signals;
mod still_reader;
mod streams;
