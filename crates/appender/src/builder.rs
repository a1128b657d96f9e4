//! Opening a log.
//!
//! *Owns*: the options together, their defaults, the order of an opening. *May not touch*: lines.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use inkstone_io::{
    Directory as _, Error, ForkMark, OsDirectory, Owner, Result, StageLayout, buffers_in_memory,
};

use crate::back::Back;
use crate::buffer::Buffer;
use crate::disk::{Disk, OsDisk};
use crate::event::{Event, Events};
use crate::folder::{FILE_MODE, Folder};
use crate::janitor::{Chores, Janitor};
use crate::notice::Notice;
use crate::options::{Compression, Keep, Rotation, Survive, WhenFull};
use crate::output::{Output, newest};
use crate::recover::{HEAD_BYTES, Recovered, Target};
use crate::retention::Retention;
use crate::shared::Shared;
use crate::stage::Stage;
use crate::state::State;
use crate::time::{Clock, later};
use crate::writer::{Guard, LogWriter};

const BLOCK: usize = 4096;
/// Two of them are in a core's second cache; a wake-up for each is one in two thousand lines.
const BUFFER_BYTES: usize = 256 << 10;
const BUFFERS_BYTES: usize = 8 << 20;
const FLUSH_EVERY: Duration = Duration::from_millis(100);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A log that is not opened yet: [`LogWriter::builder`].
pub struct Builder {
    path: PathBuf,
    buffers_bytes: usize,
    buffer_bytes: usize,
    flush_every: Duration,
    when_full: WhenFull,
    survive: Survive,
    stage_directory: PathBuf,
    rotation: Rotation,
    keep: Keep,
    compression: Compression,
    latest: Option<String>,
    notice: Notice,
    events: Events,
    flag: Option<Arc<AtomicBool>>,
    #[cfg(feature = "sighup")]
    on_sighup: bool,
    drain_timeout: Duration,
    thread_name: String,
    clock: Clock,
    file_mode: u32,
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
            buffer_bytes: BUFFER_BYTES,
            flush_every: FLUSH_EVERY,
            when_full: WhenFull::default(),
            survive: Survive::default(),
            stage_directory: "/dev/shm".into(),
            rotation: Rotation::default(),
            keep: Keep::default(),
            compression: Compression::default(),
            latest: None,
            notice: Notice::default(),
            events: Events::default(),
            flag: None,
            #[cfg(feature = "sighup")]
            on_sighup: false,
            drain_timeout: DRAIN_TIMEOUT,
            thread_name: "log writer".into(),
            clock: Clock::default(),
            file_mode: FILE_MODE,
        }
    }

    /// All buffers together, in bytes (8 MiB): so much can wait while the disk does not answer. At least two buffers.
    #[must_use]
    pub fn buffers_bytes(self, bytes: usize) -> Self {
        Self { buffers_bytes: bytes, ..self }
    }

    /// One buffer, in bytes (256 KiB): as much goes to the disk at once. Rounded up to 4096.
    #[must_use]
    pub fn buffer_bytes(self, bytes: usize) -> Self {
        Self { buffer_bytes: bytes, ..self }
    }

    /// How old a line gets at most, about, before it goes to the file (100 ms), while the disk keeps up.
    #[must_use]
    pub fn flush_every(self, every: Duration) -> Self {
        Self { flush_every: every.max(Duration::from_millis(1)), ..self }
    }

    /// What a writer does when every buffer is full ([`WhenFull::Block`]).
    #[must_use]
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// What lines survive that are not in the file yet ([`Survive::Nothing`]).
    #[must_use]
    pub fn survive(self, survive: Survive) -> Self {
        Self { survive, ..self }
    }

    /// Where the buffers are kept for [`Survive::Kill`]: a directory on tmpfs (`/dev/shm`). They are in a directory of this user
    /// alone below it, `inkstone-UID`.
    #[must_use]
    pub fn stage_directory(self, directory: impl Into<PathBuf>) -> Self {
        Self { stage_directory: directory.into(), ..self }
    }

    /// When a new file is begun (never).
    #[must_use]
    pub fn rotate(self, rotation: Rotation) -> Self {
        Self { rotation, ..self }
    }

    /// Which rotated files stay (all).
    #[must_use]
    pub fn keep(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// How rotated files are compressed (not).
    #[must_use]
    pub fn compress(self, compression: Compression) -> Self {
        Self { compression, ..self }
    }

    /// A symbolic link of this name, beside the file, that leads to it.
    #[must_use]
    pub fn latest(self, link: impl Into<String>) -> Self {
        Self { latest: Some(link.into()), ..self }
    }

    /// The form in which the log itself says that lines were dropped ([`Notice::Text`]).
    #[must_use]
    pub fn notice(self, notice: Notice) -> Self {
        Self { notice, ..self }
    }

    /// Sets the hook that hears of what happens behind the writers' backs; without one, failures go to stderr. It runs in the
    /// back thread or the one that compresses. It may write to this log (a line for which there is no room is dropped then),
    /// but not flush it.
    #[must_use]
    pub fn on_event(self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { events: Events::to(hook), ..self }
    }

    /// The file is opened again by its name, within a second, when somebody sets this flag, which is then taken back.
    #[must_use]
    pub fn reopen_when(self, flag: Arc<AtomicBool>) -> Self {
        Self { flag: Some(flag), ..self }
    }

    /// The file is opened again by its name, within a second, when the process gets a SIGHUP (which does not end it any more).
    #[cfg(feature = "sighup")]
    #[must_use]
    pub fn reopen_on_sighup(self) -> Self {
        Self { on_sighup: true, ..self }
    }

    /// How long closing tries to write to a disk that fails (10 s).
    #[must_use]
    pub fn drain_timeout(self, at_most: Duration) -> Self {
        Self { drain_timeout: at_most, ..self }
    }

    /// The back thread's name.
    #[must_use]
    pub fn thread_name(self, name: impl Into<String>) -> Self {
        Self { thread_name: name.into(), ..self }
    }

    /// The mode of the first file, less the umask (0666); its owner may write in any case. Each later one has owner, group and mode of the one before it.
    #[must_use]
    pub fn file_mode(self, mode: u32) -> Self {
        Self { file_mode: mode & 0o777 | 0o200, ..self }
    }

    /// Which clock tells when a file is due, how rotated files are named and which are too old (the system's). It runs in the
    /// threads of the log.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { clock: Clock::of(clock), ..self }
    }

    /// Opens the log: creates the directory and the file if they are missing, appends what a killed process left.
    ///
    /// # Errors
    /// The directory or the file cannot be had; the log is open in another process, or twice in this one, with
    /// [`Survive::Kill`]; there is no memory for the buffers; what a killed process left cannot be written (it stays).
    pub fn open(self) -> Result<(LogWriter, Guard)> {
        self.open_on(OsDisk)
    }

    /// As [`Builder::open`], with log files of another kind.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open_on(self, disk: impl Disk) -> Result<(LogWriter, Guard)> {
        let fork = ForkMark::new()?;
        let (folder, name) = self.place()?;
        let log = folder.path().join(&name);
        let layout = self.layout();
        let is_durable = matches!(self.survive, Survive::PowerLoss(_));
        let (buffers, stage, recovered) = if self.survive == Survive::Nothing {
            (buffers_in_memory(layout)?, None, Recovered::default())
        } else {
            let to = Target { directory: &folder.get(), name: &name, disk: &disk, is_durable };
            let (stage, buffers, recovered) = Stage::open(&self.stage_directory, layout, to)?;
            (buffers, Some(stage), recovered)
        };
        let Recovered { recovery, failed_sync, aside } = recovered;
        if let Some(aside) = &aside {
            self.events.tell(&Event::StageAside(aside));
        }
        if let Some(recovery) = &recovery {
            self.events.tell(&Event::Recovered(recovery));
        }
        let mut output = self.output(folder, name, Box::new(disk))?;
        let sync_every = match self.survive {
            Survive::PowerLoss(every) => Some(every),
            _ => None,
        };
        let mut state = State::new(buffers.into_iter().map(Buffer::new).collect());
        // Synced, or it failed: neither is done again.
        output.is_dirty = false;
        if let Some(error) = failed_sync.or_else(|| output.failed_sync.take()) {
            state.not_durable(&error);
            self.events.tell(&Event::SyncFailed(&error));
        }
        let shared = Arc::new(Shared::new(fork, self.when_full, is_durable, self.events.panics(), state));
        let flag = self.reopen_flag()?;
        let has_hook = self.events.has_hook();
        let now = Instant::now();
        let back = Back {
            shared: Arc::clone(&shared),
            output,
            stage,
            looked_around: now,
            is_stage_gone: false,
            may_idle: false,
            flush_every: self.flush_every,
            sync_every,
            last_sync: now,
            notice: self.notice,
            events: self.events,
            flag,
            drain_timeout: self.drain_timeout,
            tick: later(now, self.flush_every),
            scratch: Vec::with_capacity(256),
            failing: None,
            closed_at: None,
            asked_for_room: now,
        };
        let thread = thread::Builder::new().name(self.thread_name).spawn(move || back.run());
        let thread = thread.map_err(|error| Error::new("start the back thread of", &log, error))?;
        let writer = LogWriter { shared: Arc::clone(&shared) };
        Ok((writer, Guard { shared, thread: Some(thread), recovery, has_hook }))
    }

    /// The directory, without links in its path, and the file's name: of the file that the path leads to, so that a link is
    /// left alone and what it leads to is rotated where that lies.
    fn place(&self) -> Result<(Arc<Folder>, String)> {
        let refused = |why: &str| Error::invalid("open log", &self.path, why);
        // Looked at and not opened: opening a pipe waits for its other end.
        if std::fs::metadata(&self.path).is_ok_and(|facts| !facts.is_file()) {
            return Err(refused("it is no plain file").advise("a log is a plain file, or a link to one"));
        }
        let path = follow(&self.path)?.ok_or_else(|| refused("too many symbolic links"))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| refused("its name is missing or is no UTF-8"))?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        OsDirectory::create_with_mode(folder, self.file_mode)?;
        let folder = folder.canonicalize().map_err(|error| Error::new("find", folder, error))?;
        if let Some(link) = &self.latest
            && (link.is_empty() || link.contains('/') || link == name)
        {
            return Err(refused("the link to the latest file needs a name of its own, without a slash"));
        }
        Ok((Arc::new(Folder::open(folder, self.file_mode)?), name.to_owned()))
    }

    fn layout(&self) -> StageLayout {
        // Files end between buffers: small files want small buffers.
        let most =
            self.rotation.bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes / 4).unwrap_or(usize::MAX));
        let buffer_bytes = self.buffer_bytes.min(most).max(1);
        let buffer_bytes =
            buffer_bytes.checked_next_multiple_of(BLOCK).unwrap_or(buffer_bytes - buffer_bytes % BLOCK);
        StageLayout {
            head_bytes: HEAD_BYTES,
            buffer_bytes,
            buffers: (self.buffers_bytes / buffer_bytes).max(2),
        }
    }

    fn output(&self, folder: Arc<Folder>, name: String, disk: Box<dyn Disk>) -> Result<Output> {
        let retention = Arc::new(Retention {
            name: name.clone(),
            keep: self.keep,
            clock: self.clock.clone(),
            forms: Mutex::default(),
        });
        let janitor = Janitor::start(Chores {
            folder: Arc::clone(&folder),
            name: name.clone(),
            retention: Arc::clone(&retention),
            compression: self.compression,
            ahead_bytes: self.rotation.ahead_bytes(),
            events: self.events.clone(),
        });
        let janitor = janitor.map_err(|error| Error::new("start the janitor of", folder.path(), error))?;
        let mut output = Output {
            disk,
            last: newest(&folder.get(), &name),
            folder,
            name,
            rotation: self.rotation,
            is_durable: matches!(self.survive, Survive::PowerLoss(_)),
            events: self.events.clone(),
            janitor,
            retention,
            clock: self.clock.clone(),
            file: None,
            boundary: None,
            not_before: None,
            rotations: 0,
            owner: None,
            is_link_told: false,
            is_owner_told: false,
            is_dirty: false,
            failed_sync: None,
        };
        let facts = output.ready()?;
        // A process that was killed may have written to it since its last sync.
        output.is_dirty = facts.len_bytes > 0;
        if facts.len_bytes > 0 && (self.rotation.at_start || output.is_of_earlier(facts.modified)) {
            output.rotate(facts)?;
        } else {
            output.sync_quietly();
        }
        output.set_boundary();
        if let Some(link) = &self.latest {
            point(&output.folder.get(), link, &output.name)?;
        }
        Ok(output)
    }

    #[cfg(feature = "sighup")]
    fn reopen_flag(&self) -> Result<Option<Arc<AtomicBool>>> {
        if !self.on_sighup {
            return Ok(self.flag.clone());
        }
        let flag = self.flag.clone().unwrap_or_default();
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&flag))
            .map_err(|error| Error::new("listen for SIGHUP for", &self.path, error))?;
        Ok(Some(flag))
    }

    #[cfg(not(feature = "sighup"))]
    #[allow(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
    fn reopen_flag(&self) -> Result<Option<Arc<AtomicBool>>> {
        Ok(self.flag.clone())
    }
}

/// What a path leads to when its last name is a link, whether that is there or not.
fn follow(path: &Path) -> Result<Option<PathBuf>> {
    let mut path = path.to_path_buf();
    // As many as the kernel follows.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&path) else { return Ok(Some(path)) };
        let owner = std::fs::symlink_metadata(&path).map(|facts| Owner::of(&facts));
        let owner = owner.map_err(|error| Error::new("find", &path, error))?;
        if !owner.may_lead() {
            let why = format!("it is a symbolic link of another user ({})", owner.user);
            let error = Error::invalid("open log", &path, why);
            return Err(error.advise("root follows only links of root's; look who put it there"));
        }
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Ok(None)
}

/// Makes the link anew, at once; a file of that name that is no link is left alone.
fn point(directory: &OsDirectory, link: &str, name: &str) -> Result<()> {
    if directory.look(link)?.is_some_and(|named| !named.is_link) {
        let path = directory.path().join(link);
        return Err(Error::invalid("symlink", path, "there is a file of that name that is no link"));
    }
    let new = format!(".{link}.inkstone-new");
    let _ = directory.remove(&new);
    directory.make_link(&new, name)?;
    directory.rename(&new, link)
}
