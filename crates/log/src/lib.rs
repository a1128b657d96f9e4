//! A crash-safe append-only log that overwrites prepared and recycled segments.
//!
//! *Owns*: ordering, durability, the life of segments. *May not touch*: the operating system: the
//! log is written over the traits of `inkstone-io` ([`Directory`] is one of them), and runs
//! unchanged on the simulated disk of `inkstone-sim`.
//!
//! ```
//! use inkstone::{Log, Lsn, Options};
//!
//! # fn main() -> inkstone::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let path = directory.path().join("orders.log");
//! let log = Log::open(&path, Options::default())?;
//! println!("{}", log.recovery());
//!
//! let lsn = log.append_durable(b"one record")?; // durable when it returns
//! let first = log.append(b"many records")?; // or appended without waiting,
//! let second = log.append(b"share one flush")?;
//! first.wait()?; // and waited for, or awaited
//! second.wait()?;
//!
//! for record in log.reader().records(Lsn::FIRST) {
//!     println!("{} bytes", record?.bytes.len());
//! }
//! log.truncate_before(lsn)?;
//! log.close()
//! # }
//! ```
//!
//! Each way to wait exists for threads and for tasks, which need no runtime of ours:
//!
//! | for | a thread calls | a task awaits | or is called |
//! |---|---|---|---|
//! | a record of one's own | [`Append::wait`] | the [`Append`] | [`Append::on_durable`] |
//! | everything up to an LSN | [`Log::sync`] | [`Log::durable_at`] | |
//! | each move of the watermark | | [`Watermarks::changed`] | |
//! | the next record, as a reader | [`Cursor::next_within`] | [`Cursor::next_async`] (not from [`Reader::open`]) | |
//! | room in the buffers | [`Log::append`] | [`Log::append_async`] | |
//!
//! A record whose bytes are in several places is appended without joining them: [`Parts`].
//!
//! Begin with [`Log`], [`Options`] and [`Reader`]. docs/durability.md says what the log promises,
//! docs/assumptions.md what it assumes of the machine, docs/format.md what it writes.

#![forbid(unsafe_code)]

mod append;
mod background;
mod change;
mod choice;
mod commit;
mod doubts;
mod error;
mod event;
pub mod inspect;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod open;
mod options;
mod panics;
mod payload;
mod read;
mod recovery;
mod report;
mod segment;
mod stats;
mod strategy;
mod sync;
mod tail;
mod walk;
mod watermarks;

pub use append::Append;
pub use choice::{Asks, Choice};
pub use error::{Corruption, Error, Poison, Result};
pub use event::{BoxedListener, Event, SealedSegment};
pub use inkstone_format::{Epoch, LogId, Lsn, Position, Reason, SegmentNumber, Verdict};
// What the public signatures and fields of this crate name.
pub use inkstone_io::{
    Access, AlignedBuf, AnyDirectory, Barriers, Capabilities, CopyOnWrite, DeviceFacts,
    DeviceNumber, DioAlignment, Directory, DirectoryCalls, DirectoryIdentity, Durability,
    EngineKind, Error as IoError, MountFacts, NamedChoice, OsDirectory, Preparation, Reuse,
    Strategy, seam,
};
pub use log::Log;
pub use options::Options;
pub use payload::{AsRecord, Parts};
pub use read::cursor::{Cursor, OwnedRecord, Record};
#[doc(hidden)]
pub use read::place::Place;
pub use read::reader::Reader;
pub use report::Recovery;
pub use stats::{Stats, Times};
pub use strategy::rule;
pub use watermarks::{DurableAt, Watermarks};

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
