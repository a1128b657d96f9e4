//! The traits over which the log is written: a directory, its files, its locks.
//!
//! *Owns*: the three traits and the types of their calls. *May not touch*: the operating system;
//! [`OsDirectory`](crate::OsDirectory) and [`OsFile`](crate::OsFile) do that, and a simulated disk
//! implements the same traits.
//!
//! What a caller may rely on with every implementation:
//! - bytes written are durable when a sync of the file that *started after* the write completed has
//!   returned `Ok`, or when it was a [`File::write_dsync`] that has returned `Ok`;
//! - a file's name is durable when a [`Directory::sync`] that started after its creation or
//!   renaming returned `Ok`;
//! - after a failed write or sync the state of every byte that was not durable before is unknown:
//!   do not retry, reopen.

use crate::capability::{Capabilities, CopyOnWrite};
use crate::error::Result;
use crate::held::OwnName;
use crate::strategy::{Access, Durability, Preparation};
use crate::{DirectoryLock, SharedPage, SharedPageReader};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// File systems that overwrite a block in place, so that an overwrite needs no room. Overlays,
/// network and FUSE file systems are not among them, since the file system below is unknown.
const OVERWRITES_IN_PLACE: [&str; 9] =
    ["ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs", "vfat", "exfat", "ntfs3"];

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFile {
    /// Fail if it exists (`O_EXCL`); otherwise fail if it does not.
    pub create_new: bool,
    /// The way in which bytes get into the file.
    pub access: Access,
    /// `OSync` and `ODsync` become open flags; every other durability is a later call.
    pub durability: Durability,
    /// Refuse to write.
    pub read_only: bool,
}

impl OpenFile {
    /// An existing file, through the page cache, for reading and writing.
    pub fn existing() -> Self {
        Self {
            create_new: false,
            access: Access::Buffered,
            durability: Durability::None,
            read_only: false,
        }
    }

    /// A new file, which must not exist yet.
    pub fn new_file() -> Self {
        Self { create_new: true, ..Self::existing() }
    }

    /// With this access.
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// With this durability: the open flags that it needs.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// For reading only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }
}

/// Facts about a file, apart from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// The file's number in its file system: two names with one number are one file. A number is
    /// used again after its file is gone, so compare it only with that of an open file.
    pub inode: u64,
    /// How many names it has; 0 after its last name was removed, while handles are open.
    pub hard_links: u64,
    /// Whether it shares blocks with another file (reflinks, snapshots): an overwrite there goes to
    /// a new place.
    pub has_shared_extents: bool,
    /// Whether some of its blocks are only reserved: the first write of each changes metadata, and
    /// a sync then waits for that.
    pub has_unwritten_extents: bool,
    /// Whether some of its bytes have no blocks: the first write there needs room.
    pub has_holes: bool,
    /// When its bytes were last changed, by the clock of the machine then; `None` where files have
    /// no times. A power cut may set it back, since a sync of data does not make the time durable.
    pub modified: Option<SystemTime>,
}

/// What a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncKind {
    /// `fsync`: data and all metadata.
    All,
    /// `fdatasync`: data, and the metadata needed to read it back.
    Data,
}

/// How a write becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Persist {
    /// Not by this write: a sync follows, or the file was opened with `O_DSYNC`.
    Later,
    /// `RWF_DSYNC` on the write.
    Dsync,
    /// A sync after the write.
    Sync(SyncKind),
}

/// A file of a [`Directory`].
pub trait File: Send + Sync + 'static {
    /// Its path, for messages.
    fn path(&self) -> &Path;

    /// Its size in bytes.
    ///
    /// # Errors
    /// What the file system answers.
    fn len_bytes(&self) -> Result<u64>;

    /// Its identity and its extents, without writing anything back. If the file system does not
    /// report extents (no FIEMAP), the facts about them are false.
    ///
    /// # Errors
    /// What the file system answers.
    fn facts(&self) -> Result<FileFacts>;

    /// Where the name leads by which it was opened: any program may have changed that since. An
    /// answer of the file system that leaves it open counts as [`OwnName::Alone`].
    fn own_name(&self) -> OwnName;

    /// Asks the file system whether it still accepts changes of metadata: by changing the file's
    /// time stamp or, where that suffices, by asking for the file's status. When its journal cannot
    /// be written, a file system may report success for a sync that waited for the journal; from
    /// then on it refuses changes. If this succeeds after a sync, the sync was not such a case
    /// (docs/assumptions.md, A13).
    ///
    /// # Errors
    /// The file system refuses: the state of what was synced last is unknown.
    fn check_takes_changes(&self) -> Result<()>;

    /// Sets the size in bytes. Bytes beyond it are lost; new bytes are a hole and read as zeros.
    /// The size is metadata: it is durable after a [`File::sync`], and until then a crash may leave
    /// either size.
    ///
    /// # Errors
    /// What the file system answers, with the new size as the offset; also for a file that is open
    /// for reading only.
    fn set_len(&self, len_bytes: u64) -> Result<()>;

    /// Drops the *clean* cached pages of the whole file, so that the next buffered read comes from
    /// the device. Dirty pages stay, and still need a sync.
    ///
    /// On Linux this is advice (`POSIX_FADV_DONTNEED`): pages that are mapped, under write-back or
    /// in use stay, and write-back of dirty pages may begin. Only a read with [`Access::Direct`] is
    /// sure to come from the device.
    ///
    /// # Errors
    /// What the file system answers.
    fn forget_cached(&self) -> Result<()>;

    /// Whether most of the file is in the page cache, so that reading it through the cache is fast.
    /// It only matters for speed: the answer may be outdated when it arrives, and is false if it is
    /// unknown.
    ///
    /// # Errors
    /// The size of the file is unknown.
    fn is_cached(&self) -> Result<bool>;

    /// Reads at `offset` until `buffer` is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// What the file system answers, with the offset.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes all of `bytes` at `offset`. Not durable on return.
    ///
    /// # Errors
    /// What the file system answers, with the offset; some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Writes all of `bytes` at `offset`, durable on return (`RWF_DSYNC`): the bytes of this write,
    /// and nothing that was written before it.
    ///
    /// # Errors
    /// As [`File::write_at`] and [`File::sync`] together: it does not show which of the two failed.
    /// The one exception is [`is_not_here`](crate::Error::is_not_here): the flag is refused here,
    /// and nothing was written.
    fn write_dsync(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes everything that was written before durable, through whichever handle it was written.
    /// It also works on a file that is open for reading only, and on a file system that is mounted
    /// read-only, where there is nothing to do.
    ///
    /// # Errors
    /// After an error the state of the bytes written since the last sync is unknown. Never retry: a
    /// second sync may report success although they are lost.
    fn sync(&self, kind: SyncKind) -> Result<()>;

    /// Prepares the blocks of the first `len_bytes` in the given way. [`Preparation::Zeros`]
    /// includes one sync; preparations in steps do nothing here: their blocks are reserved while
    /// the file is written.
    ///
    /// # Errors
    /// What the file system answers; `is_unsupported()` if it does not have this way.
    fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()>;

    /// A moment of the clock by which the log compares two ways of writing, as the time since some
    /// other moment. A simulated disk has a clock of its own.
    fn clock(&self) -> Duration;
}

impl fmt::Debug for dyn File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.path()).finish()
    }
}

/// The exclusive lock on a file of a [`Directory`]; released when it is dropped.
pub trait Lock: fmt::Debug + Send + Sync + 'static {
    /// Checks that the name of the locked file still leads to it. A file that was removed or
    /// replaced keeps nobody out any more: the next process locks another file of that name.
    ///
    /// # Errors
    /// The name leads to no file, or to another one. An answer of the file system that leaves this
    /// open is no error.
    fn check_named(&self) -> Result<()>;
}

/// A directory of files, each named without a slash.
pub trait Directory: Send + Sync + 'static {
    /// Its files.
    type File: File;
    /// The exclusive lock on one of its files; released when it is dropped, and when the process
    /// ends in any way.
    type Lock: Lock;

    /// Its path, for messages.
    fn path(&self) -> &Path;

    /// Opens or creates a plain file, without ever waiting (a pipe of that name is refused). A
    /// creation is durable after [`Directory::sync`].
    ///
    /// # Errors
    /// The name is that of a link, a directory, a pipe or a device. What the file system answers;
    /// the error says so if it refuses `O_DIRECT`.
    fn open(&self, name: &str, how: &OpenFile) -> Result<Self::File>;

    /// The same directory. Files that are created through it get the owner and group of the file
    /// with this name, and its permissions unless others were asked for. `None` if there is no such
    /// file, or files here have no owners.
    ///
    /// # Errors
    /// This process can make no such files. What the file system answers.
    fn files_like(&self, name: &str) -> Result<Option<Self>>
    where
        Self: Sized,
    {
        let _ = name;
        Ok(None)
    }

    /// Renames within the directory, replacing `to`. Durable after [`Directory::sync`].
    ///
    /// # Errors
    /// What the file system answers.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Renames within the directory to a name that no file has. Durable after [`Directory::sync`].
    ///
    /// # Errors
    /// `AlreadyExists` when a file has the name `to`: both stay as they are. Else what the file
    /// system answers.
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file. Durable after [`Directory::sync`].
    ///
    /// # Errors
    /// What the file system answers.
    fn remove(&self, name: &str) -> Result<()>;

    /// The names in it, sorted. One of them may not be that of a plain file:
    /// [`Directory::open`] says what it is.
    ///
    /// # Errors
    /// What the file system answers.
    fn list(&self) -> Result<Vec<String>>;

    /// Makes creations, renames and removals durable, whichever process made them. On a file system
    /// that is mounted read-only there is nothing to do.
    ///
    /// # Errors
    /// What the file system answers.
    fn sync(&self) -> Result<()>;

    /// Syncs the whole file system, also what other programs have written: then the room of removed
    /// files is there again. btrfs gives it back with the end of a transaction, and may refuse a
    /// write until then. Nothing to do where a removal gives room at once.
    ///
    /// # Errors
    /// What the file system answers.
    fn sync_file_system(&self) -> Result<()> {
        Ok(())
    }

    /// Takes the exclusive lock on the file `name`, without waiting. `Ok(None)` if it is held, by
    /// another process or by this one through another handle. A missing file is created, empty;
    /// that need not be durable. Never remove or replace a lock file: the next process would lock
    /// another file of that name ([`Lock::check_named`] tells).
    ///
    /// # Errors
    /// The file could not be opened or created, or the file system has no locks. A full disk is no
    /// error if the file exists.
    fn lock(&self, name: &str) -> Result<Option<Self::Lock>>;

    /// Takes the lock of the directory itself, which keeps a second holder out whatever becomes of
    /// a lock file; waits for up to a second while another process has it. `None` where no such
    /// lock counts.
    ///
    /// # Errors
    /// Of the kind `ResourceBusy`: another holder has had it for a second.
    fn lock_itself(&self) -> Result<Option<DirectoryLock>> {
        Ok(None)
    }

    /// The holder of the lock on the file `name`, for people (`process 1234`, or `another process`
    /// if it is unknown); `None` if the lock is free, or there is no such file. It takes no lock,
    /// so asking never makes a [`Directory::lock`] fail, and writes nothing. The answer may be
    /// outdated when it arrives.
    ///
    /// # Errors
    /// The file is there and could not be opened for reading, or the file system has no locks.
    fn locked_by(&self, name: &str) -> Result<Option<String>>;

    /// The page on which the holder of this lock publishes to other processes; `None` where there
    /// is no such page, so that they poll.
    fn shared_page(&self, _lock: &Self::Lock) -> Option<Arc<SharedPage>> {
        None
    }

    /// The page on which the holder of the lock on the file `name` publishes; `None` if nobody
    /// holds it, or if this process cannot see the page. A process of the same user can publish
    /// anything there: check what it says.
    fn read_shared_page(&self, _name: &str) -> Option<SharedPageReader> {
        None
    }

    /// Whether this process was forked after the directory was opened. Then the directory, its
    /// files and its lock belong to the parent process: they can be read, every change is refused
    /// with its own error ([`Error::is_forked`](crate::Error::is_forked)), and dropping the lock
    /// does not release it. Cheap: one load.
    fn is_forked(&self) -> bool {
        false
    }

    /// Free bytes for an unprivileged user in its file system. Other processes may use them at any
    /// time.
    ///
    /// # Errors
    /// What the file system answers.
    fn free_bytes(&self) -> Result<u64>;

    /// What file system and device can do, without I/O; `None` if nothing is known.
    ///
    /// # Errors
    /// When the directory is missing, or the kernel's tables cannot be read.
    fn capabilities(&self) -> Result<Option<Capabilities>> {
        Ok(None)
    }

    /// Whether overwriting a file's written blocks may need room, because every write goes to a new
    /// place. `found` is the answer of [`Directory::capabilities`]. True if it is unknown.
    fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool {
        found.is_none_or(|found| {
            found.copy_on_write == CopyOnWrite::Always
                || !OVERWRITES_IN_PLACE.contains(&&*found.mount.file_system)
        })
    }

    /// Random bytes, for the id of a new log.
    ///
    /// # Errors
    /// When the system cannot give any.
    fn random_bytes(&self) -> Result<[u8; 16]>;

    /// Whether threads of a [`Pool`](crate::Pool) may read its files. On a simulated disk they may
    /// not: there the caller's thread alone decides what happens in which order.
    fn has_reading_threads(&self) -> bool {
        true
    }
}
