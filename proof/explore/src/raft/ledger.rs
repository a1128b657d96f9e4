//! What everybody was told of a raft log: the models that each answer is compared with.
//!
//! *Owns*: what the writer's calls and the purges have led to, what is committed, what of it each
//! answer may show. *May not touch*: the raft log. Nothing in it is a scheduling point.
//!
//! One thread appends, truncates and votes, another one purges, which takes entries from the front
//! only: two owners (`models.rs`), of which the log shows both at once.

use std::ops::Range;

use inkstone_raft::Error;
use inkstone_sim::survival::Thing;

use crate::ledger::{Kind, fail};
use crate::models::Ledger as Models;

/// The owners.
pub const WRITER: usize = 0;
pub const PURGER: usize = 1;

/// What an owner has led to; what is shown has a part of it. Entries begin at index 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    Written {
        entries: Vec<u32>,
        vote: u64,
    },
    /// Entries before this index are purged.
    From(u64),
    Shown {
        first: u64,
        entries: Vec<Option<u32>>,
        vote: u64,
    },
}

impl Model {
    /// All entries that were written.
    pub fn entries(&self) -> &[u32] {
        if let Self::Written { entries, .. } = self { entries } else { &[] }
    }

    /// The first index that is not purged.
    pub fn purged_before(&self) -> u64 {
        if let Self::From(first) = self { *first } else { 1 }
    }
}

impl Thing for Model {
    fn may_be_shown_as(&self, shown: &Self) -> bool {
        match (self, shown) {
            (
                Self::Written { entries, vote },
                Self::Shown { first, entries: found, vote: seen },
            ) => {
                let there = entries.get(*first as usize - 1..);
                let is_it = |there: &[u32]| there.iter().map(|it| Some(*it)).eq(found.clone());
                vote == seen && there.is_some_and(is_it)
            }
            _ => self == shown,
        }
    }

    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

/// What else is known of a raft log.
#[derive(Debug, Default)]
pub struct More {
    /// What somebody has saved as committed, and what somebody has begun to save.
    pub committed: u64,
    pub committing: u64,
    /// A callback got an error.
    has_failed: bool,
    shown_vote: u64,
}

pub type Ledger = Models<Model, More>;

/// Of each owner, the last model that had returned when somebody asked.
pub type Begun = [usize; 2];

impl Ledger {
    pub fn begin(&self) -> Begun {
        [WRITER, PURGER].map(|owner| self.owned[owner].returned)
    }

    /// The index of the next entry.
    pub fn next(&self) -> u64 {
        let writer = &self.owned[WRITER];
        writer.models[writer.returned].entries().len() as u64 + 1
    }

    /// What the writer has written, changed so; returns which model it is.
    pub fn will_write(&mut self, change: impl FnOnce(&mut Vec<u32>, &mut u64)) -> usize {
        let mut model = self.owned[WRITER].last().clone();
        if let Model::Written { entries, vote } = &mut model {
            change(entries, vote);
        }
        self.will_be(WRITER, model)
    }

    /// A call of the writer's was refused, and has changed nothing. After a failure its record may
    /// be found all the same, and shown, but for entries.
    pub fn was_refused(&mut self, model: usize, error: &Error, by: &str) {
        let writer = &mut self.owned[WRITER];
        let before = writer.models[model - 1].clone();
        if matches!(error, Error::IsCommitted { .. }) {
            writer.models[model] = before;
            writer.returned = model;
            return;
        }
        if before.entries().len() < writer.models[model].entries().len() {
            writer.models.push(before);
            writer.returned = model + 1;
        }
        self.refused(error, by);
    }

    pub fn is_called_back(&mut self, model: usize, result: &inkstone_raft::Result<()>) {
        self.say(|| format!("the callback of {model}: {result:?}"));
        self.called_back(WRITER, model);
        match result {
            Ok(()) if self.more.has_failed => {
                fail!(Kind::OutOfOrder, "{model} is durable, and one before it was not")
            }
            Ok(()) => self.is_certain(WRITER, model),
            Err(error) => {
                self.more.has_failed = true;
                self.refused(error, "a callback");
            }
        }
    }

    /// A reader was shown these entries of `range`, index and number: one of the models since has
    /// just these there.
    pub fn shown(&self, begun: Begun, range: Range<u64>, shown: &[(u64, Option<u32>)]) {
        self.say(|| format!("entries {range:?}, asked at {begun:?}: {shown:?}"));
        let [written, purged] = &self.owned;
        // The first may be purged meanwhile.
        if shown.is_empty() && range.start < purged.last().purged_before() {
            return;
        }
        let in_range = |model: &Model| {
            let there = (1..).zip(model.entries().iter().copied().map(Some));
            there.filter(|(index, _)| range.contains(index)).collect::<Vec<_>>()
        };
        let since: Vec<_> = written.models[begun[WRITER]..].iter().map(in_range).collect();
        let is_purged = range.start < purged.models[begun[PURGER]].purged_before();
        if is_purged || !since.iter().any(|there| there == shown) {
            let kind = match since.iter().any(|there| there.starts_with(shown)) {
                true if !is_purged => Kind::NotShown,
                _ if written.models.iter().any(|model| in_range(model) == shown) => Kind::Back,
                _ => Kind::Wrong,
            };
            let first = purged.models[begun[PURGER]].purged_before();
            fail!(kind, "{range:?} from {first} on is answered by {shown:?}, there is {since:?}");
        }
    }

    /// A reader was told that the first entry of its range is purged.
    pub fn told_purged(&self, index: u64) {
        let first = self.owned[PURGER].last().purged_before();
        if index >= first {
            fail!(Kind::WrongError, "entry {index} is said to be purged: only up to {first}");
        }
    }

    /// A reader was shown this vote: it is durable.
    pub fn shown_vote(&mut self, term: u64) {
        let before = std::mem::replace(&mut self.more.shown_vote, term);
        if term < before {
            fail!(Kind::Back, "the vote of term {term} is shown after that of {before}");
        }
        let casts = |model: &Model| matches!(model, Model::Written { vote, .. } if *vote == term);
        match self.owned[WRITER].models.iter().position(casts) {
            Some(model) => self.is_certain(WRITER, model),
            None => fail!(Kind::Wrong, "a vote of term {term} is shown, which nobody cast"),
        }
    }

    /// An error that a fault, or the end, has caused.
    pub fn refused(&self, error: &Error, by: &str) {
        use inkstone::Error as Log;
        let is_explained = match error {
            Error::Log(Log::Poisoned(_)) => self.may_fail,
            Error::Closed | Error::Log(Log::Closed) => self.is_closing,
            // Others have committed, or purged, in between.
            Error::NotHere { .. } | Error::CommittedGoesBack { .. } | Error::IsCommitted { .. } => {
                true
            }
            _ => false,
        };
        self.must_be_explained(error, by, is_explained);
    }
}
