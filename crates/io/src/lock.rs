//! The exclusive lock on a file, by open file description: one holder among all processes and
//! threads.
//!
//! *Owns*: the lock file's descriptor, its name, the note in it, and the holder's shared page, to
//! which the note leads. *May not touch*: other files; whether a lock means a writer; what is
//! published.
//!
//! The lock is on a file, and a name can be given to another file: a cleaner removes it, a restore
//! replaces it. So the directory itself can be locked, too (`directory_lock.rs`), and a holder can
//! compare the name with its file.
//!
//! A traditional record lock belongs to the process and is lost when the process closes *any*
//! descriptor of the file; `flock` is emulated by record locks on some network file systems. A lock
//! of the open file description has neither flaw, and `F_OFD_GETLK` asks for its holder without
//! taking it. A forked child would keep it if its copy of the descriptor were not replaced
//! (`lock_table.rs`).

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::fork::ForkMark;
use crate::held::Held;
use crate::lock_table::{Entry, while_no_fork};
use crate::seam::Lock;
use crate::size_signal::NoSizeSignal;
use crate::sys::{self, LockedBytes};
use crate::transfer::retry;
use crate::{SharedPage, SharedPageReader};

/// The longest note that is read.
const NOTE_MAX_BYTES: usize = 100;
/// The text for a holder that left no note.
const NO_NOTE: &str = "another process";
/// How often the lock is taken anew because its file was removed between opening and locking.
const ATTEMPTS: u32 = 10;

/// An open file whose open file description has an exclusive lock; released when dropped, and not
/// kept by a forked child.
#[derive(Debug)]
pub(crate) struct LockedFile {
    // Dropped after the entry was removed from the table.
    file: File,
    entry: Entry,
    /// A forked child must not release its parent's lock.
    mark: ForkMark,
}

impl LockedFile {
    /// Opens a file and locks these bytes of it, without waiting; `None` if another holder has any
    /// of them.
    pub(crate) fn take(
        path: &Path,
        bytes: LockedBytes,
        mark: ForkMark,
        mut open: impl FnMut() -> Result<File>,
    ) -> Result<Option<Self>> {
        while_no_fork(|| {
            let file = open()?;
            let entry = Entry::of(file.as_raw_fd());
            let locked = Self { file, entry, mark };
            // Dropped below, it unlocks a lock that it does not hold, which does nothing.
            match retry(|| locked.lock(bytes)) {
                Ok(true) => Ok(Some(locked)),
                Ok(false) => Ok(None),
                Err(source) => Err(no_locks(path, source)),
            }
        })
    }

    /// False: another holder has any of the bytes. SMB answers `EACCES` then, and so does a
    /// security module (AppArmor, SELinux) that lets this process take no lock at all. The two
    /// differ: in the second case no lock is in the way.
    fn lock(&self, bytes: LockedBytes) -> io::Result<bool> {
        let attempt = || sys::set_description_lock(self.file.as_fd(), bytes, true);
        let is_refused = |error: &io::Error| error.raw_os_error() == Some(libc::EACCES);
        let mut answer = attempt();
        if answer.as_ref().is_err_and(is_refused) {
            if matches!(sys::lock_in_the_way(self.file.as_fd(), bytes), Ok(Some(_))) {
                return Ok(false);
            }
            // The holder may have ended in between.
            answer = attempt();
        }
        match answer {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // In a child the descriptor is not that of the lock any more, and its entry may belong to a
        // lock of the child.
        if self.mark.is_child() {
            return;
        }
        // Closing is not enough: a process that was made without the C library's `fork` may share
        // the open file description.
        let _ = retry(|| sys::set_description_lock(self.file.as_fd(), LockedBytes::All, false));
        self.entry.forget();
    }
}

/// The page on which a holder publishes, which says at the end that it has ended.
#[derive(Debug)]
struct OwnPage(Arc<SharedPage>, ForkMark);

impl Drop for OwnPage {
    fn drop(&mut self) {
        if !self.1.is_child() {
            self.0.end();
        }
    }
}

/// The exclusive lock on a file; released when dropped.
#[derive(Debug)]
pub struct OsLock {
    // Released before the own_page ends.
    locked: LockedFile,
    held: Arc<Held>,
    name: String,
    path: PathBuf,
    /// Where the holder publishes to other processes; the note leads to it.
    own_page: Option<OwnPage>,
}

impl OsLock {
    /// The file that is locked.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The page on which its holder publishes to other processes, if this system has such pages.
    pub(crate) fn shared_page(&self) -> Option<&Arc<SharedPage>> {
        self.own_page.as_ref().map(|own_page| &own_page.0)
    }

    /// `None` if another holder has the file. A new file is given to whom it belongs.
    pub(crate) fn take(
        held: &Arc<Held>,
        name: &str,
        mode: u32,
        mark: ForkMark,
        give: &dyn Fn(&File) -> Result<()>,
    ) -> Result<Option<Self>> {
        let path = held.join(name);
        let open = || open_or_create(held, name, mode, give);
        let mut attempts = 0;
        let locked = loop {
            let Some(locked) = LockedFile::take(&path, LockedBytes::All, mark, open)? else {
                return Ok(None);
            };
            attempts += 1;
            if attempts == ATTEMPTS || !matches!(held.is_name_of(name, &locked.file), Ok(false)) {
                break locked;
            }
        };
        let shared_page = SharedPage::of(&locked.file, mark).map(Arc::new);
        let lock = Self {
            locked,
            held: Arc::clone(held),
            name: name.to_owned(),
            path,
            own_page: shared_page.map(|shared_page| OwnPage(shared_page, mark)),
        };
        lock.leave_note();
        Ok(Some(lock))
    }

    /// The note is for people, and its second line for readers of the shared page, who can do
    /// without. So writing it may fail: a full disk has no block for it. Then an old note is
    /// removed. Other content belongs to the user and stays; a lock needs no bytes.
    fn leave_note(&self) {
        if !matches!(content(self.locked.file()), Content::Nothing | Content::Note { .. }) {
            return;
        }
        let _no_signal = NoSizeSignal::here();
        let mut note = format!("process {}\n", std::process::id());
        if let Some(shared_page) = self.shared_page() {
            note.push_str(&format!("{}\n", shared_page.descriptor()));
        }
        let is_left = retry(|| self.locked.file().write_all_at(note.as_bytes(), 0)).is_ok();
        let len = if is_left { note.len() as u64 } else { 0 };
        // Written first, shortened after that: a reader in between finds the note in the first
        // line.
        let _ = retry(|| self.locked.file().set_len(len));
    }
}

fn open_or_create(
    held: &Held,
    name: &str,
    mode: u32,
    give: &dyn Fn(&File) -> Result<()>,
) -> Result<File> {
    let open = |flags| held.open_file(name, OFlags::RDWR | flags, mode);
    let opened = match open(OFlags::empty()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match open(OFlags::CREATE | OFlags::EXCL) {
                Ok(file) => return give(&file).map(|()| file),
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => open(OFlags::empty()),
                refused => refused,
            }
        }
        opened => opened,
    };
    opened.map_err(|source| {
        let no_file = [ErrorKind::InvalidData, ErrorKind::IsADirectory];
        let is_no_file = no_file.contains(&source.kind());
        let error = held.failed("open lock", name, source);
        if is_no_file || held.is_removed() {
            error
        } else {
            error.advise("choose a directory that you may write to")
        }
    })
}

impl Lock for OsLock {
    fn check_named(&self) -> Result<()> {
        if !matches!(self.held.is_name_of(&self.name, self.locked.file()), Ok(false)) {
            return Ok(());
        }
        let (what, advice) = if self.held.is_removed() {
            (
                "its directory was removed while it was open",
                "close it, and open it again by a path that exists",
            )
        } else {
            (
                "the lock file was removed, moved or replaced while it was locked, so another \
                 writer may have come",
                "close it, see that nothing else writes to the directory, and open it again",
            )
        };
        Err(Error::new("check lock", &self.path, io::Error::other(what)).advise(advice))
    }
}

/// The holder of the lock on the file, in words; `None` if it is free.
pub(crate) fn holder(held: &Held, name: &str) -> Result<Option<String>> {
    let file = match held.open_file(name, OFlags::RDONLY, 0) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let is_forbidden = source.kind() == ErrorKind::PermissionDenied;
            let error = held.failed("open lock", name, source);
            return Err(match is_forbidden {
                true => error.advise("ask as a user who may read the lock file"),
                false => error,
            });
        }
    };
    let in_the_way = retry(|| sys::lock_in_the_way(file.as_fd(), LockedBytes::All))
        .map_err(|source| no_locks(&held.join(name), source))?;
    Ok(in_the_way.map(|lock| in_words(&file, &held.join(name), lock)))
}

/// The holder in words. A log takes neither a read lock nor a traditional record lock: then the
/// note is not that of the holder.
fn in_words(file: &File, path: &Path, lock: sys::LockInTheWay) -> String {
    let sys::LockInTheWay { is_to_read, process } = lock;
    if !is_to_read && process.is_none() {
        return note_in(file);
    }
    let who = process.map_or_else(|| NO_NOTE.to_owned(), |process| format!("process {process}"));
    let kind = if is_to_read { "a read lock" } else { "a lock of its own" };
    format!(
        "{who}, which is not a writer but holds {kind} on {} (`lslocks` shows it)",
        path.display()
    )
}

/// The page on which the process publishes that the note names.
pub(crate) fn shared_page_of_holder(held: &Arc<Held>, name: &str) -> Option<SharedPageReader> {
    let file = held.open_file(name, OFlags::RDONLY, 0).ok()?;
    match content(&file) {
        Content::Note { process, descriptor: Some(descriptor) } => {
            SharedPageReader::open(process, descriptor, &file, held, name)
        }
        _ => None,
    }
}

/// What a lock file holds.
enum Content {
    /// No bytes, or only zeros, which a power cut leaves if a note was not written back.
    Nothing,
    Note {
        process: u32,
        descriptor: Option<u32>,
    },
    SomebodysOwn,
}

fn content(file: &File) -> Content {
    let mut bytes = [0; NOTE_MAX_BYTES];
    let Ok(count) = retry(|| file.read_at(&mut bytes, 0)) else { return Content::SomebodysOwn };
    let bytes = &bytes[..count];
    if count == NOTE_MAX_BYTES {
        return Content::SomebodysOwn;
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Content::Nothing;
    }
    // After it may be the end of a longer note, of a process that was killed before it could
    // shorten the file.
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let line = lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    let process = line.strip_prefix("process ").and_then(|number| number.parse().ok());
    match process {
        Some(process) if lines.clone().flatten().all(u8::is_ascii_digit) => {
            let second = lines.next().and_then(|line| std::str::from_utf8(line).ok());
            Content::Note { process, descriptor: second.and_then(|number| number.parse().ok()) }
        }
        _ => Content::SomebodysOwn,
    }
}

/// The file may hold anything: only a note is shown.
fn note_in(file: &File) -> String {
    match content(file) {
        Content::Note { process, .. } => format!("process {process}"),
        Content::Nothing | Content::SomebodysOwn => NO_NOTE.to_owned(),
    }
}

fn no_locks(path: &Path, source: io::Error) -> Error {
    Error::new("lock", path, source).advise(
        "choose a directory on a file system with record locks, and let this program lock files \
         (AppArmor: `k`)",
    )
}
