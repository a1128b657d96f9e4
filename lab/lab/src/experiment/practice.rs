//! The text log of article 1: lines are gathered in aligned buffers, and a background thread writes
//! them in multiples of 4,096 bytes over files that were written beforehand, the oldest again when
//! the newest is full.
//!
//! *Owns*: that way of writing. *May not touch*: threads that log, clocks.
//!
//! It is a way of the lab, not an option of the text log: an overwritten file has its old lines
//! after the newest ones, so neither `tail -f` nor a start after a kill can tell where it ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use inkstone_io::{AlignedBuf, BLOCK_BYTES};

/// File size of the ways that rotate.
pub(super) const FILE_BYTES: u64 = 1 << 20;
const FILES: u64 = 4;

/// The memory in which lines are gathered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Bytes of a buffer; files hold a whole number of them.
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
    full: Sender<(AlignedBuf, usize)>,
    spare: Receiver<AlignedBuf>,
}

impl Practice {
    /// Opens a log: its files are written and on the disk, and its memory is touched.
    pub(super) fn open(folder: &Path, memory: Memory) -> io::Result<Self> {
        let written = |number: u64| {
            let file = File::create_new(folder.join(format!("practice-{number}")))?;
            file.write_all_at(&[0; FILE_BYTES as usize], 0)?;
            file.sync_all().map(|()| file)
        };
        let files = (0..FILES).map(written).collect::<io::Result<Vec<File>>>()?;
        File::open(folder)?.sync_all()?;
        let (full, fulls) = channel();
        let (spares, spare) = channel();
        for _ in 1..memory.buffers {
            // It cannot fail: the receiver exists.
            let _ = spares.send(AlignedBuf::zeroed(memory.buffer_bytes));
        }
        let back = std::thread::Builder::new().name("lab-practice".into());
        let back = back.spawn(move || write_all(&files, &fulls, &spares))?;
        let buffer = Some(AlignedBuf::zeroed(memory.buffer_bytes));
        Ok(Self { front: Mutex::new(Front { memory, buffer, len: 0, full, spare }), back })
    }

    /// Adds a line; waits for the disk only when every buffer is full.
    pub(super) fn put(&self, mut line: &[u8]) -> io::Result<()> {
        let mut front = self.front.lock().unwrap_or_else(PoisonError::into_inner);
        while !line.is_empty() {
            let at = front.len;
            let buffer = front.buffer.as_mut().ok_or_else(gone)?;
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
        self.full.send((buffer, std::mem::take(&mut self.len))).map_err(|_| gone())?;
        // With one buffer the spare is the same again, once it is written.
        let mut spare = self.spare.recv().map_err(|_| gone())?;
        if self.memory.when_needed {
            drop(spare);
            spare = AlignedBuf::zeroed(self.memory.buffer_bytes);
        }
        self.buffer = Some(spare);
        Ok(())
    }
}

/// The background thread ends early only after an error, which closing returns.
fn gone() -> io::Error {
    io::Error::other("the writing thread has ended")
}

/// The background thread; returns the bytes of lines that it wrote.
fn write_all(
    files: &[File],
    fulls: &Receiver<(AlignedBuf, usize)>,
    spares: &Sender<AlignedBuf>,
) -> io::Result<u64> {
    let (mut at, mut lines_bytes) = (0, 0);
    while let Ok((mut buffer, len)) = fulls.recv() {
        // Only the last buffer is not full: its last block is padded, and truncated below.
        let padded = len.next_multiple_of(BLOCK_BYTES);
        buffer[len..padded].fill(0);
        let file = &files[(at / FILE_BYTES % FILES) as usize];
        file.write_all_at(&buffer[..padded], at % FILE_BYTES)?;
        if len < buffer.len() {
            // This removes the old lines after it together with the padding.
            file.set_len(at % FILE_BYTES + len as u64)?;
        }
        at += padded as u64;
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
    fn every_byte_is_there_in_order_and_files_are_overwritten_in_turn() {
        let one = Memory { buffer_bytes: 64 << 10, buffers: 1, when_needed: false };
        let anew = Memory { buffers: 2, when_needed: true, ..one };
        for memory in [AS_THE_TEXT_LOG, one, anew] {
            let directory = tempfile::tempdir().expect("a directory");
            let log = Practice::open(directory.path(), memory).expect("open");
            let line = |number: u64| format!("{number:0119}\n").into_bytes();
            // Six files and a piece: the first two are overwritten, and the third up to its end.
            let lines = 6 * FILE_BYTES / 120 + 1234;
            (0..lines).for_each(|number| log.put(&line(number)).expect("put"));
            assert_eq!(log.close().expect("closed"), lines * 120);
            let read = |number| std::fs::read(directory.path().join(format!("practice-{number}")));
            let kept: Vec<u8> =
                [3, 0, 1, 2].into_iter().flat_map(|n| read(n).expect("it")).collect();
            let all: Vec<u8> = (0..lines).flat_map(line).collect();
            assert!(kept == all[3 * FILE_BYTES as usize..], "the end of what was written");
        }
    }
}
