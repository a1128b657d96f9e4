//! A key-value store on several machines, to copy: openraft over the Inkstone log.
//!
//! *Owns*: the whole program but its command line. *May not touch*: how the log makes entries
//! durable.
//!
//! Read it in this order: [`types`] (what may be asked), [`machine`] (what that does),
//! [`snapshots`] and [`storage`] (what is on disk), [`wire`] (what goes over a connection),
//! [`network`] (from node to node), [`node`] (one node), `answers` (what a node answers to a
//! client), [`server`] (its connections), [`client`] (who asks).

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what a name says needs no second word")]

mod answers;
pub mod client;
pub mod machine;
pub mod network;
pub mod node;
pub mod server;
pub mod snapshots;
pub mod storage;
pub mod types;
pub mod wire;
