//! What the file system and the device under a directory can do, found out without I/O.
//!
//! *Owns*: the facts and where they are read (statx, mountinfo, sysfs). *May not touch*: the medium; nothing is written
//! or synced to learn this. What only a trial can tell (does WRITE_ZEROES really work?) is not here.
//!
//! `O_DIRECT`'s alignment is asked of an unnamed temporary file (`O_TMPFILE`): the kernel tells it for files only.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::error::{Error, Result};
use crate::host::{DeviceNumber, MountPoint, mount_points};

/// What O_DIRECT asks of memory and offsets here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DioAlignment {
    /// Alignments in bytes.
    Bytes {
        /// Of the memory.
        memory: u32,
        /// Of offset and length.
        offset: u32,
    },
    /// This file system refuses O_DIRECT, or would serve it through the page cache.
    Refused,
    /// The kernel does not tell (before Linux 6.1, or this file system does not answer).
    NotTold,
}

/// Whether writing over written blocks puts the data elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOnWrite {
    /// Never: an overwrite stays where it is.
    Never,
    /// Only blocks shared with another file (reflinks).
    SharedExtents,
    /// Always: preparing blocks gains little.
    Always,
}

/// Whether the mount makes syncs reach the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barriers {
    /// Syncs flush the device's cache.
    On,
    /// Mounted with `nobarrier` or `barrier=0`: a sync does not flush, and a power loss takes what it acknowledged.
    Off,
}

/// The mount that a directory lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFacts {
    /// File system: `ext4`.
    pub file_system: String,
    /// Where it is mounted.
    pub target: PathBuf,
    /// What is mounted: `/dev/vda`.
    pub source: String,
    /// Options of the mount and of the file system, joined by commas.
    pub options: String,
    /// Mounted read-only.
    pub read_only: bool,
    /// See [`Barriers`].
    pub barriers: Barriers,
}

/// A block device, as sysfs describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The whole disk's name: `vda`, `loop0`.
    pub name: String,
    /// The whole disk's number.
    pub number: DeviceNumber,
    /// The device node that the file system is on: `/dev/vda`, `/dev/vda1`.
    pub node: PathBuf,
    /// The partition's number, where the file system is on one.
    pub partition: Option<DeviceNumber>,
    /// Where that partition begins on the disk, in bytes; 0 without one.
    pub partition_start_bytes: u64,
    /// Whether it has a volatile write cache (`write back`): only then a flush does anything.
    pub volatile_cache: Option<bool>,
    /// Whether it can write past its cache.
    pub fua: Option<bool>,
    /// Whether zeros can be written by the device, in the way that `FALLOC_FL_WRITE_ZEROES` needs.
    pub write_zeroes: Option<bool>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    /// How many queues the kernel hands requests to it by; each has one flush under way at most. `None` where the kernel shows none
    /// (devices made of others).
    pub hardware_queues: Option<u32>,
    /// Whether it spins.
    pub rotational: Option<bool>,
    /// Its model.
    pub model: Option<String>,
    /// Logical block in bytes.
    pub logical_block_bytes: Option<u32>,
    /// Physical block in bytes.
    pub physical_block_bytes: Option<u32>,
    /// Of a loop device: the file behind it.
    pub loop_backing: Option<PathBuf>,
    /// Of a loop device: whether it opens that file with O_DIRECT.
    pub loop_direct: Option<bool>,
}

/// Everything that can be known about a directory's disk without touching it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The directory asked about, absolute.
    pub directory: PathBuf,
    /// Its mount.
    pub mount: MountFacts,
    /// Its device; `None` for file systems in memory, on the network, or over several devices.
    pub device: Option<DeviceFacts>,
    /// What O_DIRECT needs.
    pub direct: DioAlignment,
    /// Whether overwrites move.
    pub copy_on_write: CopyOnWrite,
    /// Whether the file system is in memory: nothing there is durable.
    pub in_memory: bool,
    /// ext4: whether it has a journal. `None` elsewhere.
    pub journal: Option<bool>,
    /// The file system's own number (`f_fsid`), made from its UUID on ext4 and btrfs and from its device's number on xfs:
    /// another file system on the same device has another. `None` where there is none.
    pub file_system_id: Option<u64>,
}

impl Capabilities {
    /// Finds out about the disk under `directory`.
    ///
    /// # Errors
    /// When the directory is missing, or the kernel's tables cannot be read. A fact that is not told is `None`.
    pub fn of(directory: &Path) -> Result<Self> {
        let absolute =
            directory.canonicalize().map_err(|source| Error::new("look at directory", directory, source))?;
        let mount = mount_of(&absolute)?;
        let device = device_number_of(&mount).and_then(device_facts);
        let in_memory = matches!(mount.file_system.as_str(), "tmpfs" | "ramfs" | "devtmpfs");
        let direct = if in_memory { DioAlignment::Refused } else { dio_alignment(&absolute) };
        let copy_on_write = copy_on_write(&mount);
        let journal = device.as_ref().filter(|_| mount.file_system == "ext4").and_then(has_journal);
        let mount = mount_facts(mount);
        let id = rustix::fs::statvfs(&absolute).ok().map(|answer| answer.f_fsid);
        let file_system_id = id.filter(|id| *id != 0);
        Ok(Self {
            directory: absolute,
            mount,
            device,
            direct,
            copy_on_write,
            in_memory,
            journal,
            file_system_id,
        })
    }

    /// What in the chain below is memory, if anything is: the file system itself, a RAM disk, or the file system of a loop
    /// device's backing file. Whatever a sync says, nothing there survives a power loss.
    pub fn memory_below(&self) -> Option<String> {
        if self.in_memory {
            return Some(self.mount.file_system.clone());
        }
        let device = self.device.as_ref()?;
        if device.name.starts_with("zram") || device.name.starts_with("ram") {
            return Some(device.name.clone());
        }
        // A loop over a loop over ...: each step goes to another mount, so this ends.
        Self::of(&self.host_directory()?).ok()?.memory_below()
    }

    /// The directory of the backing file, if the device is a loop device: the layer below.
    pub fn host_directory(&self) -> Option<PathBuf> {
        let backing = self.device.as_ref()?.loop_backing.as_ref()?;
        backing.parent().map(Path::to_path_buf)
    }
}

/// Whether this process runs as root: it may then make loop devices, mounts and traces.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Bytes that this user can still write in the directory's file system.
///
/// # Errors
/// What `statvfs` answers.
pub fn free_bytes(directory: &Path) -> Result<u64> {
    let answer = rustix::fs::statvfs(directory).map_err(|error| Error::new("statvfs", directory, error))?;
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// The mount with the longest target above the path; the last one of those, as it covers the others.
fn mount_of(absolute: &Path) -> Result<MountPoint> {
    let mut best: Option<MountPoint> = None;
    for mount in mount_points()? {
        let depth = mount.target.components().count();
        let better = best.as_ref().is_none_or(|best| depth >= best.target.components().count());
        if absolute.starts_with(&mount.target) && better {
            best = Some(mount);
        }
    }
    best.ok_or_else(|| {
        Error::invalid("look at mounts", absolute, "no mount in /proc/self/mountinfo covers it")
    })
}

fn mount_facts(mount: MountPoint) -> MountFacts {
    let options = format!("{},{}", mount.options, mount.super_options);
    let has = |name: &str| options.split(',').any(|option| option == name);
    let barriers = if has("nobarrier") || has("barrier=0") { Barriers::Off } else { Barriers::On };
    let read_only = has("ro");
    let mut seen = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        if !seen.contains(&option) {
            seen.push(option);
        }
    }
    MountFacts {
        file_system: mount.file_system,
        target: mount.target,
        source: mount.source,
        options: seen.join(","),
        read_only,
        barriers,
    }
}

fn copy_on_write(mount: &MountPoint) -> CopyOnWrite {
    let nodatacow = mount.super_options.split(',').any(|option| option == "nodatacow");
    match mount.file_system.as_str() {
        "btrfs" if nodatacow => CopyOnWrite::SharedExtents,
        "btrfs" | "zfs" | "bcachefs" | "nilfs2" => CopyOnWrite::Always,
        "xfs" | "ocfs2" => CopyOnWrite::SharedExtents,
        _ => CopyOnWrite::Never,
    }
}

/// The block device's number. btrfs shows an anonymous one in mountinfo, so the source is asked there.
fn device_number_of(mount: &MountPoint) -> Option<DeviceNumber> {
    if mount.device.major != 0 {
        return Some(mount.device);
    }
    let metadata = fs::metadata(&mount.source).ok()?;
    let number = DeviceNumber::from_st_dev(metadata.rdev());
    (number.major != 0).then_some(number)
}

fn device_facts(number: DeviceNumber) -> Option<DeviceFacts> {
    let own = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
    let is_partition = own.join("partition").exists();
    let disk = if is_partition { own.parent()?.to_path_buf() } else { own.clone() };
    let text = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let queue = |name: &str| text(disk.join("queue").join(name));
    let flag = |name: &str| queue(name).map(|value| value != "0");
    let start_sectors = text(own.join("start")).and_then(|text| text.parse::<u64>().ok());
    let scheduler = queue("scheduler").map(|text| chosen(&text));
    let queues = fs::read_dir(disk.join("mq")).ok().and_then(|entries| u32::try_from(entries.count()).ok());
    let unmap = queue("write_zeroes_unmap_max_bytes").and_then(|value| value.parse::<u64>().ok());
    Some(DeviceFacts {
        name: disk.file_name()?.to_string_lossy().into_owned(),
        // sysfs writes the slash of names such as `cciss/c0d0` as an exclamation mark.
        node: Path::new("/dev").join(own.file_name()?.to_string_lossy().replace('!', "/")),
        number: text(disk.join("dev"))?.parse().ok()?,
        partition: is_partition.then_some(number),
        partition_start_bytes: if is_partition { start_sectors.unwrap_or(0) * 512 } else { 0 },
        volatile_cache: queue("write_cache").map(|text| text == "write back"),
        fua: flag("fua"),
        // Linux before 6.17 has neither the file nor the mode.
        write_zeroes: Some(unmap.unwrap_or(0) > 0),
        scheduler,
        hardware_queues: queues,
        rotational: flag("rotational"),
        model: text(disk.join("device/model")).filter(|model| !model.is_empty()),
        logical_block_bytes: queue("logical_block_size").and_then(|text| text.parse().ok()),
        physical_block_bytes: queue("physical_block_size").and_then(|text| text.parse().ok()),
        loop_backing: text(disk.join("loop/backing_file")).map(PathBuf::from),
        loop_direct: text(disk.join("loop/dio")).map(|value| value == "1"),
    })
}

/// The kernel shows a directory for each journal under way: `/proc/fs/jbd2/vda-8`.
fn has_journal(device: &DeviceFacts) -> Option<bool> {
    let own = format!("{}-", device.node.file_name()?.to_string_lossy());
    let entries = match fs::read_dir("/proc/fs/jbd2") {
        Ok(entries) => entries,
        // No journal of anybody, or no /proc to look into.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Path::new("/proc/fs").exists().then_some(false);
        }
        Err(_) => return None,
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    Some(names.into_iter().any(|name| name.starts_with(&own)))
}

/// `none [mq-deadline] kyber` -> `mq-deadline`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(name, _)| name).to_owned()
}

fn dio_alignment(directory: &Path) -> DioAlignment {
    let unnamed = fs::File::options().write(true).custom_flags(libc::O_TMPFILE).open(directory);
    let Ok(file) = unnamed else { return DioAlignment::NotTold };
    let Ok(answer) = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return DioAlignment::NotTold;
    };
    if answer.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return DioAlignment::NotTold;
    }
    match (answer.stx_dio_mem_align, answer.stx_dio_offset_align) {
        (0, _) | (_, 0) => DioAlignment::Refused,
        (memory, offset) => DioAlignment::Bytes { memory, offset },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(file_system: &str, super_options: &str) -> MountPoint {
        MountPoint {
            device: DeviceNumber { major: 7, minor: 0 },
            root: "/".into(),
            target: "/mnt".into(),
            options: "rw,relatime".into(),
            file_system: file_system.into(),
            source: "/dev/loop0".into(),
            super_options: super_options.into(),
        }
    }

    #[test]
    fn barriers_and_copy_on_write_come_from_the_mount() {
        assert_eq!(mount_facts(mount("ext4", "rw,nobarrier")).barriers, Barriers::Off);
        assert_eq!(mount_facts(mount("ext4", "rw,barrier=0")).barriers, Barriers::Off);
        assert_eq!(mount_facts(mount("ext4", "rw")).barriers, Barriers::On);
        assert_eq!(mount_facts(mount("ext4", "rw,data=journal")).options, "rw,relatime,data=journal");
        assert_eq!(copy_on_write(&mount("btrfs", "rw")), CopyOnWrite::Always);
        assert_eq!(copy_on_write(&mount("btrfs", "rw,nodatacow")), CopyOnWrite::SharedExtents);
        assert_eq!(copy_on_write(&mount("ext4", "rw")), CopyOnWrite::Never);
    }

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn this_directory_has_capabilities() {
        let directory = tempfile::tempdir().expect("a directory");
        let found = Capabilities::of(directory.path()).expect("capabilities");
        assert!(!found.mount.file_system.is_empty());
        let again = Capabilities::of(directory.path()).expect("capabilities");
        assert_eq!(again, found, "nothing in it changes from one look to the next");
        assert!(Capabilities::of(&directory.path().join("missing")).is_err());
    }
}
