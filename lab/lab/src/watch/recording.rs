//! What was seen of a program in one period: the kernel's events, the threads, files and
//! descriptors, and the disks below them.
//!
//! *Owns*: this data. *May not touch*: collecting it (`collect`), what it means (`syncs`, `tally`,
//! `cause`).

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use inkstone_host::{DeviceNumber, ExtentMap, OpenedAs, TraceEvent};
use inkstone_io::{Barriers, CopyOnWrite};

use crate::bill::Layer;

/// All that was seen in one period.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// When it began and ended, on `CLOCK_MONOTONIC`.
    pub span_ns: Range<u64>,
    /// When system calls were traced.
    pub calls_ns: Vec<Range<u64>>,
    /// The system calls, and the requests of all processes on the disks, ordered by time.
    pub events: Vec<TraceEvent>,
    /// How many events were lost.
    pub lost: u64,
    /// The program's threads, io_uring's workers among them, each with its process.
    pub threads: HashMap<u32, u32>,
    /// The files that it had open for writing, and its directories.
    pub files: Vec<SeenFile>,
    /// Its descriptors of those files.
    pub descriptors: Vec<Descriptor>,
    /// The file systems of those files.
    pub places: Vec<Place>,
}

impl Recording {
    /// Whether this file system is btrfs.
    pub fn is_btrfs(&self, place: Option<usize>) -> bool {
        place.is_some_and(|at| self.places[at].layer.file_system == "btrfs")
    }
}

/// A file or a directory that the program had open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenFile {
    /// The device number of its file system, as in `stat`.
    pub device: DeviceNumber,
    /// Its inode number.
    pub inode: u64,
    /// Its path when it was last seen.
    pub path: PathBuf,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it was first seen after the start.
    pub is_new: bool,
    /// How many different files had this inode number: more than 1 if the file was removed and
    /// created again.
    pub births: u64,
    /// Whether its path led to another file, or to none, at the end.
    pub is_gone: bool,
    /// Its file system, as a place in `places`, if it is on a disk.
    pub place: Option<usize>,
    /// Its state when it was first seen.
    pub before: Option<FileState>,
    /// Its state at the end.
    pub after: Option<FileState>,
}

impl SeenFile {
    /// A file that is known by name only.
    pub fn named(device: DeviceNumber, inode: u64, path: PathBuf, place: Option<usize>) -> Self {
        Self {
            device,
            inode,
            path,
            is_directory: false,
            is_new: false,
            births: 1,
            is_gone: false,
            place,
            before: None,
            after: None,
        }
    }
}

/// A file's size and blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileState {
    /// Its size.
    pub len_bytes: u64,
    /// Its blocks.
    pub extents: ExtentMap,
}

/// A descriptor of a process, from some time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The process.
    pub process: u32,
    /// Its number.
    pub number: u32,
    /// When it was first seen.
    pub since_ns: u64,
    /// Which of the files.
    pub file: usize,
    /// How it was opened.
    pub opened: OpenedAs,
}

/// A file system with its disk.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its device number, as in `stat`.
    pub device: DeviceNumber,
    /// The disk, and the areas on it.
    pub layer: Layer,
    /// When its trace began: later than the start if its first file was opened later.
    pub since_ns: u64,
    /// Whether the disk can write past its cache.
    pub has_fua: bool,
    /// Whether the file system has a journal (ext4).
    pub has_journal: bool,
    /// Whether overwriting moves data.
    pub copy_on_write: CopyOnWrite,
    /// Whether syncs reach the medium.
    pub barriers: Barriers,
    /// Options of the mount.
    pub options: String,
    /// Where it is mounted.
    pub target: Option<PathBuf>,
    /// For a loop device: its file.
    pub loop_backing: Option<PathBuf>,
    /// If it is in memory: the kind of memory.
    pub memory: Option<String>,
}
