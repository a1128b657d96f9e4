//! Reopening and reading everything, warm and cold.
//!
//! *Owns*: the directories that are read, what is cached before a turn. *May not touch*: how an
//! engine reads.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use inkstone_io::Access;

use super::plan::{Cache, FLOOR, Load, Plan, made};
use crate::engine::{Kind, Purpose, Reading, Setup};
use crate::engines::{open, read_all};
use crate::floor;
use crate::record::{Checker, Record};
use crate::result::LoadResult;
use crate::rounds::{self, Contestant, Finish};
use crate::threads::{BURST, Turn};

/// The log, asked to read through the page cache.
const CACHED: &str = "inkstone cached";

const RECORD_BYTES: usize = 256;
/// Each sync makes so many records durable while a directory is filled.
const SYNC_EVERY: u64 = 4096;
/// More than this share of the pages left in the cache is no cold read.
const STAYED_MAX: f64 = 0.01;

/// Fills an engine with records, once for all loads of a run that read.
fn filled(plan: &Plan, kind: Kind) -> Result<(PathBuf, u64)> {
    let path = plan.directory.join(format!("read-{}", kind.name()));
    let count = (plan.read_bytes / RECORD_BYTES as u64).next_multiple_of(SYNC_EVERY);
    if path.exists() {
        return Ok((path, count));
    }
    if let Err(error) = fill(kind, &path, count) {
        // Half a directory is to be nobody's input.
        let _ = std::fs::remove_dir_all(&path);
        return Err(error);
    }
    Ok((path, count))
}

fn fill(kind: Kind, path: &Path, count: u64) -> Result<()> {
    let engine = open(kind, path, Setup::plain(RECORD_BYTES, Purpose::Keep))?;
    let mut record = Record::new(0, RECORD_BYTES);
    {
        let mut writer = engine.writer(0)?;
        while record.count() < count {
            for _ in 0..SYNC_EVERY / BURST {
                writer.append_burst(&mut record, BURST)?;
            }
            writer.sync()?;
        }
    }
    engine.rest()?;
    engine.close()
}

impl Cache {
    pub fn prepare(self, directory: &Path) -> Result<()> {
        if self == Self::Warm {
            return floor::warm(directory);
        }
        let stayed = floor::drop_cached(directory)?;
        ensure!(
            stayed <= STAYED_MAX,
            "{:.0}% of {} stayed in the page cache: this would be no cold read",
            stayed * 100.0,
            directory.display()
        );
        Ok(())
    }
}

/// An engine that is opened and read.
struct Reader {
    name: &'static str,
    kind: Kind,
    how: Reading,
    path: PathBuf,
    count: u64,
    cache: Cache,
}

impl Reader {
    fn new(
        plan: &Plan,
        name: &'static str,
        kind: Kind,
        how: Reading,
        cache: Cache,
    ) -> Result<Self> {
        let (path, count) = filled(plan, kind)?;
        let reader = Self { name, kind, how, path, count, cache };
        // Once outside the clock: every byte is compared, and what a first opening puts in order is
        // in order.
        reader.read(true)?;
        Ok(reader)
    }

    fn read(&self, whole: bool) -> Result<u64> {
        let mut checker = Checker::new(1, RECORD_BYTES, whole);
        read_all(self.kind, &self.path, self.how, &mut checker)?;
        checker.finish_all(&[self.count])
    }
}

impl Contestant for Reader {
    fn name(&self) -> &str {
        self.name
    }

    fn rest(&mut self) -> Result<()> {
        self.cache.prepare(&self.path)
    }

    fn turn(&mut self, _: Duration) -> Result<Turn> {
        let begin = Instant::now();
        let commits = self.read(false)?;
        Ok(Turn { commits, total_ns: begin.elapsed().as_nanos() as u64, ..Turn::default() })
    }

    fn finish(self: Box<Self>) -> Result<Finish> {
        let how = match self.kind {
            Kind::Inkstone if self.how == Reading::Cached => "opened with buffered access",
            Kind::Inkstone => "opened with its defaults",
            _ => "opened with its defaults, checksums verified",
        };
        Ok(Finish { how: how.into(), notes: None, checked: Some(self.count) })
    }
}

/// A file of as many bytes as the log's, read by somebody with nothing to verify.
struct Plain {
    directory: PathBuf,
    /// Records that the bytes stand for.
    count: u64,
    cache: Cache,
}

impl Plain {
    /// `like`: the directory whose size counts.
    fn new(plan: &Plan, like: &Path, count: u64, cache: Cache) -> Result<Self> {
        let directory = plan.directory.join("read-floor");
        if !directory.exists() {
            std::fs::create_dir(&directory)?;
            floor::make_file(&directory.join("file"), bytes_in(like, count)?)?;
        }
        Ok(Self { directory, count, cache })
    }
}

/// What the log's records take: files that are ready and free hold none, nor does the rest of the
/// last segment.
fn bytes_in(directory: &Path, count: u64) -> Result<u64> {
    let mut segments_bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "ink") {
            segments_bytes += entry.metadata()?.len();
        }
    }
    let frames_bytes = count * (RECORD_BYTES as u64 + 24);
    ensure!(
        segments_bytes >= frames_bytes,
        "{} holds fewer bytes than its records",
        directory.display()
    );
    Ok(frames_bytes.next_multiple_of(floor::LARGE_BYTES as u64))
}

impl Contestant for Plain {
    fn name(&self) -> &str {
        FLOOR
    }

    fn rest(&mut self) -> Result<()> {
        self.cache.prepare(&self.directory)
    }

    fn turn(&mut self, _: Duration) -> Result<Turn> {
        let file = self.directory.join("file");
        let access = if self.cache == Cache::Warm { Access::Buffered } else { Access::Direct };
        let took = floor::read_file(&file, access)?;
        Ok(Turn { commits: self.count, total_ns: took.as_nanos() as u64, ..Turn::default() })
    }

    fn finish(self: Box<Self>) -> Result<Finish> {
        let how = match self.cache {
            Cache::Warm => "1 MiB reads from the page cache",
            Cache::Cold => "1 MiB reads past the page cache, 8 in flight",
        };
        Ok(Finish { how: how.into(), ..Finish::default() })
    }
}

pub fn read(plan: &Plan, load: &Load, cache: Cache) -> Result<LoadResult> {
    let default = |kind: Kind| Reader::new(plan, kind.name(), kind, Reading::Default, cache);
    let mut contestants: Vec<_> =
        plan.engines.iter().map(|&kind| made(kind.name(), default(kind))).collect();
    let mut notes = Vec::new();
    if plan.engines.contains(&Kind::Inkstone) {
        let cached = Reader::new(plan, CACHED, Kind::Inkstone, Reading::Cached, cache);
        contestants.push(made(CACHED, cached));
        let (like, count) = filled(plan, Kind::Inkstone)?;
        contestants.push(made(FLOOR, Plain::new(plan, &like, count, cache)));
        notes.push(format!(
            "{FLOOR} reads as many bytes as the log's frames have: 280 for each record of 256"
        ));
    } else {
        notes.push("without inkstone there is no floor: its size is that of the log".into());
    }
    Ok(load.result(RECORD_BYTES, rounds::run(&plan.pace, contestants), notes))
}
