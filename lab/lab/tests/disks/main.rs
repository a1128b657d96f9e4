//! The tests of the lab that write to real disks, as one program: one link.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-lab --test
//! disks -- bills::` runs one file.

#[path = "../support/mod.rs"]
mod support;

mod bills;
mod images;
mod log_bill;
mod measure;
