//! Opens and reads a file that a user named: a result of the lab, a recording of a disk.
//!
//! *Owns*: that the name is a plain file, and a bound on what is read of it. *May not touch*: what
//! the file says.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a plain file to read it. Never waits, as an open of a pipe without a writer would.
///
/// # Errors
/// Those of the open, and [`io::ErrorKind::InvalidInput`] for a pipe, a directory or a device,
/// which may have no end.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        let why = "it is not a plain file: give the file itself";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(file)
}

/// Reads text to its end.
///
/// # Errors
/// Those of the reads; [`io::ErrorKind::InvalidData`] if the text has more than `bytes_max` bytes,
/// of which no more are kept in memory, or is not UTF-8.
pub fn read_text(from: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = from.take(bytes_max.saturating_add(1)).read_to_string(&mut text);
    if text.len() as u64 > bytes_max {
        let why = format!("it has more than {} MiB: no result is as long", bytes_max >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    read.map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_file_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_text(open_plain(&file).unwrap(), 4).unwrap(), "text");
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for name in [pipe.as_path(), directory.path(), Path::new("/dev/zero")] {
            let error = open_plain(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", name.display());
        }
    }

    #[test]
    fn a_text_without_an_end_is_refused() {
        for byte in [b'a', 0xff] {
            let error = read_text(io::repeat(byte), 1 << 20).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
