//! Reading a file (articles 1 and 5): front to back and at random, with its pages in memory and
//! without, every byte checked.
//!
//! *Owns*: the ways of reading, and a proof before each turn that the pages are where the way says.
//! *May not touch*: writing.

use std::sync::Arc;
use std::time::Duration;

use inkstone_host::{Advice, EngineKind, LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, DioAlignment, File, OpenFile, Residency};

use crate::histogram::Recorder;
use crate::result::{Table, Unit, figure};
use crate::rounds::{Frame, Pace, Running, Sample, Scene, TakesTurns, Trial, Turn, timed};
use crate::site::Site;
use crate::stage::{Session, WayError};
use crate::writing::{Cache, size_name};

use super::flight::{Flight, Work};
use super::pattern;
use super::scratch::written_file;

/// In which order the file is read: from front to back, or 4 KiB here and there, no block twice in
/// a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOrder {
    Sequential,
    Random,
}

/// Each order, with the file's pages out of memory and in it.
const TABLES: [(&str, ReadOrder, Cache); 4] = [
    ("read-sequential-cold", ReadOrder::Sequential, Cache::Cold),
    ("read-sequential-warm", ReadOrder::Sequential, Cache::Warm),
    ("read-random-cold", ReadOrder::Random, Cache::Cold),
    ("read-random-warm", ReadOrder::Random, Cache::Warm),
];

const FILE: &str = "read";
const BLOCK: usize = 4096;
const LARGE: usize = 1 << 20;
/// The size of an engine's reads.
const PIECE: usize = 256 << 10;
/// How many of them are in flight.
const PIECES: usize = 8;
/// Random reads in flight.
const RANDOM_DEPTH: usize = 16;
/// Bytes of one `readahead(2)` call: the kernel takes no more.
const AHEAD_STEP: usize = 128 << 10;
/// How far readahead is ahead of the reader.
const AHEAD_BYTES: u64 = 1 << 20;
/// How often it tries to drop or load pages: some may still be in a per-CPU list.
const TRIES: u32 = 5;

/// A file of this size read in each order, with its pages in memory and without.
pub(super) fn read(file_bytes: u64) -> Trial {
    Trial::new("read", (file_bytes, 30.0), move |scene| {
        let seed = fastrand::u64(..);
        drop(written_file(scene.session, FILE, file_bytes, Access::Buffered, seed)?);
        let mut found = Vec::new();
        let pace = scene.pace.part(1.0 / TABLES.len() as f64);
        for (name, order, cache) in TABLES {
            if scene.session.check().is_err() {
                break;
            }
            found.push(one(scene, (file_bytes, seed), &pace, (name, order, cache)));
        }
        scene.session.clear(FILE)?;
        Ok(found)
    })
}

/// One way of reading.
#[derive(Debug, Clone, Copy)]
struct Reader {
    name: &'static str,
    block: usize,
    access: Access,
    advice: Option<Advice>,
    /// Whether what comes next is asked for by readahead(2).
    ahead: bool,
    /// An engine with so many reads in flight; otherwise one call comes after the other.
    flight: Option<(EngineKind, usize)>,
}

impl Reader {
    const fn of(name: &'static str, block: usize, access: Access) -> Self {
        Self { name, block, access, advice: None, ahead: false, flight: None }
    }

    fn advised(self, advice: Advice) -> Self {
        Self { advice: Some(advice), ..self }
    }

    fn ahead(self) -> Self {
        Self { ahead: true, ..self }
    }

    fn by(self, kind: EngineKind, depth: usize) -> Self {
        Self { flight: Some((kind, depth)), ..self }
    }
}

fn ways(order: ReadOrder) -> Vec<Reader> {
    use Access::{Buffered, Direct, Mmap, Seek, Stream};
    use EngineKind::{Aio, Caller, Uring};
    let of = Reader::of;
    match order {
        ReadOrder::Sequential => vec![
            of("read, 4 KiB", BLOCK, Buffered),
            of("lseek + read, 4 KiB", BLOCK, Seek),
            of("fread, 4 KiB", BLOCK, Stream),
            of("read, 64 KiB", 64 << 10, Buffered),
            of("read, 1 MiB", LARGE, Buffered),
            of("fadvise(SEQUENTIAL), 4 KiB", BLOCK, Buffered).advised(Advice::Sequential),
            of("readahead(2) ahead, 4 KiB", BLOCK, Buffered).ahead(),
            of("mmap", BLOCK, Mmap),
            of("mmap + madvise", BLOCK, Mmap).advised(Advice::Sequential),
            of("mmap + readahead(2)", BLOCK, Mmap).ahead(),
            of("O_DIRECT, 1 MiB, one at a time", LARGE, Direct).by(Caller, 1),
            of("O_DIRECT, 8 x 256 KiB, AIO", PIECE, Direct).by(Aio, PIECES),
            of("O_DIRECT, 8 x 256 KiB, io_uring", PIECE, Direct).by(Uring, PIECES),
            of("io_uring, 8 x 256 KiB", PIECE, Buffered).by(Uring, PIECES),
        ],
        ReadOrder::Random => vec![
            of("read", BLOCK, Buffered),
            of("lseek + read", BLOCK, Seek),
            of("fread", BLOCK, Stream),
            of("fadvise(RANDOM)", BLOCK, Buffered).advised(Advice::Random),
            of("readahead(2) of the next 16", BLOCK, Buffered).ahead(),
            of("mmap", BLOCK, Mmap),
            of("mmap + madvise", BLOCK, Mmap).advised(Advice::Random),
            of("mmap + readahead(2)", BLOCK, Mmap).ahead(),
            of("O_DIRECT, one at a time", BLOCK, Direct).by(Caller, 1),
            of("O_DIRECT, 16, AIO", BLOCK, Direct).by(Aio, RANDOM_DEPTH),
            of("O_DIRECT, 16, io_uring", BLOCK, Direct).by(Uring, RANDOM_DEPTH),
            of("io_uring, 16", BLOCK, Buffered).by(Uring, RANDOM_DEPTH),
        ],
    }
}

fn one(
    scene: &mut Scene<'_>,
    (file_bytes, seed): (u64, u64),
    pace: &Pace,
    (name, order, cache): (&str, ReadOrder, Cache),
) -> Table {
    let ways = ways(order);
    let base = ways.first().map(|way| way.name).unwrap_or_default();
    let running = ways.iter().map(|&way| {
        let is_direct = way.access == Access::Direct;
        let can = if is_direct { can_direct(scene.site) } else { Ok(()) };
        let reading = Reading { way, order, cache, file_bytes, seed };
        Running::new(way.name, can.and_then(|()| reading.work()))
    });
    let running = running.collect();
    let size = size_name(file_bytes);
    let (what, unit) = match order {
        ReadOrder::Sequential => ("from front to back", Unit::BytesPerS),
        ReadOrder::Random => ("4 KiB at random", Unit::OperationsPerS),
    };
    let pages = if cache == Cache::Cold { "none" } else { "all" };
    let title = format!("Reading a file of {size} {what}, {pages} of its pages in memory before");
    let mut found = scene.measure_at(pace, Frame::of(name, title, unit, base), running);
    found.notes = vec![
        "every byte is checked, which is part of every way's time; read is pread; fread reads \
         through the C library's own buffer; cold: not in this system's page cache (the caches of \
         a hypervisor and of the device cannot be dropped); O_DIRECT bypasses the pages in memory"
            .into(),
    ];
    if order == ReadOrder::Random {
        found.notes.push(
            "readahead(2): the reader knows the next blocks, as in a scan of an index".into(),
        );
    }
    found
}

/// # Errors
/// There is no O_DIRECT here.
pub(super) fn can_direct(site: &Site) -> Result<(), WayError> {
    if site.capabilities.direct == DioAlignment::Refused {
        let file_system = &site.capabilities.mount.file_system;
        return Err(WayError::Invalid(format!("{file_system} has no O_DIRECT here")));
    }
    Ok(())
}

/// One way of reading one file.
#[derive(Clone, Copy)]
struct Reading {
    way: Reader,
    order: ReadOrder,
    cache: Cache,
    file_bytes: u64,
    /// The seed of the written bytes.
    seed: u64,
}

impl Reading {
    fn work<'a>(self) -> Result<impl TakesTurns + 'a, WayError> {
        let open = |(kind, depth)| Flight::new(kind, depth, self.way.block);
        let mut flight = self.way.flight.map(open).transpose()?;
        Ok(timed(move |turn, latency| self.turn(turn, flight.as_mut(), latency)))
    }

    /// Where to read, in order; the last piece of a file may be shorter.
    fn offsets(&self) -> Vec<u64> {
        let mut offsets: Vec<u64> = (0..self.file_bytes).step_by(self.way.block).collect();
        if self.order == ReadOrder::Random {
            fastrand::shuffle(&mut offsets);
        }
        offsets
    }

    fn piece(&self, offset: u64) -> usize {
        (self.file_bytes - offset).min(self.way.block as u64) as usize
    }

    /// Reads one piece after the other until the time is over; returns the number of reads and of
    /// bytes.
    fn one_by_one(
        &self,
        turn: &Turn<'_>,
        file: &LabFile,
        offsets: &[u64],
        latency: &mut Recorder,
    ) -> Result<(u64, u64), WayError> {
        let mut buffer = AlignedBuf::zeroed(self.way.block);
        let mut asked = 0;
        let (mut reads, mut bytes) = (0, 0);
        let mut start_ns = monotonic_ns();
        let end_ns = turn.end_ns(start_ns);
        for (index, &offset) in offsets.iter().enumerate() {
            turn.session.check()?;
            if start_ns >= end_ns {
                break;
            }
            if self.way.ahead {
                self.ask_ahead(file, offsets, index, &mut asked)?;
            }
            let len = self.piece(offset);
            let piece = &mut buffer[..len];
            if self.way.access == Access::Mmap {
                file.read_mapped(piece, offset)?;
            } else if file.read_by_access(piece, offset)? != len {
                return Err(WayError::Invalid(format!(
                    "the file ends before byte {}",
                    offset + len as u64
                )));
            }
            let now_ns = monotonic_ns();
            latency.record(now_ns - start_ns);
            pattern::check(piece, offset, self.seed).map_err(WayError::Invalid)?;
            (reads, bytes) = (reads + 1, bytes + len as u64);
            start_ns = monotonic_ns();
        }
        Ok((reads, bytes))
    }

    /// Starts readahead of what comes next; `asked` is how far that was done.
    fn ask_ahead(
        &self,
        file: &LabFile,
        offsets: &[u64],
        index: usize,
        asked: &mut u64,
    ) -> Result<(), WayError> {
        match self.order {
            ReadOrder::Sequential => {
                let until = (offsets[index] + AHEAD_BYTES).min(self.file_bytes);
                while *asked < until {
                    file.read_ahead(*asked, AHEAD_STEP)?;
                    *asked += AHEAD_STEP as u64;
                }
            }
            ReadOrder::Random => {
                let until = (index + AHEAD_BLOCKS).min(offsets.len());
                for &offset in &offsets[(*asked as usize).min(until)..until] {
                    file.read_ahead(offset, BLOCK)?;
                }
                *asked = until as u64;
            }
        }
        Ok(())
    }

    fn turn(
        &self,
        turn: &Turn<'_>,
        mut flight: Option<&mut Flight>,
        latency: &mut Recorder,
    ) -> Result<Sample, WayError> {
        let residency = bring(turn.session, FILE, self.cache)?;
        let offsets = self.offsets();
        let how = OpenFile::existing().access(self.way.access);
        let file = Arc::new(turn.session.directory.open(FILE, &how)?);
        let begin_ns = monotonic_ns();
        let (reads, bytes) = if let Some(flight) = flight.as_deref_mut() {
            let (block, file_bytes) = (self.way.block as u64, self.file_bytes);
            let mut offsets = offsets.iter();
            flight.run(turn, &file, self.seed, || {
                let offset = *offsets.next()?;
                let len = (file_bytes - offset).min(block) as usize;
                Some(Work { offset, len, write: None })
            })?
        } else {
            // The time includes mapping; unmapping is not needed for the bytes to be there.
            let is_mapped = self.way.access == Access::Mmap;
            if is_mapped {
                file.map(self.file_bytes)?;
            }
            match self.way.advice {
                Some(advice) if is_mapped => file.advise_mapped(advice)?,
                Some(advice) => file.advise(advice)?,
                None => {}
            }
            self.one_by_one(turn, &file, &offsets, latency)?
        };
        let total_ns = monotonic_ns() - begin_ns;
        flight.into_iter().for_each(|flight| flight.give_times(latency));
        let resident = residency.resident_pages as f64 / residency.pages.max(1) as f64;
        let figures = vec![figure("resident before", Unit::Percent, 100.0 * resident)];
        let amount = if self.order == ReadOrder::Sequential { bytes } else { reads };
        Ok(Sample::of(amount, total_ns).with(figures))
    }
}

/// Brings the file's pages into the way's state, and checks it with the kernel.
///
/// # Errors
/// The pages are not in that state: the way would not be what its name says.
pub(super) fn bring(
    session: &Session<'_>,
    name: &str,
    cache: Cache,
) -> Result<Residency, WayError> {
    let file = session.directory.open(name, &OpenFile::existing())?;
    let mut found = None;
    for _ in 0..TRIES {
        session.check()?;
        match cache {
            Cache::Cold => file.forget_cached()?,
            Cache::Warm => {
                let mut buffer = AlignedBuf::zeroed(LARGE);
                let mut at = 0;
                while let read @ 1.. = file.read_at(&mut buffer, at)? {
                    at += read as u64;
                }
            }
        }
        let now = file.residency()?;
        let wanted = if cache == Cache::Cold { 0 } else { now.pages };
        if now.resident_pages == wanted {
            return Ok(now);
        }
        found = Some(now);
        std::thread::sleep(Duration::from_millis(2));
    }
    let what = if cache == Cache::Cold { "out of" } else { "in" };
    let told = found.map_or_else(String::new, |Residency { resident_pages, pages, told_by }| {
        format!(", but {resident_pages} of {pages} are in it, by {told_by}")
    });
    Err(WayError::Invalid(format!("all its pages should be {what} memory{told}")))
}

/// How many random blocks are read ahead, if they are known beforehand.
const AHEAD_BLOCKS: usize = 16;

#[cfg(test)]
mod tests;
