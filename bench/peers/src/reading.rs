//! Who reads what is there: a whole log, or one stream that is spread over a log of many.
//!
//! *Owns*: what is filled and read, what is cached before a turn. *May not touch*: how a store
//! reads.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use inkstone_host::{block_stat, monotonic_ns, process_usage};
use inkstone_io::{File as _, OpenFile, OsFile};
use inkstone_lab::result::Way;
use inkstone_lab::rounds::{Sample, TakesTurns, Turn};
use inkstone_lab::stage::WayError;

use crate::contestant::{figures, refused};
use crate::load::Load;
use crate::record::{Checker, Source};
use crate::store::{Setup, Store, Work};
use crate::stores::{Kind, Subject};

/// Payload of the log that is read.
const LOG_BYTES: u64 = 1 << 30;
/// Each sync makes so many of its records durable while it is filled.
const SYNC_EVERY: u64 = 4096;
/// The stream that is read: so many records, and between two of them one of each other stream, of
/// so many bytes: 25 segments.
const STREAM_RECORDS: u64 = 2_500;
const OTHER_BYTES: usize = 64 << 10;
/// What all stores of both take on the disk.
pub const ROOM_BYTES: u64 = 12 << 30;
/// More than this share of the pages left in the cache is no cold read.
const STAYED_MAX: f64 = 0.01;

/// One way of a load that reads.
pub struct Reading<'a> {
    load: &'a Load,
    engine: Kind,
    path: PathBuf,
    setup: Setup,
    /// Records that are read.
    count: u64,
}

impl<'a> Reading<'a> {
    /// Fills its store, once for all loads of a run, and reads it once: every byte is compared, and
    /// what a first opening puts in order is in order.
    ///
    /// # Errors
    /// It gives back something else, or cannot be opened.
    pub fn begin(directory: &Path, load: &'a Load, engine: Kind) -> Result<Self> {
        let path = directory.join(format!("read-{:?}-{}", load.subject, engine.name()));
        let count = match load.subject {
            Subject::Log => (LOG_BYTES / load.record_bytes as u64).next_multiple_of(SYNC_EVERY),
            _ => STREAM_RECORDS,
        };
        let reading = Self { load, engine, path, setup: load.setup(), count };
        if !reading.path.exists()
            && let Err(error) = reading.fill()
        {
            // Half a directory is to be nobody's input.
            let _ = std::fs::remove_dir_all(&reading.path);
            return Err(error);
        }
        let mut seen = Checker::new(1, load.record_bytes);
        let store = reading.open(Work::Read)?;
        store.read(0, 0, &mut seen)?;
        store.close()?;
        seen.finish(&[count], true)?;
        Ok(reading)
    }

    fn open(&self, work: Work) -> Result<Box<dyn Store>> {
        self.load.subject.open(self.engine, &self.path, Setup { work, ..self.setup })
    }

    fn fill(&self) -> Result<()> {
        let store = self.open(Work::Growing)?;
        let mut source = Source::new(0, 1, 1, self.load.record_bytes);
        let other = |lane| Source::new(lane, self.setup.lanes, self.setup.lanes, OTHER_BYTES);
        let mut others: Vec<_> = (1..self.setup.lanes).map(other).collect();
        let each = if others.is_empty() { SYNC_EVERY } else { 1 };
        {
            let mut writer = store.writer(0)?;
            while source.count() < self.count {
                writer.append_burst(&mut source, each)?;
                for other in &mut others {
                    writer.append_burst(other, 1)?;
                }
                writer.sync()?;
            }
        }
        store.rest();
        store.close()
    }

    /// A log is opened inside the clock. Streams are before, each time anew, so that nothing is
    /// known of an earlier turn but what an opening finds.
    fn take_turn(&mut self, turn: &Turn<'_>) -> Result<Sample> {
        let is_early = self.load.subject == Subject::Streams;
        let early = is_early.then(|| self.open(Work::Read)).transpose()?;
        prepare(&self.path, self.load.is_cold)?;
        turn.session.settle();
        let mut seen = Checker::of_heads(1, self.load.record_bytes);
        let stat = || block_stat(turn.session.device?).ok();
        let (before, usage, begin_ns) = (stat(), process_usage(), monotonic_ns());
        let store = early.map_or_else(|| self.open(Work::Read), Ok)?;
        store.read(0, 0, &mut seen)?;
        let total_ns = monotonic_ns() - begin_ns;
        let used = process_usage().since(&usage);
        let device = stat().zip(before).map(|(after, before)| after.since(&before));
        store.close()?;
        let count = seen.finish(&[self.count], true)?;
        Ok(Sample::of(count, total_ns).with(figures(count, used.user_ns + used.system_ns, device)))
    }
}

impl TakesTurns for Reading<'_> {
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, WayError> {
        self.take_turn(turn).map_err(refused)
    }

    fn finish(&mut self, way: &mut Way, notes: &mut Vec<String>) {
        notes
            .push(format!("{}: {} records in each turn, checksums verified", way.name, self.count));
    }
}

/// Every file of the directory is in the page cache, or none.
fn prepare(directory: &Path, is_cold: bool) -> Result<()> {
    let (mut stayed, mut pages) = (0, 0);
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        if is_cold {
            let file = OsFile::open(&path, &OpenFile::existing())?;
            file.forget_cached()?;
            let residency = file.residency()?;
            (stayed, pages) = (stayed + residency.resident_pages, pages + residency.pages);
        } else {
            let mut file = File::open(&path).with_context(|| path.display().to_string())?;
            io::copy(&mut file, &mut io::sink())?;
        }
    }
    let share = stayed as f64 / pages.max(1) as f64;
    ensure!(
        share <= STAYED_MAX,
        "{:.0}% of {} stayed in the page cache: this would be no cold read",
        share * 100.0,
        directory.display()
    );
    Ok(())
}
