//! Histories of every operation, from a seed.
//!
//! *Owns*: the operations, what each means to the model, carrying them out. *May not touch*: how a
//! crash is checked.

use inkstone::{Error, Log, Lsn};

use crate::model::{Allowed, Model};
use crate::sim::variant::RECORD_BYTES_MAX;

/// One operation on a log. Positions are relative, so that a history stays valid when operations
/// are left out.
#[derive(Debug, Clone)]
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
    /// `sync`: everything appended so far.
    Sync,
    /// One step of the background thread, which prepares files; then a sync.
    Prepare,
    /// At this many 255ths of the records: 255 truncates all.
    TruncateBefore(u8),
    /// At this many 255ths of the records: 0 leaves none.
    TruncateAfter(u8),
    /// Close, and open.
    Reopen,
    /// Drop (which commits and reports nothing), and open.
    Drop,
    /// Kill the process, and open.
    Kill,
    /// The power is cut within this one, and the history continues with what is found. Only
    /// [`rough`] draws it.
    PowerCut(Box<Op>),
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

pub fn history(seed: u64, length: usize) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6869_7374_6F72_7921);
    let taste =
        [Taste::Mixed, Taste::Mixed, Taste::Openings, Taste::Cuts, Taste::Rolls][rng.usize(..5)];
    operations(&mut rng, taste, length)
}

/// A history in which segments are recycled again and again.
pub fn recycling_history(seed: u64, length: usize) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6F6C_6420_626C_6F63);
    operations(&mut rng, Taste::Recycling, length)
}

fn operations(rng: &mut fastrand::Rng, taste: Taste, length: usize) -> Vec<Op> {
    let mut operation = |_| {
        let kind = match taste {
            Taste::Openings if rng.u8(..3) > 0 => rng.u32(20..24),
            Taste::Cuts if rng.bool() => rng.u32(15..20),
            Taste::Recycling if rng.u8(..4) == 0 => return Op::TruncateBefore(rng.u8(200..)),
            Taste::Recycling if rng.u8(..3) > 0 => {
                return Op::Append(rng.usize(RECORD_BYTES_MAX / 2..=RECORD_BYTES_MAX));
            }
            Taste::Rolls if rng.u8(..4) == 0 => return Op::Prepare,
            Taste::Rolls if rng.bool() => {
                return Op::Append(rng.usize(RECORD_BYTES_MAX / 2..=RECORD_BYTES_MAX));
            }
            _ => rng.u32(..24),
        };
        match kind {
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
            20 => Op::Drop,
            21 => Op::Reopen,
            _ => Op::Kill,
        }
    };
    (0..length).map(&mut operation).collect()
}

/// A history of `length` operations with many power cuts, and records whose frames end where blocks
/// do: what one crash has left is where the next writer's bytes would be, and fits.
pub fn rough(seed: u64, length: usize) -> Vec<Op> {
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
            _ => [Op::Reopen, Op::Kill, Op::Sync][rng.usize(..3)].clone(),
        };
        let ends = matches!(operation, Op::Reopen | Op::Kill);
        if !ends && rng.bool() { Op::PowerCut(Box::new(operation)) } else { operation }
    };
    (0..length).map(&mut operation).collect()
}

/// What an operation may leave when a crash interrupts it, and what it must leave when it returns.
pub struct Plan {
    /// What a crash within it may leave.
    pub during: Allowed,
    /// What there is when it has returned.
    pub after: Model,
    lsn: Lsn,
}

fn part(model: &Model, part: u8) -> u64 {
    let count = model.last() + 1 - model.first;
    model.first - 1 + (count * u64::from(part)).div_ceil(255)
}

pub fn plan(operation: &Op, before: &Model) -> Plan {
    if let Op::PowerCut(within) = operation {
        return plan(within, before);
    }
    let mut after = before.clone();
    let mut lsn = Lsn::ZERO;
    match operation {
        Op::Append(bytes) | Op::LetGo(bytes) | Op::Try(bytes) => after.push(*bytes, false),
        Op::Several(all) => all.iter().for_each(|bytes| after.push(*bytes, false)),
        Op::Batch(all) => {
            let last = all.len() - 1;
            all.iter().enumerate().for_each(|(index, bytes)| after.push(*bytes, index < last));
        }
        Op::Sync | Op::Prepare | Op::Reopen | Op::Drop | Op::Kill | Op::PowerCut(_) => {}
        Op::TruncateBefore(to) => {
            after.first = part(before, *to) + 1;
            lsn = Lsn::new(after.first);
        }
        Op::TruncateAfter(to) => {
            lsn = Lsn::new(part(before, *to));
            after.cut(lsn.get());
        }
    }
    let during = match operation {
        Op::TruncateAfter(_) => Allowed { cut: Some(lsn.get()), ..before.allowed() },
        _ => Allowed {
            at_least: before.acked,
            firsts: vec![before.first, after.first],
            ..after.allowed()
        },
    };
    // An operation that makes one record durable makes everything before it durable.
    if !matches!(operation, Op::LetGo(_) | Op::Kill | Op::Drop) {
        after.acked = after.last();
    }
    Plan { during, after, lsn }
}

/// Carries out an operation that leaves the log open.
pub fn carry_out(log: &Log, operation: &Op, plan: &Plan) -> inkstone::Result<()> {
    let appended = |count: usize| &plan.after.records[plan.after.records.len() - count..];
    let expect = |lsn: Lsn, wanted: u64| {
        if lsn.get() == wanted {
            Ok(())
        } else {
            Err(Error::Invalid(format!("LSN {lsn} instead of {wanted}")))
        }
    };
    let last = plan.after.last();
    match operation {
        Op::Append(_) => expect(log.append(appended(1)[0].payload())?.wait()?, last),
        Op::Try(_) => expect(log.try_append(appended(1)[0].payload())?.wait()?, last),
        Op::LetGo(_) => expect(log.append(appended(1)[0].payload())?.lsn(), last),
        Op::Several(all) => {
            for record in appended(all.len()) {
                drop(log.append(record.payload())?);
            }
            expect(log.sync()?, last)
        }
        Op::Batch(all) => {
            let payloads: Vec<_> =
                appended(all.len()).iter().map(|record| record.payload()).collect();
            let append = log.append_batch(&payloads)?;
            expect(append.first_lsn(), last + 1 - all.len() as u64)?;
            expect(append.wait()?, last)
        }
        Op::Sync => expect(log.sync()?, last),
        Op::Prepare => {
            log.prepare_some()?;
            expect(log.sync()?, last)
        }
        Op::TruncateBefore(_) => log.truncate_before(plan.lsn),
        Op::TruncateAfter(_) => log.truncate_after(plan.lsn),
        Op::PowerCut(within) => carry_out(log, within, plan),
        Op::Reopen | Op::Drop | Op::Kill => Ok(()),
    }
}
