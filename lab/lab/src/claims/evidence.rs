//! How the figure of a statement is read from the results.
//!
//! *Owns*: reading figures. *May not touch*: running, and the answer.

use inkstone_host::FallocateMode;
use inkstone_io::NamedChoice;

use crate::experiment::statement::{By, Counted, Ground};
use crate::result::{
    BillSource, FEW_ROUNDS, FallocateAtlas, FallocateCall, Found, Kind, Relative, Table, Warning,
    Way,
};
use crate::rounds::Trial;
use crate::stats::relative;
use crate::warnings::forbidding;
use crate::writing::Writing;

/// The results of everything that ran.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// The run in the directory, or why there is none.
    pub(crate) here: Result<&'a Table, String>,
    /// The runs on file systems made for them, side by side: with a journal and without one.
    pub(crate) images: Result<(&'a Table, &'a Table), String>,
    /// The lab's warnings.
    pub(crate) warnings: &'a [Warning],
    /// The tables of other work.
    pub(crate) tables: &'a [Table],
    /// The atlas of the directory.
    pub(crate) atlas: Option<&'a FallocateAtlas>,
}

/// The ways of writing that a statement needs on this ground.
pub(crate) fn ways(by: &By, on: Ground) -> Vec<Writing> {
    match by {
        By::Speed { ground, slow, fast } if *ground == on => {
            slow.iter().copied().chain([*fast]).collect()
        }
        By::Count { ground, writing, .. } if *ground == on => vec![*writing],
        By::JournalTime { writing } | By::JournalCount { writing, .. } if on != Ground::Here => {
            vec![*writing]
        }
        _ => Vec::new(),
    }
}

/// Whether anything is counted for it on this ground.
pub(crate) fn counts_on(by: &By, on: Ground) -> bool {
    matches!(by, By::Count { .. } | By::JournalCount { .. }) && !ways(by, on).is_empty()
}

impl Evidence<'_> {
    /// The warning that forbids an answer, if there is one: a time is no better than the minute in
    /// which it was measured. Counts are not affected.
    pub(crate) fn warning(&self, by: &By) -> Option<Warning> {
        let of = |run: &Table| forbidding(run, self.warnings);
        match by {
            By::Speed { ground, .. } => of(self.run(*ground).ok()?),
            By::JournalTime { .. } => {
                let (journal, none) = self.images.as_ref().ok()?;
                of(journal).or_else(|| of(none))
            }
            By::Rate { run, .. } if run().is_private => None,
            By::Rate { .. } => of(&Table::default()),
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
            By::JournalTime { writing } => {
                let (journal, none) = (self.run(Ground::Journal)?, self.run(Ground::NoJournal)?);
                let name = writing.name();
                let (with, without) = (measured(journal, &name)?, measured(none, &name)?);
                let found = told(relative(&with.rounds, &without.rounds, journal.seed))?;
                Ok(times(found, format!("{name}, without a journal : with one")))
            }
            By::JournalCount { writing, what } => {
                let (journal, none) = (self.run(Ground::Journal)?, self.run(Ground::NoJournal)?);
                amplified(count(journal, writing, *what)?, count(none, writing, *what)?)
            }
            By::Count { ground, writing, what } => count(self.run(*ground)?, writing, *what),
            By::Rate { run, result, slow, fast } => {
                rate(self.result_of(&run(), result)?, slow, fast)
            }
            By::Most { run, result, way } => most(self.result_of(&run(), result)?, way),
            By::Blocks { mode, len_bytes } => blocks(self, *mode, *len_bytes),
            By::Elsewhere(why) => Err((*why).into()),
        }
    }

    fn run(&self, ground: Ground) -> Result<&Table, String> {
        let both = || self.images.as_ref().map_err(Clone::clone);
        match ground {
            Ground::Here => self.here.as_ref().copied().map_err(Clone::clone),
            Ground::Journal => both().map(|(journal, _)| *journal),
            Ground::NoJournal => both().map(|(_, none)| *none),
        }
    }

    /// The result of this name, or why there is none.
    fn result_of(&self, trial: &Trial, name: &str) -> Result<&Table, String> {
        let found = self.tables.iter().find(|found| found.name == name);
        found.ok_or_else(|| match (trial.is_private, &self.images) {
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
    Ok(exactly(value, "times", of))
}

fn per_commit(found: &Found) -> String {
    format!("{:.1} {}", found.value, found.unit)
}

/// The speed against the nearest of several slow ways: if the fast way beats that one, it beats
/// all.
fn speed(run: &Table, slow: &[Writing], fast: &Writing) -> Result<Found, String> {
    let judged = measured(run, &fast.name())?;
    let mut nearest: Option<(Told, String)> = None;
    let mut why = String::new();
    let mut beaten = 0;
    for writing in slow {
        let name = writing.name();
        // A way that the file system does not support is left out, as long as another remains.
        let compared = measured(run, &name)
            .and_then(|base| told(relative(&base.rounds, &judged.rounds, run.seed)));
        match compared {
            Ok(found) => {
                beaten += 1;
                if nearest.as_ref().is_none_or(|(known, _)| found.low < known.low) {
                    nearest = Some((found, name));
                }
            }
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

/// A measured way of this name, or why there is none.
fn measured<'a>(table: &'a Table, name: &str) -> Result<&'a Way, String> {
    let way = table.way(name).ok_or_else(|| format!("`{name}` did not run"))?;
    way.missing.as_ref().map_or(Ok(way), |reason| Err(format!("`{name}`: {reason}")))
}

fn exactly(value: f64, unit: &str, of: String) -> Found {
    Found { value, low: value, high: value, unit: unit.into(), of }
}

fn count(run: &Table, writing: &Writing, what: Counted) -> Result<Found, String> {
    let way = measured(run, &writing.name())?;
    let value = if what == Counted::Faults {
        let faults = ["minor faults", "major faults"].map(|name| way.figure(name));
        faults[0].zip(faults[1]).map(|(minor, major)| minor + major).ok_or("no page faults")?
    } else {
        counted(run, way, what)?
    };
    Ok(exactly(value, what.unit(), writing.name()))
}

/// Reads the count from a trace only: the device's counters include all processes.
fn counted(run: &Table, way: &Way, what: Counted) -> Result<f64, String> {
    if run.place.device.is_none() {
        return Err("there is no block device below, so nothing can be counted".into());
    }
    let bill = way.bill.as_ref().filter(|bill| bill.source == BillSource::Trace);
    let bill = bill.ok_or("needs root: only a trace shows whose requests they are")?;
    if bill.lost_events > 0 {
        return Err(format!("the kernel dropped {} events of the trace", bill.lost_events));
    }
    let layer = bill.layers.first().ok_or("the bill has no device")?;
    let has_cache = run.place.write_cache.as_deref() == Some("write back");
    if what == Counted::OwnFlushes && !has_cache {
        return Err("the device reports no volatile cache: there is nothing to flush".into());
    }
    let punts =
        || bill.uring_punts.ok_or("the kernel does not report what io_uring hands to workers");
    let own = || {
        let flushes = layer.submitters.iter().filter(|one| one.what == Kind::Flush);
        flushes.filter(|one| one.who == "this process").map(|one| one.tally.requests).sum::<u64>()
    };
    let kib = |kinds: &[Kind]| layer.of(kinds).bytes as f64 / 1024.0;
    let total = match what {
        Counted::Faults => return Err("page faults are not in a bill".into()),
        Counted::OwnFlushes => own() as f64,
        Counted::Punts => punts()? as f64,
        Counted::Reads => layer.count(Kind::DataRead) as f64,
        Counted::Metadata => layer.of(&[Kind::JournalWrite, Kind::MetadataWrite]).requests as f64,
        Counted::JournalWrites => layer.count(Kind::JournalWrite) as f64,
        Counted::JournalKib => kib(&[Kind::JournalWrite]),
        Counted::WrittenKib => kib(&[Kind::DataWrite, Kind::JournalWrite, Kind::MetadataWrite]),
    };
    if bill.commits == 0 {
        return Err("no commit was traced".into());
    }
    Ok(total / bill.commits as f64)
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

fn rate(found: &Table, slow: &str, fast: &str) -> Result<Found, String> {
    let (base, way) = (measured(found, slow)?, measured(found, fast)?);
    let compared = told(relative(&base.rounds, &way.rounds, found.seed))?;
    Ok(times(compared, format!("{fast} : {slow}")))
}

/// The most of any round: what cannot happen happens in none, what can need not happen in each.
fn most(found: &Table, name: &str) -> Result<Found, String> {
    let values = measured(found, name)?.rounds.iter().map(|round| round.value(found.unit));
    let value = values.reduce(f64::max).ok_or_else(|| format!("{name} did not run"))?;
    Ok(exactly(value, found.unit.name(), format!("{name}, in any round")))
}

fn blocks(evidence: &Evidence<'_>, mode: FallocateMode, len_bytes: u64) -> Result<Found, String> {
    let atlas = evidence.atlas.ok_or("the atlas did not run")?;
    let is_it = |call: &&FallocateCall| call.mode == mode.name() && call.len_bytes == len_bytes;
    let call = atlas.calls.iter().find(is_it).ok_or("the atlas has no such call")?;
    if !call.done {
        return Err(format!("{}: {}", atlas.place.file_system, call.answer));
    }
    let value = call.after.blocks as f64 - call.before.blocks as f64;
    Ok(exactly(value, "blocks added", format!("{} of {} KiB", mode.name(), len_bytes / 1024)))
}
