//! What runs for a claim, and how its figure is read from the results.
//!
//! *Owns*: reading figures. *May not touch*: running, and the answer (`rule`).

use inkstone_host::FallocateMode;
use inkstone_io::NamedChoice;

use crate::asked::forbidding;
use crate::cell::Cell;
use crate::experiment::{ExperimentResult, ExperimentRow, Size, list, rounds_of};
use crate::result::{
    self, Bill, BillSource, FEW_ROUNDS, LayerBill, Place, Relative, Round, Run, Warning,
};
use crate::stats::relative;

use super::rule::Found;

/// Where cells are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In the directory itself.
    Here,
    /// On an ext4 with a journal, created for this on a loop device (root).
    Journal,
    /// As in article 1: ext4 with a journal, on a buffered loop device; side by side with the next
    /// (root).
    Article1Journal,
    /// The same without a journal.
    Article1NoJournal,
}

/// What is counted per commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Page faults of the writing thread.
    Faults,
    /// Flushes that this process sent.
    OwnFlushes,
    /// Requests handed to an io_uring worker.
    Punts,
    /// Reads of the file's own blocks.
    Reads,
    /// Writes of metadata, in a journal or outside it.
    Metadata,
    /// Writes of the journal that a commit waited for.
    JournalWrites,
    /// Their bytes.
    JournalKib,
    /// Bytes of all that commits wrote: data, journal, metadata.
    WrittenKib,
}

/// Two rows of an experiment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) slow: &'static str,
    pub(crate) fast: &'static str,
}

/// Where a figure comes from.
#[derive(Debug)]
pub(crate) enum By {
    /// How many times as fast a cell is as another, side by side; with several others, as the
    /// nearest of them.
    Speed { ground: Ground, slow: &'static [Cell], fast: Cell },
    /// How many times as fast a cell is without a journal as with one, on the two file systems of
    /// article 1 side by side.
    JournalTime { cell: Cell },
    /// How many times as much a commit of a cell counts with a journal as without one, on the same
    /// two.
    JournalCount { cell: Cell, what: Counted },
    /// What one commit of a cell costs.
    Count { ground: Ground, cell: Cell, what: Counted },
    /// How many times as much a row of the result of an experiment does as another, side by side.
    Rate { result: &'static str, rows: Rows },
    /// The most that a row of the result of an experiment counts in a round.
    Row { result: &'static str, row: &'static str },
    /// How many blocks of 512 B a call of fallocate adds to a file of 8 KiB.
    Blocks { mode: FallocateMode, len_bytes: u64 },
    /// Nothing that runs here: why, and which command shows it.
    Elsewhere(&'static str),
}

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

impl By {
    /// The name of the result of an experiment that it needs.
    pub(crate) fn result(&self) -> Option<&'static str> {
        match self {
            Self::Rate { result, .. } | Self::Row { result, .. } => Some(result),
            _ => None,
        }
    }

    /// The cells that it needs on this ground.
    pub(crate) fn cells(&self, on: Ground) -> Vec<Cell> {
        match self {
            Self::Speed { ground, slow, fast } if *ground == on => {
                slow.iter().copied().chain([*fast]).collect()
            }
            Self::Count { ground, cell, .. } if *ground == on => vec![*cell],
            Self::JournalTime { cell } | Self::JournalCount { cell, .. }
                if matches!(on, Ground::Article1Journal | Ground::Article1NoJournal) =>
            {
                vec![*cell]
            }
            _ => Vec::new(),
        }
    }

    /// Whether anything is counted for it on this ground.
    pub(crate) fn counts_on(&self, on: Ground) -> bool {
        matches!(self, Self::Count { .. } | Self::JournalCount { .. }) && !self.cells(on).is_empty()
    }

    /// The warning that forbids an answer, if there is one: a time is no better than the minute in
    /// which it was measured. Counts are not affected.
    pub(crate) fn warning(&self, evidence: &Evidence<'_>) -> Option<Warning> {
        let of = |run: &Run| forbidding(run, evidence.warnings);
        match self {
            Self::Speed { ground, .. } => of(evidence.run(*ground).ok()?),
            Self::JournalTime { .. } => {
                let (journal, none) = evidence.article_1.as_ref().ok()?;
                of(journal).or_else(|| of(none))
            }
            Self::Rate { result, .. } if is_counted(result) => None,
            Self::Rate { .. } => of(&Run::default()),
            Self::JournalCount { .. }
            | Self::Count { .. }
            | Self::Row { .. }
            | Self::Blocks { .. }
            | Self::Elsewhere(_) => None,
        }
    }

    /// The figure, or why there is none.
    pub(crate) fn find(&self, evidence: &Evidence<'_>) -> Result<Found, String> {
        match self {
            Self::Speed { ground, slow, fast } => speed(evidence.run(*ground)?, slow, fast),
            Self::JournalTime { cell } => {
                let (journal, none) = evidence.article_1.as_ref().map_err(Clone::clone)?;
                let found =
                    told(relative(rounds(journal, cell)?, rounds(none, cell)?, journal.seed))?;
                Ok(times(found, format!("{}, without a journal : with one", cell.name())))
            }
            Self::JournalCount { cell, what } => {
                let (journal, none) = evidence.article_1.as_ref().map_err(Clone::clone)?;
                amplified(count(journal, cell, *what)?, count(none, cell, *what)?)
            }
            Self::Count { ground, cell, what } => count(evidence.run(*ground)?, cell, *what),
            Self::Rate { result, rows } => rate(evidence, result, *rows),
            Self::Row { result, row } => row_count(evidence, result, row),
            Self::Blocks { mode, len_bytes } => blocks(evidence, *mode, *len_bytes),
            Self::Elsewhere(why) => Err((*why).into()),
        }
    }
}

impl Evidence<'_> {
    fn run(&self, ground: Ground) -> Result<&Run, String> {
        let both = || self.article_1.as_ref().map_err(Clone::clone);
        match ground {
            Ground::Here => self.here.as_ref().copied().map_err(Clone::clone),
            Ground::Journal => self.journal.as_ref().copied().map_err(Clone::clone),
            Ground::Article1Journal => both().map(|(journal, _)| *journal),
            Ground::Article1NoJournal => both().map(|(_, none)| *none),
        }
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

/// Whether the figures of this result are counts of what reached the device, and no times.
fn is_counted(result: &str) -> bool {
    list::giving(result, Size::Claims).is_some_and(|experiment| experiment.is_counted())
}

/// The result of an experiment, and why there is none.
fn result_of<'a>(evidence: &Evidence<'a>, name: &str) -> Result<&'a ExperimentResult, String> {
    let found = evidence.experiments.iter().find(|found| found.name == name);
    found.ok_or_else(|| match (is_counted(name), &evidence.journal) {
        (true, Err(why)) => why.clone(),
        _ => format!("{name} did not run"),
    })
}

fn row_of<'a>(found: &'a ExperimentResult, row: &str) -> Result<&'a ExperimentRow, String> {
    let row = found.rows.iter().find(|known| known.name == row);
    let row = row.ok_or_else(|| format!("{} has no such row", found.name))?;
    row.invalid.as_ref().map_or(Ok(row), |reason| Err(reason.clone()))
}

fn rate(evidence: &Evidence<'_>, name: &str, rows: Rows) -> Result<Found, String> {
    let found = result_of(evidence, name)?;
    let rounds = |row: &str| row_of(found, row).map(|row| rounds_of(row, &found.unit));
    let (slow, fast) = (rounds(rows.slow)?, rounds(rows.fast)?);
    let compared = told(relative(&slow, &fast, found.seed))?;
    Ok(times(compared, format!("{} : {}", rows.fast, rows.slow)))
}

/// The most of any round: what cannot happen happens in none, what can need not happen in each.
fn row_count(evidence: &Evidence<'_>, name: &str, row: &str) -> Result<Found, String> {
    let found = result_of(evidence, name)?;
    let most = row_of(found, row)?.samples.iter().copied().reduce(f64::max);
    let value = most.ok_or_else(|| format!("{name} did not run"))?;
    Ok(Found {
        value,
        low: value,
        high: value,
        unit: found.unit.clone(),
        of: format!("{row}, in any round"),
    })
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
