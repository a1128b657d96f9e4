//! A shared, writable mapping of a file, for the lab's mmap experiments.
//!
//! *Owns*: the mapping. *May not touch*: the file's size; the caller sets it first. The log never
//! uses this: an error of the medium under a mapping is a `SIGBUS`, not an error value. So is a
//! full disk under a sparse file; the lab checks for room before it maps one.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};

/// `len` bytes of a file from its start, mapped shared.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned memory, not tied to a thread; all writes go through `&self` methods
// that copy with raw pointers and never hand out references to the mapped bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above; concurrent copies into overlapping ranges are serialised by the lock that
// `LabFile` keeps around it.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(file: &File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory of ours.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let start = NonNull::new(start.cast())
            .ok_or_else(|| io::Error::other("mmap answered with address 0"))?;
        Ok(Self { start, len })
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let at = self.checked(offset, bytes.len())?;
        // SAFETY: `checked` made sure that the range lies inside the mapping, and the source is a
        // slice of ours that cannot overlap memory which only this type points to.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len())
        };
        Ok(())
    }

    /// Copies bytes out; a concurrent write to the file may be seen in part.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let at = self.checked(offset, bytes.len())?;
        // SAFETY: `checked` made sure that the range lies inside the mapping, and the target is an
        // exclusive slice of ours that cannot overlap memory which only this type points to.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(at),
                bytes.as_mut_ptr(),
                bytes.len(),
            )
        };
        Ok(())
    }

    /// `madvise` over the whole mapping.
    pub(crate) fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is the mapping, which is ours; the kinds passed here change no
        // contents.
        unsafe { madvise(self.start.as_ptr().cast(), self.len, advice)? };
        Ok(())
    }

    /// `msync(MS_SYNC)` of the pages that hold the range.
    pub(crate) fn sync(&self, offset: u64, len: usize) -> io::Result<()> {
        let at = self.checked(offset, len)?;
        let page = rustix::param::page_size();
        let first = at - at % page;
        // SAFETY: the range lies inside the mapping, which is ours.
        unsafe {
            msync(self.start.as_ptr().add(first).cast(), at + len - first, MsyncFlags::SYNC)?
        };
        Ok(())
    }

    /// The same of exactly this range, aligned or not.
    pub(crate) fn sync_exactly(&self, offset: u64, len: usize) -> io::Result<()> {
        let at = self.checked(offset, len)?;
        // SAFETY: the range lies inside the mapping, which is ours.
        unsafe { msync(self.start.as_ptr().add(at).cast(), len, MsyncFlags::SYNC)? };
        Ok(())
    }

    fn checked(&self, offset: u64, len: usize) -> io::Result<usize> {
        let outside = || {
            let text =
                format!("bytes {offset}..+{len} lie outside the mapping of {} bytes", self.len);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let at = usize::try_from(offset).map_err(|_| outside())?;
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(at),
            _ => Err(outside()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped once, and no reference into it was
        // ever given out.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
