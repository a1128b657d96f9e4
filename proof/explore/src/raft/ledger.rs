//! What everybody was told of raft logs: the models that each answer is compared with.
//!
//! *Owns*: what the writers' calls and the purges have led to, what is committed, what of it each
//! answer may show. *May not touch*: the raft logs. Nothing in it is a scheduling point.
//!
//! Of each raft log one thread appends, truncates and votes, and perhaps another one purges, which
//! takes entries from the front only: two owners (`models.rs`), of which the log shows both at
//! once.

use std::ops::Range;

use inkstone_raft::Error;
use inkstone_sim::survival::Thing;

use crate::ledger::{Kind, fail};
use crate::models::Ledger as Models;

/// The owner of what is written to the raft log of this number.
pub fn writer(at: usize) -> usize {
    2 * at
}

/// The owner of what is purged there.
pub fn purger(at: usize) -> usize {
    2 * at + 1
}

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
#[derive(Debug)]
pub struct More {
    /// Whether a fault, the end or another thread explains this error.
    pub explains: fn(&Ledger, &Error) -> bool,
    /// Others close it while its owner works with it: then a call of the owner's is refused.
    pub is_shared: bool,
    /// What somebody has saved as committed, and what somebody has begun to save.
    pub committed: u64,
    pub committing: u64,
    /// A callback got an error.
    has_failed: bool,
    shown_vote: u64,
}

pub type Ledger = Models<Model, Vec<More>>;

/// Of each owner, the last model that had returned when somebody asked.
pub type Begun = Vec<usize>;

impl More {
    pub fn new(explains: fn(&Ledger, &Error) -> bool, is_shared: bool) -> Self {
        let (committed, committing, has_failed, shown_vote) = (0, 0, false, 0);
        Self { explains, is_shared, committed, committing, has_failed, shown_vote }
    }
}

/// The models of a new raft log.
pub fn first() -> [Model; 2] {
    [Model::Written { entries: Vec::new(), vote: 0 }, Model::From(1)]
}

impl Ledger {
    /// The index of the next entry.
    pub fn next(&self, at: usize) -> u64 {
        let writer = &self.owned[writer(at)];
        writer.models[writer.returned].entries().len() as u64 + 1
    }

    /// What the writer has written, changed so; returns which model it is.
    pub fn will_write(&mut self, at: usize, change: impl FnOnce(&mut Vec<u32>, &mut u64)) -> usize {
        let mut model = self.owned[writer(at)].last().clone();
        if let Model::Written { entries, vote } = &mut model {
            change(entries, vote);
        }
        self.will_be(writer(at), model)
    }

    /// A change was refused, and has changed nothing. After a failure its record may be found all
    /// the same, and shown, but for entries.
    pub fn was_refused(&mut self, owner: usize, model: usize, error: &Error, by: &str) {
        let owned = &mut self.owned[owner];
        let before = owned.models[model - 1].clone();
        if matches!(error, Error::IsCommitted { .. }) {
            owned.models[model] = before;
            owned.returned = model;
            return;
        }
        let appends = before.entries().len() < owned.models[model].entries().len();
        if appends || is_closed(error) {
            owned.models.push(before);
            owned.returned = model + 1;
        }
        self.call_was_refused(owner / 2, error, by);
    }

    /// A call of the owner's was refused.
    pub fn call_was_refused(&self, at: usize, error: &Error, by: &str) {
        if !(is_closed(error) && self.more[at].is_shared) {
            self.refused(at, error, by);
        }
    }

    pub fn is_called_back(&mut self, at: usize, model: usize, result: &Result<(), Error>) {
        self.say(|| format!("the callback of {model} of {at}: {result:?}"));
        self.called_back(writer(at), model);
        match result {
            Ok(()) if self.more[at].has_failed => {
                fail!(Kind::OutOfOrder, "{model} is durable, and one before it was not")
            }
            Ok(()) => self.is_certain(writer(at), model),
            Err(error) => {
                self.more[at].has_failed = true;
                self.refused(at, error, "a callback");
            }
        }
    }

    /// A sync of it has returned, which was asked for at this moment.
    pub fn is_synced(&mut self, at: usize, begun: &Begun) {
        for owner in [writer(at), purger(at)] {
            self.is_certain(owner, begun[owner]);
        }
    }

    /// A reader was shown these entries of `range`, index and number: one of the models since has
    /// just these there.
    pub fn shown(&self, at: usize, begun: &Begun, range: Range<u64>, shown: &[(u64, Option<u32>)]) {
        self.say(|| format!("entries {range:?} of {at}, asked at {begun:?}: {shown:?}"));
        let (written, purged) = (&self.owned[writer(at)], &self.owned[purger(at)]);
        // The first may be purged meanwhile.
        if shown.is_empty() && range.start < purged.last().purged_before() {
            return;
        }
        let in_range = |model: &Model| {
            let there = (1..).zip(model.entries().iter().copied().map(Some));
            there.filter(|(index, _)| range.contains(index)).collect::<Vec<_>>()
        };
        let since: Vec<_> = written.models[begun[writer(at)]..].iter().map(in_range).collect();
        let first = purged.models[begun[purger(at)]].purged_before();
        let is_purged = range.start < first;
        if is_purged || !since.iter().any(|there| there == shown) {
            let kind = match since.iter().any(|there| there.starts_with(shown)) {
                true if !is_purged => Kind::NotShown,
                _ if written.models.iter().any(|model| in_range(model) == shown) => Kind::Back,
                _ => Kind::Wrong,
            };
            fail!(kind, "{range:?} from {first} on is answered by {shown:?}, there is {since:?}");
        }
    }

    /// A reader was told that the first entry of its range is purged.
    pub fn told_purged(&self, at: usize, index: u64) {
        let first = self.owned[purger(at)].last().purged_before();
        if index >= first {
            fail!(Kind::WrongError, "entry {index} is said to be purged: only up to {first}");
        }
    }

    /// A reader was shown this vote: it is durable.
    pub fn shown_vote(&mut self, at: usize, term: u64) {
        let before = std::mem::replace(&mut self.more[at].shown_vote, term);
        if term < before {
            fail!(Kind::Back, "the vote of term {term} is shown after that of {before}");
        }
        let casts = |model: &Model| matches!(model, Model::Written { vote, .. } if *vote == term);
        match self.owned[writer(at)].models.iter().position(casts) {
            Some(model) => self.is_certain(writer(at), model),
            None => fail!(Kind::Wrong, "a vote of term {term} is shown, which nobody cast"),
        }
    }

    pub fn refused(&self, at: usize, error: &Error, by: &str) {
        self.must_be_explained(error, by, (self.more[at].explains)(self, error));
    }
}

pub fn is_closed(error: &Error) -> bool {
    matches!(error.cause(), Error::Closed)
}
