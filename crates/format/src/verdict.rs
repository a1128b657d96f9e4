//! What the facts of a stop mean: the tables of recovery.
//!
//! *Owns*: the tables. *May not touch*: bytes. The tables are data; a test walks every combination of facts and shows
//! that exactly one row matches each. `End` and `Torn` lead to the same action, so safety never depends on telling
//! those two apart; `Corrupt` leaves the files untouched.

use core::fmt;

use crate::stop::{EpochIs, Found, Place};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The log ends here.
    End,
    /// The log ends here; behind it is what a crash left of something that was never acknowledged.
    Torn,
    /// Something that was promised is gone, or something is there that no crash explains.
    Corrupt(Reason),
    /// The format's version, or a flag of it, is not known to this code. Nothing is said of damage; the files are left
    /// untouched.
    Unknown,
}

/// Why a log is corrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Damage to bytes that were promised.
    Damaged,
    /// Zeros where bytes were promised: a write that never arrived.
    LostWrite,
    /// The file is shorter than its segment.
    FileShort,
    /// A segment that must be there is not, or has no header of its own.
    MissingSegment,
    /// The header is gone from a segment that was in use.
    HeaderLost,
    /// A sound header with a length that does not fit.
    Length,
    /// A sound header with another LSN than the next.
    LsnJump,
    /// A sound header that says what may not stand there.
    Grammar,
    /// Two segments that do not agree where one ends and the next begins.
    Link,
    /// The file of another log.
    ForeignLog,
    /// The header of a segment with a higher number than the file's.
    Misplaced,
    /// Every check passed, and yet it stopped: a mistake of this code.
    Contradiction,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "bytes that were promised to be durable are damaged",
            Self::LostWrite => "bytes that were promised to be durable never reached the medium",
            Self::FileShort => "the file is shorter than its header says",
            Self::MissingSegment => "a segment of the log is missing",
            Self::HeaderLost => "the header of a segment in use is lost",
            Self::Length => "a sound header has an impossible length",
            Self::LsnJump => "a sound header does not have the next LSN",
            Self::Grammar => "a sound header is not allowed there",
            Self::Link => "two segments contradict each other",
            Self::ForeignLog => "the segment belongs to another log",
            Self::Misplaced => "the header is that of a segment with a higher number",
            Self::Contradiction => "every check passed and yet reading stopped: a bug of inkstone",
        })
    }
}

/// The facts of a stop that the verdict is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Something says that what is missing here was durable.
    pub below: bool,
    /// A sound group lies further on.
    pub later: bool,
    /// The file ends too early.
    pub short: bool,
    /// The last good group sealed the segment, and no next segment is there.
    pub sealed: bool,
    /// What the bytes look like.
    pub found: Found,
    /// Between groups or inside one.
    pub place: Place,
    /// The epoch against the last good one. Inside a group it is under the checksum, and never `Lower`.
    pub epoch: EpochIs,
    /// The length fits.
    pub length: bool,
    /// The LSN is the expected one.
    pub lsn: bool,
    /// The rest of the header may stand there.
    pub grammar: bool,
    /// The payload is whole.
    pub body: bool,
}

/// A row of the table of stops: `None` and `ANY` fit everything.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name in `docs/format.md`.
    pub name: &'static str,
    /// What it fits.
    pub below: Option<bool>,
    /// What it fits.
    pub later: Option<bool>,
    /// What it fits.
    pub short: Option<bool>,
    /// What it fits.
    pub sealed: Option<bool>,
    /// What it fits.
    pub found: &'static [Found],
    /// What it fits.
    pub place: Option<Place>,
    /// Whether it fits lower epochs, or those that are not.
    pub lower: Option<bool>,
    /// What it fits.
    pub length: Option<bool>,
    /// What it fits.
    pub lsn: Option<bool>,
    /// What it fits.
    pub grammar: Option<bool>,
    /// What it fits.
    pub body: Option<bool>,
    /// What it means.
    pub verdict: Verdict,
    /// In words.
    pub why: &'static str,
}

const ALL: &[Found] = &[Found::SegmentEnd, Found::Zeros, Found::Remains, Found::Garbage, Found::Sound];

const ANY: Row = Row {
    name: "",
    below: None,
    later: None,
    short: None,
    sealed: None,
    found: ALL,
    place: None,
    lower: None,
    length: None,
    lsn: None,
    grammar: None,
    body: None,
    verdict: Verdict::End,
    why: "",
};

/// A stop above every promise, in a whole file that was not sealed.
const TAIL: Row = Row { below: Some(false), short: Some(false), sealed: Some(false), ..ANY };

/// A sound header of this epoch or a later one.
const SOUND: Row = Row { found: &[Found::Sound], lower: Some(false), ..TAIL };

/// The table of stops.
pub const ROWS: &[Row] = &[
    Row {
        name: "P1",
        below: Some(true),
        found: &[Found::Zeros],
        verdict: Verdict::Corrupt(Reason::LostWrite),
        why: "zeros where bytes were promised to be durable",
        ..ANY
    },
    Row {
        name: "P2",
        below: Some(true),
        found: &[Found::SegmentEnd, Found::Remains, Found::Garbage, Found::Sound],
        verdict: Verdict::Corrupt(Reason::Damaged),
        why: "bytes that were promised to be durable are damaged",
        ..ANY
    },
    Row {
        name: "F1",
        below: Some(false),
        short: Some(true),
        verdict: Verdict::Corrupt(Reason::FileShort),
        why: "the file is shorter than its segment; a segment has its full size before it is used, and is never shortened",
        ..ANY
    },
    Row {
        name: "S1",
        below: Some(false),
        short: Some(false),
        sealed: Some(true),
        verdict: Verdict::Corrupt(Reason::MissingSegment),
        why: "the segment has a seal, which names the next segment; that one is missing",
        ..ANY
    },
    Row { name: "E1", found: &[Found::SegmentEnd], why: "the segment is full", ..TAIL },
    Row {
        name: "E2",
        found: &[Found::Zeros, Found::Remains],
        place: Some(Place::Between),
        later: Some(false),
        why: "nothing was written here since an earlier use of the file",
        ..TAIL
    },
    Row {
        name: "E3",
        found: &[Found::Sound],
        lower: Some(true),
        why: "old bytes of an earlier opening",
        ..TAIL
    },
    Row {
        name: "T1",
        found: &[Found::Zeros, Found::Remains],
        place: Some(Place::Between),
        later: Some(true),
        verdict: Verdict::Torn,
        why: "a group that was not written, before one that was; neither was acknowledged",
        ..TAIL
    },
    Row {
        name: "T2",
        found: &[Found::Zeros, Found::Remains],
        place: Some(Place::Inside),
        verdict: Verdict::Torn,
        why: "a group that was written in part",
        ..TAIL
    },
    Row {
        name: "T3",
        found: &[Found::Garbage],
        verdict: Verdict::Torn,
        why: "a header that was written in part",
        ..TAIL
    },
    Row {
        name: "C1",
        length: Some(false),
        verdict: Verdict::Corrupt(Reason::Length),
        why: "a sound header has an impossible length",
        ..SOUND
    },
    Row {
        name: "C2",
        length: Some(true),
        lsn: Some(false),
        verdict: Verdict::Corrupt(Reason::LsnJump),
        why: "a sound header does not have the next LSN",
        ..SOUND
    },
    Row {
        name: "C3",
        length: Some(true),
        lsn: Some(true),
        grammar: Some(false),
        verdict: Verdict::Corrupt(Reason::Grammar),
        why: "a sound header is not allowed here",
        ..SOUND
    },
    Row {
        name: "T4",
        length: Some(true),
        lsn: Some(true),
        grammar: Some(true),
        body: Some(false),
        verdict: Verdict::Torn,
        why: "a payload that was written in part",
        ..SOUND
    },
    Row {
        name: "C4",
        length: Some(true),
        lsn: Some(true),
        grammar: Some(true),
        body: Some(true),
        verdict: Verdict::Corrupt(Reason::Contradiction),
        why: "every check passed and yet reading stopped: a bug of inkstone",
        ..SOUND
    },
];

impl Row {
    /// Whether it fits.
    pub fn fits(&self, facts: &Facts) -> bool {
        let fits = |wanted: Option<bool>, fact: bool| wanted.is_none_or(|wanted| wanted == fact);
        fits(self.below, facts.below)
            && fits(self.later, facts.later)
            && fits(self.short, facts.short)
            && fits(self.sealed, facts.sealed)
            && self.found.contains(&facts.found)
            && self.place.is_none_or(|place| place == facts.place)
            && fits(self.lower, facts.epoch == EpochIs::Lower)
            && fits(self.length, facts.length)
            && fits(self.lsn, facts.lsn)
            && fits(self.grammar, facts.grammar)
            && fits(self.body, facts.body)
    }
}

/// The one row that fits the facts.
pub fn judge(facts: &Facts) -> &'static Row {
    let row = ROWS.iter().find(|row| row.fits(facts));
    // A test walks every combination, so this is an invariant of this file and not of any disk.
    row.unwrap_or_else(|| unreachable!("no row fits {facts:?}"))
}

/// What the first block of a file is that has no header of its own: one of this log and of the file's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeaderState {
    /// Zeros.
    Zero,
    /// The header of this log's segment with a lower number: a recycled file.
    Older,
    /// The header of this log's segment with a higher number.
    Newer,
    /// The header of another log.
    Foreign,
    /// A version or flag that is not known.
    Unknown,
    /// The file ends inside the block.
    Short,
    /// Something else.
    Damaged,
}

/// The facts of a file without a header of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderFacts {
    /// What its first block is.
    pub state: HeaderState,
    /// Another header names this segment as its predecessor.
    pub named: bool,
    /// A sound group of this log and of the file's number lies in it.
    pub groups: bool,
    /// No file of the directory has a header of its own, and there are bytes other than zero behind this one's block.
    pub dirty: bool,
}

/// A row of the table of headers.
#[derive(Debug, Clone, Copy)]
pub struct HeaderRow {
    /// Its name in `docs/format.md`.
    pub name: &'static str,
    /// What it fits.
    pub states: &'static [HeaderState],
    /// What it fits.
    pub named: Option<bool>,
    /// Whether it fits files with groups or dirt, or those with neither.
    pub used: Option<bool>,
    /// What it means.
    pub verdict: Verdict,
    /// In words.
    pub why: &'static str,
}

const QUIET: &[HeaderState] = &[HeaderState::Zero, HeaderState::Older, HeaderState::Damaged];

/// The table of headers.
pub const HEADER_ROWS: &[HeaderRow] = &[
    HeaderRow {
        name: "H1",
        states: &[HeaderState::Unknown],
        named: None,
        used: None,
        verdict: Verdict::Unknown,
        why: "a format version or flag that this reader does not know",
    },
    HeaderRow {
        name: "H2",
        states: &[HeaderState::Foreign],
        named: None,
        used: None,
        verdict: Verdict::Corrupt(Reason::ForeignLog),
        why: "a file of another log",
    },
    HeaderRow {
        name: "H3",
        states: &[HeaderState::Newer],
        named: None,
        used: None,
        verdict: Verdict::Corrupt(Reason::Misplaced),
        why: "the header of a segment with a higher number",
    },
    HeaderRow {
        name: "H4",
        states: &[HeaderState::Short],
        named: None,
        used: None,
        verdict: Verdict::Corrupt(Reason::FileShort),
        why: "the file ends inside its header; a file has its full size before it gets its name",
    },
    HeaderRow {
        name: "H5",
        states: QUIET,
        named: Some(true),
        used: None,
        verdict: Verdict::Corrupt(Reason::MissingSegment),
        why: "a segment that its successor names has no header of its own",
    },
    HeaderRow {
        name: "H6",
        states: QUIET,
        named: Some(false),
        used: Some(true),
        verdict: Verdict::Corrupt(Reason::HeaderLost),
        why: "a segment in use has lost its header, which is durable before anything else is written",
    },
    HeaderRow {
        name: "H7",
        states: &[HeaderState::Zero, HeaderState::Older],
        named: Some(false),
        used: Some(false),
        verdict: Verdict::End,
        why: "a file that is not in use",
    },
    HeaderRow {
        name: "H8",
        states: &[HeaderState::Damaged],
        named: Some(false),
        used: Some(false),
        verdict: Verdict::Torn,
        why: "a header that was written in part, with nothing after it",
    },
];

impl HeaderRow {
    /// Whether it fits.
    pub fn fits(&self, facts: &HeaderFacts) -> bool {
        self.states.contains(&facts.state)
            && self.named.is_none_or(|named| named == facts.named)
            && self.used.is_none_or(|used| used == (facts.groups || facts.dirty))
    }
}

/// The one row that fits the facts.
pub fn judge_header(facts: &HeaderFacts) -> &'static HeaderRow {
    let row = HEADER_ROWS.iter().find(|row| row.fits(facts));
    row.unwrap_or_else(|| unreachable!("no row fits {facts:?}"))
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
