//! A log on file systems that lack something: small sectors, fallocate, or a name that says what
//! lies below.
//!
//! *Owns*: real file systems on loop devices, made and removed by each test. *May not touch*: the
//! crate's insides.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::host_support::{EXT4, FileSystem, XFS, XFS_MIB, can_run, has_kernel};
use crate::surroundings::overlay;
use inkstone::inspect::{copy, dump, salvage, verify};
use inkstone::{Access, Asks, Event, Log, Lsn, Options, Preparation, Reader};
use inkstone_host::LoopOptions;
use inkstone_io::{File as _, OpenFile, OsFile};

const XFS_LARGE_SECTORS: &[&str] = &["-q", "-f", "-b", "size=16k", "-s", "size=16k"];
const OLD_EXT: &[&str] = &["-q", "-F"];

/// Segments of 1 MiB, so that a few hundred records change them several times.
fn options() -> Options {
    Options::new().segment_bytes(1 << 20).record_bytes_max(64 << 10)
}

fn record(lsn: u64) -> Vec<u8> {
    vec![lsn as u8; 20_000]
}

fn append(log: &Log, count: u64) {
    for _ in 0..count {
        let next = log.last().get() + 1;
        assert_eq!(log.append_durable(&record(next)).unwrap().get(), next);
    }
}

fn check(reader: &Reader, last: u64) {
    let mut next = 1;
    for shown in reader.records(Lsn::FIRST) {
        let shown = shown.unwrap();
        assert_eq!((shown.lsn.get(), &shown.bytes), (next, &record(next)));
        next += 1;
    }
    assert_eq!(next, last + 1);
    for lsn in [1, last / 2, last] {
        assert_eq!(reader.get(Lsn::new(lsn)).unwrap(), record(lsn));
    }
}

/// The whole life of a log: made, filled over several segments, read beside its writer, killed,
/// opened again, closed, looked at by every tool. Gives what it said had to be done in another way.
fn use_log(path: &Path, options: &Options) -> Vec<String> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let options = options.clone().listener(move |event| {
        if let Event::Fallback { what } = event {
            tells.lock().unwrap().push(what.clone());
        }
    });
    let log = Log::open(path, options.clone()).unwrap();
    append(&log, 120);
    log.sync().unwrap();
    check(&log.reader(), 120);
    let beside = Reader::open(path, &Options::new()).unwrap();
    assert!(beside.records(Lsn::FIRST).all(|record| record.is_ok()));
    drop(beside);
    log.truncate_before(Lsn::new(1)).unwrap();
    log.abandon();
    let log = Log::open(path, options.clone()).unwrap();
    assert_eq!(log.last(), Lsn::new(120));
    append(&log, 60);
    log.close().unwrap();
    drop(log);
    check(&Reader::open(path, &Options::new()).unwrap(), 180);
    let log = Log::open(path, options.clone()).unwrap();
    assert!(log.recovery().clean, "{:?}", log.recovery());
    log.close().unwrap();
    drop(log);
    assert!(verify(path).unwrap().is_intact());
    assert!(dump(path, 16).unwrap().all(|item| item.is_ok()));
    let beside = path.parent().unwrap();
    copy(path, beside.join("copied"), &options).unwrap();
    check(&Reader::open(beside.join("copied"), &Options::new()).unwrap(), 180);
    salvage(path, beside.join("salvaged"), &options).unwrap();
    std::mem::take(&mut *told.lock().unwrap())
}

/// The file of a segment of the log in `path`.
fn a_segment(path: &Path) -> PathBuf {
    let mut files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.find(|file| file.extension().is_some_and(|extension| extension == "ink")).unwrap()
}

/// O_DIRECT reads of blocks of 4 KiB are `EINVAL` here.
#[test]
#[ignore = "needs root and mkfs.xfs"]
fn a_log_on_sectors_larger_than_its_blocks_is_written_and_read() {
    let larger = "sectors larger than a page";
    if !can_run("large_sectors", &["mkfs.xfs"]) || !has_kernel("large_sectors", (6, 15), larger) {
        return;
    }
    let device = LoopOptions { sector_bytes: 16384, ..LoopOptions::default() };
    let mut made = FileSystem::on_device("xfs", XFS_MIB, XFS_LARGE_SECTORS, device);
    made.mount("xfs", "noatime");
    for (name, options) in [("small", Options::small()), ("full", options())] {
        let path = made.target().join(name).join("log");
        fs::create_dir(path.parent().unwrap()).unwrap();
        use_log(&path, &options);
    }
    let path = made.target().join("full/log");
    let log = Log::open(&path, options()).unwrap();
    assert_eq!(log.choice().strategy.access, Access::Buffered, "{}", log.choice());
    log.close().unwrap();
    drop(log);
    // Asked for by name, it is refused when the log is opened, also by a reader, and says why.
    let direct = options().access(Access::Direct);
    let refused = Log::open(&path, direct.clone()).unwrap_err().to_string();
    assert!(refused.contains("16384 in the file, and groups are aligned to 4096"), "{refused}");
    let refused = Reader::open(&path, &direct).unwrap_err().to_string();
    assert!(refused.contains("16384") && refused.contains("buffered"), "{refused}");
    // The layer below refuses it too, for code that opens such a file without asking first.
    let refused =
        OsFile::open(&a_segment(&path), &OpenFile::existing().access(Access::Direct)).unwrap_err();
    assert!(refused.is_unsupported() && refused.to_string().contains("16384"), "{refused}");
    made.remove();
}

/// Without fallocate: new segments get written zeros instead, and the log says so.
fn without_fallocate(kind: &str) {
    let test = format!("without_fallocate on {kind}");
    if !can_run(&test, &[&format!("mkfs.{kind}")]) {
        return;
    }
    let made = FileSystem::new(kind, 96, OLD_EXT);
    let probe = OsFile::open(&made.target().join("probe"), &OpenFile::new_file()).unwrap();
    assert!(
        probe.prepare(Preparation::Fallocate, 4096).unwrap_err().is_unsupported(),
        "else it shows nothing"
    );
    drop(probe);
    let cases = [
        ("small", Options::small(), true),
        ("reserved", options().preparation(Preparation::Fallocate), true),
        ("zeros", options(), false),
        // The pool is always empty here, so that segments would be reserved in passing.
        ("unprepared", options().own_thread(false), false),
    ];
    for (name, options, has_to_tell) in cases {
        let parent = made.target().join(name);
        fs::create_dir(&parent).unwrap();
        let told = use_log(&parent.join("log"), &options);
        let is_told = told.iter().any(|what| what.contains("fallocate"));
        assert!(is_told || !has_to_tell, "{name}: {told:?}");
        fs::remove_dir_all(&parent).unwrap();
    }
    // Large groups ask for reserved segments.
    let log = Log::open(made.target().join("large"), options().segment_bytes(8 << 20)).unwrap();
    for _ in 0..24 {
        for _ in 0..15 {
            drop(log.append(&[7; 60_000]).unwrap());
        }
        log.sync().unwrap();
    }
    log.close().unwrap();
    drop(log);
    assert_eq!(
        Reader::open(made.target().join("large"), &Options::new())
            .unwrap()
            .records(Lsn::FIRST)
            .count(),
        360
    );
    made.remove();
}

#[test]
#[ignore = "needs root and mkfs.ext2"]
fn a_log_on_ext2_does_without_fallocate() {
    without_fallocate("ext2");
}

#[test]
#[ignore = "needs root and mkfs.ext3"]
fn a_log_on_ext3_does_without_fallocate() {
    without_fallocate("ext3");
}

/// The name of the file system says nothing about the journal below it.
#[test]
#[ignore = "needs root and mkfs.ext4"]
fn an_overlay_over_a_journal_is_asked() {
    if !can_run("overlay", &["mkfs.ext4"]) {
        return;
    }
    let made = FileSystem::new("ext4", 64, EXT4);
    let mount = overlay(made.target(), "").unwrap();
    let path = mount.target().join("log");
    use_log(&path, &options());
    let log = Log::open(&path, options()).unwrap();
    assert_eq!(log.choice().asks, Asks::EachGroup, "{}", log.choice());
    log.close().unwrap();
    drop(log);
    mount.unmount().unwrap();
    made.remove();
}

/// The bytes themselves go through the journal, and O_DIRECT through the page cache without a word.
#[test]
#[ignore = "needs root, mkfs.ext4 and tune2fs"]
fn a_log_whose_bytes_go_through_a_journal_is_asked_and_read_past_the_cache() {
    if !can_run("data=journal", &["mkfs.ext4", "tune2fs"]) {
        return;
    }
    let mut made = FileSystem::unmounted("ext4", 64, EXT4);
    // If set in this way, the option is not in the table of mounts.
    crate::host_support::run(
        "tune2fs",
        &["-o", "journal_data", made.device.path().to_str().unwrap()],
    );
    made.mount("ext4", "noatime");
    let path = made.target().join("log");
    use_log(&path, &options());
    let log = Log::open(&path, options()).unwrap();
    assert_eq!(log.choice().asks, Asks::EachGroup, "{}", log.choice());
    log.close().unwrap();
    drop(log);
    let direct = OpenFile::existing().access(Access::Direct);
    let refused = OsFile::open(&a_segment(&path), &direct.read_only()).unwrap_err();
    assert!(refused.is_unsupported() && refused.to_string().contains("page cache"), "{refused}");
    OsFile::open(&a_segment(&path), &direct).unwrap();
    made.remove();
}

/// A `cp --reflink` of the segment in use: its overwrites then need metadata, and stay correct.
#[test]
#[ignore = "needs root and mkfs.xfs"]
fn a_reflink_of_the_active_segment_changes_nothing() {
    if !can_run("reflink", &["mkfs.xfs", "cp"]) {
        return;
    }
    let made = FileSystem::new("xfs", XFS_MIB, XFS);
    let path = made.target().join("log");
    let log = Log::open(&path, options()).unwrap();
    append(&log, 10);
    for name in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
        if name.extension().is_some_and(|extension| extension == "ink") {
            let to = made.target().join(name.file_name().unwrap());
            crate::host_support::run(
                "cp",
                &["--reflink=always", name.to_str().unwrap(), to.to_str().unwrap()],
            );
            let file = OsFile::open(&name, &OpenFile::existing().read_only()).unwrap();
            assert!(file.facts().unwrap().has_shared_extents);
        }
    }
    append(&log, 90);
    log.abandon();
    let log = Log::open(&path, options()).unwrap();
    check(&log.reader(), 100);
    log.close().unwrap();
    drop(log);
    made.remove();
}
