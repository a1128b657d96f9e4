//! The errors of streams: each says what was expected and what came.
//!
//! *Owns*: the errors and their texts. *May not touch*: files.

use std::fmt;
use std::path::PathBuf;

use inkstone::Lsn;

/// The result of every call of this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Unless the text says otherwise, nothing was changed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The log below failed. After [`inkstone::Error::Poisoned`] every call that writes returns
    /// that error, until the streams are opened again; after [`inkstone::Error::NoRoom`] the same
    /// call can succeed later.
    Log(inkstone::Error),
    /// There is no stream with this id: it was never created, or was removed.
    NoStream {
        /// The id that was asked for.
        stream: u64,
    },
    /// A stream with this id is there already.
    Exists {
        /// The id that was to be created.
        stream: u64,
    },
    /// The record would not get the sequence number that the caller expects.
    OtherNumber {
        /// The stream.
        stream: u64,
        /// The number that the next record gets.
        next: u64,
        /// The number that the caller expected.
        came: u64,
    },
    /// The stream begins behind the record, which was truncated or never there.
    Truncated {
        /// The stream.
        stream: u64,
        /// The number that was asked for.
        number: u64,
        /// The first number that is left.
        first: u64,
    },
    /// Records that a cursor had passed were truncated: from the end of the stream, by a restart,
    /// or with the stream, and another stream has its id now. The cursor continues at `next`, so
    /// numbers that it has returned may come again with other records.
    TruncatedAfter {
        /// The stream.
        stream: u64,
        /// The number at which the cursor stood.
        number: u64,
        /// The number at which it continues: the first one that was truncated.
        next: u64,
    },
    /// There is no such record yet, or it is not durable yet.
    NotYet {
        /// The stream.
        stream: u64,
        /// The number that was asked for.
        number: u64,
        /// The number of the next record.
        next: u64,
    },
    /// The note is larger than [`NOTE_BYTES_MAX`](crate::NOTE_BYTES_MAX).
    NoteTooLarge {
        /// The stream.
        stream: u64,
        /// The size of the note.
        bytes: usize,
    },
    /// The batch is larger than one record of the log may be.
    TooLarge {
        /// The size of the batch as it is stored.
        bytes: u64,
        /// The largest size.
        limit_bytes: u64,
    },
    /// The batch has nothing in it.
    Empty,
    /// A stream has used all its sequence numbers.
    UsedUp {
        /// The stream.
        stream: u64,
    },
    /// Records of the log are lost, since it was salvaged. It takes no writer: streams may lack
    /// appends, truncations and removals that nobody knows of. A
    /// [`StreamsReader`](crate::StreamsReader) reads what is left.
    Lost {
        /// The directory.
        path: PathBuf,
        /// The last record that is lost.
        lost_to: Lsn,
    },
    /// The record is lost: it was damaged, or the log was salvaged without it. A cursor goes on at
    /// `next`.
    LostRecord {
        /// The stream.
        stream: u64,
        /// The number of the record.
        number: u64,
        /// The next number that may be left: all records before it are lost, too.
        next: u64,
    },
    /// The thread that moves records has ended, by a panic of user code that it called (a listener,
    /// for example) or of its own. Records are as safe as before, but the log would grow: every
    /// change returns this until the streams are opened again.
    MoverEnded {
        /// The directory.
        path: PathBuf,
        /// What the panic said.
        why: String,
    },
    /// A newer program has written the streams.
    Newer {
        /// The directory.
        path: PathBuf,
        /// The record that shows it.
        lsn: Lsn,
        /// What this program does not know.
        what: String,
    },
    /// The log has a record that no version of this crate writes there: a bug, or damage that the
    /// log's checksums cannot detect.
    Contradiction {
        /// The directory.
        path: PathBuf,
        /// The record.
        lsn: Lsn,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    pub(crate) fn is_no_room(&self) -> bool {
        matches!(self, Self::Log(inkstone::Error::NoRoom { .. }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::NoStream { stream } => {
                write!(f, "there is no stream {stream}: create it first")
            }
            Self::Exists { stream } => {
                write!(f, "stream {stream} is there already: remove it first, or restart it")
            }
            Self::OtherNumber { stream, next, came } => write!(
                f,
                "stream {stream}: the next record gets number {next}, and the caller expects {came}"
            ),
            Self::Truncated { stream, number, first } => {
                write!(f, "stream {stream} has no record {number}: it begins at number {first}")
            }
            Self::TruncatedAfter { stream, number, next } => write!(
                f,
                "stream {stream}: records before {number} were truncated, from {next} on; reading \
                 goes on at {next}"
            ),
            Self::NotYet { stream, number, next } if number < next => write!(
                f,
                "stream {stream}: record {number} was appended and is not durable yet: wait for it"
            ),
            Self::NotYet { stream, number, next } => write!(
                f,
                "stream {stream} has no record {number}: the next one to be appended is {next}"
            ),
            Self::NoteTooLarge { stream, bytes } => write!(
                f,
                "stream {stream}: a note of {bytes} bytes is too large; the largest has {}",
                crate::NOTE_BYTES_MAX
            ),
            Self::TooLarge { bytes, limit_bytes } => write!(
                f,
                "the batch takes {bytes} bytes, and the largest may take {limit_bytes}: make it \
                 smaller, or open with a larger record_bytes_max"
            ),
            Self::Empty => write!(f, "the batch is empty: it needs at least one change"),
            Self::UsedUp { stream } => {
                write!(f, "stream {stream} has used all its sequence numbers: restart it")
            }
            Self::Lost { path, lost_to } => write!(
                f,
                "{}: records of the log up to LSN {lost_to} are lost, so it takes no writer: read \
                 what its streams still have (`inkstone cat --stream`), and begin a new log with it",
                path.display()
            ),
            Self::LostRecord { stream, number, next } => {
                let last = next.saturating_sub(1);
                if last > *number {
                    write!(f, "stream {stream}: records {number} to {last} are")?;
                } else {
                    write!(f, "stream {stream}: record {number} is")?;
                }
                write!(f, " lost, by damage or a salvage: go on at {next}")
            }
            Self::MoverEnded { path, why } => write!(
                f,
                "{}: the thread that moves records has ended: {why}; no record is in danger: close \
                 the streams and open them again",
                path.display()
            ),
            Self::Newer { path, lsn, what } => write!(
                f,
                "{}: record {lsn} has {what}, which this program does not know: use the newer \
                 program that wrote it",
                path.display()
            ),
            Self::Contradiction { path, lsn, why } => write!(
                f,
                "{}: record {lsn} of the log contradicts those before it: {why}; keep a copy of \
                 the directory and report this",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<inkstone::Error> for Error {
    fn from(error: inkstone::Error) -> Self {
        Self::Log(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_that_was_appended_is_not_durable_yet() {
        let stream = 7;
        for (error, text) in [
            (
                Error::NotYet { stream, number: 999, next: 5 },
                "stream 7 has no record 999: the next one to be appended is 5",
            ),
            (
                Error::NotYet { stream, number: 5, next: 5 },
                "stream 7 has no record 5: the next one to be appended is 5",
            ),
            (
                Error::NotYet { stream, number: 4, next: 5 },
                "stream 7: record 4 was appended and is not durable yet: wait for it",
            ),
            (
                Error::Truncated { stream, number: 0, first: 5 },
                "stream 7 has no record 0: it begins at number 5",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
