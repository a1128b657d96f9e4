//! A file of the operating system, read and written at offsets, through the page cache or past it.
//!
//! *Owns*: the descriptor. *May not touch*: what the bytes mean; which thread calls.

use std::fmt::Display;
use std::fs::File as StdFile;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;

use crate::buffer::{AlignedBuf, BLOCK_BYTES};
use crate::capability::DioAlignment;
use crate::clock::moment;
use crate::descriptor::above_standard;
use crate::error::{Error, Result, is_not_here};
use crate::fiemap;
use crate::fork::ForkMark;
use crate::held::{Held, OwnName, is_clean_by_mount};
use crate::prepare;
use crate::residency::{Residency, residency};
use crate::seam::{File, FileFacts, OpenFile, SyncKind};
use crate::strategy::{Access, Durability, Preparation};
use crate::sys::{self, BTRFS, EXT4, F2FS, TMPFS, XFS};
use crate::transfer::{Direction, Transfer, retry};

/// File systems that are known to really sync a new file (ext2 and ext3 have the number of ext4).
/// Below an overlay there can be any.
const SYNCS_NEW_FILES: [u32; 4] = [EXT4, XFS, F2FS, TMPFS];

/// The open flags that access and durability need.
fn flags_of(how: &OpenFile, path: &Path) -> Result<i32> {
    let lacks = |what: &dyn Display| {
        Error::unsupported("open", path, format!("this system has no flag for {what}"))
    };
    let direct = match how.access {
        Access::Buffered => 0,
        Access::Direct => {
            sys::O_DIRECT.ok_or_else(|| lacks(&how.access).advise("use access buffered"))?
        }
        Access::Seek | Access::Mmap | Access::Stream | Access::StreamGather => {
            let why = format!("only labs have access {}, in inkstone-host", how.access);
            return Err(
                Error::unsupported("open", path, why).advise("use access buffered or direct")
            );
        }
    };
    let sync = match how.durability {
        Durability::OSync => sys::O_SYNC.ok_or_else(|| lacks(&how.durability))?,
        Durability::ODsync => sys::O_DSYNC.ok_or_else(|| lacks(&how.durability))?,
        _ => 0,
    };
    Ok(direct | sync)
}

/// A file of the operating system. A process that was forked after the file was opened can read it,
/// but every change is refused ([`Error::is_forked`]).
#[derive(Debug)]
pub struct OsFile {
    file: StdFile,
    path: PathBuf,
    how: OpenFile,
    /// The directory and the name by which it was opened; `None` if it was opened by its path.
    place: Option<(Arc<Held>, String)>,
    mark: ForkMark,
    /// Its file system, asked for when it matters.
    file_system: OnceLock<u32>,
}

/// The error of a failed opening, with what to do if that is known.
fn explained(error: Error, how: &OpenFile) -> Error {
    let refused = how.access == Access::Direct && error.is_not_here();
    if refused {
        error.advise("this file system or a sandbox has no O_DIRECT: use access buffered")
    } else {
        error
    }
}

/// Why blocks of [`BLOCK_BYTES`] cannot be transferred past the page cache, although the kernel has
/// opened the file with `O_DIRECT`; `None` if they can. The kernel fails only at the first
/// transfer, or silently uses the page cache. The latter matters for a reader that reads past the
/// cache to see what is on the medium.
fn why_not_direct(file: &StdFile, read_only: bool) -> Option<String> {
    const BLOCK: u32 = BLOCK_BYTES as u32;
    let too_large = |needs: &str| {
        Some(format!("O_DIRECT needs {needs} here, and blocks are aligned to {BLOCK_BYTES}"))
    };
    match sys::dio_alignment(file.as_fd()) {
        DioAlignment::Bytes { memory, offset } if memory <= BLOCK && offset <= BLOCK => None,
        DioAlignment::Bytes { memory, offset } => {
            too_large(&format!("an alignment of {memory} bytes in memory and {offset} in the file"))
        }
        DioAlignment::Refused => {
            read_only.then(|| "O_DIRECT is served through the page cache here".into())
        }
        // btrfs reports nothing and accepts every alignment.
        DioAlignment::NotTold if file_system_of(file) == Some(BTRFS) => None,
        DioAlignment::NotTold => {
            let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
            match retry(|| Ok(rustix::io::pread(file, &mut block[..], 0)?)) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    too_large("a larger alignment")
                }
                Err(error) if is_not_here(&error) => {
                    Some(format!("a read with O_DIRECT is refused here ({error})"))
                }
                _ => None,
            }
        }
    }
}

fn file_system_of(file: &StdFile) -> Option<u32> {
    sys::file_system(file.as_fd()).ok().map(|answer| answer.number)
}

impl OsFile {
    /// How much of the file is in the page cache now, by `cachestat` (Linux 6.5), else by
    /// `mincore`. It reads nothing.
    ///
    /// # Errors
    /// What the kernel answers; before 6.5 the file must be open for writing too.
    pub fn residency(&self) -> Result<Residency> {
        residency(&self.file, &self.path, self.len_bytes()?)
    }

    /// Opens or creates the file by its path, whatever kind of file it is: for labs. A creation is
    /// durable after a sync of its directory. A log opens its files by
    /// [`OsDirectory`](crate::OsDirectory).
    ///
    /// # Errors
    /// What the kernel answers; if it refuses `O_DIRECT`, the error says so. If `O_DIRECT` cannot
    /// transfer blocks of [`BLOCK_BYTES`] (larger sectors) or, for reading only, would serve them
    /// from the page cache (ext4 with data=journal), the error is
    /// [unsupported](Error::is_unsupported).
    pub fn open(path: &Path, how: &OpenFile) -> Result<Self> {
        let mut options = StdFile::options();
        let flags = flags_of(how, path)?;
        options.read(true).write(!how.read_only).create_new(how.create_new).custom_flags(flags);
        let file = retry(|| above_standard(options.open(path)?))
            .map_err(|source| explained(Error::new("open", path, source), how))?;
        Self::with(file, path.to_path_buf(), how, None, ForkMark::new()?)
    }

    /// Opens or creates a plain file of a directory that is held open.
    pub(crate) fn open_in(
        held: &Arc<Held>,
        name: &str,
        how: &OpenFile,
        mode: u32,
        mark: ForkMark,
    ) -> Result<Self> {
        let path = held.join(name);
        if how.create_new && how.read_only {
            return Err(Error::invalid("open", path, "creating a file requires write access"));
        }
        let written = if how.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let created = if how.create_new { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
        let flags =
            written | created | OFlags::from_bits_retain(flags_of(how, &path)?.cast_unsigned());
        let opened = held.open_file(name, flags, mode);
        let file = opened.map_err(|source| explained(held.failed("open", name, source), how))?;
        Self::with(file, path, how, Some((Arc::clone(held), name.to_owned())), mark)
    }

    fn with(
        file: StdFile,
        path: PathBuf,
        how: &OpenFile,
        place: Option<(Arc<Held>, String)>,
        mark: ForkMark,
    ) -> Result<Self> {
        if how.access == Access::Direct
            && let Some(why) = why_not_direct(&file, how.read_only)
        {
            return Err(Error::unsupported("open", path, why).advise("use access buffered"));
        }
        Ok(Self { file, path, how: *how, place, mark, file_system: OnceLock::new() })
    }

    fn file_system(&self) -> u32 {
        *self.file_system.get_or_init(|| file_system_of(&self.file).unwrap_or(0))
    }

    /// Changes the file's times, and so its inode.
    fn set_times_to_now(&self) -> Result<()> {
        // Both to now: any other time may be set by the file's owner only.
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        match rustix::fs::futimens(&self.file, &times) {
            // The kernel checks the present user, and a daemon that opened the file may have given
            // up root since. Setting the size to the present size changes the times too, and needs
            // only the descriptor, like writing. A sandbox may not have the call at all.
            Err(error) if error == Errno::ACCESS || is_not_here(&error.into()) => {
                self.set_len(self.len_bytes()?)
            }
            answer => answer.map_err(|error| Error::new("futimens", &self.path, error)),
        }
    }

    /// Makes btrfs sync a file that was created through this handle. Linux 6.18 takes the file for
    /// synced already and reports success without doing anything, if its directory was synced
    /// since, and the last change before that was a write with `O_DIRECT` beside another file's
    /// sync (docs/powerloss.md, "Syncs that report success and are not"). It always notices a
    /// change of the inode that no write follows. An overlay over btrfs behaves in the same way
    /// under another name, so this is done on every file system that is not known to be without the
    /// fault. Labs, which open files by path, measure the bare sync.
    fn change_what_was_created(&self) -> Result<()> {
        let is_created = self.how.create_new && self.place.is_some();
        if is_created && !SYNCS_NEW_FILES.contains(&self.file_system()) {
            self.set_times_to_now()
        } else {
            Ok(())
        }
    }

    /// The same file through another descriptor, with these flags and no others: for writing, or
    /// for reading only.
    fn again(&self, flags: i32, to_write: bool) -> io::Result<StdFile> {
        let again = match &self.place {
            Some((held, name)) => {
                let mode = if to_write { OFlags::WRONLY } else { OFlags::RDONLY };
                held.open_file(name, mode | OFlags::from_bits_retain(flags.cast_unsigned()), 0)?
            }
            None => {
                let mut options = StdFile::options();
                options.read(!to_write).write(to_write).custom_flags(flags);
                retry(|| above_standard(options.open(&self.path)?))?
            }
        };
        let [mine, its] =
            [self.file.metadata()?, again.metadata()?].map(|facts| (facts.dev(), facts.ino()));
        if mine != its {
            return Err(io::Error::other("another file has its name by now"));
        }
        Ok(again)
    }

    /// Whether this process was forked after the file was opened. One load.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.mark.is_child()
    }

    /// Refuses a change in a forked child: the file belongs to the parent process.
    ///
    /// # Errors
    /// In a forked child ([`Error::is_forked`]).
    #[inline]
    pub fn check_change(&self, operation: &'static str) -> Result<()> {
        if self.is_forked() { Err(Error::forked(operation, &self.path)) } else { Ok(()) }
    }

    /// How it was opened.
    pub fn how(&self) -> &OpenFile {
        &self.how
    }

    /// Its descriptor, for labs that pass it to the kernel themselves.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its standard library handle, for questions about the file (its extents, its metadata).
    pub fn std_file(&self) -> &StdFile {
        &self.file
    }

    fn write_all(
        &self,
        call: &'static str,
        bytes: &[u8],
        offset: u64,
        attempt: impl FnMut(usize) -> io::Result<usize>,
    ) -> Result<()> {
        let written = Transfer::new(bytes.len()).run(Direction::Write, attempt);
        written.map(drop).map_err(|source| Error::new(call, &self.path, source).at(offset))
    }

    fn read_from(file: &StdFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Transfer::new(buffer.len()).run(Direction::Read, |done| {
            // Not through the C library, which checks at each call whether the thread is to be
            // cancelled.
            Ok(rustix::io::pread(file, &mut buffer[done..], offset + done as u64)?)
        })
    }
}

impl File for OsFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len_bytes(&self) -> Result<u64> {
        sys::size(self.file.as_fd()).map_err(|error| Error::new(sys::GET_FACTS, &self.path, error))
    }

    #[allow(clippy::useless_conversion, reason = "other systems have other types here")]
    fn facts(&self) -> Result<FileFacts> {
        // Not `statx`, which a sandbox may refuse.
        let facts = fstat(&self.file).map_err(|source| Error::new("fstat", &self.path, source))?;
        let len = u64::try_from(facts.st_size).unwrap_or(0);
        let kinds = fiemap::kinds(&self.file, &self.path, len)?;
        let since_1970 = u64::try_from(facts.st_mtime).ok().map(Duration::from_secs);
        let nanos = Duration::from_nanos(u64::try_from(facts.st_mtime_nsec).unwrap_or(0));
        Ok(FileFacts {
            inode: facts.st_ino,
            hard_links: u64::from(facts.st_nlink),
            has_shared_extents: kinds.shared,
            has_unwritten_extents: kinds.unwritten,
            has_holes: kinds.holes,
            modified: since_1970.map(|seconds| SystemTime::UNIX_EPOCH + seconds + nanos),
        })
    }

    fn own_name(&self) -> OwnName {
        let Some((held, name)) = &self.place else { return OwnName::Alone };
        held.own_name(name, &self.file).unwrap_or(OwnName::Alone)
    }

    fn check_takes_changes(&self) -> Result<()> {
        self.check_change("futimens")?;
        if self.file_system() == XFS {
            // After a shutdown xfs answers nothing at all, and it shuts down before any wait for
            // its journal ends. No field is asked for: a change of the time stamp would make the
            // next sync wait for the journal.
            return sys::ask_nothing(self.file.as_fd())
                .map_err(|error| Error::new(sys::GET_FACTS, &self.path, error));
        }
        // Twice: the first call lets ext4 notice that its journal was aborted, without an error; it
        // refuses the second.
        for _ in 0..2 {
            self.set_times_to_now()?;
        }
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.check_change("ftruncate")?;
        retry(|| self.file.set_len(len_bytes))
            .map_err(|source| Error::new("ftruncate", &self.path, source).at(len_bytes))
    }

    fn forget_cached(&self) -> Result<()> {
        sys::drop_cached(self.file.as_fd())
            .map_err(|error| Error::new("posix_fadvise(DONTNEED)", &self.path, error))
    }

    fn is_cached(&self) -> Result<bool> {
        // An eighth may be missing: it is read on the way.
        let most = |found: Residency| found.resident_pages >= found.pages - found.pages / 8;
        Ok(self.residency().is_ok_and(most))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let answer = match Self::read_from(&self.file, buffer, offset) {
            // Before a read past the page cache the kernel writes its dirty pages back, and a file
            // system that an error has turned read-only refuses that. Only a reader that could not
            // flush comes so far: it reads what is there.
            Err(error) if self.how.read_only && error.raw_os_error() == Some(libc::EROFS) => {
                self.again(0, false).and_then(|cached| Self::read_from(&cached, buffer, offset))
            }
            answer => answer,
        };
        answer.map_err(|source| Error::new("pread", &self.path, source).at(offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_change("pwrite")?;
        let attempt = |done: usize| self.file.write_at(&bytes[done..], offset + done as u64);
        self.write_all("pwrite", bytes, offset, attempt)
    }

    fn write_dsync(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_change("pwritev2(RWF_DSYNC)")?;
        let attempt = |done: usize| {
            sys::pwrite_dsync(self.file.as_fd(), &bytes[done..], offset + done as u64)
        };
        self.write_all("pwritev2(RWF_DSYNC)", bytes, offset, attempt)
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        self.check_change("fsync")?;
        self.change_what_was_created()?;
        // Never again after an error: a second sync can succeed over pages that were lost. EINTR is
        // the exception: the kernel returns it before it starts.
        let (name, answer) = match kind {
            SyncKind::All => ("fsync", retry(|| self.file.sync_all())),
            SyncKind::Data => match retry(|| self.file.sync_data()) {
                // Some sandboxes lack `fdatasync`. Nothing was synced then, so `fsync`, which does
                // more, is no second try of a failed sync.
                Err(error) if is_not_here(&error) => ("fsync", retry(|| self.file.sync_all())),
                answer => ("fdatasync", answer),
            },
        };
        match answer {
            Err(source) if self.how.read_only && is_clean_by_mount(&self.file, &source) => Ok(()),
            answer => answer.map_err(|source| Error::new(name, &self.path, source)),
        }
    }

    fn clock(&self) -> Duration {
        moment()
    }

    fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()> {
        self.check_change("prepare")?;
        let again = |flags| self.again(flags, true);
        prepare::prepare(&self.file, &self.path, self.how.access, preparation, len_bytes, &again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labs have the others, and the error says where.
    #[test]
    fn a_file_has_the_ways_that_a_log_uses_and_no_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = OsFile::open(&path, &OpenFile::new_file()).expect("opened");
        let refused = |error: Error| {
            assert!(
                error.is_unsupported() && error.to_string().contains("in inkstone-host"),
                "{error}"
            );
        };
        for access in [Access::Seek, Access::Mmap, Access::Stream, Access::StreamGather] {
            refused(
                OsFile::open(&path, &OpenFile::existing().access(access)).expect_err("refused"),
            );
        }
        file.prepare(Preparation::None, 4096).expect("nothing to do");
        for preparation in [Preparation::KeepSize, Preparation::Sparse, Preparation::FallocateSteps]
        {
            refused(file.prepare(preparation, 4096).expect_err("refused"));
        }
        assert_eq!(file.len_bytes().expect("asked"), 0);
    }
}
