//! The traits against a model, on a simulated disk: appends, flushes, fences by a second writer,
//! manifests that move, collection, clones, deletions, another database that tries to have the log.
//! The power is cut within and after every call, also between the log and its object, and each
//! history continues from the recovered state.
//!
//! `INKSTONE_SLATE_STATES=500000 cargo test -p inkstone-slatedb --test model` tests that many
//! states.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are a test too")]

#[path = "model/bits.rs"]
mod bits;
#[path = "model/pairings.rs"]
mod pairings;
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use inkstone_sim::{AfterEffect, DiskOptions, FaultRates, PowerCut, SimDisk};
use inkstone_slatedb::{DatabaseWal, Seen, Wals, Writer};
use slatedb::RowEntry;
use slatedb::object_store::{memory::InMemory, path::Path};
use slatedb::wal::{WalAdmin, WalError, WalEvent, WalFileRange, WalGc, WalReader, WalWriter};
use std::ops::Bound;
use support::{Manifest, Objects, SimPlace, batches, drain, now, parts, process, read, row, small};

#[derive(Debug, Default)]
struct Tally {
    states: u64,
    deeper: u64,
    fences: u64,
    collections: u64,
    clones: u64,
    deletions: u64,
    cut_clones: u64,
    cut_beginnings: u64,
    others: u64,
    lost_batches: u64,
}

/// What must be, and what may be.
#[derive(Debug, Clone)]
struct Model {
    /// The appended batches, by id from 1 on, without those that a crash took.
    batches: Vec<Vec<RowEntry>>,
    /// The last id that was reported durable.
    told: u64,
    /// What the manifest says.
    seen: Seen,
    /// The lowest id that collection has left.
    first: u64,
    /// The clone, once it is there: its batches, and the id before the first of them.
    clone: Option<(u64, Vec<Vec<RowEntry>>)>,
    /// A crash may have kept a clone that was being deleted.
    has_remains: bool,
    seq: u64,
}

impl Model {
    fn new() -> Self {
        let seen = Seen { epoch: 0, replay_after: 0, next_id: 1 };
        Self {
            batches: Vec::new(),
            told: 0,
            seen,
            first: 1,
            clone: None,
            has_remains: false,
            seq: 0,
        }
    }

    fn last(&self) -> u64 {
        self.batches.len() as u64
    }

    fn after(&self, id: u64) -> &[Vec<RowEntry>] {
        &self.batches[id as usize..]
    }
}

struct World<'a> {
    rng: fastrand::Rng,
    tally: &'a mut Tally,
    /// The objects of another database, which has the same root and name.
    other: InMemory,
}

/// A process with a writer.
struct Living {
    disk: SimDisk,
    objects: Arc<Objects>,
    place: Arc<SimPlace>,
    wals: Wals,
    wal: DatabaseWal,
    writer: Writer,
    told: Arc<Mutex<(u64, Option<WalError>)>>,
    model: Model,
}

impl Living {
    /// Opens on this disk, and compares the replayed rows with the allowed ones.
    fn begin(objects: &Arc<Objects>, model: &Model, tally: &mut Tally) -> Result<Self, String> {
        Self::begin_in(SimPlace::new(&objects.disk), objects, model.clone(), tally)
    }

    fn begin_in(
        place: Arc<SimPlace>,
        objects: &Arc<Objects>,
        mut model: Model,
        tally: &mut Tally,
    ) -> Result<Self, String> {
        let (disk, objects) = (objects.disk.clone(), Arc::clone(objects));
        let wals = Wals::in_place(place.clone(), objects.clone(), small());
        let wal = wals.of("main");
        model.seen.epoch += 1;
        let (writer, mut replayed) = now(wal.begin(&mut Manifest(model.seen)))
            .map_err(|error| format!("does not begin: {error}"))?;
        let rows = drain(&mut replayed).map_err(|error| format!("does not replay: {error}"))?;
        let shown = batches(rows);
        let expected = model.after(model.seen.replay_after);
        if shown.len() > expected.len() || shown != expected[..shown.len()] {
            return Err(format!("replayed {shown:?}, not {expected:?}"));
        }
        let last = model.seen.replay_after + shown.len() as u64;
        if last < model.told {
            return Err(format!("told {}, found {last}", model.told));
        }
        tally.lost_batches += model.last() - last;
        model.batches.truncate(last as usize);
        model.told = last;
        let status = writer.status().map_err(|status| format!("{status:?}"))?;
        if status.last_flushed_wal_id != last {
            return Err(format!("{status:?} where {last} is durable"));
        }
        let told = Arc::new(Mutex::new((last, None)));
        let listener = Arc::clone(&told);
        let hear = move |event| {
            let mut told = listener.lock().unwrap();
            match event {
                WalEvent::WalFlushed(status) => {
                    assert!(status.last_flushed_wal_id >= told.0, "told in order");
                    told.0 = status.last_flushed_wal_id;
                }
                WalEvent::WalClosed(status) => told.1 = status.closed_reason,
            }
        };
        writer.observer().subscribe(Arc::new(hear)).unwrap();
        Ok(Self { disk, objects, place, wals, wal, writer, told, model })
    }

    fn note_told(&mut self) {
        self.model.told = self.model.told.max(self.told.lock().unwrap().0);
    }
}

impl World<'_> {
    fn history(&mut self, disk: &SimDisk, calls: usize) -> Result<(), String> {
        if self.rng.bool() {
            // The other database has begun a log, and has not written.
            let objects = Objects::beside(disk, self.other.fork());
            Living::begin(&objects, &Model::new(), self.tally)?;
            self.other = objects.stored.fork();
        }
        let living = self.begin_first(&Objects::beside(disk, InMemory::new()), 0)?;
        self.go_on(living, calls, 0)
    }

    /// The first opening, which is cut everywhere, and some of those after a cut are, too.
    fn begin_first(&mut self, objects: &Arc<Objects>, depth: u32) -> Result<Living, String> {
        objects.disk.record_epochs();
        let living = Living::begin(objects, &Model::new(), self.tally)?;
        for (cut, stored) in objects.take_cuts() {
            if self.rng.u32(..1 << (4 * depth)) == 0 {
                let found = cut.sample(self.rng.u64(..));
                self.tally.states += 1;
                self.tally.cut_beginnings += 1;
                self.begin_first(&Objects::beside(&found, stored), depth + 1)
                    .map_err(|why| format!("cut within the first opening: {why}"))?;
            }
        }
        Ok(living)
    }

    fn go_on(&mut self, mut living: Living, calls: usize, depth: u32) -> Result<(), String> {
        living.objects.take_cuts();
        for _ in 0..calls {
            let before = living.model.clone();
            let (disk, objects) = (living.disk.clone(), living.objects.clone());
            let op = self.rng.u8(0..32);
            living = self.call(living, op).map_err(|why| format!("call {op}: {why}"))?;
            living.note_told();
            // Within the call: all that was reported before, and perhaps the call's own effect.
            let mut within = living.model.clone();
            within.told = before.told.min(within.told);
            within.seen = Seen { epoch: within.seen.epoch, ..before.seen };
            within.first = before.first;
            within.has_remains |= before.has_remains || before.clone.is_some();
            within.clone = before.clone;
            for (cut, stored) in objects.take_cuts() {
                self.cut(&cut, stored, &within, &living.model, depth)
                    .map_err(|why| format!("cut within call {op}: {why}"))?;
            }
            let model = living.model.clone();
            self.cut(&disk.power_cut(), objects.stored.fork(), &model, &model, depth)
                .map_err(|why| format!("cut after call {op}: {why}"))?;
        }
        now(living.writer.close()).map_err(|error| format!("does not close: {error}"))
    }

    /// A disk after the power was cut: with what `model` allows, and the manifest of `now_or_then`
    /// or of the model.
    fn cut(
        &mut self,
        cut: &PowerCut,
        stored: InMemory,
        model: &Model,
        later: &Model,
        depth: u32,
    ) -> Result<(), String> {
        let found = cut.sample(self.rng.u64(..));
        found.change_options(|options| options.rates = FaultRates::default());
        self.tally.states += 1;
        let objects = Objects::beside(&found, stored);
        // A clone that was being made is made again; one that was there has its rows.
        if let Some((after, expected)) = &later.clone {
            let wals = process(&found, &objects);
            if model.clone.is_none() {
                self.tally.cut_clones += 1;
                let last = after + expected.len() as u64;
                let again = || now(wals.of("main").clone_range(*after, last, &wals.of("clone")));
                let mut made = again();
                if let (Err(WalError::DataError(_)), true) = (&made, model.has_remains) {
                    now(wals.delete_wal(&Path::from("clone"), false)).unwrap();
                    made = again();
                }
                made.map_err(|error| format!("does not clone again: {error}"))?;
            }
            check_clone(&wals, *after, expected)?;
        }
        let mut living = Living::begin(&objects, model, self.tally)?;
        if depth < 2 && self.rng.u64(..8 << (3 * depth)) == 0 {
            self.tally.deeper += 1;
            found.record_epochs();
            living.model.clone = later.clone.clone();
            // Collection was done or not.
            if read(&living.wal, model.first, living.model.last() + 1).is_err() {
                living.model.first = later.first;
            }
            return self.go_on(living, 3, depth + 1).map_err(|why| format!("gone on: {why}"));
        }
        Ok(())
    }

    fn call(&mut self, mut living: Living, op: u8) -> Result<Living, String> {
        let text = |error: WalError| error.to_string();
        match op {
            0..12 => {
                living.model.seq += 1 + self.rng.u64(..2);
                let (seq, count) = (living.model.seq, self.rng.u64(1..4));
                let bytes = if self.rng.u8(..) < 20 { 9000 } else { self.rng.usize(..200) };
                let batch: Vec<_> = (0..count).map(|key| row(key + seq, seq, bytes)).collect();
                now(living.writer.append(&batch)).map_err(text)?;
                living.model.batches.push(batch);
            }
            12..19 => {
                let (id, completion) = parts(now(living.writer.flush()).map_err(text)?);
                let last = living.model.last();
                if id.is_some_and(|id| id != last) {
                    return Err(format!("flush says {id:?}"));
                }
                now(completion).map_err(text)?;
                living.model.told = last;
                let status = living.writer.status().map_err(|status| format!("{status:?}"))?;
                if status.last_flushed_wal_id < last || status.estimated_bytes != 0 {
                    return Err(format!("flushed, and {status:?}"));
                }
            }
            19..22 => {
                // A memtable or a checkpoint: the manifest moves to what is durable.
                let durable = living.writer.status().unwrap().last_flushed_wal_id;
                living.model.seen.next_id = durable + 1;
                if op > 19 {
                    living.model.seen.replay_after = durable;
                }
            }
            22..25 => {
                let first = living.model.seen.replay_after;
                let mut ranges = vec![WalFileRange(Bound::Included(first), Bound::Unbounded)];
                if op == 24 && living.model.first < first {
                    // A checkpoint refers to an older id.
                    let older = self.rng.u64(living.model.first..first);
                    ranges.insert(0, WalFileRange(Bound::Excluded(older), Bound::Excluded(first)));
                }
                let lowest = if ranges.len() > 1 {
                    let Bound::Excluded(older) = ranges[0].0 else { unreachable!() };
                    if older + 1 < first { older + 1 } else { first }
                } else {
                    first
                };
                let dry_run = self.rng.u8(..4) == 0;
                now(living.wal.collect(ranges, Duration::ZERO, dry_run)).map_err(text)?;
                if !dry_run {
                    living.model.first = living.model.first.max(lowest);
                    self.tally.collections += 1;
                }
                check_left(&living)?;
            }
            25..27 => {
                // Another writer comes; the old one is fenced, and has lost nothing.
                self.tally.fences += 1;
                let Living { place, objects, writer: mut old, told, mut model, .. } = living;
                model.told = model.told.max(told.lock().unwrap().0);
                living = Living::begin_in(place, &objects, model, self.tally)?;
                if living.model.last() != living.model.told {
                    return Err("the new writer has what is not durable".into());
                }
                let late = [row(1, living.model.seq + 1, 9)];
                let answers = [now(old.append(&late)).err(), now(old.flush()).err()];
                if !answers.iter().all(|answer| matches!(answer, Some(WalError::Fenced))) {
                    return Err(format!("the fenced writer answers {answers:?}"));
                }
                if !matches!(told.lock().unwrap().1, Some(WalError::Fenced)) {
                    return Err("the fenced writer told nobody".into());
                }
            }
            27 => {
                // One in another process has to wait for the lock.
                let other = process(&living.disk, &living.objects).of("main");
                let seen = Seen { epoch: living.model.seen.epoch + 1, ..living.model.seen };
                match now(other.begin(&mut Manifest(seen))) {
                    Err(WalError::Unavailable(why))
                        if why.to_string().contains("another process") => {}
                    answer => return Err(format!("two writers: {:?}", answer.err())),
                }
                match now(living.wals.delete_wal(&Path::from("main"), false)) {
                    Err(WalError::Unavailable(_)) => {}
                    answer => return Err(format!("a living log is deleted: {answer:?}")),
                }
            }
            28 => self.check_other(&living)?,
            29..31 => {
                let Seen { replay_after, next_id, .. } = living.model.seen;
                let last = (next_id - 1).max(replay_after);
                if living.model.clone.is_some() {
                    return Ok(living);
                }
                self.tally.clones += 1;
                let clone = living.wals.of("clone");
                // A crash may have left one that was being deleted.
                now(living.wals.delete_wal(&Path::from("clone"), false)).map_err(text)?;
                now(living.wal.clone_range(replay_after, last, &clone)).map_err(text)?;
                // Asked for twice, it is made once.
                now(living.wal.clone_range(replay_after, last, &clone)).map_err(text)?;
                let batches = living.model.batches[replay_after as usize..last as usize].to_vec();
                living.model.clone = Some((replay_after, batches));
                living.model.has_remains = false;
            }
            _ => {
                if living.model.clone.take().is_none() {
                    return Ok(living);
                }
                self.tally.deletions += 1;
                let path = Path::from("clone");
                let dry = now(living.wals.delete_wal(&path, true)).map_err(text)?;
                let gone = now(living.wals.delete_wal(&path, false)).map_err(text)?;
                if dry.is_empty() || dry != gone {
                    return Err(format!("dry {dry:?}, deleted {gone:?}"));
                }
                now(living.wals.delete_wal(&path, false)).map_err(text)?;
                living.model.has_remains = false;
            }
        }
        Ok(living)
    }
}

impl World<'_> {
    /// Another database does not get the log, sees no row of it, and takes none away, in the
    /// writer's process and in another one.
    fn check_other(&mut self, living: &Living) -> Result<(), String> {
        self.tally.others += 1;
        let objects = Objects::beside(&living.disk, self.other.fork());
        for place in [Arc::clone(&living.place), SimPlace::new(&living.disk)] {
            let wals = Wals::in_place(place, objects.clone(), small());
            let wal = wals.of("main");
            let wal = if self.rng.bool() { wal.begin_anew() } else { wal };
            let seen = Seen { epoch: self.rng.u64(..100), replay_after: 0, next_id: 1 };
            if let Ok((_, mut rows)) = now(wal.begin(&mut Manifest(seen))) {
                return Err(format!("another database begins, with {:?}", drain(&mut rows)));
            }
            match read(&wal, 1, u64::MAX) {
                Ok(rows) => return Err(format!("another database reads {rows:?}")),
                Err(WalError::WalTruncated(1) | WalError::DataError(_)) => {}
                Err(error) => return Err(format!("another database reads: {error}")),
            }
            if now(wal.clone_range(0, 1, &wals.of("stolen"))).is_ok() {
                return Err("another database clones a row".into());
            }
            if now(wals.delete_wal(&Path::from("main"), false)).is_ok() {
                return Err("another database deletes the log".into());
            }
            let all = WalFileRange(Bound::Included(u64::MAX), Bound::Unbounded);
            let _ = now(wal.collect(vec![all], Duration::ZERO, false));
        }
        check_left(living)
    }
}

/// What collection has left can be read, and nothing before it.
fn check_left(living: &Living) -> Result<(), String> {
    let (model, wal) = (&living.model, &living.wal);
    let durable = living.writer.status().unwrap().last_flushed_wal_id;
    let first = model.first.min(durable + 1);
    let left = read(wal, first, durable + 1).map_err(|error| format!("not left: {error}"))?;
    if left != model.batches[first as usize - 1..durable as usize] {
        return Err(format!("left from {first} to {durable}: {left:?}"));
    }
    let last = now(wal.last_wal_file_id(0)).map_err(|error| error.to_string())?;
    if last != durable {
        return Err(format!("last id {last}, durable {durable}"));
    }
    if first > 1 && first <= durable {
        match read(wal, first - 1, durable + 1) {
            Err(WalError::WalTruncated(id)) if id == first - 1 => {}
            answer => return Err(format!("collected to {first}, and before it {answer:?}")),
        }
    }
    Ok(())
}

/// A clone begins as a database of its own, and has exactly its rows.
fn check_clone(wals: &Wals, after: u64, expected: &[Vec<RowEntry>]) -> Result<(), String> {
    let end = after + expected.len() as u64 + 1;
    let seen = Seen { epoch: 1, replay_after: after, next_id: end };
    let (mut writer, mut replayed) = now(wals.of("clone").begin(&mut Manifest(seen)))
        .map_err(|error| format!("the clone does not begin: {error}"))?;
    let rows = drain(&mut replayed).map_err(|error| format!("the clone: {error}"))?;
    if batches(rows) != expected {
        return Err("the clone has other rows".into());
    }
    now(writer.close()).map_err(|error| error.to_string())
}

#[test]
fn every_crash_leaves_what_was_told() {
    let wanted = std::env::var("INKSTONE_SLATE_STATES").map_or(4_000, |n| n.parse().unwrap());
    let mut tally = Tally::default();
    let mut seed = std::env::var("INKSTONE_SLATE_SEED").map_or(0, |n| n.parse().unwrap());
    while tally.states < wanted {
        let disk = SimDisk::new(seed, DiskOptions::default());
        let (rng, other) = (fastrand::Rng::with_seed(seed), InMemory::new());
        let mut world = World { rng, tally: &mut tally, other };
        if let Err(why) = world.history(&disk, 60) {
            panic!("seed {seed}: {why}\n{tally:?}");
        }
        seed += 1;
    }
    println!("{seed} histories, 0 bad: {tally:?}");
    assert!(
        tally.deeper > wanted / 100
            && tally.fences > 20
            && tally.collections > 20
            && tally.clones > 5
            && tally.deletions > 2
            && tally.cut_clones > 5
            && tally.cut_beginnings > 20
            && tally.others > 20
            && tally.lost_batches > 20,
        "{tally:?}"
    );
}

/// Writes, flushes and collects until the disk fails. Then no call waits for ever, the listeners
/// get the reason once and last, and every reported batch is there.
fn fail(seed: u64, failed: &mut u32) -> Result<(), String> {
    // No log survives a sync that reports success and saves nothing.
    let after = [AfterEffect::KeepsNew, AfterEffect::RevertsToOld][seed as usize % 2];
    let options = DiskOptions { after_effect: Some(after), ..DiskOptions::default() };
    let (disk, mut rng) = (SimDisk::new(seed, options), fastrand::Rng::with_seed(seed));
    let model = Model::new();
    let objects = Objects::beside(&disk, InMemory::new());
    let mut living = Living::begin(&objects, &model, &mut Tally::default())?;
    let ends = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&ends);
    let count = move |event| *counted.lock().unwrap() += u32::from(is_end(&event));
    living.writer.observer().subscribe(Arc::new(count)).unwrap();
    disk.change_options(|options| match seed % 5 {
        0 => options.rates.write_error_ppm = 50_000,
        1 => options.rates.sync_error_ppm = 50_000,
        2 => options.rates.no_space_ppm = 50_000,
        3 => options.rates.directory_error_ppm = 200_000,
        _ => (options.rates.short_ppm, options.rates.write_error_ppm) = (50_000, 10_000),
    });
    let (mut flushes, mut batches, mut error) = (Vec::new(), 0, None);
    while error.is_none() && batches < 200 {
        error = match rng.u8(0..10) {
            0..6 => {
                let batch = [row(1, batches + 1, rng.usize(..3000))];
                let refused = now(living.writer.append(&batch)).err();
                batches += u64::from(refused.is_none());
                refused
            }
            6..8 => match now(living.writer.flush()) {
                Ok(flush) => {
                    flushes.push((batches, parts(flush).1));
                    None
                }
                Err(error) => Some(error),
            },
            8 => match flushes.pop() {
                Some((id, completion)) => match now(completion) {
                    Ok(()) => {
                        living.model.told = living.model.told.max(id);
                        None
                    }
                    Err(error) => Some(error),
                },
                None => None,
            },
            _ => {
                let all = WalFileRange(Bound::Included(1), Bound::Unbounded);
                now(living.wal.collect(vec![all], Duration::ZERO, false)).ok();
                None
            }
        };
    }
    if let Some(error) = &error {
        *failed += 1;
        if !error.to_string().contains("/wal/main") {
            return Err(format!("the error names no path: {error}"));
        }
        // A batch that will not be durable ends the writer by itself.
        if let Ok(status) = living.writer.status()
            && error.to_string().contains("poisoned")
            && batches > status.last_flushed_wal_id
        {
            return Err(format!("{batches} batches, {status:?} after {error}"));
        }
    }
    let closed = now(living.writer.close());
    for (id, completion) in flushes {
        if now(completion).is_ok() {
            living.model.told = living.model.told.max(id);
        }
    }
    living.note_told();
    let reason = living.told.lock().unwrap().1.clone();
    if *ends.lock().unwrap() != 1 || matches!(reason, Some(WalError::Closed)) != closed.is_ok() {
        return Err(format!("{ends:?} ends for {reason:?}, closed: {closed:?}"));
    }
    let Err(status) = living.writer.status() else { return Err("open after the end".into()) };
    if status.last_flushed_wal_id < living.model.told
        || (status.buffered_wal_entries_count, status.estimated_bytes) != (0, 0)
    {
        return Err(format!("told {}, and {status:?}", living.model.told));
    }
    let told = living.model.told;
    drop(living);
    let crashed = disk.crash(seed);
    for disk in [disk, crashed] {
        disk.change_options(|options| options.rates = FaultRates::default());
        let wal = process(&disk, &objects).of("main");
        let begin = || now(wal.begin(&mut Manifest(Seen { epoch: 2, ..model.seen })));
        // A failed sync may be reported to the next caller that syncs the file.
        let (_writer, mut replayed) = begin()
            .or_else(|_| begin())
            .or_else(|_| begin())
            .map_err(|error| format!("does not begin: {error}"))?;
        let rows = drain(&mut replayed).map_err(|error| error.to_string())?;
        let ids = 1..=rows.len() as u64;
        if (rows.len() as u64) < told || !rows.iter().map(|row| row.seq).eq(ids) {
            return Err(format!("told {told}, found {}", rows.len()));
        }
    }
    Ok(())
}

fn is_end(event: &WalEvent) -> bool {
    matches!(event, WalEvent::WalClosed(_))
}

#[test]
fn a_disk_that_fails_loses_nothing_that_was_told() {
    let mut failed = 0;
    for seed in 0..300 {
        fail(seed, &mut failed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(failed > 150, "{failed} failed");
}
