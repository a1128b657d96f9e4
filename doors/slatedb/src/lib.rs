//! SlateDB's write-ahead log on a local disk, by the Inkstone log.
//!
//! A [`Wals`] is a directory with a log for each database. [`Wals::of`] returns what SlateDB's
//! builders take for one database; the [`Wals`] itself is the administrator:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use inkstone_slatedb::Wals;
//! # use slatedb::object_store::ObjectStore;
//! # async fn open(store: Arc<dyn ObjectStore>) -> Result<(), slatedb::Error> {
//! let wal = Wals::at("/var/lib/app/wal", store.clone()).of("orders");
//! let gc = slatedb::GarbageCollectorBuilder::new("orders", store.clone())
//!     .with_wal_gc(Arc::new(wal.clone()));
//! let db = slatedb::Db::builder("orders", store)
//!     .with_wal_writer(Box::new(wal))
//!     .with_gc_builder(gc)
//!     .build()
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! # The design
//!
//! - **A WAL id is an LSN.** One write batch is one record, one record is one WAL file. So a batch
//!   is never split, ids rise by one, and each WAL file has rows. A new log begins one after the
//!   last id that the manifest knows. An id whose record was never durable may be used again, since
//!   no reader saw it.
//! - **An append asks for durability at once.** The log commits concurrent batches in one group, so
//!   there is no timer. The callback of the record updates the status and notifies the listeners.
//!   Callbacks come in the order of the LSNs, and run without a lock.
//! - **A flush** returns the last LSN, and a future that waits until the log is durable up to it.
//!   The future is `Ok` only once the records are on stable storage.
//! - **Fencing.** The log's lock has one holder. In one process the new writer closes the log of
//!   the writer with the lower epoch, which commits its appends; from then on that writer returns
//!   `Fenced`. A writer in another process closes when it sees that its manifest is fenced. The new
//!   writer waits for the lock, and keeps checking whether it is fenced itself. With the lock it
//!   checks once more, since locks may be granted in another order than epochs.
//! - **The right log.** A log's header has the id of its owner, drawn when the log begins; an
//!   object beside the manifest has the same id (`owner.rs`). The log is durable first, then the
//!   object, then the first row. So a log that never had a row and has no object is no one's, and
//!   is begun again with another id; whatever else does not match is an error. Writers, readers,
//!   the collector and clones compare before they change, show or remove anything.
//! - **A lost or old log**: the object names a log that is not there; or the manifest has a WAL id
//!   that was durable, and the log does not reach it (`Options::expect_durable`). Then a new log
//!   begins only by a call for that ([`DatabaseWal::begin_anew`]).
//! - **GC** finds the lowest id that a manifest refers to, and calls `truncate_before`. Unused rows
//!   between two checkpoints stay. GC works in the writer's process, or without a writer.
//! - **The bound**: the log's files have at most [`Tuning::log_bytes_max`] bytes, since the log has
//!   that as its budget. An append that finds no room asks the newest manifest what the tree has,
//!   gives back the oldest of these rows, whoever refers to them, and waits while memtables are on
//!   their way. Rows that a checkpoint needs and that are gone are an error of its clone or reader.
//! - **A reader** in the writer's process reads the writer's log; elsewhere it reads the files
//!   beside the writer, without a lock, and sleeps on the writer's shared page. A bounded range
//!   that lacks a record is `WalTruncated`, as in SlateDB's own WAL; `DbReader` takes that for the
//!   end, so it is a data error where a checkpoint needs the row. So is a log without a writer that
//!   lacks rows which the manifest knows and the tree does not have.
//! - **Clone and delete** create a marker file first and remove it last. No writer and no reader
//!   opens a directory with the marker; another clone or deletion begins again. A clone shares no
//!   file, and has an id of its own.
//! - **A record** has a version, the sequence number, and its rows (docs/slatedb.md). The log's
//!   checksums cover every byte.
//!
//! *Owns*: the traits of `slatedb::wal`, over one log per database. *May not touch*: files, other
//! than a marker beside the files of the log; objects, other than the one that names the log.

#![forbid(unsafe_code)]

mod admin;
mod blocking;
mod bound;
mod error;
mod gc;
mod iterator;
mod owner;
mod place;
mod reader;
mod rows;
mod state;
mod wals;
mod writer;

pub use bound::Tuning;
pub use place::{Living, Place};
pub use rows::{Malformed, decode, encode};
#[doc(hidden)]
pub use wals::Seen;
pub use wals::{DatabaseWal, Wals};
#[doc(hidden)]
pub use writer::{ManifestView, Writer};

/// The program of the page that users begin with.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/slatedb.md")]
struct Page;
