//! Histories of a raft log on simulated disks: every call is compared with the model, the power is
//! cut after and within every call, and what is found is opened, compared and gone on with, two
//! deep.
//!
//! *Owns*: cutting the power, counting states. *May not touch*: the crate's insides.

use std::sync::{Arc, Mutex};

use inkstone_powerloss::raft::history::{Draw, carry_out};
use inkstone_powerloss::raft::model::{Model, Op};
use inkstone_powerloss::raft::verdict::Allowed;
use inkstone_raft::{Options, RaftLog};
use inkstone_sim::survival::Past;
use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, PowerCut, SimDisk};

pub(crate) type Raft = RaftLog;

/// Small segments, and nothing but what the calls do.
pub(crate) fn small() -> Options {
    Options::new().log(inkstone::Options::small().own_thread(false)).memory_bytes(3000)
}

pub(crate) fn open(disk: &SimDisk, options: &Options) -> Result<Raft, String> {
    let directory = Arc::new(disk.directory("/raft"));
    RaftLog::open_in(directory, options.clone()).map_err(|error| format!("does not open: {error}"))
}

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Calls of a history.
    pub(crate) calls: usize,
    /// Disks that are drawn from each cut.
    pub(crate) samples: u64,
    /// One found disk in this many is gone on with.
    pub(crate) deep: u64,
}

/// What was seen: states are disks that were found after a power cut, opened, wholly read and
/// compared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) states: u64,
    pub(crate) deeper: u64,
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    pub(crate) rolls: u64,
    pub(crate) failed: u64,
}

/// The acknowledgements of a history: the epoch of the disk, and how much of the history was
/// durable then.
type Acks = Arc<Mutex<Vec<(u64, usize)>>>;

/// One history.
pub(crate) struct History<'a> {
    pub(crate) options: &'a Options,
    pub(crate) effort: Effort,
    pub(crate) tally: &'a mut Tally,
    pub(crate) draw: Draw,
    /// Whether syncs and writes may fail.
    pub(crate) fails: bool,
}

/// A raft log under test, and what it may hold: what it held after each call so far, the first of
/// them for certain.
struct Subject {
    disk: SimDisk,
    raft: Raft,
    past: Past<Model>,
    acks: Acks,
    called: Arc<Mutex<Vec<usize>>>,
}

impl Subject {
    fn now(&self) -> &Model {
        self.past.now()
    }

    /// What must be there at the least when the disk was cut in this epoch.
    fn certain(&self, epoch: u64) -> usize {
        let acks = self.acks.lock().unwrap();
        acks.iter().filter(|(when, _)| *when <= epoch).map(|(_, what)| *what).max().unwrap_or(0)
    }

    fn acknowledge(&self) {
        self.acks.lock().unwrap().push((self.disk.epochs_recorded(), self.past.calls()));
    }
}

impl History<'_> {
    /// Runs a history on a new disk.
    pub(crate) fn run(&mut self, disk: &SimDisk) -> Result<(), String> {
        disk.record_epochs();
        let raft = open(disk, self.options)?;
        let shown = Model::of(&raft)?;
        Allowed::new(&[Model::new()]).check(&shown)?;
        let raft = self.go_on(disk, raft, shown, 0)?;
        raft.close().map_err(|error| format!("does not close: {error}"))
    }

    /// Makes calls of a raft log that shows this model.
    fn go_on(
        &mut self,
        disk: &SimDisk,
        raft: Raft,
        shown: Model,
        depth: usize,
    ) -> Result<Raft, String> {
        disk.take_epochs();
        let mut subject = Subject {
            disk: disk.clone(),
            raft,
            past: Past::new(shown),
            acks: Arc::default(),
            called: Arc::default(),
        };
        let calls = if depth == 0 { self.effort.calls } else { 3 };
        for _ in 0..calls {
            let op = self.draw.call(subject.now());
            self.tally.calls += 1;
            let segments = subject.raft.stats().segments;
            let went_well =
                self.call(&mut subject, &op).map_err(|why| format!("{}: {why}", op.brief()))?;
            self.tally.rolls += subject.raft.stats().segments - segments;
            self.cuts(&subject, depth).map_err(|why| format!("{}, then: {why}", op.brief()))?;
            if !went_well || self.draw.rng.u32(..12) == 0 {
                subject = self.kill(subject)?;
            }
        }
        Ok(subject.raft)
    }

    /// Makes a call, and compares what the raft log shows then. False if the log failed.
    fn call(&mut self, subject: &mut Subject, op: &Op) -> Result<bool, String> {
        let before = subject.now().clone();
        if !before.allows(op) {
            self.tally.refused += 1;
            let result = carry_out_with(subject, op);
            if !matches!(&result, Err(error) if !matches!(error, inkstone_raft::Error::Log(_))) {
                return Err(format!("is not allowed, and is answered by {result:?}"));
            }
            let shown = Model::of(&subject.raft)?;
            return if before.is_shown_as(&shown) && before.is_committed_as(&shown) {
                Ok(true)
            } else {
                Err(format!("was refused, and has changed {} to {}", before.brief(), shown.brief()))
            };
        }
        let after = before.after(op);
        subject.past.push(after.clone());
        if self.fails {
            subject.disk.change_options(|options| {
                options.rates =
                    FaultRates { sync_error_ppm: 30_000, write_error_ppm: 10_000, ..options.rates };
            });
        }
        let result = carry_out_with(subject, op);
        subject.disk.change_options(|options| options.rates = FaultRates::default());
        match result {
            // An append may fail after it has returned.
            Ok(()) if self.fails && subject.raft.bounds().is_err() => {
                self.tally.failed += 1;
                return Ok(false);
            }
            Ok(()) => {}
            Err(error) if self.fails => {
                self.tally.failed += 1;
                if subject.raft.bounds().is_ok() {
                    return Err(format!("{error}, and the next call says nothing of it"));
                }
                return Ok(false);
            }
            Err(error) => return Err(error.to_string()),
        }
        if !matches!(op, Op::Append(_) | Op::TruncateThen(_) | Op::Commit(_)) {
            subject.acknowledge();
        }
        if !subject.called.lock().unwrap().is_sorted() {
            return Err(format!(
                "callbacks came in the order {:?}",
                subject.called.lock().unwrap()
            ));
        }
        let shown = Model::of(&subject.raft)?;
        if !after.is_shown_as(&shown) || !after.is_committed_as(&shown) {
            return Err(format!("shows {} instead of {}", shown.brief(), after.brief()));
        }
        Ok(true)
    }

    /// Cuts the power within the last call, and after it.
    fn cuts(&mut self, subject: &Subject, depth: usize) -> Result<(), String> {
        let mut cuts = subject.disk.take_epochs();
        cuts.push(subject.disk.power_cut());
        for cut in cuts {
            let allowed = Allowed::new(subject.past.after(subject.certain(cut.epoch())));
            self.cut(&cut, &allowed, depth)?;
        }
        Ok(())
    }

    fn cut(&mut self, cut: &PowerCut, allowed: &Allowed, depth: usize) -> Result<(), String> {
        for _ in 0..if depth == 0 { self.effort.samples } else { 1 } {
            let found = cut.sample(self.draw.rng.u64(..));
            found.change_options(|options| options.rates = FaultRates::default());
            self.tally.states += 1;
            let is_deep = depth < 2 && self.draw.rng.u64(..self.effort.deep << (2 * depth)) == 0;
            if is_deep {
                found.record_epochs();
            }
            let raft = open(&found, self.options)?;
            let shown = Model::of(&raft)?;
            allowed.check(&shown)?;
            if !is_deep {
                raft.abandon();
                continue;
            }
            self.tally.deeper += 1;
            for cut in found.take_epochs() {
                self.cut(&cut, allowed, depth + 1)
                    .map_err(|why| format!("cut again while opening: {why}"))?;
            }
            let fails = std::mem::replace(&mut self.fails, false);
            let raft = self
                .go_on(&found, raft, shown, depth + 1)
                .map_err(|why| format!("gone on: {why}"))?;
            self.fails = fails;
            raft.abandon();
        }
        Ok(())
    }

    /// Kills the process; the kernel lives on. Opens the raft log again.
    fn kill(&mut self, subject: Subject) -> Result<Subject, String> {
        let Subject { disk, raft, past, acks, called } = subject;
        raft.abandon();
        let certain = acks.lock().unwrap().iter().map(|(_, what)| *what).max().unwrap_or(0);
        let raft = open(&disk, self.options).map_err(|why| format!("killed: {why}"))?;
        let shown = Model::of(&raft)?;
        let allowed = Allowed::new(past.after(certain));
        allowed.check(&shown).map_err(|why| format!("killed: {why}"))?;
        disk.take_epochs();
        let _ = called;
        let past = Past::new(shown);
        Ok(Subject { disk, raft, past, acks: Arc::default(), called: Arc::default() })
    }
}

fn carry_out_with(subject: &Subject, op: &Op) -> inkstone_raft::Result<()> {
    let what = subject.past.calls();
    let (acks, called, disk) =
        (Arc::clone(&subject.acks), Arc::clone(&subject.called), subject.disk.clone());
    carry_out(&subject.raft, op, move |result| {
        called.lock().unwrap().push(what);
        if result.is_ok() {
            acks.lock().unwrap().push((disk.epochs_recorded(), what));
        }
    })
}

/// A history from a seed; the tally says what it saw.
pub(crate) fn explore(
    seed: u64,
    options: &Options,
    effort: Effort,
    tally: &mut Tally,
) -> Result<(), String> {
    // Not `ReportsLater`: a sync that lies is beyond any log.
    let after = if seed % 8 == 3 { AfterEffect::KeepsNew } else { AfterEffect::RevertsToOld };
    let disk =
        SimDisk::new(seed, DiskOptions { after_effect: Some(after), ..DiskOptions::default() });
    let log = inkstone::Options::small().own_thread(false).pad_groups(seed % 5 == 4);
    let options = &options.clone().log(log);
    let (fails, draw) = (seed % 4 == 3, Draw { rng: fastrand::Rng::with_seed(seed) });
    let mut history = History { options, effort, tally, draw, fails };
    history.run(&disk).map_err(|why| format!("seed {seed}: {why}"))
}
