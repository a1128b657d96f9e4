//! How the figure of a statement is read from the results.
//!
//! *Owns*: reading figures. *May not touch*: running, and the answer.

use inkstone_host::FallocateMode;
use inkstone_io::NamedChoice;

use crate::cell::Cell;
use crate::experiment::rounds::Rows;
use crate::experiment::statement::{By, Counted, Ground};
use crate::experiment::{ExperimentResult, ExperimentRow, rounds_of};
use crate::result::{
    self, Bill, BillSource, FEW_ROUNDS, LayerBill, Place, Relative, Round, Run, Warning,
};
use crate::stats::relative;
use crate::warnings::forbidding;

use super::Found;

/// The results of everything that ran.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// The run in the directory, or why there is none.
    pub(crate) here: Result<&'a Run, String>,
    /// The run on the journalling file system.
    pub(crate) journal: Result<&'a Run, String>,
    /// The runs on article 1's file systems, side by side: with a journal and without one.
    pub(crate) article_1: Result<(&'a Run, &'a Run), String>,
    /// The lab's warnings.
    pub(crate) warnings: &'a [Warning],
    /// All experiments.
    pub(crate) experiments: &'a [ExperimentResult],
    /// The atlas of the directory.
    pub(crate) atlas: Option<&'a result::FallocateAtlas>,
}

/// The ways of writing that a statement needs on this ground.
pub(crate) fn cells(by: &By, on: Ground) -> Vec<Cell> {
    match by {
        By::Speed { ground, slow, fast } if *ground == on => {
            slow.iter().copied().chain([*fast]).collect()
        }
        By::Count { ground, cell, .. } if *ground == on => vec![*cell],
        By::JournalTime { cell } | By::JournalCount { cell, .. }
            if matches!(on, Ground::Article1Journal | Ground::Article1NoJournal) =>
        {
            vec![*cell]
        }
        _ => Vec::new(),
    }
}

/// Whether anything is counted for it on this ground.
pub(crate) fn counts_on(by: &By, on: Ground) -> bool {
    matches!(by, By::Count { .. } | By::JournalCount { .. }) && !cells(by, on).is_empty()
}

impl Evidence<'_> {
    /// The warning that forbids an answer, if there is one: a time is no better than the minute in
    /// which it was measured. Counts are not affected.
    pub(crate) fn warning(&self, by: &By) -> Option<Warning> {
        let of = |run: &Run| forbidding(run, self.warnings);
        match by {
            By::Speed { ground, .. } => of(self.run(*ground).ok()?),
            By::JournalTime { .. } => {
                let (journal, none) = self.article_1.as_ref().ok()?;
                of(journal).or_else(|| of(none))
            }
            By::Rate { run, .. } if run().is_private => None,
            By::Rate { .. } => of(&Run::default()),
            By::JournalCount { .. }
            | By::Count { .. }
            | By::Most { .. }
            | By::Blocks { .. }
            | By::Elsewhere(_) => None,
        }
    }

    /// The figure, or why there is none.
    pub(crate) fn find(&self, by: &By) -> Result<Found, String> {
        match by {
            By::Speed { ground, slow, fast } => speed(self.run(*ground)?, slow, fast),
            By::JournalTime { cell } => {
                let (journal, none) = self.article_1.as_ref().map_err(Clone::clone)?;
                let found =
                    told(relative(rounds(journal, cell)?, rounds(none, cell)?, journal.seed))?;
                Ok(times(found, format!("{}, without a journal : with one", cell.name())))
            }
            By::JournalCount { cell, what } => {
                let (journal, none) = self.article_1.as_ref().map_err(Clone::clone)?;
                amplified(count(journal, cell, *what)?, count(none, cell, *what)?)
            }
            By::Count { ground, cell, what } => count(self.run(*ground)?, cell, *what),
            By::Rate { run, result, slow, fast } => {
                rate(self.result_of(&run(), result)?, slow, fast)
            }
            By::Most { run, result, row } => most(self.result_of(&run(), result)?, row),
            By::Blocks { mode, len_bytes } => blocks(self, *mode, *len_bytes),
            By::Elsewhere(why) => Err((*why).into()),
        }
    }

    fn run(&self, ground: Ground) -> Result<&Run, String> {
        let both = || self.article_1.as_ref().map_err(Clone::clone);
        match ground {
            Ground::Here => self.here.as_ref().copied().map_err(Clone::clone),
            Ground::Journal => self.journal.as_ref().copied().map_err(Clone::clone),
            Ground::Article1Journal => both().map(|(journal, _)| *journal),
            Ground::Article1NoJournal => both().map(|(_, none)| *none),
        }
    }

    /// The result of this name, or why there is none.
    fn result_of(&self, rows: &Rows, name: &str) -> Result<&ExperimentResult, String> {
        let found = self.experiments.iter().find(|found| found.name == name);
        found.ok_or_else(|| match (rows.is_private, &self.journal) {
            (true, Err(why)) => why.clone(),
            _ => format!("{name} did not run"),
        })
    }
}

/// The count with a journal divided by the count without one.
fn amplified(with: Found, without: Found) -> Result<Found, String> {
    if without.value <= 0.0 {
        return Err(format!("without a journal the count is 0: `{}`", without.of));
    }
    let value = with.value / without.value;
    let of = format!(
        "{}, {} with a journal, {} without",
        with.of,
        per_commit(&with),
        per_commit(&without)
    );
    Ok(Found { value, low: value, high: value, unit: "times".into(), of })
}

fn per_commit(found: &Found) -> String {
    format!("{:.1} {}", found.value, found.unit)
}

/// The speed against the nearest of several slow cells: if the fast cell beats that one, it beats
/// all.
fn speed(run: &Run, slow: &[Cell], fast: &Cell) -> Result<Found, String> {
    let judged = rounds(run, fast)?;
    let mut nearest: Option<(Told, String)> = None;
    let mut why = String::new();
    let mut beaten = 0;
    for cell in slow {
        // A way that the file system does not support is left out, as long as another remains.
        let compared = rounds(run, cell).and_then(|base| told(relative(base, judged, run.seed)));
        match compared {
            Ok(found) if nearest.as_ref().is_none_or(|(known, _)| found.low < known.low) => {
                nearest = Some((found, cell.name()));
                beaten += 1;
            }
            Ok(_) => beaten += 1,
            Err(reason) => why = reason,
        }
    }
    let (found, base) = nearest.ok_or(why)?;
    // Names the nearest of several; the others are further away.
    let of_several =
        if slow.len() > 1 { format!(", the nearest of {beaten}") } else { String::new() };
    Ok(times(found, format!("{} : {base}{of_several}", fast.name())))
}

fn times(found: Told, of: String) -> Found {
    Found { value: found.speedup, low: found.low, high: found.high, unit: "times".into(), of }
}

/// A ratio with its interval.
struct Told {
    speedup: f64,
    low: f64,
    high: f64,
}

/// A ratio, if there are enough rounds for an interval.
fn told(found: Option<Relative>) -> Result<Told, String> {
    let found = found.ok_or("no rounds of the two can be paired")?;
    let (low, high) = found.interval().ok_or(FEW_ROUNDS)?;
    Ok(Told { speedup: found.speedup, low, high })
}

fn measured<'a>(run: &'a Run, cell: &Cell) -> Result<&'a result::Measured, String> {
    let name = cell.name();
    let found = run.cells.iter().find(|cell| cell.name == name);
    match found.map(|cell| &cell.outcome) {
        Some(result::Outcome::Measured(measured)) => Ok(measured),
        Some(result::Outcome::Invalid { reason }) => Err(format!("`{name}`: {reason}")),
        Some(result::Outcome::NotRun) | None => Err(format!("`{name}` did not run")),
    }
}

fn rounds<'a>(run: &'a Run, cell: &Cell) -> Result<&'a [Round], String> {
    measured(run, cell).map(|measured| measured.rounds.as_slice())
}

fn count(run: &Run, cell: &Cell, what: Counted) -> Result<Found, String> {
    let measured = measured(run, cell)?;
    let value = if what == Counted::Faults {
        let (minor, major) = measured.faults_per_write.ok_or("page faults were not counted")?;
        minor + major
    } else {
        counted(&run.place, measured.bill.as_ref(), what)?
    };
    Ok(Found { value, low: value, high: value, unit: what.unit().into(), of: cell.name() })
}

/// Reads the count from a trace only: the device's counters include all processes.
fn counted(place: &Place, bill: Option<&Bill>, what: Counted) -> Result<f64, String> {
    if place.device.is_none() {
        return Err("there is no block device below, so nothing can be counted".into());
    }
    let needs_root = || "needs root: only a trace shows whose requests they are".to_owned();
    let bill = bill.filter(|bill| bill.source == BillSource::Trace).ok_or_else(needs_root)?;
    if bill.lost_events > 0 {
        return Err(format!("the kernel dropped {} events of the trace", bill.lost_events));
    }
    let layer = bill.layers.first().ok_or("the bill has no device")?;
    let has_cache = place.write_cache.as_deref() == Some("write back");
    if what == Counted::OwnFlushes && !has_cache {
        return Err("the device reports no volatile cache: there is nothing to flush".into());
    }
    let punts =
        || bill.uring_punts.ok_or("the kernel does not report what io_uring hands to workers");
    let total = match what {
        Counted::Faults => return Err("page faults are not in a bill".into()),
        Counted::OwnFlushes => own_flushes(layer) as f64,
        Counted::Punts => punts()? as f64,
        Counted::Reads => layer.data_reads.requests as f64,
        Counted::Metadata => {
            (layer.journal_writes.requests + layer.metadata_writes.requests) as f64
        }
        Counted::JournalWrites => layer.journal_writes.requests as f64,
        Counted::JournalKib => layer.journal_writes.bytes as f64 / 1024.0,
        Counted::WrittenKib => {
            let all = [&layer.data_writes, &layer.journal_writes, &layer.metadata_writes];
            all.iter().map(|tally| tally.bytes).sum::<u64>() as f64 / 1024.0
        }
    };
    if bill.commits == 0 {
        return Err("no commit was traced".into());
    }
    Ok(total / bill.commits as f64)
}

fn own_flushes(layer: &LayerBill) -> u64 {
    let own =
        layer.submitters.iter().filter(|who| who.who == "this process" && who.what == "flush");
    own.map(|who| who.tally.requests).sum()
}

impl Counted {
    fn unit(self) -> &'static str {
        match self {
            Self::Faults => "faults a write",
            Self::OwnFlushes => "flushes a commit",
            Self::Punts => "punts a commit",
            Self::Reads => "reads a commit",
            Self::Metadata => "metadata writes a commit",
            Self::JournalWrites => "journal writes a commit",
            Self::JournalKib => "KiB of journal a commit",
            Self::WrittenKib => "KiB written a commit",
        }
    }
}

fn row_of<'a>(found: &'a ExperimentResult, row: &str) -> Result<&'a ExperimentRow, String> {
    let row = found.rows.iter().find(|known| known.name == row);
    let row = row.ok_or_else(|| format!("{} has no such row", found.name))?;
    row.invalid.as_ref().map_or(Ok(row), |reason| Err(reason.clone()))
}

fn rate(found: &ExperimentResult, slow: &str, fast: &str) -> Result<Found, String> {
    let rounds = |name: &str| row_of(found, name).map(|row| rounds_of(row, found.unit));
    let compared = told(relative(&rounds(slow)?, &rounds(fast)?, found.seed))?;
    Ok(times(compared, format!("{fast} : {slow}")))
}

/// The most of any round: what cannot happen happens in none, what can need not happen in each.
fn most(found: &ExperimentResult, name: &str) -> Result<Found, String> {
    let most = row_of(found, name)?.samples.iter().copied().reduce(f64::max);
    let value = most.ok_or_else(|| format!("{name} did not run"))?;
    let of = format!("{name}, in any round");
    Ok(Found { value, low: value, high: value, unit: found.unit.name().into(), of })
}

fn blocks(evidence: &Evidence<'_>, mode: FallocateMode, len_bytes: u64) -> Result<Found, String> {
    let atlas = evidence.atlas.ok_or("the atlas did not run")?;
    let is_it =
        |cell: &&result::FallocateCell| cell.mode == mode.name() && cell.len_bytes == len_bytes;
    let cell = atlas.cells.iter().find(is_it).ok_or("the atlas has no such call")?;
    if !cell.done {
        return Err(format!("{}: {}", atlas.place.file_system, cell.answer));
    }
    let value = cell.after.blocks as f64 - cell.before.blocks as f64;
    let of = format!("{} of {} KiB", mode.name(), len_bytes / 1024);
    Ok(Found { value, low: value, high: value, unit: "blocks added".into(), of })
}
