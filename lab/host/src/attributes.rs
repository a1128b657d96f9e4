//! The extended attributes of a file: what a program has attached to it besides its bytes.
//!
//! *Owns*: asking the kernel. *May not touch*: what they mean.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use inkstone_io::{Error, Result};
use rustix::fs::{lgetxattr, llistxattr};

/// No name list and no value is longer (XATTR_LIST_MAX, XATTR_SIZE_MAX).
const BYTES_MAX: usize = 1 << 16;

/// Names and values, sorted by name; those of a link itself. None where the file system has none.
///
/// # Errors
/// What the kernel answers.
pub fn attributes(path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
    let failed = |error: rustix::io::Errno| Error::new("read the attributes of", path, error);
    let mut names = vec![0; BYTES_MAX];
    let length = match llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(error) if error == rustix::io::Errno::OPNOTSUPP => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    let mut value = vec![0; BYTES_MAX];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsString::from_vec(name.to_vec());
        let length = lgetxattr(path, &name, &mut value[..]).map_err(failed)?;
        found.push((name, value[..length].to_vec()));
    }
    found.sort();
    Ok(found)
}
