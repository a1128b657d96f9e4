//! A machine whose disks are in memory: real kernel file systems on loop devices on disks of
//! [`super::server`].
//!
//! *Owns*: the work directory, mkfs and fsck, mounting, and removing all of it. *May not touch*:
//! what is done in a file system.
//!
//! What a killed process leaves is found by its work directory's name and removed by the next
//! start: the file system first, then its loop device, then the dead FUSE mount below.

use std::path::{Path, PathBuf};

use inkstone_host::{LoopDevice, LoopOptions, Mount, WorkDir, run_on_device, sweep};
use inkstone_io::named_choice;

use super::disk::Disk;
use super::image::Image;
use super::server::DiskServer;

named_choice! {
    /// A kind of file system.
    FsKind, "file system" {
        Ext4 = "ext4", "ext4 with a journal";
        Ext4NoJournal = "ext4-nojournal",
            "ext4 without a journal; e2fsck runs before it is mounted again";
        Ext4DataJournal = "ext4-data-journal", "ext4 mounted with data=journal";
        Xfs = "xfs", "xfs";
        Btrfs = "btrfs", "btrfs, copy on write";
    }
}

impl FsKind {
    fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4DataJournal => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn mount_options(self) -> &'static str {
        if self == Self::Ext4DataJournal { "data=journal" } else { "" }
    }

    /// The size of a disk that it can be made on; most of it is never written and takes no memory.
    pub fn disk_bytes(self) -> u64 {
        match self {
            Self::Ext4 | Self::Ext4NoJournal | Self::Ext4DataJournal => 64 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 256 << 20,
        }
    }

    /// Whether files can be written past the page cache: with data=journal ext4 passes all data
    /// through its journal.
    pub fn has_direct(self) -> bool {
        self != Self::Ext4DataJournal
    }

    fn mkfs(self) -> (&'static str, &'static [&'static str]) {
        // Not lazy: the kernel's threads would write inode tables while the log writes.
        const LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";
        match self {
            Self::Ext4 | Self::Ext4DataJournal => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", LAZY])
            }
            Self::Ext4NoJournal => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", LAZY])
            }
            Self::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
        }
    }

    /// The tools that it needs, each with its package.
    fn tools(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Ext4 | Self::Ext4DataJournal => &[("mkfs.ext4", "e2fsprogs")],
            Self::Ext4NoJournal => &[("mkfs.ext4", "e2fsprogs"), ("e2fsck", "e2fsprogs")],
            Self::Xfs => &[("mkfs.xfs", "xfsprogs")],
            Self::Btrfs => &[("mkfs.btrfs", "btrfs-progs"), ("btrfs", "btrfs-progs")],
        }
    }
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').map(|directory| Path::new(directory).join(name)).find(|tool| tool.exists())
}

pub fn missing() -> Option<String> {
    if !inkstone_io::is_root() {
        return Some("mounting needs root".into());
    }
    for (device, cure) in [("/dev/fuse", "modprobe fuse"), ("/dev/loop-control", "modprobe loop")] {
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(device) {
            return Some(format!("{device}: {error} ({cure}; pass it into a container)"));
        }
    }
    None
}

pub fn missing_for(kind: FsKind) -> Option<String> {
    let (name, package) = kind.tools().iter().find(|(name, _)| tool(name).is_none())?;
    Some(format!("{kind}: {name} is not installed (package {package})"))
}

/// Runs a tool on a device. An error if the tool is missing, or ends with a code that is not
/// accepted.
pub(crate) fn run(
    name: &str,
    arguments: &[&str],
    device: &Path,
    accept: fn(i32) -> bool,
) -> Result<(), String> {
    let program = tool(name).ok_or_else(|| format!("{name} is not installed"))?;
    let output = run_on_device(&program, arguments, device);
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if output.status.code().is_some_and(accept) {
        return Ok(());
    }
    let words = [output.stdout, output.stderr]
        .map(|said| String::from_utf8_lossy(&said).trim().to_string());
    Err(format!("{name} {}: {}", output.status, words.join(" ")))
}

/// A place to mount file systems in. Dropping it removes everything in it.
#[derive(Debug)]
pub struct Machine {
    // In this order: the disks are dropped before the directory that they are in.
    server: Option<DiskServer>,
    target: PathBuf,
    work: Option<WorkDir>,
}

impl Machine {
    /// A machine whose work directory is in `parent`. It first removes what killed processes left
    /// there. At most one file system is mounted in it at a time.
    pub fn new(parent: &Path) -> Result<Self, String> {
        if let Some(why) = missing() {
            return Err(why);
        }
        sweep(parent).map_err(|error| error.to_string())?;
        let work = WorkDir::create(parent).map_err(|error| error.to_string())?;
        let [disks, target] = ["disks", "mounted"].map(|name| work.path().join(name));
        for directory in [&disks, &target] {
            std::fs::create_dir(directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let server = DiskServer::mount(&disks)
            .map_err(|error| format!("FUSE at {}: {error}", disks.display()))?;
        Ok(Self { server: Some(server), target, work: Some(work) })
    }

    pub fn attach(&self, disk: &Disk) -> Result<LoopDevice, String> {
        let server = self.server.as_ref().ok_or("the machine was removed")?;
        let file = server.serve(disk);
        // A buffered loop device is the common one; FUSE passes each of its writes on as it comes.
        let options = LoopOptions { direct_io: false, sector_bytes: 512 };
        LoopDevice::attach(&file, options).map_err(|error| error.to_string())
    }

    pub fn make(&self, disk: &Disk, kind: FsKind) -> Result<(), String> {
        let device = self.attach(disk)?;
        let (name, arguments) = kind.mkfs();
        run(name, arguments, device.path(), |code| code == 0)?;
        forget(kind, device.path())?;
        device.detach().map_err(|error| error.to_string())
    }

    /// Mounts the file system of a disk, after e2fsck if it has no journal, as a machine does when
    /// it boots.
    pub fn boot(&self, disk: &Disk, kind: FsKind) -> Result<Running, String> {
        let device = self.attach(disk)?;
        if kind == FsKind::Ext4NoJournal {
            run("e2fsck", &["-fy"], device.path(), |code| code < 4)?;
        }
        let mount =
            Mount::new(device.path(), &self.target, kind.kernel_name(), kind.mount_options());
        let mount = mount.map_err(|error| error.to_string())?;
        Ok(Running { mount: Some(mount), device: Some(device), kind })
    }

    pub fn new_disk(&self, kind: FsKind) -> Result<Disk, String> {
        let disk = Disk::new(kind.to_string().as_str(), Image::new(kind.disk_bytes()));
        self.make(&disk, kind)?;
        Ok(disk)
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    pub fn remove(mut self) -> Result<(), String> {
        if let Some(server) = self.server.take() {
            server.unmount().map_err(|error| format!("unmount the disks: {error}"))?;
        }
        self.work.take().map_or(Ok(()), |work| work.remove().map_err(|error| error.to_string()))
    }
}

/// A mounted file system. Dropping it unmounts it and detaches its disk.
#[derive(Debug)]
pub struct Running {
    mount: Option<Mount>,
    device: Option<LoopDevice>,
    kind: FsKind,
}

impl Running {
    /// Unmounts it and detaches its disk. What reaches the disk by this is not part of a crash:
    /// take the recording before.
    pub fn shut_down(mut self) -> Result<(), String> {
        if let Some(mount) = self.mount.take() {
            mount.unmount().map_err(|error| error.to_string())?;
        }
        let Some(device) = self.device.take() else { return Ok(()) };
        forget(self.kind, device.path())?;
        device.detach().map_err(|error| error.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.mount.take());
        if let Some(device) = self.device.take() {
            let _ = forget(self.kind, device.path());
        }
    }
}

/// btrfs remembers each device that it has seen, and refuses an older state of the same file system
/// on another one.
fn forget(kind: FsKind, device: &Path) -> Result<(), String> {
    if kind != FsKind::Btrfs {
        return Ok(());
    }
    // Not registered (any more) is fine.
    run("btrfs", &["device", "scan", "--forget"], device, |_| true)
}
