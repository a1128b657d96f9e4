//! Real disks: one of 32 MiB that is full, one that becomes read-only under the log. They need root
//! and a loop device.

mod common;

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LINE, LONG, Mood, MoodyDisk, check_lines, line, put, turn, wait_until};
use inkstone_appender::{Builder, Event, Keep, LogWriter, Rotation, Survive};
use inkstone_host::{LoopDevice, LoopOptions, Mount, in_forked_child};
use inkstone_io::is_root;

const DISK_BYTES: u64 = 32 << 20;

/// A small disk of its own. Dropping it unmounts, detaches and removes it.
struct SmallDisk {
    mount: Option<Mount>,
    device: LoopDevice,
    directory: tempfile::TempDir,
    file_system: &'static str,
}

fn small_disk(test: &str) -> Option<SmallDisk> {
    small_disk_with(test, &[])
}

fn small_disk_with(test: &str, options: &[&str]) -> Option<SmallDisk> {
    disk_of(test, "ext4", DISK_BYTES, &[&["-q", "-F", "-m", "0"], options].concat())
}

/// XFS, which can be told to stop. It has no smaller one than this; the image has holes.
fn small_xfs(test: &str) -> Option<SmallDisk> {
    if Command::new("xfs_io").arg("-V").output().is_err() {
        eprintln!("NOT RUN: {test}: there is no xfs_io");
        return None;
    }
    disk_of(test, "xfs", 512 << 20, &["-q", "-f"])
}

fn disk_of(
    test: &str,
    file_system: &'static str,
    bytes: u64,
    options: &[&str],
) -> Option<SmallDisk> {
    let not_run = |why: &str| eprintln!("NOT RUN: {test}: {why}");
    if !is_root() {
        not_run("a disk of its own needs root");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image");
    let device = match attach(&image) {
        Ok(device) => device,
        Err(error) => {
            not_run(&error.to_string());
            return None;
        }
    };
    let made =
        Command::new(format!("mkfs.{file_system}")).args(options).arg(device.path()).status();
    if !made.is_ok_and(|status| status.success()) {
        not_run(&format!("there is no mkfs.{file_system}"));
        return None;
    }
    std::fs::create_dir(directory.path().join("disk")).expect("made");
    let mut disk = SmallDisk { mount: None, device, directory, file_system };
    disk.mount();
    Some(disk)
}

fn attach(image: &Path) -> inkstone_io::Result<LoopDevice> {
    LoopDevice::attach(image, LoopOptions { direct_io: false, sector_bytes: 512, read_only: false })
}

impl SmallDisk {
    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn mount(&mut self) {
        let options = if self.file_system == "ext4" { "errors=remount-ro" } else { "" };
        let mount = Mount::new(self.device.path(), &self.path(), self.file_system, options);
        self.mount = Some(mount.expect("mounted"));
    }

    /// Mounts it again, on another device.
    fn attach_again(&mut self) {
        drop(self.mount.take());
        // The old one goes last: its number would be given again.
        self.device = attach(&self.directory.path().join("image")).expect("another");
        self.mount();
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
        .filter_map(|name| {
            name.strip_prefix("a.log.").map(|name| name.trim_end_matches(".gz").to_owned())
        })
        .collect()
}

/// A log in files of 1 MiB of which two are kept, compressed if that is built in; with its events,
/// and the largest number of files seen.
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

/// Room for the current file, two rotated ones and one that is being compressed, and 50 times as
/// many lines.
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

/// What `errors=remount-ro` does under a log; after a check and another mount the next start has
/// every line.
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
        unwritten > 0
            && told.lock().expect("no panic").iter().any(|told| told.contains("cannot be written"))
    );
    drop(log);
    disk.mount.take().expect("mounted").unmount().expect("unmounted");
    let checked =
        Command::new("e2fsck").args(["-fy"]).arg(disk.device.path()).output().expect("e2fsck");
    assert!(checked.status.code().is_some_and(|code| code < 4), "{checked:?}");
    disk.mount();
    let (builder, ..) = rotating(&path);
    let (_log, guard) = builder.survive(Survive::Kill).keep(Keep::new()).open().expect("opened");
    assert!(guard.recovery().is_some());
    guard.close().expect("closed");
    let (lines, others) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    assert!(
        lines[&0].iter().copied().eq(0..3000) && others.is_empty(),
        "from {}: {others:?}",
        lines[&0][0]
    );
}

/// Killed on a full disk. By the next start files are above the limit, and their room comes back
/// with the file system's next commit.
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
fn disk_without_numbers(
    test: &str,
    mut prepare: impl FnMut(&Path),
) -> Option<(SmallDisk, PathBuf)> {
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
    for (rotation, has_link) in
        [(Rotation::new().at_start(), false), (Rotation::new().every(day), true)]
    {
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
            assert!(told[0].contains("no inode is left"), "{told:?}");
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

/// Room comes back at the moment in which the log has stopped trying to create the file like the
/// one before.
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

/// Another number of the device, as of a loop device or of USB after a restart: the lines of a
/// killed process are found by what outlives the mount, and what was written before is not there
/// twice.
#[test]
fn lines_of_a_killed_process_come_back_though_the_disk_has_another_number() {
    const TEST: &str = "a disk with another number";
    let Some(_turn) = turn(TEST) else { return };
    let Some(mut disk) = small_disk(TEST) else { return };
    let path = disk.path().join("a.log");
    let before = std::fs::metadata(disk.path()).expect("there").dev();
    let code = in_forked_child(|| {
        let builder =
            LogWriter::builder(&path).survive(Survive::Kill).flush_every(Duration::from_millis(1));
        let moody = MoodyDisk::new(Mood::FailsHalfway(28));
        let (log, guard) = builder.on_event(|_| {}).open_on(moody).expect("opened");
        put(&log, 0..50);
        wait_until("an attempt", || log.stats().write_errors > 0);
        std::mem::forget(guard);
        1
    });
    assert_eq!(code.expect("a child"), 1);
    disk.attach_again();
    let now = std::fs::metadata(disk.path()).expect("there").dev();
    assert_ne!(before, now, "the number that it had");
    let builder = LogWriter::builder(&path).survive(Survive::Kill).on_event(|_| {});
    let (_log, guard) = builder.open().expect("opened");
    let recovery = guard.recovery().cloned().expect("lines");
    guard.close().expect("closed");
    let (lines, others) = check_lines(&std::fs::read_to_string(&path).expect("text"), LINE);
    assert_eq!((lines[&0].clone(), others), ((0..50).collect::<Vec<u64>>(), vec![]), "{recovery}");
    assert_eq!(recovery.doubt, None);
}

/// The file system stops (`xfs_io -c shutdown`), is unmounted and mounted again, while lines come
/// all the time: they go on without a HUP. As many rounds as asked: `INKSTONE_DISK_ROUNDS=100 cargo
/// test -p inkstone-appender --test disks -- away_and_back`
#[test]
fn a_disk_that_is_away_and_back_is_found_again_and_only_what_it_lost_is_missing() {
    const TEST: &str = "a disk away and back";
    let rounds: u32 =
        std::env::var("INKSTONE_DISK_ROUNDS").map_or(2, |rounds| rounds.parse().expect("a number"));
    let Some(mut disk) = small_xfs(TEST) else { return };
    let path = disk.path().join("a.log");
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let builder =
        LogWriter::builder(&path).flush_every(Duration::from_millis(1)).buffers_bytes(256 << 10);
    let builder = builder.buffer_bytes(8 << 10).on_event(move |event: &Event<'_>| {
        theirs.lock().expect("no panic").push(event.to_string());
    });
    let (log, guard) = builder.open().expect("opened");
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (theirs, writer) = (Arc::clone(&is_over), log.clone());
    let putting = std::thread::spawn(move || {
        let mut number = 0;
        while !theirs.load(Ordering::Relaxed) {
            put(&writer, number..number + 10);
            number += 10;
            // Slowly enough for a hundred rounds on this disk.
            std::thread::sleep(Duration::from_millis(3));
        }
        number
    });
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(fastrand::u64(10..60)));
        // Sometimes all that was written is on the medium, sometimes not.
        if round % 2 == 0 {
            let synced = Command::new("sync").arg("-f").arg(disk.path()).status().expect("sync");
            assert!(synced.success());
        }
        let stopped =
            Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(disk.path()).status();
        assert!(stopped.expect("xfs_io").success());
        wait_until("the trouble", || log.trouble().is_some());
        // Nothing of it stays open, so an ordinary unmount works.
        let mount = disk.mount.take().expect("mounted");
        mount.unmount().expect("nobody has it open");
        assert!(
            std::fs::read_dir(disk.path()).expect("listed").next().is_none(),
            "nothing was made below it"
        );
        disk.mount();
        wait_until("lines again", || log.trouble().is_none());
    }
    is_over.store(true, Ordering::Relaxed);
    let count = putting.join().expect("no panic");
    guard.flush(LONG).expect("flushed");
    let stats = log.stats();
    guard.close().expect("closed");
    let text = std::fs::read_to_string(&path).expect("text");
    let lines = |text: &str| {
        let whole = text.lines().filter_map(|found| {
            let number: u64 =
                found.strip_prefix("thread 0 line ")?.split(' ').next()?.parse().ok()?;
            (format!("{found}\n") == line(0, number, LINE)).then_some(number)
        });
        whole.collect::<Vec<_>>()
    };
    let found = lines(&text);
    assert!(found.is_sorted_by(|one, next| one < next), "a line is there twice, or out of order");
    let missing = (count - found.len() as u64) * LINE as u64;
    let told = told.lock().expect("no panic");
    let resumed = told.iter().filter(|told| told.contains("written again")).count();
    println!(
        "{rounds} rounds: {count} lines, {missing} bytes missing, {} told",
        stats.vanished_bytes
    );
    assert_eq!(resumed, rounds as usize, "{told:#?}");
    // The event counts the rest of a line that the disk kept in part.
    assert!(missing <= stats.vanished_bytes + u64::from(rounds) * LINE as u64, "{stats:?}");
    assert!(stats.vanished_bytes > 0 || missing == 0, "{stats:?}");
    let events = told.iter().filter(|told| told.contains("came back without")).count();
    assert_eq!(events > 0, stats.vanished_bytes > 0, "{told:#?}");
}
