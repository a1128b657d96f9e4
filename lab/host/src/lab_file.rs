//! A file that a lab measures: an [`OsFile`], or a mapping, a C stream or a file position over one.
//!
//! *Owns*: what is between a write and the descriptor. *May not touch*: what the bytes mean; which
//! thread calls (engines decide that). The log's own ways (`pwrite`, `O_DIRECT`) go straight to the
//! [`OsFile`].

use std::io::{self, Write as _};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use inkstone_io::engine::BlockingFile;
use inkstone_io::transfer::{Direction, Transfer};
use inkstone_io::{
    Access, Error, File, FileFacts, ForkMark, OpenFile, OsDirectory, OsFile, Persist, Preparation,
    Result, SyncKind,
};

use crate::fallocate::FallocateMode;
use crate::mapping::Mapping;
use crate::stream::CStream;

/// The buffer of a C stream that gathers: several commits, and less than any device writes at once.
const GATHER_BYTES: usize = 64 << 10;

/// A file, written by any [`Access`]. What it does not do in its own way, the [`OsFile`] below it
/// does.
#[derive(Debug)]
pub struct LabFile {
    below: OsFile,
    how: OpenFile,
    way: Way,
}

/// What is between `write_at` and the descriptor.
#[derive(Debug)]
enum Way {
    Offset,
    Seek(Mutex<()>),
    Map(Mutex<Option<Mapping>>),
    Stream(Mutex<CStream>),
}

/// A lock whose holder panicked guards no invariant here that a later writer could break further.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the file below is opened: the ways of this file go through the page cache.
fn below(how: &OpenFile) -> OpenFile {
    match how.access {
        Access::Buffered | Access::Direct => *how,
        Access::Seek | Access::Mmap | Access::Stream | Access::StreamGather => {
            how.access(Access::Buffered)
        }
    }
}

impl Deref for LabFile {
    type Target = OsFile;

    fn deref(&self) -> &OsFile {
        &self.below
    }
}

impl LabFile {
    /// Opens or creates the file by its path.
    ///
    /// # Errors
    /// As [`OsFile::open`]; and the C library may refuse a stream.
    pub fn open(path: &Path, how: &OpenFile) -> Result<Self> {
        Self::over(OsFile::open(path, &below(how))?, how)
    }

    /// Opens or creates the file `name` of a directory.
    ///
    /// # Errors
    /// As [`inkstone_io::Directory::open`]; and the C library may refuse a stream.
    pub fn open_in(directory: &OsDirectory, name: &str, how: &OpenFile) -> Result<Self> {
        Self::over(inkstone_io::Directory::open(directory, name, &below(how))?, how)
    }

    fn over(below: OsFile, how: &OpenFile) -> Result<Self> {
        let way = match how.access {
            Access::Buffered | Access::Direct => Way::Offset,
            Access::Seek => Way::Seek(Mutex::new(())),
            Access::Mmap => Way::Map(Mutex::new(None)),
            Access::Stream | Access::StreamGather => {
                let stream = CStream::new(below.std_file(), ForkMark::new()?).and_then(|stream| {
                    match how.access {
                        Access::StreamGather => stream.gathering(GATHER_BYTES),
                        _ => Ok(stream),
                    }
                });
                Way::Stream(Mutex::new(
                    stream.map_err(|source| Error::new("fdopen", below.path(), source))?,
                ))
            }
        };
        Ok(Self { below, how: *how, way })
    }

    /// How it was opened.
    pub fn how(&self) -> &OpenFile {
        &self.how
    }

    /// For access mmap: maps the first `len_bytes`, which the file must already have.
    ///
    /// # Errors
    /// When the file has another access or is shorter, or the kernel refuses.
    pub fn map(&self, len_bytes: u64) -> Result<()> {
        self.check_change("mmap")?;
        let Way::Map(mapping) = &self.way else {
            return Err(Error::invalid(
                "mmap",
                self.path(),
                "the file was not opened for access mmap",
            ));
        };
        if self.len_bytes()? < len_bytes {
            let why = format!("the file is shorter than the {len_bytes} bytes to map");
            return Err(Error::invalid("mmap", self.path(), why));
        }
        let new = Mapping::new(self.std_file(), len_bytes);
        *lock(mapping) = Some(new.map_err(|source| Error::new("mmap", self.path(), source))?);
        Ok(())
    }

    /// For access mmap: `msync(MS_SYNC)` of a range; durable on return.
    ///
    /// # Errors
    /// When nothing is mapped there, or what the kernel answers.
    pub fn sync_mapped(&self, offset: u64, len: usize) -> Result<()> {
        self.check_change("msync")?;
        self.with_mapping("msync", offset, |mapping| mapping.sync(offset, len))
    }

    /// For access mmap: copies `bytes.len()` bytes at `offset` out of the mapping.
    ///
    /// An error of the medium there is a `SIGBUS` that ends the process: do not use it where an
    /// error must be handled.
    ///
    /// # Errors
    /// When nothing is mapped there.
    pub fn read_mapped(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.with_mapping("load", offset, |mapping| mapping.read(bytes, offset))
    }

    /// For access stream: `fflush`. It moves what the process has buffered into the kernel, not
    /// onto the medium.
    ///
    /// # Errors
    /// When the file has another access, or what the kernel answers.
    pub fn flush_buffered(&self) -> Result<()> {
        self.check_change("fflush")?;
        match &self.way {
            Way::Stream(stream) => self.flush_stream(&mut lock(stream)),
            _ => Err(Error::invalid(
                "fflush",
                self.path(),
                "the file was not opened for access stream",
            )),
        }
    }

    /// Reads by the file's access: `lseek` and `read`, `fread`, or `pread` otherwise. Returns the
    /// number of bytes: fewer at the end of the file.
    ///
    /// # Errors
    /// What the kernel answers, with the offset.
    pub fn read_by_access(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match &self.way {
            Way::Seek(turn) => {
                let _turn = lock(turn);
                self.seek(offset)?;
                let len = buffer.len();
                Transfer::new(len)
                    .run(Direction::Read, |done| {
                        Ok(rustix::io::read(self.std_file(), &mut buffer[done..])?)
                    })
                    .map_err(|source| Error::new("read", self.path(), source).at(offset))
            }
            Way::Stream(stream) => lock(stream)
                .read(buffer, offset)
                .map_err(|source| Error::new("fread", self.path(), source).at(offset)),
            Way::Offset | Way::Map(_) => self.read_at(buffer, offset),
        }
    }

    /// For preparations in steps: reserves the step `offset..offset + len_bytes`.
    ///
    /// # Errors
    /// As [`File::prepare`].
    pub fn extend(&self, preparation: Preparation, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_change("extend")?;
        let Some(mode) = FallocateMode::of_step(preparation) else {
            let why = format!("preparation {preparation} is not done in steps");
            return Err(Error::invalid("extend", self.path(), why));
        };
        mode.call(self.std_file(), self.path(), offset, len_bytes)
    }

    pub(crate) fn with_mapping(
        &self,
        what: &'static str,
        offset: u64,
        mut act: impl FnMut(&Mapping) -> io::Result<()>,
    ) -> Result<()> {
        let Way::Map(mapping) = &self.way else {
            return Err(Error::invalid(
                what,
                self.path(),
                "the file was not opened for access mmap",
            ));
        };
        match lock(mapping).as_ref() {
            Some(mapping) => {
                act(mapping).map_err(|source| Error::new(what, self.path(), source).at(offset))
            }
            None => {
                Err(Error::invalid(what, self.path(), "the file was not mapped before the write"))
            }
        }
    }

    fn seek(&self, offset: u64) -> Result<()> {
        rustix::fs::seek(self.std_file(), rustix::fs::SeekFrom::Start(offset))
            .map(drop)
            .map_err(|error| Error::new("lseek", self.path(), error).at(offset))
    }

    fn write_stream(&self, stream: &Mutex<CStream>, bytes: &[u8], offset: u64) -> Result<()> {
        let mut stream = lock(stream);
        stream
            .write(bytes, offset)
            .map_err(|source| Error::new("fwrite", self.path(), source).at(offset))?;
        // With O_SYNC or O_DSYNC the write call makes bytes durable, and a buffered fwrite does not
        // make one.
        if self.how.durability.with_the_write() { self.flush_stream(&mut stream) } else { Ok(()) }
    }

    fn flush_stream(&self, stream: &mut CStream) -> Result<()> {
        stream.flush().map_err(|source| Error::new("fflush", self.path(), source))
    }
}

impl BlockingFile for LabFile {
    fn write_with(&self, bytes: &[u8], offset: u64, persist: Persist) -> Result<()> {
        if matches!(self.way, Way::Offset) {
            return self.below.write_with(bytes, offset, persist);
        }
        match persist {
            Persist::Later => self.write_at(bytes, offset),
            Persist::Sync(kind) => {
                self.write_at(bytes, offset)?;
                self.sync(kind)
            }
            Persist::Dsync => {
                let why = format!("RWF_DSYNC does not go with access {}", self.how.access);
                Err(Error::invalid("pwritev2", self.path(), why))
            }
        }
    }
}

impl File for LabFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !matches!(self.way, Way::Offset) {
            self.check_change("pwrite")?;
        }
        match &self.way {
            Way::Offset => self.below.write_at(bytes, offset),
            Way::Seek(turn) => {
                // The position belongs to the descriptor: no other thread may move it between the
                // two calls.
                let _turn = lock(turn);
                self.seek(offset)?;
                let write = |done: usize| self.std_file().write(&bytes[done..]);
                let answer = Transfer::new(bytes.len()).run(Direction::Write, write);
                answer
                    .map(drop)
                    .map_err(|source| Error::new("write", self.path(), source).at(offset))
            }
            Way::Map(_) => {
                self.with_mapping("store", offset, |mapping| mapping.write(bytes, offset))
            }
            Way::Stream(stream) => self.write_stream(stream, bytes, offset),
        }
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        if let Way::Stream(stream) = &self.way {
            self.check_change("fsync")?;
            self.flush_stream(&mut lock(stream))?;
        }
        self.below.sync(kind)
    }

    fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()> {
        self.check_change("prepare")?;
        match FallocateMode::of_whole(preparation) {
            Some(mode) => mode.call(self.std_file(), self.path(), 0, len_bytes),
            // Their blocks are reserved while the file is written.
            None if preparation.in_steps() => Ok(()),
            None if preparation == Preparation::Sparse => self.set_len(len_bytes),
            None => self.below.prepare(preparation, len_bytes),
        }
    }

    // The rest is the same in every way.

    fn path(&self) -> &Path {
        self.below.path()
    }

    fn len_bytes(&self) -> Result<u64> {
        self.below.len_bytes()
    }

    fn facts(&self) -> Result<FileFacts> {
        self.below.facts()
    }

    fn check_takes_changes(&self) -> Result<()> {
        self.below.check_takes_changes()
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.below.set_len(len_bytes)
    }

    fn forget_cached(&self) -> Result<()> {
        self.below.forget_cached()
    }

    fn is_cached(&self) -> Result<bool> {
        self.below.is_cached()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.below.read_at(buffer, offset)
    }
}
