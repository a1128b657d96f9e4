//! The numbers of a log, each with its own type, so that they cannot be confused.
//!
//! *Owns*: `Lsn`, `SegmentNumber`, `Epoch`, `LogId`, `LogKind`, `Position`; their arithmetic is
//! checked. *May not touch*: bytes.

use core::fmt;
use core::num::NonZeroU64;

/// The log sequence number of a record. LSNs are dense, and the first is 1. 0 means "before the
/// first record".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// Before the first record.
    pub const ZERO: Self = Self(0);
    /// The first record of a new log.
    pub const FIRST: Self = Self(1);

    /// The LSN with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next LSN; `None` after the highest one.
    pub const fn next(self) -> Option<Self> {
        self.plus(1)
    }

    /// The LSN `count` after this one; `None` if there is none.
    pub const fn plus(self, count: u64) -> Option<Self> {
        match self.0.checked_add(count) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The LSN before this one; `None` for [`Lsn::ZERO`].
    pub const fn before(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// The number of a segment: from 1, never used again in the same log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(NonZeroU64);

impl SegmentNumber {
    /// The first segment of a log.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The segment number; `None` for 0.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The next number; `None` after the highest one.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// The number of an opening for writing, or of a cut: from 1, rising each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch in which a log is created.
    pub const FIRST: Self = Self(1);

    /// The epoch with this number; `None` for 0.
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next number; `None` after the highest one.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

/// The id of a log: 128 random bits, chosen when the log is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId([u8; 16]);

impl LogId {
    /// The id with these bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the order in which they are stored.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// The purpose of a log: four bytes, set when the log is created. A program that builds on a log
/// chooses four bytes that are not here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogKind([u8; 4]);

impl LogKind {
    /// Records of its user, and nothing else is known of them.
    pub const PLAIN: Self = Self([0; 4]);
    /// Streams.
    pub const STREAMS: Self = Self(*b"STRM");
    /// Raft logs.
    pub const RAFT: Self = Self(*b"RAFT");
    /// The write-ahead log of SlateDB.
    pub const SLATEDB: Self = Self(*b"SLDB");

    /// The kind with these bytes.
    pub const fn new(bytes: [u8; 4]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the order in which they are stored.
    pub const fn bytes(&self) -> &[u8; 4] {
        &self.0
    }
}

/// A position in a log: a byte of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The segment.
    pub segment: SegmentNumber,
    /// The byte in it, from the start of its file.
    pub byte: u64,
}

macro_rules! shown_as_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )*};
}
shown_as_number!(Lsn, SegmentNumber, Epoch);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}

impl fmt::Display for LogKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::PLAIN {
            f.write_str("plain")
        } else {
            write!(f, "{}", self.0.escape_ascii())
        }
    }
}

impl fmt::Debug for LogKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogKind({self})")
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_wraps() {
        assert_eq!(Lsn::new(u64::MAX).next(), None);
        assert_eq!(Lsn::ZERO.before(), None);
        assert_eq!(Lsn::FIRST.before(), Some(Lsn::ZERO));
        assert_eq!(SegmentNumber::new(0), None);
        assert_eq!(SegmentNumber::new(u64::MAX).and_then(SegmentNumber::next), None);
        assert_eq!(Epoch::new(0), None);
        assert_eq!(Epoch::new(u64::MAX).and_then(Epoch::next), None);
    }
}
