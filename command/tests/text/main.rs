//! The tests of `inkstone tee`. One program, for cargo runs one program after the other: while a
//! test waits for a deadline, another computes. A frozen disk is apart, in `tee_hangs.rs`: a sync
//! of every disk would wait for it.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-cli --test
//! text -- tee_rounds::` runs one file.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tee.rs"]
mod with_tee;

mod tee;
mod tee_alone;
mod tee_deadline;
mod tee_ends;
mod tee_rounds;
