//! Random histories of streams on a simulated disk, with the power cut within and after every call,
//! and cut again after each recovery, two deep.
//!
//! *Owns*: how a history is made, cut and judged. *May not touch*: what streams must hold
//! (`model.rs`), the crate's insides.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, PowerCut, SimDisk};
use inkstone_streams::{Error, Options, Streams, StreamsReader};

use crate::model::{Draw, Made, Model, make};

fn options(pad: bool) -> Options {
    let log = inkstone::Options::small().own_thread(false).pad_groups(pad);
    Options::new().log(log).section_bytes(16 << 10).own_mover(false).cache_bytes(4 << 10)
}

fn open(disk: &SimDisk, options: &Options) -> Result<Streams, String> {
    let directory = Arc::new(disk.directory("/streams"));
    Streams::open_in(directory, options.clone()).map_err(|error| format!("does not open: {error}"))
}

/// What was tested.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) states: u64,
    pub(crate) deeper: u64,
    pub(crate) calls: u64,
    pub(crate) moves: u64,
    pub(crate) moved: u64,
    pub(crate) given_back: u64,
    pub(crate) failed: u64,
    pub(crate) mirrored: u64,
}

/// One history; the error says what was wrong.
pub(crate) fn explore(seed: u64, calls: usize, tally: &mut Tally) -> Result<(), String> {
    // Not `ReportsLater`: a sync that lies is beyond any log.
    let after = if seed % 8 == 3 { AfterEffect::KeepsNew } else { AfterEffect::RevertsToOld };
    let disk =
        SimDisk::new(seed, DiskOptions { after_effect: Some(after), ..DiskOptions::default() });
    let options = options(seed % 5 == 4);
    let (draw, fails) = (Draw::new(seed), seed % 4 == 3);
    History { options: &options, tally, draw, fails }.run(&disk, calls)
}

struct History<'a> {
    options: &'a Options,
    tally: &'a mut Tally,
    draw: Draw,
    fails: bool,
}

/// What the streams may hold: the first of the models is certain.
struct Subject {
    disk: SimDisk,
    streams: Streams,
    past: Vec<Model>,
    /// The epoch of the disk from which on a model is certain.
    acks: Vec<(u64, usize)>,
    mirror: Option<StreamsReader>,
}

impl Subject {
    fn certain(&self, epoch: u64) -> usize {
        let acks = self.acks.iter().filter(|(when, _)| *when <= epoch);
        acks.map(|(_, what)| *what).max().unwrap_or(0)
    }

    fn acknowledge(&mut self) {
        self.acks.push((self.disk.epochs_recorded(), self.past.len() - 1));
    }
}

fn allowed(shown: &Model, past: &[Model]) -> Result<(), String> {
    if past.contains(shown) {
        return Ok(());
    }
    let last = past.last().unwrap();
    Err(format!(
        "shows none of {} models; from the last one: {}",
        past.len(),
        last.difference(shown).unwrap_or_default()
    ))
}

impl History<'_> {
    fn run(&mut self, disk: &SimDisk, calls: usize) -> Result<(), String> {
        disk.record_epochs();
        let streams = open(disk, self.options)?;
        let streams = self.go_on(disk, streams, Model::default(), calls, 0)?;
        streams.close().map_err(|error| error.to_string())
    }

    fn go_on(
        &mut self,
        disk: &SimDisk,
        streams: Streams,
        shown: Model,
        calls: usize,
        depth: usize,
    ) -> Result<Streams, String> {
        disk.take_epochs();
        let mut subject =
            Subject { disk: disk.clone(), streams, past: vec![shown], acks: vec![], mirror: None };
        for _ in 0..calls {
            self.tally.calls += 1;
            let went_well = self.call(&mut subject)?;
            let mut cuts = subject.disk.take_epochs();
            cuts.push(subject.disk.power_cut());
            for cut in cuts {
                let past = subject.past[subject.certain(cut.epoch())..].to_vec();
                self.cut(&cut, &past, depth)?;
            }
            let certain = subject.certain(u64::MAX);
            subject.past.drain(..certain);
            subject.acks = vec![(0, 0)];
            if !went_well || self.draw.random.u32(..25) == 0 {
                subject = self.kill(subject)?;
            }
        }
        Ok(subject.streams)
    }

    fn faults(&self, disk: &SimDisk, fails: bool) {
        let rates = match fails {
            true => FaultRates {
                sync_error_ppm: 20_000,
                write_error_ppm: 5_000,
                ..FaultRates::default()
            },
            false => FaultRates::default(),
        };
        disk.change_options(|options| options.rates = rates);
    }

    fn call(&mut self, subject: &mut Subject) -> Result<bool, String> {
        if self.draw.random.u32(..5) == 0 {
            return self.look_or_move(subject);
        }
        let mut model = subject.past.last().unwrap().clone();
        let steps = self.draw.steps(&model);
        let waits = self.draw.random.bool();
        // If the log fails, the changes may be there or not.
        let mut after = model.clone();
        if steps.iter().all(|step| after.make(step)) {
            subject.past.push(after);
        }
        self.faults(&subject.disk, self.fails);
        let made = make(&subject.streams, &mut model, &steps, waits)?;
        self.faults(&subject.disk, false);
        match made {
            Made::Failed => {
                self.tally.failed += 1;
                return Ok(false);
            }
            // A batch that is too large was expected to be made.
            Made::Refused if *subject.past.last().unwrap() != model => {
                subject.past.pop();
            }
            Made::Refused => {}
            Made::Done if waits => subject.acknowledge(),
            Made::Done => {}
        }
        Ok(true)
    }

    /// Makes everything durable and compares; as often, then runs the mover.
    fn look_or_move(&mut self, subject: &mut Subject) -> Result<bool, String> {
        match subject.streams.sync() {
            Ok(()) => subject.acknowledge(),
            // A change that was not waited for has failed since.
            Err(Error::Log(inkstone::Error::Poisoned { .. })) if self.fails => {
                self.tally.failed += 1;
                return Ok(false);
            }
            Err(error) => return Err(error.to_string()),
        }
        let last = subject.past.last().unwrap();
        let shown = Model::of(&subject.streams.reader())?;
        if let Some(difference) = last.difference(&shown) {
            return Err(format!("shows something else: {difference}"));
        }
        let before = subject.streams.stats();
        if self.draw.random.bool() {
            let directory = Arc::new(subject.disk.directory("/streams"));
            let mirror = match subject.mirror.take() {
                Some(mirror) => mirror,
                None => {
                    StreamsReader::open_in(directory, self.options).map_err(|e| e.to_string())?
                }
            };
            // It may lag behind; it shows an earlier model.
            let seen = Model::of(&mirror)?;
            if seen == *last {
                self.tally.mirrored += 1;
            }
            subject.mirror = Some(mirror);
        }
        self.faults(&subject.disk, self.fails);
        let moved = subject.streams.move_some();
        self.faults(&subject.disk, false);
        let after = subject.streams.stats();
        // Also when the move has failed: a reader gets the old place until the new one is durable.
        let shown = Model::of(&subject.streams.reader())?;
        if let Some(difference) = last.difference(&shown) {
            return Err(format!("shows something else after a move: {difference}"));
        }
        match moved {
            Err(_) if self.fails => {
                self.tally.failed += 1;
                return Ok(false);
            }
            moved => self.tally.moves += u64::from(moved.map_err(|error| error.to_string())?),
        }
        self.tally.moved += after.moved_records - before.moved_records;
        self.tally.given_back += before.sections.saturating_sub(after.sections);
        Ok(true)
    }

    fn cut(&mut self, cut: &PowerCut, past: &[Model], depth: usize) -> Result<(), String> {
        let found = cut.sample(self.draw.random.u64(..));
        found.change_options(|options| options.rates = FaultRates::default());
        self.tally.states += 1;
        let is_deep = depth < 2 && self.draw.random.u32(..12 << (2 * depth)) == 0;
        if is_deep {
            found.record_epochs();
        }
        let streams = open(&found, self.options)?;
        let shown = Model::of(&streams.reader())?;
        allowed(&shown, past)?;
        if is_deep {
            self.tally.deeper += 1;
            for cut in found.take_epochs() {
                self.cut(&cut, past, depth + 1)
                    .map_err(|why| format!("cut again while opening: {why}"))?;
            }
            let fails = std::mem::replace(&mut self.fails, false);
            let streams = self
                .go_on(&found, streams, shown, 4, depth + 1)
                .map_err(|why| format!("gone on: {why}"))?;
            self.fails = fails;
            streams.abandon();
        } else {
            streams.abandon();
        }
        Ok(())
    }

    /// Kills the process; the kernel lives on.
    fn kill(&mut self, subject: Subject) -> Result<Subject, String> {
        let certain = subject.certain(u64::MAX);
        let Subject { disk, streams, past, .. } = subject;
        streams.abandon();
        let streams = open(&disk, self.options).map_err(|why| format!("killed: {why}"))?;
        let shown = Model::of(&streams.reader())?;
        allowed(&shown, &past[certain..]).map_err(|why| format!("killed: {why}"))?;
        disk.take_epochs();
        Ok(Subject { disk, streams, past: vec![shown], acks: vec![(0, 0)], mirror: None })
    }
}
