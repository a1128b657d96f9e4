//! File systems of our own on loop devices: created, mounted, and removed again.
//!
//! *Owns*: backing files, mounts, and removing them in the right order. *May not touch*: what
//! is measured on them. What a killed lab leaves is found by its working directory's name and
//! removed by the next start (`inkstone_host::sweep`).

use std::path::{Path, PathBuf};

use inkstone_host::{ExtentMap, ExtentState, FsKind, LabFile, LoopDevice, LoopOptions, Mount};
use inkstone_io::{
    Access, AlignedBuf, File, NamedChoice, OpenFile, Preparation, SyncKind, named_choice,
};

use crate::stage::WayError;

named_choice! {
    /// How the loop device opens its backing file.
    LoopMode, "loop mode" {
        Buffered = "buffered",
            "the backing file through the page cache, 512 B sectors (as published)";
        Direct = "direct", "the backing file with O_DIRECT, 4096 B sectors";
    }
}

impl LoopMode {
    fn options(self) -> LoopOptions {
        match self {
            Self::Buffered => LoopOptions { direct_io: false, sector_bytes: 512 },
            Self::Direct => LoopOptions { direct_io: true, sector_bytes: 4096 },
        }
    }
}

/// Bytes written at a time.
const ZEROS_BYTES: usize = 1 << 20;

/// Smallest image for all file systems here: xfs needs 300 MiB.
pub const IMAGE_BYTES_MIN: u64 = 320 << 20;

/// A mounted file system on a loop device on a fully written file. Everything is removed in the
/// right order, also on drop.
#[derive(Debug)]
pub struct Image {
    // Dropped in this order: unmounted, detached, then the file removed.
    mount: Option<Mount>,
    device: Option<LoopDevice>,
    backing: PathBuf,
    target: PathBuf,
}

impl Image {
    /// Creates `kind` in `directory` (a working directory of the lab) and mounts it there.
    ///
    /// # Errors
    /// A missing tool, with the name of its package; errors of the operating system or of mkfs.
    pub fn make(
        directory: &Path,
        kind: FsKind,
        mode: LoopMode,
        image_bytes: u64,
    ) -> Result<Self, WayError> {
        let name = format!("{kind}-{}", mode.name());
        let mut image = Self {
            mount: None,
            device: None,
            backing: directory.join(format!("{name}.img")),
            target: directory.join(name),
        };
        write_backing(&image.backing, image_bytes)?;
        let device = LoopDevice::attach(&image.backing, mode.options())?;
        let path = device.path().to_path_buf();
        let direct = device.is_direct()?;
        image.device = Some(device);
        if direct != (mode == LoopMode::Direct) {
            let is = if direct { "direct" } else { "buffered" };
            return Err(WayError::Invalid(format!(
                "the loop device is {is}, but {} was asked for",
                mode.name()
            )));
        }
        kind.make(&path).map_err(WayError::Invalid)?;
        fill_holes(&image.backing, mode)?;
        std::fs::create_dir_all(&image.target)
            .map_err(|source| inkstone_io::Error::new("mkdir", &image.target, source))?;
        let options = match kind {
            // It discards free blocks by itself, which punches holes into the backing file.
            FsKind::Btrfs => "nodiscard",
            kind => kind.mount_options(),
        };
        image.mount = Some(Mount::new(&path, &image.target, kind.kernel_name(), options)?);
        Ok(image)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.target
    }

    /// Removes it.
    ///
    /// # Errors
    /// What could not be unmounted, detached or removed; the next start of the lab tries again.
    pub fn remove(mut self) -> Result<(), WayError> {
        if let Some(mount) = self.mount.take() {
            mount.unmount()?;
        }
        if let Some(device) = self.device.take() {
            device.detach()?;
        }
        self.remove_files();
        Ok(())
    }

    fn remove_files(&self) {
        // What cannot be removed here is removed with the working directory, or reported by the
        // next start.
        let _ = std::fs::remove_dir(&self.target);
        let _ = std::fs::remove_file(&self.backing);
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        drop(self.mount.take());
        drop(self.device.take());
        self.remove_files();
    }
}

/// Writes the backing file. It is never sparse: otherwise the host would allocate blocks while the
/// guest's commits are measured.
fn write_backing(path: &Path, len_bytes: u64) -> Result<(), WayError> {
    let made = |access| {
        let how = OpenFile::new_file().access(access);
        let file = LabFile::open(path, &how)?;
        file.prepare(Preparation::Zeros, len_bytes)
    };
    match made(Access::Direct) {
        Ok(()) => Ok(()),
        // A host without O_DIRECT: write through its page cache.
        Err(error) if error.is_unsupported() || error.raw_os_error() == Some(22) => {
            let _ = std::fs::remove_file(path);
            Ok(made(Access::Buffered)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Every mkfs discards the device, and zeroes tables by a request that writes nothing: both remove
/// blocks from the backing file. This writes zeros into these holes, which read as zeros anyway.
fn fill_holes(path: &Path, mode: LoopMode) -> Result<(), WayError> {
    let access = if mode == LoopMode::Direct { Access::Direct } else { Access::Buffered };
    let file = LabFile::open(path, &OpenFile::existing().access(access))?;
    file.sync(SyncKind::All)?;
    let map = match ExtentMap::of(file.std_file(), path) {
        Ok(map) => map,
        Err(error) if error.is_unsupported() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let zeros = AlignedBuf::zeroed(ZEROS_BYTES);
    let (mut at, end) = (0, file.len_bytes()?);
    let own = map.extents.iter().filter(|extent| extent.state != ExtentState::Unwritten);
    for (start, next) in
        own.map(|extent| (extent.logical, extent.logical + extent.len_bytes)).chain([(end, end)])
    {
        while at < start.min(end) {
            let len = (start.min(end) - at).min(ZEROS_BYTES as u64);
            file.write_at(&zeros[..len as usize], at)?;
            at += len;
        }
        at = at.max(next);
    }
    Ok(file.sync(SyncKind::All)?)
}
