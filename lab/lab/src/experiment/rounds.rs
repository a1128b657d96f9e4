//! The frame of every experiment: rows side by side, in rounds, each in another random order,
//! within a budget of time.
//!
//! *Owns*: the order of turns, what happens to a row that fails, the comparison with the baseline,
//! where a curve bends. *May not touch*: what a row does in its turn.

use std::time::{Duration, Instant};

use inkstone_host::Usage;

use crate::progress::Progress;
use crate::result::{Histogram, Round, Verdict};
use crate::site::Site;
use crate::stage::{CellError, Session};
use crate::stats::{median, relative, relative_of_several};

use super::{ExperimentResult, ExperimentRow, Figure, Unit};

/// How often and how long.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rounds; every row has a turn in each.
    pub rounds: u32,
    /// The time for all turns together, including their preparation; `None`: as long as it takes.
    pub budget: Option<Duration>,
    /// Seed of the orders and of the bytes.
    pub seed: u64,
}

/// The share of a row's budget that is measured; the rest brings the file into its state.
const MEASURED_SHARE: f64 = 0.6;
/// Rounds that are enough for a count.
const COUNTED_ROUNDS: u32 = 5;
/// A shorter turn would measure the clock.
const TURN_MIN: Duration = Duration::from_millis(10);
/// When this multiple of the budget is used up, the rounds end even if there are fewer than an
/// interval needs.
const BUDGETS_MAX: f64 = 1.25;

impl Pace {
    /// For rows that count. They need few rounds, and all of them: those take a second.
    fn for_counts(&self) -> Self {
        Self { rounds: self.rounds.min(COUNTED_ROUNDS), budget: None, ..*self }
    }

    /// A part of the time.
    pub(super) fn part(&self, share: f64) -> Self {
        Self { budget: self.budget.map(|budget| budget.mul_f64(share)), ..*self }
    }

    /// The measured time of one turn, with this many rows.
    pub(crate) fn turn(&self, rows: usize) -> Duration {
        let turns = f64::from(self.rounds.max(1)) * rows.max(1) as f64;
        self.budget
            .map_or(Duration::MAX, |budget| budget.mul_f64(MEASURED_SHARE / turns).max(TURN_MIN))
    }
}

/// One turn of one row.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// The place, and the user's wish to stop.
    pub(crate) session: &'a Session<'a>,
    /// How long it may be measured.
    pub(crate) time: Duration,
    /// A different number for each turn.
    pub(crate) seed: u64,
}

impl Turn<'_> {
    /// When a turn that begins at `begin_ns` ends.
    pub(crate) fn end_ns(&self, begin_ns: u64) -> u64 {
        begin_ns.saturating_add(u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The result of a turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Operations, or bytes: what the experiment's unit counts.
    pub(crate) amount: u64,
    /// Their time.
    pub(crate) total_ns: u64,
    /// Further figures; the row's figure is the median over its turns.
    pub(crate) figures: Vec<Figure>,
}

/// A turn whose figure is a count and no rate.
pub(crate) fn counted(amount: u64) -> Sample {
    const SECOND_NS: u64 = 1_000_000_000;
    Sample { amount, total_ns: SECOND_NS, figures: Vec::new() }
}

/// What a row does.
pub(crate) trait Arm {
    /// Takes its turn.
    ///
    /// # Errors
    /// The row ends then, with this reason.
    fn turn(&mut self, turn: &Turn<'_>) -> Result<Sample, CellError>;

    /// Times of single operations in all turns so far.
    fn latency(&self) -> Option<Histogram> {
        None
    }

    /// Figures over all turns so far; figures of single turns become medians instead.
    fn totals(&self) -> Vec<Figure> {
        Vec::new()
    }
}

/// A row on its way through the rounds.
pub(crate) struct Row<'a> {
    shown: ExperimentRow,
    arm: Option<Box<dyn Arm + 'a>>,
    rounds: Vec<Round>,
    figures: Vec<Vec<Figure>>,
}

impl<'a> Row<'a> {
    /// A row; if its arm could not be created, it has the reason instead.
    pub(crate) fn new<A: Arm + 'a>(
        name: impl Into<String>,
        series: &str,
        x: Option<f64>,
        arm: Result<A, CellError>,
    ) -> Self {
        let mut shown = ExperimentRow {
            name: name.into(),
            series: series.into(),
            x,
            ..ExperimentRow::default()
        };
        let arm = match arm {
            Ok(arm) => Some(Box::new(arm) as Box<dyn Arm + 'a>),
            Err(error) => {
                shown.invalid = Some(error.reason());
                None
            }
        };
        Self { shown, arm, rounds: Vec::new(), figures: Vec::new() }
    }
}

/// The texts and the baseline of an experiment.
pub(crate) struct Frame {
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) x_name: Option<&'static str>,
    pub(crate) unit: Unit,
    /// Name of the row that the others are compared with.
    pub(crate) baseline: String,
}

/// Where an experiment is measured, how often and how long, and where it shows its progress.
#[expect(missing_debug_implementations, reason = "progress is a terminal")]
pub struct Scene<'a> {
    /// The place.
    pub site: &'a Site,
    /// Its directory, and the user's wish to stop.
    pub session: &'a Session<'a>,
    /// How often and how long.
    pub pace: Pace,
    /// Where it shows its progress.
    pub progress: &'a mut Progress,
}

/// What runs the rounds of some rows.
type Measure = dyn Fn(&mut Scene<'_>) -> Result<Vec<ExperimentResult>, CellError>;

/// Ways whose figures are not commits of one cell, measured side by side: reads, pools, logs.
pub struct Rows {
    /// Its name. Its results are called the same, or the same and more behind a dash.
    pub name: &'static str,
    /// Bytes of disk that it needs at the same time.
    pub room_bytes: u64,
    /// How many rows have a turn in each round.
    pub count: usize,
    /// Seconds that it takes unless another time is given.
    pub seconds: f64,
    /// Whether it needs a file system that nobody else uses: it counts what reaches the device.
    pub is_private: bool,
    run: Box<Measure>,
}

impl Rows {
    /// Rows that need this much room.
    pub(super) fn new(
        name: &'static str,
        (count, room_bytes, seconds): (usize, u64, f64),
        run: impl Fn(&mut Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> + 'static,
    ) -> Self {
        Self { name, room_bytes, count, seconds, is_private: false, run: Box::new(run) }
    }

    /// The same in another time.
    pub(super) fn taking(self, seconds: f64) -> Self {
        Self { seconds, ..self }
    }

    /// The same on a file system that nobody else uses.
    pub(super) fn private(self) -> Self {
        Self { is_private: true, ..self }
    }

    /// The steps that they report to their progress.
    pub(crate) fn steps(&self, pace: &Pace) -> u64 {
        u64::from(pace.rounds) * self.count as u64
    }

    /// Runs them, and removes their files.
    ///
    /// # Errors
    /// A failure of all rows: the file could not be created, or the user wants to stop before there
    /// is any result.
    pub fn measure(&self, scene: &mut Scene<'_>) -> Result<Vec<ExperimentResult>, CellError> {
        (self.run)(scene)
    }

    /// Whether a result of this name is one of theirs.
    pub fn gives(&self, result: &str) -> bool {
        let rest = result.strip_prefix(self.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Scene<'_> {
    /// Runs the rounds of all rows. Results measured before Ctrl-C are kept.
    pub(crate) fn measure(&mut self, frame: &Frame, rows: Vec<Row<'_>>) -> ExperimentResult {
        let pace = self.pace;
        self.measure_at(&pace, frame, rows)
    }

    /// The same for rows that count: few rounds are enough, and all of them are needed.
    pub(crate) fn count(&mut self, frame: &Frame, rows: Vec<Row<'_>>) -> ExperimentResult {
        let pace = self.pace.for_counts();
        self.measure_at(&pace, frame, rows)
    }

    /// The same at another pace.
    pub(crate) fn measure_at(
        &mut self,
        pace: &Pace,
        frame: &Frame,
        mut rows: Vec<Row<'_>>,
    ) -> ExperimentResult {
        let session = self.session;
        let mut random = fastrand::Rng::with_seed(pace.seed);
        let time = pace.turn(rows.len());
        let begin = Instant::now();
        let used = || pace.budget.map_or(0.0, |budget| begin.elapsed().div_duration_f64(budget));
        let mut order: Vec<usize> = (0..rows.len()).collect();
        'rounds: for number in 0..pace.rounds {
            random.shuffle(&mut order);
            // A round that has begun is finished, unless it is far too slow: otherwise some rows
            // would have fewer rounds to compare.
            if used() >= 1.0 {
                break;
            }
            for (turn, &index) in order.iter().enumerate() {
                if session.check().is_err() || used() > BUDGETS_MAX {
                    break 'rounds;
                }
                let row = &mut rows[index];
                self.progress.step(&row.shown.name);
                let seed = random.u64(..);
                let Some(arm) = &mut row.arm else { continue };
                match arm.turn(&Turn { session, time, seed }) {
                    Ok(sample) => row.take(number, turn as u32, sample),
                    Err(CellError::Interrupted) => break 'rounds,
                    Err(error) => row.fail(&error),
                }
            }
        }
        finish(self.site, pace, frame, rows)
    }
}

impl Row<'_> {
    fn take(&mut self, number: u32, turn: u32, sample: Sample) {
        let Sample { amount, total_ns, figures } = sample;
        self.rounds.push(Round { number, turn, commits: amount, total_ns, ..Round::default() });
        self.figures.push(figures);
    }

    fn fail(&mut self, error: &CellError) {
        self.shown.invalid = Some(error.reason());
        self.arm = None;
        self.rounds.clear();
    }

    fn finish(
        mut self,
        base: &[Round],
        is_base: bool,
        unit: Unit,
        (seed, questions): (u64, usize),
    ) -> ExperimentRow {
        let value = |round: &Round| match unit.is_time() {
            true => round.per_commit_ns(),
            false => round.commits as f64 * 1e9 / round.total_ns.max(1) as f64,
        };
        self.shown.samples = self.rounds.iter().map(value).collect();
        if self.rounds.is_empty() {
            return self.shown;
        }
        self.shown.relative =
            if is_base { None } else { relative_of_several(base, &self.rounds, seed, questions) };
        self.shown.latency = self.arm.as_ref().and_then(|arm| arm.latency());
        for figure in self.figures.iter().flatten() {
            if !self.shown.figures.iter().any(|known| known.name == figure.name) {
                let values: Vec<f64> = self
                    .figures
                    .iter()
                    .flatten()
                    .filter(|f| f.name == figure.name)
                    .map(|f| f.value)
                    .collect();
                // The clock of CPU time ticks slowly: in a short turn it may not have moved, but
                // over all turns it has.
                let of_cpu =
                    matches!(figure.unit, Unit::NsPerOp | Unit::NsPerMib | Unit::NsPerLine);
                let value = if of_cpu {
                    values.iter().sum::<f64>() / values.len().max(1) as f64
                } else {
                    median(&values).unwrap_or(figure.value)
                };
                if !(of_cpu && value == 0.0) {
                    self.shown.figures.push(Figure { value, ..figure.clone() });
                }
            }
        }
        self.shown.figures.extend(self.arm.iter().flat_map(|arm| arm.totals()));
        self.shown
    }
}

fn finish(site: &Site, pace: &Pace, frame: &Frame, rows: Vec<Row<'_>>) -> ExperimentResult {
    let base = rows.iter().find(|row| row.shown.name == frame.baseline && !row.rounds.is_empty());
    let base_rounds = base.map(|row| row.rounds.clone()).unwrap_or_default();
    let baseline = base.map(|row| row.shown.name.clone());
    let knees = knees(&rows, pace.seed);
    // A reader looks at all rows: their intervals hold together.
    let questions = rows.iter().filter(|row| !row.rounds.is_empty()).count().saturating_sub(1);
    let rows = rows.into_iter().map(|row| {
        let is_base = baseline.as_ref() == Some(&row.shown.name);
        row.finish(&base_rounds, is_base, frame.unit, (pace.seed, questions))
    });
    ExperimentResult {
        name: frame.name.into(),
        title: frame.title.clone(),
        command: String::new(),
        place: site.place.clone(),
        x_name: frame.x_name.map(str::to_owned),
        unit: frame.unit,
        rounds: pace.rounds,
        seed: pace.seed,
        rows: rows.collect(),
        baseline,
        knees: if frame.x_name.is_some() { knees } else { Vec::new() },
        finding: None,
        notes: Vec::new(),
    }
}

/// Where each series stops rising.
fn knees(rows: &[Row<'_>], seed: u64) -> Vec<(String, f64)> {
    let mut series: Vec<&str> = Vec::new();
    for row in rows {
        if !series.contains(&row.shown.series.as_str()) {
            series.push(&row.shown.series);
        }
    }
    let knee_of = |name: &&str| {
        let points: Vec<(f64, &[Round])> = rows
            .iter()
            .filter(|row| row.shown.series == *name && !row.rounds.is_empty())
            .filter_map(|row| Some((row.shown.x?, row.rounds.as_slice())))
            .collect();
        Some(((*name).to_owned(), knee(&points, seed)?))
    };
    series.iter().filter_map(knee_of).collect()
}

/// Where a curve bends: the smallest x such that no larger one is *measurably* better, by the same
/// rule as every comparison. `None` if it rises to its last point, and if there are too few points
/// or rounds.
fn knee(points: &[(f64, &[Round])], seed: u64) -> Option<f64> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let verdict =
        |from: &[Round], to: &[Round]| relative(from, to, seed).map(|relative| relative.verdict);
    for (index, (x, rounds)) in points.iter().enumerate() {
        let verdicts: Vec<Option<Verdict>> =
            points[index + 1..].iter().map(|(_, later)| verdict(rounds, later)).collect();
        if verdicts.iter().any(|verdict| matches!(verdict, None | Some(Verdict::Unknown))) {
            return None;
        }
        if !verdicts.contains(&Some(Verdict::Faster)) {
            return (index + 1 < points.len()).then_some(*x);
        }
    }
    None
}

/// What the process used for so many operations.
pub(crate) fn usage_figures(usage: &Usage, operations: u64) -> Vec<Figure> {
    used(usage, operations, Unit::PerOp, Unit::NsPerOp)
}

/// What the process used for so many MiB.
pub(crate) fn usage_per_mib(usage: &Usage, mib: u64) -> Vec<Figure> {
    used(usage, mib, Unit::PerMib, Unit::NsPerMib)
}

fn used(usage: &Usage, amount: u64, each: Unit, ns: Unit) -> Vec<Figure> {
    let per = |value: u64| value as f64 / amount.max(1) as f64;
    vec![
        figure("context switches", each, per(usage.switches())),
        figure("system time", ns, per(usage.system_ns)),
        figure("user time", ns, per(usage.user_ns)),
    ]
}

/// A figure.
pub(crate) fn figure(name: &str, unit: Unit, value: f64) -> Figure {
    Figure { name: name.into(), unit, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(per_s: f64) -> Vec<Round> {
        let one = |number: u32| Round {
            number,
            commits: 1000,
            total_ns: (1e12 / per_s * (1.0 + f64::from(number % 3) * 0.004)) as u64,
            ..Round::default()
        };
        (0..7).map(one).collect()
    }

    fn knee_of(curve: &[(f64, f64)]) -> Option<f64> {
        let rounds: Vec<(f64, Vec<Round>)> = curve.iter().map(|&(x, y)| (x, rounds(y))).collect();
        let points: Vec<(f64, &[Round])> =
            rounds.iter().map(|(x, rounds)| (*x, rounds.as_slice())).collect();
        knee(&points, 1)
    }

    #[test]
    fn a_curve_bends_where_one_sees_it() {
        let nvme =
            [(2.0, 32505.0), (8.0, 65828.0), (64.0, 79173.0), (128.0, 48901.0), (256.0, 22956.0)];
        assert_eq!(knee_of(&nvme), Some(64.0), "as published");
        let sata = [(2.0, 29600.0), (8.0, 39530.0), (64.0, 37836.0), (128.0, 34354.0)];
        assert_eq!(knee_of(&sata), Some(8.0), "as published");
        assert_eq!(knee_of(&[(1.0, 100.0), (2.0, 150.0), (4.0, 220.0)]), None, "it only rises");
        assert_eq!(knee_of(&[(4.0, 50.0), (1.0, 100.0), (2.0, 101.0)]), Some(1.0), "1% is no rise");
        assert_eq!(knee_of(&[(1.0, 100.0)]), None);
        let few: Vec<Round> = rounds(100.0).into_iter().take(2).collect();
        assert_eq!(knee(&[(1.0, &few), (2.0, &few)], 1), None, "too few rounds");
    }

    /// A clock that ticks every 4 ms shows 0 for a short turn. Over all turns together it shows a
    /// time, or there is no figure.
    #[test]
    fn cpu_time_that_the_clock_did_not_see_is_not_zero() {
        let of = |values: [f64; 3]| {
            let figures =
                values.map(|value| vec![figure("user time", Unit::NsPerOp, value)]).to_vec();
            let shown = ExperimentRow::default();
            let row = Row { shown, arm: None, rounds: rounds(100.0), figures };
            row.finish(&[], true, Unit::OperationsPerS, (1, 1)).figures
        };
        assert_eq!(of([0.0, 0.0, 0.0]), []);
        assert_eq!(of([0.0, 0.0, 600.0]), [figure("user time", Unit::NsPerOp, 200.0)]);
    }

    #[test]
    fn a_turn_is_a_part_of_the_budget() {
        let pace = Pace { rounds: 5, budget: Some(Duration::from_secs(10)), seed: 1 };
        assert_eq!(pace.turn(6), Duration::from_millis(200));
        assert_eq!(pace.turn(10_000), TURN_MIN);
        assert_eq!(Pace { budget: None, ..pace }.turn(6), Duration::MAX);
    }
}
