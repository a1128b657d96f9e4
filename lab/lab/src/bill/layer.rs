//! The devices below a file: its file system's own, and the host's below a loop device; and the
//! areas on them.
//!
//! *Owns*: which bytes of a device are the file's, which are the journal's. *May not touch*:
//! events.

use std::ops::Range;
use std::path::{Path, PathBuf};

use inkstone_host::{DeviceNumber, ExtentMap, btrfs_data_areas, log_area};
use inkstone_io::Capabilities;

/// One device and its areas. Ranges are in bytes from the start of the whole disk.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    /// `loop0`.
    pub device: String,
    /// `file system`, or `host of loop0`.
    pub role: String,
    /// The file system on it.
    pub file_system: String,
    /// The disk's number, and the partition's if the file system is on one.
    pub numbers: Vec<DeviceNumber>,
    /// Where the partition begins.
    pub start_bytes: u64,
    /// The file's blocks.
    pub file: Vec<Range<u64>>,
    /// The journal's or log's blocks.
    pub log: Vec<Range<u64>>,
    /// Areas with file data only (btrfs: its data chunks).
    pub data_only: Vec<Range<u64>>,
    /// Whether flushes matter: the device has a volatile cache. Unknown counts as yes.
    pub volatile_cache: bool,
    /// Whether it has at most one flush in progress; otherwise the trace does not show which of
    /// several has ended.
    pub one_flush: bool,
    /// ext4: after how long the journal commits by itself, in milliseconds.
    pub journal_interval_ms: u64,
    /// Whether only this process has files on the file system, so that everything on it is ours.
    pub private: bool,
    /// What could not be found out.
    pub notes: Vec<String>,
}

/// ext4's and btrfs's own default is five and thirty seconds; ext4's matters here.
const JOURNAL_INTERVAL_MS: u64 = 5000;

impl Layer {
    /// The device that holds `capabilities.directory`; `None` if there is no single block device.
    pub fn of(capabilities: &Capabilities, role: String) -> Option<Self> {
        let device = capabilities.device.as_ref()?;
        let numbers = [Some(device.number), device.partition].into_iter().flatten().collect();
        let file_system = capabilities.mount.file_system.clone();
        let mut notes = Vec::new();
        let start_bytes = device.partition_start_bytes;
        let log = if capabilities.journal == Some(false) {
            Vec::new()
        } else {
            log_area(&device.node, &file_system).unwrap_or_else(|error| {
                notes.push(format!(
                    "the journal is identified by its thread's name alone, since its place is \
                     unknown: {error}"
                ));
                Vec::new()
            })
        };
        let data_only = match &capabilities.mount.target {
            Some(target) if file_system == "btrfs" => btrfs_data(target, &mut notes),
            _ => Vec::new(),
        };
        Some(Self {
            device: device.name.clone(),
            role,
            file_system,
            numbers,
            start_bytes,
            file: Vec::new(),
            log: shifted(log, start_bytes),
            data_only: shifted(data_only, start_bytes),
            volatile_cache: device.volatile_cache.unwrap_or(true),
            one_flush: device.hardware_queues == Some(1),
            journal_interval_ms: journal_interval_ms(
                capabilities.mount.options.as_deref().unwrap_or_default(),
            ),
            private: false,
            notes,
        })
    }

    /// Adds the blocks that the file has now. Call it before and after a pass: a copy-on-write file
    /// moves.
    pub fn add_file(&mut self, file: &std::fs::File, path: &Path) {
        if self.file_system == "btrfs" {
            // On btrfs FIEMAP returns addresses of btrfs's own space; the data chunks map them to
            // the device.
            return;
        }
        match ExtentMap::of(file, path) {
            Ok(map) => self.file.extend(shifted(map.physical_ranges(), self.start_bytes)),
            Err(error) => self.notes.push(error.to_string()),
        }
    }

    /// Adds btrfs's areas for data that were allocated since.
    pub(crate) fn add_data_areas(&mut self, target: &Path) {
        if self.file_system == "btrfs" {
            let now = shifted(btrfs_data(target, &mut self.notes), self.start_bytes);
            let new: Vec<_> = now.into_iter().filter(|a| !self.data_only.contains(a)).collect();
            self.data_only.extend(new);
        }
    }

    /// Whether a request of these bytes lies on the file's blocks.
    pub(crate) fn is_file(&self, bytes: &Range<u64>) -> bool {
        overlaps(&self.file, bytes) || overlaps(&self.data_only, bytes)
    }

    pub(crate) fn is_log(&self, bytes: &Range<u64>) -> bool {
        overlaps(&self.log, bytes)
    }

    /// Sorts and merges what `add_file` gathered.
    pub fn settle(&mut self) {
        self.file.sort_unstable_by_key(|range| (range.start, range.end));
        self.file.dedup();
        self.notes.sort();
        self.notes.dedup();
    }
}

fn overlaps(ranges: &[Range<u64>], bytes: &Range<u64>) -> bool {
    ranges.iter().any(|range| range.start < bytes.end && bytes.start < range.end)
}

fn shifted(ranges: Vec<Range<u64>>, by_bytes: u64) -> Vec<Range<u64>> {
    ranges.into_iter().map(|range| range.start + by_bytes..range.end + by_bytes).collect()
}

fn btrfs_data(target: &Path, notes: &mut Vec<String>) -> Vec<Range<u64>> {
    btrfs_data_areas(target).unwrap_or_else(|error| {
        notes.push(format!("btrfs's chunks are unknown: {error}"));
        Vec::new()
    })
}

fn journal_interval_ms(options: &str) -> u64 {
    let seconds =
        options.split(',').find_map(|option| option.strip_prefix("commit=")?.parse::<u64>().ok());
    seconds.filter(|&seconds| seconds > 0).map_or(JOURNAL_INTERVAL_MS, |seconds| seconds * 1000)
}

/// The layers below a directory: its own device, then the host's for as long as that is a loop
/// device, each of those with the blocks of the backing file.
pub fn layers_of(directory: &Path) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut directory = directory.to_path_buf();
    let mut role = "file system".to_owned();
    let mut file: Option<PathBuf> = None;
    // A loop device on a loop device on ...: three levels are more than anybody has.
    for _ in 0..3 {
        let Ok(capabilities) = Capabilities::of(&directory) else { break };
        let Some(mut layer) = Layer::of(&capabilities, role) else { break };
        if let Some(path) = &file {
            add_backing(&mut layer, path);
        }
        role = format!("host of {}", layer.device);
        let backing = capabilities.device.as_ref().and_then(|device| device.loop_backing.clone());
        layers.push(layer);
        let Some(backing) = backing else { break };
        let Some(parent) = backing.parent() else { break };
        directory = parent.to_path_buf();
        file = Some(backing);
    }
    layers
}

fn add_backing(layer: &mut Layer, path: &Path) {
    match std::fs::File::open(path) {
        Ok(file) => layer.add_file(&file, path),
        Err(error) => layer
            .notes
            .push(format!("the backing file {} cannot be opened: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journals_interval_is_a_mount_option() {
        assert_eq!(journal_interval_ms("rw,relatime"), 5000);
        assert_eq!(journal_interval_ms("rw,commit=30,data=ordered"), 30_000);
        assert_eq!(journal_interval_ms("commit=0"), 5000);
    }

    #[test]
    fn ranges_overlap_or_do_not() {
        let ranges = [4096..8192, 16384..20480];
        assert!(overlaps(&ranges, &(8191..8192)) && overlaps(&ranges, &(0..16385)));
        assert!(!overlaps(&ranges, &(8192..16384)) && !overlaps(&ranges, &(0..4096)));
    }
}
