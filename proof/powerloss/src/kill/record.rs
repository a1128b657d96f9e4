//! A record that identifies itself, and shows whether it is whole.
//!
//! *Owns*: the bytes of a record, by round, thread and number. *May not touch*: logs.

use std::fmt;

const HEAD_BYTES: usize = 4 + 1 + 4;
const TAIL_BYTES_MIN: usize = 8;
/// The largest record: five of them fit into one batch, also with segments of 64 KiB.
pub(super) const BYTES_MAX: usize = 6000;

/// Which record it is: no two of a run are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// The round whose writer appended it.
    pub round: u32,
    /// The writer's thread.
    pub thread: u8,
    /// Its number within that thread, from 0.
    pub number: u32,
}

impl Id {
    /// Its bytes: its identity, then bytes that follow from that.
    pub fn payload(self) -> Vec<u8> {
        let which = u64::from(self.round) << 32 | u64::from(self.number);
        let mut rng = fastrand::Rng::with_seed(
            which ^ u64::from(self.thread).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        );
        // Always some: they show that the head is whole.
        let most = if rng.u8(..) < 16 { BYTES_MAX - HEAD_BYTES } else { 300 };
        let len = rng.usize(TAIL_BYTES_MIN..most);
        let mut payload = vec![0; HEAD_BYTES + len];
        payload[..4].copy_from_slice(&self.round.to_le_bytes());
        payload[4] = self.thread;
        payload[5..HEAD_BYTES].copy_from_slice(&self.number.to_le_bytes());
        rng.fill(&mut payload[HEAD_BYTES..]);
        payload
    }

    /// Which record these bytes are, if they are one and it is whole.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let round = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let number = u32::from_le_bytes(bytes.get(5..HEAD_BYTES)?.try_into().ok()?);
        let id = Self { round, thread: bytes[4], number };
        (id.payload() == bytes).then_some(id)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of thread {} in round {}", self.number, self.thread, self.round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_knows_itself_and_no_changed_one_is_taken_for_it() {
        let id = Id { round: 3, thread: 7, number: 123_456 };
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
