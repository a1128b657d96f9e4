//! The caller's own code: hooks, disks and values that panic, and destructors that log. None of it
//! ends the process or makes other threads wait for ever.

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use crate::common::{Hooked, LONG, MS, Mood, MoodyDisk, place, quick, read, say, wait_until};
use inkstone_appender::{Builder, Guard, LogWriter, Survive};

struct LogsWhenDropped(LogWriter, &'static str);

impl Drop for LogsWhenDropped {
    fn drop(&mut self) {
        writeln!(self.0, "{} {}", self.1, std::hint::black_box(7)).expect("accepted");
    }
}

thread_local! {
    static KEPT: RefCell<Option<LogsWhenDropped>> = const { RefCell::new(None) };
}

#[test]
fn a_destructor_of_a_thread_local_logs_whatever_was_destroyed_before() {
    let (_directory, path) = place();
    let (log, guard) = LogWriter::builder(&path).open().expect("opened");
    // Destructors run in the order of creation, or in reverse order.
    for (word, is_first) in [("kept first", true), ("kept last", false)] {
        let mut log = log.clone();
        let thread = std::thread::spawn(move || {
            let kept = LogsWhenDropped(log.clone(), word);
            let mut write =
                || writeln!(log, "formatted {}", std::hint::black_box(7)).expect("accepted");
            if is_first {
                KEPT.set(Some(kept));
                write();
            } else {
                write();
                KEPT.set(Some(kept));
            }
        });
        thread.join().expect("no panic");
    }
    guard.close().expect("closed");
    let text = read(&path);
    assert!(text.contains("kept first 7\n") && text.contains("kept last 7\n"), "{text}");
}

#[test]
fn an_event_hook_that_panics_ends_nothing() {
    let (_directory, path) = place();
    let disk = MoodyDisk::new(Mood::Fails(28));
    let builder = LogWriter::builder(&path).on_event(|_| panic!("on purpose, in a hook"));
    let (log, guard) = builder.open_on(disk.clone()).expect("opened");
    say(&log, "one\n");
    let error = guard.flush(50 * MS).expect_err("it fails");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    disk.set(Mood::Works);
    guard.flush(LONG).expect("flushed");
    guard.close().expect("closed");
}

#[test]
fn a_disk_that_panics_ends_the_log_and_nobody_waits_for_it() {
    let (_directory, path) = place();
    let panics = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&panics);
    let disk = Hooked::appending(move |file, bytes| {
        assert!(!theirs.load(Ordering::Relaxed), "on purpose, in a disk");
        file.append(bytes)
    });
    let builder = quick(&path).0.buffers_bytes(8 << 10);
    let (log, guard) = builder.open_on(disk).expect("opened");
    say(&log, "one\n");
    guard.flush(LONG).expect("flushed");
    panics.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while (&log).write_all(&[b'x'; 1000]).is_ok() {});
        }
        scope.spawn(|| while guard.flush(LONG).is_ok() {});
    });
    // No flush says that lines are written that the disk panicked with.
    let errors = [log.flush_within(LONG), guard.close(), log.flush_within(LONG)];
    for error in errors.map(|ended| ended.expect_err("it panicked").to_string()) {
        assert!(error.contains("panicked: on purpose, in a disk"), "{error}");
    }
    let stats = log.stats();
    assert_eq!(stats.lines, stats.written_lines + stats.unwritten_lines, "{stats:?}");
    assert!(log.trouble().is_some());
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
    assert_eq!(read(&path), "outer\n");
}

/// A log whose janitor has an event as soon as it starts, for which the hook does this. Without
/// gzip the janitor has none.
fn with_janitor(path: &Path, hook: impl Fn() + Send + Sync + 'static) -> Builder {
    // Nothing can be written where the compressed form of this one is to be written.
    let name = "a.log.20261121T160537Z.0";
    std::fs::write(path.with_file_name(name), "a line\n").expect("written");
    std::fs::create_dir(path.with_file_name(format!("{name}.gz.part"))).expect("made");
    let builder = LogWriter::builder(path).buffers_bytes(8 << 10);
    #[cfg(feature = "gzip")]
    let builder = builder.compress(inkstone_appender::Compression::Gzip);
    builder.drain_timeout(50 * MS).on_event(move |_| {
        if std::thread::current().name() == Some("log janitor") {
            hook();
        }
    })
}

fn has_no_janitor() -> bool {
    if cfg!(not(feature = "gzip")) {
        eprintln!("NOT RUN: a hook in the janitor's thread: that needs the feature gzip");
    }
    cfg!(not(feature = "gzip"))
}

fn taken<T>(from: &Mutex<Option<T>>) -> T {
    let mut taken = None;
    wait_until("it", || {
        taken = from.lock().expect("no panic").take();
        taken.is_some()
    });
    taken.expect("it is there")
}

/// It would wait for room that nobody frees, and the closing would wait for it.
#[test]
fn a_hook_in_the_janitors_thread_that_logs_holds_no_closing_up() {
    if has_no_janitor() {
        return;
    }
    let (_directory, path) = place();
    let handle = Arc::new(Mutex::new(None::<LogWriter>));
    let theirs = Arc::clone(&handle);
    let builder = with_janitor(&path, move || {
        let _ = taken(&theirs).write_all(&[b'x'; 100_000]);
    });
    let (log, guard) = builder.open_on(MoodyDisk::new(Mood::Fails(5))).expect("opened");
    *handle.lock().expect("no panic") = Some(log.clone());
    wait_until("its line", || log.stats().waits + log.stats().dropped_lines > 0);
    // The closing may never end.
    let (ended, has_ended) = channel();
    std::thread::spawn(move || drop(ended.send(guard.close())));
    assert!(has_ended.recv_timeout(LONG).expect("the closing ends").is_err());
    let stats = log.stats();
    assert_eq!((stats.dropped_lines, stats.waits), (1, 0), "as in the output thread");
}

/// No thread of the log can wait for its own end.
#[test]
fn a_hook_that_closes_the_log_gets_an_error_and_the_log_ends_by_itself() {
    let ((_directory, path), memory) = (place(), crate::common::memory());
    let guard = Arc::new(Mutex::new(None::<Guard>));
    let theirs = Arc::clone(&guard);
    let (told, is_told) = channel();
    let disk = MoodyDisk::new(Mood::Fails(28));
    let builder = LogWriter::builder(&path).on_event(move |_| {
        if let Some(guard) = theirs.lock().expect("no panic").take() {
            let _ = told.send(guard.close());
        }
    });
    let builder = builder.survive(Survive::Kill).stage_directory(memory.path());
    let (log, opened) = builder.open_on(disk.clone()).expect("opened");
    let stage = crate::common::stage_in(memory.path());
    say(&log, "one\n");
    *guard.lock().expect("no panic") = Some(opened);
    wait_until("an attempt", || log.stats().write_errors > 0);
    disk.set(Mood::Works);
    let _ = log.flush_within(LONG);
    let closed = is_told.recv_timeout(LONG).expect("told");
    let error = closed.expect_err("it cannot wait").to_string();
    assert!(error.contains("a hook cannot wait"), "{error}");
    wait_until("the end", || log.flush_within(LONG).is_ok() && (&log).write_all(b"").is_err());
    assert_eq!(read(&path), "one\n");
    wait_until("the end of the stage", || !stage.exists());
}
