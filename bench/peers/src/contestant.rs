//! Who appends: proved, aged, measured in turns, checked at the end.
//!
//! *Owns*: the state in which a store is measured, what is asked of it before and after. *May not
//! touch*: the timed loops (`turn`), the rounds (`inkstone-lab`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use inkstone_host::{BlockStat, Helper, block_stat};
use inkstone_lab::histogram::Recorder;
use inkstone_lab::progress::Progress;
use inkstone_lab::result::{Figure, Unit, Way, figure};
use inkstone_lab::rounds::{Sample, TakesTurns, Turn};
use inkstone_lab::stage::{Session, WayError};

use crate::load::Load;
use crate::record::{Checker, Source};
use crate::store::{Setup, Store, Work};
use crate::stores::{Kind, Subject};
use crate::turn::{Turned, Worker, age, run};

/// Bytes of records that go in before the first round. A log gives files back to itself only once
/// it has segments of full size, so this is more than what it keeps by several of them.
const AGE_BYTES: usize = 768 << 20;
/// A turn in which nothing is given up ends here.
pub const GROWING_BYTES_MAX: u64 = 512 << 20;
/// So much, or so long, of a load's own work must be there whole when a store is opened again: less
/// than it keeps.
const PROOF_BYTES: u64 = 8 << 20;
/// A turn outside the clock.
const WARM_UP: Duration = Duration::from_millis(200);
/// Records at the end of each thread: there is something to check, whatever was given up.
const LAST_RECORDS: u32 = 2;
/// Of the flushes that a turn needs at least: its first and last commits may lie across its ends.
const COVERED_MIN: f64 = 0.95;

/// Opens a store, or makes it, in a directory.
type Open = fn(Subject, Kind, &Path, Setup) -> Result<Box<dyn Store>>;

/// One way of a load.
pub struct Contestant<'a> {
    load: &'a Load,
    engine: Kind,
    setup: Setup,
    path: PathBuf,
    /// [`Subject::open`].
    open: Open,
    /// Processes that spin during each turn, and pause now.
    spinners: &'a [Helper],
    /// Whether what is durable takes a flush of the device here: a volatile cache, and no FUA.
    needs_flushes: bool,
    /// `None` before it begins, and when it has ended.
    store: Option<Box<dyn Store>>,
    workers: Vec<Worker>,
    latency: Recorder,
    checked: u64,
    how: String,
}

impl<'a> Contestant<'a> {
    /// In a directory of its own below this one.
    pub fn new(
        directory: &Path,
        load: &'a Load,
        engine: Kind,
        spinners: &'a [Helper],
        needs_flushes: bool,
    ) -> Self {
        Self {
            load,
            engine,
            setup: load.setup(),
            path: directory.join(engine.name()),
            open: Subject::open,
            spinners,
            needs_flushes,
            store: None,
            workers: Vec::new(),
            latency: Recorder::new(),
            checked: 0,
            how: String::new(),
        }
    }

    /// Shows that it gives back what it acknowledges, and brings its store into the state that is
    /// measured.
    ///
    /// # Errors
    /// It does not, or cannot be opened.
    pub fn begin(mut self) -> Result<Self> {
        if self.has_records() {
            self.prove()?;
        }
        let store = self.opened(&self.path, self.setup)?;
        self.workers = self.fresh_workers();
        if self.has_records() {
            age(&*store, &mut self.workers, self.load.work, AGE_BYTES)?;
        }
        run(&*store, &mut self.workers, self.load.work, WARM_UP, GROWING_BYTES_MAX)?;
        store.rest();
        self.store = Some(store);
        Ok(self)
    }

    /// A floor has none.
    fn has_records(&self) -> bool {
        self.engine != Kind::Bare
    }

    fn opened(&self, path: &Path, setup: Setup) -> Result<Box<dyn Store>> {
        (self.open)(self.load.subject, self.engine, path, setup)
    }

    fn fresh_workers(&self) -> Vec<Worker> {
        let Setup { record_bytes, lanes, .. } = self.setup;
        let source = |thread| Source::new(thread, self.load.threads, lanes, record_bytes);
        let worker = |thread| Worker { source: source(thread), latency: Recorder::new() };
        (0..self.load.threads).map(worker).collect()
    }

    /// Everything that it acknowledged in the load's own manner is there when it is opened again:
    /// shown in a directory of its own, before anything is given up.
    fn prove(&mut self) -> Result<()> {
        let path = self.path.with_extension("proof");
        let (store, mut workers) = (self.opened(&path, self.setup)?, self.fresh_workers());
        run(&*store, &mut workers, self.load.work, WARM_UP, PROOF_BYTES)?;
        store.close()?;
        let count = self.read_back(&path, &workers, true);
        self.checked += count.context("the check before the rounds")?;
        Ok(std::fs::remove_dir_all(&path)?)
    }

    /// Opens it again, and compares every record that it has. `all`: nothing may have been given
    /// up.
    fn read_back(&self, path: &Path, workers: &[Worker], all: bool) -> Result<u64> {
        let mut acknowledged = vec![0; self.setup.lanes as usize];
        workers.iter().for_each(|worker| worker.source.count_into(&mut acknowledged));
        let store = self.opened(path, Setup { work: Work::Read, ..self.setup })?;
        let mut seen = Checker::new(acknowledged.len(), self.setup.record_bytes);
        for lane in 0..store.lanes() {
            store.read(lane, 0, &mut seen)?;
        }
        store.close()?;
        seen.finish(&acknowledged, all)
    }

    fn take_turn(&mut self, turn: &Turn<'_>) -> Result<Sample> {
        let store = self.store.as_deref().context("it has ended")?;
        self.workers.iter_mut().for_each(|worker| worker.latency.clear());
        turn.session.settle();
        self.spinners.iter().try_for_each(Helper::resume)?;
        let stat = || block_stat(turn.session.device?).ok();
        let before = stat();
        let most_bytes = if self.setup.keep().is_none() { GROWING_BYTES_MAX } else { u64::MAX };
        let turned = run(store, &mut self.workers, self.load.work, turn.time, most_bytes);
        let device = stat().zip(before).map(|(after, before)| after.since(&before));
        self.spinners.iter().try_for_each(Helper::pause)?;
        let turned = turned?;
        store.rest();
        if let Some(flushes) = device.as_ref().and_then(|device| device.flushes) {
            // The device's counters are of everybody: this catches a store only where nobody else
            // flushes as much.
            ensure!(
                !self.needs_flushes || can_be_durable(&turned, flushes),
                "{} records acknowledged with {flushes} flushes of the device, where {} are the \
                 fewest that can make them durable",
                turned.commits,
                turned.flushes_min
            );
        }
        self.workers.iter().for_each(|worker| self.latency.merge(&worker.latency));
        let Turned { commits, total_ns, cpu_ns, .. } = turned;
        Ok(Sample::of(commits, total_ns).with(figures(commits, cpu_ns, device)))
    }

    /// Its end: everything that was acknowledged is there.
    fn check(&mut self) -> Result<()> {
        let store = self.store.take().context("it has ended")?;
        self.how = store.how();
        if !self.has_records() {
            return store.close();
        }
        {
            let mut writer = store.writer(0)?;
            for worker in &mut self.workers {
                for _ in 0..LAST_RECORDS {
                    let (lane, record) = worker.source.advance();
                    writer.append_durable(lane, record)?;
                }
            }
        }
        store.close()?;
        let count = self.read_back(&self.path, &self.workers, self.setup.keep().is_none());
        self.checked += count.context("the check after the rounds")?;
        Ok(())
    }
}

/// Whether so many flushes of the device can have made durable what a turn acknowledged.
fn can_be_durable(turned: &Turned, flushes: u64) -> bool {
    flushes as f64 >= turned.flushes_min as f64 * COVERED_MIN
}

/// What a record took of the processors, and of the device by the device's own counters, which are
/// of everybody.
pub fn figures(records: u64, cpu_ns: u64, device: Option<BlockStat>) -> Vec<Figure> {
    let each = |total: u64| total as f64 / records.max(1) as f64;
    let mut all = vec![figure("CPU", Unit::NsPerOp, each(cpu_ns))];
    if let Some(device) = device {
        // The kernel counts a request for a flush among the writes.
        let flushes = device.flushes.unwrap_or(0);
        all.push(figure("flushes", Unit::PerOp, each(flushes)));
        all.push(figure("writes", Unit::PerOp, each(device.writes.saturating_sub(flushes))));
        all.push(figure("written", Unit::Bytes, each(device.write_sectors * 512)));
        all.push(figure("read", Unit::Bytes, each(device.read_sectors * 512)));
    }
    all
}

/// The lab's error.
pub fn refused(error: anyhow::Error) -> WayError {
    WayError::Invalid(format!("{error:#}"))
}

impl TakesTurns for Contestant<'_> {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        self.take_turn(turn).map_err(refused)
    }

    /// After the rounds: who fails it takes part in no comparison.
    fn count(&mut self, _: &Session<'_>, _: &mut Progress) -> Result<(), WayError> {
        self.check().map_err(refused)
    }

    fn finish(&mut self, way: &mut Way, notes: &mut Vec<String>) {
        way.latency = (self.latency.count() > 0).then(|| self.latency.finish());
        let checked = match self.has_records() {
            true => format!("; {} records compared", self.checked),
            false => String::new(),
        };
        notes.push(format!("{}: {}{checked}", way.name, self.how));
    }
}

impl Drop for Contestant<'_> {
    fn drop(&mut self) {
        self.store = None;
        // What cannot be removed goes with the working directory.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ALL;
    use crate::store::Writer;

    /// Its directory goes with it.
    fn contestant(name: &str, engine: Kind) -> Contestant<'static> {
        let load = ALL.iter().find(|load| load.name == name).expect("a load");
        let directory = format!("bench-peers-{}-{name}-", std::process::id());
        let mut one = Contestant::new(&std::env::temp_dir(), load, engine, &[], false);
        one.path = std::env::temp_dir().join(directory + engine.name());
        one
    }

    #[test]
    fn every_store_gives_back_what_it_acknowledged_and_no_more() {
        for name in ["8x128", "unsynced", "growing128", "raft-64x128", "streams-1000"] {
            for &engine in ALL.iter().find(|load| load.name == name).expect("a load").engines {
                let is_built = engine != Kind::Rocksdb || cfg!(feature = "rocksdb");
                if engine == Kind::Bare || !is_built {
                    continue;
                }
                let what = format!("{name}, {}", engine.name());
                let mut one = contestant(name, engine);
                one.prove().unwrap_or_else(|error| panic!("{what}: {error:#}"));
                assert!(one.checked > 0, "{what}");

                let store = one.opened(&one.path, one.setup).expect("opened");
                let mut workers = one.fresh_workers();
                age(&*store, &mut workers, one.load.work, 1).expect("aged");
                store.close().expect("closed");
                one.read_back(&one.path, &workers, true).expect("all are there");
                workers[0].source.advance();
                let wrong = one.read_back(&one.path, &workers, false);
                assert!(wrong.is_err(), "{what}: one more was acknowledged");
            }
        }
    }

    /// Says yes to everything.
    struct Nothing;

    impl Store for Nothing {
        fn writer(&self, _: u32) -> Result<Box<dyn Writer + '_>> {
            Ok(Box::new(Nothing))
        }

        fn read(&self, _: u32, _: u64, _: &mut Checker) -> Result<()> {
            Ok(())
        }

        fn how(&self) -> String {
            "nothing is done".into()
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    impl Writer for Nothing {
        fn append(&mut self, _: u32, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn append_durable(&mut self, _: u32, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_store_that_does_nothing_is_found_out() {
        let mut one = contestant("8x128", Kind::Okaywal);
        one.open = |_, _, _, _| Ok(Box::new(Nothing));
        let error = one.prove().expect_err("nothing is there");
        assert!(format!("{error:#}").contains("records acknowledged"), "{error:#}");
    }

    #[test]
    fn acknowledging_without_flushes_is_found_out() {
        let turned = |flushes_min| Turned { commits: 8_000, flushes_min, ..Turned::default() };
        assert!(can_be_durable(&turned(1_000), 1_000));
        assert!(can_be_durable(&turned(1_000), 990), "the ends of a turn");
        assert!(!can_be_durable(&turned(1_000), 900));
        assert!(!can_be_durable(&turned(1), 0), "a producer without its sync");
    }
}
