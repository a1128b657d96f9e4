//! The options of a log that is not open yet.
//!
//! *Owns*: the options and their defaults, and which paths can be a log's. *May not touch*: lines;
//! the order of an opening ([`opening`](crate::opening)).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use inkstone_io::{Error, OsDirectory, Result, StageLayout};

use crate::event::{Event, Events};
use crate::folder::{FILE_MODE, Folder};
use crate::options::{Compression, Keep, Rotation, Survive, WhenFull};
use crate::rotated::BYTES_BEHIND;
use crate::stage_contents::HEAD_BYTES;
use crate::time::Clock;

const BLOCK: usize = 4096;
/// Two of them are in a core's second cache; a wake-up for each is one in two thousand lines.
const BUFFER_BYTES_MAX: usize = 256 << 10;
const BUFFERS: usize = 32;
const BUFFERS_BYTES: usize = 8 << 20;
const BUFFERS_BYTES_MIN: usize = 2 * BLOCK;
const FLUSH_EVERY: Duration = Duration::from_millis(100);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The options of a log that is not open yet: [`LogWriter::builder`](crate::LogWriter::builder).
pub struct Builder {
    pub(crate) path: PathBuf,
    pub(crate) buffers_bytes: usize,
    pub(crate) flush_every: Duration,
    pub(crate) when_full: WhenFull,
    pub(crate) survive: Survive,
    pub(crate) stage_directory: PathBuf,
    pub(crate) must_survive: bool,
    pub(crate) rotation: Rotation,
    pub(crate) keep: Keep,
    pub(crate) compression: Compression,
    pub(crate) events: Events,
    pub(crate) drain_timeout: Duration,
    pub(crate) clock: Clock,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            buffers_bytes: BUFFERS_BYTES,
            flush_every: FLUSH_EVERY,
            when_full: WhenFull::default(),
            survive: Survive::default(),
            stage_directory: "/dev/shm".into(),
            must_survive: false,
            rotation: Rotation::default(),
            keep: Keep::default(),
            compression: Compression::default(),
            events: Events::default(),
            drain_timeout: DRAIN_TIMEOUT,
            clock: Clock::default(),
        }
    }

    /// Sets the size of all buffers together in bytes (8 MiB): this much can wait while the disk
    /// does not answer. At least 8 KiB: opening refuses less. One buffer, which is the size of one
    /// write, is a 32nd of it, from 4 to 256 KiB.
    #[must_use]
    pub fn buffers_bytes(self, bytes: usize) -> Self {
        Self { buffers_bytes: bytes, ..self }
    }

    /// Sets after how long at most, about, a line goes to the file while the disk keeps up (100
    /// ms).
    #[must_use]
    pub fn flush_every(self, every: Duration) -> Self {
        Self { flush_every: every.max(Duration::from_millis(1)), ..self }
    }

    /// Sets what a writer does when every buffer is full ([`WhenFull::Block`]).
    #[must_use]
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// Sets what lines survive before they are in the file ([`Survive::Nothing`]).
    #[must_use]
    pub fn survive(self, survive: Survive) -> Self {
        Self { survive, ..self }
    }

    /// Refuses to open the log where its lines cannot survive a kill: its directory has no identity
    /// that lasts. Without this the log is opened there, and an event says so
    /// ([`Event::StageFailed`]).
    #[must_use]
    pub fn must_survive(self) -> Self {
        Self { must_survive: true, ..self }
    }

    /// Sets where [`Survive::Kill`] keeps the buffers: a directory on tmpfs (`/dev/shm`). They are
    /// in a file there that only this user can read.
    #[must_use]
    pub fn stage_directory(self, directory: impl Into<PathBuf>) -> Self {
        Self { stage_directory: directory.into(), ..self }
    }

    /// Sets when a new file is started (never).
    #[must_use]
    pub fn rotate(self, rotation: Rotation) -> Self {
        Self { rotation, ..self }
    }

    /// Sets which rotated files are kept (all).
    #[must_use]
    pub fn keep(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// Sets how rotated files are compressed (not at all).
    #[must_use]
    pub fn compress(self, compression: Compression) -> Self {
        Self { compression, ..self }
    }

    /// Sets the hook that gets events of the log's own threads; without one, failures go to stderr.
    /// What is lost when a [`Guard`](crate::Guard) is dropped goes to stderr with a hook, too.
    /// It runs in the output thread or in the one that compresses. It may write to this log (a line
    /// without room is then dropped), but not flush it, and it cannot wait for its end:
    /// [`Guard::close`](crate::Guard::close) is an error there.
    #[must_use]
    pub fn on_event(self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { events: Events::to(hook), ..self }
    }

    /// Sets how long closing retries a failing disk (10 s), how long opening retries a full one if
    /// a killed process left lines, and how long opening waits for another writer of this log to
    /// end: for this time and two seconds, so that one with the same time which was told to end has
    /// ended by then.
    #[must_use]
    pub fn drain_timeout(self, at_most: Duration) -> Self {
        Self { drain_timeout: at_most, ..self }
    }

    /// Sets the clock (the system's) that decides when a file is due, names rotated files and finds
    /// those that are too old. It runs in the log's threads.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { clock: Clock::of(clock), ..self }
    }

    /// The directory, without links in its path, and the file's name.
    pub(crate) fn folder(&self) -> Result<Arc<Folder>> {
        let refused = |why: &str| Error::invalid("open log", &self.path, why);
        if let Some(bytes) = self.rotation.bytes.filter(|bytes| *bytes < Rotation::BYTES_MIN) {
            let why = format!("files of {bytes} bytes are too small: they end between buffers");
            let least = Rotation::BYTES_MIN >> 10;
            return Err(refused(&why).advise(format!("rotate at {least} KiB or more")));
        }
        if self.buffers_bytes < BUFFERS_BYTES_MIN {
            let why = format!("buffers of {} bytes are too small", self.buffers_bytes);
            let least = BUFFERS_BYTES_MIN >> 10;
            return Err(refused(&why).advise(format!("take {least} KiB or more")));
        }
        // Checked without opening it: opening a pipe waits for its other end. A link could not be
        // rotated, and whoever made it could lead root anywhere.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|facts| !facts.is_file()) {
            return Err(refused("it is not a regular file")
                .advise("a log is a regular file: of a link, name the target"));
        }
        let path = &self.path;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| refused("its name is missing or not UTF-8"))?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        OsDirectory::create_in_parent(folder, FILE_MODE)?;
        let folder = folder.canonicalize().map_err(|error| Error::new("find", folder, error))?;
        let folder = Folder::open(folder, name)?;
        let most = folder.get().name_bytes_max().saturating_sub(BYTES_BEHIND);
        if name.len() > most {
            let bytes = name.len();
            let why =
                format!("its name has {bytes} bytes; rotated files have up to {BYTES_BEHIND} more");
            return Err(refused(&why).advise(format!("take a name of at most {most} bytes")));
        }
        Ok(Arc::new(folder))
    }

    pub(crate) fn layout(&self) -> StageLayout {
        // Files end between buffers: small files need small buffers.
        let most = self
            .rotation
            .bytes
            .map_or(usize::MAX, |bytes| usize::try_from(bytes / 4).unwrap_or(usize::MAX));
        let buffer_bytes = (self.buffers_bytes / BUFFERS).clamp(BLOCK, BUFFER_BYTES_MAX).min(most);
        let buffer_bytes = buffer_bytes - buffer_bytes % BLOCK;
        // The last one is the inbox.
        let buffers = self.buffers_bytes / buffer_bytes + 1;
        StageLayout { head_bytes: HEAD_BYTES, buffer_bytes, buffers }
    }
}
