//! The prediction of `inkstone watch`: what it writes, and where.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use crate::support::can_bill;
use inkstone_host::{WorkDir, block_stat};
use inkstone_io::Capabilities;
use inkstone_lab::image::{IMAGE_BYTES_MIN, Image, ImageKind, LoopMode};
use inkstone_lab::watch::predict::{Work, measure, prediction};

#[test]
#[ignore = "needs root and loop devices"]
fn a_prediction_writes_at_most_64_mib_and_into_no_directory() {
    if !can_bill("a_prediction_writes_at_most_64_mib_and_into_no_directory") {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let work = WorkDir::create(directory.path()).expect("a directory");
    let stop = AtomicBool::new(false);
    let image = |bytes| Image::make(work.path(), ImageKind::Ext4, LoopMode::Buffered, bytes);
    let large = image(1 << 30).expect("an image");
    let disk = Capabilities::of(large.path()).expect("facts").device.expect("a disk").number;
    let names = || {
        let all = std::fs::read_dir(large.path()).expect("a directory");
        all.map(|entry| entry.expect("a name").file_name()).collect::<Vec<_>>()
    };
    let before_names = names();
    for bytes in [100, 8192, 60_000] {
        let before = block_stat(disk).expect("counters");
        let of = Work { bytes, waited: 1.0 };
        let (now, then) = std::thread::scope(|scope| {
            let measured = scope.spawn(|| measure(large.path(), &of, &stop));
            while !measured.is_finished() {
                assert_eq!(names(), before_names);
            }
            measured.join().expect("no panic").expect("measured")
        });
        assert!(Command::new("sync").status().expect("sync").success());
        let written = block_stat(disk).expect("counters").since(&before).write_sectors * 512;
        assert!((1 << 20..64 << 20).contains(&written), "{bytes}: {written} bytes");
        let found = prediction(&now, &then, 1000.0);
        assert!(found.speedup.is_some_and(|speedup| speedup > 1.2), "{bytes}: {found:?}");
    }
    let much = Work { bytes: 1 << 20, waited: 1.0 };
    assert!(measure(large.path(), &much, &stop).is_err_and(|why| why.contains("too much")));
    large.remove().expect("removed");
    let small = image(IMAGE_BYTES_MIN).expect("an image");
    let few = Work { bytes: 8192, ..much };
    assert!(measure(small.path(), &few, &stop).is_err_and(|why| why.contains("640 MiB free")));
    small.remove().expect("removed");
}
