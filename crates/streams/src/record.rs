//! The bytes of the log's records: a head, then changes. docs/streams.md has the format.
//!
//! *Owns*: encoding and checked decoding. *May not touch*: what changes mean (`state.rs`), files.
//! Pure functions; no bytes make them panic.

pub(crate) mod bytes;
pub(crate) mod page;

use std::sync::Arc;

use inkstone::Lsn;

use self::bytes::{NUMBER_BYTES_MAX, Rest, put, put_signed};

/// The first byte of every record: a record of streams, in the first version.
const FIRST_BYTE: u8 = 0xa1;
/// The first bytes of all versions, known or not.
const FIRST_BYTES: std::ops::RangeInclusive<u8> = 0xa0..=0xaf;
/// The largest head.
pub(crate) const HEAD_BYTES_MAX: usize = 1 + 2 * NUMBER_BYTES_MAX;
/// More bytes than a head and a change add to a record's bytes, also when the record is moved.
pub(crate) const RESERVE_BYTES: usize = 256;

/// The kind of an append.
const APPEND: u8 = 2;

/// What every record begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The section that the record belongs to.
    pub(crate) section: u32,
    /// Where an opening begins if this is the last record.
    pub(crate) replay_from: Lsn,
}

/// Makes the changes from a table: what a look at a record calls each, the byte of its kind, and its
/// fields in the order in which they are encoded.
macro_rules! changes {
    ($(
        $(#[$doc:meta])*
        $said:literal $kind:tt $name:ident { $($field:ident: $type:ty),* }
    )*) => {
        /// A change, as decoded.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Change<'a> {
            $($(#[$doc])* $name { $($field: $type),* },)*
        }

        impl Change<'_> {
            pub(crate) fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name { $($field),* } => {
                        out.push($kind);
                        $($field.put(out);)*
                    })*
                }
            }

            /// Its name, and its numbers. A length is in bytes.
            pub(crate) fn said(&self) -> (&'static str, Vec<(&'static str, u64)>) {
                let mut numbers = Vec::new();
                let name = match self {
                    $(Self::$name { $($field),* } => {
                        $($field.say(stringify!($field), &mut numbers);)*
                        $said
                    })*
                };
                (name, numbers)
            }
        }

        impl<'a> Changes<'a> {
            #[inline]
            fn change(&mut self, kind: u8) -> Result<Change<'a>, Flaw> {
                let rest = &mut self.rest;
                let mut read = || {
                    Some(match kind {
                        $($kind => Ok(Change::$name { $($field: Field::take(rest)?),* }),)*
                        _ => Err(Flaw::Unknown(format!("a change of kind {kind}"))),
                    })
                };
                read().unwrap_or(Err(Flaw::Malformed("a change is cut short")))
            }
        }
    };
}

changes! {
    "create" 1 Create { stream: u64, first: u64 }
    "append" APPEND Append { stream: u64, number: u64, bytes: &'a [u8] }
    /// Empty bytes remove the note.
    "note" 3 Note { stream: u64, bytes: &'a [u8] }
    "truncate before" 4 TruncateBefore { stream: u64, first: u64 }
    "truncate after" 5 TruncateAfter { stream: u64, next: u64 }
    "restart" 6 Restart { stream: u64, next: u64 }
    "remove" 7 Remove { stream: u64 }
    /// A record of an old section, whose place is here from now on.
    "moved" 8 Moved { stream: u64, number: u64, source: u32, bytes: &'a [u8] }
    /// A record of an old section that could not be read there, and is lost.
    "lost" 9 Lost { stream: u64, number: u64, source: u32 }
    /// A table of all streams begins: each piece is true as of its own record.
    "table begins" 16 TableBegin { magic: Magic }
    /// Its runs before `from` came in `TableRuns`; 0 if these are all.
    "stream of a table" 17 TableStream {
        stream: u64,
        first: u64,
        next: u64,
        cut: Lsn,
        from: u64,
        note: &'a [u8],
        runs: Vec<Run>
    }
    /// The runs of the numbers from `from` up to `to` of a stream whose row comes later. They begin
    /// anew at 0.
    "runs of a table" 18 TableRuns { stream: u64, from: u64, to: u64, runs: Vec<Run> }
    "section of a table" 19 TableSection { sealed: Sealed }
    "table ends" 20 TableEnd {}
    /// A page of a section's directory (`record/page.rs`).
    "page of a directory" 24 Page { section: u32, bytes: &'a [u8] }
    /// A section's directory is complete.
    "directory is complete" 25 Sealed { sealed: Sealed }
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
}

/// A field of a change.
trait Field<'a>: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// `None` for bytes that are no such field.
    fn take(rest: &mut Rest<'a>) -> Option<Self>;
    /// Adds its numbers, as a look at a record names them.
    fn say(&self, name: &'static str, numbers: &mut Vec<(&'static str, u64)>);
}

impl Field<'_> for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, *self);
    }

    #[inline]
    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        rest.number()
    }

    fn say(&self, name: &'static str, numbers: &mut Vec<(&'static str, u64)>) {
        numbers.push((name, *self));
    }
}

impl Field<'_> for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, u64::from(*self));
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        Self::try_from(rest.number()?).ok()
    }

    fn say(&self, name: &'static str, numbers: &mut Vec<(&'static str, u64)>) {
        numbers.push((name, u64::from(*self)));
    }
}

impl Field<'_> for Lsn {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.get());
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        rest.number().map(Self::new)
    }

    fn say(&self, name: &'static str, numbers: &mut Vec<(&'static str, u64)>) {
        numbers.push((name, self.get()));
    }
}

/// With their length before them.
impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.len() as u64);
        out.extend_from_slice(self);
    }

    #[inline]
    fn take(rest: &mut Rest<'a>) -> Option<Self> {
        let len = usize::try_from(rest.number()?).ok()?;
        rest.bytes(len)
    }

    fn say(&self, _: &'static str, numbers: &mut Vec<(&'static str, u64)>) {
        numbers.push(("length", self.len() as u64));
    }
}

/// Each by its distance from the one before it. Few bytes make openings faster: a large table is
/// mostly runs, and an opening reads all that was written since the table began.
impl Field<'_> for Vec<Run> {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.len() as u64);
        let (mut first, mut section) = (0, 0);
        for run in self {
            put(out, run.first.wrapping_sub(first));
            // Signed, since a moved record is in a later section than the numbers after it.
            put_signed(out, i64::from(run.section) - section);
            put(out, u64::from(run.bytes));
            (first, section) = (run.first, i64::from(run.section));
        }
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (mut first, mut section) = (0_u64, 0_i64);
        (0..count(rest)?)
            .map(|_| {
                first = first.checked_add(rest.number()?)?;
                section = section.checked_add(rest.signed()?)?;
                let (section, bytes) = (u32::try_from(section).ok()?, u32::take(rest)?);
                Some(Run { first, section, bytes })
            })
            .collect()
    }

    fn say(&self, name: &'static str, numbers: &mut Vec<(&'static str, u64)>) {
        numbers.push((name, self.len() as u64));
    }
}

impl Field<'_> for Sealed {
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

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (number, first, end) = (u32::take(rest)?, Lsn::take(rest)?, Lsn::take(rest)?);
        let bytes = rest.number()?;
        let pages = (0..count(rest)?)
            .map(|_| {
                let (stream, number) = (rest.number()?, rest.number()?);
                Some(PageAt { stream, number, lsn: Lsn::take(rest)? })
            })
            .collect::<Option<_>>()?;
        Some(Self { number, first, end, bytes, written: Arc::new(DirectoryAt { pages }) })
    }

    fn say(&self, _: &'static str, numbers: &mut Vec<(&'static str, u64)>) {
        numbers.extend([
            ("section", u64::from(self.number)),
            ("first_lsn", self.first.get()),
            ("end_lsn", self.end.get()),
            ("bytes", self.bytes),
            ("pages", self.written.pages.len() as u64),
        ]);
    }
}

/// What the first change of every table contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Magic;

const MAGIC: &[u8] = b"INKSTREAMS\x1a\x01";

impl Field<'_> for Magic {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        (rest.bytes(MAGIC.len())? == MAGIC).then_some(Self)
    }

    fn say(&self, _: &'static str, _: &mut Vec<(&'static str, u64)>) {}
}

/// A count of items that follow: never more than there are bytes.
fn count(rest: &mut Rest<'_>) -> Option<usize> {
    usize::try_from(rest.number()?).ok().filter(|count| *count <= rest.0.len())
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
    let section = u32::take(&mut rest).ok_or(Flaw::Malformed("its section is no number"))?;
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
        let change = self.change(kind);
        if change.is_err() {
            self.rest = Rest(&[]);
        }
        Some(change)
    }
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
            Change::Restart { stream: 2, next: 9 },
            Change::Remove { stream: 128 },
            Change::Moved { stream: 1, number: 7, source: 3, bytes: b"m" },
            Change::Lost { stream: 1, number: 300, source: 3 },
            Change::TableBegin { magic: Magic },
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
            Change::TableSection { sealed: sealed.clone() },
            Change::TableEnd {},
            Change::Page { section: 4, bytes: b"page" },
            Change::Sealed { sealed },
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
