//! How the files of segments go that are no part of the log any more: a few at a time, while nobody
//! waits for them, and all of them in the end; and what a cut costs of the disk.
//!
//! *Owns*: counting files, bytes and calls on a simulated disk. *May not touch*: the crate's
//! insides.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::history::{LOG, disk, open, record, small};
use crate::watch::must_end;
use crate::watched::{Call, watched};
use inkstone::{Log, Lsn, Options};
use inkstone_io::{Directory, File, OpenFile, Preparation, SyncKind};
use inkstone_sim::{DiskOptions, SimDisk};

/// The most that one call gives back.
const A_CALL: u64 = 4;
const RECORDS: u64 = 3000;

/// A log of many segments, which keeps none.
fn long_log(disk: &SimDisk) -> Log {
    let log = open(disk, options()).unwrap();
    fill(&log);
    log
}

fn options() -> Options {
    small().free_segments_max(0)
}

fn fill(log: &Log) {
    for lsn in 1..=RECORDS {
        assert_eq!(log.append(&record(lsn)).unwrap().lsn().get(), lsn);
    }
    log.sync().unwrap();
}

fn files(disk: &SimDisk) -> u64 {
    let names = disk.directory(LOG).list().unwrap();
    names.iter().filter(|name| name.ends_with(".ink") || name.ends_with(".free")).count() as u64
}

#[test]
fn each_call_gives_back_a_few_files_until_all_are_gone() {
    let disk = disk(1);
    let log = long_log(&disk);
    let (before, removed) = (files(&disk), disk.counters().removals);
    assert!(before > 15, "{before}");
    log.truncate_before(Lsn::new(RECORDS)).unwrap();
    assert_eq!(disk.counters().removals - removed, A_CALL, "by the truncation");
    for call in 1.. {
        let removed = disk.counters().removals;
        log.append_durable(&[1]).unwrap();
        let now = disk.counters().removals - removed;
        assert!(now <= A_CALL, "{now} by one commit");
        if files(&disk) == 1 {
            assert_eq!(call, (before - 1).div_ceil(A_CALL) - 1, "commits");
            break;
        }
        assert_eq!(now, A_CALL);
    }
    // Closing the log gives back all at once, and so does an opening after a crash.
    for _ in 0..RECORDS {
        drop(log.append(&[7; 400]).unwrap());
    }
    log.sync().unwrap();
    let last = log.last();
    log.truncate_before(last).unwrap();
    assert!(files(&disk) > 1);
    let crashed = disk.crash(7);
    log.close().unwrap();
    assert_eq!(files(&disk), 1, "closed");
    let found = open(&crashed, options()).unwrap();
    assert_eq!((found.first(), found.last(), files(&crashed)), (last, last, 1), "after a crash");
}

/// Before each removal another thread appends, and waits until that is durable.
#[test]
fn nobody_waits_while_files_are_given_back() {
    must_end("a commit beside a truncation", || {
        let disk = disk(2);
        let log: Arc<OnceLock<Arc<Log>>> = Arc::default();
        let (theirs, seen) = (Arc::clone(&log), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&seen);
        let directory = watched(disk.directory(LOG), move |call| {
            let Call::Remove { .. } = call else { return };
            let Some(log) = theirs.get().cloned() else { return };
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || log.append_durable(&[1]).unwrap()).join().unwrap();
        });
        let opened = Arc::new(Log::open_in(Arc::new(directory), options()).unwrap());
        fill(&opened);
        let last = opened.last();
        log.set(Arc::clone(&opened)).unwrap();
        opened.truncate_before(last).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), A_CALL);
        // A cut gives back what was behind it.
        opened.truncate_after(last).unwrap();
        assert!(seen.load(Ordering::Relaxed) >= 2 * A_CALL);
    });
}

/// Others take what was given back. Whoever needs room then gives back the rest first.
#[test]
fn whoever_needs_room_gives_back_all_that_is_left() {
    let disk =
        SimDisk::new(3, DiskOptions { capacity_bytes: Some(4 << 20), ..DiskOptions::default() });
    let log = long_log(&disk);
    let large = [1; 8000];
    // Until the next one of these needs another segment.
    let next_segment = || {
        let before = log.stats().segments;
        (1..).find(|_| log.append_durable(&large).is_ok() && log.stats().segments > before).unwrap()
    };
    next_segment();
    let a_segment = next_segment();
    for _ in 1..a_segment {
        log.append_durable(&large).unwrap();
    }
    log.truncate_before(log.last()).unwrap();
    assert!(files(&disk) > 8);
    let others = disk.directory("/others");
    let ballast = others.open("ballast", &OpenFile::new_file()).unwrap();
    ballast.prepare(Preparation::Fallocate, others.free_bytes().unwrap()).unwrap();
    ballast.sync(SyncKind::All).unwrap();
    assert_eq!(others.free_bytes().unwrap(), 0);
    log.append_durable(&large).unwrap();
    assert_eq!(files(&disk), 2);
    log.close().unwrap();
}

/// What readers have open gives its room back too: those of the log, and one that sleeps, as in
/// another process.
#[test]
fn what_readers_have_open_takes_no_room() {
    let disk =
        SimDisk::new(4, DiskOptions { capacity_bytes: Some(4 << 20), ..DiskOptions::default() });
    let log = long_log(&disk);
    let sleeper = inkstone::Reader::open_in(Arc::new(disk.directory(LOG)), options()).unwrap();
    let own = log.reader();
    for lsn in (1..=RECORDS).step_by(20) {
        assert_eq!(
            (own.get(Lsn::new(lsn)).unwrap(), sleeper.get(Lsn::new(lsn)).unwrap()),
            (record(lsn), record(lsn))
        );
    }
    let segments = files(&disk);
    let free = disk.directory(LOG).free_bytes().unwrap();
    log.truncate_before(Lsn::new(RECORDS)).unwrap();
    while files(&disk) > 1 {
        log.append_durable(&[1]).unwrap();
    }
    let freed = disk.directory(LOG).free_bytes().unwrap() - free;
    assert_eq!(freed, (segments - 1) * (64 << 10));
    assert!(sleeper.get(Lsn::new(1)).is_err());
    drop((own, sleeper));
    log.close().unwrap();
}

/// A file that goes stays open until it is durable that its name has gone. A process may have few
/// descriptors, and needs them for others.
#[test]
fn few_files_are_open_while_many_go() {
    const MOST: u64 = 64;
    let disk = disk(6);
    let (removed, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (now, seen) = (Arc::clone(&removed), Arc::clone(&most));
    let directory = watched(disk.directory(LOG), move |call| match call {
        Call::Remove { .. } => {
            _ = seen.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed)
        }
        Call::SyncNames => now.store(0, Ordering::Relaxed),
        _ => {}
    });
    let log = Log::open_in(Arc::new(directory), options()).unwrap();
    for _ in 0..1000 {
        drop(log.append(&[7; 8000]).unwrap());
    }
    log.sync().unwrap();
    assert!(files(&disk) > 2 * MOST, "{}", files(&disk));
    log.truncate_before(log.last()).unwrap();
    log.close().unwrap();
    assert_eq!((files(&disk), most.load(Ordering::Relaxed)), (1, MOST));
}

/// After a cut a log begins with a small segment, and goes on in the file that was prepared.
#[test]
fn a_cut_takes_a_small_segment_and_throws_nothing_away() {
    let disk = disk(5);
    let full = 16 << 20;
    let options = || Options::new().segment_bytes(full).record_bytes_max(1 << 20).own_thread(false);
    let log = open(&disk, options()).unwrap();
    let grow = || {
        while log.stats().segments < 8 {
            drop(log.append(&vec![1; 1 << 20]).unwrap());
        }
        log.sync().unwrap();
        log.prepare_now().unwrap();
    };
    grow();
    let bytes = || -> u64 {
        let directory = disk.directory(LOG);
        let names = directory.list().unwrap();
        let sizes = names
            .iter()
            .map(|name| directory.open(name, &OpenFile::existing()).unwrap().len_bytes().unwrap());
        sizes.sum()
    };
    let (before, created, prepared) =
        (bytes(), disk.counters().creations, log.stats().prepared_bytes);
    for cut in 1..=40 {
        let last = log.append_durable(b"stays").unwrap();
        log.append_durable(b"goes").unwrap();
        log.truncate_after(last).unwrap();
        log.prepare_now().unwrap();
        // The segment of 1 MiB; what had been prepared is prepared still.
        let most = cut * (1 << 20);
        assert!(bytes() <= before + most, "{} bytes more after {cut} cuts", bytes() - before);
    }
    assert_eq!(disk.counters().creations - created, 40, "files");
    assert_eq!(log.stats().prepared_bytes, prepared);
    // It grows again, into what had been prepared.
    let created = disk.counters().creations;
    for _ in 0..12 {
        drop(log.append(&vec![1; 1 << 20]).unwrap());
    }
    log.sync().unwrap();
    assert_eq!(disk.counters().creations, created);
    log.close().unwrap();
}

/// The log's own thread does not ask again and again whether it may go on.
#[test]
fn the_committer_sleeps_while_another_thread_gives_files_back() {
    must_end("a committer that sleeps", || {
        let disk = disk(7);
        let committer: Arc<OnceLock<std::path::PathBuf>> = Arc::default();
        let seen = Arc::clone(&committer);
        let (held, holds) = std::sync::mpsc::channel::<()>();
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let waits = std::sync::Mutex::new(waits);
        let directory = watched(disk.directory(LOG), move |call| {
            let Call::Remove { .. } = call else { return };
            match std::thread::current().name() {
                Some("slow") => _ = held.send(()).map(|()| waits.lock().unwrap().recv()),
                Some("inkstone") => _ = seen.set(std::fs::read_link("/proc/thread-self").unwrap()),
                _ => {}
            }
        });
        // With threads, but without a preparer.
        let log = Arc::new(Log::open_in(Arc::new(directory), Options::small()).unwrap());
        fill(&log);
        log.truncate_before(log.last()).unwrap();
        while files(&disk) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        fill_on(&log);
        let theirs = Arc::clone(&log);
        let slow = std::thread::Builder::new().name("slow".into());
        let slow = slow.spawn(move || theirs.truncate_before(theirs.last())).unwrap();
        holds.recv().unwrap();
        fill_on(&log);
        log.truncate_before(log.last()).unwrap();
        let stat = std::path::Path::new("/proc").join(committer.get().unwrap()).join("stat");
        let processor_time = || {
            let text = std::fs::read_to_string(&stat).unwrap();
            let fields: Vec<_> = text.rsplit(')').next().unwrap().split_whitespace().collect();
            (fields[11].to_owned(), fields[12].to_owned())
        };
        loop {
            let before = processor_time();
            std::thread::sleep(Duration::from_millis(500));
            if processor_time() == before {
                break;
            }
        }
        drop(go_on);
        slow.join().unwrap().unwrap();
        log.close().unwrap();
        assert_eq!(files(&disk), 1);
    });
}

fn fill_on(log: &Log) {
    for _ in 0..100 {
        drop(log.append(&[7; 8000]).unwrap());
    }
    log.sync().unwrap();
}

/// A reader had the file of an old segment when its budget was used up.
#[test]
fn a_file_that_is_not_needed_goes_where_no_file_can_be_prepared() {
    let disk = disk(1);
    let log = open(&disk, options().disk_budget_bytes(3 * (64 << 10))).unwrap();
    let mut last = Lsn::ZERO;
    while let Ok(lsn) = log.append_durable(&[7; 4000]) {
        last = lsn;
    }
    let mut cursor = log.reader().from(Lsn::FIRST);
    assert!(cursor.next().unwrap().is_some());
    log.truncate_before(last).unwrap();
    drop(cursor);
    let unused = || {
        let names = disk.directory(LOG).list().unwrap();
        names.iter().filter(|name| name.ends_with(".free")).count()
    };
    let removals = disk.counters().removals;
    while log.prepare_some().is_ok_and(|is_more| is_more) {}
    assert_eq!((disk.counters().removals - removals, unused()), (2, 0));
}
