//! What each thing has promised that a schedule uses, as `inkstone_subject` judges it.
//!
//! *Owns*: the pasts, the power cuts that were taken. *May not touch*: what a promise is. Nothing
//! in it is a scheduling point.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use fastrand::Rng;
use inkstone::{Error, Reader};
use inkstone_sim::{Fate, PowerCut, SimDirectory, SimDisk};
use inkstone_subject::log::clauses::LOST;
use inkstone_subject::log::is_clean;
use inkstone_subject::log::past::Past as LogPast;
use inkstone_subject::log::words::{By, Shown};
use inkstone_subject::states::Called;
use inkstone_subject::states::past::Past as StatesPast;
use inkstone_subject::{Broken, Past, Who};

use crate::broken::{Kind, fail};
use crate::disk::PATH;
use crate::plan::Plan;
use crate::setup::plain;

/// See the head of this file.
pub struct Ledger<P> {
    pub disk: SimDisk,
    pub rng: Rng,
    pub pasts: Vec<P>,
    /// Moments at which the power may go, each with what is promised then.
    shots: Vec<(PowerCut, Vec<P>)>,
    /// How many are taken at most, but for the last one.
    shots_max: usize,
    /// A fault or a panic was planned.
    pub may_fail: bool,
    pub is_closing: bool,
    records: u32,
    talks: bool,
}

/// The schedule ends if a promise is broken.
pub fn judge<T>(owner: usize, judged: Result<T, Broken>) -> T {
    match judged {
        Ok(judged) => judged,
        Err(Broken { clause, what }) => fail!(Kind::Broken(clause), "{owner}: {what}"),
    }
}

impl<P: Past> Ledger<P> {
    /// Of things with these pasts; the power may go at moments that `rng` decides.
    pub fn new(disk: &SimDisk, rng: &mut Rng, plan: Plan, pasts: Vec<P>) -> Self {
        Self {
            disk: disk.clone(),
            rng: rng.fork(),
            pasts,
            shots: Vec::new(),
            shots_max: rng.usize(..3),
            may_fail: false,
            is_closing: false,
            records: 0,
            talks: plan.talks,
        }
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.talks {
            println!("{}", what());
        }
    }

    /// The number of a new record, or of somebody who calls.
    pub fn new_number(&mut self) -> u32 {
        self.records += 1;
        self.records
    }

    /// The power may go now, once in so many times.
    fn shoot(&mut self, rarely: u8) {
        if self.shots.len() < self.shots_max && self.rng.u8(..rarely) == 0 {
            self.say(|| "a power cut is taken".into());
            self.shots.push((self.disk.power_cut(), self.pasts.clone()));
        }
    }

    /// A call of somebody's begins.
    pub fn began(&mut self, owner: usize, who: Who, call: &P::Call) {
        self.say(|| format!("{owner}, {who}: {call:?}"));
        self.pasts[owner].began(who, call);
        self.shoot(4);
    }

    pub fn ended(&mut self, owner: usize, who: Who, told: &P::Told, is_excused: bool) {
        self.say(|| format!("{owner}, {who}: {told:?}"));
        judge(owner, self.pasts[owner].ended(who, told, is_excused));
        self.shoot(4);
    }

    /// What each power cut left, as `found` opens and reads it.
    pub fn look_at_what_is_left(
        &mut self,
        found: impl Fn(Arc<SimDirectory>) -> Result<Vec<P::Shown>, String>,
    ) {
        self.shots.push((self.disk.power_cut(), self.pasts.clone()));
        for (cut, pasts) in self.shots.drain(..) {
            let disk = match self.rng.u8(..4) {
                0 => cut.state(|_, _| Fate::Dropped),
                _ => cut.sample(self.rng.u64(..)),
            };
            let found = match found(Arc::new(disk.directory(PATH))) {
                Ok(found) => found,
                Err(error) => fail!(Kind::FalseCorrupt, "after a power cut: {error}"),
            };
            for ((owner, mut past), found) in pasts.into_iter().enumerate().zip(found) {
                judge(owner, past.check(&found).map_err(|broken| broken.at("after a power cut")));
            }
        }
    }
}

impl<M: Called> Ledger<StatesPast<M>> {
    pub fn called(&mut self, owner: usize, call: usize, is_durable: bool) {
        self.say(|| format!("{owner}: the callback of call {call}: {is_durable}"));
        judge(owner, self.pasts[owner].called(call, is_durable));
        self.shoot(4);
    }

    /// Of each owner, the moment of its last call that has returned.
    pub fn returned(&self) -> Vec<usize> {
        self.pasts.iter().map(|past| past.since().0).collect()
    }

    /// All was closed, and said `Ok`: what had returned by then is certain.
    pub fn are_durable(&mut self, returned: &[usize]) {
        let all = self.pasts.iter_mut().zip(returned);
        all.for_each(|(past, moment)| past.is_durable(*moment));
        self.shoot(4);
    }

    /// An error, and whether something has caused it.
    pub fn must_be_explained(&self, error: &(impl Debug + Display), by: &str, is_explained: bool) {
        if !is_explained {
            fail!(Kind::WrongError, "{by}: {error} ({error:?})");
        }
        self.say(|| format!("{by}: {error}"));
    }
}

impl Ledger<LogPast> {
    pub fn past(&self) -> &LogPast {
        &self.pasts[0]
    }

    /// Something is told of the log. What is certain then is on the medium at this moment, which
    /// is looked at every other time; whether it is found there, a power cut tells.
    pub fn hear<T>(&mut self, hear: impl FnOnce(&mut LogPast) -> Result<T, Broken>) -> T {
        let past = &mut self.pasts[0];
        let before = past.certain();
        let heard = judge(0, hear(past));
        let past = &self.pasts[0];
        if past.certain() > before {
            if self.rng.bool() {
                for (lsn, record) in past.must_be_there().filter(|(lsn, _)| *lsn > before) {
                    if !self.disk.medium_has(record.payload()) {
                        let what = "is certain, and its bytes are not on the medium";
                        fail!(Kind::Broken(LOST), "LSN {lsn}, {record:?}, {what}");
                    }
                }
            }
            self.shoot(3);
        }
        heard
    }

    /// What each power cut left of a log.
    pub fn look_at_the_logs_that_are_left(&mut self) {
        self.look_at_what_is_left(|directory| {
            Ok(vec![opened(Reader::open_in(directory, plain()))])
        });
    }
}

/// What an opening shows.
fn opened(opened: Result<Reader, Error>) -> Shown {
    match opened {
        Ok(reader) => {
            let is_clean = reader.recovery().is_none_or(|recovery| is_clean(&recovery));
            let (first, last) = (reader.first().get(), reader.durable().get());
            let mut shown = Shown::new(By::Opening { is_clean }, first, last);
            shown.read(&reader);
            shown
        }
        Err(error) => Shown::refused(&error),
    }
}
