//! In the steady state a line costs no allocation and no system call: counted.

use std::alloc::System;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use inkstone_appender::{LogWriter, Survive};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const VICTIM: &str = "INKSTONE_TEST_TRACED";
const LINES: u64 = 100_000;
const BEGIN: &str = "/inkstone-begins";
const END: &str = "/inkstone-ends";

fn put(log: &mut LogWriter, lines: u64) {
    for number in 0..lines {
        writeln!(
            log,
            "thread main line {number} of a service that has {} of them to tell",
            lines - number
        )
        .expect("accepted");
    }
}

/// One test at a time: allocations are counted for the whole process. So those of the back thread
/// are, too.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn no_allocation() {
    if std::env::var_os(VICTIM).is_some() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a directory");
    for survive in [Survive::Nothing, Survive::Kill] {
        let path = directory.path().join("a.log");
        let builder = LogWriter::builder(path).buffers_bytes(1 << 20);
        let (mut log, guard) = builder.survive(survive).open().expect("opened");
        put(&mut log, 2000);
        guard.flush(Duration::from_secs(60)).expect("flushed");
        let before = ALLOCATOR.stats();
        // Some sixteen times through all buffers.
        put(&mut log, 2 * LINES);
        guard.flush(Duration::from_secs(60)).expect("flushed");
        let after = ALLOCATOR.stats();
        let count =
            after.allocations + after.reallocations - before.allocations - before.reallocations;
        // The test's own harness may allocate a few times.
        assert!(count < 20, "{count} allocations in {} lines, {survive:?}", 2 * LINES);
        guard.close().expect("closed");
    }
}

/// The traced process: it writes lines between two marks, which are lookups of missing files.
#[test]
fn traced() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let builder = LogWriter::builder(path).buffers_bytes(32 << 20);
    let (mut log, guard) = builder
        .survive(Survive::Kill)
        .flush_every(Duration::from_secs(600))
        .open()
        .expect("opened");
    put(&mut log, 1000);
    let _ = std::fs::metadata(BEGIN);
    put(&mut log, LINES);
    let _ = std::fs::metadata(END);
    guard.close().expect("closed");
}

#[test]
#[ignore = "needs strace"]
fn no_system_call_but_one_wake_up_for_each_buffer() {
    if std::env::var_os(VICTIM).is_some() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace");
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "traced", "--test-threads", "1"])
        .env(VICTIM, directory.path().join("a.log"))
        .output()
        .expect("strace runs");
    assert!(traced.status.success(), "strace may trace: {traced:?}");
    let calls = calls_between(&trace);
    let bytes = std::fs::metadata(directory.path().join("a.log")).expect("there").len();
    let buffers = bytes / (256 << 10);
    assert!(buffers >= 5, "{bytes}");
    let (futexes, others): (Vec<_>, Vec<_>) =
        calls.into_iter().partition(|call| call.contains("futex("));
    let (yields, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|call| call.contains("sched_yield("));
    // A buffer of the stage gets its memory when it is used for the first time.
    let (memory, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|call| call.contains("MADV_POPULATE_WRITE"));
    assert!(others.is_empty() && memory.len() as u64 <= buffers + 1, "{memory:?} {others:?}");
    // One to wake the background thread for each buffer, and a few because that held the lock just
    // then: a thread yields up to 32 times, and then sleeps; at once if its yields come back late.
    let (futexes, yields) = (futexes.len() as u64, yields.len() as u64);
    assert!(
        futexes + yields <= 36 * (buffers + 1),
        "{futexes} futex calls and {yields} yields for {buffers} buffers, {LINES} lines"
    );
}

/// The calls of the thread that writes, between its two marks.
fn calls_between(trace: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(trace).expect("a trace");
    let begin = text.lines().find(|line| line.contains(BEGIN)).expect("the first mark");
    let thread = begin.split(' ').next().expect("a thread");
    let mut own = text.lines().filter(|line| line.split(' ').next() == Some(thread));
    own.by_ref().find(|line| line.contains(BEGIN)).expect("the first mark");
    // The second half of an interrupted call is not a call of its own.
    own.take_while(|line| !line.contains(END))
        .filter(|line| !line.contains("<... "))
        .map(str::to_owned)
        .collect()
}
