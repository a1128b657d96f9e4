//! What was seen of a program in one period: the kernel's events, the threads, files and
//! descriptors, and the disks below them.
//!
//! *Owns*: this data. *May not touch*: collecting it (`collect`), what it means (`syncs`, `tally`,
//! `cause`).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use inkstone_host::{DeviceNumber, ExtentMap, OpenedAs, TraceEvent, TraceKind};
use inkstone_io::CopyOnWrite;

use crate::bill::Layer;

/// All that was seen in one period.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// When it began and ended, on `CLOCK_MONOTONIC`.
    pub span_ns: Range<u64>,
    /// The system calls, and the requests of all processes on the disks, ordered by time.
    pub events: Vec<TraceEvent>,
    /// How many events were lost.
    pub lost: u64,
    /// The program's threads, io_uring's workers among them, each with its process.
    pub threads: HashMap<u32, u32>,
    /// Threads of the kernel that synced files.
    pub kernel_threads: HashSet<u32>,
    /// The files that it had open for writing, and its directories.
    pub files: Vec<SeenFile>,
    /// Its descriptors of those files.
    pub descriptors: Vec<Descriptor>,
    /// The file systems of those files.
    pub places: Vec<Place>,
}

impl Recording {
    /// How long it was traced, in seconds, without the pauses.
    pub fn seconds(&self) -> f64 {
        let pause = |event: &TraceEvent| match event.what {
            TraceKind::Pause { since_ns } => {
                event.time_ns.min(self.span_ns.end).saturating_sub(since_ns)
            }
            _ => 0,
        };
        let paused_ns: u64 = self.events.iter().map(pause).sum();
        let span_ns = self.span_ns.end.saturating_sub(self.span_ns.start);
        span_ns.saturating_sub(paused_ns) as f64 / 1e9
    }

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
    /// Whether it was created while it was watched.
    pub is_created: bool,
    /// How many different files had this inode number: more than 1 if the file was removed and
    /// created again.
    pub births: u64,
    /// How often it was seen open, each time with at most one more birth.
    pub looks: u64,
    /// Whether its path led to another file, or to none, at the end.
    pub is_gone: bool,
    /// Its file system, as a place in `places`, if it is on a disk.
    pub place: Option<usize>,
    /// Its state when it was first seen.
    pub before: Option<FileState>,
    /// When that was; 0 for what was there before the trace began.
    pub seen_ns: u64,
    /// Its state at the end.
    pub after: Option<FileState>,
}

impl SeenFile {
    /// Whether it got longer, or got blocks: since it was first seen, or of a file that was first
    /// seen late (after most of its syncs) since it was created.
    pub fn grew(&self, is_late: bool) -> bool {
        let Some(after) = &self.after else { return self.is_created };
        let blocks =
            |state: &FileState| state.extents.extents.iter().map(|extent| extent.len_bytes).sum();
        let size = |state: &FileState| -> (u64, u64) { (state.len_bytes, blocks(state)) };
        let (len, blocks) = size(after);
        match &self.before {
            Some(before) if !(self.is_created && is_late) => {
                let (len_before, blocks_before) = size(before);
                len > len_before || blocks > blocks_before
            }
            _ => self.is_created && len > 0,
        }
    }

    /// A file that is known by name only.
    pub fn named(device: DeviceNumber, inode: u64, path: PathBuf, place: Option<usize>) -> Self {
        Self {
            device,
            inode,
            path,
            is_directory: false,
            is_new: false,
            is_created: false,
            births: 1,
            looks: 0,
            is_gone: false,
            place,
            before: None,
            seen_ns: 0,
            after: None,
        }
    }
}

impl Place {
    /// Whether one of its disks can write past its cache.
    pub fn has_fua(&self) -> bool {
        self.layer.disks.iter().any(|disk| disk.fua)
    }

    /// Where it is mounted; empty if that is not known.
    pub fn target(&self) -> &Path {
        self.layer.target.as_deref().unwrap_or(Path::new(""))
    }

    /// Whether it is ext4 without a journal.
    pub fn is_bare(&self) -> bool {
        self.layer.file_system == "ext4" && !self.layer.has_journal
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
    /// Whether overwriting moves data.
    pub copy_on_write: CopyOnWrite,
    /// Options of the mount.
    pub options: String,
    /// For a loop device: its file.
    pub loop_backing: Option<PathBuf>,
    /// If it is in memory: the kind of memory.
    pub memory: Option<String>,
}
