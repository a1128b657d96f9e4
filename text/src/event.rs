//! The events of the log's threads, and where they go.
//!
//! *Owns*: the events and their words, the hook. *May not touch*: their causes.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use inkstone_io::{Error, NoSizeSignal};

use crate::notice::Dropped;

/// What an opening found of a killed process, and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The process that left the lines.
    pub process: u32,
    /// Bytes of lines that the opening appended.
    pub bytes: u64,
    /// Why some of them may be in the log twice.
    pub doubt: Option<String>,
}

impl Recovery {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, doubt: self.doubt.or(other.doubt), ..other }
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, process, doubt } = self;
        write!(f, "appended {bytes} bytes of log lines that process {process} left unwritten")?;
        doubt
            .as_ref()
            .map_or(Ok(()), |why| write!(f, "; some of them may be in the log twice: {why}"))
    }
}

/// Lines that a killed process left in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingLines {
    /// The file in memory that keeps them, the *stage*.
    pub stage: PathBuf,
    /// The log that they were for, by its path then.
    pub log: PathBuf,
    /// The process that left them.
    pub process: u32,
    /// How many line ends are in them. Some of the lines may be in the log already, if the process
    /// was just writing them.
    pub lines: u64,
    /// How many bytes they have.
    pub bytes: u64,
}

impl fmt::Display for WaitingLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, log, process, lines, bytes } = self;
        let (log, stage) = (log.display(), stage.display());
        write!(
            f,
            "{lines} lines ({bytes} bytes) that process {process} had not written to {log} wait in {stage}"
        )
    }
}

/// Something that happened in the log's own threads.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The file could not be opened or written. Lines are kept as the policy says, and the log
    /// retries soon, then five times a second. Sent once, and again if the cause changes.
    WriteFailed(&'a Error),
    /// Writing works again.
    Resumed {
        /// How long it had failed.
        after: Duration,
    },
    /// A sync failed: a power loss may lose lines written since the last sync. The log does not
    /// retry it.
    SyncFailed(&'a Error),
    /// A file was rotated.
    Rotated {
        /// Its new name.
        to: &'a str,
    },
    /// Rotating, compressing, removing, reserving or creating the link failed. Lines are written
    /// anyway. Sent once for each cause: again only if the cause changes, or comes back after a
    /// success.
    HousekeepingFailed(&'a Error),
    /// Lines that a killed process had not written were appended.
    Recovered(&'a Recovery),
    /// The file that keeps the buffers ([`crate::Survive::Kill`]) was removed, or the log is now in
    /// another directory than the one that the file was created for. `None`: a new file was
    /// created, with the waiting lines in it, or the old one is that of the new directory now.
    /// `Some`: this failed. Until it succeeds a kill would lose the lines in the buffers. The log
    /// retries every second.
    StageGone(Option<&'a Error>),
    /// Lines of a killed process wait in memory for a log of this path, whose directory was another
    /// one. They stay there until that log is opened again, or until [`crate::Builder::bring_back`]
    /// or [`crate::discard_lines`].
    LinesWait(&'a WaitingLines),
    /// Another writer has the log. The opening waits for its end, for
    /// [`crate::Builder::drain_timeout`] and two seconds.
    OtherWriter(&'a Error),
    /// The log's disk was away and came back without bytes that had been written: they had not
    /// reached the medium.
    Vanished {
        /// How many bytes of lines; also counted in [`crate::Stats::vanished_bytes`].
        bytes: u64,
    },
    /// The log was closed before all its lines could be written.
    Lost {
        /// Accepted lines that are not in the file; with `Survive::Kill` the next start appends
        /// them.
        unwritten_lines: u64,
        /// Lines that were dropped since the last notice in the file.
        dropped: Dropped,
    },
    /// A hook panicked, and the default was used instead. A panic of the event hook itself is only
    /// counted ([`crate::Stats::hook_panics`]).
    HookPanicked {
        /// Which hook: `notice`.
        hook: &'static str,
    },
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::WriteFailed(error) => write!(f, "log lines cannot be written: {error}"),
            Event::Resumed { after } => write!(f, "log lines are written again, after {after:.1?}"),
            Event::SyncFailed(error) => write!(f, "log lines may not be durable: {error}"),
            Event::Rotated { to } => write!(f, "log rotated to {to}"),
            Event::HousekeepingFailed(error) => {
                write!(f, "housekeeping of log files failed: {error}")
            }
            Event::Recovered(recovery) => write!(f, "{recovery}"),
            Event::Lost { unwritten_lines, dropped: Dropped { lines, bytes, .. } } => write!(
                f,
                "the log is closed: {unwritten_lines} lines were not written, {lines} lines ({bytes} bytes) were dropped \
                 without a notice in the file"
            ),
            Event::HookPanicked { hook } => write!(f, "the hook for {hook} panicked"),
            Event::StageGone(failed) => {
                f.write_str(
                    "the log's stage was removed, or the log is in another directory now; ",
                )?;
                match failed {
                    None => f.write_str("a new stage was created"),
                    Some(error) => write!(f, "a kill would lose lines: {error}"),
                }
            }
            Event::Vanished { bytes } => {
                write!(
                    f,
                    "the log's disk came back without {bytes} bytes of lines that had been written to it"
                )
            }
            Event::OtherWriter(error) => {
                write!(f, "waiting for another writer of the log to end: {error}")
            }
            Event::LinesWait(waiting) => write!(
                f,
                "{waiting}: its directory is another one; `inkstone tee FILE --bring-back STAGE` appends them to FILE"
            ),
        }
    }
}

/// How long the log waits for a write to stderr. It waits once, until that write has returned.
const MOMENT: Duration = Duration::from_millis(100);
/// The process whose write to stderr has not returned yet; 0: none. A forked child finds its
/// parent's number here, but does not have the thread that would clear it.
static WRITING: AtomicU32 = AtomicU32::new(0);
/// Events that were not written to stderr.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// A write into a full pipe that nobody reads does not return. So a thread of its own writes, and
/// meanwhile other events are only counted. It does not take the standard library's lock, which the
/// program needs too.
fn tell_stderr(event: &Event<'_>) {
    if WRITING.swap(std::process::id(), Ordering::AcqRel) == std::process::id() {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
    let before = match left_out {
        0 => String::new(),
        count => {
            format!("inkstone-appender: {count} messages before this one could not be written\n")
        }
    };
    let text = format!("{before}inkstone-appender: {event}\n");
    let (done, is_done) = channel::<()>();
    let write = move || {
        let _no_signal = NoSizeSignal::here();
        // stderr may be closed, or on a full disk.
        let out = io::stderr().as_fd().try_clone_to_owned().map(File::from);
        if out.and_then(|mut out| out.write_all(text.as_bytes())).is_err() {
            LEFT_OUT.fetch_add(left_out + 1, Ordering::Relaxed);
        }
        WRITING.store(0, Ordering::Release);
        drop(done);
    };
    if std::thread::Builder::new().name("inkstone-stderr".into()).spawn(write).is_ok() {
        // The process may end next, and the message should be on stderr by then.
        let _ = is_done.recv_timeout(MOMENT);
    } else {
        LEFT_OUT.fetch_add(left_out + 1, Ordering::Relaxed);
        WRITING.store(0, Ordering::Release);
    }
}

/// Why something fails now. An event is sent when the failure begins, when its cause changes, and
/// when it comes back after a success; not at each attempt.
#[derive(Debug, Default)]
pub(crate) struct Cause(Option<(ErrorKind, Option<i32>)>);

impl Cause {
    /// Whether this failure is to be reported. A success ends the cause, and a lacking feature of
    /// the file system is no cause.
    pub(crate) fn is_news<T>(&mut self, done: &inkstone_io::Result<T>) -> bool {
        let failure = done.as_ref().err().filter(|error| !error.is_unsupported());
        let now = failure.map(|error| (error.kind(), error.raw_os_error()));
        let is_news = now.is_some() && now != self.0;
        self.0 = now;
        is_news
    }
}

type Hook = dyn Fn(&Event<'_>) + Send + Sync;

/// Where events go: to the hook, or to stderr.
#[derive(Clone, Default)]
pub(crate) struct Events {
    hook: Option<Arc<Hook>>,
    /// Calls of hooks that panicked.
    panics: Arc<AtomicU64>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.hook.is_some() { "a hook" } else { "stderr" })
    }
}

impl Events {
    pub(crate) fn to(hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { hook: Some(Arc::new(hook)), panics: Arc::default() }
    }

    /// Calls the hook; without one, failures go to stderr.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Some(hook) = &self.hook {
            // A hook that panics must not end this thread; nor may the drop of what it panicked
            // with.
            if catch_unwind(AssertUnwindSafe(|| hook(event))).map_err(std::mem::forget).is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        // The result of closing says what is lost at the end.
        if !matches!(event, Event::Rotated { .. } | Event::Recovered(_) | Event::Lost { .. }) {
            tell_stderr(event);
        }
    }

    /// Reports lines that wait for another log.
    pub(crate) fn tell_waiting(&self, waiting: &[WaitingLines]) {
        waiting.iter().for_each(|waiting| self.tell(&Event::LinesWait(waiting)));
    }

    /// Reports a failure of housekeeping, if it is new.
    pub(crate) fn tell_failure(&self, cause: &mut Cause, done: &inkstone_io::Result<()>) {
        if cause.is_news(done)
            && let Err(error) = done
        {
            self.tell(&Event::HousekeepingFailed(error));
        }
    }

    /// Whether there is a hook; it gets every event.
    pub(crate) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// Counts and reports a panic of the caller's hook.
    pub(crate) fn panicked(&self, hook: &'static str) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.tell(&Event::HookPanicked { hook });
    }

    /// How often a hook panicked.
    pub(crate) fn panics(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.panics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::process::{Command, Stdio};

    const IN_CHILD: &str = "INKSTONE_FULL_STDERR";
    const LONG: Duration = Duration::from_secs(120);

    /// Runs in a process of its own. Its stderr is full until the parent starts to read it.
    #[test]
    fn child() {
        if std::env::var_os(IN_CHILD).is_none() {
            return;
        }
        let events = Events::default();
        for _ in 0..3 {
            events.tell(&Event::StageGone(None));
        }
        println!("\nwent on");
        io::stdin().read_exact(&mut [0]).expect("a byte");
        while WRITING.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        events.tell(&Event::Resumed { after: Duration::from_secs(7) });
        while WRITING.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_cause_is_news_once_and_again_when_it_is_another_or_comes_back() {
        let failed =
            |code| Err::<(), _>(Error::new("rename", "a.log", io::Error::from_raw_os_error(code)));
        let (full, denied, unsupported) = (28, 13, 95);
        let mut cause = Cause::default();
        for (done, is_news) in [
            (Ok(()), false),
            (failed(full), true),
            (failed(full), false),
            (failed(denied), true),
            (failed(denied), false),
            (Ok(()), false),
            (failed(denied), true),
            (failed(unsupported), false),
        ] {
            assert_eq!(cause.is_news(&done), is_news, "{done:?}");
        }
    }

    /// A child forked while a write of its parent had not returned.
    #[test]
    fn a_forked_child_tells_its_own() {
        let parents = std::process::id();
        let before = WRITING.swap(parents, Ordering::AcqRel);
        let code = inkstone_host::in_forked_child(|| {
            // Not to the parent's stderr: the test is that nothing is left out.
            Events::default().tell(&Event::StageGone(None));
            u8::from(LEFT_OUT.load(Ordering::Relaxed) == 0)
        });
        let _ = WRITING.compare_exchange(parents, before, Ordering::AcqRel, Ordering::Relaxed);
        assert_eq!(code.expect("a child"), 1);
    }

    #[test]
    fn a_stderr_that_is_full_holds_nobody_up_and_hears_how_many_were_left_out() {
        const O_NONBLOCK: i32 = 0o4000;
        let (mut reader, writer) = io::pipe().expect("a pipe");
        // A new open file, so that the child's writes wait.
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let mut filler =
            File::options().write(true).custom_flags(O_NONBLOCK).open(path).expect("opened");
        for piece in [&[b' '; 4096][..], b" "] {
            while filler.write_all(piece).is_ok() {}
        }
        drop(filler);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["event::tests::child", "--exact", "--nocapture"])
            .env(IN_CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(writer)
            .spawn()
            .expect("a child");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let (went_on, has_gone_on) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if line == "went on" {
                    let _ = went_on.send(());
                }
            }
        });
        if has_gone_on.recv_timeout(LONG).is_err() {
            child.kill().and_then(|()| child.wait()).expect("killed");
            panic!("it waits for its stderr");
        }
        let told = std::thread::spawn(move || {
            let mut told = String::new();
            reader.read_to_string(&mut told).map(|_| told)
        });
        child.stdin.take().expect("a pipe").write_all(b"x").expect("written");
        assert!(child.wait().expect("its end").success());
        let told = told.join().expect("a thread").expect("text");
        let told: Vec<&str> = told.trim().lines().collect();
        let [first, left_out, last] = told[..] else { panic!("{told:?}") };
        assert!(first.contains("the log's stage was removed"), "{told:?}");
        assert!(left_out.contains(": 2 messages before this one"), "{told:?}");
        assert!(last.contains("written again, after 7.0s"), "{told:?}");
    }
}
