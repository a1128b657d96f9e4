//! The tests of logs whose process ends, is killed and starts again, as one program: one link. They
//! fork, and take turns.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-appender
//! --test lives -- start::` runs one file.

#[path = "../common/mod.rs"]
mod common;

mod ends;
#[cfg(inkstone_mistakes)]
mod mistaken;
mod random;
mod start;
