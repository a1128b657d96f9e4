//! What is mounted where.
//!
//! *Owns*: the reading of `/proc/thread-self/mountinfo`. *May not touch*: mounts.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::device_number::DeviceNumber;
use crate::error::{Error, Result};
use crate::transfer::retry;

/// Of a thread, since one may have mounts of its own.
const MOUNTINFO: &str = "/proc/thread-self/mountinfo";

/// One line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Its number, as `statx` gives it; used again once it is unmounted.
    pub id: u64,
    /// The device as `stat` shows it; made up (major 0) for btrfs, tmpfs and others.
    pub device: DeviceNumber,
    /// Which directory of the file system is visible here: `/`, but for bind mounts and btrfs
    /// subvolumes.
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

/// All that this thread sees mounted, in the order of mounting: a later one may hide an earlier
/// one.
///
/// # Errors
/// /proc could not be read, or has a line of an unknown form.
pub fn mount_points() -> Result<Vec<MountPoint>> {
    let text =
        retry(|| fs::read(MOUNTINFO)).map_err(|error| Error::new("read", MOUNTINFO, error))?;
    let mut points = Vec::new();
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        points.push(parse_line(line).ok_or_else(|| {
            let line = String::from_utf8_lossy(line);
            let what = io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a line of an unknown form: {line:?}"),
            );
            Error::new("read", MOUNTINFO, what)
        })?);
    }
    Ok(points)
}

/// `36 35 98:0 /root /target rw,noatime master:1 - ext3 /dev/root rw,errors=continue`: any number
/// of words before the dash.
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

/// Takes back the kernel's escapes: space, tab, newline and backslash are written as `\` and three
/// octal digits.
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
        let line = b"36 35 98:0 /mnt1 /mnt\\0402/a\\134b rw,noatime master:1 shared:2 \
                     - ext3 /dev/disk\\011x rw,errors=continue";
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
        for wrong in [
            "",
            "36 35 98:0 /",
            "36 35 98 / /x rw - ext4 a b",
            "36 35 98:0 / /x rw master:1 ext4 a b",
        ] {
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
}
