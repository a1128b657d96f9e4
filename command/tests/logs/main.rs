//! The tests of the commands on a log. One program, for cargo runs one program after the other:
//! while a test waits for a process that it has started, another computes.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-cli --test
//! logs -- limits::` runs one file.

#[path = "../support/mod.rs"]
mod support;

mod beside;
mod errors;
mod limits;
mod log;
mod raft;
mod retention;
mod signals;
mod still_reader;
mod streams;
