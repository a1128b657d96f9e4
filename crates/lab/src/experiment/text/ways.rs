//! The ways of writing text lines that are compared, each behind the same three calls: open, put, close.
//!
//! *Owns*: what each is. *May not touch*: threads, clocks.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use inkstone_appender::{Guard, LogWriter, Rotation, Survive};

use crate::stage::CellError;

/// Of a line, with its end.
pub(super) const LINE_BYTES: usize = 120;
/// Of a file of the ways that rotate.
pub(super) const FILE_BYTES: u64 = 1 << 20;
const LOG: &str = "lines.log";

inkstone_io::named_choice! {
    /// A way of writing lines.
    Way, "way" {
        File = "Mutex<File>", "a system call for each line, under a lock";
        Buffered = "Mutex<BufWriter>", "a copy under a lock; whoever finds the buffer full writes it";
        Log = "LogWriter", "the text log writer as it is by default";
        Kill = "LogWriter, survives a kill", "its buffers in a file in memory";
        Rotating = "LogWriter, in files of 1 MiB", "a new file at each MiB";
        Ahead = "LogWriter, in files of 1 MiB, ahead", "the next file made, and its blocks reserved, beforehand";
    }
}

impl Way {
    pub(super) fn series(self) -> &'static str {
        match self {
            Self::File | Self::Buffered => "standard library",
            _ => "text log",
        }
    }
}

/// An open way; every thread uses the same one.
pub(super) enum Writer {
    File(Mutex<File>),
    Buffered(Mutex<BufWriter<File>>),
    Log(LogWriter, Guard),
}

impl Writer {
    /// # Errors
    /// What the file system answers, in words.
    pub(super) fn open(way: Way, folder: &Path) -> Result<Self, CellError> {
        let path = folder.join(LOG);
        let rotating = Rotation::new().at_bytes(FILE_BYTES);
        let log = LogWriter::builder(&path);
        let log = match way {
            Way::File => return Ok(Self::File(Mutex::new(made(&path)?))),
            Way::Buffered => return Ok(Self::Buffered(Mutex::new(BufWriter::new(made(&path)?)))),
            Way::Log => log,
            Way::Kill => log.survive(Survive::Kill),
            Way::Rotating => log.rotate(rotating),
            Way::Ahead => log.rotate(rotating.allocate_ahead()),
        };
        let (log, guard) = log.open()?;
        Ok(Self::Log(log, guard))
    }

    /// One line. It never shares the file's line with another.
    #[inline]
    pub(super) fn put(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line),
            Self::Buffered(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line),
            Self::Log(log, _) => {
                let mut log = log;
                log.write_all(line)
            }
        }
    }

    /// Every line is in the file afterwards.
    pub(super) fn close(self) -> io::Result<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Buffered(file) => file.into_inner().unwrap_or_else(PoisonError::into_inner).flush(),
            Self::Log(_, guard) => guard.close(),
        }
    }
}

fn made(path: &Path) -> Result<File, CellError> {
    File::create_new(path).map_err(|error| inkstone_io::Error::new("create", path, error).into())
}
