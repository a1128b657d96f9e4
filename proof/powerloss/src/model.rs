//! What a log holds that one thread uses: the records as they were appended, and which of them are
//! certain. What a crash may leave of it is a [`Must`].
//!
//! *Owns*: the payloads, the model. *May not touch*: how the log came to be, comparing a log with
//! it (`verdict.rs`).

use std::sync::LazyLock;

use inkstone_sim::survival::{Must, Piece};

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

    pub fn payload(&self) -> &'static [u8] {
        let start = match self.number % 8 {
            5 => 1 << 20,
            _ => (self.number as usize).wrapping_mul(4099) % ((1 << 20) - (64 << 10)),
        };
        &BYTES[start..start + self.bytes]
    }
}

impl Piece for Record {
    fn has_more(&self) -> bool {
        self.has_more
    }

    fn end_batch(&mut self) {
        self.has_more = false;
    }
}

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
    pub fn new() -> Self {
        Self { first: 1, ..Self::default() }
    }

    /// The last LSN, acknowledged or not.
    pub fn last(&self) -> u64 {
        self.records.len() as u64
    }

    pub fn push(&mut self, bytes: usize, has_more: bool) {
        self.records.push(Record { number: self.numbers, bytes, has_more });
        self.numbers += 1;
    }

    /// Truncates everything after `last`.
    pub fn cut(&mut self, last: u64) {
        self.records.truncate(last as usize);
        self.records.last_mut().into_iter().for_each(Record::end_batch);
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
        Allowed { firsts: vec![self.first], ..Must::of(self.records.as_slice().into(), self.acked) }
    }

    /// The model of a log that was found as `shown`, to continue with.
    pub fn found(allowed: &Allowed, shown: Shown, numbers: u32) -> Self {
        let mut model = Self { records: allowed.records.to_vec(), numbers, ..Self::new() };
        model.settle(shown);
        model
    }
}

/// The logs that may be found.
pub type Allowed = Must<Record>;
