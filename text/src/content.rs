//! The contents of a file of the log at some place.
//!
//! *Owns*: reading. *May not touch*: changing anything.

use std::os::unix::fs::FileExt as _;

use inkstone_io::{AppendFacts, Directory as _, Error, OpenFile, OsDirectory, Result};

use crate::buffer::Place;

/// Up to this many bytes of the file from this place on.
pub(crate) fn read(
    directory: &OsDirectory,
    name: &str,
    offset: u64,
    most: usize,
) -> Result<Vec<u8>> {
    let file = directory.open(name, &OpenFile::existing().read_only())?;
    let failed = |source| Error::new("read log", directory.path().join(name), source).at(offset);
    let mut bytes = vec![0; most];
    let mut len = 0;
    while len < most {
        match file.std_file().read_at(&mut bytes[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Whether the last line of the open file has no end. Its name may have changed, and another file
/// may have the log's name. If the file cannot be found: yes, since an extra empty line is better
/// than two lines in one. If it cannot be read: no.
pub(crate) fn ends_within_line(directory: &OsDirectory, name: &str, facts: AppendFacts) -> bool {
    let Some(offset) = facts.len_bytes.checked_sub(1) else { return false };
    let place = Place { device: facts.device, inode: facts.inode, offset };
    let Some(name) = find(directory, name, place) else { return true };
    let last = read(directory, &name, offset, 1);
    last.is_ok_and(|last| last.first().is_some_and(|byte| *byte != b'\n'))
}

/// The name of the log's file with this inode: it may have changed.
pub(crate) fn find(directory: &OsDirectory, name: &str, place: Place) -> Option<String> {
    let is_it = |name: &str| {
        let named = directory.look(name).ok().flatten();
        named.is_some_and(|named| {
            (named.facts.device, named.facts.inode) == (place.device, place.inode)
        })
    };
    if is_it(name) {
        return Some(name.to_owned());
    }
    directory.list().ok()?.into_iter().find(|other| other.starts_with(name) && is_it(other))
}
