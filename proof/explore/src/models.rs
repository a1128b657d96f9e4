//! Things with one owner each: what a thing may be is a list of models, one after each change of
//! its owner.
//!
//! *Owns*: these lists, what of them has returned and is certain, the power cuts that were taken,
//! judging what each has left. *May not touch*: what a model is, which answers one explains
//! (`groups.rs`, `streams.rs`, `raft/`). Nothing in it is a scheduling point.
//!
//! A power cut leaves one of the models from the last certain one on. A question is answered by one
//! of the models from the last one on whose change had returned when it was asked.

use std::fmt::{Debug, Display};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fastrand::Rng;
use inkstone_sim::survival::{Thing, is_left_of};
use inkstone_sim::{SimDirectory, SimDisk};
use shuttle::thread;

use crate::disk::PATH;
use crate::ledger::{Kind, Shots, fail};
use crate::plan::Plan;

#[derive(Debug)]
pub struct Owned<M> {
    pub models: Vec<M>,
    /// The last one whose change has returned, and the first that a power cut may leave.
    pub returned: usize,
    pub certain: usize,
    /// The model of the last callback.
    called_back: usize,
}

impl<M> Owned<M> {
    /// What the last change has led to, whether it has returned or not.
    pub fn last(&self) -> &M {
        &self.models[self.models.len() - 1]
    }
}

/// See the head of this file; `more` is what else the subject knows.
pub struct Ledger<M, X = ()> {
    disk: SimDisk,
    rng: Rng,
    pub owned: Vec<Owned<M>>,
    shots: Shots<Vec<Range<usize>>>,
    /// A fault was planned.
    pub may_fail: bool,
    pub is_closing: bool,
    records: u32,
    talks: bool,
    pub more: X,
}

impl<M: Thing, X> Ledger<M, X> {
    /// Of things that are this; the power may go at moments that `rng` decides.
    pub fn new(disk: &SimDisk, rng: &mut Rng, plan: Plan, first: Vec<M>, more: X) -> Self {
        let owned = |model| Owned { models: vec![model], returned: 0, certain: 0, called_back: 0 };
        let owned = first.into_iter().map(owned).collect();
        let mut ledger = Self {
            disk: disk.clone(),
            rng: rng.fork(),
            owned,
            shots: Shots::new(),
            may_fail: false,
            is_closing: false,
            records: 0,
            talks: plan.talks,
            more,
        };
        ledger.shots.most = rng.usize(..3);
        ledger
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.talks {
            println!("{}", what());
        }
    }

    /// The numbers of so many new records.
    pub fn new_records(&mut self, count: u64) -> Range<u32> {
        let first = self.records + 1;
        self.records += count as u32;
        first..self.records + 1
    }

    fn possible(&self) -> Vec<Range<usize>> {
        self.owned.iter().map(|owned| owned.certain..owned.models.len()).collect()
    }

    /// Of each owner, the last model that has returned.
    pub fn returned(&self) -> Vec<usize> {
        self.owned.iter().map(|owned| owned.returned).collect()
    }

    fn shoot(&mut self) {
        if !self.shots.is_full() && self.rng.u8(..4) == 0 {
            let possible = self.possible();
            self.shots.take(&self.disk, possible);
        }
    }

    /// The owner's thing becomes this; returns which model it is.
    pub fn will_be(&mut self, owner: usize, model: M) -> usize {
        self.shoot();
        self.owned[owner].models.push(model);
        self.owned[owner].models.len() - 1
    }

    pub fn is_certain(&mut self, owner: usize, model: usize) {
        let owned = &mut self.owned[owner];
        owned.certain = owned.certain.max(model);
        self.shoot();
    }

    /// A change has returned; `waits`: when it was durable.
    pub fn has_returned(&mut self, owner: usize, model: usize, waits: bool) {
        self.owned[owner].returned = model;
        if waits {
            self.is_certain(owner, model);
        }
    }

    /// All was closed, and said `Ok`: what had returned by then is certain.
    pub fn are_certain(&mut self, returned: &[usize]) {
        (0..).zip(returned).for_each(|(owner, model)| self.is_certain(owner, *model));
    }

    /// Callbacks come in the order of their changes, each once.
    pub fn called_back(&mut self, owner: usize, model: usize) {
        let before = std::mem::replace(&mut self.owned[owner].called_back, model);
        if before >= model {
            fail!(
                Kind::OutOfOrder,
                "{owner}: the callback of model {model} after that of {before}"
            );
        }
    }

    /// An error, and whether something has caused it.
    pub fn must_be_explained(&self, error: &(impl Debug + Display), by: &str, is_explained: bool) {
        if !is_explained {
            fail!(Kind::WrongError, "{by}: {error} ({error:?})");
        }
        self.say(|| format!("{by}: {error}"));
    }

    /// What each power cut left, as `found` opens and reads it, is one of the models that could be
    /// found then.
    pub fn look_at_what_is_left<E: Display>(
        &mut self,
        found: impl Fn(Arc<SimDirectory>) -> Result<Vec<M>, E>,
    ) {
        let (last, disk) = (self.possible(), self.disk.clone());
        self.shots.take(&disk, last);
        for (disk, possible) in self.shots.found(&mut self.rng) {
            let found = match found(Arc::new(disk.directory(PATH))) {
                Ok(found) => found,
                Err(error) => fail!(Kind::FalseCorrupt, "after a power cut: {error}"),
            };
            for ((owned, possible), found) in self.owned.iter().zip(possible).zip(&found) {
                if let Err(why) = is_left_of(&owned.models[possible], found) {
                    fail!(Kind::Lost, "after a power cut {why}");
                }
            }
        }
    }
}

/// No callback is left uncalled. The log's own thread may be calling the last ones.
pub fn none_is_uncalled(uncalled: &AtomicU32) {
    let mut patience = 0..2000;
    while uncalled.load(Ordering::Relaxed) > 0 {
        if patience.next().is_none() {
            fail!(Kind::Uncalled, "{} callbacks", uncalled.load(Ordering::Relaxed));
        }
        thread::yield_now();
    }
}
