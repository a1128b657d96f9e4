//! An append from C allocates nothing, nor does waiting for it, nor reading with a cursor: counted,
//! in all threads of the process.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

use std::alloc::System;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;
use std::time::{Duration, Instant};

use inkstone_capi::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The test's own harness allocates a few times.
const HARNESS: usize = 20;

const TIMES: u64 = 2000;

fn well(code: inkstone_code) {
    assert_eq!(code, inkstone_code::INKSTONE_OK);
}

/// A number of the log's statistics.
fn stat(log: *const inkstone_log, name: &str) -> u64 {
    let mut text = ptr::null_mut();
    // SAFETY: the log is open, and the text is freed once.
    let stats = unsafe {
        well(inkstone_stats_json(log, &raw mut text, ptr::null_mut()));
        let stats = std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
        inkstone_text_free(text);
        stats
    };
    let (_, rest) = stats.split_once(&format!("\"{name}\":")).expect("the statistic");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// What `work` allocates when it is done again. A time in which the log prepared a segment, on a
/// thread of its own, does not count.
fn counted(log: *const inkstone_log, work: &dyn Fn()) -> usize {
    work();
    for _ in 0..100 {
        // SAFETY: the log is open.
        well(unsafe { inkstone_sync(log, ptr::null_mut(), ptr::null_mut()) });
        // What is left of the time before, on the log's own threads.
        std::thread::sleep(Duration::from_millis(300));
        let prepared = || ["prepared_bytes", "ready"].map(|name| stat(log, name));
        let known = prepared();
        let before = ALLOCATOR.stats();
        work();
        let after = ALLOCATOR.stats();
        if prepared() == known {
            return after.allocations + after.reallocations
                - before.allocations
                - before.reallocations;
        }
    }
    panic!("the log prepares segments all the time")
}

#[test]
fn an_append_allocates_nothing_at_the_door() {
    let directory = tempfile::tempdir().unwrap();
    let path = CString::new(directory.path().join("log").as_os_str().as_bytes()).unwrap();
    let (mut log, mut reader, mut cursor) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let record: *const c_void = [7u8; 100].as_ptr().cast();
    let parts =
        [inkstone_bytes { data: record, size: 40 }, inkstone_bytes { data: record, size: 60 }];
    let no_error = ptr::null_mut();
    // SAFETY: every pointer is to what the header asks for, until all is freed.
    unsafe {
        let options = inkstone_options_new();
        well(inkstone_options_set(options, c"buffer_bytes".as_ptr(), c"65536".as_ptr(), no_error));
        well(inkstone_open(path.as_ptr(), options, &raw mut log, no_error));
        inkstone_options_free(options);
        // The first segments are small: on to one that is not, whose successor is ready.
        let big = vec![1u8; 1 << 20];
        for _ in 0..10 {
            well(inkstone_append_durable(
                log,
                big.as_ptr().cast(),
                big.len(),
                ptr::null_mut(),
                no_error,
            ));
        }
        let until = Instant::now() + Duration::from_secs(30);
        while stat(log, "ready") == 0 {
            assert!(Instant::now() < until, "the next segment is not prepared");
            std::thread::sleep(Duration::from_millis(10));
        }

        let pending = || inkstone_pending { log: ptr::null(), first_lsn: 0, lsn: 0, cuts: 0 };
        let waited = || {
            for _ in 0..TIMES / 10 {
                let mut pending = pending();
                well(inkstone_append(log, record, 100, &raw mut pending, no_error));
                well(inkstone_wait(&raw mut pending, no_error));
            }
        };
        let in_parts = || {
            for _ in 0..TIMES {
                let mut pending = pending();
                well(inkstone_append_parts(log, parts.as_ptr(), 2, &raw mut pending, no_error));
                inkstone_let_go(&raw mut pending);
            }
        };
        let unwaited = || {
            for _ in 0..TIMES {
                well(inkstone_append_unwaited(log, record, 100, ptr::null_mut(), no_error));
            }
        };
        let durable = || {
            for _ in 0..TIMES / 10 {
                well(inkstone_append_durable(log, record, 100, ptr::null_mut(), no_error));
            }
        };
        for (name, work) in [
            ("wait", &waited as &dyn Fn()),
            ("parts", &in_parts),
            ("unwaited", &unwaited),
            ("durable", &durable),
        ] {
            let allocations = counted(log, work);
            assert!(allocations <= HARNESS, "{name}: {allocations} allocations");
        }

        well(inkstone_reader_of(log, &raw mut reader, no_error));
        well(inkstone_cursor_new(reader, inkstone_last(log) - TIMES, &raw mut cursor, no_error));
        let mut record = inkstone_record { lsn: 0, data: ptr::null(), size: 0 };
        well(inkstone_cursor_next(cursor, &raw mut record, no_error));
        let before = ALLOCATOR.stats();
        while inkstone_cursor_next(cursor, &raw mut record, no_error) == inkstone_code::INKSTONE_OK
        {
        }
        let read = ALLOCATOR.stats().allocations - before.allocations;
        assert!(read <= HARNESS, "{read} allocations for {TIMES} records");
        inkstone_cursor_free(cursor);
        inkstone_reader_free(reader);
        inkstone_log_free(log);
    }
}
