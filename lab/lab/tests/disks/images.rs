//! The images of file systems: their backing files have all their blocks, so that the host
//! allocates none while they are measured. Needs root, loop devices and each mkfs; where those are
//! missing the test prints loudly what did not run.

use std::path::Path;

use crate::support::not_run;
use inkstone_host::ExtentMap;
use inkstone_io::{
    Capabilities, Directory as _, File as _, NamedChoice, OpenFile, OsDirectory, Preparation,
    is_root,
};
use inkstone_lab::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};

/// Creates an image; `None` if its mkfs is missing here, which is printed loudly.
fn made(test: &str, place: &Path, kind: ImageKind, mode: LoopMode) -> Option<Image> {
    match Image::make(place, kind, mode, IMAGE_BYTES_MIN) {
        Err(error) if error.to_string().contains("is not installed") => {
            not_run(&format!("{test} on {kind}"), &error.to_string());
            None
        }
        made => Some(made.expect("an image")),
    }
}

fn a_backing_file_has_all_its_blocks_after_mkfs_and_mount(kind: ImageKind) {
    const TEST: &str = "a_backing_file_has_all_its_blocks_after_mkfs_and_mount";
    if !is_root() {
        return not_run(TEST, "it needs root for loop devices and mounts");
    }
    for &mode in LoopMode::ALL {
        let place =
            tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a directory");
        let Some(image) = made(TEST, place.path(), kind, mode) else { continue };
        // Blocks that a removed file frees stay allocated in the image.
        let file = image.path().join("file");
        std::fs::write(&file, vec![7; 8 << 20]).expect("written");
        std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("synced");
        std::fs::remove_file(&file).expect("removed");
        std::fs::File::open(image.path())
            .and_then(|directory| directory.sync_all())
            .expect("synced");
        let path = place.path().join(format!("{kind}-{}.img", mode.name()));
        let backing = std::fs::File::open(&path).expect("the backing file");
        match ExtentMap::of(&backing, &path) {
            Ok(map) => {
                let found = map.coverage(0..IMAGE_BYTES_MIN);
                assert_eq!(
                    found.written_bytes,
                    IMAGE_BYTES_MIN,
                    "{kind}, {}: {found:?}",
                    mode.name()
                );
            }
            Err(error) => not_run(&format!("{TEST} on {kind}"), &error.to_string()),
        }
        image.remove().expect("removed");
    }
}

// Apart, since they wait for the disk, and so can do that side by side.
#[test]
fn a_backing_file_has_all_its_blocks_with_ext4() {
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(ImageKind::Ext4);
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(ImageKind::Ext4NoJournal);
}

#[test]
fn a_backing_file_has_all_its_blocks_with_xfs_and_btrfs() {
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(ImageKind::Xfs);
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(ImageKind::Btrfs);
}

/// `FALLOC_FL_WRITE_ZEROES` needs a device that can unmap and promise zeros
/// (`write_zeroes_unmap_max_bytes` of its queue). In Linux 6.18 only NVMe and SCSI disks report
/// this; a loop device does not, whatever is below it. So the lab's row is refused on every device
/// that can be created here, and works as soon as the kernel reports support.
#[test]
fn write_zeroes_works_where_the_kernel_says_that_the_device_has_it_and_nowhere_else() {
    const TEST: &str =
        "write_zeroes_works_where_the_kernel_says_that_the_device_has_it_and_nowhere_else";
    let answer = |directory: &Path, takes_it: bool, what: &str| {
        let found = Capabilities::of(directory).expect("what the kernel says");
        let says = found.device.as_ref().and_then(|device| device.write_zeroes).unwrap_or(false);
        let directory = OsDirectory::open(directory).expect("opened");
        let file = directory.open("zeroes", &OpenFile::new_file()).expect("created");
        let answer = file.prepare(Preparation::WriteZeroes, 1 << 20);
        directory.remove("zeroes").expect("removed");
        match answer {
            Ok(()) => {
                assert!(says && takes_it, "{what}: it works, and the kernel says that it does not")
            }
            Err(error) => {
                assert!(error.is_unsupported(), "{what}: {error}");
                assert!(!(says && takes_it), "{what}: the kernel says that it works, and: {error}");
            }
        }
    };
    if !is_root() {
        return not_run(TEST, "it needs root for loop devices and mounts");
    }
    for kind in [ImageKind::Ext4, ImageKind::Xfs, ImageKind::Btrfs] {
        let place =
            tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a directory");
        let Some(image) = made(TEST, place.path(), kind, LoopMode::Direct) else { continue };
        // Of the three only ext4 has the mode, in 6.18.
        answer(image.path(), kind == ImageKind::Ext4, kind.name());
        image.remove().expect("removed");
    }
}
