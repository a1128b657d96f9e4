//! Mounting, unmounting, and what is mounted where.
//!
//! *Owns*: mounts that it made itself, and the reading of `/proc/self/mountinfo`. *May not touch*: other
//! mounts, unless a sweep names them.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};

use super::device::DeviceNumber;
use crate::error::{Error, Result};
use crate::transfer::retry;

const MOUNTINFO: &str = "/proc/self/mountinfo";
/// How long a mount may stay busy after its users closed their files: the kernel drops the last reference
/// late.
const BUSY_FOR: Duration = Duration::from_secs(3);

/// Words of mount options that are flags of the system call; all others go to the file system as text.
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
    /// Not root; no such file system in this kernel; no such file system on `source`; an unknown option.
    pub fn new(source: &Path, target: &Path, file_system: &str, options: &str) -> Result<Mount> {
        let (flags, data) = split_options(options);
        let data = CString::new(data).map_err(|error| Error::new("mount", target, io::Error::from(error)))?;
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
    /// If it stays busy it is *detached*: it disappears from the directory tree at once, so that nothing is
    /// left there, and from its device when the last file in it is closed. This is an error all the same,
    /// since its data may not be on the device yet and the device stays in use.
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
                Err(error
                    .advise("it was detached: a process has files open in it, and it goes when they are closed"))
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

/// Unmounts the uppermost mount at `target`, and waits up to `patience` while it is in use; never by force, never detached.
///
/// # Errors
/// It is still busy, or what the kernel answers.
pub fn unmount(target: &Path, patience: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        match retry(|| Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)?)) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < patience => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(Error::new("unmount", target, error)),
        }
    }
}

/// Takes the uppermost mount at `target` out of the directory tree; it ends after its last use.
pub(super) fn detach(target: &Path) -> Result<()> {
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    retry(|| Ok(rustix::mount::unmount(target, flags)?)).map_err(|error| Error::new("unmount", target, error))
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

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Its number, as `statx` gives it; used again once it is unmounted.
    pub id: u64,
    /// The device as `stat` shows it; made up (major 0) for btrfs, tmpfs and others.
    pub device: DeviceNumber,
    /// Which directory of the file system is visible here: `/`, but for bind mounts and btrfs subvolumes.
    pub root: String,
    /// Where.
    pub target: PathBuf,
    /// Options of this mount: `rw,relatime`.
    pub options: String,
    /// The file system's kind: `ext4`.
    pub file_system: String,
    /// What is mounted: mostly `/dev/...`.
    pub source: String,
    /// Options of the file system itself: `rw,data=ordered`.
    pub super_options: String,
}

/// All mounts that this process can see, in the order of mounting: a later one may hide an earlier one.
///
/// # Errors
/// /proc could not be read, or has a line of an unknown form.
pub fn mount_points() -> Result<Vec<MountPoint>> {
    let text = retry(|| fs::read(MOUNTINFO)).map_err(|error| Error::new("read", MOUNTINFO, error))?;
    let mut points = Vec::new();
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        points.push(parse_line(line).ok_or_else(|| {
            let line = String::from_utf8_lossy(line);
            let what =
                io::Error::new(io::ErrorKind::InvalidData, format!("a line of an unknown form: {line:?}"));
            Error::new("read", MOUNTINFO, what)
        })?);
    }
    Ok(points)
}

/// The mounts at `dir` and below it, in the order of mounting: unmount them from the last to the first.
///
/// # Errors
/// As [`mount_points`].
pub fn mounts_under(dir: &Path) -> Result<Vec<MountPoint>> {
    let whole = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    let mut points = mount_points()?;
    points.retain(|point| point.target.starts_with(&whole));
    Ok(points)
}

/// `36 35 98:0 /root /target rw,noatime master:1 - ext3 /dev/root rw,errors=continue`: any number of words
/// before the dash.
fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()?;
    let root = text(words.next()?);
    let target = PathBuf::from(OsString::from_vec(decode(words.next()?)));
    let options = text(words.next()?);
    words.find(|word| *word == b"-")?;
    let file_system = text(words.next()?);
    let source = text(words.next()?);
    // A file system without any has an empty last word or none.
    let super_options = text(words.next().unwrap_or_default());
    Some(MountPoint { id, device, root, target, options, file_system, source, super_options })
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(&decode(word)).into_owned()
}

/// Takes back the kernel's escapes: space, tab, newline and backslash are written as `\` and three octal
/// digits.
fn decode(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_line() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402/a\134b rw,noatime master:1 shared:2 - ext3 /dev/disk\011x rw,errors=continue";
        let point = parse_line(line).expect("a line");
        let expected = MountPoint {
            id: 36,
            device: DeviceNumber { major: 98, minor: 0 },
            root: "/mnt1".to_string(),
            target: PathBuf::from("/mnt 2/a\\b"),
            options: "rw,noatime".to_string(),
            file_system: "ext3".to_string(),
            source: "/dev/disk\tx".to_string(),
            super_options: "rw,errors=continue".to_string(),
        };
        assert_eq!(point, expected);
        let line = b"25 1 0:23 / /proc rw - proc  rw";
        let point = parse_line(line).expect("no optional field, no source");
        assert_eq!((point.source.as_str(), point.super_options.as_str()), ("", "rw"));
        for wrong in
            ["", "36 35 98:0 /", "36 35 98 / /x rw - ext4 a b", "36 35 98:0 / /x rw master:1 ext4 a b"]
        {
            assert_eq!(parse_line(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(decode(br"\040\011\012\134"), b" \t\n\\");
        assert_eq!(decode(br"a\04"), br"a\04");
        assert_eq!(decode(br"\999\400\"), br"\999\400\");
        assert_eq!(decode("ü".as_bytes()), "ü".as_bytes());
    }

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
        let error =
            Mount::new(Path::new("none"), Path::new("/nonexistent"), "tmpfs", "").expect_err("no target");
        assert!(error.to_string().contains("tmpfs"), "{error}");
    }
}
