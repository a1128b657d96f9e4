//! Many streams as an engine: each thread has streams of its own and writes to them in turn, so
//! that a commit of many threads is one of many streams.
//!
//! *Owns*: which record goes to which stream, what each keeps, how much of the disk that takes.
//! *May not touch*: a store's calls, the timed loops.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use super::{Many, ManyKind, ManyWriter, Wait, open};
use crate::engine::{Engine, Groups, Writer};
use crate::record::{Checker, Record, head, set_head};

/// A segment of the log.
const SEGMENT_BYTES: f64 = (64 << 20) as f64;

/// How threads write to streams.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub threads: u32,
    /// Streams that are written: each thread has its own. With fewer of them than threads, all
    /// threads write to the first, and none may be idle.
    pub active: u32,
    /// Streams behind these that get [`Spread::keep`] records at first, and never another one.
    pub idle: u32,
    /// Records that a stream keeps, at least.
    pub keep: u64,
    pub record_bytes: usize,
}

impl Spread {
    pub fn streams(&self) -> u32 {
        self.active + self.idle
    }

    /// What lives at least, once there is so much.
    pub fn live_bytes(&self) -> u64 {
        u64::from(self.streams()) * self.keep * self.record_bytes as u64
    }

    fn is_shared(&self) -> bool {
        self.active < self.threads
    }

    /// How many streams a thread has.
    fn own(&self, thread: u32) -> u64 {
        u64::from((self.active - thread).div_ceil(self.threads))
    }

    /// Stream and number there of a thread's record; in a stream that all share its number is not
    /// known.
    fn place(&self, thread: u32, number: u64) -> (u32, u64) {
        if self.is_shared() {
            return (0, number);
        }
        let own = self.own(thread);
        (thread + self.threads * (number % own) as u32, number / own)
    }

    /// How many records each stream has, or in a shared one each thread, if each thread had so
    /// many.
    fn counts(&self, of_threads: &[u64]) -> Vec<u64> {
        if self.is_shared() {
            return of_threads.to_vec();
        }
        let mut counts = vec![0; self.active as usize];
        for (thread, &count) in (0..).zip(of_threads) {
            let own = self.own(thread);
            for number in 0..own {
                let (stream, _) = self.place(thread, number);
                counts[stream as usize] = (count + own - 1 - number) / own;
            }
        }
        counts.resize(self.streams() as usize, self.keep);
        counts
    }
}

struct InTurn {
    many: Box<dyn Many>,
    spread: Spread,
    path: PathBuf,
    /// The most that the directory took.
    disk_bytes: AtomicU64,
}

/// Opens a store, or makes it; its idle streams get their records first.
pub fn open_in_turn(kind: ManyKind, path: &Path, spread: Spread) -> Result<Box<dyn Engine>> {
    let many = open(kind, path, spread.streams())?;
    many.rest();
    for stream in spread.active..spread.streams() {
        let mut record = Record::new(stream, spread.record_bytes);
        let mut writer = many.writer();
        for _ in many.bounds(stream)?.1..spread.keep {
            writer.append(&[(stream, record.advance())], Wait::Durable)?;
        }
    }
    Ok(Box::new(InTurn { many, spread, path: path.to_owned(), disk_bytes: AtomicU64::new(0) }))
}

/// Compares every record there is: none that was acknowledged may be missing, but those that its
/// stream need not keep.
pub fn read_back(kind: ManyKind, path: &Path, spread: Spread, of_threads: &[u64]) -> Result<u64> {
    let many = open(kind, path, spread.streams())?;
    let counts = spread.counts(of_threads);
    let mut checker = Checker::new(counts.len() as u32, spread.record_bytes, true);
    for stream in 0..spread.streams() {
        many.read(stream, &mut |record| checker.see(record))?;
    }
    many.close()?;
    let kept = match spread.is_shared() {
        true => counts.iter().sum::<u64>().min(spread.keep),
        false => counts.iter().map(|&count| count.min(spread.keep)).sum(),
    };
    let seen = checker.finish(&counts)?;
    ensure!(seen >= kept, "{seen} records are there of {kept} that none had given up");
    Ok(seen)
}

impl InTurn {
    fn look_at_disk(&self) -> Result<()> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(&self.path)? {
            // A file that is gone meanwhile takes nothing.
            bytes += entry?.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        }
        self.disk_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Engine for InTurn {
    fn writer(&self, thread: u32) -> Result<Box<dyn Writer + '_>> {
        let (writer, record) = (self.many.writer(), Vec::new());
        Ok(Box::new(Appender { in_turn: self, writer, thread, record, next: 0, tidied: 0 }))
    }

    fn how(&self) -> String {
        self.many.how()
    }

    fn rest(&self) -> Result<()> {
        self.many.rest();
        Ok(())
    }

    fn notes(&self) -> Option<String> {
        let of = |stream| self.many.bounds(stream).map_or(0, |(_, next)| next);
        let records: u64 = (0..self.spread.streams()).map(of).sum();
        let written = (records * self.spread.record_bytes as u64) as f64;
        let (disk, live) =
            (self.disk_bytes.load(Ordering::Relaxed) as f64, self.spread.live_bytes() as f64);
        let mib = f64::from(1 << 20);
        let mut words = format!(
            "{:.1} GiB of records; {:.1} MiB live at least; the disk had up to {:.1} MiB: 2 x live \
             + {:.1} segments of 64 MiB",
            written / mib / 1024.0,
            live / mib,
            disk / mib,
            (disk - 2.0 * live) / SEGMENT_BYTES
        );
        if let Some((moved_bytes, log)) = self.many.moved() {
            let moved = moved_bytes as f64 / written;
            words += &format!("; moved {moved:.3} of what was written; {log}");
        }
        Some(words)
    }

    fn groups(&self) -> Option<Groups> {
        self.many.groups()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.many.close()
    }
}

struct Appender<'a> {
    in_turn: &'a InTurn,
    writer: Box<dyn ManyWriter + 'a>,
    thread: u32,
    /// With the head that it has in its stream.
    record: Vec<u8>,
    /// The number of the thread's next record.
    next: u64,
    /// The streams of its records before this one have given up what is old.
    tidied: u64,
}

impl Appender<'_> {
    fn write(&mut self, record: &[u8], wait: Wait) -> Result<()> {
        let (_, number) = head(record).context("a record without a head")?;
        let (stream, there) = self.in_turn.spread.place(self.thread, number);
        self.record.clear();
        self.record.extend_from_slice(record);
        if !self.in_turn.spread.is_shared() {
            set_head(&mut self.record, stream, there);
        }
        self.next = number + 1;
        self.writer.append(&[(stream, &self.record)], wait)
    }
}

impl Writer for Appender<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.write(record, Wait::Nothing)
    }

    fn append_durable(&mut self, record: &[u8]) -> Result<()> {
        self.write(record, Wait::Durable)
    }

    fn sync(&mut self) -> Result<()> {
        self.writer.sync()
    }

    /// One batch truncates all streams that were written since the last time.
    fn tidy(&mut self) -> Result<()> {
        let (spread, is_first) = (&self.in_turn.spread, self.thread == 0);
        let mut before = Vec::new();
        if !spread.is_shared() {
            let begin = self.tidied.max(self.next.saturating_sub(spread.own(self.thread)));
            before.extend((begin..self.next).map(|number| {
                let (stream, there) = spread.place(self.thread, number);
                (stream, (there + 1).saturating_sub(spread.keep))
            }));
        } else if is_first {
            before.push((0, self.in_turn.many.bounds(0)?.1.saturating_sub(spread.keep)));
        }
        before.retain(|&(_, first)| first > 0);
        if !before.is_empty() {
            self.writer.truncate(&before)?;
        }
        self.tidied = self.next;
        if is_first {
            self.in_turn.many.purge()?;
            self.in_turn.look_at_disk()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::threads::{self, Manner};

    fn spread(threads: u32, active: u32) -> Spread {
        Spread { threads, active, idle: 2, keep: 3, record_bytes: 40 }
    }

    #[test]
    fn every_store_gives_back_what_was_acknowledged_and_what_must_be_kept() {
        for kind in [ManyKind::Inkstone, ManyKind::RaftEngine] {
            for active in [1, 9] {
                // Everybody's last record is among what a shared stream keeps.
                let (keep, idle) = if active == 1 { (900, 0) } else { (3, 2) };
                let spread = Spread { keep, idle, ..spread(4, active) };
                if spread.is_shared() && kind != ManyKind::Inkstone {
                    continue;
                }
                let path = std::env::temp_dir().join(format!(
                    "bench-peers-{}-many-{}-{active}",
                    std::process::id(),
                    kind.name()
                ));
                let run = || -> Result<(Vec<u64>, Result<u64>, Result<u64>)> {
                    let engine = open_in_turn(kind, &path, spread)?;
                    let mut records = Record::all(spread.threads, spread.record_bytes);
                    let manner = Manner::Grouped { bytes_max: 1 << 14, records: 5 };
                    for _ in 0..3 {
                        threads::run(&*engine, &mut records, manner, Duration::from_secs(60))?;
                    }
                    engine.writer(0)?.append_durable(records[0].advance())?;
                    engine.close()?;
                    let mut counts: Vec<_> = records.iter().map(Record::count).collect();
                    let right = read_back(kind, &path, spread, &counts);
                    counts[0] += 1;
                    let wrong = read_back(kind, &path, spread, &counts);
                    Ok((counts, right, wrong))
                };
                let done = run();
                let _ = std::fs::remove_dir_all(&path);
                let (counts, right, wrong) = done.expect("it runs");
                let seen = right.unwrap_or_else(|error| panic!("{kind:?} {active}: {error:#}"));
                assert!(seen < counts.iter().sum(), "{kind:?} {active}: nothing was given up");
                assert!(wrong.is_err(), "{kind:?} {active}: one more was acknowledged");
            }
        }
    }

    #[test]
    fn each_record_has_a_place_of_its_own_and_each_stream_has_no_gap() {
        for (threads, active) in [(1, 1), (4, 4), (4, 6), (3, 100)] {
            let spread = spread(threads, active);
            let of_threads: Vec<u64> = (0..threads).map(|thread| 50 + u64::from(thread)).collect();
            let mut seen = vec![0; active as usize];
            for (thread, &count) in (0..).zip(&of_threads) {
                for number in 0..count {
                    let (stream, there) = spread.place(thread, number);
                    assert_eq!(there, seen[stream as usize], "{spread:?}");
                    seen[stream as usize] += 1;
                }
            }
            let counts = spread.counts(&of_threads);
            assert_eq!(counts[..active as usize], seen, "{spread:?}");
            assert_eq!(counts[active as usize..], [3, 3], "{spread:?}");
        }
    }
}
