//! Descriptors never have the numbers 0, 1 or 2.
//!
//! *Owns*: that one step of every opening. *May not touch*: what is opened.
//!
//! In a program that has closed its stderr (daemons do), the next opened file gets the number 2. If
//! that were a segment, every warning of a library and every panic message would be written into
//! it. A descriptor with a higher number is also safe from a later `dup2` onto the three.
//!
//! Between the two calls the low number is open for a moment. Bytes that another thread writes to
//! it then land at the front of the file, where a header is written afterwards, or has two copies.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::fcntl_dupfd_cloexec;

/// The first number that is not stdin's, stdout's or stderr's.
pub(crate) const FIRST_NUMBER: RawFd = 3;

/// Moves a new descriptor to a number above the first three. Costs a system call only if it has one
/// of them.
pub(crate) fn above_standard<T: From<OwnedFd> + Into<OwnedFd>>(opened: T) -> io::Result<T> {
    let opened = opened.into();
    if opened.as_raw_fd() >= FIRST_NUMBER {
        return Ok(opened.into());
    }
    Ok(fcntl_dupfd_cloexec(&opened, FIRST_NUMBER)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Access, AppendFile, Directory as _, File as _, Input, NamedChoice as _, OpenFile,
        OsDirectory, OsFile, Preparation, StageFile, SyncKind,
    };
    use inkstone_host::{close_standard_descriptors, in_forked_child};

    /// The three that are open.
    fn standard() -> Vec<RawFd> {
        (0..FIRST_NUMBER)
            .filter(|number| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok())
            .collect()
    }

    /// Reports on the parent's stderr, of which `said` is a clone, what has taken one of the three.
    fn check(said: &std::fs::File, what: &str) {
        let taken = standard();
        if !taken.is_empty() {
            let _ = std::io::Write::write_all(
                &mut &*said,
                format!("{what}: took {taken:?}\n").as_bytes(),
            );
        }
        assert!(taken.is_empty());
    }

    #[test]
    fn nothing_that_is_opened_has_a_number_of_the_first_three() {
        let made = tempfile::tempdir().expect("a directory");
        let said = std::io::stderr();
        let said = std::fs::File::from(
            std::os::fd::AsFd::as_fd(&said).try_clone_to_owned().expect("cloned"),
        );
        let code = in_forked_child(|| {
            // Opening the input needs stdin to be open: the two ends of a pipe could only be 1 and
            // 2. SAFETY: as in `close_standard_descriptors`.
            unsafe { (libc::close(1), libc::close(2)) };
            let input = Input::stdin().expect("stdin");
            assert!(standard() == [0], "{:?}", standard());
            close_standard_descriptors();
            let directory = OsDirectory::create(made.path().join("a/b")).expect("a directory");
            check(&said, "directory");
            let mut open = Vec::new();
            for (access, name) in Access::ALL.iter().zip('a'..) {
                let name = name.to_string();
                let by_name = directory.open(&name, &OpenFile::new_file());
                open.push(by_name.expect("created"));
                open.last().expect("one").prepare(Preparation::Zeros, 4096).expect("prepared");
                // Without O_DIRECT the file is not opened.
                open.extend(directory.open(&name, &OpenFile::existing().access(*access)));
                open.extend(OsFile::open(
                    &directory.path().join(&name),
                    &OpenFile::existing().access(*access),
                ));
                check(&said, &format!("file, access {access}"));
            }
            let by_path = directory.path().join("path");
            let by_path = OsFile::open(&by_path, &OpenFile::new_file()).expect("created");
            by_path.prepare(Preparation::Zeros, 4096).expect("prepared");
            check(&said, "file by its path");
            let lock = directory.lock("lock").expect("asked").expect("free");
            directory.locked_by("lock").expect("asked");
            check(&said, "lock");
            let log = AppendFile::open(&directory, "log").expect("opened");
            let private = AppendFile::create_private(&directory, "private").expect("created");
            check(&said, "text log");
            // Only in memory.
            let memory = tempfile::tempdir_in("/dev/shm");
            let stage = memory.as_ref().map(|memory| StageFile::open(&memory.path().join("stage")));
            check(&said, "stage");
            directory.list().expect("listed");
            directory.sync().expect("synced");
            directory.capabilities().expect("asked");
            open.iter().for_each(|file| drop(file.sync(SyncKind::All)));
            check(&said, "what is open for a moment");
            drop((input, open, by_path, lock, log, private, stage));
            1
        });
        assert_eq!(code.expect("a child"), 1);
    }
}
