//! Loop devices: a file that looks like a disk.
//!
//! *Owns*: `/dev/loop-control` and the loop devices that it attached. *May not touch*: a loop
//! device that another program attached, unless a sweep names it.
//!
//! A Linux loop device reports a write-back cache and no FUA, and serves a flush with an fsync of
//! its file. Its file has to be fully written first: a sparse file pays for its allocation in the
//! first writes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::patience::Patience;
use inkstone_io::transfer::retry;
use inkstone_io::{DeviceNumber, Error, Result};

const CONTROL: &str = "/dev/loop-control";
// From linux/loop.h; the headers of some distributions lack the newer ones.
const LOOP_CTL_GET_FREE: u32 = 0x4C82;
const LOOP_CONFIGURE: u32 = 0x4C0A;
const LOOP_CLR_FD: u32 = 0x4C01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Other programs take free devices too: for how long the next free one may be gone again.
const ATTACHES_IN: Duration = Duration::from_secs(10);
/// How long a detached device may stay busy: udev opens each new one for a moment, and a process
/// that is just getting a mount namespace of its own has all mounts for one.
const DETACHES_IN: Duration = Duration::from_secs(10);
/// How long a file system may live on when the last process that had it mounted has ended.
const UNUSED_IN: Duration = Duration::from_secs(20);
/// The pause before asking again.
const PAUSE: Duration = Duration::from_millis(2);

/// How a loop device shall behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopOptions {
    /// Reads and writes its file past the page cache: the guest's blocks are cached once, not
    /// twice.
    pub direct_io: bool,
    /// Bytes of a sector that it shows; 0 for the kernel's choice (512, or more with `direct_io`
    /// where the disk below needs it).
    pub sector_bytes: u32,
}

impl Default for LoopOptions {
    /// Direct I/O with sectors of 4096 bytes: the nearest to a disk of today.
    fn default() -> Self {
        Self { direct_io: true, sector_bytes: 4096 }
    }
}

/// An attached loop device; dropped, it is detached.
///
/// It has *autoclear*: the kernel detaches it when its last user is gone, so that a killed owner
/// leaves one only for as long as it is mounted.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    device: DeviceNumber,
    /// Its file as sysfs shows it: tells this use of the device from a later one.
    backing: PathBuf,
    /// Open for as long as it shall stay attached, because of autoclear.
    file: Option<File>,
}

/// `struct loop_config` as bytes: the file's descriptor at 0, the bytes of a sector at 4, and from
/// 8 on a `struct loop_info64`, of which this sets the flags at 52 and the file's name at 56.
#[repr(C, align(8))]
struct LoopConfig([u8; 304]);

impl LoopConfig {
    fn new(file: &File, backing: &Path, options: LoopOptions) -> Self {
        let direct = if options.direct_io { LO_FLAGS_DIRECT_IO } else { 0 };
        let flags = LO_FLAGS_AUTOCLEAR | direct;
        // The name is for people who list devices; sysfs has the whole. Its last byte stays 0.
        let name: Vec<u8> = backing.as_os_str().as_bytes().iter().copied().take(63).collect();
        let mut config = Self([0; 304]);
        for (at, bytes) in [
            (0, &file.as_raw_fd().to_ne_bytes()[..]),
            (4, &options.sector_bytes.to_ne_bytes()),
            (8 + 52, &flags.to_ne_bytes()),
            (8 + 56, &name),
        ] {
            config.0[at..at + bytes.len()].copy_from_slice(bytes);
        }
        config
    }
}

impl LoopDevice {
    /// Attaches a file to a free loop device. Waits while another process attaches one with this
    /// function.
    ///
    /// # Errors
    /// Not root, no loop driver or no `/dev/loop*` nodes (a container), a kernel before 5.8, a file
    /// that cannot be opened. Also if the device came out other than asked, because its numbers
    /// would be a different device's: without direct I/O (the file's file system has none, or its
    /// disk has bigger sectors), or with other sectors. Then it is
    /// [unsupported](Error::is_unsupported).
    pub fn attach(backing: &Path, options: LoopOptions) -> Result<LoopDevice> {
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let file = retry(|| open(backing))
            .map_err(|error| Error::new("open a loop device's file", backing, error))?;
        let control = retry(|| open(Path::new(CONTROL))).map_err(|error| {
            Error::new("open", CONTROL, error)
                .advise("loop devices need root and the loop driver (modprobe loop)")
        })?;
        // `GET_FREE` names the lowest device that is not attached *yet*. On a busy disk the kernel
        // attaches one in 100 ms (it syncs the file first), all others get the same name in that
        // time, and one thread can lose every race. So ours take turns.
        retry(|| control.lock()).map_err(|error| Error::new("lock", CONTROL, error))?;
        let configured = configure(&control, &LoopConfig::new(&file, backing, options));
        // Not by closing it: a child that another thread forks at this moment has it open too.
        let _ = control.unlock();
        let (path, file) = configured.map_err(|error| {
            let LoopOptions { direct_io, sector_bytes } = options;
            let io = if direct_io { "direct" } else { "buffered" };
            error.advise(format!(
                "no loop device for {} with {io} I/O and sectors of {sector_bytes} bytes",
                backing.display()
            ))
        })?;
        let metadata = file.metadata().map_err(|error| Error::new("stat", &path, error))?;
        let device = DeviceNumber::from_st_dev(metadata.rdev());
        let mut attached = LoopDevice { path, device, backing: PathBuf::new(), file: Some(file) };
        // From here on an error detaches it again.
        attached.check(options)?;
        Ok(attached)
    }

    fn check(&mut self, options: LoopOptions) -> Result<()> {
        let place = self.sysfs("loop/backing_file");
        self.backing = read_backing(&place).map_err(|error| Error::new("read", &place, error))?;
        if options.direct_io && !self.is_direct()? {
            let why = "the kernel attached it without direct I/O";
            let error = Error::unsupported("attach with direct I/O", &self.path, why);
            return Err(error.advise(
                "its file's file system has no direct I/O, or needs bigger sectors: ask for 4096 \
                 bytes",
            ));
        }
        let (wanted, found) =
            (u64::from(options.sector_bytes), self.read_number("queue/logical_block_size")?);
        if wanted != 0 && wanted != found {
            let why = format!("asked for sectors of {wanted} bytes, got {found}");
            return Err(Error::unsupported("attach", &self.path, why));
        }
        Ok(())
    }

    /// Its node: `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its number: `7:3`.
    pub fn device(&self) -> DeviceNumber {
        self.device
    }

    /// Says whether it reads and writes its file with direct I/O now.
    ///
    /// # Errors
    /// sysfs could not be read.
    pub fn is_direct(&self) -> Result<bool> {
        Ok(self.read_number("loop/dio")? == 1)
    }

    fn sysfs(&self, name: &str) -> PathBuf {
        self.device.sysfs().join(name)
    }

    fn read_number(&self, name: &str) -> Result<u64> {
        let path = self.sysfs(name);
        let text = retry(|| fs::read_to_string(&path));
        let number = text.and_then(|text| text.trim().parse().map_err(io::Error::other));
        number.map_err(|error| Error::new("read", &path, error))
    }

    /// Waits until no file system uses it: what a process had mounted in a namespace of its own ends
    /// a moment after that process.
    ///
    /// # Errors
    /// One does, after some time.
    pub fn until_unused(&self) -> Result<()> {
        let mut patience = Patience::new(UNUSED_IN);
        loop {
            match OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&self.path) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && patience.pause(PAUSE) => {}
                Err(error) => return Err(Error::new("wait for the unmount of", &self.path, error)),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Detaches it and waits until it is free.
    ///
    /// # Errors
    /// It is still in use: mounted, or open in another process. Then the kernel detaches it after
    /// its last use.
    pub fn detach(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        match self.file.take() {
            Some(file) => detach(&self.path, file, &self.sysfs("loop/backing_file"), &self.backing),
            None => Ok(()),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// Takes the next free device until one is ours.
fn configure(control: &File, config: &LoopConfig) -> Result<(PathBuf, File)> {
    let mut patience = Patience::new(ATTACHES_IN);
    loop {
        // SAFETY: this request takes no argument and returns a number.
        let index = unsafe { request(control, LOOP_CTL_GET_FREE, 0) }
            .map_err(|error| Error::new("find a free loop device", CONTROL, error))?;
        let path = PathBuf::from(format!("/dev/loop{index}"));
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let configured = opened.and_then(|device| {
            // SAFETY: the request reads one `struct loop_config`, which `config` is; it lives until
            // the call returns.
            unsafe {
                request(&device, LOOP_CONFIGURE, std::ptr::from_ref(config).expose_provenance())
            }?;
            Ok(device)
        });
        match configured {
            Ok(device) => return Ok((path, device)),
            // Another program was faster: the device is attached, or is being detached again.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENXIO))
                    && patience.pause(PAUSE) => {}
            Err(error) => {
                return Err(Error::new("attach (LOOP_CONFIGURE, Linux 5.8)", path, error));
            }
        }
    }
}

/// An ioctl that returns a number.
///
/// # Safety
/// `argument` is what `request` takes: a number, or the address of a value that lives until this
/// returns.
unsafe fn request(file: &File, request: u32, argument: usize) -> io::Result<i32> {
    retry(|| {
        // SAFETY: by this function's own contract.
        match unsafe { libc::ioctl(file.as_raw_fd(), request as libc::Ioctl, argument) } {
            -1 => Err(io::Error::last_os_error()),
            answer => Ok(answer),
        }
    })
}

/// Detaches the loop device at `path` from `backing`, where `place` is sysfs's name of its file.
fn detach(path: &Path, file: File, place: &Path, backing: &Path) -> Result<()> {
    // SAFETY: this request takes no argument.
    let answer = unsafe { request(&file, LOOP_CLR_FD, 0) };
    drop(file);
    match answer {
        // ENXIO: it was detached before.
        Err(error) if error.raw_os_error() != Some(libc::ENXIO) => {
            return Err(Error::new("detach", path, error));
        }
        _ => {}
    }
    let mut patience = Patience::new(DETACHES_IN);
    // Gone, or used for another file by now.
    while read_backing(place).is_ok_and(|now| without_deleted(&now) == without_deleted(backing)) {
        if !patience.pause(PAUSE) {
            let busy = io::Error::from_raw_os_error(libc::EBUSY);
            return Err(Error::new("detach", path, busy)
                .advise("unmount what is on it and close it; the kernel then detaches it"));
        }
    }
    Ok(())
}

/// Detaches a loop device of a dead process, if it still has that file.
pub(super) fn detach_by_path(path: &Path, backing: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default();
    let place = Path::new("/sys/block").join(name).join("loop/backing_file");
    let file = retry(|| File::open(path)).map_err(|error| Error::new("open", path, error))?;
    // Opened first and checked then: an open device is not attached to another file.
    match read_backing(&place) {
        Ok(now) if now == backing => detach(path, file, &place, backing),
        _ => Ok(()),
    }
}

fn read_backing(place: &Path) -> io::Result<PathBuf> {
    let mut bytes = retry(|| fs::read(place))?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// The path without the mark that the kernel appends to the path of a deleted file.
pub(super) fn without_deleted(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes)))
}

/// The attached loop devices whose file is in `dir` or below it: (`/dev/loopN`, the file). Of a
/// deleted file the path ends in ` (deleted)`. Needs no rights.
///
/// # Errors
/// sysfs could not be read.
pub fn loops_backed_under(dir: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let whole = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    let mut found = attached_loops()?;
    found.retain(|(_, backing)| without_deleted(backing).starts_with(&whole));
    Ok(found)
}

/// All attached loop devices.
pub(super) fn attached_loops() -> Result<Vec<(PathBuf, PathBuf)>> {
    let entries = retry(|| fs::read_dir("/sys/block"));
    let entries = entries.map_err(|error| Error::new("list block devices", "/sys/block", error))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if let Ok(backing) = read_backing(&entry.path().join("loop/backing_file")) {
            found.push((Path::new("/dev").join(entry.file_name()), backing));
        }
    }
    found.sort();
    Ok(found)
}
