//! Histories of a raft log on simulated disks: every call is compared with the model, the power is cut after and within every call, and
//! what is found is opened, compared and gone on with, two deep.
//!
//! *Owns*: drawing calls, cutting the power, counting states. *May not touch*: the crate's insides.

use std::sync::{Arc, Mutex};

use inkstone_raft::{EntryId, Leader, NewEntry, Options, RaftLog, Vote};
use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, PowerCut, SimDisk};

use super::model::{Model, Op};

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

/// What was seen: states are disks that were found after a power cut, opened, wholly read and compared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) states: u64,
    pub(crate) deeper: u64,
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    pub(crate) rolls: u64,
    pub(crate) failed: u64,
}

/// The acknowledgements of a history: the epoch of the disk, and how much of the history was durable then.
type Acks = Arc<Mutex<Vec<(u64, usize)>>>;

/// One history.
pub(crate) struct History<'a> {
    pub(crate) options: &'a Options,
    pub(crate) effort: Effort,
    pub(crate) tally: &'a mut Tally,
    pub(crate) rng: fastrand::Rng,
    /// Whether syncs and writes may fail.
    pub(crate) fails: bool,
}

/// A raft log under test, and what it may hold: what it held after each call so far, the first of them for certain.
struct Subject {
    disk: SimDisk,
    raft: Raft,
    past: Vec<Model>,
    acks: Acks,
    called: Arc<Mutex<Vec<usize>>>,
}

impl Subject {
    fn now(&self) -> &Model {
        self.past.last().expect("it began with one")
    }

    /// What must be there at the least when the disk was cut in this epoch.
    fn certain(&self, epoch: u64) -> usize {
        let acks = self.acks.lock().unwrap();
        acks.iter().filter(|(when, _)| *when <= epoch).map(|(_, what)| *what).max().unwrap_or(0)
    }

    fn acknowledge(&self) {
        self.acks.lock().unwrap().push((self.disk.epochs_recorded(), self.past.len() - 1));
    }
}

fn compare(allowed: &[Model], shown: &Model) -> Result<(), String> {
    if allowed.iter().any(|model| model.may_be_shown_as(shown)) {
        return Ok(());
    }
    let models: Vec<_> = allowed.iter().map(|model| format!("\n  {}", model.brief())).collect();
    Err(format!("shows {}, which is none of:{}", shown.brief(), models.concat()))
}

impl History<'_> {
    /// Runs a history on a new disk.
    pub(crate) fn run(&mut self, disk: &SimDisk) -> Result<(), String> {
        disk.record_epochs();
        let raft = open(disk, self.options)?;
        let shown = Model::of(&raft)?;
        compare(&[Model::new()], &shown)?;
        let raft = self.go_on(disk, raft, shown, 0)?;
        raft.close().map_err(|error| format!("does not close: {error}"))
    }

    /// Makes calls of a raft log that shows this model.
    fn go_on(&mut self, disk: &SimDisk, raft: Raft, shown: Model, depth: usize) -> Result<Raft, String> {
        disk.take_epochs();
        let mut subject = Subject {
            disk: disk.clone(),
            raft,
            past: vec![shown],
            acks: Arc::default(),
            called: Arc::default(),
        };
        let calls = if depth == 0 { self.effort.calls } else { 3 };
        for _ in 0..calls {
            let op = self.draw(subject.now());
            self.tally.calls += 1;
            let segments = subject.raft.stats().segments;
            let went_well = self.call(&mut subject, &op).map_err(|why| format!("{}: {why}", op.brief()))?;
            self.tally.rolls += subject.raft.stats().segments - segments;
            self.cuts(&subject, depth).map_err(|why| format!("{}, then: {why}", op.brief()))?;
            if !went_well || self.rng.u32(..12) == 0 {
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
            let result = carry_out(subject, op);
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
        let result = carry_out(subject, op);
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
            return Err(format!("callbacks came in the order {:?}", subject.called.lock().unwrap()));
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
            let allowed = &subject.past[subject.certain(cut.epoch())..];
            self.cut(&cut, allowed, depth)?;
        }
        Ok(())
    }

    fn cut(&mut self, cut: &PowerCut, allowed: &[Model], depth: usize) -> Result<(), String> {
        for _ in 0..if depth == 0 { self.effort.samples } else { 1 } {
            let found = cut.sample(self.rng.u64(..));
            found.change_options(|options| options.rates = FaultRates::default());
            self.tally.states += 1;
            let is_deep = depth < 2 && self.rng.u64(..self.effort.deep << (2 * depth)) == 0;
            if is_deep {
                found.record_epochs();
            }
            let raft = open(&found, self.options)?;
            let shown = Model::of(&raft)?;
            compare(allowed, &shown)?;
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
            let raft = self.go_on(&found, raft, shown, depth + 1).map_err(|why| format!("gone on: {why}"))?;
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
        compare(&past[certain..], &shown).map_err(|why| format!("killed: {why}"))?;
        disk.take_epochs();
        let _ = called;
        Ok(Subject { disk, raft, past: vec![shown], acks: Arc::default(), called: Arc::default() })
    }

    fn payload(&mut self) -> Vec<u8> {
        let bytes = match self.rng.u32(..8) {
            0 => 0,
            1..5 => self.rng.usize(..200),
            5 | 6 => self.rng.usize(..3000),
            _ => self.rng.usize(..9000),
        };
        let mut payload = vec![self.rng.u8(..); bytes];
        for byte in payload.iter_mut().step_by(512) {
            *byte = self.rng.u8(..);
        }
        payload
    }

    fn leader(&mut self, at_least: &Leader) -> Leader {
        match self.rng.u32(..6) {
            0 => Leader::of_term(at_least.term + self.rng.u64(1..4)),
            1 => Leader::new(at_least.term + 1, [self.rng.u8(..)]),
            _ => at_least.clone(),
        }
    }

    /// Draws a call, mostly one that is allowed.
    fn draw(&mut self, now: &Model) -> Op {
        let (first, next) = (now.first, now.next());
        match self.rng.u32(..24) {
            0..9 => {
                let mut leader = now.last_leader();
                let count = self.rng.u64(..5);
                let next = if now.is_new() { self.rng.u64(..3) } else { next };
                let entries = (next..next + count).map(|index| {
                    leader = self.leader(&leader);
                    (EntryId::new(leader.clone(), index), self.payload())
                });
                Op::Append(entries.collect())
            }
            9..12 => {
                let least = now.vote.as_ref().map(|vote| vote.leader.clone()).unwrap_or_default();
                let leader = match self.rng.u32(..4) {
                    0 => Leader::new(least.term, [self.rng.u8(..3)]),
                    _ => self.leader(&least),
                };
                Op::Vote(if self.rng.bool() { Vote::granted(leader) } else { Vote::new(leader) })
            }
            12..15 => {
                let least = now.committed.map_or(first, |committed| committed + 1).max(first);
                let from = self.rng.u64(least..=next.max(least));
                if self.rng.bool() { Op::Truncate(from) } else { Op::TruncateThen(from) }
            }
            15..18 => {
                Op::Commit(self.rng.u64(now.committed.unwrap_or(0)..next.max(now.committed.unwrap_or(0) + 1)))
            }
            18 | 19 => {
                let upto = self.rng.u64(first.saturating_sub(1)..=now.committed.unwrap_or(0).max(first));
                let leader = now.id_of(upto).map(|id| id.leader).unwrap_or_default();
                Op::Purge(EntryId::new(leader, upto))
            }
            20 => {
                let upto = self.rng.u64(first.saturating_sub(2)..next + 4);
                let same = now.id_of(upto).filter(|_| self.rng.bool());
                let leader = self.leader(&now.last_leader());
                Op::Snapshot(same.unwrap_or(EntryId::new(leader, upto)))
            }
            21 | 22 => Op::Sync,
            _ => self.draw_bad(now),
        }
    }

    fn draw_bad(&mut self, now: &Model) -> Op {
        let (first, next) = (now.first, now.next());
        let entry = |leader, index| Op::Append(vec![(EntryId::new(leader, index), vec![1; 40])]);
        match self.rng.u32(..7) {
            0 => entry(now.last_leader(), next + self.rng.u64(1..4)),
            1 => entry(now.last_leader(), next.saturating_sub(self.rng.u64(1..4))),
            2 => entry(Leader::of_term(now.last_leader().term.saturating_sub(1)), next),
            3 => Op::Truncate(now.committed.unwrap_or(first.saturating_sub(1))),
            4 => Op::Commit(next + self.rng.u64(..3)),
            5 => Op::Purge(EntryId::new(now.last_leader(), next + self.rng.u64(..3))),
            _ => {
                let least = now.vote.as_ref().map(|vote| vote.leader.term).unwrap_or_default();
                Op::Vote(Vote::new(Leader::of_term(least.saturating_sub(1))))
            }
        }
    }
}

fn carry_out(subject: &Subject, op: &Op) -> inkstone_raft::Result<()> {
    let raft = &subject.raft;
    let callback = || {
        let what = subject.past.len() - 1;
        let (acks, called, disk) =
            (Arc::clone(&subject.acks), Arc::clone(&subject.called), subject.disk.clone());
        move |result: inkstone_raft::Result<()>| {
            called.lock().unwrap().push(what);
            if result.is_ok() {
                acks.lock().unwrap().push((disk.epochs_recorded(), what));
            }
        }
    };
    match op {
        Op::Append(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(id, payload)| NewEntry { leader: &id.leader, index: id.index, payload })
                .collect();
            raft.append(&entries, callback())
        }
        Op::TruncateThen(from) => raft.truncate_from_then(*from, callback()),
        Op::Vote(vote) => raft.save_vote(vote),
        Op::Truncate(from) => raft.truncate_from(*from),
        Op::Commit(index) => raft.save_committed(*index),
        Op::Purge(upto) => raft.purge(upto),
        Op::Snapshot(upto) => raft.purge_to_snapshot(upto),
        Op::Sync => raft.sync(),
    }
}

/// A history from a seed; the tally says what it saw.
pub(crate) fn explore(seed: u64, options: &Options, effort: Effort, tally: &mut Tally) -> Result<(), String> {
    // Not `ReportsLater`: a sync that lies is beyond any log.
    let after = if seed % 8 == 3 { AfterEffect::KeepsNew } else { AfterEffect::RevertsToOld };
    let disk = SimDisk::new(seed, DiskOptions { after_effect: Some(after), ..DiskOptions::default() });
    let log = inkstone::Options::small().own_thread(false).pad_groups(seed % 5 == 4);
    let options = &options.clone().log(log);
    let (fails, rng) = (seed % 4 == 3, fastrand::Rng::with_seed(seed));
    let mut history = History { options, effort, tally, rng, fails };
    history.run(&disk).map_err(|why| format!("seed {seed}: {why}"))
}
