//! Things of which a call changes more than a row of records: streams, raft logs.
//!
//! *Owns*: what such a thing is, and what is asked of it. *May not touch*: what a call means, how
//! something came to be found.

pub mod clauses;
#[cfg(test)]
mod liars;
pub mod past;
pub mod words;

use std::fmt::Debug;

use crate::{End, Step};

/// A thing, as it is at some moment.
pub trait Thing {
    /// Whether a thing that shows this may be what a crash has left of it.
    fn may_be_shown_as(&self, shown: &Self) -> bool;

    fn brief(&self) -> String;
}

impl<T: Thing> Thing for Vec<T> {
    fn may_be_shown_as(&self, shown: &Self) -> bool {
        let mut all = self.iter().zip(shown);
        self.len() == shown.len() && all.all(|(one, shown)| one.may_be_shown_as(shown))
    }

    fn brief(&self) -> String {
        self.iter().map(T::brief).collect::<Vec<_>>().join(" | ")
    }
}

/// What its calls mean.
pub trait Called: Thing + Clone + Debug {
    type Call: Clone + Debug;

    /// What a call leads to. `None`: it must be refused.
    fn after(&self, call: &Self::Call) -> Option<Self>;

    /// Whether everything is durable when the call has returned.
    fn waits(call: &Self::Call) -> bool;

    /// Whose callback it has.
    fn calls_back(call: &Self::Call) -> Option<Callback>;

    /// Whether it may be larger than a record may be.
    fn may_be_too_large(call: &Self::Call) -> bool;

    /// Whether it shows this, while it is in use.
    fn is_shown_as(&self, shown: &Self) -> bool;

    /// Whether who was told of every cut has seen this of it.
    fn is_followed_as(&self, _seen: &Self) -> bool {
        false
    }

    /// What a call that was refused, or cut short, has made of it where it shows this, if it may
    /// come true in part.
    fn half(&self, _call: &Self::Call, _shown: &Self) -> Option<Self> {
        None
    }
}

/// What can be asked: a call that is drawn by this number.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    Draw(u64),
    /// One that needs much room.
    Fill(u64),
    /// Something small that every sound thing can do.
    Probe,
}

/// A history of so many steps, with ends and power cuts. `fills`: of calls that need much room, too.
pub fn history(seed: u64, length: usize, fills: bool) -> Vec<Step<Op>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let steps = (0..length).map(|_| match rng.u8(..96) {
        0 | 1 => Step::End(End::Kill),
        2 => Step::End(End::Close),
        3 => Step::PowerCut(Op::Draw(rng.u64(..))),
        4..34 if fills => Step::Do(Op::Fill(rng.u64(..))),
        _ => Step::Do(Op::Draw(rng.u64(..))),
    });
    steps.collect()
}

/// The callback of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Callback {
    /// Callbacks of one owner come in the order of its calls.
    pub owner: usize,
    /// Whether it says that all calls before are durable; else those of its owner.
    pub is_of_all: bool,
}
