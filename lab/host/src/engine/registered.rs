//! The registrations of a ring: buffers whose pages the kernel has pinned, files whose references
//! it holds.
//!
//! *Owns*: the two tables, which entry of the kernel each is, and which is evicted for a new one.
//! *May not touch*: submissions; [`super::uring`] asks for an index and uses it.
//!
//! Two dangers shape this. A registration pins *pages*: after a buffer is freed and its address is
//! used again, the old registration would write the bytes of the old pages. So a buffer is
//! identified by [`AlignedBuf::id`], which is never used twice, and never by its address; a stale
//! registration is never found again and finally evicted. And a registration keeps a *file* open: a
//! closed and unlinked segment would keep its blocks. So a file is identified by a [`Weak`], which
//! keeps its identity but not the file, and each new registration first evicts those of closed
//! files.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

use inkstone_io::{AlignedBuf, Error, File};
use io_uring::Submitter;

use crate::lab_file::LabFile;

/// Entries in the table of buffers.
const BUFFER_SLOTS: u32 = 64;
/// Entries in the table of files: below the usual limit of open files, which `register` enforces.
const FILE_SLOTS: u32 = 64;
/// The limit of pages pinned by one ring, including stale registrations.
const PINNED_MAX_BYTES: usize = 256 << 20;

const _: () = assert!(BUFFER_SLOTS <= u16::MAX as u32, "a buffer's index is 16 bits in an entry");
const _: () =
    assert!(PINNED_MAX_BYTES <= 1 << 30, "the kernel registers at most 1 GiB in one piece");

/// The indices that one attempt uses; `None` where it uses the address or the descriptor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) buffer: Option<u16>,
    pub(crate) file: Option<u32>,
}

/// The registrations of one ring.
#[derive(Debug)]
pub(crate) struct Registered {
    buffers: Table<BufferKey>,
    files: Table<Weak<LabFile>>,
    notice: Option<Error>,
}

#[derive(Debug)]
struct BufferKey {
    id: u64,
    len: usize,
}

impl Registered {
    /// Registers two empty tables with the ring.
    pub(crate) fn open(ring: &Submitter<'_>) -> io::Result<Self> {
        ring.register_buffers_sparse(BUFFER_SLOTS)?;
        ring.register_files_sparse(FILE_SLOTS)?;
        Ok(Self { buffers: Table::new(BUFFER_SLOTS), files: Table::new(FILE_SLOTS), notice: None })
    }

    /// The first registration that the kernel refused: such a buffer or file is used unregistered,
    /// which is correct but slower.
    pub(crate) fn notice(&self) -> Option<&Error> {
        self.notice.as_ref()
    }

    /// The indices of a file and a buffer, registered now if they were not. Release them with
    /// [`Registered::release`].
    ///
    /// # Safety
    /// The buffer must live until the indices are released.
    pub(crate) unsafe fn acquire(
        &mut self,
        ring: &Submitter<'_>,
        file: &Arc<LabFile>,
        buffer: Option<&AlignedBuf>,
    ) -> Used {
        let file_index = self.file(ring, file);
        // SAFETY: handed on.
        let buffer_index = buffer.and_then(|buffer| unsafe { self.buffer(ring, buffer, file) });
        if let Some(index) = file_index {
            self.files.acquire(index);
        }
        if let Some(index) = buffer_index {
            self.buffers.acquire(index);
        }
        Used { buffer: buffer_index.and_then(|index| u16::try_from(index).ok()), file: file_index }
    }

    /// Releases the indices of one attempt, after its answer.
    pub(crate) fn release(&mut self, used: Used) {
        if let Some(index) = used.buffer {
            self.buffers.release(u32::from(index));
        }
        if let Some(index) = used.file {
            self.files.release(index);
        }
    }

    fn file(&mut self, ring: &Submitter<'_>, file: &Arc<LabFile>) -> Option<u32> {
        // A `Weak` keeps the address of its allocation from being used again: equal pointers mean
        // the same file.
        if let Some(index) =
            self.files.find(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(file)))
        {
            return Some(index);
        }
        for dead in self.files.idle_where(|known| known.strong_count() == 0) {
            if ring.register_files_update(dead, &[-1]).is_ok() {
                self.files.clear(dead);
            }
        }
        let index = self.files.place()?;
        // Out of the table before the kernel is asked: after a failure it is not known what the
        // entry holds.
        self.files.clear(index);
        match ring.register_files_update(index, &[file.descriptor().as_raw_fd()]) {
            Ok(_) => {
                self.files.put(index, Arc::downgrade(file));
                Some(index)
            }
            Err(source) => {
                self.note(Error::new("io_uring register file", file.path(), source));
                None
            }
        }
    }

    /// # Safety
    /// The buffer must live until the use of the index ends. The registration may outlive it, see
    /// the head of this file.
    unsafe fn buffer(
        &mut self,
        ring: &Submitter<'_>,
        buffer: &AlignedBuf,
        file: &LabFile,
    ) -> Option<u32> {
        if let Some(index) = self.buffers.find(|known| known.id == buffer.id()) {
            return Some(index);
        }
        if buffer.len() > PINNED_MAX_BYTES {
            let why = format!(
                "a buffer of {} bytes is larger than the {PINNED_MAX_BYTES} bytes that a ring may pin",
                buffer.len()
            );
            self.note(Error::invalid("io_uring register buffer", file.path(), why));
            return None;
        }
        while self.pinned_bytes() + buffer.len() > PINNED_MAX_BYTES {
            let oldest = self.buffers.oldest_idle()?;
            self.evict(ring, oldest).ok()?;
        }
        let index = self.buffers.place()?;
        // SAFETY: handed on.
        let mut registered = unsafe { self.register(ring, index, buffer) };
        if matches!(&registered, Err(error) if error.raw_os_error() == Some(libc::ENOMEM)) {
            // Stale registrations count against the limit too, and a refused update leaves the old
            // one in its place.
            self.evict(ring, index).ok()?;
            for idle in self.buffers.idle_where(|_| true) {
                self.evict(ring, idle).ok()?;
            }
            // SAFETY: handed on.
            registered = unsafe { self.register(ring, index, buffer) };
        }
        match registered {
            Ok(()) => Some(index),
            Err(source) => {
                self.note(explain(source, file));
                None
            }
        }
    }

    /// # Safety
    /// As [`Registered::buffer`].
    unsafe fn register(
        &mut self,
        ring: &Submitter<'_>,
        index: u32,
        buffer: &AlignedBuf,
    ) -> io::Result<()> {
        // Out of the table before the kernel is asked: after a failure it is not known what the
        // entry holds.
        self.buffers.clear(index);
        let range = libc::iovec { iov_base: buffer.start().as_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: the range is the whole of a live allocation. The kernel pins its pages and so
        // keeps *them* whatever becomes of the mapping; only entries that name this index touch
        // them, and none does once the id is gone.
        unsafe { ring.register_buffers_update(index, &[range], None)? };
        self.buffers.put(index, BufferKey { id: buffer.id(), len: buffer.len() });
        Ok(())
    }

    fn evict(&mut self, ring: &Submitter<'_>, index: u32) -> io::Result<()> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: an empty range names no memory; it makes the entry vacant.
        unsafe { ring.register_buffers_update(index, &[nothing], None)? };
        self.buffers.clear(index);
        Ok(())
    }

    fn pinned_bytes(&self) -> usize {
        self.buffers.keys().map(|key| key.len).sum()
    }

    fn note(&mut self, error: Error) {
        self.notice.get_or_insert(error);
    }
}

fn explain(source: io::Error, file: &LabFile) -> Error {
    let is_limit = source.raw_os_error() == Some(libc::ENOMEM);
    let error = Error::new("io_uring register buffer", file.path(), source);
    if is_limit {
        error.advise(
            "registered buffers count against RLIMIT_MEMLOCK: raise it (`ulimit -l`, LimitMEMLOCK= in systemd) or use \
             engine uring; the write went unregistered",
        )
    } else {
        error
    }
}

/// A table of a fixed number of entries, each used by any number of attempts.
#[derive(Debug)]
struct Table<K> {
    entries: Vec<Option<Entry<K>>>,
    clock: u64,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    users: u32,
    used_at: u64,
}

impl<K> Table<K> {
    fn new(len: u32) -> Self {
        Self { entries: (0..len).map(|_| None).collect(), clock: 0 }
    }

    fn find(&self, is_it: impl Fn(&K) -> bool) -> Option<u32> {
        let position = self
            .entries
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| is_it(&entry.key)))?;
        u32::try_from(position).ok()
    }

    fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().flatten().map(|entry| &entry.key)
    }

    /// The place for a new registration: a free entry, else the oldest that is not in use; `None`
    /// if all are in use.
    fn place(&self) -> Option<u32> {
        let vacant = self
            .entries
            .iter()
            .position(Option::is_none)
            .and_then(|position| u32::try_from(position).ok());
        vacant.or_else(|| self.oldest_idle())
    }

    fn oldest_idle(&self) -> Option<u32> {
        self.idle().min_by_key(|(_, entry)| entry.used_at).map(|(index, _)| index)
    }

    fn idle_where(&self, is_it: impl Fn(&K) -> bool) -> Vec<u32> {
        self.idle().filter(|(_, entry)| is_it(&entry.key)).map(|(index, _)| index).collect()
    }

    fn idle(&self) -> impl Iterator<Item = (u32, &Entry<K>)> {
        let used = (0_u32..)
            .zip(&self.entries)
            .filter_map(|(index, entry)| Some((index, entry.as_ref()?)));
        used.filter(|(_, entry)| entry.users == 0)
    }

    fn put(&mut self, index: u32, key: K) {
        self.clock += 1;
        self.entries[index as usize] = Some(Entry { key, users: 0, used_at: self.clock });
    }

    fn clear(&mut self, index: u32) {
        let was = self.entries[index as usize].take();
        assert!(was.is_none_or(|entry| entry.users == 0), "an entry in use was cleared");
    }

    fn acquire(&mut self, index: u32) {
        self.clock += 1;
        let entry = self.entries[index as usize].as_mut().expect("a registered entry");
        entry.users += 1;
        entry.used_at = self.clock;
    }

    fn release(&mut self, index: u32) {
        let entry = self.entries[index as usize].as_mut().expect("a registered entry");
        assert!(entry.users > 0, "an entry was released twice");
        entry.users -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_takes_a_vacant_entry_then_the_oldest_that_nobody_uses() {
        let mut table = Table::new(3);
        for key in 0..3 {
            let index = table.place().unwrap();
            table.put(index, key);
        }
        assert_eq!(table.place(), Some(0));
        table.acquire(0);
        assert_eq!(table.place(), Some(1));
        table.acquire(1);
        table.acquire(2);
        assert_eq!(table.place(), None);
        table.release(1);
        table.release(0);
        // Entry 0 was used before entry 1.
        assert_eq!(table.place(), Some(0));
        table.clear(1);
        assert_eq!(table.place(), Some(1));
        assert_eq!((table.find(|&key| key == 2), table.find(|&key| key == 1)), (Some(2), None));
        assert_eq!(table.idle_where(|_| true), [0]);
    }

    #[test]
    #[should_panic(expected = "in use was cleared")]
    fn an_entry_in_use_is_never_cleared() {
        let mut table = Table::new(1);
        table.put(0, ());
        table.acquire(0);
        table.clear(0);
    }
}
