//! One schedule of a log with streams: two threads that change streams of their own, the mover, a
//! thread that reads by number, and a follower that looks again and again, or that waits.
//!
//! *Owns*: drawing what each thread does from the seed, doing it, telling the ledger. *May not
//! touch*: which thread goes on, what streams may show (`inkstone_subject`).
//!
//! Each stream has one owner (`models.rs`), and a model has all streams of an owner.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use inkstone_sim::{DiskOptions, Fault, SimDisk};
use inkstone_streams::{Error, Options, Streams, StreamsReader};
use inkstone_subject::SOLE;
use inkstone_subject::log::record::Record;
use inkstone_subject::states::past::Past;
use inkstone_subject::states::words::{Answer, Shown, Told};
use inkstone_subject::streams::model::{Model, Step, Stream, batch};
use inkstone_subject::streams::{Call, How};
use shuttle::thread;

use crate::broken::{Kind, end_if_broken, fail};
use crate::disk::{PATH, stepped};
use crate::models::{Ledger as Things, judge};
use crate::plan::Plan;
use crate::run::join;
use crate::setup::{End, fault};
use crate::tasks::block_on;

/// Streams 0 and 1 belong to the first owner, 2 and 3 to the second one.
const STREAMS: u64 = 4;
/// A stream that only the preparation knows: it fills the oldest section, and goes.
const FILLER: u64 = 9;

#[derive(Debug, Clone, Copy)]
enum Op {
    /// A record of so many bytes; it waits, or not.
    Append(usize, bool),
    /// Records of both streams of the owner, and a note: all or none.
    Batch(bool),
    Before(u64),
    After(u64),
    /// Behind the last number, or at the first one again.
    Restart(bool),
    RemoveAndCreate,
    Sync,
}

impl Op {
    fn bytes(self) -> usize {
        match self {
            Self::Append(bytes, _) => bytes,
            _ => 100,
        }
    }

    /// The call that it is for a stream as it is now; `records` are new ones.
    fn call(self, stream: u64, now: &Stream, records: [Arc<[u8]>; 2]) -> Call {
        let [one, two] = records;
        let mut how = How::Wait;
        let steps = match self {
            Self::Append(_, waits) => {
                how = if waits { How::Wait } else { How::LetGo };
                vec![Step::Append(stream, one)]
            }
            Self::Batch(waits) => {
                how = if waits { How::Wait } else { How::LetGo };
                let note = Step::Note(stream, one.to_vec());
                vec![Step::Append(stream, one), Step::Append(stream ^ 1, two), note]
            }
            Self::Before(keep) => {
                let first = now.next().saturating_sub(keep).max(now.first);
                vec![Step::TruncateBefore(stream, first)]
            }
            Self::After(less) => {
                let next = now.next().saturating_sub(less).max(now.first).max(1);
                vec![Step::TruncateAfter(stream, next - 1)]
            }
            Self::Restart(is_back) => {
                let first = if is_back { now.first } else { now.next() + 10 };
                vec![Step::Restart(stream, first)]
            }
            Self::RemoveAndCreate => vec![Step::Remove(stream), Step::Create(stream, 1)],
            Self::Sync => return Call::Sync,
        };
        Call::Batch(steps, how)
    }
}

#[derive(Debug)]
struct Setup {
    owners: [Vec<(u64, Op)>; 2],
    moves: usize,
    own_mover: bool,
    reads: Vec<(u64, u64)>,
    followed: u64,
    waits: bool,
    fault: Option<Fault>,
    end: End,
}

impl Setup {
    fn new(rng: &mut Rng) -> Self {
        let op = |rng: &mut Rng| match rng.u8(..12) {
            0..=4 => Op::Append([20, 200, 2000][rng.usize(..3)], rng.bool()),
            5 | 6 => Op::Batch(rng.bool()),
            7 => Op::Before(rng.u64(..3)),
            8 => Op::After(rng.u64(..3)),
            9 => Op::Restart(rng.bool()),
            10 => Op::RemoveAndCreate,
            _ => Op::Sync,
        };
        let ops = |owner: u64, rng: &mut Rng| {
            (0..rng.usize(1..6)).map(|_| (2 * owner + rng.u64(..2), op(rng))).collect()
        };
        Self {
            owners: [ops(0, rng), ops(1, rng)],
            moves: rng.usize(1..5),
            own_mover: rng.u8(..4) == 0,
            reads: (0..rng.usize(1..6)).map(|_| (rng.u64(..STREAMS), rng.u64(..6))).collect(),
            followed: rng.u64(..STREAMS),
            waits: rng.bool(),
            fault: (rng.u8(..8) == 0).then(|| fault(rng)),
            end: [End::Close, End::Close, End::Drop, End::Abandon][rng.usize(..4)],
        }
    }
}

type Ledger = Things<Past<Model>>;

#[derive(Clone)]
struct World {
    ledger: Arc<Mutex<Ledger>>,
    reader: StreamsReader,
    followed: Arc<Followed>,
}

/// How far the follower is, and a bell for who waits for it.
#[derive(Default)]
struct Followed {
    next: shuttle::sync::Mutex<u64>,
    bell: shuttle::sync::Condvar,
}

impl Followed {
    fn is_at(&self, next: u64) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = next;
        self.bell.notify_all();
    }

    /// Who is not woken for what is there never comes to it.
    fn wait_for(&self, next: u64) {
        let mut at = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        while *at != next {
            at = self.bell.wait(at).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl World {
    /// Never held over a scheduling point.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, error: &Error, by: &str) {
        let ledger = self.ledger();
        ledger.must_be_explained(error, by, ledger.may_fail);
    }

    fn carry_out(&self, streams: &Streams, stream: u64, op: Op) {
        let owner = (stream / 2) as usize;
        let call = {
            let mut ledger = self.ledger();
            let mut record = |bytes| payload(ledger.new_number(), bytes);
            let records = [record(op.bytes()), record(op.bytes())];
            let Some(found) = ledger.pasts[owner].now().0.get(&stream) else { return };
            let call = op.call(stream, found, records);
            ledger.began(owner, SOLE, &call);
            call
        };
        let done = match &call {
            Call::Batch(steps, how) => streams.apply(&batch(steps)).and_then(|written| match how {
                How::Wait => written.wait(),
                _ => Ok(()),
            }),
            _ => streams.sync(),
        };
        let failed = |error: Error| Answer::Refused(error.to_string());
        let answer = done.map_or_else(failed, |()| Answer::Done);
        let mut ledger = self.ledger();
        let may_fail = ledger.may_fail;
        ledger.ended(owner, SOLE, &Told::new(answer), may_fail);
    }

    /// Reads one record: what is shown, or that it is not there, must hold in one of the models
    /// that were possible meanwhile.
    fn read(&self, stream: u64, back: u64) {
        let owner = (stream / 2) as usize;
        let (since, number) = {
            let ledger = self.ledger();
            let past = &ledger.pasts[owner];
            let next = past.now().0.get(&stream).map_or(1, Stream::next);
            (past.since().1, next.saturating_sub(back))
        };
        let shown = match self.reader.get(stream, number) {
            Ok(bytes) => Some(bytes),
            Err(Error::NoStream { .. } | Error::Truncated { .. } | Error::NotYet { .. }) => None,
            Err(error) => return self.refused(&error, "get"),
        };
        let what = || format!("{number} of stream {stream} shows {shown:?}");
        let is_it = |model: &Model| record(model, stream, number) == shown.as_deref();
        judge(owner, self.ledger().pasts[owner].seen(since, false, what, is_it));
    }

    /// Follows a stream: every record was appended there. One that waits follows it until the log
    /// ends, and returns what it has been shown by then without what it was told to forget.
    fn follow(&self, stream: u64, waits: bool) -> Option<BTreeMap<u64, Vec<u8>>> {
        let mut cursor = self.reader.read(stream, 1);
        let mut shown = BTreeMap::new();
        let mut looks = 0;
        while waits || looks < 6 {
            looks += 1;
            // Not `next_within`: the explorer has no time.
            let next = match waits {
                true => block_on(cursor.next_async()).map(Some),
                false => cursor.next(),
            };
            match next {
                Ok(Some(record)) => {
                    let ledger = self.ledger();
                    ledger.say(|| format!("a follower of {stream} gets {record:?}"));
                    let is_it = |model: &Model| {
                        self::record(model, stream, record.number) == Some(&record.bytes)
                    };
                    if !ledger.pasts[(stream / 2) as usize].was(is_it) {
                        fail!(Kind::Wrong, "a follower of {stream} gets {record:?}");
                    }
                    shown.insert(record.number, record.bytes);
                }
                Ok(None) => thread::yield_now(),
                Err(Error::Truncated { first, .. }) => cursor.seek(first),
                Err(Error::TruncatedAfter { next, .. }) => drop(shown.split_off(&next)),
                Err(Error::NoStream { .. }) => return None,
                Err(Error::Log(inkstone::Error::Closed)) => return waits.then_some(shown),
                Err(error) => {
                    self.refused(&error, "follow");
                    return None;
                }
            }
            if waits {
                self.followed.is_at(cursor.next_number());
            }
        }
        None
    }

    /// Nobody changes anything any more: a follower comes to the end of its stream.
    fn wait_for_the_follower(&self, streams: &Streams, stream: u64) {
        if let Err(error) = streams.sync() {
            fail!(Kind::WrongError, "a sync at the end: {error}");
        }
        let next = {
            let ledger = self.ledger();
            ledger.pasts[(stream / 2) as usize].now().0.get(&stream).map_or(1, Stream::next)
        };
        // One that finds nothing at its first look says nothing.
        if next > 1 {
            self.followed.wait_for(next);
        }
    }

    /// Who was told of every cut has what the stream has.
    fn must_be_last(&self, stream: u64, shown: &BTreeMap<u64, Vec<u8>>) {
        let ledger = self.ledger();
        let now = ledger.pasts[(stream / 2) as usize].now();
        let Some(found) = now.0.get(&stream) else { return };
        let there = (found.first..).zip(found.records.iter().map(|bytes| &**bytes));
        let has = shown.range(found.first..).map(|(number, bytes)| (*number, &**bytes));
        if !there.eq(has) {
            fail!(Kind::CutUntold, "a follower of {stream} has {shown:?}, the stream {found:?}");
        }
    }
}

fn options(own_mover: bool) -> Options {
    let log = inkstone::Options::small().buffer_bytes(16 << 10).own_thread(false);
    Options::new().log(log).section_bytes(16 << 10).own_mover(own_mover).cache_bytes(0)
}

fn payload(number: u32, bytes: usize) -> Arc<[u8]> {
    // No two are alike.
    Record { number: 8 * number, bytes: bytes as u32, has_more: false }.payload().into()
}

/// One record of each stream in a section that is full and sealed, and of which nothing else lives.
fn prepare(disk: &SimDisk) -> Result<Vec<Model>, Error> {
    let streams = Streams::open_in(Arc::new(disk.directory(PATH)), options(false))?;
    let steps = (0..STREAMS).flat_map(|stream| {
        let bytes = payload(1000 + stream as u32, 30);
        [Step::Create(stream, 1), Step::Append(stream, bytes)]
    });
    let (steps, mut model) = (steps.collect::<Vec<_>>(), Model::default());
    let are_made = steps.iter().all(|step| model.make(step));
    assert!(are_made, "new streams break no rule");
    streams.apply(batch(&steps).create(FILLER, 1))?.wait()?;
    for _ in 0..26 {
        let filler = [7; 900];
        streams.append(FILLER, &filler)?.wait()?;
    }
    streams.remove(FILLER)?.wait()?;
    streams.close()?;
    Ok(by_owner(model))
}

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed ^ 0x5354_5245_414D_5321);
    let setup = Setup::new(&mut rng);
    let disk = SimDisk::new(seed, DiskOptions::default());
    let first = match prepare(&disk) {
        Ok(first) => first.into_iter().map(Past::threaded).collect(),
        Err(error) => fail!(Kind::WrongError, "preparing: {error}"),
    };
    let mut ledger = Ledger::new(&disk, &mut rng, plan, first);
    ledger.may_fail = setup.fault.is_some();
    ledger.say(|| format!("{setup:#?}"));
    #[cfg(inkstone_mistakes)]
    inkstone_streams::mistake::set(plan.streams_mistake);
    let directory = Arc::new(stepped(disk.directory(PATH)));
    let streams = match Streams::open_in(directory, options(setup.own_mover)) {
        Ok(streams) => Arc::new(streams),
        Err(error) => fail!(Kind::WrongError, "opening: {error}"),
    };
    let world = World {
        ledger: Arc::new(Mutex::new(ledger)),
        reader: streams.reader(),
        followed: Arc::default(),
    };
    if let Some(fault) = setup.fault.clone() {
        disk.inject(fault);
    }
    history(&setup, &world, streams);
    disk.clear_faults();
    #[cfg(inkstone_mistakes)]
    inkstone_streams::mistake::set(None);
    world.ledger().look_at_what_is_left(|directory| {
        let streams =
            Streams::open_in(directory, options(false)).map_err(|error| error.to_string())?;
        let found = Model::of(&streams.reader());
        streams.abandon();
        found.map(|found| by_owner(found).into_iter().map(|of| Shown::Opened(Ok(of))).collect())
    });
    end_if_broken();
}

fn history(setup: &Setup, world: &World, streams: Arc<Streams>) {
    let mut threads: Vec<_> = (setup.owners.iter().cloned())
        .map(|ops| {
            let (streams, world) = (Arc::clone(&streams), world.clone());
            thread::spawn(move || {
                ops.iter().for_each(|(stream, op)| world.carry_out(&streams, *stream, *op));
            })
        })
        .collect();
    let (theirs, mover, moves) = (world.clone(), Arc::clone(&streams), setup.moves);
    threads.push(thread::spawn(move || {
        for _ in 0..moves {
            if let Err(error) = mover.move_some() {
                theirs.refused(&error, "a move");
            }
        }
    }));
    let (theirs, reads) = (world.clone(), setup.reads.clone());
    let reader = thread::spawn(move || {
        reads.into_iter().for_each(|(stream, back)| theirs.read(stream, back));
    });
    let (theirs, followed, waits) = (world.clone(), setup.followed, setup.waits);
    let follower = thread::spawn(move || theirs.follow(followed, waits));
    threads.into_iter().for_each(join);
    join(reader);
    if setup.waits && setup.fault.is_none() {
        world.wait_for_the_follower(&streams, setup.followed);
    }
    world.ledger().say(|| format!("the streams end: {:?}", setup.end));
    let mut is_closed = false;
    match (setup.end, Arc::try_unwrap(streams)) {
        (End::Abandon, Ok(streams)) => streams.abandon(),
        (End::Close, Ok(streams)) => match streams.close() {
            Ok(()) => {
                let mut ledger = world.ledger();
                let returned = ledger.returned();
                ledger.are_durable(&returned);
                is_closed = !ledger.may_fail;
            }
            Err(error) => world.refused(&error, "close"),
        },
        (_, streams) => drop(streams),
    }
    if let Some(shown) = join(follower).filter(|_| is_closed) {
        world.must_be_last(setup.followed, &shown);
    }
}

/// What the streams of each owner hold.
fn by_owner(mut all: Model) -> Vec<Model> {
    let second = Model(all.0.split_off(&2));
    vec![all, second]
}

/// A record of a stream.
fn record(model: &Model, stream: u64, number: u64) -> Option<&[u8]> {
    let stream = model.0.get(&stream)?;
    let at = usize::try_from(number.checked_sub(stream.first)?).ok()?;
    stream.records.get(at).map(|bytes| &**bytes)
}
