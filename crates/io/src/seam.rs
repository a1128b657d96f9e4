//! The seam that the log stands on: a directory of files, and an engine that takes owned buffers and gives them back.
//!
//! *Owns*: the three traits and what passes through them. *May not touch*: the operating system; [`crate::OsDirectory`]
//! and the engines of [`crate::engine`] do that, and a simulated disk implements the same traits.
//!
//! What a caller may rely on, whoever implements them:
//! - bytes written are durable when a sync of the file that *started after* the write completed has returned `Ok`, or
//!   when the write itself carried [`Persist::Dsync`] and completed;
//! - a file's name is durable when a [`Directory::sync`] that started after its creation or renaming returned `Ok`;
//! - after a failed write or sync nothing is known about any byte not durable before it: do not try again, reopen.

use crate::buffer::AlignedBuf;
use crate::capability::{Capabilities, CopyOnWrite};
use crate::error::Result;
use crate::strategy::{Access, Durability, EngineKind, Preparation};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// File systems that write over a block where it lies, so that an overwrite needs no room. Overlays, network and FUSE file
/// systems are not among them: what lies below them is not known.
const OVERWRITES_IN_PLACE: [&str; 9] =
    ["ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs", "vfat", "exfat", "ntfs3"];

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFile {
    /// Fail if it exists (`O_EXCL`); otherwise fail if it does not.
    pub create_new: bool,
    /// The way bytes get in.
    pub access: Access,
    /// `OSync` and `ODsync` become open flags; every other durability is somebody's later call.
    pub durability: Durability,
    /// Refuse to write.
    pub read_only: bool,
}

impl OpenFile {
    /// An existing file, through the page cache, for reading and writing.
    pub fn existing() -> Self {
        Self { create_new: false, access: Access::Buffered, durability: Durability::None, read_only: false }
    }

    /// A file that must not exist yet.
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

/// What a file is, apart from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// The file's number in its file system: two names with one number are one file. A number comes again after its
    /// file is gone, so compare it only with that of a file held open.
    pub inode: u64,
    /// How many names it has; 0 when its last one was removed and only handles are left.
    pub hard_links: u64,
    /// Whether another file has some of its blocks too (reflinks, snapshots): an overwrite there goes elsewhere.
    pub has_shared_extents: bool,
    /// Whether some of its blocks are only reserved: the first write of each changes metadata, which a sync then waits for.
    pub has_unwritten_extents: bool,
    /// When its bytes were changed last, by the clock of the machine then; `None` where files have no times. A power cut may
    /// set it back: a time is no part of what a sync of data makes durable.
    pub modified: Option<SystemTime>,
}

/// Which promise a sync gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncKind {
    /// `fsync`: data and all metadata.
    All,
    /// `fdatasync`: data, and the metadata needed to read it back.
    Data,
}

/// How a write becomes durable in the engine's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Persist {
    /// Not by this operation: a sync follows, or the file was opened with `O_DSYNC`.
    Later,
    /// `RWF_DSYNC` on the write.
    Dsync,
    /// A sync after the write, part of the same operation (linked, where the engine links).
    Sync(SyncKind),
}

/// What an engine is asked to do.
#[derive(Debug)]
pub enum Operation {
    /// Write `buffer[..len]` at `offset`, all of it.
    Write {
        /// The bytes, owned until the completion gives them back.
        buffer: AlignedBuf,
        /// How many of them, from the front.
        len: usize,
        /// Where in the file.
        offset: u64,
        /// How they become durable.
        persist: Persist,
    },
    /// Read up to `len` bytes at `offset` into the front of `buffer`; fewer only at the end of the file.
    Read {
        /// Where to.
        buffer: AlignedBuf,
        /// How many.
        len: usize,
        /// Where in the file.
        offset: u64,
        /// What is done with the bytes before the completion.
        then: Option<Then>,
    },
    /// Make everything that was written and *completed* before this operation durable.
    Sync(SyncKind),
}

/// What is done with bytes by whoever has read them, while they are in that processor's cache: for work that is not to be
/// the caller's. Dropped without being called when they could not be read.
pub struct Then(Box<Work>);

type Work = dyn FnOnce(&[u8], ThenOn) + Send;

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThenOn {
    /// A thread of the engine's, or one that helps them: whatever was submitted before this has been begun by others,
    /// which do not wait for this one. So this may wait for what those find.
    OwnThread,
    /// The thread that submits or completes. What was submitted before may not have been begun: waiting for it could be
    /// for ever.
    CallersThread,
}

impl Then {
    /// `work` is given the bytes that were read.
    pub fn new(work: impl FnOnce(&[u8], ThenOn) + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Does it: for engines.
    pub fn call(self, bytes: &[u8], on: ThenOn) {
        (self.0)(bytes, on);
    }
}

impl fmt::Debug for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Then")
    }
}

/// An operation on a file, with the caller's own number for it.
#[derive(Debug)]
pub struct Request<F> {
    /// Comes back with the completion; the engine does not look at it.
    pub token: u64,
    /// The file.
    pub file: Arc<F>,
    /// What to do.
    pub operation: Operation,
}

/// What became of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's own number.
    pub token: u64,
    /// The request's buffer, if it had one.
    pub buffer: Option<AlignedBuf>,
    /// Bytes transferred (0 for a sync), or what went wrong.
    pub result: Result<usize>,
}

/// Carries out requests. Order is promised to nobody: whoever needs a write before a sync waits for it, or asks for
/// [`Persist::Sync`].
pub trait Engine: Send {
    /// The files it works on.
    type File: File;

    /// Takes a request. It may be carried out here and now (the caller's thread) or later.
    ///
    /// # Errors
    /// Only when the request could not be taken at all, so that no completion will come: the engine is not usable any
    /// more (and the buffer is gone). Everything about the request itself comes with its completion.
    fn submit(&mut self, request: Request<Self::File>) -> Result<()>;

    /// Waits for the next completion; `None` when nothing is in flight.
    ///
    /// # Errors
    /// When the engine itself failed; it is not usable any more.
    fn complete(&mut self) -> Result<Option<Completion>>;

    /// How many requests were taken and not yet given back.
    fn in_flight(&self) -> usize;

    /// Submits one request and waits for *its* completion: for callers with nothing else in flight.
    ///
    /// # Errors
    /// As [`Engine::submit`] and [`Engine::complete`]; the request's own failure is in the completion.
    ///
    /// # Panics
    /// If something else is in flight: that is a mistake of the caller.
    fn run(&mut self, request: Request<Self::File>) -> Result<Completion> {
        assert_eq!(self.in_flight(), 0, "run() with requests in flight");
        self.submit(request)?;
        Ok(self.complete()?.expect("one request is in flight"))
    }
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

    /// Its identity and who else has its blocks, without writing anything back. Where the file system cannot tell
    /// (Linux: no FIEMAP), what is said of its extents is false.
    ///
    /// # Errors
    /// What the file system answers.
    fn facts(&self) -> Result<FileFacts>;

    /// Asks the file system whether it still takes changes of metadata: by changing the file's time stamp, or, where that tells
    /// as well, by asking for the file's status. When its journal cannot be written, a file system may report success for a sync
    /// that waited for that very journal; from then on it refuses changes, so a sync after which this succeeds was none of
    /// those (docs/assumptions.md, A13).
    ///
    /// # Errors
    /// It refuses: nothing is known about what was synced last.
    fn check_takes_changes(&self) -> Result<()>;

    /// Sets the size in bytes. What lay beyond is gone, new bytes read as zeros from a hole. A size is metadata: durable
    /// after a [`File::sync`], and until then a crash may show either size.
    ///
    /// # Errors
    /// What the file system answers, with the new size as the offset; so for a file that is open for reading only.
    fn set_len(&self, len_bytes: u64) -> Result<()>;

    /// Drops the *clean* cached pages of the whole file, so that the next buffered read comes from the device. Dirty
    /// pages stay, and still need a sync.
    ///
    /// On Linux this is advice (`POSIX_FADV_DONTNEED`): pages that are mapped, under write-back or in use stay, and
    /// write-back of dirty ones may begin. A read with [`Access::Direct`] is the sure way to see the device.
    ///
    /// # Errors
    /// What the file system answers.
    fn forget_cached(&self) -> Result<()>;

    /// Whether most of the file is in the page cache, so that reading it through the cache is a matter of memory. Only a
    /// matter of speed: it may have changed when the answer arrives, and where it cannot be told the answer is false.
    ///
    /// # Errors
    /// The file's size cannot be asked.
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

    /// Makes all that was written before durable on return, through whichever handle it was written: it works on a file
    /// opened for reading only too, also in a file system mounted read-only, where there is nothing to do.
    ///
    /// # Errors
    /// After an error nothing is known about the bytes written since the last sync: never call it again to be sure.
    fn sync(&self, kind: SyncKind) -> Result<()>;

    /// Makes the blocks of the first `len_bytes` ready in the given way. [`Preparation::Zeros`] includes its one sync;
    /// for the ways in steps this does nothing (the writer calls [`File::extend`]).
    ///
    /// # Errors
    /// What the file system answers; `is_unsupported()` where it does not have this way.
    fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()>;

    /// For the ways in steps: reserves the step `offset..offset + len_bytes`.
    ///
    /// # Errors
    /// As [`File::prepare`].
    fn extend(&self, preparation: Preparation, offset: u64, len_bytes: u64) -> Result<()>;
}

/// A directory of files, each named without a slash.
pub trait Directory: Send + Sync + 'static {
    /// Its files.
    type File: File;
    /// Its engines.
    type Engine: Engine<File = Self::File>;
    /// The exclusive lock on one of its files; released when dropped, and by the end of the process however it ends.
    type Lock: Send + Sync + std::fmt::Debug + 'static;

    /// Its path, for messages.
    fn path(&self) -> &Path;

    /// Opens or creates a plain file, never waiting for anybody (a pipe of that name is refused). A creation is durable after
    /// [`Directory::sync`].
    ///
    /// # Errors
    /// The name is that of a link, a directory, a pipe or a device.
    /// What the file system answers; `O_DIRECT` where it is refused says so.
    fn open(&self, name: &str, how: &OpenFile) -> Result<Self::File>;

    /// Renames within the directory, replacing `to`. Durable after [`Directory::sync`].
    ///
    /// # Errors
    /// What the file system answers.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Renames within the directory to a name that no file has. Durable after [`Directory::sync`].
    ///
    /// # Errors
    /// `AlreadyExists` when a file has the name `to`: both stay as they are. Else what the file system answers.
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file. Durable after [`Directory::sync`].
    ///
    /// # Errors
    /// What the file system answers.
    fn remove(&self, name: &str) -> Result<()>;

    /// The names of its files, sorted.
    ///
    /// # Errors
    /// What the file system answers.
    fn list(&self) -> Result<Vec<String>>;

    /// Makes creations, renames and removals durable on return, whoever made them. In a file system mounted read-only there is
    /// nothing to do.
    ///
    /// # Errors
    /// What the file system answers.
    fn sync(&self) -> Result<()>;

    /// Takes the exclusive lock on the file `name`, without waiting. `Ok(None)`: somebody else holds it, be it another
    /// process or this one through another handle. The file is created, empty, if it is missing; that need not be
    /// durable. Never remove or replace a lock file: whoever comes next would lock another file of that name.
    ///
    /// # Errors
    /// The file could not be opened or created, or the file system has no locks. That the disk is full is no error where
    /// the file exists.
    fn lock(&self, name: &str) -> Result<Option<Self::Lock>>;

    /// Who holds the lock on the file `name`, in words for people (`process 1234`, or `another process` where it cannot
    /// be told); `None` if nobody does, or there is no such file. It takes nothing, so that asking never makes somebody's
    /// [`Directory::lock`] fail, and writes nothing. The answer may be old when it arrives.
    ///
    /// # Errors
    /// The file is there and could not be opened for reading, or the file system has no locks.
    fn locked_by(&self, name: &str) -> Result<Option<String>>;

    /// Whether this process was forked after the directory was opened. Then the directory, its files and its lock belong to
    /// the parent: they can be read, every change is refused with an error of its own ([`crate::Error::is_forked`]), and
    /// dropping the lock does not give it back. Cheap: one load.
    fn is_forked(&self) -> bool {
        false
    }

    /// Room for an unprivileged user in its file system, in bytes. Others may take it at any time.
    ///
    /// # Errors
    /// What the file system answers.
    fn free_bytes(&self) -> Result<u64>;

    /// What file system and device can do, without I/O; `None` where nothing is known.
    ///
    /// # Errors
    /// When the directory is missing, or the kernel's tables cannot be read.
    fn capabilities(&self) -> Result<Option<Capabilities>> {
        Ok(None)
    }

    /// Whether writing over a file's own written blocks may need room that the file does not have, because every write
    /// goes to a new place. `found`: what [`Directory::capabilities`] said. True where it is not known.
    fn overwrites_need_room(&self, found: Option<&Capabilities>) -> bool {
        found.is_none_or(|found| {
            found.copy_on_write == CopyOnWrite::Always
                || !OVERWRITES_IN_PLACE.contains(&&*found.mount.file_system)
        })
    }

    /// Random bytes: the id of a new log.
    ///
    /// # Errors
    /// When the system has none to give.
    fn random_bytes(&self) -> Result<[u8; 16]>;

    /// An engine for its files. `depth` is how many requests it can have in flight.
    ///
    /// # Errors
    /// When this kernel, sandbox or build does not have it: the message names the likely cause and the cure.
    fn engine(&self, kind: EngineKind, depth: usize) -> Result<Self::Engine>;
}
