//! One schedule of a raft log: a thread that writes as raft does, one that purges and syncs beside
//! it, a reader, and callbacks.
//!
//! *Owns*: drawing what each thread does from the seed, doing it, asking the ledger about every
//! answer. *May not touch*: which thread goes on.

pub mod ledger;
pub mod work;

use std::sync::{Arc, Mutex, Weak};

use fastrand::Rng;
use inkstone_raft::{Error, Options, RaftLog, RaftReader};
use inkstone_sim::{DiskOptions, Fault, SimDisk};
use shuttle::thread;

use self::ledger::{Ledger, More, first};
use self::work::{Op as Call, Work, shown};
use crate::disk::{PATH, stepped};
use crate::ledger::{Kind, end_if_broken, fail, number_in};
use crate::models::none_is_uncalled;
use crate::plan::Plan;
use crate::run::join;
use crate::setup::{End, fault};

#[derive(Debug, Clone, Copy)]
enum Op {
    Call(Call),
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
    Op::Call(Call::Append(rng.u64(1..4), bytes, own_thread && rng.u8(..3) == 0))
}

fn reads(rng: &mut Rng) -> Op {
    if rng.u8(..5) == 0 { Op::Bounds } else { Op::Entries(rng.u64(..5), rng.u64(1..5)) }
}

impl Setup {
    fn new(rng: &mut Rng) -> Self {
        let own_thread = rng.u8(..4) > 0;
        let writes = |rng: &mut Rng| match rng.u8(..12) {
            0..=4 => append(rng, own_thread),
            5..=7 => Op::Call(Call::Truncate(rng.u64(1..4), rng.bool())),
            8 | 9 => Op::Call(Call::Vote(rng.bool())),
            10 => Op::Call(Call::Commit(rng.u64(..3))),
            _ => reads(rng),
        };
        let besides = |rng: &mut Rng| match rng.u8(..5) {
            0 => Op::Call(Call::Sync),
            1 => Op::Call(Call::Commit(rng.u64(..4))),
            2 | 3 => Op::Call(Call::Purge(rng.u64(..2))),
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
    work: Work,
    raft: Weak<RaftLog>,
    reader: RaftReader,
    habit: Habit,
}

/// What explains an error here.
fn explains(ledger: &Ledger, error: &Error) -> bool {
    use inkstone::Error as Log;
    match error {
        Error::Log(Log::Poisoned(_)) => ledger.may_fail,
        Error::Closed | Error::Log(Log::Closed) => ledger.is_closing,
        // Others have committed, or purged, in between.
        Error::NotHere { .. } | Error::CommittedGoesBack { .. } | Error::IsCommitted { .. } => true,
        _ => false,
    }
}

impl World {
    /// What a callback does beside telling.
    fn habit(self) {
        match self.habit {
            Habit::Plain => {}
            Habit::Reads => self.entries(1, 3),
            Habit::Syncs | Habit::Commits => {
                // It may find itself the last owner.
                let Some(raft) = self.raft.upgrade() else { return };
                match self.habit {
                    Habit::Syncs => self.work.sync(&raft),
                    _ => self.work.commit(&raft, 0),
                };
            }
        }
    }

    fn carry_out(&self, raft: &RaftLog, op: Op) {
        self.work.ledger().say(|| format!("{op:?}"));
        match op {
            Op::Call(call) => {
                let world = self.clone();
                self.work.carry_out(raft, call, || world.habit());
            }
            Op::Entries(back, count) => self.entries(back, count),
            Op::Bounds => self.bounds(),
        }
    }

    fn entries(&self, back: u64, count: u64) {
        let (begun, range) = {
            let ledger = self.work.ledger();
            let from = ledger.next(0).saturating_sub(back).max(1);
            (ledger.returned(), from..from + count)
        };
        match self.reader.entries(range.clone(), usize::MAX) {
            Ok(entries) => {
                let found = entries.iter().map(|entry| (entry.id.index, number_in(&entry.payload)));
                self.work.ledger().shown(0, &begun, range, &found.collect::<Vec<_>>());
            }
            Err(Error::IsPurged { index, .. }) if index == range.start => {
                self.work.ledger().told_purged(0, index)
            }
            Err(error) => self.work.ledger().refused(0, &error, "entries"),
        }
    }

    fn bounds(&self) {
        match self.reader.bounds() {
            Ok(bounds) if bounds.first <= bounds.next => {}
            Ok(bounds) => fail!(Kind::Wrong, "{bounds:?}"),
            Err(error) => return self.work.ledger().refused(0, &error, "bounds"),
        }
        match self.reader.vote() {
            Ok(vote) => self.work.ledger().shown_vote(0, vote.map_or(0, |vote| vote.leader.term)),
            Err(error) => self.work.ledger().refused(0, &error, "vote"),
        }
    }
}

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed ^ 0x6869_7374_5241_4654);
    let setup = Setup::new(&mut rng);
    let disk = SimDisk::new(seed, DiskOptions::default());
    let more = vec![More::new(explains, false)];
    let mut ledger = Ledger::new(&disk, &mut rng, plan, first().into(), more);
    ledger.may_fail = setup.fault.is_some();
    ledger.say(|| format!("{setup:#?}"));
    let log = inkstone::Options::small().buffer_bytes(16 << 10).own_thread(setup.own_thread);
    let options = Options::new().log(log).memory_bytes(setup.memory_bytes);
    #[cfg(inkstone_mistakes)]
    inkstone_raft::mistake::set(plan.raft_mistake);
    let raft = match RaftLog::open_in(Arc::new(stepped(disk.directory(PATH))), options) {
        Ok(raft) => Arc::new(raft),
        Err(error) => fail!(Kind::WrongError, "opening: {error}"),
    };
    let ledger = Arc::new(Mutex::new(ledger));
    let world = World {
        work: Work { at: 0, ledger, uncalled: Arc::default(), is_calling: Arc::default() },
        raft: Arc::downgrade(&raft),
        reader: raft.reader(),
        habit: setup.habit,
    };
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    history(&setup, &world, raft);
    disk.clear_faults();
    #[cfg(inkstone_mistakes)]
    inkstone_raft::mistake::set(None);
    world.work.ledger().look_at_what_is_left(|directory| {
        let log = inkstone::Options::small().own_thread(false);
        let raft = RaftLog::open_in(directory, Options::new().log(log))?;
        let (found, _) = shown(&raft)?;
        raft.abandon();
        Ok::<_, Error>(found.into())
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
    world.work.ledger().say(|| format!("the raft log ends: {:?}", setup.end));
    world.work.ledger().is_closing = true;
    match (setup.end, Arc::try_unwrap(raft)) {
        (End::Close, raft) => {
            let closed = match &raft {
                Ok(raft) => raft.close(),
                Err(shared) => shared.close(),
            };
            match closed {
                Ok(()) => {
                    let mut ledger = world.work.ledger();
                    let returned = ledger.returned();
                    ledger.are_certain(&returned);
                }
                Err(error) => world.work.ledger().refused(0, &error, "close"),
            }
        }
        (End::Abandon, Ok(raft)) => raft.abandon(),
        // A callback that holds it lets go of it last.
        (_, raft) => drop(raft),
    }
    join(reader);
    none_is_uncalled(&world.work.uncalled);
}
