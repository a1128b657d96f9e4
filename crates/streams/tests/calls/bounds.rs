//! The disk stays within the bound of docs/streams.md, whatever lives beside a hot stream: counted
//! in bytes of all files, while the hot stream is written as fast as the log takes it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use inkstone_streams::{Batch, NOTE_BYTES_MAX, Options, Streams};

use super::directory;

const SEGMENT: u64 = 4 << 20;
const HOT: u64 = u64::MAX;
/// The hot stream's record.
const RECORD: &[u8] = &[7; 16 << 10];

/// Of all files: segments, prepared and free ones.
fn disk_bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap();
    // A file may be renamed or removed meanwhile: one that is listed by both names counts once.
    let files = entries.filter_map(|entry| entry.ok()?.metadata().ok());
    files.map(|file| (file.ino(), file.len())).collect::<BTreeMap<_, _>>().values().sum()
}

/// Writes what `make` leaves alive, then 64 MiB to a hot stream that keeps one record.
/// The disk has at most so many segments beyond twice what lives.
fn beside_a_hot_stream(segments_max: f64, make: impl Fn(&Streams)) {
    // Without a mover the appends alone move all.
    for own_mover in [true, false] {
        let segments = hot_stream(own_mover, &make);
        assert!(segments <= segments_max, "{segments} segments beyond twice what lives");
    }
}

fn hot_stream(own_mover: bool, make: impl Fn(&Streams)) -> f64 {
    let directory = directory();
    // No file is prepared ahead.
    let log = inkstone::Options::small().segment_bytes(SEGMENT).record_bytes_max(160 << 10);
    let log = log.buffer_bytes(256 << 10);
    let options = Options::new().log(log).section_bytes(SEGMENT).own_mover(own_mover);
    let streams = Streams::open(directory.path(), options).unwrap();
    streams.create(HOT, 1).unwrap().wait().unwrap();
    make(&streams);
    let mut most = 0.0_f64;
    for number in 1..=4096 {
        drop(streams.append(HOT, RECORD).unwrap());
        drop(streams.truncate_before(HOT, number).unwrap());
        if number % 16 == 0 {
            let disk = disk_bytes(directory.path());
            let stats = streams.stats();
            let lives = stats.live_bytes + stats.table_bytes;
            most = most.max(disk.saturating_sub(2 * lives) as f64 / SEGMENT as f64);
        }
    }
    streams.close().unwrap();
    most
}

fn idle(streams: &Streams, ids: u64, records: usize, bytes: usize) {
    let record = vec![1; bytes];
    for id in 1..=ids {
        let mut batch = Batch::new();
        batch.create(id, 1);
        (0..records).for_each(|_| _ = batch.append(id, &record));
        drop(streams.apply(&batch).unwrap());
    }
    streams.sync().unwrap();
}

#[test]
fn idle_streams_of_small_records() {
    beside_a_hot_stream(3.0, |streams| idle(streams, 1000, 60, 50));
}

/// What is dead lies behind all of it, and each append pays for some.
#[test]
fn idle_streams_of_several_sections() {
    beside_a_hot_stream(3.0, |streams| idle(streams, 1000, 240, 50));
}

#[test]
fn many_streams_of_one_tiny_record() {
    // For a section of 64 MiB, 100,000.
    beside_a_hot_stream(3.0, |streams| idle(streams, 6_400, 1, 1));
}

#[test]
fn batches_of_many_records() {
    beside_a_hot_stream(3.0, |streams| idle(streams, 4, 5_000, 20));
}

#[test]
fn a_table_of_half_a_section() {
    beside_a_hot_stream(4.0, |streams| {
        for id in 1..=640 {
            let mut batch = Batch::new();
            drop(streams.apply(batch.create(id, 1).note(id, &[1; NOTE_BYTES_MAX])).unwrap());
        }
    });
}

/// What each segment keeps for a full disk counts, too: the more streams there are, the more.
#[test]
fn small_segments_of_many_streams() {
    for segment_bytes in [1 << 20, 512 << 10] {
        let directory = directory();
        let log = inkstone::Options::small().segment_bytes(segment_bytes);
        let log = log.record_bytes_max(128 << 10).buffer_bytes(256 << 10);
        let options = Options::new().log(log).section_bytes(segment_bytes).own_mover(false);
        let streams = Streams::open(directory.path(), options).unwrap();
        streams.create(HOT, 1).unwrap().wait().unwrap();
        idle(&streams, 600, 16 * segment_bytes as usize / 600 / 124, 100);
        for number in 1..=24 * segment_bytes / 1000 {
            drop(streams.append(HOT, &[7; 1000]).unwrap());
            drop(streams.truncate_before(HOT, number).unwrap());
            if number % 64 == 0 {
                let (disk, stats) = (disk_bytes(directory.path()), streams.stats());
                let most = 2 * (stats.live_bytes + stats.table_bytes) + 3 * segment_bytes;
                assert!(disk <= most, "{disk} bytes, and {most} may be: {stats:?}");
            }
        }
        streams.close().unwrap();
    }
}
