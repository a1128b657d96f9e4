//! Raft logs under a leader: one thread appends, entries call back when they are durable, another
//! thread reads what is recent.
//!
//! *Owns*: who takes part, the leader's loop, the proof that every entry is there. *May not touch*:
//! a store's calls (`crate::raft`), the rounds.
//!
//! A vote is mixed in ten times a second, which is far more than a cluster has: its term is that of
//! the entries after it.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use inkstone_host::monotonic_ns;
use inkstone_lab::histogram::Recorder;

use super::plan::{Load, Plan, made};
use crate::news::News;
use crate::raft::open;
use crate::record::{Checker, Record};
use crate::result::LoadResult;
use crate::rounds::{self, Contestant, Finish};
use crate::store::{RaftKind, Store};
use crate::threads::Turn;

const VOTE_EVERY: Duration = Duration::from_millis(100);
/// What is old is purged each time so much was appended,
const PURGE_BYTES: u64 = 4 << 20;
/// but for so much.
const KEEP_BYTES: u64 = 64 << 20;
/// Entries that go in before the first round, so that who recycles has come round, and how many
/// bytes at a time.
const AGE_BYTES: u64 = 192 << 20;
const AGE_APPEND_BYTES: usize = 64 << 10;
/// A turn outside the clock, which is proved whole.
const WARM_UP: Duration = Duration::from_millis(200);

/// How a leader drives its raft log.
#[derive(Debug, Clone, Copy)]
struct Drive {
    entry_bytes: usize,
    in_flight: u64,
    /// Whether one append has as many entries as may be in flight.
    in_batches: bool,
}

pub fn raft(plan: &Plan, load: &Load, entry_bytes: usize, in_flight: u64) -> LoadResult {
    let mut contestants = Vec::new();
    for kind in plan.engines.iter().copied().filter_map(RaftKind::of) {
        let mut add = |name: String, in_batches| {
            let drive = Drive { entry_bytes, in_flight, in_batches };
            contestants.push(made(&name, Led::new(plan, &name, kind, drive)));
        };
        add(kind.name().into(), false);
        if in_flight > 1 {
            add(format!("{} batches", kind.name()), true);
        }
    }
    let mut notes = vec![format!(
        "{in_flight} entries in flight, each an append of its own; a vote each {VOTE_EVERY:?}; a \
         thread reads each entry as soon as it can"
    )];
    if in_flight > 1 {
        notes.push(format!(
            "batches: one append of {in_flight} entries at a time, which calls back once"
        ));
    }
    load.result(entry_bytes, rounds::run(&plan.pace, contestants), notes)
}

/// What appends: one thread, which also votes and purges.
struct Leader {
    drive: Drive,
    /// A record's number is its entry's index less one.
    record: Record,
    term: u64,
    /// From which index on which term, of all that was not purged.
    terms: Vec<(u64, u64)>,
    votes: u64,
}

impl Leader {
    fn new(drive: Drive) -> Self {
        let record = Record::new(0, drive.entry_bytes);
        Self { drive, record, term: 0, terms: Vec::new(), votes: 0 }
    }

    fn vote(&mut self, store: &dyn Store) -> Result<()> {
        self.term += 1;
        self.votes += 1;
        self.terms.push((self.record.count() + 1, self.term));
        store.save_vote(self.term)
    }

    /// Purges what is old.
    fn purge(&mut self, store: &dyn Store) -> Result<()> {
        let keep = KEEP_BYTES / self.drive.entry_bytes as u64;
        let Some(upto) = self.record.count().checked_sub(keep).filter(|&upto| upto > 0) else {
            return Ok(());
        };
        let at = self.terms.partition_point(|&(first, _)| first <= upto);
        let at = at.checked_sub(1).context("each entry has a term")?;
        let term = self.terms[at].1;
        self.terms.drain(..at);
        store.purge(term, upto)
    }

    /// Keeps so many entries in flight until then, or until so many were appended; waits for the
    /// last one.
    fn lead(
        &mut self,
        store: &dyn Store,
        drive: Drive,
        end_ns: u64,
        most: u64,
        news: Option<&News>,
    ) -> Result<Turn> {
        let (tell, told) = channel();
        let mut latency = Recorder::new();
        let (mut commits, mut in_flight, mut unpurged) = (0, 0, 0);
        let begin_ns = monotonic_ns();
        let (mut now_ns, mut last_ns, mut vote_ns) = (begin_ns, begin_ns, begin_ns);
        let begin = self.record.count();
        let readable = |count: u64| {
            if let Some(news) = news {
                news.are_there(count);
            }
        };
        loop {
            let is_over = now_ns >= end_ns || self.record.count() - begin >= most;
            if is_over && in_flight == 0 {
                break;
            }
            if !is_over && now_ns.saturating_sub(vote_ns) >= VOTE_EVERY.as_nanos() as u64 {
                self.vote(store)?;
                vote_ns = monotonic_ns();
            }
            let many = if drive.in_batches { drive.in_flight } else { 1 };
            while !is_over && in_flight + many <= drive.in_flight {
                let first = self.record.count() + 1;
                let payloads: Vec<Vec<u8>> =
                    (0..many).map(|_| self.record.advance().to_vec()).collect();
                let (tell, count, began_ns) = (tell.clone(), self.record.count(), monotonic_ns());
                let done = Box::new(move |outcome| {
                    // The receiver has left if the leader has failed.
                    let _ = tell.send((many, count, began_ns, monotonic_ns(), outcome));
                });
                store.append(self.term, first, &payloads, done)?;
                if store.is_readable_at_once() {
                    readable(count);
                }
                in_flight += many;
                unpurged += many * drive.entry_bytes as u64;
            }
            if unpurged >= PURGE_BYTES {
                unpurged = 0;
                self.purge(store)?;
            }
            // All that called back meanwhile, and at least one.
            let mut next = Some(told.recv().context("a callback was not called")?);
            while let Some((many, count, began_ns, ack_ns, outcome)) = next {
                outcome?;
                latency.record(ack_ns.saturating_sub(began_ns));
                in_flight -= many;
                commits += many;
                last_ns = ack_ns;
                if !store.is_readable_at_once() {
                    readable(count);
                }
                next = told.try_recv().ok();
            }
            now_ns = monotonic_ns();
        }
        let flushes_min = commits / drive.in_flight;
        let (total_ns, latency) = (last_ns - begin_ns, Some(latency));
        Ok(Turn { commits, total_ns, latency, flushes_min, groups: None })
    }
}

/// Reads entries as soon as they can be read, and looks at each.
fn read_recent(store: &dyn Store, from: u64, entry_bytes: usize, news: &News) -> Result<u64> {
    let mut reader = store.reader()?;
    let (mut seen, mut next) = (Checker::from(from, entry_bytes), from);
    while !news.is_all(next) {
        let count = news.count();
        if count == next {
            news.wait(next, Duration::from_millis(20));
            continue;
        }
        let shown = reader.read(next + 1, count + 1, &mut |payload| seen.see(payload))?;
        seen.so_far().context("the reader")?;
        ensure!(shown > 0, "the reader got nothing of {}", count - next);
        next += shown;
    }
    Ok(seen.count())
}

/// Every entry that a raft log has, compared when it is opened again.
fn read_back(store: &dyn Store, leader: &Leader, all: bool) -> Result<u64> {
    let mut checker = Checker::new(1, leader.drive.entry_bytes, true);
    let (mut next, end) = store.bounds()?;
    let mut reader = store.reader()?;
    while next < end {
        let shown = reader.read(next, end, &mut |payload| checker.see(payload))?;
        ensure!(shown > 0, "nothing comes at entry {next} of {end}");
        next += shown;
    }
    let acknowledged = [leader.record.count()];
    if all { checker.finish_all(&acknowledged) } else { checker.finish(&acknowledged) }
}

/// A raft log with its leader.
struct Led {
    name: String,
    kind: RaftKind,
    path: PathBuf,
    store: Option<Box<dyn Store>>,
    leader: Leader,
    read: u64,
    checked: u64,
}

impl Led {
    /// Proved in a directory of its own, then aged in another.
    fn new(plan: &Plan, name: &str, kind: RaftKind, drive: Drive) -> Result<Self> {
        let directory =
            format!("raft-{}-{}-{}", name.replace(' ', "-"), drive.in_flight, drive.entry_bytes);
        let path = plan.directory.join(directory);
        let mut proof = Self::open(name, kind, path.with_extension("proof"), drive)?;
        // Few enough that nothing is purged: every entry must be there.
        proof.run_at_most(WARM_UP, KEEP_BYTES / 2 / drive.entry_bytes as u64)?;
        proof.check(true).context("the check before the rounds")?;
        let checked = proof.checked;
        let mut led = Self::open(name, kind, path, drive)?;
        led.checked = checked;
        led.age()?;
        led.run(WARM_UP)?;
        Ok(led)
    }

    fn open(name: &str, kind: RaftKind, path: PathBuf, drive: Drive) -> Result<Self> {
        let store = open(kind, &path)?;
        let mut leader = Leader::new(drive);
        leader.vote(&*store)?;
        Ok(Self { name: name.into(), kind, path, store: Some(store), leader, read: 0, checked: 0 })
    }

    fn age(&mut self) -> Result<()> {
        let drive = self.leader.drive;
        let aging = Drive {
            in_flight: (AGE_APPEND_BYTES / drive.entry_bytes) as u64,
            in_batches: true,
            ..drive
        };
        let store = self.store.as_deref().context("it was not opened")?;
        self.leader.lead(store, aging, u64::MAX, AGE_BYTES / drive.entry_bytes as u64, None)?;
        Ok(())
    }

    /// A turn, with its reader.
    fn run(&mut self, time: Duration) -> Result<Turn> {
        self.run_at_most(time, u64::MAX)
    }

    /// The same, of so many entries at the most, and those in flight then.
    fn run_at_most(&mut self, time: Duration, most: u64) -> Result<Turn> {
        let store = self.store.as_deref().context("it was not opened")?;
        let leader = &mut self.leader;
        let drive = leader.drive;
        let from = leader.record.count();
        let news = News::new(from);
        let (turn, read) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_recent(store, from, drive.entry_bytes, &news));
            let end_ns = monotonic_ns().saturating_add(time.as_nanos() as u64);
            let turn = leader.lead(store, drive, end_ns, most, Some(&news));
            news.end();
            (turn, reading.join())
        });
        let (turn, read) = (turn?, read.map_err(|_| anyhow!("the reader panicked"))??);
        ensure!(read == turn.commits, "{read} entries read of {}", turn.commits);
        self.read += read;
        Ok(turn)
    }

    /// Closes it, opens it again, and compares every entry that it has.
    fn check(&mut self, all: bool) -> Result<()> {
        self.store.take().context("it was not opened")?.close()?;
        let store = open(self.kind, &self.path)?;
        self.checked += read_back(&*store, &self.leader, all)?;
        store.close()
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        self.store = None;
        // What cannot be removed goes with the working directory.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Contestant for Led {
    fn name(&self) -> &str {
        &self.name
    }

    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    fn turn(&mut self, time: Duration) -> Result<Turn> {
        self.run(time)
    }

    fn finish(mut self: Box<Self>) -> Result<Finish> {
        let how = self.store.as_ref().context("it was not opened")?.how();
        self.check(false)?;
        let notes = format!("{} votes, {} entries read beside", self.leader.votes, self.read);
        Ok(Finish { how, notes: Some(notes), checked: Some(self.checked) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_raft_log_gives_back_what_it_acknowledged() {
        for kind in [RaftKind::Inkstone, RaftKind::RaftEngine] {
            for (in_flight, in_batches) in [(1, false), (8, false), (8, true)] {
                let path = std::env::temp_dir().join(format!(
                    "bench-peers-{}-{}-{in_flight}-{in_batches}",
                    std::process::id(),
                    kind.name()
                ));
                let drive = Drive { entry_bytes: 128, in_flight, in_batches };
                let mut led = Led::open(kind.name(), kind, path, drive)
                    .unwrap_or_else(|error| panic!("{}: {error:#}", kind.name()));
                let turn =
                    led.run(WARM_UP).unwrap_or_else(|error| panic!("{}: {error:#}", kind.name()));
                led.check(true).unwrap_or_else(|error| panic!("{}: {error:#}", kind.name()));
                assert_eq!(led.checked, turn.commits, "{}", kind.name());
                assert!(led.read == turn.commits && turn.commits > 0, "{}", kind.name());
            }
        }
    }
}
