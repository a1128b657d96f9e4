//! Directories and lines for tests of logs, waiting for conditions, and a disk on real files that
//! can be stopped and made to fail.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use inkstone_appender::{
    AppendFacts, Disk, Error, LogFile, LogWriter, OsDirectory, OsDisk, Result,
};
use inkstone_io::Directory as _;

/// The length of the lines that [`put`] writes.
pub(crate) const LINE: usize = 120;
/// Longer than any wait here, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// The directory of stages.
pub(crate) const SHM: &str = "/dev/shm";

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
    /// Syncing fails with this error number.
    FailsToSync(i32),
}

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
        Self(Arc::new((
            Mutex::new(Moods { mood, calls: 0, syncs: 0, took_half: false }),
            Condvar::new(),
        )))
    }

    pub(crate) fn set(&self, mood: Mood) {
        let mut moods = self.0.0.lock().expect("no panic");
        (moods.mood, moods.took_half) = (mood, false);
        self.0.1.notify_all();
    }

    /// Calls of append, including those that wait.
    pub(crate) fn calls(&self) -> u64 {
        self.0.0.lock().expect("no panic").calls
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.0.0.lock().expect("no panic").syncs
    }

    /// Waits until this many calls of append were made.
    pub(crate) fn wait_for_calls(&self, calls: u64) {
        let mut moods = self.0.0.lock().expect("no panic");
        while moods.calls < calls {
            moods = self.0.1.wait(moods).expect("no panic");
        }
    }
}

impl Disk for MoodyDisk {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        let path = directory.path().join(name);
        Ok(Box::new(MoodyFile { inner: OsDisk.open(directory, name)?, path, disk: self.clone() }))
    }
}

#[derive(Debug)]
struct MoodyFile {
    inner: Box<dyn LogFile>,
    path: PathBuf,
    disk: MoodyDisk,
}

impl LogFile for MoodyFile {
    fn append(&self, bytes: &[u8]) -> Result<usize> {
        let (moods, changed) = &*self.disk.0;
        let mut moods = moods.lock().expect("no panic");
        moods.calls += 1;
        changed.notify_all();
        while moods.mood == Mood::Stopped {
            moods = changed.wait(moods).expect("no panic");
        }
        match moods.mood {
            Mood::Fails(code) => Err(self.error("append", code)),
            Mood::FailsHalfway(code) if moods.took_half => Err(self.error("append", code)),
            Mood::FailsHalfway(_) => {
                moods.took_half = true;
                self.inner.append(&bytes[..(bytes.len() / 2).max(1)])
            }
            Mood::Works | Mood::FailsToSync(_) | Mood::Stopped => self.inner.append(bytes),
        }
    }

    fn facts(&self) -> Result<AppendFacts> {
        self.inner.facts()
    }

    fn sync(&self) -> Result<()> {
        let mut moods = self.disk.0.0.lock().expect("no panic");
        moods.syncs += 1;
        match moods.mood {
            Mood::FailsToSync(code) => Err(self.error("fdatasync", code)),
            _ => Ok(()),
        }
    }
}

impl MoodyFile {
    fn error(&self, what: &'static str, code: i32) -> Error {
        Error::new(what, &self.path, io::Error::from_raw_os_error(code))
    }
}

/// The line number `line` of thread `thread`, of about this many bytes.
pub(crate) fn line(thread: usize, line: u64, bytes: usize) -> String {
    let mut text = format!("thread {thread} line {line} ");
    while text.len() + 5 < bytes {
        text.push(char::from(b'a' + (line % 26) as u8));
    }
    text.push_str(" end\n");
    text
}

/// The lines of a text by thread; checks that each is whole, there once, and in its thread's order.
/// Returns the other lines too.
pub(crate) fn check_lines(text: &str, bytes: usize) -> (BTreeMap<usize, Vec<u64>>, Vec<String>) {
    let (mut lines, mut others) = (BTreeMap::<usize, Vec<u64>>::new(), Vec::new());
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut");
    for found in text.lines() {
        let mut words = found.split(' ');
        let numbers = (words.next(), words.next(), words.next(), words.next());
        let (Some("thread"), Some(thread), Some("line"), Some(number)) = numbers else {
            others.push(found.to_owned());
            continue;
        };
        let (thread, number) =
            (thread.parse().expect("a thread"), number.parse().expect("a number"));
        assert_eq!(format!("{found}\n"), line(thread, number, bytes), "a line is torn");
        let before = lines.entry(thread).or_default();
        assert!(
            before.last().is_none_or(|last| *last < number),
            "thread {thread}: {number} after {:?}",
            before.last()
        );
        before.push(number);
    }
    (lines, others)
}

/// All files of the log in order, oldest first: rotated ones (plain), then the current one.
pub(crate) fn all_text(folder: &Path, name: &str) -> String {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .filter(|other| other.starts_with(&format!("{name}.")))
        .collect();
    let key = |name: &String| {
        let (stamp, number) = name.rsplit_once('.').expect("a number");
        (stamp.to_owned(), number.parse::<u64>().expect("a number"))
    };
    names.sort_by_key(key);
    names.push(name.to_owned());
    names.iter().map(|name| std::fs::read_to_string(folder.join(name)).expect("text")).collect()
}

/// A directory, and the path of a log in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    (directory, path)
}

/// The names in a directory, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a directory");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort_unstable();
    names
}

/// Waits until the condition holds.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LONG, "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Writes these lines of thread 0, each of [`LINE`] bytes.
pub(crate) fn put(log: &LogWriter, numbers: Range<u64>) {
    for number in numbers {
        (&mut &*log).write_all(line(0, number, LINE).as_bytes()).expect("accepted");
    }
}

/// The stage file of a log whose stage directory is `parent`: the one whose head has the log's
/// path; where it will be, if there is none.
pub(crate) fn stage_of(parent: &Path, log: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;
    let mine = std::fs::metadata("/proc/self").expect("this process").uid();
    let name = log.file_name().expect("a name").to_string_lossy();
    let own = parent.join(format!("inkstone-{mine}"));
    let wanted = log.as_os_str().as_bytes();
    let is_its = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes[..bytes.len().min(8192)].windows(wanted.len()).any(|window| window == wanted)
    };
    let entries = std::fs::read_dir(&own).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).find(is_its).unwrap_or_else(|| own.join(format!("{name}.0")))
}
