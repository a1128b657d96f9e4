//! How much cheaper one sync would be with `fdatasync` in place of `fsync`: both measured on the
//! program's file system. No other setting that `advice` names changes only how a sync is made.
//!
//! *Owns*: this measurement and its sentence. *May not touch*: the program's files. Its own two
//! files have no name (O_TMPFILE), so nothing is left, whatever ends the measurement.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::result::{Round, Verdict};
use crate::stage::incompressible;
use crate::stats::{PAIRS_MIN, relative};
use crate::table::numbers::time;

use super::advice::DATA_SYNC;
use super::report::{Prediction, WatchReport};

/// What one commit does, as it was seen.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Bytes that it writes.
    pub bytes: u64,
    /// The share of the commits that waited for the journal: as many have a new time
    /// stamp here.
    pub waited: f64,
}

const ROUNDS: u32 = 16;
/// The most commits of one way in one round.
const COMMITS: u64 = 32;
/// With fewer, a round says nothing.
const COMMITS_MIN: u64 = 4;
/// No round begins later than this.
const TIME: Duration = Duration::from_secs(5);
/// The most that is written to the disk.
const BYTES_MAX: u64 = 64 << 20;
/// The disk has at least this many times as much room.
const ROOM: u64 = 10;
const BLOCK_BYTES: u64 = 4096;
/// The most that the file system writes for a commit besides its data: of the journal a descriptor,
/// blocks of an inode, of extents and of two bitmaps, and the commit record.
const BESIDE_BYTES: u64 = 7 * BLOCK_BYTES;

/// Adds to the first file whose advice is `fdatasync` by how much that would help.
pub(super) fn predict(report: &mut WatchReport, stop: &AtomicBool) {
    let found = report.files.iter().enumerate().find_map(|(index, file)| {
        let bill = file.bill.filter(|_| file.advice == Some(DATA_SYNC))?;
        // If the calls do not show the size, the disk does.
        let bytes = file.bytes_between.unwrap_or(bill.data_bytes as u64).max(1);
        let disk = report.disks.iter().find(|disk| disk.device == file.device)?;
        // Without a journal the metadata is written in place.
        let waited = bill.waited.max(bill.metadata_writes);
        let work = Work { bytes, waited };
        Some((index, scratch(&disk.mounted), work, file.time?.total_us))
    });
    let Some((index, directory, work, now_us)) = found else { return };
    let rounds = measure(&directory, &work, stop);
    let prediction = match rounds {
        Ok((now, then)) => prediction(&now, &then, now_us),
        Err(why) => Prediction { sentence: format!("cannot tell: {why}"), ..Prediction::default() },
    };
    report.files[index].prediction = Some(prediction);
}

/// A directory on the file system for files without a name.
fn scratch(mounted: &str) -> PathBuf {
    let temporary = PathBuf::from("/var/tmp");
    match mounted == "/" && temporary.is_dir() {
        true => temporary,
        false => PathBuf::from(mounted),
    }
}

/// Measures both ways in turns, with files in `directory`, for some seconds. Writes at most 64 MiB
/// to the disk.
///
/// # Errors
/// The reason why nothing can be measured there, in words.
pub fn measure(
    directory: &Path,
    work: &Work,
    stop: &AtomicBool,
) -> Result<(Vec<Round>, Vec<Round>), String> {
    let step = work.bytes.next_multiple_of(BLOCK_BYTES);
    // Of each way, for each commit: its file's zeros, and what the commit writes.
    let all = BYTES_MAX / (2 * (2 * step + BESIDE_BYTES));
    let commits = (all / u64::from(ROUNDS)).min(COMMITS);
    if commits < COMMITS_MIN {
        return Err(format!("a sync writes {} bytes: measuring that writes too much", work.bytes));
    }
    let all = u64::from(ROUNDS) * commits;
    let free_bytes = inkstone_io::free_bytes(directory).map_err(|error| error.to_string())?;
    if free_bytes < ROOM * BYTES_MAX {
        return Err(format!("{} has less than {} MiB free", directory.display(), ROOM * 64));
    }
    let failed = |error: io::Error| format!("in {}: {error}", directory.display());
    let payload = incompressible(work.bytes as usize, 1);
    let file = || -> io::Result<File> {
        let file = tempfile::tempfile_in(directory)?;
        for block in 0..all * step / BLOCK_BYTES {
            file.write_all_at(&[0; BLOCK_BYTES as usize], block * BLOCK_BYTES)?;
        }
        file.sync_all()?;
        Ok(file)
    };
    let (now, then) = (file().map_err(failed)?, file().map_err(failed)?);
    let (mut of_now, mut of_then) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    for number in 0..ROUNDS {
        if stop.load(Ordering::Relaxed) || begun.elapsed() > TIME {
            break;
        }
        let is_now_first = number % 2 == 0;
        for is_now in [is_now_first, !is_now_first] {
            let (file, rounds) = if is_now { (&now, &mut of_now) } else { (&then, &mut of_then) };
            let timed = Instant::now();
            for commit in u64::from(number) * commits..u64::from(number + 1) * commits {
                commit_one(file, work, step, commit, &payload, is_now).map_err(failed)?;
            }
            rounds.push(Round {
                number,
                turn: u32::from(is_now != is_now_first),
                commits,
                total_ns: timed.elapsed().as_nanos() as u64,
                slowest_ns: None,
            });
        }
    }
    if of_then.len() < PAIRS_MIN {
        return Err("it was stopped, or the disk is too slow".into());
    }
    Ok((of_now, of_then))
}

fn commit_one(
    file: &File,
    work: &Work,
    step: u64,
    commit: u64,
    payload: &[u8],
    is_now: bool,
) -> io::Result<()> {
    // As many as waited for the journal have something for it.
    let changes = |commit: u64| (commit as f64 * work.waited.clamp(0.0, 1.0)) as u64;
    let is_change = changes(commit + 1) > changes(commit);
    file.write_all_at(payload, commit * step)?;
    if is_change {
        file.set_modified(SystemTime::now())?;
    }
    if is_now { file.sync_all() } else { file.sync_data() }
}

/// The prediction of these rounds, for a sync that takes `now_us` now.
pub fn prediction(now: &[Round], then: &[Round], now_us: f64) -> Prediction {
    let Some(found) = relative(now, then, 1) else { return Prediction::default() };
    let interval = found.low.zip(found.high);
    let sentence = match (found.verdict, interval) {
        (Verdict::Faster | Verdict::Slower, Some((low, high))) => format!(
            "a sync would take {} ({} to {}) where it takes {} now: written both ways on this \
             disk, {:.2} times as fast ({low:.2} to {high:.2})",
            time(now_us * 1000.0 / found.speedup),
            time(now_us * 1000.0 / high),
            time(now_us * 1000.0 / low),
            time(now_us * 1000.0),
            found.speedup,
        ),
        (Verdict::Tie, _) => "nothing: written both ways on this disk, they are as fast".into(),
        _ => "cannot tell: written both ways on this disk, they show no clear difference".into(),
    };
    Prediction { speedup: Some(found.speedup), interval, sentence }
}
