//! The registrations of a ring: buffers whose pages the kernel has pinned, files whose references
//! it holds.
//!
//! *Owns*: the two tables. *May not touch*: submissions; [`super::uring`] asks for an index and
//! uses it. What finds no place is used unregistered, which is correct but slower.
//!
//! Two dangers shape this. A registration pins *pages*: after a buffer is freed and its address is
//! used again, the old registration would write the bytes of the old pages. So a buffer is known by
//! [`AlignedBuf::id`], which is never used twice, and never by its address. And a registration
//! keeps a *file* open: a closed and unlinked file would keep its blocks. So a file is known by a
//! [`Weak`], and a new one first evicts the closed ones.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

use inkstone_io::{AlignedBuf, Error, File};
use io_uring::Submitter;

use crate::lab_file::LabFile;

/// Entries in each table: below the usual limit of open files, which the kernel enforces.
const PLACES: u16 = 64;
/// The limit of pages pinned by one ring, including those of freed buffers.
const PINNED_MAX_BYTES: usize = 256 << 20;

/// The indices that one attempt uses; `None` where it uses the address or the descriptor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Indices {
    pub(crate) buffer: Option<u16>,
    pub(crate) file: Option<u32>,
}

/// The registrations of one ring.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// By index: the id and the bytes of each buffer. They are forgotten all at once.
    buffers: Vec<(u64, usize)>,
    /// By index; a closed file's place is vacant.
    files: Vec<Weak<LabFile>>,
    notice: Option<Error>,
}

impl Registered {
    /// Registers two empty tables with the ring.
    pub(crate) fn open(ring: &Submitter<'_>) -> io::Result<Self> {
        ring.register_buffers_sparse(u32::from(PLACES))?;
        ring.register_files_sparse(u32::from(PLACES))?;
        Ok(Self::default())
    }

    /// The first registration that the kernel refused.
    pub(crate) fn notice(&self) -> Option<&Error> {
        self.notice.as_ref()
    }

    /// The indices of a file and a buffer, registered now if they were not. `is_idle`: the kernel
    /// has no entry of this ring, so that no registration is in use.
    ///
    /// # Safety
    /// The buffer must live until the attempt that uses the indices is answered.
    pub(crate) unsafe fn indices(
        &mut self,
        ring: &Submitter<'_>,
        is_idle: bool,
        file: &Arc<LabFile>,
        buffer: Option<&AlignedBuf>,
    ) -> Indices {
        // SAFETY: handed on.
        let buffer = buffer.map(|buffer| unsafe { self.buffer(ring, is_idle, buffer) });
        let file_index = self.file(ring, file);
        let mut note = |what, error| {
            self.notice.get_or_insert(explain(what, error, file));
        };
        Indices {
            buffer: buffer.and_then(|index| index.map_err(|error| note("buffer", error)).ok()?),
            file: file_index.map_err(|error| note("file", error)).ok().flatten(),
        }
    }

    fn file(&mut self, ring: &Submitter<'_>, file: &Arc<LabFile>) -> io::Result<Option<u32>> {
        // A `Weak` keeps the address of its allocation from being used again: equal pointers mean
        // the same file.
        let same = |known: &Weak<LabFile>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(file));
        if let Some(index) = self.files.iter().position(same) {
            return Ok(Some(index as u32));
        }
        let mut place = None;
        for (index, known) in self.files.iter_mut().enumerate() {
            if known.strong_count() == 0 {
                // A closed file has no attempt in flight: a request keeps its file open.
                ring.register_files_update(index as u32, &[-1])?;
                *known = Weak::new();
                place = Some(index);
            }
        }
        if place.is_none() && self.files.len() < usize::from(PLACES) {
            self.files.push(Weak::new());
            place = Some(self.files.len() - 1);
        }
        let Some(index) = place else { return Ok(None) };
        ring.register_files_update(index as u32, &[file.descriptor().as_raw_fd()])?;
        self.files[index] = Arc::downgrade(file);
        Ok(Some(index as u32))
    }

    /// # Safety
    /// As [`Registered::indices`]. The registration may outlive the buffer, see the head.
    unsafe fn buffer(
        &mut self,
        ring: &Submitter<'_>,
        is_idle: bool,
        buffer: &AlignedBuf,
    ) -> io::Result<Option<u16>> {
        if let Some(index) = self.buffers.iter().position(|(id, _)| *id == buffer.id()) {
            return Ok(Some(index as u16));
        }
        if buffer.len() > PINNED_MAX_BYTES {
            let why = format!(
                "{} bytes are more than the {PINNED_MAX_BYTES} that a ring may pin",
                buffer.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let pinned: usize = self.buffers.iter().map(|(_, bytes)| bytes).sum();
        let has_room =
            self.buffers.len() < usize::from(PLACES) && pinned + buffer.len() <= PINNED_MAX_BYTES;
        if !has_room {
            if !is_idle {
                return Ok(None);
            }
            self.forget_buffers(ring)?;
        }
        // SAFETY: handed on.
        let mut answer = unsafe { self.register(ring, buffer) };
        if is_idle && answer.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENOMEM)) {
            // Those of freed buffers count against the limit of pinned memory too.
            self.forget_buffers(ring)?;
            // SAFETY: handed on.
            answer = unsafe { self.register(ring, buffer) };
        }
        answer.map(Some)
    }

    /// # Safety
    /// As [`Registered::buffer`].
    unsafe fn register(&mut self, ring: &Submitter<'_>, buffer: &AlignedBuf) -> io::Result<u16> {
        let index = self.buffers.len() as u16;
        let range = libc::iovec { iov_base: buffer.start().as_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: the range is the whole of a live allocation. The kernel pins its pages and so
        // keeps *them* whatever becomes of the mapping; only entries that name this index touch
        // them, and none does once the id is gone.
        unsafe { ring.register_buffers_update(u32::from(index), &[range], None)? };
        self.buffers.push((buffer.id(), buffer.len()));
        Ok(index)
    }

    fn forget_buffers(&mut self, ring: &Submitter<'_>) -> io::Result<()> {
        self.buffers.clear();
        ring.unregister_buffers()?;
        ring.register_buffers_sparse(u32::from(PLACES))
    }
}

fn explain(what: &str, source: io::Error, file: &LabFile) -> Error {
    let is_limit = source.raw_os_error() == Some(libc::ENOMEM);
    let operation =
        if what == "file" { "io_uring register file" } else { "io_uring register buffer" };
    let error = Error::new(operation, file.path(), source);
    if is_limit {
        error.advise(
            "registered buffers count against RLIMIT_MEMLOCK: raise it (`ulimit -l`, \
             LimitMEMLOCK= in systemd) or use engine uring; the write went unregistered",
        )
    } else {
        error
    }
}
