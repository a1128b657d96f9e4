//! The compared ways of writing text lines, each with the same three calls: open, put, close.
//!
//! *Owns*: each way. *May not touch*: threads, clocks.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use inkstone_appender::{Guard, LogWriter, Rotation, Survive};

use crate::stage::WayError;

use super::practice::{AS_THE_TEXT_LOG, FILE_BYTES, Memory, Practice};

/// Bytes of a line with its newline.
pub(super) const LINE_BYTES: usize = 120;
const LOG: &str = "lines.log";

inkstone_io::named_choice! {
    /// A way of writing lines.
    LineWay, "way" {
        File = "Mutex<File>", "a system call for each line, under a lock";
        Buffered = "Mutex<BufWriter>", "a copy under a lock; the thread that finds the buffer full writes it";
        Log = "LogWriter", "the text log writer with default options";
        Kill = "LogWriter, survives a kill", "its buffers in a file in memory";
        Rotating = "LogWriter, in files of 1 MiB", "a new file at each MiB";
        Practice = "as article 1 practises it", "multiples of 4,096 bytes into written files of 1 MiB, the oldest reused";
    }
}

impl LineWay {
    pub(super) fn series(self) -> &'static str {
        match self {
            Self::File | Self::Buffered => "standard library",
            Self::Practice => "practice",
            _ => "text log",
        }
    }
}

/// An open way, shared by all threads.
pub(super) enum Writer {
    File(Mutex<File>),
    Buffered(Mutex<BufWriter<File>>),
    Log(LogWriter, Guard),
    Practice(Practice),
}

impl Writer {
    /// # Errors
    /// Errors of the file system, as text.
    pub(super) fn open(way: LineWay, folder: &Path) -> Result<Self, WayError> {
        let path = folder.join(LOG);
        let rotating = Rotation::new().at_bytes(FILE_BYTES);
        let log = LogWriter::builder(&path);
        let log = match way {
            LineWay::File => return Ok(Self::File(Mutex::new(made(&path)?))),
            LineWay::Buffered => {
                return Ok(Self::Buffered(Mutex::new(BufWriter::new(made(&path)?))));
            }
            LineWay::Practice => return Self::practice(folder, AS_THE_TEXT_LOG),
            LineWay::Log => log,
            LineWay::Kill => log.survive(Survive::Kill),
            LineWay::Rotating => log.rotate(rotating),
        };
        let (log, guard) = log.open()?;
        Ok(Self::Log(log, guard))
    }

    /// Article 1's way.
    ///
    /// # Errors
    /// Errors of the file system, as text.
    pub(super) fn practice(folder: &Path, memory: Memory) -> Result<Self, WayError> {
        let opened = Practice::open(folder, memory);
        let opened = opened
            .map_err(|error| inkstone_io::Error::new("make files ready in", folder, error))?;
        Ok(Self::Practice(opened))
    }

    /// Writes one line. Lines of different threads never mix.
    #[inline]
    pub(super) fn put(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line),
            Self::Buffered(file) => {
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line)
            }
            Self::Log(log, _) => {
                let mut log = log;
                log.write_all(line)
            }
            Self::Practice(log) => log.put(line),
        }
    }

    /// Closes; every line is in the files afterwards. Returns the bytes of lines if the files no
    /// longer have all of them.
    pub(super) fn close(self) -> io::Result<Option<u64>> {
        match self {
            Self::File(_) => Ok(None),
            Self::Buffered(file) => {
                file.into_inner().unwrap_or_else(PoisonError::into_inner).flush().map(|()| None)
            }
            Self::Log(_, guard) => guard.close().map(|()| None),
            Self::Practice(log) => log.close().map(Some),
        }
    }
}

fn made(path: &Path) -> Result<File, WayError> {
    File::create_new(path).map_err(|error| inkstone_io::Error::new("create", path, error).into())
}
