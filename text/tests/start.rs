//! The order of an opening: it checks the file, makes room, recovers lines, and begins what is due.
//! And what it leaves.

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use common::{
    LINE, LONG, Mood, MoodyDisk, SHM, line, names, place, put, stage_of, turn, wait_until,
};
use inkstone_appender::{
    AppendFacts, Builder, Disk, Error, Event, Keep, LogFile, LogWriter, OsDirectory, OsDisk,
    Result, Rotation, Survive,
};
use inkstone_host::{fork_child, in_forked_child};
use inkstone_io::{AppendFile, Directory as _, is_root};

const DAY: Duration = Duration::from_secs(86_400);
const ENOSPC: i32 = 28;
const EACCES: i32 = 13;
const EIO: i32 = 5;
const LINES: &str = "line 1\nline 2\nline 3\nline 4\n";
const ROTATED: &str = "a.log.20261121T160533Z.0";

type Told = Arc<Mutex<Vec<String>>>;

fn builder(path: &Path) -> (Builder, Told) {
    let told = Told::default();
    let theirs = Arc::clone(&told);
    let builder = LogWriter::builder(path).flush_every(Duration::from_millis(1));
    let builder = builder.on_event(move |event: &Event<'_>| {
        theirs.lock().expect("no panic").push(event.to_string());
    });
    (builder, told)
}

fn kept(path: &Path) -> Builder {
    builder(path).0.survive(Survive::Kill)
}

/// A process that puts the lines, and is killed before the disk has accepted them.
fn killed(builder: Builder) {
    let code = in_forked_child(|| {
        let (mut log, guard) =
            builder.open_on(MoodyDisk::new(Mood::Fails(ENOSPC))).expect("opened");
        log.write_all(LINES.as_bytes()).expect("accepted");
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("text")
}

fn make_old(path: &Path) {
    let file = File::options().write(true).open(path).expect("open");
    file.set_modified(SystemTime::now() - 3 * DAY).expect("dated");
}

/// Accepts nothing while this file is there, and for a number of calls after that.
#[derive(Clone)]
struct FullDisk {
    because_of: PathBuf,
    times: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl FullDisk {
    fn is_full(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let fewer = |times: u64| times.checked_sub(1);
        self.because_of.exists()
            || self.times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }
}

impl Disk for FullDisk {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        // No room for the file either.
        if !directory.path().join(name).exists() && self.is_full() {
            return Err(Error::new(
                "open log",
                &self.because_of,
                std::io::Error::from_raw_os_error(ENOSPC),
            ));
        }
        Ok(Box::new(FullFile(OsDisk.open(directory, name)?, self.clone())))
    }
}

struct FullFile(Box<dyn LogFile>, FullDisk);

impl std::fmt::Debug for FullFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a file")
    }
}

impl LogFile for FullFile {
    fn append(&self, bytes: &[u8]) -> Result<usize> {
        if self.1.is_full() {
            return Err(Error::new(
                "append",
                &self.1.because_of,
                std::io::Error::from_raw_os_error(ENOSPC),
            ));
        }
        self.0.append(&bytes[..bytes.len().min(10)])
    }

    fn facts(&self) -> Result<AppendFacts> {
        self.0.facts()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
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
        let disk =
            FullDisk { because_of: old, times: Arc::new(AtomicU64::new(3)), asked: Arc::default() };
        let log = kept(&path).keep(Keep::new().days(1));
        let (_log, guard) = log.open_on(disk.clone()).expect("there is room by now");
        assert_eq!(guard.recovery().expect("lines").bytes, LINES.len() as u64);
        guard.close().expect("closed");
        assert_eq!((read(&path).as_str(), disk.times.load(Ordering::Relaxed)), (LINES, 0));
    }
}

/// Refuses to create files, or to write into them.
#[derive(Debug, Clone, Copy)]
struct Refusing(i32);

impl Disk for Refusing {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        if self.0 == EACCES {
            return Err(Error::new("open log", name, std::io::Error::from_raw_os_error(EACCES)));
        }
        MoodyDisk::new(Mood::Fails(self.0)).open(directory, name)
    }
}

/// Such a start does not need room.
#[test]
fn a_start_that_is_refused_removes_no_rotated_file() {
    let Some(_turn) = turn("a refused start") else { return };
    for code in [EACCES, EIO] {
        let (directory, path) = place();
        fs::write(directory.path().join("somebodys"), "").expect("written");
        let rotated = [0, 1, 2].map(|number| format!("a.log.20200101T000000Z.{number}"));
        for name in &rotated {
            fs::write(directory.path().join(name), "old\n").expect("written");
        }
        if code == EIO {
            killed(kept(&path));
        }
        let before = names(directory.path());
        let start = || kept(&path).keep(Keep::new().files(1)).rotate(Rotation::new().at_start());
        start().latest("latest").open_on(Refusing(code)).expect_err("refused");
        let mut behind = names(directory.path());
        behind.retain(|name| name != "a.log" || before.contains(name));
        assert_eq!(behind, before, "{code}");
        let (_log, guard) = start().open().expect("opened");
        guard.close().expect("closed");
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
    fs::write(&link, "somebody's\n").expect("written");
    killed(kept(&path));
    let (builder, told) = builder(&path);
    let (_log, guard) = builder.survive(Survive::Kill).latest("latest").open().expect("opened");
    guard.close().expect("closed");
    assert_eq!((read(&path).as_str(), read(&link).as_str()), (LINES, "somebody's\n"));
    let told = told.lock().expect("no panic").clone();
    assert!(
        told.len() == 2 && told[1].contains("latest") && told[1].contains("not a link"),
        "{told:?}"
    );
}

/// The file is moved away while a start waits for room for its lines.
#[test]
fn a_file_that_a_waiting_start_makes_is_like_the_one_before() {
    let Some(_turn) = turn("a file moved while a start waits") else { return };
    let (directory, path) = place();
    fs::write(&path, "").expect("written");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("mode");
    // In several buffers: the first of them waits, the others are written after the file was moved.
    let code = in_forked_child(|| {
        let builder = kept(&path).buffers_bytes(64 << 10).buffer_bytes(4 << 10);
        let (log, guard) = builder.open_on(MoodyDisk::new(Mood::Fails(ENOSPC))).expect("opened");
        put(&log, 0..100);
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
    let reason = directory.path().join("full");
    fs::write(&reason, "").expect("written");
    let disk =
        FullDisk { because_of: reason.clone(), times: Arc::default(), asked: Arc::default() };
    let asked = Arc::clone(&disk.asked);
    let (flag, moved) = (Arc::new(AtomicBool::new(false)), directory.path().join("a.log.1"));
    std::thread::scope(|scope| {
        let start = scope.spawn(|| {
            let builder = kept(&path).drain_timeout(LONG).reopen_when(Arc::clone(&flag));
            builder.open_on(disk).expect("there is room by now")
        });
        wait_until("a start that waits", || asked.load(Ordering::Relaxed) > 0);
        fs::rename(&path, &moved).expect("moved");
        flag.store(true, Ordering::Relaxed);
        fs::remove_file(&reason).expect("removed");
        let (mut log, guard) = start.join().expect("no panic");
        wait_until("the new file", || path.exists());
        log.write_all(b"behind\n").expect("accepted");
        guard.close().expect("closed");
    });
    let all = [&moved, &path].map(|path| fs::read_to_string(path).unwrap_or_default()).concat();
    let lines: String = (0..100).map(|number| line(0, number, LINE)).collect();
    assert_eq!(all, format!("{lines}behind\n"));
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
}

/// Nothing is lost if no room comes.
#[test]
fn a_start_on_a_disk_that_stays_full_is_refused_and_its_lines_stay() {
    let Some(_turn) = turn("a start on a disk that stays full") else { return };
    let (_directory, path) = place();
    killed(kept(&path));
    let disk = FullDisk { because_of: path.clone(), times: Arc::default(), asked: Arc::default() };
    let since = Instant::now();
    let refused = kept(&path).drain_timeout(Duration::from_millis(100)).open_on(disk);
    let error = refused.expect_err("it is full").to_string();
    assert!(
        error.contains("stay in memory") && since.elapsed() >= Duration::from_millis(100),
        "{error}"
    );
    let (_log, guard) = kept(&path).open().expect("opened");
    guard.close().expect("closed");
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
        let last =
            [u32::MAX, u32::MAX - 1].map(|number| format!("a.log.99991231T235959Z.{number}"));
        for name in &last {
            fs::write(directory.path().join(name), "").expect("written");
        }
        let (builder, told) = builder(&path);
        let (mut log, guard) = builder.rotate(rotation).open().expect("opened");
        log.write_all(b"line\n").expect("accepted");
        guard.flush(LONG).expect("flushed");
        assert_eq!(read(&path), "before\nline\n");
        let told = || told.lock().expect("no panic").clone();
        assert!(told()[0].contains("there is no name after"), "{:?}", told());
        if rotation != Rotation::new().at_start() {
            for name in last {
                fs::remove_file(directory.path().join(name)).expect("removed");
            }
            wait_until("the rotation that is due", || log.stats().rotations == 1);
        }
        guard.close().expect("closed");
    }
}

/// Killed when the file had its last name, and the next one was not there yet.
#[test]
fn a_file_that_is_missing_at_the_start_is_made_like_the_newest_rotated_one() {
    let Some(_turn) = turn("the owner after a kill") else { return };
    for (has_lines, rotated) in
        [(true, ROTATED), (false, ROTATED), (false, "a.log.20261121T160533Z.0.gz")]
    {
        let (directory, path) = place();
        if has_lines {
            killed(kept(&path));
            fs::rename(&path, directory.path().join(rotated)).expect("renamed");
        }
        fs::write(directory.path().join("a.log.20261120T160533Z.0"), "older\n").expect("written");
        let rotated = directory.path().join(rotated);
        File::options().append(true).create(true).open(&rotated).expect("made");
        fs::set_permissions(&rotated, PermissionsExt::from_mode(0o640)).expect("mode");
        let is_others = std::os::unix::fs::chown(&rotated, Some(65534), Some(4)).is_ok();
        let (_log, guard) = kept(&path).open().expect("opened");
        guard.close().expect("closed");
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
}

/// A user who may create files there would get access to the log, or give it to everybody.
#[test]
fn a_file_that_is_missing_is_like_no_rotated_one_that_others_could_have_put_there() {
    for mode in [0o777, 0o1777, 0o775] {
        let (directory, path) = place();
        let planted = directory.path().join(ROTATED);
        fs::write(&planted, "").expect("written");
        fs::set_permissions(&planted, PermissionsExt::from_mode(0o666)).expect("mode");
        if is_root() {
            std::os::unix::fs::chown(&planted, Some(65534), Some(65534)).expect("given");
        }
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(mode)).expect("mode");
        let mine = fs::metadata(directory.path()).expect("there").uid();
        let (_log, guard) = builder(&path).0.file_mode(0o600).open().expect("opened");
        guard.close().expect("closed");
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
    let (mut log, guard) = kept(&path).rotate(Rotation::new().every(DAY)).open().expect("opened");
    log.write_all(b"today\n").expect("accepted");
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
    let refused = || assert!(kept().open_on(Refusing(EACCES)).is_err());
    refused();
    assert!(!stage.exists());
    assert!(kept().buffers_bytes(1 << 50).open().is_err(), "so much memory there is not");
    assert!(!stage.exists());
    killed(kept());
    refused();
    assert!(stage.exists());
    let (_log, guard) = kept().open().expect("opened");
    guard.close().expect("closed");
    assert_eq!(read(&path), LINES);
    assert!(!stage.exists());
}

#[test]
fn a_stage_directory_of_somebody_elses_is_told_and_another_is_made() {
    let Some(_turn) = turn("somebody's stage directory") else { return };
    let memory = tempfile::tempdir_in(SHM).expect("a directory");
    let (_directory, path) = place();
    let first = stage_of(memory.path(), &path).parent().expect("a directory").to_path_buf();
    fs::write(&first, "somebody's\n").expect("written");
    let kept = || kept(&path).stage_directory(memory.path());
    let (_log, guard) = kept().open().expect("opened");
    assert!(
        kept()
            .drain_timeout(Duration::ZERO)
            .open()
            .expect_err("it is open")
            .to_string()
            .contains("another writer")
    );
    guard.close().expect("closed");
    killed(kept());
    fs::remove_file(first).expect("removed");
    let (builder, told) = builder(&path);
    let (_log, guard) =
        builder.survive(Survive::Kill).stage_directory(memory.path()).open().expect("opened");
    guard.close().expect("closed");
    assert_eq!(read(&path), LINES);
    assert!(!told.lock().expect("no panic").iter().any(|told| told.contains("instead")));
}

/// A daemon: opens its log, forks, and lives on in the child.
#[test]
fn a_child_opens_the_log_that_its_parent_has_closed() {
    let Some(_turn) = turn("a daemon") else { return };
    let (_directory, path) = place();
    let (mut log, guard) = kept(&path).open().expect("opened");
    log.write_all(b"the parent's\n").expect("accepted");
    let (mut closed, mut tell) = std::io::pipe().expect("a pipe");
    let child = fork_child(|| {
        std::io::Read::read_exact(&mut closed, &mut [0]).expect("told");
        let (mut log, guard) = kept(&path).open().expect("nobody else has it");
        log.write_all(b"the child's\n").expect("accepted");
        u8::from(kept(&path).drain_timeout(Duration::ZERO).open().is_err() && guard.close().is_ok())
    });
    let child = child.expect("a child");
    guard.close().expect("closed");
    tell.write_all(b"x").expect("told");
    assert_eq!(child.wait().expect("its end"), 1);
    assert_eq!(read(&path), "the parent's\nthe child's\n");
}

/// An earlier process made it for a rotation, and was killed before it renamed it.
#[test]
fn a_next_file_that_was_left_goes_with_a_start() {
    for is_rotated in [false, true] {
        let (directory, path) = place();
        let held = OsDirectory::open(directory.path()).expect("held");
        let file = AppendFile::open(&held, "a.log").expect("made");
        file.append(b"before\n").expect("taken");
        AppendFile::create_private(&held, ".a.log.inkstone-next").expect("made");
        drop(file);
        let rotation = if is_rotated { Rotation::new().at_start() } else { Rotation::new() };
        let (_log, guard) = builder(&path).0.rotate(rotation).open().expect("opened");
        guard.close().expect("closed");
        let names = names(directory.path());
        assert_eq!(names.len(), 1 + usize::from(is_rotated), "{names:?}");
        // A foreign file of that name is left alone.
        fs::write(directory.path().join(".a.log.inkstone-next"), "somebody's\n").expect("written");
        let (_log, guard) = builder(&path).0.open().expect("opened");
        guard.close().expect("closed");
        assert_eq!(read(&directory.path().join(".a.log.inkstone-next")), "somebody's\n");
    }
}

#[test]
fn a_compressed_file_that_was_not_finished_goes_though_nothing_is_compressed_now() {
    let (directory, path) = place();
    fs::write(directory.path().join(format!("{ROTATED}.gz.part")), "half").expect("written");
    let (_log, guard) = builder(&path).0.open().expect("opened");
    guard.close().expect("closed");
    assert_eq!(names(directory.path()), ["a.log"]);
}

/// Of a process that was killed, or found the disk full.
#[test]
fn the_first_line_stands_behind_the_half_of_another_on_a_line_of_its_own() {
    let (directory, path) = place();
    fs::write(&path, "half a line").expect("written");
    let open = || builder(&path).0.open().expect("opened");
    open().1.close().expect("closed");
    assert_eq!(read(&path), "half a line", "nothing is to be written");
    let (mut log, guard) = open();
    log.write_all(b"first\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    assert_eq!(read(&path), "half a line\nfirst\n");
    // Pieces of one line, as far as the log knows.
    log.write_all(b"second").expect("accepted");
    guard.flush(LONG).expect("flushed");
    log.reopen();
    log.write_all(b", whole\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    assert_eq!(read(&path), "half a line\nfirst\nsecond, whole\n");
    // Another file with such an end.
    let moved = directory.path().join("moved");
    fs::rename(&path, &moved).expect("moved");
    fs::write(&path, "another's half").expect("written");
    log.reopen();
    wait_until("the other file", || {
        log.write_all(b"last\n").expect("accepted");
        guard.flush(LONG).expect("flushed");
        read(&path).ends_with("last\n")
    });
    assert!(read(&path).starts_with("another's half\nlast\n"), "{}", read(&path));
    guard.close().expect("closed");
    // A disk that writes half of the bytes, and then nothing.
    let (_directory, path) = place();
    fs::write(&path, "half a line").expect("written");
    let disk = MoodyDisk::new(Mood::FailsHalfway(ENOSPC));
    let (mut log, guard) = builder(&path).0.open_on(disk.clone()).expect("opened");
    log.write_all(LINES.as_bytes()).expect("accepted");
    wait_until("an attempt", || log.stats().write_errors > 0);
    disk.set(Mood::Works);
    guard.close().expect("closed");
    assert_eq!(read(&path), format!("half a line\n{LINES}"));
}

/// Rotating and compressing such a name could never work, and options change: so it is refused,
/// before anything is made.
#[test]
fn a_name_that_leaves_no_room_for_those_of_rotated_files_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = |bytes: usize| builder(&directory.path().join("n".repeat(bytes))).0.open();
    let error = open(219).expect_err("too long").to_string();
    assert!(error.contains("219 bytes") && error.contains("at most 218 bytes"), "{error}");
    assert_eq!(names(directory.path()), [""; 0]);
    open(218).expect("opened").1.close().expect("closed");
}
