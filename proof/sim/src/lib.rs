//! A disk in memory that lies the way disks lie, from a seed.
//!
//! *Owns*: a model of page cache, device cache, medium and directory, its faults, and every state
//! that a power loss may leave. *May not touch*: the operating system. It implements the traits of
//! `inkstone_io`, and code over those traits cannot tell the difference.
//!
//! ```
//! use inkstone_io::{Directory, File, OpenFile, SyncKind};
//! use inkstone_sim::{DiskOptions, SimDisk};
//!
//! let disk = SimDisk::new(7, DiskOptions::default());
//! let directory = disk.directory("/log");
//! let file = directory.open("a", &OpenFile::new_file())?;
//! file.write_at(b"safe", 0)?;
//! file.sync(SyncKind::Data)?;
//! directory.sync()?;
//! file.write_at(b"lost?", 4)?;
//! for found in disk.power_cut().subsets().expect("few items") {
//!     let file = found.directory("/log").open("a", &OpenFile::existing())?;
//!     let mut bytes = [0; 4];
//!     file.read_at(&mut bytes, 0)?;
//!     assert_eq!(&bytes, b"safe");
//! }
//! # Ok::<(), inkstone_io::Error>(())
//! ```
//!
//! # The rules
//!
//! *Bytes*
//! 1. A buffered write is in the page cache, a direct one in the device's cache. Both are volatile,
//!    by sectors of [`DiskOptions::sector_bytes`], in order of arrival, each sector with the number
//!    of its write. A buffered write of part of a sector dirties the whole sector as it is in the
//!    page cache.
//! 2. A sync of a file writes its pages back, commits its metadata, and flushes the device. The
//!    flush makes *every* file's sectors in the device's cache durable (unless
//!    [`DiskOptions::flush_is_global`] is off), but only in blocks whose metadata is on the medium
//!    already, and no other file's pages. fdatasync includes growth.
//! 3. The kernel writes a dirty range back by itself now and then ([`DiskOptions::writeback_ppm`]),
//!    which makes nothing durable.
//! 4. A durable write (`RWF_DSYNC`, `O_DSYNC`) is durable on completion, with its growth. A direct
//!    one over written blocks is one FUA write and makes nothing else durable; any other is a
//!    write, the metadata and a flush. `O_SYNC` always commits metadata.
//! 5. When a newer version of a sector is on the medium, no older one can come back.
//! 6. A direct transfer writes the dirty pages of its range back first. A direct read sees the
//!    device, not clean pages, whichever handle it comes from; a direct write replaces the pages
//!    that it touches. [`File::forget_cached`](inkstone_io::File::forget_cached) drops the clean
//!    pages of a file; dirty ones stay.
//!
//! *Files and names*
//! 7. Size is metadata: growth is an item of its own, kept or lost at a crash separately from the
//!    bytes. Bytes beyond the size found are gone. Blocks that were never written, or only
//!    reserved, read as zeros; a *new* block whose data was lost but whose size was kept shows what
//!    [`DiskOptions::new_blocks`] says. Shrinking is an item too. If it is kept, everything beyond
//!    is gone; if it is lost, the file has its old length and bytes. In memory the pages beyond are
//!    gone at once, dirty or not, and until the new size is durable nothing in the last block or
//!    after it counts as an overwrite. A file that grows again shows zeros there.
//! 8. A creation, rename or removal is volatile until a sync of its directory. A crash keeps any
//!    subset ([`DirectoryOrder::Any`]) or a prefix ([`DirectoryOrder::Prefix`]), each operation
//!    whole: a renamed file has one name. A sync of a *file* does not save its name. A file without
//!    a name is gone after a crash.
//! 9. Zeros as a preparation are written and synced. fallocate allocates blocks that read as zeros,
//!    and their first write costs metadata. Room is allocated by blocks of 4 KiB, and freed when a
//!    file has neither name nor handle. Where the file system copies on write
//!    ([`DiskOptions::copy_on_write`]) an overwrite needs room too; where names need room
//!    ([`DiskOptions::names_need_room`]) a creation or rename does. A removal needs none.
//!
//! 10. A lock is in the machine's memory: it has one holder per file, until it is dropped or the
//!     power is cut. Its file, if missing, is created, empty, and is as volatile as any other new
//!     file; this does not count as [`OperationKind::Create`].
//!
//! *Calls beside each other*
//! 11. The bytes of a write may survive a crash from its beginning on, and survive for sure only
//!     when it has returned and a sync that began later has, or when it was durable by itself and
//!     has returned. A sync covers the writes that had returned when it began. Between the
//!     beginning and the end of each is a moment that a [`hooked::Hook`] sees.
//!
//! *Power*
//! 12. A crash keeps, loses, or (if asked) garbles each item by itself, in all files together, so
//!     that a large write tears anywhere. Of several versions of one sector the newest kept one is
//!     found. [`PowerCut`] samples such states and enumerates them; the disk itself continues.
//! 13. What was found after a crash is on the medium: it survives the next one.
//!
//! *Faults*
//! 14. By plan ([`Fault`], [`SimDisk::inject`]) and by rate ([`FaultRates`]); each that fires is in
//!     [`SimDisk::history`]. A short transfer is continued, as on every disk; an error after
//!     one leaves a part.
//! 15. After a failed sync the pages are clean and the medium is old; what memory shows is an
//!     [`AfterEffect`]. A second sync succeeds and saves nothing. Direct writes are lost from the
//!     device's cache as well. Where syncs fail by rate, any part of the pages was written before
//!     the failure. In all cases a file's shrinking remains to be committed.
//! 16. A lost or misdirected write is acknowledged and flushed all the same. If it was buffered,
//!     the page cache shows it
//!     until [`SimDisk::drop_caches`], or until its file's cached pages are dropped.
//!
//! One lock guards a disk. With one thread everything follows from the seed and the calls; with
//! several threads it also depends on the scheduler. No time passes, but by a clock of the disk if
//! [`DiskOptions::times`] says so: a flush of the device, a FUA write and any other write advance
//! it. `EINTR` never passes the seam.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what a name says needs no second word")]

mod content;
mod counters;
mod crash;
mod directory;
mod disk;
mod durable;
mod fault;
mod file;
pub mod hooked;
mod options;
mod pending;
pub mod shrink;
mod state;
mod transfer;

pub use content::{Content, PAGE_BYTES};
pub use counters::Counters;
pub use crash::{Fate, Item, ItemKind, PowerCut, Style};
pub use directory::{SimDirectory, SimLock};
pub use disk::SimDisk;
pub use fault::{Effect, Event, Fault, OperationKind, errno};
pub use file::SimFile;
pub use options::{AfterEffect, DirectoryOrder, DiskOptions, FaultRates, NewBlocks, Times};
pub use pending::Place;

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
