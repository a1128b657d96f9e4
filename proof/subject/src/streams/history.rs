//! Changes of streams, from a seed.
//!
//! *Owns*: which batches there are, mostly allowed ones. *May not touch*: what a change means
//! (`model.rs`).

use std::sync::Arc;

use super::model::{Model, Step};

/// What a history has beside the usual changes, which are the same whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    Usual,
    /// Some batches append thousands of records.
    Large,
    /// Streams begin near the highest number of all, use it up, are removed and come back.
    High,
    /// The mover dies within its step, at its first commit or the second.
    Dying,
}

/// Draws changes.
pub(super) struct Draw {
    pub(super) random: fastrand::Rng,
    pub(super) habit: Habit,
}

impl Draw {
    fn record(&mut self) -> Arc<[u8]> {
        let size = match self.random.u32(..40) {
            0 => self.random.usize(3000..9000),
            1..4 => self.random.usize(300..1500),
            4 => 0,
            _ => self.random.usize(8..120),
        };
        let mut bytes = vec![self.random.u8(..); size];
        let stamp = self.random.u64(..).to_le_bytes();
        let len = size.min(8);
        bytes[..len].copy_from_slice(&stamp[..len]);
        bytes.into()
    }

    /// A batch, mostly one that may be made.
    pub(super) fn steps(&mut self, model: &Model) -> Vec<Step> {
        let ids: Vec<u64> = model.0.keys().copied().collect();
        if self.habit == Habit::Large && !ids.is_empty() && self.random.u32(..16) == 0 {
            return self.large(&ids);
        }
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

    /// Thousands of tiny records of two streams.
    fn large(&mut self, ids: &[u64]) -> Vec<Step> {
        let ids = [0, 1].map(|_| ids[self.random.usize(..ids.len())]);
        let byte = self.random.u8(..);
        let step = |number: u64| {
            let bytes = &[byte; 3][..(number % 4) as usize];
            Step::Append(ids[usize::from(number.is_multiple_of(7))], bytes.into())
        };
        (0..self.random.u64(1000..3000)).map(step).collect()
    }

    /// A number that a stream begins at, or `usual`.
    fn first(&mut self, usual: u64) -> u64 {
        match self.habit == Habit::High && self.random.bool() {
            true => u64::MAX - self.random.u64(..40),
            false => usual,
        }
    }

    fn step(&mut self, model: &Model, id: u64) -> Step {
        let Some(stream) = model.0.get(&id) else {
            return match self.random.u32(..20) {
                0 => Step::Append(id, self.record()),
                1 => Step::Remove(id),
                _ => {
                    let usual = self.random.u64(..5) * 1000;
                    Step::Create(id, self.first(usual))
                }
            };
        };
        let (first, next) = (stream.first, stream.next());
        let turn = self.random.u32(..100);
        // Appends would have nearly every batch refused.
        if self.habit == Habit::High && next == u64::MAX && turn < 90 {
            return match turn % 3 {
                0 => Step::Remove(id),
                1 => Step::Restart(id, self.first(0)),
                _ => Step::TruncateAfter(id, first),
            };
        }
        match turn {
            0..70 => Step::Append(id, self.record()),
            70..76 => Step::Note(id, vec![self.random.u8(..); self.random.usize(..100)]),
            76..88 => Step::TruncateBefore(id, self.random.u64(first..=next)),
            88..93 => {
                let next = self.random.u64(first.max(1)..=next.max(1));
                Step::TruncateAfter(id, next - 1)
            }
            93 => {
                let usual = self.random.u64(..5000);
                Step::Restart(id, self.first(usual))
            }
            94 => Step::Remove(id),
            95 => Step::TruncateBefore(id, next.saturating_add(1)),
            96 => Step::TruncateAfter(id, next.saturating_add(1)),
            97 => Step::Create(id, 3),
            _ => Step::Append(id, self.record()),
        }
    }
}
