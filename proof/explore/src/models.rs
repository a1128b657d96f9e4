//! Things with one owner each, as `inkstone_subject` judges them: streams and raft logs.
//!
//! *Owns*: what each owner was promised, the power cuts that were taken. *May not touch*: what a
//! promise is. Nothing in it is a scheduling point.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use fastrand::Rng;
use inkstone_sim::{SimDirectory, SimDisk};
use inkstone_subject::states::Called;
use inkstone_subject::states::past::Past;
use inkstone_subject::states::words::{Answer, Shown, Told};
use inkstone_subject::{Broken, Past as _, SOLE};

use crate::disk::PATH;
use crate::ledger::{Kind, Shots, fail};
use crate::plan::Plan;

/// See the head of this file.
pub struct Ledger<M: Called> {
    disk: SimDisk,
    rng: Rng,
    pub pasts: Vec<Past<M>>,
    shots: Shots<Vec<Past<M>>>,
    /// A fault was planned.
    pub may_fail: bool,
    pub is_closing: bool,
    records: u32,
    talks: bool,
}

/// The schedule ends if a promise is broken.
pub fn judge(owner: usize, judged: Result<(), Broken>) {
    if let Err(Broken { clause, what }) = judged {
        fail!(Kind::Broken(clause), "{owner}: {what}");
    }
}

impl<M: Called> Ledger<M> {
    /// Of things that are this; the power may go at moments that `rng` decides.
    pub fn new(disk: &SimDisk, rng: &mut Rng, plan: Plan, first: Vec<M>) -> Self {
        let mut ledger = Self {
            disk: disk.clone(),
            rng: rng.fork(),
            pasts: first.into_iter().map(Past::threaded).collect(),
            shots: Shots::new(),
            may_fail: false,
            is_closing: false,
            records: 0,
            talks: plan.talks,
        };
        ledger.shots.most = rng.usize(..3);
        ledger
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.talks {
            println!("{}", what());
        }
    }

    /// The number of a new record.
    pub fn new_record(&mut self) -> u32 {
        self.records += 1;
        self.records
    }

    fn shoot(&mut self) {
        if !self.shots.is_full() && self.rng.u8(..4) == 0 {
            self.shots.take(&self.disk, self.pasts.clone());
        }
    }

    /// A call of the owner's begins; returns which one it is.
    pub fn began(&mut self, owner: usize, call: &M::Call) -> usize {
        self.say(|| format!("{owner}: {call:?}"));
        self.pasts[owner].began(SOLE, call);
        self.shoot();
        self.pasts[owner].calls()
    }

    pub fn ended(&mut self, owner: usize, answer: Answer, is_excused: bool) {
        self.say(|| format!("{owner}: {answer:?}"));
        judge(owner, self.pasts[owner].ended(SOLE, &Told::new(answer), is_excused));
        self.shoot();
    }

    pub fn called(&mut self, owner: usize, call: usize, is_durable: bool) {
        self.say(|| format!("{owner}: the callback of call {call}: {is_durable}"));
        judge(owner, self.pasts[owner].called(call, is_durable));
        self.shoot();
    }

    /// Of each owner, the moment of its last call that has returned.
    pub fn returned(&self) -> Vec<usize> {
        self.pasts.iter().map(|past| past.since().0).collect()
    }

    /// All was closed, and said `Ok`: what had returned by then is certain.
    pub fn are_durable(&mut self, returned: &[usize]) {
        let all = self.pasts.iter_mut().zip(returned);
        all.for_each(|(past, moment)| past.is_durable(*moment));
        self.shoot();
    }

    /// An error, and whether something has caused it.
    pub fn must_be_explained(&self, error: &(impl Debug + Display), by: &str, is_explained: bool) {
        if !is_explained {
            fail!(Kind::WrongError, "{by}: {error} ({error:?})");
        }
        self.say(|| format!("{by}: {error}"));
    }

    /// What each power cut left, as `found` opens and reads it.
    pub fn look_at_what_is_left<E: Display>(
        &mut self,
        found: impl Fn(Arc<SimDirectory>) -> Result<Vec<M>, E>,
    ) {
        self.shots.take(&self.disk, self.pasts.clone());
        for (disk, pasts) in self.shots.found(&mut self.rng) {
            let found = match found(Arc::new(disk.directory(PATH))) {
                Ok(found) => found,
                Err(error) => fail!(Kind::FalseCorrupt, "after a power cut: {error}"),
            };
            for ((owner, mut past), found) in pasts.into_iter().enumerate().zip(found) {
                judge(owner, past.check(&Shown::Opened(Ok(found))));
            }
        }
    }
}
