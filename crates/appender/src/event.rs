//! What the back thread has to tell, and to whom.
//!
//! *Owns*: the events and the hook. *May not touch*: what caused them.

use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inkstone_io::Error;

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
    /// Rotating, compressing, removing or reserving failed. Lines are written all the same.
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
            Event::HousekeepingFailed(error) => write!(f, "keeping log files in order: {error}"),
            Event::Recovered(recovery) => write!(f, "{recovery}"),
            Event::Lost { unwritten_lines, dropped: Dropped { lines, bytes, .. } } => write!(
                f,
                "the log is closed: {unwritten_lines} lines were not written, {lines} lines ({bytes} bytes) were dropped \
                 and the file does not say so"
            ),
            Event::HookPanicked { hook } => write!(f, "the hook for {hook} panicked"),
            Event::StageGone(None) => f.write_str(
                "the log's stage was removed by somebody, or its directory is another one; it is made anew",
            ),
            Event::StageGone(Some(error)) => {
                write!(
                    f,
                    "the log's stage was removed by somebody, or its directory is another one; a kill would lose lines: {error}"
                )
            }
            Event::StageAside(error) => write!(f, "lines of another log were left alone: {error}"),
        }
    }
}

type Hook = dyn Fn(&Event<'_>) + Send + Sync;

/// Who is told.
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
            // It may be closed, or on a full disk.
            let _ = writeln!(std::io::stderr(), "inkstone-appender: {event}");
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
