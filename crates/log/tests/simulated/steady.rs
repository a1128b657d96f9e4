//! What one commit, one segment change and one opening cost, counted on a simulated disk: exactly.

use std::sync::Arc;
use std::time::Duration;

use inkstone::{Access, Durability, Log, Lsn, Options, Preparation};
use inkstone_sim::{Counters, DiskOptions, SimDisk};

fn disk() -> SimDisk {
    SimDisk::new(1, DiskOptions { writeback_ppm: 0, ..DiskOptions::default() })
}

fn options() -> Options {
    // Without threads everything happens when it is asked for.
    Options::new()
        .segment_bytes(64 << 10)
        .record_bytes_max(8 << 10)
        .buffer_bytes(16 << 10)
        .own_thread(false)
}

fn open(disk: &SimDisk, options: Options) -> Log {
    Log::open_in(Arc::new(disk.directory("/log")), options).unwrap()
}

/// Commits one record after the other, until `segments` changes of the segment have come; gives
/// what each commit cost that changed none, and each that did.
fn lone_writer(disk: &SimDisk, log: &Log, segments: u64) -> (Vec<Counters>, Vec<Counters>) {
    let (mut plain, mut changes) = (Vec::new(), Vec::new());
    while log.stats().segments < segments {
        log.prepare_now().unwrap();
        let (before, begun) = (disk.counters(), log.stats().segments);
        log.append_durable(&[7; 128]).unwrap();
        let cost = disk.counters().since(&before);
        if log.stats().segments == begun { plain.push(cost) } else { changes.push(cost) }
    }
    (plain, changes)
}

#[test]
fn a_commit_is_one_write_and_one_flush_and_changes_no_metadata() {
    for (access, durability) in [
        (Access::Buffered, Durability::Fdatasync),
        (Access::Direct, Durability::Fdatasync),
        (Access::Direct, Durability::RwfDsync),
        (Access::Direct, Durability::ODsync),
    ] {
        let disk = disk();
        disk.change_options(|options| options.has_fua = false);
        let log = open(&disk, options().access(access).durability(durability));
        let (plain, changes) = lone_writer(&disk, &log, 9);
        assert!(plain.len() > 2000 && changes.len() == 9);
        for cost in &plain {
            let one_write = Counters {
                writes: 1,
                written_bytes: cost.written_bytes,
                flushes: 1,
                ..Counters::default()
            };
            let expected = match durability {
                Durability::Fdatasync => Counters { data_syncs: 1, ..one_write },
                _ => Counters { dsync_writes: 1, ..one_write },
            };
            let expected =
                Counters { buffered_writes: u64::from(access == Access::Buffered), ..expected };
            assert_eq!(*cost, expected, "{access} {durability}");
            assert!(cost.written_bytes == 4096 || cost.written_bytes == 8192, "{cost:?}");
        }
        // Two blocks only where the record crosses from one to the next.
        let two = plain.iter().filter(|cost| cost.written_bytes > 4096).count();
        assert!(two * 15 < plain.len(), "{two} of {} writes were of two blocks", plain.len());
        for cost in &changes {
            // The header, the seal, the first group; the file was ready.
            assert_eq!((cost.writes, cost.flushes), (3, 3), "{cost:?}");
            assert_eq!(
                (cost.reads, cost.metadata_commits, cost.directory_syncs),
                (0, 0, 0),
                "{cost:?}"
            );
            assert_eq!(
                (cost.creations, cost.renames, cost.allocations, cost.opens),
                (0, 0, 0, 0),
                "{cost:?}"
            );
        }
        assert_eq!(log.stats().segments_fallocated, 0);
    }
}

#[test]
fn recycled_blocks_come_before_new_ones() {
    let disk = disk();
    let log = open(&disk, options());
    lone_writer(&disk, &log, 20);
    let creations = disk.counters().creations;
    let mut begun = 20;
    while begun < 60 {
        log.truncate_before(log.last()).unwrap();
        begun += 2;
        lone_writer(&disk, &log, begun);
    }
    assert_eq!(disk.counters().creations, creations, "no new file is needed any more");
    assert!(log.stats().segments_recycled >= 30, "{:?}", log.stats());
    let files = disk
        .image()
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|end| end == "free"))
        .count();
    assert!(files <= 2, "the pool is bounded");
}

#[test]
fn opening_reads_headers_and_the_last_segment_only() {
    let disk = disk();
    let log = open(&disk, options());
    lone_writer(&disk, &log, 30);
    log.close().unwrap();
    let before = disk.counters();
    let log = open(&disk, options());
    let cost = disk.counters().since(&before);
    let segments = log.recovery().segments as u64;
    assert!(segments > 29);
    // Each header once, the last segment once, and the block in which it ends.
    let most = segments * 4096 + (64 << 10) + 4096;
    assert!(cost.read_bytes <= most, "{} bytes read, {most} at most", cost.read_bytes);
}

#[test]
fn periodic_acknowledges_at_once_and_what_is_left_after_a_crash_is_a_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        Options::small().preparation(Preparation::Fallocate).periodic(Duration::from_millis(2));
    let log = Log::open(directory.path(), options).unwrap();
    for number in 0..1000_u32 {
        log.append_durable(&number.to_le_bytes()).unwrap();
    }
    let groups = log.stats().groups;
    assert!(groups < 500, "{groups} commits for 1000 records: nobody waited");
    // No call follows, and the log's own thread commits.
    while log.durable().get() < 1000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log.sync().unwrap().get(), 1000);
}

#[test]
fn a_small_log_makes_one_small_file() {
    let disk = disk();
    let log = open(&disk, Options::small().own_thread(false));
    log.append_durable(b"a record").unwrap();
    log.prepare_now().unwrap();
    drop(log);
    let files: Vec<_> =
        disk.image().into_iter().map(|(_, bytes)| bytes.len()).filter(|bytes| *bytes > 0).collect();
    assert_eq!(files, [64 << 10]);
}

/// A new log's segments grow. Each next one is made ready in the size that will be needed, not in
/// that of the segment before: otherwise it cannot be used, and blocks that are only reserved take
/// its place.
#[test]
fn a_growing_log_has_each_next_segment_ready_in_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().segment_bytes(12 << 20).record_bytes_max(64 << 10);
    let log = Log::open(directory.path(), options.preparation(Preparation::Zeros)).unwrap();
    for change in 1..=2 {
        while log.stats().ready == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        while log.stats().segments < change {
            log.append_durable(&[7; 32 << 10]).unwrap();
        }
    }
    let stats = log.stats();
    assert_eq!(
        (stats.segments, stats.segments_fallocated, stats.pool_empty),
        (2, 0, 0),
        "{stats:?}"
    );
}

#[test]
fn where_the_next_size_has_no_room_a_log_goes_on_with_a_smaller_segment() {
    let (disk, budget) = (disk(), 9 << 20);
    let options = options().segment_bytes(8 << 20).record_bytes_max(100_000);
    let log = open(&disk, options.disk_budget_bytes(budget));
    // Segments grow by halves, and one of 8 MiB has no room beside one of 6.
    for _ in 0..400 {
        let lsn = log.append_durable(&[7; 100_000]).unwrap();
        log.truncate_before(Lsn::new(lsn.get().saturating_sub(10).max(1))).unwrap();
        let used: usize = disk.image().iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(used as u64 <= budget, "{used} bytes");
    }
    let last = log.last();
    assert_eq!(log.reader().records(log.first()).filter(Result::is_ok).count(), 11);
    log.close().unwrap();
    assert_eq!(open(&disk, Options::small().segment_bytes(8 << 20)).last(), last);
}
