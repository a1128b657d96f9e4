//! Histories of raft logs on simulated disks, one alone in its log or several in one log: every
//! call is compared with the model, the power is cut after and within every call, and what is found
//! is opened, compared and gone on with, two deep.
//!
//! *Owns*: cutting the power, counting states. *May not touch*: the crate's insides.

use std::sync::{Arc, Mutex};

use inkstone_powerloss::raft::history::{Draw, carry_out};
use inkstone_powerloss::raft::model::{Model, Op};
use inkstone_raft::{Error, Groups, Options, RaftLog, Result as Answer, StreamsOptions};
use inkstone_sim::survival::{Past, Thing as _, is_left_of};
use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, PowerCut, SimDisk};

/// Where the raft logs of a history are.
#[derive(Debug, Clone)]
pub(crate) enum Home {
    /// One, alone in its log.
    Alone(Options),
    /// So many groups in one log.
    Groups(u64, StreamsOptions),
}

/// Small segments, and nothing but what the calls do.
pub(crate) fn small() -> Home {
    Home::Alone(Options::new().memory_bytes(3000)).log(false)
}

/// Three groups, likewise.
#[allow(dead_code, reason = "each test uses a part of it")]
pub(crate) fn groups() -> Home {
    let options = StreamsOptions::new().section_bytes(16 << 10).own_mover(false);
    Home::Groups(3, options).log(false)
}

impl Home {
    fn log(self, pads: bool) -> Self {
        let log = inkstone::Options::small().own_thread(false).pad_groups(pads);
        match self {
            Self::Alone(options) => Self::Alone(options.log(log)),
            Self::Groups(count, options) => Self::Groups(count, options.log(log)),
        }
    }

    fn open(&self, disk: &SimDisk) -> Result<Rafts, String> {
        let directory = Arc::new(disk.directory("/raft"));
        let opened = match self {
            Self::Alone(options) => {
                let raft = RaftLog::open_in(directory, options.clone());
                raft.map(|raft| Rafts { all: vec![raft], groups: None })
            }
            Self::Groups(count, options) => {
                Groups::open_in(directory, options.clone()).and_then(|groups| {
                    let all: Answer<_> = (0..*count).map(|id| groups.group(id)).collect();
                    Ok(Rafts { all: all?, groups: Some(groups) })
                })
            }
        };
        opened.map_err(|error| format!("does not open: {error}"))
    }
}

/// The raft logs under test.
struct Rafts {
    all: Vec<RaftLog>,
    groups: Option<Groups>,
}

/// What all of them hold.
type Models = Vec<Model>;

/// A call of one of them.
#[derive(Debug, Clone)]
enum Call {
    Of(usize, Op),
    /// The handle goes, and another one comes.
    Again(usize),
    Remove(usize),
}

impl Call {
    fn brief(&self) -> String {
        match self {
            Self::Of(raft, op) => format!("{raft}: {}", op.brief()),
            other => format!("{other:?}"),
        }
    }

    fn is_allowed(&self, now: &Models) -> bool {
        match self {
            Self::Of(raft, op) => now[*raft].allows(op),
            Self::Again(_) | Self::Remove(_) => true,
        }
    }

    fn after(&self, now: &Models) -> Models {
        let mut after = now.clone();
        match self {
            Self::Of(raft, op) => after[*raft] = now[*raft].after(op),
            // Whoever lets go of a group writes what is committed.
            Self::Again(raft) => after[*raft] = now[*raft].closed(),
            Self::Remove(raft) => after[*raft] = Model::new(),
        }
        after
    }

    /// Whether all before it is durable when it has returned.
    fn waits(&self) -> bool {
        !matches!(
            self,
            Self::Again(_) | Self::Of(_, Op::Append(_) | Op::TruncateThen(_) | Op::Commit(_))
        )
    }
}

impl Rafts {
    fn shown(&self) -> Result<Models, String> {
        self.all.iter().map(Model::of).collect()
    }

    fn segments(&self) -> u64 {
        self.all[0].stats().segments
    }

    fn carry_out(
        &mut self,
        call: &Call,
        callback: impl FnOnce(Answer<()>) + Send + 'static,
    ) -> Answer<()> {
        match (call, &self.groups) {
            (Call::Of(raft, op), _) => carry_out(&self.all[*raft], op, callback),
            (Call::Again(raft), Some(groups)) => {
                drop(self.all.remove(*raft));
                self.all.insert(*raft, groups.group(*raft as u64)?);
                Ok(())
            }
            (Call::Remove(raft), Some(groups)) => {
                groups.remove(*raft as u64)?;
                let held = self.all[*raft].bounds();
                assert!(matches!(held, Err(Error::Closed)), "it was removed: {held:?}");
                self.all[*raft] = groups.group(*raft as u64)?;
                Ok(())
            }
            (Call::Again(_) | Call::Remove(_), None) => Ok(()),
        }
    }

    fn close(self) -> Answer<()> {
        match self.groups {
            Some(groups) => groups.close(),
            None => self.all[0].close(),
        }
    }

    /// Ends them as a killed process would.
    fn abandon(mut self) {
        match self.groups {
            Some(groups) => groups.abandon(),
            None => self.all.remove(0).abandon(),
        }
    }
}

/// Whether what is shown is this, also of what is committed.
fn is_now(now: &Models, shown: &Models) -> bool {
    now.iter().zip(shown).all(|(now, shown)| now.is_shown_as(shown) && now.is_committed_as(shown))
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
    /// Records of groups that were moved to the end of the log.
    pub(crate) moved: u64,
}

/// The acknowledgements of a history: the epoch of the disk, and how much of the history was
/// durable then.
type Acks = Arc<Mutex<Vec<(u64, usize)>>>;

/// One history.
pub(crate) struct History<'a> {
    pub(crate) home: &'a Home,
    pub(crate) effort: Effort,
    pub(crate) tally: &'a mut Tally,
    pub(crate) draw: Draw,
    /// Whether syncs and writes may fail.
    pub(crate) fails: bool,
}

/// The raft logs under test, and what they may hold: what they held after each call so far, the
/// first of them for certain.
struct Subject {
    disk: SimDisk,
    rafts: Rafts,
    past: Past<Models>,
    acks: Acks,
    /// Whose callbacks came, and of which calls.
    called: Arc<Mutex<Vec<(usize, usize)>>>,
}

impl Subject {
    fn now(&self) -> &Models {
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
        let rafts = self.home.open(disk)?;
        let shown = rafts.shown()?;
        is_left_of(&[vec![Model::new(); shown.len()]], &shown)?;
        let rafts = self.go_on(disk, rafts, shown, 0)?;
        rafts.close().map_err(|error| format!("does not close: {error}"))
    }

    /// Makes calls of raft logs that show these models.
    fn go_on(
        &mut self,
        disk: &SimDisk,
        rafts: Rafts,
        shown: Models,
        depth: usize,
    ) -> Result<Rafts, String> {
        disk.take_epochs();
        let mut subject = Subject {
            disk: disk.clone(),
            rafts,
            past: Past::new(shown),
            acks: Arc::default(),
            called: Arc::default(),
        };
        let calls = if depth == 0 { self.effort.calls } else { 3 };
        for _ in 0..calls {
            let call = self.draw(subject.now());
            self.tally.calls += 1;
            let segments = subject.rafts.segments();
            let went_well =
                self.call(&mut subject, &call).map_err(|why| format!("{}: {why}", call.brief()))?;
            self.tally.rolls += subject.rafts.segments() - segments;
            self.cuts(&subject, depth).map_err(|why| format!("{}, then: {why}", call.brief()))?;
            if !went_well || self.draw.rng.u32(..12) == 0 {
                subject = self.kill(subject)?;
            }
        }
        Ok(subject.rafts)
    }

    fn draw(&mut self, now: &Models) -> Call {
        let raft = self.draw.rng.usize(..now.len());
        match self.draw.rng.u32(..40) {
            0 | 1 if now.len() > 1 => Call::Again(raft),
            2 if now.len() > 1 => Call::Remove(raft),
            _ => Call::Of(raft, self.draw.call(&now[raft])),
        }
    }

    /// Makes a call, and compares what the raft logs show then. False if the log failed.
    fn call(&mut self, subject: &mut Subject, call: &Call) -> Result<bool, String> {
        let before = subject.now().clone();
        if !call.is_allowed(&before) {
            self.tally.refused += 1;
            let result = carry_out_with(subject, call);
            if !matches!(&result, Err(error) if !matches!(error, Error::Log(_))) {
                return Err(format!("is not allowed, and is answered by {result:?}"));
            }
            let shown = subject.rafts.shown()?;
            return if is_now(&before, &shown) {
                Ok(true)
            } else {
                Err(format!("was refused, and has changed {} to {}", before.brief(), shown.brief()))
            };
        }
        let after = call.after(&before);
        subject.past.push(after.clone());
        if self.fails {
            subject.disk.change_options(|options| {
                options.rates =
                    FaultRates { sync_error_ppm: 30_000, write_error_ppm: 10_000, ..options.rates };
            });
        }
        let result = carry_out_with(subject, call);
        subject.disk.change_options(|options| options.rates = FaultRates::default());
        let has_failed = subject.rafts.all.iter().any(|raft| raft.bounds().is_err());
        match result {
            // An append may fail after it has returned.
            Ok(()) if self.fails && has_failed => {
                self.tally.failed += 1;
                return Ok(false);
            }
            Ok(()) => {}
            Err(error) if self.fails => {
                self.tally.failed += 1;
                if !has_failed && subject.rafts.groups.is_none() {
                    return Err(format!("{error}, and the next call says nothing of it"));
                }
                return Ok(false);
            }
            Err(error) => return Err(error.to_string()),
        }
        if call.waits() {
            subject.acknowledge();
        }
        let called = subject.called.lock().unwrap().clone();
        for raft in 0..after.len() {
            let of = called.iter().filter(|(of, _)| *of == raft);
            if !of.is_sorted() {
                return Err(format!("callbacks came in the order {called:?}"));
            }
        }
        let shown = subject.rafts.shown()?;
        if !is_now(&after, &shown) {
            return Err(format!("shows {} instead of {}", shown.brief(), after.brief()));
        }
        if let Some(groups) = &subject.rafts.groups {
            let before = groups.stats().moved_records;
            groups.move_some().map_err(|error| format!("moving: {error}"))?;
            self.tally.moved += groups.stats().moved_records - before;
        }
        Ok(true)
    }

    /// Cuts the power within the last call, and after it.
    fn cuts(&mut self, subject: &Subject, depth: usize) -> Result<(), String> {
        let mut cuts = subject.disk.take_epochs();
        cuts.push(subject.disk.power_cut());
        for cut in cuts {
            self.cut(&cut, subject.past.after(subject.certain(cut.epoch())), depth)?;
        }
        Ok(())
    }

    fn cut(&mut self, cut: &PowerCut, allowed: &[Models], depth: usize) -> Result<(), String> {
        for _ in 0..if depth == 0 { self.effort.samples } else { 1 } {
            let found = cut.sample(self.draw.rng.u64(..));
            found.change_options(|options| options.rates = FaultRates::default());
            self.tally.states += 1;
            let is_deep = depth < 2 && self.draw.rng.u64(..self.effort.deep << (2 * depth)) == 0;
            if is_deep {
                found.record_epochs();
            }
            let rafts = self.home.open(&found)?;
            let shown = rafts.shown()?;
            is_left_of(allowed, &shown)?;
            if !is_deep {
                rafts.abandon();
                continue;
            }
            self.tally.deeper += 1;
            for cut in found.take_epochs() {
                self.cut(&cut, allowed, depth + 1)
                    .map_err(|why| format!("cut again while opening: {why}"))?;
            }
            let fails = std::mem::replace(&mut self.fails, false);
            let rafts = self
                .go_on(&found, rafts, shown, depth + 1)
                .map_err(|why| format!("gone on: {why}"))?;
            self.fails = fails;
            rafts.abandon();
        }
        Ok(())
    }

    /// Kills the process; the kernel lives on. Opens the raft logs again.
    fn kill(&mut self, subject: Subject) -> Result<Subject, String> {
        let Subject { disk, rafts, past, acks, .. } = subject;
        rafts.abandon();
        let certain = acks.lock().unwrap().iter().map(|(_, what)| *what).max().unwrap_or(0);
        let rafts = self.home.open(&disk).map_err(|why| format!("killed: {why}"))?;
        let shown = rafts.shown()?;
        is_left_of(past.after(certain), &shown).map_err(|why| format!("killed: {why}"))?;
        disk.take_epochs();
        let past = Past::new(shown);
        Ok(Subject { disk, rafts, past, acks: Arc::default(), called: Arc::default() })
    }
}

fn carry_out_with(subject: &mut Subject, call: &Call) -> Answer<()> {
    let what = subject.past.calls();
    let (acks, called, disk) =
        (Arc::clone(&subject.acks), Arc::clone(&subject.called), subject.disk.clone());
    let raft = if let Call::Of(raft, _) = call { *raft } else { 0 };
    // Where nothing is appended, the callback speaks of its own group only.
    let is_of_all = subject.rafts.groups.is_none()
        || !matches!(call, Call::Of(_, Op::Append(entries)) if entries.is_empty());
    subject.rafts.carry_out(call, move |result| {
        called.lock().unwrap().push((raft, what));
        if result.is_ok() && is_of_all {
            acks.lock().unwrap().push((disk.epochs_recorded(), what));
        }
    })
}

/// A history from a seed; the tally says what it saw.
pub(crate) fn explore(
    seed: u64,
    home: &Home,
    effort: Effort,
    tally: &mut Tally,
) -> Result<(), String> {
    // Not `ReportsLater`: a sync that lies is beyond any log.
    let after = if seed % 8 == 3 { AfterEffect::KeepsNew } else { AfterEffect::RevertsToOld };
    let disk =
        SimDisk::new(seed, DiskOptions { after_effect: Some(after), ..DiskOptions::default() });
    let home = &home.clone().log(seed % 5 == 4);
    let (fails, draw) = (seed % 4 == 3, Draw { rng: fastrand::Rng::with_seed(seed) });
    let mut history = History { home, effort, tally, draw, fails };
    history.run(&disk).map_err(|why| format!("seed {seed}: {why}"))
}
