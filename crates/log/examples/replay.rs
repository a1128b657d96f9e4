//! How fast a log is read: all of it in order, and by random LSN, beside a bare read of the same
//! files.
//!
//! ```text
//! cargo run --release -p inkstone --example replay -- [DIR] [MIB] [ROUNDS]
//! ```
//!
//! A log of records of 256 bytes is written, closed and opened again for each figure. Every record
//! is handed out, so all checksums are checked. *Warm*: the bare read goes through the page cache
//! in pieces of 1 MiB. *Cold*: the kernel dropped its caches before each (as root; otherwise it
//! reports that it did not), and the bare read goes past the cache with four reads of 1 MiB in
//! flight. Rounds are interleaved; a ratio is that of one round. The log is removed at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use inkstone::{Access, Log, Lsn, Options, OsDirectory, Reader, Result};
use inkstone_io::{
    AlignedBuf, Directory as _, Engine, EngineKind, File as _, OpenFile, Operation, OsFile, Request,
};

const RECORD_BYTES: usize = 256;
const PIECE: usize = 1 << 20;
const BARE_DEPTH: usize = 4;
const GETS: u64 = 300_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let parent = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let mut number = |or: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(or);
    let (mib, rounds) = (number(1024), number(7));
    let path = parent.join(format!(".inkstone-replay-{}", std::process::id()));
    let outcome = measure(&path, mib, rounds);
    let _ = std::fs::remove_dir_all(&path);
    outcome
}

fn measure(path: &Path, mib: u64, rounds: u64) -> Result<()> {
    let records = (mib << 20) / RECORD_BYTES as u64;
    let log = Log::open(path, Options::default())?;
    for number in 0..records {
        let mut record = [number as u8; RECORD_BYTES];
        record[..8].copy_from_slice(&number.to_le_bytes());
        drop(log.append(&record)?);
    }
    log.close()?;
    let bytes: u64 = segments(path)?.iter().map(|(_, len)| len).sum();
    println!("{records} records of {RECORD_BYTES} bytes, {} MiB of files", bytes >> 20);
    for is_cold in [false, true] {
        let mut rows = Rows::default();
        for _ in 0..rounds {
            if is_cold && !drop_caches() {
                println!("cold: not measured, only root can drop the kernel's caches");
                break;
            }
            let bare = if is_cold { bare_direct(path)? } else { bare_buffered(path)? };
            if is_cold {
                drop_caches();
            }
            let (opening, reading) = replay(path, records)?;
            rows.push(bytes as f64 / 1e9 / bare, bytes as f64 / 1e9 / (opening + reading), opening);
        }
        rows.print(if is_cold { "cold" } else { "warm" });
    }
    by_lsn(path, records, rounds)
}

#[derive(Default)]
struct Rows {
    bare: Vec<f64>,
    log: Vec<f64>,
    ratio: Vec<f64>,
    opening: Vec<f64>,
}

impl Rows {
    fn push(&mut self, bare: f64, log: f64, opening: f64) {
        self.bare.push(bare);
        self.log.push(log);
        self.ratio.push(log / bare);
        self.opening.push(opening * 1e3);
    }

    fn print(self, word: &str) {
        println!(
            "{word}: opening and reading {} GB/s, bare {} GB/s, ratio {} (opening {} ms)",
            spread(self.log),
            spread(self.bare),
            spread(self.ratio),
            spread(self.opening)
        );
    }
}

/// The median, with the lowest and the highest.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    match (values.first(), values.last()) {
        (Some(low), Some(high)) => format!("{:.2} [{low:.2}, {high:.2}]", values[values.len() / 2]),
        _ => "-".into(),
    }
}

/// Seconds to open, and to read everything.
fn replay(path: &Path, records: u64) -> Result<(f64, f64)> {
    let started = Instant::now();
    let reader = Reader::open(path, &Options::default())?;
    let opening = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let mut cursor = reader.from(Lsn::FIRST);
    let (mut count, mut sum) = (0, 0u64);
    while let Some(record) = cursor.next()? {
        count += 1;
        sum = sum.wrapping_add(u64::from(record.bytes[0])).wrapping_add(record.bytes.len() as u64);
    }
    assert_eq!(count, records, "{sum}");
    Ok((opening, started.elapsed().as_secs_f64()))
}

/// Random records by LSN, and as many bare reads of 4 KiB at random places.
fn by_lsn(path: &Path, records: u64, rounds: u64) -> Result<()> {
    let reader = Reader::open(path, &Options::default())?;
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let (mut gets, mut bares, mut ratios) = (vec![], vec![], vec![]);
    let started = Instant::now();
    run_gets(&reader, records, &mut random)?;
    println!("first {GETS} by LSN: {:.2} M/s, which learn where records are", rate(started));
    for _ in 0..rounds {
        let started = Instant::now();
        bare_random(path, &mut random)?;
        let bare = rate(started);
        let started = Instant::now();
        run_gets(&reader, records, &mut random)?;
        let get = rate(started);
        gets.push(get);
        bares.push(bare);
        ratios.push(get / bare);
    }
    println!(
        "by LSN, warm: {} M/s, bare reads of 4 KiB {} M/s, ratio {}",
        spread(gets),
        spread(bares),
        spread(ratios)
    );
    Ok(())
}

fn rate(started: Instant) -> f64 {
    GETS as f64 / 1e6 / started.elapsed().as_secs_f64()
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

fn run_gets(reader: &Reader, records: u64, random: &mut u64) -> Result<()> {
    for _ in 0..GETS {
        let number = next(random) % records;
        let record = reader.get(Lsn::new(number + 1))?;
        assert_eq!(record[..8], number.to_le_bytes());
    }
    Ok(())
}

fn segments(path: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let failed = |source| inkstone_io::Error::new("list", path, source);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "ink") {
            let len = OsFile::open(&path, &OpenFile::existing().read_only())?.len_bytes()?;
            found.push((path, len));
        }
    }
    found.sort();
    Ok(found)
}

fn drop_caches() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

fn bare_buffered(path: &Path) -> Result<f64> {
    let started = Instant::now();
    let mut buffer = AlignedBuf::zeroed(PIECE);
    for (path, len) in segments(path)? {
        let file = OsFile::open(&path, &OpenFile::existing().read_only())?;
        for at in (0..len).step_by(PIECE) {
            file.read_at(&mut buffer, at)?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

fn bare_direct(path: &Path) -> Result<f64> {
    let started = Instant::now();
    let mut engine = OsDirectory::open(path)?.engine(EngineKind::Pool, BARE_DEPTH)?;
    let mut spare: Vec<_> = (0..BARE_DEPTH).map(|_| AlignedBuf::zeroed(PIECE)).collect();
    for (path, len) in segments(path)? {
        let file = Arc::new(OsFile::open(
            &path,
            &OpenFile::existing().read_only().access(Access::Direct),
        )?);
        for offset in (0..len).step_by(PIECE) {
            let buffer = match spare.pop() {
                Some(buffer) => buffer,
                None => take(&mut engine)?.expect("reads are in flight"),
            };
            let operation = Operation::Read { buffer, len: PIECE, offset, then: None };
            engine.submit(Request { token: offset, file: Arc::clone(&file), operation })?;
        }
    }
    while take(&mut engine)?.is_some() {}
    Ok(started.elapsed().as_secs_f64())
}

fn take<E: Engine>(engine: &mut E) -> Result<Option<AlignedBuf>> {
    let Some(done) = engine.complete()? else { return Ok(None) };
    done.result?;
    Ok(done.buffer)
}

fn bare_random(path: &Path, random: &mut u64) -> Result<()> {
    let mut files = Vec::new();
    for (path, len) in segments(path)? {
        files.push((OsFile::open(&path, &OpenFile::existing().read_only())?, len));
    }
    let mut buffer = AlignedBuf::zeroed(4096);
    for _ in 0..GETS {
        let (file, len) = &files[(next(random) % files.len() as u64) as usize];
        file.read_at(&mut buffer, next(random) % (len - 4096))?;
    }
    Ok(())
}
