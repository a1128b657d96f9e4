//! Tests of waiting for records (handles, futures, callbacks, wakers, listeners, watermarks).
//! One program: the log's code is made for it once.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone --test handles
//! -- waking::` runs one file.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "../support/wakers.rs"]
mod wakers;
#[path = "../support/watch.rs"]
mod watch;

mod awaiting;
mod callbacks;
mod hooks;
mod waking;
mod watermarks;
