//! What streams must hold, worked out without any.
//!
//! *Owns*: the contract as a model: what streams hold after each change. *May not touch*: disks,
//! who calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use inkstone_streams::{Batch, Error, StreamsReader};

use crate::states::Thing;

/// A stream as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stream {
    pub first: u64,
    pub note: Vec<u8>,
    pub records: Vec<Arc<[u8]>>,
}

impl Stream {
    pub fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Its records from this number on.
    pub fn from(&self, number: u64) -> &[Arc<[u8]>] {
        self.records.get(number.saturating_sub(self.first) as usize..).unwrap_or_default()
    }
}

/// All streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model(pub BTreeMap<u64, Stream>);

/// One change, with its own bytes.
#[derive(Debug, Clone)]
pub enum Step {
    Create(u64, u64),
    Append(u64, Arc<[u8]>),
    Note(u64, Vec<u8>),
    TruncateBefore(u64, u64),
    TruncateAfter(u64, u64),
    Restart(u64, u64),
    Remove(u64),
}

impl Model {
    /// Whether the change may be made; then it is made.
    pub fn make(&mut self, step: &Step) -> bool {
        match step {
            Step::Create(id, first) => {
                if self.0.contains_key(id) {
                    return false;
                }
                self.0.insert(*id, Stream { first: *first, ..Stream::default() });
            }
            Step::Append(id, bytes) => {
                let Some(stream) = self.0.get_mut(id) else { return false };
                // No record has the highest number of all.
                if stream.next() == u64::MAX {
                    return false;
                }
                stream.records.push(Arc::clone(bytes));
            }
            Step::Note(id, note) => {
                let Some(stream) = self.0.get_mut(id) else { return false };
                stream.note.clone_from(note);
            }
            Step::TruncateBefore(id, first) => {
                let Some(stream) = self.0.get_mut(id) else { return false };
                if *first > stream.next() {
                    return false;
                }
                let gone = first.saturating_sub(stream.first);
                stream.records.drain(..gone as usize);
                stream.first += gone;
            }
            Step::TruncateAfter(id, last) => {
                let Some(stream) = self.0.get_mut(id) else { return false };
                let Some(next) = last.checked_add(1) else { return false };
                if next < stream.first || next > stream.next() {
                    return false;
                }
                stream.records.truncate((next - stream.first) as usize);
            }
            Step::Restart(id, first) => {
                let Some(stream) = self.0.get_mut(id) else { return false };
                stream.records.clear();
                stream.first = *first;
            }
            Step::Remove(id) => return self.0.remove(id).is_some(),
        }
        true
    }

    /// What a reader shows.
    pub fn of(reader: &StreamsReader) -> Result<Self, String> {
        let mut model = Self::default();
        let said = |error: Error| error.to_string();
        for id in reader.ids(None, usize::MAX).map_err(said)? {
            let bounds = reader.bounds(id).map_err(said)?;
            let mut stream = Stream {
                first: bounds.first,
                note: reader.note(id).map_err(said)?,
                records: vec![],
            };
            for record in reader.records(id, bounds.first) {
                let record = record.map_err(|error| format!("stream {id}: {error}"))?;
                if record.number != stream.next() {
                    return Err(format!("stream {id}: {} after {}", record.number, stream.next()));
                }
                stream.records.push(record.bytes.into());
            }
            if stream.next() != bounds.next {
                return Err(format!("stream {id}: read to {} of {bounds:?}", stream.next()));
            }
            // By number, in the middle.
            if !bounds.is_empty() {
                let number = bounds.first + bounds.len() / 2;
                let found = reader.get(id, number).map_err(said)?;
                if *found != *stream.records[(number - bounds.first) as usize] {
                    return Err(format!("stream {id}: {number} by itself is another record"));
                }
            }
            model.0.insert(id, stream);
        }
        Ok(model)
    }
}

impl Thing for Model {
    fn may_be_shown_as(&self, shown: &Self) -> bool {
        self == shown
    }

    fn brief(&self) -> String {
        let brief = |(id, stream): (&u64, &Stream)| {
            let (first, next, note) = (stream.first, stream.next(), stream.note.len());
            format!("stream {id}: {first}..{next}, a note of {note}")
        };
        self.0.iter().map(brief).collect::<Vec<_>>().join("; ")
    }
}

/// The batch of these steps.
pub fn batch(steps: &[Step]) -> Batch<'_> {
    let mut batch = Batch::new();
    for step in steps {
        match step {
            Step::Create(id, first) => batch.create(*id, *first),
            Step::Append(id, bytes) => batch.append(*id, bytes),
            Step::Note(id, note) => batch.note(*id, note),
            Step::TruncateBefore(id, first) => batch.truncate_before(*id, *first),
            Step::TruncateAfter(id, last) => batch.truncate_after(*id, *last),
            Step::Restart(id, first) => batch.restart_at(*id, *first),
            Step::Remove(id) => batch.remove(*id),
        };
    }
    batch
}
