//! The records of a history: their bytes follow from their numbers.
//!
//! *Owns*: the payloads. *May not touch*: LSNs, logs.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Every payload is a piece of these bytes. The second half is zeros, which are the likeliest to be
/// mistaken for something else.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = fastrand::Rng::with_seed(0x7061_796C_6F61_6473);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(1 << 20).collect();
    bytes.resize((1 << 20) + (64 << 10), 0);
    bytes
});

/// A record that was appended. No two of a history have the same number, so a truncated one that
/// comes back is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub number: u32,
    pub bytes: u32,
    /// The next record is of the same batch.
    pub has_more: bool,
}

impl Record {
    pub fn payload(&self) -> &'static [u8] {
        let start = match self.number % 8 {
            5 => 1 << 20,
            _ => (self.number as usize).wrapping_mul(4099) % ((1 << 20) - (64 << 10)),
        };
        &BYTES[start..start + self.bytes as usize]
    }

    /// Which of the first `numbers` records these bytes may be, for words.
    pub fn named(bytes: &[u8], numbers: u32) -> Cow<'static, str> {
        let of = |number| Self { number, bytes: bytes.len() as u32, has_more: false };
        match (0..numbers).find(|number| of(*number).payload() == bytes) {
            Some(number) => format!("record {number}, {} bytes", bytes.len()).into(),
            None => format!("{} bytes that nobody appended", bytes.len()).into(),
        }
    }

    /// Whether these are the bytes of one of the first `numbers` records.
    pub fn is_one(bytes: &[u8], numbers: u32) -> bool {
        let of = |number| Self { number, bytes: bytes.len() as u32, has_more: false };
        (0..numbers).any(|number| of(number).payload() == bytes)
    }
}
