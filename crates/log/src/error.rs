//! The errors of a log: each says what happened, where, and what to do.
//!
//! *Owns*: the errors and their texts. *May not touch*: files.
//!
//! Every error is `Clone`: every waiter of a group gets the failure of its sync.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use inkstone_format::limits::FORMAT_VERSION;
use inkstone_format::{LogKind, Lsn, Reason, SegmentNumber};

/// The result of every call of this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a log failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call: the error says which call, on which path and at which
    /// offset.
    Io(inkstone_io::Error),
    /// Another writer has the log open.
    Locked {
        /// The log's directory.
        path: PathBuf,
        /// The holder of the lock, as far as it is known: `process 1234`.
        holder: String,
    },
    /// There is no log in the directory, and the call does not create one.
    NoLog {
        /// The directory.
        path: PathBuf,
        /// The highest directory above it that is missing, where a call would have created the log
        /// but may not create that one
        /// ([`Options::create_parents`](crate::Options::create_parents)).
        missing: Option<PathBuf>,
    },
    /// The directory holds an unfinished copy ([`inspect::copy`](crate::inspect::copy),
    /// [`inspect::salvage`](crate::inspect::salvage)), which is not a log yet. Copy again (it
    /// starts over), or remove the directory.
    Incomplete {
        /// The directory.
        path: PathBuf,
    },
    /// The log is of another kind than the one that was to be opened
    /// ([`Options::kind`](crate::Options::kind)). No file was changed.
    OtherKind {
        /// The log's directory.
        path: PathBuf,
        /// What the log is for.
        found: LogKind,
        /// What it was to be for.
        wanted: LogKind,
    },
    /// The caller stopped the operation before it was done.
    Stopped,
    /// Bytes that were promised to be durable are damaged or missing. No file was changed.
    Corrupt(Arc<Corruption>),
    /// Another program wrote this log, in a version of the format that this one does not know. That
    /// is not damage, and no file was changed.
    UnknownVersion {
        /// The first segment of that version.
        path: PathBuf,
        /// The version in its header.
        version: u32,
        /// The flags in its header. This program knows none.
        flags: u32,
    },
    /// A write or sync failed earlier: see [`Poison`].
    Poisoned(Poison),
    /// The disk has no room for another segment, or for a control group where an overwrite needs
    /// room. Nothing was lost; try again when there is room, or after `truncate_before`.
    NoRoom {
        /// The bytes that are needed.
        needed_bytes: u64,
        /// The answer of the file system.
        cause: inkstone_io::Error,
    },
    /// The record, or the batch as a whole, is larger than the limit of the log.
    TooLarge {
        /// Bytes of the record or batch.
        bytes: u64,
        /// The limit ([`Options::record_bytes_max`](crate::Options::record_bytes_max)).
        limit_bytes: u64,
    },
    /// `try_append`: every buffer is full, or the segment is changing. Try again later, or use
    /// `append`, which waits.
    Busy,
    /// `truncate_before` has truncated the record.
    TruncatedBefore {
        /// The LSN that was asked for.
        lsn: Lsn,
        /// The first record that is left.
        first: Lsn,
    },
    /// There is no durable record with this LSN yet.
    NotYet {
        /// The LSN that was asked for.
        lsn: Lsn,
        /// The last durable record.
        durable: Lsn,
    },
    /// `truncate_after` has truncated records before this reader's position. Its next call
    /// continues with the record after `last`.
    TruncatedAfter {
        /// The next LSN that the reader would have shown.
        lsn: Lsn,
        /// The last LSN that was left.
        last: Lsn,
    },
    /// These records are lost: the log comes from a salvage
    /// ([`inspect::salvage`](crate::inspect::salvage)), which gave every record that could be read
    /// its own LSN. A reader's next call continues with the record after `last`.
    Lost {
        /// The first record that is lost and not truncated.
        first: Lsn,
        /// The last of them.
        last: Lsn,
    },
    /// The options contradict each other, or an argument makes no sense. Holds the reason, as a
    /// sentence.
    Invalid(String),
    /// The log is closed.
    Closed,
    /// This process was forked after the log was opened. The log belongs to the parent process; the
    /// call wrote nothing. Open the log again in this process once the parent has closed it or has
    /// died.
    Forked {
        /// The log's directory, or the file of it that was to be changed.
        path: PathBuf,
    },
    /// There are no LSNs or segment numbers left. No machine lasts that long.
    UsedUp,
}

/// The log is poisoned after a failed write or sync. Records after the watermark may or may not be
/// on the medium, and a second sync could report success although they are lost. Records up to the
/// watermark stay readable. Open the log again: recovery finds out what the medium holds.
#[derive(Debug, Clone)]
pub struct Poison {
    inner: Arc<PoisonInner>,
}

#[derive(Debug)]
struct PoisonInner {
    cause: PoisonCause,
    durable: Lsn,
}

#[derive(Debug, Clone)]
enum PoisonCause {
    Error(Error),
    Panic,
}

impl Poison {
    pub(crate) fn new(cause: Error, durable: Lsn) -> Self {
        Self { inner: Arc::new(PoisonInner { cause: PoisonCause::Error(cause), durable }) }
    }

    /// A thread panicked while it was changing the log's state.
    pub(crate) fn panic(durable: Lsn) -> Self {
        Self { inner: Arc::new(PoisonInner { cause: PoisonCause::Panic, durable }) }
    }

    /// The first failure; `None` when a thread panicked inside the log.
    pub fn cause(&self) -> Option<&Error> {
        match &self.inner.cause {
            PoisonCause::Error(error) => Some(error),
            PoisonCause::Panic => None,
        }
    }

    /// The last LSN that was durable.
    pub fn durable(&self) -> Lsn {
        self.inner.durable
    }

    fn is_for_room(&self) -> bool {
        self.cause().is_some_and(Error::is_for_room)
    }
}

impl Poison {
    fn what(&self) -> String {
        let cause = match &self.inner.cause {
            PoisonCause::Error(error) => error.what(),
            PoisonCause::Panic => "a thread panicked inside it".to_owned(),
        };
        match self.inner.durable {
            Lsn::ZERO => format!("the log is poisoned: {cause} (no record was durable before)"),
            lsn => format!("the log is poisoned: {cause} (records up to LSN {lsn} are durable)"),
        }
    }

    /// What the cause asks for comes first: a log that is opened again meets it again.
    fn cure(&self) -> String {
        let then = "open the log again to continue";
        match self.cause().map(|cause| (cause, cause.cure())) {
            // On a full btrfs even an overwrite needs room.
            Some((cause, _)) if cause.is_for_room() => format!("when there is room, {then}"),
            Some((Error::Io(_), Some(first))) => format!("{first}; then {then}"),
            _ => then.to_owned(),
        }
    }
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.cure())
    }
}

/// Where a log is damaged, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The file, or the directory if a file is missing.
    pub path: PathBuf,
    /// The segment.
    pub segment: Option<SegmentNumber>,
    /// The byte of the file at which reading failed.
    pub offset: u64,
    /// The LSN that was expected there.
    pub lsn: Option<Lsn>,
    /// What is wrong.
    pub reason: Reason,
    /// The row of the tables in docs/format.md that fits.
    pub row: &'static str,
    /// What was expected and what was found, a line each.
    pub details: Vec<String>,
    /// What to do about it.
    pub cure: Cure,
}

/// The one thing to do about a [`Corruption`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cure {
    /// Save what can be read ([`inspect::salvage`](crate::inspect::salvage), `inkstone salvage`).
    Salvage,
    /// Use a backup: no record was found in what is left of the log. (Where nobody has searched
    /// all of it, the cure is [`Cure::Salvage`].)
    Backup,
    /// Move the files of another log away. Nothing is damaged by them.
    MoveAway,
    /// Open the log again: another one has taken its place below a reader.
    OpenAgain,
}

impl Cure {
    const fn words(self) -> &'static str {
        match self {
            Self::Salvage => "`inkstone salvage` saves what can be read",
            Self::Backup => {
                "no record was found in what is left of the log: keep the files and use a backup; \
                 only if the log was new and never held a record, remove its .ink files and open it \
                 again"
            }
            Self::MoveAway => {
                "nothing is damaged by that: move the files that do not belong here to another \
                 directory, and open the log again"
            }
            Self::OpenAgain => "open the log again",
        }
    }
}

impl Corruption {
    /// Damage to a segment, of which no more is known.
    pub(crate) fn of(
        path: PathBuf,
        segment: SegmentNumber,
        reason: Reason,
        row: &'static str,
    ) -> Self {
        Self {
            path,
            segment: Some(segment),
            offset: 0,
            lsn: None,
            reason,
            row,
            details: Vec::new(),
            cure: match reason {
                Reason::ForeignLog => Cure::MoveAway,
                _ => Cure::Salvage,
            },
        }
    }

    fn what(&self) -> String {
        let mut what = format!("{} is corrupt at byte {}", self.path.display(), self.offset);
        if let Some(lsn) = self.lsn {
            what += &format!(", where LSN {lsn} should be");
        }
        what += &format!(": {}", self.reason);
        for line in &self.details {
            what += &format!("; {line}");
        }
        what
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.cure.words())
    }
}

impl Error {
    /// The same damage, where no record was found in what is left.
    pub(crate) fn without_records(self) -> Self {
        match self {
            Self::Corrupt(corruption) => {
                Corruption { cure: Cure::Backup, ..(*corruption).clone() }.into()
            }
            other => other,
        }
    }

    /// What an append that fails leaves in a place for its LSN is no record's.
    pub(crate) fn no_record_zero() -> Self {
        Self::Invalid("no record has LSN 0: the first is LSN 1, and 0 stands for none".into())
    }

    /// Whether the same call can succeed later, without opening the log again: when there is room,
    /// say, or when there are descriptors again (`EMFILE`, `ENFILE`).
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoRoom { .. } | Self::Busy | Self::NotYet { .. } | Self::Locked { .. } => true,
            _ => self.is_out_of_descriptors(),
        }
    }

    /// Whether there was no descriptor left for another open file.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_out_of_descriptors())
    }

    /// Whether the disk or a quota was full, also as the cause of a poison.
    pub(crate) fn is_for_room(&self) -> bool {
        match self {
            Self::Io(error) => is_full(error),
            Self::NoRoom { .. } => true,
            Self::Poisoned(poison) => poison.is_for_room(),
            _ => false,
        }
    }

    /// Whether a call may be missing here, also as the cause of a poison
    /// ([`inkstone_io::is_not_here`]).
    pub(crate) fn is_not_here(&self) -> bool {
        match self {
            Self::Io(error) => error.is_not_here(),
            Self::Poisoned(poison) => poison.cause().is_some_and(Self::is_not_here),
            _ => false,
        }
    }

    /// What a caller can do, as a kind of the standard library's errors.
    fn io_kind(&self) -> ErrorKind {
        match self {
            Self::Io(error) => error.kind(),
            Self::NoLog { .. } | Self::TruncatedBefore { .. } | Self::TruncatedAfter { .. } => {
                ErrorKind::NotFound
            }
            Self::Busy | Self::NotYet { .. } => ErrorKind::WouldBlock,
            Self::Locked { .. } => ErrorKind::ResourceBusy,
            Self::NoRoom { .. } => ErrorKind::StorageFull,
            Self::Corrupt(_) | Self::Incomplete { .. } | Self::Lost { .. } => {
                ErrorKind::InvalidData
            }
            Self::Invalid(_) | Self::TooLarge { .. } | Self::OtherKind { .. } => {
                ErrorKind::InvalidInput
            }
            Self::UnknownVersion { .. } => ErrorKind::Unsupported,
            Self::Forked { .. } => ErrorKind::PermissionDenied,
            // Never `Interrupted`, which callers repeat; and no kind of the cause: a poisoned log
            // does not recover when there is room again.
            Self::Poisoned(_) | Self::Stopped | Self::Closed | Self::UsedUp => ErrorKind::Other,
        }
    }

    /// The damage, if the error is [`Error::Corrupt`].
    pub fn corruption(&self) -> Option<&Corruption> {
        match self {
            Self::Corrupt(corruption) => Some(corruption),
            _ => None,
        }
    }
}

/// Whether the disk or a quota is full, or the process may not write files of this size (`ulimit
/// -f`).
pub(crate) fn is_full(error: &inkstone_io::Error) -> bool {
    error.is_full() || error.kind() == ErrorKind::FileTooLarge
}

impl From<inkstone_io::Error> for Error {
    fn from(error: inkstone_io::Error) -> Self {
        if error.is_forked() {
            Self::Forked { path: error.path().to_path_buf() }
        } else {
            Self::Io(error)
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(Arc::new(corruption))
    }
}

/// For callers whose functions return [`std::io::Error`]. The error itself is inside
/// ([`std::io::Error::get_ref`]), and its text is the same. The kind says what a caller can do:
///
/// | kind | error |
/// |---|---|
/// | that of the operating system's answer | [`Error::Io`] |
/// | `NotFound` | [`Error::NoLog`], [`Error::TruncatedBefore`], [`Error::TruncatedAfter`] |
/// | `WouldBlock` | [`Error::Busy`], [`Error::NotYet`]: the same call can succeed later |
/// | `ResourceBusy` | [`Error::Locked`] |
/// | `StorageFull` | [`Error::NoRoom`] |
/// | `InvalidData` | [`Error::Corrupt`], [`Error::Incomplete`], [`Error::Lost`] |
/// | `InvalidInput` | [`Error::Invalid`], [`Error::TooLarge`], [`Error::OtherKind`] |
/// | `Unsupported` | [`Error::UnknownVersion`] |
/// | `PermissionDenied` | [`Error::Forked`] |
/// | `Other` | [`Error::Poisoned`], whatever its cause was: the call must not be repeated; and all others |
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

impl Error {
    /// What happened, and where. What to do about it is [`Error::cure`], and stands nowhere else:
    /// a text that advises two things advises nothing.
    fn what(&self) -> String {
        match self {
            Self::Io(error) => error.without_advice().to_string(),
            Self::Locked { path, holder } => format!(
                "{} is locked by {holder}, and a log has one writer at a time",
                path.display()
            ),
            Self::NoLog { path, missing: Some(missing) } => format!(
                "no log was created in {}, since there is no directory {}",
                path.display(),
                missing.display()
            ),
            Self::NoLog { path, missing: None } => {
                format!("there is no log in {}", path.display())
            }
            Self::Incomplete { path } => {
                format!("{} holds an unfinished copy of a log", path.display())
            }
            Self::OtherKind { path, found, wanted } => format!(
                "{} holds a log of the kind {found}, and one of the kind {wanted} was to be opened",
                path.display()
            ),
            Self::Stopped => "the caller stopped the operation before it was done".into(),
            Self::Corrupt(corruption) => corruption.what(),
            Self::UnknownVersion { path, version, flags } => {
                let flags = match flags {
                    0 => String::new(),
                    flags => format!(" with flags {flags:#x}"),
                };
                format!(
                    "{} has format version {version}{flags}, this program knows only version \
                     {FORMAT_VERSION} without flags, and no file was changed",
                    path.display()
                )
            }
            Self::Poisoned(poison) => poison.what(),
            Self::NoRoom { needed_bytes, cause } => {
                let cause = cause.without_advice();
                format!("no room for {needed_bytes} bytes: {cause}; nothing was lost")
            }
            Self::TooLarge { bytes, limit_bytes } => format!(
                "a record or batch of {bytes} bytes is too large: the limit of this log is \
                 {limit_bytes} bytes"
            ),
            Self::Busy => "every buffer is full, or the segment is changing".into(),
            Self::TruncatedBefore { lsn, first } => {
                format!("there is no LSN {lsn}: the log begins at LSN {first}")
            }
            Self::NotYet { lsn, durable: Lsn::ZERO } => {
                format!("there is no durable LSN {lsn}: the log has no durable record")
            }
            Self::NotYet { lsn, durable } => format!(
                "there is no durable LSN {lsn}: the log's durable records end at LSN {durable}"
            ),
            Self::TruncatedAfter { lsn, last } => format!(
                "truncate_after({last}) has removed LSN {} and all after it, and this reader was \
                 at LSN {lsn}",
                after(*last)
            ),
            Self::Lost { first, last } => {
                let (what, it) = match first == last {
                    true => (format!("LSN {first} is"), "it"),
                    false => (format!("LSN {first} to {last} are"), "them"),
                };
                format!("{what} lost: the log was damaged, and was salvaged without {it}")
            }
            Self::Invalid(why) => why.clone(),
            Self::Closed => "the log is closed".into(),
            Self::Forked { path } => format!(
                "{}: this process was forked after the log was opened, and the log belongs to the \
                 parent process",
                path.display()
            ),
            Self::UsedUp => "the log has used up its LSNs or segment numbers".into(),
        }
    }

    /// The one thing to do. `None` where the text of what happened says it, or nothing is wrong.
    fn cure(&self) -> Option<String> {
        let cure = match self {
            Self::Io(error) => return error.advice().map(str::to_owned),
            Self::Locked { .. } => "close it there first",
            Self::NoLog { missing: Some(_), .. } => {
                "mount the file system that belongs there, or create the directory (the option \
                 create_parents does)"
            }
            Self::NoLog { missing: None, .. } => {
                "check the path, or create a log there by opening it for writing (`inkstone \
                 append` does)"
            }
            Self::Incomplete { .. } => {
                "if no copy is running, copy again (it starts over) or remove the directory"
            }
            Self::OtherKind { .. } => "check the path, or use the program that made the log",
            Self::Corrupt(corruption) => corruption.cure.words(),
            Self::UnknownVersion { .. } => "use the program that wrote the log",
            Self::Poisoned(poison) => return Some(poison.cure()),
            // Room does not come by itself there.
            Self::NoRoom { cause, .. } if cause.kind() == ErrorKind::FileTooLarge => {
                return cause.advice().map(str::to_owned);
            }
            Self::NoRoom { .. } => {
                "try again when there is room, or truncate the log's first records"
            }
            Self::TooLarge { .. } => "make it smaller, or raise the option record_bytes_max",
            Self::Busy => "try again later, or call append, which waits",
            Self::TruncatedAfter { last, .. } | Self::Lost { last, .. } => {
                return Some(format!("resume at LSN {}", after(*last)));
            }
            Self::Closed => "open it again to continue",
            Self::Forked { .. } => "open it again here when the parent has closed it",
            Self::UsedUp => "begin a new log",
            Self::Stopped
            | Self::TruncatedBefore { .. }
            | Self::NotYet { .. }
            | Self::Invalid(_) => return None,
        };
        Some(cure.to_owned())
    }
}

/// Where a reader continues. No LSN follows the last one there is.
fn after(last: Lsn) -> Lsn {
    last.next().unwrap_or(last)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        match self.cure() {
            Some(cure) => write!(f, "; {cure}"),
            None => Ok(()),
        }
    }
}

/// Without a `source`: the text has the cause, so a program that prints the causes too prints it
/// once. The variants, and [`Poison::cause`], have it for programs.
impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the edges: an empty log, LSN 0, one record, all truncated.
    #[test]
    fn no_text_names_a_record_that_was_never_there() {
        let of = Lsn::new;
        for (error, text) in [
            (
                Error::NotYet { lsn: of(1), durable: of(0) },
                "no durable LSN 1: the log has no durable record",
            ),
            (
                Error::NotYet { lsn: of(999), durable: of(10) },
                "no durable LSN 999: the log's durable records end at LSN 10",
            ),
            (
                Error::TruncatedBefore { lsn: of(0), first: of(7) },
                "there is no LSN 0: the log begins at LSN 7",
            ),
            (
                Error::TruncatedBefore { lsn: of(6), first: of(7) },
                "there is no LSN 6: the log begins at LSN 7",
            ),
            (
                Error::Poisoned(Poison::panic(of(0))),
                "(no record was durable before); open the log again to continue",
            ),
            (
                Error::Poisoned(Poison::panic(of(1))),
                "(records up to LSN 1 are durable); open the log again to continue",
            ),
        ] {
            assert!(error.to_string().ends_with(text), "{error}");
        }
    }

    #[test]
    fn a_poison_says_what_to_do() {
        let said = |errno, kind: &str| {
            let source = std::io::Error::from_raw_os_error(errno);
            assert_eq!(format!("{:?}", source.kind()), kind);
            let error = inkstone_io::Error::new("pwrite", "/log/7", source).at(4096);
            Poison::new(error.into(), Lsn::new(9)).to_string()
        };
        let full = said(28, "StorageFull");
        assert!(full.contains("pwrite /log/7 at byte 4096"), "{full}");
        assert!(
            full.ends_with(
                "LSN 9 are durable); when there is room, open the log again to continue"
            ),
            "{full}"
        );
        let failed = said(5, "Uncategorized");
        assert!(
            failed.starts_with("the log is poisoned: pwrite /log/7 at byte 4096: "),
            "{failed}"
        );
        assert!(failed.ends_with("LSN 9 are durable); open the log again to continue"), "{failed}");
        let asked = said(30, "ReadOnlyFilesystem");
        assert!(asked.contains("; the file system takes no writes: `dmesg` says why"), "{asked}");
        assert!(asked.ends_with("; then open the log again to continue"), "{asked}");
    }

    /// One of each error, and what a caller of the standard library's errors sees of it.
    fn each() -> Vec<(Error, ErrorKind)> {
        let path = || PathBuf::from("/log");
        let of_system = |code| {
            inkstone_io::Error::new("pwrite", "/log/7", std::io::Error::from_raw_os_error(code))
        };
        let full = || of_system(28);
        let damage = |cure, details| Corruption {
            path: path(),
            segment: None,
            offset: 8,
            lsn: None,
            reason: Reason::Damaged,
            row: "H1",
            details,
            cure,
        };
        let missing = Some(PathBuf::from("/mnt/disk"));
        let lsn = Lsn::new(5);
        vec![
            (Error::Io(of_system(13)), ErrorKind::PermissionDenied),
            (Error::Io(of_system(24)), of_system(24).kind()),
            (Error::NoLog { path: path(), missing: None }, ErrorKind::NotFound),
            (Error::NoLog { path: path(), missing }, ErrorKind::NotFound),
            (Error::TruncatedBefore { lsn, first: lsn }, ErrorKind::NotFound),
            (Error::TruncatedAfter { lsn, last: lsn }, ErrorKind::NotFound),
            (Error::Busy, ErrorKind::WouldBlock),
            (Error::NotYet { lsn, durable: lsn }, ErrorKind::WouldBlock),
            (Error::Locked { path: path(), holder: "process 7".into() }, ErrorKind::ResourceBusy),
            (Error::NoRoom { needed_bytes: 8, cause: full() }, ErrorKind::StorageFull),
            (Error::NoRoom { needed_bytes: 8, cause: of_system(27) }, ErrorKind::StorageFull),
            (damage(Cure::Salvage, vec!["found: zeros".into()]).into(), ErrorKind::InvalidData),
            (damage(Cure::Backup, vec![]).into(), ErrorKind::InvalidData),
            (damage(Cure::MoveAway, vec![]).into(), ErrorKind::InvalidData),
            (damage(Cure::OpenAgain, vec![]).into(), ErrorKind::InvalidData),
            (Error::Incomplete { path: path() }, ErrorKind::InvalidData),
            (Error::Lost { first: lsn, last: lsn }, ErrorKind::InvalidData),
            (Error::Invalid("no".into()), ErrorKind::InvalidInput),
            (Error::TooLarge { bytes: 9, limit_bytes: 8 }, ErrorKind::InvalidInput),
            (
                Error::OtherKind { path: path(), found: LogKind::RAFT, wanted: LogKind::PLAIN },
                ErrorKind::InvalidInput,
            ),
            (Error::UnknownVersion { path: path(), version: 9, flags: 0 }, ErrorKind::Unsupported),
            (Error::Forked { path: path() }, ErrorKind::PermissionDenied),
            (Error::Poisoned(Poison::new(full().into(), lsn)), ErrorKind::Other),
            (Error::Poisoned(Poison::new(of_system(30).into(), lsn)), ErrorKind::Other),
            (
                Error::Poisoned(Poison::new(Error::NoRoom { needed_bytes: 8, cause: full() }, lsn)),
                ErrorKind::Other,
            ),
            (Error::Poisoned(Poison::panic(lsn)), ErrorKind::Other),
            (Error::Stopped, ErrorKind::Other),
            (Error::Closed, ErrorKind::Other),
            (Error::UsedUp, ErrorKind::Other),
        ]
    }

    /// Without a wildcard: a new error does not compile until it has a name here.
    fn name_of(error: &Error) -> &'static str {
        match error {
            Error::Io(_) => "Io",
            Error::Locked { .. } => "Locked",
            Error::NoLog { .. } => "NoLog",
            Error::Incomplete { .. } => "Incomplete",
            Error::OtherKind { .. } => "OtherKind",
            Error::Stopped => "Stopped",
            Error::Corrupt(_) => "Corrupt",
            Error::UnknownVersion { .. } => "UnknownVersion",
            Error::Poisoned(_) => "Poisoned",
            Error::NoRoom { .. } => "NoRoom",
            Error::TooLarge { .. } => "TooLarge",
            Error::Busy => "Busy",
            Error::TruncatedBefore { .. } => "TruncatedBefore",
            Error::NotYet { .. } => "NotYet",
            Error::TruncatedAfter { .. } => "TruncatedAfter",
            Error::Lost { .. } => "Lost",
            Error::Invalid(_) => "Invalid",
            Error::Closed => "Closed",
            Error::Forked { .. } => "Forked",
            Error::UsedUp => "UsedUp",
        }
    }

    /// A message once ended in "open it again; `inkstone salvage` saves what can be read".
    #[test]
    fn each_message_has_one_cure() {
        const CURES: [&str; 14] = [
            "open the log again",
            "open it again",
            "inkstone salvage",
            "use a backup",
            "move the files",
            "try again",
            "check the path",
            "resume at",
            "copy again",
            "close it there",
            "use the program",
            "mount the",
            "make it smaller",
            "begin a new",
        ];
        let errors = each();
        let names: std::collections::BTreeSet<_> =
            errors.iter().map(|(error, _)| name_of(error)).collect();
        assert_eq!(names.len(), 20, "{names:?}: an error has no example, or a new one no number");
        for (error, _) in errors {
            let what = error.what();
            let advised = CURES.iter().find(|cure| what.contains(**cure));
            assert_eq!(advised, None, "{what}: the cure stands in Error::cure alone");
            let whole = match error.cure() {
                Some(cure) => format!("{what}; {cure}"),
                None => what,
            };
            assert_eq!(error.to_string(), whole);
            match &error {
                Error::Poisoned(poison) => assert_eq!(poison.to_string(), whole),
                Error::Corrupt(corruption) => assert_eq!(corruption.to_string(), whole),
                Error::Io(inner) => assert_eq!(inner.to_string(), whole),
                _ => {}
            }
        }
    }

    #[test]
    fn a_callers_io_error_has_the_kind_the_text_and_the_error() {
        use std::error::Error as _;

        for (error, kind) in each() {
            let as_io = std::io::Error::from(error.clone());
            assert_eq!((as_io.kind(), as_io.to_string()), (kind, error.to_string()));
            let inside = as_io
                .get_ref()
                .and_then(|inside| inside.downcast_ref::<Error>())
                .expect("the error");
            assert_eq!(inside.to_string(), error.to_string());
            assert!(
                as_io.source().is_none() && error.source().is_none(),
                "{error}: no text is said twice"
            );
        }
    }
}
