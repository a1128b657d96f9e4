//! Calls of a raft log, from a seed, and carrying them out.
//!
//! *Owns*: which calls there are, mostly allowed ones. *May not touch*: what a call means
//! (`model.rs`).

use inkstone_raft::{Batch, EntryId, Leader, NewEntry, RaftLog, Result, Vote};

use super::model::{Model, Op};

#[derive(Debug)]
pub struct Draw {
    pub rng: fastrand::Rng,
}

impl Draw {
    pub fn allowed(&mut self, now: &Model) -> Op {
        loop {
            let op = self.call(now);
            if now.allows(&op) {
                return op;
            }
        }
    }

    fn payload(&mut self) -> Vec<u8> {
        let bytes = match self.rng.u32(..8) {
            0 => 0,
            1..5 => self.rng.usize(..200),
            5 | 6 => self.rng.usize(..3000),
            _ => self.rng.usize(..9000),
        };
        let mut payload = vec![self.rng.u8(..); bytes];
        for byte in payload.iter_mut().step_by(512) {
            *byte = self.rng.u8(..);
        }
        payload
    }

    fn leader(&mut self, at_least: &Leader) -> Leader {
        match self.rng.u32(..6) {
            0 => Leader::of_term(at_least.term + self.rng.u64(1..4)),
            1 => Leader::new(at_least.term + 1, [self.rng.u8(..)]),
            _ => at_least.clone(),
        }
    }

    /// Draws a call, mostly one that is allowed.
    pub fn call(&mut self, now: &Model) -> Op {
        let (first, next) = (now.first, now.next());
        match self.rng.u32(..24) {
            0..9 => {
                let mut leader = now.last_leader();
                let count = self.rng.u64(..5);
                let next = if now.is_new() { self.rng.u64(..3) } else { next };
                let entries = (next..next + count).map(|index| {
                    leader = self.leader(&leader);
                    (EntryId::new(leader.clone(), index), self.payload())
                });
                Op::Append(entries.collect())
            }
            9..12 => {
                let least = now.vote.as_ref().map(|vote| vote.leader.clone()).unwrap_or_default();
                let leader = match self.rng.u32(..4) {
                    0 => Leader::new(least.term, [self.rng.u8(..3)]),
                    _ => self.leader(&least),
                };
                let vote = if self.rng.bool() { Vote::granted(leader) } else { Vote::new(leader) };
                if self.rng.bool() { Op::Vote(vote) } else { Op::VoteThen(vote) }
            }
            12..15 => {
                let least = now.committed.map_or(first, |committed| committed + 1).max(first);
                let from = self.rng.u64(least..=next.max(least));
                if self.rng.bool() { Op::Truncate(from) } else { Op::TruncateThen(from) }
            }
            15..18 => Op::Commit(
                self.rng.u64(now.committed.unwrap_or(0)..next.max(now.committed.unwrap_or(0) + 1)),
            ),
            18 | 19 => {
                let upto =
                    self.rng.u64(first.saturating_sub(1)..=now.committed.unwrap_or(0).max(first));
                let leader = now.id_of(upto).map(|id| id.leader).unwrap_or_default();
                Op::Purge(EntryId::new(leader, upto))
            }
            20 => {
                let upto = self.rng.u64(first.saturating_sub(2)..next + 4);
                let same = now.id_of(upto).filter(|_| self.rng.bool());
                let leader = self.leader(&now.last_leader());
                Op::Snapshot(same.unwrap_or(EntryId::new(leader, upto)))
            }
            21 | 22 => Op::Sync,
            _ => self.draw_bad(now),
        }
    }

    /// Draws changes of a batch, up to one that breaks a rule, and whether it is waited for.
    pub fn batch(&mut self, now: &[Model]) -> (Vec<(usize, Op)>, bool) {
        let (mut now, waits, mut ops) = (now.to_vec(), self.rng.bool(), Vec::new());
        for _ in 0..self.rng.usize(1..6) {
            let raft = self.rng.usize(..now.len());
            let op = match self.call(&now[raft]) {
                Op::Vote(vote) | Op::VoteThen(vote) if waits => Op::Vote(vote),
                Op::Vote(vote) => Op::VoteThen(vote),
                Op::Append(entries) if entries.is_empty() => continue,
                Op::Truncate(from) | Op::TruncateThen(from) if waits => Op::Truncate(from),
                Op::Truncate(from) => Op::TruncateThen(from),
                op @ (Op::Append(_) | Op::VoteThen(_) | Op::TruncateThen(_) | Op::Commit(_)) => op,
                Op::Purge(_) | Op::Snapshot(_) | Op::Sync => continue,
            };
            let is_allowed = now[raft].allows(&op);
            if is_allowed {
                now[raft] = now[raft].after(&op);
            }
            ops.push((raft, op));
            if !is_allowed {
                break;
            }
        }
        if ops.is_empty() {
            ops.push((
                0,
                Op::Append(vec![(EntryId::new(now[0].last_leader(), now[0].next()), vec![1])]),
            ));
        }
        (ops, waits)
    }

    fn draw_bad(&mut self, now: &Model) -> Op {
        let (first, next) = (now.first, now.next());
        let entry = |leader, index| Op::Append(vec![(EntryId::new(leader, index), vec![1; 40])]);
        match self.rng.u32(..7) {
            0 => entry(now.last_leader(), next + self.rng.u64(1..4)),
            1 => entry(now.last_leader(), next.saturating_sub(self.rng.u64(1..4))),
            2 => entry(Leader::of_term(now.last_leader().term.saturating_sub(1)), next),
            3 => Op::Truncate(now.committed.unwrap_or(first.saturating_sub(1))),
            4 => Op::Commit(next + self.rng.u64(..3)),
            5 => Op::Purge(EntryId::new(now.last_leader(), next + self.rng.u64(..3))),
            _ => {
                let least = now.vote.as_ref().map(|vote| vote.leader.term).unwrap_or_default();
                Op::Vote(Vote::new(Leader::of_term(least.saturating_sub(1))))
            }
        }
    }
}

/// Adds a change to a batch.
pub fn put<'a>(batch: &mut Batch<'a>, raft: &'a RaftLog, op: &'a Op) {
    match op {
        Op::Append(entries) => _ = batch.append(raft, &new_entries(entries)),
        Op::Vote(vote) | Op::VoteThen(vote) => _ = batch.save_vote(raft, vote.clone()),
        Op::Truncate(from) | Op::TruncateThen(from) => _ = batch.truncate_from(raft, *from),
        Op::Commit(index) => _ = batch.save_committed(raft, *index),
        Op::Purge(_) | Op::Snapshot(_) | Op::Sync => {}
    }
}

fn new_entries(entries: &[(EntryId, Vec<u8>)]) -> Vec<NewEntry<'_>> {
    let new = entries.iter().map(|(id, payload)| NewEntry {
        leader: &id.leader,
        index: id.index,
        payload,
    });
    new.collect()
}

/// Carries a call out. `callback` is that of the calls that have one.
pub fn carry_out(
    raft: &RaftLog,
    op: &Op,
    callback: impl FnOnce(Result<()>) + Send + 'static,
) -> Result<()> {
    match op {
        Op::Append(entries) => raft.append(&new_entries(entries), callback),
        Op::TruncateThen(from) => raft.truncate_from_then(*from, callback),
        Op::Vote(vote) => raft.save_vote(vote),
        Op::VoteThen(vote) => raft.save_vote_then(vote, callback),
        Op::Truncate(from) => raft.truncate_from(*from),
        Op::Commit(index) => raft.save_committed(*index),
        Op::Purge(upto) => raft.purge(upto),
        Op::Snapshot(upto) => raft.purge_to_snapshot(upto),
        Op::Sync => raft.sync(),
    }
}
