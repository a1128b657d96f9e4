//! One schedule of many raft groups in one log: two threads that own a group each and come back to
//! it after every end, one that opens, reads, closes and drops the same groups beside them and
//! removes one of its own, and in some schedules one that closes all while they work.
//!
//! *Owns*: drawing what each thread does from the seed, doing it, the models of the groups, and
//! judging every answer by them. *May not touch*: which thread goes on.
//!
//! A group has one owner (`models.rs`). Who opens it must find the last model that has returned,
//! however it was ended before.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use inkstone_raft::{EntryId, Error, Groups, Leader, NewEntry, RaftLog, StreamsOptions, Vote};
use inkstone_sim::survival::Thing;
use inkstone_sim::{DiskOptions, Fault, SimDisk};
use shuttle::thread;

use crate::disk::{PATH, stepped};
use crate::ledger::{Kind, end_if_broken, fail, number_in, payload};
use crate::models::{Ledger as Models, none_is_uncalled};
use crate::plan::Plan;
use crate::run::join;
use crate::setup::{End, fault};

/// The group that the third thread creates and removes.
const OTHER: u64 = 9;
const TERM: u64 = 1;

#[derive(Debug, Clone, Copy)]
enum Op {
    /// So many entries.
    Append(u64),
    /// So many entries less.
    Truncate(u64),
    Vote,
    /// All entries are committed, and perhaps purged.
    Commit(bool),
    Sync,
    /// Lets go of the handle, or closes the group; then opens it.
    Drop,
    Close,
}

#[derive(Debug, Clone, Copy)]
enum Beside {
    /// Opens the group, reads, and lets go of it.
    Read,
    Close,
    /// Creates the other group, or removes it.
    Create,
    Remove,
}

#[derive(Debug)]
struct Setup {
    own_thread: bool,
    owners: [Vec<Op>; 2],
    beside: Vec<(u64, Beside)>,
    closes_beside: bool,
    fault: Option<Fault>,
    end: End,
}

impl Setup {
    fn new(rng: &mut Rng) -> Self {
        let op = |rng: &mut Rng| match rng.u8(..13) {
            0..=3 => Op::Append(rng.u64(1..4)),
            4 => Op::Truncate(rng.u64(1..3)),
            5 => Op::Vote,
            6 | 7 => Op::Commit(rng.bool()),
            8 => Op::Sync,
            9..=11 => Op::Drop,
            _ => Op::Close,
        };
        let ops = |rng: &mut Rng| (0..rng.usize(2..7)).map(|_| op(rng)).collect();
        let besides = |rng: &mut Rng| {
            let kinds = [Beside::Read, Beside::Read, Beside::Close, Beside::Create, Beside::Remove];
            (rng.u64(..2), kinds[rng.usize(..kinds.len())])
        };
        Self {
            own_thread: rng.bool(),
            owners: [ops(rng), ops(rng)],
            beside: (0..rng.usize(1..6)).map(|_| besides(rng)).collect(),
            closes_beside: rng.u8(..4) == 0,
            fault: (rng.u8(..8) == 0).then(|| fault(rng)),
            end: [End::Close, End::Close, End::Drop, End::Abandon][rng.usize(..4)],
        }
    }
}

/// What a group holds; entries begin at index 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Model {
    first: u64,
    entries: Vec<u32>,
    vote: u64,
}

impl Model {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

impl Thing for Model {
    fn may_be_shown_as(&self, shown: &Self) -> bool {
        self == shown
    }

    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

/// With the last committed index of each group.
type Ledger = Models<Model, [u64; 2]>;

impl Ledger {
    /// A change has returned. If the group was closed before, nothing has changed.
    fn returned(&mut self, group: usize, model: usize, done: &Result<(), Error>, waits: bool) {
        match done {
            Ok(()) => self.has_returned(group, model, waits),
            Err(error) if matches!(error.cause(), Error::Closed) && !self.is_closing => {
                let before = self.owned[group].models[model - 1].clone();
                self.owned[group].models.push(before);
                self.owned[group].returned = model + 1;
            }
            Err(error) => self.refused(error, "a change"),
        }
    }

    /// An error that a fault, or the end, may have caused.
    fn refused(&self, error: &Error, by: &str) {
        let is_closed =
            matches!(error.cause(), Error::Closed | Error::Log(inkstone::Error::Closed));
        self.must_be_explained(error, by, self.may_fail || is_closed && self.is_closing);
    }
}

#[derive(Clone)]
struct World {
    ledger: Arc<Mutex<Ledger>>,
    groups: Arc<Groups>,
    uncalled: Arc<AtomicU32>,
}

impl World {
    /// Never held over a scheduling point.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a group as its owner: it is what it was.
    fn open(&self, group: usize) -> Option<RaftLog> {
        let raft = match self.groups.group(group as u64) {
            Ok(raft) => raft,
            Err(error) => {
                self.ledger().refused(&error, "opening");
                return None;
            }
        };
        let shown = shown(&raft);
        let ledger = self.ledger();
        match shown {
            // What was refused while all were closed may have been made.
            Ok(_) if ledger.is_closing || ledger.may_fail => {}
            Ok((found, committed)) => {
                let owned = &ledger.owned[group];
                if found != *owned.last() || committed != ledger.more[group] {
                    fail!(
                        Kind::Lost,
                        "group {group} is opened as {found:?}, {committed} committed, and is \
                         {owned:?}, {:?} committed",
                        ledger.more
                    );
                }
            }
            // Somebody closed it meanwhile.
            Err(error) if matches!(error.cause(), Error::Closed) => {}
            Err(error) => ledger.refused(&error, "reading what was opened"),
        }
        Some(raft)
    }

    fn callback(&self, group: usize, model: usize) -> impl FnOnce(Result<(), Error>) + use<> {
        // Not the groups: a callback that waits would keep them open.
        let (ledger, uncalled) = (Arc::clone(&self.ledger), Arc::clone(&self.uncalled));
        uncalled.fetch_add(1, Ordering::Relaxed);
        move |result: Result<(), Error>| {
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.called_back(group, model);
            match result {
                Ok(()) => ledger.is_certain(group, model),
                Err(error) => ledger.refused(&error, "a callback"),
            }
            uncalled.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// False if the group was closed.
    fn carry_out(&self, group: usize, raft: &RaftLog, op: Op) -> bool {
        let (mut model, committed) = {
            let ledger = self.ledger();
            ledger.say(|| format!("group {group}: {op:?}"));
            (ledger.owned[group].last().clone(), ledger.more[group])
        };
        let leader = Leader::of_term(TERM);
        let (done, waits, step) = match op {
            Op::Append(count) => {
                let first = model.next();
                let (step, payloads) = {
                    let mut ledger = self.ledger();
                    let numbers = ledger.new_records(count);
                    model.entries.extend(numbers.clone());
                    let payloads: Vec<_> = numbers.map(|number| payload(number, 40)).collect();
                    (ledger.will_be(group, model), payloads)
                };
                let entry = |(index, payload)| NewEntry { leader: &leader, index, payload };
                let entries: Vec<_> =
                    (first..).zip(payloads.iter().map(Vec::as_slice)).map(entry).collect();
                let done = raft.append(&entries, self.callback(group, step));
                if done.is_err() {
                    self.uncalled.fetch_sub(1, Ordering::Relaxed);
                }
                (done, false, step)
            }
            Op::Truncate(back) => {
                let from = model.next().saturating_sub(back).max(committed + 1).max(model.first);
                if from >= model.next() {
                    return true;
                }
                model.entries.truncate((from - model.first) as usize);
                let step = self.ledger().will_be(group, model);
                (raft.truncate_from(from), true, step)
            }
            Op::Vote => {
                model.vote += 1;
                let vote = Vote::new(Leader::of_term(model.vote));
                let step = self.ledger().will_be(group, model);
                (raft.save_vote(&vote), true, step)
            }
            Op::Commit(purges) => {
                let index = model.next() - 1;
                if index < model.first {
                    return true;
                }
                match raft.save_committed(index) {
                    Ok(()) => self.ledger().more[group] = index,
                    Err(error) if matches!(error.cause(), Error::Closed) => return false,
                    Err(error) => {
                        self.ledger().refused(&error, "save_committed");
                        return true;
                    }
                }
                if !purges {
                    return true;
                }
                model = Model { first: index + 1, entries: Vec::new(), ..model };
                let step = self.ledger().will_be(group, model);
                (raft.purge(&EntryId::new(leader, index)), true, step)
            }
            Op::Sync => {
                let step = self.ledger().owned[group].returned;
                (raft.sync(), true, step)
            }
            Op::Drop => return false,
            Op::Close => {
                let step = self.ledger().owned[group].returned;
                match raft.close() {
                    Ok(()) => self.ledger().is_certain(group, step),
                    Err(error) if matches!(error.cause(), Error::Closed) => {}
                    Err(error) => self.ledger().refused(&error, "close"),
                }
                return false;
            }
        };
        let is_closed = done.as_ref().is_err_and(|error| matches!(error.cause(), Error::Closed));
        match op {
            Op::Sync if is_closed => {}
            _ => self.ledger().returned(group, step, &done, waits),
        }
        !is_closed
    }

    fn own(&self, group: usize, ops: &[Op]) {
        let mut raft = self.open(group);
        for op in ops {
            // What was refused while all were closed may have been made, or not.
            let Some(open) = raft.as_ref().filter(|_| !self.ledger().is_closing) else { return };
            if !self.carry_out(group, open, *op) {
                drop(raft.take());
                // Others open it meanwhile.
                (0..4).for_each(|_| thread::yield_now());
                raft = self.open(group);
            }
        }
    }

    /// Opens a group that another thread owns: what it shows is one of the models since. It is held
    /// until something else is done.
    fn read(&self, group: usize, closes: bool, held: &mut Option<RaftLog>) {
        let from = self.ledger().owned[group].returned;
        let done = self.groups.group(group as u64).and_then(|raft| {
            let raft = held.insert(raft);
            let found =
                raft.bounds().and_then(|bounds| raft.entries(bounds.first..u64::MAX, usize::MAX));
            if closes {
                match raft.close() {
                    Err(error) if !matches!(error.cause(), Error::Closed) => return Err(error),
                    _ => {}
                }
            }
            found
        });
        let ledger = self.ledger();
        match done {
            Ok(entries) => {
                let found: Vec<_> = entries.iter().map(|entry| number_in(&entry.payload)).collect();
                let mut models = ledger.owned[group].models[from..].iter();
                // Between its questions others have purged or truncated.
                let is_it = |model: &Model| {
                    let numbers: Vec<_> = model.entries.iter().copied().map(Some).collect();
                    numbers.ends_with(&found)
                };
                if !models.any(is_it) {
                    fail!(Kind::Back, "group {group} shows {found:?}: {:?}", ledger.owned[group]);
                }
            }
            Err(error) if matches!(error.cause(), Error::Closed | Error::IsPurged { .. }) => {}
            Err(error) => ledger.refused(&error, "a reader"),
        }
    }

    fn beside(&self, group: u64, beside: Beside, held: &mut Option<RaftLog>) {
        let done = match beside {
            Beside::Read | Beside::Close => {
                return self.read(group as usize, matches!(beside, Beside::Close), held);
            }
            Beside::Create => self
                .groups
                .group(OTHER)
                .and_then(|raft| raft.save_vote(&Vote::new(Leader::of_term(1)))),
            Beside::Remove => match self.groups.remove(OTHER) {
                Err(error) if matches!(error.cause(), Error::NoGroup { .. }) => Ok(()),
                other => other,
            },
        };
        if let Err(error) = done {
            self.ledger().refused(&error, "the other group");
        }
    }

    /// Closes all groups: what had returned is durable.
    fn close(&self) {
        let returned = {
            let mut ledger = self.ledger();
            ledger.say(|| "all groups are closed".into());
            ledger.is_closing = true;
            [0, 1].map(|group| ledger.owned[group].returned)
        };
        match self.groups.close() {
            Ok(()) => self.ledger().are_certain(returned),
            Err(error) => self.ledger().refused(&error, "close"),
        }
    }
}

/// What a group shows, and what is committed. One that is new may begin anywhere.
fn shown(raft: &RaftLog) -> Result<(Model, u64), Error> {
    let bounds = raft.bounds()?;
    let entries = raft.entries(bounds.first..u64::MAX, usize::MAX)?;
    let vote = raft.vote()?.map_or(0, |vote| vote.leader.term);
    let model = Model {
        first: bounds.first.max(1),
        entries: entries
            .iter()
            .map(|entry| number_in(&entry.payload).unwrap_or(u32::MAX))
            .collect(),
        vote,
    };
    Ok((model, bounds.committed.map_or(0, |id| id.index)))
}

fn options(own_thread: bool) -> StreamsOptions {
    let log = inkstone::Options::small().buffer_bytes(16 << 10).own_thread(own_thread);
    StreamsOptions::new().log(log).section_bytes(16 << 10).own_mover(false).cache_bytes(0)
}

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed ^ 0x4752_4F55_5053_2121);
    let setup = Setup::new(&mut rng);
    let disk = SimDisk::new(seed, DiskOptions::default());
    let new = || Model { first: 1, entries: Vec::new(), vote: 0 };
    let mut ledger = Ledger::new(&disk, &mut rng, plan, [new(), new()], [0; 2]);
    ledger.may_fail = setup.fault.is_some();
    ledger.say(|| format!("{setup:#?}"));
    #[cfg(inkstone_mistakes)]
    inkstone_raft::mistake::set(plan.raft_mistake);
    let directory = Arc::new(stepped(disk.directory(PATH)));
    let groups = match Groups::open_in(directory, options(setup.own_thread)) {
        Ok(groups) => Arc::new(groups),
        Err(error) => fail!(Kind::WrongError, "opening: {error}"),
    };
    let ledger = Arc::new(Mutex::new(ledger));
    let world = World { ledger, groups, uncalled: Arc::default() };
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    let (ledger, uncalled) = (Arc::clone(&world.ledger), Arc::clone(&world.uncalled));
    history(&setup, world, &ledger);
    none_is_uncalled(&uncalled);
    disk.clear_faults();
    #[cfg(inkstone_mistakes)]
    inkstone_raft::mistake::set(None);
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    ledger.look_at_what_is_left(|directory| {
        let groups = Groups::open_in(directory, options(false))?;
        let found = [shown(&groups.group(0)?)?.0, shown(&groups.group(1)?)?.0];
        groups.abandon();
        Ok::<_, Error>(found)
    });
    end_if_broken();
}

fn history(setup: &Setup, world: World, ledger: &Mutex<Ledger>) {
    let mut threads: Vec<_> = (setup.owners.iter().cloned().enumerate())
        .map(|(group, ops)| {
            let world = world.clone();
            thread::spawn(move || world.own(group, &ops))
        })
        .collect();
    let (theirs, beside) = (world.clone(), setup.beside.clone());
    threads.push(thread::spawn(move || {
        let mut held = None;
        beside.into_iter().for_each(|(group, beside)| theirs.beside(group, beside, &mut held));
    }));
    if setup.closes_beside {
        let world = world.clone();
        threads.push(thread::spawn(move || world.close()));
    }
    threads.into_iter().for_each(join);
    if let End::Close = setup.end {
        world.close();
    }
    let World { groups, .. } = world;
    ledger.lock().unwrap_or_else(PoisonError::into_inner).is_closing = true;
    match (setup.end, Arc::try_unwrap(groups)) {
        (End::Abandon, Ok(groups)) => groups.abandon(),
        // A callback that is left has it.
        (_, groups) => drop(groups),
    }
}
