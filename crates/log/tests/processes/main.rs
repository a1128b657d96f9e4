//! The tests with several processes: readers beside a writer, followers, processes that are killed.
//! One program: the log's code is made for it once. Forks have their own (`forks.rs`).
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone --test
//! processes -- beside::` runs one file.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod beside;
#[cfg(target_os = "linux")]
mod followed;
#[cfg(target_os = "linux")]
mod publishing;
