//! Looking at what a crash left: each disk found is opened, wholly read, compared with the model, and appended to; some
//! of them are crashed again while they are opened, and afterwards.
//!
//! *Owns*: opening and checking, which disks of a cut are looked at, the count of states. *May not touch*: what led to
//! the cut.

use std::sync::Arc;

use inkstone::Log;
use inkstone_sim::{FaultRates, PowerCut, SimDirectory, SimDisk};

use super::variant::Variant;
use crate::model::{Allowed, Record, Shown};

/// The directory of every log here.
pub const PATH: &str = "/log";

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Disks that are drawn from a cut.
    pub samples: u64,
    /// All of them are looked at where there are no more items than this.
    pub all_of: usize,
    /// One in so many is crashed again: while it is opened, and after that. 0: none.
    pub deep: u64,
}

/// Looks at disks, and counts them.
#[derive(Debug)]
pub struct Explorer {
    /// Which log on which disk.
    pub variant: Variant,
    /// How much is looked at.
    pub effort: Effort,
    /// From which everything follows.
    pub seed: u64,
    /// Every disk that was found after a power cut, opened and read.
    pub states: u64,
}

/// Opens the log of a disk.
pub fn open(disk: &SimDisk, variant: &Variant) -> inkstone::Result<Log<SimDirectory>> {
    Log::open_in(Arc::new(disk.directory(PATH)), variant.options.clone())
}

/// Opens what was found, reads it, and compares it.
pub fn open_and_check(
    disk: &SimDisk,
    variant: &Variant,
    allowed: &Allowed,
) -> Result<(Log<SimDirectory>, Shown), String> {
    let log = open(disk, variant).map_err(|error| format!("it does not open: {error}"))?;
    let shown = allowed.check(&log)?;
    Ok((log, shown))
}

/// Appends one record, durably: it must get the next LSN and be there.
pub fn probe(log: &Log<SimDirectory>, shown: Shown) -> Result<(), String> {
    let lsn = log
        .append_durable(Record::probe().payload())
        .map_err(|error| format!("it takes no more: {error}"))?;
    if lsn.get() != shown.last + 1 {
        return Err(format!("after {} comes {lsn}", shown.last));
    }
    match log.reader().get(lsn) {
        Ok(bytes) if bytes == Record::probe().payload() => Ok(()),
        Ok(_) => Err(format!("LSN {lsn}, just appended, has other bytes")),
        Err(error) => Err(format!("LSN {lsn}, just appended, cannot be read: {error}")),
    }
}

impl Explorer {
    /// One that has looked at nothing yet.
    pub fn new(variant: Variant, effort: Effort, seed: u64) -> Self {
        Self { variant, effort, seed, states: 0 }
    }

    /// Looks at disks that this cut may leave.
    pub fn cut(&mut self, cut: &PowerCut, allowed: &Allowed) -> Result<(), String> {
        if cut.items().len() <= self.effort.all_of {
            for (number, found) in cut.subsets().into_iter().flatten().enumerate() {
                self.found(&found, allowed, number as u64)?;
            }
            return Ok(());
        }
        for sample in 0..self.effort.samples {
            let found = cut.sample(self.seed ^ (sample << 40));
            self.found(&found, allowed, self.states)?;
        }
        Ok(())
    }

    /// Looks at one disk that was found.
    fn found(&mut self, found: &SimDisk, allowed: &Allowed, number: u64) -> Result<(), String> {
        self.states += 1;
        // What led here may have failed by itself; what comes now does not.
        found.change_options(|options| options.rates = FaultRates::default());
        if self.effort.deep > 0 && number.is_multiple_of(self.effort.deep) {
            return self.twice(found, allowed);
        }
        let (log, shown) = open_and_check(found, &self.variant, allowed)?;
        found.change_options(|options| options.capacity_bytes = None);
        probe(&log, shown)?;
        log.abandon();
        Ok(())
    }

    /// Crashes again, while what was found is opened, after it, while one record is appended, and after that.
    fn twice(&mut self, found: &SimDisk, allowed: &Allowed) -> Result<(), String> {
        let effort = std::mem::replace(&mut self.effort, Effort { samples: 2, all_of: 2, deep: 0 });
        let result = self.crash_again(found, allowed);
        self.effort = effort;
        result
    }

    fn crash_again(&mut self, found: &SimDisk, allowed: &Allowed) -> Result<(), String> {
        found.record_epochs();
        let (log, shown) = open_and_check(found, &self.variant, allowed)?;
        let at =
            |when: &str| format!("again, {when} the opening that showed {}..={}", shown.first, shown.last);
        for cut in found.take_epochs() {
            self.cut(&cut, allowed).map_err(|why| format!("crashed {}: {why}", at("within")))?;
        }
        let exactly = allowed.exactly(shown);
        let cut = found.power_cut();
        self.cut(&cut, &exactly).map_err(|why| format!("crashed {}: {why}", at("after")))?;
        // A full disk is no reason for an opening to fail; to append is.
        found.change_options(|options| options.capacity_bytes = None);
        probe(&log, shown)?;
        let with_probe = exactly.and_probe();
        let words = |why| format!("crashed {}: {why}", at("and while one more was appended after"));
        for cut in found.take_epochs() {
            self.cut(&cut, &with_probe).map_err(words)?;
        }
        let certain = with_probe.all();
        self.cut(&found.power_cut(), &certain).map_err(words)?;
        // The process is killed, the kernel lives on.
        log.abandon();
        let (log, _) =
            open_and_check(found, &self.variant, &certain).map_err(|why| format!("killed: {why}"))?;
        log.abandon();
        self.cut(&found.power_cut(), &certain).map_err(|why| format!("killed, opened, then crashed: {why}"))
    }
}
