//! A file's handle: by what the file system itself tells a file from all others that it ever had.
//!
//! *Owns*: asking the kernel. *May not touch*: what is in a handle, which each file system chooses.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use inkstone_io::{Error, Result};

const BYTES_MAX: usize = libc::MAX_HANDLE_SZ as usize;

/// As the kernel writes it: a head, and the bytes right behind it.
#[repr(C)]
struct Answer {
    head: libc::file_handle,
    bytes: [u8; BYTES_MAX],
}

/// The handle of a file, a directory or a link itself. It has the inode's number and its
/// generation. So a file that gets the number of a removed one has another handle. Of one file it
/// is the same under each of its names, and after the next mount.
///
/// # Errors
/// What the kernel answers: no such file, or a file system without handles.
pub fn file_handle(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: io::Error| Error::new("read the handle of", path, error);
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
    let head = libc::file_handle { handle_bytes: BYTES_MAX as u32, handle_type: 0, f_handle: [] };
    let (mut answer, mut mount) = (Answer { head, bytes: [0; BYTES_MAX] }, 0);
    // SAFETY: the name, the answer and the mount's number live through the call. It writes no more
    // bytes behind the head than the head says, and the answer has so many.
    let result = unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            name.as_ptr(),
            (&raw mut answer).cast(),
            &raw mut mount,
            0,
        )
    };
    if result != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    let mut handle = answer.head.handle_type.to_ne_bytes().to_vec();
    handle.extend(answer.bytes.iter().take(answer.head.handle_bytes as usize));
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_file_has_its_own_whatever_its_name_is() {
        let made = tempfile::tempdir().expect("a directory");
        let at = |name: &str| made.path().join(name);
        for name in ["a", "b"] {
            fs::write(at(name), name).expect("a file");
        }
        std::os::unix::fs::symlink("a", at("link")).expect("a link");
        let of = |name: &str| match file_handle(&at(name)) {
            Ok(handle) => Some(handle),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => panic!("{error}"),
        };
        let Some(first) = of("a") else {
            return crate::not_run("each_file_has_its_own", "files here have no handles");
        };
        assert!(Some(&first) != of("b").as_ref() && Some(&first) != of("link").as_ref());
        fs::rename(at("a"), at("c")).expect("renamed");
        assert_eq!(of("c"), Some(first));
        assert!(file_handle(&at("a")).is_err(), "there is no such name");
    }
}
