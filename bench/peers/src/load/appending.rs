//! A contestant that appends: an engine or the floor, proved, aged, measured, checked.
//!
//! *Owns*: the state in which an engine is measured, and what is asked of it before and after. *May
//! not touch*: the timed loops (`crate::threads`), the rounds (`crate::rounds`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::plan::{FLOOR, Plan, made};
use crate::engine::{Engine, Kind, Purpose, Reading, Setup};
use crate::engines::{open, read_all};
use crate::many::{self, ManyKind, Spread};
use crate::record::{Checker, Record};
use crate::rounds::{Contestant, Finish, Made};
use crate::threads::{Manner, Turn, run};

/// Bytes of records that go in before the first round, so that an engine that recycles has come
/// round.
const AGE_BYTES: u64 = 320 << 20;
/// The same for many streams: all have what they keep then.
const MANY_BYTES: u64 = 160 << 20;
/// The same for a log that only grows: it has segments of full size then.
const GROW_BYTES: u64 = 96 << 20;
/// Aging goes in steps, with a rest after each: an engine that makes files ready beside its writers
/// is to keep up.
const STEP_BYTES: u64 = 8 << 20;
/// Where a load waits for each record, aging syncs this often: a log whose groups are large makes
/// its segments ready in another way, and would come into another state.
const GROUP_BYTES: usize = 64 << 10;
/// So much, or so long, of a load's own manner must be there whole when an engine is opened again.
const PROOF_BYTES: u64 = 8 << 20;
/// A turn outside the clock, in the manner that is measured.
const WARM_UP: Duration = Duration::from_millis(200);
/// Records at the end that are waited for: there is something to check, whatever the engine has
/// given up.
const LAST_RECORDS: u64 = 100;

/// Opens an engine, or a floor, in a directory of its own.
type Open = Box<dyn Fn(&Path) -> Result<Box<dyn Engine>>>;

/// Compares every record that is in a directory, of which each thread was acknowledged so many;
/// `true`: nothing may have been given up.
type ReadBack = Box<dyn Fn(&Path, &[u64], bool) -> Result<u64>>;

/// A contestant that appends.
pub struct Appending {
    name: String,
    /// `None`: a floor, in which there is nothing to check.
    read_back: Option<ReadBack>,
    open: Open,
    /// How many of the threads age it.
    aging_threads: usize,
    path: PathBuf,
    manner: Manner,
    engine: Option<Box<dyn Engine>>,
    records: Vec<Record>,
    record_bytes: usize,
    /// Whether each turn begins in a directory of its own, made outside the clock.
    is_fresh: bool,
    /// Whether there was a turn since it was opened.
    has_turned: bool,
    /// Whether what a turn left was read back.
    has_checked: bool,
    /// Records read back.
    checked: u64,
}

/// What an [`Appending`] is made of, beside its engine.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub threads: u32,
    pub record_bytes: usize,
    pub manner: Manner,
    pub is_fresh: bool,
}

impl Appending {
    /// An engine, aged.
    pub fn engine(plan: &Plan, name: &str, kind: Kind, setup: Setup, shape: Shape) -> Result<Self> {
        let read_back = read_back(kind, shape.record_bytes);
        let open: Open = Box::new(move |path| open(kind, path, setup));
        Self::unopened(&plan.directory, name, Some(read_back), open, shape).begun()
    }

    /// Many streams, aged by all threads: each has its own.
    pub fn many(plan: &Plan, name: &str, kind: ManyKind, spread: Spread) -> Result<Self> {
        let Spread { threads, record_bytes, .. } = spread;
        let shape = Shape { threads, record_bytes, manner: Manner::Closed, is_fresh: false };
        let open: Open = Box::new(move |path| many::open_in_turn(kind, path, spread));
        let read_back: ReadBack = Box::new(move |path, acknowledged, _| {
            many::read_back(kind, path, spread, acknowledged)
        });
        let mut one = Self::unopened(&plan.directory, name, Some(read_back), open, shape);
        one.aging_threads = threads as usize;
        one.begun()
    }

    /// The floor.
    pub fn floor(plan: &Plan, write_bytes: usize, is_durable: bool, shape: Shape) -> Result<Self> {
        let strategy = plan.strategy;
        let open: Open = Box::new(move |path| {
            Ok(Box::new(crate::floor::Bare::open(path, strategy, write_bytes, is_durable)?))
        });
        Self::unopened(&plan.directory, FLOOR, None, open, shape).begun()
    }

    fn begun(mut self) -> Result<Self> {
        self.prove()?;
        self.begin()?;
        Ok(self)
    }

    fn unopened(
        directory: &Path,
        name: &str,
        read_back: Option<ReadBack>,
        open: Open,
        shape: Shape,
    ) -> Self {
        /// Each has a directory that nobody had before.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Shape { threads, record_bytes, manner, is_fresh } = shape;
        Self {
            name: name.into(),
            read_back,
            open,
            aging_threads: 1,
            path: directory.join(format!(
                "{}-{}",
                name.replace(' ', "-"),
                NEXT.fetch_add(1, Ordering::Relaxed)
            )),
            manner,
            engine: None,
            records: Record::all(threads, record_bytes),
            record_bytes,
            is_fresh,
            has_turned: false,
            has_checked: false,
            checked: 0,
        }
    }

    /// Opens it, and brings it into the state that is measured.
    fn begin(&mut self) -> Result<()> {
        let engine = (self.open)(&self.path)?;
        self.records = Record::all(self.records.len() as u32, self.record_bytes);
        if self.read_back.is_some() {
            self.age(&*engine)?;
        }
        if !self.is_fresh {
            run(&*engine, &mut self.records, self.manner, WARM_UP)?;
        }
        engine.rest()?;
        self.engine = Some(engine);
        self.has_turned = false;
        Ok(())
    }

    /// Everything that such an engine acknowledged in this manner is there when it is opened again:
    /// shown in a directory of its own, before anything is given up.
    fn prove(&mut self) -> Result<()> {
        let Some(read_back) = &self.read_back else { return Ok(()) };
        let path = self.path.with_extension("proof");
        let engine = (self.open)(&path)?;
        let manner = match self.manner {
            // In its own manner a turn of large records would give up the first ones.
            Manner::Closed if self.record_bytes >= GROUP_BYTES => {
                Manner::Grouped { bytes_max: PROOF_BYTES, records: 1 }
            }
            Manner::Closed => self.manner,
            _ => Manner::Open { bytes_max: PROOF_BYTES },
        };
        run(&*engine, &mut self.records, manner, WARM_UP)?;
        engine.close()?;
        let count = read_back(&path, &counts(&self.records), true);
        let count = count.context("the check before the rounds")?;
        self.checked += count;
        Ok(std::fs::remove_dir_all(&path)?)
    }

    fn age(&mut self, engine: &dyn Engine) -> Result<()> {
        let aging = self.records.get_mut(..self.aging_threads).context("at least one thread")?;
        let bytes = match self.aging_threads {
            1 if self.is_fresh => GROW_BYTES,
            1 => AGE_BYTES,
            _ => MANY_BYTES,
        };
        let manner = match self.manner {
            Manner::Closed => {
                let all_bytes = self.record_bytes * self.aging_threads;
                let records = (GROUP_BYTES / all_bytes).max(1) as u64;
                Manner::Grouped { bytes_max: STEP_BYTES, records }
            }
            _ => Manner::Open { bytes_max: STEP_BYTES },
        };
        for _ in 0..bytes / STEP_BYTES {
            run(engine, aging, manner, Duration::from_secs(30))?;
            engine.rest()?;
        }
        Ok(())
    }

    fn opened(&self) -> Result<&dyn Engine> {
        self.engine.as_deref().context("it was not opened")
    }

    /// A turn.
    pub fn run(&mut self, time: Duration) -> Result<Turn> {
        self.has_turned = true;
        let engine = self.engine.as_deref().context("it was not opened")?;
        let before = engine.groups();
        let turn = run(engine, &mut self.records, self.manner, time)?;
        let groups = engine.groups().zip(before).map(|(after, before)| after.count - before.count);
        Ok(Turn { groups, ..turn })
    }

    /// Mean bytes of a commit's write in the manner that is measured, in whole blocks; `None` if
    /// the engine does not tell.
    pub fn write_bytes(&mut self) -> Result<Option<usize>> {
        const BLOCK_BYTES: usize = inkstone_io::BLOCK_BYTES;
        let Some(before) = self.opened()?.groups() else { return Ok(None) };
        self.turn(WARM_UP)?;
        let Some(after) = self.opened()?.groups() else { return Ok(None) };
        let mean = (after.bytes - before.bytes) as f64 / (after.count - before.count).max(1) as f64;
        let blocks = (mean / BLOCK_BYTES as f64).round() as usize;
        Ok(Some(blocks.max(1) * BLOCK_BYTES))
    }

    /// Closes it, opens it again, and compares every record that it has.
    fn check(&mut self) -> Result<()> {
        let (Some(engine), Some(read_back)) = (self.engine.take(), &self.read_back) else {
            return Ok(());
        };
        {
            let mut writer = engine.writer(0)?;
            let record = self.records.first_mut().context("at least one thread")?;
            for _ in 0..LAST_RECORDS {
                writer.append_durable(record.advance())?;
            }
        }
        engine.close()?;
        self.checked += read_back(&self.path, &counts(&self.records), self.is_fresh)?;
        self.has_checked = true;
        Ok(())
    }
}

/// How many records each thread had.
fn counts(records: &[Record]) -> Vec<u64> {
    records.iter().map(Record::count).collect()
}

/// Of an engine whose records are those of its threads.
fn read_back(kind: Kind, record_bytes: usize) -> ReadBack {
    Box::new(move |path, acknowledged, all| {
        let mut checker = Checker::new(acknowledged.len() as u32, record_bytes, true);
        read_all(kind, path, Reading::Default, &mut checker)?;
        if all { checker.finish_all(acknowledged) } else { checker.finish(acknowledged) }
    })
}

/// The engines of the run for such a load, each aged.
pub fn engines(plan: &Plan, purpose: Purpose, shape: Shape) -> Vec<Made> {
    let setup = Setup::plain(shape.record_bytes, purpose);
    let one =
        |&kind: &Kind| made(kind.name(), Appending::engine(plan, kind.name(), kind, setup, shape));
    plan.engines.iter().map(one).collect()
}

impl Drop for Appending {
    fn drop(&mut self) {
        self.engine = None;
        // What cannot be removed goes with the working directory.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Contestant for Appending {
    fn name(&self) -> &str {
        &self.name
    }

    fn rest(&mut self) -> Result<()> {
        if self.is_fresh && self.has_turned {
            if !self.has_checked {
                self.check()?;
            }
            self.engine = None;
            std::fs::remove_dir_all(&self.path)?;
            self.begin()?;
        }
        Ok(())
    }

    fn calm(&mut self) -> Result<()> {
        self.opened()?.rest()
    }

    fn turn(&mut self, time: Duration) -> Result<Turn> {
        self.run(time)
    }

    fn finish(mut self: Box<Self>) -> Result<Finish> {
        let engine = self.opened()?;
        let mut finish = Finish { how: engine.how(), notes: engine.notes(), checked: None };
        self.check()?;
        finish.checked = self.read_back.as_ref().map(|_| self.checked);
        Ok(finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Writer;

    /// Says yes to everything.
    struct Nothing;

    impl Engine for Nothing {
        fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
            Ok(Box::new(Nothing))
        }

        fn how(&self) -> String {
            "nothing is done".into()
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    impl Writer for Nothing {
        fn append(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn append_durable(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn proved(kind: Kind, open: Open, purpose: Purpose, manner: Manner) -> Result<u64> {
        let directory = std::env::temp_dir().join(format!(
            "bench-peers-{}-{}-{purpose:?}",
            std::process::id(),
            kind.name()
        ));
        let threads = if manner == Manner::Closed { 8 } else { 1 };
        let shape = Shape { threads, record_bytes: 128, manner, is_fresh: false };
        let mut one = Appending::unopened(
            &directory,
            kind.name(),
            Some(read_back(kind, shape.record_bytes)),
            open,
            shape,
        );
        let done = one.prove();
        let _ = std::fs::remove_dir_all(&directory);
        done.map(|()| one.checked)
    }

    #[test]
    fn every_engine_gives_back_what_it_acknowledged() {
        for kind in Kind::ALL {
            if let Some(why) = kind.missing() {
                eprintln!("NOT TESTED: {}: {why}", kind.name());
                continue;
            }
            for (purpose, manner) in [
                (Purpose::Durable, Manner::Closed),
                (Purpose::Unsynced, Manner::Open { bytes_max: 1 << 20 }),
            ] {
                let setup = Setup::plain(128, purpose);
                let seen =
                    proved(kind, Box::new(move |path| open(kind, path, setup)), purpose, manner);
                let seen =
                    seen.unwrap_or_else(|error| panic!("{} {purpose:?}: {error:#}", kind.name()));
                assert!(seen > 0, "{} {purpose:?}", kind.name());
            }
        }
    }

    #[test]
    fn an_engine_that_does_nothing_is_found_out() {
        let open: Open = Box::new(|path| {
            std::fs::create_dir_all(path)?;
            Ok(Box::new(Nothing))
        });
        let error = proved(Kind::Okaywal, open, Purpose::Stream, Manner::Closed)
            .expect_err("nothing is there");
        assert!(format!("{error:#}").contains("records acknowledged"), "{error:#}");
    }
}
