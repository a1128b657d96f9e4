//! One schedule, from the opening of a log to what is found when the power goes.
//!
//! *Owns*: the threads of a history, and what each calls. *May not touch*: which thread goes on,
//! which answers are right.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use fastrand::Rng;
use inkstone::{Append, Error, Log, Lsn, Reader};
use inkstone_subject::Who;
use inkstone_subject::log::words::Call;
use shuttle::thread::{self, JoinHandle};

use crate::broken::{Ends, Kind, end_if_broken, fail};
use crate::disk::{PATH, Steps};
use crate::ear::listen;
use crate::models::Ledger;
use crate::plan::Plan;
use crate::reading::{Place, get};
use crate::setup::{End, Op, Setup};
use crate::tasks::{Habit, Owned, Planned, Slot, block_on};
use crate::templates::Template;
use crate::world::{Appended, Given, SharedLog, World};

/// Those who call and are no worker have numbers from here on.
const OTHERS: Who = 100;

struct Worker {
    who: Who,
    world: World,
    log: Option<SharedLog>,
    reader: Reader,
    /// Where it reads, from its first reading on.
    place: Option<Place>,
    kept: Vec<(Given, Owned)>,
    beside: Vec<JoinHandle<()>>,
}

impl Worker {
    fn run(mut self, ops: &[Op]) -> Vec<JoinHandle<()>> {
        for op in ops {
            let world = self.world.clone();
            world.ledger().say(|| format!("thread {}: {op:?}", self.who));
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
                let kept = self.append(log, &[bytes], |log, records| log.append_batch(records));
                self.kept.extend(kept.map(|(given, append)| (given, append.into_owned())));
            }
            Op::WaitForKept => self.wait_for_kept(),
            Op::LetGo(bytes) => drop(self.append_one(log, bytes)),
            Op::Batch(count, bytes) => {
                self.wait(
                    self.append(log, &vec![bytes; count], |log, records| log.append_batch(records)),
                    "batch",
                );
            }
            Op::Try(bytes) => {
                let append = self.append(log, &[bytes], |log, records| log.try_append(records[0]));
                self.wait(append, "try_append");
            }
            Op::AppendAsync(bytes) => {
                let append = self
                    .append(log, &[bytes], |log, records| block_on(log.append_async(records[0])));
                self.wait(append, "append_async");
            }
            Op::Await(..) | Op::HandOver(..) | Op::Cancel(..) | Op::AwaitBeside(_) => {
                self.as_future(log, op)
            }
            Op::AwaitLsn(bytes, is_dropped) => self.await_lsn(log, bytes, is_dropped),
            Op::Call(bytes) => self.call_back(log, bytes, false),
            Op::CallAndWait(bytes) => self.call_back(log, bytes, true),
            Op::Sync => sync(&self.world, self.who, log),
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
            Place::new(&self.world, &self.reader, from.max(Lsn::FIRST))
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
        append: impl FnOnce(&'log Log, &[&[u8]]) -> inkstone::Result<Append<'log>>,
    ) -> Appended<'log> {
        self.world.append(self.who, sizes, |records| append(log, records))
    }

    fn append_one<'log>(&self, log: &'log Log, bytes: usize) -> Appended<'log> {
        self.append(log, &[bytes], |log, records| log.append(records[0]))
    }

    fn wait(&self, append: Appended<'_>, by: &str) {
        if let Some((given, append)) = append {
            self.world.settle(given, append.wait(), by);
        }
    }

    fn wait_for_kept(&mut self) {
        for (given, append) in std::mem::take(&mut self.kept) {
            self.world.settle(given, append.wait(), "a kept handle");
        }
    }

    /// Who has no thread of the log's own commits what it awaits.
    fn commit_if_nobody_does(&self, log: &Log) {
        if !self.world.own_thread {
            sync(&self.world, self.who, log);
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
        let Some((given, append)) = self.append_one(log, bytes) else { return };
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
                        world.settle(given, outcome, "a future handed over");
                    }
                }));
            }
            _ => {
                slot.poll(&waker);
                self.commit_if_nobody_does(log);
                world.settle(given, slot.block_on(&waker), "a future");
            }
        }
    }

    /// Awaited by somebody who does not hold the log.
    fn await_beside(&mut self, log: &Log, bytes: usize) {
        let Some((given, append)) = self.append_one(log, bytes) else { return };
        let (append, world) = (append.into_owned(), self.world.clone());
        self.beside.push(thread::spawn(move || {
            let mut outcome = None;
            world.survive(|| outcome = Some(block_on(append)));
            if let Some(outcome) = outcome {
                world.settle(given, outcome, "a future beside");
            }
        }));
    }

    fn await_lsn(&self, log: &Log, bytes: usize, is_dropped: bool) {
        let Some((given, append)) = self.append_one(log, bytes) else { return };
        let lsn = given.lsn;
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
        self.world.settle(given, outcome.map(|()| lsn), "an awaited LSN");
    }

    /// What it is told is checked at that moment. It asks the log, and may find itself the last
    /// owner. `waits`: it appends and waits.
    fn call_back(&self, log: &Log, bytes: usize, waits: bool) {
        let Some((given, append)) = self.append_one(log, bytes) else { return };
        let world = self.world.clone();
        world.uncalled.fetch_add(1, Ordering::Relaxed);
        append.on_durable(move |outcome| {
            // Also if it panics: the listener may, when this is the last owner and closes the log.
            let _called = Called(Arc::clone(&world.uncalled));
            world.settle(given, outcome, "a callback");
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
            if let Some((given, append)) = kept {
                let outcome = append.wait();
                if outcome.is_ok() {
                    // It was durable before.
                    world.settle(given, outcome, "a handle in a forked child");
                } else {
                    refused("wait", outcome.map(drop));
                }
            }
        });
    }

    fn cut(&self, log: &Log, back: u64) {
        let last = log.last().get().saturating_sub(back);
        let cut = || log.truncate_after(Lsn::new(last));
        self.world.call(self.who, &Call::TruncateAfter(last), cut, |()| None);
    }

    fn give_up(&self, log: &Log, back: u64) {
        let first = (log.durable().get() + 1).saturating_sub(back).max(1);
        let give_up = || log.truncate_before(Lsn::new(first));
        self.world.call(self.who, &Call::TruncateBefore(first), give_up, |()| None);
    }
}

fn sync(world: &World, who: Who, log: &Log) {
    world.call(who, &Call::Sync, || log.sync(), |lsn| Some((lsn.get(), lsn.get())));
}

fn wait_in_callback(world: &World, log: &Log) {
    let who = OTHERS + world.ledger().new_number();
    if let Some((given, append)) = world.append(who, &[40], |records| log.append(records[0])) {
        world.settle(given, append.wait(), "a callback that waits");
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

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let setup = Setup::new(seed);
    Planned::may_come();
    let template = Template::of(setup.before);
    let disk = template.disk.power_cut().sample(seed);
    let mut rng = Rng::with_seed(seed ^ 0x6C65_6467_6572);
    let mut ledger = Ledger::new(&disk, &mut rng, plan, vec![template.past.clone()]);
    ledger.may_fail = setup.fault.is_some() || setup.has_panics;
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
        is_periodic: setup.is_periodic,
        uncalled: Arc::default(),
    };
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    history(&setup, &world, log);
    disk.clear_faults();
    ear.check_archive();
    world.ledger().look_at_the_logs_that_are_left();
    end_if_broken();
}

fn history(setup: &Setup, world: &World, log: SharedLog) {
    let reader = log.reader();
    let follow = |_| {
        let world = world.clone();
        let place = Place::new(&world, &reader, log.first()).awaiting(setup.followers_await);
        thread::spawn(move || place.follow(&world))
    };
    let followers: Vec<_> = (0..setup.followers).map(follow).collect();
    let work = |(who, ops): (Who, &Vec<Op>)| {
        let (log, ops, world) = (Arc::clone(&log), ops.clone(), world.clone());
        let reader = reader.clone();
        thread::spawn(move || {
            Worker {
                who,
                world,
                log: Some(log),
                reader,
                place: None,
                kept: Vec::new(),
                beside: Vec::new(),
            }
            .run(&ops)
        })
    };
    let workers: Vec<_> = (0..).zip(&setup.threads).map(work).collect();
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
            End::Close => _ = world.call(OTHERS, &Call::Close, || log.close(), |()| None),
            End::Drop => drop(log),
            End::Abandon => log.abandon(),
            End::InChild => world.as_child(|_| drop(log)),
        }
    });
}
