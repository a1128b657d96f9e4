//! The devices below a file: those of its file system; and the areas on them. What is below a loop
//! device is another file system.
//!
//! *Owns*: which bytes of a device are the file's, which are the journal's. *May not touch*:
//! events.
//!
//! A file system may have several disks: btrfs spreads its chunks, ext4's and xfs's journal may be
//! on a disk of its own. Areas of all disks are ranges of one space of addresses, in which each
//! disk has a base.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use inkstone_host::{DeviceNumber, ExtentMap, LogPlace, btrfs_devices, log_place, mount_points};
use inkstone_io::{Barriers, Capabilities, DeviceFacts};

/// The bases of two disks are this far apart: no disk is as large.
const DISK_BYTES_MAX: u64 = 1 << 56;

/// One disk of a file system.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// The disk's number, and the partition's if the file system is on one.
    pub numbers: Vec<DeviceNumber>,
    /// Where the partition begins.
    pub start_bytes: u64,
    /// The address of the disk's first byte.
    pub base: u64,
    /// Whether flushes matter: the device has a volatile cache. Unknown counts as yes.
    pub volatile_cache: bool,
    /// Whether it can write past its cache.
    pub fua: bool,
    /// Whether it has at most one flush in progress; otherwise the trace does not show which of
    /// several has ended.
    pub one_flush: bool,
}

/// A piece of the disk that holds a piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes on the disk.
    pub at: Range<u64>,
    /// Which file.
    pub file: usize,
    /// Its first byte in the file.
    pub logical: u64,
}

/// One device, or the devices of one file system, and the areas on them.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    /// `loop0`; `loop0, loop1` if there are several.
    pub device: String,
    /// The file system on it.
    pub file_system: String,
    /// Where it is mounted.
    pub target: Option<PathBuf>,
    /// Its disks, the one that the mount names first.
    pub disks: Vec<Disk>,
    /// Other numbers by which the kernel's events name the file system (btrfs).
    pub also: Vec<DeviceNumber>,
    /// The files' blocks, by their place once [`settle`](Self::settle) was called.
    pub pieces: Vec<Piece>,
    /// The journal's or log's blocks.
    pub log: Vec<Range<u64>>,
    /// Areas with file data only (btrfs: its data chunks).
    pub data_only: Vec<Range<u64>>,
    /// Whether it has a journal or log whose writes a sync may wait for.
    pub has_journal: bool,
    /// Whether files' contents go through the journal (ext4's `data=journal`).
    pub journals_data: bool,
    /// Whether the mount makes syncs reach the medium.
    pub has_barriers: bool,
    /// Whether only this process has files on the file system, so that everything on it is ours.
    pub private: bool,
    /// What could not be found out.
    pub notes: Vec<String>,
}

impl Layer {
    /// The devices that hold `capabilities.directory`; `None` if there is no block device.
    pub fn of(capabilities: &Capabilities) -> Option<Self> {
        let device = capabilities.device.as_ref()?;
        let file_system = capabilities.mount.file_system.clone();
        let options = capabilities.mount.options.clone().unwrap_or_default();
        let has = |wanted: &str| options.split(',').any(|option| option == wanted);
        let mut layer = Self {
            device: device.name.clone(),
            target: capabilities.mount.target.clone(),
            has_barriers: capabilities.mount.barriers != Barriers::Off,
            journals_data: has("data=journal"),
            disks: vec![disk(device)],
            file_system,
            ..Self::default()
        };
        match layer.file_system.as_str() {
            "btrfs" => layer.look_at_chunks(),
            _ => layer.look_for_journal(device, &options, capabilities.journal),
        }
        Some(layer)
    }

    /// `shown`: whether the kernel's list of journals has one of this device.
    fn look_for_journal(&mut self, device: &DeviceFacts, options: &str, shown: Option<bool>) {
        let named = options.split(',').find_map(|option| option.strip_prefix("logdev="));
        let named = named.and_then(|path| std::fs::metadata(path).ok());
        let place = match named {
            Some(node) => Ok(LogPlace::Outside(DeviceNumber::from_st_dev(node.rdev()))),
            None => log_place(&device.node, &self.file_system),
        };
        match place {
            Ok(LogPlace::None) => {}
            Ok(LogPlace::Inside(areas)) => {
                let start = device.partition_start_bytes;
                self.log = shifted(areas, start);
                self.has_journal = true;
            }
            Ok(LogPlace::Outside(number)) => {
                self.has_journal = true;
                if let Some(base) = self.add_disk(number) {
                    self.log = std::iter::once(base..base + DISK_BYTES_MAX).collect();
                }
            }
            // A sandbox may refuse to show the device, and show what the kernel says of it.
            Err(_) if shown == Some(false) => {}
            Err(error) => {
                self.has_journal = true;
                self.notes.push(format!(
                    "the journal is identified by its thread's name alone, since its place is \
                     unknown: {error}"
                ));
            }
        }
    }

    /// Reads where btrfs's data is now, and on which disks: chunks are allocated when they are
    /// needed.
    pub(crate) fn look_at_chunks(&mut self) {
        let Some(target) = self.target.clone().filter(|_| self.file_system == "btrfs") else {
            return;
        };
        if self.also.is_empty() {
            let points = mount_points().unwrap_or_default();
            self.also.extend(points.iter().find(|at| at.target == target).map(|at| at.device));
        }
        let devices = match btrfs_devices(&target) {
            Ok(devices) => devices,
            Err(error) => return self.notes.push(format!("btrfs's chunks are unknown: {error}")),
        };
        for found in devices {
            let known = self.disks.iter().find(|disk| disk.numbers.contains(&found.number));
            let place = known.map(|disk| disk.base + disk.start_bytes);
            let place = place.or_else(|| {
                self.add_disk(found.number)?;
                self.disks.last().map(|disk| disk.base + disk.start_bytes)
            });
            let areas = place.map(|at| shifted(found.data, at)).unwrap_or_default();
            let new: Vec<_> = areas.into_iter().filter(|a| !self.data_only.contains(a)).collect();
            self.data_only.extend(new);
        }
    }

    /// Adds a disk; returns its base. If sysfs hides it, a note says so.
    fn add_disk(&mut self, number: DeviceNumber) -> Option<u64> {
        let Some(facts) = DeviceFacts::of(number) else {
            self.notes.push(format!("its disk {number} is not shown by sysfs, so it is not seen"));
            return None;
        };
        let base = self.disks.len() as u64 * DISK_BYTES_MAX;
        self.disks.push(Disk { base, ..disk(&facts) });
        self.device = format!("{}, {}", self.device, facts.name);
        Some(base)
    }

    /// All numbers by which the kernel's events name its disks and itself.
    pub fn numbers(&self) -> impl Iterator<Item = DeviceNumber> + '_ {
        self.disks.iter().flat_map(|disk| &disk.numbers).chain(&self.also).copied()
    }

    /// Whether this is one of them.
    pub(crate) fn holds(&self, device: DeviceNumber) -> bool {
        self.numbers().any(|number| number == device)
    }

    /// Whether one of its disks has a volatile cache.
    pub fn volatile_cache(&self) -> bool {
        self.disks.iter().any(|disk| disk.volatile_cache)
    }

    /// Whether a sync has to flush: there is a volatile cache, and the mount does not forbid it.
    pub(crate) fn flushes(&self) -> bool {
        self.has_barriers && self.volatile_cache()
    }

    /// Adds the blocks that the file has now. Call it before and after a pass: a copy-on-write file
    /// moves.
    pub fn add_file(&mut self, file: &std::fs::File, path: &Path) {
        // On btrfs FIEMAP returns addresses of btrfs's own space; the data chunks map them to the
        // device.
        match (self.file_system.as_str(), ExtentMap::of(file, path)) {
            ("btrfs", _) => {}
            (_, Ok(map)) => self.add_extents(&map, 0),
            (_, Err(error)) => self.notes.push(error.to_string()),
        }
    }

    /// Adds the blocks of one of several files.
    pub(crate) fn add_extents(&mut self, map: &ExtentMap, file: usize) {
        let start = self.disks.first().map_or(0, |disk| disk.start_bytes);
        self.pieces.extend(map.placed().map(|extent| {
            let at = start + extent.physical;
            Piece { at: at..at + extent.len_bytes, file, logical: extent.logical }
        }));
    }

    /// The piece of a file that a request of these bytes lies on.
    pub(crate) fn piece_at(&self, bytes: &Range<u64>) -> Option<&Piece> {
        let after = self.pieces.partition_point(|piece| piece.at.start < bytes.end);
        let near = self.pieces[..after].iter().rev().take(8);
        near.into_iter().find(|piece| piece.at.end > bytes.start)
    }

    /// Whether a request of these bytes lies in an area that holds nothing but data.
    pub(crate) fn is_data_only(&self, bytes: &Range<u64>) -> bool {
        overlaps(&self.data_only, bytes)
    }

    /// Whether a write of these bytes by a thread of this name is the journal's. If its place could
    /// not be read, its thread identifies it: that writes nothing else.
    pub(crate) fn is_log(&self, bytes: &Range<u64>, name: &str) -> bool {
        overlaps(&self.log, bytes) || self.log.is_empty() && name.starts_with("jbd2/")
    }

    /// Sorts what `add_file` gathered.
    pub fn settle(&mut self) {
        self.pieces.sort_unstable_by_key(|piece| (piece.at.start, piece.at.end, piece.file));
        self.pieces.dedup();
        self.notes.sort();
        self.notes.dedup();
    }
}

fn disk(facts: &DeviceFacts) -> Disk {
    Disk {
        numbers: [Some(facts.number), facts.partition].into_iter().flatten().collect(),
        start_bytes: facts.partition_start_bytes,
        base: 0,
        volatile_cache: facts.volatile_cache.unwrap_or(true),
        fua: facts.fua == Some(true),
        one_flush: facts.hardware_queues == Some(1),
    }
}

fn overlaps(ranges: &[Range<u64>], bytes: &Range<u64>) -> bool {
    ranges.iter().any(|range| range.start < bytes.end && bytes.start < range.end)
}

fn shifted(ranges: Vec<Range<u64>>, by_bytes: u64) -> Vec<Range<u64>> {
    ranges.into_iter().map(|range| range.start + by_bytes..range.end + by_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_device_the_kernels_list_says_whether_there_is_a_journal() {
        let device = DeviceFacts {
            name: "vda".into(),
            number: DeviceNumber { major: 254, minor: 0 },
            node: "/nothing/here".into(),
            partition: None,
            partition_start_bytes: 0,
            volatile_cache: Some(true),
            fua: None,
            scheduler: None,
            hardware_queues: None,
            rotational: None,
            model: None,
            logical_block_bytes: None,
            physical_block_bytes: None,
            loop_backing: None,
            loop_direct: None,
        };
        for (shown, has_journal) in [(Some(false), false), (Some(true), true), (None, true)] {
            let mut layer = Layer { file_system: "ext4".into(), ..Layer::default() };
            layer.look_for_journal(&device, "rw", shown);
            assert_eq!((layer.has_journal, layer.notes.len()), (has_journal, has_journal.into()));
        }
    }

    #[test]
    fn ranges_overlap_or_do_not() {
        let ranges = [4096..8192, 16384..20480];
        assert!(overlaps(&ranges, &(8191..8192)) && overlaps(&ranges, &(0..16385)));
        assert!(!overlaps(&ranges, &(8192..16384)) && !overlaps(&ranges, &(0..4096)));
    }
}
