//! A disk that takes no writes any more, for three reasons: it is mounted so, an error has turned
//! it so, it is full.
//!
//! *Owns*: file systems on loop devices. *May not touch*: the story (`main.rs`).

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use inkstone::{Log, Lsn};
use inkstone_host::Mount;
use inkstone_io::Access;

use super::host_support::{EXT4, FileSystem, can_run, temporary};
use super::{Told, append, options};

const LAST: u64 = 40;

/// A log whose writer was killed.
fn killed(path: &Path, access: Access) {
    let log = Log::open(path, options().own_thread(false).access(access)).unwrap();
    append(&log, LAST);
    log.truncate_before(Lsn::new(5)).unwrap();
    log.abandon();
}

fn read(path: &Path) -> Told {
    let to = tempfile::tempdir_in(temporary()).unwrap();
    let mut told = Told::default();
    told.read(path, to.path());
    assert!(told.refused.is_empty(), "{:?}", told.refused);
    let copied = tempfile::tempdir_in(temporary()).unwrap();
    let copied = inkstone::inspect::copy(path, copied.path().join("log"), &options()).unwrap();
    assert_eq!((copied.first.get(), copied.last.get()), (5, LAST));
    told
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_log_on_a_mount_for_reading_only_is_read_without_a_doubt() {
    if !can_run("a_log_on_a_mount_for_reading_only", &["mkfs.ext4"]) {
        return;
    }
    let mut made = FileSystem::new("ext4", 32, EXT4);
    killed(&made.target().join("log"), Access::Direct);
    let target = made.target().to_path_buf();
    made.mount.take().unwrap().unmount().unwrap();
    made.mount = Some(Mount::new(made.device.path(), &target, "ext4", "ro").unwrap());
    let told = read(&target.join("log"));
    assert!(told.doubts.is_empty(), "{:?}", told.doubts);
    let refused = Log::open(target.join("log"), options()).unwrap_err().to_string();
    assert!(refused.contains("takes no writes") || refused.contains("write to"), "{refused}");
    made.remove();
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_log_on_an_ext4_after_an_error_is_read_and_what_was_not_flushed_is_said() {
    if !can_run("a_log_on_an_ext4_after_an_error", &["mkfs.ext4"]) {
        return;
    }
    for access in [Access::Direct, Access::Buffered] {
        let mut made = FileSystem::unmounted("ext4", 32, EXT4);
        made.mount("ext4", "errors=remount-ro");
        let path = made.target().join("log");
        killed(&path, access);
        // A dirty page behind the end, as a killed writer may leave one: the kernel cannot write it
        // back any more, and refuses to read past the page cache.
        let mut names: Vec<_> =
            std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.retain(|name| name.extension().is_some_and(|extension| extension == "ink"));
        let head = File::options().write(true).open(names.iter().max().unwrap()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&head, &[0; 4096], (64 << 10) - 4096).unwrap();
        let device = made.device.path().file_name().unwrap().to_str().unwrap().to_owned();
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "a test").unwrap();
        assert!(File::create(made.target().join("more")).is_err(), "it still takes changes");
        let told = read(&path);
        assert!(
            told.doubts.iter().any(|doubt| doubt.contains("could not be flushed")),
            "{:?}",
            told.doubts
        );
        let refused = Log::open(&path, options()).unwrap_err().to_string();
        assert!(refused.contains("takes no writes") || refused.contains("write to"), "{refused}");
        drop(head);
        made.remove();
    }
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_log_on_a_full_disk_is_read_without_a_doubt() {
    if !can_run("a_log_on_a_full_disk", &["mkfs.ext4"]) {
        return;
    }
    let made = FileSystem::new("ext4", 32, EXT4);
    let path = made.target().join("log");
    killed(&path, Access::Direct);
    let mut ballast = File::create(made.target().join("ballast")).unwrap();
    while ballast.write(&[1; 4096]).is_ok_and(|written| written > 0) {}
    let told = read(&path);
    assert!(told.doubts.is_empty(), "{:?}", told.doubts);
    drop(ballast);
    made.remove();
}
