//! The classes of faults: which disk, which log, which history and which states each is about.
//!
//! *Owns*: the names, and one seed of one class from start to end. *May not touch*: how many seeds
//! are run, by how many threads, and what is said about it (`lab.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone_io::{Preparation, named_choice};
use inkstone_sim::{
    AfterEffect, DirectoryOrder, Effect, Fault, FaultRates, NewBlocks, OperationKind, SimDisk,
    errno,
};

use super::explore::{Effort, Explorer, Tally, log2_of_sum, open};
use super::fault::{FaultyRun, Trouble};
use super::killed::Killed;
use super::lies;
use super::readers::Readers;
use super::run::Run;
use super::space::Pick;
use super::variant::{SEGMENT_BYTES, Variant, variant};
use super::{stale, threads};
use crate::history::{Op, history, recycling_history, rough};
use crate::mistake::Mistake;

named_choice! {
    /// What goes wrong.
    FaultClass, "class" {
        Lost = "lost", "lost and reordered writes: any subset of whole writes";
        Torn512 = "torn-512", "any subset of unflushed sectors, sizes and names, torn at 512 bytes";
        Torn4096 = "torn-4096",
            "any subset of unflushed sectors, sizes and names, torn at 4096 bytes";
        Garbage = "garbage", "torn with garbage: each sector old, new or neither";
        Recycled = "recycled",
            "any subset over recycled segments, with old frames of this log and another underneath";
        NewBlocks = "new-blocks", "new blocks that read as zeros, as garbage or as removed data";
        Sizes = "sizes", "sizes that reach the disk before their data or after it";
        Names = "names", "creations, renames and removals lost or reordered";
        Misdirected = "misdirected", "a write that lands elsewhere";
        Rot = "rot", "a bit that rots in acknowledged records";
        SyncError = "sync-error",
            "a sync that fails, with the three after-effects of real file systems";
        Errors = "errors", "an error at any operation, transfers in two parts";
        Faults = "faults", "errors at any operations, more than one";
        Full = "full", "a full disk, or a used-up budget";
        Rough = "rough",
            "histories that go on after power cuts, with records that fit where others were";
        Killed = "killed", "a process killed at any call, then a power cut";
        Readers = "readers", "readers and an archiver beside the writer, and a second writer";
        Recovery = "recovery", "crashes within recoveries, up to three in a row";
        Lying = "lying", "a device that acknowledges a write and loses it";
        Threads = "threads", "four threads that append while the power is cut";
    }
}

impl FaultClass {
    /// Whether everything follows from the seed. With threads only what is found at all does.
    pub fn is_of_the_seed(self) -> bool {
        self != Self::Threads
    }
}

/// Operations of a history.
const LENGTH: usize = 12;
/// For histories that fail at many places: a little is checked in each.
const LITTLE: Effort = Effort { samples: 1, all_of: 0, deep: 7 };

/// How much of a seed is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Cuts with up to this many items are checked completely, and a fault comes at every place.
    Whole(usize),
    /// A few states of each cut, and one place: many seeds show soon whether a log makes a mistake.
    Glance,
}

/// One seed of one class.
#[derive(Debug, Clone)]
pub struct Unit {
    pub class: FaultClass,
    pub seed: u64,
    pub look: Look,
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
            FaultClass::Rough => rough(self.seed, 16),
            FaultClass::Killed => history(self.seed, 16),
            FaultClass::Readers => history(self.seed, 24),
            FaultClass::Full => {
                let mut operations = history(self.seed, 30);
                let is_opening = |op: &Op| matches!(op, Op::Reopen | Op::Drop | Op::Kill);
                operations.retain(|operation| !self.is_padded() || !is_opening(operation));
                operations
            }
            // A close has records to lose that nobody waited for.
            FaultClass::Faults => {
                let operations = history(self.seed, 24).into_iter();
                let with_some_let_go = operations.flat_map(|operation| match operation {
                    Op::Reopen | Op::Drop => vec![Op::LetGo(5000), Op::Reopen],
                    other => vec![other],
                });
                with_some_let_go.collect()
            }
            _ => history(self.seed, LENGTH),
        }
    }

    /// The log and its disk.
    pub fn variant(&self) -> Variant {
        if let FaultClass::Rough | FaultClass::Killed | FaultClass::Faults | FaultClass::Readers =
            self.class
        {
            return variant(self.seed).making(self.mistake);
        }
        let seed = self.seed;
        let Variant { mut disk, mut options, .. } = variant(seed);
        if self.class == FaultClass::Full {
            disk.garbage_at_crash = false;
            disk.capacity_bytes = Some(self.room_bytes());
            options = options.segment_bytes(SEGMENT_BYTES).pad_groups(self.is_padded());
            return Variant { disk, options, mistake: self.mistake };
        }
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
            FaultClass::Errors => options = options.segment_bytes(SEGMENT_BYTES).pad_groups(false),
            _ => {}
        }
        Variant { disk, options, mistake: self.mistake }
    }

    /// With padding, four openings of a full disk use up the room that a segment reserves for
    /// control groups: then there are none.
    fn is_padded(&self) -> bool {
        self.seed.is_multiple_of(3)
    }

    /// On a disk that gets full.
    fn room_bytes(&self) -> u64 {
        SEGMENT_BYTES * (2 + self.seed % 3) + 4096 * (self.seed % 16)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn effort(&self) -> Effort {
        match (self.class, self.look) {
            (FaultClass::Recovery, Look::Whole(_)) => Effort { samples: 2, all_of: 2, deep: 2 },
            (FaultClass::Recovery, Look::Glance) => Effort { samples: 1, all_of: 1, deep: 2 },
            (FaultClass::Rough, Look::Glance) => Effort { samples: 1, all_of: 1, deep: 0 },
            (_, Look::Glance) => Effort { samples: 2, all_of: 2, deep: 0 },
            (_, Look::Whole(all_of)) => Effort { samples: 12, all_of, deep: 0 },
        }
    }

    fn explorer(&self, effort: Effort) -> Explorer {
        let mut explorer = Explorer::new(self.variant(), effort, self.seed);
        explorer.redraws = self.class == FaultClass::Rough;
        explorer.stop = Arc::clone(&self.stop);
        explorer
    }

    /// Runs these of its operations. What was checked counts even when a promise is broken.
    pub fn run(&self, operations: &[Op]) -> (Looked, Result<(), String>) {
        let mut looked = Looked::default();
        let result = match self.class {
            FaultClass::Misdirected => self.lies(operations, &mut looked),
            FaultClass::Lying => {
                self.lies(operations, &mut looked).and_then(|()| self.last_lies(&mut looked))
            }
            FaultClass::Rot => self.rot(operations, &mut looked),
            FaultClass::SyncError => self.sync_errors(operations, &mut looked),
            FaultClass::Faults => self.faults(operations, &mut looked),
            FaultClass::Errors => self.errors(operations, &mut looked),
            FaultClass::Full => self.full(operations, &mut looked),
            FaultClass::Killed => {
                let mut killed = Killed::new(self.explorer(self.effort()));
                let result = killed.all(operations);
                looked.take(&killed.explorer);
                result
            }
            FaultClass::Readers => self.readers(operations, &mut looked),
            FaultClass::Threads => {
                let samples = if self.look == Look::Glance { 2 } else { 4 };
                let states = threads::run(self.seed, &self.variant(), samples);
                states.map(|states| looked.states = states)
            }
            _ => self.cuts(operations, &mut looked),
        };
        (looked, result)
    }

    fn readers(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let mut readers = Readers::begin(self.seed, self.variant())?;
        let result = readers.all(operations);
        looked.states += readers.looks;
        result
    }

    fn cuts(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let mut explorer = self.explorer(self.effort());
        explorer.depth = if self.look == Look::Glance { 1 } else { 3 };
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

    /// A device that lies at one place after the other, until the history is too short to meet it:
    /// each lie that was met counts as a state.
    fn at_each_place(
        &self,
        fault: impl Fn(u64) -> Fault,
        looked: &mut Looked,
        run: impl Fn(&SimDisk, u64) -> Result<(), String>,
    ) -> Result<(), String> {
        for nth in 1.. {
            let disk = SimDisk::new(self.seed, self.variant().disk);
            disk.inject(fault(nth).nth(nth));
            let result = run(&disk, nth);
            if disk.history().is_empty() || self.is_stopped() {
                return result;
            }
            looked.states += 1;
            result?;
        }
        Ok(())
    }

    /// One write after the other is lost, or lands elsewhere.
    fn lies(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let variant = self.variant();
        let effect = |nth| {
            let mut rng = fastrand::Rng::with_seed(self.seed ^ nth);
            let file = rng.bool().then(|| format!("{:020}.ink", rng.u64(1..4)));
            match self.class {
                FaultClass::Misdirected => {
                    Effect::Misdirected { file, offset: rng.u64(..14) * 4096 }
                }
                _ => Effect::LostWrite,
            }
        };
        let fault = |nth| Fault::new(effect(nth)).on(OperationKind::Write);
        self.at_each_place(fault, looked, |disk, nth| {
            let told = lies::tell(disk, &variant, operations);
            told.map(drop).map_err(|why| format!("write {nth}, {}: {why}", effect(nth)))
        })
    }

    /// What nothing shows that comes later: the lie is about the last write.
    fn last_lies(&self, looked: &mut Looked) -> Result<(), String> {
        looked.states += 2;
        lies::last_record(self.seed, &self.variant())?;
        lies::last_truncation(self.seed, &self.variant())
    }

    fn rot(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let count = if self.look == Look::Glance { 10 } else { 200 };
        lies::rots(self.seed, &self.variant(), operations, count, &mut looked.states)
    }

    fn faulty(
        &self,
        disk: SimDisk,
        explorer: Explorer,
        trouble: Trouble,
        operations: &[Op],
        looked: &mut Looked,
    ) -> Result<FaultyRun, String> {
        let mut run = FaultyRun::begin(disk, explorer, trouble)?;
        let result = run.all(operations);
        looked.take(&run.inner.explorer);
        result.map(|()| run)
    }

    /// The same fault at one place after the other, until the history is too short to meet it.
    fn everywhere(
        &self,
        fault: &Fault,
        trouble: Trouble,
        operations: &[Op],
        looked: &mut Looked,
    ) -> Result<(), String> {
        let is_glance = self.look == Look::Glance;
        let first = if is_glance { fastrand::Rng::with_seed(self.seed).u64(1..60) } else { 1 };
        for nth in first.. {
            let explorer = self.explorer(LITTLE);
            let disk = SimDisk::new(self.seed, explorer.variant.disk);
            disk.inject(fault.clone().nth(nth));
            let run = self.faulty(disk, explorer, trouble, operations, looked)?;
            if is_glance || run.inner.disk.history().is_empty() || self.is_stopped() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Faults by rate; or by plan, where a failed operation is retried at once, or not.
    fn faults(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let mut explorer = self.explorer(LITTLE);
        let mut rng = fastrand::Rng::with_seed(self.seed ^ 0x6661_756C_7473_2121);
        let after = [AfterEffect::KeepsNew, AfterEffect::RevertsToOld][rng.usize(..2)];
        let has_rates = rng.u8(..3) == 0;
        let mut trouble = Trouble::Often;
        if has_rates {
            explorer.variant.disk.rates = FaultRates {
                read_error_ppm: 5_000,
                write_error_ppm: 20_000,
                sync_error_ppm: 20_000,
                directory_error_ppm: 10_000,
                no_space_ppm: 20_000,
                short_ppm: 100_000,
            };
            explorer.variant.disk.after_effect = Some(after);
        } else {
            trouble = [Trouble::Once, Trouble::Often][rng.usize(..2)];
        }
        let disk = SimDisk::new(self.seed, explorer.variant.disk);
        let count = if trouble == Trouble::Once { 1 } else { 4 };
        for turn in 0..if has_rates { 0 } else { count } {
            let fault = match rng.u8(..4) {
                0 | 1 => Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync),
                2 => Fault::new(Effect::ShortThenError(700, errno::EIO)).on(OperationKind::Write),
                _ => Fault::new(Effect::Error(errno::EIO)),
            };
            disk.inject(fault.nth(20 * turn + rng.u64(1..40)));
        }
        self.faulty(disk, explorer, trouble, operations, looked).map(drop)
    }

    fn sync_errors(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        for after in [AfterEffect::KeepsNew, AfterEffect::RevertsToOld] {
            let fault = Fault::new(Effect::SyncFails(errno::EIO, after)).on(OperationKind::Sync);
            self.everywhere(&fault, Trouble::Once, operations, looked)
                .map_err(|why| format!("after-effect {after:?}: {why}"))?;
        }
        let later = Effect::SyncFails(errno::EIO, AfterEffect::ReportsLater);
        let fault = |_| Fault::new(later.clone()).on(OperationKind::Sync);
        let variant = self.variant();
        self.at_each_place(fault, looked, |disk, nth| {
            lies::reports_later(disk, &variant, operations, nth)
                .map_err(|why| format!("sync {nth} reports its failure later: {why}"))
        })
    }

    fn errors(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
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
        Ok(())
    }

    fn full(&self, operations: &[Op], looked: &mut Looked) -> Result<(), String> {
        let explorer = self.explorer(LITTLE);
        let disk = SimDisk::new(self.seed, explorer.variant.disk);
        let run = self.faulty(disk, explorer, Trouble::Full, operations, looked)?;
        if run.poisoned > 0 {
            return Err("a full disk poisons the log".into());
        }
        looked.states += 1;
        self.budget()
    }

    /// On a disk with enough room a log keeps to its budget, whichever thread prepares files.
    fn budget(&self) -> Result<(), String> {
        let (mut variant, room) = (self.variant(), self.room_bytes());
        variant.disk.capacity_bytes = None;
        variant.options = variant.options.disk_budget_bytes(room);
        let disk = SimDisk::new(self.seed, variant.disk);
        let log = open(&disk, &variant).map_err(|error| error.to_string())?;
        for step in 0..12 {
            // Without room this returns an error, which is right.
            let _ = log.prepare_now();
            let _ = log.append_durable(&[7; 20_000]);
            if step % 4 == 3 {
                log.truncate_before(log.last()).map_err(|error| error.to_string())?;
            }
            let used: u64 = disk.image().iter().map(|(_, bytes)| bytes.len() as u64).sum();
            if used > room {
                return Err(format!("{used} bytes of a budget of {room}"));
            }
        }
        Ok(())
    }
}
