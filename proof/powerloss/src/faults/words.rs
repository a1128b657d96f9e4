//! What the process that uses the log prints: a line before each call and a line after it.
//!
//! *Owns*: the lines, and parsing them. *May not touch*: what they mean for a log.

use std::fmt;

use inkstone::Error;
use inkstone_io::named_choice;

named_choice! {
    /// A call of the log.
    Call, "call" {
        Open = "open", "opening";
        Append = "append", "append_durable";
        Gather = "gather", "an append with a later wait";
        Wait = "wait", "wait";
        Sync = "sync", "sync";
        TruncateBefore = "truncate-before", "truncate_before";
        Read = "read", "reading all durable records";
        Close = "close", "closing or dropping the log";
    }
}

named_choice! {
    /// What kind of error a call returned.
    Class, "class" {
        Poisoned = "poisoned", "the log is poisoned";
        NoRoom = "no-room", "the call can be retried when there is room";
        Io = "io", "the operating system refused something";
        Corrupt = "corrupt", "damage";
        Other = "other", "anything else";
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind.
    pub class: Class,
    /// What was durable, if the log is poisoned.
    pub durable: u64,
    /// The kernel's error number; 0: none.
    pub errno: i32,
    /// The operation that failed first.
    pub operation: String,
    /// And its path.
    pub path: String,
    /// The first cause in words.
    pub text: String,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Thread, call, number: the call is about to be made. For appends the number is the record's,
    /// for truncations the first LSN.
    Begin(u32, Call, u32),
    /// It succeeded, with this LSN: the record's, or the last durable one.
    Done(u32, Call, u32, u64),
    /// It failed.
    Failed(u32, Call, u32, Refusal),
    /// Opened: the first and the last LSN that are shown.
    Shown(u64, u64),
    /// No call is in progress.
    Rests,
}

impl Refusal {
    /// Made from an error of the log.
    pub fn of(error: &Error) -> Self {
        let clean = |text: String| text.replace(['\n', '\t'], " ");
        let (class, durable, cause) = match error {
            Error::Poisoned(poison) => (Class::Poisoned, poison.durable().get(), poison.cause()),
            other => (
                match other {
                    Error::NoRoom { .. } => Class::NoRoom,
                    Error::Io(_) => Class::Io,
                    Error::Corrupt(_) => Class::Corrupt,
                    _ => Class::Other,
                },
                0,
                Some(other),
            ),
        };
        let io = match cause {
            Some(Error::Io(io) | Error::NoRoom { cause: io, .. }) => Some(io),
            _ => None,
        };
        Self {
            class,
            durable,
            errno: io.and_then(inkstone_io::Error::raw_os_error).unwrap_or(0),
            operation: io.map_or_else(String::new, |io| clean(io.operation().to_string())),
            path: io.map_or_else(String::new, |io| clean(io.path().display().to_string())),
            text: clean(cause.unwrap_or(error).to_string()),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(thread, call, number) => write!(f, "begin\t{thread}\t{call}\t{number}"),
            Self::Done(thread, call, number, lsn) => {
                write!(f, "done\t{thread}\t{call}\t{number}\t{lsn}")
            }
            Self::Failed(thread, call, number, why) => {
                let Refusal { class, durable, errno, operation, path, text } = why;
                write!(
                    f,
                    "failed\t{thread}\t{call}\t{number}\t{class}\t{durable}\t{errno}\t{operation}\t{path}\t{text}"
                )
            }
            Self::Shown(first, last) => write!(f, "shown\t{first}\t{last}"),
            Self::Rests => f.write_str("rests"),
        }
    }
}

impl Line {
    /// Parses a line.
    ///
    /// # Errors
    /// It is not a line of this kind.
    pub fn parse(line: &str) -> Result<Self, String> {
        let wrong = || format!("{line:?} is not a line of the process that uses the log");
        let mut fields = line.split('\t');
        let word = fields.next().ok_or_else(wrong)?;
        let fields: Vec<&str> = fields.collect();
        let text = |at: usize| fields.get(at).copied().ok_or_else(wrong);
        let number = |at: usize| text(at)?.parse::<u64>().map_err(|_| wrong());
        let small = |at: usize| text(at)?.parse::<u32>().map_err(|_| wrong());
        let call = || text(1)?.parse::<Call>();
        Ok(match word {
            "begin" => Self::Begin(small(0)?, call()?, small(2)?),
            "done" => Self::Done(small(0)?, call()?, small(2)?, number(3)?),
            "failed" => {
                let why = Refusal {
                    class: text(3)?.parse()?,
                    durable: number(4)?,
                    errno: text(5)?.parse().map_err(|_| wrong())?,
                    operation: text(6)?.to_string(),
                    path: text(7)?.to_string(),
                    text: text(8)?.to_string(),
                };
                Self::Failed(small(0)?, call()?, small(2)?, why)
            }
            "shown" => Self::Shown(number(0)?, number(1)?),
            "rests" => Self::Rests,
            _ => return Err(wrong()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_again() {
        let source = std::io::Error::from_raw_os_error(5);
        let error = Error::Io(inkstone_io::Error::new("fdatasync", "/a/1.ink", source));
        let why = Refusal::of(&error);
        assert_eq!(
            (why.class, why.errno, why.operation.as_str(), why.path.as_str()),
            (Class::Io, 5, "fdatasync", "/a/1.ink")
        );
        let lines = [
            Line::Begin(3, Call::Append, 7),
            Line::Done(3, Call::Sync, 7, u64::MAX),
            Line::Failed(0, Call::Close, 0, why),
            Line::Shown(1, 0),
            Line::Rests,
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.to_string()), Ok(line));
        }
        assert!(Line::parse("begin\t1\tappend").is_err() && Line::parse("x").is_err());
    }
}
