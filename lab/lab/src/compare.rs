//! Two results of the lab side by side: which ways became slower or faster, and for which it cannot
//! tell.
//!
//! *Owns*: the yardstick of each table, the noise between runs, when a difference counts, the text.
//! *May not touch*: figures of either result.
//!
//! **The yardstick.** Times of two runs are never compared directly: between them the machine
//! drifts, and two machines differ anyway. The ways of a table have the *level*: how a round
//! changed all of them (the median of their distances from their own centres), and how the second
//! run as a whole changed (the median of their shifts). One slow way, or one slow baseline, does
//! not move a median. With fewer than `LEVEL_MIN` ways a median is not a level, and the table's
//! baseline is used: of the log's load that is the bare overwrite.
//!
//! **The shift** of a way is the Hodges-Lehmann shift: the median of all differences between a
//! round of the second result and a round of the first, as logarithms. Its own error comes from the
//! scatter of the rounds (median absolute deviations, so that single slow rounds do not count as
//! scatter).
//!
//! **Noise between runs.** Rounds of one run share a file, its place on the disk, the state of the
//! host: two runs of the same build differ by more than their rounds scatter. The amount comes from
//! the comparison itself, as in a random-effects meta-analysis (DerSimonian and Laird 1986,
//! Controlled Clinical Trials 7, 177-188) but robustly: from the shifts of the nearer three
//! quarters of all ways. So at most a quarter of the ways may really have changed; if more have,
//! changes go unnoticed. It is at least `BETWEEN_ALONE` if there are too few ways, and at least
//! `MEMORY_BETWEEN` for operations in the page cache: all rounds of a run find the same folios,
//! and their sizes differ from run to run by chance. In 110 pairs of 11 quick runs of one build,
//! reads, text lines and writes without a sync differed by 0.1 to 0.4 from one run to the next
//! (standard deviation of the logarithm), durable writes mostly by 0.03 to 0.09.
//!
//! **Many ways.** With thirty ways at 95% some way is always "slower". So each gets a two-sided
//! p-value (Student's t), and all of them together go through Holm's step-down procedure (Holm
//! 1979, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
//! Statistics 6, 65-70): the chance of *any* false alarm in a comparison is at most `ALPHA`. A
//! change must also be at least `CHANGE_MIN`.

use std::collections::BTreeMap;

use inkstone_io::{Access, Durability, Strategy};
use serde::{Deserialize, Serialize};

use crate::result::{DurableFinding, LabResult, Machine, Place, Table, Warning, Way};
use crate::rounds::ROUNDS_MIN;
use crate::stats::{SAME_WITHIN, hodges_lehmann_of, median, t_above, t_of_tail};
use crate::warnings::is_doubt;
use crate::writing::Writing;

/// With this many ways one of them cannot move their median far.
const LEVEL_MIN: usize = 5;
/// Runs of one build differ by at least this much, way by way: one standard deviation of the
/// logarithm.
const BETWEEN_MIN: f64 = 0.02;
/// The same for operations in the page cache.
const MEMORY_BETWEEN: f64 = 0.35;
/// Noise between runs if there are too few ways to estimate it.
const BETWEEN_ALONE: f64 = 0.05;
/// Chance of any false alarm in a whole comparison.
const ALPHA: f64 = 0.01;
/// A change below 5% does not count, however certain.
const CHANGE_MIN: f64 = 1.05;
/// Median absolute deviation to standard deviation, for normal noise.
const MAD_TO_SD: f64 = 1.4826;
/// Mean square of the nearer three quarters to variance, for normal noise: 1 / (1 - 2 q f(q) /
/// 0.75) with the density f and its quartile q = 1.1503.
const NEARER_TO_VARIANCE: f64 = 2.714;

/// A comparison of two results.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// The answer, in words.
    pub sentence: String,
    /// What is compared, and what is not: the yardstick, other machines, drift.
    pub notes: Vec<String>,
    /// One line for each way of either result.
    pub lines: Vec<Line>,
}

/// One way in both results.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Line {
    /// Table, and place.
    pub group: String,
    /// The way's name.
    pub name: String,
    /// Its time in the second result divided by that in the first, each by its own yardstick: above
    /// 1 is slower.
    pub ratio: Option<f64>,
    /// 95% interval of that, for this line alone.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// The verdict, corrected for all lines together.
    pub change: Change,
    /// Why there is no verdict, if there is a special reason.
    pub why: Option<String>,
}

/// The verdict on a way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Its interval lies inside the margin.
    Same,
    /// It takes less time, beyond noise.
    Faster,
    /// It takes more time, beyond noise.
    Slower,
    /// The figures allow none of the three.
    #[default]
    CannotTell,
}

impl Comparison {
    /// Lines of this kind.
    pub fn count(&self, change: Change) -> usize {
        self.lines.iter().filter(|line| line.change == change).count()
    }

    /// 0: nothing became slower; 3: something did; 4: there is no verdict on anything.
    pub fn exit_code(&self) -> u8 {
        match (self.count(Change::Slower), self.count(Change::Same) + self.count(Change::Faster)) {
            (0, 0) => 4,
            (0, _) => 0,
            _ => 3,
        }
    }
}

/// Compares the second result with the first. Where the lab doubts one of the two and not the other,
/// no way has a verdict: what caused the warning may have caused the difference.
pub fn compare(first: &LabResult, second: &LabResult) -> Comparison {
    let (before, after) = (groups(first), groups(second));
    let mut lines = Vec::new();
    let mut shifts = Vec::new();
    let mut drifts = Vec::new();
    for (name, table) in &before {
        match after.get(name) {
            Some(other) => {
                shifts.push(one_group(name, table, other, &mut lines));
                drifts.extend(drift(name, table, other));
            }
            None => lines.extend(table.ways.iter().map(|way| alone(name, way, FIRST_ONLY))),
        }
    }
    for (name, table) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        lines.extend(table.ways.iter().map(|way| alone(name, way, SECOND_ONLY)));
    }
    match doubt(first, second) {
        None => judge(&mut lines, &shifts),
        Some(why) => {
            let open = lines.iter_mut().filter(|line| line.why.is_none());
            open.for_each(|line| line.why = Some(why.clone()));
        }
    }
    let mut found = Comparison { lines, ..Comparison::default() };
    (found.sentence, found.notes) = (sentence(&found), notes(first, second, drifts));
    found
}

/// A warning of one of them that the other does not have.
fn doubt(first: &LabResult, second: &LabResult) -> Option<String> {
    let only = |one: &LabResult, other: &LabResult, which: &str| {
        let has = |warning: &Warning| other.warnings.iter().any(|had| had.name == warning.name);
        let warned = one.warnings.iter().find(|warning| is_doubt(warning) && !has(warning))?;
        Some(format!("in the {which} the lab warns: {}", warned.text))
    };
    only(first, second, "first").or_else(|| only(second, first, "second"))
}

const FIRST_ONLY: &str = "only in the first";
const SECOND_ONLY: &str = "only in the second";

/// The tables by name. A name leaves the directory out, since directories differ between machines
/// and days. Images, and the disks of a comparison of disks, keep their names; a second table of
/// one name gets a number.
fn groups(result: &LabResult) -> BTreeMap<String, &Table> {
    let mut all = BTreeMap::new();
    for table in &result.tables {
        let Table { name, place, .. } = table;
        let has_place = place.name.contains(" loop") || name == "disks";
        let name = if has_place { format!("{name} ({})", place.name) } else { name.clone() };
        let numbered = (1..).map(|number: u32| match number {
            1 => name.clone(),
            number => format!("{name} #{number}"),
        });
        let free = numbered.into_iter().find(|name| !all.contains_key(name));
        all.insert(free.unwrap_or_default(), table);
    }
    all
}

fn alone(group: &str, way: &Way, why: &str) -> Line {
    let why = Some(why.into());
    Line { group: group.into(), name: way.name.clone(), why, ..Line::default() }
}

/// The logarithm of the time per operation, by number of the round.
type Logs = BTreeMap<u32, f64>;

fn logs(way: &Way) -> Logs {
    let usable = way.rounds.iter().filter(|round| round.is_usable());
    usable.map(|round| (round.number, round.per_commit_ns().ln())).collect()
}

/// A way that gave up its durability is not faster: it is something else.
fn lies(way: &Way) -> bool {
    matches!(way.durable, Some(DurableFinding::NotCovered { .. }))
}

/// What must be equal for two ways to be compared.
fn what(table: &Table, way: &Way) -> String {
    let unit = table.unit.name();
    let durable = if lies(way) { ", seen not to be durable" } else { "" };
    let floor = way.figure("bytes per write").map(|bytes| format!(", {bytes} bytes per write"));
    let sizes = way.file_bytes.map(|bytes| format!(", files of {bytes} bytes"));
    format!("{unit}{}{durable}", sizes.or(floor).unwrap_or_default())
}

/// Whether its figures are those of memory and processors rather than of the disk.
fn is_of_memory(table: &Table, way: &Way) -> bool {
    let written = way.file_bytes.and_then(|_| Writing::named(&way.name).ok());
    ["read-", "text-"].iter().any(|name| table.name.starts_with(name))
        || written.is_some_and(|writing| {
            let Strategy { access, durability, .. } = writing.strategy;
            access == Access::Mmap || durability == Durability::None
        })
        || lies(way)
}

/// Why these two cannot be compared.
fn cannot(a: (&Table, &Way), b: (&Table, &Way)) -> Option<String> {
    let invalid = |(table, way): (&Table, &Way), which: &str| {
        // After 100 misses in a row the kernel stops reading around a faulting page. In a small
        // file that happens by chance: 15,000 reads per second or two million were seen, for all
        // rounds of a run.
        let by_chance = table.name == "read-random-cold" && way.name == "mmap";
        let by_chance = by_chance
            .then(|| "here it is random how much the kernel reads around a page fault".into());
        let rounds = logs(way).len();
        let few = || {
            (rounds < ROUNDS_MIN as usize)
                .then(|| format!("only {rounds} rounds; {ROUNDS_MIN} are needed"))
        };
        let why = way.missing.clone().or(by_chance).or_else(few);
        why.map(|why| format!("{which}: {why}"))
    };
    invalid(a, "in the first").or_else(|| invalid(b, "in the second")).or_else(|| {
        let (first, second) = (what(a.0, a.1), what(b.0, b.1));
        (first != second)
            .then(|| format!("different things: {first} in the first, {second} in the second"))
    })
}

/// How much a way of the second result differs from that of the first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shift {
    /// Logarithm: above 0 is slower.
    log: f64,
    /// Its error from the scatter of the rounds: one standard deviation.
    error: f64,
    /// Runs of one build differ by at least this much.
    between_min: f64,
}

impl Shift {
    /// The shift from `a` to `b`; neither is empty.
    fn between(a: &[f64], b: &[f64], between_min: f64) -> Self {
        let differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
        let log = median(&differences).unwrap_or(0.0);
        let spread = |values: &[f64]| {
            let from = hodges_lehmann_of(values);
            let away: Vec<f64> = values.iter().map(|value| (value - from).abs()).collect();
            median(&away).unwrap_or(0.0) * MAD_TO_SD
        };
        // The variance of a Hodges-Lehmann centre: pi/3 of the mean's, for normal noise.
        let variance = |values: &[f64]| spread(values).powi(2) / values.len() as f64;
        let error = ((variance(a) + variance(b)) * std::f64::consts::FRAC_PI_3).sqrt();
        Self { log, error, between_min }
    }
}

/// Adds a line for each way of either table; returns the shift of each line that can be judged.
fn one_group(
    name: &str,
    first: &Table,
    second: &Table,
    lines: &mut Vec<Line>,
) -> Vec<(usize, Shift)> {
    let mut usable: Vec<(&Way, &Way)> = Vec::new();
    for way in &first.ways {
        let Some(other) = second.way(&way.name) else {
            lines.push(alone(name, way, FIRST_ONLY));
            continue;
        };
        match cannot((first, way), (second, other)) {
            Some(why) => lines.push(alone(name, way, &why)),
            None => usable.push((way, other)),
        }
    }
    let is_new = |way: &&Way| first.way(&way.name).is_none();
    lines.extend(second.ways.iter().filter(is_new).map(|way| alone(name, way, SECOND_ONLY)));
    let is_level = usable.len() >= LEVEL_MIN;
    let baseline = first.baseline.as_deref().filter(|_| !is_level);
    let baseline = baseline.filter(|name| usable.iter().any(|(way, _)| way.name == *name));
    let firsts: Vec<(&str, Logs)> =
        usable.iter().map(|(way, _)| (way.name.as_str(), logs(way))).collect();
    let seconds: Vec<(&str, Logs)> =
        usable.iter().map(|(_, way)| (way.name.as_str(), logs(way))).collect();
    let before = by_yardstick(&firsts, baseline, is_level);
    let after = by_yardstick(&seconds, baseline, is_level);
    let mut shifts: Vec<(usize, Shift)> = Vec::new();
    for (index, (way, _)) in usable.iter().enumerate() {
        let (a, b) = (&before[index], &after[index]);
        let why = if !is_level && baseline.is_none() {
            Some(format!("fewer than {LEVEL_MIN} ways and no baseline, so there is no yardstick"))
        } else if baseline == Some(way.name.as_str()) {
            Some("it is the yardstick of the others".into())
        } else if a.len().min(b.len()) < ROUNDS_MIN as usize {
            Some("too few of its rounds have a yardstick".into())
        } else {
            let between = if is_of_memory(first, way) { MEMORY_BETWEEN } else { BETWEEN_MIN };
            shifts.push((lines.len(), Shift::between(a, b, between)));
            None
        };
        lines.push(Line { why, ..alone(name, way, "") });
    }
    if is_level {
        // The part that all share belongs to the second run as a whole.
        let logs: Vec<f64> = shifts.iter().map(|(_, shift)| shift.log).collect();
        let whole = median(&logs).unwrap_or(0.0);
        shifts.iter_mut().for_each(|(_, shift)| shift.log -= whole);
    }
    shifts
}

/// Each way, round by round, without the common change of each round.
fn by_yardstick(ways: &[(&str, Logs)], baseline: Option<&str>, is_level: bool) -> Vec<Vec<f64>> {
    let yards: Logs = match baseline {
        _ if is_level => levels(ways),
        Some(name) => ways
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, logs)| logs.clone())
            .unwrap_or_default(),
        None => Logs::new(),
    };
    let against = |(_, logs): &(&str, Logs)| {
        logs.iter().filter_map(|(number, log)| Some(log - yards.get(number)?)).collect()
    };
    ways.iter().map(against).collect()
}

/// For each round that all have: the median of their distances from their own centres.
fn levels(ways: &[(&str, Logs)]) -> Logs {
    let centres: Vec<f64> = ways.iter().map(|(_, logs)| centre(logs)).collect();
    let rounds = ways.first().into_iter().flat_map(|(_, logs)| logs.keys());
    let level = |&number: &u32| {
        let away = ways.iter().zip(&centres);
        let away = away.map(|((_, logs), centre)| Some(logs.get(&number)? - centre));
        Some((number, median(&away.collect::<Option<Vec<f64>>>()?)?))
    };
    rounds.filter_map(level).collect()
}

fn centre(logs: &Logs) -> f64 {
    hodges_lehmann_of(&logs.values().copied().collect::<Vec<_>>())
}

/// Fills in ratio, interval and change of every line that has a shift. Each group has its own noise
/// between runs; Holm's procedure covers all groups together.
fn judge(lines: &mut [Line], groups: &[Vec<(usize, Shift)>]) {
    let mut tests = Vec::new();
    for group in groups {
        let shifts: Vec<Shift> = group.iter().map(|(_, shift)| *shift).collect();
        let (between, within) = noise(&shifts);
        // Degrees of freedom of the noise estimate. By simulation (`tests`): with this number the
        // false alarms stay below `ALPHA`, although the farther ways do not count.
        let degrees = shifts.len().clamp(5, 30);
        let reach = t_of_tail(0.025, degrees);
        for &(index, shift) in group {
            // There are few rounds: a way whose rounds happen to agree is not more certain than the
            // others.
            let error = shift.error.max(within).hypot(between.max(shift.between_min));
            let line = &mut lines[index];
            line.ratio = Some(shift.log.exp());
            line.low = Some((shift.log - reach * error).exp());
            line.high = Some((shift.log + reach * error).exp());
            tests.push((2.0 * t_above((shift.log / error).abs(), degrees), index));
        }
    }
    tests.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = tests.len();
    let mut rejected = true;
    for (place, (p, index)) in tests.into_iter().enumerate() {
        // Step down: the first hypothesis that is not rejected ends it.
        rejected = rejected && p <= ALPHA / (count - place) as f64;
        let line = &mut lines[index];
        let (Some(ratio), Some(low), Some(high)) = (line.ratio, line.low, line.high) else {
            continue;
        };
        line.change = if rejected && ratio >= CHANGE_MIN {
            Change::Slower
        } else if rejected && ratio <= 1.0 / CHANGE_MIN {
            Change::Faster
        } else if low >= 1.0 / SAME_WITHIN && high <= SAME_WITHIN {
            Change::Same
        } else {
            Change::CannotTell
        };
    }
}

/// The noise between runs (the spread of the shifts beyond their own errors), and the usual own
/// error.
fn noise(shifts: &[Shift]) -> (f64, f64) {
    let errors: Vec<f64> = shifts.iter().map(|shift| shift.error).collect();
    let within = median(&errors).unwrap_or(0.0);
    if shifts.len() < LEVEL_MIN {
        return (BETWEEN_ALONE, within);
    }
    let mut squares: Vec<f64> = shifts.iter().map(|shift| shift.log.powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    squares.truncate((squares.len() * 3).div_ceil(4));
    let nearer = squares.iter().sum::<f64>() / squares.len() as f64;
    let beyond = nearer * NEARER_TO_VARIANCE - within.powi(2);
    (beyond.max(0.0).sqrt(), within)
}

/// The answer.
fn sentence(comparison: &Comparison) -> String {
    let counts = [Change::Slower, Change::Faster, Change::Same, Change::CannotTell]
        .map(|change| comparison.count(change));
    let [slower, faster, same, unknown] = counts;
    let margin = (SAME_WITHIN - 1.0) * 100.0;
    let rest = format!("{same} the same (within {margin:.0}%), no answer for {unknown}");
    let named = |change: Change| {
        let name = |line: &Line| {
            format!("`{}` ({:.2} times the time)", line.name, line.ratio.unwrap_or(f64::NAN))
        };
        let of_it = comparison.lines.iter().filter(|line| line.change == change);
        of_it.map(name).collect::<Vec<_>>().join(", ")
    };
    let (slow, fast) = (named(Change::Slower), named(Change::Faster));
    match (slower, faster) {
        (0, 0) if same == 0 => {
            format!("No answer: none of {unknown} is within the margin or beyond the noise.")
        }
        (0, 0) => format!("Nothing became slower: {rest}."),
        (0, _) => format!("Nothing became slower. Faster: {fast}; {rest}."),
        (_, 0) => format!("Slower: {slow}; {rest}."),
        _ => format!("Slower: {slow}. Faster: {fast}; {rest}."),
    }
}

/// What a reader must know about it.
fn notes(first: &LabResult, second: &LabResult, drifts: Vec<String>) -> Vec<String> {
    let mut notes = vec![
        "Each way is compared relative to its own run: what a round or a run did to all ways alike \
         (their median; the baseline if there are fewer than five) is subtracted. So drift of the \
         machine, or a disk that is slower as a whole, does not count."
            .into(),
    ];
    notes.extend(drifts);
    notes.push(format!(
        "The noise between runs is estimated from the scatter of all ways; the chance of any \
         false alarm is at most {:.0}% (Holm 1979).",
        ALPHA * 100.0
    ));
    let (one, other) = (&first.preamble.machine, &second.preamble.machine);
    let machine = |machine: &Machine| format!("{} x {}", machine.cpus, machine.cpu);
    if machine(one) != machine(other) {
        notes.push(format!(
            "These are different machines ({}; {}): only ratios inside each run are compared, not \
             how fast either is.",
            machine(one),
            machine(other)
        ));
    } else if one.kernel != other.kernel {
        notes.push(format!("The kernels differ: {}; {}.", one.kernel, other.kernel));
    }
    let places = first.tables.iter().zip(&second.tables);
    let mut disks = places.map(|(a, b)| (disk(&a.place), disk(&b.place)));
    if let Some((one, other)) = disks.find(|(one, other)| one != other) {
        notes.push(format!("The disks differ: {one}; {other}."));
    }
    let (one, other) = (&first.preamble.inkstone_version, &second.preamble.inkstone_version);
    if one != other {
        notes.push(format!("The versions of inkstone differ: {one}; {other}."));
    }
    notes
}

fn disk(place: &Place) -> String {
    let device = place.device.as_deref().unwrap_or("no device");
    // A loop device's number changes from run to run.
    let device = if device.starts_with("loop") { "a loop device" } else { device };
    let model = place.model.as_deref().map(|model| format!(", {model}")).unwrap_or_default();
    format!("{} on {device}{model}", place.file_system)
}

/// How the runs differ as a whole.
fn drift(name: &str, first: &Table, second: &Table) -> Option<String> {
    let shift = |way: &Way| {
        let (a, b) = (logs(way), logs(second.way(&way.name)?));
        (!a.is_empty() && !b.is_empty()).then(|| centre(&b) - centre(&a))
    };
    let whole = median(&first.ways.iter().filter_map(shift).collect::<Vec<_>>())?.exp();
    Some(format!(
        "{name}: the second run as a whole took {whole:.2} times as long per commit as the first."
    ))
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::result::Unit;
    use crate::table::samples::timed;

    const WAYS: usize = 13;

    /// A shared machine: each run and round drifts as a whole, each way of a run has a small
    /// constant error, rounds scatter, and now and then one is several times too slow.
    struct World {
        round: f64,
        between: f64,
        spikes: f64,
    }

    const NOISY: World = World { round: 0.10, between: 0.03, spikes: 0.05 };
    const QUIET: World = World { round: 0.03, between: 0.0, spikes: 0.0 };
    /// The worst machine: it allows hardly any verdict, and there must be no false one.
    const WORST: World = World { round: 0.2, between: 0.08, spikes: 0.1 };

    fn normal(rng: &mut Rng) -> f64 {
        // Twelve uniform numbers: close to normal, and never far out; the spikes are separate.
        (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
    }

    fn table(name: &str, ways: Vec<Way>) -> LabResult {
        let baseline = ways.first().map(|way| way.name.clone());
        let unit = Unit::OperationsPerS;
        let table = Table { name: name.into(), unit, baseline, ways, ..Table::default() };
        LabResult { tables: vec![table], ..LabResult::default() }
    }

    fn way(name: &str, times_us: impl Iterator<Item = f64>) -> Way {
        timed(name, times_us.map(|us| us * 1e3))
    }

    fn run_of(rng: &mut Rng, world: &World, slowed: &[(usize, f64)]) -> LabResult {
        let speed = normal(rng) * 0.3;
        let off: Vec<f64> = (0..WAYS).map(|_| normal(rng) * world.between).collect();
        let drift: Vec<f64> = (0..12).map(|_| normal(rng) * 0.15).collect();
        let ways = (0..WAYS).map(|index| {
            let slow = slowed.iter().find(|(known, _)| *known == index).map_or(1.0, |(_, s)| *s);
            let time = |round: usize| {
                let spike = if rng.f64() < world.spikes { 1.0 + 3.0 * rng.f64() } else { 1.0 };
                let log = (100.0 + 20.0 * index as f64).ln() + (slow * spike).ln();
                (log + speed + off[index] + drift[round] + normal(rng) * world.round).exp()
            };
            let times: Vec<f64> = (0..12).map(time).collect();
            way(&format!("way {index}"), times.into_iter())
        });
        table("quick", ways.collect())
    }

    /// How often each exit code occurs in this many pairs.
    fn codes(pairs: usize, world: &World, slowed: &[(usize, f64)]) -> BTreeMap<u8, usize> {
        let mut rng = Rng::with_seed(3);
        let mut codes = BTreeMap::new();
        for _ in 0..pairs {
            let (first, second) = (run_of(&mut rng, world, &[]), run_of(&mut rng, world, slowed));
            *codes.entry(compare(&first, &second).exit_code()).or_default() += 1;
        }
        codes
    }

    #[test]
    fn equal_builds_are_called_slower_in_at_most_one_pair_of_a_hundred() {
        // 2,000 pairs each gave 1, 0 and 6.
        for world in [NOISY, QUIET, WORST] {
            let codes = codes(200, &world, &[]);
            assert!(codes.get(&3).copied().unwrap_or(0) <= 2, "{codes:?}");
        }
    }

    #[test]
    fn a_way_that_is_slower_is_found_as_well_as_the_noise_allows() {
        // 200 pairs each gave: quiet, 15% slower: 98%; noisy, 50% slower: 70%, 75% slower: 97%,
        // twice: all.
        let quiet = codes(50, &QUIET, &[(5, 1.15)]);
        assert!(quiet[&3] >= 46, "{quiet:?}");
        let noisy = codes(50, &NOISY, &[(5, 1.75)]);
        assert!(noisy[&3] >= 45, "{noisy:?}");
    }

    #[test]
    fn a_slower_baseline_does_not_make_the_others_look_faster() {
        let mut rng = Rng::with_seed(8);
        let (first, second) =
            (run_of(&mut rng, &NOISY, &[]), run_of(&mut rng, &NOISY, &[(0, 2.0)]));
        let found = compare(&first, &second);
        assert!(found.sentence.starts_with("Slower: `way 0` ("), "{}", found.sentence);
        assert_eq!((found.count(Change::Slower), found.count(Change::Faster)), (1, 0));
        let turned = compare(&second, &first);
        assert_eq!((turned.exit_code(), turned.count(Change::Faster)), (0, 1));
    }

    fn why<'a>(found: &'a Comparison, name: &str) -> Option<&'a str> {
        found.lines.iter().find(|line| line.name == name)?.why.as_deref()
    }

    #[test]
    fn what_cannot_be_compared_is_a_line_with_its_reason() {
        let mut rng = Rng::with_seed(1);
        let world = World { round: 0.02, between: 0.0, spikes: 0.0 };
        let (first, mut second) = (run_of(&mut rng, &world, &[]), run_of(&mut rng, &world, &[]));
        let ways = &mut second.tables[0].ways;
        ways[1].missing = Some("refused".into());
        ways[2].durable = Some(DurableFinding::NotCovered { reason: "no flush".into() });
        ways[3].name = "renamed".into();
        let found = compare(&first, &second);
        assert_eq!(why(&found, "way 1"), Some("in the second: refused"));
        let lie = why(&found, "way 2").expect("a reason");
        assert!(lie.contains("different things") && lie.contains("seen not to be durable"));
        assert_eq!(why(&found, "way 3"), Some("only in the first"));
        assert_eq!(why(&found, "renamed"), Some("only in the second"));
        assert_eq!((found.exit_code(), found.lines.len()), (0, WAYS + 1), "{}", found.sentence);
        second.tables.clear();
        assert_eq!(compare(&first, &second).exit_code(), 4);
    }

    /// A run beside other load is not called slower than one without.
    #[test]
    fn a_warning_of_one_of_the_two_allows_no_verdict() {
        let (first, mut second) = (eight("pool", 1.0), eight("pool", 3.0));
        assert_eq!(compare(&first, &second).exit_code(), 3);
        let text = "other programs used 86% of the CPUs".to_owned();
        second.warnings.push(Warning { name: "cpu-busy".into(), text, cure: String::new() });
        let found = compare(&first, &second);
        assert_eq!(found.exit_code(), 4, "{}", found.sentence);
        assert!(why(&found, "mmap").is_some_and(|why| why.contains("in the second the lab warns")));
        let mut both = first;
        both.warnings.clone_from(&second.warnings);
        assert_eq!(compare(&both, &second).exit_code(), 3, "both ran beside it");
    }

    #[test]
    fn few_ways_are_measured_by_their_baseline_and_it_is_not_judged() {
        let mut rng = Rng::with_seed(5);
        let world = World { round: 0.02, between: 0.0, spikes: 0.0 };
        let mut pair = [run_of(&mut rng, &world, &[]), run_of(&mut rng, &world, &[(1, 1.6)])];
        pair.iter_mut().for_each(|result| result.tables[0].ways.truncate(3));
        let found = compare(&pair[0], &pair[1]);
        assert_eq!(why(&found, "way 0"), Some("it is the yardstick of the others"));
        assert_eq!(found.lines[1].change, Change::Slower);
        pair.iter_mut().for_each(|result| result.tables[0].baseline = None);
        assert_eq!(compare(&pair[0], &pair[1]).exit_code(), 4);
    }

    /// Eight ways; the fifth takes `slow` times the time.
    fn eight(name: &str, slow: f64) -> LabResult {
        let one = |number: usize| {
            let us = (number + 1) as f64 * if number == 4 { slow } else { 1.0 };
            let name = if number == 4 { "mmap".into() } else { format!("way {number}") };
            way(&name, (0..10).map(move |round| us * (1.0 + f64::from(round % 3) * 0.01)))
        };
        table(name, (0..8).map(one).collect())
    }

    #[test]
    fn what_the_page_cache_answers_must_be_off_by_more() {
        let change = |name: &str, slow: f64| {
            let found = compare(&eight(name, 1.0), &eight(name, slow));
            found.lines.into_iter().find(|line| line.name == "mmap").expect("it is in both")
        };
        assert_eq!(change("pool", 1.8).change, Change::Slower);
        assert_eq!(change("read-sequential-warm", 1.8).change, Change::CannotTell);
        assert_eq!(change("text-4", 1.8).change, Change::CannotTell);
        assert_eq!(change("read-sequential-warm", 12.0).change, Change::Slower);
        let by_chance = change("read-random-cold", 100.0);
        assert!(by_chance.why.is_some_and(|why| why.contains("random")));
    }

    #[test]
    fn holm_steps_down_and_stops() {
        let shift = |log: f64| Shift { log, error: 0.0, between_min: BETWEEN_MIN };
        let logs = [0.5, 0.001, -0.001, 0.002, 0.0, -0.4, 0.0, 0.001, -0.002];
        let mut lines = vec![Line::default(); logs.len()];
        judge(&mut lines, &[logs.iter().map(|&log| shift(log)).enumerate().collect()]);
        let changes: Vec<Change> = lines.iter().map(|line| line.change).collect();
        use Change::*;
        assert_eq!(changes, [Slower, Same, Same, Same, Same, Faster, Same, Same, Same]);
        assert!((lines[0].ratio.expect("a ratio") - 0.5_f64.exp()).abs() < 1e-9);
    }
}
