//! A file in memory (tmpfs) that keeps a process's buffers when the process is killed.
//!
//! *Owns*: its name, opening it safely in a directory that every user may write to, its lock, its
//! memory. *May not touch*: what is in it: that belongs to [`StageBuffer`]s and their user.
//!
//! Its lock is that of a log's directory (`lock.rs`): a forked child does not keep it, so after a
//! kill the next start finds it free. One that another user has made is refused, whatever it is.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, fstatfs, renameat_with};

use crate::descriptor::above_standard;
use crate::error::{Error, Result};
use crate::fork::ForkMark;
use crate::lock::LockedFile;
use crate::prepare::Allocate;
use crate::sys::LockedBytes;
use crate::text_log::memory::{Region, StageBuffer, StageLayout, buffers_in_file};
use crate::transfer::retry;

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
/// A start that clears up may have a new file for a moment; it is made again at most this often.
const TRIES: u32 = 100;
const MOMENT: Duration = Duration::from_millis(1);
/// Bytes that are copied at once.
const COPIED_BYTES: usize = 64 << 10;

/// A locked file in memory; the lock is released when it is dropped, or when the process ends.
#[derive(Debug)]
pub struct StageFile {
    locked: LockedFile,
    path: PathBuf,
    /// Its buffers' memory, once it has buffers.
    region: Option<(Arc<Region>, StageLayout)>,
}

fn begin() -> String {
    format!("inkstone-{}-", rustix::process::geteuid().as_raw())
}

impl StageFile {
    /// The path of this user's stage of that name in this directory.
    pub fn path_in(directory: &Path, name: &str) -> PathBuf {
        directory.join(begin() + name)
    }

    /// The paths of this user's stages in this directory, sorted: those of living processes too.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn list(directory: &Path) -> Result<Vec<PathBuf>> {
        let failed = |source| Error::new("list stages", directory, source);
        let (begin, mut paths) = (begin(), Vec::new());
        for entry in retry(|| std::fs::read_dir(directory)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&begin)) {
                paths.push(entry.path());
            }
        }
        paths.sort_unstable();
        Ok(paths)
    }

    /// Opens one that is there, and locks it; `None` if another holder has the lock.
    ///
    /// # Errors
    /// There is none (`NotFound`), it is not in memory, another user could write to it, or it could
    /// not be opened or locked.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let mut how = OpenOptions::new();
        Self::take(path, how.read(true).write(true), false)
    }

    /// Creates it, for this user alone (mode 0600), and locks it.
    ///
    /// # Errors
    /// As [`StageFile::open`], or there is one.
    pub fn create(path: &Path) -> Result<Self> {
        let mut how = OpenOptions::new();
        let how = how.read(true).write(true).create_new(true).mode(0o600);
        let mut is_made = false;
        for _ in 0..TRIES {
            match if is_made { Self::open(path) } else { Self::take(path, how, true) } {
                Ok(Some(stage)) if !is_made || stage.read_head(1)?.0 == 0 => return Ok(stage),
                // Who lists the stages has its lock for a moment.
                Ok(None) => is_made = true,
                Err(error) if is_made && error.kind() == ErrorKind::NotFound => is_made = false,
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            thread::sleep(MOMENT);
        }
        let why = "another process has made one";
        Err(Error::new("create stage", path, io::Error::new(ErrorKind::AlreadyExists, why)))
    }

    /// `None` if another holder has the lock, or has just removed the file.
    fn take(path: &Path, how: &OpenOptions, is_made_here: bool) -> Result<Option<Self>> {
        let mut how = how.clone();
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        how.custom_flags(flags);
        let open = || {
            let file = retry(|| how.open(path).and_then(above_standard));
            let file = file.map_err(|source| {
                let error = Error::new("open stage", path, source);
                let is_usual =
                    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists);
                let advice = "check who made it, or name a tmpfs directory that you may write to";
                if is_usual { error } else { error.advise(advice) }
            })?;
            if let Err(error) = check(&file, path) {
                // Only what this call has made.
                if is_made_here {
                    let _ = std::fs::remove_file(path);
                }
                return Err(error);
            }
            Ok(file)
        };
        let Some(locked) = LockedFile::take(path, LockedBytes::All, ForkMark::new()?, open)? else {
            return Ok(None);
        };
        let held = locked.file().metadata().map_err(|error| Error::new("fstat", path, error))?;
        let is_named = std::fs::symlink_metadata(path).is_ok_and(|named| named.ino() == held.ino());
        Ok(is_named.then(|| Self { locked, path: path.to_path_buf(), region: None }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> &File {
        self.locked.file()
    }

    /// Its length, and up to so many of its first bytes.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn read_head(&self, most: usize) -> Result<(u64, Vec<u8>)> {
        let failed = |source| Error::new("read stage", &self.path, source);
        let len = self.file().metadata().map_err(failed)?.len();
        let mut bytes = vec![0; usize::try_from(len).map_or(most, |len| len.min(most))];
        retry(|| self.file().read_exact_at(&mut bytes, 0)).map_err(failed)?;
        Ok((len, bytes))
    }

    /// Writes its first bytes.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn write_head(&self, head: &[u8]) -> Result<()> {
        retry(|| self.file().write_all_at(head, 0))
            .map_err(|source| Error::new("write stage", &self.path, source))
    }

    fn set_len(&self, layout: StageLayout) -> Result<()> {
        retry(|| self.file().set_len(layout.len_bytes() as u64))
            .map_err(|source| Error::new("ftruncate stage", &self.path, source))
    }

    /// The buffers that are in it, with their contents. What is missing of its length is zeros.
    ///
    /// # Errors
    /// The layout is not sound, or there is no such amount of memory.
    pub fn map(&mut self, layout: StageLayout) -> Result<Vec<StageBuffer>> {
        self.set_len(layout)?;
        let (region, buffers) = buffers_in_file(self.file(), &self.path, layout)?;
        self.region = Some((region, layout));
        Ok(buffers)
    }

    /// Gives a new one a head and buffers. A buffer gets its memory when it is made ready; before
    /// Linux 5.14 all have it now.
    ///
    /// # Errors
    /// The layout is not sound, or there is no room.
    pub fn make_buffers(&mut self, layout: StageLayout, head: &[u8]) -> Result<Vec<StageBuffer>> {
        // The words beside the buffers are used at once.
        let mut front = vec![0; layout.buffer_at(0)];
        front[..head.len()].copy_from_slice(head);
        self.write_head(&front)?;
        let buffers = self.map(layout)?;
        if !self.region.as_ref().is_some_and(|(region, _)| region.gets_memory_later()) {
            Allocate::Grow.call(self.file(), &self.path, layout.len_bytes() as u64)?;
        }
        Ok(buffers)
    }

    /// Whether the file was removed: the next start will not find its contents.
    pub fn is_removed(&self) -> bool {
        self.file().metadata().is_ok_and(|facts| facts.nlink() == 0)
    }

    /// Makes it again after it was removed, with the same contents under the same buffers, which
    /// nobody uses meanwhile.
    ///
    /// # Errors
    /// There is no room for another one; then the buffers are as they were.
    pub fn renew(&mut self) -> Result<()> {
        let Some((region, layout)) = self.region.clone() else { return Ok(()) };
        let new = Self::create(&self.path)?;
        let failed = |source| Error::new("copy stage", &self.path, source);
        let copy = || {
            let mut bytes = vec![0; COPIED_BYTES];
            let len = layout.len_bytes();
            for at in (0..len).step_by(COPIED_BYTES) {
                let piece = &mut bytes[..COPIED_BYTES.min(len - at)];
                retry(|| self.file().read_exact_at(piece, at as u64)).map_err(failed)?;
                retry(|| new.file().write_all_at(piece, at as u64)).map_err(failed)?;
            }
            region.move_to(new.file(), &self.path)
        };
        match copy() {
            Ok(()) => {
                self.locked = new.locked;
                Ok(())
            }
            Err(error) => new.remove().and(Err(error)),
        }
    }

    /// Gives it another path, which is free.
    ///
    /// # Errors
    /// It is not free (`AlreadyExists`), or what the file system answers.
    pub fn rename(&mut self, to: &Path) -> Result<()> {
        retry(|| Ok(renameat_with(CWD, &self.path, CWD, to, RenameFlags::NOREPLACE)?))
            .map_err(|source| Error::new("rename stage", to, source))?;
        self.path = to.to_path_buf();
        Ok(())
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

/// Every user may write to a directory in memory: checks that nobody else could have written what
/// is in the file.
fn check(file: &File, path: &Path) -> Result<()> {
    let facts = file.metadata().map_err(|source| Error::new("fstat stage", path, source))?;
    let is_mine = facts.uid() == rustix::process::geteuid().as_raw();
    if !facts.is_file() || !is_mine || facts.mode() & 0o022 != 0 {
        let why = "it is not a plain file to which this user alone may write";
        // One of one's own may have lines.
        let advice = match is_mine && facts.is_file() {
            true => "others could have written to it: if they did not, `chmod 600` it",
            false => "check who made it, and remove it",
        };
        return Err(Error::invalid("open stage", path, why).advise(advice));
    }
    let system = fstatfs(file).map_err(|error| Error::new("statfs", path, error))?.f_type;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    if matches!(system as i64, TMPFS | RAMFS) {
        return Ok(());
    }
    let why = "its directory is not in memory: writers would wait for write-back";
    Err(Error::invalid("open stage", path, why).advise("name a tmpfs directory such as /dev/shm"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

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
    fn one_that_was_removed_is_made_again_under_its_buffers() {
        let Some(made) = in_memory("a stage made again") else { return };
        let path = StageFile::path_in(made.path(), "a");
        let mut stage = StageFile::create(&path).expect("created");
        let mut buffers = stage.make_buffers(LAYOUT, b"head").expect("mapped");
        buffers[1].put(b"before ");
        std::fs::remove_file(&path).expect("removed");
        assert!(stage.is_removed() && StageFile::open(&path).is_err());
        stage.renew().expect("made");
        buffers[1].put(b"and behind");
        buffers[1].publish(5);
        assert!(StageFile::open(&path).expect("there").is_none(), "it is locked");
        drop((stage, buffers));
        let mut stage = StageFile::open(&path).expect("there").expect("free");
        assert_eq!(stage.read_head(4).expect("read").1, b"head");
        let buffer = stage.map(LAYOUT).expect("mapped").remove(1);
        assert_eq!((buffer.bytes(), buffer.mark()), (&b"before and behind"[..], 5));
    }

    #[test]
    fn what_others_could_have_written_or_is_on_a_disk_is_refused() {
        let Some(made) = in_memory("stages of others") else { return };
        let path = StageFile::path_in(made.path(), "a");
        drop(StageFile::create(&path).expect("created"));
        assert_eq!(StageFile::list(made.path()).expect("listed"), std::slice::from_ref(&path));
        for (mode, is_taken) in [(0o644, true), (0o620, false), (0o602, false)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("mode");
            assert_eq!(StageFile::open(&path).is_ok(), is_taken);
        }
        let link = StageFile::path_in(made.path(), "b");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(StageFile::open(&link).is_err() && StageFile::create(&link).is_err());
        // `/tmp` may be in memory.
        let on_disk = tempfile::tempdir_in("/var/tmp").expect("a directory");
        if let Err(error) = StageFile::create(&on_disk.path().join("stage")) {
            assert!(error.to_string().contains("write-back"), "{error}");
            assert!(!on_disk.path().join("stage").exists());
            // A user may name the log itself.
            let users = on_disk.path().join("a.log");
            std::fs::write(&users, "").expect("written");
            assert!(StageFile::open(&users).is_err() && users.exists());
        } else {
            eprintln!("NOT RUN: a stage on disk is refused: /var/tmp is in memory");
        }
    }

    /// Another start may take a new one for that of a process that was killed at once.
    #[test]
    fn one_that_is_cleared_up_while_it_is_made_is_made_again() {
        let Some(made) = in_memory("a stage cleared up") else { return };
        let path = StageFile::path_in(made.path(), "a");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    if let Ok(Some(found)) = StageFile::open(&path) {
                        let _ = found.remove();
                    }
                }
            });
            let made = (0..1000).map(|_| StageFile::create(&path).and_then(StageFile::remove));
            let failed: Vec<_> = made.filter(Result::is_err).collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_empty(), "{failed:?}");
        });
    }
}
