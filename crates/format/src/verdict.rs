//! The tables of recovery. A *stop* is where reading found no next sound group; these tables say
//! what it means: the end of the log, a torn tail, or damage.
//!
//! *Owns*: the tables. *May not touch*: bytes. The tables are data; a test walks every combination
//! of facts and shows that exactly one row fits each. `End` and `Torn` lead to the same action, so
//! safety never depends on telling them apart; `Corrupt` leaves the files unchanged.

use core::fmt;

use crate::scan::Evidence;
use crate::stop::{EpochIs, Found, Place, Stop};

/// What recovery does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The log ends here.
    End,
    /// The log ends here; after it lies what a crash left of a group that was never acknowledged.
    Torn,
    /// Promised data is gone, or the files hold something that no crash explains.
    Corrupt(Reason),
    /// This code does not know the version of the format, or a flag. That is not damage; the files
    /// are left unchanged.
    Unknown,
}

/// Why a log is corrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Promised bytes are damaged.
    Damaged,
    /// There are zeros where bytes were promised: a write never reached the medium.
    LostWrite,
    /// The file is shorter than its segment.
    FileShort,
    /// A segment of the log is missing, or has no header of its own.
    MissingSegment,
    /// A segment in use has lost its header.
    HeaderLost,
    /// A sound header has an impossible length.
    Length,
    /// A sound header does not have the next LSN.
    LsnJump,
    /// A sound header is not allowed there.
    Grammar,
    /// Two segments disagree where one ends and the next begins.
    Link,
    /// The file belongs to another log.
    ForeignLog,
    /// The header is that of a segment with a higher number than the file's.
    Misplaced,
    /// Every check passed and yet reading stopped: a bug of this code.
    Contradiction,
}

impl Reason {
    /// The reason, in words.
    pub const fn words(self) -> &'static str {
        match self {
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
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// The facts of a stop from which the verdict follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The stop is below a promise: what is missing here was durable.
    pub below: bool,
    /// A sound group follows later.
    pub later: bool,
    /// The file ends too early.
    pub short: bool,
    /// The last good group sealed the segment, and the next segment is missing.
    pub sealed: bool,
    /// What the bytes look like.
    pub found: Found,
    /// Between groups or inside one.
    pub place: Place,
    /// The epoch compared with the last good one. Inside a group the checksum covers it, so it is
    /// never `Lower`.
    pub epoch: EpochIs,
    /// The length is possible.
    pub length: bool,
    /// The LSN is the expected one.
    pub lsn: bool,
    /// The rest of the header is allowed there.
    pub grammar: bool,
    /// The payload is whole.
    pub body: bool,
}

impl Facts {
    /// Those of a stop, with what lies behind it.
    pub fn of(stop: &Stop, evidence: &Evidence) -> Self {
        Self {
            below: evidence.covers(stop.tail.end, stop.tail.next_lsn),
            later: evidence.later,
            short: stop.file_short,
            sealed: stop.tail.sealed.is_some(),
            found: stop.found,
            place: stop.place,
            epoch: stop.epoch,
            length: stop.length_fits,
            lsn: stop.lsn_fits,
            grammar: stop.grammar_fits,
            body: stop.body_fits,
        }
    }
}

/// A row of the table of stops. Each condition is a value of the fact with the same name in
/// [`Facts`]; `None` fits every value.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name in `docs/format.md`.
    pub name: &'static str,
    /// The value of [`Facts::below`] that it fits.
    pub below: Option<bool>,
    /// The value of [`Facts::later`] that it fits.
    pub later: Option<bool>,
    /// The value of [`Facts::short`] that it fits.
    pub short: Option<bool>,
    /// The value of [`Facts::sealed`] that it fits.
    pub sealed: Option<bool>,
    /// The values of [`Facts::found`] that it fits.
    pub found: &'static [Found],
    /// The value of [`Facts::place`] that it fits.
    pub place: Option<Place>,
    /// Whether it fits only lower epochs, or only those that are not lower.
    pub lower: Option<bool>,
    /// The value of [`Facts::length`] that it fits.
    pub length: Option<bool>,
    /// The value of [`Facts::lsn`] that it fits.
    pub lsn: Option<bool>,
    /// The value of [`Facts::grammar`] that it fits.
    pub grammar: Option<bool>,
    /// The value of [`Facts::body`] that it fits.
    pub body: Option<bool>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, in words.
    pub why: &'static str,
}

const ALL: &[Found] =
    &[Found::SegmentEnd, Found::Zeros, Found::Remains, Found::Garbage, Found::Sound];

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
        why: Reason::LostWrite.words(),
        ..ANY
    },
    Row {
        name: "P2",
        below: Some(true),
        found: &[Found::SegmentEnd, Found::Remains, Found::Garbage, Found::Sound],
        verdict: Verdict::Corrupt(Reason::Damaged),
        why: Reason::Damaged.words(),
        ..ANY
    },
    // A segment has its full size before it is used, and is never shortened.
    Row {
        name: "F1",
        below: Some(false),
        short: Some(true),
        verdict: Verdict::Corrupt(Reason::FileShort),
        why: Reason::FileShort.words(),
        ..ANY
    },
    // The seal names the next segment.
    Row {
        name: "S1",
        below: Some(false),
        short: Some(false),
        sealed: Some(true),
        verdict: Verdict::Corrupt(Reason::MissingSegment),
        why: Reason::MissingSegment.words(),
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
        why: Reason::Length.words(),
        ..SOUND
    },
    Row {
        name: "C2",
        length: Some(true),
        lsn: Some(false),
        verdict: Verdict::Corrupt(Reason::LsnJump),
        why: Reason::LsnJump.words(),
        ..SOUND
    },
    Row {
        name: "C3",
        length: Some(true),
        lsn: Some(true),
        grammar: Some(false),
        verdict: Verdict::Corrupt(Reason::Grammar),
        why: Reason::Grammar.words(),
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
        why: Reason::Contradiction.words(),
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
    // A test walks every combination: this is an invariant of the table, independent of any disk.
    row.unwrap_or_else(|| unreachable!("no row fits {facts:?}"))
}

/// The first block of a file without a header of its own (one of this log and of the file's
/// number).
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
    /// An unknown version or flag.
    Unknown,
    /// The file ends inside the block.
    Short,
    /// Anything else.
    Damaged,
}

/// The facts of a file without a header of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderFacts {
    /// The state of its first block.
    pub state: HeaderState,
    /// Another header names this segment as its predecessor.
    pub named: bool,
    /// It has a sound group of this log and of the file's number.
    pub groups: bool,
    /// No file of the directory has a header of its own, and there are bytes other than zero after
    /// this file's header block.
    pub dirty: bool,
}

/// A row of the table of headers.
#[derive(Debug, Clone, Copy)]
pub struct HeaderRow {
    /// Its name in `docs/format.md`.
    pub name: &'static str,
    /// The values of [`HeaderFacts::state`] that it fits.
    pub states: &'static [HeaderState],
    /// The value of [`HeaderFacts::named`] that it fits.
    pub named: Option<bool>,
    /// Whether it fits only files with [`HeaderFacts::groups`] or [`HeaderFacts::dirty`], or only
    /// those with neither.
    pub used: Option<bool>,
    /// The verdict.
    pub verdict: Verdict,
}

const QUIET: &[HeaderState] = &[HeaderState::Zero, HeaderState::Older, HeaderState::Damaged];

/// A row that fits whatever a file's name and body say.
const WHATEVER: HeaderRow =
    HeaderRow { name: "", states: &[], named: None, used: None, verdict: Verdict::Unknown };

/// The table of headers.
pub const HEADER_ROWS: &[HeaderRow] = &[
    // A format version or flag that this reader does not know.
    HeaderRow {
        name: "H1",
        states: &[HeaderState::Unknown],
        verdict: Verdict::Unknown,
        ..WHATEVER
    },
    // A file of another log.
    HeaderRow {
        name: "H2",
        states: &[HeaderState::Foreign],
        verdict: Verdict::Corrupt(Reason::ForeignLog),
        ..WHATEVER
    },
    // The header of a segment with a higher number.
    HeaderRow {
        name: "H3",
        states: &[HeaderState::Newer],
        verdict: Verdict::Corrupt(Reason::Misplaced),
        ..WHATEVER
    },
    // The file ends inside its header; a file has its full size before it gets its name.
    HeaderRow {
        name: "H4",
        states: &[HeaderState::Short],
        verdict: Verdict::Corrupt(Reason::FileShort),
        ..WHATEVER
    },
    // A segment that its successor names has no header of its own.
    HeaderRow {
        name: "H5",
        states: QUIET,
        named: Some(true),
        verdict: Verdict::Corrupt(Reason::MissingSegment),
        ..WHATEVER
    },
    // A segment in use has lost its header, which is durable before anything else is written.
    HeaderRow {
        name: "H6",
        states: QUIET,
        named: Some(false),
        used: Some(true),
        verdict: Verdict::Corrupt(Reason::HeaderLost),
    },
    // A file that is not in use.
    HeaderRow {
        name: "H7",
        states: &[HeaderState::Zero, HeaderState::Older],
        named: Some(false),
        used: Some(false),
        verdict: Verdict::End,
    },
    // A header that was written in part, with nothing after it.
    HeaderRow {
        name: "H8",
        states: &[HeaderState::Damaged],
        named: Some(false),
        used: Some(false),
        verdict: Verdict::Torn,
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
