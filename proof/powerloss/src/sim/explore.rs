//! Checking what a crash left: each disk found is opened, wholly read, compared with the model, and
//! appended to; some of them are crashed again while they are opened, and afterwards.
//!
//! *Owns*: opening and checking, which disks of a cut are checked, the count of states. *May not
//! touch*: what led to the cut.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inkstone::Log;
use inkstone_io::{Directory, File, OpenFile};
use inkstone_sim::{FaultRates, PowerCut, SimDisk};

use super::space::{Pick, Space, is_unread};
use super::variant::Variant;
use crate::mistake::open_in;
use crate::model::{Allowed, Record, Shown};
use crate::verdict::{self, probe};

/// The directory of every log here.
pub const PATH: &str = "/log";

#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How many disks are drawn from a cut.
    pub samples: u64,
    /// All of them are checked where there are no more items than this.
    pub all_of: usize,
    /// One in this many is crashed again: while it is opened, and after that. 0: none.
    pub deep: u64,
}

/// How much is checked of a disk that is crashed again.
const AGAIN: Effort = Effort { samples: 2, all_of: 2, deep: 0 };
/// Of the states that are equal to an opened one, one in this many is opened all the same, and must
/// show the same.
const REOPENED: u64 = 64;

#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// States that were made and found equal to an opened one.
    pub covered: u64,
    /// Of these, the states that were opened all the same; they count as states too.
    pub reopened: u64,
    /// The binary logarithm of how many states the cuts allow.
    pub possible_log2: Option<f64>,
    /// States by how many crashes within a recovery led there.
    pub depths: [u64; 4],
    /// States with old bytes after the log's end.
    pub beneath: u64,
    /// Cuts of which every state was checked, or covered.
    pub exhausted: u64,
    pub cuts: u64,
}

impl Tally {
    fn add_possible(&mut self, log2: f64) {
        self.possible_log2 = Some(self.possible_log2.map_or(log2, |sum| log2_of_sum(sum, log2)));
    }
}

/// The binary logarithm of the sum of two numbers that are given by their logarithms.
pub(crate) fn log2_of_sum(left: f64, right: f64) -> f64 {
    let (low, high) = (left.min(right), left.max(right));
    high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2
}

/// Checks disks, and counts them.
#[derive(Debug)]
pub struct Explorer {
    /// The log and its disk.
    pub variant: Variant,
    pub effort: Effort,
    pub seed: u64,
    /// Every disk that was found after a power cut, opened and read.
    pub states: u64,
    /// How cuts are explored.
    pub pick: Pick,
    /// How many crashes within recoveries follow each other, where [`Effort::deep`] asks for any.
    pub depth: usize,
    /// Whether a state that is equal to one of the same cut is opened once only.
    pub is_covering: bool,
    /// Whether states with old bytes after the end are counted.
    pub looks_beneath: bool,
    /// Whether a history may open its log with other options.
    pub redraws: bool,
    /// Setting it ends the checks.
    pub stop: Arc<AtomicBool>,
    /// The rest of the counts.
    pub tally: Tally,
    level: usize,
    seen: HashMap<u128, Shown>,
}

/// Opens the log of a disk.
pub fn open(disk: &SimDisk, variant: &Variant) -> inkstone::Result<Log> {
    open_in(disk.directory(PATH), variant.options.clone(), variant.mistake)
}

/// Opens what was found, reads it, and compares it.
pub fn open_and_check(
    disk: &SimDisk,
    variant: &Variant,
    allowed: &Allowed,
) -> Result<(Log, Shown), String> {
    let Variant { options, mistake, .. } = variant;
    verdict::open_and_check(disk.directory(PATH), options.clone(), *mistake, allowed)
}

/// Whether the last segment has old bytes after the log's end, beyond what an opening writes there.
fn has_old_bytes(found: &SimDisk, log: &Log) -> bool {
    let Some(end) = log.recovery().end else { return false };
    let name = format!("{:020}.ink", end.segment.get());
    let Ok(file) = found.directory(PATH).open(&name, &OpenFile::existing().read_only()) else {
        return false;
    };
    let Ok(len) = file.len_bytes() else { return false };
    let from = (end.byte / 4096 + 3) * 4096;
    let mut bytes = vec![0; len.saturating_sub(from) as usize];
    file.read_at(&mut bytes, from).is_ok() && bytes.iter().any(|&byte| byte != 0)
}

impl Explorer {
    pub fn new(variant: Variant, effort: Effort, seed: u64) -> Self {
        Self {
            variant,
            effort,
            seed,
            states: 0,
            pick: Pick::Items,
            depth: 1,
            is_covering: false,
            looks_beneath: false,
            redraws: true,
            stop: Arc::default(),
            tally: Tally::default(),
            level: 0,
            seen: HashMap::new(),
        }
    }

    /// Checks disks that this cut may leave.
    pub fn cut(&mut self, cut: &PowerCut, allowed: &Allowed) -> Result<(), String> {
        let space = Space::of(cut, self.pick);
        self.tally.cuts += 1;
        self.tally.add_possible(space.log2());
        self.seen.clear();
        if let Some(count) = space.enumerated(self.effort.all_of) {
            self.tally.exhausted += u64::from(space.is_complete());
            for number in 0..count {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.found(&space.state(number, self.seed), allowed, number)?;
            }
            return Ok(());
        }
        for sample in 0..self.effort.samples {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let found = space.sample(self.seed ^ (sample << 40));
            self.found(&found, allowed, self.states)?;
        }
        Ok(())
    }

    /// Checks one disk that was found.
    fn found(&mut self, found: &SimDisk, allowed: &Allowed, number: u64) -> Result<(), String> {
        let sum = (self.is_covering && self.level == 0).then(|| found.fingerprint(is_unread));
        let equal = sum.and_then(|sum| self.seen.get(&sum).copied());
        if equal.is_some() {
            self.tally.covered += 1;
            if !self.tally.covered.is_multiple_of(REOPENED) {
                return Ok(());
            }
            (self.tally.covered, self.tally.reopened) =
                (self.tally.covered - 1, self.tally.reopened + 1);
        }
        self.states += 1;
        self.tally.depths[self.level.min(3)] += 1;
        // The disk may have failed before; from here on it does not.
        found.change_options(|options| options.rates = FaultRates::default());
        if equal.is_none() && self.effort.deep > 0 && number.is_multiple_of(self.effort.deep) {
            return self.twice(found, allowed);
        }
        let (log, shown) = open_and_check(found, &self.variant, allowed)?;
        if self.looks_beneath {
            self.tally.beneath += u64::from(has_old_bytes(found, &log));
        }
        if equal.is_some_and(|equal| equal != shown) {
            return Err(format!("found {shown:?} on a disk that is equal to one with {equal:?}"));
        }
        if let Some(sum) = sum {
            self.seen.insert(sum, shown);
        }
        found.change_options(|options| options.capacity_bytes = None);
        probe(&log, shown)?;
        log.abandon();
        Ok(())
    }

    /// Crashes again: while the disk is opened, after that, while one record is appended, and after
    /// that.
    fn twice(&mut self, found: &SimDisk, allowed: &Allowed) -> Result<(), String> {
        let deep = if self.level + 1 < self.depth { 3 } else { 0 };
        let effort = std::mem::replace(&mut self.effort, Effort { deep, ..AGAIN });
        let pick = std::mem::replace(&mut self.pick, Pick::Items);
        self.level += 1;
        let result = self.crash_again(found, allowed);
        self.level -= 1;
        (self.effort, self.pick) = (effort, pick);
        result
    }

    fn crash_again(&mut self, found: &SimDisk, allowed: &Allowed) -> Result<(), String> {
        found.record_epochs();
        let (log, shown) = open_and_check(found, &self.variant, allowed)?;
        let at = |when: &str| {
            format!("again, {when} the opening that showed {}..={}", shown.first, shown.last)
        };
        for cut in found.take_epochs() {
            self.cut(&cut, allowed).map_err(|why| format!("crashed {}: {why}", at("within")))?;
        }
        let exactly = allowed.exactly(shown.first, shown.last);
        let cut = found.power_cut();
        self.cut(&cut, &exactly).map_err(|why| format!("crashed {}: {why}", at("after")))?;
        // A full disk is no reason for an opening to fail, but it is one for an append.
        found.change_options(|options| options.capacity_bytes = None);
        probe(&log, shown)?;
        let with_probe = exactly.and(Record::probe());
        let words = |why| format!("crashed {}: {why}", at("and while one more was appended after"));
        for cut in found.take_epochs() {
            self.cut(&cut, &with_probe).map_err(words)?;
        }
        let certain = with_probe.all();
        self.cut(&found.power_cut(), &certain).map_err(words)?;
        // The process is killed, the kernel lives on.
        log.abandon();
        let (log, _) = open_and_check(found, &self.variant, &certain)
            .map_err(|why| format!("killed: {why}"))?;
        log.abandon();
        self.cut(&found.power_cut(), &certain)
            .map_err(|why| format!("killed, opened, then crashed: {why}"))
    }
}
