//! What a killed process left, and what others did meanwhile: to the log, to the stage, beside it.
//!
//! A kill is a forked child that ends without closing its log; `kills.rs` kills processes at random
//! moments. This program also starts itself, in mount namespaces.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{
    EIO, ENOSPC, LONG, Mood, MoodyDisk, SHM, Told, append, has_lines, is_refused, kept, killed,
    place, put, quick, read, say, small, stage_of, turn, wait_until,
};
use inkstone_appender::{Recovery, Survive, discard_lines, waiting_lines};
use inkstone_host::{Mount, in_forked_child};
use inkstone_io::is_root;

const WITH_CUT_STAGE: &str = "INKSTONE_TEST_WITH_CUT_STAGE";
const LINES: &str = "line 1\nline 2\nline 3\nline 4\n";

/// A process that puts the text on a disk of this mood, and is killed.
fn killed_with(path: &Path, mood: Mood, text: &str) {
    killed(kept(path), MoodyDisk::new(mood), |log| say(log, text));
}

/// The next start: its report, and the whole log.
fn next_start(path: &Path) -> (Option<Recovery>, String) {
    let recovery = common::next_start(kept(path));
    (recovery, read(path))
}

/// A full disk until the end: what was accepted stays in memory.
#[test]
fn lines_that_closing_gave_up_stay_for_the_next_start() {
    let Some(_turn) = turn("lines for the next start") else { return };
    let (_directory, path) = place();
    let builder = kept(&path).drain_timeout(Duration::ZERO);
    let (log, guard) = builder.open_on(MoodyDisk::new(Mood::Fails(ENOSPC))).expect("opened");
    let stage = stage_of(Path::new(SHM), &path);
    assert!(is_refused(kept(&path)));
    say(&log, "one\n");
    say(&log, vec![b'x'; 3 << 20]);
    say(&log, "\ntwo\n");
    let error = guard.close().expect_err("it fails").to_string();
    let is_said = error.contains("3 lines were not written") && error.contains("the next opening");
    assert!(is_said, "{error}");
    assert_eq!(fs::metadata(&path).expect("there").len(), 0);
    let (recovery, text) = next_start(&path);
    assert_eq!(recovery.expect("lines").bytes, 9 + (3 << 20));
    assert!(text == format!("one\n{}\ntwo\n", "x".repeat(3 << 20)), "{} bytes", text.len());
    assert!(!stage.exists());
}

/// The supervisor's own line, appended between the kill and the next start, is not taken for lines
/// of the log's; a line that it cut is whole behind it; and bytes that are there are not appended
/// again, whatever follows them.
#[test]
fn what_others_appended_meanwhile_is_not_taken_for_lines_of_the_log() {
    let Some(_turn) = turn("others' lines") else { return };
    let theirs = "supervisor: it was killed, starting it again\n";
    let second_half = format!("{}somebody's\n", &LINES[LINES.len() / 2..]);
    let long = "first\na line, much longer\nlast\n";
    let longs_half = &long[..long.len() / 2];
    for (mood, lines, theirs, expected) in [
        (Mood::Fails(ENOSPC), LINES, theirs, format!("{theirs}{LINES}")),
        (
            Mood::FailsHalfway(ENOSPC),
            LINES,
            theirs,
            format!("line 1\nline 2\n{theirs}line 3\nline 4\n"),
        ),
        (Mood::FailsHalfway(ENOSPC), LINES, &second_half, format!("{LINES}somebody's\n")),
        (
            Mood::FailsHalfway(EIO),
            long,
            "\nsomebody's\n",
            format!("{longs_half}\nsomebody's\na line, much longer\nlast\n"),
        ),
        (
            Mood::FailsHalfway(EIO),
            long,
            "\nsomebody's",
            format!("{longs_half}\nsomebody's\na line, much longer\nlast\n"),
        ),
    ] {
        let (_directory, path) = place();
        killed_with(&path, mood, lines);
        append(&path, theirs);
        let (recovery, text) = next_start(&path);
        assert_eq!(text, expected, "{mood:?} {recovery:?}");
        assert_eq!(recovery.is_none(), *theirs == *second_half, "{recovery:?}");
    }
}

/// Killed before anything of it was written: it has no place yet. What one process has put in
/// several calls is one line.
#[test]
fn a_line_that_was_not_begun_does_not_go_behind_the_half_of_another() {
    let Some(_turn) = turn("a line that was not begun") else { return };
    for (own, theirs, expected) in [
        ("", "half a line", format!("half a line\n{LINES}")),
        ("first\n", "half a line", format!("first\nhalf a line\n{LINES}")),
        ("the beginning, ", "", format!("the beginning, {LINES}")),
    ] {
        let (_directory, path) = place();
        let code = in_forked_child(|| {
            let (log, guard) = kept(&path).flush_every(LONG).open().expect("opened");
            say(&log, own);
            guard.flush(LONG).expect("flushed");
            append(&path, theirs);
            say(&log, LINES);
            std::mem::forget(guard);
            1
        });
        assert_eq!(code.expect("a child"), 1);
        assert_eq!(next_start(&path).1, expected);
    }
}

/// The number of a removed file is given to the next one.
#[test]
fn another_file_with_the_logs_number_is_not_taken_for_it() {
    let Some(_turn) = turn("a number used again") else { return };
    let (directory, path) = place();
    fs::write(&path, "old\n").expect("written");
    killed_with(&path, Mood::FailsHalfway(ENOSPC), LINES);
    let number = fs::metadata(&path).expect("there").ino();
    fs::remove_file(&path).expect("removed");
    let other = directory.path().join("a.log.other");
    let is_found = (0..1000).any(|_| {
        fs::write(&other, "somebody's file, longer than all of the log's lines\n").expect("made");
        let is_same = fs::metadata(&other).expect("there").ino() == number;
        if !is_same {
            let name = directory.path().join(fastrand::u64(..).to_string());
            fs::rename(&other, name).expect("kept");
        }
        is_same
    });
    if !is_found {
        eprintln!("NOT RUN: a number used again: this file system does not give {number} again");
        return;
    }
    assert_eq!(next_start(&path).1, LINES);
}

/// The log was moved away and compressed, or cut: it is unknown how much of the last buffer the
/// other file has.
#[test]
fn lines_that_were_going_to_a_file_that_is_not_there_are_doubtful() {
    let Some(_turn) = turn("a file that is not there") else { return };
    for is_cut in [false, true] {
        let (directory, path) = place();
        fs::write(&path, "old\n").expect("written");
        killed_with(&path, Mood::FailsHalfway(ENOSPC), LINES);
        if is_cut {
            fs::File::options().write(true).open(&path).expect("open").set_len(0).expect("cut");
        } else {
            fs::copy(&path, directory.path().join("a.log.1.gz")).expect("another file");
            fs::remove_file(&path).expect("removed");
        }
        let (recovery, text) = next_start(&path);
        assert_eq!(text, LINES);
        let doubt = recovery.and_then(|recovery| recovery.doubt).expect("said");
        assert!(doubt.contains("a.log"), "{doubt}");
    }
}

/// The directory is moved away or removed, and another one is in its place: new lines are kept for
/// the new one.
#[test]
fn a_directory_that_is_replaced_takes_the_stage_with_it() {
    let Some(_turn) = turn("a replaced directory") else { return };
    for is_moved in [true, false] {
        let made = tempfile::tempdir().expect("a directory");
        let [logs, old] = ["logs", "old"].map(|name| made.path().join(name));
        let path = logs.join("a.log");
        let disk = MoodyDisk::new(Mood::Works);
        let told = Told::default();
        let builder = kept(&path).on_event(told.hook());
        killed(builder, disk.clone(), |log| {
            say(log, "zero\n");
            log.flush_within(LONG).expect("flushed");
            let before = stage_of(Path::new(SHM), &path);
            if is_moved {
                fs::rename(&logs, &old).expect("moved");
            } else {
                fs::remove_dir_all(&logs).expect("removed");
            }
            fs::create_dir(&logs).expect("made");
            let stage = stage_of(Path::new(SHM), &path);
            log.reopen();
            wait_until("a stage", || told.count("a new stage was created") > 0);
            assert!(stage.exists() && (stage == before || !before.exists()));
            assert!(is_refused(kept(&path)));
            disk.set(Mood::Fails(EIO));
            say(log, LINES);
        });
        assert_eq!(next_start(&path).1, LINES);
        if is_moved {
            assert_eq!(next_start(&old.join("a.log")), (None, "zero\n".to_owned()));
        }
    }
}

/// With `PowerLoss` recovered lines are durable, or an event reports it.
#[test]
fn lines_that_are_brought_back_are_synced() {
    let Some(_turn) = turn("lines brought back") else { return };
    let (_directory, path) = place();
    let open = |disk: &MoodyDisk| {
        killed_with(&path, Mood::FailsHalfway(ENOSPC), LINES);
        kept(&path).survive(Survive::PowerLoss(LONG)).open_on(disk.clone()).expect("opened")
    };
    let disk = MoodyDisk::new(Mood::Works);
    let (_log, guard) = open(&disk);
    assert!(disk.syncs() >= 1 && guard.recovery().is_some());
    guard.flush(LONG).expect("durable");
    guard.close().expect("closed");
    let (_log, guard) = open(&MoodyDisk::new(Mood::FailsToSync(EIO)));
    assert!(guard.flush(LONG).is_err() && guard.close().is_err());
}

/// systemd's `RemoveIPC`, or a cleaner of `/dev/shm`: the stage is created again with all waiting
/// lines, and locks others out again.
#[test]
fn a_stage_that_is_removed_while_running_is_made_anew() {
    let Some(_turn) = turn("a removed stage") else { return };
    let (_directory, path) = place();
    let stage = || stage_of(Path::new(SHM), &path);
    let told = Told::default();
    let builder = small(kept(&path)).on_event(told.hook());
    // A part is being written, a part waits after it, a part is put afterwards.
    killed(builder, MoodyDisk::new(Mood::Fails(ENOSPC)), |log| {
        put(log, 0..100);
        wait_until("an attempt", || log.stats().write_errors > 0);
        fs::remove_file(stage()).expect("removed");
        wait_until("a stage", || told.count("a new stage was created") > 0);
        put(log, 100..200);
    });
    has_lines(&next_start(&path).1, 0..200);
    // It is noticed though nobody writes.
    let (_log, guard) = kept(&path).open().expect("opened");
    let stage = stage();
    fs::remove_file(&stage).expect("removed");
    wait_until("a stage", || stage.exists());
    assert!(is_refused(kept(&path)));
    guard.close().expect("closed");
    assert!(!stage.exists());
}

/// A small file system in memory.
fn small_memory(test: &str, bytes: u64) -> Option<(tempfile::TempDir, Mount)> {
    let directory = tempfile::tempdir().expect("a directory");
    let options = format!("size={bytes}");
    let mounted = Mount::new(Path::new("tmpfs"), directory.path(), "tmpfs", &options);
    match mounted {
        Ok(mount) if is_root() => Some((directory, mount)),
        refused => {
            eprintln!("NOT RUN: {test}: mounting needs root ({:?})", refused.err());
            None
        }
    }
}

/// A file system of the same number is mounted in the place of the one that had the log: the lines
/// are not that log's.
#[test]
fn lines_of_a_log_that_is_gone_go_into_no_other() {
    const TEST: &str = "a number of a file system used again";
    let Some(_turn) = turn(TEST) else { return };
    let Some((directory, mount)) = small_memory(TEST, 1 << 20) else { return };
    let path = directory.path().join("a.log");
    let numbers = || {
        let facts = fs::metadata(directory.path()).expect("there");
        (facts.dev(), facts.ino())
    };
    let before = numbers();
    killed_with(&path, Mood::Fails(EIO), LINES);
    drop(mount);
    // Another mount may have got the number, and frees it again.
    let again = (0..100).find_map(|_| {
        let options = "size=1048576";
        let again = Mount::new(Path::new("tmpfs"), directory.path(), "tmpfs", options);
        let again = Some(again.expect("mounted")).filter(|_| numbers() == before);
        if again.is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        again
    });
    let Some(again) = again else {
        eprintln!("NOT RUN: {TEST}: the kernel does not give {before:?} again");
        let _ = fs::remove_file(stage_of(Path::new(SHM), &path));
        return;
    };
    let told = Told::default();
    for start in 1..3 {
        let (_log, guard) = kept(&path).on_event(told.hook()).open().expect("opened");
        assert_eq!(guard.recovery(), None);
        assert!(is_refused(kept(&path)));
        guard.close().expect("closed");
        assert_eq!(read(&path), "", "start {start}");
    }
    // Each start says what waits, and whose it is.
    let told = told.all();
    assert!(told.len() == 2 && told[0] == told[1], "{told:?}");
    let waiting = waiting_lines(Path::new(SHM)).expect("listed");
    let waiting = waiting.iter().find(|waiting| waiting.log == path).expect("it waits");
    for words in [path.to_str(), Some("4 lines (28 bytes)"), waiting.stage.to_str()] {
        assert!(told[0].contains(words.expect("text")), "{told:?}");
    }
    // Whoever knows better names it.
    let recovery = common::next_start(kept(&path).bring_back(&waiting.stage));
    assert_eq!(recovery.map(|recovery| recovery.bytes), Some(LINES.len() as u64));
    assert_eq!(read(&path), LINES);
    assert!(!waiting.stage.exists() && discard_lines(&waiting.stage).is_err());
    drop(again);
}

#[test]
fn a_stage_for_which_there_is_no_room_is_an_error_and_one_that_cannot_be_made_anew_is_told() {
    let Some(_turn) = turn("a full stage") else { return };
    let Some((memory, mount)) = small_memory("a full stage", 4 << 20) else { return };
    let (_directory, path) = place();
    let (builder, told) = quick(&path);
    let builder = builder.survive(Survive::Kill).stage_directory(memory.path());
    let huge = kept(&path).stage_directory(memory.path()).open();
    let error = huge.expect_err("8 MiB of buffers").to_string();
    assert!(error.contains("No space") && error.contains("a.log"), "{error}");
    let (log, guard) = builder.buffers_bytes(1 << 20).open().expect("opened");
    // The stage keeps its memory for as long as it is mapped.
    let filler = memory.path().join("filler");
    fs::write(&filler, vec![1; 5 << 19]).expect("written");
    fs::remove_file(stage_of(memory.path(), &path)).expect("removed");
    wait_until("a word about it", || told.count("No space") > 0);
    say(&log, "one\n");
    guard.flush(LONG).expect("lines go on");
    fs::remove_file(&filler).expect("removed");
    wait_until("a stage", || told.count("a new stage was created") > 0);
    guard.close().expect("closed");
    assert_eq!(read(&path), "one\n");
    // It has the memory mapped.
    drop(log);
    drop(mount);
}

/// Not a test by itself: the process whose stage is cut before it puts its second line.
#[test]
fn in_cut_stage() {
    let Some(path) = std::env::var_os(WITH_CUT_STAGE).map(PathBuf::from) else { return };
    let builder = kept(&path).stage_directory(path.parent().expect("a directory"));
    let (log, _guard) = builder.flush_every(LONG).open().expect("opened");
    say(&log, "one\n");
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).expect("a word");
    say(&log, "two\n");
}

/// The lines in it are gone, and the process cannot go on: it says so, with the file's path.
#[test]
fn a_stage_that_is_cut_ends_the_process_with_words() {
    let Some(_turn) = turn("a cut stage") else { return };
    let memory = tempfile::tempdir_in(SHM).expect("a directory");
    let path = memory.path().join("a.log");
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "in_cut_stage", "--nocapture"]).env(WITH_CUT_STAGE, &path);
    let mut child = until_ready(child.stderr(Stdio::piped()));
    let stage = stage_of(memory.path(), &path);
    fs::File::options().write(true).open(&stage).expect("open").set_len(0).expect("cut");
    drop(child.stdin.take());
    let ended = child.wait_with_output().expect("its end");
    let told = String::from_utf8_lossy(&ended.stderr);
    const SIGBUS: i32 = 7;
    assert_eq!(ended.status.signal(), Some(SIGBUS), "{told}");
    assert!(
        told.contains("another program cut") && told.contains(stage.to_str().expect("text")),
        "{told}"
    );
}

/// Starts this program, and waits until it says that it is ready.
fn until_ready(child: &mut Command) -> Child {
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut said = String::new();
    while !said.contains("ready") {
        said.clear();
        assert!(out.read_line(&mut said).expect("its output") > 0, "it ended by itself");
    }
    child.stdout = Some(out.into_inner());
    child
}

/// As of two containers that share `/dev/shm`.
#[test]
fn logs_of_one_path_in_two_directories_keep_apart() {
    let Some(_turn) = turn("two logs of one path") else { return };
    let made = tempfile::tempdir().expect("a directory");
    let [at, first, second] = ["at", "first", "second"].map(|name| made.path().join(name));
    let path = at.join("a.log");
    // Beside the first one, which is killed later; and after it.
    killed(kept(&path), MoodyDisk::new(Mood::Fails(ENOSPC)), |log| {
        say(log, "the first one's\n");
        fs::rename(&at, &first).expect("moved");
        let code = in_forked_child(|| {
            let (log, guard) = kept(&path).open().expect("another log");
            say(&log, "the second one's\n");
            u8::from(guard.recovery().is_none() && guard.close().is_ok())
        });
        assert_eq!(code.expect("a child"), 1);
    });
    assert_eq!(next_start(&path), (None, "the second one's\n".to_owned()));
    fs::rename(&at, &second).expect("moved");
    fs::rename(&first, &at).expect("back");
    assert_eq!(next_start(&path).1, "the first one's\n");
}
