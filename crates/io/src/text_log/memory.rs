//! Memory that is divided into buffers of one size, each with a few words beside it: private to
//! this process, or mapped from a file.
//!
//! *Owns*: the mapping, and that no two buffers overlap. *May not touch*: what the words mean.
//!
//! If a file in memory (tmpfs) is mapped, the contents of a buffer survive a kill of the process:
//! the stores *are* the file. A word is stored after the bytes that it describes, so a killed
//! process leaves no word about missing bytes. With a file on a disk writers would wait for
//! write-back, so only [`StageFile`](crate::StageFile) maps one.

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result};

/// Words beside each buffer. The first is the buffer's own: how many bytes were published, and in
/// its upper half the caller's mark for them.
pub const STAGE_WORDS: usize = 8;
/// A buffer's length fits into half a word.
const BUFFER_BYTES_MAX: usize = 1 << 30;
const PAGE: usize = 4096;
const WORDS_BYTES: usize = STAGE_WORDS * 8;

/// The layout: a head for the caller, the words of all buffers, the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageLayout {
    /// Bytes of the head; a multiple of 4096.
    pub head_bytes: usize,
    /// Bytes of one buffer; a multiple of 4096.
    pub buffer_bytes: usize,
    /// How many buffers.
    pub buffers: usize,
}

impl StageLayout {
    /// Says whether its numbers fit together and into memory.
    pub fn is_sound(&self) -> bool {
        self.head_bytes.is_multiple_of(PAGE)
            && self.buffer_bytes.is_multiple_of(PAGE)
            && (PAGE..=BUFFER_BYTES_MAX).contains(&self.buffer_bytes)
            && self.buffers > 0
            && self.checked_len().is_some()
    }

    fn checked_len(&self) -> Option<usize> {
        let words = self.buffers.checked_mul(WORDS_BYTES)?.checked_next_multiple_of(PAGE)?;
        let data = self.buffers.checked_mul(self.buffer_bytes)?;
        self.head_bytes
            .checked_add(words)?
            .checked_add(data)
            .filter(|len| isize::try_from(*len).is_ok())
    }

    /// The total size in bytes; 0 if the layout is not sound.
    pub fn len_bytes(&self) -> usize {
        self.checked_len().unwrap_or(0)
    }

    /// Where a buffer's words begin.
    pub fn words_at(&self, buffer: usize) -> usize {
        self.head_bytes + buffer * WORDS_BYTES
    }

    /// Where a buffer begins.
    pub fn buffer_at(&self, buffer: usize) -> usize {
        let words = (self.buffers * WORDS_BYTES).next_multiple_of(PAGE);
        self.head_bytes + words + buffer * self.buffer_bytes
    }
}

#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned memory, not tied to a thread; it is reached only through
// `StageBuffer`s, each of which has a range of its own, and through atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps this file of the same length and contents in its place.
    ///
    /// # Errors
    /// What the kernel answers; then it is as it was.
    pub(crate) fn move_to(&self, file: &File, path: &Path) -> Result<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: it replaces exactly the mapping that this owns, in one step. The caller sees to
        // it that nobody uses a buffer meanwhile, and the bytes are the same.
        let moved =
            unsafe { mmap(self.start.as_ptr().cast(), self.len, PROTECTION, flags, file, 0) };
        moved.map_err(|error| failed(path, error))?;
        self.keep_from_children();
        Ok(())
    }

    /// Whether the kernel gives memory to a part of it on request (Linux 5.14).
    pub(crate) fn gets_memory_later(&self) -> bool {
        // SAFETY: it asks about no byte at all.
        unsafe { madvise(self.start.as_ptr().cast(), 0, Advice::LinuxPopulateWrite) }.is_ok()
    }

    /// A sandbox may refuse it: a child that has the mapping puts nothing into it (`ForkMark`).
    fn keep_from_children(&self) {
        // SAFETY: the range is the whole mapping.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontFork) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, unmapped once: every buffer holds the region alive.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn failed(path: &Path, source: impl Into<io::Error>) -> Error {
    Error::new("map buffers in", path, source).advise("ask for fewer or smaller buffers")
}

/// Buffers in memory of this process alone, all of it present on return.
///
/// # Errors
/// The layout is not sound, or there is no such amount of memory.
pub fn buffers_in_memory(layout: StageLayout) -> Result<Vec<StageBuffer>> {
    let path = Path::new("memory");
    check(path, layout)?;
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches no memory of
    // ours.
    let start =
        unsafe { mmap_anonymous(std::ptr::null_mut(), layout.len_bytes(), PROTECTION, flags) };
    let region = region(path, start.map_err(|error| failed(path, error))?.cast(), layout)?;
    Ok(divide(&region, layout))
}

/// Buffers in a file, with what is in them. The file has the layout's size, is in memory and is
/// used by this process alone. A child does not inherit the mapping, where the kernel can see to
/// that. Each buffer is to be made ready ([`StageBuffer::ready`]) before bytes are put there.
pub(crate) fn buffers_in_file(
    file: &File,
    path: &Path,
    layout: StageLayout,
) -> Result<(Arc<Region>, Vec<StageBuffer>)> {
    check(path, layout)?;
    let (len, flags) = (layout.len_bytes(), MapFlags::SHARED);
    // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory of ours.
    let start = unsafe { mmap(std::ptr::null_mut(), len, PROTECTION, flags, file, 0) };
    let region = region(path, start.map_err(|error| failed(path, error))?.cast(), layout)?;
    region.keep_from_children();
    let buffers = divide(&region, layout);
    Ok((region, buffers))
}

fn region(path: &Path, start: *mut u8, layout: StageLayout) -> Result<Arc<Region>> {
    let start = NonNull::new(start)
        .ok_or_else(|| failed(path, io::Error::other("mmap answered with address 0")))?;
    Ok(Arc::new(Region { start, len: layout.len_bytes() }))
}

fn check(path: &Path, layout: StageLayout) -> Result<()> {
    if layout.is_sound() {
        return Ok(());
    }
    let StageLayout { buffer_bytes, buffers, .. } = layout;
    let why = format!(
        "{buffers} buffers of {buffer_bytes} bytes do not fit into memory: an address space has \
         room for {} bytes",
        isize::MAX
    );
    Err(Error::invalid("map buffers in", path, why).advise("ask for fewer or smaller buffers"))
}

/// Divides a mapping of the layout's length into its buffers: each part is used once.
fn divide(region: &Arc<Region>, layout: StageLayout) -> Vec<StageBuffer> {
    let start = region.start;
    let buffer = |number| {
        // SAFETY: both offsets lie inside the mapping, by the layout's own arithmetic, which was
        // checked.
        let (words, data) = unsafe {
            (start.add(layout.words_at(number)).cast(), start.add(layout.buffer_at(number)))
        };
        let (capacity, region) = (layout.buffer_bytes, Arc::clone(region));
        let mut buffer = StageBuffer { words, data, capacity, used: 0, _region: region };
        // A killed process may have left bytes. A number that cannot be is not believed.
        let used = buffer.word(0) as u32 as usize;
        buffer.used = if used <= capacity { used } else { 0 };
        buffer
    };
    (0..layout.buffers).map(buffer).collect()
}

/// One buffer: bytes are appended, and can be read back.
#[derive(Debug)]
pub struct StageBuffer {
    words: NonNull<u64>,
    data: NonNull<u8>,
    capacity: usize,
    used: usize,
    /// Keeps the mapping.
    _region: Arc<Region>,
}

// SAFETY: its range belongs to no other buffer, and is not tied to a thread.
unsafe impl Send for StageBuffer {}
// SAFETY: what can be done through a shared reference is reading bytes that only `&mut self`
// changes, and atomics.
unsafe impl Sync for StageBuffer {}

impl StageBuffer {
    /// How many bytes it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many bytes it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Says whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many more bytes fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.used
    }

    /// Sees to it that all of its memory is there: in a file, memory is given when it is first
    /// touched, and where there is none the process would die.
    ///
    /// # Errors
    /// There is no memory.
    pub fn ready(&mut self) -> Result<()> {
        let range = self.data.as_ptr().cast();
        // SAFETY: the range is this buffer's, inside the mapping that the region keeps.
        match unsafe { madvise(range, self.capacity, Advice::LinuxPopulateWrite) } {
            // Before Linux 5.14 a stage has all of its memory from the start.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(_) => {
                let why = io::Error::from_raw_os_error(libc::ENOSPC);
                Err(Error::new("make room for another buffer in", Path::new("memory"), why))
            }
        }
    }

    /// Appends bytes; a kill of the process loses them until [`StageBuffer::publish`].
    ///
    /// # Panics
    /// If there is no room: the caller checks first.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(), "no room in the buffer");
        // SAFETY: the range lies inside this buffer (asserted), which no other code reads or writes
        // while it is borrowed exclusively; a caller's slice cannot overlap it for the same reason.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.data.as_ptr().add(self.used),
                bytes.len(),
            )
        };
        self.used += bytes.len();
    }

    /// The part behind the bytes that it holds, from this byte of the buffer on: for bytes that
    /// come by other ways than [`StageBuffer::put`]. Nothing tells of them.
    ///
    /// # Panics
    /// If it holds bytes behind that place.
    pub fn spare_mut(&mut self, from: usize) -> &mut [u8] {
        assert!((self.used..=self.capacity).contains(&from), "no spare part of the buffer");
        // SAFETY: the range lies inside this buffer (asserted), whose memory the region keeps and
        // no other code uses while it is borrowed exclusively; fresh memory of a mapping is zeros.
        unsafe {
            std::slice::from_raw_parts_mut(self.data.as_ptr().add(from), self.capacity - from)
        }
    }

    /// Stores the number of bytes in the first word, together with a mark of the caller's for them.
    #[inline]
    pub fn publish(&mut self, mark: u32) {
        self.set_word(0, self.used as u64 | u64::from(mark) << 32);
    }

    /// The mark that was published last.
    pub fn mark(&self) -> u32 {
        (self.word(0) >> 32) as u32
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.used = 0;
        self.publish(0);
    }

    /// The bytes that it holds.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: these bytes were written by `put`, and change only through `&mut self`. A file
        // under the mapping is locked, of this user alone, and not mapped by a forked child.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.used) }
    }

    /// A word beside the buffer.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn word(&self, number: usize) -> u64 {
        self.atomic(number).load(Ordering::Acquire)
    }

    /// Stores a word, after everything that was stored before it.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline]
    pub fn set_word(&mut self, number: usize, value: u64) {
        self.atomic(number).store(value, Ordering::Release);
    }

    #[inline]
    fn atomic(&self, number: usize) -> &AtomicU64 {
        assert!(number < STAGE_WORDS, "a buffer has {STAGE_WORDS} words");
        // SAFETY: the words lie inside the mapping that the region keeps, are aligned (64 bytes a
        // buffer from a page's start), belong to this buffer alone and are only used as atomics.
        unsafe { AtomicU64::from_ptr(self.words.as_ptr().add(number)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: StageLayout = StageLayout { head_bytes: 4096, buffer_bytes: 4096, buffers: 3 };

    #[test]
    fn what_is_in_a_file_is_there_when_it_is_mapped_again_unless_it_cannot_be() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(LAYOUT.len_bytes() as u64).expect("so long");
        let map = || buffers_in_file(&file, Path::new("a file"), LAYOUT).expect("mapped").1;
        for (bytes, word, there) in [(4096, 4096, 4096), (3, 3, 3), (0, 4097, 0), (0, u64::MAX, 0)]
        {
            let mut buffer = map().remove(1);
            buffer.clear();
            buffer.put(&vec![1; bytes]);
            buffer.set_word(0, word);
            assert_eq!(map()[1].bytes(), vec![1; there]);
        }
    }

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        for layout in [
            StageLayout { buffer_bytes: 100, ..LAYOUT },
            StageLayout { buffers: 0, ..LAYOUT },
            StageLayout { head_bytes: 1, ..LAYOUT },
            StageLayout { buffers: usize::MAX / 8, ..LAYOUT },
        ] {
            assert!(!layout.is_sound(), "{layout:?}");
            let refused = buffers_in_memory(layout).map(drop).expect_err("refused").to_string();
            assert!(!refused.contains('{') && refused.contains("buffers"), "{refused}");
        }
    }
}
