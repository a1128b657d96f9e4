//! What the Inkstone log stores for several versions of openraft share, so that a directory that
//! one of them wrote can be opened by another. Programs use `inkstone-openraft` (openraft 0.10) or
//! `inkstone-openraft-0-9`, not this package.
//!
//! *Owns*: the bytes of payloads and of node names, which are on disk for ever; opening, splitting
//! appends that are too large, reading what is left of a range. *May not touch*: openraft, of any
//! version, and async runtimes.
//!
//! # The bytes of a payload
//!
//! The payload of an entry of the raft log, as the codec `Postcard` of the stores writes it. Its
//! first byte says what it is:
//!
//! | first byte | entry | the rest |
//! |---|---|---|
//! | 0 | blank | nothing |
//! | 1 | normal | the application's data, in postcard |
//! | 2 | membership | the configurations, then the nodes, in postcard |
//!
//! [Postcard's format](https://postcard.jamesmunns.com/wire-format) is specified, and does not
//! change within its versions 1.x. A membership is: the number of configurations; each as the
//! number of its voters, and their node ids, ascending; the number of nodes, learners too; each as
//! its node id and its node, ascending by id. Numbers of things are varints (seven bits a byte, the
//! lowest first). One configuration of the voters 1 and 2 with nodes that are empty, for node ids
//! that are `u64`:
//!
//! ```text
//! 02  01  02 01 02  02 01 02
//! ```
//!
//! The leader of an entry is in the raft log's own record: the term, and the name of the node
//! ([`NodeName`]).

#![forbid(unsafe_code)]

mod batch;
mod name;
mod payload;
mod read;
mod store;

pub use batch::Batch;
pub use name::NodeName;
pub use payload::{
    Membership, Payload, Postcard, decode, encode_blank, encode_membership, encode_normal,
};
pub use read::{MESSAGE_BYTES, bounds_of, entries_left};
pub use store::Stored;

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
