// *Owns*: ordering, durability, the life of segments. *May not touch*: the operating system: the
// log is written over the traits of `inkstone-io` (`Directory` is one of them), and runs unchanged
// on the simulated disk of `inkstone-sim`.

//! A crash-safe, append-only log of records in one directory, as a database or a queue keeps one: a
//! program that must not lose data writes each change to its log before it acts on it. The log
//! overwrites blocks that are already written, so that a durable commit is one write and one flush;
//! threads and tasks that commit at the same time share them.
//!
//! ```
//! use inkstone::{Log, Lsn, Options};
//!
//! # fn main() -> inkstone::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let path = directory.path().join("payments");
//! let log = Log::open(&path, Options::default())?;
//! let lsn = log.append_durable(b"one record")?; // durable when it returns
//! let append = log.append(b"another record")?; // does not wait: appends share a flush
//! append.wait()?; // or `.await`, with any runtime or none
//! for record in log.reader().records(Lsn::FIRST) {
//!     println!("{} bytes", record?.bytes.len());
//! }
//! log.truncate_before(lsn)?; // removes the records before it
//! log.close()
//! # }
//! ```
//!
//! # Guarantees
//!
//! - *When a wait has returned `Ok`*, the record and every one before it are on stable storage:
//!   they survive a killed process, a kernel panic and a power loss.
//! - *After any crash* an opening shows a prefix of what was appended, at least up to the last
//!   record that was waited for: each whole, none twice, none that was never appended. A batch is
//!   there as a whole or not at all. What one opening has shown, no later crash takes back.
//! - *Damage* to a durable record is an error with file and offset ([`Error::Corrupt`]); the log
//!   never just ends earlier (for the newest records from 100 ms after the last append on).
//! - *After a failed write or sync* every later append gets the first cause ([`Error::Poisoned`]).
//!   No sync is retried. Records that were durable stay readable.
//! - *A full disk* is an error that can be retried ([`Error::NoRoom`]). Reading and truncating work
//!   with no byte free.
//! - *One writer*: a second one is refused ([`Error::Locked`]). Readers of other processes read
//!   beside it ([`Reader::open`]).
//!
//! # Where to begin
//!
//! [`Log`] appends, waits and truncates. [`Options`] say how. A [`Reader`] reads in order, by LSN,
//! and follows. [`Recovery`] says what an opening found, [`Event`] what happens meanwhile,
//! [`Stats`] what happened. [`inspect`] verifies, copies and salvages.
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
//! In the repository, docs/durability.md has every promise with its test, docs/assumptions.md what
//! the log assumes of the machine, docs/format.md what it writes.

#![forbid(unsafe_code)]

mod append;
mod background;
mod change;
mod choice;
mod commit;
mod directory;
mod doubts;
mod error;
mod event;
pub mod inspect;
mod log;
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
pub use choice::{Asks, Choice, Trial, Tried};
#[doc(hidden)]
pub use directory::find_directory;
pub use error::{Corruption, Cure, Error, Poison, Result};
pub use event::{Event, SealedSegment};
pub use inkstone_format::{Epoch, LogId, LogKind, Lsn, Position, Reason, SegmentNumber, Verdict};
pub use inkstone_io::{
    Access, AnyDirectory, Directory, Durability, Error as IoError, OsDirectory, Preparation,
};
pub use log::Log;

pub use options::Options;
pub use payload::{AsRecord, Parts};
pub use read::cursor::{Cursor, OwnedRecord, Record};
#[doc(hidden)]
pub use read::place::{Place, Start};
pub use read::reader::Reader;
pub use recovery::headers::kind_of;
pub use report::Recovery;
pub use stats::{Stats, Times};
pub use strategy::rule;
pub use watermarks::{DurableAt, Watermarks};

/// The system below the log, as the log knows it, and the traits of a directory of another kind.
/// Public signatures and fields name these types, and few programs need them.
pub mod system {
    pub use inkstone_io::{
        AlignedBuf, Barriers, Capabilities, CopyOnWrite, DeviceFacts, DeviceNumber, DioAlignment,
        DirectoryCalls, DirectoryIdentity, MountFacts, NamedChoice, Reuse, Strategy, seam,
    };
}

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
