//! The first process of a command's namespaces: where the command may write, and who still lives
//! there.
//!
//! *Owns*: which places are read-only in the mount namespace that [`crate::spawn_apart`] has made.
//! *May not touch*: any mount outside of it; what the command does.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use inkstone_io::{Error, Result};
use rustix::mount::{mount_bind, mount_bind_recursive};

/// Makes all of this mount namespace read-only but for the mount `open` and what lies below
/// `/tmp` and `/dev`; `sealed` is read-only in any case. For a process that
/// [`crate::spawn_apart`] has started.
///
/// # Errors
/// Not root, or a kernel before 5.12.
pub fn seal(open: &Path, sealed: Option<&Path>) -> Result<()> {
    let writable = ["/tmp", "/dev"].map(Path::new);
    let writable = || writable.into_iter().filter(|place| place.is_dir());
    for place in writable() {
        mount_bind_recursive(place, place).map_err(|error| failed("bind", place, error))?;
    }
    change(Path::new("/"), libc::AT_RECURSIVE, libc::MOUNT_ATTR_RDONLY, 0)?;
    for place in writable().chain([open]) {
        change(place, libc::AT_RECURSIVE, 0, libc::MOUNT_ATTR_RDONLY)?;
    }
    let Some(sealed) = sealed else { return Ok(()) };
    mount_bind(sealed, sealed).map_err(|error| failed("bind", sealed, error))?;
    change(sealed, 0, libc::MOUNT_ATTR_RDONLY, 0)
}

fn failed(what: &'static str, place: &Path, error: impl Into<io::Error>) -> Error {
    Error::new(what, place, error)
}

/// Sets and clears attributes of the mount at `place`.
fn change(place: &Path, flags: libc::c_int, set: u64, clear: u64) -> Result<()> {
    let path = CString::new(place.as_os_str().as_bytes())
        .map_err(|error| failed("change the mount at", place, error))?;
    let attributes =
        libc::mount_attr { attr_set: set, attr_clr: clear, propagation: 0, userns_fd: 0 };
    // SAFETY: the path and the attributes live through the call, which only reads them, and the
    // size is that of the attributes.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if answer == 0 {
        return Ok(());
    }
    let error = failed("change the mount at", place, io::Error::last_os_error());
    Err(error.advise("this needs root and Linux 5.12"))
}

/// The names of the other living processes of this PID namespace.
///
/// # Errors
/// `/proc` cannot be read.
pub fn living_beside() -> Result<Vec<String>> {
    let own = std::process::id().to_string();
    let place = Path::new("/proc");
    let entries = fs::read_dir(place).map_err(|error| failed("list", place, error))?;
    let mut names = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_process = name.as_bytes().iter().all(u8::is_ascii_digit);
        if is_process && name != OsStr::new(&own) {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            names.extend(living(&stat));
        }
    }
    Ok(names)
}

/// The name in a line of `/proc/N/stat`, unless that process has ended and only waits to be asked.
fn living(stat: &str) -> Option<String> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    (!rest.starts_with(['Z', 'X'])).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_has_a_name_and_who_has_ended_has_none() {
        assert_eq!(living("7 (a (b) c) S 1 7 7"), Some("a (b) c".to_owned()));
        assert_eq!(living("7 (a) Z 1 7 7"), None);
        assert_eq!(living(""), None);
    }
}
