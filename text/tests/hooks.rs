//! The caller's own code: hooks, disks and values that panic, and destructors that log. None of it
//! ends the process or makes other threads wait for ever.

mod common;

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LONG, Mood, MoodyDisk, place};
use inkstone_appender::{
    AppendFacts, Disk, Event, LogFile, LogWriter, Notice, OsDirectory, OsDisk, Result, Survive,
    WhenFull,
};

const VICTIM: &str = "INKSTONE_TEST_WITHOUT_STDERR";

struct LogsWhenDropped(LogWriter, &'static str);

impl Drop for LogsWhenDropped {
    fn drop(&mut self) {
        writeln!(self.0, "{} {}", self.1, 7).expect("accepted");
        // Longer than all buffers: on this path the log checks which thread this is.
        self.0.write_all(&[b'x'; 100_000]).expect("dropped");
    }
}

thread_local! {
    static KEPT: RefCell<Option<LogsWhenDropped>> = const { RefCell::new(None) };
}

#[test]
fn a_destructor_of_a_thread_local_logs_whatever_was_destroyed_before() {
    let (_directory, path) = place();
    let builder = LogWriter::builder(&path).buffers_bytes(16 << 10).buffer_bytes(4 << 10);
    let builder = builder.when_full(WhenFull::DropNewest);
    let (log, guard) = builder.open().expect("opened");
    // Destructors run in the order of creation, or in reverse order.
    for is_first in [true, false] {
        let mut log = log.clone();
        let thread = std::thread::spawn(move || {
            let keep = |log: &LogWriter| {
                let word = if is_first { "kept first" } else { "kept last" };
                KEPT.with_borrow_mut(|kept| *kept = Some(LogsWhenDropped(log.clone(), word)));
            };
            if is_first {
                keep(&log);
            }
            writeln!(log, "formatted {}", std::hint::black_box(7)).expect("accepted");
            if !is_first {
                keep(&log);
            }
        });
        thread.join().expect("no panic");
    }
    guard.close().expect("closed");
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(text.contains("kept first 7\n") && text.contains("kept last 7\n"), "{text}");
    assert_eq!(text.matches("formatted 7\n").count(), 2);
    assert_eq!(log.stats().dropped_lines, 2);
}

#[test]
fn a_notice_that_panics_is_the_usual_one_and_it_is_told() {
    let (_directory, path) = place();
    let told = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&told);
    let notice = Notice::By(Arc::new(|_, _: &mut Vec<u8>| panic!("on purpose, in a notice")));
    let builder =
        LogWriter::builder(&path).buffers_bytes(16 << 10).buffer_bytes(4 << 10).notice(notice);
    let disk = MoodyDisk::new(Mood::Stopped);
    let builder = builder.when_full(WhenFull::DropNewest).on_event(move |event: &Event<'_>| {
        theirs.lock().expect("no panic").push(event.to_string());
    });
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    for number in 0..1000 {
        log.write_all(common::line(0, number, 120).as_bytes()).expect("accepted or dropped");
    }
    disk.set(Mood::Works);
    guard.flush(LONG).expect("the back thread lives");
    guard.close().expect("closed");
    let stats = log.stats();
    assert!(stats.dropped_lines > 0 && stats.told_lines == stats.dropped_lines, "{stats:?}");
    assert!(stats.hook_panics > 0);
    assert!(std::fs::read_to_string(&path).expect("text").contains(" lines dropped ("));
    assert!(
        told.lock().expect("no panic").iter().any(|told| told.contains("notice panicked")),
        "{told:?}"
    );
}

/// What it panics with panics again when it is dropped.
struct Worse;

impl Drop for Worse {
    fn drop(&mut self) {
        panic!("on purpose, in a drop");
    }
}

#[test]
fn an_event_hook_that_panics_is_counted() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Fails(28));
    let builder = LogWriter::builder(&path).on_event(|_| std::panic::panic_any(Worse));
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    log.write_all(b"one\n").expect("accepted");
    let error = guard.flush(Duration::from_millis(50)).expect_err("it fails");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    disk.set(Mood::Works);
    guard.flush(LONG).expect("flushed");
    guard.close().expect("closed");
    assert!(log.stats().hook_panics >= 1);
}

/// A disk of the caller that panics on demand.
#[derive(Clone, Default)]
struct PanickyDisk(Arc<AtomicBool>);

impl Disk for PanickyDisk {
    fn open(&self, directory: &OsDirectory, name: &str) -> Result<Box<dyn LogFile>> {
        Ok(Box::new(PanickyFile(OsDisk.open(directory, name)?, Arc::clone(&self.0))))
    }
}

#[derive(Debug)]
struct PanickyFile(Box<dyn LogFile>, Arc<AtomicBool>);

impl LogFile for PanickyFile {
    fn append(&self, bytes: &[u8]) -> Result<usize> {
        assert!(!self.1.load(Ordering::Relaxed), "on purpose, in a disk");
        self.0.append(bytes)
    }

    fn facts(&self) -> Result<AppendFacts> {
        self.0.facts()
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
}

impl Drop for PanickyFile {
    fn drop(&mut self) {
        assert!(!self.1.load(Ordering::Relaxed), "on purpose, again");
    }
}

#[test]
fn a_disk_that_panics_ends_the_log_and_nobody_waits_for_it() {
    let (_directory, path) = place();
    let disk = PanickyDisk::default();
    let builder =
        LogWriter::builder(&path).buffers_bytes(8 << 10).buffer_bytes(4 << 10).on_event(|_| {});
    let (log, guard) = builder.open_on(disk.clone()).expect("opened");
    (&log).write_all(b"one\n").expect("accepted");
    guard.flush(LONG).expect("flushed");
    disk.0.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut log = log.clone();
            scope.spawn(move || while log.write_all(&[b'x'; 1000]).is_ok() {});
        }
        scope.spawn(|| while guard.flush(LONG).is_ok() {});
    });
    let error = guard.close().expect_err("it panicked").to_string();
    assert!(error.contains("panicked: on purpose, in a disk"), "{error}");
    let stats = log.stats();
    assert_eq!(stats.lines, stats.written_lines + stats.unwritten_lines, "{stats:?}");
    assert!(stats.refused_lines >= 3 && log.trouble().is_some());
}

#[test]
fn no_flush_says_that_lines_are_written_that_a_disk_panicked_with() {
    let (_directory, path) = place();
    let disk = PanickyDisk::default();
    let builder = LogWriter::builder(&path).flush_every(Duration::from_millis(1)).on_event(|_| {});
    let (mut log, guard) = builder.open_on(disk.clone()).expect("opened");
    disk.0.store(true, Ordering::Relaxed);
    log.write_all(b"one\n").expect("accepted");
    while log.write_all(b"").is_ok() {
        std::thread::yield_now();
    }
    for _ in 0..2 {
        let error = log.flush_within(LONG).expect_err("it is not in the file").to_string();
        assert!(error.contains("panicked: on purpose, in a disk"), "{error}");
    }
    assert!(guard.close().is_err() && log.flush_within(LONG).is_err());
    assert_eq!(log.stats().unwritten_lines, log.stats().lines);
}

/// Logs while it is formatted, and then cannot be formatted.
struct Recursive<'a>(&'a LogWriter);

impl fmt::Display for Recursive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut log = self.0;
        assert!(writeln!(log, "inner {}", Bad).is_err());
        f.write_str("outer")
    }
}

struct Bad;

impl fmt::Display for Bad {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Err(fmt::Error)
    }
}

#[test]
fn a_value_that_cannot_be_formatted_is_an_error_within_another_too() {
    let (_directory, path) = place();
    let (mut log, guard) = LogWriter::builder(&path).open().expect("opened");
    let writer = log.clone();
    writeln!(log, "{}", Recursive(&writer)).expect("accepted");
    guard.close().expect("closed");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "outer\n");
}

/// A log whose janitor has an event as soon as it starts, for which the hook does this. Without
/// gzip the janitor has none.
fn with_janitor(
    path: &std::path::Path,
    hook: impl Fn() + Send + Sync + 'static,
) -> inkstone_appender::Builder {
    // The compressed form of this one is something else.
    for (ending, text) in [("", "a line\n"), (".gz", "something else")] {
        let mut rotated = path.as_os_str().to_owned();
        rotated.push(format!(".20261121T160537Z.0{ending}"));
        std::fs::write(rotated, text).expect("written");
    }
    let builder = LogWriter::builder(path).buffers_bytes(8 << 10).buffer_bytes(4 << 10);
    #[cfg(feature = "gzip")]
    let builder = builder.compress(inkstone_appender::Compression::Gzip);
    builder.drain_timeout(Duration::from_millis(50)).on_event(move |_| {
        if std::thread::current().name() == Some("log janitor") {
            hook();
        }
    })
}

fn taken<T>(from: &Mutex<Option<T>>) -> T {
    loop {
        if let Some(it) = from.lock().expect("no panic").take() {
            return it;
        }
        std::thread::yield_now();
    }
}

/// Waits for the end of the closing, which may never come.
fn closes(guard: inkstone_appender::Guard) -> std::io::Result<()> {
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(ended.send(guard.close())));
    has_ended.recv_timeout(LONG).expect("the closing ends")
}

/// It would wait for room that nobody frees, and the closing would wait for it.
#[test]
fn a_hook_in_the_janitors_thread_that_logs_holds_no_closing_up() {
    if cfg!(not(feature = "gzip")) {
        eprintln!("NOT RUN: a hook in the janitor's thread: that needs the feature gzip");
        return;
    }
    let (_directory, path) = place();
    let handle = Arc::new(Mutex::new(None::<LogWriter>));
    let theirs = Arc::clone(&handle);
    let builder = with_janitor(&path, move || {
        let _ = taken(&theirs).write_all(&[b'x'; 100_000]);
    });
    let disk = MoodyDisk::new(Mood::Fails(5));
    let (log, guard) = builder.open_on(disk).expect("opened");
    *handle.lock().expect("no panic") = Some(log.clone());
    while log.stats().waits == 0 && log.stats().dropped_lines == 0 {
        std::thread::yield_now();
    }
    assert!(closes(guard).is_err());
    assert_eq!((log.stats().dropped_lines, log.stats().waits), (1, 0), "as in the back thread");
}

/// No thread of the log can wait for its own end.
#[test]
fn a_hook_that_closes_the_log_gets_an_error_and_the_log_ends_by_itself() {
    for is_janitors in [true, false] {
        if is_janitors && cfg!(not(feature = "gzip")) {
            eprintln!("NOT RUN: a hook in the janitor's thread: that needs the feature gzip");
            continue;
        }
        let (_directory, path) = place();
        let guard = Arc::new(Mutex::new(None::<inkstone_appender::Guard>));
        let theirs = Arc::clone(&guard);
        let (told, is_told) = std::sync::mpsc::channel();
        let told = Mutex::new(told);
        let close = move || {
            let guard = theirs.lock().expect("no panic").take();
            if let Some(guard) = guard {
                let _ = told.lock().expect("no panic").send(guard.close());
            }
        };
        let disk = MoodyDisk::new(Mood::Works);
        let builder = if is_janitors {
            let place = Arc::clone(&guard);
            with_janitor(&path, move || {
                let it = taken(&place);
                *place.lock().expect("no panic") = Some(it);
                close();
            })
        } else {
            disk.set(Mood::Fails(28));
            LogWriter::builder(&path).on_event(move |_| close())
        };
        let (mut log, opened) =
            builder.survive(Survive::Kill).open_on(disk.clone()).expect("opened");
        log.write_all(b"one\n").expect("accepted");
        *guard.lock().expect("no panic") = Some(opened);
        if !is_janitors {
            while log.stats().write_errors == 0 {
                std::thread::yield_now();
            }
            // The event may have come before there was a guard.
            disk.set(Mood::Works);
            let _ = log.flush_within(LONG);
        }
        let error =
            is_told.recv_timeout(LONG).expect("told").expect_err("it cannot wait").to_string();
        assert!(error.contains("a hook cannot wait"), "{error}");
        while log.flush_within(LONG).is_err() || log.write_all(b"").is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "one\n");
        let stage = common::stage_of(std::path::Path::new("/dev/shm"), &path);
        let since = std::time::Instant::now();
        while stage.exists() {
            assert!(since.elapsed() < LONG, "the stage stays");
            std::thread::yield_now();
        }
    }
}

/// Not a test by itself: the process that is started with a stderr that nobody reads.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let disk = MoodyDisk::new(Mood::Fails(28));
    let (mut log, guard) = LogWriter::builder(path).open_on(disk.clone()).expect("opened");
    log.write_all(b"one\n").expect("accepted");
    while log.stats().write_errors < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    disk.set(Mood::Works);
    guard.flush(LONG).expect("flushed");
    guard.close().expect("closed");
}

#[test]
fn a_stderr_that_takes_nothing_does_not_end_the_log() {
    let (_directory, path) = place();
    let mut victim = Command::new(std::env::current_exe().expect("this program"));
    victim.args(["--exact", "victim", "--nocapture"]).env(VICTIM, &path);
    let mut victim = victim.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    drop(victim.stderr.take());
    assert!(victim.wait().expect("its end").success());
    assert_eq!(std::fs::read_to_string(&path).expect("text"), "one\n");
}
