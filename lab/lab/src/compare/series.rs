//! Results as series of times per round, and the yardstick of each run.
//!
//! *Owns*: reading both kinds of result, and measuring a series by its run's yardstick. *May not
//! touch*: verdicts.
//!
//! A row of a bench has its own yardstick: the bare overwrite measured beside it, round by round.
//! Cells of a run, and rows of an experiment, have the *level*: how a round changed all of them
//! (the median of their distances from their own centres), and how the second run as a whole
//! changed (the median of their shifts). One slow cell, or one slow baseline, does not move a
//! median, whereas a single cell as the yardstick would make all others look changed. With fewer
//! than [`LEVEL_MIN`] cells a median is not a level, and the run's baseline is used.
//!
//! **Operations in the page cache** differ more between runs than within one: all rounds of a run
//! find the same folios, and their sizes differ from run to run by chance. In 110 pairs of 11 quick
//! runs of one build, reads, text lines and writes without a sync differed by 0.1 to 0.4 from one
//! run to the next (standard deviation of the logarithm), durable writes mostly by 0.03 to 0.09. So
//! they count with at least [`MEMORY_BETWEEN`].

use std::collections::{BTreeMap, BTreeSet};

use inkstone_io::{Access, Durability};

use crate::bench::result::{BENCH_SCHEMA_VERSION, BenchResult, BenchRow};
use crate::experiment::{ExperimentResult, ExperimentRow, list};
use crate::export::from_json;
use crate::result::{
    DurableFinding, LabResult, Machine, Outcome, Place, Round, Run, SCHEMA_VERSION,
};
use crate::run::ROUNDS_MIN;
use crate::stats::{hodges_lehmann_of, median};

use super::judge::Shift;

/// With this many cells one of them cannot move their median far.
pub(super) const LEVEL_MIN: usize = 5;

/// Runs of one build differ by at least this much, cell by cell: one standard deviation of the
/// logarithm.
pub(super) const BETWEEN_MIN: f64 = 0.02;
/// The same for operations in the page cache.
const MEMORY_BETWEEN: f64 = 0.35;

/// A result, read for comparing.
#[derive(Debug, Clone)]
pub struct Read {
    /// `a result of the lab`, `a bench`.
    pub(super) kind: &'static str,
    pub(super) machine: Machine,
    pub(super) places: Vec<Place>,
    pub(super) version: String,
    pub(super) groups: Vec<Group>,
}

/// Series measured side by side.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) baseline: Option<String>,
    /// Whether each series is already measured by its own floor.
    pub(super) has_floors: bool,
    pub(super) series: Vec<Series>,
}

/// One cell or row.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    /// What must be equal for two series to be compared.
    pub(super) what: String,
    pub(super) invalid: Option<String>,
    /// It differs between runs of one build by at least this much: one standard deviation of the
    /// logarithm.
    pub(super) between_min: f64,
    /// Logarithm of the time per commit or operation, by number of the round.
    pub(super) logs: BTreeMap<u32, f64>,
}

/// Reads the JSON of `inkstone lab` or `inkstone bench`.
///
/// # Errors
/// When it is neither, or of another version.
pub fn read(json: &str) -> Result<Read, String> {
    let value: serde_json::Value =
        serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
    let version = value.get("schema_version").and_then(serde_json::Value::as_u64);
    let (kind, expected) = match (value.get("runs").is_some(), value.get("rows").is_some()) {
        (true, _) => ("a result of the lab", SCHEMA_VERSION),
        (false, true) => ("a bench", BENCH_SCHEMA_VERSION),
        (false, false) => {
            return Err("it is not a result of `inkstone lab` or `inkstone bench`".into());
        }
    };
    if version != Some(expected.into()) {
        let found = version.map_or("none".into(), |version| version.to_string());
        return Err(format!("its schema_version is {found}, and this inkstone reads {expected}"));
    }
    let wrong = |error: serde_json::Error| format!("it is not valid as {kind}: {error}");
    if value.get("runs").is_some() {
        Ok(of_lab(&from_json(json).map_err(wrong)?))
    } else {
        Ok(of_bench(&serde_json::from_value(value).map_err(wrong)?))
    }
}

pub(super) fn of_lab(result: &LabResult) -> Read {
    let mut groups: Vec<Group> = result.runs.iter().map(of_run).collect();
    groups.extend(result.experiments.iter().map(of_experiment));
    tell_apart(&mut groups);
    let places = result.runs.iter().map(|run| run.place.clone());
    let places = places
        .chain(result.experiments.iter().map(|experiment| experiment.place.clone()))
        .collect();
    let kind = "a result of the lab";
    Read {
        kind,
        machine: result.preamble.machine.clone(),
        places,
        version: result.preamble.inkstone_version.clone(),
        groups,
    }
}

/// Adds a number to the second and later groups of the same name.
fn tell_apart(groups: &mut [Group]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for group in groups {
        let count = seen.entry(group.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            group.name = format!("{} #{count}", group.name);
        }
    }
}

/// The name of a group. It leaves the directory out, since directories differ between machines and
/// days. Images, and the disks of a comparison of disks, keep their names.
fn group_name(name: &str, place: &Place) -> String {
    if place.name.contains(" loop") || name == "disks" {
        format!("{name} ({})", place.name)
    } else {
        name.into()
    }
}

pub(super) fn of_run(run: &Run) -> Group {
    let series = run.cells.iter().map(|cell| {
        let (invalid, logs) = match &cell.outcome {
            Outcome::Measured(measured) => (None, round_logs(&measured.rounds)),
            Outcome::Invalid { reason } => (Some(reason.clone()), BTreeMap::new()),
            Outcome::NotRun => (Some("it did not run".into()), BTreeMap::new()),
        };
        // A cell that lost its durability is not faster: it is something else.
        let measured = cell.outcome.measured();
        let lies = measured
            .is_some_and(|found| matches!(found.durable, DurableFinding::NotCovered { .. }));
        let durable = if lies { ", seen not to be durable" } else { "" };
        let (write, file) = (cell.what.write_bytes, cell.what.file_bytes);
        let what = format!("{write} bytes per write, files of {file}{durable}");
        let is_of_memory = cell.what.access == Access::Mmap.to_string()
            || cell.what.durability == Durability::None.to_string()
            || lies;
        Series {
            name: cell.name.clone(),
            what,
            invalid: invalid.or_else(|| too_few(&logs)),
            between_min: if is_of_memory { MEMORY_BETWEEN } else { BETWEEN_MIN },
            logs,
        }
    });
    Group {
        name: group_name(&run.name, &run.place),
        baseline: run.baseline.clone(),
        has_floors: false,
        series: series.collect(),
    }
}

fn round_logs(rounds: &[Round]) -> BTreeMap<u32, f64> {
    let usable = rounds.iter().filter(|round| round.commits > 0 && round.total_ns > 0);
    usable.map(|round| (round.number, round.per_commit_ns().ln())).collect()
}

fn too_few(logs: &BTreeMap<u32, f64>) -> Option<String> {
    let rounds = logs.len();
    (rounds < ROUNDS_MIN as usize).then(|| format!("only {rounds} rounds; {ROUNDS_MIN} are needed"))
}

fn of_experiment(experiment: &ExperimentResult) -> Group {
    let is_of_memory = list::is_of_memory(&experiment.name);
    let series = |row: &ExperimentRow| {
        // The yardstick is the logarithm of a time.
        let sign = if experiment.unit.is_time() { 1.0 } else { -1.0 };
        let values =
            row.samples.iter().zip(0..).filter(|(value, _)| value.is_finite() && **value > 0.0);
        let logs = values.map(|(value, number)| (number, sign * value.ln())).collect();
        let invalid =
            row.invalid.clone().or_else(|| by_chance(experiment, row)).or_else(|| too_few(&logs));
        let between_min = if is_of_memory { MEMORY_BETWEEN } else { BETWEEN_MIN };
        let name = row.name.clone();
        Series { name, what: experiment.unit.name().into(), invalid, between_min, logs }
    };
    Group {
        name: group_name(&experiment.name, &experiment.place),
        baseline: experiment.baseline.clone(),
        has_floors: false,
        series: experiment.rows.iter().map(series).collect(),
    }
}

/// After 100 misses in a row the kernel stops reading around a faulting page. In a small file that
/// happens by chance: 15,000 reads per second or two million were seen, for all rounds of a run.
fn by_chance(experiment: &ExperimentResult, row: &ExperimentRow) -> Option<String> {
    (experiment.name == "read-random-cold" && row.name == "mmap")
        .then(|| "here it is random how much the kernel reads around a page fault".into())
}

pub(super) fn of_bench(result: &BenchResult) -> Read {
    let series = result.rows.iter().map(of_row).collect();
    let group = Group { name: "bench".into(), baseline: None, has_floors: true, series };
    Read {
        kind: "a bench",
        machine: result.preamble.machine.clone(),
        places: vec![result.place.clone()],
        version: result.preamble.inkstone_version.clone(),
        groups: vec![group],
    }
}

/// The log's time per commit divided by that of one overwrite in the same round.
fn of_row(row: &BenchRow) -> Series {
    let floor = row.floor.as_ref();
    let floors = floor.map(|floor| round_logs(&floor.rounds)).unwrap_or_default();
    let logs = round_logs(&row.rounds);
    let logs = logs
        .into_iter()
        .filter_map(|(number, log)| Some((number, log - floors.get(&number)?)))
        .collect();
    Series {
        name: format!("{}, {} B", row.load, row.record_bytes),
        what: format!(
            "records of {} bytes, a floor of {} bytes",
            row.record_bytes,
            floor.map_or(0, |f| f.write_bytes)
        ),
        invalid: row.failed.clone().or_else(|| too_few(&logs)),
        between_min: BETWEEN_MIN,
        logs,
    }
}

/// The yardstick of the series of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Yardstick {
    /// Each series has its own floor.
    Floors,
    /// The median of all, round by round.
    Level,
    /// The baseline of this name.
    Baseline(String),
    /// None.
    Nothing,
}

impl Yardstick {
    pub(super) fn of(group: &Group, usable: &[(&Series, &Series)]) -> Self {
        let has = |name: &&String| usable.iter().any(|(series, _)| &series.name == *name);
        match group.baseline.as_ref().filter(has) {
            _ if group.has_floors => Self::Floors,
            _ if usable.len() >= LEVEL_MIN => Self::Level,
            Some(name) => Self::Baseline(name.clone()),
            None => Self::Nothing,
        }
    }

    /// The shift of each pair from its first to its second series, each by the yardstick of its own
    /// result; or why there is none.
    pub(super) fn shifts(&self, pairs: &[(&Series, &Series)]) -> Vec<Result<Shift, String>> {
        let firsts: Vec<&Series> = pairs.iter().map(|(first, _)| *first).collect();
        let seconds: Vec<&Series> = pairs.iter().map(|(_, second)| *second).collect();
        let (first, second) = (self.measured(&firsts), self.measured(&seconds));
        let shift = |name: &str, a: &[f64], b: &[f64]| match self {
            Self::Nothing => Err(format!(
                "fewer than {LEVEL_MIN} ways and no baseline, so there is no yardstick"
            )),
            Self::Baseline(baseline) if baseline == name => {
                Err("it is the yardstick of the others".into())
            }
            _ if a.len().min(b.len()) < ROUNDS_MIN as usize => {
                Err("too few of its rounds have a yardstick".into())
            }
            _ => Ok(Shift::between(a, b)),
        };
        let measured = firsts.iter().zip(first.iter().zip(&second));
        let mut shifts: Vec<Result<Shift, String>> = measured
            .map(|(series, (a, b))| Ok(shift(&series.name, a, b)?.at_least(series.between_min)))
            .collect();
        if *self == Self::Level {
            // The part that all share belongs to the second run as a whole.
            let logs: Vec<f64> = shifts.iter().flatten().map(|shift| shift.log).collect();
            let whole = median(&logs).unwrap_or(0.0);
            shifts.iter_mut().flatten().for_each(|shift| shift.log -= whole);
        }
        shifts
    }

    /// Each series, round by round, without the common change of each round.
    fn measured(&self, all: &[&Series]) -> Vec<Vec<f64>> {
        let rounds: BTreeSet<u32> =
            all.iter().flat_map(|series| series.logs.keys().copied()).collect();
        let yards: BTreeMap<u32, f64> = match self {
            Self::Floors => rounds.into_iter().map(|number| (number, 0.0)).collect(),
            Self::Level => levels(all, &rounds),
            Self::Baseline(name) => all
                .iter()
                .find(|series| series.name == *name)
                .map(|series| series.logs.clone())
                .unwrap_or_default(),
            Self::Nothing => BTreeMap::new(),
        };
        let against = |series: &&Series| {
            series.logs.iter().filter_map(|(number, log)| Some(log - yards.get(number)?)).collect()
        };
        all.iter().map(against).collect()
    }
}

/// For each round that all have: the median of their distances from their own centres.
fn levels(all: &[&Series], rounds: &BTreeSet<u32>) -> BTreeMap<u32, f64> {
    let centres: Vec<f64> = all
        .iter()
        .map(|series| centre(&series.logs.values().copied().collect::<Vec<_>>()))
        .collect();
    let level = |&number: &u32| {
        let away = all
            .iter()
            .zip(&centres)
            .map(|(series, centre)| Some(series.logs.get(&number)? - centre));
        let away: Option<Vec<f64>> = away.collect();
        Some((number, median(&away?)?))
    };
    rounds.iter().filter_map(level).collect()
}

pub(super) fn centre(values: &[f64]) -> f64 {
    hodges_lehmann_of(values)
}
