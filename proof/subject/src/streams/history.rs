//! Changes of streams, from a seed.
//!
//! *Owns*: which batches there are, mostly allowed ones. *May not touch*: what a change means
//! (`model.rs`).

use std::sync::Arc;

use super::model::{Model, Step};

/// Draws changes.
pub(super) struct Draw {
    pub(super) random: fastrand::Rng,
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
