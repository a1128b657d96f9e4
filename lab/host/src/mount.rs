//! Mounting and unmounting.
//!
//! *Owns*: mounts that it made itself. *May not touch*: other mounts, unless a sweep names them.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::patience::Patience;
use inkstone_io::transfer::retry;
use inkstone_io::{Error, MountPoint, Result, mount_points};

/// How long a mount may stay busy after its users closed their files: the kernel drops the last
/// reference late.
pub(super) const BUSY_FOR: Duration = Duration::from_secs(3);

/// Words of mount options that are flags of the system call; all others go to the file system as
/// text. `rw` and `defaults` are what mount(8) understands without a flag.
const FLAG_WORDS: [(&str, MountFlags); 11] = [
    ("ro", MountFlags::RDONLY),
    ("rw", MountFlags::empty()),
    ("defaults", MountFlags::empty()),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
];

/// A mounted file system; dropped, it is unmounted.
#[derive(Debug)]
pub struct Mount {
    target: PathBuf,
    is_mounted: bool,
}

impl Mount {
    /// Mounts `source` at the directory `target`; `options` as for mount(8).
    ///
    /// # Errors
    /// Not root, no such file system in this kernel or on the device, or an unknown option.
    pub fn new(source: &Path, target: &Path, file_system: &str, options: &str) -> Result<Mount> {
        let (flags, data) = split_options(options);
        let failed = |error: io::Error| {
            let from = source.display();
            let advice = match error.raw_os_error() {
                Some(libc::EPERM) => "mounting needs root".to_string(),
                Some(libc::ENODEV) => {
                    format!("this kernel has no {file_system}: is its module loaded?")
                }
                Some(libc::EINVAL) => format!(
                    "no {file_system} on {from}, or an unknown option in {options:?}; see dmesg"
                ),
                _ => format!("from {from} as {file_system} with {options:?}; dmesg may say more"),
            };
            Error::new("mount", target, error).advise(advice)
        };
        let data = CString::new(data).map_err(|error| failed(error.into()))?;
        let data = data.as_c_str();
        retry(|| Ok(rustix::mount::mount(source, target, file_system, flags, data)?))
            .map_err(failed)?;
        // Absolute, because the process may change its directory before it unmounts.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        Ok(Mount { target, is_mounted: true })
    }

    /// Where it is mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Unmounts it, and waits a few seconds while it is still in use.
    ///
    /// If it stays busy it is *detached*: it disappears from the directory tree at once, so that
    /// nothing is left there, and from its device when the last file in it is closed. This is an
    /// error all the same, since its data may not be on the device yet and the device stays in use.
    ///
    /// # Errors
    /// It stayed busy, or could not be unmounted at all.
    pub fn unmount(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        let answer = unmount(&self.target, BUSY_FOR);
        match &answer {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => detach(&self.target)?,
            _ => return answer,
        }
        answer.map_err(|error| {
            error.advise(
                "it was detached: a process has files open in it, and it goes when they are closed",
            )
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// Unmounts the uppermost mount at `target`, and waits up to `patience` while it is in use; never
/// by force, never detached.
///
/// # Errors
/// It is still busy, or what the kernel answers.
pub fn unmount(target: &Path, patience: Duration) -> Result<()> {
    let mut patience = Patience::new(patience);
    loop {
        match unmount_with(target, UnmountFlags::empty()) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY)
                    && patience.pause(Duration::from_millis(10)) => {}
            answer => return answer,
        }
    }
}

/// Takes the uppermost mount at `target` out of the directory tree; it ends after its last use.
pub(super) fn detach(target: &Path) -> Result<()> {
    unmount_with(target, UnmountFlags::DETACH)
}

fn unmount_with(target: &Path, flags: UnmountFlags) -> Result<()> {
    retry(|| Ok(rustix::mount::unmount(target, flags | UnmountFlags::NOFOLLOW)?))
        .map_err(|error| Error::new("unmount", target, error))
}

fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data: Vec<&str> = Vec::new();
    for word in options.split(',').filter(|word| !word.is_empty()) {
        match FLAG_WORDS.iter().find(|(name, _)| *name == word) {
            Some((_, flag)) => flags |= *flag,
            None => data.push(word),
        }
    }
    (flags, data.join(","))
}

/// The mounts at `dir` and below it, in the order of mounting: unmount them from the last to the
/// first.
///
/// # Errors
/// As [`mount_points`].
pub fn mounts_under(dir: &Path) -> Result<Vec<MountPoint>> {
    let whole = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    let mut points = mount_points()?;
    points.retain(|point| point.target.starts_with(&whole));
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_split_into_flags_and_text() {
        let (flags, data) = split_options("rw,noatime,data=journal,,nodev,commit=1");
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::NODEV);
        assert_eq!(data, "data=journal,commit=1");
    }

    #[test]
    fn this_machines_mounts_are_read_and_one_that_cannot_be_says_why() {
        let points = mount_points().expect("/proc");
        assert!(points.iter().any(|point| point.target == Path::new("/")));
        let made = tempfile::tempdir().expect("a directory");
        let missing = made.path().join("missing");
        assert_eq!(mounts_under(&missing).expect("/proc"), []);
        let error = Mount::new(Path::new("none"), &missing, "tmpfs", "");
        assert!(error.expect_err("no target").to_string().contains("tmpfs"));
    }
}
