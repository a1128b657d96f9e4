//! Sizes that shrink, locks, room and dropped pages: the rules of each, with what distinguishes it
//! from others.
//!
//! *Owns*: disks of its own. *May not touch*: the crate's insides.

use inkstone_io::{
    Access, AlignedBuf, Directory, Durability, File, OpenFile, Preparation, SyncKind,
};
use inkstone_sim::{
    AfterEffect, DiskOptions, Effect, Fate, Fault, ItemKind, OperationKind, SimDirectory, SimDisk,
    SimFile, errno,
};

use super::{all_kept, block, buffered, disk, nothing_kept, quiet};

fn direct() -> OpenFile {
    OpenFile::existing().access(Access::Direct)
}

fn settled(directory: &SimDirectory, name: &str, blocks: usize) -> SimFile {
    super::settled(directory, name, &buffered(), 1, blocks)
}

fn content(disk: &SimDisk, name: &str) -> Vec<u8> {
    super::content(disk, name).unwrap()
}

/// The disk as found if a file's shrinking was lost and all else was not.
fn shrinking_lost(disk: &SimDisk) -> SimDisk {
    disk.crash_with(|item| {
        if matches!(item.what, ItemKind::Cut { .. }) { Fate::Dropped } else { Fate::Kept }
    })
}

#[test]
fn a_new_size_is_old_or_new_until_a_sync() {
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "a", 2);
    file.set_len(8192).unwrap();
    assert_eq!(disk.unflushed(), [], "the same size is nothing to do");
    file.set_len(5000).unwrap();
    assert_eq!(disk.unflushed()[0].what, ItemKind::Cut { to_bytes: 5000 });
    assert_eq!((file.len_bytes().unwrap(), content(&disk, "a")), (5000, vec![1; 5000]));
    assert_eq!(content(&nothing_kept(&disk), "a"), [1; 8192]);
    assert_eq!(content(&all_kept(&disk), "a"), [1; 5000]);
    file.sync(SyncKind::Data).unwrap();
    assert_eq!(content(&nothing_kept(&disk), "a"), [1; 5000]);
    file.set_len(9000).unwrap();
    let grown = [vec![1; 5000], vec![0; 4000]].concat();
    assert_eq!(content(&disk, "a"), grown);
    assert_eq!(content(&nothing_kept(&disk), "a"), [1; 5000]);
    assert_eq!(content(&all_kept(&disk), "a"), grown);
    file.sync(SyncKind::Data).unwrap();
    assert_eq!(content(&nothing_kept(&disk), "a"), grown);
    assert_eq!(file.set_len(17 << 30).unwrap_err().raw_os_error(), Some(errno::EFBIG));
    let to_read = directory.open("a", &OpenFile::existing().read_only()).unwrap();
    assert_eq!(to_read.set_len(1).unwrap_err().raw_os_error(), Some(errno::EINVAL));
    assert_eq!(disk.counters().resizes, 4);
}

#[test]
fn pages_beyond_the_new_end_are_never_written_and_what_the_device_has_may_be_found() {
    for (how, found) in [(OpenFile::existing(), 1), (direct(), 2)] {
        let (disk, directory) = disk(quiet());
        drop(settled(&directory, "a", 2));
        let file = directory.open("a", &how).unwrap();
        file.write_at(&block(2, 1), 4096).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(content(&shrinking_lost(&disk), "a"), [[1; 4096], [found; 4096]].concat());
        assert_eq!(content(&all_kept(&disk), "a"), [1; 4096]);
        // Grown again it shows zeros, also for direct reads.
        file.set_len(8192).unwrap();
        let expected = [[1; 4096], [0; 4096]].concat();
        let mut bytes = AlignedBuf::zeroed(8192);
        directory.open("a", &direct()).unwrap().read_at(&mut bytes, 0).unwrap();
        assert!(content(&disk, "a") == expected && bytes[..] == expected);
        file.sync(SyncKind::Data).unwrap();
        assert_eq!(content(&nothing_kept(&disk), "a"), expected);
    }
}

#[test]
fn what_is_durable_after_a_shrinking_does_not_fall_with_it() {
    // In the last block and in one that came back, by FUA if that were taken and by the flush of
    // another file.
    for offset in [512, 4096] {
        let (disk, directory) = disk(quiet());
        let file = settled(&directory, "a", 2);
        file.set_len(100).unwrap();
        file.set_len(8192).unwrap();
        let how = direct().durability(Durability::ODsync);
        directory.open("a", &how).unwrap().write_at(&block(3, 1)[..512], offset).unwrap();
        assert_eq!(disk.counters().fua_writes, 0);
        let mut expected = vec![0; 8192];
        expected[..100].fill(1);
        expected[offset as usize..offset as usize + 512].fill(3);
        assert!(
            content(&nothing_kept(&disk), "a") == expected
                && content(&all_kept(&disk), "a") == expected
        );

        let (disk, directory) = self::disk(quiet());
        let (file, other) = (settled(&directory, "a", 2), settled(&directory, "b", 1));
        file.set_len(100).unwrap();
        file.set_len(8192).unwrap();
        directory.open("a", &direct()).unwrap().write_at(&block(3, 1)[..512], offset).unwrap();
        other.sync(SyncKind::Data).unwrap();
        file.sync(SyncKind::Data).unwrap();
        assert!(content(&nothing_kept(&disk), "a") == expected);
    }
    // And when it is durable itself, the last block is one that can be overwritten.
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "a", 2);
    file.set_len(1024).unwrap();
    file.sync(SyncKind::Data).unwrap();
    let how = direct().durability(Durability::ODsync);
    directory.open("a", &how).unwrap().write_at(&block(3, 1)[..512], 0).unwrap();
    assert_eq!(disk.counters().fua_writes, 1);
}

#[test]
fn shrinking_gives_room_back_and_a_crash_that_lost_it_takes_it_again() {
    let (disk, directory) = disk(DiskOptions { capacity_bytes: Some(10 * 4096), ..quiet() });
    let file = settled(&directory, "a", 8);
    assert_eq!(directory.free_bytes().unwrap(), 2 * 4096);
    file.set_len(4097).unwrap();
    assert_eq!(directory.free_bytes().unwrap(), 8 * 4096);
    let free = |disk: &SimDisk| disk.directory("/d").free_bytes().unwrap();
    assert_eq!((free(&nothing_kept(&disk)), free(&all_kept(&disk))), (2 * 4096, 8 * 4096));
    file.write_at(&block(2, 2), 4 * 4096).unwrap();
    assert_eq!((directory.free_bytes().unwrap(), free(&all_kept(&disk))), (6 * 4096, 6 * 4096));
    // As on the medium again: overwriting needs no metadata.
    let found = nothing_kept(&disk);
    let how = direct().durability(Durability::ODsync);
    found.directory("/d").open("a", &how).unwrap().write_at(&block(3, 1), 7 * 4096).unwrap();
    assert_eq!(found.counters().fua_writes, 1);
    assert!(self::disk(quiet()).1.free_bytes().unwrap() > 1 << 50);
}

#[test]
fn a_failed_sync_leaves_a_shrinking_to_be_committed() {
    for after in AfterEffect::ALL {
        let (disk, directory) = disk(quiet());
        let file = settled(&directory, "a", 3);
        file.set_len(8192).unwrap();
        file.write_at(&block(2, 1), 8192).unwrap();
        disk.inject(Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync));
        while file.sync(SyncKind::Data).is_ok() {}
        let (len, found) =
            if after == AfterEffect::RevertsToOld { (8192, 8192) } else { (12288, 12288) };
        assert_eq!(
            (file.len_bytes().unwrap(), content(&all_kept(&disk), "a").len()),
            (len, found),
            "{after:?}"
        );
        file.sync(SyncKind::Data).unwrap();
        let bytes = content(&nothing_kept(&disk), "a");
        assert!(
            bytes[..8192] == [1; 8192] && bytes[8192..].iter().all(|&byte| byte == 0),
            "{after:?}"
        );
    }
}

/// Changes the file `a` and its expected content; returns the range that is durable now, if any.
fn random_step(
    rng: &mut fastrand::Rng,
    directory: &SimDirectory,
    plain: &mut Vec<u8>,
) -> Option<std::ops::Range<usize>> {
    let open = |name, how: &OpenFile| directory.open(name, how).unwrap();
    let mut durable = None;
    match rng.u32(..10) {
        0..3 => {
            let len = if rng.bool() { rng.usize(..40_000) } else { rng.usize(..10) * 4096 };
            open("a", &OpenFile::existing()).set_len(len as u64).unwrap();
            plain.resize(len, 0);
        }
        3 => {
            let other = open("b", &OpenFile::existing());
            other.write_at(&[rng.u8(..); 600], 0).unwrap();
            other.sync(SyncKind::Data).unwrap();
        }
        4 => open("a", &OpenFile::existing().read_only()).forget_cached().unwrap(),
        5 => {
            open("a", &OpenFile::existing().read_only()).sync(SyncKind::Data).unwrap();
            durable = Some(0..plain.len());
        }
        way => {
            let (mut at, mut len) = (rng.usize(..40_000), rng.usize(1..9000));
            let mut how = OpenFile::existing();
            if way >= 8 {
                (at, len) = (at / 512 * 512, len.next_multiple_of(512));
                how = direct();
            }
            if way % 2 == 1 {
                how = how.durability(Durability::ODsync);
                durable = Some(at..at + len);
            }
            let bytes = block(rng.u8(..), 3);
            open("a", &how).write_at(&bytes[..len], at as u64).unwrap();
            plain.resize(plain.len().max(at + len), 0);
            plain[at..at + len].copy_from_slice(&bytes[..len]);
        }
    }
    durable
}

/// After any operations memory shows the last bytes, a crash that keeps all finds them, one that
/// keeps nothing finds the durable ones, and no crash loses room.
#[test]
fn sizes_up_and_down_agree_with_a_plain_vector() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let capacity_bytes = Some(1 << 20);
        let writeback_ppm = [0, 200_000][seed as usize % 2];
        let options = DiskOptions { capacity_bytes, writeback_ppm, ..DiskOptions::default() };
        let disk = SimDisk::new(seed, options);
        let directory = disk.directory("/d");
        drop((settled(&directory, "a", 4), settled(&directory, "b", 1)));
        let mut plain = vec![1; 4 * 4096];
        for step in 0..60 {
            let durable = random_step(&mut rng, &directory, &mut plain);
            let found = all_kept(&disk);
            assert!(content(&disk, "a") == plain, "seed {seed}, step {step}");
            assert!(content(&found, "a") == plain, "seed {seed}, step {step}");
            // A block that was removed before its data was written may be one that no crash finds.
            let free = |disk: &SimDisk| disk.directory("/d").free_bytes().unwrap();
            assert!(free(&found) >= free(&disk), "seed {seed}, step {step}");
            if disk.unflushed().is_empty() {
                assert_eq!(free(&found), free(&disk), "seed {seed}, step {step}");
            }
            if let Some(range) = durable {
                let found = content(&nothing_kept(&disk), "a");
                assert!(
                    found[range.clone()] == plain[range.clone()],
                    "seed {seed}, step {step}, {range:?}"
                );
                assert!(range != (0..plain.len()) || found == plain, "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn forgetting_drops_the_clean_pages_of_one_file() {
    let (disk, directory) = disk(quiet());
    let (file, other) = (settled(&directory, "a", 2), settled(&directory, "b", 1));
    for file in [&file, &other] {
        file.write_at(&block(2, 1), 0).unwrap();
        disk.inject(
            Fault::new(Effect::SyncFails(errno::EIO, AfterEffect::KeepsNew))
                .on(OperationKind::Sync),
        );
        assert!(file.sync(SyncKind::Data).is_err());
    }
    file.write_at(&block(3, 1), 4096).unwrap();
    let first = |file: &SimFile| {
        let mut bytes = [0; 8192];
        let len = file.read_at(&mut bytes, 0).unwrap();
        bytes[..len].chunks(4096).map(|block| block[0]).collect::<Vec<_>>()
    };
    assert_eq!((first(&file), first(&other)), (vec![2, 3], vec![2]), "the pages lie");
    let to_read = directory.open("a", &OpenFile::existing().read_only()).unwrap();
    to_read.forget_cached().unwrap();
    assert_eq!((first(&file), first(&other)), (vec![1, 3], vec![2]));
    assert_eq!(content(&nothing_kept(&disk), "a")[4096], 1, "a dirty page is still one");
    to_read.sync(SyncKind::Data).unwrap();
    assert_eq!(content(&nothing_kept(&disk), "a")[4096], 3, "whoever syncs");
}

#[test]
fn a_lock_has_one_holder_and_no_crash_keeps_it() {
    let (disk, directory) = disk(quiet());
    let again = disk.directory("/d");
    assert_eq!(directory.locked_by("lock").unwrap(), None);
    assert!(directory.list().unwrap().is_empty(), "asking creates nothing");
    let lock = directory.lock("lock").unwrap().unwrap();
    assert!(directory.lock("lock").unwrap().is_none() && again.lock("lock").unwrap().is_none());
    assert!(again.locked_by("lock").unwrap().is_some());
    assert!(disk.directory("/other").lock("lock").unwrap().is_some(), "another file of that name");
    // Its file is created as any other, empty, and not durable.
    assert_eq!(
        (content(&disk, "lock").len(), disk.counters().creations, disk.counters().locks),
        (0, 0, 4)
    );
    assert!(nothing_kept(&disk).directory("/d").list().unwrap().is_empty());
    let found = all_kept(&disk);
    assert_eq!(found.directory("/d").list().unwrap(), ["lock"]);
    assert_eq!(found.directory("/d").locked_by("lock").unwrap(), None);
    let after = found.directory("/d").lock("lock").unwrap();
    assert!(after.is_some() && again.lock("lock").unwrap().is_none(), "the disk itself goes on");
    drop(lock);
    assert_eq!(again.locked_by("lock").unwrap(), None);
    let lock = again.lock("lock").unwrap().unwrap();
    assert!(found.directory("/d").lock("lock").unwrap().is_none());
    // After the file is removed, the lock is on a new file.
    directory.remove("lock").unwrap();
    let second = directory.lock("lock").unwrap().unwrap();
    drop(lock);
    assert!(again.lock("lock").unwrap().is_none());
    drop(second);
    assert!(again.lock("a/b").is_err() && again.locked_by("").is_err());
}

#[test]
fn a_full_disk_has_its_lock() {
    let (_disk, directory) = disk(DiskOptions { capacity_bytes: Some(4096), ..quiet() });
    let _file = settled(&directory, "a", 1);
    assert_eq!(directory.free_bytes().unwrap(), 0);
    assert!(directory.lock("lock").unwrap().is_some());
}

#[test]
fn an_overwrite_needs_room_where_blocks_are_copied() {
    let is_full = |result: inkstone_io::Result<()>| {
        result.is_err_and(|why| why.raw_os_error() == Some(errno::ENOSPC))
    };
    for (copy_on_write, how) in
        [false, true].into_iter().flat_map(|copy| [(copy, OpenFile::existing()), (copy, direct())])
    {
        let (disk, directory) = disk(DiskOptions { copy_on_write, ..quiet() });
        let _written = settled(&directory, "a", 1);
        let reserved = directory.open("b", &OpenFile::new_file()).unwrap();
        reserved.prepare(Preparation::Fallocate, 8192).unwrap();
        disk.change_options(|options| options.capacity_bytes = Some(3 * 4096));
        assert_eq!(directory.free_bytes().unwrap(), 0);
        let (written, reserved) =
            (directory.open("a", &how).unwrap(), directory.open("b", &how).unwrap());
        assert_eq!(is_full(written.write_at(&block(2, 1), 0)), copy_on_write);
        reserved.write_at(&block(2, 1), 0).unwrap();
        reserved.sync(SyncKind::Data).unwrap();
        assert_eq!(is_full(reserved.write_at(&block(3, 1), 0)), copy_on_write, "it is written now");
        directory.rename("a", "c").unwrap();
        disk.change_options(|options| options.capacity_bytes = Some(4 * 4096));
        for _ in 0..3 {
            written.write_at(&block(2, 1), 0).unwrap();
            assert_eq!(directory.free_bytes().unwrap(), 4096, "the old place is given back");
        }
    }
}

#[test]
fn a_name_needs_room_where_it_is_said() {
    let kind = DiskOptions { capacity_bytes: Some(4096), names_need_room: true, ..quiet() };
    let (disk, directory) = disk(kind);
    let _file = settled(&directory, "a", 1);
    let full = Some(errno::ENOSPC);
    assert_eq!(directory.rename("a", "b").unwrap_err().raw_os_error(), full);
    assert_eq!(directory.open("b", &OpenFile::new_file()).unwrap_err().raw_os_error(), full);
    disk.change_options(|options| options.capacity_bytes = Some(8192));
    directory.rename("a", "b").unwrap();
    disk.change_options(|options| options.capacity_bytes = Some(4096));
    directory.remove("b").unwrap();
}
