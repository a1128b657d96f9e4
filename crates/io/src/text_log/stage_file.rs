//! A file in memory (tmpfs) that keeps a process's buffers when the process is killed.
//!
//! *Owns*: opening it safely in a directory that every user may write to, its lock, its blocks.
//! *May not touch*: what is in it: that belongs to [`StageBuffer`]s and their
//! user.
//!
//! Its lock is that of a log's directory (`lock.rs`): a forked child does not keep it, so after a
//! kill the next start finds it free.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, fstatfs, utimensat};

use crate::descriptor::above_standard;
use crate::error::{Error, Result};
use crate::fork::ForkMark;
use crate::lock::LockedFile;
use crate::prepare::Allocate;
use crate::sys::LockedBytes;
use crate::text_log::memory::{StageBuffer, StageLayout, buffers_in_file};
use crate::transfer::retry;

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
/// A file may be removed between opening and locking it; it is made again at most this often.
const TRIES: u32 = 100;
/// Names that a user's directory may have: other users may have taken some of them.
const DIRECTORIES_MAX: u32 = 16;

/// A locked file in memory; the lock is released when it is dropped, or when the process ends.
#[derive(Debug)]
pub struct StageFile {
    locked: LockedFile,
    path: PathBuf,
}

impl StageFile {
    /// Opens or creates it, for this user alone (mode 0600), and locks it; `None` if another holder
    /// has the lock.
    ///
    /// # Errors
    /// It is not in memory, not a plain file of this user alone, or could not be opened or locked.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let locked = open_locked(path)?;
        Ok(locked.map(|locked| Self { locked, path: path.to_path_buf() }))
    }

    /// As [`StageFile::open`], in a directory of this user alone (mode 0700) below `parent`, which
    /// is created if it is missing: `inkstone-UID`, or, if another user has that name,
    /// `inkstone-UID.1` and so on.
    ///
    /// # Errors
    /// Other users have all those names, or the directory cannot be created; as
    /// [`StageFile::open`].
    pub fn open_below(parent: &Path, name: &str) -> Result<Option<Self>> {
        for _ in 0..TRIES {
            let Some(directory) = own_directory(parent)? else { continue };
            match Self::open(&directory.join(name)) {
                // Another start, which failed, has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    // It is not left behind without use; it stays if there is anything in it.
                    let _ = std::fs::remove_dir(&directory);
                    return Err(error);
                }
                opened => return opened,
            }
        }
        let path = parent.join(directory_name(0));
        Err(Error::invalid("open stage directory", path, "it was removed each time it was made"))
    }

    /// The stage files of this user below `parent`, sorted: those of living processes too.
    ///
    /// # Errors
    /// As [`StageFile::open_below`], but that nothing is made.
    pub fn list_below(parent: &Path) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for directory in (0..DIRECTORIES_MAX).map(|number| parent.join(directory_name(number))) {
            if !matches!(Whose::of(&directory)?, Whose::Ours) {
                continue;
            }
            let failed = |source| Error::new("list stage directory", &directory, source);
            match retry(|| std::fs::read_dir(&directory)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                listed => {
                    for entry in listed.map_err(failed)? {
                        paths.push(entry.map_err(failed)?.path());
                    }
                }
            }
        }
        paths.sort_unstable();
        Ok(paths)
    }

    /// The first bytes of a stage file, `most` at most, and its length. Takes no lock: a living
    /// process may have it.
    ///
    /// # Errors
    /// It is gone, not a stage of this user, or what the file system answers.
    pub fn read_head(path: &Path, most: usize) -> Result<(Vec<u8>, u64)> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let how = || {
            OpenOptions::new().read(true).custom_flags(flags).open(path).and_then(above_standard)
        };
        let failed = |source| Error::new("read stage", path, source);
        let file = retry(how).map_err(failed)?;
        check(&file, path)?;
        let len = file.metadata().map_err(failed)?.len();
        let mut bytes = vec![0; most.min(usize::try_from(len).unwrap_or(usize::MAX))];
        retry(|| file.read_exact_at(&mut bytes, 0)).map_err(failed)?;
        Ok((bytes, len))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> &File {
        self.locked.file()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = retry(|| self.file().write_all_at(bytes, offset));
        written.map_err(|source| Error::new("write stage", &self.path, source).at(offset))
    }

    /// The buffers that are in it, with their contents; it has this layout.
    ///
    /// # Errors
    /// It has another size, or there is no such amount of memory.
    pub fn map(&self, layout: StageLayout) -> Result<Vec<StageBuffer>> {
        let len = self.file().metadata().map(|facts| facts.len());
        let len = len.map_err(|source| Error::new("fstat stage", &self.path, source))?;
        if len != layout.len_bytes() as u64 {
            return Err(Error::invalid("map stage", &self.path, "its head gives another size"));
        }
        buffers_in_file(self.file(), &self.path, layout)
    }

    /// Empties it, allocates all memory that the layout needs (so that a full tmpfs is an error
    /// here and not a signal later), writes `head` at the front and maps its buffers. After that
    /// the file can only be removed.
    ///
    /// # Errors
    /// The layout is not sound, the head is longer than its place, or there is no room; then the
    /// file is removed.
    pub fn into_buffers(
        self,
        layout: StageLayout,
        head: &[u8],
    ) -> Result<(Self, Vec<StageBuffer>)> {
        retry(|| self.file().set_len(0))
            .map_err(|source| Error::new("ftruncate stage", &self.path, source))?;
        let len = layout.len_bytes().max(1);
        let room = match Allocate::Grow.call(self.file(), &self.path, len as u64) {
            Err(error) if error.is_not_here() => self.write_at(&vec![0; len], 0),
            done => done,
        };
        let made = room
            .and_then(|()| self.write_head(layout, head))
            .and_then(|()| buffers_in_file(self.file(), &self.path, layout));
        match made {
            Ok(buffers) => Ok((self, buffers)),
            Err(error) => {
                let _ = self.remove();
                Err(error)
            }
        }
    }

    /// Writes another head, which describes the buffers from now on.
    ///
    /// # Errors
    /// The head is longer than its place, or what the file system answers.
    pub fn write_head(&self, layout: StageLayout, head: &[u8]) -> Result<()> {
        if head.len() <= layout.head_bytes {
            return self.write_at(head, 0);
        }
        let (bytes, most) = (head.len(), layout.head_bytes);
        let why = format!("a head of {bytes} bytes does not fit into {most}");
        Err(Error::invalid("write stage", &self.path, why))
    }

    /// Whether it was removed: the next start will not find its contents, and nothing keeps another
    /// writer away.
    pub fn is_removed(&self) -> bool {
        self.file().metadata().is_ok_and(|facts| facts.nlink() == 0)
    }

    /// Removes it: nothing in it is needed any more. Existing buffers keep their memory.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn remove(self) -> Result<()> {
        // Another file may have its path by now.
        if self.is_removed() {
            return Ok(());
        }
        std::fs::remove_file(&self.path)
            .map_err(|source| Error::new("unlink stage", &self.path, source))
    }
}

fn directory_name(number: u32) -> String {
    let mine = rustix::process::geteuid().as_raw();
    if number == 0 { format!("inkstone-{mine}") } else { format!("inkstone-{mine}.{number}") }
}

/// The owner of a name.
enum Whose {
    Nobodys,
    /// A directory of this user alone.
    Ours,
    Others,
}

impl Whose {
    /// Every user may write to a directory in memory: a name below it must belong to this user, and
    /// must not be a link.
    fn of(path: &Path) -> Result<Self> {
        let facts = match retry(|| std::fs::symlink_metadata(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nobodys),
            facts => facts.map_err(|source| Error::new("stat stage directory", path, source))?,
        };
        let is_named_ours = facts.is_dir() && facts.uid() == rustix::process::geteuid().as_raw();
        if !is_named_ours || !is_owner(path, &facts)? {
            return Ok(Self::Others);
        }
        let why = match facts.permissions().mode() & 0o777 {
            0o700 => return Ok(Self::Ours),
            mode if mode & 0o077 != 0 => "other users may look into it",
            _ => "its mode does not let this user use it",
        };
        // If it were skipped, the contents that a killed process left would be lost.
        Err(Error::invalid("open stage directory", path, why).advise("give it the mode 0700 again"))
    }
}

/// Whether the kernel takes this user for the owner. User numbers are not enough: in a user
/// namespace every unknown user has the number of `nobody`, which may also be that of the process.
/// Only the owner may set the time of a directory.
fn is_owner(path: &Path, facts: &Metadata) -> Result<bool> {
    let accessed = Timespec { tv_sec: facts.atime(), tv_nsec: facts.atime_nsec() as _ };
    let modified = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
    let times = Timestamps { last_access: accessed, last_modification: modified };
    match retry(|| utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))
    {
        Ok(()) => Ok(true),
        // It is gone by now, so it was not in use.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        // Not the owner, or a sandbox refuses the call. The other call that only the owner may make
        // tells.
        Err(_) => {
            let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
            let opened = retry(|| OpenOptions::new().read(true).custom_flags(flags).open(path));
            let changed =
                opened.and_then(|directory| directory.set_permissions(facts.permissions()));
            match changed {
                Ok(()) => Ok(true),
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EPERM | libc::EACCES | libc::ENOENT)
                    ) =>
                {
                    Ok(false)
                }
                Err(source) => Err(Error::new("chmod stage directory", path, source)),
            }
        }
    }
}

/// The directory for a new stage; `None` if another process was faster. A user number may belong to
/// another user in another container, and every user may make a directory of any name: so one name
/// is not enough.
fn own_directory(parent: &Path) -> Result<Option<PathBuf>> {
    let (mut own, mut free, mut others) = (None, None, None);
    for path in (0..DIRECTORIES_MAX).map(|number| parent.join(directory_name(number))) {
        match Whose::of(&path)? {
            Whose::Ours => drop(own.get_or_insert(path)),
            Whose::Nobodys => drop(free.get_or_insert(path)),
            Whose::Others => drop(others.get_or_insert(path)),
        }
    }
    let Some(path) = own.clone().or(free) else {
        let path = others.unwrap_or_else(|| parent.join(directory_name(0)));
        let why = "it is not a directory of this user";
        let error = Error::invalid("open stage directory", path, why);
        return Err(error.advise("check who made it: lines may wait in it, so move it away"));
    };
    if own.is_none() {
        match retry(|| DirBuilder::new().mode(0o700).create(&path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => made.map_err(|source| {
                Error::new("create stage directory", &path, source)
                    .advise("name a tmpfs directory that you may write to")
            })?,
        }
        if !matches!(Whose::of(&path)?, Whose::Ours) {
            return Ok(None);
        }
    }
    Ok(Some(path))
}

fn open_locked(path: &Path) -> Result<Option<LockedFile>> {
    let how = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .and_then(above_standard)
    };
    let open = || {
        let file = retry(how).map_err(|source| {
            Error::new("open stage", path, source)
                .advise("name a tmpfs directory that you may write to")
        })?;
        check(&file, path).map(|()| file)
    };
    for _ in 0..TRIES {
        let Some(locked) = LockedFile::take(path, LockedBytes::All, ForkMark::new()?, open)? else {
            return Ok(None);
        };
        // The former holder may have removed it between the two calls.
        let held =
            locked.file().metadata().map_err(|source| Error::new("stat stage", path, source))?;
        if std::fs::symlink_metadata(path).is_ok_and(|named| named.ino() == held.ino()) {
            return Ok(Some(locked));
        }
    }
    Err(Error::invalid("open stage", path, "it was removed each time it was made"))
}

/// Every user may write to a directory in memory: checks that the file is one that this crate
/// makes.
fn check(file: &File, path: &Path) -> Result<()> {
    let facts = file.metadata().map_err(|source| Error::new("stat stage", path, source))?;
    let mine = rustix::process::geteuid().as_raw();
    if !facts.is_file() || facts.uid() != mine || facts.permissions().mode() & 0o077 != 0 {
        let why = "it is not a plain file of this user alone";
        return Err(
            Error::invalid("open stage", path, why).advise("check who made it, and remove it")
        );
    }
    let system = fstatfs(file).map_err(|error| Error::new("statfs", path, error))?.f_type;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    if matches!(system as i64, TMPFS | RAMFS) {
        return Ok(());
    }
    let why = "its directory is not in memory: writers would wait for write-back";
    if facts.len() == 0 {
        let _ = std::fs::remove_file(path);
    }
    Err(Error::invalid("open stage", path, why).advise("name a tmpfs directory such as /dev/shm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: StageLayout = StageLayout { head_bytes: 4096, buffer_bytes: 4096, buffers: 2 };

    /// A directory in memory of this test alone; `None`, printed loudly, if there can be none.
    fn in_memory(test: &str) -> Option<tempfile::TempDir> {
        let made = tempfile::tempdir_in("/dev/shm");
        if let Err(why) = &made {
            eprintln!("NOT RUN: {test}: {why}");
        }
        made.ok()
    }

    #[test]
    fn its_directory_is_of_this_user_alone_and_no_link() {
        let Some(made) = in_memory("its_directory_is_of_this_user_alone_and_no_link") else {
            return;
        };
        let parent = made.path();
        let own = parent.join(format!("inkstone-{}", rustix::process::geteuid().as_raw()));
        let stage = StageFile::open_below(parent, "a").expect("opened").expect("free");
        assert_eq!(stage.path(), own.join("a"));
        assert_eq!(std::fs::metadata(&own).expect("there").permissions().mode() & 0o777, 0o700);
        let (lock, _buffers) = stage.into_buffers(LAYOUT, b"").expect("mapped");
        assert!(!lock.is_removed());
        std::fs::remove_dir_all(&own).expect("removed");
        assert!(lock.is_removed());
        std::fs::create_dir(&own).expect("made");
        std::fs::write(own.join("a"), "another's").expect("written");
        lock.remove().expect("nothing to remove");
        assert!(own.join("a").exists(), "what is there by then is not its own");
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).expect("mode");
        let error =
            StageFile::open_below(parent, "b").expect_err("others may look into it").to_string();
        assert!(error.contains("may look into it") && error.contains("0700"), "{error}");
        // Root can, and is no better for it: a service of this user cannot.
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o500)).expect("mode");
        let error = StageFile::open_below(parent, "b").expect_err("nobody may use it").to_string();
        assert!(
            error.contains("does not let this user use it") && error.contains("0700"),
            "{error}"
        );
    }

    /// It takes the directory along, if nothing is in it.
    #[test]
    fn an_opening_that_fails_beside_another_does_not_have_that_fail_too() {
        let name = "an_opening_that_fails_beside_another_does_not_have_that_fail_too";
        let Some(made) = in_memory(name) else { return };
        let parent = made.path();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(
                        StageFile::open_below(parent, &"x".repeat(300)).is_err(),
                        "no file has such a name"
                    );
                }
            });
            let opened: Vec<_> = (0..2000)
                .map(|_| {
                    let stage = StageFile::open_below(parent, "a")?.expect("free");
                    stage.remove()
                })
                .collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            let failed = opened.iter().find(|opened| opened.is_err());
            assert!(failed.is_none(), "{failed:?}");
        });
    }

    #[test]
    fn where_others_have_the_name_of_its_directory_it_has_another() {
        let name = "where_others_have_the_name_of_its_directory_it_has_another";
        let Some(made) = in_memory(name) else { return };
        let parent = made.path();
        let own = parent.join(directory_name(0));
        let second = parent.join(directory_name(1));
        std::fs::create_dir(parent.join("elsewhere")).expect("made");
        // It may lead anywhere.
        std::os::unix::fs::symlink("elsewhere", &own).expect("a link");
        let stage = StageFile::open_below(parent, "b").expect("opened").expect("free");
        assert_eq!(stage.path(), second.join("b"));
        drop(stage);
        // What is in it is found there, though the first name is free by now.
        std::fs::remove_file(&own).expect("removed");
        let stage = StageFile::open_below(parent, "b").expect("opened").expect("free");
        assert!(stage.path().starts_with(&second));
        let other = StageFile::open_below(parent, "c").expect("opened").expect("free");
        assert!(other.path().starts_with(&second), "there is one already");
        assert!(StageFile::open_below(parent, "b").expect("asked").is_none(), "it is open");
        for number in 0..DIRECTORIES_MAX {
            let path = parent.join(directory_name(number));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::write(path, "").expect("somebody's file");
        }
        assert!(StageFile::open_below(parent, "b").is_err(), "there is an end to it");
    }

    #[test]
    fn a_full_tmpfs_is_an_error_and_others_files_are_refused() {
        let name = "a_full_tmpfs_is_an_error_and_others_files_are_refused";
        let Some(made) = in_memory(name) else { return };
        let path = made.path().join("stage");
        let stage = StageFile::open(&path).expect("opened").expect("free");
        let huge = StageLayout { buffers: 1 << 30, buffer_bytes: 1 << 20, ..LAYOUT };
        assert!(stage.into_buffers(huge, b"").is_err() && !path.exists());
        drop(StageFile::open(&path).expect("opened").expect("free"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("mode");
        let error = StageFile::open(&path).expect_err("everybody may read it").to_string();
        assert!(error.contains("this user alone"), "{error}");
        // `/tmp` may be in memory.
        let on_disk = tempfile::tempdir_in("/var/tmp").expect("a directory");
        if let Err(error) = StageFile::open(&on_disk.path().join("stage")) {
            assert!(error.to_string().contains("write-back"), "{error}");
        } else {
            eprintln!("NOT RUN: a stage on disk is refused: /var/tmp is in memory");
        }
    }
}
