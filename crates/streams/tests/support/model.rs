//! The model of streams, random changes of it, and what an open log with streams shows.
//!
//! *Owns*: what streams hold after each change. *May not touch*: disks, the crate's insides.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::rc::Rc;

use inkstone_streams::{Batch, Error, Streams, StreamsReader};

/// A stream as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stream {
    pub(crate) first: u64,
    pub(crate) note: Vec<u8>,
    pub(crate) records: Vec<Rc<[u8]>>,
}

impl Stream {
    pub(crate) fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

/// All streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Model(pub(crate) BTreeMap<u64, Stream>);

/// One change, with its own bytes.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create(u64, u64),
    Append(u64, Rc<[u8]>),
    Note(u64, Vec<u8>),
    TruncateBefore(u64, u64),
    TruncateAfter(u64, u64),
    Restart(u64, u64),
    Remove(u64),
}

impl Model {
    /// Whether the change may be made; then it is made.
    pub(crate) fn make(&mut self, step: &Step) -> bool {
        match step {
            Step::Create(id, first) => {
                if self.0.contains_key(id) {
                    return false;
                }
                self.0.insert(*id, Stream { first: *first, ..Stream::default() });
            }
            Step::Append(id, bytes) => {
                let Some(stream) = self.0.get_mut(id) else { return false };
                stream.records.push(Rc::clone(bytes));
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
                let next = last + 1;
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
    pub(crate) fn of(reader: &StreamsReader) -> Result<Self, String> {
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

    /// Where it differs.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        for id in self.0.keys().chain(other.0.keys()) {
            match (self.0.get(id), other.0.get(id)) {
                (Some(one), Some(two)) if one == two => {}
                (Some(one), Some(two)) => {
                    return Some(format!(
                        "stream {id}: {}..{} and {}..{}, notes {:?} and {:?}, the same records {}",
                        one.first,
                        one.next(),
                        two.first,
                        two.next(),
                        one.note.len(),
                        two.note.len(),
                        one.records == two.records
                    ));
                }
                (one, _) => {
                    return Some(format!(
                        "stream {id} is in {}",
                        if one.is_some() { "one" } else { "the other" }
                    ));
                }
            }
        }
        None
    }
}

/// Draws changes.
pub(crate) struct Draw {
    pub(crate) random: fastrand::Rng,
    counter: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), counter: 0 }
    }

    fn record(&mut self) -> Rc<[u8]> {
        self.counter += 1;
        let size = match self.random.u32(..40) {
            0 => self.random.usize(3000..9000),
            1..4 => self.random.usize(300..1500),
            4 => 0,
            _ => self.random.usize(8..120),
        };
        let mut bytes = vec![self.counter as u8; size];
        let stamp = self.counter.to_le_bytes();
        let len = size.min(8);
        bytes[..len].copy_from_slice(&stamp[..len]);
        bytes.into()
    }

    /// A batch, mostly one that may be made.
    pub(crate) fn steps(&mut self, model: &Model) -> Vec<Step> {
        let ids: Vec<u64> = model.0.keys().copied().collect();
        let count = match self.random.u32(..10) {
            0..5 => 1,
            5..8 => self.random.usize(1..6),
            _ => self.random.usize(1..40),
        };
        let mut ahead = model.clone();
        (0..count)
            .map(|_| {
                let id = match self.random.u32(..30) {
                    0 => self.random.u64(..20),
                    1 => u64::MAX - self.random.u64(..2),
                    _ if ids.is_empty() => self.random.u64(..12),
                    // The first streams are seldom written: they idle.
                    _ => ids[self.random.usize(..ids.len()).max(self.random.usize(..ids.len()))],
                };
                let step = self.step(&ahead, id);
                ahead.make(&step);
                step
            })
            .collect()
    }

    fn step(&mut self, model: &Model, id: u64) -> Step {
        let Some(stream) = model.0.get(&id) else {
            return match self.random.u32(..20) {
                0 => Step::Append(id, self.record()),
                1 => Step::Remove(id),
                _ => Step::Create(id, self.random.u64(..5) * 1000),
            };
        };
        let (first, next) = (stream.first, stream.next());
        match self.random.u32(..100) {
            0..70 => Step::Append(id, self.record()),
            70..76 => Step::Note(id, vec![self.random.u8(..); self.random.usize(..100)]),
            76..88 => Step::TruncateBefore(id, self.random.u64(first..=next)),
            88..93 => {
                let next = self.random.u64(first.max(1)..=next.max(1));
                Step::TruncateAfter(id, next - 1)
            }
            93 => Step::Restart(id, self.random.u64(..5000)),
            94 => Step::Remove(id),
            95 => Step::TruncateBefore(id, next + 1),
            96 => Step::TruncateAfter(id, next + 1),
            97 => Step::Create(id, 3),
            _ => Step::Append(id, self.record()),
        }
    }
}

/// The batch of these steps.
pub(crate) fn batch(steps: &[Step]) -> Batch<'_> {
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

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Done,
    /// It may not be made, and nothing has changed.
    Refused,
    /// The log has failed: the changes may be there.
    Failed,
}

/// Makes the batch here and in the model; both must agree on whether it may be made.
pub(crate) fn make(
    streams: &Streams,
    model: &mut Model,
    steps: &[Step],
    waits: bool,
) -> Result<Made, String> {
    let mut after = model.clone();
    let may_be = steps.iter().all(|step| after.make(step));
    let answer = streams.apply(&batch(steps)).and_then(
        |written| {
            if waits { written.wait() } else { Ok(()) }
        },
    );
    match answer {
        Ok(()) if may_be => {
            *model = after;
            Ok(Made::Done)
        }
        Ok(()) => Err(format!("{steps:?} was made, and must not be")),
        Err(Error::TooLarge { .. }) => Ok(Made::Refused),
        Err(Error::Log(inkstone::Error::Poisoned { .. })) => Ok(Made::Failed),
        Err(_) if !may_be => Ok(Made::Refused),
        Err(error) => Err(format!("{steps:?}: {error}")),
    }
}
