//! A whole replicated log in one thread, made from a seed: the same seed gives the same history,
//! byte for byte.
//!
//! *Owns*: time, the network, the faults, the clients and the checker. *May not touch*: how the
//! program works; it runs the example's own node, state machine, snapshots and answers, openraft,
//! the store and the log, on simulated disks. proof/cluster/README.md says what is not run.
//!
//! Read it in this order: [`round`] (one seed), [`world`] (what all share), [`machine`] (a node's
//! power, disk and flushes), [`network`], [`faults`], [`clients`], [`operator`] (who changes the
//! membership), the checkers [`check`] and [`members`], and [`witness`] and [`chronicle`], which
//! see what nodes do.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what a name says needs no second word")]

pub mod check;
pub mod chronicle;
pub mod clients;
pub mod faults;
pub mod machine;
pub mod members;
pub mod mistake;
pub mod network;
pub mod operator;
pub mod round;
pub mod witness;
pub mod world;
