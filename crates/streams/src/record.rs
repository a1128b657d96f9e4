//! The bytes of the log's records: a head, then changes. docs/streams.md has the format.
//!
//! *Owns*: encoding and checked decoding. *May not touch*: what changes mean (`state.rs`), files.
//! Pure functions; no bytes make them panic.

pub(crate) mod bytes;
pub(crate) mod page;

use std::sync::Arc;

use inkstone::Lsn;

use self::bytes::{NUMBER_BYTES_MAX, Rest, put, put_bytes, put_signed};

/// The first byte of every record: a record of streams, in the first version.
const FIRST_BYTE: u8 = 0xa1;
/// The first bytes of all versions, known or not.
const FIRST_BYTES: std::ops::RangeInclusive<u8> = 0xa0..=0xaf;
/// What the first change of every table contains.
const MAGIC: &[u8; 12] = b"INKSTREAMS\x1a\x01";
/// The largest head.
pub(crate) const HEAD_BYTES_MAX: usize = 1 + 2 * NUMBER_BYTES_MAX;
/// More bytes than a head and a change add to a record's bytes, also when the record is moved.
pub(crate) const RESERVE_BYTES: usize = 256;

const CREATE: u8 = 1;
const APPEND: u8 = 2;
const NOTE: u8 = 3;
const TRUNCATE_BEFORE: u8 = 4;
const TRUNCATE_AFTER: u8 = 5;
const RESTART: u8 = 6;
const REMOVE: u8 = 7;
const MOVED: u8 = 8;
const LOST: u8 = 9;
const TABLE_BEGIN: u8 = 16;
const TABLE_STREAM: u8 = 17;
const TABLE_RUNS: u8 = 18;
const TABLE_SECTION: u8 = 19;
const TABLE_END: u8 = 20;
const PAGE: u8 = 24;
const SEALED: u8 = 25;

/// What every record begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The section that the record belongs to.
    pub(crate) section: u32,
    /// Where an opening begins if this is the last record.
    pub(crate) replay_from: Lsn,
}

/// A change, as decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Create {
        stream: u64,
        first: u64,
    },
    Append {
        stream: u64,
        number: u64,
        bytes: &'a [u8],
    },
    /// Empty bytes remove the note.
    Note {
        stream: u64,
        bytes: &'a [u8],
    },
    TruncateBefore {
        stream: u64,
        first: u64,
    },
    TruncateAfter {
        stream: u64,
        next: u64,
    },
    Restart {
        stream: u64,
        first: u64,
    },
    Remove {
        stream: u64,
    },
    /// A record of an old section, whose place is here from now on.
    Moved {
        stream: u64,
        number: u64,
        source: u32,
        bytes: &'a [u8],
    },
    /// A record of an old section that could not be read there, and is lost.
    Lost {
        stream: u64,
        number: u64,
        source: u32,
    },
    /// A table of all streams begins: each piece is true as of its own record.
    TableBegin,
    /// Its runs before `from` came in `TableRuns`; 0 if these are all.
    TableStream {
        stream: u64,
        first: u64,
        next: u64,
        cut: Lsn,
        note: &'a [u8],
        from: u64,
        runs: Vec<Run>,
    },
    /// The runs of the numbers from `from` up to `to` of a stream whose row comes later. They begin
    /// anew at 0.
    TableRuns {
        stream: u64,
        from: u64,
        to: u64,
        runs: Vec<Run>,
    },
    TableSection(Sealed),
    TableEnd,
    /// A page of a section's directory (`record/page.rs`).
    Page {
        section: u32,
        bytes: &'a [u8],
    },
    /// A section's directory is complete.
    Sealed(Sealed),
}

/// Consecutive numbers of a stream in one section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) section: u32,
    /// About how many bytes of the section these records take; exact for a run that was never cut.
    pub(crate) bytes: u32,
}

/// Which records of the log a directory is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DirectoryAt {
    pub(crate) pages: Vec<PageAt>,
}

impl DirectoryAt {
    /// Which page names a record of a stream, if it is named.
    pub(crate) fn page_of(&self, stream: u64, number: u64) -> Option<usize> {
        let is_before = |page: &PageAt| (page.stream, page.number) <= (stream, number);
        self.pages.partition_point(is_before).checked_sub(1)
    }
}

/// A page of a directory, by the first record that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageAt {
    pub(crate) stream: u64,
    pub(crate) number: u64,
    /// The record that has the page.
    pub(crate) lsn: Lsn,
}

/// A section whose directory is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) number: u32,
    pub(crate) first: Lsn,
    /// The first record after it.
    pub(crate) end: Lsn,
    pub(crate) bytes: u64,
    pub(crate) written: Arc<DirectoryAt>,
}

/// Why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A version or a change that this program does not know.
    Unknown(String),
    /// Bytes that no version writes; a sentence.
    Malformed(&'static str),
}

/// Encodes the head of the record that gets this LSN.
pub(crate) fn put_head(out: &mut Vec<u8>, head: Head, lsn: Lsn) {
    out.push(FIRST_BYTE);
    put(out, u64::from(head.section));
    put(out, lsn.get() - head.replay_from.get());
}

/// Encodes what stands before the bytes of an appended record.
pub(crate) fn put_append_head(out: &mut Vec<u8>, stream: u64, number: u64, bytes: usize) {
    out.push(APPEND);
    [stream, number, bytes as u64].into_iter().for_each(|number| put(out, number));
}

impl<'a> Change<'a> {
    /// The stream that it is of, if it is one that a caller makes.
    pub(crate) fn stream(&self) -> Option<u64> {
        match *self {
            Self::Create { stream, .. }
            | Self::Append { stream, .. }
            | Self::Note { stream, .. }
            | Self::TruncateBefore { stream, .. }
            | Self::TruncateAfter { stream, .. }
            | Self::Restart { stream, .. }
            | Self::Remove { stream } => Some(stream),
            _ => None,
        }
    }

    /// The record that it has: its stream, its number, its bytes.
    pub(crate) fn record(&self) -> Option<(u64, u64, &'a [u8])> {
        match *self {
            Self::Append { stream, number, bytes } | Self::Moved { stream, number, bytes, .. } => {
                Some((stream, number, bytes))
            }
            _ => None,
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, numbers: &[u64]| {
            out.push(kind);
            numbers.iter().for_each(|number| put(out, *number));
        };
        match self {
            Self::Create { stream, first } => head(CREATE, &[*stream, *first]),
            Self::Append { stream, number, bytes } => {
                put_append_head(out, *stream, *number, bytes.len());
                out.extend_from_slice(bytes);
            }
            Self::Note { stream, bytes } => {
                head(NOTE, &[*stream]);
                put_bytes(out, bytes);
            }
            Self::TruncateBefore { stream, first } => head(TRUNCATE_BEFORE, &[*stream, *first]),
            Self::TruncateAfter { stream, next } => head(TRUNCATE_AFTER, &[*stream, *next]),
            Self::Restart { stream, first } => head(RESTART, &[*stream, *first]),
            Self::Remove { stream } => head(REMOVE, &[*stream]),
            Self::Moved { stream, number, source, bytes } => {
                head(MOVED, &[*stream, *number, u64::from(*source)]);
                put_bytes(out, bytes);
            }
            Self::Lost { stream, number, source } => {
                head(LOST, &[*stream, *number, u64::from(*source)]);
            }
            Self::TableBegin => {
                head(TABLE_BEGIN, &[]);
                out.extend_from_slice(MAGIC);
            }
            Self::TableStream { stream, first, next, cut, note, from, runs } => {
                head(TABLE_STREAM, &[*stream, *first, *next, cut.get(), *from]);
                put_bytes(out, note);
                put_runs(out, runs);
            }
            Self::TableRuns { stream, from, to, runs } => {
                head(TABLE_RUNS, &[*stream, *from, *to]);
                put_runs(out, runs);
            }
            Self::TableSection(section) => {
                head(TABLE_SECTION, &[]);
                section.put(out);
            }
            Self::TableEnd => head(TABLE_END, &[]),
            Self::Page { section, bytes } => {
                head(PAGE, &[u64::from(*section)]);
                put_bytes(out, bytes);
            }
            Self::Sealed(section) => {
                head(SEALED, &[]);
                section.put(out);
            }
        }
    }
}

/// Encodes runs, each by its distance from the one before it. Few bytes make openings faster: a
/// large table is mostly runs, and an opening reads all that was written since the table began.
fn put_runs(out: &mut Vec<u8>, runs: &[Run]) {
    put(out, runs.len() as u64);
    let (mut first, mut section) = (0, 0);
    for run in runs {
        put(out, run.first.wrapping_sub(first));
        // Signed, since a moved record is in a later section than the numbers after it.
        put_signed(out, i64::from(run.section) - section);
        put(out, u64::from(run.bytes));
        (first, section) = (run.first, i64::from(run.section));
    }
}

impl Sealed {
    fn put(&self, out: &mut Vec<u8>) {
        for number in [u64::from(self.number), self.first.get(), self.end.get(), self.bytes] {
            put(out, number);
        }
        let pages = &self.written.pages;
        put(out, pages.len() as u64);
        for page in pages {
            put(out, page.stream);
            put(out, page.number);
            put(out, page.lsn.get());
        }
    }
}

/// The changes of a record, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Changes<'a> {
    rest: Rest<'a>,
}

/// Decodes the head of the record with this LSN.
pub(crate) fn decode(bytes: &[u8], lsn: Lsn) -> Result<(Head, Changes<'_>), Flaw> {
    let mut rest = Rest(bytes);
    match rest.byte() {
        Some(FIRST_BYTE) => {}
        Some(byte) if FIRST_BYTES.contains(&byte) => {
            return Err(Flaw::Unknown(format!("version {}", byte & 0xf)));
        }
        _ => return Err(Flaw::Malformed("it is no record of streams")),
    }
    let section = rest.number_u32().ok_or(Flaw::Malformed("its section is no number"))?;
    let behind = rest.number().ok_or(Flaw::Malformed("its place of replay is no number"))?;
    let replay_from = lsn
        .get()
        .checked_sub(behind)
        .filter(|from| *from > 0)
        .ok_or(Flaw::Malformed("its place of replay lies before the first record"))?;
    Ok((Head { section, replay_from: Lsn::new(replay_from) }, Changes { rest }))
}

/// The changes in bytes without a head.
pub(crate) fn changes(bytes: &[u8]) -> Changes<'_> {
    Changes { rest: Rest(bytes) }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, Flaw>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.rest.byte()?;
        let change = match self.change(kind) {
            Ok(Some(change)) => Ok(change),
            Ok(None) => Err(Flaw::Malformed("a change is cut short")),
            Err(flaw) => Err(flaw),
        };
        if change.is_err() {
            self.rest = Rest(&[]);
        }
        Some(change)
    }
}

impl<'a> Changes<'a> {
    fn change(&mut self, kind: u8) -> Result<Option<Change<'a>>, Flaw> {
        let rest = &mut self.rest;
        let mut read = || {
            Some(match kind {
                CREATE => Change::Create { stream: rest.number()?, first: rest.number()? },
                APPEND => Change::Append {
                    stream: rest.number()?,
                    number: rest.number()?,
                    bytes: rest.bytes()?,
                },
                NOTE => Change::Note { stream: rest.number()?, bytes: rest.bytes()? },
                TRUNCATE_BEFORE => {
                    Change::TruncateBefore { stream: rest.number()?, first: rest.number()? }
                }
                TRUNCATE_AFTER => {
                    Change::TruncateAfter { stream: rest.number()?, next: rest.number()? }
                }
                RESTART => Change::Restart { stream: rest.number()?, first: rest.number()? },
                REMOVE => Change::Remove { stream: rest.number()? },
                MOVED => Change::Moved {
                    stream: rest.number()?,
                    number: rest.number()?,
                    source: rest.number_u32()?,
                    bytes: rest.bytes()?,
                },
                LOST => Change::Lost {
                    stream: rest.number()?,
                    number: rest.number()?,
                    source: rest.number_u32()?,
                },
                TABLE_BEGIN => {
                    let (magic, behind) = rest.0.split_at_checked(MAGIC.len())?;
                    if magic != MAGIC {
                        return None;
                    }
                    rest.0 = behind;
                    Change::TableBegin
                }
                TABLE_STREAM => Change::TableStream {
                    stream: rest.number()?,
                    first: rest.number()?,
                    next: rest.number()?,
                    cut: Lsn::new(rest.number()?),
                    from: rest.number()?,
                    note: rest.bytes()?,
                    runs: runs(rest)?,
                },
                TABLE_RUNS => Change::TableRuns {
                    stream: rest.number()?,
                    from: rest.number()?,
                    to: rest.number()?,
                    runs: runs(rest)?,
                },
                TABLE_SECTION => Change::TableSection(sealed(rest)?),
                TABLE_END => Change::TableEnd,
                PAGE => Change::Page { section: rest.number_u32()?, bytes: rest.bytes()? },
                SEALED => Change::Sealed(sealed(rest)?),
                _ => return None,
            })
        };
        match read() {
            None if !is_known(kind) => Err(Flaw::Unknown(format!("a change of kind {kind}"))),
            change => Ok(change),
        }
    }
}

fn is_known(kind: u8) -> bool {
    matches!(kind, CREATE..=LOST | TABLE_BEGIN..=TABLE_END | PAGE..=SEALED)
}

/// A count of items that follow: never more than there are bytes.
fn count(rest: &mut Rest<'_>) -> Option<usize> {
    usize::try_from(rest.number()?).ok().filter(|count| *count <= rest.0.len())
}

fn runs(rest: &mut Rest<'_>) -> Option<Vec<Run>> {
    let (mut first, mut section) = (0_u64, 0_i64);
    (0..count(rest)?)
        .map(|_| {
            first = first.checked_add(rest.number()?)?;
            section = section.checked_add(rest.signed()?)?;
            Some(Run { first, section: u32::try_from(section).ok()?, bytes: rest.number_u32()? })
        })
        .collect()
}

fn sealed(rest: &mut Rest<'_>) -> Option<Sealed> {
    let (number, first, end, bytes) =
        (rest.number_u32()?, rest.number()?, rest.number()?, rest.number()?);
    let pages = (0..count(rest)?)
        .map(|_| {
            Some(PageAt {
                stream: rest.number()?,
                number: rest.number()?,
                lsn: Lsn::new(rest.number()?),
            })
        })
        .collect::<Option<_>>()?;
    let written = Arc::new(DirectoryAt { pages });
    Some(Sealed { number, first: Lsn::new(first), end: Lsn::new(end), bytes, written })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Change<'static>> {
        let runs =
            vec![Run { first: 7, section: 3, bytes: 900 }, Run { first: 9, section: 4, bytes: 1 }];
        let pages = vec![PageAt { stream: 1, number: 7, lsn: Lsn::new(88) }];
        let written = Arc::new(DirectoryAt { pages });
        let sealed =
            Sealed { number: 3, first: Lsn::new(5), end: Lsn::new(80), bytes: 1 << 40, written };
        vec![
            Change::Create { stream: u64::MAX, first: 1 },
            Change::Append { stream: 1, number: 300, bytes: b"payload" },
            Change::Note { stream: 0, bytes: b"" },
            Change::TruncateBefore { stream: 2, first: u64::MAX },
            Change::TruncateAfter { stream: 2, next: 0 },
            Change::Restart { stream: 2, first: 9 },
            Change::Remove { stream: 128 },
            Change::Moved { stream: 1, number: 7, source: 3, bytes: b"m" },
            Change::Lost { stream: 1, number: 300, source: 3 },
            Change::TableBegin,
            Change::TableStream {
                stream: 1,
                first: 7,
                next: 10,
                cut: Lsn::new(900),
                note: b"n",
                from: 2,
                runs: runs.clone(),
            },
            Change::TableRuns { stream: 1, from: 0, to: 2, runs },
            Change::TableSection(sealed.clone()),
            Change::TableEnd,
            Change::Page { section: 4, bytes: b"page" },
            Change::Sealed(sealed),
        ]
    }

    fn encoded() -> Vec<u8> {
        let mut bytes = Vec::new();
        let head = Head { section: 300, replay_from: Lsn::new(4) };
        put_head(&mut bytes, head, Lsn::new(1000));
        all().iter().for_each(|change| change.put(&mut bytes));
        bytes
    }

    #[test]
    fn every_change_reads_back() {
        let bytes = encoded();
        let (head, changes) = decode(&bytes, Lsn::new(1000)).unwrap();
        assert_eq!(head, Head { section: 300, replay_from: Lsn::new(4) });
        assert_eq!(changes.map(Result::unwrap).collect::<Vec<_>>(), all());
    }

    #[test]
    fn bytes_that_are_cut_or_changed_never_panic() {
        let bytes = encoded();
        for end in 0..bytes.len() {
            if let Ok((_, changes)) = decode(&bytes[..end], Lsn::new(1000)) {
                let read = changes.filter(Result::is_ok).count();
                assert!(read <= all().len());
            }
        }
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[place] ^= 1 << bit;
                if let Ok((_, changes)) = decode(&bytes, Lsn::new(1000)) {
                    let _ = changes.count();
                }
            }
        }
        assert_eq!(decode(&[0xa2], Lsn::new(1)).unwrap_err(), Flaw::Unknown("version 2".into()));
        let foreign = Flaw::Malformed("it is no record of streams");
        assert_eq!(decode(b"a line", Lsn::new(1)).unwrap_err(), foreign);
    }
}
