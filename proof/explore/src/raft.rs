//! One schedule of raft logs. One alone in its log: a thread that writes as raft does, one that
//! syncs beside it, a reader. Or two groups in one log: two threads that own a group each and come
//! back to it after every end, one that opens, reads, closes and drops the same groups and removes
//! one of its own, and in some schedules one that closes all while they work.
//!
//! *Owns*: drawing what each thread does from the seed, doing it, telling the ledger. *May not
//! touch*: which thread goes on, what a raft log may show (`inkstone_subject`).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fastrand::Rng;
use inkstone_raft::{
    Entry, Error, Groups, Leader, Options, RaftLog, RaftReader, StreamsOptions, Vote,
};
use inkstone_sim::{DiskOptions, Fault, SimDisk};
use inkstone_subject::raft::history::{Draw, carry_out};
use inkstone_subject::raft::model::Model;
use inkstone_subject::raft::{Call, Models, answer_of};
use inkstone_subject::states::past::Past;
use inkstone_subject::states::words::{Answer, Shown, Told};
use inkstone_subject::{Past as _, SOLE};
use shuttle::sync::mpsc::channel;
use shuttle::thread;

use crate::broken::{Kind, end_if_broken, fail};
use crate::disk::{PATH, stepped};
use crate::models::{Ledger as Things, judge};
use crate::plan::Plan;
use crate::run::join;
use crate::setup::{End, fault};

/// The group that the third thread creates and removes.
const OTHER: u64 = 9;

#[derive(Debug, Clone, Copy)]
enum Op {
    /// A call that is drawn by this number; it waits for its callback, or not.
    Call(u64, bool),
    Sync,
    /// So many entries, from so many before the last on.
    Entries(u64, u64),
    Vote,
    /// Lets go of the handle, or closes the group; then opens it.
    Drop,
    Close,
}

#[derive(Debug, Clone, Copy)]
enum Beside {
    /// Opens the group, and reads. It is held until something else is done.
    Read,
    /// The same, when it has let go of what it held: the group may be open nowhere.
    Visit,
    Close,
    /// Creates the other group, or removes it.
    Create,
    Remove,
}

/// What callbacks do beside telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Plain,
    Reads,
    Syncs,
}

#[derive(Debug)]
struct Setup {
    own_thread: bool,
    memory_bytes: usize,
    fault: Option<Fault>,
    /// Of one that is alone, or of two groups.
    owners: Vec<Vec<Op>>,
    /// What another thread does with the one that is alone, and a reader of it.
    beside: Vec<Op>,
    reader: Vec<Op>,
    others: Vec<(usize, Beside)>,
    closes_beside: bool,
    habit: Habit,
    end: End,
}

fn reads(rng: &mut Rng) -> Op {
    if rng.u8(..5) == 0 { Op::Vote } else { Op::Entries(rng.u64(..5), rng.u64(1..5)) }
}

fn some(rng: &mut Rng, count: Range<usize>, op: impl Fn(&mut Rng) -> Op) -> Vec<Op> {
    (0..rng.usize(count)).map(|_| op(rng)).collect()
}

impl Setup {
    fn new(rng: &mut Rng) -> Self {
        let (is_alone, own_thread) = (rng.u8(..3) == 0, rng.u8(..4) > 0);
        let op = |rng: &mut Rng| match rng.u8(..16) {
            0 if is_alone => reads(rng),
            0..4 if !is_alone => Op::Drop,
            4 if !is_alone => Op::Close,
            // Without the log's own thread nobody else commits.
            _ => Op::Call(rng.u64(..), own_thread && rng.u8(..3) == 0),
        };
        let besides = |rng: &mut Rng| if rng.u8(..3) == 0 { Op::Sync } else { reads(rng) };
        let other = |rng: &mut Rng| {
            let kinds = [Beside::Read, Beside::Read, Beside::Close, Beside::Create, Beside::Remove];
            (rng.usize(..2), kinds[rng.usize(..kinds.len())])
        };
        // Owners who let go after each call, and a visitor: groups are opened, changed and ended
        // again and again while another thread opens them.
        let visits = !is_alone && rng.u8(..3) == 0;
        let own = |rng: &mut Rng| match visits {
            true => some(rng, 2..5, |rng| Op::Call(rng.u64(..), own_thread))
                .into_iter()
                .flat_map(|call| [call, Op::Drop])
                .collect(),
            false => some(rng, 3..9, op),
        };
        let other = |rng: &mut Rng| match visits {
            true => (rng.usize(..2), Beside::Visit),
            false => other(rng),
        };
        let owners = if is_alone { 1 } else { 2 };
        Self {
            own_thread,
            memory_bytes: [0, 200, 4000, 64 << 10][rng.usize(..4)],
            fault: (rng.u8(..8) == 0).then(|| fault(rng)),
            owners: (0..owners).map(|_| own(rng)).collect(),
            beside: if is_alone { some(rng, 0..4, besides) } else { Vec::new() },
            reader: if is_alone { some(rng, 1..6, reads) } else { Vec::new() },
            others: (0..if is_alone { 0 } else { rng.usize(2..8) }).map(|_| other(rng)).collect(),
            closes_beside: !is_alone && !visits && rng.u8(..4) == 0,
            habit: [Habit::Plain, Habit::Plain, Habit::Reads, Habit::Syncs][rng.usize(..4)],
            end: [End::Close, End::Close, End::Drop, End::Abandon][rng.usize(..4)],
        }
    }
}

type Ledger = Things<Past<Models>>;

/// What all threads and callbacks share.
#[derive(Clone)]
struct World {
    ledger: Arc<Mutex<Ledger>>,
    /// Of each raft log, whether a callback runs: they never run inside each other.
    is_calling: [Arc<AtomicBool>; 2],
    /// The one that is alone, and a reader of it.
    raft: Weak<RaftLog>,
    reader: Option<RaftReader>,
    habit: Habit,
}

/// Where the raft logs are. Callbacks do not hold it: one that waits would keep it open.
#[derive(Clone)]
enum Home {
    Alone(Arc<RaftLog>),
    Groups(Arc<Groups>),
}

fn is_closed(error: &Error) -> bool {
    matches!(error.cause(), Error::Closed | Error::Log(inkstone::Error::Closed))
}

/// Whether the entries of this range are these.
fn has(model: &Model, range: &Range<u64>, shown: &[Entry]) -> bool {
    let there = model.entries.iter().filter(|(id, _)| range.contains(&id.index));
    let is_it = there.map(|(id, payload)| (id, &**payload));
    (model.purged.is_none() || range.start >= model.first)
        && is_it.eq(shown.iter().map(|entry| (&entry.id, &*entry.payload)))
}

impl World {
    /// Never held over a scheduling point.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, error: &Error, by: &str) {
        let ledger = self.ledger();
        let is_explained = ledger.may_fail || is_closed(error) && ledger.is_closing;
        ledger.must_be_explained(error, by, is_explained);
    }

    /// A reader was shown these entries.
    fn shown(&self, at: usize, since: usize, range: &Range<u64>, entries: &[Entry]) {
        let mut ledger = self.ledger();
        ledger.say(|| format!("entries {range:?} of {at}, asked at {since}: {entries:?}"));
        let past = &mut ledger.pasts[at];
        // The first may be purged meanwhile.
        if entries.is_empty() && past.was(|models| models[0].first > range.start) {
            return;
        }
        let what = || format!("{range:?} is answered by {entries:?}");
        judge(at, past.seen(since, false, what, |models| has(&models[0], range, entries)));
    }

    fn entries(&self, back: u64, count: u64) {
        let Some(reader) = &self.reader else { return };
        let (since, range) = {
            let ledger = self.ledger();
            let past = &ledger.pasts[0];
            let from = past.now()[0].next().saturating_sub(back).max(1);
            (past.since().0, from..from + count)
        };
        match reader.entries(range.clone(), usize::MAX) {
            Ok(entries) => self.shown(0, since, &range, &entries),
            Err(Error::IsPurged { index, .. }) if index == range.start => {
                let is_purged =
                    |models: &Models| models[0].purged.is_some() && index < models[0].first;
                if !self.ledger().pasts[0].was(is_purged) {
                    fail!(Kind::WrongError, "entry {index} is said to be purged, and is not");
                }
            }
            Err(error) => self.refused(&error, "entries"),
        }
    }

    /// A vote that is shown is durable.
    fn vote(&self) {
        let Some(reader) = &self.reader else { return };
        let (_, since) = self.ledger().pasts[0].since();
        match reader.vote() {
            Ok(vote) => {
                let what = || format!("{vote:?} is shown");
                let seen = |models: &Models| models[0].vote == vote;
                judge(0, self.ledger().pasts[0].seen(since, true, what, seen));
            }
            Err(error) => self.refused(&error, "vote"),
        }
    }

    fn sync(&self, raft: &RaftLog) {
        if let Err(error) = raft.sync() {
            self.refused(&error, "sync");
        }
    }

    fn callback(&self, at: usize, call: usize) -> impl FnOnce(Result<(), Error>) + Send + 'static {
        let world = self.clone();
        move |result| {
            let is_calling = &world.is_calling[at];
            if is_calling.swap(true, Ordering::Relaxed) {
                fail!(Kind::OutOfOrder, "the callback of {call} is called while another one runs");
            }
            world.ledger().called(at, call, result.is_ok());
            if let Err(error) = result {
                world.refused(&error, "a callback");
            }
            match world.habit {
                Habit::Plain => {}
                Habit::Reads => world.entries(1, 3),
                // It may find itself the last owner.
                Habit::Syncs => drop(world.raft.upgrade().map(|raft| world.sync(&raft))),
            }
            is_calling.store(false, Ordering::Relaxed);
        }
    }

    /// The owner's call has ended. False if it was closed.
    fn ended(&self, at: usize, done: Result<(), Error>) -> bool {
        let answer = done.as_ref().map_or_else(answer_of, |()| Answer::Done);
        let is_closed = done.as_ref().is_err_and(is_closed);
        let mut ledger = self.ledger();
        let is_shared = self.raft.strong_count() == 0;
        let is_excused = ledger.may_fail || is_closed && (is_shared || ledger.is_closing);
        ledger.ended(at, SOLE, &Told::new(answer), is_excused);
        !is_closed
    }

    /// Makes a call as the owner. False if it was closed.
    fn call(&self, at: usize, raft: &RaftLog, seed: u64, waits: bool) -> bool {
        let (op, number) = {
            let mut ledger = self.ledger();
            let op = Draw { rng: Rng::with_seed(seed) }.call(&ledger.pasts[at].now()[0]);
            ledger.began(at, SOLE, &Call::Of(0, op.clone()));
            (op, ledger.pasts[at].calls())
        };
        let (callback, (told, wait)) = (self.callback(at, number), channel());
        let done = carry_out(raft, &op, move |result| {
            callback(result);
            // Who does not wait has left.
            let _ = told.send(());
        });
        let is_done = done.is_ok();
        let is_open = self.ended(at, done);
        if is_done && waits {
            // Of a call without a callback there is nothing to wait for.
            let _ = wait.recv();
        }
        is_open
    }

    /// False if the group was closed.
    fn carry_out(&self, at: usize, raft: &RaftLog, op: Op) -> bool {
        match op {
            Op::Call(seed, waits) => return self.call(at, raft, seed, waits),
            Op::Entries(back, count) => self.entries(back, count),
            Op::Vote => self.vote(),
            Op::Sync => self.sync(raft),
            Op::Drop => return false,
            Op::Close => {
                self.ledger().began(at, SOLE, &Call::Close);
                self.ended(at, raft.close());
                return false;
            }
        }
        true
    }

    /// Opens a group as its owner: it is what it was.
    fn open(&self, home: &Home, at: usize) -> Option<Arc<RaftLog>> {
        let groups = match home {
            Home::Alone(raft) => return Some(Arc::clone(raft)),
            Home::Groups(groups) => groups,
        };
        let raft = match groups.group(at as u64) {
            Ok(raft) => raft,
            Err(error) => {
                self.refused(&error, "opening");
                return None;
            }
        };
        let shown = Model::of(&raft);
        // Somebody may have closed it meanwhile.
        let is_open = raft.bounds().is_ok();
        let mut ledger = self.ledger();
        // What was refused while all were closed may have been made.
        if is_open && !ledger.is_closing && !ledger.may_fail {
            match shown {
                Ok(shown) => judge(at, ledger.pasts[at].check(&Shown::InUse(Ok(vec![shown])))),
                Err(why) => fail!(Kind::WrongError, "reading what was opened: {why}"),
            }
        }
        Some(Arc::new(raft))
    }

    fn own(&self, home: &Home, at: usize, ops: &[Op]) {
        let mut raft = self.open(home, at);
        for op in ops {
            // What was refused while all were closed may have been made, or not.
            let Some(open) = raft.as_ref().filter(|_| !self.ledger().is_closing) else { return };
            if !self.carry_out(at, open, *op) {
                self.ledger().began(at, SOLE, &Call::Again(0));
                drop(raft.take());
                self.ledger().ended(at, SOLE, &Told::new(Answer::Done), false);
                // Others open it meanwhile.
                (0..4).for_each(|_| thread::yield_now());
                raft = self.open(home, at);
            }
        }
    }

    /// Opens a group that another thread owns.
    fn read(&self, groups: &Groups, at: usize, closes: bool, held: &mut Option<RaftLog>) {
        let (since, _) = self.ledger().pasts[at].since();
        let done = groups.group(at as u64).and_then(|raft| {
            let raft = held.insert(raft);
            let range = raft.bounds()?.first..u64::MAX;
            let entries = raft.entries(range.clone(), usize::MAX)?;
            if closes {
                match raft.close() {
                    Err(error) if !is_closed(&error) => return Err(error),
                    _ => {}
                }
            }
            Ok((range, entries))
        });
        match done {
            Ok((range, entries)) => self.shown(at, since, &range, &entries),
            // Between its questions others have closed or purged it.
            Err(error) if matches!(error.cause(), Error::Closed | Error::IsPurged { .. }) => {}
            Err(error) => self.refused(&error, "a reader"),
        }
    }

    fn beside(&self, groups: &Groups, at: usize, beside: Beside, held: &mut Option<RaftLog>) {
        let done = match beside {
            Beside::Visit => {
                drop(held.take());
                self.read(groups, at, false, held);
                // The owner comes back while it is held.
                return (0..4).for_each(|_| thread::yield_now());
            }
            Beside::Read | Beside::Close => {
                return self.read(groups, at, matches!(beside, Beside::Close), held);
            }
            Beside::Create => {
                groups.group(OTHER).and_then(|raft| raft.save_vote(&Vote::new(Leader::of_term(1))))
            }
            Beside::Remove => match groups.remove(OTHER) {
                Err(error) if matches!(error.cause(), Error::NoGroup { .. }) => Ok(()),
                other => other,
            },
        };
        if let Err(error) = done {
            self.refused(&error, "the other group");
        }
    }

    /// Closes all: what had returned is durable.
    fn close(&self, close: impl FnOnce() -> Result<(), Error>) {
        let returned = {
            let mut ledger = self.ledger();
            ledger.say(|| "all is closed".into());
            ledger.is_closing = true;
            ledger.returned()
        };
        match close() {
            Ok(()) => self.ledger().are_durable(&returned),
            Err(error) => self.refused(&error, "close"),
        }
    }
}

fn open(directory: inkstone_io::AnyDirectory, setup: &Setup) -> Result<Home, Error> {
    let log = inkstone::Options::small().buffer_bytes(16 << 10).own_thread(setup.own_thread);
    if setup.owners.len() == 1 {
        let options = Options::new().log(log).memory_bytes(setup.memory_bytes);
        return RaftLog::open_in(directory, options).map(|raft| Home::Alone(Arc::new(raft)));
    }
    let options = StreamsOptions::new().section_bytes(16 << 10).own_mover(false).cache_bytes(0);
    Groups::open_in(directory, options.log(log)).map(|groups| Home::Groups(Arc::new(groups)))
}

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed ^ 0x6869_7374_5241_4654);
    let mut setup = Setup::new(&mut rng);
    let disk = SimDisk::new(seed, DiskOptions::default());
    let first = vec![Past::threaded(vec![Model::new()]); setup.owners.len()];
    let mut ledger = Ledger::new(&disk, &mut rng, plan, first);
    ledger.may_fail = setup.fault.is_some();
    ledger.say(|| format!("{setup:#?}"));
    #[cfg(inkstone_mistakes)]
    inkstone_raft::mistake::set(plan.raft_mistake);
    let home = match open(Arc::new(stepped(disk.directory(PATH))).into(), &setup) {
        Ok(home) => home,
        Err(error) => fail!(Kind::WrongError, "opening: {error}"),
    };
    let (raft, reader) = match &home {
        Home::Alone(raft) => (Arc::downgrade(raft), Some(raft.reader())),
        Home::Groups(_) => (Weak::new(), None),
    };
    let ledger = Arc::new(Mutex::new(ledger));
    let world = World { ledger, is_calling: Default::default(), raft, reader, habit: setup.habit };
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    history(&setup, &world, home);
    disk.clear_faults();
    #[cfg(inkstone_mistakes)]
    inkstone_raft::mistake::set(None);
    setup.own_thread = false;
    world.ledger().look_at_what_is_left(|directory| {
        let told = |error: Error| error.to_string();
        match open(inkstone_io::AnyDirectory::from(directory), &setup).map_err(told)? {
            Home::Alone(raft) => {
                let found = Model::of(&raft)?;
                Arc::into_inner(raft).into_iter().for_each(RaftLog::abandon);
                Ok(vec![Shown::Opened(Ok(vec![found]))])
            }
            Home::Groups(groups) => {
                let of = |id| {
                    let found = Model::of(&groups.group(id).map_err(told)?)?;
                    Ok::<_, String>(Shown::Opened(Ok(vec![found])))
                };
                let found = vec![of(0)?, of(1)?];
                Arc::into_inner(groups).into_iter().for_each(Groups::abandon);
                Ok(found)
            }
        }
    });
    end_if_broken();
}

fn history(setup: &Setup, world: &World, home: Home) {
    let spawn = |work: Box<dyn FnOnce(&World, Home) + Send>| {
        let (world, home) = (world.clone(), home.clone());
        thread::spawn(move || work(&world, home))
    };
    let mut threads: Vec<_> = (setup.owners.iter().cloned().enumerate())
        .map(|(at, ops)| spawn(Box::new(move |world, home| world.own(&home, at, &ops))))
        .collect();
    match &home {
        Home::Alone(_) => {
            let ops = setup.beside.clone();
            threads.push(spawn(Box::new(move |world, home| {
                let Home::Alone(raft) = home else { return };
                ops.into_iter().for_each(|op| _ = world.carry_out(0, &raft, op));
            })));
        }
        Home::Groups(_) => {
            let ops = setup.others.clone();
            threads.push(spawn(Box::new(move |world, home| {
                let Home::Groups(groups) = home else { return };
                let mut held = None;
                for (at, op) in ops {
                    world.beside(&groups, at, op, &mut held);
                }
            })));
            if setup.closes_beside {
                threads.push(spawn(Box::new(|world, home| {
                    let Home::Groups(groups) = home else { return };
                    world.close(|| groups.close());
                })));
            }
        }
    }
    let (ops, theirs) = (setup.reader.clone(), world.clone());
    let reader = thread::spawn(move || {
        for op in ops {
            match op {
                Op::Entries(back, count) => theirs.entries(back, count),
                _ => theirs.vote(),
            }
        }
    });
    threads.into_iter().for_each(join);
    world.ledger().say(|| format!("it ends: {:?}", setup.end));
    if let End::Close = setup.end {
        world.close(|| match &home {
            Home::Alone(raft) => raft.close(),
            Home::Groups(groups) => groups.close(),
        });
    }
    world.ledger().is_closing = true;
    // A callback that holds it lets go of it last.
    match home {
        Home::Alone(raft) if matches!(setup.end, End::Abandon) => {
            Arc::into_inner(raft).into_iter().for_each(RaftLog::abandon);
        }
        Home::Groups(groups) if matches!(setup.end, End::Abandon) => {
            Arc::into_inner(groups).into_iter().for_each(Groups::abandon);
        }
        home => drop(home),
    }
    join(reader);
    // The log's own thread may be calling the last ones.
    let mut patience = 0..2000;
    while world.is_calling.iter().any(|is_calling| is_calling.load(Ordering::Relaxed))
        || !world.ledger().pasts.iter().all(|past| past.is_all_called())
    {
        if patience.next().is_none() {
            fail!(Kind::Uncalled, "callbacks are left");
        }
        thread::yield_now();
    }
}
