//! Starts: what they say and leave, whom files are given to, and what a killed process has left in
//! a stage. What starts do to lines is in `random.rs`.
//!
//! This program also starts itself, with a stage that is cut.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::{
    DAY, EIO, ENOSPC, LONG, Mood, MoodyDisk, SHM, Told, is_refused, kept, names, next_start, place,
    quick, read, say, set_mode, set_modified, stage_of, turn, wait_until,
};
use inkstone_appender::{Builder, LogWriter, Rotation, Survive, discard_lines, waiting_lines};
use inkstone_host::{Mount, alone, fork_child};
use inkstone_io::is_root;

const WITH_CUT_STAGE: &str = "INKSTONE_TEST_WITH_CUT_STAGE";
const LINES: &str = "line 1\nline 2\nline 3\nline 4\n";
const ROTATED: &str = "a.log.20261121T160533Z.0";

/// A process that puts the lines on a disk of this mood, and is killed.
fn killed(builder: Builder, mood: Mood) {
    crate::common::killed(builder, MoodyDisk::new(mood), |log| say(log, LINES));
}

fn make_old(path: &Path) {
    set_modified(path, SystemTime::now() - 3 * DAY);
}

/// A link that cannot be created is reported, and the start continues.
#[test]
fn a_link_that_cannot_be_made_refuses_no_start() {
    let Some(_turn) = turn("a link that cannot be made") else { return };
    let (directory, path) = place();
    let link = directory.path().join("latest");
    killed(kept(&path), Mood::Fails(ENOSPC));
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
            killed(kept(&path), Mood::Fails(ENOSPC));
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

/// A daemon: opens its log, forks, and lives on in the child.
#[test]
fn a_child_opens_the_log_that_its_parent_has_closed() {
    let Some(_turn) = turn("a daemon") else { return };
    if !alone("start::a_child_opens_the_log_that_its_parent_has_closed") {
        return;
    }
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

/// The log was moved away and compressed, or cut: it is unknown how much of the last buffer the
/// other file has.
#[test]
fn lines_that_were_going_to_a_file_that_is_not_there_are_doubtful() {
    let Some(_turn) = turn("a file that is not there") else { return };
    for is_cut in [false, true] {
        let (directory, path) = place();
        fs::write(&path, "old\n").expect("written");
        killed(kept(&path), Mood::FailsHalfway(ENOSPC));
        if is_cut {
            fs::File::options().write(true).open(&path).expect("open").set_len(0).expect("cut");
        } else {
            fs::copy(&path, directory.path().join("a.log.1.gz")).expect("another file");
            fs::remove_file(&path).expect("removed");
        }
        let recovery = next_start(kept(&path));
        assert_eq!(read(&path), LINES);
        let doubt = recovery.and_then(|recovery| recovery.doubt).expect("said");
        assert!(doubt.contains("a.log"), "{doubt}");
    }
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
#[ignore = "needs root"]
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
    killed(kept(&path), Mood::Fails(EIO));
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
    let recovery = next_start(kept(&path).bring_back(&waiting.stage));
    assert_eq!(recovery.map(|recovery| recovery.bytes), Some(LINES.len() as u64));
    assert_eq!(read(&path), LINES);
    assert!(!waiting.stage.exists() && discard_lines(&waiting.stage).is_err());
    drop(again);
}

#[test]
#[ignore = "needs root"]
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
    child.args(["--exact", "start::in_cut_stage", "--nocapture"]).env(WITH_CUT_STAGE, &path);
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
