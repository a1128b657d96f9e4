//! One schedule, from the opening of a log to what is found when the power goes.
//!
//! *Owns*: the threads of a history, and asking the ledger about every answer. *May not touch*:
//! which thread goes on.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use inkstone::{Append, Error, Log, Lsn, Reader};
use shuttle::thread::{self, JoinHandle};

use crate::disk::{PATH, Steps};
use crate::ear::listen;
use crate::ledger::{Ends, Kind, Ledger, end_if_broken, fail, payload};
use crate::plan::Plan;
use crate::reading::{Place, get};
use crate::setup::{End, Op, Setup, plain};
use crate::tasks::{Habit, Owned, Planned, Slot, block_on};
use crate::templates::Template;
use crate::world::{SharedLog, World};

/// The outcome of a wait, as it was told.
fn settle(world: &World, numbers: Range<u32>, wanted: Lsn, outcome: Result<Lsn, Error>, by: &str) {
    match outcome {
        Ok(lsn) if lsn == wanted => world.ledger().acknowledged(numbers),
        Ok(lsn) => fail!(Kind::Wrong, "{by}: LSN {lsn}, and the append gave {wanted}"),
        Err(error) => world.refused(&error, by),
    }
}

/// The numbers of records and their append, unless it was refused.
type Appended<'log> = Option<(Range<u32>, Append<'log>)>;

struct Worker {
    world: World,
    log: Option<SharedLog>,
    reader: Reader,
    /// Where it reads, from its first reading on.
    place: Option<Place>,
    kept: Vec<(Range<u32>, Owned)>,
    beside: Vec<JoinHandle<()>>,
}

impl Worker {
    fn run(mut self, number: usize, ops: &[Op]) -> Vec<JoinHandle<()>> {
        for op in ops {
            let world = self.world.clone();
            world.ledger().say(|| format!("thread {number}: {op:?}"));
            world.survive(|| self.carry_out(*op));
        }
        let world = self.world.clone();
        if self.log.is_some() {
            world.survive(|| self.wait_for_kept());
        }
        if let Some(log) = self.log.take() {
            world.leave(log);
        }
        world.survive(|| self.place().read_on(&world));
        world.survive(|| self.wait_for_kept());
        self.beside
    }

    fn carry_out(&mut self, op: Op) {
        let Some(log) = self.log.clone().map(Borrowed) else {
            // Who has let go of the log still reads.
            return if matches!(op, Op::ReadOn) {
                self.read_on()
            };
        };
        let log = &log.0;
        match op {
            Op::Append(bytes) => self.wait(self.append_one(log, bytes), "append"),
            Op::Keep(bytes) => {
                let kept = self.append(log, &[bytes], Log::append_batch);
                self.kept.extend(kept.map(|(numbers, append)| (numbers, append.into_owned())));
            }
            Op::WaitForKept => self.wait_for_kept(),
            Op::LetGo(bytes) => drop(self.append_one(log, bytes)),
            Op::Batch(count, bytes) => {
                self.wait(self.append(log, &vec![bytes; count], Log::append_batch), "batch");
            }
            Op::Try(bytes) => {
                let append = self.append(log, &[bytes], |log, records| log.try_append(&records[0]));
                self.wait(append, "try_append");
            }
            Op::AppendAsync(bytes) => {
                let append = self
                    .append(log, &[bytes], |log, records| block_on(log.append_async(&records[0])));
                self.wait(append, "append_async");
            }
            Op::Await(..) | Op::HandOver(..) | Op::Cancel(..) | Op::AwaitBeside(_) => {
                self.as_future(log, op)
            }
            Op::AwaitLsn(bytes, is_dropped) => self.await_lsn(log, bytes, is_dropped),
            Op::Call(bytes) => self.call_back(log, bytes, false),
            Op::CallAndWait(bytes) => self.call_back(log, bytes, true),
            Op::Sync => {
                let numbers = self.world.ledger().all_appended();
                match log.sync() {
                    Ok(_) => self.world.ledger().synced(numbers),
                    Err(error) => self.world.refused(&error, "sync"),
                }
            }
            Op::CutAfter(back) => self.cut(log, back),
            Op::GiveUpBefore(back) => self.give_up(log, back),
            Op::ReadOn => self.read_on(),
            Op::Get(back) => {
                get(&self.world, &self.reader, log.durable().get().saturating_sub(back).max(1))
            }
            Op::Fork => self.in_child(log),
            Op::LeaveLog => {
                if let Some(log) = self.log.take() {
                    self.world.leave(log);
                }
            }
        }
    }

    fn place(&mut self) -> &mut Place {
        self.place.get_or_insert_with(|| {
            let from =
                if self.kept.is_empty() { self.reader.first() } else { self.reader.durable() };
            Place::new(&self.reader, from.max(Lsn::FIRST))
        })
    }

    fn read_on(&mut self) {
        let world = self.world.clone();
        self.place().read_on(&world);
    }

    fn append<'log>(
        &self,
        log: &'log Log,
        sizes: &[usize],
        append: impl FnOnce(&'log Log, &[Vec<u8>]) -> inkstone::Result<Append<'log>>,
    ) -> Appended<'log> {
        let numbers = self.world.ledger().will_append(sizes);
        let records: Vec<_> =
            numbers.clone().zip(sizes).map(|(number, bytes)| payload(number, *bytes)).collect();
        match append(log, &records) {
            Ok(append) => {
                self.world.ledger().appended(
                    numbers.clone(),
                    append.first_lsn().get(),
                    append.lsn().get(),
                );
                Some((numbers, append))
            }
            Err(Error::Busy) => None,
            Err(error) => {
                self.world.refused(&error, "append");
                None
            }
        }
    }

    fn append_one<'log>(&self, log: &'log Log, bytes: usize) -> Appended<'log> {
        self.append(log, &[bytes], |log, records| log.append(&records[0]))
    }

    fn wait(&self, append: Appended<'_>, by: &str) {
        if let Some((numbers, append)) = append {
            let lsn = append.lsn();
            settle(&self.world, numbers, lsn, append.wait(), by);
        }
    }

    fn wait_for_kept(&mut self) {
        for (numbers, append) in std::mem::take(&mut self.kept) {
            let lsn = append.lsn();
            settle(&self.world, numbers, lsn, append.wait(), "a kept handle");
        }
    }

    /// Who has no thread of the log's own commits what it awaits.
    fn commit_if_nobody_does(&self, log: &Log) {
        if !self.world.own_thread
            && let Err(error) = log.sync()
        {
            self.world.refused(&error, "sync");
        }
    }

    fn as_future(&mut self, log: &Log, op: Op) {
        let (Op::Await(bytes, habit) | Op::HandOver(bytes, habit) | Op::Cancel(bytes, habit)) = op
        else {
            if let Op::AwaitBeside(bytes) = op {
                self.await_beside(log, bytes);
            }
            return;
        };
        let other = match habit {
            Habit::LetsGo => self.append_one(log, 20),
            _ => None,
        };
        let other = other.map(|(_, append)| append.into_owned());
        let Some((numbers, append)) = self.append_one(log, bytes) else { return };
        let lsn = append.lsn();
        let slot = Slot::new(append.into_owned());
        let waker = slot.waker(habit, &self.world.weak, other);
        let world = self.world.clone();
        match op {
            Op::Cancel(..) => {
                slot.poll(&waker);
                drop(waker);
                slot.cancel();
            }
            Op::HandOver(..) => {
                slot.poll(&waker);
                drop(waker);
                self.commit_if_nobody_does(log);
                self.beside.push(thread::spawn(move || {
                    let waker = slot.waker(Habit::Plain, &world.weak, None);
                    let mut outcome = None;
                    world.survive(|| outcome = Some(slot.block_on(&waker)));
                    if let Some(outcome) = outcome {
                        settle(&world, numbers, lsn, outcome, "a future handed over");
                    }
                }));
            }
            _ => {
                slot.poll(&waker);
                self.commit_if_nobody_does(log);
                settle(&world, numbers, lsn, slot.block_on(&waker), "a future");
            }
        }
    }

    /// Awaited by somebody who does not hold the log.
    fn await_beside(&mut self, log: &Log, bytes: usize) {
        let Some((numbers, append)) = self.append_one(log, bytes) else { return };
        let (lsn, append, world) = (append.lsn(), append.into_owned(), self.world.clone());
        self.beside.push(thread::spawn(move || {
            let mut outcome = None;
            world.survive(|| outcome = Some(block_on(append)));
            if let Some(outcome) = outcome {
                settle(&world, numbers, lsn, outcome, "a future beside");
            }
        }));
    }

    fn await_lsn(&self, log: &Log, bytes: usize, is_dropped: bool) {
        let Some((numbers, append)) = self.append_one(log, bytes) else { return };
        let lsn = append.lsn();
        drop(append);
        let mut future = log.durable_at(lsn);
        let first = block_on(poll_fn(|context| Poll::Ready(Pin::new(&mut future).poll(context))));
        let outcome = match first {
            Poll::Ready(outcome) => outcome,
            Poll::Pending if is_dropped => return,
            Poll::Pending => {
                self.commit_if_nobody_does(log);
                block_on(future)
            }
        };
        settle(&self.world, numbers, lsn, outcome.map(|()| lsn), "an awaited LSN");
    }

    /// What it is told is checked at that moment. It asks the log, and may find itself the last
    /// owner. `waits`: it appends and waits.
    fn call_back(&self, log: &Log, bytes: usize, waits: bool) {
        let Some((numbers, append)) = self.append_one(log, bytes) else { return };
        let (lsn, world) = (append.lsn(), self.world.clone());
        world.uncalled.fetch_add(1, Ordering::Relaxed);
        append.on_durable(move |outcome| {
            // Also if it panics: the listener may, when this is the last owner and closes the log.
            let _called = Called(Arc::clone(&world.uncalled));
            settle(&world, numbers, lsn, outcome, "a callback");
            if let Some(log) = world.weak.upgrade() {
                log.last();
                if waits {
                    world.survive(|| wait_in_callback(&world, &log));
                }
            }
        });
    }

    /// Every call is refused, none waits for a thread that is not there, and nothing on the disk
    /// changes.
    fn in_child(&mut self, log: &Log) {
        self.place();
        let kept = self.kept.pop();
        let which = self.world.ledger().rng.u8(..);
        self.world.clone().as_child(|world| {
            let lsn = Lsn::new(log.durable().get().saturating_sub(1));
            let refused = |by: &str, done: inkstone::Result<()>| match done {
                Err(Error::Forked { .. }) => {}
                other => fail!(Kind::Forked, "{by} in a forked child: {other:?}"),
            };
            match which % 8 {
                0 => refused("append", log.append(&[1; 40]).map(drop)),
                1 => refused("append_durable", log.append_durable(&[1; 40]).map(drop)),
                2 => refused("try_append", log.try_append(&[1; 40]).map(drop)),
                3 => refused("sync", log.sync().map(drop)),
                4 => refused("truncate_after", log.truncate_after(lsn)),
                5 => refused("truncate_before", log.truncate_before(lsn.max(Lsn::FIRST))),
                6 => refused("a reader", self.place().cursor.next().map(drop)),
                // To ask is no change: it is answered, or refused, and never waits.
                _ => drop((log.first(), log.last(), log.stats(), self.reader.get(lsn))),
            }
            if let Some((numbers, append)) = kept {
                let (lsn, outcome) = (append.lsn(), append.wait());
                if outcome.is_ok() {
                    // It was durable before.
                    settle(world, numbers, lsn, outcome, "a handle in a forked child");
                } else {
                    refused("wait", outcome.map(drop));
                }
            }
        });
    }

    fn cut(&self, log: &Log, back: u64) {
        let last = log.last().get().saturating_sub(back);
        let index = self.world.ledger().begin_cut(last);
        let done = log.truncate_after(Lsn::new(last));
        self.world.ledger().end_cut(index, outcome_of(&done));
        if let Err(error) = done.or_else(nothing_there) {
            self.world.refused(&error, "truncate_after");
        }
    }

    fn give_up(&self, log: &Log, back: u64) {
        let first = (log.durable().get() + 1).saturating_sub(back).max(1);
        let index = self.world.ledger().begin_giving_up(first);
        let done = log.truncate_before(Lsn::new(first));
        self.world.ledger().end_giving_up(index, outcome_of(&done));
        if let Err(error) = done.or_else(nothing_there) {
            self.world.refused(&error, "truncate_before");
        }
    }
}

fn wait_in_callback(world: &World, log: &Log) {
    const BYTES: usize = 40;
    let numbers = world.ledger().will_append(&[BYTES]);
    match log.append(&payload(numbers.start, BYTES)) {
        Ok(append) => {
            let lsn = append.lsn();
            world.ledger().appended(numbers.clone(), lsn.get(), lsn.get());
            settle(world, numbers, lsn, append.wait(), "a callback that waits");
        }
        Err(error) => world.refused(&error, "append in a callback"),
    }
}

/// Dropped when a callback that was called has ended.
struct Called(Arc<AtomicU32>);

impl Drop for Called {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Held while an operation runs, as a reference to the log would be: never the last owner.
struct Borrowed(SharedLog);

/// Whether it was done, was not, or nobody knows.
fn outcome_of(done: &inkstone::Result<()>) -> Option<bool> {
    match done {
        Ok(()) => Some(true),
        Err(Error::NotYet { .. } | Error::TruncatedBefore { .. }) => Some(false),
        Err(_) => None,
    }
}

/// Others have cut or truncated what was to be.
fn nothing_there(error: Error) -> inkstone::Result<()> {
    match error {
        Error::NotYet { .. } | Error::TruncatedBefore { .. } => Ok(()),
        other => Err(other),
    }
}

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let setup = Setup::new(seed);
    Planned::may_come();
    let template = Template::of(setup.before);
    let disk = template.disk.power_cut().sample(seed);
    let mut ledger = Ledger::new(disk.clone(), seed);
    ledger.begin(1, template.records);
    ledger.may_be_poisoned = setup.fault.is_some() || setup.has_panics;
    ledger.is_periodic = setup.is_periodic;
    ledger.shots.most = ledger.rng.usize(..3);
    ledger.talks = plan.talks;
    ledger.say(|| format!("{setup:#?}"));
    let options = setup.options.clone();
    #[cfg(inkstone_mistakes)]
    let options = match plan.mistake {
        Some(mistake) => options.with_mistake(mistake),
        None => options,
    };
    let own_thread = setup.has_own_thread;
    let (options, ear) = listen(options, setup.listener, &disk);
    let steps = Arc::<Steps>::default();
    let directory = disk.directory(PATH).hooked(Arc::clone(&steps));
    let log = match Log::open_in(Arc::new(directory), options) {
        Ok(log) => Arc::new(log),
        Err(error) => fail!(Kind::WrongError, "opening: {error}"),
    };
    let _ = ear.log.set(Arc::downgrade(&log));
    let holders = Arc::new(AtomicU32::new(setup.threads.len() as u32 + 1));
    let world = World {
        ledger: Arc::new(Mutex::new(ledger)),
        holders,
        weak: Arc::downgrade(&log),
        steps,
        own_thread,
        uncalled: Arc::default(),
    };
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    history(&setup, &world, log);
    disk.clear_faults();
    ear.check_archive();
    look_at_what_is_left(&world);
    end_if_broken();
}

fn history(setup: &Setup, world: &World, log: SharedLog) {
    let reader = log.reader();
    let follow = |_| {
        let place = Place::new(&reader, log.first()).awaiting(setup.followers_await);
        let world = world.clone();
        thread::spawn(move || place.follow(&world))
    };
    let followers: Vec<_> = (0..setup.followers).map(follow).collect();
    let work = |(number, ops): (usize, &Vec<Op>)| {
        let (log, ops, world) = (Arc::clone(&log), ops.clone(), world.clone());
        let reader = reader.clone();
        thread::spawn(move || {
            Worker {
                world,
                log: Some(log),
                reader,
                place: None,
                kept: Vec::new(),
                beside: Vec::new(),
            }
            .run(number, &ops)
        })
    };
    let workers: Vec<_> = setup.threads.iter().enumerate().map(work).collect();
    let log = if setup.leaves_early {
        world.leave(log);
        None
    } else {
        Some(log)
    };
    let beside: Vec<_> = workers.into_iter().flat_map(join).collect();
    let mut followers = followers;
    if let Some(log) = log {
        let mut is_poisoned = false;
        world.survive(|| is_poisoned = matches!(log.sync(), Err(Error::Poisoned(_))));
        if is_poisoned {
            // They are told now, not when the log is closed.
            followers.drain(..).for_each(join);
        }
        end(setup, world, log);
    }
    followers.into_iter().chain(beside).for_each(join);
    // A log that is dropped leaves none uncalled, except in a child. Its own thread may be calling
    // the last ones.
    while !matches!(setup.end, End::InChild) && world.uncalled.load(Ordering::Relaxed) > 0 {
        thread::yield_now();
    }
}

/// What a thread has returned; its failure is the schedule's.
pub fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic: Box<dyn Any + Send>| {
        if panic.is::<Ends>() {
            resume_unwind(panic)
        } else {
            fail!(Kind::Panic, "a thread panicked")
        }
    })
}

fn end(setup: &Setup, world: &World, log: SharedLog) {
    world.holders.fetch_sub(1, Ordering::Relaxed);
    world.ledger().say(|| format!("the log ends: {:?}", setup.end));
    world.survive(|| {
        let Some(log) = Arc::into_inner(log) else { return };
        match setup.end {
            End::Close => match log.close() {
                Ok(()) => world.ledger().all_certain(),
                Err(error) => world.refused(&error, "close"),
            },
            End::Drop => drop(log),
            End::Abandon => log.abandon(),
            End::InChild => world.as_child(|_| drop(log)),
        }
    });
}

fn look_at_what_is_left(world: &World) {
    let found = {
        let mut ledger = world.ledger();
        ledger.take_shot("end");
        ledger.found_disks()
    };
    for (disk, expected) in found {
        let reader = match Reader::open_in(Arc::new(disk.directory(PATH)), plain()) {
            Ok(reader) => reader,
            Err(error) => fail!(
                Kind::FalseCorrupt,
                "after a power cut ({}) the log cannot be opened: {error}",
                expected.why
            ),
        };
        let first = reader.first();
        let records: Result<Vec<_>, _> = reader
            .records(first)
            .map(|record| record.map(|record| (record.lsn.get(), record.bytes)))
            .collect();
        match records {
            Ok(records) => world.ledger().check_found(&expected, first.get(), &records),
            Err(error) => fail!(
                Kind::FalseCorrupt,
                "after a power cut ({}) the log cannot be read: {error}",
                expected.why
            ),
        }
    }
}
