//! A writer and a follower in two processes: `cargo run --release -p inkstone --example
//! follow_a_minute -- 60 [DIR]`.
//!
//! *Owns*: a run of any length, with small segments that are truncated at both ends and used again
//! under the follower, which checks every byte of every record, and that LSNs are dense. *May not
//! touch*: the crate's insides.
//!
//! The writer is opened again once a second. The follower pauses now and then, so that it comes too
//! late; beside it another reader opens the log from scratch again and again. Ends with 1 on any
//! mismatch.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use inkstone::{Cursor, Error, Log, Lsn, Options, Reader};

type Result<T> = std::result::Result<T, Box<dyn StdError + Send + Sync>>;

/// Records that the writer keeps.
const KEPT: u64 = 400;
/// What the last record says in place of how many cuts there were.
const END: u64 = u64::MAX;

fn options() -> Options {
    Options::new()
        .segment_bytes(64 << 10)
        .record_bytes_max(8 << 10)
        .buffer_bytes(16 << 10)
        .idle(Duration::from_millis(2))
        .free_segments_max(64)
}

/// What record `lsn` holds when it was written after `cuts` cuts.
fn record(lsn: u64, cuts: u64) -> Vec<u8> {
    let mut bytes: Vec<_> = (0..lsn * 37 % 1500).map(|at| (at ^ lsn ^ cuts) as u8).collect();
    bytes.extend(lsn.to_le_bytes());
    bytes.extend(cuts.to_le_bytes());
    bytes
}

/// Checks a record and gives after how many cuts it was written.
fn check(expected: u64, lsn: Lsn, bytes: &[u8]) -> Result<u64> {
    let stored = bytes.last_chunk().ok_or("a record without its end")?;
    let cuts = u64::from_le_bytes(*stored);
    if lsn.get() != expected || bytes != record(expected, cuts) {
        return Err(format!("LSN {lsn}, where {expected} should be, or its bytes are wrong").into());
    }
    Ok(cuts)
}

fn write(path: &Path, time: Duration) -> Result<()> {
    let started = Instant::now();
    let (mut cuts, mut lsn, mut openings, mut appended) = (0_u64, 0, 0_u64, 0_u64);
    while started.elapsed() < time {
        let log = Log::open(path, options())?;
        openings += 1;
        lsn = log.last().get();
        let opened = Instant::now();
        while opened.elapsed() < Duration::from_secs(1) {
            lsn += 1;
            appended += 1;
            let append = log.append(&record(lsn, cuts))?;
            if lsn.is_multiple_of(8) {
                append.wait()?;
            }
            if appended.is_multiple_of(200) && lsn > KEPT {
                log.truncate_before(Lsn::new(lsn - KEPT))?;
            }
            if appended.is_multiple_of(3000) {
                cuts += 1;
                lsn -= 50;
                log.truncate_after(Lsn::new(lsn))?;
            }
        }
    }
    let log = Log::open(path, options())?;
    lsn = lsn.max(log.last().get()) + 1;
    log.append_durable(&record(lsn, END))?;
    log.close()?;
    let names =
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names = names.collect::<std::io::Result<Vec<_>>>()?;
    let numbers = names.iter().filter_map(|name| name.split_once('.')?.0.parse::<u64>().ok());
    let (files, highest) =
        numbers.fold((0, 0), |(files, highest), number| (files + 1, number.max(highest)));
    println!(
        "writer: {appended} records appended, {openings} openings, {cuts} cuts, {highest} segments \
         in {files} files: {} recycled",
        highest - files
    );
    Ok(())
}

#[derive(Default)]
struct Counts {
    records: u64,
    given_up: u64,
    cuts: u64,
    openings: u64,
}

/// Reads what there is, or, to `follow`, until the last record; `true` when that was seen.
fn read(cursor: &mut Cursor, counts: &mut Counts, follow: bool) -> Result<bool> {
    let mut expected = cursor.next_lsn().get();
    let patience = if follow { Duration::from_secs(20) } else { Duration::ZERO };
    loop {
        match cursor.next_within(patience) {
            Ok(Some(shown)) => {
                counts.records += 1;
                if check(expected, shown.lsn, shown.bytes)? == END {
                    return Ok(true);
                }
                expected += 1;
            }
            Ok(None) if follow => return Err(format!("nothing comes after LSN {expected}").into()),
            Ok(None) => return Ok(false),
            Err(Error::TruncatedBefore { lsn, first }) if lsn.get() == expected && first > lsn => {
                counts.given_up += 1;
                expected = first.get();
                cursor.seek(first);
            }
            Err(Error::TruncatedAfter { lsn, last }) if lsn.get() == expected && last < lsn => {
                counts.cuts += 1;
                expected = last.get() + 1;
            }
            Err(error) => return Err(format!("at LSN {expected}: {error}").into()),
        }
        if follow && counts.records.is_multiple_of(2000) {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn open(path: &Path) -> Result<Reader> {
    loop {
        match Reader::open(path, &options()) {
            Err(Error::NoLog { .. }) => std::thread::sleep(Duration::from_millis(10)),
            other => return Ok(other?),
        }
    }
}

fn follow(path: &Path) -> Result<()> {
    let mut counts = Counts { openings: 1, ..Counts::default() };
    let mut again = Counts::default();
    let reader = open(path)?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<()> {
            loop {
                again.openings += 1;
                let reader = open(path)?;
                if read(&mut reader.from(reader.first()), &mut again, false)? {
                    return Ok(());
                }
            }
        });
        read(&mut reader.from(Lsn::FIRST), &mut counts, true)?;
        other.join().map_err(|_| "the other reader panicked")?
    })?;
    for (who, counts) in [("follower", counts), ("opened again and again", again)] {
        let Counts { records, given_up, cuts, openings } = counts;
        println!(
            "{who}: {records} records right, {given_up} give-ups, {cuts} cuts told, {openings} \
             openings"
        );
    }
    Ok(())
}

fn both(seconds: &str, path: &Path) -> Result<()> {
    let myself = std::env::current_exe()?;
    let mut follower = Command::new(&myself).arg("follower").arg(path).spawn()?;
    let mut writer = Command::new(&myself).arg("writer").arg(path).arg(seconds).spawn()?;
    let (followed, written) = (follower.wait()?, writer.wait()?);
    if followed.success() && written.success() { Ok(()) } else { Err("see above".into()) }
}

fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        ["writer", path, seconds] => write(Path::new(path), Duration::from_secs(seconds.parse()?)),
        ["follower", path] => follow(Path::new(path)),
        [seconds, rest @ ..] if rest.len() < 2 && seconds.parse::<u64>().is_ok() => {
            let name = format!("inkstone-follow-{}", std::process::id());
            let path = rest.first().map_or_else(std::env::temp_dir, PathBuf::from).join(name);
            std::fs::create_dir_all(&path)?;
            let result = both(seconds, &path);
            if result.is_ok() {
                std::fs::remove_dir_all(&path)?;
            }
            result
        }
        _ => Err("usage: follow_a_minute SECONDS [DIR]".into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", arguments.first().map_or("", String::as_str));
            ExitCode::FAILURE
        }
    }
}
