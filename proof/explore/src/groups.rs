//! One schedule of many raft groups in one log: two threads that own a group each and come back to
//! it after every end, one that opens, reads, closes and drops the same groups beside them and
//! removes one of its own, and in some schedules one that closes all while they work.
//!
//! *Owns*: drawing what each thread does from the seed, doing it, the models of the groups, and
//! judging every answer by them. *May not touch*: which thread goes on.
//!
//! A group has one owner (`models.rs`). An opening must find the last model whose change has
//! returned, in whatever way the group was closed before.

use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use inkstone_raft::{Error, Groups, Leader, RaftLog, StreamsOptions, Vote};
use inkstone_sim::survival::Thing as _;
use inkstone_sim::{DiskOptions, Fault, SimDisk};
use shuttle::thread;

use crate::disk::{PATH, stepped};
use crate::ledger::{Kind, end_if_broken, fail, number_in};
use crate::models::none_is_uncalled;
use crate::plan::Plan;
use crate::raft::ledger::{Ledger, More, first, is_closed, purger, writer};
use crate::raft::work::{Op as Call, Work, shown};
use crate::run::join;
use crate::setup::{End, fault};

/// The group that the third thread creates and removes.
const OTHER: u64 = 9;
#[derive(Debug, Clone, Copy)]
enum Op {
    Call(Call),
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
            0..=3 => vec![Op::Call(Call::Append(rng.u64(1..4), 40, false))],
            4 => vec![Op::Call(Call::Truncate(rng.u64(1..3), true))],
            5 => vec![Op::Call(Call::Vote(true))],
            6 => vec![Op::Call(Call::Commit(0))],
            7 => vec![Op::Call(Call::Commit(0)), Op::Call(Call::Purge(0))],
            8 => vec![Op::Call(Call::Sync)],
            9..=11 => vec![Op::Drop],
            _ => vec![Op::Close],
        };
        let ops = |rng: &mut Rng| (0..rng.usize(2..7)).flat_map(|_| op(rng)).collect();
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

/// What explains an error here.
fn explains(ledger: &Ledger, error: &Error) -> bool {
    let is_closed = matches!(error.cause(), Error::Closed | Error::Log(inkstone::Error::Closed));
    ledger.may_fail || is_closed && ledger.is_closing
}

#[derive(Clone)]
struct World {
    works: [Work; 2],
    groups: Arc<Groups>,
}

impl World {
    /// Never held over a scheduling point.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.works[0].ledger()
    }

    fn refused(&self, group: usize, error: &Error, by: &str) {
        self.ledger().refused(group, error, by);
    }

    /// Opens a group as its owner: it is what it was.
    fn open(&self, group: usize) -> Option<RaftLog> {
        let raft = match self.groups.group(group as u64) {
            Ok(raft) => raft,
            Err(error) => {
                self.refused(group, &error, "opening");
                return None;
            }
        };
        let shown = shown(&raft);
        let ledger = self.ledger();
        match shown {
            // What was refused while all were closed may have been made.
            Ok(_) if ledger.is_closing || ledger.may_fail => {}
            Ok(([found, from], committed)) => {
                let [written, purged] = [writer(group), purger(group)].map(|at| &ledger.owned[at]);
                let is_it = written.last().may_be_shown_as(&found) && *purged.last() == from;
                if !is_it || committed != ledger.more[group].committed {
                    fail!(
                        Kind::Lost,
                        "group {group} is opened as {found:?}, {from:?}, {committed} committed, \
                         and is {written:?}, {purged:?}, {:?}",
                        ledger.more[group]
                    );
                }
            }
            // Somebody closed it meanwhile.
            Err(error) if is_closed(&error) => {}
            Err(error) => ledger.refused(group, &error, "reading what was opened"),
        }
        Some(raft)
    }

    /// False if the group was closed.
    fn carry_out(&self, group: usize, raft: &RaftLog, op: Op) -> bool {
        self.ledger().say(|| format!("group {group}: {op:?}"));
        match op {
            // Callbacks hold no groups: one that waits would keep them open.
            Op::Call(call) => self.works[group].carry_out(raft, call, || {}),
            Op::Drop => false,
            Op::Close => {
                let returned = self.ledger().returned();
                match raft.close() {
                    Ok(()) => self.ledger().is_synced(group, &returned),
                    Err(error) => self.ledger().call_was_refused(group, &error, "close"),
                }
                false
            }
        }
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
        let begun = self.ledger().returned();
        let done = self.groups.group(group as u64).and_then(|raft| {
            let raft = held.insert(raft);
            let found = raft.bounds().and_then(|bounds| {
                let first = bounds.first.max(1);
                Ok((first, raft.entries(first..u64::MAX, usize::MAX)?))
            });
            if closes {
                match raft.close() {
                    Err(error) if !is_closed(&error) => return Err(error),
                    _ => {}
                }
            }
            found
        });
        match done {
            Ok((first, entries)) => {
                let found = entries.iter().map(|entry| (entry.id.index, number_in(&entry.payload)));
                let found: Vec<_> = found.collect();
                self.ledger().shown(group, &begun, first..u64::MAX, &found);
            }
            // Between its questions others have closed or purged it.
            Err(error) if matches!(error.cause(), Error::Closed | Error::IsPurged { .. }) => {}
            Err(error) => self.refused(group, &error, "a reader"),
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
            self.refused(0, &error, "the other group");
        }
    }

    /// Closes all groups: what had returned is durable.
    fn close(&self) {
        let returned = {
            let mut ledger = self.ledger();
            ledger.say(|| "all groups are closed".into());
            ledger.is_closing = true;
            ledger.returned()
        };
        match self.groups.close() {
            Ok(()) => self.ledger().are_certain(&returned),
            Err(error) => self.refused(0, &error, "close"),
        }
    }
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
    let more = [0, 1].map(|_| More::new(explains, true));
    let first = [first(), first()].concat();
    let mut ledger = Ledger::new(&disk, &mut rng, plan, first, more.into());
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
    let uncalled = Arc::default();
    let works = [0, 1].map(|at| Work {
        at,
        ledger: Arc::clone(&ledger),
        uncalled: Arc::clone(&uncalled),
        is_calling: Arc::default(),
    });
    let last = works[0].clone();
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    history(&setup, World { works, groups });
    none_is_uncalled(&last.uncalled);
    disk.clear_faults();
    #[cfg(inkstone_mistakes)]
    inkstone_raft::mistake::set(None);
    last.ledger().look_at_what_is_left(|directory| {
        let groups = Groups::open_in(directory, options(false))?;
        let found = [shown(&groups.group(0)?)?.0, shown(&groups.group(1)?)?.0].concat();
        groups.abandon();
        Ok::<_, Error>(found)
    });
    end_if_broken();
}

fn history(setup: &Setup, world: World) {
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
    world.ledger().is_closing = true;
    let World { groups, .. } = world;
    match (setup.end, Arc::try_unwrap(groups)) {
        (End::Abandon, Ok(groups)) => groups.abandon(),
        // A callback that is left has it.
        (_, groups) => drop(groups),
    }
}
