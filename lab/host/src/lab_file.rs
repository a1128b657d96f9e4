//! A file that a lab measures: an [`OsFile`], or a mapping, a C stream or a file position over one.
//!
//! *Owns*: what is between a write and the descriptor, and what the kernel is told about the file's
//! pages. *May not touch*: what the bytes mean; which thread calls (engines decide that). The log's
//! own ways (`pwrite`, `O_DIRECT`) go straight to the [`OsFile`].

use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use inkstone_io::transfer::{Direction, Transfer, retry};
use inkstone_io::{
    Access, Error, File, OpenFile, OsDirectory, OsFile, Persist, Preparation, Result, SyncKind,
};
use rustix::{fs, mm};

use crate::fallocate::FallocateMode;
use crate::mapping::Mapping;
use crate::stream::CStream;

/// The buffer of a C stream that gathers: several commits, and less than any device writes at once.
const GATHER_BYTES: usize = 64 << 10;

/// An [`OsDirectory`] whose files are [`LabFile`]s. Everything but opening is that of
/// [`OsDirectory`].
#[derive(Debug)]
pub struct LabDirectory(OsDirectory);

impl LabDirectory {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// As [`OsDirectory::open`].
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        OsDirectory::open(path).map(Self)
    }

    /// Opens or creates a plain file.
    ///
    /// # Errors
    /// As [`LabFile::open_in`].
    pub fn open(&self, name: &str, how: &OpenFile) -> Result<LabFile> {
        LabFile::open_in(&self.0, name, how)
    }
}

impl Deref for LabDirectory {
    type Target = OsDirectory;

    fn deref(&self) -> &OsDirectory {
        &self.0
    }
}

/// How a file is going to be read, as `posix_fadvise` and `madvise` take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// From front to back: the kernel reads further ahead.
    Sequential,
    /// In no order: the kernel reads nothing ahead.
    Random,
}

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
        _ => how.access(Access::Buffered),
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
        let stream = |buffer_bytes| {
            let stream = CStream::new(below.std_file(), buffer_bytes);
            let stream = stream.map_err(|source| Error::new("fdopen", below.path(), source))?;
            Ok::<_, Error>(Way::Stream(Mutex::new(stream)))
        };
        let way = match how.access {
            Access::Buffered | Access::Direct => Way::Offset,
            Access::Seek => Way::Seek(Mutex::new(())),
            Access::Mmap => Way::Map(Mutex::new(None)),
            Access::Stream => stream(None)?,
            Access::StreamGather => stream(Some(GATHER_BYTES))?,
        };
        Ok(Self { below, how: *how, way })
    }

    /// How it was opened.
    pub fn how(&self) -> &OpenFile {
        &self.how
    }

    fn failed(&self, what: &'static str, source: impl Into<io::Error>) -> Error {
        Error::new(what, self.path(), source.into())
    }

    fn refused(&self, what: &'static str, why: impl Into<String>) -> Error {
        Error::invalid(what, self.path(), why.into())
    }

    // ---- access mmap

    fn mapping(&self, what: &'static str) -> Result<MutexGuard<'_, Option<Mapping>>> {
        match &self.way {
            Way::Map(mapping) => Ok(lock(mapping)),
            _ => Err(self.refused(what, "the file was not opened for access mmap")),
        }
    }

    fn with_mapping(
        &self,
        what: &'static str,
        offset: u64,
        act: impl FnOnce(&Mapping) -> io::Result<()>,
    ) -> Result<()> {
        match self.mapping(what)?.as_ref() {
            Some(mapping) => act(mapping).map_err(|source| self.failed(what, source).at(offset)),
            None => Err(self.refused(what, "the file was not mapped before")),
        }
    }

    /// For access mmap: maps the first `len_bytes`, which the file must already have.
    ///
    /// # Errors
    /// When the file has another access or is shorter, or the kernel refuses.
    pub fn map(&self, len_bytes: u64) -> Result<()> {
        self.check_change("mmap")?;
        let mut mapping = self.mapping("mmap")?;
        if self.len_bytes()? < len_bytes {
            let why = format!("the file is shorter than the {len_bytes} bytes to map");
            return Err(self.refused("mmap", why));
        }
        let new = Mapping::new(self.std_file(), len_bytes);
        *mapping = Some(new.map_err(|source| self.failed("mmap", source))?);
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

    /// For access mmap: `msync(MS_SYNC)` of exactly these bytes, to see what the kernel answers
    /// where they do not begin a page.
    ///
    /// # Errors
    /// When nothing is mapped there, or what the kernel answers.
    pub fn sync_mapped_exactly(&self, offset: u64, len: usize) -> Result<()> {
        self.check_change("msync")?;
        self.with_mapping("msync", offset, |mapping| mapping.sync_exactly(offset, len))
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

    /// For access mmap: `madvise` over the whole mapping.
    ///
    /// # Errors
    /// When nothing is mapped, or what the kernel answers.
    pub fn advise_mapped(&self, advice: Advice) -> Result<()> {
        let kind = match advice {
            Advice::Sequential => mm::Advice::Sequential,
            Advice::Random => mm::Advice::Random,
        };
        self.with_mapping("madvise", 0, |mapping| mapping.advise(kind))
    }

    // ---- access stream and seek

    /// For access stream: `fflush`. It moves what the process has buffered into the kernel, not
    /// onto the medium.
    ///
    /// # Errors
    /// When the file has another access, or what the kernel answers.
    pub fn flush_buffered(&self) -> Result<()> {
        self.check_change("fflush")?;
        match &self.way {
            Way::Stream(stream) => self.flush_stream(&mut lock(stream)),
            _ => Err(self.refused("fflush", "the file was not opened for access stream")),
        }
    }

    fn flush_stream(&self, stream: &mut CStream) -> Result<()> {
        stream.flush().map_err(|source| self.failed("fflush", source))
    }

    fn seek(&self, offset: u64) -> Result<()> {
        fs::seek(self.std_file(), fs::SeekFrom::Start(offset))
            .map(drop)
            .map_err(|error| self.failed("lseek", error).at(offset))
    }

    /// Reads by the file's access: out of the mapping, by `lseek` and `read`, `fread`, or `pread`.
    /// Returns the number of bytes: fewer at the end of the file.
    ///
    /// # Errors
    /// What the kernel answers, with the offset; of a mapping, as [`LabFile::read_mapped`].
    pub fn read_by_access(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (what, answer) = match &self.way {
            Way::Offset => return self.read_at(buffer, offset),
            Way::Map(_) => return self.read_mapped(buffer, offset).map(|()| buffer.len()),
            Way::Seek(turn) => {
                let _turn = lock(turn);
                self.seek(offset)?;
                let transfer = Transfer::new(buffer.len());
                let read =
                    |done: usize| Ok(rustix::io::read(self.std_file(), &mut buffer[done..])?);
                ("read", transfer.run(Direction::Read, read))
            }
            Way::Stream(stream) => ("fread", lock(stream).read(buffer, offset)),
        };
        answer.map_err(|source| self.failed(what, source).at(offset))
    }

    // ---- what the kernel is told about its blocks and pages

    /// For preparations in steps: reserves the step `offset..offset + len_bytes`.
    ///
    /// # Errors
    /// As [`File::prepare`].
    pub fn extend(&self, preparation: Preparation, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_change("extend")?;
        let mode = match preparation {
            Preparation::FallocateSteps => FallocateMode::Plain,
            Preparation::KeepSizeSteps => FallocateMode::KeepSize,
            _ => {
                let why = format!("preparation {preparation} is not done in steps");
                return Err(self.refused("extend", why));
            }
        };
        mode.call(self.std_file(), self.path(), offset, len_bytes)
    }

    /// `posix_fadvise` for the whole file; it is valid for this handle.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        let kind = match advice {
            Advice::Sequential => fs::Advice::Sequential,
            Advice::Random => fs::Advice::Random,
        };
        fs::fadvise(self.descriptor(), 0, None, kind)
            .map_err(|error| self.failed("posix_fadvise", error))
    }

    /// `readahead(2)`: asks the kernel to read a range into the page cache. One call reads at most
    /// the device's own read-ahead or largest request; the kernel silently ignores the rest of the
    /// range.
    ///
    /// # Errors
    /// What the kernel answers; a file system without a page cache does not have the call.
    pub fn read_ahead(&self, offset: u64, len: usize) -> Result<()> {
        self.hint("readahead", offset, |fd, at| {
            // SAFETY: no memory is passed; the descriptor is open for as long as the file is.
            unsafe { libc::readahead(fd, at, len) as libc::c_int }
        })
    }

    fn hint(
        &self,
        what: &'static str,
        offset: u64,
        call: impl Fn(libc::c_int, libc::off64_t) -> libc::c_int,
    ) -> Result<()> {
        let answer = retry(|| match call(self.descriptor().as_raw_fd(), offset.cast_signed()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
        answer.map_err(|source| self.failed(what, source).at(offset))
    }
}

impl LabFile {
    /// Writes all of `bytes` at `offset` and makes them as durable as `persist` says before it
    /// returns.
    ///
    /// # Errors
    /// What the kernel answers, with the offset. See [`File::sync`] for what is known after an
    /// error.
    pub fn write_with(&self, bytes: &[u8], offset: u64, persist: Persist) -> Result<()> {
        match persist {
            Persist::Later => self.write_at(bytes, offset),
            Persist::Dsync => self.write_dsync(bytes, offset),
            Persist::Sync(kind) => {
                self.write_at(bytes, offset)?;
                self.sync(kind)
            }
        }
    }

    /// Writes all of `bytes` at `offset`, by the file's access. A C stream keeps them in its
    /// buffer.
    ///
    /// # Errors
    /// What the kernel or the C library answers, with the offset.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !matches!(self.way, Way::Offset) {
            self.check_change("pwrite")?;
        }
        match &self.way {
            Way::Offset => self.below.write_at(bytes, offset),
            Way::Map(_) => {
                self.with_mapping("store", offset, |mapping| mapping.write(bytes, offset))
            }
            Way::Seek(turn) => {
                // The position belongs to the descriptor: no other thread may move it between the
                // two calls.
                let _turn = lock(turn);
                self.seek(offset)?;
                let write = |done: usize| self.std_file().write(&bytes[done..]);
                let answer = Transfer::new(bytes.len()).run(Direction::Write, write);
                answer.map(drop).map_err(|source| self.failed("write", source).at(offset))
            }
            Way::Stream(stream) => {
                let mut stream = lock(stream);
                stream
                    .write(bytes, offset)
                    .map_err(|source| self.failed("fwrite", source).at(offset))?;
                // With O_SYNC or O_DSYNC the write call makes bytes durable, and a buffered fwrite
                // does not make one.
                let is_due = self.how.durability.with_the_write();
                if is_due { self.flush_stream(&mut stream) } else { Ok(()) }
            }
        }
    }

    /// Writes all of `bytes` at `offset` with RWF_DSYNC: durable on return.
    ///
    /// # Errors
    /// What the kernel answers, with the offset; an access without `pwritev2`.
    pub fn write_dsync(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if matches!(self.way, Way::Offset) {
            return self.below.write_dsync(bytes, offset);
        }
        let why = format!("RWF_DSYNC does not go with access {}", self.how.access);
        Err(self.refused("pwritev2", why))
    }

    /// Makes everything durable that was written before, after a C stream's buffer is written.
    ///
    /// # Errors
    /// As [`File::sync`].
    pub fn sync(&self, kind: SyncKind) -> Result<()> {
        if let Way::Stream(stream) = &self.way {
            self.check_change("fsync")?;
            self.flush_stream(&mut lock(stream))?;
        }
        self.below.sync(kind)
    }

    /// Prepares the blocks of the first `len_bytes`.
    ///
    /// # Errors
    /// As [`File::prepare`]; a mode of fallocate that the file system lacks is unsupported.
    pub fn prepare(&self, preparation: Preparation, len_bytes: u64) -> Result<()> {
        self.check_change("prepare")?;
        let mode = match preparation {
            Preparation::Fallocate => FallocateMode::Plain,
            Preparation::KeepSize => FallocateMode::KeepSize,
            Preparation::PosixFallocate => FallocateMode::Posix,
            Preparation::ZeroRange => FallocateMode::ZeroRange,
            Preparation::WriteZeroes => FallocateMode::WriteZeroes,
            Preparation::Sparse => return self.set_len(len_bytes),
            // Their blocks are reserved while the file is written.
            Preparation::FallocateSteps | Preparation::KeepSizeSteps => return Ok(()),
            Preparation::None | Preparation::Zeros => {
                return self.below.prepare(preparation, len_bytes);
            }
        };
        mode.call(self.std_file(), self.path(), 0, len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64 << 12;

    /// In the directory of the test program: /tmp may be a tmpfs, which never drops a page.
    fn written(access: Access) -> (LabFile, tempfile::TempDir, Vec<u8>) {
        let program = std::env::current_exe().expect("a program");
        let directory = tempfile::tempdir_in(program.parent().expect("a directory"));
        let directory = directory.expect("a directory");
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
        let file = LabFile::open(&path, &OpenFile::new_file()).expect("a file");
        file.write_at(&bytes, 0).expect("written");
        file.sync(SyncKind::All).expect("synced");
        let file = LabFile::open(&path, &OpenFile::existing().access(access)).expect("opened");
        (file, directory, bytes)
    }

    #[test]
    fn the_kernel_reads_ahead_what_it_is_told_to_and_no_more() {
        let (file, ..) = written(Access::Buffered);
        let resident = || file.residency().expect("told").resident_pages;
        file.forget_cached().expect("dropped");
        if resident() > 0 {
            return crate::not_run("reading ahead", "this file system keeps its pages");
        }
        file.advise(Advice::Random).expect("advised");
        file.read_at(&mut [0; 1], 0).expect("read");
        let pages = (LEN / rustix::param::page_size()) as u64;
        assert!((1..pages).contains(&resident()), "{}", resident());
        // The call is only advice; the kernel decides how much it reads.
        file.forget_cached().expect("dropped");
        file.read_ahead(0, LEN).expect("asked for");
        file.read_at(&mut [0; 4096], 0).expect("read");
        assert!(resident() > 0);
    }

    #[test]
    fn a_mapping_reads_what_was_written_and_nothing_outside() {
        let (file, _directory, bytes) = written(Access::Mmap);
        let mut found = [0; 100];
        assert!(file.read_mapped(&mut found, 0).is_err(), "not mapped yet");
        file.map(LEN as u64).expect("mapped");
        file.advise_mapped(Advice::Sequential).expect("advised");
        file.read_mapped(&mut found, 7000).expect("read");
        assert_eq!(found, bytes[7000..7100]);
        assert!(file.read_mapped(&mut found, LEN as u64 - 99).is_err());
        assert!(file.map(LEN as u64 + 1).is_err() && file.flush_buffered().is_err());
    }

    #[test]
    fn every_access_reads_the_same_and_ends_at_the_end() {
        for access in [Access::Buffered, Access::Seek, Access::Stream] {
            let (file, _directory, bytes) = written(access);
            for offset in [0, 4096, 100, 100, LEN - 1, LEN, 2 * LEN, 0] {
                let mut found = vec![0; 4096];
                let read = file.read_by_access(&mut found, offset as u64).expect("read");
                let wanted = &bytes[offset.min(LEN)..(offset + 4096).min(LEN)];
                assert!(found[..read] == *wanted, "{access} {offset}");
            }
        }
    }

    #[test]
    fn a_stream_that_gathers_writes_when_it_is_full_and_when_it_is_flushed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let how = OpenFile::new_file().access(Access::StreamGather);
        let file = LabFile::open(&path, &how).expect("opened");
        let len = || std::fs::metadata(&path).expect("the file").len();
        for number in 0..16 {
            file.write_at(&[number + 1; 4096], u64::from(number) * 4096).expect("written");
        }
        assert_eq!(len(), 0, "64 KiB are gathered");
        file.write_at(&[17; 4096], 16 * 4096).expect("written");
        assert_eq!(len(), 64 << 10);
        file.flush_buffered().expect("flushed");
        assert_eq!(len(), 17 * 4096);
        // At another place; what was there before is read through the same stream.
        file.write_at(&[9; 100], 5000).expect("written");
        let mut found = vec![0; 4096];
        assert_eq!(file.read_by_access(&mut found, 4096).expect("read"), 4096);
        assert_eq!((found[903], found[904], found[1003], found[1004]), (2, 9, 9, 2));
        file.write_at(&[7; 10], 0).expect("written");
        drop(file);
        let all = std::fs::read(&path).expect("read");
        assert_eq!((all.len(), all[9], all[10], all[5000]), (17 * 4096, 7, 1, 9));
    }
}
