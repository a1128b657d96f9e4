//! How much cheaper a program's syncs could be: the lab's way that writes as the program does
//! beside the better way, on the same disk.
//!
//! *Owns*: which two ways stand for a cause, and the sentence. *May not touch*: how ways are
//! measured (`run`), or the program's files: the lab writes in a directory of its own.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use inkstone_io::{Access, Durability, EngineKind, Preparation, Reuse, Strategy};
use serde::{Deserialize, Serialize};

use crate::pass::Limits;
use crate::progress::Progress;
use crate::result::{LabResult, Table, Verdict};
use crate::run::{Plan, run};
use crate::site::OpenSite;
use crate::stats::relative;
use crate::writing::{WRITE_BYTES_MAX, WRITE_BYTES_MIN, Writing};

use super::cause::Cause;
use super::syncs::How;

/// What the lab's figures say about a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The lab's way that writes as the program does.
    pub from: String,
    /// The lab's way that writes as the program could.
    pub to: String,
    /// How many times as fast a commit would be.
    pub speedup: f64,
    /// The 95% interval; `None` if there were too few rounds.
    pub interval: Option<(f64, f64)>,
    /// The prediction as a sentence.
    pub sentence: String,
}

/// The two ways: what the program does, and what it could do.
pub type Pair = (Writing, Writing);

const ROUNDS: u32 = 16;
const PASS: Duration = Duration::from_millis(60);
const COMMITS: u64 = 256;
const FILE_BYTES_MIN: u64 = 1 << 20;

/// The two ways for this cause; `None` if the lab has no better way.
pub fn pair_of(cause: Cause, how: How, is_direct: bool, bytes: u64) -> Option<Pair> {
    let access = match (is_direct, how) {
        (true, _) => Access::Direct,
        (false, How::Msync) => Access::Mmap,
        (false, _) => Access::Buffered,
    };
    let durability = match how {
        How::Fsync | How::RingFsync | How::Aio => Durability::Fsync,
        How::Fdatasync => Durability::Fdatasync,
        How::Msync => Durability::Msync,
        How::DsyncWrite | How::RingWrite => Durability::ODsync,
        How::RwfDsync => Durability::RwfDsync,
        How::SyncFileRange | How::Syncfs | How::SyncAll | How::SyncWrite | How::Other => {
            return None;
        }
    };
    let engine = EngineKind::Caller;
    let of = |reuse, preparation, durability| {
        let strategy = Strategy { preparation, reuse, access, durability, engine };
        let least = if is_direct { 4096 } else { WRITE_BYTES_MIN };
        // The nearest size: a sync of 4 KiB sometimes writes a little more.
        let write_bytes = (bytes * 2 / 3 + 1).next_power_of_two().clamp(least, WRITE_BYTES_MAX);
        let file_bytes = (write_bytes * COMMITS).max(FILE_BYTES_MIN);
        Writing { write_bytes, file_bytes, ..Writing::of(strategy) }
    };
    let preparation = match cause {
        Cause::Grows | Cause::CreatedAgain => Preparation::None,
        Cause::Reserved => Preparation::Fallocate,
        Cause::ReservedBeyond => Preparation::KeepSize,
        Cause::Holes => Preparation::Sparse,
        Cause::TimeStamps => {
            let written = |durability| of(Reuse::Reuse, Preparation::None, durability);
            return Some((written(Durability::Fsync), written(Durability::Fdatasync)));
        }
        _ => return None,
    };
    // A mapped file that grows is sparse.
    let preparation = match (access, preparation) {
        (Access::Mmap, Preparation::None | Preparation::KeepSize) => Preparation::Sparse,
        (_, preparation) => preparation,
    };
    let pair =
        (of(Reuse::New, preparation, durability), of(Reuse::Reuse, Preparation::None, durability));
    (pair.0.check().is_ok() && pair.1.check().is_ok()).then_some(pair)
}

/// Measures the two ways in `directory`, for some seconds.
///
/// # Errors
/// The reason why nothing can be measured there, in words.
pub fn measure(directory: &Path, pair: &Pair, stop: &AtomicBool) -> Result<Table, String> {
    let plan = Plan {
        rounds: ROUNDS,
        limits: Limits { commits: COMMITS, time: PASS },
        ..Plan::new("watch", "As it is, and as it could be", vec![pair.0, pair.1])
    };
    let name = directory.display().to_string();
    let open = OpenSite::open(directory, &name, plan.room_bytes()).map_err(|e| e.to_string())?;
    let table = run(&open.site, &plan, stop, &mut Progress::silent());
    open.close().map_err(|error| error.to_string())?;
    Ok(table)
}

/// The prediction of a table; `None` if it lacks one of the ways.
pub fn prediction(table: &Table, pair: &Pair, now_us: f64) -> Option<Prediction> {
    let (from, to) = (pair.0.name(), pair.1.name());
    let ways = (table.way(&from)?, table.way(&to)?);
    let found = relative(&ways.0.rounds, &ways.1.rounds, table.seed)?;
    let interval = found.low.zip(found.high);
    let sentence = match (found.verdict, interval) {
        (Verdict::Faster | Verdict::Slower, Some((low, high))) => format!(
            "a commit would take {:.0} us where it takes {now_us:.0} us now ({:.0} to {:.0}): on \
             this disk the lab's `{to}` is {:.2} times as fast as its `{from}` ({low:.2} to \
             {high:.2})",
            now_us / found.speedup,
            now_us / high,
            now_us / low,
            found.speedup,
        ),
        (Verdict::Tie, _) => {
            format!("nothing: on this disk the lab's `{to}` is as fast as its `{from}`")
        }
        _ => format!(
            "cannot tell: on this disk the lab's `{to}` beside its `{from}` shows no clear \
             difference"
        ),
    };
    Some(Prediction { from, to, speedup: found.speedup, interval, sentence })
}

/// The table in a result of the lab with both ways, on this disk and file system.
pub fn table_of<'a>(
    result: &'a LabResult,
    pair: &Pair,
    device: &str,
    file_system: &str,
) -> Option<&'a Table> {
    let (from, to) = (pair.0.name(), pair.1.name());
    result.tables.iter().find(|table| {
        let is_here =
            table.place.device.as_deref() == Some(device) && table.place.file_system == file_system;
        let has = |name: &str| table.way(name).is_some_and(|way| way.is_measured());
        is_here && has(&from) && has(&to)
    })
}
