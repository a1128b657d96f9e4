//! Histories of every operation on a log, from a seed.
//!
//! *Owns*: the operations, and drawing them. *May not touch*: carrying them out, judging.

use super::options::RECORD_BYTES_MAX;
use super::past::Past;
use super::record::Record;
use super::words::{Call, How};
use crate::End;

pub type Step = crate::Step<Op>;

/// One operation on a log. Positions are relative, so that a history stays valid when operations
/// are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Append a record of this many bytes, and wait.
    Append(usize),
    /// Append several, then one sync.
    Several(Vec<usize>),
    /// Append, and do not wait.
    LetGo(usize),
    /// `append_batch`, and wait.
    Batch(Vec<usize>),
    /// `try_append`, and wait.
    Try(usize),
    /// Append, wait, and read it by its LSN.
    Probe,
    /// `sync`: everything appended so far.
    Sync,
    /// One step of the background thread, which prepares files; then a sync.
    Prepare,
    /// At this many 255ths of the records: 255 truncates all.
    TruncateBefore(u8),
    /// At this many 255ths of the records: 0 leaves none.
    TruncateAfter(u8),
}

impl Op {
    /// The call that it is now.
    pub fn plan(&self, past: &Past) -> Call {
        let mut number = past.numbers();
        let mut append = |sizes: &[usize], how: How| {
            let last = sizes.len() - 1;
            let record = |(index, bytes): (usize, &usize)| {
                let has_more = how == How::Batch && index < last;
                past.next_record(&mut number, *bytes, has_more)
            };
            let records: Vec<Record> = sizes.iter().enumerate().map(record).collect();
            Call::Append { records, how }
        };
        match self {
            Self::Append(bytes) => append(&[*bytes], How::Wait),
            Self::Try(bytes) => append(&[*bytes], How::Try),
            Self::LetGo(bytes) => append(&[*bytes], How::LetGo),
            Self::Probe => append(&[777], How::Probe),
            Self::Several(all) => append(all, How::Several),
            Self::Batch(all) => append(all, How::Batch),
            Self::Sync => Call::Sync,
            Self::Prepare => Call::Prepare,
            Self::TruncateBefore(part) => Call::TruncateBefore(past.part(*part) + 1),
            Self::TruncateAfter(part) => Call::TruncateAfter(past.part(*part)),
        }
    }
}

impl Op {
    /// The same, or another, that several callers can make at a time. No two records are alike, and
    /// only the first caller truncates.
    #[must_use]
    pub fn among_several(self, is_first: bool) -> Self {
        let unlike = |bytes: usize| bytes.max(16);
        match self {
            Self::Append(bytes) | Self::Try(bytes) => Self::Append(unlike(bytes)),
            Self::LetGo(bytes) => Self::LetGo(unlike(bytes)),
            Self::Batch(all) | Self::Several(all) => {
                Self::Batch(all.into_iter().map(unlike).collect())
            }
            Self::TruncateBefore(part) if is_first => Self::TruncateBefore(part),
            _ => Self::Sync,
        }
    }
}

fn size(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(..12) {
        0 => 0,
        1..=4 => rng.usize(..200),
        5 | 6 => rng.usize(..3000),
        // The group ends at the end of a block, or close to it.
        7 => 4096 - 48 - 24 - 16 + rng.usize(..32),
        8 | 9 => rng.usize(..12_000),
        10 => RECORD_BYTES_MAX,
        _ => rng.usize(..=RECORD_BYTES_MAX),
    }
}

fn sizes(rng: &mut fastrand::Rng) -> Vec<usize> {
    let count = rng.usize(2..6);
    let largest = RECORD_BYTES_MAX / count - 40;
    (0..count).map(|_| size(rng).min(largest)).collect()
}

#[derive(Debug, Clone, Copy)]
enum Taste {
    Mixed,
    /// Openings, which use up the room that a segment reserves for control groups.
    Openings,
    /// Truncations at both ends, in a row.
    Cuts,
    /// Large records: a roll every other time.
    Rolls,
    /// Large records, truncated soon: every segment after the first few has the blocks of an older
    /// one.
    Recycling,
}

pub fn history(seed: u64, length: usize) -> Vec<Step> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6869_7374_6F72_7921);
    let taste =
        [Taste::Mixed, Taste::Mixed, Taste::Openings, Taste::Cuts, Taste::Rolls][rng.usize(..5)];
    operations(&mut rng, taste, length)
}

/// A history in which segments are recycled again and again.
pub fn recycling_history(seed: u64, length: usize) -> Vec<Step> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6F6C_6420_626C_6F63);
    operations(&mut rng, Taste::Recycling, length)
}

fn operations(rng: &mut fastrand::Rng, taste: Taste, length: usize) -> Vec<Step> {
    let mut operation = |_| {
        let kind = match taste {
            Taste::Openings if rng.u8(..3) > 0 => rng.u32(20..24),
            Taste::Cuts if rng.bool() => rng.u32(15..20),
            Taste::Recycling if rng.u8(..4) == 0 => {
                return Step::Do(Op::TruncateBefore(rng.u8(200..)));
            }
            Taste::Recycling if rng.u8(..3) > 0 => {
                return Step::Do(Op::Append(rng.usize(RECORD_BYTES_MAX / 2..=RECORD_BYTES_MAX)));
            }
            Taste::Rolls if rng.u8(..4) == 0 => return Step::Do(Op::Prepare),
            Taste::Rolls if rng.bool() => {
                return Step::Do(Op::Append(rng.usize(RECORD_BYTES_MAX / 2..=RECORD_BYTES_MAX)));
            }
            _ => rng.u32(..24),
        };
        Step::Do(match kind {
            0..=5 => Op::Append(size(rng)),
            6 => Op::Prepare,
            7 | 8 => Op::Several(sizes(rng)),
            9 | 10 => Op::LetGo(size(rng)),
            11 | 12 => Op::Batch(sizes(rng)),
            13 => Op::Try(size(rng)),
            14 => Op::Sync,
            15 | 16 => Op::TruncateBefore([255, rng.u8(..)][rng.usize(..2)]),
            17..=19 => {
                Op::TruncateAfter([0, rng.u8(..), rng.u8(..), rng.u8(200..)][rng.usize(..4)])
            }
            20 => return Step::End(End::Drop),
            21 => return Step::End(End::Close),
            _ => return Step::End(End::Kill),
        })
    };
    (0..length).map(&mut operation).collect()
}

/// A history of `length` operations with many power cuts, and records whose frames end where blocks
/// do: what one crash has left is where the next writer's bytes would be, and fits.
pub fn rough(seed: u64, length: usize) -> Vec<Step> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x726F_7567_6821_2121);
    // With padding a group begins with a block: 48 bytes of it, and 24 of each frame, are headers.
    const FIRST: usize = 4096 - 48 - 24;
    const NEXT: usize = 4096 - 24;
    let mut operation = |_| {
        let operation = match rng.u32(..10) {
            0..=3 => Op::Batch(vec![FIRST, NEXT, NEXT]),
            4 | 5 => Op::Several(sizes(&mut rng)),
            6 => Op::Append(size(&mut rng)),
            7 => Op::TruncateAfter(rng.u8(..)),
            8 => Op::TruncateBefore(rng.u8(..)),
            _ => match rng.usize(..3) {
                0 => return Step::End(End::Close),
                1 => return Step::End(End::Kill),
                _ => Op::Sync,
            },
        };
        if rng.bool() { Step::PowerCut(operation) } else { Step::Do(operation) }
    };
    (0..length).map(&mut operation).collect()
}
