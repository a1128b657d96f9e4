//! What a killed process left, and what others did meanwhile: to the log, to the stage, beside it.
//!
//! A kill is a forked child that ends without closing its log. This program also starts itself, in
//! mount namespaces.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LONG, Mood, MoodyDisk, SHM, place, stage_of, turn, wait_until};
use inkstone_appender::{
    Builder, Event, LogWriter, Recovery, Survive, discard_lines, waiting_lines,
};
use inkstone_host::{Mount, in_forked_child};
use inkstone_io::is_root;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const VICTIM: &str = "INKSTONE_TEST_IN_NAMESPACE";

fn builder(path: &Path) -> Builder {
    LogWriter::builder(path).survive(Survive::Kill).flush_every(Duration::from_millis(1))
}

/// A process that puts the text on a disk of this mood, is killed, and never closes.
fn killed(path: &Path, mood: Mood, text: &str) {
    let code = in_forked_child(|| {
        let builder = builder(path).on_event(|_| {});
        let (mut log, guard) = builder.open_on(MoodyDisk::new(mood)).expect("opened");
        log.write_all(text.as_bytes()).expect("accepted");
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
}

/// The next start: its report, and the whole log.
fn next_start(path: &Path) -> (Option<Recovery>, String) {
    let (_log, guard) = builder(path).open().expect("opened");
    let recovery = guard.recovery().cloned();
    guard.close().expect("closed");
    (recovery, std::fs::read_to_string(path).expect("text"))
}

fn append(path: &Path, text: &str) {
    let mut file = std::fs::File::options().append(true).open(path).expect("open");
    file.write_all(text.as_bytes()).expect("written");
}

const LINES: &str = "line 1\nline 2\nline 3\nline 4\n";

/// The supervisor's own line, appended between the kill and the next start, is not taken for lines
/// of the log's.
#[test]
fn what_others_appended_meanwhile_is_not_taken_for_lines_of_the_log() {
    let Some(_turn) = turn("others' lines") else { return };
    let supervisor = "supervisor: it was killed, starting it again\n";
    // Nothing of it was written; the half of it, which ends in the middle of line 2.
    for (mood, expected) in [
        (Mood::Fails(ENOSPC), format!("{supervisor}{LINES}")),
        (Mood::FailsHalfway(ENOSPC), format!("line 1\nline 2\n{supervisor}line 3\nline 4\n")),
    ] {
        let (_directory, path) = place();
        killed(&path, mood, LINES);
        append(&path, supervisor);
        let (recovery, text) = next_start(&path);
        assert_eq!(text, expected, "{mood:?} {recovery:?}");
    }
}

#[test]
fn a_line_that_others_cut_is_whole_behind_them() {
    let Some(_turn) = turn("a cut line") else { return };
    for theirs in ["\nsomebody's\n", "\nsomebody's"] {
        let (_directory, path) = place();
        killed(
            &path,
            Mood::FailsHalfway(EIO),
            "first\na line that is much longer than the first\nlast\n",
        );
        append(&path, theirs);
        let (_, text) = next_start(&path);
        let (before, behind) = text.split_once("somebody's\n").expect("theirs");
        assert!(before.starts_with("first\na line that"), "{text}");
        assert_eq!(behind, "a line that is much longer than the first\nlast\n");
    }
}

/// Bytes that are there are not appended again, whatever follows them.
#[test]
fn a_buffer_that_is_there_whole_is_not_there_twice() {
    let Some(_turn) = turn("a whole buffer") else { return };
    let (_directory, path) = place();
    killed(&path, Mood::FailsHalfway(ENOSPC), LINES);
    append(&path, &LINES[LINES.len() / 2..]);
    append(&path, "somebody's\n");
    let (recovery, text) = next_start(&path);
    assert_eq!((text, recovery), (format!("{LINES}somebody's\n"), None));
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
            let (mut log, guard) = builder(&path).flush_every(LONG).open().expect("opened");
            log.write_all(own.as_bytes()).expect("accepted");
            guard.flush(LONG).expect("flushed");
            append(&path, theirs);
            log.write_all(LINES.as_bytes()).expect("accepted");
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
    use std::os::unix::fs::MetadataExt as _;
    let (directory, path) = place();
    std::fs::write(&path, "old\n").expect("written");
    killed(&path, Mood::FailsHalfway(ENOSPC), LINES);
    let number = std::fs::metadata(&path).expect("there").ino();
    std::fs::remove_file(&path).expect("removed");
    let other = directory.path().join("a.log.other");
    for _ in 0..1000 {
        std::fs::write(&other, "a file of somebody else's, longer than all of the log's lines\n")
            .expect("written");
        if std::fs::metadata(&other).expect("there").ino() == number {
            break;
        }
        std::fs::rename(&other, directory.path().join(fastrand::u64(..).to_string()))
            .expect("kept");
    }
    if !std::fs::metadata(&other).is_ok_and(|facts| facts.ino() == number) {
        eprintln!("NOT RUN: a number used again: this file system does not give {number} again");
        return;
    }
    let (_, text) = next_start(&path);
    assert_eq!(text, LINES);
}

/// The log was moved away and compressed: it is unknown how much of the last buffer it has.
#[test]
fn lines_that_were_going_to_a_file_that_is_not_there_are_doubtful() {
    let Some(_turn) = turn("a file that is not there") else { return };
    let (directory, path) = place();
    std::fs::write(&path, "old\n").expect("written");
    killed(&path, Mood::FailsHalfway(ENOSPC), LINES);
    std::fs::copy(&path, directory.path().join("a.log.1.gz")).expect("another file");
    std::fs::remove_file(&path).expect("removed");
    let (recovery, text) = next_start(&path);
    assert_eq!(text, LINES);
    let doubt = recovery.and_then(|recovery| recovery.doubt).expect("said");
    assert!(doubt.contains("a.log"), "{doubt}");
    // Cut by `copytruncate`, the same.
    std::fs::write(&path, "old\n").expect("written");
    killed(&path, Mood::FailsHalfway(ENOSPC), LINES);
    std::fs::File::options().write(true).open(&path).expect("open").set_len(0).expect("cut");
    let (recovery, text) = next_start(&path);
    assert_eq!(text, LINES);
    assert!(recovery.and_then(|recovery| recovery.doubt).is_some());
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
        let code = in_forked_child(|| {
            let disk = MoodyDisk::new(Mood::Works);
            let told = Arc::new(Mutex::new(Vec::new()));
            let theirs = Arc::clone(&told);
            let builder_here = builder(&path).on_event(move |event: &Event<'_>| {
                theirs.lock().expect("no panic").push(event.to_string());
            });
            let (mut log, guard) = builder_here.open_on(disk.clone()).expect("opened");
            log.write_all(b"zero\n").expect("accepted");
            guard.flush(LONG).expect("flushed");
            let before = stage_of(Path::new(SHM), &path);
            if is_moved {
                std::fs::rename(&logs, &old).expect("moved");
            } else {
                std::fs::remove_dir_all(&logs).expect("removed");
            }
            std::fs::create_dir(&logs).expect("made");
            let stage = stage_of(Path::new(SHM), &path);
            log.reopen();
            wait_until("a stage", || {
                told.lock()
                    .expect("no panic")
                    .iter()
                    .any(|told| told.contains("a new stage was created"))
            });
            assert!(stage.exists() && (stage == before || !before.exists()));
            let refused = builder(&path)
                .drain_timeout(Duration::ZERO)
                .open()
                .expect_err("it is open")
                .to_string();
            assert!(refused.contains("another writer"), "{refused}");
            disk.set(Mood::Fails(EIO));
            log.write_all(LINES.as_bytes()).expect("accepted");
            wait_until("an attempt", || log.stats().write_errors > 0);
            std::mem::forget(guard);
            1
        });
        assert_eq!(code.expect("a child"), 1);
        let (_, text) = next_start(&path);
        assert_eq!(text, LINES);
        if is_moved {
            let (recovery, text) = next_start(&old.join("a.log"));
            assert_eq!((recovery, text), (None, "zero\n".to_owned()));
        }
    }
}

/// With `PowerLoss` recovered lines are durable, or an event reports it.
#[test]
fn lines_that_are_brought_back_are_synced() {
    let Some(_turn) = turn("lines brought back") else { return };
    let open = |path: &Path, disk: &MoodyDisk| {
        let builder = builder(path).survive(Survive::PowerLoss(LONG)).on_event(|_| {});
        builder.open_on(disk.clone()).expect("opened")
    };
    let (_directory, path) = place();
    killed(&path, Mood::FailsHalfway(ENOSPC), LINES);
    let disk = MoodyDisk::new(Mood::Works);
    let (_log, guard) = open(&path, &disk);
    assert!(disk.syncs() >= 1 && guard.recovery().is_some());
    guard.flush(LONG).expect("durable");
    guard.close().expect("closed");
    killed(&path, Mood::FailsHalfway(ENOSPC), LINES);
    let (_log, guard) = open(&path, &MoodyDisk::new(Mood::FailsToSync(EIO)));
    assert!(guard.flush(LONG).is_err() && guard.close().is_err());
}

/// systemd's `RemoveIPC`, or a cleaner of `/dev/shm`: the stage is created again with all waiting
/// lines, and locks others out again.
#[test]
fn a_stage_that_is_removed_while_running_is_made_anew() {
    let Some(_turn) = turn("a removed stage") else { return };
    let (_directory, path) = place();
    // A part is being written, a part waits after it, a part is put afterwards.
    let code = in_forked_child(|| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&told);
        let builder = builder(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
        let builder = builder.on_event(move |event: &Event<'_>| {
            theirs.lock().expect("no panic").push(event.to_string());
        });
        let (mut log, guard) =
            builder.open_on(MoodyDisk::new(Mood::Fails(ENOSPC))).expect("opened");
        for number in 0..100 {
            log.write_all(common::line(0, number, 120).as_bytes()).expect("accepted");
        }
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::fs::remove_file(stage_of(Path::new(SHM), &path)).expect("removed");
        wait_until("a stage", || {
            told.lock()
                .expect("no panic")
                .iter()
                .any(|told| told.contains("a new stage was created"))
        });
        for number in 100..200 {
            log.write_all(common::line(0, number, 120).as_bytes()).expect("accepted");
        }
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
    let (_, text) = next_start(&path);
    let (lines, others) = common::check_lines(&text, 120);
    assert_eq!((lines[&0].clone(), others.len()), ((0..200).collect::<Vec<u64>>(), 0));
}

#[test]
fn a_removed_stage_is_noticed_though_nobody_writes_and_a_second_writer_is_refused_again() {
    let Some(_turn) = turn("a removed stage, idle") else { return };
    let (_directory, path) = place();
    let (_log, guard) = builder(&path).on_event(|_| {}).open().expect("opened");
    let stage = stage_of(Path::new(SHM), &path);
    std::fs::remove_file(&stage).expect("removed");
    wait_until("a stage", || stage.exists());
    assert!(
        builder(&path)
            .drain_timeout(Duration::ZERO)
            .open()
            .expect_err("it is open")
            .to_string()
            .contains("another writer")
    );
    guard.close().expect("closed");
    assert!(!stage.exists());
}

/// A small file system in memory.
fn small_memory(test: &str, bytes: u64) -> Option<(tempfile::TempDir, Mount)> {
    let directory = tempfile::tempdir().expect("a directory");
    if !is_root() {
        eprintln!("NOT RUN: {test}: mounting needs root");
        return None;
    }
    match Mount::new(Path::new("tmpfs"), directory.path(), "tmpfs", &format!("size={bytes}")) {
        Ok(mount) => Some((directory, mount)),
        Err(error) => {
            eprintln!("NOT RUN: {test}: {error}");
            None
        }
    }
}

/// A file system of the same number is mounted in the place of the one that had the log: the lines
/// are not that log's.
#[test]
fn lines_of_a_log_that_is_gone_go_into_no_other() {
    use std::os::unix::fs::MetadataExt as _;
    const TEST: &str = "a number of a file system used again";
    let Some(_turn) = turn(TEST) else { return };
    let Some((directory, mount)) = small_memory(TEST, 1 << 20) else { return };
    let path = directory.path().join("a.log");
    let numbers = || {
        std::fs::metadata(directory.path()).map(|facts| (facts.dev(), facts.ino())).expect("there")
    };
    let before = numbers();
    killed(&path, Mood::Fails(EIO), LINES);
    drop(mount);
    // Another mount may have got the number, and frees it again.
    let again = (0..100).find_map(|_| {
        let again = Mount::new(Path::new("tmpfs"), directory.path(), "tmpfs", "size=1048576")
            .expect("mounted");
        let is_same = numbers() == before;
        is_same.then_some(again).or_else(|| {
            std::thread::sleep(Duration::from_millis(20));
            None
        })
    });
    let Some(again) = again else {
        eprintln!("NOT RUN: {TEST}: the kernel does not give {before:?} again");
        let _ = std::fs::remove_file(stage_of(Path::new(SHM), &path));
        return;
    };
    let told = Arc::new(Mutex::new(Vec::new()));
    for starts in 1..3 {
        let theirs = Arc::clone(&told);
        let builder = builder(&path).on_event(move |event: &Event<'_>| {
            theirs.lock().expect("no panic").push(event.to_string());
        });
        let (_log, guard) = builder.open().expect("opened");
        assert_eq!(guard.recovery(), None);
        assert!(
            LogWriter::builder(&path)
                .survive(Survive::Kill)
                .drain_timeout(Duration::ZERO)
                .on_event(|_| {})
                .open()
                .expect_err("open")
                .to_string()
                .contains("another writer")
        );
        guard.close().expect("closed");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "", "start {starts}");
    }
    let told = told.lock().expect("no panic").clone();
    // Each start says what waits, and whose it is.
    assert!(told.len() == 2 && told[0] == told[1], "{told:?}");
    assert!(
        told[0].contains(&path.display().to_string()) && told[0].contains("4 lines (28 bytes)"),
        "{told:?}"
    );
    let waiting = waiting_lines(Path::new(SHM)).expect("listed");
    let waiting = waiting.iter().find(|waiting| waiting.log == path).expect("it waits");
    assert!(told[0].contains(&waiting.stage.display().to_string()), "{told:?}");
    // Whoever knows better names it.
    let builder = builder(&path).bring_back(&waiting.stage).on_event(|_| {});
    let (_log, guard) = builder.open().expect("opened");
    assert_eq!(guard.recovery().map(|recovery| recovery.bytes), Some(LINES.len() as u64));
    guard.close().expect("closed");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), LINES);
    assert!(!waiting.stage.exists() && discard_lines(&waiting.stage).is_err());
    drop(again);
}

#[test]
fn a_stage_for_which_there_is_no_room_is_an_error_and_one_that_cannot_be_made_anew_is_told() {
    let Some(_turn) = turn("a full stage") else { return };
    let Some((memory, mount)) = small_memory("a full stage", 4 << 20) else { return };
    let (_directory, path) = place();
    let error = builder(&path)
        .stage_directory(memory.path())
        .open()
        .expect_err("8 MiB of buffers")
        .to_string();
    assert!(error.contains("No space") && error.contains("a.log"), "{error}");
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let builder = builder(&path).stage_directory(memory.path()).buffers_bytes(1 << 20);
    let builder = builder.on_event(move |event: &Event<'_>| {
        theirs.lock().expect("no panic").push(event.to_string());
    });
    let (mut log, guard) = builder.open().expect("opened");
    let filler = memory.path().join("filler");
    let fill = |bytes: usize| std::fs::write(&filler, vec![1; bytes]);
    // It keeps its memory for as long as it is mapped.
    fill(5 << 19).expect("written");
    std::fs::remove_file(stage_of(memory.path(), &path)).expect("removed");
    wait_until("a word about it", || {
        told.lock().expect("no panic").iter().any(|told| told.contains("No space"))
    });
    log.write_all(b"one\n").expect("accepted");
    guard.flush(LONG).expect("lines go on");
    std::fs::remove_file(&filler).expect("removed");
    wait_until("a stage", || {
        told.lock().expect("no panic").iter().any(|told| told.contains("a new stage was created"))
    });
    guard.close().expect("closed");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "one\n");
    // It has the memory mapped.
    drop(log);
    drop(mount);
}

/// Not a test by itself: the process that is started in a namespace, and killed, or ended by its
/// input.
#[test]
fn victim() {
    let Some(word) = std::env::var_os(VICTIM) else { return };
    let (path, line) =
        word.to_str().and_then(|word| word.split_once(' ')).expect("a path and a line");
    let (mut log, guard) = builder(Path::new(path)).flush_every(LONG).open().expect("opened");
    writeln!(log, "{line}").expect("accepted");
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).expect("a word");
    guard.close().expect("closed");
}

/// This program in a mount namespace of its own, where `directory` is at `at`, until it has put its
/// line.
fn in_container(directory: &Path, at: &Path, line: &str) -> std::process::Child {
    let script =
        format!("mount --bind {} {} && exec \"$0\" \"$@\"", directory.display(), at.display());
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "victim", "--nocapture"])
        .env(VICTIM, format!("{} {line}", at.join("a.log").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare");
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut said = String::new();
    while !said.contains("ready") {
        said.clear();
        assert!(out.read_line(&mut said).expect("its output") > 0, "it ended by itself");
    }
    child.stdout = Some(out.into_inner());
    child
}

/// Two containers with logs of one path, which share `/dev/shm`.
#[test]
fn logs_of_one_path_in_two_mount_namespaces_keep_apart() {
    let Some(_turn) = turn("two mount namespaces") else { return };
    let can_unshare = Command::new("unshare")
        .args(["--mount", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !can_unshare {
        eprintln!("NOT RUN: two mount namespaces: unshare is not there, or may not");
        return;
    }
    let made = tempfile::tempdir().expect("a directory");
    let [one, two, at] = ["one", "two", "at"].map(|name| made.path().join(name));
    for directory in [&one, &two, &at] {
        std::fs::create_dir(directory).expect("made");
    }
    let mut first = in_container(&one, &at, "the first one's");
    // Beside the first, which has the same path.
    let mut second = in_container(&two, &at, "the second one's");
    first.kill().expect("killed");
    first.wait().expect("its end");
    drop(second.stdin.take());
    assert!(second.wait().expect("its end").success());
    // After the first was killed.
    let mut second = in_container(&two, &at, "the second one's again");
    drop(second.stdin.take());
    assert!(second.wait().expect("its end").success());
    let text = |directory: &Path| std::fs::read_to_string(directory.join("a.log")).expect("text");
    assert_eq!(text(&two), "the second one's\nthe second one's again\n");
    assert_eq!(text(&one), "");
    let mut first = in_container(&one, &at, "the first one's again");
    drop(first.stdin.take());
    assert!(first.wait().expect("its end").success());
    assert_eq!(text(&one), "the first one's\nthe first one's again\n");
}
