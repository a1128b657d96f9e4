//! A log store for openraft 0.10 that is durable by construction, on one [`inkstone`] log. openraft
//! 0.10 is an *alpha*: this version is for `0.10.0-alpha.37` and no other. For openraft 0.9 there
//! is `inkstone-openraft-0-9`, with the same bytes on disk.
//!
//! *Owns*: what openraft's calls and types are in [`inkstone_raft`]. *May not touch*: the rules of
//! a raft log and its records, which are `inkstone-raft`'s; the bytes of payloads, which are
//! `inkstone-openraft-common`'s.
//!
//! Begin with [`LogStore`]. It is given to [`openraft::Raft::new`]; the state machine, its
//! snapshots and the network are yours.
//!
//! ```
//! use inkstone_openraft::{LogStore, Options};
//! use openraft::RaftLogReader;
//! use openraft::type_config::alias::VoteOf;
//! use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
//! use openraft::testing::blank_ent;
//!
//! openraft::declare_raft_types!(
//!     /// Text in, text out.
//!     pub Types: D = String, R = String
//! );
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), std::io::Error> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("log");
//! let mut store = LogStore::<Types>::open(&path, Options::new())?;
//! store.save_vote(&VoteOf::<Types>::new_committed(1, 7)).await?; // durable when it returns
//! // It waits for the callback.
//! store.blocking_append([blank_ent::<Types>(1, 7, 0), blank_ent::<Types>(1, 7, 1)]).await?;
//! store.close()?;
//! drop(store);
//!
//! let mut store = LogStore::<Types>::open(&path, Options::new())?;
//! assert_eq!(store.get_log_state().await?.last_log_id.map(|id| id.index), Some(1));
//! let mut reader = store.get_log_reader().await;
//! assert_eq!(reader.read_vote().await?, Some(VoteOf::<Types>::new_committed(1, 7)));
//! # Ok(())
//! # }
//! ```
//!
//! # What each call promises
//!
//! | call | when it returns |
//! |---|---|
//! | `append` | the entries can be read; its callback comes when they are durable, from the log's own thread or one that waits for the log |
//! | `save_vote`, `truncate_after` | durable, with everything before; no thread waits meanwhile |
//! | `purge` | durable; the segments that nothing needs are given back |
//! | `save_committed` | readers see it. It is durable with the next record: an older one may be found after a crash, which is safe |
//!
//! docs/raft.md says what that means across a kill and a power loss.
//!
//! # What is on disk
//!
//! The raft log's own records, which docs/raft.md has byte by byte. In these the leader of
//! an entry or vote is its term and the name of its node ([`NodeName`]), and the payload is what
//! the [`Codec`] makes of the entry. [`Postcard`] is the one that is there; its bytes are on the
//! page of `inkstone-openraft-common`. They are not openraft's own serialization, so that a new
//! version of openraft does not change them.

#![forbid(unsafe_code)]

mod codec;
mod copy;
mod leader;
mod reader;
mod store;

pub use codec::Codec;
pub use inkstone_openraft_common::{NodeName, Postcard};
pub use inkstone_raft::{Groups, Options, StreamsOptions};
pub use leader::StoredLeader;
pub use reader::LogReader;
pub use store::LogStore;

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
