//! What a log may hold: the records as they were appended, which of them are certain, and what an
//! operation in flight may or may not have done.
//!
//! *Owns*: the payloads, the set of allowed logs, comparing a log with it. *May not touch*: how the
//! log came to be.

use std::sync::{Arc, LazyLock};

use inkstone::{Log, Lsn, Reader};

/// Every payload is a piece of these bytes. The second half is zeros, which are the likeliest to be
/// mistaken for something else.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = fastrand::Rng::with_seed(0x7061_796C_6F61_6473);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(1 << 20).collect();
    bytes.resize((1 << 20) + (64 << 10), 0);
    bytes
});

/// The number of the record that is appended to see whether a log still works.
pub const PROBE: u32 = u32::MAX;

/// A record that was appended. No two of a run have the same number, so a truncated one that comes
/// back is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Which record of the run it is; its payload follows from it.
    pub number: u32,
    /// How long the payload is.
    pub bytes: usize,
    /// The next record is of the same batch.
    pub has_more: bool,
}

impl Record {
    /// The record that shows that a log still works.
    pub fn probe() -> Self {
        Self { number: PROBE, bytes: 777, has_more: false }
    }

    /// Whether these are the bytes of one of the first `numbers` records of a run.
    pub fn is_ours(bytes: &[u8], numbers: u32) -> bool {
        let of = |number| Self { number, bytes: bytes.len(), has_more: false };
        (0..numbers).chain([PROBE]).any(|number| of(number).payload() == bytes)
    }

    /// Its bytes.
    pub fn payload(&self) -> &'static [u8] {
        let start = match self.number % 8 {
            5 => 1 << 20,
            _ => (self.number as usize).wrapping_mul(4099) % ((1 << 20) - (64 << 10)),
        };
        &BYTES[start..start + self.bytes]
    }
}

/// What a log showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The first LSN that is there; one more than `last` in an empty log.
    pub first: u64,
    /// The last LSN that is there; 0 in a new log.
    pub last: u64,
}

/// A log as its users know it.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// By LSN - 1; including the truncated ones.
    pub records: Vec<Record>,
    /// The first LSN that was not truncated.
    pub first: u64,
    /// The last acknowledged LSN.
    pub acked: u64,
    /// How many records were ever appended.
    pub numbers: u32,
}

impl Model {
    /// An empty log.
    pub fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// The last LSN, acknowledged or not.
    pub fn last(&self) -> u64 {
        self.records.len() as u64
    }

    /// Appends a record.
    pub fn push(&mut self, bytes: usize, has_more: bool) {
        self.records.push(Record { number: self.numbers, bytes, has_more });
        self.numbers += 1;
    }

    /// Truncates everything after `last`.
    pub fn cut(&mut self, last: u64) {
        self.records.truncate(last as usize);
        if let Some(record) = self.records.last_mut() {
            record.has_more = false;
        }
        self.acked = self.acked.min(last);
    }

    /// Takes over what an opening has shown.
    pub fn settle(&mut self, shown: Shown) {
        self.cut(shown.last);
        self.first = shown.first;
        self.acked = shown.last;
    }

    /// What a crash may leave when no operation is in progress.
    pub fn allowed(&self) -> Allowed {
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
pub struct Allowed {
    /// By LSN - 1; including the truncated ones.
    pub records: Arc<[Record]>,
    /// Up to here every record must be there...
    pub at_least: u64,
    /// Everything before one of the two is truncated: `truncate_before` is in flight if they
    /// differ.
    pub firsts: [u64; 2],
    /// ...unless `truncate_after` is in flight: then it may have left this as the last.
    pub cut: Option<u64>,
}

impl Allowed {
    fn at_most(&self) -> u64 {
        self.records.len() as u64
    }

    /// Exactly what was shown, nothing more.
    pub fn exactly(&self, shown: Shown) -> Self {
        let mut records = self.records[..shown.last as usize].to_vec();
        // A batch that was truncated is no longer a batch.
        records.last_mut().into_iter().for_each(|record| record.has_more = false);
        Self { records: records.into(), at_least: shown.last, firsts: [shown.first; 2], cut: None }
    }

    /// The model of the log that was found as `shown`, to continue with.
    pub fn model(&self, shown: Shown, numbers: u32) -> Model {
        let mut model = Model { records: self.records.to_vec(), numbers, ..Model::new() };
        model.settle(shown);
        model
    }

    /// The probe is being appended as well.
    pub fn and_probe(&self) -> Self {
        let records: Vec<_> = self.records.iter().copied().chain([Record::probe()]).collect();
        Self { records: records.into(), ..self.clone() }
    }

    /// Everything that was appended is certain.
    pub fn all(&self) -> Self {
        Self { at_least: self.at_most(), ..self.clone() }
    }

    /// Whether a log may begin and end there.
    ///
    /// # Errors
    /// Which promise is broken.
    pub fn check_ends(&self, Shown { first, last }: Shown) -> Result<(), String> {
        let [old, new] = self.firsts;
        if first != old && first != new {
            return Err(format!("the first LSN is {first}; it may be {old} or {new}"));
        }
        if first > last + 1 {
            return Err(format!("the first LSN is {first}, the last {last}"));
        }
        if self.cut == Some(last) {
            return Ok(());
        }
        if last < self.at_least {
            return Err(format!("LSN {} was acknowledged, but the last is {last}", self.at_least));
        }
        if last > self.at_most() {
            return Err(format!(
                "LSN {} was appended last, but the last is {last}",
                self.at_most()
            ));
        }
        match last.checked_sub(1).map(|index| self.records[index as usize]) {
            Some(record) if record.has_more => {
                Err(format!("the log ends inside a batch, at {last}"))
            }
            _ => Ok(()),
        }
    }

    /// Reads a log from `shown.first` to its end, which must be `shown.last`, and compares every
    /// record.
    ///
    /// # Errors
    /// Which promise is broken.
    pub fn check_records(&self, log: &Log, shown: Shown) -> Result<(), String> {
        self.check_ends(shown)?;
        let mut next = shown.first;
        for record in log.reader().records(Lsn::new(shown.first)) {
            let record = record.map_err(|error| format!("LSN {next} cannot be read: {error}"))?;
            if record.lsn.get() != next {
                return Err(format!("LSN {} instead of {next}", record.lsn));
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
            return Err(format!(
                "the log says that its last LSN is {}, but shows {}",
                shown.last,
                next - 1
            ));
        }
        self.check_by_lsn(&log.reader(), shown)
    }

    /// Reads some of the records by their LSNs, the last among them.
    fn check_by_lsn(&self, reader: &Reader, shown: Shown) -> Result<(), String> {
        for lsn in (shown.first..=shown.last).rev().step_by(7) {
            let found = reader
                .get(Lsn::new(lsn))
                .map_err(|error| format!("LSN {lsn} cannot be read: {error}"))?;
            if self.records.get(lsn as usize - 1).map(Record::payload) != Some(&found[..]) {
                return Err(format!(
                    "LSN {lsn}, read by itself, holds bytes that were not appended there"
                ));
            }
        }
        Ok(())
    }

    /// Reads the whole log and compares it.
    ///
    /// # Errors
    /// Which promise is broken.
    pub fn check(&self, log: &Log) -> Result<Shown, String> {
        let shown = Shown { first: log.first().get(), last: log.last().get() };
        if log.durable() != log.last() {
            return Err(format!(
                "after opening, the durable LSN is {}, the last {}",
                log.durable(),
                shown.last
            ));
        }
        self.check_records(log, shown)?;
        Ok(shown)
    }
}
