//! Real disks: one of 32 MiB that is full, one that becomes read-only under the log. They need root
//! and a loop device.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use common::{
    DAY, LONG, MS, Told, has_lines, kept, names, numbers_of, put, quick, read, say, turn,
    wait_until,
};
use inkstone_appender::{Builder, Keep, LogWriter, Rotation, Survive};
use inkstone_host::{LoopDevice, LoopOptions, Mount};
use inkstone_io::is_root;

/// A small disk of its own. Dropping it unmounts, detaches and removes it.
struct SmallDisk {
    mount: Option<Mount>,
    device: LoopDevice,
    directory: tempfile::TempDir,
    file_system: &'static str,
}

/// ext4 of 32 MiB.
fn small_disk(test: &str, options: &[&str]) -> Option<SmallDisk> {
    disk_of(test, "ext4", 32 << 20, &[&["-q", "-F", "-m", "0"], options].concat())
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
    fs::File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image");
    let device = attach(&image).map_err(|error| not_run(&error.to_string())).ok()?;
    let mkfs = format!("mkfs.{file_system}");
    let mut made = Command::new(&mkfs);
    // All disks of ext4 are of one second, so their first directories have one time of birth.
    made.args(options).arg(device.path()).env("E2FSPROGS_FAKE_TIME", "1700000000");
    let made = made.status();
    if !made.is_ok_and(|status| status.success()) {
        not_run(&format!("there is no {mkfs}"));
        return None;
    }
    fs::create_dir(directory.path().join("disk")).expect("made");
    let mut disk = SmallDisk { mount: None, device, directory, file_system };
    disk.mount();
    Some(disk)
}

fn attach(image: &Path) -> inkstone_io::Result<LoopDevice> {
    LoopDevice::attach(image, LoopOptions { direct_io: false, sector_bytes: 512 })
}

impl SmallDisk {
    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn log(&self) -> PathBuf {
        self.path().join("a.log")
    }

    fn mount(&mut self) {
        let options = if self.file_system == "ext4" { "errors=remount-ro" } else { "" };
        let mount = Mount::new(self.device.path(), &self.path(), self.file_system, options);
        self.mount = Some(mount.expect("mounted"));
    }

    fn unmount(&mut self) {
        self.mount.take().expect("mounted").unmount().expect("nobody has it open");
    }

    /// Leaves about this many bytes free.
    fn fill(&self, free_bytes: u64) -> PathBuf {
        let filler = self.path().join("filler");
        let mut file = fs::File::create(&filler).expect("created");
        while inkstone_io::free_bytes(&self.path()).expect("told") > free_bytes {
            match file.write_all(&[1; 64 << 10]).and_then(|()| file.sync_all()) {
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                written => written.expect("written"),
            }
        }
        filler
    }
}

/// A log in files of 1 MiB of which two are kept, compressed if that is built in; with its events,
/// and the largest number of files seen; a file and its compressed form count once.
fn rotating(path: &Path) -> (Builder, Told, Arc<AtomicUsize>) {
    let (told, most) = (Told::default(), Arc::new(AtomicUsize::new(0)));
    let (theirs, seen) = (told.clone(), Arc::clone(&most));
    let folder = path.parent().expect("a directory").to_path_buf();
    let builder = LogWriter::builder(path).buffers_bytes(1 << 20);
    let builder = builder.rotate(Rotation::new().at_bytes(1 << 20)).keep(Keep::new().files(2));
    #[cfg(feature = "gzip")]
    let builder = builder.compress(inkstone_appender::Compression::Gzip);
    let builder = builder.on_event(move |event| {
        theirs.push(event);
        let names = names(&folder).into_iter().filter(|name| !name.ends_with(".part"));
        let rotated = names.filter(|name| name.starts_with("a.log."));
        let rotated: std::collections::BTreeSet<_> =
            rotated.map(|name| name.trim_end_matches(".gz").to_owned()).collect();
        seen.fetch_max(rotated.len(), Ordering::Relaxed);
    });
    (builder, told, most)
}

/// The log's current file has the last of so many lines.
fn has_last(path: &Path, count: u64) {
    let (lines, others) = numbers_of(&read(path));
    assert!(lines.iter().copied().eq(lines[0]..count) && others.is_empty(), "{others:?}");
}

#[test]
#[ignore = "needs root, mkfs.ext4 and mkfs.btrfs"]
fn on_a_full_disk_lines_wait_and_follow_when_there_is_room() {
    let small = small_disk("a full disk", &[]);
    // A copy-on-write file system may need room to remove a file, too.
    let copying = disk_of("a full disk", "btrfs", 128 << 20, &["-q", "-f"]);
    [small, copying].into_iter().flatten().for_each(|disk| fill_and_free(&disk));
}

fn fill_and_free(disk: &SmallDisk) {
    let filler = disk.fill(0);
    let (builder, told, most) = rotating(&disk.log());
    let (log, guard) = builder.open().expect("opened");
    let count = 300_000;
    std::thread::scope(|scope| {
        let putting = scope.spawn(|| put(&log, 0..count));
        wait_until("writers that wait", || log.stats().waits > 0 && log.stats().write_errors >= 2);
        assert!(log.trouble().is_some_and(|error| error.to_string().contains("No space")));
        fs::remove_file(&filler).expect("removed");
        // Another process fills it up again and again, while files are rotated and compressed.
        while !putting.is_finished() {
            std::thread::sleep(20 * MS);
            fs::remove_file(disk.fill(0)).expect("removed");
        }
    });
    guard.flush(LONG).expect("by itself");
    guard.close().expect("closed");
    let stats = log.stats();
    assert_eq!((stats.written_lines, stats.dropped_lines), (count, 0), "{stats:?}");
    assert_eq!(most.load(Ordering::Relaxed), 2);
    assert!(told.count("No space") > 0 && told.count("written again") > 0, "{told:?}");
    has_last(&disk.log(), count);
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn disks_that_were_made_in_one_second_have_a_stage_each() {
    let disks = ["one", "another"].map(|test| small_disk(test, &[]));
    let logs = disks.iter().flatten().map(|disk| disk.log());
    let opened = logs.map(|log| kept(&log).drain_timeout(MS).open().expect("opened"));
    let opened: Vec<_> = opened.collect();
    opened.into_iter().for_each(|(_log, guard)| guard.close().expect("closed"));
}

/// What `errors=remount-ro` does under a log; after a check and another mount the next start has
/// every line.
#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_disk_that_becomes_read_only_is_told_and_no_line_is_lost() {
    let test = "a disk that becomes read-only";
    let Some(_turn) = turn(test) else { return };
    let Some(mut disk) = small_disk(test, &[]) else { return };
    let name = disk.device.path().file_name().expect("a name").to_string_lossy().into_owned();
    let trigger = PathBuf::from(format!("/sys/fs/ext4/{name}/trigger_fs_error"));
    let path = disk.log();
    let (builder, told, _) = rotating(&path);
    // Written but unsynced lines are lost with the disk, and do not count as waiting.
    let builder = builder.survive(Survive::PowerLoss(LONG)).drain_timeout(MS);
    let (log, guard) = builder.keep(Keep::new()).open().expect("opened");
    put(&log, 0..1000);
    guard.flush(LONG).expect("flushed");
    if let Err(error) = fs::write(&trigger, "a test") {
        eprintln!("NOT RUN: {test}: {}: {error}", trigger.display());
        return;
    }
    put(&log, 1000..3000);
    wait_until("a failure", || log.stats().write_errors > 0);
    let error = guard.close().expect_err("it is read-only").to_string();
    let unwritten = log.stats().unwritten_lines;
    assert!(error.starts_with(&format!("{unwritten} lines were not written")), "{error}");
    assert!(unwritten > 0 && told.count("cannot be written") > 0);
    drop(log);
    disk.unmount();
    let checked = Command::new("e2fsck").args(["-fy"]).arg(disk.device.path()).output();
    let checked = checked.expect("e2fsck");
    assert!(checked.status.code().is_some_and(|code| code < 4), "{checked:?}");
    disk.mount();
    assert!(common::next_start(kept(&path)).is_some());
    has_lines(&read(&path), 0..3000);
}

/// A disk with room, on which no more files can be made; one of those that take the last numbers.
/// It has a log of mode 0640.
fn disk_without_numbers(test: &str) -> Option<(SmallDisk, PathBuf)> {
    let disk = small_disk(test, &["-N", "64"])?;
    fs::write(disk.log(), "before\n").expect("written");
    common::set_modified(&disk.log(), SystemTime::now() - 3 * DAY);
    common::set_mode(&disk.log(), 0o640);
    let fillers = disk.path().join("fillers");
    fs::create_dir(&fillers).expect("made");
    let fill = |number: u64| fs::File::create_new(fillers.join(number.to_string()));
    let failed = (0..).find_map(|number| fill(number).err()).expect("it ends");
    assert_eq!(failed.kind(), std::io::ErrorKind::StorageFull);
    Some((disk, fillers.join("0")))
}

/// The next file cannot be created: lines continue in the old file.
#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_start_that_can_make_no_file_goes_on_in_the_old_one() {
    let made = disk_without_numbers("a start that can make no file");
    let Some((disk, filler)) = made else { return };
    let path = disk.log();
    let (builder, told) = quick(&path);
    let (log, guard) = builder.rotate(Rotation::new().every(DAY)).open().expect("opened");
    say(&log, "line\n");
    guard.flush(LONG).expect("lines go on");
    assert_eq!(read(&path), "before\nline\n");
    let said = told.all();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("No space") && said[0].contains("no inode is left"), "{said:?}");
    fs::remove_file(filler).expect("removed");
    wait_until("the rotation that is due", || log.stats().rotations == 1);
    let facts = fs::metadata(&path).expect("there");
    assert_eq!((facts.len(), facts.permissions().mode() & 0o777), (0, 0o640));
    guard.close().expect("closed");
}
