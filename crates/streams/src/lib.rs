// *Owns*: what the records of a log with streams are, and where the records of each stream lie.
// *May not touch*: the operating system; files and durability are the log's. It runs unchanged on
// the simulated disk of `inkstone-sim`.

//! Many streams in one durable log: raft groups, queues, topics. They share every flush, and an
//! idle stream keeps no old segments on the disk.
//!
//! A *stream* has an id and dense numbers of its own, from a first one that its creator chooses.
//!
//! ```
//! use inkstone_streams::{Batch, Options, Streams};
//!
//! # fn main() -> inkstone_streams::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let path = directory.path().join("queues");
//! let streams = Streams::open(&path, Options::new())?;
//! streams.create(7, 1)?;
//! streams.create(8, 1)?;
//! let mut batch = Batch::new();
//! batch.append(7, b"an order").append(8, b"its invoice");
//! streams.apply(&batch)?.wait()?; // both are durable, by one flush
//!
//! assert_eq!(streams.reader().get(7, 1)?, b"an order");
//! for record in streams.reader().records(8, 1) {
//!     println!("{}", record?.number);
//! }
//! streams.truncate_before(7, 2)?; // its space is freed, whatever other streams keep
//! streams.close()
//! # }
//! ```
//!
//! A record that was waited for is durable with all before it, in whichever stream, as in the log
//! (`inkstone`, "Guarantees"). A [`Batch`] over several streams is there as a whole or not at all.
//!
//! Begin with [`Streams`], [`Batch`] and [`StreamsReader`]. docs/streams.md in the repository has
//! the model, the bytes and the bounds.

#![forbid(unsafe_code)]

mod batch;
mod error;
mod following;
mod house;
#[doc(hidden)]
pub mod inspect;
mod mover;
mod options;
mod read;
mod record;
mod state;
mod stats;
mod streams;
mod sync;
mod words;
mod writer;

pub use batch::Batch;
pub use error::{Error, Result};
pub use options::Options;
pub use read::cursor::StreamCursor;
pub use read::reader::StreamsReader;
pub use stats::Stats;
#[doc(hidden)]
pub use streams::Tries;
pub use streams::{Streams, Written};
pub use words::{Bounds, NOTE_BYTES_MAX, Record, SectionUsage, StreamUsage, Usage};

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
