//! A machine whose disks are in memory: real kernel file systems on loop devices on disks of
//! [`super::server`].
//!
//! *Owns*: the work directory, fsck, mounting, and removing all of it. *May not touch*:
//! what is done in a file system.
//!
//! What a killed process leaves is found by its work directory's name and removed by the next
//! start: the file system first, then its loop device, then the dead FUSE mount below.

use std::path::{Path, PathBuf};

pub use inkstone_host::FsKind;
use inkstone_host::{DeviceNumber, LoopDevice, LoopOptions, Mount, WorkDir, run_on_device, sweep};

use super::disk::Disk;
use super::image::Image;
use super::server::DiskServer;

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
        kind.make(device.path())?;
        forget(kind, device.path())?;
        device.detach().map_err(|error| error.to_string())
    }

    /// Mounts the file system of a disk, after e2fsck if it has no journal, as a machine does when
    /// it boots.
    pub fn boot(&self, disk: &Disk, kind: FsKind) -> Result<Running, String> {
        let device = self.attach(disk)?;
        if kind == FsKind::Ext4NoJournal {
            run_on_device("e2fsck", &["-fy"], device.path(), |code| code < 4)?;
        }
        // Otherwise the kernel commits by itself every 5 or 30 s: a program that syncs nothing would
        // look durable.
        let options = match kind {
            FsKind::Ext4 | FsKind::Btrfs => "commit=300",
            FsKind::Ext4DataJournal => "data=journal,commit=300",
            FsKind::Ext4NoJournal | FsKind::Xfs => kind.mount_options(),
        };
        let mount = Mount::new(device.path(), &self.target, kind.kernel_name(), options);
        let mount = mount.map_err(|error| error.to_string())?;
        Ok(Running { mount: Some(mount), device: Some(device), kind })
    }

    /// Has the file system's own tool check it; it must not be mounted.
    pub fn check(&self, disk: &Disk, kind: FsKind) -> Result<(), String> {
        let device = self.attach(disk)?;
        let checked = kind.check(device.path());
        forget(kind, device.path())?;
        device.detach().map_err(|error| error.to_string())?;
        checked
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
    /// The number that the kernel's events have.
    pub(crate) fn device(&self) -> Option<DeviceNumber> {
        self.device.as_ref().map(LoopDevice::device)
    }

    /// Unmounts it and detaches its disk. What reaches the disk by this is not part of a crash:
    /// take the recording before.
    pub fn shut_down(mut self) -> Result<(), String> {
        if let Some(mount) = self.mount.take() {
            mount.unmount().map_err(|error| error.to_string())?;
        }
        let Some(device) = self.device.take() else { return Ok(()) };
        device.until_unused().map_err(|error| error.to_string())?;
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
    run_on_device("btrfs", &["device", "scan", "--forget"], device, |_| true)
}
