//! How a log is used: everything follows from it, in the process and outside.
//!
//! *Owns*: its text form, the options of the log, which record has which bytes. *May not touch*:
//! using it.

use std::fmt;

use inkstone::{Options, Preparation};

use crate::words::{Way, in_words};
use inkstone_subject::log::options::{SEGMENT_BYTES, small};
use inkstone_subject::mistake::Mistake;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// How it writes; `None`: as it chooses by rule.
    pub way: Option<Way>,
    pub threads: u32,
    /// Decides everything else.
    pub seed: u64,
    /// Lives of the process, and of those before it in the same directory, count from here.
    pub life: u32,
    /// The threads end by themselves after so many acknowledgements of the first.
    pub ends_after: Option<u32>,
    pub mistake: Option<Mistake>,
}

pub(crate) const HEAD: &str = "inkstone-use 1";

in_words!(
    Usage, HEAD, threads = "threads", seed = "seed", life = "life"
    ? way = "strategy", ends_after = "ends-after", mistake = "mistake"
);

impl Usage {
    /// The options of the log, without its mistake.
    pub fn options(&self) -> Options {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x6661_756C_7473_2121);
        let options = small()
            .preparation(if rng.bool() { Preparation::Zeros } else { Preparation::Fallocate })
            .pad_groups(rng.bool())
            .free_segments_max(rng.usize(..3))
            .segment_bytes(if rng.u8(..4) == 0 { 4 * SEGMENT_BYTES } else { SEGMENT_BYTES })
            .own_thread(rng.u8(..4) > 0);
        match self.way {
            Some(way) => options.access(way.access()).durability(way.durability()),
            None => options,
        }
    }
}

const HEAD_BYTES: usize = 8;
/// Five of them fit into one batch.
const BYTES_MAX: usize = 4000;

/// Which record it is: no two in a directory are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// Who appended it: a thread of one life of the process.
    pub writer: u32,
    /// Its number within that thread, from 0.
    pub number: u32,
}

pub fn writer(life: u32, thread: u32) -> u32 {
    life << 8 | thread
}

impl Id {
    /// Its bytes: its identity, then bytes that follow from that.
    pub fn payload(self) -> Vec<u8> {
        let which = u64::from(self.writer) << 32 | u64::from(self.number);
        let mut rng = fastrand::Rng::with_seed(which.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // Always some: they show that the head is whole.
        let most = if rng.u8(..16) == 0 { BYTES_MAX } else { 1200 };
        let len = rng.usize(HEAD_BYTES + 8..most);
        let mut payload = vec![0; len];
        payload[..4].copy_from_slice(&self.writer.to_le_bytes());
        payload[4..HEAD_BYTES].copy_from_slice(&self.number.to_le_bytes());
        rng.fill(&mut payload[HEAD_BYTES..]);
        payload
    }

    /// Which record these bytes are, if they are one and it is whole.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let id = Self { writer: number(0)?, number: number(4)? };
        (id.payload() == bytes).then_some(id)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (life, thread) = (self.writer >> 8, self.writer & 0xFF);
        write!(f, "record {} of thread {thread} in life {life}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_knows_itself_and_no_changed_one_is_taken_for_it() {
        let id = Id { writer: writer(3, 7), number: 123_456 };
        let payload = id.payload();
        assert_eq!(Id::of(&payload), Some(id));
        for byte in 0..payload.len() {
            let mut changed = payload.clone();
            changed[byte] ^= 0x10;
            assert_eq!(Id::of(&changed), None, "byte {byte}");
        }
        assert_eq!(Id::of(&payload[..payload.len() - 1]), None);
        assert_eq!(Id::of(&[]), None);
    }
}
