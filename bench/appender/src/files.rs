//! What a run left in its directory.
//!
//! *Owns*: counting bytes and lines in it, and removing it all. *May not touch*: writers, clocks.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::arms::LINE_BYTES;

const READ_BYTES: usize = 256 << 10;

fn paths(directory: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path())
}

pub fn remove_all(directory: &Path) {
    for path in paths(directory) {
        std::fs::remove_file(path).expect("removed");
    }
}

/// Of all files together, as they lie there.
pub fn bytes_in(directory: &Path) -> u64 {
    paths(directory).map(|path| path.metadata().expect("there").len()).sum()
}

/// Of all files together, compressed ones unpacked: every byte is read, as a file's length does not
/// say that its lines are whole.
pub fn lines_in(directory: &Path) -> u64 {
    let mut buffer = vec![0; READ_BYTES];
    let (mut lines, mut bytes) = (0, 0);
    for path in paths(directory) {
        let ending = path.extension().unwrap_or_default();
        // A compressed file that is not whole yet, beside the plain one with the same lines.
        if ending == "part" {
            continue;
        }
        let file = File::open(&path).expect("a file");
        let mut file: Box<dyn Read> =
            if ending == "gz" { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        loop {
            let read = file.read(&mut buffer).expect("read");
            if read == 0 {
                break;
            }
            bytes += read;
            lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
        }
    }
    assert_eq!(bytes, lines * LINE_BYTES, "bytes in the files, and those of as many whole lines");
    lines as u64
}
