//! A batch: changes of streams that are made together or not at all.
//!
//! *Owns*: the changes as the caller gives them, their order, and the bounds of streams behind each
//! of them. *May not touch*: what they mean (`state.rs`), the state, the log.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::house::kept::Effect;
use crate::record::{Change, RESERVE_BYTES, put_append_head};
use crate::state::{State, made};
use crate::words::{Bounds, NOTE_BYTES_MAX};

/// Changes of any number of streams, made as one record of the log: after a crash all of them are
/// there, or none. They are made in the order in which they were added. The batch borrows the
/// bytes. Adding checks nothing: [`Streams::apply`](crate::Streams::apply) returns the errors.
///
/// ```
/// # fn main() -> inkstone_streams::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let streams = inkstone_streams::Streams::open(directory.path(), Default::default())?;
/// use inkstone_streams::Batch;
///
/// let mut batch = Batch::new();
/// batch.create(7, 1).append(7, b"an entry").note(7, b"term 3, voted for 2");
/// streams.apply(&batch)?.wait()?; // durable
/// # streams.close()
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch<'a> {
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Clone)]
enum Step<'a> {
    Append { stream: u64, expected: Option<u64>, parts: [&'a [u8]; 2] },
    TruncateAfter { stream: u64, last: u64 },
    Other(Change<'a>),
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, step: Step<'a>) -> &mut Self {
        self.steps.push(step);
        self
    }

    /// Creates a stream whose first record gets the number `first`.
    pub fn create(&mut self, stream: u64, first: u64) -> &mut Self {
        self.add(Step::Other(Change::Create { stream, first }))
    }

    /// Appends a record; it gets the next number of its stream.
    pub fn append(&mut self, stream: u64, bytes: &'a [u8]) -> &mut Self {
        self.add(Step::Append { stream, expected: None, parts: [bytes, b""] })
    }

    /// Appends a record that must get this number: any other is [`Error::OtherNumber`].
    pub fn append_at(&mut self, stream: u64, number: u64, bytes: &'a [u8]) -> &mut Self {
        self.append_parts_at(stream, number, [bytes, b""])
    }

    /// As [`Batch::append_at`], for a record in two parts.
    #[doc(hidden)]
    pub fn append_parts_at(&mut self, stream: u64, number: u64, parts: [&'a [u8]; 2]) -> &mut Self {
        self.add(Step::Append { stream, expected: Some(number), parts })
    }

    /// Replaces the note of a stream; an empty one removes it.
    pub fn note(&mut self, stream: u64, bytes: &'a [u8]) -> &mut Self {
        self.add(Step::Other(Change::Note { stream, bytes }))
    }

    /// Truncates the records before `first`. If they are gone already, nothing changes.
    pub fn truncate_before(&mut self, stream: u64, first: u64) -> &mut Self {
        self.add(Step::Other(Change::TruncateBefore { stream, first }))
    }

    /// Truncates the records after `last`; the next record gets the number after it. All records of
    /// a stream that begins at 0 are truncated by [`Batch::restart_at`].
    pub fn truncate_after(&mut self, stream: u64, last: u64) -> &mut Self {
        self.add(Step::TruncateAfter { stream, last })
    }

    /// Truncates all records; the next one gets the number `first`, which may be any, as after the
    /// installation of a snapshot. The note stays.
    pub fn restart_at(&mut self, stream: u64, first: u64) -> &mut Self {
        self.add(Step::Other(Change::Restart { stream, next: first }))
    }

    /// Removes a stream with its records and its note.
    pub fn remove(&mut self, stream: u64) -> &mut Self {
        self.add(Step::Other(Change::Remove { stream }))
    }

    /// Whether it makes something live that did not.
    pub(crate) fn adds(&self) -> bool {
        self.steps.iter().any(|step| {
            use Change::{Create, Note};
            matches!(step, Step::Append { .. } | Step::Other(Create { .. } | Note { .. }))
        })
    }

    /// Whether it only makes room: a full disk must not refuse it.
    pub(crate) fn frees(&self) -> bool {
        use Change::{Remove, Restart, TruncateBefore};
        let adds = |step: &Step<'_>| {
            matches!(step, Step::Append { .. } | Step::Other(Change::Create { .. }))
        };
        let frees = |step: &Step<'_>| match step {
            Step::TruncateAfter { .. } => true,
            Step::Other(change) => {
                matches!(change, TruncateBefore { .. } | Restart { .. } | Remove { .. })
            }
            Step::Append { .. } => false,
        };
        self.steps.iter().any(frees) && !self.steps.iter().any(adds)
    }

    /// What one that frees does on a full disk.
    pub(crate) fn effect(&self, state: &State) -> Effect {
        use Change::{Remove, Restart, TruncateBefore};
        let emptied = self.steps.iter().filter_map(|step| {
            let (stream, from, to) = match *step {
                Step::Other(TruncateBefore { stream, first }) => (stream, first, u64::MAX),
                Step::Other(Restart { stream, .. } | Remove { stream }) => (stream, u64::MAX, 0),
                Step::TruncateAfter { stream, last } => (stream, 0, last.saturating_add(1)),
                Step::Append { .. } | Step::Other(_) => return None,
            };
            let Bounds { first, next } = state.bounds(stream).ok()?;
            (first < next && (from >= next || to <= first)).then_some(stream)
        });
        match emptied.collect::<BTreeSet<_>>().len() {
            0 => Effect::Truncates,
            emptied => Effect::Empties(emptied as u64),
        }
    }

    /// Encodes the changes, checked against the streams; returns the numbers of its records. A
    /// record must stay small enough that it can be moved later ([`RESERVE_BYTES`]).
    pub(crate) fn encode(
        &self,
        state: &State,
        record_bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<Vec<u64>> {
        if self.steps.is_empty() {
            return Err(Error::Empty);
        }
        state.touch_all(self.steps.iter().filter_map(|step| match step {
            Step::Append { stream, .. }
            | Step::TruncateAfter { stream, .. }
            | Step::Other(Change::TruncateBefore { stream, .. }) => Some(*stream),
            Step::Other(_) => None,
        }));
        let mut ahead = Ahead::new(state);
        let mut numbers = Vec::new();
        for step in &self.steps {
            match *step {
                Step::Append { stream, expected, parts } => {
                    let number = match expected {
                        Some(number) => number,
                        None => ahead.bounds(stream)?.next,
                    };
                    ahead.make(&Change::Append { stream, number, bytes: parts[0] })?;
                    numbers.push(number);
                    put_append_head(out, stream, number, parts[0].len() + parts[1].len());
                    parts.iter().for_each(|part| out.extend_from_slice(part));
                }
                Step::TruncateAfter { stream, last } => {
                    let Some(next) = last.checked_add(1) else {
                        let Bounds { next, .. } = ahead.bounds(stream)?;
                        return Err(Error::NotYet { stream, number: last, next });
                    };
                    let change = Change::TruncateAfter { stream, next };
                    ahead.make(&change)?;
                    change.put(out);
                }
                Step::Other(Change::TruncateBefore { stream, first }) => {
                    // One that was made already is no error.
                    let first = first.max(ahead.bounds(stream)?.first);
                    let change = Change::TruncateBefore { stream, first };
                    ahead.make(&change)?;
                    change.put(out);
                }
                Step::Other(ref change) => {
                    match *change {
                        Change::Create { .. } => ahead.put_where_the_first_begins(out),
                        Change::Note { stream, bytes } if bytes.len() > NOTE_BYTES_MAX => {
                            return Err(Error::NoteTooLarge { stream, bytes: bytes.len() });
                        }
                        _ => {}
                    }
                    ahead.make(change)?;
                    change.put(out);
                }
            }
            let bytes = (out.len() + RESERVE_BYTES) as u64;
            if bytes > record_bytes_max as u64 {
                return Err(Error::TooLarge { bytes, limit_bytes: record_bytes_max as u64 });
            }
        }
        Ok(numbers)
    }
}

/// The bounds of streams as they will be after the changes of a batch.
#[derive(Debug)]
struct Ahead<'a> {
    state: &'a State,
    /// The stream that was changed last: most batches have one.
    last: Option<(u64, Option<Bounds>)>,
    /// The others.
    changed: BTreeMap<u64, Option<Bounds>>,
}

impl<'a> Ahead<'a> {
    fn new(state: &'a State) -> Self {
        Self { state, last: None, changed: BTreeMap::new() }
    }

    fn bounds(&self, stream: u64) -> Result<Bounds> {
        let last = self.last.as_ref().filter(|(last, _)| *last == stream).map(|(_, bounds)| bounds);
        match last.or_else(|| self.changed.get(&stream)) {
            Some(bounds) => bounds.ok_or(Error::NoStream { stream }),
            None => self.state.bounds(stream),
        }
    }

    /// Before the creation of a second stream: the owner of the first one may have freed its front
    /// without a record, and an opening takes that for a truncation only in a log with one stream.
    fn put_where_the_first_begins(&self, out: &mut Vec<u8>) {
        let mut all = self.state.streams_after(None);
        if let (Some((stream, _)), None) = (all.next(), all.next())
            && let Ok(Bounds { first, .. }) = self.bounds(stream)
        {
            Change::TruncateBefore { stream, first }.put(out);
        }
    }

    /// Makes a change of a stream, if it may be made.
    fn make(&mut self, change: &Change<'_>) -> Result<()> {
        let Some(stream) = change.stream() else { return Ok(()) };
        let after = match (change, self.bounds(stream)) {
            (Change::Create { first, .. }, Err(_)) => Some(Bounds { first: *first, next: *first }),
            (_, before) => made(stream, before?, change)?,
        };
        if let Some((before, bounds)) = self.last.replace((stream, after))
            && before != stream
        {
            self.changed.insert(before, bounds);
        }
        Ok(())
    }
}
