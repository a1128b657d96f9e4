//! The text log of article 1: lines are gathered in aligned buffers, and a background thread writes
//! them in multiples of 4,096 bytes into files that were prepared beforehand. When the newest file
//! is full, the oldest is reused.
//!
//! *Owns*: that way of writing. *May not touch*: threads that log, clocks.
//!
//! It is a way of the lab, not an option of the text log: a reused file has its old lines after
//! the newest ones, and a line may begin in one file and end in the next. So neither `tail -f` nor
//! a start after a kill can tell where the log ends, although docs/text-log.md promises both. Its
//! possible gain is measured here.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use inkstone_io::{AlignedBuf, BLOCK_BYTES};

/// File size of the ways that rotate.
pub(super) const FILE_BYTES: u64 = 1 << 20;
/// How many files there are; the oldest is the next to be written.
const FILES: usize = 4;

/// The memory in which lines are gathered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Bytes of a buffer.
    pub(super) buffer_bytes: usize,
    /// All buffers, including those that wait for the disk. With one the logging thread waits until
    /// it is written.
    pub(super) buffers: usize,
    /// Whether each buffer is taken when it is needed, and given back when it is written, instead
    /// of all beforehand.
    pub(super) when_needed: bool,
}

/// As much as the text log gathers for one write, and as much memory as it uses.
pub(super) const AS_THE_TEXT_LOG: Memory =
    Memory { buffer_bytes: 256 << 10, buffers: 32, when_needed: false };

/// An open log of this kind.
pub(super) struct Practice {
    front: Mutex<Front>,
    back: JoinHandle<io::Result<u64>>,
}

struct Front {
    memory: Memory,
    /// None once the background thread has ended with an error.
    buffer: Option<AlignedBuf>,
    len: usize,
    full: Sender<Full>,
    spare: Receiver<AlignedBuf>,
}

struct Full {
    buffer: AlignedBuf,
    len: usize,
}

impl Practice {
    /// Opens a log: its files are written and on the disk, and its memory is touched.
    pub(super) fn open(folder: &Path, memory: Memory) -> io::Result<Self> {
        let files = Files::ready(folder)?;
        let (full, fulls) = channel();
        let (spares, spare) = channel();
        for _ in 1..memory.buffers {
            // It cannot fail: the receiver exists.
            let _ = spares.send(AlignedBuf::zeroed(memory.buffer_bytes));
        }
        let back = std::thread::Builder::new().name("lab-practice".into());
        let back = back.spawn(move || write_all(files, &fulls, &spares))?;
        let buffer = Some(AlignedBuf::zeroed(memory.buffer_bytes));
        let front = Front { memory, buffer, len: 0, full, spare };
        Ok(Self { front: Mutex::new(front), back })
    }

    /// Adds a line; waits for the disk only when every buffer is full.
    pub(super) fn put(&self, mut line: &[u8]) -> io::Result<()> {
        let mut front = self.front.lock().unwrap_or_else(PoisonError::into_inner);
        while !line.is_empty() {
            let at = front.len;
            let Some(buffer) = &mut front.buffer else { return Err(gone()) };
            let taken = line.len().min(buffer.len() - at);
            buffer[at..at + taken].copy_from_slice(&line[..taken]);
            let is_full = at + taken == buffer.len();
            front.len += taken;
            line = &line[taken..];
            if is_full {
                front.hand_over()?;
            }
        }
        Ok(())
    }

    /// Writes the rest and truncates the last file to its lines; returns the bytes of lines that
    /// were written.
    pub(super) fn close(self) -> io::Result<u64> {
        let mut front = self.front.into_inner().unwrap_or_else(PoisonError::into_inner);
        if front.len > 0 {
            front.hand_over()?;
        }
        drop(front);
        self.back.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }
}

impl Front {
    fn hand_over(&mut self) -> io::Result<()> {
        let buffer = self.buffer.take().ok_or_else(gone)?;
        let len = std::mem::take(&mut self.len);
        self.full.send(Full { buffer, len }).map_err(|_| gone())?;
        // With one buffer the spare is the same again, once it is written.
        let spare = self.spare.recv().map_err(|_| gone())?;
        self.buffer = Some(if self.memory.when_needed {
            drop(spare);
            AlignedBuf::zeroed(self.memory.buffer_bytes)
        } else {
            spare
        });
        Ok(())
    }
}

/// The background thread ends early only after an error, which closing returns.
fn gone() -> io::Error {
    io::Error::other("the writing thread has ended")
}

/// The files in turn.
struct Files {
    folder: PathBuf,
    /// The oldest first.
    ring: VecDeque<PathBuf>,
    current: Option<(File, PathBuf)>,
    offset: u64,
    begun: u64,
}

impl Files {
    /// Creates the files, writes them from front to back and syncs them.
    fn ready(folder: &Path) -> io::Result<Self> {
        let zeros = vec![0; FILE_BYTES as usize];
        let mut ring = VecDeque::new();
        for number in 0..FILES {
            let path = folder.join(format!("practice-ready-{number}"));
            let file = File::create_new(&path)?;
            file.write_all_at(&zeros, 0)?;
            file.sync_all()?;
            ring.push_back(path);
        }
        File::open(folder)?.sync_all()?;
        Ok(Self { folder: folder.into(), ring, current: None, offset: 0, begun: 0 })
    }

    /// The file with room, and where that begins: the newest, or the oldest under a new name.
    fn with_room(&mut self) -> io::Result<(&File, u64)> {
        if self.offset == FILE_BYTES {
            if let Some((_, path)) = self.current.take() {
                self.ring.push_back(path);
            }
            self.offset = 0;
        }
        if self.current.is_none() {
            let oldest =
                self.ring.pop_front().ok_or_else(|| io::Error::other("there is no file"))?;
            let path = self.folder.join(format!("practice-{:06}", self.begun));
            self.begun += 1;
            fs::rename(&oldest, &path)?;
            self.current = Some((OpenOptions::new().write(true).open(&path)?, path));
        }
        let current = self.current.as_ref().ok_or_else(|| io::Error::other("there is no file"))?;
        Ok((&current.0, self.offset))
    }
}

/// The background thread; returns the bytes of lines that it wrote.
fn write_all(
    mut files: Files,
    fulls: &Receiver<Full>,
    spares: &Sender<AlignedBuf>,
) -> io::Result<u64> {
    let mut lines_bytes = 0;
    while let Ok(Full { mut buffer, len }) = fulls.recv() {
        // Only the last buffer is not full: its last block is padded, and truncated below.
        let padded = len.next_multiple_of(BLOCK_BYTES);
        buffer[len..padded].fill(0);
        let (file, offset) = files.with_room()?;
        file.write_all_at(&buffer[..padded], offset)?;
        if len < buffer.len() {
            // This removes the old lines after it together with the padding.
            file.set_len(offset + len as u64)?;
        }
        files.offset = offset + padded as u64;
        lines_bytes += len as u64;
        // While the log is being closed nobody receives it.
        let _ = spares.send(buffer);
    }
    Ok(lines_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_there_in_order_and_only_so_many_files_are_kept() {
        let one = Memory { buffer_bytes: 64 << 10, buffers: 1, when_needed: false };
        let anew = Memory { buffers: 2, when_needed: true, ..one };
        for memory in [AS_THE_TEXT_LOG, one, anew] {
            let directory = tempfile::tempdir().expect("a directory");
            let log = Practice::open(directory.path(), memory).expect("open");
            let line = |number: u64| format!("{number:0119}\n").into_bytes();
            // Six files and a piece: every file is reused, the first two a third time.
            let lines = 6 * FILE_BYTES / 120 + 1234;
            (0..lines).for_each(|number| log.put(&line(number)).expect("put"));
            assert_eq!(log.close().expect("closed"), lines * 120);
            let mut names: Vec<PathBuf> = fs::read_dir(directory.path())
                .expect("the directory")
                .map(|entry| entry.expect("an entry").path())
                .collect();
            names.sort();
            assert_eq!(names.len(), FILES, "{names:?}");
            let mut kept = Vec::new();
            names.iter().for_each(|name| kept.extend(fs::read(name).expect("a file")));
            let first = 3 * FILE_BYTES as usize;
            let all: Vec<u8> = (0..lines).flat_map(line).collect();
            assert!(kept == all[first..], "the last {FILES} files are the end of what was written");
        }
    }
}
