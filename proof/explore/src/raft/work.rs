//! What threads do with a raft log, alone or one of many, as the ledger must hear of it.
//!
//! *Owns*: the calls, and asking the ledger about every answer. *May not touch*: which calls a
//! schedule makes (`mod.rs`, `groups.rs`), which thread goes on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inkstone_raft::{EntryId, Error, Leader, NewEntry, RaftLog, Vote};
use shuttle::sync::mpsc::channel;

use super::ledger::{Ledger, Model, is_closed, purger, writer};
use crate::ledger::{Kind, fail, number_in, payload};

const TERM: u64 = 1;

#[derive(Debug, Clone, Copy)]
pub enum Op {
    /// So many entries of so many bytes; it waits for the callback, or not.
    Append(u64, usize, bool),
    /// So many entries less; it waits until that is durable, or a callback comes.
    Truncate(u64, bool),
    /// In the next term.
    Vote(bool),
    /// All but so many entries are committed.
    Commit(u64),
    /// All that is committed but so many entries.
    Purge(u64),
    Sync,
}

/// The raft log of a number, as who works with it knows it.
#[derive(Clone)]
pub struct Work {
    pub at: usize,
    pub ledger: Arc<Mutex<Ledger>>,
    /// Callbacks that were not called yet.
    pub uncalled: Arc<AtomicU32>,
    /// Its callbacks never run inside each other.
    pub is_calling: Arc<AtomicBool>,
}

impl Work {
    /// Never held over a scheduling point.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn callback(
        &self,
        step: usize,
        habit: impl FnOnce() + Send + 'static,
    ) -> impl FnOnce(Result<(), Error>) + Send + 'static {
        let work = self.clone();
        work.uncalled.fetch_add(1, Ordering::Relaxed);
        move |result| {
            if work.is_calling.swap(true, Ordering::Relaxed) {
                fail!(Kind::OutOfOrder, "the callback of {step} is called while another one runs");
            }
            work.ledger().is_called_back(work.at, step, &result);
            habit();
            work.is_calling.store(false, Ordering::Relaxed);
            work.uncalled.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether it is still open; another error must be explained.
    fn heard(&self, done: Result<(), Error>, by: &str) -> bool {
        let Err(error) = done else { return true };
        self.ledger().call_was_refused(self.at, &error, by);
        !is_closed(&error)
    }

    /// A change has returned. One that was refused calls nothing back.
    fn settle(
        &self,
        (owner, step): (usize, usize),
        done: Result<(), Error>,
        waits: bool,
        by: &str,
    ) -> bool {
        let Err(error) = done else {
            self.ledger().has_returned(owner, step, waits);
            return true;
        };
        if !waits {
            self.uncalled.fetch_sub(1, Ordering::Relaxed);
        }
        self.ledger().was_refused(owner, step, &error, by);
        !is_closed(&error)
    }

    /// False if it was closed. Callbacks do what their `habit` is, too.
    pub fn carry_out(&self, raft: &RaftLog, op: Op, habit: impl FnOnce() + Send + 'static) -> bool {
        let at = self.at;
        match op {
            Op::Append(count, bytes, waits) => self.append(raft, (count, bytes, waits), habit),
            Op::Truncate(back, waits) => {
                let (step, from) = {
                    let mut ledger = self.ledger();
                    let next = ledger.next(at);
                    let from = next.saturating_sub(back).max(ledger.more[at].committing + 1);
                    if from >= next {
                        return true;
                    }
                    let truncates = |entries: &mut Vec<_>, _: &mut _| {
                        entries.truncate(from as usize - 1);
                    };
                    (ledger.will_write(at, truncates), from)
                };
                let done = match waits {
                    true => raft.truncate_from(from),
                    false => raft.truncate_from_then(from, self.callback(step, habit)),
                };
                self.settle((writer(at), step), done, waits, "truncate_from")
            }
            Op::Vote(waits) => {
                let mut term = 0;
                let step = self.ledger().will_write(at, |_, vote| {
                    *vote += 1;
                    term = *vote;
                });
                let vote = Vote::new(Leader::of_term(term));
                let done = match waits {
                    true => raft.save_vote(&vote),
                    false => raft.save_vote_then(&vote, self.callback(step, habit)),
                };
                self.settle((writer(at), step), done, waits, "save_vote")
            }
            Op::Commit(back) => self.commit(raft, back),
            Op::Purge(back) => {
                let (step, upto) = {
                    let mut ledger = self.ledger();
                    let upto = ledger.more[at].committed.saturating_sub(back);
                    if upto == 0 {
                        return true;
                    }
                    // What is purged stays so.
                    let first = ledger.owned[purger(at)].last().purged_before().max(upto + 1);
                    (ledger.will_be(purger(at), Model::From(first)), upto)
                };
                let done = raft.purge(&EntryId::new(Leader::of_term(TERM), upto));
                self.settle((purger(at), step), done, true, "purge")
            }
            Op::Sync => self.sync(raft),
        }
    }

    fn append(
        &self,
        raft: &RaftLog,
        (count, bytes, waits): (u64, usize, bool),
        habit: impl FnOnce() + Send + 'static,
    ) -> bool {
        let (step, numbers, first) = {
            let mut ledger = self.ledger();
            let first = ledger.next(self.at);
            let numbers = ledger.new_records(count);
            let appends = |entries: &mut Vec<_>, _: &mut _| entries.extend(numbers.clone());
            (ledger.will_write(self.at, appends), numbers, first)
        };
        let payloads: Vec<_> = numbers.map(|number| payload(number, bytes)).collect();
        let leader = Leader::of_term(TERM);
        let entry = |(index, payload)| NewEntry { leader: &leader, index, payload };
        let entries: Vec<_> =
            (first..).zip(payloads.iter().map(Vec::as_slice)).map(entry).collect();
        let (told, wait) = channel();
        let callback = self.callback(step, habit);
        let done = raft.append(&entries, move |result| {
            callback(result);
            // Who does not wait has left.
            let _ = told.send(());
        });
        let is_done = done.is_ok();
        let is_open = self.settle((writer(self.at), step), done, false, "append");
        if is_done && waits {
            let _ = wait.recv();
        }
        is_open
    }

    pub fn commit(&self, raft: &RaftLog, back: u64) -> bool {
        let index = {
            let mut ledger = self.ledger();
            let index = (ledger.next(self.at) - 1).saturating_sub(back);
            if index <= ledger.more[self.at].committing {
                return true;
            }
            ledger.more[self.at].committing = index;
            index
        };
        let done = raft.save_committed(index);
        if done.is_ok() {
            let committed = &mut self.ledger().more[self.at].committed;
            *committed = (*committed).max(index);
        }
        self.heard(done, "save_committed")
    }

    pub fn sync(&self, raft: &RaftLog) -> bool {
        let returned = self.ledger().returned();
        let done = raft.sync();
        if done.is_ok() {
            self.ledger().is_synced(self.at, &returned);
        }
        self.heard(done, "sync")
    }
}

/// What a raft log shows: what was written and from where on; and what is committed. One that is
/// new may begin anywhere.
pub fn shown(raft: &RaftLog) -> Result<([Model; 2], u64), Error> {
    let bounds = raft.bounds()?;
    let entries = raft.entries(bounds.first..u64::MAX, usize::MAX)?;
    let vote = raft.vote()?.map_or(0, |vote| vote.leader.term);
    let first = bounds.first.max(1);
    let number = |(index, entry): (u64, &inkstone_raft::Entry)| {
        number_in(&entry.payload).filter(|_| entry.id.index == index)
    };
    if bounds.next.max(1) != first + entries.len() as u64 {
        fail!(Kind::Wrong, "{bounds:?}, and {} entries", entries.len());
    }
    let entries = (first..).zip(&entries).map(number).collect();
    let committed = bounds.committed.map_or(0, |id| id.index);
    Ok(([Model::Shown { first, entries, vote }, Model::From(first)], committed))
}
