//! What the back thread has to tell, and to whom.
//!
//! *Owns*: the events and the hook. *May not touch*: what caused them.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use inkstone_io::{Error, NoSizeSignal};

use crate::notice::Dropped;
use crate::recover::Recovery;

/// Something that happened behind the writers' backs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The file could not be opened or written. Lines are kept within the policy, and it is tried again soon, then five times a second;
    /// told once, and again when the cause is another.
    WriteFailed(&'a Error),
    /// Writing works again.
    Resumed {
        /// How long it had not.
        after: Duration,
    },
    /// A sync failed: what was written since the last one may be lost by a power loss. It is not tried again.
    SyncFailed(&'a Error),
    /// A file was rotated.
    Rotated {
        /// The name it has now.
        to: &'a str,
    },
    /// Rotating, compressing, removing, reserving or making the link failed. Lines are written all the same. The event is sent once for
    /// each cause: again only when the cause changes, or comes back after a success.
    HousekeepingFailed(&'a Error),
    /// What a killed process had not written was appended.
    Recovered(&'a Recovery),
    /// Somebody removed the file that keeps the buffers ([`crate::Survive::Kill`]), or the log goes on in another directory than the
    /// one that it was made for. It was made anew, with what waits in it; or it
    /// was not, for this reason: a kill would lose what is in the buffers, and another writer may have the log too. That is
    /// tried again every second.
    StageGone(Option<&'a Error>),
    /// A killed process left lines of another log, whose directory had the numbers of this one's: they are kept where this says, and
    /// written nowhere.
    StageAside(&'a Error),
    /// Something of somebody else's has the name of the directory for this user's stages ([`crate::Builder::stage_directory`]): it has
    /// another name.
    StageElsewhere(&'a Error),
    /// The log was closed, and could not be written to its end.
    Lost {
        /// Lines that were accepted and are not in the file; with `Survive::Kill` the next start appends them.
        unwritten_lines: u64,
        /// Lines that were dropped since the last notice in the file.
        dropped: Dropped,
    },
    /// A hook panicked, and the usual thing was done instead. One for events that panics is counted only
    /// ([`crate::Stats::hook_panics`]).
    HookPanicked {
        /// Which: `notice`.
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
            Event::HousekeepingFailed(error) => write!(f, "housekeeping of log files failed: {error}"),
            Event::Recovered(recovery) => write!(f, "{recovery}"),
            Event::Lost { unwritten_lines, dropped: Dropped { lines, bytes, .. } } => write!(
                f,
                "the log is closed: {unwritten_lines} lines were not written, {lines} lines ({bytes} bytes) were dropped \
                 without a notice in the file"
            ),
            Event::HookPanicked { hook } => write!(f, "the hook for {hook} panicked"),
            Event::StageGone(None) => f.write_str(
                "the log's stage was removed, or the log is in another directory now; a new stage was created",
            ),
            Event::StageGone(Some(error)) => {
                write!(
                    f,
                    "the log's stage was removed, or the log is in another directory now; a kill would lose lines: {error}"
                )
            }
            Event::StageElsewhere(error) => write!(f, "the log's stage is in another directory than usual: {error}"),
            Event::StageAside(error) => write!(f, "lines of another log were kept aside: {error}"),
        }
    }
}

/// A write to stderr is waited for so long: once, until it has returned.
const MOMENT: Duration = Duration::from_millis(100);
/// The process of which a write to stderr has not returned yet; 0: none. A forked child has the one of its parent there, and not the
/// thread that would take it back.
static WRITING: AtomicU32 = AtomicU32::new(0);
/// Events that stderr did not hear of.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// A write into a pipe that is full, since nobody reads it, does not return: so a thread of its own does it, and while it
/// does, others are counted only. Without a lock of the standard library's, which the program wants too.
fn tell_stderr(event: &Event<'_>) {
    if WRITING.swap(std::process::id(), Ordering::AcqRel) == std::process::id() {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
    let before = match left_out {
        0 => String::new(),
        count => format!("inkstone-appender: {count} messages before this one could not be written\n"),
    };
    let text = format!("{before}inkstone-appender: {event}\n");
    let (done, is_done) = channel::<()>();
    let write = move || {
        let _no_signal = NoSizeSignal::here();
        // It may be closed, or on a full disk.
        let out = io::stderr().as_fd().try_clone_to_owned().map(File::from);
        if out.and_then(|mut out| out.write_all(text.as_bytes())).is_err() {
            LEFT_OUT.fetch_add(left_out + 1, Ordering::Relaxed);
        }
        WRITING.store(0, Ordering::Release);
        drop(done);
    };
    if std::thread::Builder::new().name("inkstone-stderr".into()).spawn(write).is_ok() {
        // The message should be on stderr before the process ends, which it may do next.
        let _ = is_done.recv_timeout(MOMENT);
    } else {
        LEFT_OUT.fetch_add(left_out + 1, Ordering::Relaxed);
        WRITING.store(0, Ordering::Release);
    }
}

/// Why something fails now. An event is sent when the failure begins, when its cause changes, and when it comes back after a success; not
/// at each attempt.
#[derive(Debug, Default)]
pub(crate) struct Cause(Option<(ErrorKind, Option<i32>)>);

impl Cause {
    /// Whether this is to be told. What could be done ends the cause, and what a file system does not have is none.
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

    /// Tells the hook; without one, what went wrong goes to stderr.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Some(hook) = &self.hook {
            // A hook that panics must not end the thread that writes; nor what it panics with, when it is dropped.
            if catch_unwind(AssertUnwindSafe(|| hook(event))).map_err(std::mem::forget).is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        // What is lost at the end is the closing's answer.
        if !matches!(event, Event::Rotated { .. } | Event::Recovered(_) | Event::Lost { .. }) {
            tell_stderr(event);
        }
    }

    /// Tells what failed in keeping files in order, if that is news.
    pub(crate) fn tell_failure(&self, cause: &mut Cause, done: &inkstone_io::Result<()>) {
        if cause.is_news(done)
            && let Err(error) = done
        {
            self.tell(&Event::HousekeepingFailed(error));
        }
    }

    /// There is a hook, which hears of everything.
    pub(crate) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// A hook of the caller's panicked.
    pub(crate) fn panicked(&self, hook: &'static str) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.tell(&Event::HookPanicked { hook });
    }

    /// How often one panicked.
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

    /// Runs in a process of its own. Its stderr is full until the parent says that it reads it.
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
        let failed = |code| Err::<(), _>(Error::new("rename", "a.log", io::Error::from_raw_os_error(code)));
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

    /// Forked while a write of its parent's had not returned.
    #[test]
    fn a_forked_child_tells_its_own() {
        let parents = std::process::id();
        let before = WRITING.swap(parents, Ordering::AcqRel);
        let code = inkstone_io::host::in_forked_child(|| {
            // Not into the parent's stderr: what counts is that nothing is left out.
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
        // Opened anew, so that the child's writes wait.
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let mut filler = File::options().write(true).custom_flags(O_NONBLOCK).open(path).expect("opened");
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
