//! A text log writer: it takes a service's log lines through swapped buffers to a rotating file. A
//! call does not wait for the disk while there is room, no line is lost silently, and with
//! [`Survive::Kill`] a killed process loses none at all.
//!
//! ```
//! use std::io::Write as _;
//! use inkstone_appender::{Keep, LogWriter, Rotation, Survive};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("app.log");
//! let (log, guard) = LogWriter::builder(path)
//!     .rotate(Rotation::new().at_bytes(64 << 20))
//!     .keep(Keep::new().files(10))
//!     .survive(Survive::Kill)
//!     .open()?;
//!
//! let mut writer = log.clone();                       // one for each thread, or share one
//! writeln!(writer, "request {} served", 7)?;          // into a buffer; one call is one line
//! guard.flush(std::time::Duration::from_secs(5))?;    // only if it must be in the file now
//! guard.close()?;                                     // all is in the file, or the error says why
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From tracing-appender
//! With the feature `tracing`, a [`LogWriter`] is what `tracing_subscriber::fmt().with_writer`
//! takes: `tracing_appender::non_blocking(file)` becomes `LogWriter::builder(path).open()?`, which
//! returns a writer and a guard as before. The guard must live until the end of `main`. Lines are
//! not dropped unless [`WhenFull`] says so. `examples/text-log` is a whole example. (A logger that
//! calls `flush` for every record, as env_logger does with a piped target, gets a real flush for
//! every record.)
//!
//! # How it works
//! A line is copied into the current buffer under a short lock: no allocation, no system call. A
//! full buffer, or one that is [`Builder::flush_every`] old, goes to the output thread, and a free
//! one takes its place. The output thread is woken at most once for each buffer, and holds no lock
//! while it writes. Opening allocates all buffers; there are never more. The lines of all threads
//! are in one order, the order in which they were put.
//!
//! # What survives what
//! | | accepted lines that are lost |
//! |---|---|
//! | [`Guard::close`], or dropping it | none |
//! | a kill, [`Survive::Nothing`] | those in the buffers |
//! | a kill, [`Survive::Kill`] | none, once the log is opened again |
//! | a power loss, [`Survive::Nothing`] or [`Survive::Kill`] | those that the operating system had not written back |
//! | a power loss, [`Survive::PowerLoss`] | those since the last sync |
//!
//! # One log, one writer
//! Two writers of one log would rename and compress what the other one still writes. So the log's
//! file is locked, by whatever name or user it is opened. A second opening, in this process or
//! another, waits for the first one to end: for [`Builder::drain_timeout`] and two seconds. Then it
//! is refused. On a file system without locks, and where a sandbox or a security module lets the
//! process take none, an event says that nothing keeps a second writer away. In a forked child
//! every call is an error (it may open another log, and this one once its parent has ended).
//!
//! # Your code in its threads
//! A hook, a [`Disk`] and a clock of your own run in the log's threads, while the log holds no
//! lock. Panics there are caught: after one in the hook the log goes on; one in the disk or the
//! clock ends the log, and every writer gets an error. Code that does not return blocks the log. A
//! hook may write to the log, but not wait for it: flushing and closing are errors there, and a log
//! that a hook closes ends by itself.
//!
//! # Features
//! `tracing`: [`LogWriter`] is a `MakeWriter`. `gzip`: [`Compression`].
//!
//! *Owns*: text lines, their files, rotation. *May not touch*: the log of records; system calls
//! ([`inkstone_io`] makes them).
#![forbid(unsafe_code)]

// The floor plan. A file uses only files above it in this list; a line's way is the six with a
// number.
//
// | file | owns |
// |---|---|
// | `time`, `disk` | dates and periods; the seam to the disk, places in files |
// | `notice`, `event`, `options` | counters and notices; events and where they go; plain options |
// | `buffer`, `inbox`, `state` (2) | the words beside a buffer's bytes; those of a stream that were just read; which buffer is where, dropping, counts |
// | `shared` (1), `stream` | the lock, waiting and waking; text that comes as a stream |
// | `rotated`, `folder` | rotated files and their limits; the directory, one writer for a log |
// | `janitor` (6) | compressing and removing, in a thread that nobody waits for |
// | `output` (5) | the current file: opening, rotating, syncing |
// | `passage` (4) | how much of one buffer is in which file |
// | `stage_contents`, `recover`, `stage` | what a stage holds; appending it; finding and keeping stages |
// | `output_thread` (3) | when a buffer is written; retries, notices, the end |
// | `builder`, `writer`, `opening` | what can be chosen; the handle and the guard; the order of an opening |
//
// Invariants: a buffer's length is stored after its bytes, and its place before its first byte is
// written there, since a kill may come between any two stores. No thread holds the lock while a
// hook runs, or during I/O but for the stage's: a buffer gets its memory under it, once, and a
// stage that was removed is made again under it. All that a rotation needs room for comes before
// its rename. After the log is closed the output thread looks for lines once more. A line counts as
// written when its last byte is in a file. The number of the first abandoned buffer stays: no flush
// and no sync goes past it.
//
// Decided, with reasons: `O_APPEND`, not pwrite, so that `copytruncate` leaves no hole. A failed
// sync stays, as a poison would, but lines go on: a text log that stops for it would lose more. The
// lock is on the log's file: who may write the log may lock it, nothing is left behind, a hard link
// leads to it.

mod buffer;
mod builder;
mod disk;
mod event;
mod folder;
mod inbox;
mod janitor;
mod notice;
mod opening;
mod options;
mod output;
mod output_thread;
mod passage;
mod recover;
mod rotated;
mod shared;
mod stage;
mod stage_contents;
mod state;
mod stream;
mod time;
mod writer;

pub use builder::Builder;
pub use disk::{Disk, LogFile, OsDisk};
pub use event::{Event, Recovery, WaitingLines};
pub use inkstone_io::{AppendFacts, Error, OsDirectory, Result};
pub use notice::Stats;
pub use options::{Compression, Keep, Rotation, Survive, WhenFull};
pub use stage::{take_lines, waiting_lines};
pub use stream::Stream;
pub use time::stamp;
pub use writer::{Guard, LogWriter};

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
