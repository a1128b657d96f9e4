//! The events of the log's threads, and where they go.
//!
//! *Owns*: the events and their words, the hook. *May not touch*: their causes.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use inkstone_io::{Error, say};

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
    /// What was done to the stage, so that it has not all that was put there.
    pub damage: Option<&'static str>,
}

impl fmt::Display for WaitingLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, log, process, lines, bytes, damage } = self;
        let (log, stage) = (log.display(), stage.display());
        write!(
            f,
            "{lines} lines ({bytes} bytes) that process {process} had not written to {log} wait in \
             {stage}"
        )?;
        damage.map_or(Ok(()), |damage| write!(f, "; {damage}"))
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
    /// Rotating, compressing or removing failed, or there is no memory for all
    /// the buffers that were asked for. Lines are written
    /// anyway. Sent once for each cause: again only if the cause changes, or comes back after a
    /// success.
    HousekeepingFailed(&'a Error),
    /// Lines that a killed process had not written were appended.
    Recovered(&'a Recovery),
    /// The stage, the file that keeps the buffers ([`Survive::Kill`](crate::Survive::Kill)), was
    /// removed and is made again.
    StageRenewed,
    /// A kill would lose lines: there can be no stage here, what has its name cannot be taken, or
    /// there is no room to make it again. Where it was removed, the log tries again every second.
    StageFailed(&'a Error),
    /// The lines that a killed process left were changed or cut. Those that were not are in the
    /// log; the stage is set aside, under the path that the error names.
    Damaged(&'a Error),
    /// Lines of a killed process wait in memory for a log of this path: its directory was another
    /// one, or this start survives nothing. They stay there until that log is opened again with
    /// survival, or until [`take_lines`](crate::take_lines).
    LinesWait(&'a WaitingLines),
    /// Another writer has the log. The opening waits for its end, for
    /// [`Builder::drain_timeout`](crate::Builder::drain_timeout) and two seconds.
    OtherWriter(&'a Error),
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
            Event::StageRenewed => {
                f.write_str("the log's stage was removed; a new stage was created")
            }
            Event::StageFailed(error) => write!(f, "a kill would lose lines: {error}"),
            Event::Damaged(error) => {
                write!(f, "lines of a killed process cannot be read: {error}")
            }
            Event::OtherWriter(error) => {
                write!(f, "waiting for another writer of the log to end: {error}")
            }
            Event::LinesWait(waiting) => write!(
                f,
                "{waiting}, and this start does not append them; `inkstone tee --recover STAGE` \
                 prints them"
            ),
        }
    }
}

pub(crate) const PROGRAM: &str = "inkstone-appender";

/// Why something fails now. An event is sent when the failure begins, when its cause changes, and
/// when it comes back after a success; not at each attempt.
#[derive(Debug, Default)]
struct Cause(Option<(ErrorKind, Option<i32>)>);

impl Cause {
    /// Whether this failure is to be reported. A success ends the cause, and a lacking feature of
    /// the file system is no cause.
    fn is_news(&mut self, done: &inkstone_io::Result<()>) -> bool {
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
    /// Why which chore fails now.
    causes: Arc<Mutex<BTreeMap<&'static str, Cause>>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.hook.is_some() { "a hook" } else { "stderr" })
    }
}

impl Events {
    pub(crate) fn to(hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self { hook: Some(Arc::new(hook)), causes: Arc::default() }
    }

    /// Calls the hook; without one, failures go to stderr.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Some(hook) = &self.hook {
            // A hook that panics must not end this thread; nor may the drop of what it panicked
            // with.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(event))).map_err(std::mem::forget);
            return;
        }
        if !matches!(event, Event::Rotated { .. } | Event::Recovered(_)) {
            say(PROGRAM, event, Duration::ZERO);
        }
    }

    /// Reports a failure of some housekeeping, if it is new.
    pub(crate) fn tell_failure(&self, chore: &'static str, done: &inkstone_io::Result<()>) {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = causes.entry(chore).or_default().is_news(done);
        drop(causes);
        if let (true, Err(error)) = (is_news, done) {
            self.tell(&Event::HousekeepingFailed(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

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
}
