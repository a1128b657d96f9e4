//! What the file system and the device under a directory can do, found out without I/O.
//!
//! *Owns*: the facts and where they are read (statx, statfs, mountinfo, sysfs). *May not touch*:
//! the medium; nothing is written or synced for this. What only a trial can show (does WRITE_ZEROES
//! really work?) is not here.
//!
//! All questions go to the directory's descriptor, since its path may lead elsewhere by now.
//! `/proc` and `/sys` may be missing or hidden (a chroot, a container): facts from there are `None`
//! then.
//!
//! The alignment for `O_DIRECT` is asked for on an unnamed temporary file (`O_TMPFILE`), since the
//! kernel reports it for files only.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, StatVfsMountFlags, fstat, fstatvfs};

use crate::device_number::DeviceNumber;
use crate::error::{Error, Result, is_not_here};
use crate::held::Held;
use crate::mount_table::{MountPoint, mount_points};
pub use crate::sys::DioAlignment;
use crate::sys::{self, FileSystem};

/// Whether overwriting written blocks puts the data in a new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOnWrite {
    /// Never: the file system overwrites in place.
    Never,
    /// Only for blocks that are shared with another file (reflinks).
    SharedExtents,
    /// Always: preparing blocks gains little.
    Always,
}

/// Whether the mount makes syncs reach the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barriers {
    /// Syncs flush the device's cache.
    On,
    /// Mounted with `nobarrier` or `barrier=0`, or an overlay with `volatile`: a sync does not
    /// flush, and a power loss can lose what it acknowledged.
    Off,
    /// The options of the mount are unknown, or do not show it (the layers of an overlay have their
    /// own mounts).
    NotTold,
}

/// The mount of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFacts {
    /// The file system: `ext4`. Without the kernel's table of mounts, its name by the number from
    /// `statfs` (ext2 and ext3 have that of ext4); `file system 0x...` for an unknown number.
    pub file_system: String,
    /// Where it is mounted; `None` if the table of mounts does not show it.
    pub target: Option<PathBuf>,
    /// What is mounted: `/dev/vda`.
    pub source: Option<String>,
    /// Options of the mount and of the file system, joined by commas.
    pub options: Option<String>,
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
    /// The number of the partition, if the file system is on one.
    pub partition: Option<DeviceNumber>,
    /// Where that partition begins on the disk, in bytes; 0 without a partition.
    pub partition_start_bytes: u64,
    /// Whether it has a volatile write cache (`write back`): only then a flush has an effect.
    pub volatile_cache: Option<bool>,
    /// Whether it can write past its cache.
    pub fua: Option<bool>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    /// The number of queues through which the kernel sends requests; each has at most one flush in
    /// flight. `None` if the kernel shows none (devices made of others).
    pub hardware_queues: Option<u32>,
    /// Whether it spins.
    pub rotational: Option<bool>,
    /// Its model.
    pub model: Option<String>,
    /// Logical block in bytes.
    pub logical_block_bytes: Option<u32>,
    /// Physical block in bytes.
    pub physical_block_bytes: Option<u32>,
    /// For a loop device: its backing file.
    pub loop_backing: Option<PathBuf>,
    /// For a loop device: whether it opens that file with O_DIRECT.
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
    /// The alignment that O_DIRECT needs.
    pub direct: DioAlignment,
    /// Whether overwrites go to a new place.
    pub copy_on_write: CopyOnWrite,
    /// Whether `pwritev2(RWF_DSYNC)` is to be had. A sandbox or an old kernel may refuse it.
    pub dsync_writes: bool,
    /// Whether the file system is in memory: nothing there is durable.
    pub in_memory: bool,
    /// ext4: whether it has a journal. `None` elsewhere, and if a journal on a device of its own
    /// may be this file system's.
    pub journal: Option<bool>,
}

impl Capabilities {
    /// Finds out about the disk under `directory`.
    ///
    /// # Errors
    /// When the directory is missing or may not be searched. An unknown fact is `None`.
    pub fn of(directory: &Path) -> Result<Self> {
        Self::of_held(&Held::open(directory)?)
    }

    /// The same without a file of its own, so that nothing is written: `direct` is not told, and
    /// `dsync_writes` is true.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn seen(directory: &Path) -> Result<Self> {
        Self::without_trying(&Held::open(directory)?)
    }

    pub(crate) fn of_held(held: &Held) -> Result<Self> {
        let seen = Self::without_trying(held)?;
        if seen.in_memory {
            return Ok(Self { direct: DioAlignment::Refused, ..seen });
        }
        let (direct, dsync_writes) = tried_unnamed(held);
        Ok(Self { direct, dsync_writes, ..seen })
    }

    /// The same of the directory of this file, which is asked in place of an unnamed one.
    pub(crate) fn of_file(held: &Held, name: &str) -> Result<Self> {
        let seen = Self::without_trying(held)?;
        let bits = |flag: i32| OFlags::from_bits_retain(flag.cast_unsigned());
        let open = |flags| held.open_file(name, OFlags::RDONLY | flags, 0);
        let direct = match sys::O_DIRECT.filter(|_| !seen.in_memory).map(bits) {
            None => DioAlignment::Refused,
            Some(flag) => match open(flag) {
                Ok(file) => sys::dio_alignment(file.as_fd()),
                // Only with the flag it is refused.
                Err(_) if open(OFlags::empty()).is_ok() => DioAlignment::Refused,
                Err(_) => DioAlignment::NotTold,
            },
        };
        Ok(Self { direct, ..seen })
    }

    fn without_trying(held: &Held) -> Result<Self> {
        // Without /proc, and if the process cannot see this mount, there is none.
        let points = mount_points().unwrap_or_default();
        let mount = mount_of(held, points);
        let file_system = match &mount {
            Some(mount) => mount.file_system.clone(),
            None => file_system_of(held)?,
        };
        let device = device_number_of(held, mount.as_ref()).and_then(DeviceFacts::of);
        let in_memory = matches!(file_system.as_str(), "tmpfs" | "ramfs" | "devtmpfs");
        let journal = device.as_ref().filter(|_| file_system == "ext4").and_then(has_journal);
        let mut mount = mount_facts(mount, file_system);
        if let Ok(answer) = fstatvfs(held) {
            mount.read_only = answer.f_flag.contains(StatVfsMountFlags::RDONLY);
        }
        Ok(Self {
            directory: absolute(held),
            copy_on_write: copy_on_write(&mount),
            mount,
            device,
            direct: DioAlignment::NotTold,
            dsync_writes: true,
            in_memory,
            journal,
        })
    }

    /// The layer below that is in memory, if there is one: the file system itself, a RAM disk, or
    /// the file system of a loop device's backing file. Nothing there survives a power loss,
    /// whatever a sync returns.
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

    /// What is wrong with a loop device below, if there is one that writes its file through the
    /// page cache (docs/assumptions.md, A18), in words.
    pub fn buffered_loop_below(&self) -> Option<String> {
        let device = self.device.as_ref()?;
        if let (Some(false), Some(file)) = (device.loop_direct, &device.loop_backing) {
            return Some(format!(
                "{} writes {} through the page cache: where the disk below is full, it \
                 acknowledges writes that are gone later",
                device.name,
                file.display()
            ));
        }
        Self::of(&self.host_directory()?).ok()?.buffered_loop_below()
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
    free_bytes_of(&Held::open(directory)?, directory)
}

pub(crate) fn free_bytes_of(directory: impl AsFd, path: &Path) -> Result<u64> {
    let answer = fstatvfs(directory).map_err(|error| Error::new("statvfs", path, error))?;
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// Its path without links, if that still leads to it.
fn absolute(held: &Held) -> PathBuf {
    let leads_here = |path: &PathBuf| {
        let (there, here) = (fs::metadata(path).ok(), fstat(held).ok());
        there
            .zip(here)
            .is_some_and(|(there, here)| (there.dev(), there.ino()) == sys::identity(&here))
    };
    held.path().canonicalize().ok().filter(leads_here).unwrap_or_else(|| held.path().to_path_buf())
}

/// The mount in which the directory was opened: by its number or, before Linux 5.8, the mount with
/// the longest target above its path, and of several the last one, which covers the others.
fn mount_of(held: &Held, points: Vec<MountPoint>) -> Option<MountPoint> {
    if let Some(id) = sys::mount_id(held.as_fd()) {
        return points.into_iter().find(|mount| mount.id == id);
    }
    let path = absolute(held);
    let above = points.into_iter().filter(|mount| path.starts_with(&mount.target));
    above.max_by_key(|mount| mount.target.components().count())
}

/// The file system's name, as the kernel gives it or by its number.
fn file_system_of(held: &Held) -> Result<String> {
    let answer = sys::file_system(held.as_fd());
    let FileSystem { number, name } =
        answer.map_err(|error| Error::new("statfs", held.path(), error))?;
    let known = || {
        FILE_SYSTEMS.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned())
    };
    Ok(name.or_else(known).unwrap_or_else(|| format!("file system {number:#x}")))
}

/// From the kernel's `linux/magic.h`, and the sources of those that are not in it.
const FILE_SYSTEMS: [(u32, &str); 21] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x794C_7630, "overlay"),
    (0x6573_5546, "fuse"),
    (0x6969, "nfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb3"),
    (0x00C3_6400, "ceph"),
    (0x0102_1997, "9p"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0xF2F5_2010, "f2fs"),
    (0x3434, "nilfs2"),
    (0x7461_636F, "ocfs2"),
    (0x4D44, "vfat"),
    (0x7371_7368, "squashfs"),
    (0xE0F5_E1E2, "erofs"),
    (0x9FA0, "proc"),
];

fn mount_facts(mount: Option<MountPoint>, file_system: String) -> MountFacts {
    let Some(mount) = mount else {
        let barriers = Barriers::NotTold;
        return MountFacts {
            file_system,
            target: None,
            source: None,
            options: None,
            read_only: false,
            barriers,
        };
    };
    let options = format!("{},{}", mount.options, mount.super_options);
    let has = |name: &str| options.split(',').any(|option| option == name);
    let barriers = match file_system.as_str() {
        _ if has("nobarrier") || has("barrier=0") => Barriers::Off,
        // Linux that has both words shows the first one as the second.
        "overlay" if has("volatile") || has("fsync=volatile") => Barriers::Off,
        "overlay" => Barriers::NotTold,
        _ => Barriers::On,
    };
    let read_only = has("ro");
    let mut seen = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        if !seen.contains(&option) {
            seen.push(option);
        }
    }
    MountFacts {
        file_system,
        target: Some(mount.target),
        source: Some(mount.source),
        options: Some(seen.join(",")),
        read_only,
        barriers,
    }
}

fn copy_on_write(mount: &MountFacts) -> CopyOnWrite {
    let mut options = mount.options.iter().flat_map(|options| options.split(','));
    let nodatacow = options.any(|option| option == "nodatacow");
    match mount.file_system.as_str() {
        "btrfs" if nodatacow => CopyOnWrite::SharedExtents,
        "btrfs" | "zfs" | "bcachefs" | "nilfs2" => CopyOnWrite::Always,
        "xfs" | "ocfs2" | "apfs" => CopyOnWrite::SharedExtents,
        _ => CopyOnWrite::Never,
    }
}

/// The number of the block device. btrfs shows an anonymous number, so the source of the mount is
/// used there.
fn device_number_of(held: &Held, mount: Option<&MountPoint>) -> Option<DeviceNumber> {
    let own = fstat(held).ok().map(|facts| DeviceNumber::from_st_dev(sys::identity(&facts).0));
    let shown = mount.map(|mount| mount.device);
    if let Some(number) = shown.into_iter().chain(own).find(|number| number.major != 0) {
        return Some(number);
    }
    let metadata = fs::metadata(&mount?.source).ok()?;
    let number = DeviceNumber::from_st_dev(metadata.rdev());
    (number.major != 0).then_some(number)
}

impl DeviceFacts {
    /// The facts of sysfs on the block device with this number, a disk or a partition; `None` if
    /// there is none or sysfs is hidden.
    pub fn of(number: DeviceNumber) -> Option<Self> {
        let own = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
        let is_partition = own.join("partition").exists();
        let disk = if is_partition { own.parent()?.to_path_buf() } else { own.clone() };
        let text = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let queue = |name: &str| text(disk.join("queue").join(name));
        let flag = |name: &str| queue(name).map(|value| value != "0");
        let start_sectors = text(own.join("start")).and_then(|text| text.parse::<u64>().ok());
        let scheduler = queue("scheduler").map(|text| chosen(&text));
        let queues = fs::read_dir(disk.join("mq"))
            .ok()
            .and_then(|entries| u32::try_from(entries.count()).ok());
        Some(Self {
            name: disk.file_name()?.to_string_lossy().into_owned(),
            // sysfs writes the slash of names such as `cciss/c0d0` as an exclamation mark.
            node: Path::new("/dev").join(own.file_name()?.to_string_lossy().replace('!', "/")),
            number: text(disk.join("dev"))?.parse().ok()?,
            partition: is_partition.then_some(number),
            partition_start_bytes: if is_partition { start_sectors.unwrap_or(0) * 512 } else { 0 },
            volatile_cache: queue("write_cache").map(|text| text == "write back"),
            fua: flag("fua"),
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
}

/// The kernel shows a directory for each active journal: `/proc/fs/jbd2/vda-8`, or `vdb` for one
/// that is alone on a device.
fn has_journal(device: &DeviceFacts) -> Option<bool> {
    let entries = match fs::read_dir("/proc/fs/jbd2") {
        Ok(entries) => entries,
        // There is no journal at all, or no /proc.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Path::new("/proc/fs").exists().then_some(false);
        }
        Err(_) => return None,
    };
    let names =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let is_device = |name: &str| Path::new("/sys/class/block").join(name).exists();
    is_listed(&device.node.file_name()?.to_string_lossy(), &names.collect::<Vec<_>>(), is_device)
}

/// Of a journal that is alone on a device nothing shows whose it is.
fn is_listed(own: &str, names: &[String], is_device: impl Fn(&str) -> bool) -> Option<bool> {
    let own = format!("{own}-");
    if names.iter().any(|name| name.starts_with(&own)) {
        return Some(true);
    }
    (!names.iter().any(|name| is_device(name))).then_some(false)
}

/// `none [mq-deadline] kyber` -> `mq-deadline`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(name, _)| name).to_owned()
}

/// What a file without a name shows: the alignment for `O_DIRECT`, and whether `RWF_DSYNC` is
/// there. A write of no bytes does no I/O, and a sandbox refuses it like any other. If no such file
/// can be made, the second is taken to be there: a log's first write tells.
fn tried_unnamed(directory: &Held) -> (DioAlignment, bool) {
    let Some(direct) = sys::O_DIRECT else { return (DioAlignment::Refused, false) };
    let has_dsync = |file: &OwnedFd| {
        !sys::pwrite_dsync(file.as_fd(), &[], 0).is_err_and(|error| is_not_here(&error))
    };
    if let Ok(file) = sys::unnamed_file(directory.as_fd(), direct) {
        return (sys::dio_alignment(file.as_fd()), has_dsync(&file));
    }
    match sys::unnamed_file(directory.as_fd(), 0) {
        // Only with the flag it is refused.
        Ok(file) => (DioAlignment::Refused, has_dsync(&file)),
        Err(_) => (DioAlignment::NotTold, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(file_system: &str, super_options: &str) -> MountFacts {
        let mount = MountPoint {
            id: 1,
            device: DeviceNumber { major: 7, minor: 0 },
            root: "/".into(),
            target: "/mnt".into(),
            options: "rw,relatime".into(),
            file_system: file_system.into(),
            source: "/dev/loop0".into(),
            super_options: super_options.into(),
        };
        mount_facts(Some(mount), file_system.into())
    }

    #[test]
    fn barriers_and_copy_on_write_come_from_the_mount() {
        assert_eq!(mount("ext4", "rw,nobarrier").barriers, Barriers::Off);
        assert_eq!(mount("ext4", "rw,barrier=0").barriers, Barriers::Off);
        assert_eq!(mount("ext4", "rw").barriers, Barriers::On);
        assert_eq!(mount("overlay", "rw,upperdir=/u,workdir=/w,volatile").barriers, Barriers::Off);
        assert_eq!(mount("overlay", "rw,uuid=on,fsync=volatile").barriers, Barriers::Off);
        assert_eq!(mount("overlay", "rw,upperdir=/u,workdir=/w").barriers, Barriers::NotTold);
        assert_eq!(mount_facts(None, "ext4".into()).barriers, Barriers::NotTold);
        let options = mount("ext4", "rw,data=journal").options;
        assert_eq!(options.as_deref(), Some("rw,relatime,data=journal"));
        assert_eq!(copy_on_write(&mount("btrfs", "rw")), CopyOnWrite::Always);
        assert_eq!(copy_on_write(&mount("btrfs", "rw,nodatacow")), CopyOnWrite::SharedExtents);
        assert_eq!(copy_on_write(&mount("ext4", "rw")), CopyOnWrite::Never);
    }

    #[test]
    fn a_mount_is_found_by_its_number_and_a_file_system_by_its_own() {
        let directory = tempfile::tempdir().expect("a directory");
        // Mostly on a disk, and in memory.
        for path in [directory.path(), Path::new("/dev/shm")].into_iter().filter(|at| at.is_dir()) {
            let held = Held::open(path).expect("held");
            let mount = mount_of(&held, mount_points().expect("/proc")).expect("a mount");
            assert!(held.path().canonicalize().expect("there").starts_with(&mount.target));
            assert_eq!(
                file_system_of(&held).expect("told"),
                mount.file_system,
                "or it lacks a name in the list"
            );
            assert_eq!(mount_of(&held, Vec::new()), None);
        }
    }

    #[test]
    fn a_journal_on_a_device_of_its_own_may_be_anyones() {
        let journal_of = |own: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            is_listed(own, &names, |name| !name.ends_with("-8"))
        };
        assert_eq!(journal_of("loop0", &["loop0-8", "loop2-8"]), Some(true));
        assert_eq!(journal_of("loop4", &["loop0-8", "loop2-8"]), Some(false));
        assert_eq!(journal_of("loop4", &["loop0-8", "loop5"]), None);
        assert_eq!(journal_of("loop0", &["loop0-8", "dm-1"]), Some(true));
        assert_eq!(journal_of("vda", &[]), Some(false));
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
        assert_eq!(again, found, "two calls give the same facts");
        assert!(Capabilities::of(&directory.path().join("missing")).is_err());
    }
}
