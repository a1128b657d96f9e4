//! A file that ends in the middle of a buffer, because it may not grow any more (`ulimit -f`), or
//! was moved away while its disk was full. And the counts in that case.
//!
//! This program also starts itself with such a limit: a write beyond it raises a signal that ends a
//! process by default, but must not end it here.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    DAY, EFBIG, ENOSPC, Hooked, LINE, LONG, MS, Mood, MoodyDisk, SHM, Told, error, files, killed,
    line, place, put, quick, read, say, small, stage_of, turn, wait_until,
};
use inkstone_appender::{Builder, LogWriter, Rotation, Survive};

/// The most bytes of a bounded file.
const BOUND: u64 = 1000;

/// Files that take [`BOUND`] bytes each, and then fail with the error number for the first, the
/// second and so on; files without an error number take everything, and so do all once it is over.
fn bounded(code_of: fn(usize) -> Option<i32>) -> (Hooked, Arc<AtomicBool>) {
    let (seen, is_over) = (Mutex::new(Vec::<u64>::new()), Arc::new(AtomicBool::new(false)));
    let theirs = Arc::clone(&is_over);
    let disk = Hooked::appending(move |file, bytes| {
        let facts = file.facts()?;
        let mut seen = seen.lock().expect("no panic");
        if !seen.contains(&facts.inode) {
            seen.push(facts.inode);
        }
        let number = seen.iter().position(|inode| *inode == facts.inode).expect("it was seen");
        let code = code_of(number).filter(|_| !theirs.load(Ordering::Relaxed));
        let Some(code) = code else { return file.append(bytes) };
        let room = usize::try_from(BOUND.saturating_sub(facts.len_bytes)).expect("small");
        if room == 0 { Err(error(code)) } else { file.append(&bytes[..room.min(bytes.len())]) }
    });
    (disk, is_over)
}

fn all_bounded() -> Hooked {
    bounded(|_| Some(EFBIG)).0
}

fn first_bounded() -> Hooked {
    bounded(|file| (file == 0).then_some(EFBIG)).0
}

/// With buffers of which one alone is more than a bounded file takes, and its events.
fn builder(path: &Path) -> (Builder, Told) {
    let (builder, told) = quick(path);
    (small(builder), told)
}

fn rotated() -> Rotation {
    Rotation::new().at_bytes(1 << 20)
}

/// Each line is there whole, once and in order. Apart from that there are only beginnings of lines,
/// each at the end of a file, with the whole line at the beginning of the next one.
fn check(path: &Path) {
    let (mut whole, mut half) = (Vec::new(), String::new());
    for (name, text) in files(path.parent().expect("a directory"), "a.log") {
        assert!(text.starts_with(&half), "{name}: {half:?} is not whole: {text}");
        half.clear();
        for found in text.split_inclusive('\n') {
            if found.ends_with('\n') {
                whole.push(found.to_owned());
            } else {
                half.push_str(found);
            }
        }
    }
    assert_eq!(half, "", "the log ends within a line");
    let expected: Vec<String> = (0..100).map(|number| line(0, number, LINE)).collect();
    assert!(whole == expected, "{} lines: {whole:#?}", whole.len());
}

/// `ulimit -f`: a file that may not grow any more is ended, if files are rotated.
#[test]
fn a_file_at_its_limit_is_rotated_and_the_line_that_it_cut_is_whole_in_the_next() {
    for rotation in [rotated(), Rotation::new().every(DAY), Rotation::new().at_start()] {
        let (_directory, path) = place();
        let (builder, told) = builder(&path);
        let (log, guard) = builder.rotate(rotation).open_on(all_bounded()).expect("opened");
        put(&log, 0..100);
        guard.flush(LONG).expect("lines go on");
        guard.close().expect("closed");
        check(&path);
        let stats = log.stats();
        let counted = (stats.written_lines, stats.unwritten_lines, stats.written_bytes);
        assert_eq!(counted, (100, 0, stats.bytes));
        assert!(stats.rotations >= 12, "{stats:?}");
        assert!(told.all().len() == 1 && told.count("File too large") == 1, "once: {told:?}");
    }
}

/// A user who moves away a full file wants the lines to continue in a new one.
#[test]
fn a_file_that_takes_no_more_ends_when_it_was_moved_away_and_is_opened_again() {
    let full = bounded(|file| (file == 0).then_some(ENOSPC)).0;
    for disk in [first_bounded(), full] {
        let (_directory, path) = place();
        let (log, guard) = builder(&path).0.open_on(disk).expect("opened");
        put(&log, 0..100);
        wait_until("a failure", || log.stats().write_errors > 0);
        let moved = path.with_file_name("a.log.1");
        fs::rename(&path, &moved).expect("moved");
        log.reopen();
        guard.flush(LONG).expect("lines go on");
        guard.close().expect("closed");
        assert_eq!(fs::metadata(&moved).expect("there").len(), BOUND);
        check(&path);
        let stats = log.stats();
        assert_eq!((stats.written_lines, stats.written_bytes), (100, stats.bytes));
    }
}

/// A line whose beginning is in no buffer continues where it was cut: each byte is there once.
#[test]
fn a_line_longer_than_a_buffer_goes_on_in_the_next_file() {
    for is_rotated in [true, false] {
        let (directory, path) = place();
        let disk = if is_rotated { all_bounded() } else { first_bounded() };
        let builder = builder(&path).0;
        let builder = if is_rotated { builder.rotate(rotated()) } else { builder };
        let (log, guard) = builder.open_on(disk).expect("opened");
        // Cut in the middle, and one that fits into no file.
        for (byte, count) in [("a", 800), ("b", 9000), ("c", 3000), ("d", 100)] {
            say(&log, byte.repeat(count) + "\n");
        }
        if !is_rotated {
            wait_until("a failure", || log.stats().write_errors > 0);
            fs::rename(&path, directory.path().join("a.log.1")).expect("moved");
            log.reopen();
        }
        guard.flush(LONG).expect("lines go on");
        guard.close().expect("closed");
        let texts = files(directory.path(), "a.log");
        let all: String = texts.iter().map(|(_, text)| text.as_str()).collect();
        let count = |byte: char| all.chars().filter(|found| *found == byte).count();
        assert_eq!(['a', 'd'].map(count), [800, 100]);
        // A beginning that fitted into a file after other lines is there twice.
        assert!(
            (9000..10_000).contains(&count('b')) && (3000..4000).contains(&count('c')),
            "{all}"
        );
        assert!(texts.iter().all(|(_, text)| text.len() as u64 <= BOUND) || !is_rotated);
        let stats = log.stats();
        assert_eq!((stats.written_lines, stats.written_bytes), (4, stats.bytes));
    }
}

/// There is no next file, so this is a failure like any other.
#[test]
fn a_file_at_its_limit_stays_where_nobody_wants_another() {
    let (_directory, path) = place();
    let (builder, told) = builder(&path);
    let (disk, is_over) = bounded(|file| (file == 0).then_some(EFBIG));
    let (log, guard) = builder.open_on(disk).expect("opened");
    put(&log, 0..100);
    wait_until("failures", || log.stats().write_errors > 2);
    assert_eq!(told.all().len(), 1);
    is_over.store(true, Ordering::Relaxed);
    guard.close().expect("closed");
    check(&path);
}

/// Lines of a killed process for a file that may not grow any more: a start that rotates ends it;
/// if it was moved away, that is not needed.
#[test]
fn a_start_with_lines_for_a_file_at_its_limit_goes_on_in_the_next_one() {
    let Some(_turn) = turn("lines for a file at its limit") else { return };
    for is_moved in [false, true] {
        let (_directory, path) = place();
        let kept = || builder(&path).0.survive(Survive::Kill);
        killed(kept(), first_bounded(), |log| put(log, 0..100));
        let refused = kept().open_on(all_bounded()).expect_err("no other file is wanted");
        assert!(refused.to_string().contains("stay in memory"));
        let (rotation, disk) = if is_moved {
            fs::rename(&path, path.with_file_name("a.log.1")).expect("moved");
            (Rotation::new(), first_bounded())
        } else {
            (rotated(), all_bounded())
        };
        let (_log, guard) = kept().rotate(rotation).open_on(disk).expect("it goes on in another");
        guard.close().expect("closed");
        check(&path);
    }
}

/// Killed after the end of a file in the middle of a buffer: the bytes in the previous file are not
/// written again.
#[test]
fn a_kill_behind_such_an_end_doubles_no_line() {
    let Some(_turn) = turn("a kill behind a file that ended within a buffer") else { return };
    let (_directory, path) = place();
    let kept = || builder(&path).0.survive(Survive::Kill);
    let disk = bounded(|file| [Some(EFBIG), Some(ENOSPC)].get(file).copied().flatten()).0;
    killed(kept().rotate(rotated()), disk, |log| put(log, 0..100));
    common::next_start(kept());
    check(&path);
}

/// Exactly those lines count whose last byte is not in the file, even if a call is not a line.
#[test]
fn lines_of_a_buffer_that_was_written_in_part_are_counted_by_their_last_byte() {
    let of_several = "one call\nof two lines\n";
    let (first, long) = ("first\n", "a line that is much longer than the first\n");
    for (lines, panics) in [
        (vec![first, long, "last\n"], false),
        (vec![first, long, "last\n"], true),
        // The input ended within a line.
        (vec![first, long, "last"], false),
        (vec![of_several; 3], false),
        (vec!["no", "ends", "at", "all"], false),
    ] {
        let (_directory, path) = place();
        let disk = MoodyDisk::new(Mood::Stopped);
        let builder = builder(&path).0.flush_every(LONG).drain_timeout(Duration::ZERO);
        let inner = disk.clone();
        let panicking = Hooked::appending(move |file, bytes| {
            Ok(inner.append(file, bytes).expect("on purpose, it does not fail"))
        });
        let (log, guard) = if panics {
            builder.open_on(panicking).expect("opened")
        } else {
            builder.open_on(disk.clone()).expect("opened")
        };
        lines.iter().for_each(|line| say(&log, line));
        disk.set(Mood::FailsHalfway(ENOSPC));
        let error = guard.close().expect_err("it fails").to_string();
        let written = read(&path);
        let is_a_line = |text: &&str| text.find('\n') == Some(text.len() - 1);
        let are_lines = lines[..lines.len() - 1].iter().all(is_a_line);
        let (mut count, mut end) = (0, 0);
        while are_lines && end + lines[count].len() <= written.len() {
            (count, end) = (count + 1, end + lines[count].len());
        }
        assert!((count > 0) == are_lines && count < lines.len(), "{written}");
        let stats = log.stats();
        let (count, unwritten) = (count as u64, (lines.len() - count) as u64);
        let counted = (stats.written_lines, stats.written_bytes, stats.unwritten_lines);
        assert_eq!(counted, (count, end as u64, unwritten), "{lines:?}: {written}");
        let said = format!("{unwritten} lines were not written");
        assert!(panics || error.starts_with(&said), "{error}");
    }
}

/// One that is longer than a buffer is not written, and not written, at once.
#[test]
fn a_long_line_whose_end_is_not_in_the_file_counts_as_not_written() {
    let (_directory, path) = place();
    let (disk, is_over) = bounded(|_| Some(ENOSPC));
    let builder = builder(&path).0.drain_timeout(Duration::ZERO);
    let (log, guard) = builder.open_on(disk).expect("opened");
    is_over.store(true, Ordering::Relaxed);
    say(&log, "first\n");
    guard.flush(LONG).expect("flushed");
    is_over.store(false, Ordering::Relaxed);
    let mut long = log.begin_line().expect("begun");
    long.push(&[b'x'; 900]).expect("accepted");
    wait_until("its beginning", || fs::metadata(&path).expect("there").len() == 906);
    let stats = log.stats();
    let counted = (stats.lines, stats.written_lines, stats.written_bytes);
    assert_eq!(counted, (2, 1, 6), "it has not ended");
    long.push(&[b'x'; 900]).expect("accepted");
    long.end().expect("ended");
    say(&log, "last\n");
    wait_until("a failure", || log.stats().write_errors > 0);
    assert!(guard.close().is_err());
    let stats = log.stats();
    let counted = (stats.lines, stats.written_lines, stats.unwritten_lines, stats.written_bytes);
    assert_eq!(counted, (3, 1, 2, 6));
}

const LIMITED: &str = "INKSTONE_TEST_WITH_A_LIMIT";
/// Where its stage is.
const MEMORY: &str = "INKSTONE_TEST_MEMORY";
/// In the shell's unit, 512 bytes.
const LIMIT: u64 = 128;

/// Not a test by itself: the process that is started with a limit.
#[test]
fn limited() {
    let Some(word) = std::env::var_os(LIMITED) else { return };
    let words = word.to_str().and_then(|word| word.split_once(' '));
    let (word, path) = words.map(|(word, path)| (word, Path::new(path))).expect("a word, a path");
    let memory = PathBuf::from(std::env::var_os(MEMORY).expect("a directory"));
    let is_limit = |error: String| {
        assert!(error.contains("os error 27") && error.contains("a.log"), "{error}");
    };
    let builder = LogWriter::builder(path).stage_directory(memory).flush_every(MS);
    let builder = builder.drain_timeout(50 * MS);
    if word == "stage" {
        let error = builder.survive(Survive::Kill).open().expect_err("8 MiB");
        return is_limit(error.to_string());
    }
    let builder = builder.buffers_bytes(8 << 10).buffer_bytes(4 << 10);
    match word {
        // Reported on a stderr that is too large itself.
        "output-thread" => {
            let (log, guard) = builder.open().expect("opened");
            say(&log, [b'x'; 4000]);
            wait_until("an attempt", || log.stats().write_errors > 0);
            is_limit(log.trouble().expect("it is too large").to_string());
            assert!(guard.close().is_err() && log.stats().unwritten_lines == 1);
        }
        #[cfg(feature = "gzip")]
        "janitor" => {
            let told = Told::default();
            let builder = builder.compress(inkstone_appender::Compression::Gzip);
            let (_log, guard) = builder.on_event(told.hook()).open().expect("opened");
            wait_until("an event", || !told.all().is_empty());
            is_limit(told.all().remove(0));
            guard.close().expect("nothing was put");
        }
        "bringing-back" => {
            let error = builder.survive(Survive::Kill).open().expect_err("the log is too large");
            is_limit(error.to_string());
        }
        // The file has no room for even one byte; the next one has.
        "rotation" | "bringing-back-rotated" => {
            let builder = builder.survive(Survive::Kill).rotate(Rotation::new().at_bytes(1 << 30));
            let (log, guard) = builder.open().expect("opened");
            say(&log, "behind\n");
            guard.flush(LONG).expect("it goes on in the next file");
            guard.close().expect("closed");
            assert_eq!(log.stats().rotations, 1);
            let expected = if word == "rotation" { "behind\n" } else { "line\nbehind\n" };
            assert_eq!(read(path), expected);
        }
        other => panic!("{other}?"),
    }
}

#[test]
fn a_file_that_may_grow_no_more_is_an_error_and_ends_no_process() {
    let Some(_turn) = turn("a limit and a stage") else { return };
    let mut words =
        vec!["output-thread", "stage", "rotation", "bringing-back-rotated", "bringing-back"];
    words.extend(cfg!(feature = "gzip").then_some("janitor"));
    for word in words {
        let (directory, path) = place();
        let memory = tempfile::tempdir_in(SHM).expect("a directory in memory");
        let kept = || {
            let builder = quick(&path).0.buffers_bytes(8 << 10).buffer_bytes(4 << 10);
            builder.survive(Survive::Kill).stage_directory(memory.path())
        };
        if word.starts_with("bringing-back") {
            killed(kept(), MoodyDisk::new(Mood::Fails(28)), |log| say(log, "line\n"));
        }
        let full = |path: &Path| {
            let file = fs::File::options().append(true).create(true).open(path).expect("open");
            file.set_len(LIMIT * 512).expect("so large");
            file
        };
        if word == "janitor" {
            let bytes = std::iter::repeat_with(|| fastrand::u8(..)).take(LIMIT as usize * 1024);
            let rotated = directory.path().join("a.log.20261121T160533Z.0");
            fs::write(rotated, bytes.collect::<Vec<u8>>()).expect("written");
        } else {
            full(&path);
        }
        let script = format!("ulimit -f {LIMIT} && exec \"$0\" \"$@\"");
        let mut victim = Command::new("sh");
        victim.args(["-c", &script]).arg(std::env::current_exe().expect("this program"));
        victim.args(["--exact", "limited", "--nocapture"]).env(MEMORY, memory.path());
        victim.env(LIMITED, format!("{word} {}", path.display()));
        victim.stdout(Stdio::piped()).stderr(full(&directory.path().join("stderr")));
        let out = victim.output().expect("started");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{word}: signal {:?}: {text}", out.status.signal());
        let is_left = word == "bringing-back";
        assert_eq!(stage_of(memory.path(), &path).exists(), is_left, "{word}");
        if is_left {
            common::next_start(kept());
            assert!(fs::read(&path).expect("read").ends_with(b"line\n"));
        }
    }
}
