//! The errors of a raft log: each says what was expected and what came.
//!
//! *Owns*: the errors and their texts. *May not touch*: files.

use std::fmt;
use std::path::PathBuf;

use inkstone::Lsn;

use crate::words::{EntryId, Leader, Vote};

/// The result of every call of this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call of a raft log failed. Unless the text says otherwise, nothing was changed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The log below failed. After [`inkstone::Error::Poisoned`] every call returns that error,
    /// until the raft log is opened again; after [`inkstone::Error::NoRoom`] the same call can
    /// succeed later.
    Log(inkstone::Error),
    /// An entry does not have the index that follows the last one.
    Hole {
        /// The index that must come next.
        expected: u64,
        /// The index that came.
        came: u64,
    },
    /// An append or truncation touches an entry that is committed.
    IsCommitted {
        /// The index of the append, or the first that was to be truncated.
        index: u64,
        /// The last index that is known to be committed.
        committed: u64,
    },
    /// The entry was purged.
    IsPurged {
        /// The index that was asked for.
        index: u64,
        /// The first index that is left.
        first: u64,
    },
    /// There is no such entry yet.
    NotHere {
        /// The index that was asked for.
        index: u64,
        /// The index of the next entry.
        next: u64,
    },
    /// A purge goes beyond what is committed, and the caller did not say that a snapshot has it.
    NotCommitted {
        /// The last index that was to be purged.
        upto: u64,
        /// The last index that is known to be committed.
        committed: Option<u64>,
    },
    /// The id names another entry than the one that has its index here.
    OtherEntry {
        /// The entry here.
        here: EntryId,
        /// The id that came.
        came: EntryId,
    },
    /// A purge of a raft log that was never purged ends before the entry below its first one.
    HoleBehindPurge {
        /// The last index that was to be purged.
        upto: u64,
        /// The first index here.
        first: u64,
    },
    /// The vote may not follow the one that was saved ([`Vote::may_follow`]).
    VoteGoesBack {
        /// The vote that was saved.
        saved: Vote,
        /// The vote that came.
        came: Vote,
    },
    /// What is committed cannot become less.
    CommittedGoesBack {
        /// The index that was saved.
        saved: u64,
        /// The index that came.
        came: u64,
    },
    /// An entry is of an older leader than the one before it.
    LeaderGoesBack {
        /// The index of the entry.
        index: u64,
        /// The leader of the entry before it.
        before: Leader,
        /// The leader that came.
        came: Leader,
    },
    /// A leader's name is longer than 255 bytes.
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The index `u64::MAX` is not used: nothing could follow it.
    IndexesUsedUp,
    /// The directory holds the raft log of another raft group, or of several.
    OtherRaftGroup {
        /// The directory.
        path: PathBuf,
        /// The raft group that was asked for.
        expected: u64,
        /// A raft group of the log there.
        came: u64,
    },
    /// Records of the log are lost, since it was salvaged: a vote, a truncation, or entries that
    /// were confirmed. A node that came back with it could vote twice, and lose data of the
    /// cluster.
    Lost {
        /// The directory.
        path: PathBuf,
        /// The last record that is lost.
        lost_to: Lsn,
    },
    /// The streams below cannot be used: most often since a newer program has written them, or a
    /// record breaks their rules, though the log below is sound.
    Streams(inkstone_streams::Error),
    /// The raft log is closed.
    Closed,
    /// There is no raft group of this number in the log.
    NoGroup {
        /// The group that was asked for.
        group: u64,
    },
    /// What the log has under this number is no raft group, or breaks the rules.
    BadGroup {
        /// The directory.
        path: PathBuf,
        /// The group.
        group: u64,
        /// Which rule, with what was expected and what came.
        why: String,
    },
    /// A call of one of many groups broke a rule ([`Error::cause`]).
    InGroup {
        /// The group.
        group: u64,
        /// What it is.
        error: Box<Error>,
    },
}

impl Error {
    /// Whether the same call can succeed later, without opening the raft log again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Log(error) if error.is_retryable())
    }

    /// The error without the group in which it happened.
    pub fn cause(&self) -> &Self {
        match self {
            Self::InGroup { error, .. } => error.cause(),
            error => error,
        }
    }

    /// Names the group, unless the error has a place already, or is of all groups.
    pub(crate) fn in_group(self, group: u64) -> Self {
        match self {
            Self::Log(_)
            | Self::Lost { .. }
            | Self::Streams(_)
            | Self::NoGroup { .. }
            | Self::BadGroup { .. }
            | Self::InGroup { .. } => self,
            error => Self::InGroup { group, error: Box::new(error) },
        }
    }
}

impl From<inkstone::Error> for Error {
    fn from(error: inkstone::Error) -> Self {
        match error {
            inkstone::Error::Closed => Self::Closed,
            error => Self::Log(error),
        }
    }
}

impl From<inkstone_streams::Error> for Error {
    fn from(error: inkstone_streams::Error) -> Self {
        use inkstone_streams::Error as Streams;
        match error {
            Streams::Log(error) => error.into(),
            Streams::TooLarge { bytes, limit_bytes } => {
                Self::Log(inkstone::Error::TooLarge { bytes, limit_bytes })
            }
            Streams::NoStream { stream } => Self::NoGroup { group: stream },
            Streams::Truncated { number, first, .. } => Self::IsPurged { index: number, first },
            Streams::NotYet { number, next, .. } => Self::NotHere { index: number, next },
            Streams::Lost { path, lost_to, .. } => Self::Lost { path, lost_to },
            other => Self::Streams(other),
        }
    }
}

/// For callers whose functions return [`std::io::Error`]. The error itself is inside
/// ([`std::io::Error::get_ref`]). The kind is that of the log's error; `InvalidInput` for a call
/// that breaks the rules of raft, `InvalidData` for what a directory holds.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match error.cause() {
            Error::Log(log) => Self::from(log.clone()).kind(),
            Error::IsPurged { .. } | Error::NotHere { .. } | Error::NoGroup { .. } => {
                ErrorKind::NotFound
            }
            Error::OtherRaftGroup { .. } | Error::Lost { .. } | Error::BadGroup { .. } => {
                ErrorKind::InvalidData
            }
            Error::Streams(inkstone_streams::Error::Newer { .. }) => ErrorKind::Unsupported,
            Error::Streams(_) => ErrorKind::InvalidData,
            Error::Closed => ErrorKind::Other,
            _ => ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A caller of this crate cannot truncate the log below.
            Self::Log(inkstone::Error::NoRoom { needed_bytes, cause }) if cause.is_full() => {
                write!(
                    f,
                    "no room for {needed_bytes} bytes: {}; nothing was lost: try again when there \
                     is room, or after a purge",
                    cause.without_advice()
                )
            }
            Self::Log(error) => error.fmt(f),
            Self::Hole { expected, came } => {
                write!(
                    f,
                    "the next entry must have index {expected}, not {came}: a raft log has no holes"
                )
            }
            Self::IsCommitted { index, committed } => {
                write!(
                    f,
                    "index {index} cannot change: entries up to {committed} are committed, and \
                     committed entries never change"
                )
            }
            Self::IsPurged { index, first } => {
                write!(f, "index {index} was purged; the first entry left is {first}")
            }
            Self::NotHere { index, next } => {
                write!(f, "there is no entry {index}: the next one will be {next}")
            }
            Self::NotCommitted { upto, committed } => {
                write!(f, "cannot purge up to {upto}: ")?;
                match committed {
                    Some(last) => write!(f, "entries are committed only up to {last}")?,
                    None => write!(f, "nothing is known to be committed")?,
                }
                write!(f, "; if a snapshot has it, call purge_to_snapshot")
            }
            Self::OtherEntry { here, came } => {
                write!(f, "the raft log has {here}, not {came}")
            }
            Self::VoteGoesBack { saved, came } => {
                write!(f, "{came} goes back: {saved} is saved already")
            }
            Self::HoleBehindPurge { upto, first } => {
                write!(
                    f,
                    "cannot purge up to {upto}: entries begin at {first}, and this would leave a \
                     hole before them"
                )
            }
            Self::CommittedGoesBack { saved, came } => {
                write!(
                    f,
                    "the committed index cannot go back to {came}: entries up to {saved} are \
                     committed"
                )
            }
            Self::LeaderGoesBack { index, before, came } => {
                write!(
                    f,
                    "entry {index} is of {came}, but the entry before it is of {before}: leaders \
                     never go back"
                )
            }
            Self::NameTooLong { bytes } => {
                write!(f, "a leader's name has {bytes} bytes: the limit is 255")
            }
            Self::IndexesUsedUp => {
                write!(f, "index {} cannot be used: no entry could follow it", u64::MAX)
            }
            Self::OtherRaftGroup { path, expected, came } => {
                write!(
                    f,
                    "{} has raft group {came}, not {expected} alone: check the path and the option \
                     raft_group; `Groups` opens a log of many groups",
                    path.display()
                )
            }
            Self::Lost { path, lost_to } => {
                write!(
                    f,
                    "{}: records of the log up to LSN {lost_to} are lost, perhaps votes and \
                     confirmed entries, so the node must not come back with it: let a node of \
                     another name join the cluster with an empty directory",
                    path.display()
                )
            }
            Self::Streams(error) => error.fmt(f),
            Self::Closed => write!(f, "the raft log is closed: open it again to continue"),
            Self::NoGroup { group } => write!(f, "there is no raft group {group} in the log"),
            Self::BadGroup { path, group, why } => {
                write!(f, "{}: stream {group} is not as one of a raft group: {why}", path.display())
            }
            Self::InGroup { group, error } => write!(f, "raft group {group}: {error}"),
        }
    }
}

/// Without a `source`: the text has the cause, so a program that prints the causes too prints it
/// once.
impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_said_twice() {
        let cause =
            inkstone::IoError::new("pwrite", "/log/7", std::io::Error::from_raw_os_error(5));
        let error = Error::from(inkstone::Error::from(cause));
        assert!(
            std::error::Error::source(&error).is_none(),
            "a program that prints causes prints it once"
        );
        assert_eq!(error.to_string().matches("pwrite /log/7").count(), 1, "{error}");
    }

    #[test]
    fn a_full_disk_is_told_with_a_call_that_a_raft_log_has() {
        let cause =
            inkstone::IoError::new("pwrite", "/log/7", std::io::Error::from_raw_os_error(28));
        let told = Error::from(inkstone::Error::NoRoom { needed_bytes: 9, cause }).to_string();
        assert!(told.ends_with("try again when there is room, or after a purge"), "{told}");
    }
}
