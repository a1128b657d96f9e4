//! The mistakes that this copy of the raft log can make, to show that its model catches them.
//!
//! *Owns*: their names and what each does. *May not touch*: anything; the code that makes a mistake
//! asks for it. The crate that users have is without this file and without that code:
//! `.ci/mistaken` puts both into a copy (docs/mistakes.md).

use std::fmt;

use crate::group::Callback;

/// A mistake that other stores have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mistake {
    /// A vote is not waited for.
    VoteNotSynced,
    /// A vote is shown before it is durable.
    VoteShownEarly,
    /// A callback is called when the entries are appended.
    CallbackEarly,
    /// Of the callbacks that wait the last one is called first.
    CallbackOutOfOrder,
    /// A callback is forgotten if its record is durable before the log is given it.
    CallbackForgotten,
    /// A truncation is not waited for.
    TruncationNotSynced,
    /// A purge on a full disk frees entries that it does not purge.
    KeptIsFreed,
    /// What is committed is not compared with the last entry.
    CommittedBeyondEnd,
    /// Entries stay in memory when they are truncated.
    ServedAboveTruncation,
    /// A reader asks where entries lie, lets go of the lock, and then asks for those in memory.
    ReadAtTwoInstants,
    /// What was read of a group is believed although others opened and ended it meanwhile.
    GroupReadBefore,
    /// The state of a group that nobody holds goes before its records are durable.
    StateGoesEarly,
    /// A batch is written as one record for each of its groups.
    BatchInParts,
    /// The runs of leaders are not shortened by a truncation.
    LeadersNotTruncated,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

thread_local! {
    /// What raft logs of this thread make: those of the model have no other thread.
    static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
    /// Those that `last_first` has been given.
    static WAITING: std::cell::RefCell<Vec<Callback>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// From now on, raft logs of this thread make this mistake, or none.
pub fn set(mistake: Option<Mistake>) {
    MADE.set(mistake);
    drop(WAITING.take());
}

/// Whether raft logs of this thread make it.
pub(crate) fn makes(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}

/// A callback in whose place the last one is called that waits.
pub(crate) fn last_first(callback: Callback) -> Callback {
    WAITING.with_borrow_mut(|waiting| waiting.push(callback));
    Box::new(|result| {
        let last = WAITING.with_borrow_mut(Vec::pop);
        last.into_iter().for_each(|callback| callback(result.clone()));
    })
}
