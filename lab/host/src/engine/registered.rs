//! The registrations of a ring: buffers whose pages the kernel has pinned, a file whose reference
//! it holds.
//!
//! *Owns*: the two tables. *May not touch*: submissions; [`super::uring`] asks for an index and
//! uses it. What finds no place is used unregistered, which is correct but slower.
//!
//! Two dangers shape this. A registration pins *pages*: after a buffer is freed and its address is
//! used again, the old registration would write the bytes of the old pages. So a buffer is known by
//! [`AlignedBuf::id`], which is never used twice, and never by its address. And a registration
//! keeps a *file* open: a closed and unlinked file would keep its blocks. So there is one place for
//! a file, known by a [`Weak`], and the next file takes it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

use inkstone_io::{AlignedBuf, Error, File};
use io_uring::Submitter;

use crate::lab_file::LabFile;

/// Buffers that a ring registers; later ones are used unregistered.
const PLACES: u16 = 64;

/// The indices that one attempt uses; `None` where it uses the address or the descriptor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Indices {
    pub(crate) buffer: Option<u16>,
    pub(crate) file: Option<u32>,
}

/// The registrations of one ring.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// By index: the id of each buffer.
    buffers: Vec<u64>,
    file: Weak<LabFile>,
    notice: Option<Error>,
}

impl Registered {
    /// Registers two empty tables with the ring.
    pub(crate) fn open(ring: &Submitter<'_>) -> io::Result<Self> {
        ring.register_buffers_sparse(u32::from(PLACES))?;
        ring.register_files_sparse(1)?;
        Ok(Self::default())
    }

    /// The first registration that the kernel refused.
    pub(crate) fn notice(&self) -> Option<&Error> {
        self.notice.as_ref()
    }

    /// The indices of a file and a buffer, registered now if they were not.
    ///
    /// # Safety
    /// The buffer must live until the attempt that uses the indices is answered.
    pub(crate) unsafe fn indices(
        &mut self,
        ring: &Submitter<'_>,
        file: &Arc<LabFile>,
        buffer: Option<&AlignedBuf>,
    ) -> Indices {
        // SAFETY: handed on.
        let buffer = buffer.map_or(Ok(None), |buffer| unsafe { self.buffer(ring, buffer) });
        let file_index = self.file(ring, file);
        let mut note = |what, error| {
            self.notice.get_or_insert(explain(what, error, file));
        };
        Indices {
            buffer: buffer.map_err(|error| note("buffer", error)).ok().flatten(),
            file: file_index.map_err(|error| note("file", error)).ok(),
        }
    }

    fn file(&mut self, ring: &Submitter<'_>, file: &Arc<LabFile>) -> io::Result<u32> {
        // A `Weak` keeps the address of its allocation from being used again: equal pointers mean
        // the same file. A request in flight keeps the file that it began with.
        if !std::ptr::eq(self.file.as_ptr(), Arc::as_ptr(file)) {
            self.file = Weak::new();
            ring.register_files_update(0, &[file.descriptor().as_raw_fd()])?;
            self.file = Arc::downgrade(file);
        }
        Ok(0)
    }

    /// # Safety
    /// As [`Registered::indices`]. The registration may outlive the buffer, see the head.
    unsafe fn buffer(
        &mut self,
        ring: &Submitter<'_>,
        buffer: &AlignedBuf,
    ) -> io::Result<Option<u16>> {
        if let Some(index) = self.buffers.iter().position(|id| *id == buffer.id()) {
            return Ok(Some(index as u16));
        }
        let index = self.buffers.len() as u16;
        if index == PLACES {
            return Ok(None);
        }
        let range = libc::iovec { iov_base: buffer.start().as_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: the range is the whole of a live allocation. The kernel pins its pages and so
        // keeps *them* whatever becomes of the mapping; only entries that name this index touch
        // them, and none does once the id is gone.
        unsafe { ring.register_buffers_update(u32::from(index), &[range], None)? };
        self.buffers.push(buffer.id());
        Ok(Some(index))
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
