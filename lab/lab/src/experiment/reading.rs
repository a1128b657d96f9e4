//! Reading a file (articles 1 and 5): front to back and at random, with its pages in memory and
//! without, every byte checked; and the same beside writes.
//!
//! *Owns*: the ways of reading, and a proof before each turn that the pages are where the way says.
//! *May not touch*: the loop (`flight`), the rounds.

use std::sync::Arc;
use std::time::Duration;

use inkstone_host::{Advice, EngineKind, LabFile, monotonic_ns};
use inkstone_io::{Access, AlignedBuf, File, OpenFile, Persist, Residency, SyncKind};

use crate::histogram::Recorder;
use crate::result::{Unit, figure};
use crate::rounds::{Running, Sample, TakesTurns, Trial, Turn, timed};
use crate::stage::{Session, WayError};
use crate::writing::{Cache, size_name};

use super::flight::{Flight, Work};

/// In which order the file is read: from front to back, or 4 KiB here and there, no block twice in
/// a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    Random,
}

/// Each order, with the file's pages out of memory and in it.
pub(super) const TABLES: [(&str, Order, Cache); 4] = [
    ("read-sequential-cold", Order::Sequential, Cache::Cold),
    ("read-sequential-warm", Order::Sequential, Cache::Warm),
    ("read-random-cold", Order::Random, Cache::Cold),
    ("read-random-warm", Order::Random, Cache::Warm),
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
/// How far readahead is ahead of a reader of blocks, and the blocks of one `readahead(2)` call:
/// 128 KiB, for the kernel takes no more. At random the next blocks are known, one by one.
const AHEAD: [(Order, usize, usize); 2] = [(Order::Sequential, 256, 32), (Order::Random, 16, 1)];
/// How often it tries to drop or load pages: some may still be in a per-CPU list.
const TRIES: u32 = 5;

/// One way of reading, or of writing in the same order.
#[derive(Debug, Clone, Copy)]
struct Reader {
    name: &'static str,
    block: usize,
    access: Access,
    order: Order,
    /// Where the file's pages are before; `None`: wherever they are.
    cache: Option<Cache>,
    advice: Option<Advice>,
    /// Whether what comes next is asked for by readahead(2).
    ahead: bool,
    engine: EngineKind,
    /// Requests in flight.
    depth: usize,
    /// How a write becomes durable; `None`: it reads.
    write: Option<Persist>,
}

impl Reader {
    const fn of(name: &'static str, block: usize, access: Access) -> Self {
        let (order, cache, advice, ahead) = (Order::Sequential, None, None, false);
        let (engine, depth, write) = (EngineKind::Caller, 1, None);
        Self { name, block, access, order, cache, advice, ahead, engine, depth, write }
    }

    fn advised(self, advice: Advice) -> Self {
        Self { advice: Some(advice), ..self }
    }

    fn ahead(self) -> Self {
        Self { ahead: true, ..self }
    }

    fn by(self, engine: EngineKind, depth: usize) -> Self {
        Self { engine, depth, ..self }
    }
}

fn ways(order: Order) -> Vec<Reader> {
    use Access::{Buffered, Direct, Mmap, Seek, Stream};
    use EngineKind::{Aio, Uring};
    let of = Reader::of;
    match order {
        Order::Sequential => vec![
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
            of("O_DIRECT, 1 MiB, one at a time", LARGE, Direct),
            of("O_DIRECT, 8 x 256 KiB, AIO", PIECE, Direct).by(Aio, PIECES),
            of("O_DIRECT, 8 x 256 KiB, io_uring", PIECE, Direct).by(Uring, PIECES),
            of("io_uring, 8 x 256 KiB", PIECE, Buffered).by(Uring, PIECES),
        ],
        Order::Random => vec![
            of("read", BLOCK, Buffered),
            of("lseek + read", BLOCK, Seek),
            of("fread", BLOCK, Stream),
            of("fadvise(RANDOM)", BLOCK, Buffered).advised(Advice::Random),
            of("readahead(2) of the next 16", BLOCK, Buffered).ahead(),
            of("mmap", BLOCK, Mmap),
            of("mmap + madvise", BLOCK, Mmap).advised(Advice::Random),
            of("mmap + readahead(2)", BLOCK, Mmap).ahead(),
            of("O_DIRECT, one at a time", BLOCK, Direct),
            of("O_DIRECT, 16, AIO", BLOCK, Direct).by(Aio, RANDOM_DEPTH),
            of("O_DIRECT, 16, io_uring", BLOCK, Direct).by(Uring, RANDOM_DEPTH),
            of("io_uring, 16", BLOCK, Buffered).by(Uring, RANDOM_DEPTH),
        ],
    }
}

/// A file of this size read in this order, with its pages in memory or without.
pub(super) fn read((name, order, cache): (&'static str, Order, Cache), file_bytes: u64) -> Trial {
    let (what, unit) = match order {
        Order::Sequential => ("from front to back", Unit::BytesPerS),
        Order::Random => ("4 KiB at random", Unit::OperationsPerS),
    };
    let pages = if cache == Cache::Cold { "none" } else { "all" };
    let size = size_name(file_bytes);
    let title = format!("Reading a file of {size} {what}, {pages} of its pages in memory before");
    let cache = Some(cache);
    let rows = ways(order).into_iter().map(|way| Reader { order, cache, ..way }).collect();
    let trial = trial((name, title), unit, (file_bytes, 7.5), rows).note(
        "every byte is checked, which is part of every way's time; read is pread; fread reads \
         through the C library's own buffer; cold: not in this system's page cache (the caches of \
         a hypervisor and of the device cannot be dropped); O_DIRECT bypasses the pages in memory",
    );
    match order {
        Order::Sequential => trial,
        Order::Random => {
            trial.note("readahead(2): the reader knows the next blocks, as in a scan of an index")
        }
    }
}

/// 4 KiB at a time: written and synced by fsync, front to back; and read, from memory and directly.
pub(super) fn reads_and_writes() -> Trial {
    let of = |name, access| Reader::of(name, BLOCK, access);
    let title = "4 KiB at a time: written and synced in sequence, and read at random";
    let rows = vec![
        Reader {
            write: Some(Persist::Sync(SyncKind::All)),
            ..of("write and fsync", Access::Buffered)
        },
        Reader {
            order: Order::Random,
            cache: Some(Cache::Warm),
            ..of("read, in memory", Access::Buffered)
        },
        Reader { order: Order::Random, ..of("read, from the device", Access::Direct) },
        of("read in sequence, from the device", Access::Direct),
    ];
    trial(("reads-and-writes", title), Unit::OperationsPerS, (64 << 20, 4.0), rows)
}

fn trial(
    titles: (&'static str, impl Into<String>),
    unit: Unit,
    needs: (u64, f64),
    rows: Vec<Reader>,
) -> Trial {
    let file_bytes = needs.0;
    Trial::new(titles, unit, needs, move |scene| {
        let seed = fastrand::u64(..);
        drop(scene.session.written_file(FILE, file_bytes, Access::Buffered, seed)?);
        let running = rows.iter().map(|&way| {
            let reading = Reading { way, unit, file_bytes, seed };
            let can = scene.site.can_open(way.access);
            Running::new(way.name, can.and_then(|()| reading.work()))
        });
        Ok(running.collect())
    })
}

/// One way of reading one file.
#[derive(Clone, Copy)]
struct Reading {
    way: Reader,
    unit: Unit,
    file_bytes: u64,
    /// The seed of the written bytes.
    seed: u64,
}

impl Reading {
    fn work<'a>(self) -> Result<impl TakesTurns + 'a, WayError> {
        let mut flight = Flight::new(self.way.engine, self.way.depth, self.way.block)?;
        Ok(timed(move |turn, latency| self.turn(turn, &mut flight, latency)))
    }

    /// Where to read, in order; the last piece of a file may be shorter.
    fn offsets(&self) -> Vec<u64> {
        let mut offsets: Vec<u64> = (0..self.file_bytes).step_by(self.way.block).collect();
        if self.way.order == Order::Random {
            fastrand::shuffle(&mut offsets);
        }
        offsets
    }

    /// The requests of a turn; what comes after the next is asked for before.
    fn source(&self, file: &LabFile) -> impl FnMut() -> Result<Option<Work>, WayError> {
        let (way, file_bytes, offsets) = (self.way, self.file_bytes, self.offsets());
        let ahead = AHEAD.into_iter().find(|(order, ..)| way.ahead && *order == way.order);
        let (mut next, mut asked) = (0, 0);
        move || {
            let Some(&offset) = offsets.get(next) else { return Ok(None) };
            if let Some((_, far, blocks)) = ahead {
                while asked < (next + far).min(offsets.len()) {
                    file.read_ahead(offsets[asked], blocks * BLOCK)?;
                    asked += blocks;
                }
            }
            next += 1;
            let len = (file_bytes - offset).min(way.block as u64) as usize;
            Ok(Some(Work { offset, len, write: way.write }))
        }
    }

    fn turn(
        &self,
        turn: &Turn<'_>,
        flight: &mut Flight,
        latency: &mut Recorder,
    ) -> Result<Sample, WayError> {
        let brought = self.way.cache.map(|cache| bring(turn.session, FILE, cache)).transpose()?;
        let how = OpenFile::existing().access(self.way.access);
        let file = Arc::new(turn.session.directory.open(FILE, &how)?);
        let source = self.source(&file);
        let begin_ns = monotonic_ns();
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
        let (requests, bytes) = flight.run(turn, &file, self.seed, source)?;
        let total_ns = monotonic_ns() - begin_ns;
        flight.give_times(latency);
        let share = |found: Residency| {
            let resident = found.resident_pages as f64 / found.pages.max(1) as f64;
            figure("resident before", Unit::Percent, 100.0 * resident)
        };
        let amount = if self.unit == Unit::BytesPerS { bytes } else { requests };
        Ok(Sample::of(amount, total_ns).with(brought.map(share).into_iter().collect()))
    }
}

/// Brings the file's pages into the way's state, and checks it with the kernel.
///
/// # Errors
/// The pages are not in that state: the way would not be what its name says.
fn bring(session: &Session<'_>, name: &str, cache: Cache) -> Result<Residency, WayError> {
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

#[cfg(test)]
mod tests;
