//! One schedule of a raft log: a thread that writes as raft does, one that purges and syncs beside
//! it, a reader, and callbacks.
//!
//! *Owns*: drawing what each thread does from the seed, doing it, asking the ledger about every
//! answer. *May not touch*: which thread goes on.

mod ledger;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fastrand::Rng;
use inkstone_raft::{EntryId, Error, Leader, NewEntry, Options, RaftLog, RaftReader, Vote};
use inkstone_sim::{DiskOptions, Fault, SimDisk};
use shuttle::sync::mpsc::channel;
use shuttle::thread;

use self::ledger::{Ledger, Model, More, PURGER, WRITER};
use crate::disk::{PATH, stepped};
use crate::ledger::{Kind, end_if_broken, fail, number_in, payload};
use crate::models::none_is_uncalled;
use crate::plan::Plan;
use crate::run::join;
use crate::setup::{End, fault};

const TERM: u64 = 1;

#[derive(Debug, Clone, Copy)]
enum Op {
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
    /// So many entries, from so many before the last on.
    Entries(u64, u64),
    Bounds,
}

/// What callbacks do beside telling.
#[derive(Debug, Clone, Copy)]
enum Habit {
    Plain,
    Reads,
    Syncs,
    Commits,
}

#[derive(Debug)]
struct Setup {
    own_thread: bool,
    memory_bytes: usize,
    fault: Option<Fault>,
    writer: Vec<Op>,
    beside: Vec<Op>,
    reader: Vec<Op>,
    habit: Habit,
    end: End,
}

fn append(rng: &mut Rng, own_thread: bool) -> Op {
    let bytes = match rng.u8(..10) {
        0 => rng.usize(3000..9000),
        1 => rng.usize(200..3000),
        _ => rng.usize(4..120),
    };
    Op::Append(rng.u64(1..4), bytes, own_thread && rng.u8(..3) == 0)
}

fn reads(rng: &mut Rng) -> Op {
    if rng.u8(..5) == 0 { Op::Bounds } else { Op::Entries(rng.u64(..5), rng.u64(1..5)) }
}

impl Setup {
    fn new(rng: &mut Rng) -> Self {
        let own_thread = rng.u8(..4) > 0;
        let writes = |rng: &mut Rng| match rng.u8(..12) {
            0..=4 => append(rng, own_thread),
            5..=7 => Op::Truncate(rng.u64(1..4), rng.bool()),
            8 | 9 => Op::Vote(rng.bool()),
            10 => Op::Commit(rng.u64(..3)),
            _ => reads(rng),
        };
        let besides = |rng: &mut Rng| match rng.u8(..5) {
            0 => Op::Sync,
            1 => Op::Commit(rng.u64(..4)),
            2 | 3 => Op::Purge(rng.u64(..2)),
            _ => reads(rng),
        };
        let first = append(rng, own_thread);
        let (writes_count, besides_count, reads_count) =
            (rng.usize(2..7), rng.usize(..4), rng.usize(1..6));
        Self {
            own_thread,
            memory_bytes: [0, 200, 4000, 64 << 10][rng.usize(..4)],
            fault: (rng.u8(..8) == 0).then(|| fault(rng)),
            writer: std::iter::once(first).chain((0..writes_count).map(|_| writes(rng))).collect(),
            beside: (0..besides_count).map(|_| besides(rng)).collect(),
            reader: (0..reads_count).map(|_| reads(rng)).collect(),
            habit: [Habit::Plain, Habit::Plain, Habit::Reads, Habit::Syncs, Habit::Commits]
                [rng.usize(..5)],
            end: [End::Close, End::Close, End::Drop, End::Abandon][rng.usize(..4)],
        }
    }
}

/// What all threads share.
#[derive(Clone)]
struct World {
    ledger: Arc<Mutex<Ledger>>,
    raft: Weak<RaftLog>,
    reader: RaftReader,
    habit: Habit,
    /// Callbacks that were not called yet.
    uncalled: Arc<AtomicU32>,
    /// The callbacks of this schedule never run inside each other.
    is_calling: Arc<AtomicBool>,
}

impl World {
    /// Never held over a scheduling point.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn callback(&self, step: usize) -> impl FnOnce(Result<(), Error>) + Send + 'static {
        let world = self.clone();
        world.uncalled.fetch_add(1, Ordering::Relaxed);
        move |result| {
            if world.is_calling.swap(true, Ordering::Relaxed) {
                fail!(Kind::OutOfOrder, "the callback of {step} is called while another one runs");
            }
            world.ledger().is_called_back(step, &result);
            match world.habit {
                Habit::Plain => {}
                Habit::Reads => world.entries(1, 3),
                Habit::Syncs | Habit::Commits => {
                    // It may find itself the last owner.
                    if let Some(raft) = world.raft.upgrade() {
                        if let Habit::Syncs = world.habit {
                            world.sync(&raft)
                        } else {
                            world.commit(&raft, 0)
                        }
                    }
                }
            }
            world.is_calling.store(false, Ordering::Relaxed);
            world.uncalled.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn carry_out(&self, raft: &RaftLog, op: Op) {
        self.ledger().say(|| format!("{op:?}"));
        match op {
            Op::Append(count, bytes, waits) => self.append(raft, count, bytes, waits),
            Op::Truncate(back, waits) => {
                let (step, from) = {
                    let mut ledger = self.ledger();
                    let from = ledger.next().saturating_sub(back).max(ledger.more.committing + 1);
                    if from >= ledger.next() {
                        return;
                    }
                    (ledger.will_write(|entries, _| entries.truncate(from as usize - 1)), from)
                };
                let done = if waits {
                    raft.truncate_from(from)
                } else {
                    raft.truncate_from_then(from, self.callback(step))
                };
                self.settle(step, done, waits, "truncate_from");
            }
            Op::Vote(waits) => {
                let mut term = 0;
                let step = self.ledger().will_write(|_, vote| {
                    *vote += 1;
                    term = *vote;
                });
                let vote = Vote::new(Leader::of_term(term));
                let done = if waits {
                    raft.save_vote(&vote)
                } else {
                    raft.save_vote_then(&vote, self.callback(step))
                };
                self.settle(step, done, waits, "save_vote");
            }
            Op::Commit(back) => self.commit(raft, back),
            Op::Purge(back) => {
                let (step, upto) = {
                    let mut ledger = self.ledger();
                    let upto = ledger.more.committed.saturating_sub(back);
                    // What is purged stays so.
                    let first = ledger.owned[PURGER].last().purged_before().max(upto + 1);
                    (ledger.will_be(PURGER, Model::From(first)), upto)
                };
                if upto > 0 {
                    match raft.purge(&EntryId::new(Leader::of_term(TERM), upto)) {
                        Ok(()) => self.ledger().has_returned(PURGER, step, true),
                        Err(error) => self.ledger().refused(&error, "purge"),
                    }
                }
            }
            Op::Sync => self.sync(raft),
            Op::Entries(back, count) => self.entries(back, count),
            Op::Bounds => self.bounds(),
        }
    }

    fn append(&self, raft: &RaftLog, count: u64, bytes: usize, waits: bool) {
        let (step, numbers, first) = {
            let mut ledger = self.ledger();
            let first = ledger.next();
            let numbers = ledger.new_records(count);
            (ledger.will_write(|entries, _| entries.extend(numbers.clone())), numbers, first)
        };
        let payloads: Vec<_> = numbers.map(|number| payload(number, bytes)).collect();
        let leader = Leader::of_term(TERM);
        let entry = |(index, payload)| NewEntry { leader: &leader, index, payload };
        let entries: Vec<_> =
            (first..).zip(payloads.iter().map(Vec::as_slice)).map(entry).collect();
        let (told, wait) = channel();
        let callback = self.callback(step);
        let done = raft.append(&entries, move |result| {
            callback(result);
            // Who does not wait has left.
            let _ = told.send(());
        });
        let is_done = done.is_ok();
        self.settle(step, done, false, "append");
        if is_done && waits {
            let _ = wait.recv();
        }
    }

    /// A step has returned. One that was refused calls nothing back.
    fn settle(&self, step: usize, done: Result<(), Error>, waits: bool, by: &str) {
        match done {
            Ok(()) => self.ledger().has_returned(WRITER, step, waits),
            Err(error) => {
                if !waits {
                    self.uncalled.fetch_sub(1, Ordering::Relaxed);
                }
                self.ledger().was_refused(step, &error, by);
            }
        }
    }

    fn commit(&self, raft: &RaftLog, back: u64) {
        let index = {
            let mut ledger = self.ledger();
            let index = (ledger.next() - 1).saturating_sub(back);
            if index <= ledger.more.committing {
                return;
            }
            ledger.more.committing = index;
            index
        };
        match raft.save_committed(index) {
            Ok(()) => {
                let mut ledger = self.ledger();
                ledger.more.committed = ledger.more.committed.max(index);
            }
            Err(error) => self.ledger().refused(&error, "save_committed"),
        }
    }

    fn sync(&self, raft: &RaftLog) {
        let returned = self.ledger().begin();
        match raft.sync() {
            Ok(()) => self.ledger().are_certain(returned),
            Err(error) => self.ledger().refused(&error, "sync"),
        }
    }

    fn entries(&self, back: u64, count: u64) {
        let (begun, range) = {
            let ledger = self.ledger();
            let from = ledger.next().saturating_sub(back).max(1);
            (ledger.begin(), from..from + count)
        };
        match self.reader.entries(range.clone(), usize::MAX) {
            Ok(entries) => {
                let found = entries.iter().map(|entry| (entry.id.index, number_in(&entry.payload)));
                self.ledger().shown(begun, range, &found.collect::<Vec<_>>());
            }
            Err(Error::IsPurged { index, .. }) if index == range.start => {
                self.ledger().told_purged(index)
            }
            Err(error) => self.ledger().refused(&error, "entries"),
        }
    }

    fn bounds(&self) {
        match self.reader.bounds() {
            Ok(bounds) if bounds.first <= bounds.next => {}
            Ok(bounds) => fail!(Kind::Wrong, "{bounds:?}"),
            Err(error) => return self.ledger().refused(&error, "bounds"),
        }
        match self.reader.vote() {
            Ok(vote) => self.ledger().shown_vote(vote.map_or(0, |vote| vote.leader.term)),
            Err(error) => self.ledger().refused(&error, "vote"),
        }
    }
}

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed ^ 0x6869_7374_5241_4654);
    let setup = Setup::new(&mut rng);
    let disk = SimDisk::new(seed, DiskOptions::default());
    let first = [Model::Written { entries: Vec::new(), vote: 0 }, Model::From(1)];
    let mut ledger = Ledger::new(&disk, &mut rng, plan, first, More::default());
    ledger.may_fail = setup.fault.is_some();
    ledger.say(|| format!("{setup:#?}"));
    let log = inkstone::Options::small().buffer_bytes(16 << 10).own_thread(setup.own_thread);
    let options = Options::new().log(log).memory_bytes(setup.memory_bytes);
    #[cfg(inkstone_mistakes)]
    let options = match plan.raft_mistake {
        Some(mistake) => options.with_mistake(mistake),
        None => options,
    };
    let raft = match RaftLog::open_in(Arc::new(stepped(disk.directory(PATH))), options) {
        Ok(raft) => Arc::new(raft),
        Err(error) => fail!(Kind::WrongError, "opening: {error}"),
    };
    let world = World {
        ledger: Arc::new(Mutex::new(ledger)),
        raft: Arc::downgrade(&raft),
        reader: raft.reader(),
        habit: setup.habit,
        uncalled: Arc::default(),
        is_calling: Arc::default(),
    };
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    history(&setup, &world, raft);
    disk.clear_faults();
    world.ledger().look_at_what_is_left(|directory| {
        let log = inkstone::Options::small().own_thread(false);
        let raft = RaftLog::open_in(directory, Options::new().log(log))?;
        let found = shown(&raft)?;
        raft.abandon();
        Ok::<_, Error>(found)
    });
    end_if_broken();
}

fn history(setup: &Setup, world: &World, raft: Arc<RaftLog>) {
    let work = |ops: &Vec<Op>| {
        let (raft, ops, world) = (Arc::clone(&raft), ops.clone(), world.clone());
        thread::spawn(move || ops.iter().for_each(|op| world.carry_out(&raft, *op)))
    };
    let workers = [work(&setup.writer), work(&setup.beside)];
    let (ops, theirs) = (setup.reader.clone(), world.clone());
    let reader = thread::spawn(move || {
        for op in ops {
            match op {
                Op::Entries(back, count) => theirs.entries(back, count),
                _ => theirs.bounds(),
            }
        }
    });
    workers.into_iter().for_each(join);
    world.ledger().say(|| format!("the raft log ends: {:?}", setup.end));
    world.ledger().is_closing = true;
    match (setup.end, Arc::try_unwrap(raft)) {
        (End::Close, raft) => {
            let closed = match &raft {
                Ok(raft) => raft.close(),
                Err(shared) => shared.close(),
            };
            match closed {
                Ok(()) => {
                    let mut ledger = world.ledger();
                    let returned = ledger.begin();
                    ledger.are_certain(returned);
                }
                Err(error) => world.ledger().refused(&error, "close"),
            }
        }
        (End::Abandon, Ok(raft)) => raft.abandon(),
        // A callback that holds it lets go of it last.
        (_, raft) => drop(raft),
    }
    join(reader);
    none_is_uncalled(&world.uncalled);
}

/// What it shows: what was written, and from where on.
fn shown(raft: &RaftLog) -> Result<[Model; 2], Error> {
    let bounds = raft.bounds()?;
    let entries = raft.entries(bounds.first..u64::MAX, usize::MAX)?;
    let first = bounds.first.max(1);
    // A new one may begin anywhere.
    if bounds.next.max(1) != first + entries.len() as u64 {
        fail!(Kind::Wrong, "{bounds:?}, and {} entries", entries.len());
    }
    let vote = raft.vote()?.map_or(0, |vote| vote.leader.term);
    let numbers = (first..).zip(&entries);
    let number = |(index, entry): (u64, &inkstone_raft::Entry)| {
        number_in(&entry.payload).filter(|_| entry.id.index == index)
    };
    let entries = numbers.map(number).collect();
    Ok([Model::Shown { first, entries, vote }, Model::From(first)])
}
