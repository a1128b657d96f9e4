//! Whose records a log has: those of streams, and so of raft logs, have rules that one more record,
//! or one less, breaks.
//!
//! *Owns*: which kinds there are, and which command shows each. *May not touch*: what their records
//! say.

use std::path::Path;

use inkstone::{Options, Reader};

/// Whose records a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogKind {
    /// A program's own, as far as can be seen: it may be one that cannot be read.
    Plain,
    /// A raft log is one: each raft group is a stream.
    Streams,
}

impl LogKind {
    /// That of the log in a directory; of one that cannot be read it is not known.
    pub(super) fn of(directory: &Path) -> Self {
        let Ok(reader) = Reader::open(directory, &Options::new()) else { return Self::Plain };
        if inkstone_streams::has_streams(&reader) { Self::Streams } else { Self::Plain }
    }

    /// `None` for a plain one.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Streams => Some("log with streams"),
        }
    }

    /// What it is, and the command that shows more of it; `None` for a plain one.
    pub(super) fn hint(self, directory: &Path) -> Option<String> {
        let (name, path) = (self.name()?, directory.display());
        Some(format!(
            "a {name}: `inkstone streams {path}` shows what it holds; of a raft log, `inkstone \
             raft {path}` shows more"
        ))
    }

    /// # Errors
    /// It is not a plain log: `cannot` says what would break it, and what to do.
    pub(super) fn must_be_plain(self, directory: &Path, cannot: &str) -> anyhow::Result<()> {
        match self.name() {
            Some(name) => anyhow::bail!("{} is a {name}: {cannot}", directory.display()),
            None => Ok(()),
        }
    }
}
