//! Housekeeping does not depend on how much an opening appends, nor on the numbers of records.

use std::sync::Arc;
use std::time::Duration;

use inkstone_sim::{DiskOptions, SimDirectory, SimDisk};
use inkstone_streams::{Batch, Error, Options, Streams};

use super::{churn, directory, still};

const SECTION: u64 = 64 << 10;

/// Opens streams that nothing moves but the calls of the test.
fn open(directory: &Arc<SimDirectory>) -> Streams {
    let log = inkstone::Options::small().own_thread(false);
    let options = Options::new().log(log).section_bytes(SECTION).own_mover(false);
    Streams::open_in(Arc::clone(directory), options).unwrap()
}

/// A table of so many streams takes more steps than one append makes, and more than a buffer.
#[test]
fn openings_of_one_batch_free_what_is_dead_beside_many_streams() {
    for truncates in [false, true] {
        let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/streams"));
        let open = || open(&directory);
        let streams = open();
        for stream in 1..=2000 {
            streams
                .apply(Batch::new().create(stream, 1).note(stream, b"a note"))
                .unwrap()
                .wait()
                .unwrap();
        }
        streams.close().unwrap();
        for number in 1..=500 {
            let streams = open();
            let mut batch = Batch::new();
            batch.append(1, &[7; 400]);
            if truncates {
                batch.truncate_before(1, number + 1);
            }
            streams.apply(&batch).unwrap().wait().unwrap();
            while streams.move_some().unwrap() {}
            let stats = streams.stats();
            assert!(stats.log_bytes < 2 * stats.live_bytes + 8 * SECTION, "{number}: {stats:?}");
            streams.close().unwrap();
        }
    }
}

/// Where each stream keeps its newest records, alone in records of the log, the oldest section is
/// dead before the mover must begin.
#[test]
fn streams_that_keep_their_newest_records_move_few() {
    const STREAMS: u64 = 20;
    for sections in [1, 3] {
        let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/streams"));
        let streams = open(&directory);
        (1..=STREAMS).for_each(|stream| drop(streams.create(stream, 1).unwrap()));
        let keep = sections * SECTION / 192 / STREAMS;
        for number in 1..=10 * keep {
            (1..=STREAMS).for_each(|stream| drop(streams.append(stream, &[7; 128]).unwrap()));
            let mut batch = Batch::new();
            let first = number.saturating_sub(keep).max(1);
            (1..=STREAMS).for_each(|stream| _ = batch.truncate_before(stream, first));
            streams.apply(&batch).unwrap().wait().unwrap();
            while streams.move_some().unwrap() {}
        }
        let (stats, appended) = (streams.stats(), 10 * keep * STREAMS);
        assert!(stats.moved_records < appended / 20, "{sections} of {appended}: {stats:?}");
        assert!(stats.log_bytes < (3 + 2 * sections) * SECTION, "{stats:?}");
    }
}

/// A record that is larger than the log's buffers leaves no room for a step behind it.
#[test]
fn steps_that_find_no_room_in_the_buffers_are_made_later() {
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/streams"));
    let log = inkstone::Options::new()
        .own_thread(false)
        .segment_bytes(12 * SECTION)
        .record_bytes_max(2 * SECTION as usize)
        .buffer_bytes(32 << 10);
    let options = Options::new().log(log).section_bytes(4 * SECTION).own_mover(false);
    let streams = Streams::open_in(directory, options).unwrap();
    streams.create(1, 1).unwrap().wait().unwrap();
    for number in 1..=200 {
        streams.append(1, &[7; SECTION as usize]).unwrap().wait().unwrap();
        streams.truncate_before(1, number + 1).unwrap().wait().unwrap();
        while streams.move_some().unwrap() {}
        assert!(streams.stats().log_bytes < 16 * SECTION, "{number}: {:?}", streams.stats());
    }
}

/// A stream with a record in each of 300 sections: an opening that begins at a table finds all, and
/// the front goes.
#[test]
fn a_stream_of_hundreds_of_runs_is_written_in_pieces() {
    let directory = Arc::new(SimDisk::new(1, DiskOptions::default()).directory("/streams"));
    let open = |size_multiple| {
        let options = still(inkstone::Options::small().own_thread(false));
        Streams::open_in(Arc::clone(&directory), options.size_multiple(size_multiple)).unwrap()
    };
    let streams = open(1000);
    streams.apply(Batch::new().create(1, 1).create(2, 1)).unwrap().wait().unwrap();
    let expected: Vec<_> = (0..300).map(|number| format!("record {number}").into_bytes()).collect();
    for record in &expected {
        drop(streams.append(1, record).unwrap());
        churn(&streams, 2, 24_000);
    }
    churn(&streams, 2, 200_000);
    streams.close().unwrap();
    let found = |streams: &Streams| -> Vec<_> {
        streams.reader().records(1, 1).map(|record| record.unwrap().bytes).collect()
    };
    let streams = open(2);
    assert!(found(&streams) == expected);
    while streams.move_some().unwrap() {}
    let stats = streams.stats();
    assert!(stats.log_bytes < 1 << 20 && stats.moved_records >= 300, "{stats:?}");
    assert!(found(&streams) == expected);
}

/// Each small record of a batch is as far into the batch as its number: no read of one may walk
/// there.
#[test]
fn a_batch_of_many_small_records_is_moved_by_few_reads() {
    const RECORDS: u64 = 100_000;
    let disk = SimDisk::new(1, DiskOptions::default());
    let log = inkstone::Options::new().segment_bytes(8 << 20).record_bytes_max(4 << 20);
    let log = log.own_thread(false);
    let options = Options::new().log(log).section_bytes(4 << 20).own_mover(false);
    let streams = Streams::open_in(Arc::new(disk.directory("/streams")), options).unwrap();
    streams.apply(Batch::new().create(1, 1).create(2, 1)).unwrap().wait().unwrap();
    let mut batch = Batch::new();
    let record = |number: u64| [&number.to_le_bytes()[..], &[7; 12]].concat();
    let records: Vec<_> = (1..=RECORDS).map(record).collect();
    records.iter().for_each(|record| _ = batch.append(1, record));
    streams.apply(&batch).unwrap().wait().unwrap();
    let mut reads = 0;
    while streams.stats().moved_records < RECORDS {
        assert!(streams.stats().log_bytes < 32 << 20, "{:?}", streams.stats());
        for _ in 0..8 {
            let next = streams.bounds(2).unwrap().next;
            drop(streams.append(2, &[7; 16 << 10]).unwrap());
            drop(streams.truncate_before(2, next).unwrap());
        }
        streams.sync().unwrap();
        let before = disk.counters();
        while streams.move_some().unwrap() {}
        reads += disk.counters().since(&before).reads;
    }
    assert_eq!(streams.stats().moved_records, RECORDS);
    assert!(reads <= RECORDS / 2000, "{reads} reads");
    let mut cursor = streams.reader().read(1, 1);
    for number in 1..=RECORDS {
        let found = cursor.next().unwrap().unwrap();
        assert_eq!((found.number, found.bytes), (number, record(number)));
    }
}

/// A listener panics on the mover's thread.
#[test]
fn a_change_after_the_mover_has_ended_is_an_error_that_says_why() {
    let directory = directory();
    let is_mover = || std::thread::current().name() == Some("inkstone-mover");
    let log = inkstone::Options::small().slow_commit(Duration::ZERO);
    let log = log.listener(move |_| assert!(!is_mover(), "a listener's"));
    let options = Options::new().log(log).section_bytes(SECTION);
    let streams = Streams::open(directory.path(), options.clone()).unwrap();
    streams.apply(Batch::new().create(1, 1).create(2, 1)).unwrap().wait().unwrap();
    streams.append(1, b"it stays").unwrap().wait().unwrap();
    let error = loop {
        let next = streams.bounds(2).unwrap().next;
        let mut batch = Batch::new();
        match streams.apply(batch.append(2, &[7; 1000]).truncate_before(2, next + 1)) {
            Ok(written) => drop(written),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("a listener's"), "{error}");
    for refused in [streams.create(3, 1), streams.truncate_before(2, 1)] {
        assert!(matches!(refused, Err(Error::MoverEnded { .. })), "{refused:?}");
    }
    assert_eq!(streams.reader().get(1, 1).unwrap(), b"it stays");
    streams.close().unwrap();
    let again = Streams::open(directory.path(), options).unwrap();
    again.create(3, 1).unwrap().wait().unwrap();
}
