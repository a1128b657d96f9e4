//! Loop devices, mounts and layouts on this machine's kernel.

use std::ops::Range;
use std::path::Path;

use crate::host_support::{BTRFS, EXT4, FileSystem, XFS, XFS_MIB, can_run, image, run, temporary};
use inkstone_host::{
    DeviceNumber, LogPlace, LoopDevice, LoopOptions, WorkDir, block_stat, btrfs_devices, log_place,
    loops_backed_under, mount_points, mounts_under,
};

#[test]
#[ignore = "needs root"]
fn attach_and_detach_leave_nothing() {
    if !can_run("attach_and_detach_leave_nothing", &[]) {
        return;
    }
    let dir = WorkDir::create(temporary()).expect("a work directory");
    let image = image(dir.path(), 8);
    for (direct_io, sector_bytes) in
        [(true, 4096), (true, 512), (false, 512), (false, 4096), (true, 0)]
    {
        let options = LoopOptions { direct_io, sector_bytes };
        let device = LoopDevice::attach(&image, options).expect("attached");
        assert_eq!(device.is_direct().expect("sysfs"), direct_io, "{options:?}");
        assert_eq!(device.device().major, 7);
        let expected = vec![(device.path().to_path_buf(), image.clone())];
        assert_eq!(loops_backed_under(dir.path()).expect("sysfs"), expected);
        assert_eq!(block_stat(device.device()).expect("sysfs").in_flight, 0);
        if sector_bytes == 4096 {
            drop(device);
        } else {
            device.detach().expect("detached");
        }
        assert_eq!(loops_backed_under(dir.path()).expect("sysfs"), []);
    }
    let device = LoopDevice::attach(&image, LoopOptions::default()).expect("attached");
    // A deleted file's device is still found, under its old name.
    std::fs::remove_file(&image).expect("deleted");
    let found = loops_backed_under(dir.path()).expect("sysfs");
    assert!(found[0].1.to_string_lossy().ends_with("image (deleted)"), "{found:?}");
    device.detach().expect("detached");
    let error = LoopDevice::attach(&image, LoopOptions { sector_bytes: 3, direct_io: true })
        .expect_err("no file");
    assert_eq!(error.path(), image);
    let path = dir.path().to_path_buf();
    dir.remove().expect("removed");
    assert!(!path.exists());
}

#[test]
#[ignore = "needs root"]
fn many_attach_at_once() {
    if !can_run("many_attach_at_once", &[]) {
        return;
    }
    let dir = WorkDir::create(temporary()).expect("a work directory");
    std::thread::scope(|scope| {
        for index in 0..4 {
            let place = dir.path().join(index.to_string());
            std::fs::create_dir(&place).expect("a directory");
            let image = image(&place, 1);
            scope.spawn(move || {
                for _ in 0..50 {
                    let device = LoopDevice::attach(&image, LoopOptions::default());
                    device.expect("attached").detach().expect("detached");
                }
            });
        }
    });
    assert_eq!(loops_backed_under(dir.path()).expect("sysfs"), []);
    dir.remove().expect("removed");
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn a_busy_mount_and_its_device_say_so() {
    if !can_run("a_busy_mount_and_its_device_say_so", &["mkfs.ext4"]) {
        return;
    }
    let mut made = FileSystem::new("ext4", 16, EXT4);
    let target = made.target().to_path_buf();
    let mounted = mounts_under(made.dir.path()).expect("/proc");
    assert_eq!(mounted.len(), 1);
    assert_eq!(
        (mounted[0].target.as_path(), mounted[0].file_system.as_str()),
        (target.as_path(), "ext4")
    );
    assert_eq!(mounted[0].device, made.device.device());
    assert!(mounted[0].options.contains("noatime"), "{mounted:?}");
    let open = std::fs::File::create(target.join("open")).expect("a file");
    let error = made.mount.take().expect("mounted").unmount().expect_err("busy");
    assert!(error.to_string().contains("open in it"), "{error}");
    assert_eq!(mounts_under(made.dir.path()).expect("/proc"), [], "it was detached");
    drop(open);
    // Mounted again (with the same options: the kernel may not have ended the mount before yet),
    // the device cannot be detached, and the work directory takes back the mount by itself.
    made.mount("ext4", "noatime");
    let FileSystem { mount, device, dir } = made;
    let path = device.path().to_path_buf();
    let error = device.detach().expect_err("mounted");
    assert!(error.to_string().contains("unmount"), "{error}");
    assert_eq!(loops_backed_under(dir.path()).expect("sysfs").len(), 1);
    let work_dir = dir.path().to_path_buf();
    dir.remove().expect("removed");
    assert!(!work_dir.exists());
    assert!(!mount_points().expect("/proc").iter().any(|point| Path::new(&point.source) == path));
    // Its mount is gone already; that must not fail loudly or touch another.
    drop(mount);
}

#[test]
fn a_missing_device_has_no_counters() {
    assert!(block_stat(DeviceNumber { major: 0, minor: 4095 }).is_err());
}

/// The leaves of `debugfs -R 'dump_extents <8>'`, in bytes.
fn debugfs_extents(device: &str, block_bytes: u64) -> Vec<Range<u64>> {
    let text = run("debugfs", &["-R", "dump_extents <8>", device]);
    let mut extents: Vec<Range<u64>> = Vec::new();
    for line in text.lines().skip(1) {
        let words = line.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        // level/depth, entry/entries, logical - logical, physical - physical, length
        if let [level, depth, _, _, _, _, first, last, _] = numbers[..]
            && level == depth
        {
            let (start, end) = (first * block_bytes, (last + 1) * block_bytes);
            match extents.last_mut() {
                Some(before) if before.end == start => before.end = end,
                _ => extents.push(start..end),
            }
        }
    }
    assert!(!extents.is_empty(), "{text}");
    extents
}

#[test]
#[ignore = "needs root, mkfs.ext4 and debugfs"]
fn the_ext4_journal_is_where_debugfs_says() {
    if !can_run("the_ext4_journal_is_where_debugfs_says", &["mkfs.ext4", "debugfs"]) {
        return;
    }
    let fragmented = ["-b", "1024", "-J", "size=48", "-O", "^flex_bg,^resize_inode"];
    let narrow = ["-b", "4096", "-O", "^64bit,^metadata_csum"];
    for (extra, block_bytes) in
        [(&["-b", "4096"][..], 4096), (&narrow[..], 4096), (&fragmented[..], 1024)]
    {
        let dir = WorkDir::create(temporary()).expect("a work directory");
        let image = image(dir.path(), 128);
        let path = image.to_str().expect("text");
        run("mkfs.ext4", &[EXT4, extra, &[path]].concat());
        let found = log_place(&image, "ext4").expect("a journal");
        let LogPlace::Inside(found) = found else { panic!("{found:?}") };
        assert_eq!(found, debugfs_extents(path, block_bytes), "{extra:?}");
        assert!(block_bytes == 4096 || found.len() > 4, "it needs an index block: {found:?}");
    }
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn journals_that_are_not_there_or_not_understood() {
    if !can_run("journals_that_are_not_there_or_not_understood", &["mkfs.ext4"]) {
        return;
    }
    let dir = WorkDir::create(temporary()).expect("a work directory");
    let image = image(dir.path(), 16);
    let made = |features| {
        let text = image.to_str().expect("text");
        run("mkfs.ext4", &[EXT4, &["-O", features, text]].concat());
        log_place(&image, "ext4")
    };
    assert_eq!(made("^has_journal").expect("none"), LogPlace::None);
    let error = made("^extent,^64bit").expect_err("a block map");
    assert!(error.is_unsupported() && error.to_string().contains("block map"), "{error}");
    assert!(made("journal_dev").expect_err("a journal itself").is_unsupported());
    assert!(log_place(&image, "xfs").is_err());
}

#[test]
#[ignore = "needs root, mkfs.xfs and xfs_db"]
fn the_xfs_log_is_where_xfs_db_says() {
    if !can_run("the_xfs_log_is_where_xfs_db_says", &["mkfs.xfs", "xfs_db"]) {
        return;
    }
    let made = FileSystem::new("xfs", XFS_MIB, XFS);
    let device = made.device.path().to_str().expect("text");
    let ask = |question: &str| -> u64 {
        let text = run("xfs_db", &["-r", "-c", "sb 0", "-c", question, device]);
        let mut words = text.rsplit([' ', '(']).map(|word| word.trim().trim_end_matches(')'));
        words.find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number in {text:?}"))
    };
    let start = ask(&format!("convert fsblock {} byte", ask("print logstart")));
    let expected = start..start + ask("print logblocks") * ask("print blocksize");
    assert_eq!(
        log_place(made.device.path(), "xfs").expect("a log"),
        LogPlace::Inside(vec![expected])
    );
    made.remove();
}

#[test]
#[ignore = "needs root, mkfs.btrfs and btrfs"]
fn btrfs_data_is_where_btrfs_says() {
    if !can_run("btrfs_data_is_where_btrfs_says", &["mkfs.btrfs", "btrfs"]) {
        return;
    }
    let made = FileSystem::new("btrfs", 192, BTRFS);
    let devices = btrfs_devices(made.target()).expect("devices");
    assert_eq!((devices.len(), devices[0].number), (1, made.device.device()));
    let areas = &devices[0].data;
    let device = made.device.path().to_str().expect("text");
    let tree = run("btrfs", &["inspect-internal", "dump-tree", "-t", "chunk", device]);
    let number = |item: &str, name: &str| -> u64 {
        let (_, after) = item.split_once(name).expect(item);
        after.split_whitespace().next().and_then(|word| word.parse().ok()).expect(item)
    };
    let chunks = tree.split("FIRST_CHUNK_TREE CHUNK_ITEM").skip(1);
    let of_data = chunks.clone().filter(|item| item.contains("type DATA"));
    // One device and no copies: one stripe each.
    let expected = of_data.map(|item| {
        let start = number(item, "stripe 0 devid 1 offset ");
        start..start + number(item, "length ")
    });
    assert_eq!(*areas, expected.collect::<Vec<_>>(), "{tree}");
    assert!(!areas.is_empty() && chunks.count() > areas.len(), "there are trees beside: {tree}");
    made.remove();
}
