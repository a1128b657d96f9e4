//! The commands beside a writer: readers call nothing damaged that is sound, copies are prefixes,
//! and who would write is refused.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{directory, good, good_json, json, line, lines, refused, text, until};

fn filler() -> String {
    "z".repeat(3000)
}

fn open(at: &Path) -> inkstone::Log {
    let options = inkstone::Options::new().segment_bytes(64 << 10).record_bytes_max(4 << 10);
    inkstone::Log::open(at.join("log"), options).expect("the log")
}

/// Appends records while `look` runs; returns what `look` does, and the last LSN. A failed check
/// does not leave the writer running.
fn beside_a_writer<T>(at: &Path, look: impl FnOnce() -> T) -> (T, u64) {
    let log = open(at);
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    let next = log.last().get() + 1;
                    drop(log.append(line(next, &filler()).as_bytes()).expect("room"));
                }
                log.sync().expect("durable");
                // Only so that the log does not outgrow its reader.
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("records", || log.last().get() > 1200);
            look()
        }));
        is_over.store(true, Ordering::Relaxed);
        found
    });
    let last = log.last().get();
    log.close().expect("closed");
    (found.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), last)
}

#[test]
fn a_log_that_is_being_written_is_never_called_corrupt_and_a_copy_is_a_prefix() {
    let directory = directory();
    let at = directory.path();
    let is_sound = |arguments| text(&good(at, arguments, b""));
    let (copied, written) = beside_a_writer(at, || {
        for _ in 0..2 {
            is_sound("verify log");
            assert!(json(is_sound("info log --json").as_bytes())["last"].as_u64() > Some(1000));
            assert!(is_sound("dump log").matches("\"kind\":\"record\"").count() > 1000);
        }
        good_json(at, "copy log new --json")
    });
    let last = copied["last"].as_u64().expect("an LSN");
    assert!(copied["first"] == 1 && (1000..=written).contains(&last), "{copied}");
    assert!(good(at, "cat new", b"") == lines(1..=last, &filler()));
    assert!(is_sound("verify log").contains("closed cleanly"));
}

#[test]
fn who_would_write_is_refused_beside_a_writer_and_a_dry_run_is_not() {
    let directory = directory();
    let at = directory.path();
    good(at, "append log -q --segment-size 64KiB", &lines(1..=2000, ""));
    let log = open(at);
    let process = format!("process {}", std::process::id());
    for what in
        ["--keep-bytes 1", "--keep-records 1", "--keep-for 1d", "--before 5", "--after 1500"]
    {
        let told = refused(at, format!("truncate log {what}"), 1, &process);
        assert!(told.contains("Log::truncate_"), "{told}");
        let looked = text(&good(at, format!("truncate log --dry-run {what}"), b""));
        assert!(looked.starts_with("would be left: LSN "), "{looked}");
    }
    for arguments in ["append log", "salvage log new"] {
        refused(at, arguments, 1, &process);
    }
    assert_eq!((log.first().get(), log.last().get()), (1, 2000), "nothing was changed");
    let info = text(&good(at, "info log", b""));
    assert!(info.contains("open for writing") && info.contains("process"), "{info}");
    log.close().expect("closed");
}
