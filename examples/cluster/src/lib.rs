//! A key-value store on several machines: openraft over the Inkstone log. Take it as the start of
//! your own.
//!
//! *Owns*: the whole program but its command line. *May not touch*: how the log makes entries
//! durable.
//!
//! Read it in this order: [`types`] (what may be asked), [`machine`] (what that does),
//! [`snapshots`] and [`storage`] (what is on disk), `wire`, [`transport`] and `network` (between
//! nodes), [`node`] (one node, started and stopped), `server` and `answers` (what a node does with
//! what comes), [`client`] (who asks).

#![forbid(unsafe_code)]

mod answers;
pub mod client;
pub mod machine;
mod network;
pub mod node;
pub mod runtime;
mod server;
pub mod snapshots;
pub mod storage;
mod tail;
pub mod transport;
pub mod types;
mod wire;

pub use wire::{Answer, Applied, Commits, Leader, NodeStatus, Question, Written};
