//! Two results of the lab side by side: which ways became slower or faster, and for which it cannot
//! tell.
//!
//! *Owns*: the yardstick of each table, the noise between runs, when a difference counts, the text.
//! *May not touch*: figures of either result.
//!
//! **The yardstick.** Times of two runs are never compared directly: the machine drifts between
//! them. From each round the common change of all ways is taken (the median of their distances from
//! their own centres), and then that of the whole second run; a median is not moved by one slow
//! way. With fewer than `LEVEL_MIN` ways there is no yardstick. **The shift** of a way is the
//! median of all differences between a round of the second result and one of the first, as
//! logarithms; its error comes from median absolute deviations.
//!
//! **Noise between runs.** Two runs of one build differ by more than their rounds scatter. How much
//! comes from the shifts of the nearer three quarters of all ways, as in a random-effects
//! meta-analysis (DerSimonian and Laird 1986), and is at least `BETWEEN_MIN`; `MEMORY_BETWEEN` for
//! the page cache, where runs differ by chance (110 pairs of one build: 0.1 to 0.4). So at most a
//! quarter of the ways may really have changed. **Many ways**: the p-values (Student's t) of all
//! lines go through Holm's procedure (1979): the chance of any false alarm is at most `ALPHA`.

use std::collections::BTreeMap;

use inkstone_io::{Access, Durability};

use crate::result::{DurableFinding, LabResult, Relative, Table, Verdict, Warning, Way};
use crate::rounds::ROUNDS_MIN;
use crate::stats::{SAME_WITHIN, hodges_lehmann_of, median, t_above, t_of_tail};
use crate::warnings::is_doubt;
use crate::writing::Writing;

/// With this many ways one of them cannot move their median far.
const LEVEL_MIN: usize = 5;
/// Runs of one build differ by at least this much, way by way: one standard deviation of the
/// logarithm; and for operations in the page cache.
const BETWEEN_MIN: f64 = 0.02;
const MEMORY_BETWEEN: f64 = 0.35;
/// Chance of any false alarm in a whole comparison.
const ALPHA: f64 = 0.01;
/// A change below 5% does not count, however certain.
const CHANGE_MIN: f64 = 1.05;
/// Median absolute deviation to standard deviation, and the mean square of the nearer three
/// quarters to variance, for normal noise.
const MAD_TO_SD: f64 = 1.4826;
const NEARER_TO_VARIANCE: f64 = 2.714;

/// A comparison of two results.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The answer, in words.
    pub sentence: String,
    /// How it was compared, and how the runs differ as wholes.
    pub notes: Vec<String>,
    /// One line for each way of both results.
    pub lines: Vec<Line>,
}

/// One way in both results.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Table, and place.
    pub group: String,
    /// The way's name.
    pub name: String,
    /// How many times as fast it is in the second result, each by its own yardstick. The interval
    /// is of this line alone; the verdict is corrected for all lines together.
    pub relative: Option<Relative>,
    /// Why there is no verdict, if there is a special reason.
    pub why: Option<String>,
}

impl Line {
    /// The verdict: a tie is the same, whatever is not told cannot be told.
    pub fn verdict(&self) -> Verdict {
        self.relative.map_or(Verdict::CannotTell, |found| found.verdict)
    }
}

impl Comparison {
    /// Lines with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|line| line.verdict() == verdict).count()
    }

    /// 0: no way is shown to be slower; 3: one is; 4: there is no verdict on anything.
    pub fn exit_code(&self) -> u8 {
        match (self.count(Verdict::Slower), self.count(Verdict::Tie) + self.count(Verdict::Faster))
        {
            (0, 0) => 4,
            (0, _) => 0,
            _ => 3,
        }
    }
}

/// Compares the second result with the first. Where the lab doubts one of the two and not the
/// other, no way has a verdict: what caused the warning may have caused the difference.
pub fn compare(first: &LabResult, second: &LabResult) -> Comparison {
    let (before, after) = (groups(first), groups(second));
    let mut found = Comparison::default();
    let text = "Each way is compared relative to its own run: what a round or a run did to all \
                ways alike is subtracted, so a disk that is slower as a whole does not count.";
    found.notes.push(text.into());
    let both = before.iter().filter_map(|(name, table)| Some((name, *table, *after.get(name)?)));
    let shifts: Vec<_> = both.map(|(name, a, b)| group(name, a, b, &mut found)).collect();
    let count = |groups: &BTreeMap<String, &Table>| {
        groups.values().map(|table| table.ways.len()).sum::<usize>()
    };
    let alone = count(&before) + count(&after) - 2 * found.lines.len();
    if alone > 0 {
        found.notes.push(format!("{alone} ways are in one of the two results alone."));
    }
    match doubt(first, second) {
        None => judge(&mut found.lines, &shifts),
        Some(why) => {
            let open = found.lines.iter_mut().filter(|line| line.why.is_none());
            open.for_each(|line| line.why = Some(why.clone()));
        }
    }
    found.sentence = sentence(&found);
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

/// The tables by name, without the directory, which differs between machines and days; images, and
/// the disks of a comparison of disks, keep their names. Of two of one name the first counts.
fn groups(result: &LabResult) -> BTreeMap<String, &Table> {
    let mut all = BTreeMap::new();
    for table in result.tables.iter().rev() {
        let Table { name, place, .. } = table;
        let has_place = place.name.contains(" loop") || name == "disks";
        all.insert(
            if has_place { format!("{name} ({})", place.name) } else { name.clone() },
            table,
        );
    }
    all
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

/// Runs of one build differ by at least this much.
fn between_min(table: &Table, way: &Way) -> f64 {
    let writing = way.file_bytes.and_then(|_| Writing::named(&way.name).ok());
    let is_memory = writing.is_some_and(|writing| {
        writing.strategy.access == Access::Mmap || writing.strategy.durability == Durability::None
    });
    let reads = table.name.starts_with("read-") || table.name == "text";
    if reads || is_memory || lies(way) { MEMORY_BETWEEN } else { BETWEEN_MIN }
}

/// Why these two cannot be compared.
fn cannot(a: (&Table, &Way), b: (&Table, &Way)) -> Option<String> {
    let invalid = |way: &Way, which: &str| {
        let rounds = logs(way).len();
        let few = (rounds < ROUNDS_MIN as usize)
            .then(|| format!("only {rounds} rounds; {ROUNDS_MIN} are needed"));
        way.missing.clone().or(few).map(|why| format!("in the {which}: {why}"))
    };
    let what = |(table, way): (&Table, &Way)| {
        let durable = if lies(way) { ", seen not to be durable" } else { "" };
        let bytes = way.file_bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
        format!("{}{bytes}{durable}", table.unit.name())
    };
    let (one, two) = (what(a), what(b));
    let differ =
        (one != two).then(|| format!("different things: {one} in the first, {two} in the second"));
    invalid(a.1, "first").or_else(|| invalid(b.1, "second")).or(differ)
}

/// How much a way of the second result differs from that of the first, as a logarithm, its error
/// from the scatter of the rounds, and how much runs of one build differ at least.
#[derive(Debug, Clone, Copy)]
struct Shift {
    log: f64,
    error: f64,
    between_min: f64,
}

impl Shift {
    fn between(a: &[f64], b: &[f64], between_min: f64) -> Self {
        let differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
        // The variance of a Hodges-Lehmann centre: pi/3 of the mean's, for normal noise.
        let variance = |values: &[f64]| {
            let from = hodges_lehmann_of(values);
            let away: Vec<f64> = values.iter().map(|value| (value - from).abs()).collect();
            (median(&away).unwrap_or(0.0) * MAD_TO_SD).powi(2) / values.len() as f64
        };
        let error = ((variance(a) + variance(b)) * std::f64::consts::FRAC_PI_3).sqrt();
        Self { log: median(&differences).unwrap_or(0.0), error, between_min }
    }
}

/// Adds a line for each way of both tables; returns the shift of each line that can be judged.
fn group(name: &str, first: &Table, second: &Table, found: &mut Comparison) -> Vec<(usize, Shift)> {
    let both = first.ways.iter().filter_map(|way| Some((way, second.way(&way.name)?)));
    let mut usable: Vec<(usize, &Way, &Way)> = Vec::new();
    for (way, other) in both {
        let why = cannot((first, way), (second, other));
        if why.is_none() {
            usable.push((found.lines.len(), way, other));
        }
        let (group, name) = (name.to_owned(), way.name.clone());
        found.lines.push(Line { group, name, why, ..Line::default() });
    }
    let (a, b): (Vec<Logs>, Vec<Logs>) = usable.iter().map(|(_, a, b)| (logs(a), logs(b))).unzip();
    let centre = |one: &Logs| hodges_lehmann_of(&one.values().copied().collect::<Vec<_>>());
    let wholes: Vec<f64> = a.iter().zip(&b).map(|(a, b)| centre(b) - centre(a)).collect();
    found.notes.extend(median(&wholes).map(|log| {
        format!("{name}: the second run as a whole took {:.2} times as long.", log.exp())
    }));
    let Some((a, b)) = by_yardstick(&a).zip(by_yardstick(&b)) else {
        let why = "fewer than 5 ways, or 5 rounds of all of them: there is no yardstick";
        usable.iter().for_each(|(at, ..)| found.lines[*at].why = Some(why.into()));
        return Vec::new();
    };
    let shift = |(index, (at, way, _)): (usize, &(usize, &Way, &Way))| {
        (*at, Shift::between(&a[index], &b[index], between_min(first, way)))
    };
    let mut shifts: Vec<(usize, Shift)> = usable.iter().enumerate().map(shift).collect();
    // The part that all share belongs to the second run as a whole.
    let whole = median(&shifts.iter().map(|(_, shift)| shift.log).collect::<Vec<_>>());
    shifts.iter_mut().for_each(|(_, shift)| shift.log -= whole.unwrap_or(0.0));
    shifts
}

/// Each way, round by round, without the common change of each round; `None` without a yardstick.
fn by_yardstick(ways: &[Logs]) -> Option<Vec<Vec<f64>>> {
    if ways.len() < LEVEL_MIN {
        return None;
    }
    let centre = |logs: &Logs| hodges_lehmann_of(&logs.values().copied().collect::<Vec<_>>());
    let centres: Vec<f64> = ways.iter().map(centre).collect();
    let level = |&number: &u32| {
        let away = ways.iter().zip(&centres);
        let away = away.map(|(logs, centre)| Some(logs.get(&number)? - centre));
        Some((number, median(&away.collect::<Option<Vec<f64>>>()?)?))
    };
    let yard: Logs = ways[0].keys().filter_map(level).collect();
    let against = |logs: &Logs| {
        logs.iter().filter_map(|(number, log)| Some(log - yard.get(number)?)).collect()
    };
    (yard.len() >= ROUNDS_MIN as usize).then(|| ways.iter().map(against).collect())
}

/// Compares every line that has a shift. Each group has its own noise
/// between runs; Holm's procedure covers all groups together.
fn judge(lines: &mut [Line], groups: &[Vec<(usize, Shift)>]) {
    let mut tests = Vec::new();
    for group in groups {
        let shifts: Vec<Shift> = group.iter().map(|(_, shift)| *shift).collect();
        let (between, within) = noise(&shifts);
        // By simulation (`tests`): with so many degrees the false alarms stay below `ALPHA`.
        let degrees = shifts.len().clamp(5, 30);
        let reach = t_of_tail(0.025, degrees);
        for &(index, shift) in group {
            // A way whose few rounds happen to agree is not more certain than the others.
            let error = shift.error.max(within).hypot(between.max(shift.between_min));
            let end = |by: f64| (-shift.log + by * reach * error).exp();
            let interval = (end(-1.0), end(1.0));
            let found = Relative::with_interval(end(0.0), interval, Verdict::CannotTell);
            lines[index].relative = Some(found);
            tests.push((2.0 * t_above((shift.log / error).abs(), degrees), index));
        }
    }
    tests.sort_by(|a, b| a.0.total_cmp(&b.0));
    let count = tests.len();
    let mut rejected = true;
    for (place, (p, index)) in tests.into_iter().enumerate() {
        // Step down: the first hypothesis that is not rejected ends it.
        rejected = rejected && p <= ALPHA / (count - place) as f64;
        let Some(found) = &mut lines[index].relative else { continue };
        found.verdict = match found.interval() {
            _ if rejected && found.speedup <= 1.0 / CHANGE_MIN => Verdict::Slower,
            _ if rejected && found.speedup >= CHANGE_MIN => Verdict::Faster,
            Some((low, high)) if low >= 1.0 / SAME_WITHIN && high <= SAME_WITHIN => Verdict::Tie,
            _ => Verdict::CannotTell,
        };
    }
}

/// The noise between runs (the spread of the shifts beyond their own errors), and the usual own
/// error.
fn noise(shifts: &[Shift]) -> (f64, f64) {
    let errors: Vec<f64> = shifts.iter().map(|shift| shift.error).collect();
    let within = median(&errors).unwrap_or(0.0);
    let mut squares: Vec<f64> = shifts.iter().map(|shift| shift.log.powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    squares.truncate((squares.len() * 3).div_ceil(4));
    let nearer = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
    ((nearer * NEARER_TO_VARIANCE - within.powi(2)).max(0.0).sqrt(), within)
}

/// The answer.
fn sentence(found: &Comparison) -> String {
    let named = |verdict: Verdict, word: &str| {
        let of_it = found.lines.iter().filter(|line| line.verdict() == verdict);
        let name = |line: &Line| {
            Some(format!("`{}` ({:.2} times as fast)", line.name, line.relative?.speedup))
        };
        let names: Vec<String> = of_it.filter_map(name).collect();
        (!names.is_empty()).then(|| format!("{word}: {}. ", names.join(", ")))
    };
    let (same, unknown) = (found.count(Verdict::Tie), found.count(Verdict::CannotTell));
    if found.lines.len() == unknown {
        return format!("No answer: none of {unknown} is within the margin or beyond the noise.");
    }
    let slower = named(Verdict::Slower, "Slower");
    let slower = slower.unwrap_or_else(|| "No way is shown to be slower. ".into());
    let faster = named(Verdict::Faster, "Faster").unwrap_or_default();
    let margin = (SAME_WITHIN - 1.0) * 100.0;
    format!("{slower}{faster}The same (within {margin:.0}%): {same}. No answer: {unknown}.")
}

#[cfg(test)]
mod tests;
