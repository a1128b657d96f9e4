//! The classes of faults: which disk, which log, which history and which states each is about.
//!
//! *Owns*: the names, and one seed of one class from start to end. *May not touch*: how many seeds
//! are run, by how many threads, and what is said about it (`lab.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_io::{Preparation, named_choice};
use inkstone_sim::{
    AfterEffect, DirectoryOrder, Effect, Fault, NewBlocks, OperationKind, SimDisk, errno,
};

use super::explore::{Effort, Explorer, Tally, log2_of_sum};
use super::fault::{FaultyRun, Trouble};
use super::lies;
use super::run::Run;
use super::space::Pick;
use super::variant::{SEGMENT_BYTES, Variant, variant};
use super::{stale, threads};
use crate::history::{Op, history, recycling_history};
use crate::mistake::Mistake;

named_choice! {
    /// What goes wrong.
    FaultClass, "class" {
        Lost = "lost", "lost and reordered writes: any subset of whole writes";
        Torn512 = "torn-512", "any subset of unflushed sectors, sizes and names, torn at 512 bytes";
        Torn4096 = "torn-4096", "any subset of unflushed sectors, sizes and names, torn at 4096 bytes";
        Garbage = "garbage", "torn with garbage: each sector old, new or neither";
        Recycled = "recycled", "any subset over recycled segments, with old frames of this log and another underneath";
        NewBlocks = "new-blocks", "new blocks that read as zeros, as garbage or as removed data";
        Sizes = "sizes", "sizes that reach the disk before their data or after it";
        Names = "names", "creations, renames and removals lost or reordered";
        Misdirected = "misdirected", "a write that lands elsewhere";
        Rot = "rot", "a bit that rots in acknowledged records";
        SyncError = "sync-error", "a sync that fails, with the three after-effects of real file systems";
        Full = "full", "no room, an error at any operation, transfers in two parts";
        Recovery = "recovery", "crashes within recoveries, up to three in a row";
        Lying = "lying", "a device that acknowledges a write and loses it";
        Threads = "threads", "four threads that append while the power is cut";
    }
}

/// Operations of a history.
const LENGTH: usize = 12;
/// For histories that fail at many places: a little is checked in each.
pub(crate) const LITTLE: Effort = Effort { samples: 1, all_of: 0, deep: 7 };

/// One seed of one class.
#[derive(Debug, Clone)]
pub struct Unit {
    pub class: FaultClass,
    pub seed: u64,
    /// Cuts with up to this many items are checked completely.
    pub all_of: usize,
    pub mistake: Option<Mistake>,
    /// Ends it early when it is set.
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Looked {
    /// States that were opened, read and compared.
    pub states: u64,
    /// The rest of the counts.
    pub tally: Tally,
    /// Segments that used old blocks.
    pub recycled: u64,
}

impl Looked {
    pub fn add(&mut self, other: &Self) {
        let Tally { covered, reopened, possible_log2, depths, beneath, exhausted, cuts } =
            other.tally;
        self.states += other.states;
        self.recycled += other.recycled;
        let tally = &mut self.tally;
        tally.covered += covered;
        tally.reopened += reopened;
        tally.beneath += beneath;
        tally.exhausted += exhausted;
        tally.cuts += cuts;
        tally.depths.iter_mut().zip(depths).for_each(|(sum, depth)| *sum += depth);
        tally.possible_log2 = match (tally.possible_log2, possible_log2) {
            (Some(left), Some(right)) => Some(log2_of_sum(left, right)),
            (left, right) => left.or(right),
        };
    }

    fn take(&mut self, explorer: &Explorer) {
        self.add(&Self { states: explorer.states, tally: explorer.tally, recycled: 0 });
    }
}

impl Unit {
    /// The operations that it runs.
    pub fn history(&self) -> Vec<Op> {
        match self.class {
            FaultClass::Recycled => recycling_history(self.seed, 2 * LENGTH),
            _ => history(self.seed, LENGTH),
        }
    }

    /// The log and its disk.
    pub fn variant(&self) -> Variant {
        let seed = self.seed;
        let Variant { mut disk, mut options, .. } = variant(seed);
        options = options.tail_bytes([0, 32 << 10, 4 << 20][(seed % 3) as usize]);
        // Only padded logs survive garbage in a sector that is rewritten: it has a class of its
        // own.
        disk.garbage_at_crash = self.class == FaultClass::Garbage;
        disk.sector_bytes = if self.class == FaultClass::Torn4096 { 4096 } else { 512 };
        match self.class {
            FaultClass::Garbage => options = options.pad_groups(true),
            FaultClass::Recycled => {
                disk.new_blocks = NewBlocks::Stale;
                options = options.segment_bytes(SEGMENT_BYTES).free_segments_max(3);
            }
            FaultClass::NewBlocks => {
                disk.new_blocks =
                    [NewBlocks::Zeros, NewBlocks::Garbage, NewBlocks::Stale][(seed % 3) as usize];
                options = options.preparation(
                    [Preparation::Zeros, Preparation::Fallocate][(seed / 3 % 2) as usize],
                );
            }
            FaultClass::Names => {
                disk.directory_order =
                    [DirectoryOrder::Any, DirectoryOrder::Prefix][(seed % 2) as usize];
            }
            FaultClass::Full => options = options.segment_bytes(SEGMENT_BYTES).pad_groups(false),
            _ => {}
        }
        Variant { disk, options, mistake: self.mistake }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn explorer(&self, effort: Effort) -> Explorer {
        let mut explorer = Explorer::new(self.variant(), effort, self.seed);
        explorer.redraws = false;
        explorer.stop = Arc::clone(&self.stop);
        explorer
    }

    /// Runs these of its operations. What was checked counts even when a promise is broken.
    pub fn run(&self, operations: &[Op]) -> (Looked, Result<(), String>) {
        let mut looked = Looked::default();
        let result = match self.class {
            FaultClass::Misdirected | FaultClass::Lying => self.lies(operations, &mut looked),
            FaultClass::Rot => self.rot(operations, &mut looked),
            FaultClass::SyncError => self.sync_errors(operations, &mut looked),
            FaultClass::Full => self.failures(operations, &mut looked),
            FaultClass::Threads => {
                threads::run(self.seed, &self.variant(), 4).map(|states| looked.states = states)
            }
            _ => self.cuts(operations, &mut looked),
        };
        (looked, result)
    }

    fn cuts(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let effort = match self.class {
            FaultClass::Recovery => Effort { samples: 2, all_of: 2, deep: 2 },
            _ => Effort { samples: 12, all_of: self.all_of, deep: 0 },
        };
        let mut explorer = self.explorer(effort);
        explorer.depth = 3;
        explorer.is_covering = true;
        explorer.looks_beneath = self.class == FaultClass::Recycled;
        explorer.pick = match self.class {
            FaultClass::Lost => Pick::Writes,
            FaultClass::Garbage => Pick::Garbage,
            FaultClass::Sizes => Pick::Sizes,
            FaultClass::Names => Pick::Names,
            _ => Pick::Items,
        };
        let disk = SimDisk::new(self.seed, explorer.variant.disk);
        if self.class == FaultClass::Recycled {
            stale::leave_old_files(&disk, &explorer.variant, self.seed)?;
        }
        let mut run = Run::on(disk, explorer);
        let result = run.create().and_then(|()| run.steps(operations));
        looked.take(&run.explorer);
        looked.recycled += run.recycled;
        result
    }

    /// One write after the other is lost, or lands elsewhere.
    fn lies(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let variant = self.variant();
        for nth in 1.. {
            let mut rng = fastrand::Rng::with_seed(self.seed ^ nth);
            let file = rng.bool().then(|| format!("{:020}.ink", rng.u64(1..4)));
            let effect = match self.class {
                FaultClass::Misdirected => {
                    Effect::Misdirected { file, offset: rng.u64(..14) * 4096 }
                }
                _ => Effect::LostWrite,
            };
            let disk = SimDisk::new(self.seed, variant.disk);
            disk.inject(Fault::new(effect.clone()).on(OperationKind::Write).nth(nth));
            let told = lies::tell(&disk, &variant, operations);
            if disk.history().is_empty() || self.is_stopped() {
                return told.map(drop);
            }
            looked.states += 1;
            told.map_err(|why| format!("write {nth}, {effect}: {why}"))?;
        }
        Ok(())
    }

    fn rot(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        lies::rots(self.seed, &self.variant(), operations, 200, &mut looked.states)
    }

    /// The same fault at one place after the other, until the history is too short to meet it.
    fn everywhere(
        &self,
        fault: &Fault,
        trouble: Trouble,
        operations: &[Op],
        looked: &mut Looked,
    ) -> Result<(), String> {
        for nth in 1.. {
            let explorer = self.explorer(LITTLE);
            let disk = SimDisk::new(self.seed, explorer.variant.disk);
            disk.inject(fault.clone().nth(nth));
            let mut run = FaultyRun::begin(disk, explorer, trouble)?;
            let result = run.all(operations);
            looked.take(&run.inner.explorer);
            result?;
            if run.inner.disk.history().is_empty() || self.is_stopped() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn sync_errors(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        for after in [AfterEffect::KeepsNew, AfterEffect::RevertsToOld] {
            let fault = Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync);
            self.everywhere(&fault, Trouble::Once, operations, looked)
                .map_err(|why| format!("after-effect {after:?}: {why}"))?;
        }
        let later = Effect::SyncFails(errno::EIO, AfterEffect::ReportsLater);
        let variant = self.variant();
        for nth in 1.. {
            let disk = SimDisk::new(self.seed, variant.disk);
            disk.inject(Fault::new(later.clone()).on(OperationKind::Sync).nth(nth));
            let told = lies::reports_later(&disk, &variant, operations, nth);
            if disk.history().is_empty() || self.is_stopped() {
                break;
            }
            looked.states += 1;
            told.map_err(|why| format!("sync {nth} reports its failure later: {why}"))?;
        }
        Ok(())
    }

    fn failures(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let plans = [
            Fault::new(Effect::Error(errno::ENOSPC)),
            Fault::new(Effect::ShortThenError(700, errno::EIO)).on(OperationKind::Write),
            Fault::new(Effect::Short(700)).on(OperationKind::Write),
            Fault::new(Effect::Short(700)).on(OperationKind::Read),
        ];
        for fault in &plans {
            self.everywhere(fault, Trouble::Once, operations, looked)
                .map_err(|why| format!("{fault:?}: {why}"))?;
        }
        let mut explorer = self.explorer(LITTLE);
        let room = SEGMENT_BYTES * (2 + self.seed % 3) + 4096 * (self.seed % 16);
        explorer.variant.disk.capacity_bytes = Some(room);
        let disk = SimDisk::new(self.seed, explorer.variant.disk);
        let mut run = FaultyRun::begin(disk, explorer, Trouble::Full)?;
        let result = run.all(operations);
        looked.take(&run.inner.explorer);
        result.map_err(|why| format!("with room for {room} bytes: {why}"))
    }
}
