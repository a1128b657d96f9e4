//! What the back thread has to tell, and to whom.
//!
//! *Owns*: the events and the hook. *May not touch*: what caused them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use inkstone_io::Error;

use crate::Recovery;

/// Something that happened behind the writers' backs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The file could not be opened or written. Lines are kept within the policy, and it is tried again five times a second;
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
    /// Somebody removed the file that keeps the buffers ([`crate::Survive::Kill`]). It was made anew, with what waits in it; or it
    /// was not, for this reason: a kill would lose what is in the buffers, and another writer may have the log too. That is
    /// tried again every second.
    StageGone(Option<&'a Error>),
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
            Event::StageGone(None) => {
                f.write_str("the log's stage was removed by somebody, and is made anew")
            }
            Event::StageGone(Some(error)) => {
                write!(f, "the log's stage was removed by somebody, a kill would lose lines: {error}")
            }
        }
    }
}

type Hook = dyn Fn(&Event<'_>) + Send + Sync;

/// Who is told.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Arc<Hook>>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a hook" } else { "stderr" })
    }
}

impl Events {
    pub(crate) fn to(hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Tells the hook; without one, what went wrong goes to stderr.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        match &self.0 {
            // A hook that panics must not end the thread that writes.
            Some(hook) => drop(catch_unwind(AssertUnwindSafe(|| hook(event)))),
            None => match event {
                Event::Rotated { .. } | Event::Recovered(_) => {}
                event => eprintln!("inkstone-appender: {event}"),
            },
        }
    }
}
