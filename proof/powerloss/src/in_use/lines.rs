//! What the process that uses the log prints: a line before each call and a line after it.
//!
//! *Owns*: the lines, and parsing them. *May not touch*: what they mean for a log.
//!
//! A line is short enough for one atomic write to a pipe, so a kill leaves whole lines.

use std::fmt;

use inkstone::Error;
use inkstone_io::named_choice;

named_choice! {
    /// A call of the log.
    Call, "call" {
        Open = "open", "opening";
        Append = "append", "append_durable";
        Gather = "gather", "an append, or a batch, that is not waited for yet";
        Wait = "wait", "the wait for it";
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

/// A call of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The writer: a thread of one life of the process.
    pub writer: u32,
    /// What it calls.
    pub call: Call,
    /// The number of the record, or of the first of a batch; for a sync that of the thread's next
    /// record, for a truncation the first LSN, else the life.
    pub number: u64,
    /// Records of a batch; else 1.
    pub count: u32,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The call is about to be made.
    Begin(Made),
    /// It succeeded, with this LSN: that of the last record, or the last durable one.
    Done(Made, u64),
    /// It failed.
    Failed(Made, Refusal),
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
            Error::NoRoom { .. } => (Class::NoRoom, 0, Some(error)),
            Error::Io(_) => (Class::Io, 0, Some(error)),
            Error::Corrupt(_) => (Class::Corrupt, 0, Some(error)),
            _ => (Class::Other, 0, Some(error)),
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

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}\t{}", self.writer, self.call, self.number, self.count)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(made) => write!(f, "begin\t{made}"),
            Self::Done(made, lsn) => write!(f, "done\t{made}\t{lsn}"),
            Self::Failed(made, why) => {
                let Refusal { class, durable, errno, operation, path, text } = why;
                write!(
                    f,
                    "failed\t{made}\t{class}\t{durable}\t{errno}\t{operation}\t{path}\t{text}"
                )
            }
            Self::Shown(first, last) => write!(f, "shown\t{first}\t{last}"),
            Self::Rests => f.write_str("rests"),
        }
    }
}

impl Line {
    /// Parses a line.
    pub fn parse(line: &str) -> Result<Self, String> {
        let wrong = || format!("{line:?} is not a line of the process that uses the log");
        let fields: Vec<&str> = line.split('\t').collect();
        let text = |at: usize| fields.get(at).copied().ok_or_else(wrong);
        let number = |at: usize| text(at)?.parse::<u64>().map_err(|_| wrong());
        let small = |at: usize| text(at)?.parse::<u32>().map_err(|_| wrong());
        let made = || -> Result<Made, String> {
            let call = text(2)?.parse().map_err(|_| wrong())?;
            Ok(Made { writer: small(1)?, call, number: number(3)?, count: small(4)? })
        };
        Ok(match fields[0] {
            "begin" => Self::Begin(made()?),
            "done" => Self::Done(made()?, number(5)?),
            "failed" => {
                let why = Refusal {
                    class: text(5)?.parse()?,
                    durable: number(6)?,
                    errno: text(7)?.parse().map_err(|_| wrong())?,
                    operation: text(8)?.to_string(),
                    path: text(9)?.to_string(),
                    text: text(10)?.to_string(),
                };
                Self::Failed(made()?, why)
            }
            "shown" => Self::Shown(number(1)?, number(2)?),
            "rests" => Self::Rests,
            _ => return Err(wrong()),
        })
    }

    /// Whether a record was acknowledged.
    pub fn is_acknowledgement(&self) -> bool {
        matches!(self, Self::Done(Made { call: Call::Append | Call::Wait, .. }, _))
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
        let made = Made { writer: 3, call: Call::Gather, number: 7, count: 4 };
        let lines = [
            Line::Begin(made),
            Line::Done(made, u64::MAX),
            Line::Failed(made, why),
            Line::Shown(1, 0),
            Line::Rests,
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.to_string()), Ok(line));
        }
        assert!(Line::parse("begin\t1\tappend").is_err() && Line::parse("x").is_err());
    }
}
