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
//! let wal = Wals::at("/var/lib/app/wal").of("orders");
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
//! - **A lost or old log** is detected by the manifest: the manifest has a WAL id that was durable,
//!   and the log must reach that id (`Options::expect_durable`). So a lost directory, or an old
//!   copy, is an error and not a shorter database. If the manifest has ids, a new log begins only
//!   where the caller allows it ([`NewLog`]).
//! - **GC** finds the lowest id that a manifest refers to, and calls `truncate_before`. Unused rows
//!   between two checkpoints stay. GC works in the writer's process, or without a writer.
//! - **A reader** in the writer's process reads the writer's log; elsewhere it reads the files
//!   beside the writer, without a lock, and sleeps on the writer's shared page. A bounded range
//!   that lacks a record is `WalTruncated`, as in SlateDB's own WAL.
//! - **Clone and delete** create a marker file first and remove it last. No writer and no reader
//!   opens a directory with the marker; another clone or deletion begins again. A clone shares no
//!   file.
//! - **A record** has a version, the sequence number, and its rows (docs/slatedb.md). The log's
//!   checksums cover every byte.
//!
//! *Owns*: the traits of `slatedb::wal`, over one log per database. *May not touch*: files, other
//! than markers beside the files of the log.

#![forbid(unsafe_code)]

mod admin;
mod blocking;
mod error;
mod gc;
mod iterator;
mod place;
mod reader;
mod rows;
mod state;
mod wals;
mod writer;

pub use place::{Living, OsPlace, Place};
pub use rows::{Malformed, decode, encode};
pub use wals::{DatabaseWal, NewLog, Tuning, Wals};
#[doc(hidden)]
pub use writer::{ManifestView, Seen, Writer};

/// The program of the page that users begin with.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/slatedb.md")]
struct Page;
