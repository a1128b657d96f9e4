//! The order of an opening: it checks the file, makes room, recovers lines, and begins what is due.
//! And what it leaves.

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use common::{
    DAY, EACCES, EIO, ENOSPC, Hooked, LONG, Mood, MoodyDisk, SHM, error, is_refused, kept, names,
    next_start, place, quick, read, say, set_mode, set_modified, stage_of, turn, wait_until,
};
use inkstone_appender::{Builder, Keep, LogWriter, OsDirectory, Rotation, Survive};
use inkstone_host::fork_child;
use inkstone_io::{AppendFile, is_root};

const LINES: &str = "line 1\nline 2\nline 3\nline 4\n";
const ROTATED: &str = "a.log.20261121T160533Z.0";

/// A process that puts the lines, and is killed before the disk has accepted them.
fn killed(builder: Builder) {
    common::killed(builder, MoodyDisk::new(Mood::Fails(ENOSPC)), |log| say(log, LINES));
}

fn make_old(path: &Path) {
    set_modified(path, SystemTime::now() - 3 * DAY);
}

/// Accepts nothing, no new file either, while `because_of` is there, and for `times` calls after
/// that; counts how often it was asked.
fn full_disk(because_of: &Path, times: &Arc<AtomicU64>) -> (Hooked, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let (because_of, times, counted) =
        (because_of.to_path_buf(), Arc::clone(times), Arc::clone(&asked));
    let is_full = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let fewer = |times: u64| times.checked_sub(1);
        let is_early = times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok();
        if because_of.exists() || is_early { Err(error(ENOSPC)) } else { Ok(()) }
    };
    let has_room = is_full.clone();
    let disk = Hooked::appending(move |file, bytes| {
        is_full()?;
        file.append(&bytes[..bytes.len().min(10)])
    });
    let opening = move |directory: &OsDirectory, name: &str| {
        if directory.look(name)?.is_some() { Ok(()) } else { has_room() }
    };
    (disk.opening(opening), asked)
}

/// Refuses to create files, or to write into them.
fn refusing(code: i32) -> Hooked {
    let disk = Hooked::appending(move |_, _| Err(error(code)));
    if code == EACCES { disk.opening(|_, _| Err(error(EACCES))) } else { disk }
}

/// Neither a file that is above the limit by now nor room that comes late keeps a start from its
/// lines.
#[test]
fn a_start_on_a_full_disk_makes_room_and_tries_again() {
    let Some(_turn) = turn("a start on a full disk") else { return };
    for is_missing in [false, true] {
        let (directory, path) = place();
        killed(kept(&path));
        if is_missing {
            fs::remove_file(&path).expect("removed");
        }
        let old = directory.path().join("a.log.20200101T000000Z.0");
        fs::write(&old, "old\n").expect("written");
        make_old(&old);
        let times = Arc::new(AtomicU64::new(3));
        let builder = kept(&path).keep(Keep::new().days(1));
        let (_log, guard) = builder.open_on(full_disk(&old, &times).0).expect("there is room");
        assert_eq!(guard.recovery().expect("lines").bytes, LINES.len() as u64);
        guard.close().expect("closed");
        assert_eq!((read(&path).as_str(), times.load(Ordering::Relaxed)), (LINES, 0));
    }
}

/// Such a start does not need room.
#[test]
fn a_start_that_is_refused_removes_no_rotated_file() {
    let Some(_turn) = turn("a refused start") else { return };
    for code in [EACCES, EIO] {
        let (directory, path) = place();
        for name in ["somebodys", "a.log.20200101T000000Z.0", "a.log.20200101T000000Z.1"] {
            fs::write(directory.path().join(name), "old\n").expect("written");
        }
        if code == EIO {
            killed(kept(&path));
        }
        let before = names(directory.path());
        let start = || kept(&path).keep(Keep::new().files(1)).rotate(Rotation::new().at_start());
        start().latest("latest").open_on(refusing(code)).expect_err("refused");
        let mut behind = names(directory.path());
        behind.retain(|name| name != "a.log" || before.contains(name));
        assert_eq!(behind, before, "{code}");
        next_start(start());
        let files = names(directory.path());
        assert_eq!(files.iter().filter(|name| name.starts_with("a.log.")).count(), 1, "{files:?}");
    }
}

/// A link that cannot be created is reported, and the start continues.
#[test]
fn a_link_that_cannot_be_made_refuses_no_start() {
    let Some(_turn) = turn("a link that cannot be made") else { return };
    let (directory, path) = place();
    let link = directory.path().join("latest");
    killed(kept(&path));
    let open = |words: &[&str]| {
        let (builder, told) = quick(&path);
        next_start(builder.survive(Survive::Kill).latest("latest"));
        assert_eq!(words.iter().map(|word| told.count(word)).sum::<usize>(), words.len());
        assert_eq!(told.all().len(), words.len(), "{told:?}");
    };
    fs::write(&link, "somebody's\n").expect("written");
    open(&["left unwritten", "not a link"]);
    assert_eq!((read(&path).as_str(), read(&link).as_str()), (LINES, "somebody's\n"));
    // A link is replaced, and leads to the file.
    fs::remove_file(&link).expect("removed");
    (0..2).for_each(|_| open(&[]));
    assert!(link.is_symlink() && read(&link) == LINES);
}

/// Nothing is lost if no room comes.
#[test]
fn a_start_on_a_disk_that_stays_full_is_refused_and_its_lines_stay() {
    let Some(_turn) = turn("a start on a disk that stays full") else { return };
    let (_directory, path) = place();
    killed(kept(&path));
    let since = Instant::now();
    let builder = kept(&path).drain_timeout(Duration::from_millis(100));
    let refused = builder.open_on(full_disk(&path, &Arc::default()).0);
    let error = refused.expect_err("it is full").to_string();
    assert!(error.contains("stay in memory"), "{error}");
    assert!(since.elapsed() >= Duration::from_millis(100));
    next_start(kept(&path));
    assert_eq!(read(&path), LINES);
}

/// A running log reports the failed rotation and continues in the same file; so does a start.
#[test]
fn a_rotation_that_cannot_be_done_at_the_start_is_told_and_lines_go_on() {
    for rotation in [Rotation::new().at_start(), Rotation::new().every(DAY)] {
        let (directory, path) = place();
        fs::write(&path, "before\n").expect("written");
        make_old(&path);
        // There is no name after the last two.
        let last: [PathBuf; 2] = [u32::MAX, u32::MAX - 1]
            .map(|number| directory.path().join(format!("a.log.99991231T235959Z.{number}")));
        last.iter().for_each(|path| fs::write(path, "").expect("written"));
        let (builder, told) = quick(&path);
        let (log, guard) = builder.rotate(rotation).open().expect("opened");
        say(&log, "line\n");
        guard.flush(LONG).expect("flushed");
        assert_eq!(read(&path), "before\nline\n");
        assert!(told.all()[0].contains("there is no name after"), "{told:?}");
        if rotation != Rotation::new().at_start() {
            last.iter().for_each(|path| fs::remove_file(path).expect("removed"));
            wait_until("the rotation that is due", || log.stats().rotations == 1);
        }
        guard.close().expect("closed");
    }
}

/// Killed when the file had its last name, and the next one was not there yet. But it is like no
/// file that another user could have put there: that user would get access to the log, or give it
/// to everybody.
#[test]
fn a_file_that_is_missing_at_the_start_is_made_like_the_newest_rotated_one() {
    let Some(_turn) = turn("the owner after a kill") else { return };
    for (has_lines, rotated) in
        [(true, ROTATED), (false, ROTATED), (false, "a.log.20261121T160533Z.0.gz")]
    {
        let (directory, path) = place();
        let rotated = directory.path().join(rotated);
        if has_lines {
            killed(kept(&path));
            fs::rename(&path, &rotated).expect("renamed");
        }
        fs::write(directory.path().join("a.log.20261120T160533Z.0"), "older\n").expect("written");
        File::options().append(true).create(true).open(&rotated).expect("made");
        set_mode(&rotated, 0o640);
        let is_others = chown(&rotated, Some(65534), Some(4)).is_ok();
        next_start(kept(&path));
        let facts = fs::metadata(&path).expect("there");
        assert_eq!(facts.mode() & 0o777, 0o640, "{has_lines} {rotated:?}");
        assert_eq!(read(&path), if has_lines { LINES } else { "" });
        if is_others {
            assert_eq!((facts.uid(), facts.gid()), (65534, 4));
        } else {
            assert!(!is_root());
            eprintln!("NOT RUN: the owner of a file that is missing at the start: that needs root");
        }
    }
    for mode in [0o777, 0o1777, 0o775] {
        let (directory, path) = place();
        let planted = directory.path().join(ROTATED);
        fs::write(&planted, "").expect("written");
        set_mode(&planted, 0o666);
        if is_root() {
            chown(&planted, Some(65534), Some(65534)).expect("given");
        }
        set_mode(directory.path(), mode);
        let mine = fs::metadata(directory.path()).expect("there").uid();
        next_start(quick(&path).0.file_mode(0o600));
        let facts = fs::metadata(&path).expect("there");
        assert_eq!((facts.uid(), facts.mode() & 0o777), (mine, 0o600), "{mode:o}");
    }
}

/// They were put before it was due, and are in the old file.
#[test]
fn lines_that_are_brought_back_keep_no_file_from_the_rotation_that_is_due() {
    let Some(_turn) = turn("a rotation behind a kill") else { return };
    let (directory, path) = place();
    fs::write(&path, "old\n").expect("written");
    killed(kept(&path));
    make_old(&path);
    let (log, guard) = kept(&path).rotate(Rotation::new().every(DAY)).open().expect("opened");
    say(&log, "today\n");
    guard.close().expect("closed");
    assert_eq!(read(&path), "today\n");
    let names = names(directory.path());
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(read(&directory.path().join(&names[1])), format!("old\n{LINES}"));
}

/// A stage keeps its memory as long as it exists.
#[test]
fn an_opening_that_fails_leaves_a_stage_only_where_lines_are_in_it() {
    let Some(_turn) = turn("stages of openings that fail") else { return };
    let memory = tempfile::tempdir_in(SHM).expect("a directory");
    let (_directory, path) = place();
    let kept = || kept(&path).stage_directory(memory.path());
    let stage = stage_of(memory.path(), &path);
    let refused = || assert!(kept().open_on(refusing(EACCES)).is_err());
    refused();
    assert!(!stage.exists());
    assert!(kept().buffers_bytes(1 << 50).open().is_err(), "so much memory there is not");
    assert!(!stage.exists());
    killed(kept());
    refused();
    assert!(stage.exists());
    next_start(kept());
    assert!(read(&path) == LINES && !stage.exists());
}

/// A daemon: opens its log, forks, and lives on in the child.
#[test]
fn a_child_opens_the_log_that_its_parent_has_closed() {
    let Some(_turn) = turn("a daemon") else { return };
    let (_directory, path) = place();
    let (log, guard) = kept(&path).open().expect("opened");
    say(&log, "the parent's\n");
    let (mut closed, mut tell) = std::io::pipe().expect("a pipe");
    let child = fork_child(|| {
        std::io::Read::read_exact(&mut closed, &mut [0]).expect("told");
        let (log, guard) = kept(&path).open().expect("nobody else has it");
        say(&log, "the child's\n");
        u8::from(is_refused(kept(&path)) && guard.close().is_ok())
    });
    let child = child.expect("a child");
    guard.close().expect("closed");
    tell.write_all(b"x").expect("told");
    assert_eq!(child.wait().expect("its end"), 1);
    assert_eq!(read(&path), "the parent's\nthe child's\n");
}

/// An earlier process made it for a rotation, and was killed before it renamed it; or was killed
/// while it compressed a file.
#[test]
fn a_next_file_that_was_left_goes_with_a_start() {
    for is_rotated in [false, true] {
        let (directory, path) = place();
        let held = OsDirectory::open(directory.path()).expect("held");
        fs::write(&path, "before\n").expect("written");
        let next = directory.path().join(".a.log.inkstone-next");
        AppendFile::create_private(&held, ".a.log.inkstone-next").expect("made");
        fs::write(directory.path().join(format!("{ROTATED}.gz.part")), "half").expect("written");
        let rotation = if is_rotated { Rotation::new().at_start() } else { Rotation::new() };
        next_start(quick(&path).0.rotate(rotation));
        let names = names(directory.path());
        assert_eq!(names.len(), 1 + usize::from(is_rotated), "{names:?}");
        // A foreign file of that name is left alone.
        fs::write(&next, "somebody's\n").expect("written");
        next_start(quick(&path).0);
        assert_eq!(read(&next), "somebody's\n");
    }
}

/// Rotating and compressing such a name could never work, and options change: so it is refused,
/// before anything is made.
#[test]
fn a_name_that_leaves_no_room_for_those_of_rotated_files_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = |bytes: usize| LogWriter::builder(directory.path().join("n".repeat(bytes)));
    let error = builder(219).open().expect_err("too long").to_string();
    assert!(error.contains("219 bytes") && error.contains("at most 218 bytes"), "{error}");
    assert_eq!(names(directory.path()), [""; 0]);
    next_start(builder(218));
}
