//! Mounting and unmounting.
//!
//! *Owns*: mounts that it made itself. *May not touch*: other mounts, unless a sweep names them.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};

use inkstone_io::transfer::retry;
use inkstone_io::{Error, MountPoint, Result, mount_points};

/// How long a mount may stay busy after its users closed their files: the kernel drops the last
/// reference late.
const BUSY_FOR: Duration = Duration::from_secs(3);

/// Words of mount options that are flags of the system call; all others go to the file system as
/// text.
const FLAG_WORDS: [(&str, MountFlags); 9] = [
    ("ro", MountFlags::RDONLY),
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
    mounted: bool,
}

impl Mount {
    /// Mounts `source` at `target`. The options are those of mount(8), separated by commas:
    /// `noatime,data=ordered`.
    ///
    /// # Errors
    /// Not root; no such file system in this kernel; no such file system on `source`; an unknown
    /// option.
    pub fn new(source: &Path, target: &Path, file_system: &str, options: &str) -> Result<Mount> {
        let (flags, data) = split_options(options);
        let data = CString::new(data)
            .map_err(|error| Error::new("mount", target, io::Error::from(error)))?;
        retry(|| Ok(rustix::mount::mount(source, target, file_system, flags, data.as_c_str())?)).map_err(
            |error| {
                let advice = match error.raw_os_error() {
                    Some(libc::EPERM) => "mounting needs root".to_string(),
                    Some(libc::ENODEV) => format!("this kernel has no {file_system}: is its module loaded?"),
                    Some(libc::EINVAL) => {
                        format!(
                            "no {file_system} on {}, or an unknown option in {options:?}; see dmesg",
                            source.display()
                        )
                    }
                    _ => format!(
                        "from {} as {file_system} with {options:?}; dmesg may say more",
                        source.display()
                    ),
                };
                Error::new("mount", target, error).advise(advice)
            },
        )?;
        // Absolute, because the process may change its directory before it unmounts.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        Ok(Mount { target, mounted: true })
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
        if !self.mounted {
            return Ok(());
        }
        self.mounted = false;
        match unmount(&self.target, BUSY_FOR) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                detach(&self.target)?;
                Err(error.advise(
                    "it was detached: a process has files open in it, and it goes when they are closed",
                ))
            }
            answer => answer,
        }
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
    let start = Instant::now();
    loop {
        match retry(|| Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)?)) {
            Ok(()) => return Ok(()),
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < patience =>
            {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(Error::new("unmount", target, error)),
        }
    }
}

/// Takes the uppermost mount at `target` out of the directory tree; it ends after its last use.
pub(super) fn detach(target: &Path) -> Result<()> {
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    retry(|| Ok(rustix::mount::unmount(target, flags)?))
        .map_err(|error| Error::new("unmount", target, error))
}

fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data: Vec<&str> = Vec::new();
    for word in options.split(',').filter(|word| !word.is_empty()) {
        match FLAG_WORDS.iter().find(|(name, _)| *name == word) {
            Some((_, flag)) => flags |= *flag,
            // What mount(8) understands without a flag.
            None if matches!(word, "rw" | "defaults") => {}
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
        assert_eq!(split_options(""), (MountFlags::empty(), String::new()));
    }

    #[test]
    fn this_machines_mounts_are_read() {
        let points = mount_points().expect("/proc");
        assert!(points.iter().any(|point| point.target == Path::new("/")));
        assert_eq!(mounts_under(Path::new("/")).expect("/proc").len(), points.len());
        assert_eq!(mounts_under(Path::new("/nonexistent")).expect("/proc"), []);
    }

    #[test]
    fn a_mount_that_cannot_be_says_why() {
        let error = Mount::new(Path::new("none"), Path::new("/nonexistent"), "tmpfs", "")
            .expect_err("no target");
        assert!(error.to_string().contains("tmpfs"), "{error}");
    }
}
