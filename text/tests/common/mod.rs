//! Directories, lines and kills for tests of logs, waiting for conditions, and disks on real files
//! that can be stopped and made to fail.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use inkstone_appender::{
    AppendFacts, Builder, Disk, Error, Event, LogFile, LogWriter, OsDirectory, OsDisk, Recovery,
    Result, Rotation, Survive,
};
use inkstone_host::in_forked_child;

/// The length of the lines that [`put`] writes.
pub(crate) const LINE: usize = 120;
/// Longer than any wait here, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// The directory of stages.
pub(crate) const SHM: &str = "/dev/shm";

/// The most bytes of a bounded file.
pub(crate) const BOUND: u64 = 1000;

pub(crate) const EIO: i32 = 5;
pub(crate) const EACCES: i32 = 13;
pub(crate) const ENOSPC: i32 = 28;

/// One test at a time: a forked child must find no lock that another test holds.
static TURN: Mutex<()> = Mutex::new(());

/// The turn of a test that forks and needs a stage; `None`, printed loudly, if a stage is not
/// possible.
pub(crate) fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    if !Path::new(SHM).is_dir() {
        eprintln!("NOT RUN: {test}: there is no {SHM}");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The events of a log, as text; rotations are none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub(crate) fn hook(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
        let theirs = self.clone();
        move |event| theirs.push(event)
    }

    pub(crate) fn push(&self, event: &Event<'_>) {
        if !matches!(event, Event::Rotated { .. }) {
            self.0.lock().expect("no panic").push(event.to_string());
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    /// How many events have this in their text.
    pub(crate) fn count(&self, words: &str) -> usize {
        self.all().iter().filter(|told| told.contains(words)).count()
    }
}

/// A log whose lines go to the file at once, with its events.
pub(crate) fn quick(path: &Path) -> (Builder, Told) {
    let told = Told::default();
    (LogWriter::builder(path).flush_every(MS).on_event(told.hook()), told)
}

/// The same, and a kill loses no line.
pub(crate) fn kept(path: &Path) -> Builder {
    quick(path).0.survive(Survive::Kill)
}

/// With small buffers.
pub(crate) fn small(builder: Builder) -> Builder {
    builder.buffers_bytes(64 << 10)
}

/// With small buffers and files of 16 KiB.
pub(crate) fn rotating(path: &Path) -> Builder {
    small(LogWriter::builder(path)).rotate(Rotation::new().at_bytes(16 << 10))
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
}

pub(crate) fn set_modified(path: &Path, time: SystemTime) {
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(time).expect("dated");
}

/// A process that puts lines, and is killed before it has closed its log: a forked child that ends
/// when the disk has refused something.
pub(crate) fn killed(builder: Builder, disk: impl Disk, put: impl FnOnce(&LogWriter)) {
    let code = in_forked_child(|| {
        let (log, guard) = builder.open_on(disk).expect("opened");
        put(&log);
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
}

/// Opens the log and closes it.
pub(crate) fn next_start(builder: Builder) -> Option<Recovery> {
    let (_log, guard) = builder.open().expect("opened");
    let recovery = guard.recovery().cloned();
    guard.close().expect("closed");
    recovery
}

/// Asks for the log of another writer, which does not end.
pub(crate) fn is_refused(builder: Builder) -> bool {
    let refused = builder.drain_timeout(Duration::ZERO).open().expect_err("it is open");
    refused.to_string().contains("another writer")
}

pub(crate) fn error(code: i32) -> Error {
    Error::new("append", "a.log", io::Error::from_raw_os_error(code))
}

type Opening = dyn Fn(&OsDirectory, &str) -> Result<()> + Send + Sync;
type Appending = dyn Fn(&dyn LogFile, &[u8]) -> Result<usize> + Send + Sync;
type Doing = dyn Fn() -> Result<()> + Send + Sync;

/// A disk on real files, with what a test does before it opens one, and instead of appending and
/// syncing.
#[derive(Clone)]
pub(crate) struct Hooked {
    pub(crate) open: Arc<Opening>,
    pub(crate) append: Arc<Appending>,
    pub(crate) sync: Arc<Doing>,
}

impl Hooked {
    pub(crate) fn appending(
        append: impl Fn(&dyn LogFile, &[u8]) -> Result<usize> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(|_, _| Ok(())), append: Arc::new(append), sync: Arc::new(|| Ok(())) }
    }

    pub(crate) fn opening(
        self,
        open: impl Fn(&OsDirectory, &str) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), ..self }
    }
}

impl Disk for Hooked {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        (self.open)(directory, name)?;
        Ok(Box::new(HookedFile(OsDisk.open(directory, name)?, self.clone())))
    }
}

struct HookedFile(Box<dyn LogFile>, Hooked);

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file")
    }
}

impl LogFile for HookedFile {
    fn append(&self, bytes: &[u8]) -> Result<usize> {
        (self.1.append)(&*self.0, bytes)
    }

    fn facts(&self) -> Result<AppendFacts> {
        self.0.facts()
    }

    fn sync(&self) -> Result<()> {
        (self.1.sync)()
    }
}

/// How the disk behaves now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Works,
    /// Appending waits until this changes.
    Stopped,
    /// Appending fails with this error number.
    Fails(i32),
    /// Appending writes half of the bytes, rounded down, but at least one byte; then it fails.
    FailsHalfway(i32),
    /// A file takes [`BOUND`] bytes; then appending fails with this error number.
    FailsBeyond(i32),
    /// Syncing fails with this error number.
    FailsToSync(i32),
}

/// A disk whose mood changes.
#[derive(Debug, Clone)]
pub(crate) struct MoodyDisk(Arc<(Mutex<Moods>, Condvar)>);

#[derive(Debug)]
struct Moods {
    mood: Mood,
    calls: u64,
    syncs: u64,
    took_half: bool,
}

impl MoodyDisk {
    pub(crate) fn new(mood: Mood) -> Self {
        let moods = Moods { mood, calls: 0, syncs: 0, took_half: false };
        Self(Arc::new((Mutex::new(moods), Condvar::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Moods> {
        self.0.0.lock().expect("no panic")
    }

    pub(crate) fn set(&self, mood: Mood) {
        let mut moods = self.lock();
        (moods.mood, moods.took_half) = (mood, false);
        self.0.1.notify_all();
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// Waits until this many calls of append were made.
    pub(crate) fn wait_for_calls(&self, calls: u64) {
        let moods = self.0.1.wait_while(self.lock(), |moods| moods.calls < calls);
        drop(moods.expect("no panic"));
    }

    pub(crate) fn append(&self, file: &dyn LogFile, bytes: &[u8]) -> Result<usize> {
        let mut moods = self.lock();
        moods.calls += 1;
        self.0.1.notify_all();
        let mut moods =
            self.0.1.wait_while(moods, |moods| moods.mood == Mood::Stopped).expect("no panic");
        match moods.mood {
            Mood::Fails(code) => Err(error(code)),
            Mood::FailsHalfway(code) if moods.took_half => Err(error(code)),
            Mood::FailsHalfway(_) => {
                moods.took_half = true;
                file.append(&bytes[..(bytes.len() / 2).max(1)])
            }
            Mood::FailsBeyond(code) => {
                let room = usize::try_from(BOUND.saturating_sub(file.facts()?.len_bytes));
                match room.expect("small").min(bytes.len()) {
                    0 => Err(error(code)),
                    room => file.append(&bytes[..room]),
                }
            }
            Mood::Works | Mood::FailsToSync(_) | Mood::Stopped => file.append(bytes),
        }
    }

    fn sync(&self) -> Result<()> {
        let mut moods = self.lock();
        moods.syncs += 1;
        match moods.mood {
            Mood::FailsToSync(code) => {
                Err(Error::new("fdatasync", "a.log", io::Error::from_raw_os_error(code)))
            }
            _ => Ok(()),
        }
    }
}

impl Disk for MoodyDisk {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        let (appending, syncing) = (self.clone(), self.clone());
        let hooked = Hooked::appending(move |file, bytes| appending.append(file, bytes));
        Hooked { sync: Arc::new(move || syncing.sync()), ..hooked }.open(directory, name)
    }
}

/// The line number `line` of thread `thread`, of about this many bytes.
pub(crate) fn line(thread: usize, line: u64, bytes: usize) -> String {
    let text = format!("thread {thread} line {line} ");
    let filler = char::from(b'a' + (line % 26) as u8);
    let count = bytes.saturating_sub(text.len() + 5);
    text + &filler.to_string().repeat(count) + " end\n"
}

/// Those lines of thread 0, each of [`LINE`] bytes.
pub(crate) fn lines(numbers: Range<u64>) -> String {
    numbers.map(|number| line(0, number, LINE)).collect()
}

/// The numbers of the lines of a text by thread; checks that each is whole, there once, and in its
/// thread's order. `bytes`: how long a line of this number is. Returns the other lines too.
pub(crate) fn threads_of(
    text: &str,
    bytes: impl Fn(usize, u64) -> usize,
) -> ([Vec<u64>; 4], Vec<String>) {
    let (mut found, mut others) = (<[Vec<u64>; 4]>::default(), Vec::new());
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut");
    for one in text.lines() {
        let words: Vec<&str> = one.splitn(5, ' ').collect();
        let ["thread", thread, "line", number, ..] = words[..] else {
            others.push(one.to_owned());
            continue;
        };
        let (thread, number) =
            (thread.parse().expect("a thread"), number.parse().expect("a number"));
        assert!(format!("{one}\n") == line(thread, number, bytes(thread, number)), "torn: {one}");
        let before = found[thread].last();
        assert!(before.is_none_or(|last| *last < number), "{thread}: {number} after {before:?}");
        found[thread].push(number);
    }
    (found, others)
}

/// The numbers of the lines of thread 0, and the other lines.
pub(crate) fn numbers_of(text: &str) -> (Vec<u64>, Vec<String>) {
    let ([numbers, ..], others) = threads_of(text, |_, _| LINE);
    (numbers, others)
}

/// Checks that exactly these lines of thread 0 are there.
pub(crate) fn has_lines(text: &str, numbers: Range<u64>) {
    let (found, others) = numbers_of(text);
    assert!(found.iter().copied().eq(numbers.clone()), "{} of {numbers:?}", found.len());
    assert_eq!(others, [""; 0]);
}

/// All files of the log in order, oldest first: rotated ones (plain), then the current one.
pub(crate) fn files(folder: &Path, name: &str) -> Vec<(String, String)> {
    let mut names = names(folder);
    names.retain(|other| other.starts_with(&format!("{name}.")));
    names.sort_by_key(|name| {
        let (stamp, number) = name.rsplit_once('.').expect("a number");
        (stamp.to_owned(), number.parse::<u64>().ok())
    });
    names.push(name.to_owned());
    names.into_iter().map(|name| (name.clone(), read(&folder.join(name)))).collect()
}

/// The text of those files.
pub(crate) fn all_text(folder: &Path, name: &str) -> String {
    files(folder, name).into_iter().map(|(_, text)| text).collect()
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("text")
}

/// Another program appends to the file.
pub(crate) fn append(path: &Path, text: &str) {
    let mut file = fs::File::options().append(true).open(path).expect("open");
    file.write_all(text.as_bytes()).expect("written");
}

/// A directory, and the path of a log in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    (directory, path)
}

/// The names in a directory, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a directory");
    let entries = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().expect("text")).collect();
    names.sort_unstable();
    names
}

/// Waits until the condition holds.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LONG, "{what} did not come");
        std::thread::sleep(MS);
    }
}

/// Puts a line, or what a program takes for one.
pub(crate) fn say(log: &LogWriter, text: impl AsRef<[u8]>) {
    (&mut &*log).write_all(text.as_ref()).expect("accepted");
}

/// Puts these lines of thread 0, each of [`LINE`] bytes.
pub(crate) fn put(log: &LogWriter, numbers: Range<u64>) {
    numbers.for_each(|number| say(log, line(0, number, LINE)));
}

/// The stages in this directory.
pub(crate) fn stages_in(directory: &Path) -> Vec<PathBuf> {
    let mut names = names(directory);
    names.retain(|name| name.starts_with("inkstone-"));
    names.iter().map(|name| directory.join(name)).collect()
}

/// The stage file of the only log whose stage directory this is.
pub(crate) fn stage_in(directory: &Path) -> PathBuf {
    let stages = stages_in(directory);
    assert_eq!(stages.len(), 1, "{stages:?}");
    stages.into_iter().next().expect("one")
}

/// A directory in memory for stages.
pub(crate) fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in(SHM).expect("a directory")
}
