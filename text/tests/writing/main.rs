//! The tests of a log that one process writes, as one program: one link.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-appender
//! --test writing -- rotate::` runs one file.

#[path = "../common/mod.rs"]
mod common;

mod full;
mod hooks;
mod lines;
mod rotate;
mod stream;
mod target;
mod trouble;
