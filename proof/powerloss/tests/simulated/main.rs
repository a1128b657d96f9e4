//! The tests of the lab on simulated disks, as one program: the log's code is made for it once.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-powerloss
//! --test simulated -- lab::` runs one file.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod lab;
/// What only the copy of the tree can show that `.ci/mistaken` makes.
#[cfg(inkstone_mistakes)]
mod mistaken;
