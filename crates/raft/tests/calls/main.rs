//! The tests of a raft log's calls, one by one: what each promises, and what bad use gets. One
//! program: the log's code is made for it once.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-raft --test
//! calls -- callbacks::` runs one file. What is counted is in `counted.rs`, the whole contract in
//! `proof/powerloss/tests/things`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod bad_use;
mod callbacks;
mod entries;
mod full_disk;
mod groups;
mod inspect;
mod lost;
mod reading;
