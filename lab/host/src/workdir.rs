//! A lab's own directory, locked for as long as the lab lives, and sweeping what killed labs left.
//!
//! *Owns*: directories named `.inkstone-lab-<pid>-<n>`, what is mounted below them and the loop
//! devices whose files are in them. *May not touch*: such a directory whose lock is held, and
//! anything outside of them.
//!
//! The kernel releases the lock of a killed lab, however it was killed. So the lock shows whether
//! the lab lives, not the pid in the name: pids are used again, and mean nothing in another
//! container.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::loop_device::{attached_loops, detach_by_path, loops_backed_under, without_deleted};
use crate::maker::{maker, may_live, next_name};
use crate::mount::{BUSY_FOR, detach, mounts_under, unmount};
use inkstone_io::mount_points;
use inkstone_io::transfer::retry;
use inkstone_io::{Error, Result};

const PREFIX: &str = ".inkstone-lab-";
/// How often a directory is deleted that sweeps put their locks into.
const DELETES_MAX: usize = 16;
const LOCK: &str = "lock";
/// Names to try: others may exist, of a process with our pid in another container.
const NAMES_MAX: u32 = 1000;

/// A lab's own directory; dropping it removes it with all its contents.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    /// Locked; the lock ends with the process, however that ends. `None` once removed.
    lock: Option<File>,
}

/// Whether a path is in a work directory, of any lab.
pub(super) fn is_in_workdir(path: &Path) -> bool {
    path.iter().any(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
}

impl WorkDir {
    /// Makes `<parent>/.inkstone-lab-<pid>-<n>`, which only this user can look into, and locks it.
    ///
    /// # Errors
    /// The directory or its lock could not be made.
    pub fn create(parent: &Path) -> Result<WorkDir> {
        let parent = fs::canonicalize(parent).map_err(|error| Error::new("find", parent, error))?;
        for _ in 0..NAMES_MAX {
            let path = parent.join(next_name(PREFIX));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => {
                    let error = Error::new("create a work directory", &path, error);
                    return Err(error.advise(
                        "choose a directory that you may write to, with space on its disk",
                    ));
                }
                Ok(()) => {}
            }
            match lock_new(&path) {
                Ok(Some(lock)) => return Ok(WorkDir { path, lock: Some(lock) }),
                // A sweep came between making the directory and locking it, and takes it for a dead
                // one: leave it to the sweep.
                Ok(None) => {}
                Err(error) => {
                    let _ = fs::remove_dir_all(&path);
                    return Err(Error::new("lock a work directory", path.join(LOCK), error)
                        .advise("choose a directory on a file system with flock"));
                }
            }
        }
        Err(Error::invalid("create a work directory", parent, "no name is free")
            .advise("sweep it first"))
    }

    /// Where it is: an absolute path without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts and detaches what is still below it and deletes all in it.
    ///
    /// # Errors
    /// Something below it is still in use. What could be removed is removed all the same.
    pub fn remove(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        match self.lock.take() {
            // The lock is held until all is gone.
            Some(_lock) => clear(&self.path, &mut Vec::new()),
            None => Ok(()),
        }
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// Makes and takes the lock of a new directory; `None` if a sweep was faster.
fn lock_new(dir: &Path) -> io::Result<Option<File>> {
    let path = dir.join(LOCK);
    let file = match retry(|| open_lock(&path, true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Locked, but is it still the file of that name? A sweep deletes the lock last.
    let (ours, named) = (file.metadata()?, fs::symlink_metadata(&path));
    let same = named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()));
    Ok(same.then_some(file))
}

/// Opens a lock file, and refuses anything else of its name: a link, or a pipe that would block.
fn open_lock(path: &Path, write: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(write)
        .create(write)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    let plain = file.metadata()?.is_file();
    if plain {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the lock is no plain file"))
    }
}

/// Unmounts, detaches and deletes; continues after an error and returns the first one. Deletes
/// nothing while something is mounted below.
fn clear(dir: &Path, words: &mut Vec<String>) -> Result<()> {
    let mut outcome = Ok(());
    // From the last mounted to the first: that is the deepest first, and the upper of two at one
    // place.
    for point in mounts_under(dir)?.iter().rev() {
        let is_fuse = point.file_system == "fuse" || point.file_system.starts_with("fuse.");
        let answer = match unmount(&point.target, BUSY_FOR) {
            // Its server is dead, so nothing in it can be used; the last user (a loop device that
            // is being detached) releases it later.
            Err(_) if is_fuse => detach(&point.target),
            answer => answer,
        };
        words.extend(answer.is_ok().then(|| format!("unmounted {}", point.target.display())));
        outcome = outcome.and(answer);
    }
    outcome = outcome.and(detach_loops(dir, words));
    if let Some(point) = mounts_under(dir)?.last() {
        let error = Error::new("delete", dir, io::Error::from_raw_os_error(libc::EBUSY));
        let why = format!("{} is still mounted", point.target.display());
        return outcome.and(Err(error.advise(why)));
    }
    let removed = delete(dir).map_err(|error| Error::new("delete", dir, error));
    words.extend(removed.is_ok().then(|| format!("removed {}", dir.display())));
    outcome.and(removed)
}

/// Deletes all of a directory in which nothing is mounted; it follows no link. A sweep of another
/// lab may make a lock in it meanwhile, or delete it first.
fn delete(dir: &Path) -> io::Result<()> {
    let mut tries = DELETES_MAX;
    loop {
        tries -= 1;
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries > 0 => {}
            done => return done,
        }
    }
}

fn detach_loops(dir: &Path, words: &mut Vec<String>) -> Result<()> {
    let mut outcome = Ok(());
    for (device, backing) in loops_backed_under(dir)? {
        let answer = detach_by_path(&device, &backing);
        let done = || format!("detached {} from {}", device.display(), backing.display());
        words.extend(answer.is_ok().then(done));
        outcome = outcome.and(answer);
    }
    outcome
}

/// Removes what killed labs left: work directories in `parent`, and, anywhere, those with a mount
/// below or with the file of a loop device. Returns sentences about what was done, and what could
/// not be done and why.
///
/// A directory whose lock is held belongs to a living lab and is skipped. Without root it removes
/// what this user may remove.
///
/// # Errors
/// `parent`, /proc or sysfs could not be read.
pub fn sweep(parent: &Path) -> Result<Vec<String>> {
    let fail = |error| Error::new("list", parent, error);
    let whole = fs::canonicalize(parent).map_err(fail)?;
    let mut candidates: BTreeSet<PathBuf> = BTreeSet::new();
    for entry in fs::read_dir(&whole).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if is_ours(&name).is_some() {
            candidates.insert(whole.join(name));
        }
    }
    for point in mount_points()? {
        candidates.extend(work_dirs_above(&point.target));
    }
    for (_, backing) in attached_loops()? {
        candidates.extend(work_dirs_above(without_deleted(&backing)));
    }
    let mut candidates: Vec<PathBuf> = candidates.into_iter().collect();
    // One lab's directory may be inside another's file system.
    candidates.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
    let mut words = Vec::new();
    for dir in candidates {
        if let Err(error) = sweep_one(&dir, &mut words) {
            words.push(format!("left {}: {error}", dir.display()));
        }
    }
    Ok(words)
}

fn sweep_one(dir: &Path, words: &mut Vec<String>) -> Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return sweep_deleted(dir, words),
        Err(error) => return Err(Error::new("stat", dir, error)),
    }
    let path = dir.join(LOCK);
    // Made if it is missing, so that a lab that is about to make it does not take this directory
    // for its own.
    let opened = retry(|| open_lock(&path, true)).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => retry(|| open_lock(&path, false)),
        _ => Err(error),
    });
    let lock = match opened {
        Ok(lock) => lock,
        // Another user's, perhaps of a living lab: this user could not remove it either.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(Error::new("open", &path, error)),
    };
    match lock.try_lock() {
        Ok(()) => clear(dir, words),
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(Error::new("lock", &path, error)),
    }
}

/// The directory is gone, but a loop device still has a deleted file of it. There is no lock any
/// more, so only here the pid decides.
fn sweep_deleted(dir: &Path, words: &mut Vec<String>) -> Result<()> {
    match dir.file_name().and_then(is_ours) {
        Some(process) if !may_live(process) => detach_loops(dir, words),
        _ => Ok(()),
    }
}

/// The process in the name of a work directory.
fn is_ours(name: &OsStr) -> Option<u32> {
    maker(name, PREFIX)
}

/// Every work directory that `path` is in.
fn work_dirs_above(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().filter(|above| above.file_name().and_then(is_ours).is_some());
    above.map(Path::to_path_buf).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sweep makes the lock of a directory that it takes for a dead lab's: also of one that is
    /// just being deleted.
    #[test]
    fn a_directory_is_deleted_although_others_put_their_lock_into_it() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("work");
        for _ in 0..200 {
            fs::create_dir(&dir).expect("made");
            (0..20).for_each(|file| drop(File::create(dir.join(file.to_string())).expect("made")));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..DELETES_MAX / 2).for_each(|_| drop(File::create_new(dir.join(LOCK))));
                });
                delete(&dir).expect("deleted");
            });
            // The lock may have come after the last look.
            let _ = fs::remove_dir_all(&dir);
        }
    }

    /// What a sweep of `parent` says about things in it.
    fn swept(parent: &Path) -> Vec<String> {
        let name = parent.display().to_string();
        let words = sweep(parent).expect("swept");
        words.into_iter().filter(|word| word.contains(&name)).collect()
    }

    #[test]
    fn every_work_directory_above_is_found() {
        let nested = Path::new("/a/.inkstone-lab-1-2/mnt/.inkstone-lab-3-4/x");
        let expected = ["/a/.inkstone-lab-1-2/mnt/.inkstone-lab-3-4", "/a/.inkstone-lab-1-2"];
        assert_eq!(work_dirs_above(nested), expected.map(PathBuf::from));
    }

    #[test]
    fn a_living_directory_is_passed_over_and_a_dead_one_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let living = WorkDir::create(parent.path()).expect("a work directory");
        assert_eq!(living.path().metadata().expect("it").mode() & 0o777, 0o700);
        fs::write(living.path().join("file"), "x").expect("a file");
        let [dead, unlocked, link] =
            [7, 8, 9].map(|n| parent.path().join(format!(".inkstone-lab-1-{n}")));
        fs::create_dir_all(dead.join("some/where")).expect("directories");
        fs::write(dead.join(LOCK), "").expect("a file");
        fs::create_dir(&unlocked).expect("a directory");
        let other = parent.path().join(".inkstone-lab-notes");
        fs::create_dir(&other).expect("a directory");
        std::os::unix::fs::symlink(&other, &link).expect("a link");
        assert_eq!(swept(parent.path()).len(), 2);
        assert!(living.path().join("file").exists() && other.exists() && link.is_symlink());
        assert!(!dead.exists() && !unlocked.exists());
        assert_eq!(swept(parent.path()), Vec::<String>::new());
        let path = living.path().to_path_buf();
        living.remove().expect("removed");
        assert!(!path.exists() && WorkDir::create(&path).is_err() && sweep(&path).is_err());
    }

    #[test]
    fn a_sweep_that_is_faster_than_the_lock_wins() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join(".inkstone-lab-1-1");
        fs::create_dir(&path).expect("a directory");
        let sweeper = open_lock(&path.join(LOCK), true).expect("a lock");
        sweeper.try_lock().expect("free");
        assert!(lock_new(&path).expect("no error").is_none());
        assert!(lock_new(&parent.path().join("gone")).expect("no error").is_none());
    }

    #[test]
    fn a_lock_that_is_a_directory_is_left() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join(".inkstone-lab-1-1");
        fs::create_dir_all(dir.join(LOCK)).expect("directories");
        let words = swept(parent.path());
        assert!(words[0].starts_with("left ") && dir.exists(), "{words:?}");
    }
}
