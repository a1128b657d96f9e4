//! Random calls on a disk that loses its power and fails: what is found is the state after some
//! call, and never one before the last that was acknowledged.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

mod support;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use inkstone_openraft::{LogStore, Options};
use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, SimDisk};
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::testing::log_id;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{EntryOf, VoteOf};
use support::Types;

type Store = LogStore<Types>;
type Vote = VoteOf<Types>;
type Call = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// What a store should show. Entries have indexes from `purged` on, and are their terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Model {
    vote: u64,
    /// So many entries were purged, and the term of the last.
    purged: (u64, u64),
    terms: Vec<u64>,
}

impl Model {
    fn next(&self) -> u64 {
        self.purged.0 + self.terms.len() as u64
    }

    fn term_of(&self, index: u64) -> u64 {
        self.terms[(index - self.purged.0) as usize]
    }

    async fn of(store: &mut Store) -> Self {
        let state = store.get_log_state().await.unwrap();
        let purged =
            state.last_purged_log_id.map_or((0, 0), |id| (id.index + 1, id.leader_id.term));
        let entries = store.reader().try_get_log_entries(..).await.unwrap();
        for (entry, index) in entries.iter().zip(purged.0..) {
            assert_eq!(entry.log_id.index, index, "a gap");
        }
        let last = entries.last().map(|entry| entry.log_id).or(state.last_purged_log_id);
        assert_eq!(state.last_log_id, last);
        let vote =
            store.reader().read_vote().await.unwrap().map_or(0, |vote: Vote| vote.leader_id.term);
        Self {
            vote,
            purged,
            terms: entries.iter().map(|entry| entry.log_id.leader_id.term).collect(),
        }
    }
}

/// One life of a store, from an opening to a power cut.
struct Life {
    store: Store,
    rng: fastrand::Rng,
    /// After each call that was made, in order.
    states: Vec<Model>,
    /// The last state that was acknowledged.
    acknowledged: usize,
    /// Entries below it are committed.
    committed: u64,
    /// Calls that wait, and the states that they are for.
    waiting: Vec<(usize, Call)>,
}

impl Life {
    fn begin(&mut self, state: Model, mut call: Call) -> io::Result<()> {
        self.states.push(state);
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => self.acknowledged = self.states.len() - 1,
            Poll::Ready(Err(failed)) => return Err(failed),
            Poll::Pending => self.waiting.push((self.states.len() - 1, call)),
        }
        Ok(())
    }

    /// Notes which calls were acknowledged.
    fn look(&mut self) -> io::Result<()> {
        let mut left = Vec::new();
        for (state, mut call) in std::mem::take(&mut self.waiting) {
            match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(())) => self.acknowledged = self.acknowledged.max(state),
                Poll::Ready(Err(failed)) => return Err(failed),
                Poll::Pending => left.push((state, call)),
            }
        }
        self.waiting = left;
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let (mut state, mut store) = (self.states.last().unwrap().clone(), self.store.clone());
        let bytes = if self.rng.u8(..8) == 0 { 12_000 } else { self.rng.usize(..100) };
        let (count, term) = (self.rng.u64(1..6), state.vote.max(1));
        let first = state.next();
        let text = "x".repeat(bytes);
        for index in first..first + count {
            state.terms.push(term);
            // What is too large for one record becomes several.
            if bytes * count as usize > 30_000 && index + 1 < first + count {
                self.states.push(state.clone());
            }
        }
        let entries = (first..first + count).map(move |index| {
            EntryOf::<Types>::new(
                log_id::<Types>(term, 1, index),
                EntryPayload::Normal(text.clone()),
            )
        });
        self.begin(
            state,
            Box::pin(async move {
                let (told, wait) = Types::oneshot();
                store.append(entries, IOFlushed::signal(told)).await?;
                wait.await.unwrap()
            }),
        )
    }

    fn vote(&mut self) -> io::Result<()> {
        let (mut state, mut store) = (self.states.last().unwrap().clone(), self.store.clone());
        state.vote += self.rng.u64(1..3);
        let vote = Vote::new(state.vote, 1);
        self.begin(state, Box::pin(async move { store.save_vote(&vote).await }))
    }

    fn truncate(&mut self) -> io::Result<()> {
        let (mut state, mut store) = (self.states.last().unwrap().clone(), self.store.clone());
        let from = self.rng.u64(self.committed.max(state.purged.0)..=state.next());
        let last = match from {
            0 => None,
            from if from == state.purged.0 => Some(log_id::<Types>(state.purged.1, 1, from - 1)),
            from => Some(log_id::<Types>(state.term_of(from - 1), 1, from - 1)),
        };
        state.terms.truncate((from - state.purged.0) as usize);
        self.begin(state, Box::pin(async move { store.truncate_after(last).await }))
    }

    async fn commit(&mut self) -> io::Result<()> {
        let state = self.states.last().unwrap();
        if self.committed.max(state.purged.0) < state.next() {
            let index = self.rng.u64(self.committed.max(state.purged.0)..state.next());
            self.store
                .save_committed(Some(log_id::<Types>(state.term_of(index), 1, index)))
                .await?;
            self.committed = index + 1;
        }
        Ok(())
    }

    async fn purge(&mut self) -> io::Result<()> {
        let mut state = self.states.last().unwrap().clone();
        if state.purged.0 < self.committed {
            let index = self.rng.u64(state.purged.0..self.committed);
            let term = state.term_of(index);
            state.terms.drain(..(index + 1 - state.purged.0) as usize);
            state.purged = (index + 1, term);
            self.states.push(state);
            self.store.purge(log_id::<Types>(term, 1, index)).await?;
            self.acknowledged = self.states.len() - 1;
        }
        Ok(())
    }

    async fn step(&mut self) -> io::Result<()> {
        match self.rng.u8(..12) {
            0..4 => self.append()?,
            4 => self.vote()?,
            5 => self.truncate()?,
            6 => self.commit().await?,
            7 => self.purge().await?,
            _ => {
                for (state, call) in std::mem::take(&mut self.waiting) {
                    call.await?;
                    self.acknowledged = self.acknowledged.max(state);
                }
            }
        }
        self.look()
    }
}

#[tokio::test]
async fn what_is_found_is_a_state_that_was_and_no_older_than_the_last_acknowledged() {
    let (mut failures, mut lost, mut kept) = (0, 0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        // A disk that reports a failed sync with the next one (`ReportsLater`) has lost what it had
        // acknowledged: nobody can help there.
        let after_effect =
            Some(if seed % 2 == 0 { AfterEffect::KeepsNew } else { AfterEffect::RevertsToOld });
        let mut disk = SimDisk::new(seed, DiskOptions { after_effect, ..DiskOptions::default() });
        let (mut before, mut committed) = (Model::default(), 0);
        for life in 0..6 {
            let options = Options::new().log(inkstone::Options::small()).memory_bytes(1000);
            let mut store = Store::open_in(Arc::new(disk.directory("/log")), options).unwrap();
            let found = Model::of(&mut store).await;
            if life > 0 {
                assert_eq!(found, before, "seed {seed}: another opening shows something else");
            }
            committed =
                store.read_committed().await.unwrap().map_or(0, |id| id.index + 1).max(committed);
            let states = vec![found];
            let waiting = Vec::new();
            let mut life =
                Life { store, rng: rng.fork(), states, acknowledged: 0, committed, waiting };
            if rng.bool() {
                let rates = FaultRates {
                    write_error_ppm: 20_000,
                    sync_error_ppm: 20_000,
                    directory_error_ppm: 20_000,
                    short_ppm: 50_000,
                    ..FaultRates::default()
                };
                disk.change_options(|options| options.rates = rates);
            }
            for _ in 0..rng.u8(5..40) {
                if life.step().await.is_err() {
                    failures += 1;
                    // What was durable before a failure is acknowledged, whatever follows.
                    let _ = life.look();
                    break;
                }
            }
            disk.change_options(|options| options.rates = FaultRates::default());
            let found = disk.crash(rng.u64(..));
            let options = Options::new().log(inkstone::Options::small());
            let mut store = Store::open_in(Arc::new(found.directory("/log")), options).unwrap();
            before = Model::of(&mut store).await;
            let place = life.states.iter().rposition(|state| *state == before);
            assert!(
                place.is_some_and(|place| place >= life.acknowledged),
                "seed {seed}: found {before:?}, which is {place:?} of {:?}, and {} was \
                 acknowledged",
                life.states,
                life.acknowledged
            );
            lost += usize::from(place < Some(life.states.len() - 1));
            kept += life.acknowledged;
            // What was said to be committed may be found older, and is then said again: entries
            // below it were acknowledged.
            let said = store.read_committed().await.unwrap().map_or(0, |id| id.index + 1);
            assert!(
                said <= life.committed,
                "seed {seed}: {said} is committed, and {} was said",
                life.committed
            );
            committed = said.max(before.purged.0);
            store.close().unwrap();
            disk = found;
        }
    }
    assert!(
        failures > 20 && lost > 50 && kept > 1000,
        "{failures} failures, {lost} lost calls, {kept} kept ones"
    );
}
