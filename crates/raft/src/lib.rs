//! A raft log that is durable by construction, on an [`inkstone`] log. It is free of any
//! framework.
//!
//! *Owns*: what the records of a raft log are, and the rules of their order. *May not touch*: the
//! operating system; files and durability are the log's. It runs unchanged on the simulated disk of
//! `inkstone-sim`.
//!
//! Entries, votes, truncations and purges are records of *one* order, so one flush covers a vote
//! with everything before it.
//!
//! ```
//! use inkstone_raft::{Leader, NewEntry, Options, RaftLog, Vote};
//!
//! # fn main() -> inkstone_raft::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let path = directory.path().join("raft");
//! let raft = RaftLog::open(&path, Options::new().raft_group(7))?;
//! let leader = Leader::of_term(1);
//! raft.save_vote(&Vote::new(leader.clone()))?; // durable when it returns
//!
//! let entry = NewEntry { leader: &leader, index: 1, payload: b"set x = 1" };
//! let (durable, wait) = std::sync::mpsc::channel();
//! raft.append(&[entry], move |result| durable.send(result).expect("somebody waits"))?;
//! // It is readable when `append` returns.
//! assert_eq!(&*raft.entry(1)?.expect("it was appended").payload, b"set x = 1");
//! wait.recv().expect("it is called once")?; // durable when it is called
//!
//! raft.save_committed(1)?; // rides with the next record
//! raft.close()
//! # }
//! ```
//!
//! Begin with [`RaftLog`] and [`Options`], or with [`Groups`] for many raft groups in one log: they
//! share every flush. docs/raft.md says what each call promises, and
//! has the records byte by byte.

#![forbid(unsafe_code)]

mod batch;
mod draft;
mod error;
mod found;
mod group;
mod groups;
pub mod inspect;
mod memory;
mod note;
mod options;
mod raft_log;
mod reader;
mod record;
mod runs;
mod state;
mod sync;
mod tail;
mod words;

pub use batch::Batch;
pub use error::{Error, Result};
pub use groups::Groups;
/// How a log of many groups is opened, what it holds, and why it cannot be used.
pub use inkstone_streams::{
    Error as StreamsError, Options as StreamsOptions, Stats as StreamsStats,
};
pub use options::Options;
pub use raft_log::RaftLog;
pub use reader::RaftReader;
pub use words::{Bounds, Entry, EntryId, Leader, NewEntry, Vote};

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
