//! Memory for O_DIRECT: aligned, zeroed, owned, of a fixed size.
//!
//! *Owns*: the allocation. *May not touch*: files. An engine of a lab takes ownership of a buffer
//! and returns it with the result, so the kernel never works on borrowed memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The alignment that satisfies every device met so far (a logical block is at most a page here).
pub const BLOCK_BYTES: usize = 4096;

/// The size of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const CACHE_LINE_BYTES: usize = 64;

/// An owned, zeroed, aligned run of bytes.
pub struct AlignedBuf {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its allocation exclusively; moving it to another thread moves that
// ownership.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference gives only `&[u8]`, which may be read from any thread.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len_bytes` zero bytes, aligned to [`BLOCK_BYTES`].
    ///
    /// # Panics
    /// If `len_bytes` is 0 or larger than any address space: both are bugs of the caller, not
    /// errors of a user.
    pub fn zeroed(len_bytes: usize) -> Self {
        Self::zeroed_aligned(len_bytes, BLOCK_BYTES)
    }

    /// As [`AlignedBuf::zeroed`], with another alignment.
    ///
    /// # Panics
    /// If `len_bytes` is 0, `align_bytes` is not a power of two, or the sum overflows.
    pub fn zeroed_aligned(len_bytes: usize, align_bytes: usize) -> Self {
        assert!(len_bytes > 0, "an aligned buffer of 0 bytes");
        let layout = Layout::from_size_align(len_bytes, align_bytes)
            .unwrap_or_else(|_| panic!("{len_bytes} bytes aligned to {align_bytes} is no layout"));
        // SAFETY: the layout has a size above 0, checked above.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        Self { pointer, layout }
    }

    /// The alignment that was asked for.
    pub fn align_bytes(&self) -> usize {
        self.layout.align()
    }

    /// Prefetches the bytes `at..at + len` for writing; bytes beyond the end are ignored.
    ///
    /// After a write to a device the cache lines of a buffer may be at another processor (the one
    /// that served the device; in a virtual machine that of the host). A store must get its line
    /// back first. Stores do not wait for that, but on x86 releasing a lock waits for all stores
    /// before it: a producer of small records that locks for each one waited for two lines per
    /// record, and reached 10 million records a second instead of 20 (docs/performance.md). So this
    /// has an effect on x86-64 only.
    #[inline]
    pub fn expect_writes(&self, at: usize, len: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for line in (at..at.saturating_add(len).min(self.layout.size())).step_by(CACHE_LINE_BYTES) {
            // Not the intrinsic: without a target feature it becomes a prefetch for reading, and
            // that leaves the line shared. SAFETY: a hint, which touches no memory that the program
            // can see, changes no register, and does nothing where the processor does not have it.
            unsafe {
                std::arch::asm!(
                    "prefetchw [{line}]",
                    line = in(reg) self.pointer.addr().get() + line,
                    options(nomem, nostack, preserves_flags),
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (at, len);
    }

    /// The address of the first byte, for an engine of a lab that gives it to the kernel, and for
    /// memory that grows. No reference to the bytes is made on the way.
    pub fn start(&self) -> NonNull<u8> {
        self.pointer
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `pointer` is valid for `layout.size()` initialised (zeroed) bytes for as long as
        // `self` lives.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated by `alloc_zeroed` with this very layout, and freed once.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes, aligned to {})", self.layout.size(), self.layout.align())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_writable() {
        for align in [512, 4096, 1 << 16] {
            let mut buffer = AlignedBuf::zeroed_aligned(1000, align);
            assert_eq!(buffer.as_ptr().addr() % align, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer[999] = 7;
            assert_eq!((buffer.len(), buffer[999]), (1000, 7));
        }
    }

    #[test]
    fn what_is_expected_is_not_done_and_may_lie_behind_the_end() {
        let mut buffer = AlignedBuf::zeroed(2 * BLOCK_BYTES);
        buffer.fill(7);
        for at in (0..3 * BLOCK_BYTES).chain([usize::MAX - 1, usize::MAX]) {
            for len in [0, 1, 64, 152, BLOCK_BYTES, usize::MAX] {
                buffer.expect_writes(at, len);
            }
        }
        assert!(buffer.iter().all(|&byte| byte == 7));
    }
}
