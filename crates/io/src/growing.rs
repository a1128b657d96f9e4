//! Memory that its owner fills from front to back while others read what is there already.
//!
//! *Owns*: the length up to which the bytes are final. *May not touch*: what the bytes are. No lock
//! is held: the owner writes only after the length, readers read only before it, and the length
//! rises only once the bytes before it are written.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buffer::AlignedBuf;

struct Memory {
    buffer: AlignedBuf,
    capacity_bytes: usize,
    /// Stored with `Release` after the bytes before it were written; loaded with `Acquire` before
    /// they are read.
    len: AtomicUsize,
}

/// The owner's end: it alone adds bytes.
pub struct GrowingBuf(Arc<Memory>);

/// A reader's end. Holding it keeps the memory from being used again.
#[derive(Clone)]
pub struct GrownBytes(Arc<Memory>);

impl GrowingBuf {
    /// An empty buffer with room for `bytes` bytes.
    ///
    /// # Panics
    /// If `bytes` is 0.
    pub fn with_room(bytes: usize) -> Self {
        let buffer = AlignedBuf::zeroed(bytes);
        Self(Arc::new(Memory { buffer, capacity_bytes: bytes, len: AtomicUsize::new(0) }))
    }

    /// How many bytes fit into it altogether.
    pub fn capacity_bytes(&self) -> usize {
        self.0.capacity_bytes
    }

    /// How many bytes can still be added.
    pub fn room_bytes(&self) -> usize {
        self.capacity_bytes() - self.0.len.load(Ordering::Relaxed)
    }

    /// Adds bytes: readers see all of them or none.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn push(&mut self, bytes: &[u8]) {
        let memory = &*self.0;
        let len = memory.len.load(Ordering::Relaxed);
        assert!(
            bytes.len() <= memory.capacity_bytes - len,
            "bytes beyond the end of a growing buffer"
        );
        // SAFETY: the bytes `len..len + bytes.len()` lie in the allocation, as was just checked. No
        // reference to them exists: readers have slices that end at or before `len`, only this
        // owner raises it, and `&mut self` makes it the only caller.
        unsafe {
            memory
                .buffer
                .start()
                .add(len)
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        memory.len.store(len + bytes.len(), Ordering::Release);
    }

    /// Forgets all bytes, so that the memory can be used again; false, and nothing is changed,
    /// while a reader holds it.
    pub fn clear(&mut self) -> bool {
        match Arc::get_mut(&mut self.0) {
            Some(memory) => *memory.len.get_mut() = 0,
            None => return false,
        }
        true
    }

    /// A reader's end.
    pub fn reader(&self) -> GrownBytes {
        GrownBytes(Arc::clone(&self.0))
    }
}

impl GrownBytes {
    /// The bytes that are there now: a later call may return more, and the same at the front.
    pub fn bytes(&self) -> &[u8] {
        let len = self.0.len.load(Ordering::Acquire);
        // SAFETY: `len` bytes from the start are initialised and will not be written again while
        // `self` lives: the owner writes only behind them, and `clear` needs the only reference.
        // `Acquire` makes the writes before them visible.
        unsafe { std::slice::from_raw_parts(self.0.buffer.start().as_ptr(), len) }
    }
}

impl fmt::Debug for GrowingBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrowingBuf({} of {} bytes free)", self.room_bytes(), self.capacity_bytes())
    }
}

impl fmt::Debug for GrownBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrownBytes({})", self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_has_seen_stays_while_the_owner_adds() {
        let mut buffer = GrowingBuf::with_room(10);
        let reader = buffer.reader();
        buffer.push(b"one");
        let seen = reader.bytes();
        buffer.push(b"two");
        assert_eq!((seen, reader.bytes(), buffer.room_bytes()), (&b"one"[..], &b"onetwo"[..], 4));
        assert!(!buffer.clear(), "a reader holds it");
        assert_eq!(reader.bytes(), b"onetwo");
        drop(reader);
        assert!(buffer.clear());
        assert_eq!((buffer.reader().bytes(), buffer.room_bytes()), (&b""[..], 10));
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn no_byte_goes_beyond_the_end() {
        GrowingBuf::with_room(4).push(b"12345");
    }

    #[test]
    fn readers_on_other_threads_see_whole_pushes() {
        const PUSHES: usize = if cfg!(miri) { 40 } else { 4000 };
        let mut buffer = GrowingBuf::with_room(7 * PUSHES);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let reader = buffer.reader();
                scope.spawn(move || {
                    let mut seen = 0;
                    while seen < 7 * PUSHES {
                        let bytes = reader.bytes();
                        assert!(bytes.len().is_multiple_of(7));
                        let is_right = |at: usize| bytes[at] == (at / 7) as u8;
                        assert!((seen..bytes.len()).all(is_right));
                        seen = bytes.len();
                        std::thread::yield_now();
                    }
                });
            }
            (0..PUSHES).for_each(|number| buffer.push(&[number as u8; 7]));
        });
    }
}
