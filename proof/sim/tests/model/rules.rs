//! Each rule of the model, with a crash that distinguishes it from other rules.
//!
//! *Owns*: disks of its own. *May not touch*: the crate's insides.

use inkstone_io::{
    Access, AlignedBuf, Directory, Durability, File, OpenFile, Preparation, SyncKind,
};
use inkstone_sim::hooked::Call;
use inkstone_sim::{DirectoryOrder, DiskOptions, Fate, ItemKind, NewBlocks, Place, SimDisk};

use super::{During, all_kept, block, buffered, content, disk, nothing_kept, quiet, settled};

fn direct() -> OpenFile {
    OpenFile::new_file().access(Access::Direct)
}

#[test]
fn a_large_write_tears_anywhere() {
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "a", &buffered(), 1, 4);
    file.write_at(&block(2, 4), 0).unwrap();
    let cut = disk.power_cut();
    assert_eq!(cut.items().len(), 32);
    assert!(
        cut.items().iter().all(|item| item.write == cut.items()[0].write && &*item.file == "a")
    );
    // Exactly what was chosen, sector by sector, and never part of a sector.
    let found = cut.subset(0b1010_0000_0000_0000_0000_0000_0000_1001);
    for (sector, bytes) in content(&found, "a").unwrap().chunks(512).enumerate() {
        let expected = if [0, 3, 29, 31].contains(&sector) { 2 } else { 1 };
        assert!(bytes.iter().all(|&byte| byte == expected), "sector {sector}");
    }
    // Samples reach prefixes, suffixes, single holes and single sectors.
    let pictures: std::collections::BTreeSet<u32> = (0..2000)
        .map(|seed| {
            let bytes = content(&cut.sample(seed), "a").unwrap();
            bytes.chunks(512).enumerate().map(|(at, sector)| u32::from(sector[0] == 2) << at).sum()
        })
        .collect();
    for picture in [0, u32::MAX, 0xFF, !0xFF, !(1 << 9), 1 << 9] {
        assert!(pictures.contains(&picture), "{picture:#034b} was never seen");
    }
    assert!(pictures.len() > 300);
}

#[test]
fn sectors_may_be_larger() {
    let (disk, directory) = disk(DiskOptions { sector_bytes: 4096, ..quiet() });
    let file = settled(&directory, "a", &buffered(), 1, 2);
    file.write_at(&[2; 100], 4000).unwrap();
    assert_eq!(disk.unflushed().len(), 2);
    let found = disk.power_cut().subset(0b10);
    assert_eq!(content(&found, "a").unwrap()[3999..4101], [&[1; 97][..], &[2; 4], &[1]].concat());
}

#[test]
fn garbage_is_neither_old_nor_new_and_stays_in_its_sector() {
    let (disk, directory) = disk(DiskOptions { garbage_at_crash: true, ..quiet() });
    let file = settled(&directory, "a", &buffered(), 1, 1);
    file.write_at(&[2; 512], 512).unwrap();
    let found = disk.crash_with(|_| Fate::Garbage);
    let bytes = content(&found, "a").unwrap();
    assert!(bytes[512..1024] != [1; 512] && bytes[512..1024] != [2; 512]);
    assert!(bytes[..512] == [1; 512] && bytes[1024..] == [1; 3072]);
    let garbled = |seed| ![1, 2].contains(&content(&disk.crash(seed), "a").unwrap()[600]);
    assert!((0..200).any(garbled) && !(0..200).all(garbled));
}

#[test]
fn the_newest_kept_version_of_a_sector_is_found() {
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "a", &buffered(), 1, 1);
    file.write_at(&[2; 512], 0).unwrap();
    file.write_at(&[3; 512], 0).unwrap();
    let cut = disk.power_cut();
    let found: Vec<u8> =
        cut.subsets().unwrap().map(|disk| content(&disk, "a").unwrap()[0]).collect();
    assert_eq!(found, [1, 2, 3, 3]);
}

#[test]
fn an_older_version_never_comes_back_over_a_durable_one() {
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "a", &direct(), 1, 2);
    file.write_at(&block(2, 2), 0).unwrap();
    // FUA: of the file's own cached sectors, only those that it overwrites are superseded.
    file.write_dsync(&block(3, 1), 0).unwrap();
    assert_eq!(disk.unflushed().len(), 8, "the second block is still volatile");
    assert_eq!(content(&all_kept(&disk), "a").unwrap(), [[3; 4096], [2; 4096]].concat());
    assert_eq!(content(&nothing_kept(&disk), "a").unwrap(), [[3; 4096], [1; 4096]].concat());
}

#[test]
fn a_flush_saves_what_the_device_has_of_others_and_not_their_pages() {
    for is_global in [true, false] {
        let (disk, directory) = disk(DiskOptions { flush_is_global: is_global, ..quiet() });
        let a = settled(&directory, "a", &buffered(), 1, 1);
        let b = settled(&directory, "b", &buffered(), 1, 1);
        let c = settled(&directory, "c", &direct(), 1, 1);
        for file in [&a, &b, &c] {
            file.write_at(&block(2, 1), 0).unwrap();
        }
        let places = disk.unflushed();
        assert!(matches!(places[8].what, ItemKind::Sector { place: Place::PageCache, .. }));
        assert!(matches!(places[16].what, ItemKind::Sector { place: Place::DeviceCache, .. }));
        a.sync(SyncKind::Data).unwrap();
        let found = nothing_kept(&disk);
        assert_eq!(content(&found, "a").unwrap()[0], 2);
        assert_eq!(content(&found, "b").unwrap()[0], 1, "pages of another file");
        assert_eq!(content(&found, "c").unwrap()[0], if is_global { 2 } else { 1 }, "direct");
    }
}

#[test]
fn a_flush_by_another_file_does_not_save_blocks_whose_metadata_is_not_there() {
    let (disk, directory) = disk(quiet());
    let a = settled(&directory, "a", &buffered(), 1, 1);
    let new = settled(&directory, "new", &direct(), 1, 1);
    new.write_at(&block(2, 2), 0).unwrap();
    a.sync(SyncKind::All).unwrap();
    // The old block was an overwrite; the new one has neither size nor extent on the medium.
    assert_eq!(content(&nothing_kept(&disk), "new").unwrap(), [2; 4096]);
    assert_eq!(content(&all_kept(&disk), "new").unwrap(), [2; 8192]);
    new.sync(SyncKind::Data).unwrap();
    assert_eq!(content(&nothing_kept(&disk), "new").unwrap(), [2; 8192]);
    // Reserved blocks within the size: written, but the extents on the medium still say that they
    // are not.
    new.prepare(Preparation::Fallocate, 3 * 4096).unwrap();
    new.sync(SyncKind::Data).unwrap();
    new.write_at(&block(3, 2), 4096).unwrap();
    a.sync(SyncKind::All).unwrap();
    assert_eq!(
        content(&nothing_kept(&disk), "new").unwrap(),
        [[2; 4096], [3; 4096], [0; 4096]].concat()
    );
}

#[test]
fn the_kernel_writes_back_by_itself_and_a_flush_then_finds_it() {
    let (disk, directory) = disk(DiskOptions { writeback_ppm: 1_000_000, ..quiet() });
    let a = settled(&directory, "a", &buffered(), 1, 1);
    let b = settled(&directory, "b", &buffered(), 1, 1);
    b.write_at(&block(2, 1), 0).unwrap();
    assert_eq!(content(&nothing_kept(&disk), "b").unwrap()[0], 1);
    // The sync first writes back what is dirty; its flush then makes it durable.
    a.sync(SyncKind::Data).unwrap();
    assert_eq!(content(&nothing_kept(&disk), "b").unwrap()[0], 2);
}

#[test]
fn fdatasync_keeps_growth_and_an_unsynced_size_may_be_old_or_new() {
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "a", &buffered(), 1, 1);
    file.write_at(&block(2, 1), 4096).unwrap();
    let sizes = |fate_of_size: Fate, fate_of_data: Fate| {
        let found = disk.crash_with(|item| match item.what {
            ItemKind::Size { to_bytes } => {
                assert_eq!(to_bytes, 8192);
                fate_of_size
            }
            _ => fate_of_data,
        });
        content(&found, "a").unwrap()
    };
    assert_eq!(sizes(Fate::Dropped, Fate::Kept), [1; 4096]);
    assert_eq!(sizes(Fate::Kept, Fate::Dropped), [[1; 4096], [0; 4096]].concat());
    // Bytes beyond the size found are gone: growing the file later does not show them.
    let found = disk.crash_with(|item| match item.what {
        ItemKind::Size { .. } => Fate::Dropped,
        _ => Fate::Kept,
    });
    let again = found.directory("/d").open("a", &OpenFile::existing()).unwrap();
    again.prepare(Preparation::Fallocate, 8192).unwrap();
    assert_eq!(content(&found, "a").unwrap(), [[1; 4096], [0; 4096]].concat());
    file.sync(SyncKind::Data).unwrap();
    assert_eq!(content(&nothing_kept(&disk), "a").unwrap(), [[1; 4096], [2; 4096]].concat());
}

#[test]
fn a_new_block_without_its_data_shows_what_the_option_says() {
    for new_blocks in [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale] {
        let (disk, directory) = disk(DiskOptions { new_blocks, ..quiet() });
        drop(settled(&directory, "old", &buffered(), 7, 4));
        directory.remove("old").unwrap();
        directory.sync().unwrap();
        let file = settled(&directory, "a", &buffered(), 1, 1);
        file.prepare(Preparation::Fallocate, 3 * 4096).unwrap();
        file.write_at(&block(2, 3), 4096).unwrap();
        let found = disk.crash_with(|item| match item.what {
            ItemKind::Size { .. } => Fate::Kept,
            _ => Fate::Dropped,
        });
        let bytes = content(&found, "a").unwrap();
        assert_eq!(bytes.len(), 4 * 4096);
        assert_eq!(bytes[..4096], [1; 4096]);
        assert_eq!(bytes[4096..3 * 4096], [0; 8192], "reserved blocks are unwritten: zeros always");
        let last = &bytes[3 * 4096..];
        match new_blocks {
            NewBlocks::Zeros => assert_eq!(last, [0; 4096]),
            NewBlocks::Stale => assert_eq!(last, [7; 4096]),
            NewBlocks::Garbage => {
                assert!(last != [0; 4096] && last != [2; 4096] && last != [7; 4096])
            }
        }
    }
}

#[test]
fn a_name_is_volatile_until_its_directory_is_synced() {
    let (disk, directory) = disk(quiet());
    let file = directory.open("tmp", &buffered()).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync(SyncKind::All).unwrap();
    // The file's own sync does not save its name.
    assert_eq!(disk.unflushed().len(), 1);
    assert_eq!(
        (content(&nothing_kept(&disk), "tmp"), content(&all_kept(&disk), "tmp")),
        (None, Some(b"x".to_vec()))
    );
    directory.rename("tmp", "log").unwrap();
    let cut = disk.power_cut();
    let found = cut.subsets().unwrap().map(|disk| disk.directory("/d").list().unwrap());
    assert_eq!(found.collect::<Vec<_>>(), [vec![], vec!["tmp"], vec!["log"], vec!["log"]]);
    directory.sync().unwrap();
    assert_eq!(content(&nothing_kept(&disk), "log"), Some(b"x".to_vec()));
    directory.rename("log", "kept").unwrap();
    assert_eq!(
        content(&nothing_kept(&all_kept(&disk)), "kept"),
        Some(b"x".to_vec()),
        "found is on the medium"
    );
    directory.rename("kept", "log").unwrap();
    directory.remove("log").unwrap();
    assert_eq!(content(&nothing_kept(&disk), "log"), Some(b"x".to_vec()));
    assert_eq!(content(&all_kept(&disk), "log"), None);
    directory.sync().unwrap();
    assert_eq!(content(&nothing_kept(&disk), "log"), None);
}

#[test]
fn a_file_replaced_by_a_rename_may_come_back() {
    let (disk, directory) = disk(quiet());
    drop(settled(&directory, "a", &buffered(), 1, 1));
    drop(settled(&directory, "b", &buffered(), 2, 1));
    directory.rename("a", "b").unwrap();
    let found = nothing_kept(&disk);
    assert_eq!((content(&found, "a").unwrap()[0], content(&found, "b").unwrap()[0]), (1, 2));
    let found = all_kept(&disk);
    assert_eq!((content(&found, "a"), content(&found, "b").unwrap()[0]), (None, 1));
}

#[test]
fn the_old_bytes_of_a_recycled_file_show_through() {
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "seg-1", &direct(), 1, 2);
    directory.rename("seg-1", "seg-9").unwrap();
    file.write_at(&block(2, 2), 0).unwrap();
    // The new name and the first block were kept, the second block was not.
    let found = disk.crash_with(|item| match item.what {
        ItemKind::Sector { offset, .. } if offset >= 4096 => Fate::Dropped,
        _ => Fate::Kept,
    });
    assert_eq!(content(&found, "seg-1"), None);
    assert_eq!(content(&found, "seg-9").unwrap(), [[2; 4096], [1; 4096]].concat());
    // A flush of another file's sync makes an overwrite durable; the name is still the old one.
    settled(&directory.disk().directory("/other"), "x", &buffered(), 1, 1);
    assert_eq!(content(&nothing_kept(&disk), "seg-1").unwrap(), [2; 8192]);
}

#[test]
fn a_journal_keeps_directory_operations_in_order() {
    let names = |order| {
        let (disk, directory) = disk(DiskOptions { directory_order: order, ..quiet() });
        for name in ["1", "2", "3"] {
            drop(directory.open(name, &buffered()).unwrap());
        }
        let cut = disk.power_cut();
        let list = |disk: SimDisk| disk.directory("/d").list().unwrap().concat();
        let mut all: Vec<String> = cut.subsets().unwrap().map(list).collect();
        all.sort_unstable();
        all.dedup();
        let mut sampled: Vec<String> = (0..300).map(|seed| list(cut.sample(seed))).collect();
        sampled.sort_unstable();
        sampled.dedup();
        assert_eq!(all, sampled);
        all
    };
    assert_eq!(names(DirectoryOrder::Prefix), ["", "1", "12", "123"]);
    assert_eq!(names(DirectoryOrder::Any).len(), 8);
    // And one sync commits what other directories did before.
    for (order, expected) in [(DirectoryOrder::Prefix, 1), (DirectoryOrder::Any, 0)] {
        let (disk, directory) = disk(DiskOptions { directory_order: order, ..quiet() });
        drop(directory.open("a", &buffered()).unwrap());
        disk.directory("/other").sync().unwrap();
        assert_eq!(nothing_kept(&disk).directory("/d").list().unwrap().len(), expected);
    }
}

#[test]
fn durable_writes_are_durable_on_completion_with_their_growth() {
    for how in [Durability::ODsync, Durability::OSync] {
        for access in [Access::Buffered, Access::Direct] {
            let (disk, directory) = disk(quiet());
            drop(settled(&directory, "a", &buffered(), 1, 1));
            let open = OpenFile::existing().access(access).durability(how);
            let file = directory.open("a", &open).unwrap();
            file.write_at(&block(2, 2), 0).unwrap();
            assert_eq!(content(&nothing_kept(&disk), "a").unwrap(), [2; 8192]);
            assert_eq!(disk.counters().dsync_writes, 1);
        }
    }
}

#[test]
fn a_durable_overwrite_is_one_fua_write_and_everything_else_flushes() {
    let count = |options: DiskOptions, access, durability, preparation: Preparation| {
        let (disk, directory) = disk(options);
        let file = settled(&directory, "a", &buffered(), 1, 1);
        file.prepare(preparation, 8 * 4096).unwrap();
        file.sync(SyncKind::All).unwrap();
        let before = disk.counters();
        let open = OpenFile::existing().access(access).durability(durability);
        let file = directory.open("a", &open).unwrap();
        file.write_at(&block(2, 1), 4096).unwrap();
        let counted = disk.counters().since(&before);
        (counted.fua_writes, counted.flushes, counted.metadata_commits)
    };
    let (direct, zeros) = (Access::Direct, Preparation::Zeros);
    assert_eq!(count(quiet(), direct, Durability::ODsync, zeros), (1, 0, 0));
    assert_eq!(
        count(quiet(), direct, Durability::ODsync, Preparation::Fallocate),
        (0, 1, 1),
        "unwritten blocks"
    );
    assert_eq!(count(quiet(), direct, Durability::ODsync, Preparation::None), (0, 1, 1), "growth");
    assert_eq!(count(quiet(), Access::Buffered, Durability::ODsync, zeros), (0, 1, 0));
    assert_eq!(count(quiet(), direct, Durability::OSync, zeros), (0, 1, 1));
    let no_fua = DiskOptions { has_fua: false, ..quiet() };
    assert_eq!(count(no_fua, direct, Durability::ODsync, zeros), (0, 1, 0));
    // Within a block that is written, but beyond the end of the file.
    let (disk, directory) = disk(quiet());
    let how = direct_dsync();
    directory
        .open("a", &OpenFile { create_new: true, ..how })
        .unwrap()
        .write_at(&block(1, 1)[..512], 0)
        .unwrap();
    let before = disk.counters();
    directory.open("a", &how).unwrap().write_at(&block(2, 1)[..512], 512).unwrap();
    let counted = disk.counters().since(&before);
    assert_eq!((counted.fua_writes, counted.flushes, counted.metadata_commits), (0, 1, 1));
}

fn direct_dsync() -> OpenFile {
    OpenFile::existing().access(Access::Direct).durability(Durability::ODsync)
}

#[test]
fn preparations_leave_what_they_say() {
    let (disk, directory) = disk(quiet());
    let file = directory.open("a", &buffered()).unwrap();
    directory.sync().unwrap();
    file.prepare(Preparation::Fallocate, 8192).unwrap();
    assert_eq!(file.len_bytes().unwrap(), 8192);
    assert_eq!(content(&nothing_kept(&disk), "a").unwrap().len(), 0);
    let before = disk.counters();
    file.prepare(Preparation::Zeros, 3 << 20).unwrap();
    let counted = disk.counters().since(&before);
    assert_eq!((counted.writes, counted.full_syncs, counted.written_bytes), (3, 1, 3 << 20));
    assert_eq!(content(&nothing_kept(&disk), "a").unwrap(), vec![0; 3 << 20]);
    for other in [Preparation::WriteZeroes, Preparation::KeepSize, Preparation::ZeroRange] {
        assert!(file.prepare(other, 4096).unwrap_err().is_unsupported(), "{other}");
    }
}

#[test]
fn direct_and_buffered_access_see_each_other() {
    let (disk, directory) = disk(quiet());
    let cached = settled(&directory, "a", &buffered(), 1, 2);
    let past = directory.open("a", &OpenFile::existing().access(Access::Direct)).unwrap();
    cached.write_at(&[2; 10], 0).unwrap();
    let mut memory = AlignedBuf::zeroed(4096);
    past.read_at(&mut memory, 0).unwrap();
    assert_eq!(memory[..11], [[2; 10].as_slice(), &[1]].concat());
    assert!(matches!(disk.unflushed()[0].what, ItemKind::Sector { place: Place::DeviceCache, .. }));
    cached.write_at(&[4; 10], 5000).unwrap();
    past.write_at(&block(5, 1), 0).unwrap();
    past.read_at(&mut memory, 0).unwrap();
    assert_eq!(memory[0], 5);
    let places: Vec<_> = disk.unflushed().into_iter().map(|item| item.what).collect();
    let dirty = ItemKind::Sector { offset: 4608, place: Place::PageCache };
    assert_eq!(places[1], dirty, "a page beside the range stays dirty");
    past.write_at(&block(2, 1), 0).unwrap();
    past.write_at(&block(3, 1), 4096).unwrap();
    assert!(!disk.unflushed().iter().any(|item| item.what == dirty), "it is written back before");
    let mut seen = [0; 8192];
    cached.read_at(&mut seen, 0).unwrap();
    assert_eq!((seen[9], seen[10], seen[4096], seen[5000]), (2, 2, 3, 3));
    // O_DIRECT is aligned, in memory too.
    for (start, len, offset) in [(0, 512, 100), (0, 100, 0), (1, 512, 0)] {
        let error = past.write_at(&memory[start..start + len], offset).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(inkstone_sim::errno::EINVAL));
        assert!(past.read_at(&mut memory[start..start + len], offset).is_err());
    }
}

#[test]
fn during_a_write_its_bytes_may_survive_and_no_sync_covers_them() {
    for is_dsync in [false, true] {
        let (disk, directory) = disk(quiet());
        let (file, beside) = (settled(&directory, "a", &direct(), 1, 4), directory.clone());
        let first_bytes = |disk: &SimDisk| {
            content(disk, "a").unwrap().chunks(4096).map(|block| block[0]).collect::<Vec<_>>()
        };
        let now = disk.clone();
        let held = directory.hooked(During::the(move |call| {
            if !matches!(call, Call::DuringWrite) {
                return;
            }
            let other = beside.open("a", &OpenFile::existing().access(Access::Direct)).unwrap();
            other.write_at(&block(3, 1), 4096).unwrap();
            other.sync(SyncKind::All).unwrap();
            assert_eq!(first_bytes(&nothing_kept(&now)), [1, 3, 1, 1]);
            assert_eq!(first_bytes(&all_kept(&now)), [2, 3, 1, 1]);
        }));
        let how = OpenFile::existing().access(Access::Direct);
        let held = held.open("a", &how).unwrap();
        if is_dsync {
            held.write_dsync(&block(2, 1), 0).unwrap();
        } else {
            held.write_at(&block(2, 1), 0).unwrap();
        }
        // Nothing else is in the middle: only the write that carries its durability is durable.
        let kept = if is_dsync { 2 } else { 1 };
        assert_eq!(first_bytes(&nothing_kept(&disk)), [kept, 3, 1, 1]);
        file.sync(SyncKind::Data).unwrap();
        assert_eq!(first_bytes(&nothing_kept(&disk)), [2, 3, 1, 1]);
    }
}

#[test]
fn what_is_written_during_a_sync_it_does_not_cover() {
    let (disk, directory) = disk(quiet());
    let file = settled(&directory, "a", &direct(), 1, 2);
    file.write_at(&block(2, 1), 0).unwrap();
    let beside = directory.clone();
    let held = directory.hooked(During::the(move |call| {
        if matches!(call, Call::DuringSync) {
            let how = OpenFile::existing().access(Access::Direct);
            beside.open("a", &how).unwrap().write_at(&block(3, 1), 4096).unwrap();
        }
    }));
    held.open("a", &OpenFile::existing()).unwrap().sync(SyncKind::All).unwrap();
    let first_bytes = |disk: &SimDisk| {
        content(disk, "a").unwrap().chunks(4096).map(|block| block[0]).collect::<Vec<_>>()
    };
    assert_eq!(first_bytes(&nothing_kept(&disk)), [2, 1]);
    assert_eq!(first_bytes(&all_kept(&disk)), [2, 3]);
}

#[test]
fn epochs_are_the_disk_before_each_thing_that_made_something_durable() {
    let (disk, directory) = disk(quiet());
    disk.record_epochs();
    let file = settled(&directory, "a", &buffered(), 1, 1);
    file.write_at(&[2; 1024], 0).unwrap();
    file.write_at(&[3; 512], 0).unwrap();
    file.sync(SyncKind::Data).unwrap();
    file.sync(SyncKind::Data).unwrap();
    let epochs = disk.take_epochs();
    let sizes: Vec<usize> = epochs.iter().map(|cut| cut.items().len()).collect();
    // The first sync (sectors, size and name), the directory, the second; the third had nothing to
    // do.
    assert_eq!(sizes, [10, 1, 3]);
    assert_eq!(epochs[2].operation(), disk.operations() - 1);
    assert_eq!([epochs[0].epoch(), epochs[2].epoch()], [0, 2]);
    assert!(disk.take_epochs().is_empty());
    assert_eq!((disk.epochs_recorded(), disk.power_cut().epoch()), (3, 3));
}

#[test]
fn a_removed_file_lives_while_it_is_open_and_its_room_is_given_back() {
    let (disk, directory) = disk(DiskOptions { capacity_bytes: Some(2 * 4096), ..quiet() });
    let file = settled(&directory, "a", &buffered(), 1, 2);
    directory.remove("a").unwrap();
    let mut bytes = [0; 10];
    assert_eq!((file.read_at(&mut bytes, 0).unwrap(), bytes), (10, [1; 10]));
    let other = directory.open("b", &buffered()).unwrap();
    assert!(other.write_at(&[1], 0).is_err());
    drop(file);
    other.write_at(&[1], 0).unwrap();
    assert_eq!(
        content(&nothing_kept(&disk), "a").unwrap(),
        [1; 8192],
        "the removal was not synced"
    );
}
