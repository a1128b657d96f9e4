//! The tests of devices, traces and sweeps on this machine's kernel, as one program: one link.
//!
//! *Owns*: which they are. *May not touch*: what each tests. `cargo test -p inkstone-host --test
//! kernel -- trace::` runs one file.

#[path = "../host_support/mod.rs"]
mod host_support;

mod devices;
mod sweep;
mod trace;
