//! A log and its disk, drawn from a seed: any combination that the log promises to survive.
//!
//! *Owns*: the combinations, and those that are left out because docs/format.md does not promise
//! them. *May not touch*: what is done with the log.

use inkstone::{Access, Durability, Options, Preparation};
use inkstone_sim::{DirectoryOrder, DiskOptions, NewBlocks};

use crate::mistake::Mistake;

/// The smallest possible segment: it makes rolls frequent.
pub const SEGMENT_BYTES: u64 = 64 << 10;
/// Two of them do not fit in a segment.
pub const RECORD_BYTES_MAX: usize = 24 << 10;

#[derive(Debug, Clone)]
pub struct Variant {
    /// How the disk lies.
    pub disk: DiskOptions,
    pub options: Options,
    /// A mistake that the log makes, to see it caught.
    pub mistake: Option<Mistake>,
}

/// A small log without a background thread: everything that it does follows from its callers.
pub fn small() -> Options {
    Options::new()
        .segment_bytes(SEGMENT_BYTES)
        .record_bytes_max(RECORD_BYTES_MAX)
        .buffer_bytes(8 << 10)
        .own_thread(false)
}

pub fn variant(seed: u64) -> Variant {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x7661_7269_616E_7473);
    let pad = rng.bool();
    let disk = DiskOptions {
        sector_bytes: if rng.u8(..3) == 0 { 4096 } else { 512 },
        flush_is_global: rng.u8(..3) > 0,
        has_fua: rng.bool(),
        has_direct: rng.u8(..4) > 0,
        writeback_ppm: [0, 50_000, 400_000][rng.usize(..3)],
        directory_order: if rng.bool() { DirectoryOrder::Any } else { DirectoryOrder::Prefix },
        new_blocks: [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale][rng.usize(..3)],
        // Without padding the log relies on a device whose torn writes leave unchanged bytes alone.
        garbage_at_crash: pad && rng.bool(),
        ..DiskOptions::default()
    };
    let options = options(&mut rng, &disk, pad);
    Variant::new(disk, options)
}

fn options(rng: &mut fastrand::Rng, disk: &DiskOptions, pad: bool) -> Options {
    let access = if disk.has_direct && rng.bool() { Access::Direct } else { Access::Buffered };
    let durabilities = [
        Durability::Fdatasync,
        Durability::Fsync,
        Durability::RwfDsync,
        Durability::ODsync,
        Durability::OSync,
    ];
    small()
        .pad_groups(pad)
        .access(access)
        .durability(durabilities[rng.usize(..durabilities.len())])
        .preparation(if rng.bool() { Preparation::Zeros } else { Preparation::Fallocate })
        .segment_bytes(if rng.u8(..4) == 0 { 4 * SEGMENT_BYTES } else { SEGMENT_BYTES })
        .buffer_bytes(if rng.bool() { 8 << 10 } else { 32 << 10 })
        .free_segments_max(rng.usize(..4))
        // Readers in the writer's process read files, and what they find there is checked.
        // `class.rs` has tails as well.
        .tail_bytes(0)
}

impl Variant {
    /// A sound log.
    pub fn new(disk: DiskOptions, options: Options) -> Self {
        Self { disk, options, mistake: None }
    }

    /// The same log with a mistake built in, or without.
    pub fn making(self, mistake: Option<Mistake>) -> Self {
        Self { mistake, ..self }
    }

    /// Other options for the next opening of the same log.
    pub fn redraw_options(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x6F70_7469_6F6E_7321);
        let pad = self.disk.garbage_at_crash || rng.bool();
        self.options = options(&mut rng, &self.disk, pad);
    }
}
