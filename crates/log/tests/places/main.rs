//! The tests of where a log may be: file systems, full disks, directories that move, users and
//! containers. One program: the log's code is made for it once.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone --test places
//! -- moved::` runs one file.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "../../../../lab/host/tests/host_support/mod.rs"]
mod host_support;

mod file_systems;
mod full_disk;
mod moved;
mod odd_files;
mod one_writer;
mod surroundings;
