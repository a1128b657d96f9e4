//! The model of the simulated disk: each rule, each fault, sizes and locks.
//!
//! *Owns*: what the tests share: disks, files, crashes. *May not touch*: the crate's insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod faults;
mod rules;
mod seam;
mod sizes_and_locks;

use std::sync::Arc;

use inkstone_io::{AlignedBuf, Directory, File, OpenFile, Result, SyncKind};
use inkstone_sim::hooked::{Call, Hook};
use inkstone_sim::{DiskOptions, Fate, SimDirectory, SimDisk, SimFile};

/// Does something in the middle of calls.
struct During<F>(F);

impl<F: Fn(&Call<'_>) + Send + Sync + 'static> During<F> {
    fn the(work: F) -> Arc<Self> {
        Arc::new(Self(work))
    }
}

impl<F: Fn(&Call<'_>) + Send + Sync + 'static> Hook for During<F> {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        (self.0)(call);
        Ok(())
    }
}

/// Without the kernel's own write-back, so that each test decides what is where.
fn quiet() -> DiskOptions {
    DiskOptions { writeback_ppm: 0, ..DiskOptions::default() }
}

fn disk(options: DiskOptions) -> (SimDisk, SimDirectory) {
    let disk = SimDisk::new(1, options);
    let directory = disk.directory("/d");
    (disk, directory)
}

fn buffered() -> OpenFile {
    OpenFile::new_file()
}

fn block(byte: u8, blocks: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(blocks * 4096);
    buffer.fill(byte);
    buffer
}

/// A file whose name, size and blocks are on the medium, all `byte`.
fn settled(
    directory: &SimDirectory,
    name: &str,
    how: &OpenFile,
    byte: u8,
    blocks: usize,
) -> SimFile {
    let file = directory.open(name, how).unwrap();
    file.write_at(&block(byte, blocks), 0).unwrap();
    file.sync(SyncKind::All).unwrap();
    directory.sync().unwrap();
    file
}

/// What a file holds on a disk; `None` if there is no such file.
fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let path = std::path::Path::new("/d").join(name);
    disk.image().into_iter().find(|(found, _)| *found == path).map(|(_, bytes)| bytes)
}

fn nothing_kept(disk: &SimDisk) -> SimDisk {
    disk.crash_with(|_| Fate::Dropped)
}

fn all_kept(disk: &SimDisk) -> SimDisk {
    disk.crash_with(|_| Fate::Kept)
}
