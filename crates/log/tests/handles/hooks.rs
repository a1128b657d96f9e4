//! Listeners: no lock of the log is held while one runs, and one that panics, or drops the log,
//! leaves it in order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::wakers::{HOUR, failing_write, patient, sim_log};
use crate::watch::{ENOUGH, becomes, must_end};
use inkstone::{Error, Event, Log, Lsn, Options, SealedSegment};
use inkstone_host::in_forked_child;
use inkstone_sim::{DiskOptions, SimDisk};

#[test]
fn a_hook_that_panics_on_the_logs_own_thread_poisons_and_followers_learn_of_it() {
    must_end("a panic of a hook", || {
        let options = Options::small().slow_commit(Duration::ZERO).listener(|event: &Event| {
            let is_own = std::thread::current().name() == Some("inkstone");
            if is_own && matches!(event, Event::SlowCommit { .. }) {
                std::panic::resume_unwind(Box::new("a hook's"));
            }
        });
        for _ in 0..20 {
            let (_disk, log) = sim_log(options.clone());
            let reader = log.reader();
            let followers: Vec<_> = (0..2)
                .map(|_| {
                    let reader = reader.clone();
                    std::thread::spawn(move || {
                        let mut cursor = reader.from(Lsn::new(2));
                        cursor.next_within(HOUR).map(|record| record.map(|record| record.lsn))
                    })
                })
                .collect();
            // On a busy machine the log promises what it has before that, and is refused already.
            drop(log.append(b"committed by the log's own thread"));
            for follower in followers {
                let answer = follower.join().expect("no panic");
                assert!(matches!(answer, Err(Error::Poisoned(_))), "{answer:?}");
            }
            assert!(matches!(log.append_durable(b"more"), Err(Error::Poisoned(_))));
        }
    });
}

#[test]
fn a_hook_that_panics_on_a_callers_thread_reaches_the_caller_and_the_log_goes_on() {
    must_end("a panic of a hook", || {
        let is_on = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_on);
        let options = patient().slow_commit(Duration::ZERO).listener(move |event: &Event| {
            if matches!(event, Event::SlowCommit { .. }) && theirs.swap(false, Ordering::SeqCst) {
                std::panic::resume_unwind(Box::new("a hook's"));
            }
        });
        let (_disk, log) = sim_log(options);
        is_on.store(true, Ordering::SeqCst);
        let caller =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.append_durable(b"one")));
        assert!(caller.is_err());
        assert_eq!(log.durable(), Lsn::FIRST, "it was durable before the hook was told");
        log.append_durable(b"two").expect("the log goes on");
    });
}

/// An archiver that takes its time, while the log is closed and opened again.
#[test]
fn a_held_segment_says_whether_its_file_was_kept() {
    let made = tempfile::tempdir().expect("a directory");
    for ends in [Log::abandon, |log: Log| log.close().expect("closed"), drop] {
        let held: Arc<Mutex<Vec<SealedSegment>>> = Arc::default();
        let holds = Arc::clone(&held);
        let options = Options::new()
            .segment_bytes(64 << 10)
            .record_bytes_max(32 << 10)
            .buffer_bytes(32 << 10);
        let listener = move |event: &Event| {
            if let Event::SegmentSealed(segment) = event {
                holds.lock().expect("sound").push(segment.clone());
            }
        };
        let log = Log::open(made.path(), options.clone().listener(listener)).expect("opened");
        let append = |log: &Log| {
            (0..20).for_each(|_| _ = log.append_durable(&[7; 20_000]).expect("durable"))
        };
        append(&log);
        assert!(becomes(|| !held.lock().expect("sound").is_empty()), "a segment was sealed");
        let segment = held.lock().expect("sound").remove(0);
        log.truncate_before(log.last()).expect("truncated");
        append(&log);
        assert!(segment.path.exists() && segment.is_kept());
        assert_eq!(in_forked_child(|| u8::from(segment.is_kept())).expect("a child"), 0);
        ends(log);
        assert!(!segment.is_kept() && !segment.clone().is_kept());
        held.lock().expect("sound").clear();
        // Another opening, perhaps another process's, uses it.
        let log = Log::open(made.path(), options).expect("opened");
        append(&log);
        log.close().expect("closed");
        assert!(!segment.path.exists() && !segment.is_kept());
    }
}

#[test]
fn a_reader_knows_why_the_log_takes_no_more_records() {
    let (disk, log) = sim_log(Options::small().own_thread(false));
    let reader = log.reader();
    log.append_durable(b"durable").expect("appended");
    assert!(reader.end_of_log().is_none());
    disk.inject(failing_write());
    log.append_durable(b"lost").expect_err("the write fails");
    assert!(matches!(reader.end_of_log(), Some(Error::Poisoned(_))));
    assert_eq!(reader.get(Lsn::FIRST).expect("it is durable"), b"durable");
    let (_disk, log) = sim_log(Options::small());
    let reader = log.reader();
    log.close().expect("closed");
    assert!(matches!(reader.end_of_log(), Some(Error::Closed)));
}

#[test]
fn a_listener_that_drops_the_log_leaves_no_seal_to_be_written_after_its_end() {
    must_end("dropping the log in a listener", || {
        let disk = SimDisk::new(1, DiskOptions::default());
        let owner: Arc<Mutex<Option<Arc<Log>>>> = Arc::default();
        let second: Arc<Mutex<Option<Log>>> = Arc::default();
        let options =
            || Options::new().segment_bytes(64 << 10).record_bytes_max(4096).free_segments_max(16);
        let (go, may_go) = channel::<()>();
        let (may_go, count) = (Mutex::new(may_go), AtomicUsize::new(0));
        let listener = {
            let (disk, owner, second) = (disk.clone(), Arc::clone(&owner), Arc::clone(&second));
            move |event: &Event| {
                let Event::SegmentSealed(_) = event else { return };
                match count.fetch_add(1, Ordering::SeqCst) {
                    // Until more seals wait.
                    0 => _ = may_go.lock().expect("sound").recv_timeout(ENOUGH),
                    1 => {
                        drop(owner.lock().expect("sound").take());
                        let log = Log::open_in(Arc::new(disk.directory("/log")), options())
                            .expect("the lock is free");
                        log.truncate_before(log.last().next().expect("few")).expect("truncated");
                        (0..300).for_each(|_| _ = log.append_durable(&[1; 2000]).expect("durable"));
                        *second.lock().expect("sound") = Some(log);
                    }
                    _ => {}
                }
            }
        };
        let log = Log::open_in(Arc::new(disk.directory("/log")), options().listener(listener))
            .expect("opened");
        let before = log.stats().segments;
        while log.stats().segments < before + 3 {
            log.append_durable(&[7; 2000]).expect("durable");
        }
        *owner.lock().expect("sound") = Some(Arc::new(log));
        go.send(()).expect("somebody waits");
        assert!(becomes(|| second.lock().expect("sound").is_some()), "the second opening");
        // What the first one's thread still has to do is done by then.
        std::thread::sleep(Duration::from_millis(100));
        let log = second.lock().expect("sound").take().expect("opened");
        let shown = log
            .reader()
            .records(log.first())
            .inspect(|record| assert!(record.is_ok(), "{record:?}"))
            .count();
        assert_eq!(shown, 300);
        log.close().expect("closed");
    });
}
