//! What a log is for, as its headers say. The records of all logs but plain ones have rules that
//! one more record, or one less, breaks.
//!
//! *Owns*: what the command says of each kind, and which command shows it. *May not touch*: what
//! the records say.

use std::path::Path;

use inkstone::{LogKind, kind_of};

/// The kind of the log in a directory; a log without a header that can be read counts as plain.
pub(super) fn kind_in(directory: &Path) -> LogKind {
    kind_of(directory).ok().flatten().unwrap_or(LogKind::PLAIN)
}

/// `None` for a plain log.
pub(super) fn name(kind: LogKind) -> Option<String> {
    match kind {
        LogKind::PLAIN => None,
        LogKind::STREAMS => Some("log with streams".into()),
        LogKind::RAFT => Some("raft log".into()),
        LogKind::SLATEDB => Some("log of a SlateDB database".into()),
        other => Some(format!("log of the kind {other}")),
    }
}

/// What it is, and the command that shows more of it, if there is one; `None` for a plain one.
pub(super) fn hint(kind: LogKind, directory: &Path) -> Option<String> {
    let (name, path) = (name(kind)?, directory.display());
    Some(match kind {
        LogKind::STREAMS => format!("a {name}: `inkstone streams {path}` shows what it holds"),
        LogKind::RAFT => format!("a {name}: `inkstone raft {path}` shows what it holds"),
        _ => format!("a {name}"),
    })
}

/// The error of a call for which the log must be plain.
pub(super) fn not_plain(found: LogKind, directory: &Path, cannot: &str) -> anyhow::Error {
    let name = name(found).unwrap_or_else(|| "plain log".into());
    anyhow::anyhow!("{} is a {name}: {cannot}", directory.display())
}
