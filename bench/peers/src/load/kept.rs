//! Streams that are there already: the memory that they take, opening them, and reading one that is
//! spread over a long log.
//!
//! *Owns*: what is filled and how each is checked. *May not touch*: how a store opens or reads.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::plan::{Cache, Load, Plan, helper, made};
use crate::engine::Kind;
use crate::many::{Many, ManyKind, Wait, fill, open};
use crate::record::{Checker, Record};
use crate::result::{LoadResult, Unit};
use crate::rounds::{self, Contestant, Finish, Made};
use crate::threads::Turn;

/// Many streams of a few records, and fewer of many.
const MANY: u32 = 100_000;
const FEW: u64 = 10;
const FEWER: u32 = 1_000;
const LONG: u64 = 100_000;
/// So that [`MANY`] streams make a log of 1 GiB.
const OPENED_RECORD_BYTES: usize = 1_024;
const RECORD_BYTES: usize = 128;
/// Of the streams that were opened, one of so many is read and compared.
const COMPARE_EVERY: usize = 100;

/// The stream that is read: so many records, in a log of so many segments.
const THIN: u64 = 10_000;
const SEGMENTS: u64 = 100;
const SEGMENT_BYTES: u64 = 64 << 20;
/// Streams that fill the log between two of its records.
const OTHERS: u32 = 10;

/// The log, which learns where its records lie by reading them.
const KNOWN: &str = "inkstone again";

/// Each engine of the run that has streams.
fn all(plan: &Plan, one: impl Fn(ManyKind) -> Result<Box<dyn Contestant>>) -> Vec<Made> {
    let kinds = plan.engines.iter().filter_map(|&engine| ManyKind::of(engine));
    kinds.map(|kind| one(kind).map_err(|error| (kind.name().into(), error))).collect()
}

fn finish(result: LoadResult, unit: Unit) -> LoadResult {
    LoadResult { unit, ..result }
}

/// A process that fills a store and says how much memory it has taken.
struct Holding {
    kind: ManyKind,
    path: PathBuf,
    streams: u32,
    records: u64,
    /// What a store takes that is empty.
    empty_bytes: u64,
}

impl Holding {
    fn new(plan: &Plan, kind: ManyKind, streams: u32, records: u64) -> Result<Self> {
        let path = plan.directory.join(format!("hold-{}", kind.name()));
        let mut one = Self { kind, path, streams: 1, records: 0, empty_bytes: 0 };
        one.empty_bytes = one.held_bytes()?;
        Ok(Self { streams, records, ..one })
    }

    fn held_bytes(&self) -> Result<u64> {
        let path = self.path.to_str().context("a path that is UTF-8")?;
        let (streams, records) = (self.streams.to_string(), self.records.to_string());
        let bytes = RECORD_BYTES.to_string();
        let said = helper(&["hold", self.kind.name(), path, &streams, &records, &bytes])
            .and_then(|(_process, said)| Ok(said.parse()?));
        if self.path.exists() {
            std::fs::remove_dir_all(&self.path)?;
        }
        said
    }
}

impl Contestant for Holding {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn rest(&mut self) -> Result<()> {
        Ok(())
    }

    fn turn(&mut self, _: Duration) -> Result<Turn> {
        Ok(Turn::figure(self.held_bytes()?))
    }

    fn finish(self: Box<Self>) -> Result<Finish> {
        let empty = self.empty_bytes as f64 / f64::from(1 << 20);
        let how = format!("an empty one has {empty:.1} MiB of it");
        Ok(Finish { how, ..Finish::default() })
    }
}

pub fn memory(plan: &Plan, load: &Load, is_long: bool) -> LoadResult {
    let (streams, records) = match is_long {
        true => (FEWER, (LONG / plan.divide).max(1)),
        false => ((u64::from(MANY) / plan.divide) as u32, FEW),
    };
    let one = |kind| -> Result<Box<dyn Contestant>> {
        Ok(Box::new(Holding::new(plan, kind, streams, records)?))
    };
    let notes = vec![format!(
        "resident memory of a process that has written {streams} streams of {records} records, \
         less what it had before it opened them"
    )];
    finish(load.result(RECORD_BYTES, rounds::run(&plan.pace, all(plan, one)), notes), Unit::Mib)
}

/// Streams that are opened.
struct Opening {
    kind: ManyKind,
    path: PathBuf,
    streams: u32,
    cache: Cache,
    compared: u64,
}

impl Opening {
    fn new(plan: &Plan, kind: ManyKind, cache: Cache) -> Result<Self> {
        let path = plan.directory.join(format!("open-{}", kind.name()));
        let streams = (u64::from(MANY) / plan.divide) as u32;
        if !path.exists() {
            let many = open(kind, &path, streams)?;
            fill(&*many, streams, FEW, OPENED_RECORD_BYTES)?;
            many.close()?;
        }
        Ok(Self { kind, path, streams, cache, compared: 0 })
    }
}

impl Contestant for Opening {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn rest(&mut self) -> Result<()> {
        self.cache.prepare(&self.path)
    }

    fn turn(&mut self, _: Duration) -> Result<Turn> {
        let begin = Instant::now();
        let many = open(self.kind, &self.path, self.streams)?;
        let took = begin.elapsed();
        for stream in 0..self.streams {
            let bounds = many.bounds(stream)?;
            ensure!(bounds == (0, FEW), "stream {stream} has the records {bounds:?}");
        }
        for stream in (0..self.streams).step_by(COMPARE_EVERY) {
            let mut checker = Checker::new(self.streams, OPENED_RECORD_BYTES, true);
            many.read(stream, &mut |record| checker.see(record))?;
            checker.so_far()?;
            ensure!(checker.has(stream, FEW), "stream {stream} cannot be read to its end");
            self.compared += FEW;
        }
        many.close()?;
        Ok(Turn::figure(took.as_nanos() as u64))
    }

    fn finish(self: Box<Self>) -> Result<Finish> {
        let how = open(self.kind, &self.path, self.streams)?.how();
        Ok(Finish { how, notes: None, checked: Some(self.compared) })
    }
}

pub fn opening(plan: &Plan, load: &Load, cache: Cache) -> LoadResult {
    let one =
        |kind| -> Result<Box<dyn Contestant>> { Ok(Box::new(Opening::new(plan, kind, cache)?)) };
    let contestants = all(plan, one);
    let streams = u64::from(MANY) / plan.divide;
    let notes = vec![format!(
        "{streams} streams of {FEW} records; after each opening the bounds of all are compared, \
         and each {COMPARE_EVERY}th is read"
    )];
    finish(
        load.result(OPENED_RECORD_BYTES, rounds::run(&plan.pace, contestants), notes),
        Unit::Milliseconds,
    )
}

/// One stream that is read, of which each record lies far from the next.
struct Thin {
    kind: ManyKind,
    path: PathBuf,
    count: u64,
    cache: Cache,
    /// Whether it was read since it was opened, before a turn.
    is_known: bool,
    many: Option<Box<dyn Many>>,
    compared: u64,
}

impl Thin {
    fn new(plan: &Plan, kind: ManyKind, cache: Cache, is_known: bool) -> Result<Self> {
        let path = plan.directory.join(format!("thin-{}", kind.name()));
        let count = THIN / plan.divide;
        if !path.exists() {
            let many = open(kind, &path, OTHERS + 1)?;
            // What a record takes beside its bytes is a thousandth here.
            let other_bytes = SEGMENTS * SEGMENT_BYTES / THIN / u64::from(OTHERS);
            let mut record = Record::new(0, RECORD_BYTES);
            let mut others: Vec<_> =
                (1..=OTHERS).map(|stream| Record::new(stream, other_bytes as usize)).collect();
            let mut writer = many.writer();
            for _ in 0..count {
                writer.append(&[(0, record.advance())], Wait::Nothing)?;
                for (stream, other) in (1..).zip(&mut others) {
                    let wait = if stream == OTHERS { Wait::Durable } else { Wait::Nothing };
                    writer.append(&[(stream, other.advance())], wait)?;
                }
            }
            drop(writer);
            many.close()?;
        }
        Ok(Self { kind, path, count, cache, is_known, many: None, compared: 0 })
    }
}

impl Contestant for Thin {
    fn name(&self) -> &str {
        if self.is_known { KNOWN } else { self.kind.name() }
    }

    /// Opened anew, so that it remembers no earlier turn; opening may have cached what it read.
    fn rest(&mut self) -> Result<()> {
        let many = open(self.kind, &self.path, OTHERS + 1)?;
        if self.is_known {
            many.read(0, &mut |_| ())?;
        }
        self.many = Some(many);
        self.cache.prepare(&self.path)
    }

    fn turn(&mut self, _: Duration) -> Result<Turn> {
        let many = self.many.take().context("it was not opened")?;
        let mut checker = Checker::new(1, RECORD_BYTES, true);
        let begin = Instant::now();
        many.read(0, &mut |record| checker.see(record))?;
        let total_ns = begin.elapsed().as_nanos() as u64;
        let commits = checker.finish_all(&[self.count])?;
        self.compared += commits;
        many.close()?;
        Ok(Turn { commits, total_ns, ..Turn::default() })
    }

    fn finish(self: Box<Self>) -> Result<Finish> {
        let how = open(self.kind, &self.path, OTHERS + 1)?.how();
        Ok(Finish { how, notes: None, checked: Some(self.compared) })
    }
}

pub fn thin(plan: &Plan, load: &Load, cache: Cache) -> LoadResult {
    let one = |kind| -> Result<Box<dyn Contestant>> {
        Ok(Box::new(Thin::new(plan, kind, cache, false)?))
    };
    let mut contestants = all(plan, one);
    if plan.engines.contains(&Kind::Inkstone) {
        contestants.push(made(KNOWN, Thin::new(plan, ManyKind::Inkstone, cache, true)));
    }
    let notes = vec![format!(
        "one stream of {} records in a log of {} segments of 64 MiB, {} KiB of {OTHERS} other \
         streams between two of them; opened before, outside the clock",
        THIN / plan.divide,
        SEGMENTS / plan.divide,
        (SEGMENTS * SEGMENT_BYTES / THIN) >> 10,
    )];
    load.result(RECORD_BYTES, rounds::run(&plan.pace, contestants), notes)
}
