//! The tests of the format, as one program: one link.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-format --test
//! bytes -- prove::` runs one file.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

mod contradictions;
mod document;
mod prove;
mod round_trip;
mod second_reader;
