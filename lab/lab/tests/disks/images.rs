//! The images of file systems: their backing files have all their blocks, so that the host
//! allocates none while they are measured. Needs root, loop devices and each mkfs; where those are
//! missing the test prints loudly what did not run.

use std::path::Path;

use crate::support::not_run;
use inkstone_host::{ExtentMap, FsKind};
use inkstone_io::{NamedChoice, is_root};
use inkstone_lab::image::{IMAGE_BYTES_MIN, Image, LoopMode};

/// Creates an image; `None` if its mkfs is missing here, which is printed loudly.
fn made(test: &str, place: &Path, kind: FsKind, mode: LoopMode) -> Option<Image> {
    match Image::make(place, kind, mode, IMAGE_BYTES_MIN) {
        Err(error) if error.to_string().contains("is not installed") => {
            not_run(&format!("{test} on {kind}"), error.to_string());
            None
        }
        made => Some(made.expect("an image")),
    }
}

fn a_backing_file_has_all_its_blocks_after_mkfs_and_mount(kind: FsKind) {
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
            Err(error) => not_run(&format!("{TEST} on {kind}"), error.to_string()),
        }
        image.remove().expect("removed");
    }
}

// Apart, since they wait for the disk, and so can do that side by side.
#[test]
fn a_backing_file_has_all_its_blocks_with_ext4() {
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(FsKind::Ext4);
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(FsKind::Ext4NoJournal);
}

#[test]
fn a_backing_file_has_all_its_blocks_with_xfs_and_btrfs() {
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(FsKind::Xfs);
    a_backing_file_has_all_its_blocks_after_mkfs_and_mount(FsKind::Btrfs);
}
