//! Real disks: one of 32 MiB that is full, one that becomes read-only under the log. They need root and a loop device.

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LINE, LONG, check_lines, put, wait_until};
use inkstone_appender::{Builder, Event, Keep, LogWriter, Rotation, Survive};
use inkstone_host::{LoopDevice, LoopOptions, Mount};
use inkstone_io::is_root;

const DISK_BYTES: u64 = 32 << 20;

/// A small disk of its own. Dropping it unmounts, detaches and removes it.
struct SmallDisk {
    mount: Option<Mount>,
    device: LoopDevice,
    directory: tempfile::TempDir,
}

fn small_disk(test: &str) -> Option<SmallDisk> {
    small_disk_with(test, &[])
}

fn small_disk_with(test: &str, options: &[&str]) -> Option<SmallDisk> {
    let not_run = |why: &str| eprintln!("NOT RUN: {test}: {why}");
    if !is_root() {
        not_run("a disk of its own needs root");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).expect("an image");
    let device = match LoopDevice::attach(
        &image,
        LoopOptions { direct_io: false, sector_bytes: 512, read_only: false },
    ) {
        Ok(device) => device,
        Err(error) => {
            not_run(&error.to_string());
            return None;
        }
    };
    let made =
        Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).args(options).arg(device.path()).status();
    if !made.is_ok_and(|status| status.success()) {
        not_run("there is no mkfs.ext4");
        return None;
    }
    std::fs::create_dir(directory.path().join("disk")).expect("made");
    let mut disk = SmallDisk { mount: None, device, directory };
    disk.mount();
    Some(disk)
}

impl SmallDisk {
    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn mount(&mut self) {
        let mount = Mount::new(self.device.path(), &self.path(), "ext4", "errors=remount-ro");
        self.mount = Some(mount.expect("mounted"));
    }

    /// Leaves about this many bytes free.
    fn fill(&self, free_bytes: u64) -> PathBuf {
        let filler = self.path().join("filler");
        let mut file = std::fs::File::create(&filler).expect("created");
        while inkstone_io::free_bytes(&self.path()).expect("told") > free_bytes {
            match file.write_all(&[1; 64 << 10]).and_then(|()| file.sync_all()) {
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                written => written.expect("written"),
            }
        }
        filler
    }
}

/// Rotated files; a file and its compressed form count once.
fn rotated(folder: &Path) -> std::collections::BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("text"));
    let names = names.filter(|name| !name.ends_with(".part"));
    names
        .filter_map(|name| name.strip_prefix("a.log.").map(|name| name.trim_end_matches(".gz").to_owned()))
        .collect()
}

/// A log in files of 1 MiB of which two are kept, compressed if that is built in; with its events, and the largest number of
/// files seen.
fn rotating(path: &Path) -> (Builder, Arc<Mutex<Vec<String>>>, Arc<AtomicUsize>) {
    let (told, most) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (theirs, seen) = (Arc::clone(&told), Arc::clone(&most));
    let folder = path.parent().expect("a directory").to_path_buf();
    let builder = LogWriter::builder(path).buffers_bytes(1 << 20).buffer_bytes(64 << 10);
    let builder = builder.rotate(Rotation::new().at_bytes(1 << 20)).keep(Keep::new().files(2));
    #[cfg(feature = "gzip")]
    let builder = builder.compress(inkstone_appender::Compression::Gzip);
    let builder = builder.on_event(move |event: &Event<'_>| {
        if matches!(event, Event::Rotated { .. }) {
            seen.fetch_max(rotated(&folder).len(), Ordering::Relaxed);
        } else {
            theirs.lock().expect("no panic").push(event.to_string());
        }
    });
    (builder, told, most)
}

/// Room for the current file, two rotated ones and one that is being compressed, and 50 times as many lines.
#[test]
fn on_a_small_disk_at_full_speed_room_comes_back_by_itself() {
    let Some(disk) = small_disk("room comes back by itself") else { return };
    disk.fill(5 << 20);
    let path = disk.path().join("a.log");
    let (builder, _told, most) = rotating(&path);
    let (log, guard) = builder.open().expect("opened");
    let count = 2_000_000;
    put(&log, 0..count);
    guard.flush(LONG).expect("it never stays full");
    guard.close().expect("closed");
    let stats = log.stats();
    assert_eq!((stats.written_lines, stats.dropped_lines), (count, 0), "{stats:?}");
    assert_eq!(most.load(Ordering::Relaxed), 2, "never more than asked for");
    // Since the last rotation.
    let text = std::fs::read_to_string(&path).expect("text");
    let (lines, others) = check_lines(&text, LINE);
    let first = lines[&0][0];
    assert!(lines[&0].iter().copied().eq(first..count) && others.is_empty(), "{others:?}");
}

#[test]
fn on_a_full_disk_lines_wait_and_follow_when_there_is_room() {
    let Some(disk) = small_disk("a full disk") else { return };
    let filler = disk.fill(0);
    let path = disk.path().join("a.log");
    let (builder, told, most) = rotating(&path);
    let (log, guard) = builder.open().expect("opened");
    let count = 100_000;
    std::thread::scope(|scope| {
        scope.spawn(|| put(&log, 0..count));
        wait_until("writers that wait", || log.stats().waits > 0 && log.stats().write_errors >= 2);
        assert!(log.trouble().is_some_and(|error| error.to_string().contains("No space")));
        std::fs::remove_file(&filler).expect("removed");
    });
    guard.flush(LONG).expect("by itself");
    guard.close().expect("closed");
    let stats = log.stats();
    assert_eq!((stats.written_lines, stats.dropped_lines), (count, 0), "{stats:?}");
    assert_eq!(most.load(Ordering::Relaxed), 2);
    let told = told.lock().expect("no panic");
    assert!(told.iter().any(|told| told.contains("No space")), "{told:?}");
    assert!(told.iter().any(|told| told.contains("written again")), "{told:?}");
    let (lines, others) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    let first = lines[&0][0];
    assert!(lines[&0].iter().copied().eq(first..count) && others.is_empty(), "{others:?}");
}

/// What `errors=remount-ro` does under a log; after a check and another mount the next start has every line.
#[test]
fn a_disk_that_becomes_read_only_is_told_and_no_line_is_lost() {
    let test = "a disk that becomes read-only";
    let Some(mut disk) = small_disk(test) else { return };
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("NOT RUN: {test}: there is no /dev/shm");
        return;
    }
    let name = disk.device.path().file_name().expect("a name").to_string_lossy().into_owned();
    let trigger = PathBuf::from(format!("/sys/fs/ext4/{name}/trigger_fs_error"));
    let path = disk.path().join("a.log");
    let (builder, told, _) = rotating(&path);
    // Written but unsynced lines are lost with the disk, and do not count as waiting.
    let builder = builder.survive(Survive::PowerLoss(LONG)).drain_timeout(Duration::from_millis(1));
    let (log, guard) = builder.keep(Keep::new()).open().expect("opened");
    put(&log, 0..1000);
    guard.flush(LONG).expect("flushed");
    if let Err(error) = std::fs::write(&trigger, "a test") {
        eprintln!("NOT RUN: {test}: {}: {error}", trigger.display());
        return;
    }
    put(&log, 1000..3000);
    wait_until("a failure", || log.stats().write_errors > 0);
    let stats = log.stats();
    let error = guard.close().expect_err("it is read-only").to_string();
    let unwritten = log.stats().unwritten_lines;
    assert!(error.starts_with(&format!("{unwritten} lines were not written")), "{error} {stats:?}");
    assert!(
        unwritten > 0 && told.lock().expect("no panic").iter().any(|told| told.contains("cannot be written"))
    );
    drop(log);
    disk.mount.take().expect("mounted").unmount().expect("unmounted");
    let checked = Command::new("e2fsck").args(["-fy"]).arg(disk.device.path()).output().expect("e2fsck");
    assert!(checked.status.code().is_some_and(|code| code < 4), "{checked:?}");
    disk.mount();
    let (builder, ..) = rotating(&path);
    let (_log, guard) = builder.survive(Survive::Kill).keep(Keep::new()).open().expect("opened");
    assert!(guard.recovery().is_some());
    guard.close().expect("closed");
    let (lines, others) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    assert!(lines[&0].iter().copied().eq(0..3000) && others.is_empty(), "from {}: {others:?}", lines[&0][0]);
}

/// Killed on a full disk. By the next start files are above the limit, and their room comes back with the file system's next commit.
#[test]
fn a_start_on_a_full_disk_has_the_room_of_files_above_the_limits() {
    let Some(disk) = small_disk("a start on a full disk") else { return };
    let path = disk.path().join("a.log");
    let old = disk.path().join("a.log.20200101T000000Z.0");
    std::fs::write(&old, vec![b'\n'; 2 << 20]).expect("written");
    let year_2020 = std::time::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
    std::fs::File::options()
        .write(true)
        .open(&old)
        .and_then(|file| file.set_modified(year_2020))
        .expect("dated");
    disk.fill(0);
    let builder = || {
        let builder = LogWriter::builder(&path).survive(Survive::Kill).buffers_bytes(1 << 20);
        builder.flush_every(Duration::from_millis(1)).on_event(|_| {})
    };
    let code = inkstone_host::in_forked_child(|| {
        let (log, guard) = builder().open().expect("opened");
        put(&log, 0..5000);
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
    let (_log, guard) = builder().keep(Keep::new().days(30)).open().expect("there is room by then");
    guard.close().expect("closed");
    assert!(!old.exists());
    let (lines, others) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    assert_eq!((lines[&0].len(), others.len()), (5000, 0));
}

/// A disk with room, on which no more files can be made; one of those that take the last numbers.
fn disk_without_numbers(test: &str, mut prepare: impl FnMut(&Path)) -> Option<(SmallDisk, PathBuf)> {
    let disk = small_disk_with(test, &["-N", "64"])?;
    prepare(&disk.path());
    let fillers = disk.path().join("fillers");
    std::fs::create_dir(&fillers).expect("made");
    let fill = |number: u64| std::fs::File::create_new(fillers.join(number.to_string()));
    let failed = (0..).find_map(|number| fill(number).err()).expect("it ends");
    assert_eq!(failed.kind(), std::io::ErrorKind::StorageFull);
    Some((disk, fillers.join("0")))
}

fn listening(path: &Path) -> (Builder, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let builder = LogWriter::builder(path).flush_every(Duration::from_millis(1));
    (builder.on_event(move |event| theirs.lock().expect("no panic").push(event.to_string())), told)
}

/// Neither the next file nor the link can be created: lines continue in the old file.
#[test]
fn a_start_that_can_make_no_file_goes_on_in_the_old_one() {
    use std::os::unix::fs::PermissionsExt as _;
    let day = Duration::from_secs(86_400);
    for (rotation, has_link) in [(Rotation::new().at_start(), false), (Rotation::new().every(day), true)] {
        let made = disk_without_numbers("a start that can make no file", |folder| {
            let file = std::fs::File::create(folder.join("a.log")).expect("made");
            (&file).write_all(b"before\n").expect("written");
            file.set_modified(std::time::SystemTime::now() - 3 * day).expect("dated");
            file.set_permissions(std::fs::Permissions::from_mode(0o640)).expect("mode");
        });
        let Some((disk, filler)) = made else { return };
        let path = disk.path().join("a.log");
        let (builder, told) = listening(&path);
        let builder = if has_link { builder.latest("latest") } else { builder };
        let (mut log, guard) = builder.rotate(rotation).open().expect("opened");
        log.write_all(b"line\n").expect("accepted");
        guard.flush(LONG).expect("lines go on");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "before\nline\n");
        {
            let told = told.lock().expect("no panic");
            assert_eq!(told.len(), 1 + usize::from(has_link), "{told:?}");
            assert!(told.iter().all(|told| told.contains("No space")), "{told:?}");
            assert!(!has_link || told[1].contains("latest"), "{told:?}");
        }
        if rotation == Rotation::new().every(day) {
            std::fs::remove_file(filler).expect("removed");
            wait_until("the rotation that is due", || log.stats().rotations == 1);
            let facts = std::fs::metadata(&path).expect("there");
            assert_eq!((facts.len(), facts.permissions().mode() & 0o777), (0, 0o640));
        }
        guard.close().expect("closed");
    }
}

/// Room comes back at the moment in which the log has stopped trying to create the file like the one before.
#[derive(Clone)]
struct Freeing(PathBuf);

impl inkstone_appender::Disk for Freeing {
    fn open(
        &self,
        directory: &inkstone_appender::OsDirectory,
        name: &str,
    ) -> inkstone_appender::Result<Box<dyn inkstone_appender::LogFile>> {
        if directory.look(name)?.is_none() {
            let _ = std::fs::remove_file(&self.0);
        }
        inkstone_appender::OsDisk.open(directory, name)
    }
}

#[test]
fn a_file_that_is_made_when_there_is_room_again_is_like_the_one_before() {
    use std::os::unix::fs::PermissionsExt as _;
    let path_in = |folder: &Path| folder.join("a.log");
    let made = disk_without_numbers("a file made when there is room again", |folder| {
        let file = std::fs::File::create(path_in(folder)).expect("made");
        file.set_permissions(std::fs::Permissions::from_mode(0o640)).expect("mode");
    });
    let Some((disk, filler)) = made else { return };
    let path = path_in(&disk.path());
    let (builder, _told) = listening(&path);
    let (mut log, guard) = builder.open_on(Freeing(filler.clone())).expect("opened");
    std::fs::rename(&path, disk.path().join("a.log.1")).expect("moved");
    log.reopen();
    // The first of them may still go to the old file.
    wait_until("a failure", || {
        log.write_all(b"line\n").expect("accepted");
        log.stats().write_errors > 0 || path.exists()
    });
    let _ = std::fs::remove_file(&filler);
    guard.flush(LONG).expect("there is room");
    guard.close().expect("closed");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
}
