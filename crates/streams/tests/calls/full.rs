//! On a full disk streams can be truncated and removed, also after an opening, and then they take
//! records again.

use std::sync::Arc;

use crate::host_support::{EXT4, FileSystem, XFS, can_run};
use inkstone::system::seam::{File, OpenFile};
use inkstone::{Directory, Preparation};
use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};
use inkstone_streams::{Batch, Error, Options, Streams};

/// Streams that nothing moves but the calls of the test.
fn open(directory: &Arc<SimDirectory>, pads: bool) -> Streams {
    open_large(directory, pads, 64 << 10)
}

fn open_large(directory: &Arc<SimDirectory>, pads: bool, segment_bytes: u64) -> Streams {
    let log = inkstone::Options::small().own_thread(false).pad_groups(pads);
    let log = log.segment_bytes(segment_bytes);
    let options = Options::new().log(log).section_bytes(16 << 10).own_mover(false);
    Streams::open_in(Arc::clone(directory), options).unwrap()
}

fn is_no_room(error: &Error) -> bool {
    matches!(error, Error::Log(inkstone::Error::NoRoom { .. }))
}

/// Appends records until the disk is full.
fn fill(streams: &Streams, stream: u64, bytes: usize) {
    for count in 1.. {
        match streams.append(stream, &vec![7; bytes]) {
            Ok(written) if count % 16 == 0 => written.wait().unwrap(),
            Ok(written) => drop(written),
            Err(error) => return assert!(is_no_room(&error), "{error}"),
        }
    }
}

/// Another program takes all that is left.
fn fill_the_rest(disk: &SimDisk, name: usize) {
    let other = disk.directory("/other");
    let file = other.open(&name.to_string(), &OpenFile::new_file()).unwrap();
    let mut bytes = 0;
    while file.prepare(Preparation::Fallocate, bytes + 4096).is_ok() {
        bytes += 4096;
    }
}

#[test]
fn a_full_disk_takes_truncations_and_removals_and_then_records() {
    for (round, pads) in [false, true].into_iter().cycle().take(24).enumerate() {
        for other_program in [false, true] {
            let capacity_bytes = Some((384 << 10) + round as u64 * (20 << 10));
            let options = DiskOptions { capacity_bytes, ..DiskOptions::default() };
            let disk = SimDisk::new(round as u64, options);
            let directory = Arc::new(disk.directory("/streams"));
            let mut streams = open(&directory, pads);
            (1..=4).for_each(|stream| streams.create(stream, 1).unwrap().wait().unwrap());
            streams.append(4, b"it stays").unwrap().wait().unwrap();
            for bytes in [900, 20, 9000] {
                fill(&streams, 1, bytes);
                fill(&streams, 2, bytes / 10);
                if other_program {
                    fill_the_rest(&disk, bytes);
                }
                if !pads {
                    streams.close().unwrap();
                    streams = open(&directory, pads);
                }
                let next = streams.bounds(1).unwrap().next;
                // In a padded log an opening and each change take a block, and there are few.
                if pads {
                    let mut batch = Batch::new();
                    let batch = batch.truncate_before(1, next).remove(2);
                    streams.apply(batch).unwrap().wait().unwrap();
                } else {
                    streams.truncate_before(1, next).unwrap().wait().unwrap();
                    streams.remove(2).unwrap().wait().unwrap();
                }
                for _ in 0..30 {
                    streams.append(1, &[7; 900]).unwrap().wait().unwrap();
                }
                streams.create(2, 1).unwrap().wait().unwrap();
                assert_eq!(streams.reader().get(4, 1).unwrap(), b"it stays");
            }
        }
    }
}

/// A queue whose records go one by one uses up its part of what is kept before that empties a
/// section. The rest is for truncations of all records, of each stream.
#[test]
fn truncations_record_by_record_do_not_keep_a_full_disk_full() {
    for (bytes, count, pads) in [20, 200, 900]
        .into_iter()
        .flat_map(|bytes| [(bytes, 1, false), (bytes, 3, false), (bytes, 3, true)])
    {
        // What a small segment keeps are few blocks.
        let segment_bytes = if pads { 1 << 20 } else { 64 << 10 };
        let capacity_bytes = Some(8 * segment_bytes);
        let disk = SimDisk::new(3, DiskOptions { capacity_bytes, ..DiskOptions::default() });
        let mut streams = open_large(&Arc::new(disk.directory("/streams")), pads, segment_bytes);
        (1..=count).for_each(|stream| streams.create(stream, 1).unwrap().wait().unwrap());
        let mut batch = Batch::new();
        let record = vec![7; bytes];
        (1..=count).for_each(|stream| _ = batch.append(stream, &record));
        while streams.apply(&batch).map(drop).is_ok() {}
        let next = streams.bounds(1).unwrap().next;
        let by_record = (2..next).take_while(|first| match streams.truncate_before(1, *first) {
            Ok(written) => written.wait().is_ok(),
            Err(error) => !is_no_room(&error),
        });
        let by_record = by_record.count();
        // In a padded log each takes a block.
        let least = if pads { 2 } else { 50 };
        assert!(by_record >= least, "{bytes} bytes, {count} streams: {by_record} truncations");
        if count == 1 {
            streams.close().unwrap();
            streams = open(&Arc::new(disk.directory("/streams")), false);
        }
        for stream in 1..=count {
            streams.truncate_before(stream, next).unwrap().wait().unwrap();
        }
        (0..30).for_each(|_| streams.append(1, &record).unwrap().wait().unwrap());
    }
}

/// Each section has records of all streams, so nothing is free before the last of them is empty.
#[test]
fn a_full_disk_takes_the_truncation_of_each_of_many_streams() {
    const MIB: u64 = 1 << 20;
    for (count, pads, segment_bytes) in
        [(40, false, MIB / 16), (90, false, MIB), (3, true, MIB), (300, false, 4 * MIB)]
    {
        let capacity_bytes = Some(8 * segment_bytes);
        let disk = SimDisk::new(3, DiskOptions { capacity_bytes, ..DiskOptions::default() });
        let streams = open_large(&Arc::new(disk.directory("/streams")), pads, segment_bytes);
        (1..=count).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
        (1..).find(|at| streams.append(at % count + 1, &[7; 1000]).is_err()).unwrap();
        // First some that leave records, as many as there is room for.
        let least = streams.bounds(count).unwrap().next;
        let by_record = (2..least).flat_map(|first| (1..=count).map(move |stream| (stream, first)));
        for (stream, first) in by_record {
            match streams.truncate_before(stream, first) {
                Ok(written) => written.wait().unwrap(),
                Err(error) => {
                    assert!(is_no_room(&error), "{error}");
                    break;
                }
            }
        }
        for stream in 1..=count {
            let next = streams.bounds(stream).unwrap().next;
            let emptied = streams.truncate_before(stream, next).and_then(|written| written.wait());
            emptied.unwrap_or_else(|why| panic!("stream {stream} of {count}, {pads}: {why}"));
        }
        (0..300).for_each(|_| drop(streams.append(1, &[7; 100]).unwrap()));
        streams.close().unwrap();
    }
}

/// With the defaults, on a disk of five segments, beside an idle stream in the oldest section.
fn on_a_real_disk(kind: &str, options: &[&str]) {
    if !can_run(&format!("a full {kind}"), &[&format!("mkfs.{kind}")]) {
        return;
    }
    let made = FileSystem::new(kind, 320, options);
    let path = made.target().join("streams");
    let open = || Streams::open(&path, Options::new()).unwrap();
    let mut streams = open();
    (1..=3).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
    (0..100).for_each(|_| drop(streams.append(3, &[3; 1000]).unwrap()));
    for _ in 0..2 {
        fill(&streams, 1, 1 << 20);
        fill(&streams, 2, 50_000);
        fill(&streams, 1, 100);
        streams.close().unwrap();
        streams = open();
        let next = streams.bounds(1).unwrap().next;
        streams.truncate_before(1, next).unwrap().wait().unwrap();
        streams.remove(2).unwrap().wait().unwrap();
        for _ in 0..50 {
            streams.append(1, &[7; 1 << 20]).unwrap().wait().unwrap();
        }
        streams.create(2, 1).unwrap().wait().unwrap();
        assert_eq!(streams.reader().records(3, 1).map(Result::unwrap).count(), 100);
    }
    streams.close().unwrap();
    drop(streams);
    made.remove();
}

#[test]
#[ignore = "needs root, mkfs.ext4 and mkfs.xfs"]
fn a_full_disk_of_320_mib_is_no_dead_end() {
    on_a_real_disk("ext4", EXT4);
    on_a_real_disk("xfs", XFS);
}
