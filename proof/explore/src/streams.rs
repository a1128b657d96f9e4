//! One schedule of a log with streams: two threads that change streams of their own, the mover, a
//! thread that reads by number, and a follower that looks again and again, or that waits.
//!
//! *Owns*: drawing what each thread does from the seed, doing it, the models of the streams, and
//! judging every answer by them. *May not touch*: which thread goes on.
//!
//! Each stream has one owner (`models.rs`), and a model has all streams of an owner. A reader must
//! show what one of the models has that held while it read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use inkstone_sim::survival::Thing;
use inkstone_sim::{DiskOptions, Fault, SimDisk};
use inkstone_streams::{Batch, Error, Options, Streams, StreamsReader};
use shuttle::thread;

use crate::disk::{PATH, stepped};
use crate::ledger::{Kind, end_if_broken, fail, number_in, payload};
use crate::models::Ledger as Models;
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

/// What the streams of one owner hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Model(BTreeMap<u64, Stream>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Stream {
    first: u64,
    records: Vec<u32>,
    note: Option<u32>,
}

impl Stream {
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn get(&self, number: u64) -> Option<u32> {
        self.records.get(usize::try_from(number.checked_sub(self.first)?).ok()?).copied()
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

type Ledger = Models<Model>;

impl Ledger {
    /// An error that a fault may have caused.
    fn refused(&self, error: &Error, by: &str) {
        self.must_be_explained(error, by, self.may_fail);
    }
}

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

    fn carry_out(&self, streams: &Streams, stream: u64, op: Op) {
        let owner = (stream / 2) as usize;
        let mut batch = Batch::new();
        let mut bytes = Vec::new();
        let (model, waits) = {
            let mut ledger = self.ledger();
            ledger.say(|| format!("stream {stream}: {op:?}"));
            let mut model = ledger.owned[owner].last().clone();
            let mut waits = true;
            let own = [stream, stream ^ 1];
            let appended = match op {
                Op::Append(len, wait) => (1, len, wait),
                Op::Batch(wait) => (2, 100, wait),
                _ => (0, 0, true),
            };
            let numbers = ledger.new_records(appended.0);
            for (stream, number) in own.iter().zip(numbers) {
                bytes.push((number, payload(number, appended.1)));
                waits = appended.2;
                if let Some(found) = model.0.get_mut(stream) {
                    found.records.push(number);
                }
            }
            if let (Op::Batch(_), Some(found)) = (op, model.0.get_mut(&stream)) {
                found.note = Some(bytes[0].0);
            }
            bytes.iter().zip(own).for_each(|((_, bytes), stream)| {
                batch.append(stream, bytes);
            });
            if let Op::Batch(_) = op {
                batch.note(stream, &bytes[0].1);
            }
            let Some(found) = model.0.get_mut(&stream) else { return };
            match op {
                Op::Append(..) | Op::Batch(_) | Op::Sync => {}
                Op::Before(keep) => {
                    let first = found.next().saturating_sub(keep).max(found.first);
                    found.records.drain(..(first - found.first) as usize);
                    found.first = first;
                    batch.truncate_before(stream, first);
                }
                Op::After(less) => {
                    let next = found.next().saturating_sub(less).max(found.first).max(1);
                    found.records.truncate((next - found.first) as usize);
                    batch.truncate_after(stream, next - 1);
                }
                Op::Restart(is_back) => {
                    found.first = if is_back { found.first } else { found.next() + 10 };
                    found.records.clear();
                    batch.restart_at(stream, found.first);
                }
                Op::RemoveAndCreate => {
                    *found = Stream { first: 1, ..Stream::default() };
                    batch.remove(stream).create(stream, 1);
                }
            }
            (ledger.will_be(owner, model), waits)
        };
        let done = match op {
            Op::Sync => streams.sync(),
            _ => streams
                .apply(&batch)
                .and_then(|written| if waits { written.wait() } else { Ok(()) }),
        };
        match done {
            Ok(()) if waits => self.ledger().is_certain(owner, model),
            Ok(()) => {}
            Err(error) => self.ledger().refused(&error, "a change"),
        }
    }

    /// Reads one record: what is shown, or that it is not there, must hold in one of the models
    /// that were possible meanwhile.
    fn read(&self, stream: u64, back: u64) {
        let owner = (stream / 2) as usize;
        let (from, number) = {
            let ledger = self.ledger();
            let owned = &ledger.owned[owner];
            let next = owned.last().0.get(&stream).map_or(1, Stream::next);
            (owned.certain, next.saturating_sub(back))
        };
        let shown = self.reader.get(stream, number);
        let ledger = self.ledger();
        let models = ledger.owned[owner].models[from..].iter();
        let mut at = models.map(|model| model.0.get(&stream).and_then(|found| found.get(number)));
        match shown {
            Ok(bytes) => {
                let Some(record) = number_in(&bytes) else {
                    fail!(Kind::Wrong, "{number} of stream {stream}: bytes that nobody appended");
                };
                if !at.any(|expected| expected == Some(record)) {
                    fail!(Kind::Back, "{number} of stream {stream} shows record {record}");
                }
            }
            Err(Error::NoStream { .. } | Error::Truncated { .. } | Error::NotYet { .. }) => {
                if at.all(|expected| expected.is_some()) {
                    fail!(Kind::NotShown, "{number} of stream {stream} is durable, not shown");
                }
            }
            Err(error) => ledger.refused(&error, "get"),
        }
    }

    /// Follows a stream: every record was appended there. One that waits follows it until the log
    /// ends, and returns what it has been shown by then without what it was told to forget.
    fn follow(&self, stream: u64, waits: bool) -> Option<BTreeMap<u64, u32>> {
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
                    let number = number_in(&record.bytes);
                    let ledger = self.ledger();
                    ledger.say(|| {
                        format!("a follower of {stream} gets {} {number:?}", record.number)
                    });
                    let mut models = ledger.owned[(stream / 2) as usize].models.iter();
                    let is_known = models.any(|model| {
                        let found = model.0.get(&stream).and_then(|found| found.get(record.number));
                        number.is_some() && found == number
                    });
                    if !is_known {
                        fail!(Kind::Wrong, "a follower gets {number:?} as {}", record.number);
                    }
                    shown.insert(record.number, number.unwrap_or_default());
                }
                Ok(None) => thread::yield_now(),
                Err(Error::Truncated { first, .. }) => cursor.seek(first),
                Err(Error::TruncatedAfter { next, .. }) => drop(shown.split_off(&next)),
                Err(Error::NoStream { .. }) => return None,
                Err(Error::Log(inkstone::Error::Closed)) => return waits.then_some(shown),
                Err(error) => {
                    self.ledger().refused(&error, "follow");
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
            ledger.owned[(stream / 2) as usize].last().0.get(&stream).map_or(1, Stream::next)
        };
        // One that finds nothing at its first look says nothing.
        if next > 1 {
            self.followed.wait_for(next);
        }
    }

    /// Who was told of every cut has what the stream has.
    fn must_be_last(&self, stream: u64, shown: &BTreeMap<u64, u32>) {
        let ledger = self.ledger();
        let Some(found) = ledger.owned[(stream / 2) as usize].last().0.get(&stream) else { return };
        let is_it = |(number, record): (&u64, &u32)| {
            *number < found.first || found.get(*number) == Some(*record)
        };
        if !shown.iter().all(is_it)
            || !(found.first..found.next()).all(|at| shown.contains_key(&at))
        {
            fail!(Kind::CutUntold, "a follower of {stream} has {shown:?}, the stream {found:?}");
        }
    }
}

fn options(own_mover: bool) -> Options {
    let log = inkstone::Options::small().buffer_bytes(16 << 10).own_thread(false);
    Options::new().log(log).section_bytes(16 << 10).own_mover(own_mover).cache_bytes(0)
}

/// One record of each stream in a section that is full and sealed, and of which nothing else lives.
fn prepare(disk: &SimDisk) -> Result<Vec<Model>, Error> {
    let streams = Streams::open_in(Arc::new(disk.directory(PATH)), options(false))?;
    let mut batch = Batch::new();
    let first: Vec<_> = (0..STREAMS).map(|stream| payload(1000 + stream as u32, 30)).collect();
    for (stream, bytes) in (0..STREAMS).zip(&first) {
        batch.create(stream, 1).append(stream, bytes);
    }
    streams.apply(batch.create(FILLER, 1))?.wait()?;
    for _ in 0..26 {
        let filler = [7; 900];
        streams.append(FILLER, &filler)?.wait()?;
    }
    streams.remove(FILLER)?.wait()?;
    streams.close()?;
    let stream = |stream: u64| {
        let records = vec![1000 + stream as u32];
        (stream, Stream { first: 1, records, note: None })
    };
    Ok([0, 2].map(|first| Model([stream(first), stream(first + 1)].into())).into())
}

/// One schedule.
pub fn one(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed ^ 0x5354_5245_414D_5321);
    let setup = Setup::new(&mut rng);
    let disk = SimDisk::new(seed, DiskOptions::default());
    let first = match prepare(&disk) {
        Ok(first) => first,
        Err(error) => fail!(Kind::WrongError, "preparing: {error}"),
    };
    let mut ledger = Ledger::new(&disk, &mut rng, plan, first, ());
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
        let streams = Streams::open_in(directory, options(false))?;
        let found = vec![shown(&streams.reader(), 0)?, shown(&streams.reader(), 1)?];
        streams.abandon();
        Ok::<_, Error>(found)
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
                theirs.ledger().refused(&error, "a move");
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
                let last = [0, 1].map(|owner| ledger.owned[owner].models.len() - 1);
                ledger.are_certain(&last);
                is_closed = !ledger.may_fail;
            }
            Err(error) => world.ledger().refused(&error, "close"),
        },
        (_, streams) => drop(streams),
    }
    if let Some(shown) = join(follower).filter(|_| is_closed) {
        world.must_be_last(setup.followed, &shown);
    }
}

fn shown(reader: &StreamsReader, owner: u64) -> Result<Model, Error> {
    let mut model = Model::default();
    for stream in [2 * owner, 2 * owner + 1] {
        let first = match reader.bounds(stream) {
            Ok(bounds) => bounds.first,
            Err(Error::NoStream { .. }) => continue,
            Err(error) => return Err(error),
        };
        let mut found = Stream { first, ..Stream::default() };
        for record in reader.records(stream, first) {
            found.records.push(number_in(&record?.bytes).unwrap_or(u32::MAX));
        }
        let note = reader.note(stream)?;
        found.note = (!note.is_empty()).then(|| number_in(&note).unwrap_or(u32::MAX));
        model.0.insert(stream, found);
    }
    Ok(model)
}
