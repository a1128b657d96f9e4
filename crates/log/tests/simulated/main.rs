//! The tests that need a simulated disk or a directory and nothing else of the machine, as one
//! program: one link, and the log's code is made for it once.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone --test
//! simulated -- basics::` runs one file.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "../support/every_kind.rs"]
mod every_kind;
#[path = "../support/gate.rs"]
mod gate;
#[path = "../support/history.rs"]
mod history;
#[path = "../support/wakers.rs"]
mod wakers;
#[path = "../support/watch.rs"]
mod watch;
#[path = "../support/watched.rs"]
mod watched;

mod beside_sim;
mod copying;
mod cuts;
mod damage;
mod directories;
mod extremes;
mod false_sync;
mod finding;
mod full_disk_sim;
mod gaps;
mod giving_back;
mod inspect;
mod lock_lost;
mod meddled;
/// What only the copy of the tree can show that `.ci/mistaken` makes.
#[cfg(inkstone_mistakes)]
mod mistaken;
mod naming;
mod padding;
mod reading;
mod refused_direct;
mod signatures;
mod steady;
mod tail;
mod trial;
