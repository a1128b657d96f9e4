//! A log and its disk, drawn from a seed: any combination that the log promises to survive.
//!
//! *Owns*: the combinations, and those that are left out because docs/format.md does not promise
//! them. *May not touch*: what is done with the log.

use std::sync::Arc;
use std::time::Duration;

use inkstone::{Access, Durability, Options, Preparation};
use inkstone_sim::{DirectoryOrder, DiskOptions, NewBlocks, Times};

use inkstone_subject::log::LogSubject;
use inkstone_subject::log::options::{SEGMENT_BYTES, small};

#[derive(Clone)]
pub struct Variant {
    /// How the disk lies.
    pub disk: DiskOptions,
    pub log: LogSubject,
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
    let disk = DiskOptions { times: disk.has_fua.then(|| times(seed)), ..disk };
    let options = options(&mut rng, &disk, pad);
    Variant { disk, log: LogSubject::new(options, None) }
}

/// A FUA write takes half as long as a write and a flush, as long, or three times as long.
pub fn times(seed: u64) -> Times {
    let fua_us = [100, 200, 600][(seed % 3) as usize];
    let [write, flush, fua_write] = [20, 180, fua_us].map(Duration::from_micros);
    Times { write, flush, fua_write }
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
    let durability = durabilities[rng.usize(..durabilities.len())];
    // Half of the logs that can leave it to a trial do; drawn by itself, so that a seed stays the
    // log that it was.
    let tries = access == Access::Direct && disk.times.is_some() && rng.clone().fork().bool();
    let options = if tries { small() } else { small().durability(durability) };
    options
        .pad_groups(pad)
        .access(access)
        .preparation(if rng.bool() { Preparation::Zeros } else { Preparation::Fallocate })
        .segment_bytes(if rng.u8(..4) == 0 { 4 * SEGMENT_BYTES } else { SEGMENT_BYTES })
        .buffer_bytes(if rng.bool() { 8 << 10 } else { 32 << 10 })
        .free_segments_max(rng.usize(..4))
        // Readers in the writer's process read files, and what they find there is checked.
        // `class.rs` has tails as well.
        .tail_bytes(0)
}

impl Variant {
    /// Each opening of the log draws its own options.
    pub fn redraws(&mut self) {
        let disk = self.disk;
        self.log.redraw = Some(Arc::new(move |seed| {
            let mut rng = fastrand::Rng::with_seed(seed ^ 0x6F70_7469_6F6E_7321);
            let pad = disk.garbage_at_crash || rng.bool();
            options(&mut rng, &disk, pad)
        }));
    }
}
