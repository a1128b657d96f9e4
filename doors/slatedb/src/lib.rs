//! SlateDB's write-ahead log on a local disk, by the Inkstone log.
//!
//! A [`Wals`] is a directory in which each database has a log of its own; [`Wals::of`] gives what
//! SlateDB's builders take for one database, and the [`Wals`] itself is the administrator:
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
//!   is never parted, ids rise by one, and each WAL file holds rows. A new log begins one after the
//!   replay point of the manifest. An id whose record was never durable may be given again: nobody
//!   was shown it.
//! - **An append asks for durability at once.** The log commits what waits together in one group,
//!   so there is no timer. The callback of the record moves the status and tells the listeners.
//!   Callbacks come in the order of the LSNs, and they run while nothing is locked.
//! - **A flush** answers with the last LSN given, and with a future of the watermark. The future is
//!   `Ok` only when the log says that the records are on stable storage.
//! - **Fencing.** The log's lock has one holder. In one process the new writer closes the log of
//!   one with a lower epoch, which commits what it had; from then on that one answers `Fenced`. A
//!   writer in another process sees its manifest fenced and closes; the new one waits for its lock,
//!   and asks the manifest again and again whether it is itself fenced. With the lock it asks once
//!   more: epochs may have come in another order than locks.
//! - **The log of another time** is found by the manifest. It knows a WAL id that was durable, and
//!   the log is opened with that as a bound (`Options::expect_durable`). So a directory that was
//!   lost, or is older than the database, is an error and no shorter database. A new log begins
//!   under a manifest that knows of ids only where the caller says so ([`NewLog`]).
//! - **GC** finds the lowest id that a manifest refers to, and calls `truncate_before`. Holes
//!   between checkpoints stay. It works in the process that writes, or where nobody writes.
//! - **A reader** in the process of the writer reads the writer's log; elsewhere it reads the files
//!   beside the writer, without a lock, and sleeps on the writer's shared page. A bounded range
//!   that lacks a record is `WalTruncated`, as SlateDB's own WAL answers.
//! - **Clone and delete** put a marker into the directory first and take it away last. Whoever
//!   finds the marker begins again; nothing opens such a directory. A clone shares no file.
//! - **A record** has a version, the sequence number, and its rows (docs/slatedb.md). The log sums
//!   every byte.
//!
//! *Owns*: the traits of `slatedb::wal` over one log a database. *May not touch*: files other than
//! the marker, which lies beside the files of the log.

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
