//! A file that ends in the middle of a buffer, because it may not grow any more, or was moved away
//! while its disk was full. And the counts in that case.

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LINE, LONG, Mood, MoodyDisk, all_text, line, names, place, put, turn, wait_until};
use inkstone_appender::{
    AppendFacts, Builder, Disk, Error, Event, LogFile, LogWriter, OsDirectory, OsDisk, Result,
    Rotation, Survive,
};
use inkstone_host::in_forked_child;

const ENOSPC: i32 = 28;
const EFBIG: i32 = 27;
/// The most bytes of a bounded file.
const BOUND: u64 = 1000;

/// Files that take [`BOUND`] bytes each, and then fail with the error number for the first, the
/// second and so on; files without an error number take everything.
#[derive(Clone)]
struct BoundedDisk {
    code_of: fn(usize) -> Option<i32>,
    seen: Arc<Mutex<Vec<u64>>>,
    is_over: Arc<AtomicBool>,
}

impl BoundedDisk {
    fn new(code_of: fn(usize) -> Option<i32>) -> Self {
        Self { code_of, seen: Arc::default(), is_over: Arc::default() }
    }

    fn all() -> Self {
        Self::new(|_| Some(EFBIG))
    }

    fn first() -> Self {
        Self::new(|file| (file == 0).then_some(EFBIG))
    }
}

impl Disk for BoundedDisk {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        Ok(Box::new(BoundedFile(OsDisk.open(directory, name)?, self.clone())))
    }
}

struct BoundedFile(Box<dyn LogFile>, BoundedDisk);

impl std::fmt::Debug for BoundedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a file")
    }
}

impl LogFile for BoundedFile {
    fn append(&self, bytes: &[u8]) -> Result<usize> {
        let facts = self.0.facts()?;
        let mut seen = self.1.seen.lock().expect("no panic");
        if !seen.contains(&facts.inode) {
            seen.push(facts.inode);
        }
        let file = seen.iter().position(|inode| *inode == facts.inode).expect("it was seen");
        let code = (self.1.code_of)(file).filter(|_| !self.1.is_over.load(Ordering::Relaxed));
        let Some(code) = code else { return self.0.append(bytes) };
        let room = usize::try_from(BOUND.saturating_sub(facts.len_bytes)).expect("small");
        if room == 0 {
            let source = std::io::Error::from_raw_os_error(code);
            return Err(Error::new("append", "a bounded file", source));
        }
        self.0.append(&bytes[..room.min(bytes.len())])
    }

    fn facts(&self) -> Result<AppendFacts> {
        self.0.facts()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
}

type Told = Arc<Mutex<Vec<String>>>;

/// With buffers of which one alone is more than a bounded file takes.
fn builder(path: &Path) -> (Builder, Told) {
    let told = Told::default();
    let theirs = Arc::clone(&told);
    let builder = LogWriter::builder(path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
    let builder =
        builder.flush_every(Duration::from_millis(1)).on_event(move |event: &Event<'_>| {
            if !matches!(event, Event::Rotated { .. }) {
                theirs.lock().expect("no panic").push(event.to_string());
            }
        });
    (builder, told)
}

fn rotated() -> Rotation {
    Rotation::new().at_bytes(1 << 20)
}

/// The log's files, by name.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let read = |name: String| {
        let text = std::fs::read_to_string(folder.join(&name)).expect("text");
        (name, text)
    };
    names(folder).into_iter().map(read).collect()
}

/// Each line is there whole, once and in order. Apart from that there are only beginnings of lines,
/// each at the end of a file, with the whole line at the beginning of the next one.
fn check(folder: &Path, count: u64) {
    let mut whole = Vec::new();
    let (mut texts, mut half): (Vec<_>, Option<String>) =
        (files(folder).into_iter().collect(), None);
    // The current one is the last.
    let number = |name: &str| {
        name.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
    };
    texts.sort_by_key(|(name, _)| {
        (
            name == "a.log",
            name[..name.len().min("a.log.20261121T160533Z".len())].to_owned(),
            number(name),
        )
    });
    for (name, text) in texts {
        assert!(
            text.starts_with(half.as_deref().unwrap_or_default()),
            "{name}: {half:?} is not whole: {text}"
        );
        half = None;
        for found in text.split_inclusive('\n') {
            if found.ends_with('\n') {
                whole.push(found.to_owned());
            } else {
                half = Some(found.to_owned());
            }
        }
    }
    assert_eq!(half, None, "the log ends within a line");
    let expected: Vec<String> = (0..count).map(|number| line(0, number, LINE)).collect();
    assert!(whole == expected, "{} of {count}: {whole:#?}", whole.len());
}

/// `ulimit -f`: a file that may not grow any more is ended, if files are rotated.
#[test]
fn a_file_at_its_limit_is_rotated_and_the_line_that_it_cut_is_whole_in_the_next() {
    for rotation in
        [rotated(), Rotation::new().every(Duration::from_secs(86_400)), Rotation::new().at_start()]
    {
        let (directory, path) = place();
        let (builder, told) = builder(&path);
        let disk = BoundedDisk::all();
        let (log, guard) = builder.rotate(rotation).open_on(disk).expect("opened");
        put(&log, 0..100);
        guard.flush(LONG).expect("lines go on");
        guard.close().expect("closed");
        check(path.parent().expect("a directory"), 100);
        let stats = log.stats();
        assert_eq!(
            (stats.written_lines, stats.unwritten_lines, stats.written_bytes),
            (100, 0, stats.bytes)
        );
        assert!(stats.rotations >= 12, "{stats:?}");
        let told = told.lock().expect("no panic");
        assert!(told.len() == 1 && told[0].contains("File too large"), "once: {told:?}");
        drop(directory);
    }
}

/// A user who moves away a full file wants the lines to continue in a new one.
#[test]
fn a_file_that_takes_no_more_ends_when_it_was_moved_away_and_is_opened_again() {
    let full = BoundedDisk::new(|file| (file == 0).then_some(ENOSPC));
    for disk in [BoundedDisk::first(), full] {
        let (_directory, path) = place();
        let (builder, _told) = builder(&path);
        let (log, guard) = builder.open_on(disk).expect("opened");
        put(&log, 0..100);
        wait_until("a failure", || log.stats().write_errors > 0);
        let moved = path.with_file_name("a.log.1");
        std::fs::rename(&path, &moved).expect("moved");
        log.reopen();
        guard.flush(LONG).expect("lines go on");
        guard.close().expect("closed");
        assert_eq!(std::fs::metadata(&moved).expect("there").len(), BOUND);
        check(path.parent().expect("a directory"), 100);
        assert_eq!(
            (log.stats().written_lines, log.stats().written_bytes),
            (100, log.stats().bytes)
        );
    }
}

/// A line whose beginning is in no buffer continues where it was cut: each byte is there once.
#[test]
fn a_line_longer_than_a_buffer_goes_on_in_the_next_file() {
    for is_rotated in [true, false] {
        let (_directory, path) = place();
        let folder = path.parent().expect("a directory");
        let disk = if is_rotated { BoundedDisk::all() } else { BoundedDisk::first() };
        let (builder, _told) = builder(&path);
        let builder = builder.rotate(if is_rotated { rotated() } else { Rotation::new() });
        let (mut log, guard) = builder.open_on(disk).expect("opened");
        // Cut in the middle, and one that fits into no file.
        let lines = [vec![b'a'; 800], vec![b'b'; 9000], vec![b'c'; 3000], vec![b'd'; 100]];
        let lines: Vec<Vec<u8>> =
            lines.into_iter().map(|line| [line, b"\n".to_vec()].concat()).collect();
        for line in &lines {
            log.write_all(line).expect("accepted");
        }
        if !is_rotated {
            wait_until("a failure", || log.stats().write_errors > 0);
            std::fs::rename(&path, folder.join("a.log.1")).expect("moved");
            log.reopen();
        }
        guard.flush(LONG).expect("lines go on");
        guard.close().expect("closed");
        let all = if is_rotated {
            all_text(folder, "a.log")
        } else {
            files(folder).values().rev().cloned().collect::<String>()
        };
        let count = |byte: char| all.chars().filter(|found| *found == byte).count();
        let (whole, extra) = (['a', 'd'].map(count), ['b', 'c'].map(count));
        assert_eq!(whole, [800, 100]);
        // A beginning that fitted into a file after other lines is there twice.
        assert!(
            (9000..10_000).contains(&extra[0]) && (3000..4000).contains(&extra[1]),
            "{extra:?}"
        );
        assert!(files(folder).values().all(|text| text.len() as u64 <= BOUND) || !is_rotated);
        assert_eq!((log.stats().written_lines, log.stats().written_bytes), (4, log.stats().bytes));
    }
}

/// There is no next file, so this is a failure like any other.
#[test]
fn a_file_at_its_limit_stays_where_nobody_wants_another() {
    let (directory, path) = place();
    let (builder, told) = builder(&path);
    let disk = BoundedDisk::first();
    let (log, guard) = builder.open_on(disk.clone()).expect("opened");
    put(&log, 0..100);
    wait_until("failures", || log.stats().write_errors > 2);
    assert_eq!(told.lock().expect("no panic").len(), 1);
    disk.is_over.store(true, Ordering::Relaxed);
    guard.close().expect("closed");
    check(path.parent().expect("a directory"), 100);
    drop(directory);
}

/// A process that puts these lines, and is killed when the disk accepts no more.
fn killed(path: &Path, disk: &BoundedDisk, rotation: Rotation) {
    let code = in_forked_child(|| {
        let builder = builder(path).0.survive(Survive::Kill).rotate(rotation);
        let (log, guard) = builder.open_on(disk.clone()).expect("opened");
        put(&log, 0..100);
        wait_until("a failure", || log.stats().write_errors > 0);
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
}

/// Lines of a killed process for a file that may not grow any more: a start that rotates ends it;
/// if it was moved away, that is not needed.
#[test]
fn a_start_with_lines_for_a_file_at_its_limit_goes_on_in_the_next_one() {
    let Some(_turn) = turn("lines for a file at its limit") else { return };
    for is_moved in [false, true] {
        let (_directory, path) = place();
        let disk = BoundedDisk::first();
        killed(&path, &disk, Rotation::new());
        let disk = BoundedDisk::all();
        let refused = builder(&path).0.survive(Survive::Kill).open_on(disk.clone());
        assert!(
            refused.expect_err("no other file is wanted").to_string().contains("stay in memory")
        );
        let rotation = if is_moved { Rotation::new() } else { rotated() };
        let disk = if is_moved { BoundedDisk::first() } else { disk };
        if is_moved {
            std::fs::rename(&path, path.with_file_name("a.log.1")).expect("moved");
        }
        let builder = builder(&path).0.survive(Survive::Kill).rotate(rotation);
        let (_log, guard) = builder.open_on(disk).expect("it goes on in another file");
        guard.close().expect("closed");
        check(path.parent().expect("a directory"), 100);
    }
}

/// Killed after the end of a file in the middle of a buffer: the bytes in the previous file are not
/// written again.
#[test]
fn a_kill_behind_such_an_end_doubles_no_line() {
    let Some(_turn) = turn("a kill behind a file that ended within a buffer") else { return };
    let (_directory, path) = place();
    let disk = BoundedDisk::new(|file| [Some(EFBIG), Some(ENOSPC)].get(file).copied().flatten());
    killed(&path, &disk, rotated());
    let (_log, guard) = builder(&path).0.survive(Survive::Kill).open().expect("opened");
    guard.close().expect("closed");
    check(path.parent().expect("a directory"), 100);
}

/// Exactly those lines count whose last byte is not in the file, even if a call is not a line.
#[test]
fn lines_of_a_buffer_that_was_written_in_part_are_counted_by_their_last_byte() {
    let of_several = "one call\nof two lines\n";
    for (lines, panics) in [
        (vec!["first\n", "a line that is much longer than the first\n", "last\n"], false),
        (vec!["first\n", "a line that is much longer than the first\n", "last\n"], true),
        // The input ended within a line.
        (vec!["first\n", "a line that is much longer than the first\n", "last"], false),
        (vec![of_several, of_several, of_several], false),
        (vec!["no", "ends", "at", "all"], false),
    ] {
        let (_directory, path) = place();
        let disk = MoodyDisk::new(Mood::Stopped);
        let (builder, _told) = builder(&path);
        let builder = builder.flush_every(LONG).drain_timeout(Duration::ZERO);
        let (mut log, guard) = if panics {
            builder.open_on(Panicking(disk.clone())).expect("opened")
        } else {
            builder.open_on(disk.clone()).expect("opened")
        };
        for line in &lines {
            log.write_all(line.as_bytes()).expect("accepted");
        }
        disk.set(Mood::FailsHalfway(ENOSPC));
        let error = guard.close().expect_err("it fails").to_string();
        let written = std::fs::read_to_string(&path).expect("text");
        let (mut count, mut end) = (0, 0);
        let is_a_line = |text: &&str| text.find('\n') == Some(text.len() - 1);
        let are_lines = lines[..lines.len() - 1].iter().all(is_a_line);
        while are_lines && end + lines[count as usize].len() <= written.len() {
            (count, end) = (count + 1, end + lines[count as usize].len());
        }
        let stats = log.stats();
        assert_eq!(count > 0, are_lines, "{written}");
        assert!(count < lines.len() as u64, "{written}");
        assert_eq!(
            (stats.written_lines, stats.written_bytes),
            (count, end as u64),
            "{lines:?}: {written}"
        );
        assert_eq!(stats.unwritten_lines, lines.len() as u64 - count);
        if !panics {
            assert!(
                error.starts_with(&format!("{} lines were not written", stats.unwritten_lines)),
                "{error}"
            );
        }
    }
}

/// Fails by a panic.
#[derive(Clone)]
struct Panicking(MoodyDisk);

impl Disk for Panicking {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        Ok(Box::new(PanickingFile(self.0.open(directory, name)?)))
    }
}

#[derive(Debug)]
struct PanickingFile(Box<dyn LogFile>);

impl LogFile for PanickingFile {
    fn append(&self, bytes: &[u8]) -> Result<usize> {
        Ok(self.0.append(bytes).expect("it does not fail"))
    }

    fn facts(&self) -> Result<AppendFacts> {
        self.0.facts()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
}

/// One that is longer than a buffer is not written, and not written, at once.
#[test]
fn a_long_line_whose_end_is_not_in_the_file_counts_as_not_written() {
    let (_directory, path) = place();
    let (builder, _told) = builder(&path);
    let disk = BoundedDisk::new(|_| Some(ENOSPC));
    let (mut log, guard) =
        builder.drain_timeout(Duration::ZERO).open_on(disk.clone()).expect("opened");
    disk.is_over.store(true, Ordering::Relaxed);
    log.write_all(b"first\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    disk.is_over.store(false, Ordering::Relaxed);
    let mut long = log.begin_line().expect("begun");
    long.push(&[b'x'; 900]).expect("accepted");
    wait_until("its beginning in the file", || {
        std::fs::metadata(&path).expect("there").len() == 906
    });
    let stats = log.stats();
    assert_eq!(
        (stats.lines, stats.written_lines, stats.written_bytes),
        (2, 1, 6),
        "it has not ended"
    );
    long.push(&[b'x'; 900]).expect("accepted");
    long.end().expect("ended");
    log.write_all(b"last\n").expect("accepted");
    wait_until("a failure", || log.stats().write_errors > 0);
    assert!(guard.close().is_err());
    let stats = log.stats();
    assert_eq!(
        (stats.lines, stats.written_lines, stats.unwritten_lines, stats.written_bytes),
        (3, 1, 2, 6)
    );
}
