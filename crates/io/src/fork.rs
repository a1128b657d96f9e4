//! Whether this process is a child that was forked after a mark was made, asked without a system call.
//!
//! *Owns*: one page that the kernel wipes in a child (`MADV_WIPEONFORK`). *May not touch*: what a child then does.
//!
//! A child of `fork` has one thread and every lock in the state it had: who finds itself in one must not take a lock that
//! another thread of the parent may have held. The number of the process would tell too, but asking costs a system call.

use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, Result};

/// What the page holds in the process that made it.
const MINE: u64 = 0x006d_696e_6521;

/// A mark that only the process which made it sees.
#[derive(Debug)]
pub struct ForkMark {
    page: NonNull<u8>,
}

// SAFETY: the page is owned memory, not tied to a thread, and is only ever read, as an atomic.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// Makes a mark.
    ///
    /// # Errors
    /// There is no memory for one page, or the kernel is older than 4.14.
    pub fn new() -> Result<Self> {
        let failed = |source: io::Error| Error::new("make a mark for forks in", Path::new("memory"), source);
        let bytes = rustix::param::page_size();
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches no memory of ours.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let page = page.map_err(|error| failed(error.into()))?;
        let page =
            NonNull::new(page.cast()).ok_or_else(|| failed(io::Error::other("mmap gave address 0")))?;
        let mark = Self { page };
        // SAFETY: the page is the whole mapping made above, and nobody else knows it.
        unsafe { madvise(page.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork) }
            .map_err(|error| failed(error.into()).advise("Linux 4.14 or newer is needed"))?;
        mark.word().store(MINE, Ordering::Relaxed);
        Ok(mark)
    }

    /// Whether this process was forked from the one that made the mark.
    #[inline]
    pub fn is_child(&self) -> bool {
        self.word().load(Ordering::Relaxed) != MINE
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped for as long as `self` lives, aligned, and only used as this atomic.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().cast()) }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped once; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), rustix::param::page_size()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_itself_and_the_parent_stays_who_it_was() {
        let mark = ForkMark::new().expect("a mark");
        assert!(!mark.is_child());
        let child = crate::host::in_forked_child(|| u8::from(mark.is_child()));
        assert_eq!(child.expect("a child"), 1);
        assert!(!mark.is_child());
    }
}
