//! What a log may hold: the records as they were appended, what of them is certain, and what an operation in flight may
//! or may not have done.
//!
//! *Owns*: the payloads, the set of allowed logs, comparing a log with it. *May not touch*: how the log came to be.

use std::sync::{Arc, LazyLock};

use inkstone::{Log, Lsn};
use inkstone_sim::SimDirectory;

/// Bytes of which every payload is a piece; the second half is zeros, which are the likeliest thing to be taken for
/// something else.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = fastrand::Rng::with_seed(0x7061_796C_6F61_6473);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(1 << 20).collect();
    bytes.resize((1 << 20) + (64 << 10), 0);
    bytes
});

/// The number of the record that is appended to see whether a log goes on.
pub(crate) const PROBE: u32 = u32::MAX;

/// A record that was appended. No two of a run have the same number, so that one which was cut off and comes back is
/// noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u32,
    pub(crate) bytes: usize,
    /// The next record is of the same batch.
    pub(crate) has_more: bool,
}

impl Record {
    pub(crate) fn probe() -> Self {
        Self { number: PROBE, bytes: 777, has_more: false }
    }

    pub(crate) fn payload(&self) -> &'static [u8] {
        let start = match self.number % 8 {
            5 => 1 << 20,
            _ => (self.number as usize).wrapping_mul(4099) % ((1 << 20) - (64 << 10)),
        };
        &BYTES[start..start + self.bytes]
    }
}

/// What a log showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A log as those know it who use it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// By LSN - 1; also those that were given up.
    pub(crate) records: Vec<Record>,
    pub(crate) first: u64,
    /// The last LSN of which somebody was told that it is durable.
    pub(crate) acked: u64,
    /// How many records were ever appended.
    pub(crate) numbers: u32,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    pub(crate) fn last(&self) -> u64 {
        self.records.len() as u64
    }

    /// A record that comes next.
    pub(crate) fn push(&mut self, bytes: usize, has_more: bool) {
        self.records.push(Record { number: self.numbers, bytes, has_more });
        self.numbers += 1;
    }

    /// Nothing is after `last` any more.
    pub(crate) fn cut(&mut self, last: u64) {
        self.records.truncate(last as usize);
        if let Some(record) = self.records.last_mut() {
            record.has_more = false;
        }
        self.acked = self.acked.min(last);
    }

    /// It has turned out what the log holds.
    pub(crate) fn settle(&mut self, shown: Shown) {
        self.cut(shown.last);
        self.first = shown.first;
        self.acked = shown.last;
    }

    /// What a crash may leave when nothing is going on.
    pub(crate) fn allowed(&self) -> Allowed {
        Allowed {
            records: self.records.as_slice().into(),
            at_least: self.acked,
            firsts: [self.first; 2],
            cut: None,
        }
    }
}

/// The logs that may be found.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    pub(crate) records: Arc<[Record]>,
    /// Up to here every record must be there...
    pub(crate) at_least: u64,
    /// Given up is everything before the one or the other: `truncate_before` is in flight if they differ.
    pub(crate) firsts: [u64; 2],
    /// ...unless `truncate_after` is in flight: then it may have left this as the last.
    pub(crate) cut: Option<u64>,
}

impl Allowed {
    fn at_most(&self) -> u64 {
        self.records.len() as u64
    }

    /// Exactly what was shown, nothing more.
    pub(crate) fn exactly(&self, shown: Shown) -> Self {
        let mut records = self.records[..shown.last as usize].to_vec();
        // A batch that was cut is a batch no more.
        records.last_mut().into_iter().for_each(|record| record.has_more = false);
        Self { records: records.into(), at_least: shown.last, firsts: [shown.first; 2], cut: None }
    }

    /// The log that turned out to be this one, and goes on.
    pub(crate) fn model(&self, shown: Shown, numbers: u32) -> Model {
        let mut model = Model { records: self.records.to_vec(), numbers, ..Model::new() };
        model.settle(shown);
        model
    }

    /// The probe is being appended as well.
    pub(crate) fn and_probe(&self) -> Self {
        let records: Vec<_> = self.records.iter().copied().chain([Record::probe()]).collect();
        Self { records: records.into(), ..self.clone() }
    }

    /// Everything that was appended is certain.
    pub(crate) fn all(&self) -> Self {
        Self { at_least: self.at_most(), ..self.clone() }
    }

    pub(crate) fn check_ends(&self, Shown { first, last }: Shown) -> Result<(), String> {
        let [old, new] = self.firsts;
        if first != old && first != new {
            return Err(format!("the first is {first}; it may be {old} or {new}"));
        }
        if first > last + 1 {
            return Err(format!("the first is {first} and the last {last}"));
        }
        if self.cut == Some(last) {
            return Ok(());
        }
        if last < self.at_least {
            return Err(format!("{} were acknowledged and {last} are there", self.at_least));
        }
        if last > self.at_most() {
            return Err(format!("{} were appended and {last} are there", self.at_most()));
        }
        match last.checked_sub(1).map(|index| self.records[index as usize]) {
            Some(record) if record.has_more => Err(format!("the log ends inside a batch, at {last}")),
            _ => Ok(()),
        }
    }

    /// Reads a log from `shown.first` to its end, which must be `shown.last`, and compares every record.
    pub(crate) fn check_records(&self, log: &Log<SimDirectory>, shown: Shown) -> Result<(), String> {
        self.check_ends(shown)?;
        let mut next = shown.first;
        for record in log.reader().records(Lsn::new(shown.first)) {
            let record = record.map_err(|error| format!("LSN {next} cannot be read: {error}"))?;
            if record.lsn.get() != next {
                return Err(format!("LSN {} where {next} was to come", record.lsn));
            }
            let wanted = self.records.get(next as usize - 1).map(Record::payload);
            if wanted != Some(&record.bytes[..]) {
                return Err(format!(
                    "LSN {next} holds {} bytes that were not appended there",
                    record.bytes.len()
                ));
            }
            next += 1;
        }
        if next != shown.last + 1 {
            return Err(format!("the log says that {} is its last, and shows {}", shown.last, next - 1));
        }
        Ok(())
    }

    /// Reads the whole log and compares it.
    pub(crate) fn check(&self, log: &Log<SimDirectory>) -> Result<Shown, String> {
        let shown = Shown { first: log.first().get(), last: log.last().get() };
        if log.durable() != log.last() {
            return Err(format!("opened, {} of {} are durable", log.durable(), shown.last));
        }
        self.check_records(log, shown)?;
        Ok(shown)
    }
}
